// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Making the private part again from the arena, at start.
 *
 * One scan of the object table and one of the descriptors. Nothing in the arena is believed: a
 * descriptor counts when its object, its pool and its place are sound. Of two descriptors of one
 * handle the one with the higher sequence wins (a put was killed between publishing the new and
 * freeing the old). Ephemeral pages are dropped.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "store/store_priv.h"

struct tally {
	uint64_t kept, dropped, damaged;
	uint64_t last; /* highest live descriptor */
};

/* Entries that no descriptor names are freed at the end: they may come from a killed put. */
static void scan_objects(struct store *store)
{
	uint64_t high = atomic_load(&store->arena.sb->objects_high);

	for (uint64_t no = 1; no <= high; no++) {
		struct object *object = &store->arena.objects[no - 1];
		uint32_t pool = atomic_load(&object->pool);

		object->pages = 0;
		object->shard = NR_SHARDS; /* not known yet */
		if (pool > ARENA_MAX_POOLS ||
		    (pool && atomic_load(&store->pools[pool - 1].state) != RECORD_LIVE)) {
			atomic_store(&object->pool, 0);
			fault(FAULT_REBUILD_OBJECT);
		}
	}
}

/* The shard of a descriptor's handle, or NULL when its object cannot be right. */
static struct shard *shard_for(struct store *store, uint32_t no, struct key *key)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	struct object *object;

	if (!desc->object || desc->object > atomic_load(&store->arena.sb->objects_high))
		return NULL;
	object = &store->arena.objects[desc->object - 1];
	if (!object->pool)
		return NULL;
	key_make(store, key, object->pool - 1, object->id, desc->index);
	if (object->shard == NR_SHARDS)
		object_insert(store, &store->shards[key->shard], desc->object);
	return object->shard == key->shard ? &store->shards[key->shard] : NULL;
}

static bool word_sound(const struct store *store, const struct desc *desc, uint64_t word)
{
	if (WORD_STATE(word) != DESC_LIVE || WORD_CODEC(word) >= CODEC_NR)
		return false;
	return WORD_CODEC(word) == CODEC_SAME ||
	       alloc_sound(&store->alloc, WORD_LOC(word), DESC_LEN(desc));
}

static void account(struct store *store, struct shard *shard, uint32_t no, int sign)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	struct pool *pool = pool_of(store, desc);
	uint32_t cost = page_cost(store, desc);

	atomic_fetch_add(&pool->pages, sign);
	atomic_fetch_add(&pool->bytes, (int64_t)sign * cost);
	counter_add(&pool->owner->counters[CLIENT_PAGES_PERSISTENT], sign);
	if (sign > 0)
		client_charge(pool->owner, cost);
	else
		client_uncharge(pool->owner, cost);
	if (WORD_CODEC(desc->word) != CODEC_SAME)
		shard->stored_bytes += (int64_t)sign * DESC_LEN(desc);
}

/* Takes a descriptor that was kept out again. */
static void take_out(struct store *store, struct shard *shard, uint32_t no, const struct key *key)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);

	account(store, shard, no, -1);
	page_unlink(store, shard, no, key->page_hash);
	if (WORD_CODEC(word) != CODEC_SAME)
		alloc_unclaim(&store->alloc, WORD_LOC(word));
	atomic_store(&desc->word, 0);
}

/*
 * Claims the place of descriptor `no`. When an earlier one has it, one of the two is damaged: the
 * object says whose it is. (Only then is the payload looked at: the scan need not touch it all.)
 */
static bool claim_place(struct store *store, uint32_t no, uint64_t loc)
{
	struct key key;

	if (alloc_claim(&store->alloc, loc))
		return true;
	if (alloc_owner(&store->alloc, loc) != no)
		return false;
	for (uint32_t other = 1; other < no; other++) {
		uint64_t word = atomic_load(&store->arena.descs[other - 1].word);
		struct shard *shard;

		if (WORD_STATE(word) != DESC_LIVE || WORD_CODEC(word) == CODEC_SAME ||
		    WORD_LOC(word) != loc)
			continue;
		shard = shard_for(store, other, &key);
		take_out(store, shard, other, &key);
		log_msg(LOG_ERROR, "arena %s: descriptor %u claims the place of another",
			store->arena.path, other);
		break;
	}
	return alloc_claim(&store->alloc, loc);
}

enum verdict { KEEP, DROP, DAMAGED };

