// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory lent to other hosts: what they put is there, over a restart, and makes way for own pages.
 */
#include "tests/lib/rng.h"
#include "tests/unit/with_store.h"

#include <errno.h>
#include <string.h>

#define SMALL (48ull << 20)
#define BLOBS 3000u

static struct store *store;
static const struct store_owner alice = {{1, 2}, 1}, alice_later = {{1, 2}, 2}, bob = {{1, 3}, 1};

static void open_small(void)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = SMALL,
				      .ready_chunks = 1,
				      .no_worker = true};
	char err[256] = "";

	CU_ASSERT_FATAL(!store_open(&store, &config, err, sizeof(err)));
	work_off(store);
}

static void begin(void)
{
	unlink(scratch_path("arena"));
	open_small();
}

/* Bytes of a length and content that follow from whose and which they are. */
static uint32_t blob_of(const struct store_owner *owner, uint64_t id, uint8_t bytes[4096])
{
	struct rng rng = {id * 31 + owner->uuid[1] * 7 + owner->epoch};
	uint32_t len = 1 + rng_below(&rng, 4096);

	for (uint32_t i = 0; i < len; i++)
		bytes[i] = rng_next(&rng);
	return len;
}

static int put(const struct store_owner *owner, uint64_t id)
{
	uint8_t bytes[4096];
	uint32_t len = blob_of(owner, id, bytes);
	int r = store_blob_put(store, owner, id, bytes, len);

	work_off(store);
	return r;
}

/* 1 it is there, 0 it is not, -EILSEQ it is another. */
static int there(const struct store_owner *owner, uint64_t id)
{
	uint8_t want[4096], got[4096];
	uint32_t len = blob_of(owner, id, want);
	int r = store_blob_get(store, owner, id, got);

	if (r == -ENOENT)
		return 0;
	return r == (int)len && !memcmp(want, got, len) ? 1 : -EILSEQ;
}

/* Numbers of all sizes. */
static uint64_t number(unsigned i)
{
	return i % 3 ? i : (uint64_t)i << 31;
}

static uint64_t count(enum store_counter counter)
{
	return counter_get(&store_counters(store)[counter]);
}

static int any(struct store_client *client, void *arg)
{
	(void)client;
	++*(unsigned *)arg;
	return 0;
}

static void kept(void)
{
	uint64_t ids[64], last = 0;
	unsigned listed = 0, clients = 0, nr;

	begin();
	CU_ASSERT_EQUAL(put(&alice, 1), -ENOSPC); /* nothing is lent yet */
	CU_ASSERT(!store_set_lend(store, SMALL));
	for (unsigned i = 0; i < BLOBS; i++) {
		CU_ASSERT_FATAL(!put(&alice, number(i)));
		if (!(i % 4))
			CU_ASSERT_FATAL(!put(&bob, number(i)));
	}
	CU_ASSERT_EQUAL(there(&alice_later, 1), 0);
	CU_ASSERT(!put(&alice_later, 1));
	CU_ASSERT_EQUAL(count(STORE_LENT_BLOBS), BLOBS + BLOBS / 4 + 1);
	/* Nobody sees the client behind it. */
	CU_ASSERT_EQUAL(store_client_each(store, any, &clients), 0);
	CU_ASSERT_EQUAL(clients, 0);
	CU_ASSERT_PTR_NULL(store_client_find(store, ".lent"));
	store_close(store);
	open_small();
	clients = 0;
	CU_ASSERT_EQUAL(store_client_each(store, any, &clients), 0);
	CU_ASSERT_EQUAL(clients, 0);
	for (unsigned i = 0; i < BLOBS; i++) {
		CU_ASSERT_EQUAL(there(&alice, number(i)), 1);
		CU_ASSERT_EQUAL(there(&bob, number(i)), i % 4 == 0);
	}
	do {
		nr = store_blob_list(store, &alice, last, ids, 64);
		for (unsigned i = 0; i < nr; i++) {
			CU_ASSERT(ids[i] >= last);
			CU_ASSERT_EQUAL(there(&alice, ids[i]), 1);
			last = ids[i] + 1;
		}
		listed += nr;
	} while (nr == 64);
	CU_ASSERT_EQUAL(listed, BLOBS);
	CU_ASSERT_EQUAL(store_blob_delete(store, &alice, number(5)), 1);
	CU_ASSERT_EQUAL(store_blob_delete(store, &alice, number(5)), 0);
	CU_ASSERT_EQUAL(there(&alice, number(5)), 0);
	CU_ASSERT_EQUAL(store_blob_forget(store, &alice), 1);
	CU_ASSERT_EQUAL(store_blob_forget(store, &alice), 0);
	CU_ASSERT_EQUAL(there(&alice, number(6)), 0);
	CU_ASSERT_EQUAL(there(&alice_later, 1), 1);
	CU_ASSERT_EQUAL(there(&bob, number(4)), 1);
	store_blob_forget(store, &alice_later);
	store_blob_forget(store, &bob);
	work_off(store);
	CU_ASSERT_EQUAL(count(STORE_LENT_BLOBS), 0);
	CU_ASSERT_EQUAL(count(STORE_LENT_BYTES), 0);
	store_close(store);
}

