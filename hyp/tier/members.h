/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Membership: which hosts there are to lend memory (docs/membership.md).
 *
 * An engine publishes this host and learns of the others. It only says who is there: a host that is
 * not in the list any more has lost nothing that it holds, and it is for its user to decide what
 * that means. Where the engine cannot be reached, the list stays as it was.
 *
 * members_open(), members_spare(), members_state() and members_close() may be called from any
 * thread, and none waits for the network; only members_close() may take up to MEMBERS_CLOSE_MS.
 * Errors are negated errnos, with a sentence in `err`.
 */
#ifndef TMEMD_TIER_MEMBERS_H
#define TMEMD_TIER_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMBER_NAME 64	   /* bytes, the final zero included; letters, digits and ".-_" */
#define MEMBER_ADDRESS 264 /* the same: HOST:PORT or [IPV6]:PORT */
#define MEMBERS_MAX 255u   /* of a list */
#define MEMBERS_CLOSE_MS 1000u
#define MEMBER_SPARE_UNKNOWN UINT64_MAX

struct member {
	char name[MEMBER_NAME];
	char address[MEMBER_ADDRESS]; /* of its peer socket */
	uint64_t spare_bytes;	      /* that it would lend; or MEMBER_SPARE_UNKNOWN */
	uint64_t epoch;		      /* of its arena; 0: unknown */
};

/* Everything is copied by members_open(). Numbers that are 0 and strings that are NULL: default. */
struct members_config {
	/*
	 * static: the list. etcd: what was known before this process began, which is in use until
	 * etcd has said otherwise.
	 */
	const struct member *hosts;
	unsigned nr_hosts;

	/* etcd alone: */
	const char *const *endpoints; /* http://HOST:PORT or https://HOST:PORT, tried in turn */
	unsigned nr_endpoints;
	const char *prefix;    /* /tmemd/hosts/: of the keys of all hosts of our group */
	const char *ca_file;   /* PEM, who signs the servers' certificates; the system's list */
	const char *cert_file; /* PEM, ours; none */
	const char *key_file;  /* PEM */
	uint32_t ttl_s;	       /* 30: we are gone that long after our last sign of life */
	uint32_t poll_ms;      /* 5000: between two looks at the list */
	uint32_t timeout_ms;   /* 2000: for the answer of one endpoint */
};

/*
 * The list has changed: the other hosts (never this one), by rising name. It belongs to the engine
 * and is valid during the call. Calls come one at a time, from members_open() or a thread of the
 * engine; members_close() must not be called from within.
 */
typedef void (*members_changed_fn)(void *arg, const struct member *members, unsigned nr);

struct members;

/* What an engine is. Its struct begins with a struct members. */
struct members_ops {
	const char *name;
	int (*open)(struct members **members, const struct members_config *config,
		    const struct member *self, members_changed_fn changed, void *arg, char *err,
		    size_t size);
	void (*spare)(struct members *members, uint64_t bytes);
	bool (*state)(struct members *members, char *text, size_t size);
	void (*close)(struct members *members);
};

struct members {
	const struct members_ops *ops;
};

extern const struct members_ops members_static;
extern const struct members_ops members_etcd; /* only where it is built in */

/* The engine of that name, NULL when it is not built in. */
const struct members_ops *members_engine(const char *name);

/*
 * `self` is what is published of this host. 0 also when etcd does not answer: it is asked again for
 * ever. -EINVAL: what is wrong with the configuration.
 */
int members_open(struct members **members, const struct members_ops *ops,
		 const struct members_config *config, const struct member *self,
		 members_changed_fn changed, void *arg, char *err, size_t size);

/* What this host would lend now. May be called often; only what matters is published. */
void members_spare(struct members *members, uint64_t bytes);

/* True when the engine is reached and this host is published; else `text` says why not. */
bool members_state(struct members *members, char *text, size_t size);

/* Takes this host off the list, where the engine is reached, and ends. NULL is allowed. */
void members_close(struct members *members);

bool member_name_valid(const char *name);

/* Takes HOST:PORT apart; brackets around an IPv6 address go. False: it is none. */
bool member_address(const char *address, char host[MEMBER_ADDRESS], uint16_t *port);

/* A host of the configuration, NAME=HOST:PORT. 0, or -EINVAL with what is wrong. */
int member_parse(struct member *member, const char *text, char *err, size_t size);

#endif
