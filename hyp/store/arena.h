/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arena: one file in the host's memory that holds everything that must outlive the process.
 *
 * Layout (all areas begin on a chunk boundary; the file is sparse, so that an area may be as large
 * as the host's memory and cost nothing until the worker populates it):
 *
 *   superblock | client records | pool records | chunk table | object table | descriptors | payload
 *   | away table
 *
 * Publication rule: what a record says is written first; its state word is stored last, with
 * release semantics. kill -9 stops the process between two stores, never within an aligned 8-byte
 * one, and memory keeps every store that was executed, so program order is all that is needed.
 */
#ifndef TMEMD_STORE_ARENA_H
#define TMEMD_STORE_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define ARENA_MAGIC 0x314e52414d454d54ull /* "TMEMARN1" in memory */
#define ARENA_FORMAT 2u
/* Without an away table; still opened, and made a format 2 when the table is needed. */
#define ARENA_FORMAT_1 1u

#define ARENA_MAX_POOLS 4096u

/*
 * How handles are spread over shards is part of the format: each shard interns objects for
 * itself. 56 with the admin lock are fewer than the 64 locks that the thread sanitizer can follow.
 */
#define NR_SHARDS 56u
#define EXTENT_SHIFT 6 /* 64 neighbouring indexes share a shard */

#define CHUNK_BYTES ((uint64_t)STORE_CHUNK_BYTES)
#define SLAB_BYTES 131072u
#define CHUNK_SLABS (STORE_CHUNK_BYTES / SLAB_BYTES)
#define CLIENT_AUTHS 16

/* The first page. What stands before `check` never changes after creation, but for the format. */
struct superblock {
	uint64_t magic;
	_Atomic uint32_t format;
	uint32_t nr_shards;
	uint64_t file_bytes; /* up to the end of the payload area */
	uint64_t capacity;   /* bytes of the payload area */
	uint64_t max_objects;
	uint64_t max_descs;
	uint64_t clients_off;
	uint64_t pools_off;
	uint64_t chunks_off;
	uint64_t objects_off;
	uint64_t descs_off;
	uint64_t payload_off;
	uint64_t hash_seed; /* secret: guests cannot choose handles that collide */
	uint64_t check;	    /* XXH3 of the bytes before it, with format 1 */

	_Atomic uint64_t objects_high; /* entries of the object table that are populated */
	_Atomic uint64_t descs_high;   /* descriptors that are populated */
	_Atomic uint32_t frozen;

	/* Format 2. */
	_Atomic uint64_t away_high; /* entries of the away table that are populated */
	_Atomic uint64_t blobs;	    /* numbers of blobs below it may have been used */
};

/* State words of client and pool records. */
enum record_state { RECORD_FREE = 0, RECORD_LIVE = 1, RECORD_DYING = 2 };

struct client_rec {
	_Atomic uint32_t state;
	_Atomic uint32_t frozen;
	_Atomic uint32_t credits;  /* reserved pages; never less than what guests hold */
	_Atomic uint32_t note_sel; /* length of the valid note << 1 | which one is valid */
	uint64_t min_bytes;
	uint64_t max_bytes;
	uint32_t weight;
	_Atomic uint32_t keyed; /* 1: its key in the away table is whole */
	char name[STORE_NAME_MAX];
	_Atomic uint32_t pools[STORE_MAX_CLIENT_POOLS]; /* pool record + 1; 0: none */
	uint64_t auth[CLIENT_AUTHS][2];			/* shared pools allowed; 0 0: unused */
	uint8_t note[2][STORE_MAX_NOTE];
};

struct pool_rec {
	_Atomic uint32_t state;
	uint32_t flags;
	uint64_t uuid[2];
	uint64_t nonce;
	uint32_t owner; /* client record that pays for the pages */
	uint32_t reserved[7];
};

struct chunk_rec {
	_Atomic uint32_t populated;
	uint32_t reserved[3];
	_Atomic uint8_t slab_class[CHUNK_SLABS]; /* size class + 1; 0: free */
};

/* An interned object: descriptors name it by number. Each shard interns for itself. */
struct object {
	_Atomic uint32_t pool; /* pool record + 1, stored last; 0: free */
	uint32_t shard;	       /* volatile, as all below `id`: rebuilt at start */
	uint64_t id[3];
	uint32_t chain; /* next in the bucket, or in the free list; number + 1 */
	uint32_t pages; /* descriptors that name it */
	uint32_t low;	/* bounds of the indexes, for flush object */
	uint32_t high;
};

/*
 * A descriptor: one page. `word` is the only part that changes while it is live, and it is stored
 * last: state, codec and location; a move changes it in one store. The links are not part of what
 * is published: they belong to the running process and are rebuilt at start.
 */
struct desc {
	_Atomic uint64_t word;
	uint64_t seq_len; /* sequence << 14 | stored bytes (same-filled: top byte of the word) */
	uint32_t object;
	uint32_t index;
	uint32_t check; /* of the stored bytes, bound to the handle and the sequence */
	uint32_t chain; /* next in the bucket or in the free list; number + 1, 0: end */
	uint32_t older; /* neighbours in the pool's list of this shard */
	uint32_t newer;
};

#define DESC_LEN_BITS 14
#define DESC_LEN(d) ((uint32_t)((d)->seq_len & ((1u << DESC_LEN_BITS) - 1)))
#define DESC_SEQ(d) ((d)->seq_len >> DESC_LEN_BITS)

enum desc_state { DESC_FREE = 0, DESC_LIVE = 1 };
enum codec {
	CODEC_SAME = 0,
	CODEC_RAW = 1,
	CODEC_LZ4 = 2,
	CODEC_AWAY = 3, /* with holders of a tier */
	CODEC_BLOB = 4, /* another host's: bytes as they came */
	CODEC_NR
};

/*
 * word = location << 8 | codec << 2 | state; location in units of 8 bytes of the payload area, or
 * the low 56 bits of a same-filled page's word, or the entry of the away table.
 */
#define DESC_WORD(state, codec, loc) ((uint64_t)(loc) << 8 | (uint64_t)(codec) << 2 | (state))
#define WORD_STATE(w) ((unsigned)((w)&3))
#define WORD_CODEC(w) ((unsigned)((w) >> 2 & 0x3f))
#define WORD_LOC(w) ((w) >> 8)

/* Has a page with this word a place in the payload area? */
static inline bool word_has_place(uint64_t word)
{
	return WORD_CODEC(word) != CODEC_SAME && WORD_CODEC(word) != CODEC_AWAY;
}

/*
 * An entry of the away table: where the stored bytes of a page are that is away. All but `where`
 * is written before the descriptor's word names the entry and stays as it is. An entry that no
 * descriptor names is free; its content means nothing.
 */
struct away_rec {
	_Atomic uint64_t blob;	/* number, and the nonce of its seal */
	uint8_t tag[16];	/* of its seal */
	_Atomic uint32_t where; /* AWAY_*; 0 while it is free */
	uint32_t check;		/* binds blob, tag and codec to the descriptor; free: next entry */
};

/* where: two holders (0: none), the codec of the bytes, and whether they are gone. */
#define AWAY_HOLDER_BITS 10
#define AWAY_HOLDERS(a, b) ((uint32_t)(a) | (uint32_t)(b) << AWAY_HOLDER_BITS)
#define AWAY_HOLDER(w, i) ((uint16_t)((w) >> (i)*AWAY_HOLDER_BITS & ((1u << AWAY_HOLDER_BITS) - 1)))
#define AWAY_CODEC(c) ((uint32_t)(c) << 20)
#define AWAY_CODEC_OF(w) ((w) >> 20 & 0x3f)
#define AWAY_GONE (1u << 31) /* no holder has them any more: a get answers an error */

/* The first entries hold the clients' keys instead, one each. */
#define AWAY_KEYS STORE_MAX_CLIENTS
#define AWAY_KEY_BYTES 32u

_Static_assert(sizeof(struct away_rec) == AWAY_KEY_BYTES, "away entry");
_Static_assert(sizeof(struct superblock) <= 4096, "superblock fits a page");
_Static_assert(sizeof(struct pool_rec) == 64, "pool record");
_Static_assert(sizeof(struct chunk_rec) == 32, "chunk record");
_Static_assert(sizeof(struct object) == 48, "object");
_Static_assert(sizeof(struct desc) == 40, "descriptor");

struct arena {
	int fd;
	uint8_t *base;
	struct superblock *sb;
	struct client_rec *clients;
	struct pool_rec *pools;
	struct chunk_rec *chunks;
	struct object *objects;
	struct desc *descs;
	uint8_t *payload;
	struct away_rec *away; /* of a format 1: not in the file */
	uint64_t max_away;
	uint64_t away_off;
	uint64_t bytes; /* mapped */
	uint64_t nr_chunks;
	bool created; /* by this call of arena_open() */
	bool hugetlb;
	bool huge; /* huge pages, by hugetlbfs or by tmpfs */
	char path[256];
};

/*
 * Opens or makes the file, takes the advisory lock, maps it, checks the superblock. `capacity` is
 * used when it is made. 0 or a negated errno with a sentence in err.
 */
int arena_open(struct arena *arena, const char *path, uint64_t capacity, bool any_fs, char *err,
	       size_t errlen);
void arena_close(struct arena *arena);

/* Makes a format 1 a format 2. 0 or a negated errno; kill -9 leaves the one or the other. */
int arena_upgrade(struct arena *arena);

/* Takes memory from the host for [off, off + len) of the file; whole chunks. 0 or -ENOMEM. */
int arena_populate(struct arena *arena, uint64_t off, uint64_t len);

/*
 * Faults whole pages in for writing, of the arena (what is allocated there) or of private memory,
 * so that later accesses do not fault, and under a lock on all memory stay. 0 or -ENOMEM.
 */
int fault_in(void *at, uint64_t len);

/* Gives [off, off + len) back to the host; its content is zero afterwards. */
int arena_punch(struct arena *arena, uint64_t off, uint64_t len);

#endif
