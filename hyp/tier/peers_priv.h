/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The insides of peers, the owner's side.
 *
 * peers.c   the public functions, the table for the store, and the thread
 * op.c      a request of the store: which hosts, what when one of them fails
 * peer.c    what is said to one host and what it says, from buffer to buffer, without sockets
 * dial.c    its connection: made, given up, made again
 *
 * A request that is worked on has an op out of a fixed number; it has a leg for each host that is
 * asked. A leg waits in the queue of its peer until the peer's window has room, then it is in the
 * list of those sent, the oldest first, until the answer. Legs do not outlive a connection: what
 * has no answer when it ends has failed, so no answer can come too late.
 *
 * All belongs to the thread but what stands under the lock. Callbacks are called without it.
 */
#ifndef TMEMD_TIER_PEERS_PRIV_H
#define TMEMD_TIER_PEERS_PRIV_H

#include <pthread.h>
#include <sys/socket.h>

#include "link.h"

#define PEERS_OPS_MAX 16384u  /* a tag has 15 bits for the op */
#define PEERS_BUCKETS 1024u   /* clients; those with the same remainder share one */
#define DELETES_WAITING 4096u /* waiting, for each peer */
#define RENEWALS_WAITING 4u   /* waiting, for each peer */
#define ADDRESSES_MAX 8u
#define LATENCY_SHARE 8 /* a new value is one 8th of the mean */

enum op_kind { OP_PUT, OP_GET, OP_KINDS };

enum leg_state {
	LEG_NONE,   /* nobody asked */
	LEG_QUEUED, /* in its peer's queue */
	LEG_SENT,   /* in its peer's list of those sent */
	LEG_OK,
	LEG_FAILED,
};

struct leg {
	struct leg *next; /* in either list */
	struct leg *prev;
	struct op *op;
	struct peer *peer;
	uint64_t since; /* clock_ns(): in the list that it is in */
	enum leg_state state;
};

struct legs {
	struct leg *first;
	struct leg *last;
};

struct op {
	struct peers *peers;
	struct tier_request *request; /* NULL: answered; a leg may be out still */
	struct op *next;	      /* of those that are free */
	struct bucket *bucket;
	enum op_kind kind;
	uint16_t generation;
	uint64_t blob;
	uint64_t began;
	struct leg legs[TIER_COPIES];
	uint8_t tried[TIER_HOLDERS / 8]; /* put: bit i: peer i has been */
	bool full;			 /* put: one had no room */
	bool doomed;			 /* put: it cannot succeed any more */
	bool silent;			 /* get: one did not answer */
	bool hedged;
};

/* Requests of a client that have no op yet, and how many have. */
struct bucket {
	struct tier_request *first[OP_KINDS];
	struct tier_request **last[OP_KINDS];
	uint32_t working[OP_KINDS];
	struct bucket *next[OP_KINDS]; /* of those that may get an op */
	bool listed[OP_KINDS];
};

struct renewal {
	uint64_t first;
	uint64_t end;
	const uint64_t *blobs;
	uint32_t nr;
	void (*done)(void *arg, int result, uint32_t missing);
	void *arg;
};

enum dial_state { DIAL_DOWN, DIAL_HELLO, DIAL_UP };

struct peer {
	struct peers *peers;
	unsigned index; /* its holder number less one */
	struct peer_record record;

	/* ---- Under the lock. */
	bool added;
	char host[256];
	uint16_t port;
	struct {
		struct sockaddr_storage at;
		socklen_t len;
	} addresses[ADDRESSES_MAX];
	unsigned nr_addresses;
	bool want_denied;
	bool want_drained;
	uint32_t drain_ms;
	char why[LINK_WHY];
	uint64_t *deletes; /* a ring of DELETES_WAITING */
	uint32_t delete_first;
	uint32_t nr_deletes;
	struct renewal renewals[RENEWALS_WAITING]; /* a ring; the first may be in work */
	uint32_t renewal_first;
	uint32_t nr_renewals;

	/* ---- Written by the thread, read by any. */
	_Atomic uint32_t state;	     /* enum peer_state */
	_Atomic uint32_t latency_us; /* a moving mean */
	_Atomic bool draining;
	_Atomic bool leaving;
	_Atomic uint64_t epoch;
	counter_t spare; /* as it said, less what went there since */
	counter_t counters[PEER_COUNTER_NR];
	struct peer_latency put_latency;
	struct peer_latency get_latency;