static enum verdict take_desc(struct store *store, uint32_t no)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);
	struct shard *shard;
	struct key key;
	uint32_t other;

	if (!word_sound(store, desc, word))
		return DAMAGED;
	shard = shard_for(store, no, &key);
	if (!shard)
		return DROP; /* of a pool that ended */
	if (!pool_persistent(&store->pools[key.pool]))
		return DROP;
	if (WORD_CODEC(word) != CODEC_SAME && !claim_place(store, no, WORD_LOC(word)))
		return DAMAGED;
	other = page_find(store, shard, &key, desc->object);
	if (other && DESC_SEQ(&store->arena.descs[other - 1]) >= DESC_SEQ(desc)) {
		if (WORD_CODEC(word) != CODEC_SAME)
			alloc_unclaim(&store->alloc, WORD_LOC(word));
		return DROP;
	}
	if (other) {
		take_out(store, shard, other, &key);
		fault(FAULT_REBUILD_OLD_OUT);
	}
	page_link(store, shard, no, key.page_hash);
	account(store, shard, no, 1);
	if (DESC_SEQ(desc) > shard->seq)
		shard->seq = DESC_SEQ(desc);
	return KEEP;
}

static void scan_descs(struct store *store, struct tally *tally)
{
	uint64_t high = atomic_load(&store->arena.sb->descs_high);

	for (uint64_t no = 1; no <= high; no++) {
		struct desc *desc = &store->arena.descs[no - 1];
		enum verdict verdict;

		/* Buckets are populated as the number of pages grows. */
		if (no % 65536 == 0)
			while (index_grow(store))
				;
		if (!atomic_load(&desc->word))
			continue;
		verdict = take_desc(store, no);
		if (verdict == KEEP) {
			tally->kept++;
			tally->last = no;
			continue;
		}
		atomic_store(&desc->word, 0);
		fault(FAULT_REBUILD_DROPPED);
		if (verdict == DAMAGED)
			tally->damaged++;
		else
			tally->dropped++;
	}
}

/* Free entries below the last live one go to the shards; the rest is dealt out later. */
static void deal_out(struct store *store, uint64_t last_desc)
{
	uint64_t high = atomic_load(&store->arena.sb->objects_high), last_object = 0;

	store->desc_next = (last_desc + DESC_BLOCK - 1) / DESC_BLOCK * DESC_BLOCK;
	if (store->desc_next > atomic_load(&store->arena.sb->descs_high))
		store->desc_next = atomic_load(&store->arena.sb->descs_high);
	for (uint64_t no = store->desc_next; no > 0; no--)
		if (!atomic_load(&store->arena.descs[no - 1].word))
			desc_release(store, &store->shards[no / DESC_BLOCK % NR_SHARDS], no);
	for (uint64_t no = 1; no <= high; no++) {
		struct object *object = &store->arena.objects[no - 1];

		if (object->shard < NR_SHARDS)
			object_unuse(store, &store->shards[object->shard], no);
		else
			atomic_store(&object->pool, 0);
		if (object->pool)
			last_object = no;
	}
	/* Those that object_unuse() put into a free list are below or above: deal out anew. */
	for (unsigned i = 0; i < NR_SHARDS; i++)
		store->shards[i].free_objects = 0;
	store->object_next = last_object;
	for (uint64_t no = last_object; no > 0; no--)
		if (!store->arena.objects[no - 1].pool)
			object_release(store, &store->shards[no / OBJECT_BLOCK % NR_SHARDS], no);
}

int rebuild(struct store *store)
{
	uint64_t start = clock_ns();
	struct superblock *sb = store->arena.sb;
	struct tally tally = {0};

	/* Bounds that a damaged superblock cannot widen. */
	if (sb->descs_high > sb->max_descs || sb->objects_high > sb->max_objects)
		return -1;
	fault_in(store->arena.objects, (sb->objects_high * sizeof(struct object) + 4095) & ~4095ul);
	fault_in(store->arena.descs, (sb->descs_high * sizeof(struct desc) + 4095) & ~4095ul);
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		client_attach_rec(store, i);
	pools_rebuild(store);
	fault(FAULT_REBUILD_POOLS);
	alloc_rebuild_begin(&store->alloc);
	scan_objects(store);
	scan_descs(store, &tally);
	alloc_rebuild_end(&store->alloc);
	deal_out(store, tally.last);
	fault(FAULT_REBUILD_DONE);
	counter_set(&store->counters[STORE_REBUILT], tally.kept);
	counter_set(&store->counters[STORE_REBUILD_NS], clock_ns() - start);
	if (tally.damaged)
		log_msg(LOG_ERROR, "arena %s: %llu damaged descriptors dropped", store->arena.path,
			(unsigned long long)tally.damaged);
	return 0;
}
