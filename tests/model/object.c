// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Objects, at their two ends: threads that put the first pages of a new one at the same moment, and
 * one that fills the whole pool.
 */
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define MIB (1ull << 20)
#define PRIVATE (1u << TMEM_POOL_VERSION_SHIFT)
#define SMALL_OBJECT 64 /* pages; these share a shard, as they do in a huge object */

struct side {
	struct store *store;
	struct store_client *client;
	uint32_t pool;
	uint32_t object_pages;
	uint64_t next; /* page to put */
};

static void side_open(struct side *side, const char *arena, uint32_t flags, uint32_t object_pages)
{
	struct store_config config = {
		.arena_path = scratch_path(arena), .pool_max = 32 * MIB, .no_worker = true};
	static const struct store_limits limits;
	static const uint64_t no_uuid[2];
	char err[256] = "";
	int r = store_open(&side->store, &config, err, sizeof(err));

	CHECK(!r, "store_open: %d %s", r, err);
	CHECK(!store_client_open(side->store, "c", &limits, &side->client), "client");
	r = store_pool_new(side->client, flags, no_uuid, 0);
	CHECK(r >= 0, "pool: %d", r);
	side->pool = r;
	side->object_pages = object_pages;
	while (store_work(side->store))
		;
}

static struct store_handle at(const struct side *side, uint64_t i)
{
	struct store_handle handle = {.object = {i / side->object_pages, 0, 0},
				      .pool = side->pool,
				      .index = i % side->object_pages};

	return handle;
}

/* ---- The first pages of an object (case 4 of docs/cases.md) -------------------------------- */

#define PAIRS 100000

struct first {
	struct side *side;
	atomic_uint *arrived; /* both together go to the next object */
	uint64_t pairs;
	unsigned index;
};

static void *put_firsts(void *arg)
{
	const struct first *first = arg;
	uint8_t page[PAGE_BYTES];

	for (uint64_t i = 0; i < first->pairs; i++) {
		struct store_handle handle = at(first->side, i * SMALL_OBJECT + first->index);

		page_make_same(page, i << 1 | first->index);
		atomic_fetch_add(first->arrived, 1);
		for (unsigned turns = 0; atomic_load(first->arrived) < 2 * (i + 1); turns++)
			if (turns > 1000) /* no CPU for the other */
				sched_yield();
		/* Who is first to see it is first; by how much is to vary. */
		for (volatile unsigned wait = first->index ? i % 128 : 64; wait; wait--)
			;
		CHECK(store_put(first->side->client, &handle, page, 0) == 1, "put");
	}
	return NULL;
}

static void check_firsts(struct side *side, uint64_t pairs)
{
	uint8_t got[PAGE_BYTES];

	for (uint64_t i = 0; i < pairs; i++) {
		struct store_handle handle;

		for (unsigned index = 0; index < 2; index++) {
			handle = at(side, i * SMALL_OBJECT + index);
			CHECK(store_get(side->client, &handle, got) == 1 &&
				      page_stamp(got) == (i << 1 | index),
			      "page %u of object %llu is lost", index, (unsigned long long)i);
		}
		handle = at(side, i * SMALL_OBJECT);
		CHECK(store_flush_object(side->client, side->pool, handle.object) == 1, "flush");
	}
}

static void first_pages(void)
{
	/* Of one round; so many need no work between them. */
	const uint64_t pairs = 2000;
	uint64_t rounds = test_scaled(PAIRS) / pairs + 1;
	struct side side = {0};

	side_open(&side, "firsts", PRIVATE | TMEM_POOL_PERSIST, SMALL_OBJECT);
	for (uint64_t round = 0; round < rounds; round++) {
		atomic_uint arrived = 0;
		struct first first[2];
		pthread_t other;

		for (unsigned i = 0; i < 2; i++)
			first[i] = (struct first){&side, &arrived, pairs, i};
		CHECK(!pthread_create(&other, NULL, put_firsts, &first[1]), "thread");
		put_firsts(&first[0]);
		pthread_join(other, NULL);
		check_firsts(&side, pairs);
		while (store_work(side.store))
			;
	}
	store_close(side.store);
	printf("%llu objects whose first two pages came together\n",
	       (unsigned long long)(rounds * pairs));
}

