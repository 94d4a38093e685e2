// SPDX-License-Identifier: GPL-2.0-or-later
/* Our devices in a domain. */
#include "config.h"

#include "tools/libvirt/domain.h"

#include <stdio.h>
#include <string.h>

/* Seconds between QEMU's tries to reach tmemd again. */
#define RECONNECT_S 1
/*
 * Seconds that requests to an NBD server that went away may wait before they fail, which loses the
 * guest's pages. So: longer than anybody needs to start it again.
 */
#define NBD_WAIT_S (7 * 24 * 3600)

/* The element that names the socket. */
static const xmlNode *place_of_socket(const xmlNode *device, enum domain_kind kind)
{
	const xmlNode *node;

	if (kind == DOMAIN_RING)
		return domain_child(device, "server", NULL);
	if (!domain_attribute_is(device, "type", kind == DOMAIN_NBD ? "network" : "vhostuser"))
		return NULL;
	node = domain_child(device, "source", NULL);
	return node && kind == DOMAIN_NBD ? domain_child(node, "host", NULL) : node;
}

xmlNode *domain_device_find(const xmlNode *domain, const struct domain_device *dev)
{
	const xmlNode *devices = domain_child(domain, "devices", NULL);
	const char *element = dev->kind == DOMAIN_RING ? "shmem" : "disk";
	const char *key = dev->kind == DOMAIN_NBD ? "socket" : "path";
	xmlNode *node = devices ? domain_child(devices, element, NULL) : NULL;

	for (; node; node = domain_child(devices, element, node))
		if (domain_attribute_is(place_of_socket(node, dev->kind), key, dev->socket))
			return node;
	return NULL;
}

/* ---- The name of a disk --------------------------------------------------------------------- */

/* "a" is 1, "z" is 26, "aa" is 27; 0: no such name. */
static unsigned letters_value(const char *text)
{
	unsigned value = 0;

	for (; *text >= 'a' && *text <= 'z' && value < 26 * 27; text++)
		value = value * 26 + (unsigned)(*text - 'a') + 1;
	return *text ? 0 : value;
}

static unsigned last_target(const xmlNode *domain)
{
	const xmlNode *devices = domain ? domain_child(domain, "devices", NULL) : NULL;
	const xmlNode *disk = devices ? domain_child(devices, "disk", NULL) : NULL;
	unsigned last = 0;

	for (; disk; disk = domain_child(devices, "disk", disk)) {
		const xmlNode *target = domain_child(disk, "target", NULL);
		unsigned value;
		char dev[16];

		if (!target || !domain_attribute(target, "dev", dev, sizeof(dev)) ||
		    strncmp(dev, "vd", 2))
			continue;
		value = letters_value(dev + 2);
		last = value > last ? value : last;
	}
	return last;
}

int domain_target(const xmlNode *a, const xmlNode *b, char target[16])
{
	unsigned in_a = last_target(a), in_b = last_target(b);
	unsigned next = (in_a > in_b ? in_a : in_b) + 1;

	if (next > 26 * 27)
		return -1;
	if (next > 26)
		snprintf(target, 16, "vd%c%c", 'a' + (next - 27) / 26, 'a' + (next - 27) % 26);
	else
		snprintf(target, 16, "vd%c", 'a' + next - 1);
	return 0;
}

/* ---- Elements ------------------------------------------------------------------------------- */

static void fill_disk(xmlNode *disk, const struct domain_device *dev, const char *target)
{
	xmlNode *node;

	domain_set(disk, "type", "vhostuser");
	domain_set(disk, "device", "disk");
	node = domain_add(disk, "driver");
	domain_set(node, "name", "qemu");
	domain_set(node, "type", "raw");
	/* Left out, QEMU would take one for each vCPU, which may be more than there are. */
	domain_set_number(node, "queues", dev->queues);
	node = domain_add(disk, "source");
	domain_set(node, "type", "unix");
	domain_set(node, "path", dev->socket);
	node = domain_add(node, "reconnect");
	domain_set(node, "enabled", "yes");
	domain_set_number(node, "timeout", RECONNECT_S);
	node = domain_add(disk, "target");
	domain_set(node, "dev", target);
	domain_set(node, "bus", "virtio");
}

static void fill_nbd(xmlNode *disk, const struct domain_device *dev, const char *target)
{
	xmlNode *node, *source;

	domain_set(disk, "type", "network");
	domain_set(disk, "device", "disk");
	node = domain_add(disk, "driver");
	domain_set(node, "name", "qemu");
	domain_set(node, "type", "raw");
	domain_set(node, "cache", "none");
	domain_set(node, "discard", "unmap");
	source = domain_add(disk, "source");
	domain_set(source, "protocol", "nbd");
	node = domain_add(source, "host");
	domain_set(node, "transport", "unix");
	domain_set(node, "socket", dev->socket);
	domain_set_number(domain_add(source, "reconnect"), "delay", NBD_WAIT_S);
	node = domain_add(disk, "target");
	domain_set(node, "dev", target);
	domain_set(node, "bus", "virtio");
	/* What tmemd says itself of a vhost-user disk: the guest finds its swap by it. */
	xmlNewTextChild(disk, NULL, (const xmlChar *)"serial", (const xmlChar *)dev->name);
}

static void fill_ring(xmlNode *shmem, const struct domain_device *dev)
{
	xmlNode *node;

	domain_set(shmem, "name", dev->name);
	domain_set(shmem, "role", "peer");
	domain_set(domain_add(shmem, "model"), "type", "ivshmem-doorbell");
	domain_set(domain_add(shmem, "server"), "path", dev->socket);
	node = domain_add(shmem, "msi");
	domain_set_number(node, "vectors", dev->queues);
	domain_set(node, "ioeventfd", "on");
}

xmlNode *domain_device_new(const struct domain_device *dev, const char *target)
{
	const char *element = dev->kind == DOMAIN_RING ? "shmem" : "disk";
	xmlNode *node = xmlNewNode(NULL, (const xmlChar *)element);

	if (!node)
		return NULL;
	switch (dev->kind) {
	case DOMAIN_DISK:
		fill_disk(node, dev, target);
		break;
	case DOMAIN_NBD:
		fill_nbd(node, dev, target);
		break;
	default:
		fill_ring(node, dev);
		break;
	}
	return node;
}

void domain_device_add(xmlNode *domain, xmlNode *device)
{
	xmlAddChild(domain_child_made(domain, "devices"), device);
}
