// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk that is larger than the pool, which overcommit allows, and nothing compresses (case 10).
 * Writes fail only when the pool is full, and what failed reads as zeroes; what was accepted stays
 * right; another disk has its minimum; the log is not flooded; room that comes back is used.
 */
#include "diskload.h"

#include <signal.h>
#include <string.h>

#define BIG_MB 512
#define BIG_BLOCKS (BIG_MB << 20 >> 12)
#define SMALL_BLOCKS (8u << 20 >> 12)
#define REQUEST 32
#define LOG_LINES 12 /* LOG_BURST of hyp/base/log.h, and what was held back */

static void fill(uint8_t *pages, uint64_t stamp, unsigned blocks)
{
	struct rng rng = {stamp};

	for (size_t i = 0; i < blocks * BLOCK / sizeof(uint64_t); i++)
		((uint64_t *)pages)[i] = rng_next(&rng);
}

static int write_at(struct vu *vu, uint64_t block, unsigned blocks)
{
	fill(vu_data(vu), block + 1, blocks);
	return disk_do(vu, 0, VIRTIO_BLK_T_OUT, block, blocks);
}

/* The blocks of one request: right, or (when it failed) right or zeroes. */
static void check_at(struct vu *vu, uint64_t block, unsigned blocks, bool failed)
{
	static const uint8_t zeroes[BLOCK];
	static uint8_t want[REQUEST * BLOCK];
	unsigned gone = 0;

	fill(want, block + 1, blocks);
	memset(vu_data(vu), 0x77, blocks * BLOCK);
	CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_IN, block, blocks), VIRTIO_BLK_S_OK);
	for (unsigned i = 0; i < blocks; i++) {
		const uint8_t *page = vu_data(vu) + i * BLOCK;

		if (failed && !memcmp(page, zeroes, BLOCK))
			gone++;
		else
			CHECK(!memcmp(page, want + i * BLOCK, BLOCK));
	}
	CHECK(!failed || gone);
}

/* Writes until it fails; the first block of what failed. */
static uint64_t fill_up(struct vu *vu)
{
	uint64_t block = 0;

	while (block < BIG_BLOCKS && write_at(vu, block, REQUEST) == VIRTIO_BLK_S_OK)
		block += REQUEST;
	CHECK(block < BIG_BLOCKS);
	return block;
}

int main(void)
{
	char text[600];
	uint64_t end, pool_max = 192u << 20;
	const struct vu_options options = {0};
	struct vu *big, *small;
	unsigned failed = 0;
	int n;

	service_configure("disk_full", "");
	n = snprintf(text, sizeof(text), "[disk big]\nsize = %uM\novercommit = yes\nsocket = %s\n",
		     BIG_MB, service_socket("big"));
	snprintf(text + n, sizeof(text) - (size_t)n,
		 "[disk small]\nsize = 8M\nminimum = 16M\novercommit = yes\nsocket = %s\n",
		 service_socket("small"));
	service_configure_again(text);
	service_start(NULL);
	big = disk_open("big", &options);
	small = disk_open("small", &options);
	end = fill_up(big);
	printf("%llu of %u blocks fit into %llu MB, of which %llu are in use\n",
	       (unsigned long long)end, BIG_BLOCKS, (unsigned long long)pool_max >> 20,
	       (unsigned long long)service_counter(NULL, "pool_bytes") >> 20);
	/* All but the other's minimum, and what the pool keeps to be able to work. */
	CHECK(service_counter(NULL, "pool_bytes") >= (pool_max - (16u << 20)) / 100 * 85);
	for (uint64_t block = 0; block < end; block += REQUEST)
		check_at(big, block, REQUEST, false);
	check_at(big, end, REQUEST, true);

	/* The other one does not notice. */
	for (uint64_t block = 0; block < SMALL_BLOCKS; block += REQUEST)
		CHECK_IS(write_at(small, block, REQUEST), VIRTIO_BLK_S_OK);
	for (uint64_t block = 0; block < SMALL_BLOCKS; block += REQUEST)
		check_at(small, block, REQUEST, false);

	/* Compaction may still find room for one or the other. */
	for (unsigned i = 0; i < 200; i++)
		failed += write_at(big, end + (i + 1) * REQUEST, REQUEST) != VIRTIO_BLK_S_OK;
	printf("then %u of 200 requests failed\n", failed);
	CHECK(failed >= 100);
	CHECK(service_counter("big", "disk_full") >= failed);
	CHECK(service_log_lines("a write failed") > 0);
	CHECK(service_log_lines("a write failed") <= LOG_LINES);

	for (uint64_t block = 0; block < end / 2; block += REQUEST)
		CHECK_IS(disk_do(big, 0, VIRTIO_BLK_T_DISCARD, block, REQUEST), VIRTIO_BLK_S_OK);
	for (uint64_t block = end; block < end + end / 4; block += REQUEST)
		EVENTUALLY(write_at(big, block, REQUEST) == VIRTIO_BLK_S_OK);
	for (uint64_t block = end; block < end + end / 4; block += REQUEST)
		check_at(big, block, REQUEST, false);
	CHECK_IS(service_counter("small", "disk_errors"), 0);
	vu_kill(big);
	vu_kill(small);
	service_kill(SIGTERM);
	return 0;
}