/* ---- One huge object in a full pool (case 8 of docs/cases.md) ------------------------------ */

#define BATCH 256    /* puts of one sample */
#define BATCHES 400  /* samples of each side */
#define MAX_RATIO 3u /* of what the same costs with small objects */

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CPU time of this thread for so many puts, with the work that makes room for them. */
static uint64_t put_batch(struct side *side)
{
	static uint8_t pages[BATCH][PAGE_BYTES];
	uint64_t began;

	for (unsigned i = 0; i < BATCH; i++)
		page_make_sized(pages[i], side->next + i, 40);
	began = cpu_ns();
	for (unsigned i = 0; i < BATCH; i++) {
		struct store_handle handle = at(side, side->next + i);

		while (store_put(side->client, &handle, pages[i], 0) != 1)
			CHECK(store_work(side->store), "nothing makes room");
	}
	side->next += BATCH;
	return cpu_ns() - began;
}

static uint64_t evicted(const struct side *side)
{
	return counter_get(&store_client_counters(side->client)[CLIENT_EVICTED]);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void check_ratio(const char *what, uint64_t *huge, uint64_t *small, uint64_t n)
{
	static const unsigned percents[] = {50, 90};

	qsort(huge, n, sizeof(*huge), compare);
	qsort(small, n, sizeof(*small), compare);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t h = huge[n * percents[i] / 100], s = small[n * percents[i] / 100];

		printf("%s: percentile %u: %.2f of the cost with small objects\n", what,
		       percents[i], (double)h / s);
		CHECK(h <= MAX_RATIO * s, "%llu ns, not %llu ns", (unsigned long long)h,
		      (unsigned long long)s);
	}
}

static void compare_sides(const char *what, struct side *huge, struct side *small)
{
	static uint64_t cost[2][BATCHES];
	uint64_t before[2] = {evicted(huge), evicted(small)};

	for (unsigned i = 0; i < BATCHES; i++) {
		cost[0][i] = put_batch(huge);
		cost[1][i] = put_batch(small);
	}
	CHECK(evicted(huge) > before[0] + BATCHES * BATCH / 2 &&
		      evicted(small) > before[1] + BATCHES * BATCH / 2,
	      "the pools were not full");
	check_ratio(what, cost[0], cost[1], BATCHES);
}

/* Is always in one shard, with the same extent of the object's pages. */
struct rival {
	struct side *side;
	atomic_bool *stop;
};

static void *be_inside(void *arg)
{
	const struct rival *rival = arg;
	uint8_t page[PAGE_BYTES];

	for (uint64_t i = 0; !atomic_load(rival->stop); i++) {
		struct store_handle handle = at(rival->side, i % SMALL_OBJECT);

		page_make_same(page, i);
		store_put(rival->side->client, &handle, page, 0);
		store_get(rival->side->client, &handle, page);
	}
	return NULL;
}

static void huge_object(void)
{
	struct side huge = {0}, small = {0};
	atomic_bool stop = false;
	struct rival rivals[2] = {{&huge, &stop}, {&small, &stop}};
	pthread_t threads[2];

	side_open(&huge, "huge", PRIVATE, UINT32_MAX);
	side_open(&small, "small", PRIVATE, SMALL_OBJECT);
	while (!evicted(&huge))
		put_batch(&huge);
	while (!evicted(&small))
		put_batch(&small);
	printf("%llu pages fill the pool\n", (unsigned long long)huge.next);
	compare_sides("one huge object", &huge, &small);
	for (unsigned i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, be_inside, &rivals[i]), "thread");
	compare_sides("with another thread in its shard", &huge, &small);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	store_close(huge.store);
	store_close(small.store);
}

int main(void)
{
	scratch_make("object");
	log_setup(LOG_ERROR - 1, false);
	first_pages();
	huge_object();
	return 0;
}
