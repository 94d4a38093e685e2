// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What is recorded of us in a domain's <metadata>. People write it by hand, too, so that everything
 * is checked as if they had: sizes may have their suffixes, and a word that is not known is an
 * error, because it would be a setting without effect.
 */
#include "config.h"

#include "tools/libvirt/domain.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/size.h"

#define XML(text) ((const xmlChar *)(text))

static int __attribute__((format(printf, 2, 3)))
fail(char why[DOMAIN_WHY_MAX], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, DOMAIN_WHY_MAX, fmt, ap);
	va_end(ap);
	return -1;
}

/* ---- Values --------------------------------------------------------------------------------- */

static int take_bytes(const char *text, void *value)
{
	return tmem_size_parse(text, value);
}

static int take_number(const char *text, void *value)
{
	uint64_t n;

	if (tmem_size_parse(text, &n) || n > UINT_MAX - 1)
		return -1;
	*(uint32_t *)value = (uint32_t)n;
	return 0;
}

static int take_id(const char *text, void *value)
{
	uint32_t n;

	if (take_number(text, &n))
		return -1;
	*(int64_t *)value = n;
	return 0;
}

static int take_mode(const char *text, void *value)
{
	char *end;
	long mode = strtol(text, &end, 8);

	if (end == text || *end || mode < 0 || mode > 0777)
		return -1;
	*(int64_t *)value = mode;
	return 0;
}

static int take_yes(const char *text, void *value)
{
	bool yes = !strcmp(text, "yes");

	*(bool *)value = yes;
	return yes || !strcmp(text, "no") ? 0 : -1;
}

static int take_socket(const char *text, void *value)
{
	if (*text != '/' || strlen(text) >= sizeof(((struct domain_device *)0)->socket))
		return -1;
	strcpy(value, text);
	return 0;
}

/* The form of tmemd's names: it becomes part of a path here. */
static int take_name(const char *text, void *value)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-_.+@";
	size_t len = strlen(text);

	if (!len || len >= sizeof(((struct domain_device *)0)->name) || *text == '.' ||
	    strspn(text, allowed) != len)
		return -1;
	strcpy(value, text);
	return 0;
}

#define NAME_FORM "1 to 63 letters, digits and -_.+@, no dot in front"

int domain_device_name(struct domain_device *dev, const char *name, char why[DOMAIN_WHY_MAX])
{
	if (!take_name(name, dev->name))
		return 0;
	return fail(why, "%.80s cannot be the name of a %s: allowed are " NAME_FORM, name,
		    domain_kind_name(dev->kind));
}

void domain_device_default_socket(struct domain_device *dev)
{
	snprintf(dev->socket, sizeof(dev->socket), "/run/tmem/%s%s.sock", dev->name,
		 dev->kind == DOMAIN_NBD ? ".nbd" : "");
}

#define AT(field) offsetof(struct domain_device, field)
#define DISK (1u << DOMAIN_DISK)
#define NBD (1u << DOMAIN_NBD)
#define RING (1u << DOMAIN_RING)

static const struct {
	const char *name;
	unsigned kinds;
	size_t offset;
	int (*take)(const char *text, void *value);
	const char *form;
} attributes[] = {
	{"name", DISK | NBD | RING, AT(name), take_name, NAME_FORM},
	{"socket", DISK | NBD | RING, AT(socket), take_socket,
	 "an absolute path of at most 107 characters"},
	{"queues", DISK, AT(queues), take_number, "a number"},
	{"vectors", RING, AT(queues), take_number, "a number"},
	{"size", DISK, AT(bytes), take_bytes, TMEM_SIZE_FORM},
	{"minimum", DISK, AT(minimum), take_bytes, TMEM_SIZE_FORM},
	{"maximum", DISK, AT(maximum), take_bytes, TMEM_SIZE_FORM},
	{"weight", DISK, AT(weight), take_number, "a number"},
	{"mode", DISK, AT(mode), take_mode, "permission bits in octal"},
	{"uid", DISK, AT(uid), take_id, "the number of a user"},
	{"gid", DISK, AT(gid), take_id, "the number of a group"},
	{"overcommit", DISK, AT(overcommit), take_yes, "yes or no"},
	{"required", DISK | NBD, AT(required), take_yes, "yes or no"},
};
#define NR_ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

/* ---- Reading -------------------------------------------------------------------------------- */

static bool is_ours(const xmlNode *node)
{
	return node->type == XML_ELEMENT_NODE && node->ns &&
	       xmlStrEqual(node->ns->href, XML(DOMAIN_NS));
}

xmlNode *domain_record_element(const xmlNode *domain)
{
	const xmlNode *metadata = domain_child(domain, "metadata", NULL);
	xmlNode *node = metadata ? metadata->children : NULL;

	for (; node; node = node->next)
		if (is_ours(node))
			return node;
	return NULL;
}

/* DOMAIN_NR_KINDS: none of these. */
static enum domain_kind kind_of(const xmlNode *node)
{
	enum domain_kind kind = 0;

	while (kind < DOMAIN_NR_KINDS && !xmlStrEqual(node->name, XML(domain_kind_name(kind))))
		kind++;
	return kind;
}

static int read_attribute(const xmlAttr *attr, struct domain_device *dev, char why[DOMAIN_WHY_MAX])
{
	const char *element = domain_kind_name(dev->kind);
	char text[256];

	for (size_t i = 0; i < NR_ATTRIBUTES; i++) {
		if (!xmlStrEqual(attr->name, XML(attributes[i].name)) ||
		    !(attributes[i].kinds & 1u << dev->kind))
			continue;
		if (!domain_attribute(attr->parent, attributes[i].name, text, sizeof(text)) ||
		    attributes[i].take(text, (char *)dev + attributes[i].offset))
			return fail(why, "metadata: %s of a <%s> must be %s", attributes[i].name,
				    element, attributes[i].form);
		return 0;
	}
	return fail(why, "metadata: a <%s> has no attribute %.40s", element,
		    (const char *)attr->name);
}

