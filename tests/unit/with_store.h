/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A store without background thread, and the few operations that its unit tests need. */
#ifndef TMEMD_TESTS_WITH_STORE_H
#define TMEMD_TESTS_WITH_STORE_H

#include <stdlib.h>
#include <unistd.h>

#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#define PRIVATE (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT)
#define PERSISTENT (PRIVATE | TMEM_POOL_PERSIST)
#define INCLUSIVE (PRIVATE | TMEM_POOL_X_INCLUSIVE)
#define SHARED (PRIVATE | TMEM_POOL_SHARED)
#define POOL_MAX (128ull << 20)

static inline struct store *open_again(const char *meminfo, const char *psi)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = POOL_MAX,
				      .ready_chunks = 4,
				      .no_worker = true,
				      .meminfo_path = meminfo,
				      .psi_path = psi};
	struct store *store;
	char err[256];

	if (store_open(&store, &config, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	return store;
}

static inline struct store *open_new(void)
{
	unlink(scratch_path("arena"));
	return open_again(NULL, NULL);
}

static inline struct store_client *make_client_named(struct store *store, const char *name)
{
	static const struct store_limits none;
	struct store_client *client = NULL;

	CU_ASSERT_FATAL(store_client_open(store, name, &none, &client) == 0);
	return client;
}

static inline uint32_t make_pool_of(struct store_client *client, uint32_t flags)
{
	static const uint64_t no_uuid_[2];
	int id = store_pool_new(client, flags, no_uuid_, 0);

	CU_ASSERT_FATAL(id >= 0);
	return id;
}

static inline struct store_handle handle_in(uint32_t pool, uint64_t object, uint32_t index)
{
	struct store_handle handle = {{object, 2, 3}, pool, index};

	return handle;
}

/* Puts the page made from `stamp` at object 1; the store may need its worker's help. */
static inline int put_stamp(struct store_client *client, uint32_t pool, uint32_t index,
			    uint64_t stamp)
{
	struct store_handle handle = handle_in(pool, 1, index);
	uint8_t page[PAGE_BYTES];
	int r;

	page_make(page, stamp);
	do
		r = store_put(client, &handle, page, 0);
	while (r == -ENOMEM && store_work(client->store));
	return r;
}

static inline bool holds_stamp(struct store_client *client, uint32_t pool, uint32_t index,
			       uint64_t stamp)
{
	struct store_handle handle = handle_in(pool, 1, index);
	uint8_t page[PAGE_BYTES];

	return store_get(client, &handle, page) == 1 && page_is(page, stamp);
}

static inline void work_off(struct store *store)
{
	for (unsigned i = 0; i < 100000 && store_work(store); i++)
		;
}

static inline uint64_t client_count(struct store_client *client, enum client_counter counter)
{
	return counter_get(&store_client_counters(client)[counter]);
}

#endif
