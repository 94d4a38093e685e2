// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disk, as a guest sees it: every type of request, well and badly made, and a random load
 * against a model, over every way in which rings and memory can be handed over. And it is thin:
 * what is discarded costs nothing.
 */
#include "diskload.h"
#include "tests/lib/vhost_hostile.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#define DISCARD_MAX_BLOCKS (32u << 20 >> 12)
#define SECURE_ERASE 14
#define UNKNOWN 77

/* Where raw requests have their parts, in vu_data(). */
#define RAW_HEADER 0
#define RAW_DATA 100 /* nothing is aligned */
#define RAW_STATUS (RAW_DATA + BLOCK)

static uint64_t seed;

/* ---- Single requests ------------------------------------------------------------------------ */

static int ask(struct vu *vu, uint32_t type, uint64_t sector, uint32_t bytes, uint32_t flags)
{
	struct vu_request r = {.type = type, .sector = sector, .bytes = bytes, .flags = flags};

	return vu_do(vu, 0, &r);
}

static void write_pages(struct vu *vu, unsigned queue, uint64_t block, uint32_t blocks,
			uint64_t stamp)
{
	for (uint32_t i = 0; i < blocks; i++)
		page_make(vu_data(vu) + i * BLOCK, stamp + i);
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_OUT, block, blocks), VIRTIO_BLK_S_OK);
}

/* Stamp 0: zeroes. */
static void check_pages(struct vu *vu, unsigned queue, uint64_t block, uint32_t blocks,
			uint64_t stamp)
{
	static const uint8_t zeroes[BLOCK];

	memset(vu_data(vu), 0xee, blocks * BLOCK);
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_IN, block, blocks), VIRTIO_BLK_S_OK);
	for (uint32_t i = 0; i < blocks; i++) {
		if (stamp)
			CHECK(page_is(vu_data(vu) + i * BLOCK, stamp + i));
		else
			CHECK(!memcmp(vu_data(vu) + i * BLOCK, zeroes, BLOCK));
	}
}

/* The first and the last of the disk, and what lies between. */
static void reads_and_writes(struct vu *vu, unsigned queue)
{
	static const uint64_t blocks[] = {0, 1, 1000, DISK_BLOCKS - 7};

	for (unsigned i = 0; i < 4; i++) {
		check_pages(vu, queue, blocks[i], i == 0 ? 1 : 7, 0);
		write_pages(vu, queue, blocks[i], i == 0 ? 1 : 7, 1 + 100 * i);
	}
	for (unsigned i = 0; i < 4; i++)
		check_pages(vu, queue, blocks[i], i == 0 ? 1 : 7, 1 + 100 * i);
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_FLUSH, 0, 0), VIRTIO_BLK_S_OK);
	write_pages(vu, queue, 1001, 2, 5001);
	check_pages(vu, queue, 1000, 1, 201);
	check_pages(vu, queue, 1001, 2, 5001);
	check_pages(vu, queue, 1003, 4, 204);
}

static void discards(struct vu *vu, unsigned queue)
{
	write_pages(vu, queue, 2000, 8, 7001);
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_DISCARD, 2001, 2), VIRTIO_BLK_S_OK);
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_WRITE_ZEROES, 2004, 1), VIRTIO_BLK_S_OK);
	CHECK_IS(ask(vu, VIRTIO_BLK_T_WRITE_ZEROES, 2006 * SECTORS, BLOCK,
		     VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP),
		 VIRTIO_BLK_S_OK);
	check_pages(vu, queue, 2000, 1, 7001);
	check_pages(vu, queue, 2001, 2, 0);
	check_pages(vu, queue, 2003, 1, 7004);
	check_pages(vu, queue, 2004, 1, 0);
	check_pages(vu, queue, 2005, 1, 7006);
	check_pages(vu, queue, 2006, 1, 0);
	check_pages(vu, queue, 2007, 1, 7008);
	/* The largest, over what is there and what is not. */
	CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_DISCARD, 1000, DISCARD_MAX_BLOCKS),
		 VIRTIO_BLK_S_OK);
	check_pages(vu, queue, 1000, 16, 0);
	check_pages(vu, queue, 2000, 8, 0);
}

