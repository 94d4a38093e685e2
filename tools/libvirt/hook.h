/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the hook share. */
#ifndef TMEM_LIBVIRT_HOOK_H
#define TMEM_LIBVIRT_HOOK_H

#include <stdbool.h>

#include "tools/libvirt/domain.h"
#include "tools/tmemctl/tmemctl.h"

/* How the life of a machine begins. */
enum life {
	LIFE_FRESH,    /* its guest boots: what a disk of swap holds is worth nothing */
	LIFE_RESTORED, /* its guest goes on here: it needs what its disk holds */
	LIFE_ARRIVED,  /* its guest goes on from another host */
};

struct hook {
	struct ctl ctl;	   /* of which the socket counts */
	const char *state; /* directory of what one call leaves for the next */
	const char *vm;
	const char *operation, *sub, *extra;
};

/* Says it to libvirt, which shows it when we fail, and to the system's log. */
void hook_say(const struct hook *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Makes the disks, in the state that they must have for this life. 0, or 1 when the machine must
 * not start; what was wrong has been said.
 */
int hook_prepare(const struct hook *h, const xmlNode *domain, const struct domain_device *devices,
		 int nr, enum life life);

/* 1 when a disk that the restored guest goes on with is gone. */
int hook_check_restore(const struct hook *h, const struct domain_device *devices, int nr);

/* Frees what the disks hold if libvirt gave a reason for the end that no guest comes back from. */
void hook_release(const struct hook *h, const struct domain_device *devices, int nr);

#endif
