// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/fuzz/audit.h"

#include "store/store_priv.h"
#include "tests/fuzz/fuzz.h"

struct books {
	struct store *store;
	uint64_t places;
	uint64_t pages[NR_SHARDS];
	uint64_t stored[NR_SHARDS];
	uint64_t charged[STORE_MAX_CLIENTS];
};

static void audit_place(struct books *b, const struct desc *desc, uint32_t no, uint64_t word)
{
	struct alloc *alloc = &b->store->alloc;
	uint64_t off = (WORD_LOC(word) - 1) * 8;
	const struct slab *slab = &alloc->slabs[off / SLAB_BYTES];
	unsigned i;

	MUST(alloc_sound(alloc, WORD_LOC(word), DESC_LEN(desc)), "page %u: no sound place", no);
	i = off % SLAB_BYTES / alloc->classes[slab->cls].size;
	MUST(slab->map[i / 64] >> i % 64 & 1, "page %u: its place counts as free", no);
	b->places++;
}

static void audit_page(struct books *b, unsigned s, uint32_t no, uint32_t pool)
{
	struct store *store = b->store;
	const struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);
	const struct object *object;
	struct key key;

	MUST(no <= store->arena.sb->descs_high, "page %u is beyond the table", no);
	MUST(WORD_STATE(word) == DESC_LIVE, "page %u is in a list and not live", no);
	MUST(desc->object && desc->object <= store->arena.sb->objects_high, "page %u has no object",
	     no);
	object = &store->arena.objects[desc->object - 1];
	MUST(object->pool == pool + 1, "page %u is in another pool's list", no);
	key_make(store, &key, pool, object->id, desc->index);
	MUST(key.shard == s && object->shard == s, "page %u is in another shard's list", no);
	MUST(page_find(store, &store->shards[s], &key, desc->object) == no,
	     "page %u is not found by its handle", no);
	MUST(desc->index >= object->low && desc->index <= object->high,
	     "page %u is outside of its object's bounds", no);
	b->pages[s]++;
	if (WORD_CODEC(word) == CODEC_SAME)
		return;
	b->stored[s] += DESC_LEN(desc);
	audit_place(b, desc, no, word);
}

static void audit_pool(struct books *b, uint32_t pool)
{
	struct store *store = b->store;
	uint64_t pages = 0, bytes = 0;

	for (unsigned s = 0; s < NR_SHARDS; s++) {
		const struct page_list *list = &store->shards[s].lists[pool];
		uint32_t before = 0;

		for (uint32_t no = list->oldest; no; no = store->arena.descs[no - 1].newer) {
			audit_page(b, s, no, pool);
			MUST(store->arena.descs[no - 1].older == before, "page %u: broken list",
			     no);
			bytes += page_cost(store, &store->arena.descs[no - 1]);
			pages++;
			before = no;
		}
		MUST(list->newest == before, "pool %u: broken list", pool);
	}
	MUST(store->pools[pool].pages == pages, "pool %u: %llu pages, counted %llu", pool,
	     (unsigned long long)pages, (unsigned long long)store->pools[pool].pages);
	MUST(store->pools[pool].bytes == bytes, "pool %u: wrong bytes", pool);
	if (store->pools[pool].owner)
		b->charged[store->pools[pool].owner - store->clients] += bytes;
	else
		MUST(!pages, "pool %u: nobody pays", pool);
}

static void audit_clients(struct books *b)
{
	struct alloc *alloc = &b->store->alloc;
	uint64_t credits = 0, unused = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		struct store_client *client = &b->store->clients[i];
		uint64_t have, min;

		if (!client->rec)
			continue;
		have = counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]);
		min = client->min_bytes;
		MUST(have == b->charged[i], "client %u pays for %llu bytes, has %llu", i,
		     (unsigned long long)have, (unsigned long long)b->charged[i]);
		MUST(counter_get(&client->counters[CLIENT_CREDITS]) == client->credits,
		     "client %u: credits", i);
		credits += client->credits;
		unused += min > have ? min - have : 0;
	}
	MUST(alloc->credits == credits, "credits: reserved %llu, held %llu",
	     (unsigned long long)alloc->credits, (unsigned long long)credits);
	MUST(alloc->min_unused == unused, "minimums that are not used");
}

static void audit_slabs(const struct books *b)
{
	const struct alloc *alloc = &b->store->alloc;
	uint64_t taken = 0, used = 0;

	for (uint64_t no = 0; no < alloc->arena->nr_chunks * CHUNK_SLABS; no++) {
		const struct slab *slab = &alloc->slabs[no];
		unsigned bits = 0;

		if (slab->use == SLAB_FREE)
			continue;
		for (unsigned w = 0; w < MAX_SLAB_OBJECTS / 64; w++)
			bits += __builtin_popcountll(slab->map[w]);
		MUST(bits == slab->used, "slab %llu: %u places taken, counted %u",
		     (unsigned long long)no, bits, slab->used);
		taken += bits;
		used++;
	}
	MUST(taken == b->places, "%llu places taken by %llu pages", (unsigned long long)taken,
	     (unsigned long long)b->places);
	MUST(used == alloc->used_slabs, "%llu slabs used, counted %llu", (unsigned long long)used,
	     (unsigned long long)alloc->used_slabs);
}

void audit_store(struct store *store)
{
	struct books b = {.store = store};

	for (uint32_t pool = 0; pool < ARENA_MAX_POOLS; pool++)
		if (atomic_load(&store->pools[pool].state) != RECORD_FREE)
			audit_pool(&b, pool);
	for (unsigned s = 0; s < NR_SHARDS; s++) {
		MUST(store->shards[s].pages.items == b.pages[s], "shard %u: pages", s);
		MUST(store->shards[s].stored_bytes == b.stored[s], "shard %u: stored bytes", s);
	}
	audit_clients(&b);
	audit_slabs(&b);
}
