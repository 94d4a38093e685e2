// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Dropping ephemeral pages: of the client that holds most for its weight, the oldest first.
 *
 * Age is kept by lists, one for each pool in each shard. From each shard in turn a few pages go, in
 * proportion to what it holds: oldest first, to within the noise of a hash.
 */
#include "proto/tmem_abi.h"
#include "store/store_priv.h"

/* Pages taken from one list before the next shard's turn. */
#define EVICT_RUN 4

uint64_t ephemeral_bytes(struct store *store)
{
	uint64_t bytes = 0;

	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++)
		if (atomic_load(&store->pools[no].state) == RECORD_LIVE &&
		    !pool_persistent(&store->pools[no]))
			bytes += atomic_load(&store->pools[no].bytes);
	return bytes;
}

/* The client with ephemeral pages whose physical bytes, for its weight, are the most. */
static struct store_client *pick_client(struct store *store)
{
	struct store_client *worst = NULL;
	uint64_t most = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		struct store_client *client = &store->clients[i];
		uint64_t have, min;

		if (!client->rec || !counter_get(&client->counters[CLIENT_PAGES_EPHEMERAL]))
			continue;
		have = counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]);
		min = atomic_load(&client->min_bytes);
		/* What is within a guaranteed minimum goes last. */
		have = have > min ? have - min : 0;
		have = have / atomic_load(&client->weight) + 1;
		if (have > most) {
			most = have;
			worst = client;
		}
	}
	return worst;
}

/* The ephemeral pools that the client pays for: record numbers; how many. */
static unsigned pools_of(struct store *store, const struct store_client *client,
			 uint16_t pools[ARENA_MAX_POOLS])
{
	unsigned n = 0;

	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++) {
		const struct pool *pool = &store->pools[no];

		if (pool->owner == client && atomic_load(&pool->state) == RECORD_LIVE &&
		    !pool_persistent(pool))
			pools[n++] = no;
	}
	return n;
}

/* Shard lock held. The pool may have ended since it was chosen, and its record be another's. */
static uint64_t evict_from(struct store *store, struct shard *shard, uint32_t no,
			   const struct store_client *client, uint64_t run)
{
	const struct pool *pool = &store->pools[no];
	uint64_t n = 0;

	while (n < run && pool->owner == client && atomic_load(&pool->state) == RECORD_LIVE &&
	       !pool_persistent(pool) && shard->lists[no].oldest) {
		page_drop(store, shard, shard->lists[no].oldest);
		n++;
	}
	return n;
}

static uint32_t shard_pages(const struct shard *shard)
{
	return atomic_load_explicit(&shard->pages.items, memory_order_relaxed);
}

/* A shard's share of a run that each would have if all held as many pages. */
static uint64_t fair_run(const struct store *store, const struct shard *shard, unsigned run)
{
	uint64_t all = 1;

	if (run == UINT32_MAX)
		return run;
	for (unsigned i = 0; i < NR_SHARDS; i++)
		all += shard_pages(&store->shards[i]);
	return ((uint64_t)run * NR_SHARDS * shard_pages(shard) + all - 1) / all;
}

static uint64_t evict_client(struct store *store, struct store_client *client, uint64_t pages,
			     unsigned run)
{
	uint16_t *pools = store->evict_pools; /* one caller at a time: work lock */
	unsigned nr = pools_of(store, client, pools);
	uint64_t n = 0;

	for (unsigned i = 0; i < NR_SHARDS && n < pages && nr; i++) {
		struct shard *shard = &store->shards[store->evict_shard++ % NR_SHARDS];
		uint64_t fair = fair_run(store, shard, run), got = 0;

		pthread_mutex_lock(&shard->lock);
		for (unsigned k = 0; k < nr; k++)
			got += evict_from(store, shard, pools[k], client, fair);
		pthread_mutex_unlock(&shard->lock);
		counter_add(&client->counters[CLIENT_EVICTED], got);
		n += got;
	}
	return n;
}

uint64_t evict_pages(struct store *store, uint64_t pages)
{
	struct store_client *client;
	uint64_t n = 0, got;

	while (n < pages && (client = pick_client(store))) {
		got = evict_client(store, client, pages - n, EVICT_RUN);
		if (!got)
			break;
		n += got;
	}
	return n;
}

uint64_t store_flush_ephemeral(struct store *store, struct store_client *client)
{
	uint64_t n = 0;

	pthread_mutex_lock(&store->work);
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (store->clients[i].rec && (!client || client == &store->clients[i]))
			n += evict_client(store, &store->clients[i], UINT64_MAX, UINT32_MAX);
	pthread_mutex_unlock(&store->work);
	worker_wake(store);
	return n;
}
