// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * virtio-blk requests (virtio 1.2, section 5.2) on the pages of a store.
 *
 * Blocks have 4096 bytes, and the configuration space says so; guests then ask for whole blocks
 * only. What is not a whole block is refused: to read, change and write a block is not atomic, and
 * nobody who honours the configuration needs it.
 *
 * Data goes straight between the guest's memory and the store. Only a block that does not lie in
 * one piece there passes through a buffer.
 */
#include "disk_priv.h"

#include <endian.h>
#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <stddef.h>
#include <string.h>

#define HEADER sizeof(struct virtio_blk_outhdr)

/* ---- The bytes of a request ----------------------------------------------------------------- */

static uint64_t length(const struct vhost_segment *segments, unsigned nr)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < nr; i++)
		sum += segments[i].len;
	return sum;
}

static uint64_t out_length(const struct vhost_chain *chain)
{
	return length(chain->segments, chain->nr_out);
}

static uint64_t in_length(const struct vhost_chain *chain)
{
	return length(chain->segments + chain->nr_out, chain->nr_in);
}

/*
 * Moves the request's position over n bytes, copying them to or from `bytes` (NULL: neither). The
 * caller knows that there are as many.
 */
static void pass(const struct vhost_chain *chain, struct blk_request *at, uint8_t *bytes, size_t n,
		 bool in)
{
	while (n) {
		const struct vhost_segment *segment = &chain->segments[at->segment];
		size_t part = segment->len - at->offset;

		if (part > n)
			part = n;
		if (bytes && in)
			memcpy(segment->base + at->offset, bytes, part);
		else if (bytes)
			memcpy(bytes, segment->base + at->offset, part);
		if (bytes)
			bytes += part;
		n -= part;
		at->offset += (uint32_t)part;
		if (at->offset == segment->len) {
			at->segment++;
			at->offset = 0;
		}
	}
}

/* The next n bytes, when they lie in one piece; else NULL. */
static uint8_t *piece(const struct vhost_chain *chain, const struct blk_request *at, size_t n)
{
	const struct vhost_segment *segment = &chain->segments[at->segment];

	return segment->len - at->offset >= n ? segment->base + at->offset : NULL;
}

/* ---- Looking at a request ------------------------------------------------------------------- */

static bool in_range(const struct disk *disk, uint64_t sector, uint64_t sectors)
{
	uint64_t end = atomic_load_explicit(&disk->blocks, memory_order_relaxed) * DISK_SECTORS;

	return sector % DISK_SECTORS == 0 && sectors % DISK_SECTORS == 0 && sectors <= end &&
	       sector <= end - sectors;
}

static uint8_t begin_data(const struct disk *disk, struct blk_request *request, uint64_t sector,
			  uint64_t bytes)
{
	if (bytes % DISK_BLOCK || bytes / DISK_BLOCK > DISK_REQUEST_BLOCKS ||
	    !in_range(disk, sector, bytes / 512))
		return VIRTIO_BLK_S_IOERR;
	request->block = sector / DISK_SECTORS;
	request->blocks = (uint32_t)(bytes / DISK_BLOCK);
	return VIRTIO_BLK_S_OK;
}

/* A discard and a write of zeroes are the same here: what is not stored reads as zeroes. */
static uint8_t begin_zeroes(const struct disk *disk, const struct vhost_chain *chain,
			    struct blk_request *request, uint64_t bytes)
{
	struct virtio_blk_discard_write_zeroes range;
	uint32_t allowed =
		request->type == VIRTIO_BLK_T_WRITE_ZEROES ? VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP : 0;
	uint64_t sector, sectors;

	if (bytes != sizeof(range))
		return VIRTIO_BLK_S_IOERR;
	pass(chain, request, (uint8_t *)&range, sizeof(range), false);
	if (le32toh(range.flags) & ~allowed)
		return VIRTIO_BLK_S_UNSUPP;
	sector = le64toh(range.sector);
	sectors = le32toh(range.num_sectors);
	if (sectors / DISK_SECTORS > DISK_DISCARD_BLOCKS || !in_range(disk, sector, sectors))
		return VIRTIO_BLK_S_IOERR;
	request->block = sector / DISK_SECTORS;
	request->blocks = (uint32_t)(sectors / DISK_SECTORS);
	return VIRTIO_BLK_S_OK;
}

