// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sending pages away when memory is short and no ephemeral page is left to drop.
 *
 * Of the client that holds most for its weight, the oldest first: a hand for each pool and shard
 * goes through the pool's list, which is in the order of the puts, and begins again behind its end.
 * With a page go those that follow it in its object, so that they come home together.
 *
 * A page is copied and sealed under its shard's lock, given to the tier, and stays what it is until
 * the holders have it. Then, if it is the same still, the entry is published and its place freed.
 */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"

#define SCAN 64u   /* pages looked at in one list under one lock */
#define RUN 8u	   /* pages taken there */
#define LOOKS 512u /* lists looked at in one step */
#define REFUSED_NS (CLOCK_S / 2)

bool pool_goes_away(const struct pool *pool)
{
	uint32_t flags = atomic_load_explicit(&pool->flags, memory_order_relaxed);

	return flags & TMEM_POOL_PERSIST && !(flags & TMEM_POOL_SHARED);
}

/* ---- Arrived -------------------------------------------------------------------------------- */

/* As a put has answered. */
static uint32_t where_of(const struct flight *flight)
{
	return AWAY_HOLDERS(flight->request.holders[0], flight->request.holders[1]) |
	       AWAY_CODEC(flight->codec);
}

static void account_away(struct store *store, struct pool *pool, uint32_t saved)
{
	struct store_client *owner = pool->owner;

	atomic_fetch_sub(&pool->bytes, saved);
	client_uncharge(owner, saved);
	counter_add(&owner->counters[CLIENT_PAGES_AWAY], 1);
	counter_add(&owner->counters[CLIENT_PAGES_SENT], 1);
	atomic_fetch_add(&store->away.pages, 1);
}

/* Shard lock held. False: the page is not what it was, or there is no entry for it. */
static bool publish_away(struct store *store, struct shard *shard, struct flight *flight)
{
	struct desc *desc = &store->arena.descs[flight->desc - 1];
	uint64_t word = atomic_load(&desc->word);
	struct away_rec *entry;
	uint32_t rec, cost;

	if (!pool_alive(store, &flight->key) || WORD_STATE(word) != DESC_LIVE ||
	    !word_has_place(word) || DESC_SEQ(desc) != flight->seq)
		return false;
	rec = away_take_rec(store);
	if (!rec)
		return false;
	cost = page_cost(store, desc);
	entry = &store->arena.away[rec];
	atomic_store(&entry->blob, flight->request.blob);
	memcpy(entry->tag, flight->tag, SEAL_TAG);
	atomic_store(&entry->where, where_of(flight));
	entry->check = away_check(store, &flight->key, desc, rec);
	fault(FAULT_AWAY_FILLED);
	atomic_store_explicit(&desc->word, DESC_WORD(DESC_LIVE, CODEC_AWAY, rec),
			      memory_order_release);
	fault(FAULT_AWAY_PUBLISHED);
	shard->stored_bytes -= DESC_LEN(desc);
	alloc_free(&store->alloc, WORD_LOC(word));
	account_away(store, &store->pools[flight->key.pool], cost - page_cost(store, desc));
	return true;
}

static void put_done(struct tier_request *request, int result)
{
	struct flight *flight = request->arg;
	struct store *store = flight->store;
	struct shard *shard = &store->shards[flight->key.shard];
	bool published = false;

	fault(FAULT_AWAY_SENT);
	if (!result) {
		atomic_store(&store->away.puts_refused, 0);
		pthread_mutex_lock(&shard->lock);
		published = !copies_lost(flight, false) && publish_away(store, shard, flight);
		pthread_mutex_unlock(&shard->lock);
		if (!published) {
			counter_add(&store->counters[STORE_TIER_STALE], 1);
			away_tell(store, request->blob, where_of(flight));
		}
	} else {
		counter_add(&store->counters[result == -ENOSPC ? STORE_TIER_FULL
							       : STORE_TIER_UNREACHABLE],
			    1);
		if (atomic_fetch_add(&store->away.puts_refused, 1) >= REFUSED_RUN)
			atomic_store(&store->away.put_after, clock_ns() + REFUSED_NS);
	}
	flight_end(flight);
	if (published && remotify_wanted(store))
		worker_wake(store);
}

/* ---- Departing ------------------------------------------------------------------------------ */

/* Gives the flight a number that was never used. */
static void number_blob(struct store *store, struct flight *flight)
{
	struct away *away = &store->away;

	pthread_mutex_lock(&away->lock);
	if (away->blob_next == away->blob_end) {
		if (!away->blob_next)
			away->blob_next = 1;
		away->blob_end = away->blob_next / BLOB_BLOCK * BLOB_BLOCK + BLOB_BLOCK;
		atomic_store(&store->arena.sb->blobs, away->blob_end);
		fault(FAULT_BLOBS_RESERVED);
	}
	flight->request.blob = away->blob_next++;
	pthread_mutex_unlock(&away->lock);
}

/* Shard lock held. Copies and seals the page when it is one that may go. */
static struct flight *depart(struct store *store, const struct key *key, uint32_t no)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);
	struct flight *flight;
	struct seal_of of;

	if (!word_has_place(word) || home_protected(store, no))
		return NULL;
	flight = flight_begin(store, FLIGHT_PUT, key, no);
	if (!flight)
		return NULL;
	of = flight_of(flight);
	memcpy(flight->bytes, alloc_bytes(&store->alloc, WORD_LOC(word)), flight->len);
	number_blob(store, flight);
	if (!seal_close(atomic_load(&store->pools[key->pool].owner->seal), flight->request.blob,
			&of, flight->bytes, flight->tag)) {
		flight_end(flight);
		return NULL;
	}
	flight->request.len = flight->len;
	flight->request.copies = atomic_load(&store->away.copies);
	flight->request.done = put_done;
	return flight;
}

