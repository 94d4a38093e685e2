/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The store: pages of clients, kept compressed in an arena.
 *
 * The semantics are those of docs/contract.md, the arena is described in docs/arena.md. In short: a
 * put replaces or fails with the old page gone; accepted persistent pages stay until flushed, also
 * over kill -9 and restart; ephemeral pages may go at any time; nothing that was flushed or missed
 * comes back.
 *
 * Threads: every function may be called from any thread at any time unless it says otherwise.
 * Operations on one handle that are called one after the other take effect in that order; there
 * is no order between calls that run at the same time. put, get and flush never allocate memory,
 * never wait for the host and hold at most one shard lock for the time of a copy or decompression.
 *
 * Return values of operations are those of the guest ABI (proto/tmem_abi.h): >= 0 or a negated
 * error number. Every refusal is counted with its reason.
 */
#ifndef TMEMD_STORE_H
#define TMEMD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"

struct store;
struct store_client;

#define STORE_CHUNK_BYTES                                                                          \
	(2u << 20)	  /* the unit of taking memory from and giving it to the host              \
			   */
#define STORE_NAME_MAX 64 /* with the final zero */
#define STORE_MAX_CLIENTS 1024
#define STORE_MAX_CLIENT_POOLS 64 /* pool ids of one client are 0..63 */
#define STORE_MAX_NOTE 448	  /* bytes of a front's note, see store_client_set_note() */

struct store_config {
	const char *arena_path;	  /* a file on tmpfs or hugetlbfs; made when it does not exist */
	uint64_t pool_max;	  /* physical bytes that the pool may take, all in all */
	uint64_t host_reserve;	  /* bytes of MemAvailable that stay with the host; 0: none */
	unsigned ready_chunks;	  /* chunks populated ahead of need; 0: 1/32 of pool_max, 4..32 */
	bool any_filesystem;	  /* tests: the arena need not be on tmpfs or hugetlbfs */
	bool no_worker;		  /* tests: no background thread; the test calls store_work() */
	const char *meminfo_path; /* tests: instead of /proc/meminfo */
	const char *psi_path;	  /* tests: instead of /proc/pressure/memory */
	const char *proc_path;	  /* tests: instead of /proc/self */
};

/*
 * Opens the arena, takes its lock, rebuilds what it holds (drops ephemeral pages) and starts the
 * background worker. 0, or a negated errno with a sentence for the operator in err: -EWOULDBLOCK
 * another process holds the arena; -EPROTO unknown format version or damaged superblock (never
 * re-initialised); -EMEDIUMTYPE wrong file system; -ENOSPC the
 * mount has no room for a new arena; -ENOMEM the first chunks cannot be had.
 */
int store_open(struct store **store, const struct store_config *config, char *err, size_t errlen);

/*
 * Stops the worker and unmaps. The arena keeps everything. No other call may be under way: a tier
 * was taken away, and its threads have ended.
 */
void store_close(struct store *store);

/*
 * One step of background work: populate, sweep, evict, compact, give back. True when there may
 * be more to do. For tests with no_worker; one thread at a time.
 */
bool store_work(struct store *store);

/* ---- Clients ------------------------------------------------------------------------------- */

struct store_limits {
	uint64_t min_bytes; /* physical bytes kept free for this client */
	uint64_t max_bytes; /* physical bytes at most; 0: no maximum */
	uint32_t weight;    /* share of ephemeral memory; 0: the default, 100 */
};

/*
 * The client of that name, made when the arena has none; limits are set in any case. The record
 * and the client's pools outlive the process. -EINVAL bad name (letters, digits, "-_.+@", not
 * empty, not beginning with a dot) or limits, -ENOSPC too many clients or the sum of minimums above
 * pool_max.
 */
int store_client_open(struct store *store, const char *name, const struct store_limits *limits,
		      struct store_client **client);

/* The client of that name when the arena has one, else NULL. */
struct store_client *store_client_find(struct store *store, const char *name);

/*
 * Calls fn for each client record in the arena until it returns non-zero, and returns that.
 * fn must not open or remove clients.
 */
int store_client_each(struct store *store, int (*fn)(struct store_client *client, void *arg),
		      void *arg);

/* Destroys the client's pools and credits and frees its record. The pointer is invalid afterwards.
 */
void store_client_remove(struct store_client *client);

