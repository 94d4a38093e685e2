// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * put, get and flush allocate nothing, map nothing and fault no page in: the service may be what
 * the host's memory depends on.
 * tests/service/noalloc shows the same for the threads of the whole service.
 */
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/noalloc.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <sys/resource.h>
#include <unistd.h>

#ifdef NOALLOC_SKIPS
int main(void)
{
	puts(NOALLOC_SKIPS);
	return SKIPPED;
}
#else

#define HANDLES 6000
#define STEPS 200000

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static struct store_handle handle_of(uint32_t pool, uint32_t i)
{
	struct store_handle handle = {.object = {i / 8, i / 100, 0}, .pool = pool, .index = i};

	return handle;
}

static unsigned accepted, refused, hits;

static void step(struct store_client *client, uint32_t pool, struct rng *r, uint8_t *page)
{
	struct store_handle handle = handle_of(pool, rng_below(r, HANDLES));
	int n;

	switch (rng_below(r, 8)) {
	case 0:
	case 1:
	case 2:
		page_make(page, rng_next(r));
		noalloc_forbidden = true;
		n = store_put(client, &handle, page, 0);
		noalloc_forbidden = false;
		accepted += n == 1;
		refused += n != 1;
		break;
	case 3:
		noalloc_forbidden = true;
		store_flush(client, &handle);
		noalloc_forbidden = false;
		break;
	case 4:
		noalloc_forbidden = true;
		if (!(handle.index % 16))
			store_flush_object(client, pool, handle.object);
		store_prefetch(client, &handle, 1);
		noalloc_forbidden = false;
		break;
	default:
		noalloc_forbidden = true;
		hits += store_get(client, &handle, page) == 1;
		noalloc_forbidden = false;
	}
}

int main(void)
{
	static const struct store_limits limits = {0};
	static const uint64_t uuid[2];
	struct store_config config = {.pool_max = 96u << 20, .ready_chunks = 8};
	struct store *store;
	struct store_client *client;
	uint8_t page[PAGE_BYTES];
	char err[256] = "";
	uint32_t pools[2];
	struct rng r = {test_seed()};
	long before;

	printf("seed %llu\n", (unsigned long long)r.state);
	scratch_make("noalloc");
	log_setup(LOG_ERROR, false);
	config.arena_path = scratch_path("arena");
	CHECK(!store_open(&store, &config, err, sizeof(err)), "%s", err);
	CHECK(!store_client_open(store, "c", &limits, &client), "client");
	pools[0] =
		store_pool_new(client, 1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST, uuid, 1);
	pools[1] = store_pool_new(client, 1u << TMEM_POOL_VERSION_SHIFT, uuid, 2);
	usleep(300000);			   /* the worker makes memory ready */
	for (unsigned i = 0; i < 200; i++) /* this thread's stack, code and scratch memory */
		step(client, pools[i & 1], &r, page);
	before = faults();
	for (uint64_t i = 0; i < test_scaled(STEPS); i++)
		step(client, pools[i & 1], &r, page);
	before = faults() - before;
	CHECK(accepted > refused && hits > 0, "accepted %u, refused %u, hits %u", accepted, refused,
	      hits);
	/* Which page of a library is first used when is not the store's doing: a handful. */
	CHECK(before <= 16, "%ld page faults in %u puts", before, accepted);
	printf("%u puts, %u refused, %u hits: nothing allocated, %ld page faults\n", accepted,
	       refused, hits, before);
	store_close(store);
	return 0;
}
#endif
