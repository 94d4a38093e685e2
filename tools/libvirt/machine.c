// SPDX-License-Identifier: GPL-2.0-or-later
/* Machines of libvirt, by its C library. */
#include "config.h"

#include "tools/libvirt/machine.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <libxml/parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of machines that an error message lists at most. */
#define LISTED 20

/* What libvirt said last. */
static int failed(char why[DOMAIN_WHY_MAX])
{
	const char *message = virGetLastErrorMessage();

	snprintf(why, DOMAIN_WHY_MAX, "libvirt: %s", message);
	return -1;
}

/* It would print each error by itself. */
static void silent(void *arg, virErrorPtr error)
{
	(void)arg;
	(void)error;
}

/* ---- Finding one ---------------------------------------------------------------------------- */

/* tmemd and the machine must be on one host, and only QEMU's machines can have what we have. */
static int check_uri(const char *uri, char why[DOMAIN_WHY_MAX])
{
	const char *host = strstr(uri, "://");

	if (!strncmp(uri, "xen", 3)) {
		snprintf(why, DOMAIN_WHY_MAX,
			 "%s: for domains of Xen it is tmemctl attach xl: DOMAIN, by name or UUID; "
			 "their XML stays as it is",
			 uri);
		return CTL_USAGE;
	}
	if (!host || (strncmp(uri, "qemu", 4) && strncmp(uri, "test", 4))) {
		snprintf(why, DOMAIN_WHY_MAX, "%s: allowed is qemu:///system or qemu:///session",
			 uri);
		return CTL_USAGE;
	}
	if (host[3] != '/') {
		snprintf(why, DOMAIN_WHY_MAX,
			 "%s is another host; run tmemctl there, where its tmemd is", uri);
		return CTL_USAGE;
	}
	return CTL_OK;
}

/* Adds the names that there are to the message. */
static void list_names(virConnectPtr conn, char why[DOMAIN_WHY_MAX])
{
	virDomainPtr *all = NULL;
	int nr = virConnectListAllDomains(conn, &all, 0);
	size_t len = strlen(why);

	if (nr == 0)
		snprintf(why + len, DOMAIN_WHY_MAX - len, "; there is none at all");
	for (int i = 0; i < nr; i++) {
		len = strlen(why);
		if (i < LISTED)
			snprintf(why + len, DOMAIN_WHY_MAX - len, "%s%s",
				 i ? ", " : "; there are: ", virDomainGetName(all[i]));
		else if (i == LISTED)
			snprintf(why + len, DOMAIN_WHY_MAX - len, " and %d more", nr - LISTED);
		virDomainFree(all[i]);
	}
	free(all);
}

int machine_open(struct machine *m, const char *uri, const char *name, char why[DOMAIN_WHY_MAX])
{
	int r = check_uri(uri, why);

	*m = (struct machine){0};
	if (r)
		return r;
	virSetErrorFunc(NULL, silent);
	m->conn = virConnectOpen(uri);
	if (!m->conn) {
		failed(why);
		return CTL_UNREACHED;
	}
	virConnectGetLibVersion(m->conn, &m->version);
	m->dom = virDomainLookupByName(m->conn, name);
	if (!m->dom)
		m->dom = virDomainLookupByUUIDString(m->conn, name);
	if (!m->dom) {
		snprintf(why, DOMAIN_WHY_MAX, "%s has no machine with the name or UUID \"%.200s\"",
			 uri, name);
		list_names(m->conn, why);
		return CTL_REFUSED;
	}
	snprintf(m->name, sizeof(m->name), "%s", virDomainGetName(m->dom));
	virDomainGetUUIDString(m->dom, m->uuid);
	m->active = virDomainIsActive(m->dom) == 1;
	m->persistent = virDomainIsPersistent(m->dom) == 1;
	m->saved = virDomainHasManagedSaveImage(m->dom, 0) == 1;
	return CTL_OK;
}

void machine_close(struct machine *m)
{
	if (m->dom)
		virDomainFree(m->dom);
	if (m->conn)
		virConnectClose(m->conn);
	m->dom = m->conn = NULL;
}

/* ---- Changing one --------------------------------------------------------------------------- */

