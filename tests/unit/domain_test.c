// SPDX-License-Identifier: GPL-2.0-or-later
/* The XML of libvirt's domains: what is put in and taken out, and what odd documents do to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "tools/libvirt/domain.h"

static char why[DOMAIN_WHY_MAX];

static xmlDoc *parse(const char *text)
{
	xmlDoc *doc = domain_parse(text, strlen(text), why);

	if (!doc)
		fprintf(stderr, "%s\n%s\n", text, why);
	CU_ASSERT_FATAL(doc != NULL);
	return doc;
}

/* True when the document has the text; frees neither. */
static bool has(xmlDoc *doc, const char *part)
{
	char *text = domain_text(doc);
	bool found;

	CU_ASSERT_FATAL(text != NULL);
	found = strstr(text, part);
	if (!found)
		fprintf(stderr, "%s\nhas no %s\n", text, part);
	free(text);
	return found;
}

static bool lacks(xmlDoc *doc, const char *part)
{
	char *text = domain_text(doc);
	bool found;

	CU_ASSERT_FATAL(text != NULL);
	found = strstr(text, part);
	free(text);
	return !found;
}

static struct domain_device disk_of(const char *name)
{
	struct domain_device dev;

	domain_device_init(&dev, DOMAIN_DISK);
	CU_ASSERT_FATAL(!domain_device_name(&dev, name, why));
	domain_device_default_socket(&dev);
	dev.bytes = 1 << 20;
	dev.queues = 2;
	return dev;
}

/* ---- Parsing -------------------------------------------------------------------------------- */

static void refused(const char *text, const char *expected)
{
	xmlDoc *doc = domain_parse(text, strlen(text), why);

	CU_ASSERT(doc == NULL);
	if (!strstr(why, expected))
		fprintf(stderr, "said: %s\nnot: %s\n", why, expected);
	CU_ASSERT(strstr(why, expected) != NULL);
	xmlFreeDoc(doc);
}

static void no_domains(void)
{
	char *huge = malloc(DOMAIN_XML_MAX + 2);

	refused("", "no well-formed XML");
	refused("<domain>", "no well-formed XML");
	refused("<domain/><domain/>", "no well-formed XML");
	refused("<network/>", "no XML of a domain");
	refused("<!DOCTYPE domain [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><domain>&x;</domain>",
		"document type");
	refused("<!DOCTYPE domain SYSTEM 'http://127.0.0.1:1/x'><domain/>", "document type");
	refused("<domain><name>\xff</name></domain>", "no well-formed XML");
	CU_ASSERT_FATAL(huge != NULL);
	memset(huge, ' ', DOMAIN_XML_MAX + 1);
	huge[DOMAIN_XML_MAX + 1] = 0;
	refused(huge, "more than");
	free(huge);
}

