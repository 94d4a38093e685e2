/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The model test: random operations from several threads against the store, each result checked
 * against a model that is simple enough to be right.
 *
 * Exact part (exact.c): each thread owns handles that nobody else touches, so the model knows what
 * a get may answer: those bytes (persistent), those bytes or a miss (ephemeral), else a miss.
 * Racing part (race.c): all threads work on the same few handles; versions and times tell whether
 * a get could have seen what it saw.
 * Meanwhile an operator (operator.c) freezes, limits, reclaims, injects failures. Between rounds
 * all stop, the books are compared (audit.c), and the store may be closed and opened again.
 */
#ifndef TMEMD_TESTS_MODEL_H
#define TMEMD_TESTS_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"

#define MIB (1ull << 20)
#define MAX_THREADS 16

/* Clients alpha and beta do everything; the forger is never given credits; racers race. */
enum model_client { ALPHA, BETA, FORGER, RACER, NR_CLIENTS };
#define EXACT_CLIENTS RACER

#define OWN_POOLS 4    /* of each thread and client, made and destroyed at random */
#define COMMON_POOLS 2 /* of all threads: persistent, ephemeral inclusive; indexes divided */
#define POOLS (OWN_POOLS + COMMON_POOLS)
#define OBJECTS 8
#define OBJECT_PAGES 24
#define HANDLES (OBJECTS * OBJECT_PAGES)
#define NO_SUCH_POOL 63 /* the test never has as many pools */

#define PRIVATE (1u << TMEM_POOL_VERSION_SHIFT)

struct model_pool {
	bool alive;
	unsigned slot;
	uint32_t flags;
	unsigned members; /* bit for each client */
	uint32_t id[NR_CLIENTS];
	uint64_t uuid[2];
	uint64_t nonce;
	uint64_t stamp[HANDLES]; /* what the handle holds; 0: nothing */
};

/* What a client's counters must say, as one thread saw it. */
struct tally {
	uint64_t puts, posted, room, maximum, frozen, no_pool, pool;
	uint64_t hit, miss, granted, revoked, forged;
};

struct world;

struct model_thread {
	struct world *world;
	unsigned nr;
	struct rng rng;
	uint64_t step;
	uint64_t stamps; /* handed out */
	uint64_t old_stamp;
	pthread_t thread;
	struct model_pool pools[EXACT_CLIENTS][POOLS];
	unsigned credits[NR_CLIENTS];
	struct tally tally[NR_CLIENTS];
	uint8_t page[PAGE_BYTES];
	uint8_t got[PAGE_BYTES];
};

struct race;

struct world {
	uint64_t seed;
	uint64_t round_steps; /* of each thread */
	unsigned nr_threads;
	bool worker; /* the store has its own; else the operator calls store_work() */
	struct store *store;
	struct store_config config;
	struct store_client *client[NR_CLIENTS];
	struct model_thread thread[MAX_THREADS];
	uint32_t common[EXACT_CLIENTS][COMMON_POOLS];
	struct race *race;
	atomic_bool stop; /* the operator shall come to an end */

	/* What the operator has set; odd while he changes something. */
	_Atomic uint64_t control;
	atomic_bool frozen[NR_CLIENTS];
	atomic_bool all_frozen;
	_Atomic uint64_t maximum[NR_CLIENTS];
};

/* The operator's settings around an operation. */
struct control_view {
	uint64_t control;
	bool frozen;
	bool limited;
};

extern const char *const client_names[NR_CLIENTS];

/* Says seed, thread (NULL: between rounds) and step, and ends the program with status 1. */
void model_fail(const struct world *w, const struct model_thread *t, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));

struct control_view control_begin(struct world *w, unsigned client);
/* True when nothing changed since: the view held for the whole operation. */
bool control_same(struct world *w, const struct control_view *view);

/*
 * Checks the result of a put against what the operator had set, and tallies it. posted: with a
 * credit of this client.
 */
void check_put(struct model_thread *t, unsigned client, const struct control_view *view, int r,
	       bool posted);

void exact_step(struct model_thread *t);
/* Makes the pools of a client that all threads share. */
void exact_setup(struct world *w, unsigned client);
void exact_handle(const struct model_thread *t, unsigned client, const struct model_pool *pool,
		  unsigned member, unsigned h, struct store_handle *handle);
/* A get that must agree with the model. */
void exact_get(struct model_thread *t, unsigned client, struct model_pool *pool, unsigned h);
bool keeps_pages(const struct model_pool *pool);

void race_setup(struct world *w);
void race_step(struct model_thread *t);
/* Between rounds: every handle once more, then all is flushed and versions begin anew. */
void race_settle(struct world *w);

void *operator_main(void *world);
/* Thaws everything, takes limits and faults away. */
void operator_calm(struct world *w);

/* Compares books between rounds. */
void audit(struct world *w);
/* Ephemeral pages are gone after a restart, counters begin at 0. */
void audit_restarted(struct world *w);
/* Everything flushed: nothing may be left, and the memory must be the host's again. */
void audit_empty(struct world *w);

#endif
