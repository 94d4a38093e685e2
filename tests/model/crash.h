/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two crash tests share: a child that works on an arena and is killed, and a parent that
 * opens the arena and compares.
 *
 * Before each operation the child notes in shared memory what it is about to do, and after it what
 * was acknowledged. What the parent may find is what was acknowledged, or, of the one operation
 * under way, its effect or none.
 */
#ifndef TMEMD_TESTS_CRASH_H
#define TMEMD_TESTS_CRASH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"

#define CRASH_MAX_THREADS 2
#define POOLS 3 /* persistent, persistent destroyed now and then, ephemeral */
#define REMADE 1
#define EPHEMERAL 2
#define OBJECT_PAGES 64
#define MAX_HANDLES (16 * OBJECT_PAGES)

/* A page whose stamp has this bit does not shrink. */
#define RAW_STAMP (1ull << 40)

enum doing { IDLE, PUT, POSTED, FLUSH, FLUSH_OBJECT, NEW_POOL, DESTROY_POOL, GRANT, REVOKE, NOTE };

struct pool_log {
	uint32_t id;
	bool alive;
	uint64_t nonce;
	uint64_t stamp[MAX_HANDLES]; /* acknowledged; 0: nothing */
};

/* One thread of the child, which has a client of its own. */
struct thread_log {
	_Atomic uint32_t doing; /* stored last before, first after, an operation */
	uint32_t pool;
	uint32_t handle;
	uint32_t n;
	uint64_t stamp;
	uint32_t credits;
	uint32_t note, new_note;
	uint64_t stamps; /* handed out */
	uint64_t acknowledged;
	struct pool_log pools[POOLS];
};

struct shared {
	atomic_bool ready;
	struct thread_log thread[CRASH_MAX_THREADS];
};

struct worker {
	unsigned nr;
	struct rng rng;
	struct thread_log *log;
	struct store *store;
	struct store_client *client;
	uint8_t page[PAGE_BYTES];
	uint8_t got[PAGE_BYTES];
};

/* The test's size and place; set before anything else by crash_begin(). */
struct crash {
	struct shared *shared;
	unsigned threads;
	unsigned handles; /* of each pool; a multiple of OBJECT_PAGES */
	uint64_t pool_max;
	uint64_t seed;
	uint64_t round;
	char what[80]; /* for messages: where it was killed */
};
extern struct crash crash;

/* Makes the scratch directory and the shared memory. `name`: of the directory. */
void crash_begin(const char *name);

/* Says seed, round and what was under way, and ends with status 1. */
void crash_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

extern const uint32_t crash_pool_flags[POOLS];
void crash_handle(const struct pool_log *pool, unsigned h, struct store_handle *handle);
void crash_page(void *page, uint64_t stamp);
size_t crash_note(uint32_t n, uint8_t note[STORE_MAX_NOTE]);

/* Opens the arena and its crash.threads clients. NULL: no memory, when that is allowed. */
struct store *crash_open(bool no_worker, bool may_fail, struct store_client **client);

/* ---- The child's operations ----------------------------------------------------------------- */

void do_put(struct worker *w, unsigned pool, unsigned handle, bool posted, bool raw);
void do_get(struct worker *w, unsigned pool, unsigned handle);
void do_flush(struct worker *w, unsigned pool, unsigned handle);
void do_flush_object(struct worker *w, unsigned pool, unsigned handle);
void do_flush_many(struct worker *w, unsigned pool); /* about 7 of 10 handles */
void do_new_pool(struct worker *w, unsigned pool);
void do_remake_pool(struct worker *w);
void do_grant(struct worker *w, unsigned n);
void do_revoke(struct worker *w, unsigned n);
void do_note(struct worker *w);
/* A client that comes and goes; what it held must not show up in its next life. */
void do_visitor(struct worker *w);

/* ---- The parent ----------------------------------------------------------------------------- */

/* Opens the arena after a kill and checks all of the contract; what was found is the new log. */
void crash_check(void);

/* Destroys everything: nothing may be left, and the memory must be the host's again. */
void crash_end_arena(void);

#endif
