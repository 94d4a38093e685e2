// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pages as they are stored, out of the store and into it: for streams.
 *
 * A walk keeps no record of what it has seen: the sequences of descriptors are that record. The
 * list of a persistent pool in a shard has its pages in the order in which they came, and none
 * changes its place; so what was put after a pass began stands behind everything that was there,
 * with higher sequences. A page that was flushed after it was found is no longer there in the last
 * pass, and the stream says then which of the pages before it still count. So the page path does
 * nothing for a walk, but for leading its cursor on.
 *
 * The restore side has the same list: pages in doubt stand before those that are sure.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/stream.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"

_Static_assert((int)CODEC_SAME == TMEM_STREAM_SAME && (int)CODEC_RAW == TMEM_STREAM_RAW &&
		       (int)CODEC_LZ4 == TMEM_STREAM_LZ4,
	       "codecs of the arena are those of the stream");

#define DROP_BATCH 256
#define PATIENCE (30 * CLOCK_S)

/* ---- Out ------------------------------------------------------------------------------------ */

struct store_walk {
	struct store_client *client;
	struct key key; /* pool and generation */
	unsigned shard;
	bool inside; /* the cursor is among the shard's */
	struct cursor cursor;
	uint64_t patience;	   /* ns, for pages that are away */
	uint64_t upto;		   /* of the shard that the walk is in */
	uint64_t since[NR_SHARDS]; /* sequences that the pass before has seen */
};

int store_walk_open(struct store_walk **out, struct store_client *client, uint32_t id)
{
	struct store_walk *walk = calloc(1, sizeof(*walk));
	uint32_t pool;

	*out = NULL;
	if (!walk)
		return -ENOMEM;
	walk->client = client;
	walk->patience = PATIENCE;
	pool = pool_lookup(client, id, &walk->key.gen);
	if (!pool || !pool_persistent(&client->store->pools[pool - 1])) {
		free(walk);
		return pool ? -EINVAL : -ENOENT;
	}
	walk->key.pool = pool - 1;
	*out = walk;
	return 0;
}

/* Shard lock held. */
static void enter(struct store_walk *walk, struct shard *shard)
{
	walk->cursor.at = shard->lists[walk->key.pool].oldest;
	walk->cursor.next = shard->cursors;
	shard->cursors = &walk->cursor;
	walk->upto = shard->seq;
	walk->inside = true;
}

static void leave(struct store_walk *walk, struct shard *shard)
{
	struct cursor **at = &shard->cursors;

	while (*at != &walk->cursor)
		at = &(*at)->next;
	*at = walk->cursor.next;
	walk->inside = false;
}

/* Copies the stored bytes of a page. 1, -EIO damaged, or STORE_AWAY: they are to be waited for. */
static int copy_image(struct store_walk *walk, uint32_t no, struct store_image *image,
		      uint8_t bytes[4096], struct departures *departures)
{
	struct store *store = walk->client->store;
	const struct desc *desc = &store->arena.descs[no - 1];
	const struct object *object = &store->arena.objects[desc->object - 1];
	uint64_t word = atomic_load_explicit(&desc->word, memory_order_acquire), same;
	enum codec codec = WORD_CODEC(word);
	struct key key;
	int r = 1;

	key_make(store, &key, walk->key.pool, object->id, desc->index);
	key.gen = walk->key.gen;
	if (!page_intact(store, &key, desc))
		return -EIO;
	if (codec == CODEC_AWAY)
		r = away_image(store, &key, no, bytes, &codec, departures);
	if (r != 1)
		return r;
	*image = (struct store_image){.index = desc->index,
				      .codec = codec,
				      .len = (uint16_t)DESC_LEN(desc),
				      .bytes = bytes};
	if (codec == CODEC_SAME) {
		same = page_same_word(desc, word);
		image->len = sizeof(same);
		memcpy(bytes, &same, sizeof(same));
	} else if (word_has_place(word)) {
		memcpy(bytes, alloc_bytes(&store->alloc, WORD_LOC(word)), image->len);
	}
	return 1;
}

/*
 * Shard lock held. 1: there is no room for the next page; 0: the shard is done; STORE_AWAY: the
 * next page is being fetched; -EIO.
 */
static int gather(struct store_walk *walk, struct shard *shard, struct store_found *found,
		  struct departures *departures)
{
	const struct arena *arena = &walk->client->store->arena;
	uint64_t since = walk->since[walk->shard];
	const struct desc *desc;
	int r;

