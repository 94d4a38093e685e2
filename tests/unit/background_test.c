// SPDX-License-Identifier: GPL-2.0-or-later
/* What the background thread does, step by step: evict, compact, look at the host, rebuild. */
#include <errno.h>
#include <string.h>

#include "tests/unit/with_store.h"

/* The client that has most for its weight gives, and of its pages the oldest. */
static void evict(void)
{
	struct store_limits heavy = {.weight = 400};
	struct store *store = open_new();
	struct store_client *a = make_client_named(store, "a"), *b = make_client_named(store, "b");
	uint32_t pa = make_pool_of(a, INCLUSIVE), pb = make_pool_of(b, INCLUSIVE);
	unsigned old = 0, young = 0;

	CU_ASSERT(store_client_set_limits(b, &heavy) == 0);
	for (uint32_t i = 0; i < 8000; i++)
		CU_ASSERT(put_stamp(a, pa, i, i + 1) == 1 && put_stamp(b, pb, i, i + 1) == 1);
	pthread_mutex_lock(&store->work);
	CU_ASSERT(evict_pages(store, 4000) >= 4000);
	pthread_mutex_unlock(&store->work);
	CU_ASSERT(client_count(b, CLIENT_EVICTED) == 0);
	CU_ASSERT(client_count(a, CLIENT_EVICTED) >= 4000);
	for (uint32_t i = 0; i < 2000; i++) {
		old += holds_stamp(a, pa, i, i + 1);
		young += holds_stamp(a, pa, i + 6000, i + 6001);
	}
	/* A quarter of all each, half of all is left; by chance they would be as many. */
	CU_ASSERT(old * 2 < young);
	CU_ASSERT(store_flush_ephemeral(store, b) == 8000);
	store_close(store);
}

/* Six of seven pages go; what is left is moved together, stays right, and chunks go home. */
static void compact(void)
{
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	uint32_t pool = make_pool_of(client, PERSISTENT);
	struct store_handle handle;
	uint64_t before;

	for (uint32_t i = 0; i < 14000; i++)
		CU_ASSERT(put_stamp(client, pool, i, i + 1) == 1);
	for (uint32_t i = 0; i < 14000; i++) {
		handle = handle_in(pool, 1, i);
		if (i % 7)
			store_flush(client, &handle);
	}
	before = alloc_wasted(&store->alloc);
	pthread_mutex_lock(&store->work);
	for (unsigned i = 0; i < 10000 && compact_step(store, false); i++)
		;
	pthread_mutex_unlock(&store->work);
	CU_ASSERT(counter_get(&store_counters(store)[STORE_PAGES_MOVED]) > 0);
	CU_ASSERT(alloc_wasted(&store->alloc) < before / 2);
	for (uint32_t i = 0; i < 14000; i += 7)
		CU_ASSERT(holds_stamp(client, pool, i, i + 1));
	CU_ASSERT(store_reclaim(store, 8ull << 20, 10000) == 8ull << 20);
	for (uint32_t i = 0; i < 14000; i += 7)
		CU_ASSERT(holds_stamp(client, pool, i, i + 1));
	store_close(store);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	CU_ASSERT_FATAL(f != NULL);
	fputs(text, f);
	fclose(f);
}

/*
 * MemAvailable below the reserve, or stalls while it is near, and well again with some more: case 9
 * of docs/cases.md, short early and with hysteresis.
 */
