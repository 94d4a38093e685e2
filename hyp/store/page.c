// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Put, get and flush.
 *
 * A put encodes outside any lock, then does the rest under the lock of one shard: find the
 * object and the old page, take a descriptor and a place, copy, publish, free the old one. Every
 * refusal drops the old page (CONTRACT: it never fails and leaves the old one readable).
 * A get checks and decodes under the same lock, so that nothing moves or goes under it.
 */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"

static void count(struct store_client *client, enum client_counter counter)
{
	counter_add(&client->counters[counter], 1);
}

struct pool *pool_of(struct store *store, const struct desc *desc)
{
	return &store->pools[store->arena.objects[desc->object - 1].pool - 1];
}

bool pool_persistent(const struct pool *pool)
{
	return pool->flags & TMEM_POOL_PERSIST;
}

static enum client_counter page_gauge(const struct pool *pool)
{
	return pool_persistent(pool) ? CLIENT_PAGES_PERSISTENT : CLIENT_PAGES_EPHEMERAL;
}

uint32_t page_cost(const struct store *store, const struct desc *desc)
{
	uint64_t word = atomic_load_explicit(&desc->word, memory_order_relaxed);

	if (word_has_place(word))
		return sizeof(*desc) + alloc_size_at(&store->alloc, WORD_LOC(word));
	return sizeof(*desc) + (WORD_CODEC(word) == CODEC_AWAY ? sizeof(struct away_rec) : 0);
}

uint64_t page_same_word(const struct desc *desc, uint64_t word)
{
	return (uint64_t)DESC_LEN(desc) << 56 | WORD_LOC(word);
}

void page_drop(struct store *store, struct shard *shard, uint32_t no)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word), hash;
	struct object *object = &store->arena.objects[desc->object - 1];
	struct pool *pool = pool_of(store, desc);
	uint32_t cost = page_cost(store, desc);

	atomic_store_explicit(&desc->word, 0, memory_order_release);
	fault(FAULT_FLUSH_HALF);
	if (word_has_place(word)) {
		shard->stored_bytes -= DESC_LEN(desc);
		alloc_free(&store->alloc, WORD_LOC(word));
	} else if (WORD_CODEC(word) == CODEC_AWAY) {
		counter_sub(&pool->owner->counters[CLIENT_PAGES_AWAY], 1);
		away_dropped(store, word);
	}
	hash = object_hash(store, object->pool - 1, object->id);
	page_unlink(store, shard, no, page_hash(hash, desc->index));
	atomic_fetch_sub(&pool->pages, 1);
	atomic_fetch_sub(&pool->bytes, cost);
	counter_sub(&pool->owner->counters[page_gauge(pool)], 1);
	client_uncharge(pool->owner, cost);
	object_unuse(store, shard, desc->object);
	desc_release(store, shard, no);
}

/* Resolves a handle; the pool's record + 1, or 0 with the refusal counted. */
static bool resolve(struct store_client *client, const struct store_handle *handle, struct key *key)
{
	uint32_t pool = pool_lookup(client, handle->pool, &key->gen);

	if (!pool) {
		count(client, CLIENT_REFUSED_NO_POOL);
		return false;
	}
	fault(FAULT_POOL_RESOLVED);
	key_make(client->store, key, pool - 1, handle->object, handle->index);
	return true;
}

/* Locks the shard of the key when its pool still lives. */
static struct shard *lock_alive(struct store_client *client, const struct key *key)
{
	struct shard *shard = &client->store->shards[key->shard];

	pthread_mutex_lock(&shard->lock);
	if (pool_alive(client->store, key))
		return shard;
	pthread_mutex_unlock(&shard->lock);
	count(client, CLIENT_REFUSED_NO_POOL);
	return NULL;
}

static uint32_t find(struct store *store, struct shard *shard, const struct key *key)
{
	uint32_t object = object_find(store, shard, key);

	return object ? page_find(store, shard, key, object) : 0;
}

/* ---- Put ------------------------------------------------------------------------------------ */

