// SPDX-License-Identifier: GPL-2.0-or-later
/* tmem-bench store: put and get against the least that they can cost. */
#include "bench.h"
#include "proto/tmem_abi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PAGES 60000
#define BATCH 32
#define THREADS 2
#define FILLED 256 /* different same-filled pages: not all in the cache's first level */

struct run {
	struct corpus corpus;
	uint32_t *order;
	struct store *store;
	struct store_client *client;
	uint32_t pool, same;
	uint64_t chunks;
	struct series floor_put, put, floor_random, random, floor_seq, seq, same_filled;
	double one[MAX_ROUNDS], two[MAX_ROUNDS];
	unsigned rounds;
	uint8_t filled[FILLED][PAGE_BYTES];
};

static void give_up(const char *what, int r)
{
	fprintf(stderr, "tmem-bench: %s answered %d\n", what, r);
	exit(1);
}

static void put_range(struct run *run, size_t from, size_t end)
{
	for (size_t i = from; i < end; i++) {
		struct store_handle handle = bench_handle(run->pool, i);
		int r = store_put(run->client, &handle, run->corpus.pages + i * PAGE_BYTES, 0);

		if (r != 1)
			give_up("put", r);
	}
}

/* In batches: what the next gets need is asked for before the first is made. */
static void get_range(struct run *run, const uint32_t *order, size_t from, size_t end)
{
	static _Thread_local _Alignas(64) uint8_t page[PAGE_BYTES];
	struct store_handle handle[BATCH];

	for (size_t i = from; i < end; i += BATCH) {
		size_t n = end - i < BATCH ? end - i : BATCH;

		for (size_t k = 0; k < n; k++)
			handle[k] = bench_handle(run->pool, order ? order[i + k] : i + k);
		store_prefetch(run->client, handle, n);
		for (size_t k = 0; k < n; k++) {
			int r = store_get(run->client, &handle[k], page);

			if (r != 1)
				give_up("get", r);
		}
	}
}

static void check_all(struct run *run)
{
	uint8_t page[PAGE_BYTES];

	for (size_t i = 0; i < run->corpus.nr; i++) {
		struct store_handle handle = bench_handle(run->pool, i);
		int r = store_get(run->client, &handle, page);

		if (r != 1 || memcmp(page, run->corpus.pages + i * PAGE_BYTES, PAGE_BYTES))
			give_up("a page came back wrong; get", r);
	}
}

static void flush_all(struct run *run, uint32_t pool)
{
	for (size_t i = 0; i < run->corpus.nr; i++) {
		struct store_handle handle = bench_handle(pool, i);

		store_flush(run->client, &handle);
	}
	bench_settle(run->store, run->chunks);
}

static void one_round(struct run *run)
{
	size_t nr = run->corpus.nr;
	struct timing start = bench_now();

	floor_put(&run->corpus);
	series_add(&run->floor_put, bench_since(start), nr);
	start = bench_now();
	put_range(run, 0, nr);
	series_add(&run->put, bench_since(start), nr);
	start = bench_now();
	floor_get(&run->corpus, run->order);
	series_add(&run->floor_random, bench_since(start), nr);
	start = bench_now();
	get_range(run, run->order, 0, nr);
	series_add(&run->random, bench_since(start), nr);
	start = bench_now();
	floor_get(&run->corpus, NULL);
	series_add(&run->floor_seq, bench_since(start), nr);
	start = bench_now();
	get_range(run, NULL, 0, nr);
	series_add(&run->seq, bench_since(start), nr);
	if (!run->rounds++)
		check_all(run);
	flush_all(run, run->pool);
	start = bench_now();
	for (size_t i = 0; i < nr; i++) {
		struct store_handle handle = bench_handle(run->same, i);

		if (store_put(run->client, &handle, run->filled[i % FILLED], 0) != 1)
			give_up("put of a same-filled page", 0);
	}
	series_add(&run->same_filled, bench_since(start), nr);
	flush_all(run, run->same);
}

/* ---- Two threads ---------------------------------------------------------------------------- */

struct half {
	struct run *run;
	size_t from, end;
};

static void *half_main(void *arg)
{
	struct half *half = arg;

	put_range(half->run, half->from, half->end);
	get_range(half->run, NULL, half->from, half->end);
	return NULL;
}

/* Puts and gets all pages with n threads; pages a second. */
static double throughput(struct run *run, unsigned n)
{
	struct half half[THREADS];
	pthread_t thread[THREADS];
	struct timing start = bench_now();

	for (unsigned i = 0; i < n; i++) {
		half[i].run = run;
		half[i].from = run->corpus.nr * i / n;
		half[i].end = run->corpus.nr * (i + 1) / n;
		if (pthread_create(&thread[i], NULL, half_main, &half[i]))
			give_up("pthread_create", 0);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	start = bench_since(start);
	flush_all(run, run->pool);
	return run->corpus.nr * 1e9 / start.wall;
}

/* The first round warms caches up, and is not counted. */
static void forget(struct run *run)
{
	run->floor_put.nr = run->put.nr = run->floor_random.nr = run->random.nr = 0;
	run->floor_seq.nr = run->seq.nr = run->same_filled.nr = 0;
}

int bench_store(const struct bench_options *options)
{
	static struct run run;
	struct rng rng = {options->seed};

	if (corpus_make(&run.corpus, options, DEFAULT_PAGES))
		return 1;
	run.order = bench_order(run.corpus.nr, &rng);
	if (!run.order)
		return 1;
	/* Memory for all of them ahead, so that no put waits for the worker's populating. */
	run.chunks = run.corpus.at[run.corpus.nr] * 11 / 10 / STORE_CHUNK_BYTES + 24;
	run.store = bench_store_open("arena", (run.chunks + 64) * 2 * STORE_CHUNK_BYTES, run.chunks,
				     true);
	run.client = bench_client(run.store, "bench");
	run.pool = bench_pool(run.client, TMEM_POOL_PERSIST, 1);
	run.same = bench_pool(run.client, TMEM_POOL_PERSIST, 2);
	for (uint64_t i = 0; i < FILLED; i++)
		page_make_same(run.filled[i], i * 0x0101010101010101ull);
	bench_settle(run.store, run.chunks);
	one_round(&run);
	forget(&run);
	for (unsigned i = 0; i < options->rounds; i++)
		one_round(&run);
	for (unsigned i = 0; i < options->rounds; i++) {
		run.one[i] = throughput(&run, 1);
		run.two[i] = throughput(&run, THREADS);
	}
	figure_times("put_distinct", &run.put, &run.floor_put);
	figure_times("get_random", &run.random, &run.floor_random);
	figure_times("get_sequential", &run.seq, &run.floor_seq);
	figure_times("put_same_filled", &run.same_filled, &run.floor_put);
	figure_values("two_threads", "pages/s", run.two, run.one, options->rounds);
	store_close(run.store);
	free(run.order);
	corpus_free(&run.corpus);
	return 0;
}