const char *store_client_name(const struct store_client *client);
int store_client_set_limits(struct store_client *client, const struct store_limits *limits);
void store_client_limits(const struct store_client *client, struct store_limits *limits);
void store_client_freeze(struct store_client *client, bool frozen);
bool store_client_frozen(const struct store_client *client);

/*
 * The note of the front that serves this client: bytes that outlive the process (which region,
 * whose process, which life). Setting it is atomic against kill -9. Returns the note's length or
 * -EINVAL. One thread at a time for each client.
 */
int store_client_set_note(struct store_client *client, const void *note, size_t len);
int store_client_note(const struct store_client *client, void *note, size_t room);

/* Counters of this client; fronts add to theirs. */
counter_t *store_client_counters(struct store_client *client);

/* ---- Pools --------------------------------------------------------------------------------- */

/*
 * Flags and uuid as in TMEM_NEW_POOL. A private pool with the nonce of a live pool of the same
 * client is that pool (an entry executed again). Returns the id, or -EPERM shared pool without
 * authorisation, -EINVAL, -ENOSPC.
 */
int store_pool_new(struct store_client *client, uint32_t flags, const uint64_t uuid[2],
		   uint64_t nonce);

/* Leaves a shared pool, destroys it with the last member. Unreachable at once; 1 or -ENOENT. */
int store_pool_destroy(struct store_client *client, uint32_t pool);

/* All pools of the client: its life has ended. Returns their number. */
int store_pools_destroy(struct store_client *client);

/* Allows or denies the client to create or join the shared pool `uuid`. 0, -ENOSPC. */
int store_shared_auth(struct store_client *client, const uint64_t uuid[2], bool allow);

struct store_pool_info {
	uint32_t id;
	uint32_t flags;
	uint64_t uuid[2];
	uint64_t nonce;	   /* with which it was made */
	uint64_t instance; /* while this process lives, no other pool has or had it */
	uint64_t pages;	   /* approximate while operations run */
	uint32_t members;
};

/* Fills at most `room` infos of the client's pools; returns how many pools there are. */
unsigned store_client_pools(struct store_client *client, struct store_pool_info *info,
			    unsigned room);

/* ---- Pages --------------------------------------------------------------------------------- */

struct store_handle {
	uint64_t object[3];
	uint32_t pool;
	uint32_t index;
};

#define STORE_PUT_CREDIT 1u /* use one of the client's credits: must not be refused */

/*
 * Stores 4096 bytes. The bytes are copied first, so that another writer of `page` harms only its
 * own content. Any result but 1 means that the handle holds nothing now. In a shared pool the
 * member that made it (after it left: another) pays, and its maximum counts. With STORE_PUT_CREDIT
 * and a credit of this client the put is executed also when frozen or over the maximum (only
 * -ENOENT is possible, which uses the credit up); without a credit the flag is counted as forged
 * and ignored.
 */
int store_put(struct store_client *client, const struct store_handle *handle, const void *page,
	      unsigned flags);

/*
 * 1 with the page, 0 a miss, -EIO damaged or lost, -ENOENT. `page` is written only when the result
 * is 1. STORE_AWAY, which is no value of the ABI: the page is with holders of the tier, and is
 * being fetched if that is possible now; the client's waker is called when it pays to ask again.
 */
#define STORE_AWAY 2
#define STORE_GET_NO_FETCH 1u /* what is away is not fetched, and nobody is called */
int store_get_flags(struct store_client *client, const struct store_handle *handle, void *page,
		    unsigned flags);
int store_get(struct store_client *client, const struct store_handle *handle, void *page);

/* 1 dropped, 0 nothing there, -ENOENT. */
int store_flush(struct store_client *client, const struct store_handle *handle);
int store_flush_object(struct store_client *client, uint32_t pool, const uint64_t object[3]);

/*
 * Loads what operations on these handles will need into the cache; a batch calls it ahead. More
 * than STORE_BATCH at once are not looked at.
 */
#define STORE_BATCH 32
void store_prefetch(struct store_client *client, const struct store_handle *handles, unsigned nr);

/* ---- Streams: pages as they are stored, see docs/stream.md ----------------------------------- */

struct store_image {
	uint32_t index;
	uint16_t codec; /* enum tmem_stream_codec */
	uint16_t len;
	const uint8_t *bytes;
};

#define STORE_WALK_PAGES 64
#define STORE_WALK_KEPT 1024

