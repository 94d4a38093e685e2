/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of tmemctl share. */
#ifndef TMEMCTL_H
#define TMEMCTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit statuses. */
enum { CTL_OK = 0, CTL_REFUSED = 1, CTL_USAGE = 2, CTL_UNREACHED = 3 };

/* Options of `disk create` that have a value. */
enum disk_option {
	DISK_SIZE,
	DISK_QUEUES,
	DISK_SOCKET,
	DISK_MODE,
	DISK_OWNER,
	DISK_GROUP,
	DISK_MINIMUM,
	DISK_MAXIMUM,
	DISK_WEIGHT,
	DISK_NR_OPTIONS
};

struct ctl {
	const char *socket;
	bool json;			   /* print the result as it came */
	bool all;			   /* --all */
	double timeout;			   /* seconds; < 0: the service's default */
	bool guest;			   /* --guest */
	const char *root;		   /* --root: where /proc and /sys are, or NULL */
	bool overcommit;		   /* --overcommit */
	bool force;			   /* --force */
	const char *disk[DISK_NR_OPTIONS]; /* NULL: not given */
	const char *name;		   /* --name, of what is attached, or NULL */
	bool nbd, ring;			   /* --nbd, --ring */
	bool config, live;		   /* --config, --live */
	bool print;			   /* --print */
	bool required;			   /* --required */
	bool remove_disk;		   /* --remove-disk */
	const char *pause;		   /* --pause: a command, or NULL */
	bool discard;			   /* --discard */
	int argc;			   /* what follows the command */
	char **argv;
	char **whole; /* the command line as it was given */
};

/* Seconds that an answer may take beyond what was asked for. */
#define CTL_PATIENCE_S 30

/*
 * Sends the request (taken over) and waits for the answer, at most `patience` seconds. CTL_OK with
 * the result, which the caller owns; else what was wrong is on stderr.
 */
int ctl_call(const struct ctl *ctl, json_t *request, int patience, json_t **result);

/* The same; what was wrong is told to the caller alone. */
#define CTL_WHY_MAX 512
int ctl_ask(const struct ctl *ctl, json_t *request, int patience, json_t **result,
	    char why[CTL_WHY_MAX]);

/*
 * Sends the request (taken over) for a stream and waits until the connection may carry it: CTL_OK
 * with the connection. When the stream is over, ctl_stream_end() takes the answer. What is wrong is
 * on stderr.
 */
#define CTL_LINE_MAX 4096
#define CTL_STREAM_PATIENCE_S 600
int ctl_stream_begin(const struct ctl *ctl, json_t *request, int *fd);
int ctl_stream_end(const struct ctl *ctl, int fd, json_t **result);

/* Calls and prints: as it came with --json, else by `print`, if there is one. */
int call_and_print(const struct ctl *ctl, json_t *request, void (*print)(json_t *result));

/* Says what is wrong; CTL_USAGE. */
int usage_error(const char *message, const char *about);

/* disk.c */
int run_disk_create(const struct ctl *ctl);
int run_disk_list(const struct ctl *ctl);
int run_disk_resize(const struct ctl *ctl);
int run_disk_remove(const struct ctl *ctl);

/*
 * Puts what was given behind options into a request for a disk. CTL_OK, or CTL_USAGE and it has
 * been said what is wrong.
 */
int disk_put_values(const struct ctl *ctl, json_t *request);

/* peer.c */
int run_peer_list(const struct ctl *ctl);
int run_peer_stat(const struct ctl *ctl);
int run_peer_drain(const struct ctl *ctl);
int run_peer_allow(const struct ctl *ctl);
int run_peer_deny(const struct ctl *ctl);

/* stream.c */
int run_save(const struct ctl *ctl);
int run_restore(const struct ctl *ctl);

/* Virtual machines of libvirt: elsewhere.c, or tools/libvirt/attach.c in the program that does it.
 */
int run_attach(const struct ctl *ctl);
int run_detach(const struct ctl *ctl);

/* Domains of Xen: xl.c. */
int run_domain(const struct ctl *ctl);
int xl_attach(const struct ctl *ctl);
int xl_detach(const struct ctl *ctl);

/* What is wrong or wasteful on this host, or in this guest: doctor.c. */
int run_doctor(const struct ctl *ctl);

/* Prints for a person. */
void print_list(json_t *result);
void print_stat(json_t *result);
void print_disks(json_t *result);
void print_size(double bytes, char text[16]); /* "12.3M" */

/* Prints as it came, for a program. */
void print_json(json_t *result);

/* Value of an integer key, 0 when it is not there. */
double number_of(json_t *object, const char *key);

/* Value of a string key, "-" when it is not there. */
const char *string_of(json_t *object, const char *key);

#endif