/* A tree as deep as it gets must not use up the stack. */
static void deep(void)
{
	const size_t depth = 100000;
	char *text = malloc(depth * 7 + 32), *end = text;

	CU_ASSERT_FATAL(text != NULL);
	end = stpcpy(end, "<domain>");
	for (size_t i = 0; i < depth; i++)
		end = stpcpy(end, "<a>");
	for (size_t i = 0; i < depth; i++)
		end = stpcpy(end, "</a>");
	strcpy(end, "</domain>");
	refused(text, "no well-formed XML");
	free(text);
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* What is added to the document, or -1 when it is refused. */
static int share(xmlDoc *doc)
{
	unsigned added = 77;
	xmlNode *domain = xmlDocGetRootElement(doc);

	if (domain_memory_share(domain, &added, why))
		return -1;
	CU_ASSERT(!domain_memory_shared(domain, why));
	return (int)added;
}

static void memory_missing(void)
{
	xmlDoc *doc = parse("<domain><memory>1</memory><!-- memoryBacking --></domain>");

	CU_ASSERT(domain_memory_shared(xmlDocGetRootElement(doc), why) == -1);
	CU_ASSERT(share(doc) == (MEMORY_SOURCE | MEMORY_ACCESS));
	CU_ASSERT(has(doc, "<memoryBacking><source type=\"memfd\"/><access mode=\"shared\"/>"));
	CU_ASSERT(share(doc) == 0);
	domain_memory_unshare(xmlDocGetRootElement(doc), MEMORY_SOURCE | MEMORY_ACCESS);
	CU_ASSERT(lacks(doc, "<memoryBacking>") && has(doc, "<!-- memoryBacking -->"));
	xmlFreeDoc(doc);
}

static void memory_partly(void)
{
	xmlDoc *doc = parse("<domain><memoryBacking><locked/><source type='file'/></memoryBacking>"
			    "</domain>");

	CU_ASSERT(share(doc) == MEMORY_ACCESS);
	domain_memory_unshare(xmlDocGetRootElement(doc), MEMORY_ACCESS);
	CU_ASSERT(has(doc, "<memoryBacking><locked/><source type=\"file\"/></memoryBacking>"));
	xmlFreeDoc(doc);
	doc = parse("<domain><memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages>"
		    "</memoryBacking></domain>");
	CU_ASSERT(share(doc) == MEMORY_ACCESS);
	CU_ASSERT(lacks(doc, "memfd"));
	xmlFreeDoc(doc);
	/* What has a namespace is somebody else's. */
	doc = parse("<domain xmlns:x='urn:x'><x:memoryBacking><x:source type='memfd'/>"
		    "<x:access mode='shared'/></x:memoryBacking></domain>");
	CU_ASSERT(share(doc) == (MEMORY_SOURCE | MEMORY_ACCESS));
	xmlFreeDoc(doc);
}

static void memory_cells(void)
{
	xmlDoc *doc = parse("<domain><memoryBacking><source type='memfd'/></memoryBacking><cpu>"
			    "<numa><cell memAccess='shared'/><cell memAccess='shared'/></numa>"
			    "</cpu></domain>");

	CU_ASSERT(share(doc) == 0);
	xmlFreeDoc(doc);
	doc = parse("<domain><cpu><numa><cell memAccess='shared'/><cell/></numa></cpu></domain>");
	CU_ASSERT(share(doc) == (MEMORY_SOURCE | MEMORY_ACCESS));
	xmlFreeDoc(doc);
}

static void memory_opposed(void)
{
	static const char *const domains[] = {
		"<domain><memoryBacking><source type='anonymous'/></memoryBacking></domain>",
		"<domain><memoryBacking><access mode='private'/></memoryBacking></domain>",
		"<domain><memoryBacking><source type='memfd'/><access mode='shared'/>"
		"</memoryBacking>"
		"<cpu><numa><cell memAccess='private'/></numa></cpu></domain>",
	};

	for (size_t i = 0; i < 3; i++) {
		xmlDoc *doc = parse(domains[i]);
		char *before = domain_text(doc), *after;

		CU_ASSERT(share(doc) == -1 && strstr(why, "make it"));
		after = domain_text(doc);
		CU_ASSERT(!strcmp(before, after));
		free(before);
		free(after);
		xmlFreeDoc(doc);
	}
}

static void memory_still_needed(void)
{
	static const char *const devices[] = {
		"<disk type='vhostuser'/>",
		"<interface type='vhostuser'/>",
		"<filesystem type='mount'><driver type='virtiofs'/></filesystem>",
	};
	char text[512];

	for (size_t i = 0; i < 3; i++) {
		xmlDoc *doc;

		snprintf(text, sizeof(text),
			 "<domain><memoryBacking><source type='memfd'/><access mode='shared'/>"
			 "</memoryBacking><devices>%s</devices></domain>",
			 devices[i]);
		doc = parse(text);
		domain_memory_unshare(xmlDocGetRootElement(doc), MEMORY_SOURCE | MEMORY_ACCESS);
		CU_ASSERT(has(doc, "memfd") && has(doc, "shared"));
		xmlFreeDoc(doc);
	}
}

/* ---- Devices -------------------------------------------------------------------------------- */

static void targets(void)
{
	static const struct {
		const char *disks, *next;
	} rows[] = {
		{"", "vda"},
		{"<disk><target dev='sda'/></disk><disk/>", "vda"},
		{"<disk><target dev='vdc'/></disk>", "vdd"},
		{"<disk><target dev='vdz'/></disk><disk><target dev='vda'/></disk>", "vdaa"},
		{"<disk><target dev='vdaz'/></disk>", "vdba"},
		{"<disk><target dev='vdzz'/></disk>", NULL},
		{"<disk><target dev='vd;rm'/></disk><disk><target/></disk>", "vda"},
		{"<disk><target dev='vdaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'/></disk>", "vda"},
	};
	char text[512], target[16];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		xmlDoc *doc;
		int r;

		snprintf(text, sizeof(text), "<domain><devices>%s</devices></domain>",
			 rows[i].disks);
		doc = parse(text);
		r = domain_target(NULL, xmlDocGetRootElement(doc), target);
		CU_ASSERT(r == (rows[i].next ? 0 : -1));
		CU_ASSERT(!rows[i].next || !strcmp(target, rows[i].next));
		xmlFreeDoc(doc);
	}
}

