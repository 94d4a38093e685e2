// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * In: nothing of a stream is believed. Each record's length is checked before it is read, its
 * checksum before it is looked at, each value before it is used, and the whole before anything of
 * it stays.
 */
#include "stream_priv.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "proto/tmem_abi.h"
#include "store/store.h"

/* How long a page waits for memory before the stream is given up. */
#define ROOM_NS (30 * CLOCK_S)
#define ROOM_NAP_NS (2 * CLOCK_MS)

struct stream_in {
	const struct stream_io *io;
	bool disk;
	uint32_t disk_pool; /* its id in the stream */
	XXH3_state_t *all;  /* checksum of everything so far */
	uint64_t before;    /* checksum of all before the record that is looked at */
	uint64_t bytes;
	uint64_t records;
	bool final, end;
	uint64_t pools; /* that the last pass names */
	char *err;
	size_t errlen;
	struct store_restore *restore;
	struct stream_totals *totals;
	struct tmem_stream_record record;
	_Alignas(8) uint8_t payload[TMEM_STREAM_MAX_PAYLOAD];
};

/* ---- Bytes ---------------------------------------------------------------------------------- */

static int bad(struct stream_in *in, const char *what)
{
	return stream_fail(-EBADMSG, in->err, in->errlen,
			   "record %" PRIu64 " of the stream (at byte %" PRIu64
			   ") is damaged: %s; nothing of it was kept",
			   in->records, in->bytes, what);
}

static int get_bytes(struct stream_in *in, void *bytes, size_t len)
{
	int r = in->io->read(in->io->arg, bytes, len);

	if (r == -ENODATA)
		return stream_fail(-EBADMSG, in->err, in->errlen,
				   "the stream ends too early, at record %" PRIu64 " (byte %" PRIu64
				   "); nothing of it was kept",
				   in->records, in->bytes);
	if (r)
		return stream_fail(r, in->err, in->errlen,
				   "the stream was not sent: %s; nothing of it was kept",
				   r == -ECANCELED ? "the sender has gone" : strerror(-r));
	XXH3_64bits_update(in->all, bytes, len);
	in->bytes += len;
	return 0;
}

static int get_record(struct stream_in *in)
{
	struct tmem_stream_record wire;
	size_t bytes;
	int r;

	in->before = XXH3_64bits_digest(in->all);
	r = get_bytes(in, &wire, sizeof(wire));
	if (r)
		return r;
	bytes = le32toh(wire.bytes);
	if (bytes > TMEM_STREAM_MAX_PAYLOAD)
		return bad(in, "its length is impossible");
	r = get_bytes(in, in->payload, bytes);
	if (r)
		return r;
	if (stream_record_check(in->records, &wire, in->payload, bytes) != le64toh(wire.check))
		return bad(in, "its checksum is wrong");
	in->record.type = le32toh(wire.type);
	in->record.bytes = (uint32_t)bytes;
	return 0;
}

/* ---- The head ------------------------------------------------------------------------------- */

static int foreign(struct stream_in *in, const struct tmem_stream_head *head)
{
	if (head->version != TMEM_STREAM_VERSION)
		return stream_fail(-EPROTO, in->err, in->errlen,
				   "the stream has version %u and this tmemd reads version %u: "
				   "restore it with the release that wrote it, or a newer one",
				   head->version, TMEM_STREAM_VERSION);
	return 0;
}

static int check_head(struct stream_in *in, const struct tmem_stream_head *head)
{
	bool disk = head->kind == TMEM_STREAM_DISK;

	if (head->features & ~TMEM_STREAM_F_KNOWN)
		return stream_fail(-EPROTO, in->err, in->errlen,
				   "the stream needs features (%" PRIx64
				   ") that this tmemd does not have: restore it with a newer one",
				   head->features & ~TMEM_STREAM_F_KNOWN);
	if (head->bytes != sizeof(*head) || head->name[TMEM_STREAM_NAME - 1] ||
	    (head->kind != TMEM_STREAM_CLIENT && !disk))
		return stream_fail(-EBADMSG, in->err, in->errlen,
				   "the head of the stream is damaged");
	if (disk ? !head->disk_bytes || head->disk_bytes % TMEM_PAGE_SIZE ||
			    head->disk_bytes / TMEM_PAGE_SIZE > 1ull << 32 || !head->queues ||
			    head->pool >= STORE_MAX_CLIENT_POOLS
		 : !head->epoch || !head->rings || head->rings > TMEM_MAX_RINGS ||
			    head->entries < TMEM_MIN_ENTRIES || head->entries > TMEM_MAX_ENTRIES ||
			    head->entries & (head->entries - 1) ||
			    head->credits > head->rings * head->entries)
		return stream_fail(-EBADMSG, in->err, in->errlen,
				   "the head of the stream has impossible values");
	return 0;
}