/* Would the page, replacing `old`, bring the paying client over its maximum? */
static bool over_maximum(struct store *store, struct store_client *owner, uint32_t old,
			 const struct encoded *enc)
{
	uint64_t max = atomic_load_explicit(&owner->max_bytes, memory_order_relaxed), bytes;

	if (!max)
		return false;
	bytes = counter_get(&owner->counters[CLIENT_PHYSICAL_BYTES]) + sizeof(struct desc);
	if (enc->codec != CODEC_SAME)
		bytes += alloc_cost(&store->alloc, enc->len);
	if (old)
		bytes -= page_cost(store, &store->arena.descs[old - 1]);
	bytes += counter_get(&owner->counters[CLIENT_CREDITS]) * CREDIT_BYTES;
	return bytes > max;
}

static enum alloc_right right_of(struct store_client *owner, bool credit, uint32_t len)
{
	uint64_t have = counter_get(&owner->counters[CLIENT_PHYSICAL_BYTES]);
	uint64_t min = atomic_load_explicit(&owner->min_bytes, memory_order_relaxed);

	if (credit)
		return ALLOC_CREDIT;
	return have + len <= min ? ALLOC_GUARANTEED : ALLOC_PLAIN;
}

/*
 * A descriptor and a place for the bytes. *old is dropped first when that is what makes room:
 * a put that then fails would have to drop it anyway.
 */
static uint32_t take_room(struct store *store, struct shard *shard, const struct encoded *enc,
			  enum alloc_right right, uint32_t *old, uint64_t *loc)
{
	uint32_t no;

	for (;;) {
		*loc = 0;
		no = desc_alloc(store, shard, right == ALLOC_CREDIT);
		if (no && enc->codec != CODEC_SAME)
			*loc = alloc_place(&store->alloc, enc->len, no, right);
		if (atomic_load_explicit(&store->alloc.low, memory_order_relaxed))
			worker_wake(store);
		if (no && (*loc || enc->codec == CODEC_SAME))
			return no;
		if (no)
			desc_release(store, shard, no);
		if (!*old)
			return 0;
		page_drop(store, shard, *old);
		*old = 0;
	}
}

static void publish(struct store *store, struct shard *shard, const struct key *key,
		    const struct encoded *enc, uint32_t object, uint32_t no, uint64_t loc)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t seq = ++shard->seq;
	uint32_t len = enc->len;

	/* Atomic for compaction's guess, see guess_shard(). */
	__atomic_store_n(&desc->object, object, __ATOMIC_RELAXED);
	desc->index = key->index;
	if (enc->codec == CODEC_SAME) {
		desc->check = codec_check(&enc->word, 8, key->object_hash, key->index, seq);
		loc = enc->word & ~0ull >> 8;
		len = enc->word >> 56;
	} else {
		memcpy(alloc_bytes(&store->alloc, loc), enc->bytes, enc->len);
		desc->check = codec_check(enc->bytes, len, key->object_hash, key->index, seq);
		shard->stored_bytes += len;
		fault(FAULT_PUT_PAYLOAD_WRITTEN);
	}
	desc->seq_len = seq << DESC_LEN_BITS | len;
	fault(FAULT_PUT_DESC_FILLED);
	atomic_store_explicit(&desc->word, DESC_WORD(DESC_LIVE, enc->codec, loc),
			      memory_order_release);
	fault(FAULT_PUT_PUBLISHED);
}

static void account_put(struct store *store, struct store_client *client, uint32_t no,
			const struct encoded *enc)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	struct pool *pool = pool_of(store, desc);
	uint32_t cost = page_cost(store, desc);

	atomic_fetch_add(&pool->pages, 1);
	atomic_fetch_add(&pool->bytes, cost);
	count(pool->owner, page_gauge(pool));
	client_charge(pool->owner, cost);
	count(client, CLIENT_PUTS);
	if (enc->codec == CODEC_SAME)
		count(client, CLIENT_PUTS_SAME_FILLED);
	else if (enc->codec == CODEC_RAW)
		count(client, CLIENT_PUTS_INCOMPRESSIBLE);
}

