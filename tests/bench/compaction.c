// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-bench compaction: what moving pages together in the background gains and costs (case 33).
 *
 * Two stores hold the same pages; one has its worker, the other nobody who compacts. In a round
 * half of the pages go, at random; the worker has the time it wants; then others come in their
 * place, of other sizes, and pages are got at random. The cost is all CPU time of the process, the
 * worker's included; the gain is memory: what slabs take while half of the pages are away.
 */
#include "bench.h"
#include "proto/tmem_abi.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_PAGES 120000

struct side {
	struct store *store;
	struct store_client *client;
	uint32_t pool;
	bool worker;
	double cost[MAX_ROUNDS]; /* ns of CPU a page flushed, put and got */
	double slabs[MAX_ROUNDS], stored[MAX_ROUNDS];
};

static void must(const char *what, int r)
{
	if (r == 1)
		return;
	fprintf(stderr, "tmem-bench: %s answered %d\n", what, r);
	exit(1);
}

static void put(struct side *side, const struct corpus *corpus, uint64_t at, uint64_t from)
{
	struct store_handle handle = bench_handle(side->pool, at);

	must("put", store_put(side->client, &handle, corpus->pages + from * PAGE_BYTES, 0));
}

static void side_open(struct side *side, const struct corpus *corpus, const char *name)
{
	uint64_t chunks = corpus->at[corpus->nr] * 5 / 4 / STORE_CHUNK_BYTES + 24;

	side->store =
		bench_store_open(name, (chunks + 64) * 2 * STORE_CHUNK_BYTES, chunks, side->worker);
	while (!side->worker && store_work(side->store))
		;
	side->client = bench_client(side->store, "bench");
	side->pool = bench_pool(side->client, TMEM_POOL_PERSIST, 1);
	bench_settle(side->store, chunks);
	for (size_t i = 0; i < corpus->nr; i++)
		put(side, corpus, i, i);
	bench_settle(side->store, 0);
}

static bool leaves(uint64_t seed, uint64_t at)
{
	struct rng rng = {seed + at};

	return rng_next(&rng) & 1;
}

/* The same for both sides when the seed is the same. */
static void one_round(struct side *side, const struct corpus *corpus, unsigned round, uint64_t seed)
{
	static uint8_t page[PAGE_BYTES];
	struct timing start = bench_now();
	struct rng rng = {seed};
	size_t nr = corpus->nr;

	for (size_t i = 0; i < nr; i++) {
		struct store_handle handle = bench_handle(side->pool, i);

		if (leaves(seed, i))
			must("flush", store_flush(side->client, &handle));
	}
	bench_settle(side->store, 0);
	side->slabs[round] = bench_counter(side->store, STORE_ALLOCATED_BYTES);
	side->stored[round] = bench_counter(side->store, STORE_STORED_BYTES);
	for (size_t i = 0; i < nr; i++)
		if (leaves(seed, i))
			put(side, corpus, i, rng_next(&rng) % nr);
	for (size_t i = 0; i < nr; i++) {
		struct store_handle handle = bench_handle(side->pool, rng_next(&rng) % nr);

		must("get", store_get(side->client, &handle, page));
	}
	side->cost[round] = (double)bench_since(start).cpu / nr;
}

static void used(const char *name, const struct side *side, unsigned rounds)
{
	figure_values(name, "bytes", side->slabs, side->stored, rounds);
}

int bench_compaction(const struct bench_options *options)
{
	static struct side with = {.worker = true}, without;
	struct corpus corpus;

	if (corpus_make(&corpus, options, DEFAULT_PAGES))
		return 1;
	side_open(&with, &corpus, "with");
	side_open(&without, &corpus, "without");
	for (unsigned round = 0; round < options->rounds; round++) {
		one_round(&with, &corpus, round, options->seed * 1000003 + round);
		one_round(&without, &corpus, round, options->seed * 1000003 + round);
	}
	used("used_with", &with, options->rounds);
	used("used_without", &without, options->rounds);
	figure_values("compaction_gain", "bytes", without.slabs, with.slabs, options->rounds);
	figure_values("compaction_cost", "ns", with.cost, without.cost, options->rounds);
	store_close(with.store);
	store_close(without.store);
	corpus_free(&corpus);
	return 0;
}