	/* ---- The thread's. */
	enum dial_state dial;
	struct link link;
	bool ready;  /* look at the link without epoll's saying so */
	bool queued; /* there is something new to be said */
	bool has_addresses;
	bool denied;
	unsigned address; /* the next to be tried */
	unsigned attempts;
	uint64_t next_dial; /* clock_ns() */
	uint64_t session;
	uint64_t next_id;
	uint32_t batch; /* agreed */
	uint32_t renew;
	uint32_t window;
	uint32_t in_flight;
	struct legs queue[OP_KINDS];
	struct legs sent;
	enum op_kind turn; /* whose frame is next */
	uint64_t held;	   /* blobs of ours, as far as is known */
	uint64_t next_ping;
	uint64_t pinged; /* clock_ns() of a ping without an answer, or 0 */
	uint64_t ping_id;
	bool renewing; /* the first renewal has begun */
	uint32_t renew_at;
	uint32_t renew_missing;
	uint64_t renew_first;
	uint64_t renew_sent; /* clock_ns() of a RENEW without an answer, or 0 */
	uint64_t renew_id;
};

struct peers {
	struct store_tier tier; /* first: the store's handle */
	struct peers_settings settings;
	struct credentials credentials;
	int epoll;
	int wake;
	pthread_t thread;
	bool running;
	uint64_t random; /* state of a generator */
	uint64_t session;
	bool stopping; /* the thread's: nothing new is tried */

	struct op *ops;
	struct op *free_ops;
	uint32_t working[OP_KINDS];
	struct bucket *buckets;
	struct bucket *waiting_first[OP_KINDS]; /* buckets that may get an op */
	struct bucket *waiting_last[OP_KINDS];

	pthread_mutex_t lock;
	struct tier_request *submitted[OP_KINDS]; /* in the order they came */
	struct tier_request **submitted_last[OP_KINDS];
	bool woken;
	bool changed; /* a peer's wishes */
	bool stop;

	struct peer *peers[TIER_HOLDERS]; /* not NULL up to nr; never freed before the end */
	_Atomic uint32_t nr;
};

static inline uint64_t peers_ms(uint32_t value, uint32_t standard)
{
	return (value ? value : standard) * 1000000ull;
}

/* ---- peers.c -------------------------------------------------------------------------------- */

/* Everything but sockets and the thread; for the fuzzer too. 0 or a negated errno. */
int peers_make(struct peers **peers, const struct peers_settings *settings);
void peers_free(struct peers *peers);

/* A peer with the next number, or of that name. NULL: none is left. Under the lock. */
struct peer *peers_new_peer(struct peers *peers, const char *name);

/* What has come in gets to the buckets, and gets ops as far as there are some. */
void peers_take(struct peers *peers);
void peers_admit(struct peers *peers, uint64_t now);

/* The bucket may get another op, if it has a request for one. */
void peers_list_bucket(struct peers *peers, struct bucket *bucket, enum op_kind kind);

uint64_t peers_random(struct peers *peers);

/* ---- op.c ----------------------------------------------------------------------------------- */

void op_start(struct op *op, uint64_t now);

/* The answer to a leg that was sent. `bytes`: of a get that has status OK. */
void op_answer(struct leg *leg, uint16_t status, const uint8_t *bytes, uint32_t len, uint64_t now);

/* A leg that gets none. It is in no list any more. */
void op_unanswered(struct leg *leg, bool sent, uint64_t now);

/* A get that takes long asks another holder too. */
void op_hedge(struct op *op, uint64_t now);

/* Answers a request; nothing of it is touched after that. */
void op_done(struct tier_request *request, int result);

/* ---- peer.c --------------------------------------------------------------------------------- */

void legs_add(struct legs *legs, struct leg *leg);
void legs_remove(struct legs *legs, struct leg *leg);

void peer_queue(struct peer *peer, struct leg *leg, uint64_t now);
bool peer_takes_puts(const struct peer *peer);
bool peer_is_up(const struct peer *peer);

/* Leaves the blob to be deleted there. Any thread. */
void peer_delete(struct peer *peer, uint64_t blob);

/* The hello, into an empty `out`. */
void peer_hello(struct peer *peer);

/* Does what the frames in `in` say. 0, or -1 with a sentence in link.why: it is over. */
int peer_input(struct peer *peer, uint64_t now);

/* Fills `out` with what there is to be said now. */
void peer_output(struct peer *peer, uint64_t now);

/* The connection is over: whoever waits for an answer has none. */
void peer_fail_all(struct peer *peer, uint64_t now);

void peer_fail_renewals(struct peer *peer);

void peer_latency(struct peer *peer, struct peer_latency *histogram, uint64_t ns);

/* ---- dial.c --------------------------------------------------------------------------------- */

/* Goes on with the connection as far as it goes; makes one when it is time for that. */
void dial_step(struct peer *peer, uint64_t now);

/* After peer_output(): what is in `out` goes. */
void dial_flush(struct peer *peer, uint64_t now);

/* Ends what is late, hedges gets; when it has to be called again. */
uint64_t dial_times(struct peer *peer, uint64_t now);

/* `failed`: not by our own wish. */
void dial_hang_up(struct peer *peer, const char *why, bool failed, uint64_t now);

#endif
