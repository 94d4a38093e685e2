/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A virtual machine as libvirt has it. Built without libvirt, none can be opened. */
#ifndef TMEM_LIBVIRT_MACHINE_H
#define TMEM_LIBVIRT_MACHINE_H

#include "tools/libvirt/domain.h"
#include "tools/tmemctl/tmemctl.h"

#ifdef HAVE_LIBVIRT
#define MACHINE_LIBVIRT true
#else
#define MACHINE_LIBVIRT false
#endif

struct machine {
	void *conn, *dom; /* libvirt's; NULL: not open */
	char name[256];
	char uuid[40];
	bool active, persistent;
	bool saved;	       /* it has a managed save image */
	unsigned long version; /* of libvirt there: 9000000 is 9.0.0 */
};

/*
 * Finds a machine by name or UUID. CTL_OK; else what was wrong, for a person, and an exit status.
 * To be closed in both cases.
 */
int machine_open(struct machine *m, const char *uri, const char *name, char why[DOMAIN_WHY_MAX]);
void machine_close(struct machine *m);

/* Its XML, running or as it is configured; the caller frees it. NULL with the reason. */
xmlDoc *machine_xml(const struct machine *m, bool live, char why[DOMAIN_WHY_MAX]);

/* Each 0, or -1 with the reason. */
int machine_define(const struct machine *m, xmlDoc *doc, char why[DOMAIN_WHY_MAX]);
int machine_plug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX]);
/* The guest answers in its own time: that this returned 0 does not say that the device is gone. */
int machine_unplug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX]);
/* Records in the running machine what is recorded in `domain`. */
int machine_record(const struct machine *m, const xmlNode *domain, char why[DOMAIN_WHY_MAX]);

/* The user that QEMU runs as, or -1: not known. */
int64_t machine_user(const struct machine *m);

#endif
