// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The index: from handles to descriptors, in shards.
 *
 * A shard is chosen by pool, object and index / 64, so that neighbours share one and a large
 * object spreads over all. Each shard interns objects for itself; everything in a shard is under
 * its one lock. Descriptors and object entries are taken from the arena in blocks and then stay
 * with their shard.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "base/fault.h"
#include "store/store_priv.h"

#define FIRST_BUCKETS 1024u
#define GROW_BUCKETS 4096u /* 16 KiB */
#define PREFETCH_LINES 8   /* of stored bytes; the processor asks for what follows */

uint64_t object_hash(const struct store *store, uint32_t pool, const uint64_t object[3])
{
	struct {
		uint64_t object[3];
		uint64_t pool;
	} k = {{object[0], object[1], object[2]}, pool};

	return XXH3_64bits_withSeed(&k, sizeof(k), store->seed);
}

static uint64_t mix(uint64_t x)
{
	/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t page_hash(uint64_t hash, uint32_t index)
{
	return mix(hash + index);
}

uint32_t shard_of(uint64_t hash, uint32_t index)
{
	return mix(hash ^ (uint64_t)(index >> EXTENT_SHIFT) << 32) % NR_SHARDS;
}

void key_make(const struct store *store, struct key *key, uint32_t pool, const uint64_t object[3],
	      uint32_t index)
{
	memcpy(key->object, object, sizeof(key->object));
	key->pool = pool;
	key->index = index;
	key->object_hash = object_hash(store, pool, object);
	key->page_hash = page_hash(key->object_hash, index);
	key->shard = shard_of(key->object_hash, index);
}

/* ---- Tables --------------------------------------------------------------------------------- */

/* The mask of the larger half, which is split as far as nr. */
static uint32_t mask_of(uint32_t nr)
{
	return UINT32_MAX >> __builtin_clz(nr - 1);
}

static uint32_t bucket_of(const struct table *table, uint64_t hash)
{
	uint32_t nr = atomic_load_explicit(&table->nr, memory_order_relaxed);
	uint32_t mask = mask_of(nr), b = hash & mask;

	return b < nr ? b : b & mask >> 1;
}

static int table_init(struct store *store, struct table *table, uint64_t max)
{
	table->max = max < FIRST_BUCKETS ? FIRST_BUCKETS : max;
	table->buckets =
		mmap(NULL, (uint64_t)table->max * sizeof(*table->buckets), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table->buckets == MAP_FAILED) {
		table->buckets = NULL;
		return -ENOMEM;
	}
	if (fault_in((void *)table->buckets, FIRST_BUCKETS * sizeof(*table->buckets)))
		return -ENOMEM;
	table->nr = FIRST_BUCKETS;
	table->ready = FIRST_BUCKETS;
	table->items = 0;
	store->index_bytes += FIRST_BUCKETS * sizeof(*table->buckets);
	return 0;
}

static bool table_grow(struct store *store, struct table *table)
{
	uint32_t nr = atomic_load(&table->nr), ready = table->ready, more = GROW_BUCKETS;
	uint32_t items = atomic_load_explicit(&table->items, memory_order_relaxed);

	if (items < nr / 2 || ready - nr >= GROW_BUCKETS / 2 || ready == table->max)
		return false;
	if (more > table->max - ready)
		more = table->max - ready;
	if (atomic_load(&store->host_left) < more * sizeof(*table->buckets) ||
	    fault_in((void *)((uintptr_t)(table->buckets + ready) & ~4095ul),
		     (more * sizeof(*table->buckets) + 4095) & ~4095ul))
		return false;
	pressure_taken(store, more * sizeof(*table->buckets));
	atomic_store(&table->ready, ready + more);
	atomic_fetch_add(&store->index_bytes, more * sizeof(*table->buckets));
	return true;
}

static uint32_t *chain_of(struct store *store, bool pages, uint32_t no)
{
	return pages ? &store->arena.descs[no - 1].chain : &store->arena.objects[no - 1].chain;
}

static uint64_t item_hash(struct store *store, bool pages, uint32_t no)
{
	const struct object *object;
	const struct desc *desc;
	uint64_t hash;

	if (!pages) {
		object = &store->arena.objects[no - 1];
		return object_hash(store, object->pool - 1, object->id);
	}
	desc = &store->arena.descs[no - 1];
	object = &store->arena.objects[desc->object - 1];
	hash = object_hash(store, object->pool - 1, object->id);
	return page_hash(hash, desc->index);
}

/* One more bucket: the items of the bucket that it splits from are dealt out between the two. */
static void table_split(struct store *store, struct table *table, bool pages)
{
	uint32_t nr = table->nr, mask = mask_of(nr + 1), from, no, next, keep = 0, move = 0;

	if (nr == table->ready)
		return;
	from = nr & mask >> 1;
	for (no = table->buckets[from]; no; no = next) {
		uint32_t *chain = chain_of(store, pages, no);

		next = *chain;
		if ((item_hash(store, pages, no) & mask) == nr) {
			*chain = move;
			move = no;
		} else {
			*chain = keep;
			keep = no;
		}
	}
	atomic_store_explicit(&table->buckets[from], keep, memory_order_relaxed);
	atomic_store_explicit(&table->buckets[nr], move, memory_order_relaxed);
	atomic_store_explicit(&table->nr, nr + 1, memory_order_relaxed);
}

/* Under the shard lock; atomic only for the worker's look at it. */
static uint32_t table_count(struct table *table, int n)
{
	uint32_t items = atomic_load_explicit(&table->items, memory_order_relaxed) + n;

	atomic_store_explicit(&table->items, items, memory_order_relaxed);
	return items;
}

static void table_insert(struct store *store, struct table *table, bool pages, uint32_t no,
			 uint64_t hash)
{
	uint32_t b;

	if (table_count(table, 1) > table->nr)
		table_split(store, table, pages);
	b = bucket_of(table, hash);
	*chain_of(store, pages, no) = table->buckets[b];
	atomic_store_explicit(&table->buckets[b], no, memory_order_relaxed);
}

static void table_remove(struct store *store, struct table *table, bool pages, uint32_t no,
			 uint64_t hash)
{
	uint32_t b = bucket_of(table, hash), at = table->buckets[b];

	table_count(table, -1);
	if (at == no) {
		atomic_store_explicit(&table->buckets[b], *chain_of(store, pages, no),
				      memory_order_relaxed);
		return;
	}
	while (at) {
		uint32_t *chain = chain_of(store, pages, at);

		if (*chain == no) {
			*chain = *chain_of(store, pages, no);
			return;
		}
		at = *chain;
	}
}

/* ---- Objects -------------------------------------------------------------------------------- */

/*
 * The next `want` entries of the populated part that no shard has yet. Plain callers leave one
 * for each credit; a credit takes a single one. Returns how many; 0: the worker is behind.
 */
static uint32_t take_block(struct store *store, _Atomic uint64_t *next, uint64_t high,
			   uint64_t ahead, uint32_t want, bool credit, uint64_t *first)
{
	uint64_t at = atomic_load(next), leave = credit ? 0 : atomic_load(&store->alloc.credits);

	if (credit)
		want = 1;
	do {
		if (at + want + leave > high) {
			worker_wake(store);
			return 0;
		}
	} while (!atomic_compare_exchange_weak(next, &at, at + want));
	if (high - at < ahead / 2)
		worker_wake(store);
	*first = at;
	return want;
}

/* An entry from the shard's free list, which is filled up with a block when it is empty. */
static uint32_t entry_alloc(struct store *store, struct shard *shard, bool pages, bool credit)
{
	struct superblock *sb = store->arena.sb;
	uint32_t *free = pages ? &shard->free_descs : &shard->free_objects, no, n;
	uint64_t first;

	if (!*free) {
		n = pages ? take_block(store, &store->desc_next, sb->descs_high, DESCS_AHEAD,
				       DESC_BLOCK, credit, &first)
			  : take_block(store, &store->object_next, sb->objects_high, OBJECTS_AHEAD,
				       OBJECT_BLOCK, credit, &first);
		if (!n)
			return 0;
		for (uint64_t i = first + n; i > first; i--) {
			*chain_of(store, pages, i) = *free;
			*free = i;
		}
	}
	no = *free;
	*free = *chain_of(store, pages, no);
	return no;
}

uint32_t object_find(struct store *store, struct shard *shard, const struct key *key)
{
	uint32_t no = shard->objects.buckets[bucket_of(&shard->objects, key->object_hash)];
	const struct object *object;

	for (; no; no = object->chain) {
		object = &store->arena.objects[no - 1];
		if (object->pool == key->pool + 1 && !memcmp(object->id, key->object, 24))
			return no;
	}
	return 0;
}

void object_insert(struct store *store, struct shard *shard, uint32_t no)
{
	struct object *object = &store->arena.objects[no - 1];

	__atomic_store_n(&object->shard, shard - store->shards, __ATOMIC_RELAXED);
	object->pages = 0;
	object->low = UINT32_MAX;
	object->high = 0;
	table_insert(store, &shard->objects, false, no,
		     object_hash(store, object->pool - 1, object->id));
}

uint32_t object_intern(struct store *store, struct shard *shard, const struct key *key, bool credit)
{
	uint32_t no = object_find(store, shard, key);
	struct object *object;

	if (no)
		return no;
	if (!credit && fault(FAULT_ALLOC_OBJECT))
		return 0;
	no = entry_alloc(store, shard, false, credit);
	if (!no)
		return 0;
	object = &store->arena.objects[no - 1];
	memcpy(object->id, key->object, sizeof(object->id));
	fault(FAULT_OBJECT_FILLED);
	atomic_store_explicit(&object->pool, key->pool + 1, memory_order_release);
	fault(FAULT_OBJECT_PUBLISHED);
	object_insert(store, shard, no);
	return no;
}

void object_release(struct store *store, struct shard *shard, uint32_t no)
{
	struct object *object = &store->arena.objects[no - 1];

	atomic_store_explicit(&object->pool, 0, memory_order_release);
	object->chain = shard->free_objects;
	shard->free_objects = no;
}

void object_unuse(struct store *store, struct shard *shard, uint32_t no)
{
	struct object *object = &store->arena.objects[no - 1];

	if (object->pages)
		return;
	table_remove(store, &shard->objects, false, no,
		     object_hash(store, object->pool - 1, object->id));
	object_release(store, shard, no);
	fault(FAULT_OBJECT_FREED);
}

/* ---- Descriptors ---------------------------------------------------------------------------- */

uint32_t desc_alloc(struct store *store, struct shard *shard, bool credit)
{
	if (!credit && fault(FAULT_ALLOC_DESC))
		return 0;
	return entry_alloc(store, shard, true, credit);
}

void desc_release(struct store *store, struct shard *shard, uint32_t no)
{
	store->arena.descs[no - 1].chain = shard->free_descs;
	shard->free_descs = no;
}

uint32_t page_find(struct store *store, struct shard *shard, const struct key *key, uint32_t object)
{
	uint32_t no = shard->pages.buckets[bucket_of(&shard->pages, key->page_hash)];
	const struct desc *desc;

	for (; no; no = desc->chain) {
		desc = &store->arena.descs[no - 1];
		if (desc->object == object && desc->index == key->index)
			return no;
	}
	return 0;
}

static void list_add(struct store *store, struct page_list *list, uint32_t no)
{
	struct desc *descs = store->arena.descs;

	descs[no - 1].newer = 0;
	descs[no - 1].older = list->newest;
	if (list->newest)
		descs[list->newest - 1].newer = no;
	else
		list->oldest = no;
	list->newest = no;
}

static void list_del(struct store *store, struct page_list *list, uint32_t no)
{
	struct desc *descs = store->arena.descs, *desc = &descs[no - 1];

	if (desc->older)
		descs[desc->older - 1].newer = desc->newer;
	else
		list->oldest = desc->newer;
	if (desc->newer)
		descs[desc->newer - 1].older = desc->older;
	else
		list->newest = desc->older;
}

static struct page_list *list_of(struct store *store, struct shard *shard, uint32_t no)
{
	const struct desc *desc = &store->arena.descs[no - 1];

	return &shard->lists[store->arena.objects[desc->object - 1].pool - 1];
}

void page_link(struct store *store, struct shard *shard, uint32_t no, uint64_t hash)
{
	struct desc *desc = &store->arena.descs[no - 1];
	struct object *object = &store->arena.objects[desc->object - 1];

	table_insert(store, &shard->pages, true, no, hash);
	list_add(store, list_of(store, shard, no), no);
	object->pages++;
	if (desc->index < object->low)
		object->low = desc->index;
	if (desc->index > object->high)
		object->high = desc->index;
}

/* The hand that stands at a page that leaves its list goes on. */
static void lead_hand(struct store *store, struct shard *shard, uint32_t no)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	uint32_t *hand = &shard->hands[store->arena.objects[desc->object - 1].pool - 1];

	if (*hand == no)
		*hand = desc->newer;
}