/* Nothing of a request that is refused is executed. */
static void refusals(struct vu *vu)
{
	static const uint32_t types[] = {VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_DISCARD,
					 VIRTIO_BLK_T_WRITE_ZEROES};
	const uint64_t end = (uint64_t)DISK_BLOCKS * SECTORS;

	write_pages(vu, 0, 3000, 4, 9001);
	write_pages(vu, 0, DISK_BLOCKS - 2, 2, 9101);
	memset(vu_data(vu), 0x11, 4 * BLOCK);
	for (unsigned i = 0; i < 4; i++) {
		/* Not whole blocks. */
		CHECK_IS(ask(vu, types[i], 3000 * SECTORS + 1, BLOCK, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], 3000 * SECTORS + 7, BLOCK, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], 3000 * SECTORS, 512, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], 3000 * SECTORS, BLOCK + 512, 0), VIRTIO_BLK_S_IOERR);
		/* Beyond the end. */
		CHECK_IS(ask(vu, types[i], end, BLOCK, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], end - SECTORS, 2 * BLOCK, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], 1ull << 60, BLOCK, 0), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], -(uint64_t)SECTORS, BLOCK, 0), VIRTIO_BLK_S_IOERR);
	}
	for (unsigned i = 2; i < 4; i++) {
		CHECK_IS(disk_do(vu, 0, types[i], 0, DISCARD_MAX_BLOCKS + 1), VIRTIO_BLK_S_IOERR);
		CHECK_IS(ask(vu, types[i], 3000 * SECTORS, BLOCK, 2), VIRTIO_BLK_S_UNSUPP);
	}
	/* The unmap flag means nothing to a discard. */
	CHECK_IS(ask(vu, VIRTIO_BLK_T_DISCARD, 3000 * SECTORS, BLOCK, 1), VIRTIO_BLK_S_UNSUPP);
	CHECK_IS(ask(vu, SECURE_ERASE, 3000 * SECTORS, BLOCK, 0), VIRTIO_BLK_S_UNSUPP);
	CHECK_IS(ask(vu, UNKNOWN, 3000 * SECTORS, BLOCK, 0), VIRTIO_BLK_S_UNSUPP);
	CHECK_IS(ask(vu, VIRTIO_BLK_T_SCSI_CMD, 0, 0, 0), VIRTIO_BLK_S_UNSUPP);
	CHECK_IS(ask(vu, 0x80000000u | VIRTIO_BLK_T_OUT, 3000 * SECTORS, BLOCK, 0),
		 VIRTIO_BLK_S_UNSUPP);
	check_pages(vu, 0, 3000, 4, 9001);
	check_pages(vu, 0, DISK_BLOCKS - 2, 2, 9101);
}

static void identity(struct vu *vu)
{
	memset(vu_data(vu), 0xee, 32);
	CHECK_IS(ask(vu, VIRTIO_BLK_T_GET_ID, 0, VIRTIO_BLK_ID_BYTES, 0), VIRTIO_BLK_S_OK);
	CHECK(!strcmp((char *)vu_data(vu), "d1"));
	for (unsigned i = 2; i < VIRTIO_BLK_ID_BYTES; i++)
		CHECK_IS(vu_data(vu)[i], 0);
	CHECK_IS(vu_data(vu)[VIRTIO_BLK_ID_BYTES], 0xee);
}

/*
 * The configuration space names no largest segment and no largest request: a driver may fill the
 * pieces that it may use with as much as it likes, and Linux does, up to 4 MiB.
 */
static void large_requests(struct vu *vu)
{
	static const uint32_t blocks[] = {256, 320, 1024};

	if (vu_features(vu) & 1ull << VIRTIO_BLK_F_SIZE_MAX)
		return;
	for (unsigned i = 0; i < 3; i++) {
		write_pages(vu, 0, 4000, blocks[i], 20000 * (i + 1));
		check_pages(vu, 0, 4000, blocks[i], 20000 * (i + 1));
	}
}