static void disk_in_and_out(void)
{
	xmlDoc *doc = parse("<domain><devices><disk type='file'/></devices></domain>");
	struct domain_device dev = disk_of("tmem-a");
	xmlNode *domain = xmlDocGetRootElement(doc);

	CU_ASSERT(domain_device_find(domain, &dev) == NULL);
	domain_device_add(domain, domain_device_new(&dev, "vdb"));
	CU_ASSERT(has(doc, "<disk type=\"vhostuser\" device=\"disk\">"
			   "<driver name=\"qemu\" type=\"raw\" queues=\"2\"/>"
			   "<source type=\"unix\" path=\"/run/tmem/tmem-a.sock\">"
			   "<reconnect enabled=\"yes\" timeout=\"1\"/></source>"
			   "<target dev=\"vdb\" bus=\"virtio\"/></disk>"));
	CU_ASSERT_FATAL(domain_device_find(domain, &dev) != NULL);
	domain_remove(domain_device_find(domain, &dev));
	CU_ASSERT(has(doc, "<devices><disk type=\"file\"/></devices>"));
	xmlFreeDoc(doc);
}

static void nbd_and_ring(void)
{
	xmlDoc *doc = parse("<domain/>");
	struct domain_device dev = disk_of("tmem-a");
	xmlNode *domain = xmlDocGetRootElement(doc);

	dev.kind = DOMAIN_NBD;
	domain_device_default_socket(&dev);
	domain_device_add(domain, domain_device_new(&dev, "vda"));
	CU_ASSERT(has(doc, "<host transport=\"unix\" socket=\"/run/tmem/tmem-a.nbd.sock\"/>"));
	CU_ASSERT(has(doc, "discard=\"unmap\"") && has(doc, "<serial>tmem-a</serial>"));
	CU_ASSERT(domain_device_find(domain, &dev) != NULL);
	dev.kind = DOMAIN_RING;
	CU_ASSERT(domain_device_find(domain, &dev) == NULL);
	domain_device_add(domain, domain_device_new(&dev, ""));
	CU_ASSERT(has(doc, "<msi vectors=\"2\" ioeventfd=\"on\"/>"));
	CU_ASSERT(domain_device_find(domain, &dev) != NULL);
	xmlFreeDoc(doc);
}

/* A path is data, whatever is in it. */
static void escaped(void)
{
	xmlDoc *doc = parse("<domain/>"), *again;
	struct domain_device dev = disk_of("tmem-a");
	xmlNode *domain = xmlDocGetRootElement(doc);
	char *text;

	strcpy(dev.socket, "/run/'\"/><x>&amp;\xc3\xa4");
	domain_device_add(domain, domain_device_new(&dev, "vda"));
	domain_record_put(domain, &dev);
	text = domain_text(doc);
	CU_ASSERT_FATAL(text != NULL && !strstr(text, "<x>"));
	again = parse(text);
	CU_ASSERT(domain_device_find(xmlDocGetRootElement(again), &dev) != NULL);
	free(text);
	xmlFreeDoc(again);
	xmlFreeDoc(doc);
}

/* ---- The record ----------------------------------------------------------------------------- */

#define RECORD(text)                                                                               \
	"<domain><metadata><x:other xmlns:x='urn:x'><disk name='no'/></x:other>"                   \
	"<t:tmem xmlns:t='" DOMAIN_NS "'>" text "</t:tmem></metadata></domain>"

static void record_in_and_out(void)
{
	xmlDoc *doc = parse("<domain><metadata><x:other xmlns:x='urn:x'/></metadata></domain>");
	struct domain_device dev = disk_of("tmem-a"), found[DOMAIN_MAX_DEVICES];
	xmlNode *domain = xmlDocGetRootElement(doc);

	dev.minimum = 4096;
	dev.maximum = 8192;
	dev.weight = 7;
	dev.mode = 0600;
	dev.uid = 64055;
	dev.overcommit = dev.required = true;
	CU_ASSERT(domain_record(domain, found, NULL, why) == 0);
	domain_record_put_memory(domain, MEMORY_ACCESS);
	domain_record_put(domain, &dev);
	domain_record_put(domain, &dev);
	CU_ASSERT_FATAL(domain_record(domain, found, NULL, why) == 1);
	CU_ASSERT(!memcmp(&found[0], &dev, sizeof(dev)));
	CU_ASSERT(domain_record_memory(domain) == MEMORY_ACCESS);
	domain_record_drop(domain, DOMAIN_NBD, "tmem-a");
	domain_record_drop(domain, DOMAIN_DISK, "tmem-b");
	CU_ASSERT(domain_record(domain, found, NULL, why) == 1);
	domain_record_drop(domain, DOMAIN_DISK, "tmem-a");
	domain_record_put_memory(domain, 0);
	CU_ASSERT(domain_record_element(domain) == NULL);
	CU_ASSERT(has(doc, "<metadata><x:other xmlns:x=\"urn:x\"/></metadata>"));
	xmlFreeDoc(doc);
}

