/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where pages go when memory is short. The store knows tiers by this table alone.
 *
 * A blob is what the store has made of a page before it leaves the host's memory: compressed and
 * sealed, at most TIER_BLOB_MAX bytes, without meaning to whoever holds it. The store names blobs
 * by numbers, of which it never uses one twice in the life of its arena. A holder is a peer host or
 * a file; the tier numbers its holders from 1 on, keeps a number's meaning while the arena lives,
 * and chooses to which ones a blob goes.
 *
 * Threads: the store calls from any of its threads, with none of its locks held, and a call never
 * waits for a holder. The tier answers from threads of its own by done(), exactly once for each
 * request, never from within the call that made it; the store may make new calls from there.
 */
#ifndef TMEMD_STORE_TIER_H
#define TMEMD_STORE_TIER_H

#include <stdbool.h>
#include <stdint.h>

#define TIER_BLOB_MAX 4096u
#define TIER_COPIES 2u /* at most */
#define TIER_HOLDERS 256u

struct store_tier;

/*
 * A request. The caller owns it and `bytes`, and leaves both alone until done() is called.
 */
struct tier_request {
	uint64_t blob;
	uint8_t *bytes; /* put: what is to be held; get: room for TIER_BLOB_MAX bytes */
	uint32_t len;	/* put: of the blob; get: what has come */

	/*
	 * put: in, holders that may not be chosen (those that have a copy, or are being left); out,
	 * those that have it now. get: in, those that are to be asked. 0: none.
	 */
	uint16_t holders[TIER_COPIES];
	uint16_t without[TIER_COPIES];
	uint16_t copies; /* put: how many are wanted, 1 to TIER_COPIES */
	uint16_t from;	 /* get: who answered */
	uint32_t client; /* on whose account: requests of one client do not hold up another's */

	/*
	 * put: 0 all copies are made; -ENOSPC nobody has room; -EHOSTUNREACH nobody answers. After
	 * an error no copy counts, and the tier deletes what it may have made.
	 * get: 0; -ENOENT every holder that was asked answered that it does not have it;
	 * -EHOSTUNREACH one at least did not answer, so that nothing is known.
	 */
	void (*done)(struct tier_request *request, int result);
	void *arg;		   /* the caller's */
	struct tier_request *next; /* the tier's while it works on the request */
};

struct tier_stat {
	uint64_t spare_bytes; /* what the holders would take now, all in all */
	uint32_t reachable;   /* holders that answer */
};

/* What the tier tells the store; each may be called from any of the tier's threads. */
struct tier_events {
	void *arg;
	/* The holder has lost what it held: copies have to be made again from others. */
	void (*lost)(void *arg, uint16_t holder);
	/* The holder wants its memory back by deadline_ms from now: everything leaves it. */
	void (*leave)(void *arg, uint16_t holder, uint32_t deadline_ms);
	/* A holder answers (again): what waited for it is asked for again. */
	void (*back)(void *arg, uint16_t holder);
};

struct tier_ops {
	void (*put)(struct store_tier *tier, struct tier_request *request);
	void (*get)(struct store_tier *tier, struct tier_request *request);

	/*
	 * The blob is needed no longer by these holders. Nothing is answered. What does not arrive
	 * is caught up with by renew().
	 */
	void (*delete)(struct store_tier *tier, uint64_t blob, const uint16_t holders[TIER_COPIES]);

	/*
	 * Of the blobs [first, end) the holder keeps `nr` (rising numbers) and drops the rest,
	 * which deletes that got lost have left. `blobs` stays the tier's until done(): 0, with how
	 * many of them the holder does not have in `missing`, or -EHOSTUNREACH. One at a time for
	 * each holder; what is too much is refused (-EBUSY), and a number that is no holder
	 * (-EINVAL), by done() from within the call. A put of a number in the range that is not in
	 * `blobs` must not be out.
	 */
	void (*renew)(struct store_tier *tier, uint16_t holder, uint64_t first, uint64_t end,
		      const uint64_t *blobs, uint32_t nr,
		      void (*done)(void *arg, int result, uint32_t missing), void *arg);

	void (*stat)(struct store_tier *tier, struct tier_stat *stat);
};

/* A tier begins with this. */
struct store_tier {
	const struct tier_ops *ops;
	struct tier_events events; /* set by the store before the first request */
};

#endif
