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
	bool json;	/* print the result as it came */
	bool all;	/* --all */
	double timeout; /* seconds, of reclaim; < 0: the service's default */
	int argc;	/* what follows the command */
	char **argv;
};

/*
 * Sends the request (taken over) and waits for the answer, at most `patience` seconds. CTL_OK with
 * the result, which the caller owns; else what was wrong is on stderr.
 */
int ctl_call(const struct ctl *ctl, json_t *request, int patience, json_t **result);

/* Prints for a person. */
void print_list(json_t *result);
void print_stat(json_t *result);
void print_size(double bytes, char text[16]); /* "12.3M" */

/* Prints as it came, for a program. */
void print_json(json_t *result);

/* Value of an integer key, 0 when it is not there. */
double number_of(json_t *object, const char *key);

#endif
