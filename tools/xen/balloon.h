/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of tmem-balloon share. Bytes are of memory, none are logical. */
#ifndef TMEM_BALLOON_H
#define TMEM_BALLOON_H

#include <stdbool.h>
#include <stdint.h>

#define BALLOON_CONFIG_DEFAULT "/etc/tmemd/balloon.conf"
#define BALLOON_LOCK "/run/tmem-balloon.lock"

/* Exit statuses. */
enum { BALLOON_OK = 0, BALLOON_REFUSED = 1, BALLOON_USAGE = 2, BALLOON_UNREACHED = 3 };

/* Room for a sentence that says what is wrong. */
#define BALLOON_WHY_MAX 768

/* ---- balloon_config.c ------------------------------------------------------------------------ */

struct balloon_config {
	uint64_t minimum;  /* of the domain: its target never goes below */
	uint64_t maximum;  /* never above */
	uint64_t xen_free; /* stays free in Xen */
	uint64_t step;	   /* the target grows by so much in an interval */
	uint32_t interval; /* seconds */
	char socket[108];  /* of tmemd's control */
};

/* Says on stderr what is wrong. BALLOON_OK or BALLOON_USAGE. */
int balloon_config_load(struct balloon_config *config, const char *path);

/* ---- balloon_host.c: Xen, and the domain that we are --------------------------------------- */

struct balloon_host;

struct balloon_state {
	/* Xen's. */
	uint64_t xen_total;
	uint64_t xen_free; /* without what is claimed for domains that are being built */
	/* The domain's. */
	uint64_t target;
	uint64_t current;
	uint64_t available; /* MemAvailable */
	/* tmemd's. */
	uint64_t pool;
	uint64_t pool_max;
	uint64_t persistent_pages;
	uint64_t reserve; /* host_reserve */
};

/* NULL with a sentence. */
struct balloon_host *balloon_host_open(const struct balloon_config *config,
				       char why[BALLOON_WHY_MAX]);
void balloon_host_close(struct balloon_host *host); /* NULL is fine */

/* The first two parts of the state. 0, or a negated errno with a sentence. */
int balloon_host_look(struct balloon_host *host, struct balloon_state *state,
		      char why[BALLOON_WHY_MAX]);

/* The kernel then moves the domain there, as fast as it gets pages. 0, or as above. */
int balloon_host_target(struct balloon_host *host, uint64_t bytes, char why[BALLOON_WHY_MAX]);

/* ---- balloon_service.c: tmemd --------------------------------------------------------------- */

/* The third part of the state. BALLOON_OK, or another exit status with a sentence. */
int balloon_service_look(const struct balloon_config *config, struct balloon_state *state,
			 char why[BALLOON_WHY_MAX]);

/* Asks for that much of the pool; *got is what came within `seconds`. */
int balloon_service_reclaim(const struct balloon_config *config, uint64_t bytes, double seconds,
			    uint64_t *got, char why[BALLOON_WHY_MAX]);

/* ---- balloon_rules.c: what is to be done, and nothing done ----------------------------------- */

/*
 * What the domain can give without the pool's giving anything: tmemd keeps its hands off what lies
 * below its reserve, and does not grow into the eighth above it.
 */
uint64_t balloon_slack(const struct balloon_state *state);

/* Xen's free memory as it will be when the domain has arrived at its target. */
uint64_t balloon_projected(const struct balloon_state *state);

/* By how much the target is to grow now; 0: it stays. */
uint64_t balloon_growth(const struct balloon_config *config, const struct balloon_state *state);

/* By how much it is to shrink for `want` bytes of free memory in Xen, 0 if that is so already. */
uint64_t balloon_shortage(const struct balloon_state *state, uint64_t want);

/* By how much it is to shrink because nobody needs what it has; 0: it stays. */
uint64_t balloon_surplus(const struct balloon_config *config, const struct balloon_state *state);

#endif
