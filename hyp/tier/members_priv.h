/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of membership share: lists, etcd's answers, requests to it. */
#ifndef TMEMD_TIER_MEMBERS_PRIV_H
#define TMEMD_TIER_MEMBERS_PRIV_H

#include <stdatomic.h>

#include "tier/members.h"

#define MEMBERS_WHY 256

/* ---- members.c ------------------------------------------------------------------------------ */

/* By name, for qsort() and bsearch(). */
int member_by_name(const void *a, const void *b);

bool members_equal(const struct member *a, unsigned nr_a, const struct member *b, unsigned nr_b);

/*
 * Copies the configured hosts, sorted, without this one. 0; -EINVAL with what is wrong; -ENOMEM.
 * *hosts is the caller's to free, NULL on errors.
 */
int members_copy(const struct members_config *config, const char *self, struct member **hosts,
		 unsigned *nr, char *err, size_t size);

/* ---- members_json.c: what etcd is asked, and what it says ----------------------------------- */

#define RANGE_KEYS 1024u /* of one answer; more are not asked for, and not looked at */

/* One host as etcd has it. */
struct seen {
	struct member member;
	int64_t lease; /* 0: none */
};

struct range_answer {
	uint64_t cluster;
	uint64_t revision; /* of all data; goes back only when it is not the same data any more */
	bool more;	   /* there are keys that are not here */
	struct seen *seen; /* by rising name, each once */
	unsigned nr;
	unsigned refused; /* keys whose content is none */
};

/*
 * Takes the answer to a range apart. Bad keys are left out, with a limited log line. 0: the
 * caller's to free with range_free(); -EPROTO: it is no such answer; -ENOMEM.
 */
int range_parse(const char *text, size_t len, const char *prefix, struct range_answer *answer);
void range_free(struct range_answer *answer);

/* The outcome of a transaction that puts a key, or reads it where its comparison fails. */
struct txn_answer {
	bool succeeded;
	bool valid;	      /* what is there is a host, in `there` */
	struct seen there;    /* when it failed and the key is there */
	int64_t mod_revision; /* of the key; 0: it is not there */
};

int txn_parse(const char *text, size_t len, const char *prefix, struct txn_answer *answer);

/* Lease and its seconds of a grant or a keep-alive; *ttl is 0 when there is no such lease. */
int lease_parse(const char *text, size_t len, int64_t *lease, uint32_t *ttl);

/* The sentence in the body of a refusal, fit to be logged. */
void error_parse(const char *text, size_t len, char why[MEMBERS_WHY]);

/* Requests; NULL: no memory. The caller frees them. */
char *range_request(const char *prefix);
char *lease_request(int64_t lease);
char *grant_request(uint32_t ttl_s);

/*
 * Puts this host under its key when the key has that modification, 0: when it is not there. The
 * other outcome reads it.
 */
char *txn_request(const char *prefix, const struct member *self, int64_t lease, int64_t revision);

/* ---- members_http.c ------------------------------------------------------------------------- */

#define HTTP_BODY_MAX (16u << 20)

struct http;

/* `stop` ends what runs as soon as it is set and http_wake() was called. Strings are copied. */
int http_open(struct http **http, const struct members_config *config, const atomic_bool *stop,
	      char *err, size_t size);
void http_close(struct http *http);

/*
 * Posts a request to the endpoints in turn, beginning with the one that answered last. 0 with the
 * body, which is valid until the next call. -EHOSTUNREACH: none answers; -EPROTO: those that answer
 * refuse; -ECANCELED. `why` then has the reason.
 */
int http_post(struct http *http, const char *path, const char *request, const char **body,
	      size_t *len, char why[MEMBERS_WHY]);

/* From now on all that is posted ends by then, monotonic ns, whatever `stop` says. */
void http_deadline(struct http *http, uint64_t ns);

/* Sleeps that long, or until http_wake(), which any thread may call. */
void http_wait(struct http *http, int ms);
void http_wake(struct http *http);

#endif
