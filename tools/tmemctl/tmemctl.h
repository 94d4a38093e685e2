/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of tmemctl share. */
#ifndef TMEMCTL_H
#define TMEMCTL_H

#include <jansson.h>
#include <stdbool.h>

/* Exit statuses. */
enum { CTL_OK = 0, CTL_REFUSED = 1, CTL_USAGE = 2, CTL_UNREACHED = 3 };

struct ctl {
	const char *socket;
	bool json;	  /* print the result as it came */
	bool all;	  /* --all */
	double timeout;	  /* seconds, of reclaim; < 0: the service's default */
	bool guest;	  /* --guest */
	const char *root; /* --root: where /proc and /sys are, or NULL */
	int argc;	  /* what follows the command */
	char **argv;
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

/* What is wrong or wasteful on this host, or in this guest: doctor.c. */
int run_doctor(const struct ctl *ctl);

/* Prints for a person. */
void print_list(json_t *result);
void print_stat(json_t *result);
void print_size(double bytes, char text[16]); /* "12.3M" */

/* Prints as it came, for a program. */
void print_json(json_t *result);

/* Value of an integer key, 0 when it is not there. */
double number_of(json_t *object, const char *key);

#endif