static uint8_t say_id(const struct disk *disk, const struct vhost_chain *chain,
		      struct blk_request *request, uint64_t room)
{
	char id[VIRTIO_BLK_ID_BYTES] = {0};

	/* A name of full length has no final zero, see the specification. */
	memcpy(id, disk->name, strnlen(disk->name, sizeof(id)));
	request->segment = chain->nr_out;
	request->offset = 0;
	pass(chain, request, (uint8_t *)id, room < sizeof(id) ? room : sizeof(id), true);
	return VIRTIO_BLK_S_OK;
}

void blk_begin(const struct disk *disk, const struct vhost_chain *chain,
	       struct blk_request *request)
{
	struct virtio_blk_outhdr header;
	uint64_t out = out_length(chain), in = in_length(chain), sector;

	*request = (struct blk_request){.status = VIRTIO_BLK_S_IOERR};
	if (out < HEADER || !in)
		return;
	pass(chain, request, (uint8_t *)&header, sizeof(header), false);
	request->type = le32toh(header.type);
	sector = le64toh(header.sector);
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		request->segment = chain->nr_out;
		request->offset = 0;
		request->status = begin_data(disk, request, sector, in - 1);
		break;
	case VIRTIO_BLK_T_OUT:
		request->status = begin_data(disk, request, sector, out - HEADER);
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		request->status = begin_zeroes(disk, chain, request, out - HEADER);
		break;
	case VIRTIO_BLK_T_FLUSH:
		/* What is acknowledged has been published. */
		request->status = VIRTIO_BLK_S_OK;
		break;
	case VIRTIO_BLK_T_GET_ID:
		request->status = say_id(disk, chain, request, in - 1);
		break;
	default:
		request->status = VIRTIO_BLK_S_UNSUPP;
		break;
	}
}

/* ---- Executing ------------------------------------------------------------------------------ */

static int read_block(struct disk *disk, const struct vhost_chain *chain,
		      struct blk_request *request, const struct store_handle *handle)
{
	uint8_t buffer[DISK_BLOCK];
	uint8_t *there = piece(chain, request, DISK_BLOCK), *page = there ? there : buffer;
	int r = store_get(disk->store, handle, page);

	if (r < 0 || r == STORE_AWAY)
		return r;
	if (!r)
		memset(page, 0, DISK_BLOCK);
	pass(chain, request, there ? NULL : buffer, DISK_BLOCK, true);
	return 0;
}

static int write_block(struct disk *disk, const struct vhost_chain *chain,
		       struct blk_request *request, const struct store_handle *handle)
{
	uint8_t buffer[DISK_BLOCK];
	const uint8_t *page = piece(chain, request, DISK_BLOCK);
	struct blk_request before = *request;
	int r;

	pass(chain, request, page ? NULL : buffer, DISK_BLOCK, false);
	r = store_put(disk->store, handle, page ? page : buffer, 0);
	if (r == 1)
		return 0;
	if (r == -ENOENT)
		return -EIO;
	/* No room: it is tried again from here. */
	*request = before;
	return -EAGAIN;
}

static int execute(struct disk *disk, const struct vhost_chain *chain, struct blk_request *request,
		   const struct store_handle *handle)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		return read_block(disk, chain, request, handle);
	case VIRTIO_BLK_T_OUT:
		return write_block(disk, chain, request, handle);
	default:
		return store_flush(disk->store, handle) < 0 ? -EIO : 0;
	}
}

