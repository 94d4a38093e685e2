// SPDX-License-Identifier: GPL-2.0-or-later
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#include <string.h>

#define PAGES 60000

static struct store *store;

/* The hash of a handle depends on each of its parts. */
static void keys(void)
{
	uint64_t object[3] = {1, 2, 3};
	struct key key, other;

	key_make(store, &key, 7, object, 9);
	key_make(store, &other, 7, object, 9);
	CU_ASSERT(key.page_hash == other.page_hash && key.shard == other.shard);
	key_make(store, &other, 8, object, 9);
	CU_ASSERT_NOT_EQUAL(key.object_hash, other.object_hash);
	key_make(store, &other, 7, object, 10);
	CU_ASSERT_NOT_EQUAL(key.page_hash, other.page_hash);
	CU_ASSERT_EQUAL(key.shard, other.shard); /* neighbours */
	for (unsigned i = 0; i < 3; i++) {
		object[i]++;
		key_make(store, &other, 7, object, 9);
		CU_ASSERT_NOT_EQUAL(key.object_hash, other.object_hash);
		object[i]--;
	}
}

/* Many objects of few pages, and one object of many pages, are spread over all shards. */
static void spread(void)
{
	static unsigned count[2][NR_SHARDS];
	struct key key;

	for (uint64_t i = 0; i < 64 * NR_SHARDS; i++) {
		uint64_t object[3] = {i, 0, 0}, one[3] = {5, 5, 5};

		key_make(store, &key, 0, object, 0);
		count[0][key.shard]++;
		key_make(store, &key, 0, one, i << EXTENT_SHIFT);
		count[1][key.shard]++;
	}
	for (unsigned i = 0; i < NR_SHARDS; i++)
		for (unsigned k = 0; k < 2; k++)
			if (count[k][i] < 64 / 3 || count[k][i] > 64 * 3)
				CU_FAIL("handles are not spread over the shards");
}

/* Chains stay short while the tables grow, and nothing is lost from them. */
static void growth(void)
{
	static const struct store_limits limits = {0};
	static const uint64_t uuid[2];
	struct store_client *client;
	struct store_handle handle = {{0}, 0, 0};
	uint8_t page[PAGE_BYTES];
	uint64_t items = 0, buckets = 0;
	unsigned missing = 0;

	CU_ASSERT_FATAL(!store_client_open(store, "c", &limits, &client));
	CU_ASSERT_FATAL(!store_pool_new(client, 1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST,
					uuid, 1));
	for (uint32_t i = 0; i < PAGES; i++) {
		handle.object[0] = i / 7;
		handle.index = i;
		page_make_same(page, i);
		while (store_put(client, &handle, page, 0) != 1)
			CU_ASSERT_FATAL(store_work(store));
		if (i % 512 == 0)
			store_work(store);
	}
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		items += atomic_load(&store->shards[i].pages.items);
		buckets += atomic_load(&store->shards[i].pages.nr);
	}
	CU_ASSERT_EQUAL(items, PAGES);
	CU_ASSERT(buckets > PAGES / 4);
	for (uint32_t i = 0; i < PAGES; i++) {
		handle.object[0] = i / 7;
		handle.index = i;
		missing += store_get(client, &handle, page) != 1 || page_stamp(page) != i;
	}
	CU_ASSERT_EQUAL(missing, 0);
	store_client_remove(client);
	while (store_work(store))
		;
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		CU_ASSERT_EQUAL(atomic_load(&store->shards[i].pages.items), 0);
		CU_ASSERT_EQUAL(atomic_load(&store->shards[i].objects.items), 0);
	}
}

int main(void)
{
	static CU_TestInfo tests[] = {{"keys", keys},
				      {"spread over shards", spread},
				      {"growing tables", growth},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"index", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
	struct store_config config = {.pool_max = 64u << 20, .ready_chunks = 2, .no_worker = true};
	char err[256] = "";
	int r;

	scratch_make("index");
	config.arena_path = scratch_path("arena");
	if (store_open(&store, &config, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	r = unit_run(suites);
	store_close(store);
	return r;
}
