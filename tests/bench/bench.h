/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tmem-bench: what the store costs, as a ratio to a reference measured in the same run.
 *
 * Measure and reference run in turn, round by round, so that a change of the machine's speed hits
 * both; a figure is the median of the rounds' ratios. Times are CPU of the whole process (threads
 * of the store included) and wall.
 */
#ifndef TMEMD_BENCH_H
#define TMEMD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"

#define MAX_ROUNDS 99

struct bench_options {
	const char *bench;
	const char *json;   /* file, or NULL */
	const char *corpus; /* file of raw pages, or NULL: generated */
	bool captured;	    /* pages of processes that the bench starts */
	uint64_t pages;	    /* 0: the bench's own default */
	uint64_t seed;
	unsigned rounds;
};

/* ---- Pages to measure with (corpus.c) ------------------------------------------------------- */

struct corpus {
	uint8_t *pages;
	size_t nr;
	/* LZ4 images one after the other; a page that does not shrink is there as it is. */
	uint8_t *packed;
	uint64_t *at; /* nr + 1 offsets */
};

/* Fills the corpus from what the options name; prints the sizes that it really has under LZ4. */
int corpus_make(struct corpus *corpus, const struct bench_options *options, size_t default_nr);
void corpus_free(struct corpus *corpus);

/* ---- Measuring (figures.c) ------------------------------------------------------------------ */

struct timing {
	uint64_t cpu, wall; /* ns */
};

/* Time since `from`, which bench_now() made. */
struct timing bench_now(void);
struct timing bench_since(struct timing from);

/* One kind of work over all rounds. */
struct series {
	double cpu[MAX_ROUNDS], wall[MAX_ROUNDS];
	unsigned nr;
};

/* Adds a round: time for `items` items. */
void series_add(struct series *series, struct timing time, uint64_t items);

/* Adds a figure and its wall-clock twin NAME_wall: nanoseconds an item, against a reference. */
void figure_times(const char *name, const struct series *what, const struct series *reference);

/* A figure with one value a round; reference NULL: it stands for itself. */
void figure_values(const char *name, const char *unit, const double *value, const double *reference,
		   unsigned rounds);

/* Prints the table, writes --json. 0 or -errno. */
int figures_end(const struct bench_options *options);

/* ---- The machine (machine.c) ---------------------------------------------------------------- */

/* Prints its state and what makes figures doubtful: swap in use, load, governor, virtual CPUs. */
void machine_begin(void);
/* As a JSON object, jansson's json_t. */
void *machine_json(void);

/* ---- Stores to measure (arena.c) ------------------------------------------------------------ */

/* Mounts a tmpfs of our own, with huge pages when that is possible; once a program. */
void bench_mount(void);
/*
 * Makes arena `file` there and opens it with `ready` chunks populated ahead. Without a worker
 * that is done by store_work(). Ends the program when it cannot.
 */
struct store *bench_store_open(const char *file, uint64_t pool_max, unsigned ready, bool worker);
struct store_client *bench_client(struct store *store, const char *name);
int bench_pool(struct store_client *client, uint32_t flags, uint64_t nonce);
/* Waits until `chunks` chunks are ready, then until the worker is quiet. */
void bench_settle(struct store *store, uint64_t chunks);
/* A counter of the store, up to date. */
uint64_t bench_counter(struct store *store, enum store_counter which);
/* Bytes that the arena's file takes of the host's memory. */
uint64_t bench_arena_bytes(struct store *store);
/* Anonymous memory of this process in bytes. */
uint64_t bench_private_bytes(void);

struct store_handle bench_handle(uint32_t pool, uint64_t i);

/* ---- zram on this machine (zram.c) ---------------------------------------------------------- */

struct zram_result {
	double bytes_per_page; /* all memory it took, its table included */
	double put_ns, get_ns; /* CPU a page */
};

/* False, and the reason printed, when it cannot be measured here. */
bool zram_measure(const struct corpus *corpus, struct zram_result *result);

/* ---- A disk by NBD (nbd.c) ------------------------------------------------------------------ */

/* Serves the disk and connects to that; false, and the reason printed, when it cannot be. */
bool nbd_open_disk(const char *disk_socket);
/* Writes all pages, then reads each in this order, one request at a time: the time of reading. */
bool nbd_measure(const struct corpus *corpus, const uint32_t *order, struct timing *time);
void nbd_close_disk(void);

/* ---- References and benches ----------------------------------------------------------------- */

/* scan + XXH3 + LZ4 of all pages. */
void floor_put(const struct corpus *corpus);
/* LZ4 decompression in the order given; NULL: from first to last. */
void floor_get(const struct corpus *corpus, const uint32_t *order);

/* A random order of 0..n-1; free() it. */
uint32_t *bench_order(size_t n, struct rng *rng);

int bench_store(const struct bench_options *options);
int bench_allocator(const struct bench_options *options);
int bench_compaction(const struct bench_options *options);
int bench_ring(const struct bench_options *options);
int bench_blk(const struct bench_options *options);
int bench_host(const struct bench_options *options);

#endif
