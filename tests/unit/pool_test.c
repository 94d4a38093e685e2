// SPDX-License-Identifier: GPL-2.0-or-later
/* Pools: flags, nonces, sharing, and what destroying leaves behind. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "tests/unit/with_store.h"

static const uint64_t uuid[2] = {11, 12};

static void flags(void)
{
	static const uint64_t none[2];
	static const uint32_t bad[] = {
		0,					  /* specification version 0 */
		2u << TMEM_POOL_VERSION_SHIFT,		  /* version 2 */
		PRIVATE | 1u << TMEM_POOL_PAGESIZE_SHIFT, /* pages of 8192 bytes */
		PRIVATE | 4,				  /* precompressed */
		PRIVATE | 1u << 9,			  /* reserved */
		PERSISTENT | TMEM_POOL_X_INCLUSIVE,
	};
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(store_pool_new(client, bad[i], none, 0) == -EINVAL);
	CU_ASSERT(client_count(client, CLIENT_REFUSED_POOL) == sizeof(bad) / sizeof(bad[0]));
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		CU_ASSERT(store_pool_new(client, PRIVATE, none, 0) == (int)i);
	CU_ASSERT(store_pool_new(client, PRIVATE, none, 0) == -ENOSPC);
	CU_ASSERT(store_pools_destroy(client) == STORE_MAX_CLIENT_POOLS);
	CU_ASSERT(store_pool_destroy(client, 0) == -ENOENT);
	store_close(store);
}

static void nonces(void)
{
	static const uint64_t none[2];
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	int id = store_pool_new(client, PERSISTENT, none, 77);

	CU_ASSERT(store_pool_new(client, PERSISTENT, none, 77) == id);
	CU_ASSERT(store_pool_new(client, PERSISTENT, none, 78) != id);
	store_close(store);
	store = open_again(NULL, NULL);
	client = store_client_find(store, "c");
	CU_ASSERT_FATAL(client != NULL);
	CU_ASSERT(store_pool_new(client, PERSISTENT, none, 77) == id);
	store_close(store);
}

/* The second member pays when the first one leaves, and sees the pages all the time. */
/* Case 30 of docs/cases.md. */
static void shared(void)
{
	struct store *store = open_new();
	struct store_client *a = make_client_named(store, "a"), *b = make_client_named(store, "b");
	int pa, pb;

	CU_ASSERT(store_pool_new(a, SHARED, uuid, 0) == -EPERM);
	CU_ASSERT(store_shared_auth(a, uuid, true) == 0 && store_shared_auth(b, uuid, true) == 0);
	pa = store_pool_new(a, SHARED, uuid, 0);
	pb = store_pool_new(b, SHARED, uuid, 0);
	CU_ASSERT_FATAL(pa >= 0 && pb >= 0);
	CU_ASSERT(store_pool_new(b, SHARED, uuid, 5) == pb);
	for (uint32_t i = 0; i < 50; i++)
		CU_ASSERT(put_stamp(a, pa, i, i + 1) == 1);
	CU_ASSERT(holds_stamp(b, pb, 7, 8) && holds_stamp(b, pb, 7, 8));
	CU_ASSERT(client_count(b, CLIENT_PHYSICAL_BYTES) == 0);
	CU_ASSERT(store_pool_destroy(a, pa) == 1);
	CU_ASSERT(client_count(a, CLIENT_PHYSICAL_BYTES) == 0);
	CU_ASSERT(client_count(a, CLIENT_PAGES_EPHEMERAL) == 0);
	CU_ASSERT(client_count(b, CLIENT_PAGES_EPHEMERAL) == 50);
	CU_ASSERT(holds_stamp(b, pb, 7, 8));
	CU_ASSERT(store_shared_auth(b, uuid, false) == 0);
	CU_ASSERT(store_pool_destroy(b, pb) == 1);
	CU_ASSERT(client_count(b, CLIENT_PHYSICAL_BYTES) == 0);
	CU_ASSERT(store_pool_new(b, SHARED, uuid, 0) == -EPERM);
	store_close(store);
}

/* A large pool is unreachable at once; its pages and its record go in the background. */
static void sweep(void)
{
	struct store *store = open_new();
	struct store_client *client = make_client_named(store, "c");
	uint32_t pool = make_pool_of(client, PERSISTENT), again;

	for (uint32_t i = 0; i < 6000; i++)
		CU_ASSERT(put_stamp(client, pool, i, i + 1) == 1);
	CU_ASSERT(store_pool_destroy(client, pool) == 1);
	again = make_pool_of(client, PERSISTENT);
	CU_ASSERT(!holds_stamp(client, again, 5, 6));
	CU_ASSERT(client_count(client, CLIENT_PAGES_PERSISTENT) == 6000);
	work_off(store);
	CU_ASSERT(client_count(client, CLIENT_PAGES_PERSISTENT) == 0);
	CU_ASSERT(client_count(client, CLIENT_PHYSICAL_BYTES) == 0);
	CU_ASSERT(store->dying_pools == 0);
	store_close(store);
}

struct late_put {
	struct store_client *client;
	uint32_t pool;
	int result;
};

static void *put_late(void *arg)
{
	struct late_put *late = arg;

	late->result = put_stamp(late->client, late->pool, 1, 99);
	return NULL;
}

/*
 * A put has resolved its pool; before it goes on, the pool is destroyed, and the next one gets its
 * id and its record. Nothing of the old pool's may come up in it.
 */
static void remade(void)
{
	struct store *store = open_new();
	struct late_put late = {.client = make_client_named(store, "c")};
	unsigned raced = 0;

	if (!fault_arm(FAULT_POOL_RESOLVED, FAULT_OFF, 0, 0)) {
		printf("not run: fault injection is not compiled in ");
		store_close(store);
		return;
	}
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		uint32_t again;

		late.pool = make_pool_of(late.client, PERSISTENT);
		fault_arm(FAULT_POOL_RESOLVED, FAULT_SLEEP, 0, 1);
		CU_ASSERT_FATAL(!pthread_create(&thread, NULL, put_late, &late));
		while (!fault_passes(FAULT_POOL_RESOLVED))
			sched_yield();
		CU_ASSERT(store_pool_destroy(late.client, late.pool) == 1);
		again = make_pool_of(late.client, PERSISTENT);
		CU_ASSERT(again == late.pool);
		pthread_join(thread, NULL);
		raced += late.result == -ENOENT;
		CU_ASSERT(!holds_stamp(late.client, again, 1, 99));
		CU_ASSERT(store_pool_destroy(late.client, again) == 1);
	}
	fault_arm(FAULT_POOL_RESOLVED, FAULT_OFF, 0, 0);
	CU_ASSERT(raced > 0);
	CU_ASSERT(client_count(late.client, CLIENT_PAGES_PERSISTENT) == 0);
	store_close(store);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"flags and numbers", flags}, {"nonces", nonces},
				      {"shared", shared},	    {"sweep", sweep},
				      {"remade", remade},	    CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"pool", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("pool-test");
	return unit_run(suites);
}
