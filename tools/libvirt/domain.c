// SPDX-License-Identifier: GPL-2.0-or-later
/* The document of a domain: text into a tree and back, and small steps in it. */
#include "config.h"

#include "tools/libvirt/domain.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XML(text) ((const xmlChar *)(text))

const char *domain_kind_name(enum domain_kind kind)
{
	static const char *const names[DOMAIN_NR_KINDS] = {"disk", "nbd", "ring"};

	return names[kind];
}

void domain_device_init(struct domain_device *dev, enum domain_kind kind)
{
	*dev = (struct domain_device){.kind = kind, .mode = -1, .uid = -1, .gid = -1};
}

/* What libxml2 has to say is asked for by xmlCtxtGetLastError. */
static void silent(void *arg, const char *msg, ...)
{
	(void)arg;
	(void)msg;
}

xmlDoc *domain_parse(const char *text, size_t len, char why[DOMAIN_WHY_MAX])
{
	const int options = XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING;
	xmlParserCtxt *ctxt;
	xmlDoc *doc = NULL;
	const xmlError *error;

	snprintf(why, DOMAIN_WHY_MAX, "out of memory");
	if (len > DOMAIN_XML_MAX) {
		snprintf(why, DOMAIN_WHY_MAX, "the XML has more than %u bytes", DOMAIN_XML_MAX);
		return NULL;
	}
	xmlSetGenericErrorFunc(NULL, silent);
	ctxt = xmlNewParserCtxt();
	if (ctxt)
		doc = xmlCtxtReadMemory(ctxt, text, (int)len, "domain.xml", NULL, options);
	error = ctxt ? xmlCtxtGetLastError(ctxt) : NULL;
	if (!doc && error && error->message)
		snprintf(why, DOMAIN_WHY_MAX, "no well-formed XML: line %d: %.*s", error->line,
			 (int)strcspn(error->message, "\n"), error->message);
	xmlFreeParserCtxt(ctxt);
	if (!doc)
		return NULL;
	if (doc->intSubset)
		snprintf(why, DOMAIN_WHY_MAX, "the XML has a document type");
	else if (strcmp((const char *)xmlDocGetRootElement(doc)->name, "domain"))
		snprintf(why, DOMAIN_WHY_MAX, "this is no XML of a domain");
	else
		return doc;
	xmlFreeDoc(doc);
	return NULL;
}

char *domain_text(xmlDoc *doc)
{
	xmlChar *text = NULL;
	char *copy;
	int len;

	xmlDocDumpMemoryEnc(doc, &text, &len, "UTF-8");
	copy = text ? strdup((const char *)text) : NULL;
	xmlFree(text);
	return copy;
}

char *domain_element_text(xmlNode *node)
{
	xmlBuffer *buffer = xmlBufferCreate();
	char *copy = NULL;

	if (buffer && xmlNodeDump(buffer, node->doc, node, 0, 1) >= 0)
		copy = strdup((const char *)xmlBufferContent(buffer));
	xmlBufferFree(buffer);
	return copy;
}

xmlNode *domain_child(const xmlNode *parent, const char *name, const xmlNode *after)
{
	xmlNode *node = after ? after->next : parent->children;

	for (; node; node = node->next)
		if (node->type == XML_ELEMENT_NODE && !node->ns &&
		    xmlStrEqual(node->name, XML(name)))
			return node;
	return NULL;
}

xmlNode *domain_add(xmlNode *parent, const char *name)
{
	return xmlNewChild(parent, NULL, XML(name), NULL);
}

xmlNode *domain_child_made(xmlNode *parent, const char *name)
{
	xmlNode *node = domain_child(parent, name, NULL);

	return node ? node : domain_add(parent, name);
}

bool domain_attribute(const xmlNode *node, const char *name, char *text, size_t room)
{
	xmlChar *value = xmlGetNoNsProp((xmlNode *)node, XML(name));
	bool good = value && (size_t)xmlStrlen(value) < room;

	if (good)
		strcpy(text, (const char *)value);
	xmlFree(value);
	return good;
}

bool domain_attribute_is(const xmlNode *node, const char *name, const char *value)
{
	xmlChar *found = node ? xmlGetNoNsProp((xmlNode *)node, XML(name)) : NULL;
	bool same = found && xmlStrEqual(found, XML(value));

	xmlFree(found);
	return same;
}

void domain_set(xmlNode *node, const char *name, const char *value)
{
	xmlSetProp(node, XML(name), XML(value));
}

void domain_set_number(xmlNode *node, const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	domain_set(node, name, text);
}

void domain_remove(xmlNode *node)
{
	xmlNode *before = node->prev;

	if (before && xmlIsBlankNode(before)) {
		xmlUnlinkNode(before);
		xmlFreeNode(before);
	}
	xmlUnlinkNode(node);
	xmlFreeNode(node);
}
