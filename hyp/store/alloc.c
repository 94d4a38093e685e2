// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/alloc.h"
#include "base/fault.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ALL_SLABS ((uint16_t)((1u << CHUNK_SLABS) - 1))

/* ---- Classes and places -------------------------------------------------------------------- */

static void *reserve_space(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void add_class(struct alloc *alloc, uint32_t objects)
{
	struct size_class *class = &alloc->classes[alloc->nr_classes++];

	pthread_mutex_init(&class->lock, NULL);
	class->objects = objects;
	class->size = SLAB_BYTES / objects & ~7u;
}

/* From a raw page downwards: each class at least 1/64 (below 800 bytes 1/32) smaller. */
static void make_classes(struct alloc *alloc)
{
	uint32_t objects = SLAB_BYTES / (MAX_STORED + OBJECT_HEADER), last, size, step;
	unsigned cls;

	add_class(alloc, objects); /* CREDIT_CLASS */
	add_class(alloc, objects); /* RAW_CLASS */
	while ((last = alloc->classes[alloc->nr_classes - 1].size) > MIN_OBJECT) {
		step = last / (last > 800 ? 64 : 32);
		step = step < 8 ? 8 : step;
		do
			size = SLAB_BYTES / ++objects & ~7u;
		while (last - size < step);
		if (size < MIN_OBJECT)
			objects = SLAB_BYTES / MIN_OBJECT;
		add_class(alloc, objects);
	}
	cls = alloc->nr_classes - 1;
	for (unsigned i = 0; i < sizeof(alloc->class_of); i++) {
		while (cls > RAW_CLASS && alloc->classes[cls].size < i * 8)
			cls--;
		alloc->class_of[i] = cls;
	}
}

int alloc_init(struct alloc *alloc, struct arena *arena)
{
	memset(alloc, 0, sizeof(*alloc));
	alloc->arena = arena;
	pthread_mutex_init(&alloc->slab_lock, NULL);
	make_classes(alloc);
	alloc->slabs = reserve_space(arena->nr_chunks * CHUNK_SLABS * sizeof(*alloc->slabs));
	alloc->chunks = reserve_space(arena->nr_chunks * sizeof(*alloc->chunks));
	if (!alloc->slabs || !alloc->chunks) {
		alloc_fini(alloc);
		return -ENOMEM;
	}
	return 0;
}

void alloc_fini(struct alloc *alloc)
{
	uint64_t n;

	if (!alloc->arena)
		return;
	n = alloc->arena->nr_chunks;
	if (alloc->slabs)
		munmap(alloc->slabs, n * CHUNK_SLABS * sizeof(*alloc->slabs));
	if (alloc->chunks)
		munmap(alloc->chunks, n * sizeof(*alloc->chunks));
	alloc->slabs = NULL;
	alloc->chunks = NULL;
}

static unsigned class_for(const struct alloc *alloc, uint32_t len)
{
	return alloc->class_of[(len + OBJECT_HEADER + 7) / 8];
}

uint32_t alloc_cost(const struct alloc *alloc, uint32_t len)
{
	return alloc->classes[class_for(alloc, len)].size;
}

static uint64_t place_loc(const struct alloc *alloc, uint32_t slab, unsigned i)
{
	uint64_t off = (uint64_t)slab * SLAB_BYTES +
		       (uint64_t)i * alloc->classes[alloc->slabs[slab].cls].size;

	return off / 8 + 1;
}

static uint64_t loc_off(uint64_t loc)
{
	return (loc - 1) * 8;
}

static uint32_t loc_slab(uint64_t loc)
{
	return loc_off(loc) / SLAB_BYTES;
}

static _Atomic uint32_t *owner_word(const struct alloc *alloc, uint64_t loc)
{
	return (_Atomic uint32_t *)(alloc->arena->payload + loc_off(loc));
}

uint8_t *alloc_bytes(const struct alloc *alloc, uint64_t loc)
{
	return alloc->arena->payload + loc_off(loc) + OBJECT_HEADER;
}

uint32_t alloc_size_at(const struct alloc *alloc, uint64_t loc)
{
	return alloc->classes[alloc->slabs[loc_slab(loc)].cls].size;
}

/* ---- Bins of a class; class lock held ------------------------------------------------------- */

static unsigned bin_of(const struct size_class *class, const struct slab *slab)
{
	return slab->used * FULLNESS_BINS / class->objects; /* full: FULLNESS_BINS */
}

static void bin_remove(struct alloc *alloc, struct size_class *class, uint32_t no)
{
	struct slab *slab = &alloc->slabs[no];

	if (slab->bin == FULLNESS_BINS)
		return;
	if (slab->prev)
		alloc->slabs[slab->prev - 1].next = slab->next;
	else
		class->bins[slab->bin] = slab->next;
	if (slab->next)
		alloc->slabs[slab->next - 1].prev = slab->prev;
	slab->bin = FULLNESS_BINS;
}

static void bin_insert(struct alloc *alloc, struct size_class *class, uint32_t no)
{
	struct slab *slab = &alloc->slabs[no];

	slab->bin = bin_of(class, slab);
	if (slab->bin == FULLNESS_BINS)
		return;
	slab->prev = 0;
	slab->next = class->bins[slab->bin];
	if (slab->next)
		alloc->slabs[slab->next - 1].prev = no + 1;
	class->bins[slab->bin] = no + 1;
}

static void bin_update(struct alloc *alloc, struct size_class *class, uint32_t no)
{
	if (alloc->slabs[no].bin == bin_of(class, &alloc->slabs[no]))
		return;
	bin_remove(alloc, class, no);
	bin_insert(alloc, class, no);
}

/* ---- Chunk lists; slab_lock held ------------------------------------------------------------ */

static void chunk_unlist(struct alloc *alloc, uint32_t no)
{
	struct chunk *chunk = &alloc->chunks[no];

	if (chunk->list == CHUNKS_NONE)
		return;
	if (chunk->prev)
		alloc->chunks[chunk->prev - 1].next = chunk->next;
	else
		alloc->lists[chunk->list] = chunk->next;
	if (chunk->next)
		alloc->chunks[chunk->next - 1].prev = chunk->prev;
	if (chunk->list == CHUNKS_WHOLE)
		atomic_fetch_sub(&alloc->whole_chunks, 1);
	chunk->list = CHUNKS_NONE;
}

static void chunk_list(struct alloc *alloc, uint32_t no)
{
	struct chunk *chunk = &alloc->chunks[no];
	enum chunk_list to = CHUNKS_PARTIAL;

	if (chunk->evacuating || !chunk->free_map)
		to = CHUNKS_NONE;
	else if (chunk->free_map == ALL_SLABS)
		to = CHUNKS_WHOLE;
	if (chunk->list == to)
		return;
	chunk_unlist(alloc, no);
	if (to == CHUNKS_NONE)
		return;
	chunk->list = to;
	chunk->prev = 0;
	chunk->next = alloc->lists[to];
	if (chunk->next)
		alloc->chunks[chunk->next - 1].prev = no + 1;
	alloc->lists[to] = no + 1;
	if (to == CHUNKS_WHOLE)
		atomic_fetch_add(&alloc->whole_chunks, 1);
}

/* Slabs that outstanding credits could need: what the credit class has free comes first. */
static uint64_t credit_slabs(const struct alloc *alloc)
{
	uint64_t credits = atomic_load(&alloc->credits);
	uint64_t have = atomic_load(&alloc->credit_free);
	uint32_t objects = alloc->classes[CREDIT_CLASS].objects;

	return credits > have ? (credits - have + objects - 1) / objects : 0;
}

/* Slabs that unused minimums need beyond what the pool may still grow by; 1/16 for fragments. */
static uint64_t minimum_slabs(const struct alloc *alloc)
{
	uint64_t bytes = atomic_load(&alloc->min_unused);
	uint64_t slabs = (bytes + bytes / 16 + SLAB_BYTES - 1) / SLAB_BYTES;
	uint64_t growth = atomic_load(&alloc->growth);

	return slabs > growth ? slabs - growth : 0;
}

uint64_t alloc_needed_slabs(const struct alloc *alloc)
{
	return credit_slabs(alloc) + minimum_slabs(alloc);
}

static uint64_t left_alone(const struct alloc *alloc, enum alloc_right right)
{
	switch (right) {
	case ALLOC_CREDIT:
		return 0;
	case ALLOC_GUARANTEED:
		return credit_slabs(alloc);
	default:
		return credit_slabs(alloc) + minimum_slabs(alloc);
	}
}

/* A free slab's number + 1, or 0. */
static uint32_t slab_take(struct alloc *alloc, enum alloc_right right)
{
	uint32_t no = 0, chunk_no;
	struct chunk *chunk;

	if (right == ALLOC_MOVE)
		return 0;
	pthread_mutex_lock(&alloc->slab_lock);
	if (atomic_load(&alloc->free_slabs) <= left_alone(alloc, right))
		goto out;
	chunk_no = alloc->lists[CHUNKS_PARTIAL];
	if (!chunk_no)
		chunk_no = alloc->lists[CHUNKS_WHOLE];
	if (!chunk_no)
		goto out;
	chunk = &alloc->chunks[--chunk_no];
	no = chunk_no * CHUNK_SLABS + __builtin_ctz(chunk->free_map) + 1;
	chunk->free_map &= chunk->free_map - 1;
	chunk_list(alloc, chunk_no);
	atomic_fetch_sub(&alloc->free_slabs, 1);
	atomic_fetch_add(&alloc->used_slabs, 1);
out:
	if (atomic_load(&alloc->free_slabs) < atomic_load(&alloc->wake_below))
		atomic_store(&alloc->low, true);
	pthread_mutex_unlock(&alloc->slab_lock);
	return no;
}

static _Atomic uint8_t *slab_class_byte(const struct alloc *alloc, uint32_t no)
{
	return &alloc->arena->chunks[no / CHUNK_SLABS].slab_class[no % CHUNK_SLABS];
}

/* Class lock held; the slab is empty and in no bin. */
static void slab_release(struct alloc *alloc, uint32_t no)
{
	struct chunk *chunk = &alloc->chunks[no / CHUNK_SLABS];

	alloc->classes[alloc->slabs[no].cls].slabs--;
	if (alloc->slabs[no].cls == CREDIT_CLASS)
		atomic_fetch_sub(&alloc->credit_free, alloc->classes[CREDIT_CLASS].objects);
	alloc->slabs[no].use = SLAB_FREE;
	atomic_store(slab_class_byte(alloc, no), 0);
	fault(FAULT_SLAB_RELEASED);
	pthread_mutex_lock(&alloc->slab_lock);
	chunk->free_map |= 1u << no % CHUNK_SLABS;
	atomic_fetch_sub(&alloc->used_slabs, 1);
	if (!chunk->evacuating)
		atomic_fetch_add(&alloc->free_slabs, 1);
	chunk_list(alloc, no / CHUNK_SLABS);
	pthread_mutex_unlock(&alloc->slab_lock);
}

/* Class lock held. A slab with room in its bin; number + 1, or 0. */
static uint32_t slab_with_room(struct alloc *alloc, unsigned cls, enum alloc_right right)
{
	struct size_class *class = &alloc->classes[cls];
	struct slab *slab;
	uint32_t no;

	for (int bin = FULLNESS_BINS - 1; bin >= 0; bin--)
		if (class->bins[bin])
			return class->bins[bin];
	no = slab_take(alloc, right);
	if (!no)
		return 0;
	slab = &alloc->slabs[no - 1];
	memset(slab, 0, sizeof(*slab));
	slab->cls = cls;
	slab->use = SLAB_USED;
	slab->bin = FULLNESS_BINS;
	class->slabs++;
	if (cls == CREDIT_CLASS)
		atomic_fetch_add(&alloc->credit_free, class->objects);
	atomic_store(slab_class_byte(alloc, no - 1), cls + 1);
	fault(FAULT_SLAB_CLAIMED);
	bin_insert(alloc, class, no - 1);
	return no;
}

static uint64_t place_in(struct alloc *alloc, unsigned cls, uint32_t owner, enum alloc_right right)
{
	struct size_class *class = &alloc->classes[cls];
	uint64_t loc = 0;
	struct slab *slab;
	uint32_t no;
	unsigned w = 0, i;

	pthread_mutex_lock(&class->lock);
	no = slab_with_room(alloc, cls, right);
	if (!no)
		goto out;
	slab = &alloc->slabs[--no];
	while (slab->map[w] == ~0ull)
		w++;
	i = w * 64 + __builtin_ctzll(~slab->map[w]);
	slab->map[w] |= 1ull << i % 64;
	slab->used++;
	class->used++;
	if (cls == CREDIT_CLASS)
		atomic_fetch_sub(&alloc->credit_free, 1);
	bin_update(alloc, class, no);
	loc = place_loc(alloc, no, i);
	atomic_store_explicit(owner_word(alloc, loc), owner, memory_order_relaxed);
out:
	pthread_mutex_unlock(&class->lock);
	return loc;
}

uint64_t alloc_place(struct alloc *alloc, uint32_t len, uint32_t owner, enum alloc_right right)
{
	unsigned cls = class_for(alloc, len);
	enum alloc_right plain = right == ALLOC_CREDIT ? ALLOC_PLAIN : right;
	uint64_t loc;

	if (right != ALLOC_CREDIT && fault(FAULT_ALLOC_PAYLOAD))
		return 0;
	loc = place_in(alloc, cls, owner, plain);
	if (loc)
		return loc;
	/*
	 * A credit is worth one place in the credit class: its slabs are used by nobody else, so
	 * that places and reserved slabs together always cover the credits, whatever the sizes.
	 */
	if (right == ALLOC_CREDIT)
		return place_in(alloc, CREDIT_CLASS, owner, ALLOC_CREDIT);
	if (right == ALLOC_MOVE)
		return 0;
	/* No slab to be had: better too large a place than a refusal while there is one. */
	while (!loc && cls > RAW_CLASS)
		loc = place_in(alloc, --cls, owner, ALLOC_MOVE);
	return loc;
}

void alloc_free(struct alloc *alloc, uint64_t loc)
{
	uint32_t no = loc_slab(loc);
	struct slab *slab = &alloc->slabs[no];
	struct size_class *class = &alloc->classes[slab->cls];
	unsigned i = loc_off(loc) % SLAB_BYTES / class->size;

	pthread_mutex_lock(&class->lock);
	slab->map[i / 64] &= ~(1ull << i % 64);
	slab->used--;
	class->used--;
	if (slab->cls == CREDIT_CLASS)
		atomic_fetch_add(&alloc->credit_free, 1);
	if (slab->use == SLAB_USED) {
		if (slab->used) {
			bin_update(alloc, class, no);
		} else {
			bin_remove(alloc, class, no);
			slab_release(alloc, no);
		}
	}
	pthread_mutex_unlock(&class->lock);
}

bool alloc_sound(const struct alloc *alloc, uint64_t loc, uint32_t len)
{
	const struct size_class *class;
	const struct slab *slab;
	uint32_t in_slab, no;

	if (!loc || loc > alloc->arena->sb->capacity / 8 || len > MAX_STORED)
		return false;
	no = loc_slab(loc);
	if (!atomic_load(&alloc->arena->chunks[no / CHUNK_SLABS].populated))
		return false;
	slab = &alloc->slabs[no];
	if (slab->use == SLAB_FREE)
		return false;
	class = &alloc->classes[slab->cls];
	in_slab = loc_off(loc) % SLAB_BYTES;
	return in_slab % class->size == 0 && in_slab / class->size < class->objects &&
	       len + OBJECT_HEADER <= class->size;
}

uint32_t alloc_owner(const struct alloc *alloc, uint64_t loc)
{
	return atomic_load(owner_word(alloc, loc));
}

/* ---- Credits -------------------------------------------------------------------------------- */

bool alloc_reserve(struct alloc *alloc, unsigned n)
{
	bool ok;

	pthread_mutex_lock(&alloc->slab_lock);
	atomic_fetch_add(&alloc->credits, n);
	ok = atomic_load(&alloc->free_slabs) >= alloc_needed_slabs(alloc);
	if (!ok)
		atomic_fetch_sub(&alloc->credits, n);
	pthread_mutex_unlock(&alloc->slab_lock);
	return ok;
}

void alloc_unreserve(struct alloc *alloc, unsigned n)
{
	atomic_fetch_sub(&alloc->credits, n);
}

/* ---- Chunks --------------------------------------------------------------------------------- */

static int chunk_meta_populate(struct alloc *alloc, uint32_t no)
{
	uintptr_t from = (uintptr_t)&alloc->slabs[(uint64_t)no * CHUNK_SLABS] & ~4095ul;
	uintptr_t to = (uintptr_t)&alloc->slabs[((uint64_t)no + 1) * CHUNK_SLABS];

	return fault_in((void *)from, (to - from + 4095) & ~4095ul);
}

int alloc_chunk_add(struct alloc *alloc)
{
	struct arena *arena = alloc->arena;
	uint32_t no = alloc->hint;

	while (no < arena->nr_chunks && atomic_load(&arena->chunks[no].populated))
		no++;
	alloc->hint = no;
	if (no == arena->nr_chunks)
		return -ENOSPC;
	if (chunk_meta_populate(alloc, no) ||
	    arena_populate(arena, arena->sb->payload_off + no * CHUNK_BYTES, CHUNK_BYTES))
		return -ENOMEM;
	fault(FAULT_CHUNK_POPULATED);
	atomic_store(&arena->chunks[no].populated, 1);
	pthread_mutex_lock(&alloc->slab_lock);
	alloc->chunks[no].free_map = ALL_SLABS;
	alloc->chunks[no].evacuating = false;
	chunk_list(alloc, no);
	atomic_fetch_add(&alloc->free_slabs, CHUNK_SLABS);
	atomic_fetch_add(&alloc->nr_populated, 1);
	pthread_mutex_unlock(&alloc->slab_lock);
	return 0;
}

bool alloc_chunk_return(struct alloc *alloc)
{
	struct arena *arena = alloc->arena;
	uint32_t no;

	pthread_mutex_lock(&alloc->slab_lock);
	no = alloc->lists[CHUNKS_WHOLE];
	if (no && atomic_load(&alloc->free_slabs) < CHUNK_SLABS + credit_slabs(alloc))
		no = 0;
	if (no) {
		chunk_unlist(alloc, no - 1);
		alloc->chunks[no - 1].free_map = 0;
		atomic_fetch_sub(&alloc->free_slabs, CHUNK_SLABS);
		atomic_fetch_sub(&alloc->nr_populated, 1);
	}
	pthread_mutex_unlock(&alloc->slab_lock);
	if (!no)
		return false;
	/* First no longer ours, then gone: the rebuild punches what a crash leaves between. */
	atomic_store(&arena->chunks[no - 1].populated, 0);
	fault(FAULT_CHUNK_DISOWNED);
	arena_punch(arena, arena->sb->payload_off + (no - 1) * CHUNK_BYTES, CHUNK_BYTES);
	fault(FAULT_CHUNK_RETURNED);
	if (no - 1 < alloc->hint)
		alloc->hint = no - 1;
	return true;
}

/* ---- Rebuild -------------------------------------------------------------------------------- */

void alloc_rebuild_begin(struct alloc *alloc)
{
	struct arena *arena = alloc->arena;

	for (uint32_t c = 0; c < arena->nr_chunks; c++) {
		if (!atomic_load(&arena->chunks[c].populated))
			continue;
		chunk_meta_populate(alloc, c);
		/* The scan and the first gets shall not fault page by page. */
		fault_in(arena->payload + c * CHUNK_BYTES, CHUNK_BYTES);
		for (unsigned s = 0; s < CHUNK_SLABS; s++) {
			uint8_t byte = atomic_load(&arena->chunks[c].slab_class[s]);
			struct slab *slab = &alloc->slabs[c * CHUNK_SLABS + s];

			if (!byte || byte > alloc->nr_classes)
				continue;
			slab->cls = byte - 1;
			slab->use = SLAB_USED;
			slab->bin = FULLNESS_BINS;
		}
	}
}

bool alloc_claim(struct alloc *alloc, uint64_t loc)
{
	struct slab *slab = &alloc->slabs[loc_slab(loc)];
	unsigned i = loc_off(loc) % SLAB_BYTES / alloc->classes[slab->cls].size;

	if (slab->map[i / 64] & 1ull << i % 64)
		return false;
	slab->map[i / 64] |= 1ull << i % 64;
	slab->used++;
	return true;
}

void alloc_unclaim(struct alloc *alloc, uint64_t loc)
{
	struct slab *slab = &alloc->slabs[loc_slab(loc)];
	unsigned i = loc_off(loc) % SLAB_BYTES / alloc->classes[slab->cls].size;

	slab->map[i / 64] &= ~(1ull << i % 64);
	slab->used--;
}

static void chunk_rebuilt(struct alloc *alloc, uint32_t c)
{
	struct chunk *chunk = &alloc->chunks[c];

	for (unsigned s = 0; s < CHUNK_SLABS; s++) {
		uint32_t no = c * CHUNK_SLABS + s;
		struct slab *slab = &alloc->slabs[no];
		struct size_class *class = &alloc->classes[slab->cls];

		if (slab->use == SLAB_FREE || !slab->used) {
			slab->use = SLAB_FREE;
			atomic_store(slab_class_byte(alloc, no), 0);
			chunk->free_map |= 1u << s;
			continue;
		}
		class->slabs++;
		class->used += slab->used;
		if (slab->cls == CREDIT_CLASS)
			alloc->credit_free += class->objects - slab->used;
		bin_insert(alloc, class, no);
		alloc->used_slabs++;
	}
	alloc->free_slabs += __builtin_popcount(chunk->free_map);
	alloc->nr_populated++;
	chunk_list(alloc, c);
}

void alloc_rebuild_end(struct alloc *alloc)
{
	struct arena *arena = alloc->arena;
	uint64_t run = 0;

	for (uint32_t c = 0; c < arena->nr_chunks; c++) {
		if (!atomic_load(&arena->chunks[c].populated)) {
			run++;
			continue;
		}
		if (run)
			arena_punch(arena, arena->sb->payload_off + (c - run) * CHUNK_BYTES,
				    run * CHUNK_BYTES);
		run = 0;
		chunk_rebuilt(alloc, c);
		fault(FAULT_REBUILD_CHUNK);
	}
	if (run)
		arena_punch(arena, arena->sb->payload_off + (arena->nr_chunks - run) * CHUNK_BYTES,
			    run * CHUNK_BYTES);
	fault(FAULT_REBUILD_PUNCHED);
}

/* ---- Compaction ----------------------------------------------------------------------------- */

/* Class lock held. */
static void slab_withdraw(struct alloc *alloc, struct size_class *class, uint32_t no)
{
	bin_remove(alloc, class, no);
	alloc->slabs[no].use = SLAB_DRAINING;
}

uint32_t alloc_drain_class(struct alloc *alloc, unsigned cls)
{
	struct size_class *class = &alloc->classes[cls];
	uint32_t no = 0;

	if (cls == CREDIT_CLASS || cls >= alloc->nr_classes)
		return 0;
	pthread_mutex_lock(&class->lock);
	/* Its objects must fit into what the others have free. */
	if (class->slabs * class->objects - class->used >= class->objects) {
		for (unsigned bin = 0; bin < FULLNESS_BINS && !no; bin++)
			no = class->bins[bin];
		if (no)
			slab_withdraw(alloc, class, no - 1);
	}
	pthread_mutex_unlock(&class->lock);
	return no;
}

uint64_t alloc_drainable_slabs(struct alloc *alloc)
{
	uint64_t slabs = 0, need;

	for (unsigned cls = RAW_CLASS; cls < alloc->nr_classes; cls++) {
		struct size_class *class = &alloc->classes[cls];

		pthread_mutex_lock(&class->lock);
		need = class->used / class->objects + 1;
		if (class->slabs > need)
			slabs += class->slabs - need;
		pthread_mutex_unlock(&class->lock);
	}
	return slabs;
}

uint64_t alloc_wasted(struct alloc *alloc)
{
	uint64_t bytes = 0;

	for (unsigned cls = RAW_CLASS; cls < alloc->nr_classes; cls++) {
		struct size_class *class = &alloc->classes[cls];

		pthread_mutex_lock(&class->lock);
		bytes += (class->slabs * class->objects - class->used) * class->size;
		pthread_mutex_unlock(&class->lock);
	}
	return bytes;
}

bool alloc_drain_slab(struct alloc *alloc, uint32_t no)
{
	struct slab *slab = &alloc->slabs[no];
	struct size_class *class;
	bool ok = false;

	/* The class of a used slab is fixed; look again under its lock. */
	if (slab->use != SLAB_USED || slab->cls == CREDIT_CLASS)
		return false;
	class = &alloc->classes[slab->cls];
	pthread_mutex_lock(&class->lock);
	if (slab->use == SLAB_USED && class == &alloc->classes[slab->cls]) {
		slab_withdraw(alloc, class, no);
		ok = true;
	}
	pthread_mutex_unlock(&class->lock);
	return ok;
}

void alloc_drain_end(struct alloc *alloc, uint32_t no)
{
	struct slab *slab = &alloc->slabs[no];
	struct size_class *class = &alloc->classes[slab->cls];

	pthread_mutex_lock(&class->lock);
	slab->use = SLAB_USED;
	if (slab->used)
		bin_insert(alloc, class, no);
	else
		slab_release(alloc, no);
	pthread_mutex_unlock(&class->lock);
}

bool alloc_next_object(struct alloc *alloc, uint32_t no, unsigned *i, uint64_t *loc,
		       uint32_t *owner)
{
	struct slab *slab = &alloc->slabs[no];
	struct size_class *class = &alloc->classes[slab->cls];
	bool found = false;

	pthread_mutex_lock(&class->lock);
	for (; *i < class->objects; (*i)++) {
		if (!(slab->map[*i / 64] & 1ull << *i % 64))
			continue;
		*loc = place_loc(alloc, no, *i);
		*owner = atomic_load_explicit(owner_word(alloc, *loc), memory_order_relaxed);
		(*i)++;
		found = true;
		break;
	}
	pthread_mutex_unlock(&class->lock);
	return found;
}

/* Used slabs of a chunk that could be evacuated; UINT_MAX when it could not. slab_lock held. */
static unsigned evacuation_cost(struct alloc *alloc, uint32_t no)
{
	struct chunk *chunk = &alloc->chunks[no];
	uint64_t others;
	unsigned used;

	if (!atomic_load(&alloc->arena->chunks[no].populated) || chunk->evacuating)
		return UINT32_MAX;
	used = CHUNK_SLABS - __builtin_popcount(chunk->free_map);
	others = atomic_load(&alloc->free_slabs) - __builtin_popcount(chunk->free_map);
	if (!used || others < used + alloc_needed_slabs(alloc))
		return UINT32_MAX;
	return used;
}

uint32_t alloc_evacuate(struct alloc *alloc)
{
	unsigned best = UINT32_MAX;
	uint32_t no = 0;

	pthread_mutex_lock(&alloc->slab_lock);
	for (uint32_t c = alloc->lists[CHUNKS_PARTIAL]; c; c = alloc->chunks[c - 1].next) {
		unsigned cost = evacuation_cost(alloc, c - 1);

		if (cost < best) {
			best = cost;
			no = c;
		}
	}
	if (no) {
		alloc->chunks[no - 1].evacuating = true;
		atomic_fetch_sub(&alloc->free_slabs,
				 __builtin_popcount(alloc->chunks[no - 1].free_map));
		chunk_list(alloc, no - 1);
	}
	pthread_mutex_unlock(&alloc->slab_lock);
	return no;
}

bool alloc_chunk_empty(struct alloc *alloc, uint32_t no)
{
	bool empty;

	pthread_mutex_lock(&alloc->slab_lock);
	empty = alloc->chunks[no - 1].free_map == ALL_SLABS;
	pthread_mutex_unlock(&alloc->slab_lock);
	return empty;
}

void alloc_evacuate_end(struct alloc *alloc, uint32_t no)
{
	struct chunk *chunk = &alloc->chunks[no - 1];

	pthread_mutex_lock(&alloc->slab_lock);
	chunk->evacuating = false;
	atomic_fetch_add(&alloc->free_slabs, __builtin_popcount(chunk->free_map));
	chunk_list(alloc, no - 1);
	pthread_mutex_unlock(&alloc->slab_lock);
}
