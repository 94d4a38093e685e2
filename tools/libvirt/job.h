/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What attaching and detaching share: a machine, a device of ours, and where to change it. */
#ifndef TMEM_LIBVIRT_JOB_H
#define TMEM_LIBVIRT_JOB_H

#include "tools/libvirt/domain.h"
#include "tools/libvirt/machine.h"

/* The running machine comes first in all that is done, because it may refuse. */
enum { SIDE_LIVE, SIDE_CONFIG, NR_SIDES };

struct job {
	const struct ctl *ctl;
	struct machine machine;
	xmlDoc *docs[NR_SIDES]; /* NULL: nothing is to be changed there */
	struct domain_device dev;
};

/*
 * Opens the machine and reads it on each side that is asked for. An exit status; what was wrong has
 * been said. To be ended in every case.
 */
int job_begin(struct job *job, const struct ctl *ctl);
void job_end(struct job *job);

/* Root element of a side; NULL: nothing is to be changed there. */
xmlNode *job_domain(const struct job *job, int side);

/* Says what is wrong with the job's machine; the status. */
int job_fail(const struct job *job, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What kind of device is meant by the options. */
enum domain_kind job_kind(const struct ctl *ctl);

/* Prints what was done with the device: a sentence, or JSON. `target` may be empty. */
void job_print(const struct job *job, const char *done, bool changed, const char *target);

#endif