	for (; walk->cursor.at; walk->cursor.at = desc->newer) {
		const struct object *object;

		desc = &arena->descs[walk->cursor.at - 1];
		object = &arena->objects[desc->object - 1];
		if (DESC_SEQ(desc) > walk->upto)
			break;
		if (!found->nr && !found->nr_kept)
			memcpy(found->object, object->id, sizeof(found->object));
		else if (memcmp(found->object, object->id, sizeof(found->object)))
			return 1;
		if (DESC_SEQ(desc) <= since) {
			if (found->nr_kept == STORE_WALK_KEPT)
				return 1;
			found->kept[found->nr_kept++] = desc->index;
			continue;
		}
		if (found->nr == STORE_WALK_PAGES)
			return 1;
		r = copy_image(walk, walk->cursor.at, &found->pages[found->nr],
			       found->bytes[found->nr], departures);
		if (r == STORE_AWAY)
			return r;
		if (r < 0) {
			memcpy(found->object, object->id, sizeof(found->object));
			found->kept[0] = desc->index;
			return r;
		}
		found->nr++;
	}
	leave(walk, shard);
	walk->since[walk->shard] = walk->upto;
	return 0;
}

/* One look into the walk's shard; as gather(), or -ENOENT. */
static int look(struct store_walk *walk, struct store_found *found)
{
	struct store *store = walk->client->store;
	struct shard *shard = &store->shards[walk->shard];
	struct departures departures = {.nr = 0};
	int r = -ENOENT;

	pthread_mutex_lock(&shard->lock);
	if (pool_alive(store, &walk->key)) {
		if (!walk->inside)
			enter(walk, shard);
		r = gather(walk, shard, found, &departures);
	}
	pthread_mutex_unlock(&shard->lock);
	fetch_send(store, &departures);
	return r;
}

int store_walk_next(struct store_walk *walk, struct store_found *found)
{
	uint64_t until = clock_ns() + walk->patience;
	int r;

	found->nr = found->nr_kept = 0;
	while (walk->shard < NR_SHARDS) {
		r = look(walk, found);
		if (r == STORE_AWAY) {
			/* What was found before it does not wait. */
			if (found->nr || found->nr_kept)
				return 1;
			if (!away_wait(walk->client->store, until))
				return -EHOSTUNREACH;
			continue;
		}
		walk->shard += !r;
		if (r)
			return r;
		if (found->nr || found->nr_kept)
			return 1;
	}
	walk->shard = 0;
	return 0;
}

void store_walk_patience(struct store_walk *walk, unsigned ms)
{
	walk->patience = ms * CLOCK_MS;
}

void store_walk_close(struct store_walk *walk)
{
	struct shard *shard;

	if (!walk)
		return;
	if (walk->inside) {
		shard = &walk->client->store->shards[walk->shard];
		pthread_mutex_lock(&shard->lock);
		leave(walk, shard);
		pthread_mutex_unlock(&shard->lock);
	}
	free(walk);
}

/* ---- In ------------------------------------------------------------------------------------- */

/* A pool of the stream. */
struct restored {
	int id;			  /* at the client; -1: none */
	uint32_t last[NR_SHARDS]; /* pages up to this one are in doubt; number + 1, 0: none */
};

struct store_restore {
	struct store_client *client;
	bool same_ids;
	struct restored pools[STORE_MAX_CLIENT_POOLS];
};

int store_restore_open(struct store_restore **out, struct store_client *client, bool same_ids)
{
	struct store_restore *restore;

	*out = NULL;
	if (same_ids && store_client_pools(client, NULL, 0))
		return -EBUSY;
	restore = calloc(1, sizeof(*restore));
	if (!restore)
		return -ENOMEM;
	restore->client = client;
	restore->same_ids = same_ids;
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		restore->pools[i].id = -1;
	*out = restore;
	return 0;
}

static void drop_pool(struct store_restore *restore, unsigned pool)
{
	if (restore->pools[pool].id >= 0)
		store_pool_destroy(restore->client, (uint32_t)restore->pools[pool].id);
	memset(&restore->pools[pool], 0, sizeof(restore->pools[pool]));
	restore->pools[pool].id = -1;
}

int store_restore_pool(struct store_restore *restore, const struct store_pool_info *pool)
{
	int r;

	if (pool->id >= STORE_MAX_CLIENT_POOLS)
		return -EINVAL;
	drop_pool(restore, pool->id);
	r = pool_make(restore->client, restore->same_ids ? (int)pool->id : -1, pool->flags,
		      pool->uuid, pool->nonce);
	if (r < 0)
		return r;
	restore->pools[pool->id].id = r;
	return 0;
}

int store_restore_id(const struct store_restore *restore, uint32_t pool)
{
	if (pool >= STORE_MAX_CLIENT_POOLS || restore->pools[pool].id < 0)
		return -ENOENT;
	return restore->pools[pool].id;
}