void page_unlink(struct store *store, struct shard *shard, uint32_t no, uint64_t hash)
{
	for (struct cursor *cursor = shard->cursors; cursor; cursor = cursor->next)
		if (cursor->at == no)
			cursor->at = store->arena.descs[no - 1].newer;
	if (shard->hands)
		lead_hand(store, shard, no);
	list_del(store, list_of(store, shard, no), no);
	table_remove(store, &shard->pages, true, no, hash);
	store->arena.objects[store->arena.descs[no - 1].object - 1].pages--;
}

void page_touch(struct store *store, struct shard *shard, uint32_t no)
{
	struct page_list *list = list_of(store, shard, no);

	list_del(store, list, no);
	list_add(store, list, no);
}

static _Atomic uint32_t *page_bucket(const struct store *store, const struct key *key)
{
	const struct table *table = &store->shards[key->shard].pages;

	return &table->buckets[bucket_of(table, key->page_hash)];
}

/*
 * Three passes over a batch, so that the cache misses of one page overlap with those of the others:
 * bucket, descriptor, stored bytes. Hints without the lock: what is read here decides nothing.
 */
void index_prefetch(struct store *store, const struct key *keys, unsigned nr)
{
	const struct desc *desc[STORE_BATCH];
	unsigned found = 0;

	for (unsigned i = 0; i < nr; i++)
		__builtin_prefetch(page_bucket(store, &keys[i]));
	for (unsigned i = 0; i < nr; i++) {
		uint32_t no =
			atomic_load_explicit(page_bucket(store, &keys[i]), memory_order_relaxed);

		if (!no)
			continue;
		desc[found] = &store->arena.descs[no - 1];
		__builtin_prefetch(desc[found]);
		__builtin_prefetch((const char *)(desc[found++] + 1) - 1);
	}
	for (unsigned i = 0; i < found; i++) {
		uint64_t word = atomic_load_explicit(&desc[i]->word, memory_order_relaxed);

		if (!word_has_place(word) || !WORD_LOC(word) ||
		    WORD_LOC(word) > store->arena.sb->capacity / 8)
			continue;
		for (unsigned line = 0; line < PREFETCH_LINES; line++)
			__builtin_prefetch(alloc_bytes(&store->alloc, WORD_LOC(word)) + line * 64);
	}
}