/* What a walk has found: pages of one object. */
struct store_found {
	uint64_t object[3];
	unsigned nr; /* that are new since the pass before; their bytes are in `bytes` */
	struct store_image pages[STORE_WALK_PAGES];
	unsigned nr_kept; /* that are as they were in the pass before */
	uint32_t kept[STORE_WALK_KEPT];
	uint8_t bytes[STORE_WALK_PAGES][4096];
};

struct store_walk;

/*
 * A walk over the pages of a persistent pool, in passes, while the pool is used: each page that is
 * there when a pass begins is found by it, unless it is flushed meanwhile; one that is put
 * meanwhile is found by this pass or the next one. 0, -ENOENT, -ENOMEM, or -EINVAL: not a
 * persistent pool. One thread at a time for each walk.
 */
int store_walk_open(struct store_walk **walk, struct store_client *client, uint32_t pool);

/*
 * The next part of the pass: 1; 0 the pass is over, and the next call begins a new one; -ENOENT the
 * pool is gone; -EIO a page is damaged, found->object and found->kept[0] are its object and index.
 */
int store_walk_next(struct store_walk *walk, struct store_found *found);

/*
 * How long one call of store_walk_next() waits for pages that are away (30 s unless it was set);
 * then it answers -EHOSTUNREACH, and another call goes on from there.
 */
void store_walk_patience(struct store_walk *walk, unsigned ms);
void store_walk_close(struct store_walk *walk); /* NULL is fine */

struct store_restore;

/*
 * Brings pools and pages of a stream into a client, to whom nothing else happens meanwhile. With
 * `same_ids` its pools get the ids that they have in the stream, and the client must have no pool
 * (else -EBUSY); without, ids of their own.
 */
int store_restore_open(struct store_restore **restore, struct store_client *client, bool same_ids);

/* Makes a pool of that id in the stream, empty; a former one goes. 0, -EPERM, -EINVAL, -ENOSPC. */
int store_restore_pool(struct store_restore *restore, const struct store_pool_info *pool);

/* The id that the pool has at the client; -ENOENT. */
int store_restore_id(const struct store_restore *restore, uint32_t pool);

/*
 * Puts a page that replaces a former one. 1; -EBADMSG the image is none of a page; -ENOENT no such
 * pool, or not a persistent one; -ENOMEM no memory is ready just now; -EDQUOT over the maximum.
 */
int store_restore_page(struct store_restore *restore, uint32_t pool, const uint64_t object[3],
		       const struct store_image *image);

/* All pages that are there are in doubt; keep tells that one is there for good: 1, 0 it is not. */
void store_restore_doubt(struct store_restore *restore);
int store_restore_keep(struct store_restore *restore, uint32_t pool, const uint64_t object[3],
		       uint32_t index);

/* Drops what is in doubt, and the pools whose bit is not set. How many pages there are then. */
uint64_t store_restore_settle(struct store_restore *restore, uint64_t pools);

/* With `good` everything stays; else all its pools go. NULL is fine. */
void store_restore_close(struct store_restore *restore, bool good);

/* ---- Tiers: where pages go when memory is short --------------------------------------------- */

struct store_tier;

/*
 * From now on persistent pages of private pools go to this tier when memory is short (tier.h), and
 * gets of pages that are away fetch them. Makes an arena of format 1 one of format 2. NULL: no tier
 * any more; returns when it has answered all requests, and is not called again. Pages that are away
 * stay so. 0, or -ENOMEM, or another negated errno when the arena cannot be upgraded. One call at a
 * time.
 */
int store_set_tier(struct store *store, struct store_tier *tier);

/* On how many holders a page must be before it leaves memory: 1 or 2; 2 unless it was set. */
void store_set_copies(struct store *store, unsigned copies);

/*
 * fn is called, from any thread, when gets of this client that were answered STORE_AWAY are worth
 * another try. It must be short and must not call the store. NULL: nobody; no call is under way
 * when this returns.
 */
void store_client_set_waker(struct store_client *client, void (*fn)(void *arg), void *arg);

/* ---- Lent memory: blobs of other hosts ------------------------------------------------------- */

/*
 * Whose blobs: a host, in one life of its arena. Blobs are up to 4096 bytes without meaning to us,
 * kept as pages of a client that nobody sees, over restarts, until their owner lets them go.
 */
struct store_owner {
	uint64_t uuid[2];
	uint64_t epoch;
};

