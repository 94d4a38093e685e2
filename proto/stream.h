/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stream, version 1: a client's persistent pages on their way to a file or another host. Its
 * prose is docs/stream.md.
 *
 * A head, then records; everything little-endian, without padding that means something (it is 0).
 * A reader of this version reads every stream of version 1 whose features it knows; the golden
 * streams in tests/unit/streams are kept for that.
 */
#ifndef TMEM_STREAM_H
#define TMEM_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define TMEM_STREAM_MAGIC 0x315254534d454d54ull /* "TMEMSTR1" in the file */
#define TMEM_STREAM_VERSION 1u
#define TMEM_STREAM_NAME 64 /* of a client, with at least one final zero */

/* Features: a reader refuses a stream that has one it does not know. None yet. */
#define TMEM_STREAM_F_KNOWN ((uint64_t)0)

enum tmem_stream_kind {
	TMEM_STREAM_CLIENT = 1, /* a guest with rings: its life goes on elsewhere */
	TMEM_STREAM_DISK = 2,
};

struct tmem_stream_head {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes; /* of this head */
	uint64_t features;
	uint32_t kind; /* enum tmem_stream_kind */
	uint32_t weight;
	char name[TMEM_STREAM_NAME]; /* of the client that was saved; for people */
	uint64_t minimum;	     /* limits that it had, physical bytes; for people */
	uint64_t maximum;

	/* A guest's life; 0 of a disk. */
	uint64_t epoch;		 /* names the life: who claims it has to know it */
	uint64_t guest_features; /* that it agreed on */
	uint64_t region_bytes;
	uint32_t rings;
	uint32_t entries;
	uint32_t credits; /* pages that may have been promised and not yet put */
	uint32_t reserved0;

	/* A disk; 0 of a guest. */
	uint64_t disk_bytes; /* as its guest sees it */
	uint32_t queues;
	uint32_t pool; /* the id of the pool that has its blocks */

	uint8_t uuid[16]; /* of the machine, where it is known: a domain of Xen; else 0 */
	uint8_t reserved1[64];
	uint64_t check; /* XXH3 (64 bits) of the bytes before it */
};

/*
 * Each record has its payload behind it. `check` is XXH3 (64 bits) of the payload, with a seed that
 * is XXH3 of the record's number (64 bits, the first has 0), type and bytes: no record is taken for
 * another.
 */
struct tmem_stream_record {
	uint32_t type; /* enum tmem_stream_type */
	uint32_t bytes;
	uint64_t check;
};

/* Bytes of a payload at most. */
#define TMEM_STREAM_MAX_PAYLOAD (1u << 20)

enum tmem_stream_type {
	TMEM_STREAM_POOL = 1,
	TMEM_STREAM_PAGES = 2,
	TMEM_STREAM_FINAL = 3,
	TMEM_STREAM_KEPT = 4,
	TMEM_STREAM_END = 5,
};

/* A pool begins, empty; one with the same id is gone. */
struct tmem_stream_pool {
	uint32_t id;
	uint32_t flags;	   /* as in TMEM_NEW_POOL */
	uint8_t uuid[16];  /* of a shared pool */
	uint64_t nonce;	   /* with which the guest made it */
	uint64_t reserved; /* 0 */
};

/* Pages of one object: this, `nr` times tmem_stream_page, then their images one after the other. */
struct tmem_stream_pages {
	uint32_t pool;
	uint32_t nr; /* 1..TMEM_STREAM_MAX_PAGES */
	uint64_t object[3];
};

#define TMEM_STREAM_MAX_PAGES 128u

enum tmem_stream_codec {
	TMEM_STREAM_SAME = 0, /* the image is 8 bytes, which repeat */
	TMEM_STREAM_RAW = 1,  /* 4096 bytes */
	TMEM_STREAM_LZ4 = 2,  /* a block of LZ4 that becomes 4096 bytes */
};

struct tmem_stream_page {
	uint32_t index;
	uint16_t codec; /* enum tmem_stream_codec */
	uint16_t bytes; /* of the image */
	uint64_t check; /* XXH3 (64 bits) of the image, with the index as seed */
};

/*
 * The client is quiet from here on. Of all pages so far those stay that a KEPT names or a PAGES
 * replaces, and no other, and of the pools those whose bit is set.
 */
struct tmem_stream_final {
	uint64_t pools; /* bit n: pool n lives */
};

/* Pages of one object that are as an earlier record said: this, then `nr` indexes (32 bits). */
struct tmem_stream_kept {
	uint32_t pool;
	uint32_t nr; /* 1..TMEM_STREAM_MAX_KEPT */
	uint64_t object[3];
};

#define TMEM_STREAM_MAX_KEPT 4096u

/* The last record. */
struct tmem_stream_end {
	uint64_t pages;	  /* that the client has */
	uint64_t records; /* before this one */
	uint64_t check;	  /* XXH3 (64 bits) of all bytes of the stream before this record */
};

#define TMEM_STREAM_ASSERT(type, size)                                                             \
	_Static_assert(sizeof(struct type) == size, #type " has no holes")
TMEM_STREAM_ASSERT(tmem_stream_head, 256);
TMEM_STREAM_ASSERT(tmem_stream_record, 16);
TMEM_STREAM_ASSERT(tmem_stream_pool, 40);
TMEM_STREAM_ASSERT(tmem_stream_pages, 32);
TMEM_STREAM_ASSERT(tmem_stream_page, 16);
TMEM_STREAM_ASSERT(tmem_stream_kept, 32);
TMEM_STREAM_ASSERT(tmem_stream_end, 24);

#endif
