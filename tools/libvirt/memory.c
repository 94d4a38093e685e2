// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory of a domain that another process can map: what vhost-user needs. libvirt takes it from a
 * file (a memfd, a file of its own, or huge pages) that is mapped shared; a NUMA cell of the guest
 * may say otherwise for its part.
 */
#include "config.h"

#include "tools/libvirt/domain.h"

#include <stdio.h>
#include <string.h>

/* 1: a file; 0: nothing is said; -1: anonymous memory is asked for. */
static int backed(const xmlNode *backing)
{
	const xmlNode *source = backing ? domain_child(backing, "source", NULL) : NULL;

	if (domain_attribute_is(source, "type", "memfd") ||
	    domain_attribute_is(source, "type", "file"))
		return 1;
	if (source && xmlHasProp((xmlNode *)source, (const xmlChar *)"type"))
		return -1;
	return backing && domain_child(backing, "hugepages", NULL) ? 1 : 0;
}

/* 1: shared; 0: nothing is said; -1: something else is asked for. */
static int accessed(const xmlNode *backing)
{
	const xmlNode *access = backing ? domain_child(backing, "access", NULL) : NULL;

	if (domain_attribute_is(access, "mode", "shared"))
		return 1;
	return access && xmlHasProp((xmlNode *)access, (const xmlChar *)"mode") ? -1 : 0;
}

/* Looks at the cells of the guest. 1: each says shared; 0: some say nothing; -1: one says private.
 */
static int cells(const xmlNode *domain)
{
	const xmlNode *cpu = domain_child(domain, "cpu", NULL);
	const xmlNode *numa = cpu ? domain_child(cpu, "numa", NULL) : NULL;
	const xmlNode *cell = numa ? domain_child(numa, "cell", NULL) : NULL;
	int all = cell ? 1 : 0;

	for (; cell; cell = domain_child(numa, "cell", cell)) {
		if (domain_attribute_is(cell, "memAccess", "private"))
			return -1;
		if (!domain_attribute_is(cell, "memAccess", "shared"))
			all = 0;
	}
	return all;
}

/* What of the domain stands against shared memory; false: nothing. */
static bool opposed(const xmlNode *domain, const xmlNode *backing, char why[DOMAIN_WHY_MAX])
{
	const char *what = NULL;

	if (backed(backing) < 0)
		what = "its <memoryBacking> asks for anonymous memory: make it <source "
		       "type='memfd'/>";
	else if (accessed(backing) < 0)
		what = "its <memoryBacking> asks for private memory: make it <access "
		       "mode='shared'/>";
	else if (cells(domain) < 0)
		what = "a NUMA cell asks for private memory: make it memAccess='shared'";
	if (what)
		snprintf(why, DOMAIN_WHY_MAX, "%s", what);
	return what;
}

int domain_memory_shared(const xmlNode *domain, char why[DOMAIN_WHY_MAX])
{
	const xmlNode *backing = domain_child(domain, "memoryBacking", NULL);

	if (opposed(domain, backing, why))
		return -1;
	if (backed(backing) == 1 && (accessed(backing) == 1 || cells(domain) == 1))
		return 0;
	snprintf(why, DOMAIN_WHY_MAX, "its memory is not shared");
	return -1;
}

int domain_memory_share(xmlNode *domain, unsigned *added, char why[DOMAIN_WHY_MAX])
{
	xmlNode *backing = domain_child(domain, "memoryBacking", NULL);

	*added = 0;
	if (opposed(domain, backing, why))
		return -1;
	if (!backed(backing))
		*added |= MEMORY_SOURCE;
	if (!accessed(backing) && cells(domain) != 1)
		*added |= MEMORY_ACCESS;
	if (*added)
		backing = domain_child_made(domain, "memoryBacking");
	if (*added & MEMORY_SOURCE)
		domain_set(domain_child_made(backing, "source"), "type", "memfd");
	if (*added & MEMORY_ACCESS)
		domain_set(domain_child_made(backing, "access"), "mode", "shared");
	return 0;
}

/* True when a device is left that is served by another process. */
static bool needed(const xmlNode *domain)
{
	const xmlNode *devices = domain_child(domain, "devices", NULL);
	const xmlNode *node = devices ? devices->children : NULL;

	for (; node; node = node->next) {
		const xmlNode *driver;

		if (node->type != XML_ELEMENT_NODE)
			continue;
		driver = domain_child(node, "driver", NULL);
		if (domain_attribute_is(node, "type", "vhostuser") ||
		    domain_attribute_is(node, "type", "vdpa") ||
		    domain_attribute_is(driver, "type", "virtiofs") ||
		    domain_attribute_is(driver, "name", "vhostuser"))
			return true;
	}
	return false;
}

static bool has_elements(const xmlNode *node)
{
	for (node = node->children; node; node = node->next)
		if (node->type == XML_ELEMENT_NODE)
			return true;
	return false;
}

static void drop(xmlNode *parent, const char *name)
{
	xmlNode *node = domain_child(parent, name, NULL);

	if (node)
		domain_remove(node);
}

void domain_memory_unshare(xmlNode *domain, unsigned added)
{
	xmlNode *backing = domain_child(domain, "memoryBacking", NULL);

	if (!backing || !added || needed(domain))
		return;
	if (added & MEMORY_SOURCE)
		drop(backing, "source");
	if (added & MEMORY_ACCESS)
		drop(backing, "access");
	if (!has_elements(backing))
		domain_remove(backing);
}
