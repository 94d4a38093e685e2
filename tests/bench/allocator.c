// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-bench allocator: what pages cost in memory. Counts, not times: the same for the same seed
 * but for what the worker happens to do first, so one round says it.
 */
#include "bench.h"
#include "proto/tmem_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_PAGES 500000
#define DRAINED 600 /* of 1000 pages freed */

struct run {
	struct corpus corpus;
	struct store *store;
	struct store_client *client;
	uint32_t pool;
	struct rng rng;
	uint64_t private_before; /* what is not the store's */
};

static void put(struct run *run, uint64_t i, uint64_t from)
{
	struct store_handle handle = bench_handle(run->pool, i);
	const uint8_t *page = run->corpus.pages + from * PAGE_BYTES;
	int r, tries = 0;

	/* Memory comes from the worker: a refusal means that it is not there yet. */
	while ((r = store_put(run->client, &handle, page, 0)) != 1) {
		if (++tries > 10000) {
			fprintf(stderr, "tmem-bench: put answered %d\n", r);
			exit(1);
		}
		usleep(1000);
	}
}

static void ratio(struct run *run, const char *name)
{
	double stored = bench_counter(run->store, STORE_STORED_BYTES);
	double allocated = bench_counter(run->store, STORE_ALLOCATED_BYTES);
	double chunks = bench_counter(run->store, STORE_CHUNKS_USED);

	figure_values(name, "bytes", &allocated, &stored, 1);
	printf("%s: stored %.0f, slabs %.0f, chunks in use %.0f bytes (%.3f of stored)\n", name,
	       stored, allocated, chunks * STORE_CHUNK_BYTES, chunks * STORE_CHUNK_BYTES / stored);
}

static void fill(struct run *run)
{
	double empty, full, pages = run->corpus.nr, per_page, meta, zram = 0;
	uint64_t empty_meta = bench_counter(run->store, STORE_META_BYTES);
	struct zram_result result;

	empty = bench_arena_bytes(run->store) + bench_private_bytes();
	printf("an empty pool with its ready chunk: arena %llu bytes, private %llu bytes\n",
	       (unsigned long long)bench_arena_bytes(run->store),
	       (unsigned long long)(bench_private_bytes() - run->private_before));
	for (size_t i = 0; i < run->corpus.nr; i++)
		put(run, i, i);
	bench_settle(run->store, 0);
	full = bench_arena_bytes(run->store) + bench_private_bytes();
	per_page = (full - empty) / pages;
	meta = (bench_counter(run->store, STORE_META_BYTES) - empty_meta) / pages;
	if (zram_measure(&run->corpus, &result)) {
		zram = result.bytes_per_page;
		printf("zram: %.0f bytes a page; CPU a page: put %.0f ns, get %.0f ns\n", zram,
		       result.put_ns, result.get_ns);
	}
	figure_values("bytes_per_page", "bytes", &per_page, zram > 0 ? &zram : NULL, 1);
	figure_values("metadata_per_page", "bytes", &meta, NULL, 1);
	ratio(run, "alloc_filled");
}

static void churn_and_drain(struct run *run)
{
	size_t nr = run->corpus.nr;

	for (size_t n = 0; n < nr; n++)
		put(run, rng_next(&run->rng) % nr, rng_next(&run->rng) % nr);
	ratio(run, "alloc_churn");
	bench_settle(run->store, 0);
	store_reclaim(run->store, store_freeable(run->store), 10000);
	bench_settle(run->store, 0);
	ratio(run, "alloc_compacted");
	for (size_t i = 0; i < nr; i++) {
		struct store_handle handle = bench_handle(run->pool, i);

		if (rng_permille(&run->rng, DRAINED))
			store_flush(run->client, &handle);
	}
	ratio(run, "alloc_drained_before");
	bench_settle(run->store, 0);
	store_reclaim(run->store, store_freeable(run->store), 10000);
	bench_settle(run->store, 0);
	ratio(run, "alloc_drained");
}

int bench_allocator(const struct bench_options *options)
{
	struct run run = {.rng = {options->seed}};

	if (corpus_make(&run.corpus, options, DEFAULT_PAGES))
		return 1;
	bench_mount();
	run.private_before = bench_private_bytes();
	run.store = bench_store_open("arena",
				     (run.corpus.at[run.corpus.nr] * 2 / STORE_CHUNK_BYTES + 256) *
					     STORE_CHUNK_BYTES,
				     1, true);
	run.client = bench_client(run.store, "bench");
	run.pool = bench_pool(run.client, TMEM_POOL_PERSIST, 1);
	bench_settle(run.store, 1);
	fill(&run);
	churn_and_drain(&run);
	store_close(run.store);
	corpus_free(&run.corpus);
	return 0;
}