/* What a put would have made of some page. False: no put makes that. */
static bool as_encoded(const struct store_image *image, struct encoded *enc)
{
	uint8_t page[TMEM_PAGE_SIZE];

	*enc = (struct encoded){.bytes = image->bytes, .len = image->len, .codec = image->codec};
	if (image->codec != CODEC_SAME)
		return image->len && image->len <= MAX_STORED &&
		       codec_decode(image->codec, image->bytes, image->len, page);
	if (image->len != sizeof(enc->word))
		return false;
	memcpy(&enc->word, image->bytes, sizeof(enc->word));
	enc->bytes = NULL;
	enc->len = 0;
	return true;
}

/* Record and generation of a persistent pool of the stream; false: there is none. */
static bool find_pool(struct store_restore *restore, uint32_t pool, struct key *key)
{
	int id = store_restore_id(restore, pool);
	uint32_t no = id < 0 ? 0 : pool_lookup(restore->client, (uint32_t)id, &key->gen);

	key->pool = no - 1;
	return no && pool_persistent(&restore->client->store->pools[no - 1]);
}

/* Locks the shard of a handle of the stream. NULL: there is no such persistent pool. */
static struct shard *lock_handle(struct store_restore *restore, uint32_t pool,
				 const uint64_t object[3], uint32_t index, struct key *key)
{
	struct store *store = restore->client->store;
	struct shard *shard;

	if (!find_pool(restore, pool, key))
		return NULL;
	key_make(store, key, key->pool, object, index);
	shard = &store->shards[key->shard];
	pthread_mutex_lock(&shard->lock);
	return shard;
}

/* The page, which is about to leave its place in the list; 0: there is none. */
static uint32_t take_up(struct store_restore *restore, uint32_t pool, struct shard *shard,
			const struct key *key)
{
	struct store *store = restore->client->store;
	uint32_t *last = &restore->pools[pool].last[key->shard];
	uint32_t object = object_find(store, shard, key);
	uint32_t no = object ? page_find(store, shard, key, object) : 0;

	if (no && no == *last)
		*last = store->arena.descs[no - 1].older;
	return no;
}

int store_restore_page(struct store_restore *restore, uint32_t pool, const uint64_t object[3],
		       const struct store_image *image)
{
	struct encoded enc;
	struct shard *shard;
	struct key key;
	uint32_t old;
	int r;

	if (!as_encoded(image, &enc))
		return -EBADMSG;
	shard = lock_handle(restore, pool, object, image->index, &key);
	if (!shard)
		return -ENOENT;
	old = take_up(restore, pool, shard, &key);
	if (old)
		page_drop(restore->client->store, shard, old);
	r = page_put(restore->client, shard, &key, &enc, false);
	pthread_mutex_unlock(&shard->lock);
	return r;
}

void store_restore_doubt(struct store_restore *restore)
{
	struct store *store = restore->client->store;
	struct key key;

	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++) {
		if (!find_pool(restore, i, &key))
			continue;
		for (unsigned s = 0; s < NR_SHARDS; s++) {
			pthread_mutex_lock(&store->shards[s].lock);
			restore->pools[i].last[s] = store->shards[s].lists[key.pool].newest;
			pthread_mutex_unlock(&store->shards[s].lock);
		}
	}
}

int store_restore_keep(struct store_restore *restore, uint32_t pool, const uint64_t object[3],
		       uint32_t index)
{
	struct shard *shard;
	struct key key;
	uint32_t no;

	shard = lock_handle(restore, pool, object, index, &key);
	if (!shard)
		return 0;
	no = take_up(restore, pool, shard, &key);
	if (no)
		page_touch(restore->client->store, shard, no);
	pthread_mutex_unlock(&shard->lock);
	return no != 0;
}

/* Drops pages from the oldest one to `last`, some at a time: others need the shard, too. */
static void drop_doubtful(struct store *store, struct shard *shard, uint32_t pool, uint32_t last)
{
	uint32_t no = 0;

	while (no != last) {
		pthread_mutex_lock(&shard->lock);
		for (unsigned i = 0; i < DROP_BATCH && no != last; i++) {
			no = shard->lists[pool].oldest;
			page_drop(store, shard, no);
		}
		pthread_mutex_unlock(&shard->lock);
	}
}

uint64_t store_restore_settle(struct store_restore *restore, uint64_t pools)
{
	struct store *store = restore->client->store;
	uint64_t pages = 0;
	struct key key;

	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++) {
		if (!(pools >> i & 1))
			drop_pool(restore, i);
		if (!find_pool(restore, i, &key))
			continue;
		for (unsigned s = 0; s < NR_SHARDS; s++)
			drop_doubtful(store, &store->shards[s], key.pool,
				      restore->pools[i].last[s]);
		memset(restore->pools[i].last, 0, sizeof(restore->pools[i].last));
		pages += atomic_load(&store->pools[key.pool].pages);
	}
	return pages;
}

void store_restore_close(struct store_restore *restore, bool good)
{
	if (!restore)
		return;
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS && !good; i++)
		drop_pool(restore, i);
	free(restore);
}
