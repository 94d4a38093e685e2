/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The doctor: tables of checks, each a small function that looks at one thing and says what it
 * found. What cannot be looked at (no such file, no right to read it) is no finding.
 */
#ifndef TMEMCTL_DOCTOR_H
#define TMEMCTL_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* An error loses pages or serves nobody, a warning costs, a note may be meant so. */
enum severity { SEVERITY_NOTE, SEVERITY_WARNING, SEVERITY_ERROR };

struct doctor;

struct check {
	const char *id;
	enum severity severity;
	void (*look)(struct doctor *d);
};

/* Ends with an entry without id. */
extern const struct check service_checks[]; /* look at the service's answer */
extern const struct check process_checks[]; /* need it, and look at the process and its mount */
extern const struct check host_checks[];    /* look at the machine alone */
extern const struct check guest_checks[];

struct doctor {
	const char *root; /* in front of /proc and /sys */
	json_t *service;  /* of `stat`; NULL when there was no answer */
	json_t *clients;
	int pid;	       /* of the service */
	uint64_t region_bytes; /* of all guests' regions */
	json_t *findings;
	const struct check *check; /* that is looking */
};

/* One of the clients is a disk. */
bool is_disk(json_t *client);

/* The check has found something; its subject is `about`, or with a name "about NAME". */
void found(struct doctor *d, const char *about, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* What to do about what was found last. */
void remedy(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- Looking: paths are below d->root. False when there is no such thing to be read. --------- */

#define LOOK_PATH_MAX 512

/* The beginning of a file. */
bool look_text(const struct doctor *d, char *text, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same as a stream, that the caller closes; NULL. */
FILE *look_open(const struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool look_there(const struct doctor *d, const char *path);

/* The number behind `key` (which begins a line) in a text. */
bool number_behind(const char *text, const char *key, uint64_t *value);
/* The same of a file. */
bool look_number(const struct doctor *d, const char *path, const char *key, uint64_t *value);

/* A file that says Y or 1. */
bool look_yes(const struct doctor *d, const char *path);

struct swap {
	char name[128]; /* "/dev/vda2" */
	uint64_t bytes, used;
	int priority;
	bool zram;
};

/* The machine's swap devices and files; their number, at most `room`. */
int look_swaps(const struct doctor *d, struct swap *swaps, int room);

#define MAX_SWAPS 32

/* Bytes of all swap that is zram, or that is not. */
uint64_t swap_bytes(const struct doctor *d, bool zram);

#endif
