/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hosts of a test: lenders with real sockets and TLS, whose blobs are in a table of the test's (the
 * lender's own part is its user's there too), an owner, a proxy in between that spoils the link,
 * and requests of which every answer is counted.
 */
#ifndef TMEMD_TESTS_WORLD_H
#define TMEMD_TESTS_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "pki.h"
#include "tests/lib/rng.h"
#include "tests/model/check.h"
#include "tier/peers.h"

#define CHECK_IS(value, expected)                                                                  \
	do {                                                                                       \
		long long value_ = (long long)(value), expected_ = (long long)(expected);          \
		CHECK(value_ == expected_, "%lld, not %lld", value_, expected_);                   \
	} while (0)

/* Holds within 20 s: the machine may be busy. */
#define EVENTUALLY(cond)                                                                           \
	do {                                                                                       \
		int turns_ = 0;                                                                    \
		while (!(cond) && turns_++ < 4000)                                                 \
			nap_ms(5);                                                                 \
		CHECK(cond, "not within 20 s");                                                    \
	} while (0)

#define RUN(name)                                                                                  \
	do {                                                                                       \
		printf("%s\n", #name);                                                             \
		fflush(stdout);                                                                    \
		name();                                                                            \
	} while (0)

void nap_ms(unsigned ms);

/* ---- What a lender holds -------------------------------------------------------------------- */

#define KEEPER_SLOTS 65536u

struct kept {
	struct kept *next;
	uint8_t id[16];
	uint64_t epoch;
	uint64_t blob;
	uint32_t len;
	uint8_t bytes[];
};

struct keeper {
	pthread_mutex_t lock;
	struct kept *slots[KEEPER_SLOTS];
	uint64_t room; /* bytes */
	uint64_t used;
	uint64_t blobs;
	unsigned slow_us; /* each put and get takes so long */
	bool broken;	  /* gets fail */
	bool closed;	  /* puts are refused */
};

extern const struct lender_ops keeper_ops;
struct keeper *keeper_make(uint64_t room);
void keeper_empty(struct keeper *keeper);
void keeper_free(struct keeper *keeper);
uint64_t keeper_blobs(struct keeper *keeper);
void keeper_set(struct keeper *keeper, uint64_t room, unsigned slow_us, bool broken);

/* ---- Hosts ---------------------------------------------------------------------------------- */

struct host {
	char name[PEER_NAME];
	uint64_t epoch;
	uint16_t port; /* stays the same when the lender comes back */
	struct keeper *keeper;
	struct lender *lender;
	struct lender_settings settings;
};

/* Scratch directory, authority, quick times. */
void world_begin(const char *name);
void world_end(void);
extern struct peer_times world_times;

void host_begin(struct host *host, unsigned number, uint64_t room);
void host_up(struct host *host);   /* its lender listens; everybody is allowed */
void host_down(struct host *host); /* what it holds stays */
void host_end(struct host *host);
uint64_t host_counter(const struct host *host, enum lender_counter which);

/* The owner, with what it was told. */
struct owner_host {
	struct peers *peers;
	struct store_tier *tier;
	struct peers_settings settings;
	struct peer_record records[TIER_HOLDERS]; /* by holder less one */
	_Atomic unsigned lost[TIER_HOLDERS + 1];
	_Atomic unsigned back[TIER_HOLDERS + 1];
	_Atomic unsigned leave[TIER_HOLDERS + 1];
	_Atomic unsigned remembered;
};

extern struct owner_host owner;

/* With certificates in `dir` (NULL: good ones), or secrets; nobody is added. */
void owner_begin(const char *dir);
void owner_up(void);
void owner_add(const struct host *host, uint16_t port);
void owner_end(void);
struct peer_info owner_peer(unsigned i);
void owner_wait_up(unsigned i);

/* ---- Requests ------------------------------------------------------------------------------- */

struct ask {
	struct tier_request request;
	uint8_t bytes[TIER_BLOB_MAX];
	_Atomic unsigned answers;
	int result;
};

void ask_put(struct ask *ask, uint64_t blob, uint32_t client, uint16_t copies);
void ask_get(struct ask *ask, uint64_t blob, uint32_t client, const uint16_t *holders);

/* Each of many requests, from several threads; what is known of each blob, and the end of it. */
struct load;
struct load *load_begin(unsigned threads, unsigned blobs);
void load_stop(struct load *load); /* waits until every request has its one answer */
uint64_t load_turns(const struct load *load);
uint64_t load_failed(const struct load *load); /* answers that were errors */

/*
 * Every blob with at least one holder of which it is not known that it lost everything comes back
 * right. The number of blobs.
 */
unsigned load_verify(struct load *load);
void load_forget(struct load *load); /* deletes them all */
void load_end(struct load *load);

/* Waits until there is an answer and, a while later, that there is only one. */
int ask_wait(struct ask *ask);
int ask_renew(uint16_t holder, uint64_t first, uint64_t end, const uint64_t *blobs, uint32_t nr,
	      uint32_t *missing);

/* Content by number: what a blob has is known by everyone. */
uint32_t blob_make(uint64_t blob, uint8_t *bytes);
bool blob_is(uint64_t blob, const uint8_t *bytes, uint32_t len);

/* ---- The proxy ------------------------------------------------------------------------------ */

enum proxy_fault {
	PROXY_PASS,
	PROXY_DELAY,	/* everything comes ms later */
	PROXY_STALL,	/* nothing passes any more; connections stay */
	PROXY_HALF,	/* nothing from the lender passes: it hears and is not heard */
	PROXY_CORRUPT,	/* one byte of what the lender sends is changed */
	PROXY_TRUNCATE, /* what the lender sends is cut in the middle, then the end */
	PROXY_CUT,	/* all connections end at once */
};

struct proxy;
struct proxy *proxy_begin(uint16_t to);
uint16_t proxy_port(const struct proxy *proxy);
void proxy_set(struct proxy *proxy, enum proxy_fault fault, unsigned ms);
bool proxy_is(const struct proxy *proxy,
	      enum proxy_fault fault); /* CORRUPT and TRUNCATE: not yet */
void proxy_end(struct proxy *proxy);

#endif