static int refuse_room(struct store *store, struct store_client *client)
{
	count(client, CLIENT_REFUSED_ROOM);
	atomic_store(&store->starving, true);
	worker_wake(store);
	return -ENOMEM;
}

int page_put(struct store_client *client, struct shard *shard, const struct key *key,
	     const struct encoded *enc, bool credit)
{
	struct store *store = client->store;
	struct store_client *owner = store->pools[key->pool].owner;
	uint32_t object, old = 0, no;
	uint64_t loc;
	int r = 1;

	object = object_find(store, shard, key);
	if (object)
		old = page_find(store, shard, key, object);
	if (!credit && over_maximum(store, owner, old, enc)) {
		if (old)
			page_drop(store, shard, old);
		count(client, CLIENT_REFUSED_MAXIMUM);
		return -EDQUOT;
	}
	if (!object)
		object = object_intern(store, shard, key, credit);
	if (!object)
		return refuse_room(store, client);
	/* Held while old pages of it may go. */
	store->arena.objects[object - 1].pages++;
	no = take_room(store, shard, enc, right_of(owner, credit, enc->len), &old, &loc);
	if (no) {
		publish(store, shard, key, enc, object, no, loc);
		page_link(store, shard, no, key->page_hash);
		account_put(store, client, no, enc);
		if (old)
			page_drop(store, shard, old);
		fault(FAULT_PUT_OLD_FREED);
	} else {
		r = refuse_room(store, client);
	}
	store->arena.objects[object - 1].pages--;
	object_unuse(store, shard, object);
	return r;
}

static int put_refused_early(struct store_client *client, const struct key *key)
{
	struct store *store = client->store;
	struct shard *shard = lock_alive(client, key);
	uint32_t old;

	if (!shard)
		return -ENOENT;
	old = find(store, shard, key);
	if (old)
		page_drop(store, shard, old);
	pthread_mutex_unlock(&shard->lock);
	count(client, CLIENT_REFUSED_FROZEN);
	return -TMEM_EFROZEN;
}

int store_put(struct store_client *client, const struct store_handle *handle, const void *page,
	      unsigned flags)
{
	struct store *store = client->store;
	bool credit = flags & STORE_PUT_CREDIT && client_take_credit(client);
	struct encoded enc;
	struct shard *shard;
	struct key key;
	int r = -ENOENT;

	if (flags & STORE_PUT_CREDIT && !credit)
		count(client, CLIENT_CREDITS_FORGED);
	if (!resolve(client, handle, &key))
		goto out;
	if (!credit && (atomic_load_explicit(&client->frozen, memory_order_relaxed) ||
			atomic_load_explicit(&store->frozen, memory_order_relaxed))) {
		r = put_refused_early(client, &key);
		goto out;
	}
	codec_encode(page, &enc);
	shard = lock_alive(client, &key);
	if (!shard)
		goto out;
	r = page_put(client, shard, &key, &enc, credit);
	pthread_mutex_unlock(&shard->lock);
out:
	if (credit) {
		fault(FAULT_CREDIT_USED);
		client_credit_used(client);
		if (r == 1)
			count(client, CLIENT_PUTS_POSTED);
	}
	return r;
}

/* ---- Get ------------------------------------------------------------------------------------ */