static void record_by_hand(void)
{
	xmlDoc *doc = parse(RECORD("<!-- mine --><t:disk name='a' size='2G'/>\n text "
				   "<disk name='b' size='4096' overcommit='no' gid='0'/>"
				   "<t:nbd name='c'/><t:ring name='d' vectors='3'/><t:memory/>"));
	struct domain_device found[DOMAIN_MAX_DEVICES];

	CU_ASSERT_FATAL(domain_record(xmlDocGetRootElement(doc), found, NULL, why) == 4);
	CU_ASSERT(found[0].bytes == 2ull << 30 && !strcmp(found[0].socket, "/run/tmem/a.sock"));
	CU_ASSERT(found[0].uid == -1 && found[1].gid == 0 && !found[1].overcommit);
	CU_ASSERT(!strcmp(found[2].socket, "/run/tmem/c.nbd.sock"));
	CU_ASSERT(found[3].kind == DOMAIN_RING && found[3].queues == 3);
	xmlFreeDoc(doc);
}

static void record_wrong(void)
{
	static const struct {
		const char *text, *expected;
	} rows[] = {
		{RECORD("<t:disk size='1M'/>"), "has no name"},
		{RECORD("<t:disk name='a'/>"), "disk a has no size"},
		{RECORD("<t:disk name='a' size='much'/>"), "size of a <disk> must be a number"},
		{RECORD("<t:disk name='../a' size='1M'/>"), "name of a <disk> must be"},
		{RECORD("<t:disk name='' size='1M'/>"), "name of a <disk> must be"},
		{RECORD("<t:disk name='a' size='1M' socket='x'/>"), "an absolute path"},
		{RECORD("<t:disk name='a' size='1M' mode='999'/>"), "octal"},
		{RECORD("<t:disk name='a' size='1M' uid='-1'/>"), "number of a user"},
		{RECORD("<t:disk name='a' size='1M' queues='4294967296'/>"), "a number"},
		{RECORD("<t:disk name='a' size='1M' required='true'/>"), "yes or no"},
		{RECORD("<t:disk name='a' size='1M' colour='red'/>"), "has no attribute colour"},
		{RECORD("<t:nbd name='a' size='1M'/>"), "a <nbd> has no attribute size"},
		{RECORD("<t:tape name='a'/>"), "<tape> is nothing that tmemd knows"},
	};
	struct domain_device found[DOMAIN_MAX_DEVICES];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		xmlDoc *doc = parse(rows[i].text);

		CU_ASSERT(domain_record(xmlDocGetRootElement(doc), found, NULL, why) == -1);
		if (!strstr(why, rows[i].expected))
			fprintf(stderr, "said: %s\nnot: %s\n", why, rows[i].expected);
		CU_ASSERT(strstr(why, rows[i].expected) != NULL);
		xmlFreeDoc(doc);
	}
}

/* That something is required is known also when the rest is wrong. */
static void record_required(void)
{
	xmlDoc *doc = parse(RECORD("<t:disk name='a' size='much' required='yes'/>"));
	struct domain_device found[DOMAIN_MAX_DEVICES];
	bool required = false;

	CU_ASSERT(domain_record(xmlDocGetRootElement(doc), found, &required, why) == -1);
	CU_ASSERT(required);
	xmlFreeDoc(doc);
}

static void record_too_many(void)
{
	char text[8192] = "<domain><metadata><t:tmem xmlns:t='" DOMAIN_NS "'>";
	struct domain_device found[DOMAIN_MAX_DEVICES];
	xmlDoc *doc;

	for (int i = 0; i <= DOMAIN_MAX_DEVICES; i++)
		sprintf(text + strlen(text), "<t:nbd name='n%d'/>", i);
	strcat(text, "</t:tmem></metadata></domain>");
	doc = parse(text);
	CU_ASSERT(domain_record(xmlDocGetRootElement(doc), found, NULL, why) == -1);
	CU_ASSERT(strstr(why, "more than") != NULL);
	xmlFreeDoc(doc);
}

int main(void)
{
	CU_TestInfo parsing[] = {{"no domains", no_domains}, {"deep", deep}, CU_TEST_INFO_NULL};
	CU_TestInfo memory[] = {{"missing", memory_missing},
				{"partly", memory_partly},
				{"cells", memory_cells},
				{"opposed", memory_opposed},
				{"still needed", memory_still_needed},
				CU_TEST_INFO_NULL};
	CU_TestInfo devices[] = {{"targets", targets},
				 {"disk", disk_in_and_out},
				 {"nbd and ring", nbd_and_ring},
				 {"escaped", escaped},
				 CU_TEST_INFO_NULL};
	CU_TestInfo record[] = {{"in and out", record_in_and_out}, {"by hand", record_by_hand},
				{"wrong", record_wrong},	   {"required", record_required},
				{"too many", record_too_many},	   CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"parsing", NULL, NULL, NULL, NULL, parsing},
				 {"memory", NULL, NULL, NULL, NULL, memory},
				 {"devices", NULL, NULL, NULL, NULL, devices},
				 {"record", NULL, NULL, NULL, NULL, record},
				 CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