/* ---- The configuration space ---------------------------------------------------------------- */

static void configuration(struct vu *vu)
{
	struct virtio_blk_config config, part;
	uint8_t wce;

	CHECK_IS(vu_get_config(vu, 0, &config, sizeof(config)), 0);
	CHECK_IS(config.capacity, DISK_BYTES / 512);
	CHECK(config.seg_max >= 2 && config.seg_max <= VU_MAX_SEGMENTS);
	CHECK_IS(config.blk_size, BLOCK);
	CHECK_IS(config.physical_block_exp, 0);
	CHECK_IS(config.alignment_offset, 0);
	CHECK_IS(config.num_queues, 2);
	CHECK_IS(config.max_discard_sectors, DISCARD_MAX_BLOCKS * SECTORS);
	CHECK(config.max_discard_seg >= 1);
	CHECK_IS(config.discard_sector_alignment, SECTORS);
	CHECK_IS(config.max_write_zeroes_sectors, DISCARD_MAX_BLOCKS * SECTORS);
	CHECK(config.max_write_zeroes_seg >= 1);
	CHECK_IS(config.write_zeroes_may_unmap, 1);
	CHECK_IS(vu_max_queues(vu), 2);

	/* Any part of it, in any piece. */
	for (uint32_t at = 0; at < sizeof(config); at += 3) {
		uint32_t len = sizeof(config) - at < 7 ? sizeof(config) - at : 7;

		CHECK_IS(vu_get_config(vu, at, &part, len), 0);
		CHECK(!memcmp(&part, (uint8_t *)&config + at, len));
	}

	/* The one thing that a driver may choose. */
	for (int i = 1; i >= 0; i--) {
		wce = (uint8_t)(i ? 0 : config.wce);
		CHECK_IS(vu_set_config(vu, offsetof(struct virtio_blk_config, wce), &wce, 1), 0);
		CHECK_IS(vu_get_config(vu, 0, &part, sizeof(part)), 0);
		CHECK_IS(part.wce, wce);
	}
}

/* What it may not choose stays; and who asks to be told, is. */
static void fixed_configuration(struct vu *vu)
{
	struct virtio_blk_config config, after;

	CHECK_IS(vu_get_config(vu, 0, &config, sizeof(config)), 0);
	memset(&after, 0xff, sizeof(after));
	CHECK_IS(vu_set_config(vu, 0, &after, 8), -EREMOTEIO);
	CHECK_IS(vu_set_config(vu, 0, &after, sizeof(after)), -EREMOTEIO);
	CHECK_IS(vu_set_config(vu, offsetof(struct virtio_blk_config, num_queues), &after, 2),
		 -EREMOTEIO);
	CHECK_IS(vu_set_config(vu, 200, &after, 8), -EREMOTEIO);
	CHECK_IS(vu_get_config(vu, 0, &after, sizeof(after)), 0);
	CHECK(!memcmp(&config, &after, sizeof(config)));
	CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_FLUSH, 0, 0), VIRTIO_BLK_S_OK);
}

/* ---- Layouts of a request that the driver does not make ------------------------------------- */

/* Pieces of vu_data(), each with its flags; the rest is made up here. */
struct piece {
	size_t at;
	uint32_t len;
	uint16_t flags;
};

static int raw_do(struct vu *vu, bool packed, uint32_t type, const struct piece *pieces,
		  unsigned nr)
{
	struct virtio_blk_outhdr header = {.type = type, .sector = 6000 * SECTORS};
	struct vu_descriptor descs[16];
	uint32_t id, len;

	memcpy(vu_data(vu) + RAW_HEADER, &header, sizeof(header));
	vu_data(vu)[RAW_STATUS] = 0xff;
	for (unsigned i = 0; i < nr; i++)
		descs[i] = (struct vu_descriptor){
			.addr = vu_guest_address(vu, pieces[i].at),
			.len = pieces[i].len,
			.flags = pieces[i].flags | (i + 1 < nr ? VU_NEXT : 0),
			.next = packed ? 5 : (uint16_t)(i + 1),
		};
	CHECK_IS(vu_submit_raw(vu, 0, descs, nr, 0), 0);
	CHECK_IS(vu_reap_raw(vu, 0, 10000, nr, &id, &len), 1);
	CHECK_IS(id, packed ? 5 : 0);
	return vu_data(vu)[RAW_STATUS];
}