static void limited(void)
{
	uint8_t bytes[4096] = {1};
	unsigned i = 0;

	begin();
	CU_ASSERT(!store_set_lend(store, 2u << 20));
	while (!put(&alice, i) && i < BLOBS)
		i++;
	CU_ASSERT(i > 100 && i < BLOBS);
	CU_ASSERT(count(STORE_LENT_BYTES) <= 2u << 20);
	CU_ASSERT(count(STORE_LEND_REFUSED) > 0);
	CU_ASSERT_EQUAL(store_lend_excess(store), 0);
	/* A put that is refused leaves nothing of the old one. */
	CU_ASSERT(!store_set_lend(store, 0));
	CU_ASSERT_EQUAL(put(&alice, 3), -ENOSPC);
	CU_ASSERT_EQUAL(there(&alice, 3), 0);
	CU_ASSERT_EQUAL(there(&alice, 4), 1);
	CU_ASSERT_EQUAL(store_lend_excess(store), count(STORE_LENT_BYTES));
	CU_ASSERT_EQUAL(store_blob_put(store, &alice, 9, bytes, 0), -EINVAL);
	CU_ASSERT_EQUAL(store_blob_put(store, &alice, 9, bytes, 4097), -EINVAL);
	store_close(store);
}

/* Lent as much as there is; then own pages come, and are never refused while blobs can leave. */
static void own_first(void)
{
	struct store_client *client;
	unsigned lent = 0, gone = 0, refused = 0;
	uint32_t pool;
	uint64_t excess;

	begin();
	CU_ASSERT(!store_set_lend(store, SMALL));
	while (!put(&alice, lent))
		lent++;
	CU_ASSERT(lent > 1000);
	client = make_client_named(store, "own");
	pool = make_pool_of(client, PERSISTENT);
	for (unsigned i = 0; gone < lent; i++) {
		struct store_handle handle = handle_in(pool, 1, i);
		uint8_t page[PAGE_BYTES];

		page_make(page, i + 1);
		refused += store_put(client, &handle, page, 0) != 1;
		work_off(store);
		/* What the lender asks for leaves. */
		excess = store_lend_excess(store);
		for (uint64_t left = 0; left < excess && gone < lent; gone++) {
			CU_ASSERT_EQUAL(there(&alice, gone), 1);
			CU_ASSERT_EQUAL(store_blob_delete(store, &alice, gone), 1);
			left += 2048;
		}
		work_off(store);
	}
	CU_ASSERT_EQUAL(refused, 0);
	CU_ASSERT(client_count(client, CLIENT_PAGES_PERSISTENT) > 1000);
	store_close(store);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"kept over a restart, listed, forgotten", kept},
				      {"no more than is lent", limited},
				      {"own pages first", own_first},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"lend", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("lend");
	return unit_run(suites);
}