static int read_device(const xmlNode *node, struct domain_device *dev, char why[DOMAIN_WHY_MAX])
{
	enum domain_kind kind = kind_of(node);

	domain_device_init(dev, kind);
	for (const xmlAttr *attr = node->properties; attr; attr = attr->next)
		if (read_attribute(attr, dev, why))
			return -1;
	if (!dev->name[0])
		return fail(why, "metadata: a <%s> has no name", domain_kind_name(kind));
	if (kind == DOMAIN_DISK && !dev->bytes)
		return fail(why, "metadata: disk %s has no size", dev->name);
	if (!dev->socket[0])
		domain_device_default_socket(dev);
	return 0;
}

int domain_record(const xmlNode *domain, struct domain_device devices[DOMAIN_MAX_DEVICES],
		  bool *required, char why[DOMAIN_WHY_MAX])
{
	const xmlNode *record = domain_record_element(domain);
	const xmlNode *node = record ? record->children : NULL;
	int n = 0, failed = 0;

	for (; node; node = node->next) {
		if (node->type != XML_ELEMENT_NODE || xmlStrEqual(node->name, XML("memory")))
			continue;
		if (required && domain_attribute_is(node, "required", "yes"))
			*required = true;
		if (failed)
			continue;
		if (kind_of(node) == DOMAIN_NR_KINDS)
			failed = fail(why, "metadata: <%.40s> is nothing that tmemd knows",
				      (const char *)node->name);
		else if (n == DOMAIN_MAX_DEVICES)
			failed = fail(why, "metadata: more than %d devices", DOMAIN_MAX_DEVICES);
		else
			failed = read_device(node, &devices[n++], why);
	}
	return failed ? -1 : n;
}

static const xmlNode *record_child(const xmlNode *domain, const char *element, const char *name)
{
	const xmlNode *record = domain_record_element(domain);
	const xmlNode *node = record ? record->children : NULL;

	for (; node; node = node->next)
		if (node->type == XML_ELEMENT_NODE && xmlStrEqual(node->name, XML(element)) &&
		    (!name || domain_attribute_is(node, "name", name)))
			return node;
	return NULL;
}

unsigned domain_record_memory(const xmlNode *domain)
{
	const xmlNode *memory = record_child(domain, "memory", NULL);

	return (domain_attribute_is(memory, "source", "added") ? MEMORY_SOURCE : 0) |
	       (domain_attribute_is(memory, "access", "added") ? MEMORY_ACCESS : 0);
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void drop(xmlNode *domain, const char *element, const char *name)
{
	xmlNode *node = (xmlNode *)record_child(domain, element, name);
	xmlNode *record, *metadata;

	if (!node)
		return;
	record = node->parent;
	metadata = record->parent;
	domain_remove(node);
	if (!xmlFirstElementChild(record))
		domain_remove(record);
	if (!xmlFirstElementChild(metadata))
		domain_remove(metadata);
}

static xmlNode *add(xmlNode *domain, const char *element)
{
	xmlNode *record = domain_record_element(domain);

	if (!record) {
		record = domain_add(domain_child_made(domain, "metadata"), "tmem");
		xmlSetNs(record, xmlNewNs(record, XML(DOMAIN_NS), XML(DOMAIN_PREFIX)));
	}
	return xmlNewChild(record, record->ns, XML(element), NULL);
}

static void put_ids(xmlNode *node, const struct domain_device *dev)
{
	char mode[16];

	if (dev->mode >= 0) {
		snprintf(mode, sizeof(mode), "%04o", (unsigned)dev->mode);
		domain_set(node, "mode", mode);
	}
	if (dev->uid >= 0)
		domain_set_number(node, "uid", (uint64_t)dev->uid);
	if (dev->gid >= 0)
		domain_set_number(node, "gid", (uint64_t)dev->gid);
}

void domain_record_put(xmlNode *domain, const struct domain_device *dev)
{
	const char *element = domain_kind_name(dev->kind);
	xmlNode *node;

	domain_record_drop(domain, dev->kind, dev->name);
	node = add(domain, element);
	domain_set(node, "name", dev->name);
	domain_set(node, "socket", dev->socket);
	if (dev->kind == DOMAIN_RING)
		domain_set_number(node, "vectors", dev->queues);
	if (dev->kind == DOMAIN_DISK) {
		domain_set_number(node, "size", dev->bytes);
		domain_set_number(node, "queues", dev->queues);
		if (dev->minimum)
			domain_set_number(node, "minimum", dev->minimum);
		if (dev->maximum)
			domain_set_number(node, "maximum", dev->maximum);
		if (dev->weight)
			domain_set_number(node, "weight", dev->weight);
		put_ids(node, dev);
		if (dev->overcommit)
			domain_set(node, "overcommit", "yes");
	}
	if (dev->required)
		domain_set(node, "required", "yes");
}

void domain_record_drop(xmlNode *domain, enum domain_kind kind, const char *name)
{
	drop(domain, domain_kind_name(kind), name);
}

void domain_record_put_memory(xmlNode *domain, unsigned added)
{
	xmlNode *node;

	drop(domain, "memory", NULL);
	if (!added)
		return;
	node = add(domain, "memory");
	if (added & MEMORY_SOURCE)
		domain_set(node, "source", "added");
	if (added & MEMORY_ACCESS)
		domain_set(node, "access", "added");
}