int blk_step(struct disk *disk, const struct vhost_chain *chain, struct blk_request *request,
	     unsigned max)
{
	struct store_handle handles[STORE_BATCH];
	uint32_t left = request->blocks - request->done;
	unsigned nr = left < max ? left : max;

	for (unsigned i = 0; i < nr; i++)
		handles[i] = (struct store_handle){
			.pool = disk->record.pool,
			.index = (uint32_t)(request->block + request->done + i),
		};
	/* A single one was prefetched with those of other requests, or has nobody to wait with. */
	if (nr > 1)
		store_prefetch(disk->store, handles, nr);
	for (unsigned i = 0; i < nr; i++) {
		int r = execute(disk, chain, request, &handles[i]);

		if (r == -EAGAIN || r == STORE_AWAY)
			return r;
		if (r) {
			request->status = VIRTIO_BLK_S_IOERR;
			request->done = request->blocks;
			return 0;
		}
		request->done++;
	}
	return 0;
}

void blk_prefetch(const struct disk *disk, const struct virtio_blk_outhdr *headers, unsigned nr)
{
	struct store_handle handles[STORE_BATCH];

	for (unsigned i = 0; i < nr; i++)
		handles[i] = (struct store_handle){
			.pool = disk->record.pool,
			.index = (uint32_t)(le64toh(headers[i].sector) / DISK_SECTORS),
		};
	store_prefetch(disk->store, handles, nr);
}

uint32_t blk_end(const struct vhost_chain *chain, const struct blk_request *request)
{
	uint64_t in = in_length(chain);
	unsigned last = chain->nr_out + chain->nr_in;

	if (!in)
		return 0;
	/* The status is the last byte of what the device may write. */
	while (!chain->segments[last - 1].len)
		last--;
	chain->segments[last - 1].base[chain->segments[last - 1].len - 1] = request->status;
	return in > UINT32_MAX ? UINT32_MAX : (uint32_t)in;
}

/* ---- The configuration space ---------------------------------------------------------------- */

uint64_t blk_features(void)
{
	return 1ull << VIRTIO_BLK_F_SIZE_MAX | 1ull << VIRTIO_BLK_F_SEG_MAX |
	       1ull << VIRTIO_BLK_F_BLK_SIZE | 1ull << VIRTIO_BLK_F_FLUSH |
	       1ull << VIRTIO_BLK_F_TOPOLOGY | 1ull << VIRTIO_BLK_F_CONFIG_WCE |
	       1ull << VIRTIO_BLK_F_MQ | 1ull << VIRTIO_BLK_F_DISCARD |
	       1ull << VIRTIO_BLK_F_WRITE_ZEROES;
}

uint32_t blk_config(const struct disk *disk, uint8_t space[VHOST_MAX_CONFIG])
{
	struct virtio_blk_config config = {
		.capacity = htole64(atomic_load(&disk->blocks) * DISK_SECTORS),
		.size_max = htole32(DISK_SEGMENT_MAX),
		.seg_max = htole32(DISK_SEGMENTS),
		.blk_size = htole32(DISK_BLOCK),
		.min_io_size = htole16(1), /* blocks */
		.opt_io_size = htole32(STORE_BATCH),
		.wce = atomic_load(&disk->writeback),
		.num_queues = htole16((uint16_t)disk->record.known.queues),
		.max_discard_sectors = htole32(DISK_DISCARD_BLOCKS * DISK_SECTORS),
		.max_discard_seg = htole32(1),
		.discard_sector_alignment = htole32(DISK_SECTORS),
		.max_write_zeroes_sectors = htole32(DISK_DISCARD_BLOCKS * DISK_SECTORS),
		.max_write_zeroes_seg = htole32(1),
		.write_zeroes_may_unmap = 1,
	};

	memcpy(space, &config, sizeof(config));
	return sizeof(config);
}

/* The driver may choose a write-through cache; there is no difference. */
bool blk_set_config(struct disk *disk, uint32_t offset, const uint8_t *data, uint32_t len)
{
	if (offset != offsetof(struct virtio_blk_config, wce) || len != 1 || data[0] > 1)
		return false;
	atomic_store(&disk->writeback, data[0]);
	return true;
}

_Static_assert(DISK_SEGMENTS + 4 <= VHOST_MAX_SEGMENTS,
	       "header, status, and pieces that cross mappings have room");
