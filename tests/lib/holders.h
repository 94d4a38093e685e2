/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A tier whose holders are the test's memory. It works on a thread of its own, answers late and in
 * any order, and can be told to lose, lie, refuse and be out of reach.
 *
 * What the holders have is in shared memory: it outlives a child that is killed. They check what a
 * store must not do: the same number for other bytes, a copy for a holder that was excluded or has
 * one, a request to somebody who is no holder. The first such thing is told by holders_complaint().
 */
#ifndef TMEMD_TESTS_HOLDERS_H
#define TMEMD_TESTS_HOLDERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/tier.h"
#include "tests/lib/rng.h"

#define HOLDERS 4u /* numbered from 1 */
#define HOLDER_BLOBS 65536u
#define BLOBS_EVER (1u << 20)

struct held_blob {
	_Atomic uint64_t number; /* 0: free */
	uint32_t len;
	uint8_t bytes[TIER_BLOB_MAX];
};

struct holder {
	atomic_bool silent;	/* does not answer */
	atomic_bool full;	/* takes nothing */
	_Atomic uint32_t lies;	/* of 1000 gets, how many get other bytes */
	_Atomic uint32_t loses; /* of 1000 gets, how many are told that it has not got it */
	_Atomic uint64_t blobs;
	struct held_blob held[HOLDER_BLOBS];
};

struct held_ever {
	uint64_t number;
	uint64_t hash;
};

/* Shared with children. */
struct holders_memory {
	struct holder holder[HOLDERS + 1];
	struct held_ever ever[BLOBS_EVER];
	_Atomic uint32_t refuse; /* of 1000 puts, how many are refused */
	_Atomic uint32_t delay_us;
	_Atomic uint64_t puts, gets, deletes, renews;
	char complaint[128];
};

struct holders {
	struct store_tier tier; /* first */
	struct holders_memory *memory;
	struct rng rng;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct holders_work *first, *last;
	bool busy;
	bool end;
	atomic_bool stopped; /* holds everything back */
};

/* The memory, empty; of this process and its children. */
struct holders_memory *holders_memory(void);
void holders_clear(struct holders_memory *memory);

/* Starts the tier's thread. */
void holders_start(struct holders *holders, struct holders_memory *memory, uint64_t seed);
/* Ends it; all requests have been answered then. After store_set_tier(NULL). */
void holders_end(struct holders *holders);

/* Holds all answers back, and lets them go. */
void holders_hold(struct holders *holders, bool hold);

/* All that was asked for is done. */
bool holders_idle(struct holders *holders);

/* How many of the holders have the blob. */
unsigned holders_with(const struct holders_memory *memory, uint64_t blob);
/* Counts anew, after the process that worked on the memory was killed. */
void holders_recount(struct holders_memory *memory);
uint64_t holders_blobs(const struct holders_memory *memory);
/* Drops everything one holder has. */
void holder_loses_all(struct holders_memory *memory, unsigned holder);

/* NULL: the store has done nothing wrong. */
const char *holders_complaint(const struct holders_memory *memory);

#endif
