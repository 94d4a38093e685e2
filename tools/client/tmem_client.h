/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process of the host as a tmem client: the guest's side of proto/tmem_abi.h over the Unix
 * socket that tmemd has for the client.
 *
 * Life: tmem_client_connect() maps the region, tmem_client_hello() begins a life (all pages of a
 * former one are gone), tmem_client_bye() ends it. When the process ends without a bye, tmemd ends
 * it too. When tmemd is restarted, everything goes on by itself: operations under way wait.
 *
 * Threads: one thread for each ring is the intended use, different rings by different threads at
 * the same time. A ring may be used by several threads (each call takes the ring's lock), but
 * results of tmem_submit() come out of tmem_reap() to whoever calls it. connect, hello, bye,
 * reconnect and close: no other call may be under way.
 *
 * Order: operations on one handle take effect in the order in which they are submitted. Rings
 * have no order between them, so a handle that has an operation outstanding on one ring is
 * refused (-EBUSY) by tmem_submit() on another; the synchronous functions wait. Handles are
 * compared by a hash: seldom, another handle counts as outstanding too. TMEM_FLUSH_OBJECT and
 * TMEM_DESTROY_POOL are not ordered by it: the synchronous functions first wait until everything
 * that was submitted before, on all rings, is done; who submits them asynchronously does that.
 *
 * Return values: >= 0 or a negated errno. Statuses of operations are those of the ABI header.
 */
#ifndef TMEM_CLIENT_H
#define TMEM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tmem_abi.h"

struct tmem_client;
struct tmem_ring;

struct tmem_handle {
	uint64_t object[3];
	uint32_t pool;
	uint32_t index;
};

/* ---- Connection and life -------------------------------------------------------------------- */

/*
 * Connects to the socket, takes region and doorbells, and waits at most timeout_ms (also the limit
 * of each later wait of this client; 0: none) until the service offers something. On failure
 * *client is NULL and err has a sentence: -ECONNREFUSED the region has another owner,
 * -EPROTO not a tmem service or another version, -ETIMEDOUT, or what connect(2) says.
 */
int tmem_client_connect(struct tmem_client **client, const char *socket, unsigned timeout_ms,
			char *err, size_t errlen);

struct tmem_hello {
	unsigned rings;	   /* 1 .. tmem_client_max_rings() */
	unsigned entries;  /* of each ring, a power of two */
	uint64_t features; /* wanted; what is not offered is left out unless `exact` */
	uint64_t epoch;	   /* names the life; 0: a random one */
	uint64_t former;   /* the life that goes on, restored at this service; 0: a new one */
	uint32_t abi;	   /* 0: TMEM_ABI_VERSION */
	bool exact;	   /* tests: say exactly this, even if it will be refused */
};

/* Why the last hello was refused, and both values. */
struct tmem_refusal_info {
	enum tmem_refusal reason;
	uint64_t guest;
	uint64_t service;
};

/*
 * Begins a life. 0; -ECONNREFUSED: see tmem_client_refusal(); -ETIMEDOUT; -ENOMEM. Rings of a
 * former life are invalid, their operations never complete.
 */
int tmem_client_hello(struct tmem_client *client, const struct tmem_hello *hello);
void tmem_client_refusal(const struct tmem_client *client, struct tmem_refusal_info *info);

/* Ends the life: all its pools go. 0 or -ETIMEDOUT. */
int tmem_client_bye(struct tmem_client *client);

/*
 * Connects again after the service was restarted without keeping the doorbells; until then it is
 * polled by timer. Life, pools and operations under way are not touched. The same process must
 * ask. -ESTALE: the service has another region now, the life is over.
 */
int tmem_client_reconnect(struct tmem_client *client);

/* Closes the connection only, as when a connection drops. */
void tmem_client_hang_up(struct tmem_client *client);

/* Unmaps and frees; without a bye the life goes on until the process ends. NULL is allowed. */
void tmem_client_close(struct tmem_client *client);

unsigned tmem_client_max_rings(const struct tmem_client *client);
uint64_t tmem_client_epoch(const struct tmem_client *client);	 /* of the life that began last */
uint64_t tmem_client_features(const struct tmem_client *client); /* agreed in the hello */

/* The region itself, mapped read and write. */
void *tmem_client_region(const struct tmem_client *client, size_t *bytes);

/* Its file descriptor, owned by the client. */
int tmem_client_region_fd(const struct tmem_client *client);

/* Is the service there? Its heartbeat moved within the last second (a call may wait that long). */
bool tmem_client_service_alive(struct tmem_client *client);

/* True when the service does not serve this life any more: refused, or its state was lost. */
bool tmem_client_refused(const struct tmem_client *client);

/* Posted puts that were not accepted. Anything but 0 is a breach of the contract. */
uint64_t tmem_client_posted_failed(const struct tmem_client *client);

struct tmem_client_counts {
	uint64_t doorbells_out; /* rung by us */
	uint64_t doorbells_in;	/* heard by us while waiting */
	uint64_t restarts;	/* changes of the service's epoch that rings noticed */
};
void tmem_client_counts(const struct tmem_client *client, struct tmem_client_counts *counts);

/* ---- Asynchronous operations ---------------------------------------------------------------- */

struct tmem_ring *tmem_client_ring(struct tmem_client *client, unsigned index);

struct tmem_request {
	enum tmem_opcode op;
	bool posted; /* PUT_PAGE: with a credit; gives no result */
	struct tmem_handle handle;
	uint64_t arg;	  /* NEW_POOL: the nonce */
	const void *page; /* PUT_PAGE: 4096 bytes, copied at once */
	void *into;	  /* GET_PAGE: filled by tmem_reap() when the status is 1 */
	void *tag;	  /* returned with the result */
};

/*
 * Puts an operation into the ring; tmem_kick() or a wait makes the service see it. 0; -EAGAIN the
 * ring is full (reap); -EBUSY the handle has an operation outstanding on another ring; -ENOBUFS
 * no credit for a posted put. A posted put for which 0 was returned is as good as done when it
 * was kicked.
 */
int tmem_submit(struct tmem_ring *ring, const struct tmem_request *request);

/* Makes what was submitted visible, and rings when the service sleeps. */
void tmem_kick(struct tmem_ring *ring);

struct tmem_result {
	void *tag;
	int status;
};

/* Takes at most `max` results, without waiting. Returns how many. */
unsigned tmem_reap(struct tmem_ring *ring, struct tmem_result *results, unsigned max);

/* Kicks and waits until there is a result to reap (1) or nothing is outstanding (0); -ETIMEDOUT. */
int tmem_wait(struct tmem_ring *ring);

/*
 * The same until there are `results` of them, or all that are outstanding: one doorbell for many
 * pages. Returns how many there are.
 */
int tmem_wait_many(struct tmem_ring *ring, unsigned results);

/* Kicks and waits until everything submitted before is done, posted puts included. */
int tmem_drain(struct tmem_ring *ring);

/* Credits that the ring may take now. */
unsigned tmem_credits(const struct tmem_ring *ring);

/*
 * How long a wait spins at most before it sleeps; the default is 100 us. It spins less while
 * spinning has been in vain.
 */
void tmem_ring_set_spin(struct tmem_ring *ring, unsigned us);

/* ---- Synchronous operations ------------------------------------------------------------------ */

/*
 * Each submits, waits and returns the status. -ETIMEDOUT: the outcome is not known, the
 * operation may still happen.
 */
int tmem_new_pool(struct tmem_ring *ring, uint32_t flags, const uint64_t uuid[2]);
int tmem_destroy_pool(struct tmem_ring *ring, uint32_t pool);
int tmem_put(struct tmem_ring *ring, const struct tmem_handle *handle, const void *page);
int tmem_get(struct tmem_ring *ring, const struct tmem_handle *handle, void *page);
int tmem_flush(struct tmem_ring *ring, const struct tmem_handle *handle);
int tmem_flush_object(struct tmem_ring *ring, uint32_t pool, const uint64_t object[3]);

/* Submits and kicks a posted put, and waits for nothing but room. 1, or -ENOBUFS no credit. */
int tmem_put_posted(struct tmem_ring *ring, const struct tmem_handle *handle, const void *page);

#endif
