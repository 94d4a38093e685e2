/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the store share.
 *
 * The way of a page: page.c (copy, encode, find or make the descriptor) -> codec.c -> alloc.c;
 * index.c keeps the shards; client.c and pool.c the records; worker.c does what the page path must
 * not wait for: populate.c takes memory from the host and gives it back, evict.c drops ephemeral
 * pages, compact.c moves pages together, sweep in pool.c frees what destroyed pools left;
 * rebuild.c makes the private part again from the arena.
 *
 * Locks, outermost first: admin (client and pool records) - shard - class - slab_lock. At most one
 * shard lock at a time. away.h has two more, which are leaves.
 */
#ifndef TMEMD_STORE_PRIV_H
#define TMEMD_STORE_PRIV_H

#include <pthread.h>

#include "store/alloc.h"
#include "store/arena.h"
#include "store/cgroup.h"
#include "base/clock.h"
#include "store/store.h"

#define DESC_BLOCK 256u
#define OBJECT_BLOCK 64u
/* Descriptors and objects populated ahead: what two workers use up in some 50 ms. */
#define DESCS_AHEAD 16384u
#define OBJECTS_AHEAD 4096u
#define CREDIT_BYTES                                                                               \
	4264u /* what a credit counts against the maximum: a raw page and descriptor               \
	       */

/* A handle, resolved as far as it can be without a lock. */
struct key {
	uint64_t object[3];
	uint64_t object_hash;
	uint64_t page_hash;
	uint32_t pool; /* record */
	uint32_t gen;
	uint32_t index;
	uint32_t shard;
};

#include "store/away.h"

/*
 * Linear hashing over chains of numbers: it grows by one bucket an insertion, so that no put pays
 * for all. Bucket memory is reserved address space; the worker populates it ahead of `nr`; when it
 * is late the chains get longer.
 */
struct table {
	_Atomic uint32_t *buckets; /* number + 1 */
	_Atomic uint32_t nr;
	_Atomic uint32_t ready; /* buckets populated */
	uint32_t max;
	_Atomic uint32_t items; /* relaxed: the worker only needs a rough number */
};

/* One pool's pages in one shard, from the one put (or used) longest ago. */
struct page_list {
	uint32_t oldest, newest; /* number + 1 */
};

/* Where a walk over a pool's list goes on. Whoever takes a page out of the list leads it on. */
struct cursor {
	struct cursor *next;
	uint32_t at; /* number + 1; 0: behind the newest */
};

struct shard {
	pthread_mutex_t lock;
	struct table pages;
	struct table objects;
	uint32_t free_descs; /* number + 1 */
	uint32_t free_objects;
	uint64_t seq;
	uint64_t stored_bytes;
	struct page_list *lists; /* one for each pool record */
	struct cursor *cursors;	 /* of walks that are in this shard */
	uint32_t *hands;	 /* for each pool: the next page to be sent away; NULL: no tier */
} __attribute__((aligned(64)));

struct pool {
	_Atomic uint32_t state; /* enum record_state */
	_Atomic uint32_t gen;	/* raised when the record is used again */
	_Atomic uint32_t flags;
	struct store_client *_Atomic owner; /* pays; changes with admin and all shard locks held */
	uint32_t members;		    /* admin lock */
	_Atomic uint64_t pages;
	_Atomic uint64_t bytes; /* physical */
};

/* An entry of a client's pool table: generation << 32 | record + 1. */
typedef _Atomic uint64_t pool_ref_t;

struct store_client {
	struct store *store;
	struct client_rec *_Atomic rec; /* NULL: unused */
	_Atomic bool frozen;
	_Atomic uint64_t min_bytes;
	_Atomic uint64_t max_bytes;
	_Atomic uint32_t weight;
	_Atomic uint32_t credits; /* not yet taken by a put */
	pool_ref_t pools[STORE_MAX_CLIENT_POOLS];
	/* NULL: there was never a tier. Freed under admin and all shard locks: without one, a hint.
	 */
	struct seal *_Atomic seal;
	void (*waker)(void *arg);
	void *waker_arg;
	counter_t counters[CLIENT_COUNTER_NR];
} __attribute__((aligned(64)));

struct store {
	struct arena arena;
	struct alloc alloc;
	struct shard shards[NR_SHARDS];
	struct pool pools[ARENA_MAX_POOLS];
	struct store_client clients[STORE_MAX_CLIENTS];
	pthread_mutex_t admin;
	uint64_t seed;

	_Atomic uint64_t desc_next;   /* first descriptor never handed to a shard */
	_Atomic uint64_t object_next; /* likewise */
	_Atomic bool frozen;
	_Atomic uint64_t pool_max;
	_Atomic uint64_t host_reserve;
	_Atomic uint64_t index_bytes; /* private memory of the tables */
	_Atomic bool pressure;	      /* the host is short of memory */
	_Atomic uint64_t host_left;   /* bytes that the pool may take before it is */
	_Atomic bool starving;	      /* a put found no memory since the worker looked */
	_Atomic uint32_t dying_pools;
	_Atomic uint64_t reclaim_want; /* bytes that store_reclaim() still waits for */
	unsigned ready_chunks;
	counter_t counters[STORE_COUNTER_NR];

