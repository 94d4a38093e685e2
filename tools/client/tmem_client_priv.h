/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the client library share. */
#ifndef TMEM_CLIENT_PRIV_H
#define TMEM_CLIENT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "tmem_client.h"

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

#define SLICE_NS 100000000ull /* the longest sleep without a look at the region */
#define SPIN_US 100	      /* the longest spin, unless told otherwise */
#define SPIN_NS_MIN 2000ull
#define WAKE_NS 50000ull /* what waking up takes, see docs/performance.md */

/* Outstanding operations by hash of the handle: the ring in the upper 8 bits, their number below.
 */
#define BUCKETS 8192u
#define NO_BUCKET UINT32_MAX
#define BUCKET_RING_SHIFT 24

enum op_state {
	OP_FREE,
	OP_POSTED,    /* freed when done */
	OP_ASYNC,     /* goes to `ready` when done */
	OP_SYNC,      /* somebody waits for it */
	OP_ABANDONED, /* nobody does any more; freed when done */
	OP_READY,     /* done, not reaped */
	OP_SYNC_DONE, /* done, the waiter takes it */
};

struct op {
	uint32_t seq;
	uint32_t bucket;
	enum op_state state;
	int status;
	void *into;
	void *tag;
};

struct tmem_ring {
	struct tmem_client *client;
	unsigned index;
	pthread_mutex_t lock;
	uint32_t n;

	struct tmem_ring_ctl *ctl;
	uint16_t *sq;
	uint16_t *cq;
	struct tmem_entry *entries;
	uint8_t *slots;

	uint32_t sq_tail; /* submitted */
	uint32_t sq_told; /* visible to the service */
	uint32_t cq_head;
	uint32_t outstanding; /* not known to be done */
	uint64_t service_epoch;
	uint64_t spin_ns; /* what the next wait spins, at most spin_max_ns */
	uint64_t spin_max_ns;

	struct op *ops;
	uint16_t *free; /* a stack of entry numbers */
	uint32_t nr_free;
	uint16_t *ready; /* a queue of entry numbers */
	uint32_t ready_head;
	uint32_t ready_tail;
};

struct tmem_client {
	char socket[108];
	uint64_t timeout_ns; /* 0: none */
	int connection;
	int region_fd;
	struct tmem_region *page;
	size_t bytes;
	unsigned vectors;
	int *bells_out; /* eventfds that ring the service, `vectors` of them */
	int *bells_in;	/* that ring us */

	uint64_t epoch;
	uint64_t features;
	unsigned nr_rings;
	struct tmem_ring *rings;
	struct tmem_refusal_info refusal;
	_Atomic uint32_t *buckets;

	_Atomic uint64_t posted_failed;
	_Atomic uint64_t doorbells_out;
	_Atomic uint64_t doorbells_in;
	_Atomic uint64_t restarts;
};

uint64_t tmem_now_ns(void);

/* When a wait that begins now has to end. */
uint64_t tmem_deadline(const struct tmem_client *client);

/* Sleeps for ns. */
void tmem_nap(uint64_t ns);

/* Rings vector `v` of the service unless it polls. */
void tmem_ring_bell(struct tmem_client *client, unsigned v);

/* Private state of the rings of a life. 0 or -ENOMEM. */
int tmem_rings_open(struct tmem_client *client, unsigned rings, unsigned entries);
void tmem_rings_close(struct tmem_client *client);

#endif
