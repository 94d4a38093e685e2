// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Out: passes over the pools while the client is used, each with what is new since the one before,
 * and a last one when it is quiet, which also says which of the earlier pages still count.
 */
#include "stream_priv.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tmem_abi.h"
#include "store/store.h"

struct pool {
	bool there;
	uint64_t instance;
	struct store_walk *walk; /* NULL: its pages are not sent */
};

struct save {
	struct store_client *client;
	const struct stream_io *io;
	const struct stream_quiet *quiet;
	char *err;
	size_t errlen;
	struct stream_totals *totals;
	XXH3_state_t *all; /* checksum of everything so far */
	uint64_t records;
	uint64_t written; /* pages, in this pass */
	struct pool pools[STORE_MAX_CLIENT_POOLS];
	struct store_found found;
	_Alignas(8) uint8_t payload[TMEM_STREAM_MAX_PAYLOAD];
};

/* ---- Bytes ---------------------------------------------------------------------------------- */

static int put_bytes(struct save *save, const void *bytes, size_t len)
{
	int r = save->io->write(save->io->arg, bytes, len);

	if (r)
		return stream_fail(r, save->err, save->errlen, "the stream was not taken: %s",
				   r == -ECANCELED ? "the reader has gone" : strerror(-r));
	XXH3_64bits_update(save->all, bytes, len);
	save->totals->bytes += len;
	return 0;
}

/* The payload is in save->payload. */
static int put_record(struct save *save, enum tmem_stream_type type, size_t bytes)
{
	struct tmem_stream_record record = {.type = htole32(type),
					    .bytes = htole32((uint32_t)bytes)};
	int r;

	record.check = htole64(stream_record_check(save->records++, &record, save->payload, bytes));
	r = put_bytes(save, &record, sizeof(record));
	return r ? r : put_bytes(save, save->payload, bytes);
}

static int put_head(struct save *save, const struct tmem_stream_head *is)
{
	struct tmem_stream_head head = *is;

	head.magic = TMEM_STREAM_MAGIC;
	head.version = TMEM_STREAM_VERSION;
	head.bytes = sizeof(head);
	stream_head_order(&head);
	head.check = htole64(stream_head_check(&head));
	return put_bytes(save, &head, sizeof(head));
}

/* ---- Records -------------------------------------------------------------------------------- */

static int put_pool(struct save *save, const struct store_pool_info *info)
{
	struct tmem_stream_pool *pool = (void *)save->payload;

	*pool = (struct tmem_stream_pool){.id = htole32(info->id),
					  .flags = htole32(info->flags),
					  .nonce = htole64(info->nonce)};
	memcpy(pool->uuid, info->uuid, sizeof(pool->uuid));
	return put_record(save, TMEM_STREAM_POOL, sizeof(*pool));
}

static void put_object(uint64_t to[3], const uint64_t object[3])
{
	for (unsigned i = 0; i < 3; i++)
		to[i] = htole64(object[i]);
}

static int put_pages(struct save *save, uint32_t id)
{
	const struct store_found *found = &save->found;
	struct tmem_stream_pages *pages = (void *)save->payload;
	struct tmem_stream_page *page = (void *)(pages + 1);
	uint8_t *image = (void *)(page + found->nr);

	if (!found->nr)
		return 0;
	pages->pool = htole32(id);
	pages->nr = htole32(found->nr);
	put_object(pages->object, found->object);
	for (unsigned i = 0; i < found->nr; i++, page++) {
		const struct store_image *is = &found->pages[i];

		*page = (struct tmem_stream_page){
			.index = htole32(is->index),
			.codec = htole16(is->codec),
			.bytes = htole16(is->len),
			.check = htole64(stream_image_check(is->index, is->bytes, is->len))};
		memcpy(image, is->bytes, is->len);
		image += is->len;
	}
	save->written += found->nr;
	return put_record(save, TMEM_STREAM_PAGES, (size_t)(image - save->payload));
}

static int put_kept(struct save *save, uint32_t id)
{
	const struct store_found *found = &save->found;
	struct tmem_stream_kept *kept = (void *)save->payload;
	uint32_t *index = (void *)(kept + 1);

	if (!found->nr_kept)
		return 0;
	kept->pool = htole32(id);
	kept->nr = htole32(found->nr_kept);
	put_object(kept->object, found->object);
	for (unsigned i = 0; i < found->nr_kept; i++)
		index[i] = htole32(found->kept[i]);
	return put_record(save, TMEM_STREAM_KEPT, sizeof(*kept) + found->nr_kept * sizeof(*index));
}

static int put_final(struct save *save)
{
	struct tmem_stream_final *final = (void *)save->payload;
	uint64_t pools = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		pools |= (uint64_t)save->pools[i].there << i;
	final->pools = htole64(pools);
	return put_record(save, TMEM_STREAM_FINAL, sizeof(*final));
}

static int put_end(struct save *save)
{
	struct tmem_stream_end *end = (void *)save->payload;

	*end = (struct tmem_stream_end){.pages = htole64(save->totals->pages),
					.records = htole64(save->records),
					.check = htole64(XXH3_64bits_digest(save->all))};
	return put_record(save, TMEM_STREAM_END, sizeof(*end));
}