static int get_head(struct stream_in *in, struct tmem_stream_head *head)
{
	uint64_t check;
	int r = get_bytes(in, &head->magic, sizeof(head->magic));

	if (!r && le64toh(head->magic) != TMEM_STREAM_MAGIC)
		return stream_fail(-EPROTO, in->err, in->errlen,
				   "this is not a stream of tmemctl save");
	if (!r)
		r = get_bytes(in, (uint8_t *)head + sizeof(head->magic),
			      sizeof(*head) - sizeof(head->magic));
	if (r)
		return r;
	check = stream_head_check(head);
	stream_head_order(head);
	r = foreign(in, head);
	if (!r && check != le64toh(head->check))
		r = stream_fail(-EBADMSG, in->err, in->errlen,
				"the head of the stream is damaged: its checksum is wrong");
	return r ? r : check_head(in, head);
}

int stream_in_open(struct stream_in **out, const struct stream_io *io,
		   struct tmem_stream_head *head, char *err, size_t errlen)
{
	struct stream_in *in = calloc(1, sizeof(*in));
	int r;

	*out = NULL;
	if (in)
		in->all = XXH3_createState();
	if (!in || !in->all) {
		free(in);
		return stream_fail(-ENOMEM, err, errlen, "the service is out of memory");
	}
	in->io = io;
	in->err = err;
	in->errlen = errlen;
	XXH3_64bits_reset(in->all);
	r = get_head(in, head);
	if (r) {
		stream_in_close(in);
		return r;
	}
	in->disk = head->kind == TMEM_STREAM_DISK;
	in->disk_pool = head->pool;
	*out = in;
	return 0;
}

void stream_in_close(struct stream_in *in)
{
	if (in)
		XXH3_freeState(in->all);
	free(in);
}

/* ---- Records -------------------------------------------------------------------------------- */

static int take_pool(struct stream_in *in)
{
	const struct tmem_stream_pool *pool = (void *)in->payload;
	struct store_pool_info info;
	int r;

	if (in->record.bytes != sizeof(*pool) || in->final)
		return bad(in, "a pool does not belong there");
	info = (struct store_pool_info){.id = le32toh(pool->id),
					.flags = le32toh(pool->flags),
					.nonce = in->disk ? 0 : le64toh(pool->nonce)};
	memcpy(info.uuid, pool->uuid, sizeof(info.uuid));
	if (in->disk && (info.id != in->disk_pool || !(info.flags & TMEM_POOL_PERSIST)))
		return bad(in, "a disk has no such pool");
	if (info.flags & TMEM_POOL_SHARED && info.flags & TMEM_POOL_PERSIST)
		return bad(in, "a shared pool with pages");
	r = store_restore_pool(in->restore, &info);
	if (r == -EPERM)
		return stream_fail(r, in->err, in->errlen,
				   "the guest shares pool %u with others, which this client may "
				   "not: see shared_auth; nothing of the stream was kept",
				   info.id);
	if (r == -ENOSPC)
		return stream_fail(r, in->err, in->errlen,
				   "the arena has no room for another pool; nothing of the stream "
				   "was kept");
	return r ? bad(in, "an impossible pool") : 0;
}

static int no_page(struct stream_in *in, int r)
{
	switch (r) {
	case -ENOMEM:
		return stream_fail(r, in->err, in->errlen,
				   "there is no room for all pages of the stream: raise pool_max, "
				   "or make room (tmemctl stat: pool_bytes, growth_bytes); nothing "
				   "of it was kept");
	case -EDQUOT:
		return stream_fail(r, in->err, in->errlen,
				   "the pages of the stream are more than the client's maximum: "
				   "raise it (tmemctl set); nothing of it was kept");
	case -ENOENT:
		return bad(in, "a page of a pool that is not there");
	default:
		return bad(in, "an image is none of a page");
	}
}

/* The store takes memory from the host in the background; a page waits for that. */
static int take_page(struct stream_in *in, uint32_t pool, const uint64_t object[3],
		     const struct store_image *image)
{
	static const struct timespec nap = {.tv_nsec = ROOM_NAP_NS};
	uint64_t end = 0, now;
	int r;

	while ((r = store_restore_page(in->restore, pool, object, image)) == -ENOMEM) {
		now = clock_ns();
		end = end ? end : now + ROOM_NS;
		if (now >= end)
			break;
		if (in->io->gone(in->io->arg))
			return stream_fail(-ECANCELED, in->err, in->errlen,
					   "the sender has gone; nothing of the stream was kept");
		nanosleep(&nap, NULL);
	}
	return r == 1 ? 0 : no_page(in, r);
}

static void take_object(uint64_t to[3], const uint64_t object[3])
{
	for (unsigned i = 0; i < 3; i++)
		to[i] = le64toh(object[i]);
}

