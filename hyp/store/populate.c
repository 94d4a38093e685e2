// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory from the host and back to it. All of it goes through here, ahead of need, so that a put
 * finds memory that is populated and mapped, or is refused; it never faults a page in.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "store/store_priv.h"

#define EVICT_BATCH 256
/* A chunk and its slabs' private twins. */
#define CHUNK_COST (CHUNK_BYTES + CHUNK_SLABS * sizeof(struct slab))

static uint64_t area_bytes(uint64_t items, size_t size)
{
	return (items * size + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
}

uint64_t pool_bytes(const struct store *store)
{
	const struct superblock *sb = store->arena.sb;
	uint64_t chunks = atomic_load(&store->alloc.nr_populated);

	return sb->objects_off + area_bytes(sb->objects_high, sizeof(struct object)) +
	       area_bytes(sb->descs_high, sizeof(struct desc)) +
	       area_bytes(sb->away_high, sizeof(struct away_rec)) + chunks * CHUNK_BYTES +
	       chunks * CHUNK_SLABS * sizeof(struct slab) + atomic_load(&store->index_bytes);
}

/* May the pool take `bytes` more now? */
static bool may_grow(const struct store *store, uint64_t bytes)
{
	return pool_bytes(store) + bytes <= atomic_load(&store->pool_max) &&
	       bytes <= atomic_load(&store->host_left) && !atomic_load(&store->reclaim_want);
}

static void update_growth(struct store *store, bool host_has)
{
	uint64_t have = pool_bytes(store), max = atomic_load(&store->pool_max), chunks = 0;
	uint64_t host = atomic_load(&store->host_left);

	if (host_has && have < max)
		chunks = (max - have < host ? max - have : host) / CHUNK_BYTES;
	atomic_store(&store->alloc.growth, chunks * CHUNK_SLABS);
}

/*
 * A full pool whose pages go away needs tables that grow still: a free chunk of payload goes for
 * each. The host gains and loses nothing by it.
 */
static bool swap_chunk(struct store *store)
{
	if (!atomic_load(&store->away.tier) || !alloc_chunk_return(&store->alloc))
		return false;
	counter_add(&store->counters[STORE_CHUNKS_RETURNED], 1);
	return true;
}

/* One more chunk for a table of the arena. */
static bool table_more(struct store *store, uint64_t off, _Atomic uint64_t *high, uint64_t max,
		       size_t size)
{
	uint64_t have = area_bytes(*high, size), items;

	if (*high == max || (!may_grow(store, CHUNK_BYTES) && !swap_chunk(store)) ||
	    arena_populate(&store->arena, off + have, CHUNK_BYTES))
		return false;
	pressure_taken(store, CHUNK_BYTES);
	fault(FAULT_TABLE_POPULATED);
	items = (have + CHUNK_BYTES) / size;
	atomic_store(high, items < max ? items : max);
	return true;
}

static int chunk_more(struct store *store)
{
	int r = alloc_chunk_add(&store->alloc);

	counter_add(&store->counters[r ? STORE_POPULATE_FAILED : STORE_CHUNKS_POPULATED], 1);
	if (!r)
		pressure_taken(store, CHUNK_COST);
	return r;
}

static uint64_t wanted_slabs(const struct store *store)
{
	return (uint64_t)store->ready_chunks * CHUNK_SLABS + alloc_needed_slabs(&store->alloc);
}

bool populate_step(struct store *store)
{
	struct superblock *sb = store->arena.sb;
	uint64_t credits = atomic_load(&store->alloc.credits);
	bool any = index_grow(store);
	int r = 0;

	if (sb->descs_high - atomic_load(&store->desc_next) < DESCS_AHEAD + credits)
		any |= table_more(store, sb->descs_off, &sb->descs_high, sb->max_descs,
				  sizeof(struct desc));
	if (sb->objects_high - atomic_load(&store->object_next) < OBJECTS_AHEAD + credits)
		any |= table_more(store, sb->objects_off, &sb->objects_high, sb->max_objects,
				  sizeof(struct object));
	if (away_wants_table(store))
		any |= table_more(store, store->arena.away_off, &sb->away_high,
				  store->arena.max_away, sizeof(struct away_rec));
	if (atomic_load(&store->alloc.free_slabs) < wanted_slabs(store) &&
	    may_grow(store, CHUNK_COST)) {
		r = chunk_more(store);
		any |= !r;
	}
	update_growth(store, r == 0);
	atomic_store(&store->alloc.wake_below,
		     wanted_slabs(store) - store->ready_chunks * CHUNK_SLABS / 4);
	atomic_store(&store->alloc.low, false);
	return any;
}

/* ---- Giving back ---------------------------------------------------------------------------- */

static bool must_shrink(const struct store *store)
{
	return atomic_load(&store->pressure) || atomic_load(&store->reclaim_want) ||
	       pool_bytes(store) > atomic_load(&store->pool_max);
}

static bool return_chunk(struct store *store)
{
	uint64_t want = atomic_load(&store->reclaim_want), left;

	if (!alloc_chunk_return(&store->alloc))
		return false;
	counter_add(&store->counters[STORE_CHUNKS_RETURNED], 1);
	do
		left = want > CHUNK_BYTES ? want - CHUNK_BYTES : 0;
	while (!atomic_compare_exchange_weak(&store->reclaim_want, &want, left));
	return true;
}

bool give_back_step(struct store *store)
{
	uint64_t spare = 2 * (uint64_t)store->ready_chunks + 1;
	bool any;

	if (!must_shrink(store)) {
		/* Surplus goes home too, with room between this and populating again. */
		return atomic_load(&store->alloc.whole_chunks) > spare &&
		       atomic_load(&store->alloc.free_slabs) >
			       wanted_slabs(store) + spare / 2 * CHUNK_SLABS &&
		       return_chunk(store);
	}
	if (return_chunk(store))
		return true;
	any = compact_step(store, true);
	if (!any)
		any = evict_pages(store, EVICT_BATCH) > 0;
	if (!any)
		any = remotify_step(store);
	return any;
}

/*
 * The pool is full and cannot grow: ephemeral pages make room for what comes, then persistent ones
 * go to the tier, and sparse slabs are drained so that the room is of use to every size.
 */
bool make_room_step(struct store *store)
{
	uint64_t low = alloc_needed_slabs(&store->alloc) + CHUNK_SLABS / 2;

	if (atomic_load(&store->alloc.free_slabs) >= low) {
		atomic_store(&store->starving, false);
		return false;
	}
	if (compact_step(store, false))
		return true;
	return evict_pages(store, EVICT_BATCH) > 0 || remotify_step(store);
}

/* Free places within used slabs above 1/16 of all: compaction pays. */
bool tidy_step(struct store *store)
{
	uint64_t all = atomic_load(&store->alloc.used_slabs) * SLAB_BYTES;

	if (all < 16 * CHUNK_BYTES || alloc_wasted(&store->alloc) < all / 16)
		return false;
	return compact_step(store, false);
}

uint64_t store_freeable(struct store *store)
{
	struct alloc *alloc = &store->alloc;
	uint64_t slabs = atomic_load(&alloc->free_slabs) + alloc_drainable_slabs(alloc);
	uint64_t needed = alloc_needed_slabs(alloc), ephemeral = ephemeral_bytes(store);

	/* Each class may keep a slab that persistent pages share with ephemeral ones. */
	ephemeral /= SLAB_BYTES;
	slabs += ephemeral > alloc->nr_classes ? ephemeral - alloc->nr_classes : 0;
	slabs = slabs > needed ? slabs - needed : 0;
	/* One chunk stays as the place to move things through. */
	slabs /= CHUNK_SLABS;
	return slabs > 1 ? (slabs - 1) * CHUNK_BYTES : 0;
}

uint64_t store_reclaim(struct store *store, uint64_t bytes, unsigned deadline_ms)
{
	uint64_t end = clock_ns() + deadline_ms * CLOCK_MS, left = 0, gone = 0;
	bool more = true;

	bytes = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
	atomic_fetch_add(&store->reclaim_want, bytes);
	while (more && gone < bytes && clock_ns() < end) {
		uint64_t before;

		pthread_mutex_lock(&store->work);
		before = counter_get(&store->counters[STORE_CHUNKS_RETURNED]);
		more = pool_sweep(store) || give_back_step(store);
		gone += (counter_get(&store->counters[STORE_CHUNKS_RETURNED]) - before) *
			CHUNK_BYTES;
		pthread_mutex_unlock(&store->work);
	}
	/* What was not reached is no longer wanted. */
	left = gone < bytes ? bytes - gone : 0;
	for (uint64_t want = atomic_load(&store->reclaim_want); left;) {
		uint64_t less = want > left ? want - left : 0;

		if (atomic_compare_exchange_weak(&store->reclaim_want, &want, less))
			break;
	}
	return gone;
}
