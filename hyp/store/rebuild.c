// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Making the private part again from the arena, at start.
 *
 * One scan of the object table and one of the descriptors. Nothing in the arena is believed: a
 * descriptor counts when its object, its pool and its place (or its entry of the away table) are
 * sound. Of two descriptors of one handle the one with the higher sequence wins (a put was killed
 * between publishing the new and freeing the old), unless damage made it stray from another handle;
 * see choose(). Ephemeral pages are dropped.
 *
 * The first descriptor of an object says which shard the object belongs to, and an error there
 * would cost all its pages. So it must be one whose stored bytes are intact; others wait until
 * all descriptors were seen.
 *
 * An object whose pages are spread over several shards has an entry of its own, of the same name,
 * in each. A descriptor whose bytes are intact and that names the entry of another shard has only
 * strayed: it is led to its own shard's. Else a single wrong number there could give the entry to a
 * shard that is not its own, and all its pages would be lost.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "store/store_priv.h"

#define LATER_MAX 1024 /* descriptors that wait; more are dropped as damaged */

struct tally {
	uint64_t kept, dropped, damaged;
	uint64_t last; /* highest live descriptor */
	unsigned nr_later;
	uint32_t later[LATER_MAX];
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

enum verdict { KEEP, DROP, DAMAGED, LATER };

/* Finds the shard of an object by its descriptor `desc`. */
static enum verdict place_object(struct store *store, const struct key *key,
				 const struct desc *desc, bool last_chance)
{
	struct shard *shard = &store->shards[key->shard];

	if (!last_chance && !page_intact(store, key, desc))
		return LATER;
	/* Another entry has this name, and only one of them can. */
	if (object_find(store, shard, key))
		return DAMAGED;
	object_insert(store, shard, desc->object);
	return KEEP;
}

/*
 * A free entry of the object table, or a new one; 0: there is none. Until entries are dealt out,
 * object_next says how far the search has come.
 */
static uint32_t spare_object(struct store *store)
{
	struct superblock *sb = store->arena.sb;
	uint64_t high = atomic_load(&sb->objects_high);

	while (store->object_next < high)
		if (!atomic_load(&store->arena.objects[store->object_next++].pool))
			return (uint32_t)store->object_next;
	if (high == sb->max_objects)
		return 0;
	atomic_store(&sb->objects_high, high + 1);
	store->object_next = high + 1;
	return (uint32_t)(high + 1);
}

/* Leads an intact descriptor to its shard's own entry of the object, which is made if need be. */
static enum verdict lead_home(struct store *store, const struct key *key, struct desc *desc)
{
	struct shard *shard = &store->shards[key->shard];
	uint32_t home = object_find(store, shard, key);

	if (!page_intact(store, key, desc))
		return DAMAGED;
	if (!home) {
		struct object *object;

		home = spare_object(store);
		if (!home)
			return DAMAGED;
		object = &store->arena.objects[home - 1];
		memcpy(object->id, key->object, sizeof(object->id));
		atomic_store(&object->pool, key->pool + 1);
		fault(FAULT_REBUILD_OBJECT);
		object_insert(store, shard, home);
	}
	__atomic_store_n(&desc->object, home, __ATOMIC_RELEASE);
	return KEEP;
}

/* The shard of a descriptor's handle, or why it does not count. */
static enum verdict shard_for(struct store *store, uint32_t no, struct key *key,
			      struct shard **shard, bool last_chance)
{
	struct desc *desc = &store->arena.descs[no - 1];
	enum verdict verdict = KEEP;
	struct object *object;

	if (!desc->object || desc->object > atomic_load(&store->arena.sb->objects_high))
		return DROP;
	object = &store->arena.objects[desc->object - 1];
	/* Of a pool that ended, or does not outlive us. */
	if (!object->pool || !pool_persistent(&store->pools[object->pool - 1]))
		return DROP;
	key_make(store, key, object->pool - 1, object->id, desc->index);
	*shard = &store->shards[key->shard];
	if (object->shard == NR_SHARDS)
		verdict = place_object(store, key, desc, last_chance);
	if (verdict == DAMAGED || (verdict == KEEP && object->shard != key->shard))
		verdict = lead_home(store, key, desc);
	return verdict;
}

static bool away_sound(const struct store *store, const struct desc *desc, uint64_t word)
{
	uint64_t rec = WORD_LOC(word);
	uint32_t codec;

	if (!store->away.claimed || rec < AWAY_KEYS || DESC_LEN(desc) > MAX_STORED ||
	    rec >= atomic_load(&store->arena.sb->away_high))
		return false;
	codec = AWAY_CODEC_OF(atomic_load(&store->arena.away[rec].where));
	return codec == CODEC_RAW || codec == CODEC_LZ4;
}

static bool word_sound(const struct store *store, const struct desc *desc, uint64_t word)
{
	if (WORD_STATE(word) != DESC_LIVE || WORD_CODEC(word) >= CODEC_NR)
		return false;
	if (WORD_CODEC(word) == CODEC_AWAY)
		return away_sound(store, desc, word);
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
	if (word_has_place(desc->word))
		shard->stored_bytes += (int64_t)sign * DESC_LEN(desc);
	if (WORD_CODEC(desc->word) == CODEC_AWAY) {
		counter_add(&pool->owner->counters[CLIENT_PAGES_AWAY], sign);
		atomic_fetch_add(&store->away.pages, sign);
	}
}

static void unclaim(struct store *store, uint32_t no)
{
	uint64_t word = atomic_load(&store->arena.descs[no - 1].word);

	if (word_has_place(word))
		alloc_unclaim(&store->alloc, WORD_LOC(word));
	else if (WORD_CODEC(word) == CODEC_AWAY)
		away_unclaim(store, (uint32_t)WORD_LOC(word));
}

/* Takes a descriptor that was kept out again; what it says stays. */
static void take_out(struct store *store, struct shard *shard, uint32_t no, const struct key *key)
{
	account(store, shard, no, -1);
	page_unlink(store, shard, no, key->page_hash);
	unclaim(store, no);
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

		if (WORD_STATE(word) != DESC_LIVE || !word_has_place(word) || WORD_LOC(word) != loc)
			continue;
		/* One that waits for the end has no place. */
		if (shard_for(store, other, &key, &shard, false) != KEEP ||
		    page_find(store, shard, &key, store->arena.descs[other - 1].object) != other)
			continue;
		take_out(store, shard, other, &key);
		atomic_store(&store->arena.descs[other - 1].word, 0);
		log_msg(LOG_ERROR, "arena %s: descriptor %u claims the place of another",
			store->arena.path, other);
		break;
	}
	return alloc_claim(&store->alloc, loc);
}