xmlDoc *machine_xml(const struct machine *m, bool live, char why[DOMAIN_WHY_MAX])
{
	unsigned flags = VIR_DOMAIN_XML_SECURE | (live ? 0 : VIR_DOMAIN_XML_INACTIVE);
	char *text = virDomainGetXMLDesc(m->dom, flags);
	xmlDoc *doc;

	if (!text) {
		failed(why);
		return NULL;
	}
	doc = domain_parse(text, strlen(text), why);
	free(text);
	return doc;
}

int machine_define(const struct machine *m, xmlDoc *doc, char why[DOMAIN_WHY_MAX])
{
	char *text = domain_text(doc);
	virDomainPtr dom = text ? virDomainDefineXML(m->conn, text) : NULL;

	free(text);
	if (!dom)
		return failed(why);
	virDomainFree(dom);
	return 0;
}

int machine_plug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX])
{
	char *text = domain_element_text(device);
	int r = text ? virDomainAttachDeviceFlags(m->dom, text, VIR_DOMAIN_AFFECT_LIVE) : -1;

	free(text);
	return r ? failed(why) : 0;
}

int machine_unplug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX])
{
	char *text = domain_element_text(device);
	int r = text ? virDomainDetachDeviceFlags(m->dom, text, VIR_DOMAIN_AFFECT_LIVE) : -1;

	free(text);
	return r ? failed(why) : 0;
}

/* libvirt puts an element and its children into the namespace that it is told. */
static char *without_namespace(const xmlNode *record)
{
	xmlDoc *doc = xmlNewDoc((const xmlChar *)"1.0");
	xmlNode *copy = doc ? xmlDocCopyNode((xmlNode *)record, doc, 1) : NULL;
	char *text = NULL;

	if (copy) {
		xmlDocSetRootElement(doc, copy);
		for (xmlNode *node = copy->children; node; node = node->next)
			node->ns = NULL;
		copy->ns = NULL;
		xmlFreeNsList(copy->nsDef);
		copy->nsDef = NULL;
		text = domain_element_text(copy);
	}
	xmlFreeDoc(doc);
	return text;
}

int machine_record(const struct machine *m, const xmlNode *domain, char why[DOMAIN_WHY_MAX])
{
	const xmlNode *record = domain_record_element(domain);
	char *text = record ? without_namespace(record) : NULL;
	int r = virDomainSetMetadata(m->dom, VIR_DOMAIN_METADATA_ELEMENT, text, DOMAIN_PREFIX,
				     DOMAIN_NS, VIR_DOMAIN_AFFECT_LIVE);

	free(text);
	return r ? failed(why) : 0;
}

/* ---- Who QEMU is ---------------------------------------------------------------------------- */

/* The user in <baselabel>+64055:+64055</baselabel> of the model "dac". */
static int64_t user_of_host(const xmlNode *host)
{
	const xmlNode *model = domain_child(host, "secmodel", NULL);

	for (; model; model = domain_child(host, "secmodel", model)) {
		const xmlNode *name = domain_child(model, "model", NULL);
		const xmlNode *label = domain_child(model, "baselabel", NULL);
		xmlChar *text = name ? xmlNodeGetContent(name) : NULL;
		bool dac = text && xmlStrEqual(text, (const xmlChar *)"dac");
		long uid = -1;

		xmlFree(text);
		if (!dac || !label)
			continue;
		text = xmlNodeGetContent(label);
		if (text && *text == '+')
			uid = strtol((const char *)text + 1, NULL, 10);
		xmlFree(text);
		return uid;
	}
	return -1;
}

int64_t machine_user(const struct machine *m)
{
	char *text = virConnectGetCapabilities(m->conn);
	int64_t uid = -1;
	const xmlNode *host;
	xmlDoc *doc;

	doc = text ? xmlReadDoc((const xmlChar *)text, NULL, NULL, XML_PARSE_NONET) : NULL;
	free(text);
	host = doc ? domain_child(xmlDocGetRootElement(doc), "host", NULL) : NULL;
	if (host)
		uid = user_of_host(host);
	xmlFreeDoc(doc);
	return uid;
}
