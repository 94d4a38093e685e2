/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pages that are away: with holders of a tier (tier.h) instead of in memory.
 *
 * A persistent page goes away in one store, of its descriptor's word: from its place in the payload
 * area to an entry of the away table, which says how its stored bytes are to be had. Descriptor,
 * sequence and checksum stay. So it comes home. Pages of shared pools, whose payer changes, do not
 * go away, nor do ephemeral ones.
 *
 * A flight is a page on its way, with the request and the bytes; there is a fixed number of each
 * kind. It names its page by descriptor and sequence, which together are never used again while the
 * process lives; whatever happens to the page meanwhile, the flight finds out when it lands.
 *
 * A page that has come may stay in its flight instead of in memory (FLIGHT_HERE), from where gets
 * are served too: so a full pool with everything else away still answers. A page that was given a
 * place in memory is not sent away again for HOME_NS.
 *
 * away.c: entries, numbers, flights, deletes; remotify.c: away; fetch.c: back; copies.c: copies
 * that are made again, and what holders are told to keep.
 *
 * Locks: `lock` is taken inside shard locks and is a leaf. `wakers` is for the clients' wakers
 * alone. The tier is called with no lock held but `work`.
 */
#ifndef TMEMD_STORE_AWAY_H
#define TMEMD_STORE_AWAY_H

#include <pthread.h>

#include "store/seal.h"
#include "store/tier.h"

struct store;

#define PUT_FLIGHTS 128u
#define GET_FLIGHTS 256u
#define COPY_FLIGHTS 32u
#define FLIGHTS (PUT_FLIGHTS + GET_FLIGHTS + COPY_FLIGHTS)
#define FLIGHT_HEADS 512u
/* Fetched along with a page: those that follow it in its object and are away, too. */
#define FETCH_ALONG 7u
#define HOME_SLOTS 4096u
#define HOME_NS (2 * CLOCK_S)
#define LATER_SLOTS 1024u
#define LATER_NS CLOCK_S
/* An arrived page that nobody has come for yet keeps its flight for as long. */
#define UNREAD_NS CLOCK_S
#define DELETES 4096u
#define REFUSED_RUN 8u /* refusals in a row before there is a pause */
#define BLOB_BLOCK 65536u

enum flight_kind { FLIGHT_PUT, FLIGHT_GET, FLIGHT_COPY, FLIGHT_KINDS };
enum flight_state {
	FLIGHT_FREE,
	FLIGHT_OUT,  /* with the tier, or about to be */
	FLIGHT_HERE, /* get: the bytes are here and right */
	FLIGHT_READ, /* the same, and somebody reads them */
};

struct flight {
	struct tier_request request;
	struct store *store;
	struct key key;
	uint64_t seq;
	uint64_t since;	 /* ns: begun, or here */
	uint64_t losses; /* of holders, when it was begun */
	uint32_t desc;	 /* number + 1 */
	uint32_t rec;
	uint32_t where; /* as it was when the flight began */
	uint16_t chain; /* in the hash, or among the free; number + 1 */
	uint16_t len;
	uint8_t kind;
	uint8_t state;
	uint8_t codec;
	bool wanted;   /* somebody waits for it */
	bool passing;  /* it is to be read here, not to come home */
	bool lied;     /* a holder gave other bytes */
	uint16_t shun; /* copy: who has just lost the page */
	uint8_t tag[SEAL_TAG];
	uint8_t bytes[TIER_BLOB_MAX];
};

/* Flights that were begun under a lock, to be given to the tier after it. */
struct departures {
	unsigned nr;
	struct flight *flights[FETCH_ALONG + 1];
};

struct home_slot {
	uint32_t desc;
	uint64_t until;
};

struct later_slot {
	uint32_t desc;
	uint64_t seq;
	uint64_t until;
};

/* What is known of a holder. */
struct holder_state {
	_Atomic bool lost;    /* a pass over all pages is due for it, or under way */
	_Atomic bool leaving; /* everything leaves it */
	_Atomic bool seen;    /* it has or had pages */
	_Atomic bool renew;   /* it is to be told what lives */
	bool left_some;	      /* the pass under way has found a page with it */
	/* Under `lock`. */
	uint64_t lost_at;		     /* number of the loss */
	uint64_t lost_blob;		     /* of the pages that it had then, numbers are below */
	uint64_t missing_first, missing_end; /* among these it lacks some */
	uint64_t deadline;		     /* of leaving, ns */
};

#define RENEW_BLOBS 8192u

enum renew_state { RENEW_IDLE, RENEW_SCAN, RENEW_OUT };

/* Telling one holder what lives, from the smallest number on. Work lock, but for `state`. */
struct renewal {
	_Atomic int state; /* enum renew_state */
	uint16_t holder;
	uint64_t first, end; /* of the numbers in this request */
	uint64_t settled;    /* what numbers below it are is decided */
	uint64_t rec;	     /* where the scan goes on */
	uint32_t nr;
	uint64_t *blobs; /* RENEW_BLOBS: the smallest ones, a heap until the scan is over */
	_Atomic uint64_t next_round; /* ns */
};

struct delete_slot {
	uint64_t blob;
	uint16_t holders[TIER_COPIES];
};

struct away {
	pthread_mutex_t lock;
	pthread_cond_t landed; /* a flight ended, or is here */
	struct store_tier *_Atomic tier;
	struct flight *flights; /* NULL: there was never a tier */
	uint16_t heads[FLIGHT_HEADS];
	uint16_t free[FLIGHT_KINDS];
	_Atomic unsigned out[FLIGHT_KINDS]; /* with the tier */
	bool starved;			    /* a get found no flight */

	uint32_t free_recs; /* entry; 0: none */
	uint32_t nr_free;
	uint32_t rec_next; /* first entry never used */
	uint64_t *claimed; /* a bit an entry, during the rebuild */

	uint64_t blob_next, blob_end;

	struct home_slot home[HOME_SLOTS];
	struct later_slot later[LATER_SLOTS];
	struct delete_slot deletes[DELETES];
	unsigned first_delete, nr_deletes;

	uint64_t losses; /* events so far; under `lock` */
	struct holder_state holder[TIER_HOLDERS + 1];
	_Atomic bool copies_due;     /* a pass over all pages is wanted */
	bool passing;		     /* one is under way; work lock, as all of these */
	bool passed;		     /* there was one */
	_Atomic bool unfinished;     /* it has left something undone */
	uint64_t pass_at;	     /* descriptor */
	uint64_t pass_losses;	     /* when it began */
	_Atomic uint64_t copy_after; /* ns: after a refusal, for a while */
	struct renewal renewal;
	_Atomic uint64_t retry_at;  /* ns: ask again for what could not be reached; 0: nothing */
	_Atomic uint64_t put_after; /* ns: after a refusal, for a while */
	_Atomic unsigned puts_refused, copies_refused; /* in a row */
	_Atomic unsigned copies;
	_Atomic uint64_t pages;

	pthread_mutex_t wakers;
	unsigned shard; /* where remotify goes on; work lock */
	unsigned pool;
};

#endif