static void pressure(void)
{
	static const struct {
		const char *meminfo, *psi;
		bool pressure;
	} steps[] = {
		{"MemAvailable: 4000000 kB\n", "full avg10=0.00 total=0\n", false},
		{"MemAvailable: 1500000 kB\n", "full avg10=0.00 total=0\n", false},
		{"MemAvailable: 1500000 kB\n", "full avg10=90.00 total=900000000\n", true},
		{"MemAvailable: 1500000 kB\n", "full avg10=0.00 total=900000000\n", false},
		{"MemAvailable: 900000 kB\n", "full avg10=0.00 total=900000000\n", true},
		{"MemAvailable: 1100000 kB\n", "full avg10=0.00 total=900000000\n", true},
		{"MemAvailable: 1300000 kB\n", "full avg10=0.00 total=900000000\n", false},
		{"nonsense\n", "nonsense\n", false},
	};
	char *meminfo = strdup(scratch_path("meminfo")), *psi = strdup(scratch_path("psi"));
	struct store *store;

	unlink(scratch_path("arena"));
	write_file(meminfo, steps[0].meminfo);
	write_file(psi, steps[0].psi);
	store = open_again(meminfo, psi);
	store_set_host_reserve(store, 1000000 * 1024ull);
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		write_file(meminfo, steps[i].meminfo);
		write_file(psi, steps[i].psi);
		pressure_check(store, true);
		CU_ASSERT(store->pressure == steps[i].pressure);
		CU_ASSERT(store_wants_credits_back(store) == steps[i].pressure);
	}
	CU_ASSERT(counter_get(&store_counters(store)[STORE_PRESSURE]) == 2);
	store_close(store);
	free(meminfo);
	free(psi);
}

static uint32_t next_desc(const struct store *store, uint32_t after)
{
	while (!store->arena.descs[after].word)
		after++;
	return after;
}

/*
 * Two live descriptors of one handle, the second with the higher sequence; its checksum is that
 * of another index, so it is damaged. As the last of its shard it is what a killed put left: the
 * page is damaged, and the old one is not shown. With a later put of another page in that shard it
 * has strayed, and costs the page nothing.
 */
static void rebuild_twins(bool last)
{
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	uint32_t pool = make_pool_of(client, PERSISTENT), old, new;
	struct desc *descs = store->arena.descs;

	/* All in one extent, so in one shard. */
	CU_ASSERT(put_stamp(client, pool, 9, 100) == 1);
	old = next_desc(store, 0);
	CU_ASSERT(put_stamp(client, pool, 8, 200) == 1);
	new = next_desc(store, 0);
	if (new == old)
		new = next_desc(store, old + 1);
	CU_ASSERT(last || put_stamp(client, pool, 10, 300) == 1);
	CU_ASSERT(DESC_SEQ(&descs[new]) > DESC_SEQ(&descs[old]));
	descs[new].index = 9;
	store_close(store);
	store = open_again(NULL, NULL);
	client = store_client_find(store, "c");
	CU_ASSERT_FATAL(client != NULL);
	CU_ASSERT(client_count(client, CLIENT_PAGES_PERSISTENT) == (last ? 1 : 2));
	CU_ASSERT(!store->arena.descs[old].word == last && !store->arena.descs[new].word == !last);
	CU_ASSERT(holds_stamp(client, pool, 9, 100) == !last);
	CU_ASSERT(client_count(client, CLIENT_GETS_DAMAGED) == (last ? 1 : 0));
	store_close(store);
}

static void rebuild_killed(void)
{
	rebuild_twins(true);
}

static void rebuild_strayed(void)
{
	rebuild_twins(false);
}

/* Two descriptors that name one place: the object's header tells whose it is. */
static void rebuild_one_place(void)
{
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	uint32_t pool = make_pool_of(client, PERSISTENT), first, second;
	struct desc *descs = store->arena.descs;

	CU_ASSERT(put_stamp(client, pool, 8, 100) == 1);
	for (first = 0; !descs[first].word; first++)
		;
	CU_ASSERT(put_stamp(client, pool, 9, 200) == 1);
	for (second = 0; !descs[second].word || second == first; second++)
		;
	if (first > second) {
		uint32_t t = first;

		first = second;
		second = t;
	}
	descs[first].word = descs[second].word;
	descs[first].seq_len = descs[second].seq_len;
	store_close(store);
	store = open_again(NULL, NULL);
	client = store_client_find(store, "c");
	CU_ASSERT_FATAL(client != NULL);
	CU_ASSERT(client_count(client, CLIENT_PAGES_PERSISTENT) == 1);
	CU_ASSERT(holds_stamp(client, pool, 8, 100) != holds_stamp(client, pool, 9, 200));
	store_close(store);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"evict", evict},
				      {"compact", compact},
				      {"pressure", pressure},
				      {"rebuild: killed put, damaged", rebuild_killed},
				      {"rebuild: strayed, damaged", rebuild_strayed},
				      {"rebuild: two of one place", rebuild_one_place},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"background", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("background-test");
	return unit_run(suites);
}
