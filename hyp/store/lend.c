// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Blobs of other hosts: pages of a client of our own, a pool for each owner's life, whose bytes are
 * stored as they come.
 *
 * It is the lowest class of memory: a blob is taken while the pool has room to spare, and how much
 * should leave again is said early, when there is still some left for own pages. A persistent blob
 * cannot be dropped; its owner moves it.
 */
#include <errno.h>
#include <string.h>

#include "store/store_priv.h"

#define LIST_RUN 256u /* pages looked at under one lock */

/* Slabs that must stay free, or be to be had, for own pages. */
static uint64_t kept_slabs(const struct store *store)
{
	return alloc_needed_slabs(&store->alloc) + (store->ready_chunks + 1) * CHUNK_SLABS;
}

static uint64_t spare_slabs(const struct store *store)
{
	return atomic_load(&store->alloc.free_slabs) + atomic_load(&store->alloc.growth);
}

static bool is_short(const struct store *store)
{
	return atomic_load(&store->pressure) || atomic_load(&store->reclaim_want) ||
	       pool_bytes(store) > atomic_load(&store->pool_max);
}

static uint64_t lent_bytes(const struct store_client *client)
{
	return client ? counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]) : 0;
}

int store_set_lend(struct store *store, uint64_t bytes)
{
	struct store_limits limits = {.max_bytes = bytes};
	struct store_client *client = client_lent(store, bytes > 0);
	int r = 0;

	if (!client && bytes)
		return -ENOSPC;
	if (client)
		r = store_client_set_limits(client, &limits);
	if (!r)
		atomic_store(&store->lend, bytes);
	return r;
}

uint64_t store_lend_excess(struct store *store)
{
	uint64_t have = spare_slabs(store), keep = kept_slabs(store), want = 0;
	uint64_t lent = lent_bytes(atomic_load(&store->lent)), lend = atomic_load(&store->lend);

	if (is_short(store))
		return lent;
	if (have < keep)
		want = (keep - have) * SLAB_BYTES;
	if (lent > lend && lent - lend > want)
		want = lent - lend;
	return want < lent ? want : lent;
}

uint64_t store_lent(const struct store *store)
{
	return lent_bytes(atomic_load(&store->lent));
}

uint64_t store_lend_spare(const struct store *store)
{
	uint64_t have = spare_slabs(store), keep = kept_slabs(store);
	uint64_t lent = store_lent(store), lend = atomic_load(&store->lend);

	if (lent >= lend || have <= keep || is_short(store) || store_frozen(store))
		return 0;
	have = (have - keep) * SLAB_BYTES;
	return have < lend - lent ? have : lend - lent;
}

/* ---- One blob ------------------------------------------------------------------------------- */

/* Locks the shard of a blob. NULL: its owner has no pool, and *r says why. */
static struct shard *lock_blob(struct store *store, const struct store_owner *owner, uint64_t id,
			       bool make, struct key *key, int *r)
{
	uint64_t object[3] = {id >> 32, 0, 0};
	struct store_client *client = client_lent(store, make);
	struct shard *shard;
	uint32_t no = 0;

	*r = client ? pool_named(client, owner->uuid, owner->epoch, make) : -ENOENT;
	if (*r >= 0)
		no = pool_lookup(client, (uint32_t)*r, &key->gen);
	if (!no)
		return NULL;
	key_make(store, key, no - 1, object, (uint32_t)id);
	shard = &store->shards[key->shard];
	pthread_mutex_lock(&shard->lock);
	if (pool_alive(store, key))
		return shard;
	pthread_mutex_unlock(&shard->lock);
	*r = -ENOENT;
	return NULL;
}

/* Shard lock held. */
static uint32_t find(struct store *store, struct shard *shard, const struct key *key)
{
	uint32_t object = object_find(store, shard, key);

	return object ? page_find(store, shard, key, object) : 0;
}

int store_blob_put(struct store *store, const struct store_owner *owner, uint64_t id,
		   const void *bytes, uint32_t len)
{
	struct encoded enc = {.bytes = bytes, .len = len, .codec = CODEC_BLOB};
	bool spare = atomic_load(&store->lend) && !is_short(store) &&
		     spare_slabs(store) > kept_slabs(store);
	struct shard *shard;
	struct key key;
	int r;

	if (!len || len > MAX_STORED)
		return -EINVAL;
	if (!spare) {
		store_blob_delete(store, owner, id);
		counter_add(&store->counters[STORE_LEND_REFUSED], 1);
		return -ENOSPC;
	}
	shard = lock_blob(store, owner, id, true, &key, &r);
	if (shard) {
		r = page_put(atomic_load(&store->lent), shard, &key, &enc, false);
		pthread_mutex_unlock(&shard->lock);
	}
	if (r == 1)
		return 0;
	counter_add(&store->counters[STORE_LEND_REFUSED], 1);
	return -ENOSPC;
}