/* Shard lock held. The page and those that follow it; how many pages were looked at. */
static void depart_with(struct store *store, struct shard *shard, uint32_t no, struct key *key,
			struct flight *flights[RUN], unsigned *nr)
{
	uint32_t object = store->arena.descs[no - 1].object, first = key->index;

	for (uint32_t i = 0; i < RUN && *nr < RUN; i++) {
		struct flight *flight;

		if (i) {
			if ((first + i) >> EXTENT_SHIFT != first >> EXTENT_SHIFT)
				break;
			key->index = first + i;
			key->page_hash = page_hash(key->object_hash, key->index);
			no = page_find(store, shard, key, object);
		}
		flight = no ? depart(store, key, no) : NULL;
		if (flight)
			flights[(*nr)++] = flight;
		else if (!i)
			break;
	}
}

/* Shard lock held. From the hand on; the hand goes on. */
static unsigned take_from(struct store *store, struct shard *shard, uint32_t pool,
			  struct flight *flights[RUN])
{
	uint32_t no = shard->hands[pool];
	unsigned nr = 0;
	struct key key = {.gen = atomic_load(&store->pools[pool].gen)};

	if (!no)
		no = shard->lists[pool].oldest;
	for (unsigned i = 0; no && i < SCAN && nr < RUN; i++) {
		const struct desc *desc = &store->arena.descs[no - 1];

		if (word_has_place(atomic_load_explicit(&desc->word, memory_order_relaxed))) {
			key_make(store, &key, pool, store->arena.objects[desc->object - 1].id,
				 desc->index);
			depart_with(store, shard, no, &key, flights, &nr);
		}
		no = desc->newer;
	}
	shard->hands[pool] = no;
	return nr;
}

static unsigned send_from(struct store *store, struct store_tier *tier, struct shard *shard,
			  uint32_t pool, const struct store_client *client)
{
	struct flight *flights[RUN];
	unsigned nr = 0;

	pthread_mutex_lock(&shard->lock);
	if (store->pools[pool].owner == client && atomic_load(&client->seal) &&
	    atomic_load(&store->pools[pool].state) == RECORD_LIVE &&
	    pool_goes_away(&store->pools[pool]))
		nr = take_from(store, shard, pool, flights);
	pthread_mutex_unlock(&shard->lock);
	for (unsigned i = 0; i < nr; i++)
		tier->ops->put(tier, &flights[i]->request);
	return nr;
}

/* ---- Who and when --------------------------------------------------------------------------- */

static uint64_t pages_here(const struct store_client *client)
{
	uint64_t all = counter_get(&client->counters[CLIENT_PAGES_PERSISTENT]);
	uint64_t away = counter_get(&client->counters[CLIENT_PAGES_AWAY]);

	return all > away ? all - away : 0;
}

/* Of those with pages in memory, whose physical bytes are the most for its weight. */
static struct store_client *pick_client(struct store *store)
{
	struct store_client *worst = NULL;
	uint64_t most = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		struct store_client *client = &store->clients[i];
		uint64_t have, min;

		if (!client->rec || !atomic_load(&client->seal) || !pages_here(client) ||
		    client == atomic_load(&store->lent))
			continue;
		have = counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]);
		min = atomic_load(&client->min_bytes);
		have = have > min ? have - min : 0;
		have = have / atomic_load(&client->weight) + 1;
		if (have > most) {
			most = have;
			worst = client;
		}
	}
	return worst;
}

bool remotify_wanted(struct store *store)
{
	uint64_t low = alloc_needed_slabs(&store->alloc) + CHUNK_SLABS / 2;

	if (!atomic_load(&store->away.tier) || clock_ns() < atomic_load(&store->away.put_after))
		return false;
	return atomic_load(&store->pressure) || atomic_load(&store->reclaim_want) ||
	       pool_bytes(store) > atomic_load(&store->pool_max) ||
	       atomic_load(&store->alloc.free_slabs) < low;
}

/* True when a page was sent. What is on its way makes room when it lands, and wakes the worker. */
bool remotify_step(struct store *store)
{
	struct away *away = &store->away;
	struct store_tier *tier = atomic_load(&away->tier);
	struct store_client *client;
	unsigned sent = 0;

	if (!tier || !remotify_wanted(store))
		return false;
	client = pick_client(store);
	if (!client)
		return false;
	for (unsigned i = 0; i < LOOKS && sent < PUT_FLIGHTS / 4; i++) {
		struct shard *shard = &store->shards[away->shard++ % NR_SHARDS];

		if (away->shard % NR_SHARDS == 0)
			away->pool++;
		for (unsigned k = 0; k < ARENA_MAX_POOLS; k++, away->pool++) {
			const struct pool *pool = &store->pools[away->pool % ARENA_MAX_POOLS];

			if (pool->owner == client && pool_goes_away(pool) &&
			    atomic_load(&pool->state) == RECORD_LIVE)
				break;
		}
		sent += send_from(store, tier, shard, away->pool % ARENA_MAX_POOLS, client);
	}
	return sent > 0;
}
