// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Moving pages together, so that whole slabs, then whole chunks, become free.
 *
 * An object is found by walking a slab; the descriptor that its header names is believed only
 * under its shard's lock and when it names this very place. A move copies the bytes, then switches
 * the descriptor's word in one store: kill -9 leaves the old place or the new one, both whole.
 */
#include <string.h>

#include "base/fault.h"
#include "store/store_priv.h"

/* Objects moved before other background work has its turn. */
#define STEP_OBJECTS 512

/* The shard of a descriptor that may be anything by now; NULL when there is none. */
struct shard *guess_shard(struct store *store, uint32_t no)
{
	const struct desc *desc;
	uint32_t object, shard;

	if (!no || no > atomic_load(&store->arena.sb->descs_high))
		return NULL;
	desc = &store->arena.descs[no - 1];
	object = __atomic_load_n(&desc->object, __ATOMIC_RELAXED);
	if (!object || object > atomic_load(&store->arena.sb->objects_high))
		return NULL;
	shard = __atomic_load_n(&store->arena.objects[object - 1].shard, __ATOMIC_RELAXED);
	return shard < NR_SHARDS ? &store->shards[shard] : NULL;
}

/* Shard lock held; the descriptor is live at `from`. False: no place for it elsewhere. */
static bool move(struct store *store, uint32_t no, uint64_t from, enum alloc_right right)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word), to;
	struct pool *pool = pool_of(store, desc);
	uint32_t cost = page_cost(store, desc), now;

	to = alloc_place(&store->alloc, DESC_LEN(desc), no, right);
	if (!to)
		return false;
	memcpy(alloc_bytes(&store->alloc, to), alloc_bytes(&store->alloc, from), DESC_LEN(desc));
	fault(FAULT_MOVE_COPIED);
	atomic_store_explicit(&desc->word, DESC_WORD(DESC_LIVE, WORD_CODEC(word), to),
			      memory_order_release);
	fault(FAULT_MOVE_SWITCHED);
	alloc_free(&store->alloc, from);
	/* From a misfit place to the right one the cost changes. */
	now = page_cost(store, desc);
	if (now < cost) {
		atomic_fetch_sub(&pool->bytes, cost - now);
		client_uncharge(pool->owner, cost - now);
	} else if (now > cost) {
		atomic_fetch_add(&pool->bytes, now - cost);
		client_charge(pool->owner, now - cost);
	}
	counter_add(&store->counters[STORE_PAGES_MOVED], 1);
	return true;
}

/* False when there is no room for what is in the slab. */
static bool drain(struct store *store, uint32_t slab, enum alloc_right right)
{
	bool room = true;
	unsigned i = 0;
	uint64_t loc;
	uint32_t owner;

	while (room && alloc_next_object(&store->alloc, slab, &i, &loc, &owner)) {
		struct shard *shard = guess_shard(store, owner);
		uint64_t word;

		if (!shard)
			continue;
		pthread_mutex_lock(&shard->lock);
		word = atomic_load(&store->arena.descs[owner - 1].word);
		/* The guess was right if the page is live here and this is its shard. */
		if (WORD_STATE(word) == DESC_LIVE && word_has_place(word) &&
		    WORD_LOC(word) == loc && guess_shard(store, owner) == shard)
			room = move(store, owner, loc, right);
		pthread_mutex_unlock(&shard->lock);
	}
	alloc_drain_end(&store->alloc, slab);
	return room;
}

static bool evacuate(struct store *store)
{
	struct alloc *alloc = &store->alloc;
	uint32_t chunk = alloc_evacuate(alloc), slab;
	bool done = true;

	if (!chunk)
		return false;
	for (unsigned s = 0; s < CHUNK_SLABS && done; s++) {
		slab = (chunk - 1) * CHUNK_SLABS + s;
		if (alloc_drain_slab(alloc, slab))
			done = drain(store, slab, ALLOC_PLAIN);
	}
	done = done && alloc_chunk_empty(alloc, chunk);
	alloc_evacuate_end(alloc, chunk);
	return done;
}

/*
 * One step: drains sparse slabs of the next classes; with for_chunks, when no class has a slab to
 * spare, empties a chunk. False when there was nothing to gain.
 */
bool compact_step(struct store *store, bool for_chunks)
{
	uint64_t moved = counter_get(&store->counters[STORE_PAGES_MOVED]);
	uint32_t slab;

	for (unsigned i = 0; i < store->alloc.nr_classes; i++) {
		unsigned cls = store->compact_class++ % store->alloc.nr_classes;

		slab = alloc_drain_class(&store->alloc, cls);
		if (!slab)
			continue;
		drain(store, slab - 1, ALLOC_MOVE);
		if (counter_get(&store->counters[STORE_PAGES_MOVED]) - moved > STEP_OBJECTS)
			return true;
	}
	/* A slab whose objects could not be moved is no gain: trying again at once would spin. */
	if (counter_get(&store->counters[STORE_PAGES_MOVED]) != moved)
		return true;
	return for_chunks && evacuate(store);
}