int store_blob_get(struct store *store, const struct store_owner *owner, uint64_t id,
		   uint8_t bytes[4096])
{
	const struct desc *desc;
	struct shard *shard;
	struct key key;
	uint32_t no;
	int r;

	shard = lock_blob(store, owner, id, false, &key, &r);
	if (!shard)
		return -ENOENT;
	r = -ENOENT;
	no = find(store, shard, &key);
	if (no) {
		desc = &store->arena.descs[no - 1];
		r = -EIO;
		if (page_intact(store, &key, desc) &&
		    WORD_CODEC(atomic_load(&desc->word)) == CODEC_BLOB) {
			r = (int)DESC_LEN(desc);
			memcpy(bytes, alloc_bytes(&store->alloc, WORD_LOC(desc->word)),
			       DESC_LEN(desc));
		}
	}
	pthread_mutex_unlock(&shard->lock);
	return r;
}

int store_blob_delete(struct store *store, const struct store_owner *owner, uint64_t id)
{
	struct shard *shard;
	struct key key;
	uint32_t no;
	int r;

	shard = lock_blob(store, owner, id, false, &key, &r);
	if (!shard)
		return 0;
	no = find(store, shard, &key);
	if (no)
		page_drop(store, shard, no);
	pthread_mutex_unlock(&shard->lock);
	return no != 0;
}

/* ---- All of an owner ------------------------------------------------------------------------ */

struct listing {
	uint64_t first;
	uint64_t *ids;
	uint32_t nr, room;
};

/* Shard lock held. A run of the list from the cursor on. */
static void list_run(struct store *store, struct cursor *cursor, struct listing *list)
{
	for (unsigned i = 0; cursor->at && i < LIST_RUN; i++) {
		const struct desc *desc = &store->arena.descs[cursor->at - 1];
		uint64_t id = store->arena.objects[desc->object - 1].id[0] << 32 | desc->index;

		if (id >= list->first)
			least_add(list->ids, &list->nr, list->room, id);
		cursor->at = desc->newer;
	}
}

static void list_shard(struct store *store, struct shard *shard, const struct key *key,
		       struct listing *list)
{
	struct cursor cursor, **at;

	pthread_mutex_lock(&shard->lock);
	cursor.at = shard->lists[key->pool].oldest;
	cursor.next = shard->cursors;
	shard->cursors = &cursor;
	while (cursor.at && pool_alive(store, key)) {
		list_run(store, &cursor, list);
		/* Others need the shard, too. */
		pthread_mutex_unlock(&shard->lock);
		pthread_mutex_lock(&shard->lock);
	}
	for (at = &shard->cursors; *at != &cursor;)
		at = &(*at)->next;
	*at = cursor.next;
	pthread_mutex_unlock(&shard->lock);
}

uint32_t store_blob_list(struct store *store, const struct store_owner *owner, uint64_t first,
			 uint64_t *ids, uint32_t room)
{
	struct listing list = {.first = first, .ids = ids, .room = room};
	struct store_client *client = atomic_load(&store->lent);
	struct key key = {0};
	uint32_t no = 0;
	int id;

	id = client ? pool_named(client, owner->uuid, owner->epoch, false) : -ENOENT;
	if (id >= 0)
		no = pool_lookup(client, (uint32_t)id, &key.gen);
	if (!no)
		return 0;
	key.pool = no - 1;
	for (unsigned i = 0; i < NR_SHARDS; i++)
		list_shard(store, &store->shards[i], &key, &list);
	least_sort(ids, list.nr);
	return list.nr;
}

int store_blob_forget(struct store *store, const struct store_owner *owner)
{
	struct store_client *client = atomic_load(&store->lent);
	int id = client ? pool_named(client, owner->uuid, owner->epoch, false) : -ENOENT;

	return id >= 0 && store_pool_destroy(client, (uint32_t)id) == 1;
}

int store_blob_owners(struct store *store,
		      int (*fn)(const struct store_owner *owner, uint64_t pages, void *arg),
		      void *arg)
{
	struct store_client *client = atomic_load(&store->lent);
	struct store_pool_info pools[STORE_MAX_CLIENT_POOLS];
	unsigned nr = client ? store_client_pools(client, pools, STORE_MAX_CLIENT_POOLS) : 0;
	int r = 0;

	for (unsigned i = 0; i < nr && !r; i++) {
		struct store_owner owner = {{pools[i].uuid[0], pools[i].uuid[1]}, pools[i].nonce};

		r = fn(&owner, pools[i].pages, arg);
	}
	return r;
}

void lent_counters(struct store *store)
{
	struct store_client *client = atomic_load(&store->lent);
	uint64_t blobs = client ? counter_get(&client->counters[CLIENT_PAGES_PERSISTENT]) : 0;

	counter_set(&store->counters[STORE_LENT_BLOBS], blobs);
	counter_set(&store->counters[STORE_LENT_BYTES], lent_bytes(client));
}