static int take_pages(struct stream_in *in)
{
	const struct tmem_stream_pages *pages = (void *)in->payload;
	const struct tmem_stream_page *page = (void *)(pages + 1);
	const uint8_t *image, *end = in->payload + in->record.bytes;
	uint64_t object[3];
	uint32_t nr;
	int r = 0;

	if (in->record.bytes < sizeof(*pages))
		return bad(in, "too short");
	nr = le32toh(pages->nr);
	if (!nr || nr > TMEM_STREAM_MAX_PAGES ||
	    in->record.bytes < sizeof(*pages) + nr * sizeof(*page))
		return bad(in, "a wrong number of pages");
	take_object(object, pages->object);
	image = (const uint8_t *)(page + nr);
	for (uint32_t i = 0; i < nr && !r; i++, page++) {
		struct store_image is = {.index = le32toh(page->index),
					 .codec = le16toh(page->codec),
					 .len = le16toh(page->bytes),
					 .bytes = image};

		if (is.len > end - image)
			return bad(in, "an image goes beyond its end");
		if (stream_image_check(is.index, image, is.len) != le64toh(page->check))
			return bad(in, "the checksum of a page is wrong");
		image += is.len;
		r = take_page(in, le32toh(pages->pool), object, &is);
	}
	return !r && image != end ? bad(in, "bytes behind the last image") : r;
}

static int take_final(struct stream_in *in)
{
	const struct tmem_stream_final *final = (void *)in->payload;

	if (in->record.bytes != sizeof(*final) || in->final)
		return bad(in, "a last pass does not belong there");
	in->final = true;
	in->pools = le64toh(final->pools);
	for (uint32_t i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		if (in->pools >> i & 1 && store_restore_id(in->restore, i) < 0)
			return bad(in, "it names a pool that is not there");
	store_restore_doubt(in->restore);
	return 0;
}

static int take_kept(struct stream_in *in)
{
	const struct tmem_stream_kept *kept = (void *)in->payload;
	const uint32_t *index = (void *)(kept + 1);
	uint64_t object[3];
	uint32_t nr;

	if (in->record.bytes < sizeof(*kept) || !in->final)
		return bad(in, "kept pages do not belong there");
	nr = le32toh(kept->nr);
	if (!nr || nr > TMEM_STREAM_MAX_KEPT ||
	    in->record.bytes != sizeof(*kept) + nr * sizeof(*index))
		return bad(in, "a wrong number of kept pages");
	take_object(object, kept->object);
	for (uint32_t i = 0; i < nr; i++)
		if (!store_restore_keep(in->restore, le32toh(kept->pool), object,
					le32toh(index[i])))
			return bad(in, "it keeps a page that is not there");
	return 0;
}

static int take_end(struct stream_in *in)
{
	const struct tmem_stream_end *end = (void *)in->payload;

	if (in->record.bytes != sizeof(*end) || !in->final)
		return bad(in, "the end does not belong there");
	if (le64toh(end->records) != in->records || le64toh(end->check) != in->before)
		return bad(in, "the checksum of the whole is wrong");
	in->totals->pages = store_restore_settle(in->restore, in->pools);
	if (le64toh(end->pages) != in->totals->pages)
		return bad(in, "the number of pages is wrong");
	in->end = true;
	return 0;
}

static int take_record(struct stream_in *in)
{
	switch (in->record.type) {
	case TMEM_STREAM_POOL:
		return take_pool(in);
	case TMEM_STREAM_PAGES:
		return take_pages(in);
	case TMEM_STREAM_FINAL:
		return take_final(in);
	case TMEM_STREAM_KEPT:
		return take_kept(in);
	case TMEM_STREAM_END:
		return take_end(in);
	}
	return bad(in, "its type is unknown");
}

/* Behind the last record there is nothing. */
static int check_over(struct stream_in *in)
{
	uint8_t more;
	int r = in->io->read(in->io->arg, &more, 1);

	if (r == -ENODATA)
		return 0;
	return r ? stream_fail(r, in->err, in->errlen, "the stream was not sent: %s", strerror(-r))
		 : bad(in, "there is something behind the end");
}

int stream_in_restore(struct stream_in *in, struct store_client *client, uint32_t *disk_pool,
		      struct stream_totals *totals, char *err, size_t errlen)
{
	int r = store_restore_open(&in->restore, client, !in->disk);

	memset(totals, 0, sizeof(*totals));
	in->err = err;
	in->errlen = errlen;
	in->totals = totals;
	if (r)
		return stream_fail(r, err, errlen,
				   r == -EBUSY ? "the client has pools already; a stream needs an "
						 "empty one"
					       : "the service is out of memory");
	while (!r && !in->end) {
		r = get_record(in);
		if (!r)
			r = take_record(in);
		in->records++;
	}
	if (!r)
		r = check_over(in);
	if (!r && in->disk) {
		r = store_restore_id(in->restore, in->disk_pool);
		*disk_pool = (uint32_t)r;
		r = r < 0 ? bad(in, "the disk has no pool") : 0;
	}
	totals->bytes = in->bytes;
	store_restore_close(in->restore, !r);
	in->restore = NULL;
	return r;
}