	/* worker.c */
	pthread_t worker;
	bool worker_runs;
	_Atomic bool stop;
	int wake_fd;
	_Atomic bool woken;
	pthread_mutex_t work; /* one step of background work at a time */
	int meminfo_fd;
	int psi_fd;
	struct cgroup cgroup;
	bool host_low;	      /* MemAvailable is below the reserve, or stalls near it */
	uint64_t next_look;   /* ns */
	unsigned evict_shard; /* where eviction goes on */
	uint16_t evict_pools[ARENA_MAX_POOLS];
	unsigned compact_class;
	struct away away;
	struct store_client *_Atomic lent; /* whose pages are other hosts' blobs; NULL: none yet */
	_Atomic uint64_t lend;		   /* physical bytes for them */
};

/* ---- codec.c ------------------------------------------------------------------------------- */

struct encoded {
	const void *bytes; /* what is to be stored; CODEC_SAME: nothing */
	uint32_t len;
	enum codec codec;
	uint64_t word; /* CODEC_SAME: the repeated word */
};

/* Copies the page into memory of this thread and encodes it; valid until the thread's next call. */
void codec_encode(const void *page, struct encoded *enc);

/* Decodes into `page`. False when the bytes are not what the codec made. */
bool codec_decode(enum codec codec, const void *bytes, uint32_t len, void *page);
void codec_fill(void *page, uint64_t word);

/* The checksum of stored bytes, bound to the handle's hash, the index and the sequence. */
uint32_t codec_check(const void *bytes, uint32_t len, uint64_t object_hash, uint32_t index,
		     uint64_t seq);

/* ---- index.c ------------------------------------------------------------------------------- */

int index_init(struct store *store);
void index_fini(struct store *store);
void key_make(const struct store *store, struct key *key, uint32_t pool, const uint64_t object[3],
	      uint32_t index);
uint64_t object_hash(const struct store *store, uint32_t pool, const uint64_t object[3]);
uint64_t page_hash(uint64_t object_hash, uint32_t index);
uint32_t shard_of(uint64_t object_hash, uint32_t index);

/* All below: under the shard's lock. Numbers are + 1; 0 is none. */
uint32_t object_find(struct store *store, struct shard *shard, const struct key *key);
uint32_t object_intern(struct store *store, struct shard *shard, const struct key *key,
		       bool credit);
void object_unuse(struct store *store, struct shard *shard, uint32_t object);
void object_insert(struct store *store, struct shard *shard, uint32_t object);
void object_release(struct store *store, struct shard *shard, uint32_t object);

uint32_t desc_alloc(struct store *store, struct shard *shard, bool credit);
void desc_release(struct store *store, struct shard *shard, uint32_t desc);
uint32_t page_find(struct store *store, struct shard *shard, const struct key *key,
		   uint32_t object);
void page_link(struct store *store, struct shard *shard, uint32_t desc, uint64_t hash);
void page_unlink(struct store *store, struct shard *shard, uint32_t desc, uint64_t hash);
void page_touch(struct store *store, struct shard *shard, uint32_t desc);
void index_prefetch(struct store *store, const struct key *keys, unsigned nr);

/* Populates buckets ahead of need; true when something was done. Worker only. */
bool index_grow(struct store *store);

/* ---- page.c -------------------------------------------------------------------------------- */

/* Frees a live page: state word first, then place, links, accounts. Shard lock held. */
void page_drop(struct store *store, struct shard *shard, uint32_t desc);
uint32_t page_cost(const struct store *store, const struct desc *desc);
bool pool_persistent(const struct pool *pool);
/* Are the stored bytes those that were put for this handle? */
bool page_intact(const struct store *store, const struct key *key, const struct desc *desc);

/* Shard lock held, the key's pool alive. 1, or a refusal with the old page gone. */
int page_put(struct store_client *client, struct shard *shard, const struct key *key,
	     const struct encoded *enc, bool credit);
uint64_t page_same_word(const struct desc *desc, uint64_t word);

struct pool *pool_of(struct store *store, const struct desc *desc);
void shards_lock(struct store *store);
void shards_unlock(struct store *store);

/* ---- away.c, remotify.c, fetch.c, copies.c: see away.h
 * --------------------------------------------------
 */

void away_init(struct store *store);
void away_fini(struct store *store);
/* A key for the client, if there is a tier. Admin lock held. False: no memory. */
bool away_key_client(struct store_client *client);
bool away_wants_table(struct store *store);
bool away_step(struct store *store); /* of the worker: deletes, retries */

/* Entries. Shard lock held. */
uint32_t away_take_rec(struct store *store); /* 0: none is ready */
void away_free_rec(struct store *store, uint32_t rec);
uint32_t away_check(const struct store *store, const struct key *key, const struct desc *desc,
		    uint32_t rec);