/* Lets the descriptor wait until all others were seen. */
static bool postpone(struct tally *tally, uint32_t no)
{
	if (tally->nr_later == LATER_MAX)
		return false;
	tally->later[tally->nr_later++] = no;
	return true;
}

/*
 * `no` and `other`, which was kept, have the same handle: KEEP, `other` is out. The newer one
 * counts, but when its bytes are damaged, only if it has the highest sequence of the shard, as
 * the put has that was killed; that is known when all were seen.
 */
static enum verdict choose(struct store *store, struct tally *tally, struct shard *shard,
			   const struct key *key, uint32_t no, uint32_t other, bool last_chance)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	const struct desc *there = &store->arena.descs[other - 1];
	bool newer = DESC_SEQ(desc) > DESC_SEQ(there), counts;

	counts = page_intact(store, key, newer ? desc : there);
	if (!counts && !last_chance) {
		if (newer)
			return LATER;
		take_out(store, shard, other, key);
		if (!postpone(tally, other))
			atomic_store(&store->arena.descs[other - 1].word, 0);
		return KEEP;
	}
	if (!counts)
		counts = (newer ? DESC_SEQ(desc) : DESC_SEQ(there)) >= shard->seq;
	if (counts != newer)
		return DROP;
	take_out(store, shard, other, key);
	atomic_store(&store->arena.descs[other - 1].word, 0);
	fault(FAULT_REBUILD_OLD_OUT);
	return KEEP;
}

static enum verdict take_desc(struct store *store, struct tally *tally, uint32_t no,
			      bool last_chance)
{
	struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);
	enum verdict verdict;
	struct shard *shard;
	struct key key;
	uint32_t other;

	if (!word_sound(store, desc, word))
		return DAMAGED;
	verdict = shard_for(store, no, &key, &shard, last_chance);
	if (verdict != KEEP)
		return verdict;
	if (word_has_place(word) && !claim_place(store, no, WORD_LOC(word)))
		return DAMAGED;
	/* An entry that belongs to another page has nothing of this one. */
	if (WORD_CODEC(word) == CODEC_AWAY &&
	    (!page_intact(store, &key, desc) || !away_claim(store, (uint32_t)WORD_LOC(word))))
		return DAMAGED;
	other = page_find(store, shard, &key, desc->object);
	if (other)
		verdict = choose(store, tally, shard, &key, no, other, last_chance);
	if (verdict != KEEP) {
		unclaim(store, no);
		return verdict;
	}
	page_link(store, shard, no, key.page_hash);
	account(store, shard, no, 1);
	if (DESC_SEQ(desc) > shard->seq)
		shard->seq = DESC_SEQ(desc);
	return KEEP;
}

static void judge(struct store *store, struct tally *tally, uint32_t no, bool last_chance)
{
	enum verdict verdict = take_desc(store, tally, no, last_chance);

	if (verdict == LATER && postpone(tally, no))
		return;
	if (verdict == KEEP) {
		tally->kept++;
		if (no > tally->last)
			tally->last = no;
		return;
	}
	atomic_store(&store->arena.descs[no - 1].word, 0);
	fault(FAULT_REBUILD_DROPPED);
	if (verdict == DROP)
		tally->dropped++;
	else
		tally->damaged++;
}

static void scan_descs(struct store *store, struct tally *tally)
{
	uint64_t high = atomic_load(&store->arena.sb->descs_high);

	for (uint64_t no = 1; no <= high; no++) {
		/* Buckets are populated as the number of pages grows. */
		if (no % 65536 == 0)
			while (index_grow(store))
				;
		if (atomic_load(&store->arena.descs[no - 1].word))
			judge(store, tally, no, false);
	}
	for (unsigned i = 0; i < tally->nr_later; i++)
		judge(store, tally, tally->later[i], true);
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
	if (!away_rebuild_begin(store))
		return -1;
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		client_attach_rec(store, i);
	pools_rebuild(store);
	fault(FAULT_REBUILD_POOLS);
	alloc_rebuild_begin(&store->alloc);
	scan_objects(store);
	scan_descs(store, &tally);
	alloc_rebuild_end(&store->alloc);
	away_rebuild_end(store);
	deal_out(store, tally.last);
	fault(FAULT_REBUILD_DONE);
	counter_set(&store->counters[STORE_REBUILT], tally.kept);
	counter_set(&store->counters[STORE_REBUILD_NS], clock_ns() - start);
	if (tally.damaged)
		log_msg(LOG_ERROR, "arena %s: %llu damaged descriptors dropped", store->arena.path,
			(unsigned long long)tally.damaged);
	return 0;
}
