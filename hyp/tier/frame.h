/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Frames of the wire between hosts (proto/peer.h), out of bytes and into bytes.
 *
 * Pure: no sockets, no state, no allocation. What frame_next() has let through is in form: every
 * part that its type has lies within it, and no more than that. What the numbers mean is checked by
 * who uses them.
 */
#ifndef TMEMD_TIER_FRAME_H
#define TMEMD_TIER_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/peer.h"

/* Who sends. */
enum frame_side { FRAME_OWNER, FRAME_LENDER };

/* A frame that has come, in host byte order; the parts lie in the buffer that it was read from. */
struct frame {
	uint16_t type;
	uint16_t count;
	uint64_t id;
	uint32_t bytes;		/* all of it */
	uint32_t parts;		/* bytes of what is behind the head */
	const uint8_t *part;	/* them */
	const uint8_t *numbers; /* DELETE, RENEW */
};

/*
 * The first frame in `len` bytes that `from` has sent. 1: *frame is there; 0: more bytes are
 * needed, which will not be more than TMEM_PEER_FRAME_MAX in all; -1: it is not in form, *why says
 * what is wrong.
 */
int frame_next(const uint8_t *bytes, size_t len, enum frame_side from, struct frame *frame,
	       const char **why);

/* A walk over the entries of a frame that has some, and their blobs. */
struct frame_walk {
	const uint8_t *entry;
	const uint8_t *blob;
	unsigned left;
};

void frame_walk(const struct frame *frame, struct frame_walk *walk);

/* The next entry and its blob (`len` bytes), or false behind the last. */
bool frame_walk_next(struct frame_walk *walk, struct tmem_peer_entry *entry, const uint8_t **blob);

/* Number i of DELETE or RENEW. */
uint64_t frame_number(const struct frame *frame, unsigned i);

/* The fixed parts of types that have one; each wants a frame of its type. */
void frame_hello(const struct frame *frame, struct tmem_peer_hello *hello);
void frame_range(const struct frame *frame, struct tmem_peer_range *range);
void frame_stat(const struct frame *frame, struct tmem_peer_stat *stat);
uint32_t frame_missing(const struct frame *frame);
uint32_t frame_leave(const struct frame *frame);

/* `text` has room for TMEM_PEER_TEXT + 1 bytes and gets printable ASCII only. */
void frame_error(const struct frame *frame, struct tmem_peer_error *error, char *text);

/*
 * A frame that is written. `at` has room for TMEM_PEER_FRAME_MAX bytes. Entries with blobs are
 * added in two steps, because all entries stand before all blobs: frame_make_entries(), then for
 * each frame_make_entry() in order.
 */
struct frame_make {
	uint8_t *at;
	uint32_t entry; /* offset of the next entry */
	uint32_t bytes; /* so far */
};

void frame_make(struct frame_make *make, uint8_t *at, uint16_t type, uint64_t id);

/* `count` entries will follow. */
void frame_make_entries(struct frame_make *make, uint16_t count);
void frame_make_entry(struct frame_make *make, const struct tmem_peer_entry *entry,
		      const void *blob);

/* Where the blob of the next entry goes: a blob that is written there need not be copied. */
uint8_t *frame_make_room(struct frame_make *make);

/* The entry for what has been written there; entry->len bytes. */
void frame_make_filled(struct frame_make *make, const struct tmem_peer_entry *entry);

void frame_make_numbers(struct frame_make *make, const uint64_t *numbers, uint16_t count);
void frame_make_hello(struct frame_make *make, const struct tmem_peer_hello *hello);
void frame_make_range(struct frame_make *make, const struct tmem_peer_range *range);
void frame_make_stat(struct frame_make *make, const struct tmem_peer_stat *stat);
void frame_make_missing(struct frame_make *make, uint32_t missing);
void frame_make_leave(struct frame_make *make, uint32_t deadline_ms);
void frame_make_error(struct frame_make *make, const struct tmem_peer_error *error,
		      const char *text);

/* Writes the head; the bytes of the frame. */
uint32_t frame_make_end(struct frame_make *make);

#endif
