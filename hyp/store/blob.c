// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Blobs of other hosts, which this one holds for them in memory that it can spare.
 *
 * They are kept as pages are, by a client that no guest can be: a pool for each owner and epoch, in
 * it the number of a blob as object and index. Their bytes mean nothing here and are stored as they
 * came. They do not go away to other hosts in turn, and none is taken while the pages of this host
 * are short of memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tmem_abi.h"
#include "store/store_priv.h"

#define LENT_CLIENT "+lent"
#define RENEW_PAGES 256u /* under one lock */

static struct store_client *lent_client(struct store *store)
{
	return atomic_load(&store->lent);
}

void lent_attach(struct store *store)
{
	atomic_store(&store->lent, store_client_find(store, LENT_CLIENT));
}

bool store_client_is_lent(const struct store_client *client)
{
	return !strcmp(client->rec->name, LENT_CLIENT);
}

int store_set_lend(struct store *store, uint64_t bytes)
{
	static const struct store_limits none = {0};
	struct store_client *client;
	int r = 0;

	atomic_store(&store->lend, bytes);
	if (!bytes || lent_client(store))
		return 0;
	r = store_client_open(store, LENT_CLIENT, &none, &client);
	if (!r)
		atomic_store(&store->lent, client);
	return r;
}

uint64_t store_lent(const struct store *store)
{
	struct store_client *client = atomic_load(&store->lent);

	return client ? counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]) : 0;
}

/* Pages of this host are about to need what is left of the pool. */
static bool short_of_memory(struct store *store)
{
	uint64_t low = alloc_needed_slabs(&store->alloc) + CHUNK_SLABS / 2;

	return atomic_load(&store->pressure) || atomic_load(&store->reclaim_want) ||
	       pool_bytes(store) > atomic_load(&store->pool_max) ||
	       (pool_bytes(store) + CHUNK_BYTES > atomic_load(&store->pool_max) &&
		atomic_load(&store->alloc.free_slabs) < low);
}

uint64_t store_lend_excess(struct store *store)
{
	uint64_t lent = store_lent(store), lend = atomic_load(&store->lend);

	if (short_of_memory(store))
		return lent;
	return lent > lend ? lent - lend : 0;
}

/* ---- Pools of owners ------------------------------------------------------------------------ */

static bool is_of(const struct pool_rec *rec, const struct store_owner *owner)
{
	return !memcmp(rec->uuid, owner->id, sizeof(owner->id));
}

/* The owner's pool: 1 with its key but for the blob, or 0. */
static bool find_pool(struct store_client *client, const struct store_owner *owner, struct key *key)
{
	for (uint32_t id = 0; client && id < STORE_MAX_CLIENT_POOLS; id++) {
		uint32_t no = pool_lookup(client, id, &key->gen);
		const struct pool_rec *rec;

		if (!no)
			continue;
		rec = &client->store->arena.pools[no - 1];
		if (!is_of(rec, owner) || rec->nonce != owner->epoch)
			continue;
		key->pool = no - 1;
		return true;
	}
	return false;
}

static void key_of(struct store *store, struct key *key, uint64_t blob)
{
	const uint64_t object[3] = {blob >> 32, 0, 0};
	uint32_t gen = key->gen;

	key_make(store, key, key->pool, object, (uint32_t)blob);
	key->gen = gen;
}

/* The shard of the blob, locked; NULL: there is no such pool any more. */
static struct shard *lock_blob(struct store *store, const struct store_owner *owner, uint64_t blob,
			       struct key *key)
{
	struct shard *shard;

	if (!find_pool(lent_client(store), owner, key))
		return NULL;
	key_of(store, key, blob);
	shard = &store->shards[key->shard];
	pthread_mutex_lock(&shard->lock);
	if (pool_alive(store, key))
		return shard;
	pthread_mutex_unlock(&shard->lock);
	return NULL;
}

static uint32_t find_blob(struct store *store, struct shard *shard, const struct key *key)
{
	uint32_t object = object_find(store, shard, key);

	return object ? page_find(store, shard, key, object) : 0;
}

int store_blob_forget(struct store *store, const struct store_owner *owner, uint64_t *newest)
{
	struct store_client *client = lent_client(store);
	int r = 0;

	for (uint32_t id = 0; client && id < STORE_MAX_CLIENT_POOLS; id++) {
		uint32_t gen, no = pool_lookup(client, id, &gen);
		const struct pool_rec *rec = no ? &store->arena.pools[no - 1] : NULL;

		if (!no || !is_of(rec, owner) || rec->nonce == owner->epoch)
			continue;
		if (rec->nonce > owner->epoch) {
			*newest = rec->nonce;
			r = -ESTALE;
		} else {
			store_pool_destroy(client, id);
		}
	}
	return r;
}

/* ---- Blobs ---------------------------------------------------------------------------------- */

static uint64_t room_left(struct store *store)
{
	uint64_t lent = store_lent(store), lend = atomic_load(&store->lend);
	uint64_t max = atomic_load(&store->pool_max), used = 0, left;

	if (lent >= lend || short_of_memory(store) || store_frozen(store))
		return 0;
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (store->clients[i].rec)
			used += counter_get(&store->clients[i].counters[CLIENT_PHYSICAL_BYTES]);
	left = max > used ? max - used : 0;
	return left < lend - lent ? left : lend - lent;
}

