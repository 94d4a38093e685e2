/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The size-class allocator of stored bytes.
 *
 * Why not malloc: objects live in the arena, must be found again by a scan, must move, and memory
 * must go back to the host in whole chunks. Why size classes in slabs of 128 KiB: a class holds
 * 31 or more objects, so that classes can be cut 1/64 apart (about 1 % lost to rounding) and the
 * rest of a slab that no object fits into stays below one part in 300 on average.
 *
 * A chunk (2 MiB) is 16 slabs; a slab belongs to one class or is free. Each object begins with
 * the number of the descriptor that owns it, so that compaction can go from place to page; the
 * descriptor says the place, and only when both agree is the object live.
 *
 * Locks: one for each class, and `slab_lock` for free slabs and chunks, taken inside a class lock.
 * Both are leaves: nothing else is taken under them.
 */
#ifndef TMEMD_STORE_ALLOC_H
#define TMEMD_STORE_ALLOC_H

#include <pthread.h>

#include "store/arena.h"

#define OBJECT_HEADER 4u /* the owner's number */
#define MIN_OBJECT 128u	 /* smallest class */
#define MAX_SLAB_OBJECTS (SLAB_BYTES / MIN_OBJECT)
#define MAX_CLASSES 240
#define CREDIT_CLASS 0 /* see alloc_place() */
#define RAW_CLASS 1    /* fits an incompressible page */
#define MAX_STORED 4096u

#define FULLNESS_BINS 4

enum slab_use { SLAB_FREE, SLAB_USED, SLAB_DRAINING };

/* Private twin of a slab; rebuilt at start. */
struct slab {
	uint32_t prev, next; /* in a bin of its class; number + 1 */
	uint16_t used;
	uint8_t cls;
	uint8_t bin;			     /* FULLNESS_BINS: in none (full or draining) */
	uint8_t use;			     /* enum slab_use */
	uint64_t map[MAX_SLAB_OBJECTS / 64]; /* 1: object taken */
};

/* Private twin of a chunk. */
struct chunk {
	uint32_t prev, next; /* among chunks with free slabs; number + 1 */
	uint16_t free_map;   /* free slabs */
	uint8_t list;	     /* enum chunk_list */
	bool evacuating;     /* its slabs are not handed out */
};

enum chunk_list { CHUNKS_NONE, CHUNKS_PARTIAL, CHUNKS_WHOLE, CHUNK_LISTS };

struct size_class {
	pthread_mutex_t lock;
	uint32_t size;	  /* bytes, with the header */
	uint32_t objects; /* in a slab */
	uint32_t bins[FULLNESS_BINS];
	uint64_t slabs;
	uint64_t used;
};

/* Who asks, and therefore how deep he may reach into the free slabs. */
enum alloc_right {
	ALLOC_PLAIN,	  /* leaves what credits and guaranteed minimums need */
	ALLOC_GUARANTEED, /* a client below its minimum: leaves what credits need */
	ALLOC_CREDIT,	  /* never refused while a credit is outstanding */
	ALLOC_MOVE,	  /* compaction: takes no free slab */
};

struct alloc {
	struct arena *arena;
	struct slab *slabs; /* one for each slab of the capacity; populated with the chunk */
	struct chunk *chunks;
	struct size_class classes[MAX_CLASSES];
	unsigned nr_classes;
	uint8_t class_of[(MAX_STORED + OBJECT_HEADER + 7) / 8 + 1];

	pthread_mutex_t slab_lock;
	uint32_t lists[CHUNK_LISTS];
	_Atomic uint64_t free_slabs;
	_Atomic uint64_t used_slabs;
	_Atomic uint64_t nr_populated; /* chunks */
	_Atomic uint64_t credit_free;  /* free objects in the credit class */
	_Atomic uint64_t credits;      /* outstanding, all clients */
	_Atomic uint64_t min_unused;   /* bytes that clients lack to their guaranteed minimum */
	_Atomic uint64_t growth;       /* slabs that the pool may still take from the host */
	_Atomic uint64_t whole_chunks; /* populated and free */
	_Atomic uint64_t wake_below;   /* free slabs under which `low` is set */
	_Atomic bool low;	       /* somebody should populate */
	uint64_t hint;		       /* no unpopulated chunk below */
};