/* A page that is away has ended: frees its entry, its holders will be told. */
void away_dropped(struct store *store, uint64_t word);
bool away_rebuild_begin(struct store *store);
bool away_claim(struct store *store, uint32_t rec);
void away_unclaim(struct store *store, uint32_t rec);
void away_rebuild_end(struct store *store);

/* Flights. */
struct flight *flight_begin(struct store *store, enum flight_kind kind, const struct key *key,
			    uint32_t no);
void flight_end(struct flight *flight);
struct flight *flight_find(struct store *store, enum flight_kind kind, uint32_t no, uint64_t seq);
void away_tell(struct store *store, uint64_t blob, uint32_t where); /* no lock held */
unsigned away_flights(const struct store *store);		    /* requests that the tier has */
void client_wake(struct store_client *client);
struct seal_of flight_of(const struct flight *flight);
bool home_protected(struct store *store, uint32_t no);

/* Shard lock held, for all of a flight that has landed. */
bool still_away(struct store *store, const struct flight *flight);
bool open_blob(struct store *store, struct flight *flight, uint8_t *bytes);
bool bring_home(struct store *store, struct shard *shard, struct flight *flight);
void is_lost(struct store *store, const struct flight *flight);
/* Takes who answered out of those to be asked. False: nobody is left. */
bool others(struct tier_request *request);
/*
 * Has one who took a copy lost what it had since the flight began? Then it has none, perhaps. A
 * copy under an old number counts for nothing until the pass for that loss is over (again).
 */
bool copies_lost(const struct flight *flight, bool again);

/* copies.c */
/* Keeps the smallest `max` of the values that were added, as a heap; then sorts them. */
void least_add(uint64_t *heap, uint32_t *nr, uint32_t max, uint64_t value);
void least_sort(uint64_t *heap, uint32_t nr);
void copies_listen(struct store *store, struct store_tier *tier);
bool copies_step(struct store *store);
bool renew_step(struct store *store);

bool remotify_step(struct store *store);
bool remotify_wanted(struct store *store);
bool pool_goes_away(const struct pool *pool);

/*
 * A get of a page that is away; shard lock held. 1, -EIO, or STORE_AWAY with flights to be given to
 * fetch_send() after the lock.
 */
int away_read(struct store *store, const struct key *key, uint32_t no, void *page, unsigned flags,
	      struct departures *departures);
/* The stored bytes of it instead, for a stream: 1 with codec, -EIO, or STORE_AWAY. */
int away_image(struct store *store, const struct key *key, uint32_t no, uint8_t bytes[4096],
	       enum codec *codec, struct departures *departures);
void fetch_send(struct store *store, struct departures *departures);
/* Waits until a flight lands or `until` (ns); the caller looks again. False: it is past. */
bool away_wait(struct store *store, uint64_t until);

/* ---- lend.c --------------------------------------------------------------------------------- */

void lent_counters(struct store *store); /* brings the gauges up to date */

/* ---- client.c ------------------------------------------------------------------------------ */

void client_charge(struct store_client *client, uint64_t bytes);
void client_uncharge(struct store_client *client, uint64_t bytes);
void client_attach_rec(struct store *store, uint32_t no); /* rebuild */
bool client_take_credit(struct store_client *client);
void client_credit_used(struct store_client *client);
bool name_valid(const char *name);
/* The client of other hosts' blobs; with `make` made if need be. Its name is no valid one. */
struct store_client *client_lent(struct store *store, bool make);

/* ---- pool.c -------------------------------------------------------------------------------- */

/* The pool behind a client's id: record number + 1 and generation; 0 when there is none. */
uint32_t pool_lookup(struct store_client *client, uint32_t id, uint32_t *gen);
bool pool_alive(const struct store *store, const struct key *key);
/* A new pool with that id, or (-1) with any; never one that is there, unless it is shared. */
int pool_make(struct store_client *client, int id, uint32_t flags, const uint64_t uuid[2],
	      uint64_t nonce);
/* The id of the pool with that uuid and nonce, made if it is to be; -ENOENT, -ENOSPC. */
int pool_named(struct store_client *client, const uint64_t uuid[2], uint64_t nonce, bool make);
bool pool_sweep(struct store *store); /* frees pages of dying pools; true when there was one */
void pools_rebuild(struct store *store);

/* ---- compact.c ------------------------------------------------------------------------------ */

/* The shard of a descriptor that may be anything by now; NULL when there is none. */
struct shard *guess_shard(struct store *store, uint32_t no);

/* ---- background ---------------------------------------------------------------------------- */

void worker_wake(struct store *store);
int worker_start(struct store *store);
void worker_stop(struct store *store);

uint64_t evict_pages(struct store *store, uint64_t pages);
uint64_t ephemeral_bytes(struct store *store);
bool compact_step(struct store *store, bool for_chunks);
bool populate_step(struct store *store);
bool give_back_step(struct store *store);
bool make_room_step(struct store *store);
bool tidy_step(struct store *store);
uint64_t pool_bytes(const struct store *store);
void pressure_check(struct store *store, bool at_once);
void pressure_taken(struct store *store, uint64_t bytes); /* by the pool, from the host */

int rebuild(struct store *store);

#endif