void store_blob_spare(struct store *store, const struct store_owner *owner, uint64_t *bytes,
		      uint64_t *held)
{
	struct key key;

	*bytes = room_left(store);
	*held = find_pool(lent_client(store), owner, &key)
			? atomic_load(&store->pools[key.pool].pages)
			: 0;
}

int store_blob_put(struct store *store, const struct store_owner *owner, uint64_t blob,
		   const void *bytes, uint32_t len)
{
	const struct encoded enc = {.bytes = bytes, .len = len, .codec = CODEC_BLOB};
	struct store_client *client = lent_client(store);
	struct shard *shard;
	struct key key;
	int r;

	if (!len || len > TMEM_PAGE_SIZE)
		return -EINVAL;
	if (client && !find_pool(client, owner, &key))
		pool_make_lent(client, owner->id, owner->epoch);
	shard = lock_blob(store, owner, blob, &key);
	if (!shard)
		return -ENOSPC;
	if (store_lent(store) + len <= atomic_load(&store->lend) && !short_of_memory(store)) {
		r = page_put(client, shard, &key, &enc, false);
	} else {
		uint32_t old = find_blob(store, shard, &key);

		if (old)
			page_drop(store, shard, old);
		r = -ENOSPC;
	}
	pthread_mutex_unlock(&shard->lock);
	return r == 1 ? 0 : -ENOSPC;
}

int store_blob_get(struct store *store, const struct store_owner *owner, uint64_t blob, void *bytes)
{
	const struct desc *desc;
	struct shard *shard;
	struct key key;
	uint32_t no;
	int r = -ENOENT;

	shard = lock_blob(store, owner, blob, &key);
	if (!shard)
		return r;
	no = find_blob(store, shard, &key);
	if (no) {
		desc = &store->arena.descs[no - 1];
		r = -EIO;
		if (page_intact(store, &key, desc)) {
			r = (int)DESC_LEN(desc);
			memcpy(bytes,
			       alloc_bytes(&store->alloc, WORD_LOC(atomic_load(&desc->word))),
			       (size_t)r);
		}
	}
	pthread_mutex_unlock(&shard->lock);
	return r;
}

void store_blob_delete(struct store *store, const struct store_owner *owner, uint64_t blob)
{
	struct shard *shard;
	struct key key;
	uint32_t no;

	shard = lock_blob(store, owner, blob, &key);
	if (!shard)
		return;
	no = find_blob(store, shard, &key);
	if (no)
		page_drop(store, shard, no);
	pthread_mutex_unlock(&shard->lock);
}

/* ---- Renewal -------------------------------------------------------------------------------- */

struct lent_renewal {
	uint64_t first, end;
	const uint64_t *blobs;
	uint32_t nr;
	uint32_t found;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Does the blob go? */
static bool is_left_over(struct lent_renewal *renewal, uint64_t blob)
{
	if (blob < renewal->first || blob >= renewal->end)
		return false;
	if (!bsearch(&blob, renewal->blobs, renewal->nr, sizeof(blob), by_number))
		return true;
	renewal->found++;
	return false;
}

/* Shard lock held. The next pages of the list; false behind the last. */
static bool renew_some(struct store *store, struct shard *shard, struct cursor *cursor,
		       struct lent_renewal *renewal)
{
	for (unsigned i = 0; i < RENEW_PAGES && cursor->at; i++) {
		uint32_t no = cursor->at;
		const struct desc *desc = &store->arena.descs[no - 1];
		uint64_t high = store->arena.objects[desc->object - 1].id[0];

		/* A page that goes would lead the cursor on itself. */
		cursor->at = desc->newer;
		if (is_left_over(renewal, high << 32 | desc->index))
			page_drop(store, shard, no);
	}
	return cursor->at != 0;
}

static void renew_shard(struct store *store, struct shard *shard, const struct key *key,
			struct lent_renewal *renewal)
{
	struct cursor cursor = {0}, **at;
	bool more = true;

	pthread_mutex_lock(&shard->lock);
	cursor.at = shard->lists[key->pool].oldest;
	cursor.next = shard->cursors;
	shard->cursors = &cursor;
	while (more && pool_alive(store, key)) {
		more = renew_some(store, shard, &cursor, renewal);
		if (!more)
			break;
		pthread_mutex_unlock(&shard->lock);
		pthread_mutex_lock(&shard->lock);
	}
	for (at = &shard->cursors; *at != &cursor; at = &(*at)->next)
		;
	*at = cursor.next;
	pthread_mutex_unlock(&shard->lock);
}

uint32_t store_blob_renew(struct store *store, const struct store_owner *owner, uint64_t first,
			  uint64_t end, const uint64_t *blobs, uint32_t nr)
{
	struct lent_renewal renewal = {first, end, blobs, nr, 0};
	struct key key;

	if (!find_pool(lent_client(store), owner, &key))
		return nr;
	for (unsigned i = 0; i < NR_SHARDS; i++)
		renew_shard(store, &store->shards[i], &key, &renewal);
	return renewal.found < nr ? nr - renewal.found : 0;
}
