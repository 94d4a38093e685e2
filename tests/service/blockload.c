// SPDX-License-Identifier: GPL-2.0-or-later
#include "blockload.h"

#include <string.h>

static void check_read(const struct blockload_thread *t, uint32_t block, uint32_t blocks)
{
	static const uint8_t zeroes[BLOCK];

	for (uint32_t i = 0; i < blocks; i++) {
		const uint8_t *page = t->buffer + i * BLOCK;
		uint64_t want = t->stamps[block + i];

		if (want ? page_is(page, want) : !memcmp(page, zeroes, BLOCK))
			continue;
		fprintf(stderr, "block %u: stamp %llx, not %llx\n", t->first + block + i,
			(unsigned long long)page_stamp(page), (unsigned long long)want);
		player_die();
	}
}

static void read_blocks(struct blockload_thread *t, uint32_t block, uint32_t blocks)
{
	memset(t->buffer, 0xee, blocks * BLOCK);
	CHECK_IS(t->load->ops->read(t->arg, t->buffer, blocks * BLOCK,
				    (uint64_t)(t->first + block) * BLOCK),
		 0);
	check_read(t, block, blocks);
}

static void write_blocks(struct blockload_thread *t, uint32_t block, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++) {
		t->stamps[block + i] = rng_next(&t->rng) | 1;
		page_make(t->buffer + i * BLOCK, t->stamps[block + i]);
	}
	CHECK_IS(t->load->ops->write(t->arg, t->buffer, blocks * BLOCK,
				     (uint64_t)(t->first + block) * BLOCK),
		 0);
}

static void zero_blocks(struct blockload_thread *t, uint32_t block, uint32_t blocks)
{
	memset(t->stamps + block, 0, blocks * sizeof(*t->stamps));
	CHECK_IS(t->load->ops->zero(t->arg, blocks * BLOCK, (uint64_t)(t->first + block) * BLOCK),
		 0);
}

static void one_request(struct blockload_thread *t)
{
	bool large = !rng_below(&t->rng, 8);
	uint32_t blocks = 1 + rng_below(&t->rng, large ? BLOCKLOAD_MAX_BLOCKS : 8);
	uint32_t block = rng_below(&t->rng, t->load->blocks - blocks + 1);
	uint32_t type = rng_below(&t->rng, 100);
	uint64_t start = vu_now_ms(), took;

	if (type < 45)
		write_blocks(t, block, blocks);
	else if (type < 85)
		read_blocks(t, block, blocks);
	else if (type < 97)
		zero_blocks(t, block, blocks);
	else
		CHECK_IS(t->load->ops->flush(t->arg), 0);
	took = vu_now_ms() - start;
	if (took > atomic_load(&t->longest_ms))
		atomic_store(&t->longest_ms, took);
	atomic_fetch_add(&t->done, 1);
}

static void *run(void *arg)
{
	struct blockload_thread *t = arg;

	while (!atomic_load(&t->load->stop))
		one_request(t);
	for (uint32_t block = 0; block < t->load->blocks; block += BLOCKLOAD_MAX_BLOCKS) {
		uint32_t left = t->load->blocks - block;

		read_blocks(t, block, left < BLOCKLOAD_MAX_BLOCKS ? left : BLOCKLOAD_MAX_BLOCKS);
	}
	return NULL;
}

void blockload_init(struct blockload *load, const struct block_ops *ops, unsigned nr,
		    void *const *args, uint64_t seed)
{
	CHECK(nr <= BLOCKLOAD_THREADS);
	memset(load, 0, sizeof(*load));
	load->ops = ops;
	load->nr = nr;
	load->blocks = DISK_BLOCKS / nr;
	for (unsigned i = 0; i < nr; i++) {
		struct blockload_thread *t = &load->threads[i];

		t->load = load;
		t->arg = args[i];
		t->first = i * load->blocks;
		t->rng.state = seed + i;
		t->stamps = calloc(load->blocks, sizeof(*t->stamps));
		t->buffer = malloc(BLOCKLOAD_MAX_BLOCKS * BLOCK);
		CHECK(t->stamps && t->buffer);
	}
}

void blockload_free(struct blockload *load)
{
	for (unsigned i = 0; i < load->nr; i++) {
		free(load->threads[i].stamps);
		free(load->threads[i].buffer);
	}
}

void blockload_start(struct blockload *load)
{
	atomic_store(&load->stop, false);
	for (unsigned i = 0; i < load->nr; i++)
		CHECK(!pthread_create(&load->threads[i].id, NULL, run, &load->threads[i]));
}

void blockload_some_work(struct blockload *load, uint64_t requests)
{
	uint64_t from[BLOCKLOAD_THREADS];

	for (unsigned i = 0; i < load->nr; i++)
		from[i] = load->threads[i].done;
	for (unsigned i = 0; i < load->nr; i++)
		for (int turns = 0; load->threads[i].done - from[i] < requests; turns++) {
			CHECK(turns < 6000);
			player_nap_ms(5);
		}
}

void blockload_end(struct blockload *load)
{
	atomic_store(&load->stop, true);
	for (unsigned i = 0; i < load->nr; i++)
		CHECK(!pthread_join(load->threads[i].id, NULL));
}

uint64_t blockload_done(const struct blockload *load)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < load->nr; i++)
		done += load->threads[i].done;
	return done;
}

uint64_t blockload_longest_ms(const struct blockload *load)
{
	uint64_t longest = 0;

	for (unsigned i = 0; i < load->nr; i++)
		if (load->threads[i].longest_ms > longest)
			longest = load->threads[i].longest_ms;
	return longest;
}