/* 0 or -ENOMEM. Classes only; alloc_chunk_add() brings memory. */
int alloc_init(struct alloc *alloc, struct arena *arena);
void alloc_fini(struct alloc *alloc);

/* Bytes that storing `len` bytes costs. */
uint32_t alloc_cost(const struct alloc *alloc, uint32_t len);

/*
 * A place for `len` stored bytes owned by descriptor `owner`: its location in units of 8 bytes,
 * or 0 when there is none. The owner is written, the bytes are the caller's to copy.
 */
uint64_t alloc_place(struct alloc *alloc, uint32_t len, uint32_t owner, enum alloc_right right);

/* Frees a place. */
void alloc_free(struct alloc *alloc, uint64_t loc);

/* The stored bytes at a location. */
uint8_t *alloc_bytes(const struct alloc *alloc, uint64_t loc);

/* Bytes that the object at a location takes: the size of its class. */
uint32_t alloc_size_at(const struct alloc *alloc, uint64_t loc);

/* Is this a place where an object of `len` bytes can stand? */
bool alloc_sound(const struct alloc *alloc, uint64_t loc, uint32_t len);

/* The descriptor that the object at a sound location names as its owner. */
uint32_t alloc_owner(const struct alloc *alloc, uint64_t loc);

/* Marks a place as taken while the indexes are rebuilt. False: it is taken already. */
bool alloc_claim(struct alloc *alloc, uint64_t loc);
void alloc_unclaim(struct alloc *alloc, uint64_t loc);

/* Rebuild: takes over the chunk table, before and after the claims. */
void alloc_rebuild_begin(struct alloc *alloc);
void alloc_rebuild_end(struct alloc *alloc);

/* Populates one chunk and adds it. 0, -ENOMEM (the host has none), -ENOSPC (capacity). */
int alloc_chunk_add(struct alloc *alloc);

/* Gives one free chunk back to the host. False when no chunk is wholly free. */
bool alloc_chunk_return(struct alloc *alloc);

/*
 * Reserves memory for n credits when free slabs (less the kept ones) allow it. All or nothing.
 */
bool alloc_reserve(struct alloc *alloc, unsigned n);
void alloc_unreserve(struct alloc *alloc, unsigned n);

/* Free slabs that credits and minimums need. */
uint64_t alloc_needed_slabs(const struct alloc *alloc);

/* ---- For compaction ------------------------------------------------------------------------ */

/*
 * Takes the emptiest slab of a class out of service for draining when the class has more free
 * objects than one slab holds. Slab number + 1, 0: none worth it.
 */
uint32_t alloc_drain_class(struct alloc *alloc, unsigned cls);

/* Slabs that draining all classes would free; a lower bound. */
uint64_t alloc_drainable_slabs(struct alloc *alloc);

/* Bytes of places that are free within used slabs. */
uint64_t alloc_wasted(struct alloc *alloc);

/* Takes the least used chunk out of service; its number + 1; 0: none, or the rest has no room. */
uint32_t alloc_evacuate(struct alloc *alloc);
bool alloc_chunk_empty(struct alloc *alloc, uint32_t chunk);
void alloc_evacuate_end(struct alloc *alloc, uint32_t chunk);

/* Takes one used slab out of service. False when it is free or draining. */
bool alloc_drain_slab(struct alloc *alloc, uint32_t slab);

/* Puts a drained slab back into service, or among the free ones when nothing is left in it. */
void alloc_drain_end(struct alloc *alloc, uint32_t slab);

/* The next taken object of a slab at or after *i: its location and owner. False: no more. */
bool alloc_next_object(struct alloc *alloc, uint32_t slab, unsigned *i, uint64_t *loc,
		       uint32_t *owner);

#endif