/* Physical bytes that blobs may take; 0, as it is after a start: no new ones. -EINVAL, -ENOSPC. */
int store_set_lend(struct store *store, uint64_t bytes);

/*
 * Replaces what has the number. 0; -EINVAL; -ENOSPC: more than is lent, or it is not spare: own
 * pages come first, so some room is left to them. After an error nothing has the number.
 */
int store_blob_put(struct store *store, const struct store_owner *owner, uint64_t id,
		   const void *bytes, uint32_t len);
/* Its length, -ENOENT, or -EIO damaged. */
int store_blob_get(struct store *store, const struct store_owner *owner, uint64_t id,
		   uint8_t bytes[4096]);
/* 1, or 0: it was not there. */
int store_blob_delete(struct store *store, const struct store_owner *owner, uint64_t id);
/* The smallest numbers not below `first`, rising; how many. What is put meanwhile may be missing.
 */
uint32_t store_blob_list(struct store *store, const struct store_owner *owner, uint64_t first,
			 uint64_t *ids, uint32_t room);
/* All blobs of the owner's life. 1, or 0: there were none. */
int store_blob_forget(struct store *store, const struct store_owner *owner);

/* Calls fn for each owner's life that has blobs here, until it returns non-zero; returns that. */
int store_blob_owners(struct store *store,
		      int (*fn)(const struct store_owner *owner, uint64_t pages, void *arg),
		      void *arg);

/*
 * Physical bytes that own pages, or the host, need back now: so much should be asked to leave. 0
 * when there is room, or nothing is lent. To be asked a few times in a second.
 */
uint64_t store_lend_excess(struct store *store);

/* Physical bytes of blobs that are here, and that would be taken now. */
uint64_t store_lent(const struct store *store);
uint64_t store_lend_spare(const struct store *store);

/* ---- Credits: reservations of one page each ------------------------------------------------- */

/*
 * Reserves up to `want` pages for posted puts of the client; recorded in the arena before it
 * returns. Returns how many (0 when frozen, over a limit, or memory is short).
 */
unsigned store_credits_grant(struct store_client *client, unsigned want);

/* Gives back unused ones (the caller took them from the guest first). */
void store_credits_revoke(struct store_client *client, unsigned n);

/* What is reserved and not yet used. After a restart: what was so before it. */
unsigned store_credits(const struct store_client *client);

/* True when memory is short and the front should take credits back. */
bool store_wants_credits_back(const struct store *store);

/* ---- The whole ----------------------------------------------------------------------------- */

void store_freeze(struct store *store, bool frozen);
bool store_frozen(const struct store *store);

/* Physical bytes that the pool may take; lower than in use: ephemeral pages go, no page is given
 * up. -EINVAL below the sum of minimums or above the capacity that the arena was made with. */
int store_set_pool_max(struct store *store, uint64_t pool_max);
uint64_t store_pool_max(const struct store *store);
void store_set_host_reserve(struct store *store, uint64_t host_reserve);
uint64_t store_host_reserve(const struct store *store);

/*
 * May somebody in this process take `bytes` for another purpose, within the limits of its control
 * groups? Near a limit the kernel would kill the service instead of failing the allocation.
 */
bool store_has_room(const struct store *store, uint64_t bytes);

/* Physical bytes that could be given to the host: ready chunks, free slabs and ephemeral pages. */
uint64_t store_freeable(struct store *store);

/*
 * Gives `bytes` back to the host in whole chunks, dropping ephemeral pages and compacting, until
 * done or `deadline_ms` have passed. Returns the bytes given back. While it lasts the worker does
 * not take new chunks.
 */
uint64_t store_reclaim(struct store *store, uint64_t bytes, unsigned deadline_ms);

/* Drops all ephemeral pages of the client (NULL: of all). Returns their number. */
uint64_t store_flush_ephemeral(struct store *store, struct store_client *client);

/* Counters of the service; gauges are brought up to date by the call. */
counter_t *store_counters(struct store *store);

/* Where the arena is and what it says of itself: for `tmemctl stat` and the tests. */
struct store_info {
	char arena_path[256];
	uint64_t id;	   /* of this arena: no other has it */
	uint64_t capacity; /* bytes of payload that the arena could ever hold */
	uint32_t format;   /* version of the arena's format */
	bool huge_pages;   /* the mount gives huge pages (tmpfs huge=, or hugetlbfs) */
};
void store_info(const struct store *store, struct store_info *info);

#endif