/* ---- All ------------------------------------------------------------------------------------ */

int index_init(struct store *store)
{
	const struct superblock *sb = store->arena.sb;

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *shard = &store->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		/* Twice an even share: shards differ. */
		if (table_init(store, &shard->pages, sb->max_descs / NR_SHARDS * 2) ||
		    table_init(store, &shard->objects, sb->max_objects / NR_SHARDS * 2))
			return -ENOMEM;
		shard->lists =
			mmap(NULL, ARENA_MAX_POOLS * sizeof(*shard->lists), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (shard->lists == MAP_FAILED) {
			shard->lists = NULL;
			return -ENOMEM;
		}
		store->index_bytes += ARENA_MAX_POOLS * sizeof(*shard->lists);
	}
	return 0;
}

static void unmap(void *p, uint64_t len)
{
	if (p)
		munmap(p, len);
}

void index_fini(struct store *store)
{
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *shard = &store->shards[i];

		unmap((void *)shard->pages.buckets, (uint64_t)shard->pages.max * 4);
		unmap((void *)shard->objects.buckets, (uint64_t)shard->objects.max * 4);
		unmap(shard->lists, ARENA_MAX_POOLS * sizeof(*shard->lists));
	}
}

bool index_grow(struct store *store)
{
	bool any = false;

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		any |= table_grow(store, &store->shards[i].pages);
		any |= table_grow(store, &store->shards[i].objects);
	}
	return any;
}
