/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The XML of a libvirt domain: what of ours is in it, and how it gets in and out. Knows neither
 * libvirt nor tmemd, changes nothing but the document in memory.
 *
 * What we put into a domain is recorded in its <metadata>, in an element of our own namespace:
 *
 *   <tmem:tmem xmlns:tmem="urn:tmemd:libvirt">
 *     <tmem:disk name="tmem-web" size="2147483648" required="yes"/>
 *     <tmem:memory source="added" access="added"/>
 *   </tmem:tmem>
 *
 * The hook makes the disks that are named there; detaching takes out what is named there.
 */
#ifndef TMEM_LIBVIRT_DOMAIN_H
#define TMEM_LIBVIRT_DOMAIN_H

#include <libxml/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOMAIN_NS "urn:tmemd:libvirt"
#define DOMAIN_PREFIX "tmem"

/* Bytes of a domain's XML that are looked at; a longer one is refused. */
#define DOMAIN_XML_MAX (4u << 20)
/* Devices of ours in one domain. */
#define DOMAIN_MAX_DEVICES 32
/* What is wrong, for a person. */
#define DOMAIN_WHY_MAX 512

enum domain_kind {
	DOMAIN_DISK, /* vhost-user-blk, served by tmemd */
	DOMAIN_NBD,  /* the same for a guest without shared memory */
	DOMAIN_RING, /* the device of the guest's module */
	DOMAIN_NR_KINDS
};

/* As recorded; 0, false and -1 where nothing is said. Bytes are as in `tmemctl disk create`. */
struct domain_device {
	enum domain_kind kind;
	char name[64];
	char socket[108];
	uint32_t queues; /* of a disk; doorbells of a ring */
	uint64_t bytes;	 /* what follows is of a DOMAIN_DISK only */
	uint64_t minimum, maximum;
	uint32_t weight;
	int64_t mode, uid, gid;
	bool overcommit;
	bool required; /* also of a DOMAIN_NBD: without it the domain must not start */
};

/* "disk", "nbd", "ring". */
const char *domain_kind_name(enum domain_kind kind);

/* A device of which nothing but the kind is known. */
void domain_device_init(struct domain_device *dev, enum domain_kind kind);

/* ---- The document (domain.c) ---------------------------------------------------------------- */

/*
 * The document, which the caller frees (xmlFreeDoc); NULL with the reason. Nothing outside of the
 * text is read; a text with a document type is refused, for the entities that it could have.
 */
xmlDoc *domain_parse(const char *text, size_t len, char why[DOMAIN_WHY_MAX]);

/* As text that the caller frees (free); NULL: out of memory. */
char *domain_text(xmlDoc *doc);

/* The same of one element, indented. */
char *domain_element_text(xmlNode *node);

/* First child element of that name that has no namespace, behind `after` or the first of all. */
xmlNode *domain_child(const xmlNode *parent, const char *name, const xmlNode *after);

/* The same, made when it is not there. */
xmlNode *domain_child_made(xmlNode *parent, const char *name);

/* New last child. */
xmlNode *domain_add(xmlNode *parent, const char *name);

/* Copies an attribute without namespace; false when it is not there or too long. */
bool domain_attribute(const xmlNode *node, const char *name, char *text, size_t room);

/* True when it has this value. */
bool domain_attribute_is(const xmlNode *node, const char *name, const char *value);

/* Sets one; the value is escaped. */
void domain_set(xmlNode *node, const char *name, const char *value);
void domain_set_number(xmlNode *node, const char *name, uint64_t value);

/* Takes an element out, and the space before it. */
void domain_remove(xmlNode *node);

/* ---- Memory that a back end can share (memory.c) -------------------------------------------- */

enum { MEMORY_SOURCE = 1, MEMORY_ACCESS = 2 };

/* 0, or -1 with the reason why a back end in another process cannot see this domain's memory. */
int domain_memory_shared(const xmlNode *domain, char why[DOMAIN_WHY_MAX]);

/*
 * Makes it shared where nothing is said. 0 with what was added (MEMORY_...); -1 with the reason
 * when the domain says otherwise: then nothing is changed.
 */
int domain_memory_share(xmlNode *domain, unsigned *added, char why[DOMAIN_WHY_MAX]);

/* Takes out what was added, unless another device of the domain needs shared memory. */
void domain_memory_unshare(xmlNode *domain, unsigned added);

/* ---- Devices (device.c) --------------------------------------------------------------------- */

/* The device with our socket; NULL: the domain has none. */
xmlNode *domain_device_find(const xmlNode *domain, const struct domain_device *dev);

/*
 * A name for the next virtio disk, behind all that one of the domains has (NULL ones are skipped):
 * one before them would be looked at first when the guest boots. -1: there is none left.
 */
int domain_target(const xmlNode *a, const xmlNode *b, char target[16]);

/* A new element in no tree yet; `target` is not looked at for a ring. NULL: out of memory. */
xmlNode *domain_device_new(const struct domain_device *dev, const char *target);

/* Moves a new element into <devices>. */
void domain_device_add(xmlNode *domain, xmlNode *device);

/* ---- What is recorded (record.c) ------------------------------------------------------------ */

/*
 * Reads what is recorded, at most DOMAIN_MAX_DEVICES: their number, or -1 with the reason; names
 * and values have been checked for form. `required`, when not NULL, is set also when it fails.
 */
int domain_record(const xmlNode *domain, struct domain_device devices[DOMAIN_MAX_DEVICES],
		  bool *required, char why[DOMAIN_WHY_MAX]);

/* What domain_memory_share() had added. */
unsigned domain_record_memory(const xmlNode *domain);

/* Names a device; -1 with the reason when that is no name for something of tmemd. */
int domain_device_name(struct domain_device *dev, const char *name, char why[DOMAIN_WHY_MAX]);

/* Gives it the socket that follows from its name. */
void domain_device_default_socket(struct domain_device *dev);

/* Our element; NULL: the domain has none. */
xmlNode *domain_record_element(const xmlNode *domain);

/* Record a device, in the place of an older record of the same; or that it is gone. */
void domain_record_put(xmlNode *domain, const struct domain_device *dev);
void domain_record_drop(xmlNode *domain, enum domain_kind kind, const char *name);
void domain_record_put_memory(xmlNode *domain, unsigned added);

#endif
