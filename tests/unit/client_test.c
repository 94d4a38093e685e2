// SPDX-License-Identifier: GPL-2.0-or-later
/* Client records: names, limits and the sum of what is lacking to minimums, notes, credits. */
#include <errno.h>
#include <string.h>

#include "tests/unit/with_store.h"

static void names(void)
{
	static const char *const bad[] = {"", ".hidden", "a b", "a/b", "a:b", "a\n"};
	static const struct store_limits none;
	struct store *store = open_new();
	struct store_client *client;
	char name[STORE_NAME_MAX + 1];

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(store_client_open(store, bad[i], &none, &client) == -EINVAL);
	memset(name, 'n', sizeof(name));
	name[STORE_NAME_MAX] = 0;
	CU_ASSERT(store_client_open(store, name, &none, &client) == -EINVAL);
	name[STORE_NAME_MAX - 1] = 0;
	CU_ASSERT(store_client_open(store, name, &none, &client) == 0);
	CU_ASSERT(!strcmp(store_client_name(client), name));
	CU_ASSERT(store_client_find(store, name) == client);
	CU_ASSERT(store_client_find(store, "nobody") == NULL);
	store_close(store);
}

/* What all clients lack to their minimums follows puts, flushes and changes of the limits. */
static void minimums(void)
{
	struct store_limits limits = {.min_bytes = 1 << 20};
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	struct store_handle handle;
	uint32_t pool = make_pool_of(client, PERSISTENT);
	uint64_t have;

	CU_ASSERT(store_client_set_limits(client, &limits) == 0);
	CU_ASSERT(store->alloc.min_unused == 1 << 20);
	for (uint32_t i = 0; i < 100; i++)
		CU_ASSERT(put_stamp(client, pool, i, i + 1) == 1);
	have = client_count(client, CLIENT_PHYSICAL_BYTES);
	CU_ASSERT(have > 0 && store->alloc.min_unused == (1 << 20) - have);
	limits.min_bytes = have / 2;
	CU_ASSERT(store_client_set_limits(client, &limits) == 0);
	CU_ASSERT(store->alloc.min_unused == 0);
	for (uint32_t i = 0; i < 100; i++) {
		handle = handle_in(pool, 1, i);
		CU_ASSERT(store_flush(client, &handle) == 1);
	}
	CU_ASSERT(store->alloc.min_unused == have / 2);
	limits.min_bytes = POOL_MAX + 1;
	CU_ASSERT(store_client_set_limits(client, &limits) == -ENOSPC);
	store_client_remove(client);
	CU_ASSERT(store->alloc.min_unused == 0);
	store_close(store);
}

static void notes(void)
{
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	char note[STORE_MAX_NOTE + 1], got[STORE_MAX_NOTE];

	memset(note, 'x', sizeof(note));
	CU_ASSERT(store_client_note(client, got, sizeof(got)) == 0);
	CU_ASSERT(store_client_set_note(client, note, sizeof(note)) == -EINVAL);
	CU_ASSERT(store_client_set_note(client, note, 7) == 7);
	CU_ASSERT(store_client_set_note(client, "later", 5) == 5);
	CU_ASSERT(store_client_note(client, got, 4) == -EINVAL);
	store_close(store);
	store = open_again(NULL, NULL);
	client = store_client_find(store, "c");
	CU_ASSERT_FATAL(client != NULL);
	CU_ASSERT(store_client_note(client, got, sizeof(got)) == 5 && !memcmp(got, "later", 5));
	store_close(store);
}

static void credits(void)
{
	struct store_limits limits = {.max_bytes = 10 * CREDIT_BYTES};
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");

	CU_ASSERT(store_client_set_limits(client, &limits) == 0);
	CU_ASSERT(store_credits_grant(client, 100) == 10);
	CU_ASSERT(store_credits_grant(client, 1) == 0);
	store_credits_revoke(client, 4);
	CU_ASSERT(store_credits(client) == 6 && store->alloc.credits == 6);
	store_close(store);
	store = open_again(NULL, NULL);
	client = store_client_find(store, "c");
	CU_ASSERT_FATAL(client != NULL);
	CU_ASSERT(store_credits(client) == 6 && store->alloc.credits == 6);
	store_credits_revoke(client, 100);
	CU_ASSERT(store_credits(client) == 0 && store->alloc.credits == 0);
	store_client_freeze(client, true);
	CU_ASSERT(store_credits_grant(client, 1) == 0);
	store_close(store);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"names", names},
				      {"minimums", minimums},
				      {"notes", notes},
				      {"credits", credits},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"client", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("client-test");
	return unit_run(suites);
}
