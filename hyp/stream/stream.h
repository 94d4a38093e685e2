/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Streams: the persistent pages of a client on their way out of the store and into it, in the
 * format of proto/stream.h.
 *
 * The room knows the store, and neither fronts nor sockets: whoever calls says how bytes come and
 * go, and when the client is quiet. Each call belongs to a thread that may wait, and to nobody who
 * serves pages. Errors are a negated errno and a sentence for the operator.
 */
#ifndef TMEMD_STREAM_H
#define TMEMD_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/stream.h"

struct store_client;

/* Where the bytes go to or come from. */
struct stream_io {
	/* All of them, however long that takes. 0 or a negated errno. */
	int (*write)(void *arg, const void *bytes, size_t len);
	/* Exactly so many: 0; -ENODATA the stream ended before; or another negated errno. */
	int (*read)(void *arg, void *bytes, size_t len);
	/* Nobody wants the result any more. */
	bool (*gone)(void *arg);
	void *arg;
};

/* When a save may end. */
struct stream_quiet {
	/*
	 * Before each pass: 1 nothing happens to the client any more, so this pass is the last; 0
	 * it is still used, and a pass is worth its while; or a negated errno with a sentence.
	 * `found` is what the pass before had to write, pages; before the first UINT64_MAX.
	 */
	int (*wait)(void *arg, uint64_t found, char *err, size_t errlen);
	/* Nothing has happened to it since. */
	bool (*still)(void *arg);
	void *arg;
};

struct stream_totals {
	uint64_t pages;	 /* that the client has in the stream */
	uint64_t bytes;	 /* of the stream */
	uint64_t passes; /* of a save */
};

/*
 * Writes the client's pools and persistent pages. The caller fills in the head, but for magic,
 * version, bytes and check.
 */
int stream_save(struct store_client *client, const struct tmem_stream_head *head,
		const struct stream_io *io, const struct stream_quiet *quiet,
		struct stream_totals *totals, char *err, size_t errlen);

struct stream_in;

/* Reads the head and checks it: *head then has all its values. -EPROTO: not one that we know. */
int stream_in_open(struct stream_in **in, const struct stream_io *io, struct tmem_stream_head *head,
		   char *err, size_t errlen);

/*
 * Brings the rest into the client, all of it or nothing. A guest's pools get their ids; a disk's
 * pool gets one of its own, *disk_pool.
 */
int stream_in_restore(struct stream_in *in, struct store_client *client, uint32_t *disk_pool,
		      struct stream_totals *totals, char *err, size_t errlen);
void stream_in_close(struct stream_in *in); /* NULL is fine */

#endif
