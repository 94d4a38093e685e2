/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A load on a disk by many threads whose requests block. Each thread has its own part of the disk,
 * knows what every block of it holds, and checks what it reads. For disks that are reached in ways
 * of their own: the functions are the caller's.
 */
#ifndef TMEMD_TESTS_BLOCKLOAD_H
#define TMEMD_TESTS_BLOCKLOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "diskload.h"

#define BLOCKLOAD_THREADS 48	/* at most */
#define BLOCKLOAD_MAX_BLOCKS 48 /* of a request */

/* 0, or what the test then ends with. `arg` is that of the thread. */
struct block_ops {
	int (*read)(void *arg, void *buf, uint32_t bytes, uint64_t offset);
	int (*write)(void *arg, const void *buf, uint32_t bytes, uint64_t offset);
	int (*zero)(void *arg, uint32_t bytes, uint64_t offset);
	int (*flush)(void *arg);
};

struct blockload_thread {
	struct blockload *load;
	void *arg;
	uint32_t first; /* block of its part */
	uint64_t *stamps;
	struct rng rng;
	uint8_t *buffer;
	pthread_t id;
	_Atomic uint64_t done;
	_Atomic uint64_t longest_ms;
};

struct blockload {
	const struct block_ops *ops;
	unsigned nr;
	uint32_t blocks; /* of each part */
	_Atomic bool stop;
	struct blockload_thread threads[BLOCKLOAD_THREADS];
};

/* For an empty disk of DISK_BLOCKS; args[i] is for the i-th thread. */
void blockload_init(struct blockload *load, const struct block_ops *ops, unsigned nr,
		    void *const *args, uint64_t seed);
void blockload_free(struct blockload *load);
void blockload_start(struct blockload *load);

/* Waits until each thread has done so many more requests. */
void blockload_some_work(struct blockload *load, uint64_t requests);

/* Ends the threads, and has every block read. */
void blockload_end(struct blockload *load);

uint64_t blockload_done(const struct blockload *load);
uint64_t blockload_longest_ms(const struct blockload *load);

#endif