/* Header, data and status lie in the descriptors as somebody likes (virtio 1.2, section 2.7.4). */
static void framings(bool packed)
{
	static const struct piece header_cut[] = {{RAW_HEADER, 1, 0},
						  {RAW_HEADER + 1, 15, 0},
						  {RAW_DATA, BLOCK, 0},
						  {RAW_STATUS, 1, VU_WRITE}};
	static const struct piece status_with_data[] = {{RAW_HEADER, 16, 0},
							{RAW_DATA, BLOCK + 1, VU_WRITE}};
	static const struct piece tiny_pieces[] = {{RAW_HEADER, 16, 0},
						   {RAW_DATA, 1, VU_WRITE},
						   {RAW_DATA + 1, 1, VU_WRITE},
						   {RAW_DATA + 2, 4000, VU_WRITE},
						   {RAW_DATA + 4002, 94, VU_WRITE},
						   {RAW_STATUS, 1, VU_WRITE}};
	struct vu_options options = {.packed = packed};
	struct piece with_header[] = {{0, 16 + BLOCK, 0}, {RAW_STATUS, 1, VU_WRITE}};
	struct vu *vu = disk_open("d1", &options);

	page_make(vu_data(vu) + RAW_DATA, 31);
	CHECK_IS(raw_do(vu, packed, VIRTIO_BLK_T_OUT, header_cut, 4), VIRTIO_BLK_S_OK);
	memset(vu_data(vu) + RAW_DATA, 0xee, BLOCK);
	CHECK_IS(raw_do(vu, packed, VIRTIO_BLK_T_IN, status_with_data, 2), VIRTIO_BLK_S_OK);
	CHECK(page_is(vu_data(vu) + RAW_DATA, 31));
	memset(vu_data(vu) + RAW_DATA, 0xee, BLOCK);
	CHECK_IS(raw_do(vu, packed, VIRTIO_BLK_T_IN, tiny_pieces, 6), VIRTIO_BLK_S_OK);
	CHECK(page_is(vu_data(vu) + RAW_DATA, 31));

	/* The header directly before the data. */
	page_make(vu_data(vu) + 16, 32);
	CHECK_IS(raw_do(vu, packed, VIRTIO_BLK_T_OUT, with_header, 2), VIRTIO_BLK_S_OK);
	CHECK_IS(raw_do(vu, packed, VIRTIO_BLK_T_IN, status_with_data, 2), VIRTIO_BLK_S_OK);
	CHECK(page_is(vu_data(vu) + RAW_DATA, 32));
	vu_kill(vu);
}

/* ---- All ways -------------------------------------------------------------------------------- */

/* One of 32 combinations, and other things that vary with it. */
static struct vu_options options_of(unsigned n)
{
	static const unsigned direct[] = {32, 64, 256}, indirect[] = {4, 64, 256};
	struct vu_options o = {
		.packed = n & 1,
		.no_indirect = n & 2,
		.no_event_idx = n & 4,
		.memory_slots = n & 8,
		.queues = n & 16 ? 2 : 1,
		.no_reply_ack = n % 5 == 4,
		.no_inflight = n % 7 == 6,
		.data_bytes = LOAD_DATA_BYTES,
	};

	o.ring = o.no_indirect ? direct[n % 3] : indirect[n % 3];
	return o;
}

static void all_types(struct vu *vu, const struct vu_options *options)
{
	for (unsigned queue = 0; queue < options->queues; queue++) {
		reads_and_writes(vu, queue);
		discards(vu, queue);
		disk_discard_all(vu);
	}
	refusals(vu);
	identity(vu);
	large_requests(vu);
	configuration(vu);
	if (!options->no_reply_ack)
		fixed_configuration(vu);
	disk_discard_all(vu);
	EVENTUALLY(disk_pages("d1") == 0);
}

