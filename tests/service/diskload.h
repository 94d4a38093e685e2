/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A load on a disk that knows what every block holds: random requests, many at a time, each checked
 * when it completes. And what else the tests of disks share.
 *
 * Requests of one queue are executed and completed in their order. So what a read has to return is
 * known when it is submitted, also when writes to the same blocks are under way. Each queue has its
 * own part of the disk.
 */
#ifndef TMEMD_TESTS_DISKLOAD_H
#define TMEMD_TESTS_DISKLOAD_H

#include <linux/virtio_blk.h>
#include <pthread.h>

#include "player.h"
#include "tools/vhost/vhost_user.h"

#define BLOCK 4096u
#define SECTORS 8u /* of a block */

#define DISK_BYTES (64u << 20)
#define DISK_BLOCKS (DISK_BYTES / BLOCK)

#define LOAD_MAX_BLOCKS 32 /* of a request */
#define LOAD_OPS 64	   /* under way at a time, all queues together */
#define LOAD_DATA_BYTES ((LOAD_OPS + 1) * (LOAD_MAX_BLOCKS + 1) * (size_t)BLOCK)

/*
 * Makes the scratch directory and the configuration: disks "d1" and "d2" of DISK_BYTES with two
 * queues each. `more` is added behind.
 */
void disk_configure(const char *name, const char *more);
void disk_configure_again(const char *more);

/*
 * A front end, whose complaints go to stderr. Tries for a while: the former one may not be noticed
 * to have gone yet.
 */
struct vu *disk_open(const char *disk, const struct vu_options *options);

/* The status of one request with data from the beginning of vu_data(). */
int disk_do(struct vu *vu, unsigned queue, uint32_t type, uint64_t block, uint32_t blocks);

/* Empties the disk. */
void disk_discard_all(struct vu *vu);

/* Pages that the pool holds for it. */
uint64_t disk_pages(const char *disk);

struct load_op {
	uint32_t type;
	unsigned queue;
	uint32_t block;
	uint32_t blocks;
	size_t at;			  /* of its data, in vu_data() */
	uint64_t stamps[LOAD_MAX_BLOCKS]; /* that a read returns */
	uint64_t number;		  /* in its queue */
	uint64_t since_ms;
};

struct load {
	struct vu *vu; /* the caller's */
	unsigned queues;
	unsigned depth;	   /* of each queue */
	unsigned stall_ms; /* no request takes longer; 0: 30 s */
	unsigned call_ms;  /* a completion is called for within that time; 0: 1 s */
	bool survives;	   /* connects again when tmemd went away */
	struct rng rng;

	uint64_t *stamps; /* of each block; 0 reads as zeroes */
	struct load_op ops[LOAD_OPS];
	struct load_op *free[LOAD_OPS];
	unsigned nr_free;
	uint64_t submitted[VU_MAX_QUEUES];
	uint64_t completed[VU_MAX_QUEUES];

	_Atomic uint64_t done; /* requests; for other threads */
	_Atomic uint64_t reconnects;
	_Atomic uint64_t longest_ms; /* that a request took */
	_Atomic bool stop;
	pthread_t thread;
};

/* For an empty disk; queues, depth, stall_ms, call_ms, survives may be set afterwards. */
void load_init(struct load *load, struct vu *vu, unsigned queues, uint64_t seed);
void load_free(struct load *load);

/* Submits so many requests; some of them may be under way when it returns. */
void load_run(struct load *load, uint64_t requests);

/* Waits for all that is under way. */
void load_drain(struct load *load);

/* Reads every block. */
void load_verify(struct load *load);

/* The same in a thread of its own, until it is ended. */
void load_start(struct load *load);
void load_end(struct load *load);

#endif