bool page_intact(const struct store *store, const struct key *key, const struct desc *desc)
{
	uint64_t word = atomic_load_explicit(&desc->word, memory_order_acquire), same;
	uint32_t len = DESC_LEN(desc);
	const void *bytes = &same;

	if (WORD_CODEC(word) == CODEC_SAME) {
		same = page_same_word(desc, word);
		len = sizeof(same);
	} else if (WORD_CODEC(word) == CODEC_AWAY) {
		/* The bytes are elsewhere: does the entry belong to the descriptor? */
		return WORD_LOC(word) >= AWAY_KEYS &&
		       WORD_LOC(word) < atomic_load(&store->arena.sb->away_high) &&
		       away_check(store, key, desc, (uint32_t)WORD_LOC(word)) ==
			       store->arena.away[WORD_LOC(word)].check;
	} else {
		/* Memory may have been damaged since: no access beyond the arena. */
		if (len > MAX_STORED || !WORD_LOC(word) ||
		    WORD_LOC(word) > (store->arena.sb->capacity - MAX_STORED) / 8)
			return false;
		bytes = alloc_bytes(&store->alloc, WORD_LOC(word));
	}
	return codec_check(bytes, len, key->object_hash, key->index, DESC_SEQ(desc)) == desc->check;
}

/* Checks and decodes a live page. 1 or -EIO. */
static int read_page(struct store *store, const struct key *key, const struct desc *desc,
		     void *page)
{
	uint64_t word = atomic_load_explicit(&desc->word, memory_order_acquire);

	if (!page_intact(store, key, desc))
		return -EIO;
	if (WORD_CODEC(word) == CODEC_SAME) {
		codec_fill(page, page_same_word(desc, word));
		return 1;
	}
	return codec_decode(WORD_CODEC(word), alloc_bytes(&store->alloc, WORD_LOC(word)),
			    DESC_LEN(desc), page)
		       ? 1
		       : -EIO;
}

static bool is_away(const struct desc *desc)
{
	return WORD_CODEC(atomic_load_explicit(&desc->word, memory_order_relaxed)) == CODEC_AWAY;
}

/* Shard lock held. */
static int get_away(struct store_client *client, const struct key *key, uint32_t no, void *page,
		    unsigned flags, struct departures *departures)
{
	int r = -EIO;

	if (page_intact(client->store, key, &client->store->arena.descs[no - 1]))
		r = away_read(client->store, key, no, page, flags, departures);
	count(client, r == 1		? CLIENT_GETS_HIT
		      : r == STORE_AWAY ? CLIENT_GETS_AWAY
					: CLIENT_GETS_DAMAGED);
	return r;
}

static int get_locked(struct store_client *client, struct shard *shard, const struct key *key,
		      void *page, unsigned get_flags, struct departures *departures)
{
	struct store *store = client->store;
	uint32_t no = find(store, shard, key), flags;
	int r;

	if (!no) {
		count(client, CLIENT_GETS_MISS);
		return 0;
	}
	if (__builtin_expect(is_away(&store->arena.descs[no - 1]), false))
		return get_away(client, key, no, page, get_flags, departures);
	r = read_page(store, key, &store->arena.descs[no - 1], page);
	if (r < 0) {
		count(client, CLIENT_GETS_DAMAGED);
		return r;
	}
	count(client, CLIENT_GETS_HIT);
	flags = store->pools[key->pool].flags;
	if (flags & TMEM_POOL_PERSIST)
		return 1;
	if (flags & (TMEM_POOL_SHARED | TMEM_POOL_X_INCLUSIVE))
		page_touch(store, shard, no);
	else
		page_drop(store, shard, no);
	return 1;
}

int store_get(struct store_client *client, const struct store_handle *handle, void *page)
{
	return store_get_flags(client, handle, page, 0);
}

int store_get_flags(struct store_client *client, const struct store_handle *handle, void *page,
		    unsigned flags)
{
	struct departures departures = {.nr = 0};
	struct shard *shard;
	struct key key;
	int r;

	if (!resolve(client, handle, &key))
		return -ENOENT;
	shard = lock_alive(client, &key);
	if (!shard)
		return -ENOENT;
	r = get_locked(client, shard, &key, page, flags, &departures);
	pthread_mutex_unlock(&shard->lock);
	if (__builtin_expect(r == STORE_AWAY, false))
		fetch_send(client->store, &departures);
	if (r < 0)
		log_limited(
			LOG_ERROR,
			"client %s: pool %u index %u: the stored bytes are damaged or lost; this "
			"get fails, the page stays as it is",
			client->rec->name, handle->pool, handle->index);
	return r;
}