/* The load; what it left is there for the next front end, and then costs nothing. */
static void model(struct vu *vu, const struct vu_options *options)
{
	static struct load load;

	load_init(&load, vu, options->queues, seed++);
	load_run(&load, test_scaled(1500));
	load_drain(&load);
	CHECK(disk_pages("d1") > 0);
	CHECK_IS(vu_close(vu), 0);
	load.vu = vu = disk_open("d1", options);
	load_verify(&load);
	load_free(&load);
	disk_discard_all(vu);
	EVENTUALLY(disk_pages("d1") == 0);
	CHECK_IS(vu_close(vu), 0);
}

static void all_ways(void)
{
	for (unsigned n = 0; n < 32; n++) {
		struct vu_options options = options_of(n);
		struct vu *vu = disk_open("d1", &options);

		printf("%s%s%s%s, %u queues of %u\n", options.packed ? "packed" : "split",
		       options.no_indirect ? "" : ", indirect",
		       options.no_event_idx ? "" : ", event index",
		       options.memory_slots ? ", memory slots" : "", options.queues, options.ring);
		fflush(stdout);
		all_types(vu, &options);
		model(vu, &options);
	}
}

/* The other disk has its own content; and a disk has one front end at a time. */
static void two_disks(void)
{
	struct vu_options options = {.queues = 1};
	struct vu *one = disk_open("d1", &options), *two = disk_open("d2", &options), *more;

	write_pages(one, 0, 10, 4, 1001);
	check_pages(two, 0, 10, 4, 0);
	write_pages(two, 0, 10, 4, 2001);
	check_pages(one, 0, 10, 4, 1001);
	CHECK(vu_open(&more, service_socket("d1"), &options) < 0);
	check_pages(one, 0, 10, 4, 1001);
	vu_kill(one);
	check_pages(two, 0, 10, 4, 2001);
	one = disk_open("d1", &options);
	check_pages(one, 0, 10, 4, 1001);
	disk_discard_all(one);
	disk_discard_all(two);
	CHECK_IS(vu_close(one), 0);
	CHECK_IS(vu_close(two), 0);
}

/* What the front end may not ask for is not given. */
static void not_offered(void)
{
	struct vu_options options = {.queues = 3};
	struct vu *vu;

	EVENTUALLY(vu_open(&vu, service_socket("d1"), &options) == -ENOTSUP);
}

/* A write for which the pool has no room fails, and the block is not what it was before that. */
static void full(void)
{
	static struct vu_options options = {.data_bytes = 1 << 20};
	unsigned failed = 0;
	struct vu *vu;

	disk_configure_again("maximum = 2M\novercommit = yes\n"); /* of d2, physical */
	service_start(NULL);
	vu = disk_open("d2", &options);
	for (uint32_t block = 0; block < 1000; block++) {
		int r;

		page_make_sized(vu_data(vu), block + 1, 4096);
		r = disk_do(vu, 0, VIRTIO_BLK_T_OUT, block, 1);
		CHECK(r == VIRTIO_BLK_S_OK || r == VIRTIO_BLK_S_IOERR);
		failed += r != 0;
	}
	CHECK(failed > 0 && failed < 1000);
	disk_discard_all(vu);
	EVENTUALLY(disk_pages("d2") == 0);
	write_pages(vu, 0, 5, 10, 77);
	check_pages(vu, 0, 5, 10, 77);
	CHECK_IS(vu_close(vu), 0);
	CHECK_IS(service_kill(SIGTERM), 0);
}

int main(int argc, char **argv)
{
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	disk_configure("disk", "");
	service_start(NULL);
	all_ways();
	framings(false);
	framings(true);
	RUN(two_disks);
	RUN(not_offered);
	CHECK_IS(service_kill(SIGTERM), 0);
	RUN(full);
	return 0;
}
