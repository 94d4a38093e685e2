// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a domain writes into xenstore and into its directory pages: numbers, bounds, what is
 * missing, and that each word is read once.
 */
#include "front/xen_nodes.h"
#include "tests/unit/unit.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A front end's directory. */
struct node {
	char name[24];
	char text[XEN_TEXT_MAX];
	unsigned reads;
};

#define MAX_NODES 128

struct directory {
	struct node nodes[MAX_NODES];
	unsigned nr;
};

static struct node *find(struct directory *d, const char *name)
{
	for (unsigned i = 0; i < d->nr; i++)
		if (!strcmp(d->nodes[i].name, name))
			return &d->nodes[i];
	return NULL;
}

static void put(struct directory *d, const char *name, const char *text)
{
	struct node *node = find(d, name);

	if (!node) {
		node = &d->nodes[d->nr++];
		snprintf(node->name, sizeof(node->name), "%s", name);
	}
	node->reads = 0;
	snprintf(node->text, sizeof(node->text), "%s", text);
}

static bool read_node(void *arg, const char *name, char text[XEN_TEXT_MAX])
{
	struct node *node = find(arg, name);

	if (!node || !node->text[0])
		return false;
	node->reads++;
	strcpy(text, node->text);
	return true;
}

static const struct xen_offer offer = {.bytes = 16u << 20, .rings = 8};

/* What a good front end of 2 rings and 8 MiB writes. */
static struct directory good(void)
{
	struct directory d = {0};

	put(&d, "region-bytes", "8388608");
	put(&d, "rings", "2");
	put(&d, "directory-ref-0", "520");
	put(&d, "directory-ref-1", "521");
	put(&d, "event-channel-0", "9");
	put(&d, "event-channel-1", "4294967294");
	return d;
}

static int choose(struct directory *d, struct xen_choice *choice, char *why)
{
	why[0] = 0;
	return xen_choice_read(choice, &offer, read_node, d, why, 128);
}

static void choice_good(void)
{
	struct directory d = good();
	struct xen_choice choice;
	char why[128];

	CU_ASSERT_EQUAL(choose(&d, &choice, why), 0);
	CU_ASSERT_EQUAL(choice.bytes, 8u << 20);
	CU_ASSERT_EQUAL(choice.rings, 2);
	CU_ASSERT_EQUAL(xen_directories(choice.bytes), 2);
	CU_ASSERT_EQUAL(choice.directory[0], 520);
	CU_ASSERT_EQUAL(choice.directory[1], 521);
	CU_ASSERT_EQUAL(choice.port[0], 9);
	CU_ASSERT_EQUAL(choice.port[1], 4294967294u);
	for (unsigned i = 0; i < d.nr; i++)
		CU_ASSERT_EQUAL(d.nodes[i].reads, 1);
}

/* One node made bad at a time; the sentence names it. */
static void choice_bad(void)
{
	static const struct {
		const char *node, *text;
		int error;
	} cases[] = {
		{"region-bytes", "", -ENOENT},
		{"region-bytes", "0", -EINVAL},
		{"region-bytes", "524288", -EINVAL},
		{"region-bytes", "3145728", -EINVAL},
		{"region-bytes", "33554432", -EINVAL}, /* more than was offered */
		{"region-bytes", "-1", -EINVAL},
		{"region-bytes", "8388608 ", -EINVAL},
		{"region-bytes", "0x800000", -EINVAL},
		{"region-bytes", "99999999999999999999999999", -EINVAL},
		{"rings", "0", -EINVAL},
		{"rings", "9", -EINVAL},
		{"rings", "two", -EINVAL},
		{"rings", "", -ENOENT},
		{"directory-ref-1", "", -ENOENT},
		{"directory-ref-0", "4294967295", -EINVAL},
		{"directory-ref-0", "4294967816", -EINVAL}, /* 520 in 32 bits */
		{"event-channel-1", "", -ENOENT},
		{"event-channel-0", "0", -EINVAL},
		{"event-channel-0", "18446744073709551625", -EINVAL}, /* 9 in 64 bits */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct directory d = good();
		struct xen_choice choice;
		char why[128];

		put(&d, cases[i].node, cases[i].text);
		CU_ASSERT_EQUAL(choose(&d, &choice, why), cases[i].error);
		CU_ASSERT_PTR_EQUAL(strstr(why, cases[i].node), why);
	}
}