/* ---- Flush ---------------------------------------------------------------------------------- */

int store_flush(struct store_client *client, const struct store_handle *handle)
{
	struct shard *shard;
	struct key key;
	uint32_t no;

	if (!resolve(client, handle, &key))
		return -ENOENT;
	shard = lock_alive(client, &key);
	if (!shard)
		return -ENOENT;
	no = find(client->store, shard, &key);
	if (no) {
		page_drop(client->store, shard, no);
		count(client, CLIENT_FLUSHED);
	}
	pthread_mutex_unlock(&shard->lock);
	return no != 0;
}

/* Drops the pages of an object between its lowest and highest index, one look-up each. */
static unsigned flush_by_index(struct store *store, struct shard *shard, struct key *key,
			       uint32_t object)
{
	const struct object *obj = &store->arena.objects[object - 1];
	uint32_t low = obj->low, high = obj->high, left = obj->pages, no;
	unsigned n = 0;

	for (uint64_t i = low; i <= high && left; i++) {
		if (shard_of(key->object_hash, i) != key->shard) {
			i |= (1u << EXTENT_SHIFT) - 1;
			continue;
		}
		key->index = i;
		key->page_hash = page_hash(key->object_hash, i);
		no = page_find(store, shard, key, object);
		if (!no)
			continue;
		left--;
		n++;
		page_drop(store, shard, no); /* with the last page the object goes */
	}
	return n;
}

/* The same for a few pages far apart: by the list of the pool's pages in this shard. */
static unsigned flush_by_list(struct store *store, struct shard *shard, const struct key *key,
			      uint32_t object)
{
	uint32_t no = shard->lists[key->pool].oldest, next;
	uint32_t left = store->arena.objects[object - 1].pages;
	unsigned n = 0;

	for (; no && left; no = next) {
		next = store->arena.descs[no - 1].newer;
		if (store->arena.descs[no - 1].object != object)
			continue;
		left--;
		n++;
		page_drop(store, shard, no);
	}
	return n;
}

static unsigned flush_object_in(struct store *store, struct shard *shard, struct key *key)
{
	uint32_t object = object_find(store, shard, key);
	const struct object *obj;
	uint64_t range, listed;

	if (!object)
		return 0;
	obj = &store->arena.objects[object - 1];
	range = (uint64_t)obj->high - obj->low + 1;
	listed = atomic_load(&store->pools[key->pool].pages) / NR_SHARDS;
	/* Extents of other shards cost little: one look in 64. */
	if (range / (1u << EXTENT_SHIFT) < listed + 4 * (uint64_t)obj->pages + 1024)
		return flush_by_index(store, shard, key, object);
	return flush_by_list(store, shard, key, object);
}

int store_flush_object(struct store_client *client, uint32_t pool, const uint64_t object[3])
{
	struct store *store = client->store;
	struct store_handle handle = {{object[0], object[1], object[2]}, pool, 0};
	struct key key;
	unsigned n = 0;

	if (!resolve(client, &handle, &key))
		return -ENOENT;
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *shard = &store->shards[i];

		pthread_mutex_lock(&shard->lock);
		key.shard = i;
		if (pool_alive(store, &key))
			n += flush_object_in(store, shard, &key);
		pthread_mutex_unlock(&shard->lock);
	}
	counter_add(&client->counters[CLIENT_FLUSHED], n);
	return n != 0;
}

void store_prefetch(struct store_client *client, const struct store_handle *handles, unsigned nr)
{
	struct key keys[STORE_BATCH];
	unsigned known = 0;

	for (unsigned i = 0; i < nr && i < STORE_BATCH; i++) {
		struct key *key = &keys[known];
		uint32_t pool = pool_lookup(client, handles[i].pool, &key->gen);

		if (!pool)
			continue;
		key_make(client->store, key, pool - 1, handles[i].object, handles[i].index);
		known++;
	}
	index_prefetch(client->store, keys, known);
}
