// SPDX-License-Identifier: GPL-2.0-or-later
/* What one wrong number in the arena may cost at the next start: that page, and no other. */
#include "with_store.h"

#define EXTENTS 6
#define PAGES 5 /* in each */
#define EXTENT (1u << EXTENT_SHIFT)

static uint32_t index_of(unsigned extent, unsigned page)
{
	return extent * EXTENT + page * 3;
}

static uint64_t stamp_of(unsigned extent, unsigned page)
{
	return 1 + extent * PAGES + page;
}

/* The descriptor of a page of object 1 of the client's pool 0. */
static struct desc *desc_at(struct store_client *client, unsigned extent, unsigned page)
{
	struct store_handle handle = handle_in(0, 1, index_of(extent, page));
	struct store *store = client->store;
	struct shard *shard;
	struct key key;
	uint32_t gen, pool = pool_lookup(client, 0, &gen), no;

	key_make(store, &key, pool - 1, handle.object, handle.index);
	shard = &store->shards[key.shard];
	no = page_find(store, shard, &key, object_find(store, shard, &key));
	CU_ASSERT_FATAL(no);
	return &store->arena.descs[no - 1];
}

static struct store_client *filled(void)
{
	struct store_client *client = make_client_named(open_new(), "a");

	make_pool_of(client, PERSISTENT);
	for (unsigned e = 0; e < EXTENTS; e++)
		for (unsigned p = 0; p < PAGES; p++)
			CU_ASSERT_EQUAL(put_stamp(client, 0, index_of(e, p), stamp_of(e, p)), 1);
	return client;
}

static unsigned missing(struct store_client *client)
{
	unsigned n = 0;

	for (unsigned e = 0; e < EXTENTS; e++)
		for (unsigned p = 0; p < PAGES; p++)
			n += !holds_stamp(client, 0, index_of(e, p), stamp_of(e, p));
	return n;
}

/* Twice: what the first start repaired is whole for the second. */
static unsigned missing_after_starts(struct store *store)
{
	unsigned n = 0;

	for (unsigned turn = 0; turn < 2; turn++) {
		struct store_client *client;

		store_close(store);
		store = open_again(NULL, NULL);
		client = store_client_find(store, "a");
		CU_ASSERT_FATAL(client != NULL);
		n += missing(client);
		CU_ASSERT_EQUAL(put_stamp(client, 0, index_of(EXTENTS, turn), 77), 1);
	}
	store_close(store);
	return n;
}

/* Each page in turn names the entry that its object has in another shard. */
static void strayed(void)
{
	for (unsigned e = 0; e < EXTENTS; e++)
		for (unsigned p = 0; p < PAGES; p++) {
			struct store_client *client = filled();
			struct desc *desc = desc_at(client, e, p);

			desc->object = desc_at(client, (e + 1) % EXTENTS, 0)->object;
			CU_ASSERT_EQUAL(missing_after_starts(client->store), 0);
		}
}

/* The first pages of all shards, which say whose an entry is, name each other's. */
static void strayed_in_a_ring(void)
{
	struct store_client *client = filled();
	uint32_t first = desc_at(client, 0, 0)->object;

	for (unsigned e = 0; e + 1 < EXTENTS; e++)
		desc_at(client, e, 0)->object = desc_at(client, e + 1, 0)->object;
	desc_at(client, EXTENTS - 1, 0)->object = first;
	CU_ASSERT_EQUAL(missing_after_starts(client->store), 0);
}

/* With its bytes damaged as well, nothing says where a page belongs: it alone is lost. */
static void strayed_and_damaged(void)
{
	struct store_client *client = filled();
	struct desc *desc = desc_at(client, 2, 0);

	desc->object = desc_at(client, 3, 0)->object;
	desc->check ^= 1;
	CU_ASSERT_EQUAL(missing_after_starts(client->store), 2); /* one at each start */
}

int main(void)
{
	CU_TestInfo tests[] = {{"a page that strayed", strayed},
			       {"pages that strayed in a ring", strayed_in_a_ring},
			       {"a page that strayed and is damaged", strayed_and_damaged},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"rebuild", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("unit-rebuild");
	return unit_run(suites);
}