/* The largest of all: as many directories and channels as there may be, and no more are read. */
static void choice_largest(void)
{
	const struct xen_offer largest = {.bytes = XEN_REGION_MAX, .rings = TMEM_MAX_RINGS};
	struct directory d = {0};
	struct xen_choice choice;
	char name[24], why[128];

	put(&d, "region-bytes", "67108864");
	put(&d, "rings", "64");
	for (unsigned i = 0; i <= XEN_MAX_DIRECTORIES; i++) {
		snprintf(name, sizeof(name), "directory-ref-%u", i);
		put(&d, name, "8");
	}
	for (unsigned i = 0; i <= TMEM_MAX_RINGS && d.nr < MAX_NODES; i++) {
		snprintf(name, sizeof(name), "event-channel-%u", i);
		put(&d, name, "8");
	}
	CU_ASSERT_EQUAL(xen_choice_read(&choice, &largest, read_node, &d, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(xen_directories(choice.bytes), XEN_MAX_DIRECTORIES);
	CU_ASSERT_EQUAL(find(&d, "directory-ref-15")->reads, 1);
	CU_ASSERT_EQUAL(find(&d, "directory-ref-16")->reads, 0);
	CU_ASSERT_EQUAL(find(&d, "event-channel-63")->reads, 1);
	CU_ASSERT_EQUAL(find(&d, "event-channel-64")->reads, 0);
}

static void uuids(void)
{
	static const uint8_t bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
					  0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
	uint64_t uuid[2];

	CU_ASSERT_EQUAL(xen_uuid("01234567-89ab-cdef-FEDC-ba9876543210", uuid), 0);
	CU_ASSERT_EQUAL(memcmp(uuid, bytes, sizeof(bytes)), 0);
	CU_ASSERT_EQUAL(xen_uuid("0123456789abcdeffedcba9876543210", uuid), 0);
	CU_ASSERT_EQUAL(memcmp(uuid, bytes, sizeof(bytes)), 0);
	CU_ASSERT_EQUAL(xen_uuid("", uuid), -EINVAL);
	CU_ASSERT_EQUAL(xen_uuid("guest", uuid), -EINVAL);
	CU_ASSERT_EQUAL(xen_uuid("01234567-89ab-cdef-fedc-ba987654321", uuid), -EINVAL);
	CU_ASSERT_EQUAL(xen_uuid("01234567-89ab-cdef-fedc-ba98765432100", uuid), -EINVAL);
	CU_ASSERT_EQUAL(xen_uuid("01234567-89ab-cdef-fedc-ba98765432 0", uuid), -EINVAL);
}

static void directory_page(void)
{
	uint32_t page[XEN_DIRECTORY_REFS], refs[XEN_DIRECTORY_REFS + 1];

	for (unsigned i = 0; i < XEN_DIRECTORY_REFS; i++)
		page[i] = htole32(1000 + 3 * i);
	refs[0] = refs[XEN_DIRECTORY_REFS] = 7;
	xen_directory_copy(refs, 0, page);
	CU_ASSERT_EQUAL(refs[0], 7);
	xen_directory_copy(refs, XEN_DIRECTORY_REFS, page);
	CU_ASSERT_EQUAL(refs[0], 1000);
	CU_ASSERT_EQUAL(refs[XEN_DIRECTORY_REFS - 1], 1000 + 3 * (XEN_DIRECTORY_REFS - 1));
	CU_ASSERT_EQUAL(refs[XEN_DIRECTORY_REFS], 7);
}

int main(void)
{
	CU_TestInfo tests[] = {{"what a good front end chose", choice_good},
			       {"bad nodes are named", choice_bad},
			       {"the largest", choice_largest},
			       {"UUIDs", uuids},
			       {"a directory page", directory_page},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"xen_nodes", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