/* ---- Pools ---------------------------------------------------------------------------------- */

static void drop_pool(struct pool *pool)
{
	store_walk_close(pool->walk);
	memset(pool, 0, sizeof(*pool));
}

static int take_pool(struct save *save, const struct store_pool_info *info)
{
	struct pool *pool = &save->pools[info->id];
	bool persistent = info->flags & TMEM_POOL_PERSIST;
	int r = 0;

	if (persistent && info->flags & TMEM_POOL_SHARED)
		return stream_fail(-EOPNOTSUPP, save->err, save->errlen,
				   "pool %u is shared and persistent: its pages are others' too, "
				   "and cannot leave with this client",
				   info->id);
	if (persistent)
		r = store_walk_open(&pool->walk, save->client, info->id);
	if (r == -ENOENT)
		return 0; /* it went just now */
	if (r)
		return stream_fail(r, save->err, save->errlen, "pool %u: %s", info->id,
				   strerror(-r));
	pool->there = true;
	pool->instance = info->instance;
	return put_pool(save, info);
}

/* Which pools are there now? New ones are announced. */
static int take_pools(struct save *save)
{
	struct store_pool_info info[STORE_MAX_CLIENT_POOLS];
	unsigned nr = store_client_pools(save->client, info, STORE_MAX_CLIENT_POOLS);
	uint64_t seen = 0;
	int r = 0;

	for (unsigned i = 0; i < nr; i++) {
		const struct pool *pool = &save->pools[info[i].id];

		if (pool->there && pool->instance == info[i].instance)
			seen |= 1ull << info[i].id;
	}
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		if (!(seen >> i & 1))
			drop_pool(&save->pools[i]);
	for (unsigned i = 0; i < nr && !r; i++)
		if (!(seen >> info[i].id & 1))
			r = take_pool(save, &info[i]);
	return r;
}

/* ---- Passes --------------------------------------------------------------------------------- */

static int damaged(struct save *save, uint32_t id)
{
	return stream_fail(-EIO, save->err, save->errlen,
			   "pool %u, object %" PRIx64 " %" PRIx64 " %" PRIx64
			   ", index %u: the stored page is damaged, so the client cannot be saved; "
			   "see gets_damaged in tmemctl stat",
			   id, save->found.object[0], save->found.object[1], save->found.object[2],
			   save->found.kept[0]);
}

static int not_quiet(struct save *save)
{
	return stream_fail(-EAGAIN, save->err, save->errlen,
			   "the guest did something while its last pages were saved; pause it "
			   "first");
}

/* All that is new in one pool; in the last pass also what is not. */
static int pass_pool(struct save *save, uint32_t id, bool final)
{
	struct pool *pool = &save->pools[id];
	int r;

	while ((r = store_walk_next(pool->walk, &save->found)) == 1) {
		r = put_pages(save, id);
		if (!r && final)
			r = put_kept(save, id);
		if (r)
			return r;
		if (final)
			save->totals->pages += save->found.nr + save->found.nr_kept;
	}
	if (r == -EIO)
		return damaged(save, id);
	if (r != -ENOENT)
		return r;
	if (final)
		return not_quiet(save);
	drop_pool(pool);
	return 0;
}

static int pass(struct save *save, bool final)
{
	int r = take_pools(save);

	save->written = 0;
	save->totals->passes++;
	if (!r && final)
		r = put_final(save);
	for (uint32_t id = 0; id < STORE_MAX_CLIENT_POOLS && !r; id++)
		if (save->pools[id].walk)
			r = pass_pool(save, id, final);
	return r;
}

static int run(struct save *save)
{
	uint64_t found = UINT64_MAX;
	int r;

	do {
		int quiet = save->quiet->wait(save->quiet->arg, found, save->err, save->errlen);

		if (quiet < 0)
			return quiet;
		r = pass(save, quiet);
		if (r)
			return r;
		if (quiet)
			break;
		found = save->written;
	} while (true);
	if (!save->quiet->still(save->quiet->arg))
		return not_quiet(save);
	return put_end(save);
}

int stream_save(struct store_client *client, const struct tmem_stream_head *head,
		const struct stream_io *io, const struct stream_quiet *quiet,
		struct stream_totals *totals, char *err, size_t errlen)
{
	struct save *save = calloc(1, sizeof(*save));
	int r;

	memset(totals, 0, sizeof(*totals));
	if (save)
		save->all = XXH3_createState();
	if (!save || !save->all) {
		free(save);
		return stream_fail(-ENOMEM, err, errlen, "the service is out of memory");
	}
	save->client = client;
	save->io = io;
	save->quiet = quiet;
	save->err = err;
	save->errlen = errlen;
	save->totals = totals;
	XXH3_64bits_reset(save->all);
	r = put_head(save, head);
	if (!r)
		r = run(save);
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		drop_pool(&save->pools[i]);
	XXH3_freeState(save->all);
	free(save);
	return r;
}
