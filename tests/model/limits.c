// SPDX-License-Identifier: GPL-2.0-or-later
/* Limits, guarantees, credits and giving memory back: the arithmetic, case by case. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (1ull << 20)
#define PRIVATE (1u << TMEM_POOL_VERSION_SHIFT)
#define PERSISTENT (PRIVATE | TMEM_POOL_PERSIST)
#define INCLUSIVE (PRIVATE | TMEM_POOL_X_INCLUSIVE)
/* More than the bytes of a page, its descriptor and the rounding of its class. */
#define WHOLE_PAGE 4400u

static const uint64_t no_uuid[2];
static char meminfo[128]; /* path; empty: the host's own */

static struct store *reopen(struct store *store, uint64_t pool_max)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = pool_max,
				      .ready_chunks = 2,
				      .no_worker = true,
				      .meminfo_path = meminfo[0] ? meminfo : NULL};
	char err[256] = "";
	int r;

	if (store)
		store_close(store);
	else
		unlink(scratch_path("arena"));
	r = store_open(&store, &config, err, sizeof(err));
	CHECK(!r, "store_open: %d %s", r, err);
	return store;
}

static struct store_client *client(struct store *store, const char *name, uint64_t min,
				   uint64_t max)
{
	struct store_limits limits = {.min_bytes = min, .max_bytes = max};
	struct store_client *c;
	int r = store_client_open(store, name, &limits, &c);

	CHECK(!r, "client %s: %d", name, r);
	return c;
}

static uint32_t pool(struct store_client *c, uint32_t flags)
{
	int r = store_pool_new(c, flags, no_uuid, 0);

	CHECK(r >= 0, "pool: %d", r);
	return r;
}

static void work_all(struct store *store)
{
	for (unsigned i = 0; i < 100000 && store_work(store); i++)
		;
}

static struct store_handle at(uint32_t pool_id, uint64_t i)
{
	struct store_handle handle = {
		.object = {i >> 12, 0, 0}, .pool = pool_id, .index = i & 4095};

	return handle;
}

/* Page i of a pool; size 0: of the histogram, else as LZ4 will find it. */
static void make(uint8_t *page, uint32_t pool_id, uint64_t i, unsigned size)
{
	uint64_t stamp = (uint64_t)(pool_id + 1) << 40 | i;

	if (size)
		page_make_sized(page, stamp, size);
	else
		page_make(page, stamp);
}

static int put(struct store_client *c, uint32_t pool_id, uint64_t i, unsigned size, unsigned flags)
{
	struct store_handle handle = at(pool_id, i);
	uint8_t page[PAGE_BYTES];

	make(page, pool_id, i, size);
	return store_put(c, &handle, page, flags);
}

static int get(struct store_client *c, uint32_t pool_id, uint64_t i, unsigned size)
{
	struct store_handle handle = at(pool_id, i);
	uint8_t page[PAGE_BYTES], got[PAGE_BYTES];
	int r = store_get(c, &handle, got);

	make(page, pool_id, i, size);
	CHECK(r != 1 || !memcmp(page, got, PAGE_BYTES), "page %llu: wrong bytes",
	      (unsigned long long)i);
	return r;
}

static void flush(struct store_client *c, uint32_t pool_id, uint64_t i)
{
	struct store_handle handle = at(pool_id, i);

	store_flush(c, &handle);
}

/* Puts from page `from` on until one is refused though the worker did all it could; how many. */
static uint64_t fill(struct store *store, struct store_client *c, uint32_t pool_id, uint64_t from,
		     unsigned size, int *refusal)
{
	uint64_t i = from;

	for (;; i++) {
		*refusal = put(c, pool_id, i, size, 0);
		if (*refusal == 1)
			continue;
		work_all(store);
		*refusal = put(c, pool_id, i, size, 0);
		if (*refusal != 1)
			return i - from;
	}
}

static uint64_t gauge(struct store *store, struct store_client *c, enum client_counter which)
{
	store_counters(store);
	return counter_get(&store_client_counters(c)[which]);
}

static void all_there(struct store_client *c, uint32_t pool_id, uint64_t n, unsigned size)
{
	for (uint64_t i = 0; i < n; i++)
		CHECK(get(c, pool_id, i, size) == 1, "page %llu of %llu is lost",
		      (unsigned long long)i, (unsigned long long)n);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

/* Case 11 of docs/cases.md. */
static void maximum(void)
{
	struct store *store = reopen(NULL, 64 * MIB);
	struct store_client *c = client(store, "c", 0, 8 * MIB);
	struct store_limits limits = {.max_bytes = 8 * MIB};
	uint32_t p = pool(c, PERSISTENT);
	int refusal;
	uint64_t n, more;

	work_all(store);
	n = fill(store, c, p, 0, PAGE_BYTES, &refusal);
	CHECK(refusal == -EDQUOT, "refused with %d", refusal);
	CHECK(gauge(store, c, CLIENT_PHYSICAL_BYTES) <= 8 * MIB, "above the maximum");
	CHECK(n >= 8 * MIB / WHOLE_PAGE, "only %llu pages below it", (unsigned long long)n);
	CHECK(gauge(store, c, CLIENT_REFUSED_MAXIMUM) > 0, "not counted");
	CHECK(get(c, p, n, PAGE_BYTES) == 0, "a refused page is there");
	/* Same-filled pages cost a descriptor, and that counts too. */
	limits.max_bytes = 10 * MIB;
	CHECK(!store_client_set_limits(c, &limits), "raising the maximum");
	more = fill(store, c, p, n, PAGE_BYTES, &refusal);
	CHECK(more > 0 && refusal == -EDQUOT, "%llu more, then %d", (unsigned long long)more,
	      refusal);
	limits.max_bytes = 4 * MIB;
	CHECK(!store_client_set_limits(c, &limits), "lowering the maximum");
	work_all(store);
	all_there(c, p, n + more, PAGE_BYTES);
	CHECK(put(c, p, 0, 100, 0) == -EDQUOT, "a put above the lowered maximum");
	CHECK(get(c, p, 0, PAGE_BYTES) == 0, "its old page is still readable");
	for (uint64_t i = 0; i < n + more; i++)
		flush(c, p, i);
	CHECK(put(c, p, 0, PAGE_BYTES, 0) == 1, "below the maximum again");
	CHECK(store_pool_destroy(c, p) == 1, "destroy");
	work_all(store);
	CHECK(gauge(store, c, CLIENT_PHYSICAL_BYTES) == 0, "bytes without pages");
	store_close(store);
}

/* What a client is guaranteed is there even when the others took all they could get. */
/* Case 12 of docs/cases.md. */
static void minimum(void)
{
	struct store *store = reopen(NULL, 64 * MIB);
	struct store_client *safe = client(store, "safe", 16 * MIB, 0);
	struct store_client *greedy = client(store, "greedy", 0, 0);
	uint32_t p = pool(safe, PERSISTENT), g = pool(greedy, PERSISTENT);
	struct store_limits limits = {.min_bytes = 60 * MIB};
	struct store_client *third;
	int refusal, r;
	uint64_t n, got = 0;

	work_all(store);
	n = fill(store, greedy, g, 0, PAGE_BYTES, &refusal);
	CHECK(n > 0 && refusal != 1, "the pool is never full");
	for (unsigned size = 100; size < 4000; size += 39)
		put(greedy, g, n + size, size, 0);
	while (gauge(store, safe, CLIENT_PHYSICAL_BYTES) + WHOLE_PAGE < 16 * MIB) {
		r = put(safe, p, got, PAGE_BYTES, 0);
		if (r != 1) {
			work_all(store);
			r = put(safe, p, got, PAGE_BYTES, 0);
		}
		CHECK(r == 1, "put %llu below the minimum answered %d", (unsigned long long)got, r);
		got++;
	}
	all_there(safe, p, got, PAGE_BYTES);
	all_there(greedy, g, n, PAGE_BYTES);
	r = store_client_open(store, "third", &limits, &third);
	CHECK(r == -ENOSPC, "minimums above pool_max: %d", r);
	CHECK(store_set_pool_max(store, 8 * MIB) == -EINVAL, "pool_max below the minimums");
	store_close(store);
}

/*
 * With C credits outstanding and the pool otherwise full, C posted puts succeed: incompressible
 * ones (step 0) or of every size class in turn, also frozen, over a lowered maximum, after memory
 * was reclaimed, and after a restart.
 */
static void credits(unsigned want, unsigned step, bool restart)
{
	struct store *store = reopen(NULL, 96 * MIB);
	struct store_client *c = client(store, "c", 0, 0);
	struct store_client *other = client(store, "other", 0, 0);
	uint32_t p = pool(c, PERSISTENT), o = pool(other, PERSISTENT);
	struct store_limits limits = {.max_bytes = MIB};
	unsigned have = 0, size = step ? 30 : PAGE_BYTES;
	int refusal, r;

	work_all(store);
	while (have < want) {
		unsigned n = store_credits_grant(c, want - have < 16 ? want - have : 16);

		CHECK(n || store_work(store), "%u of %u credits", have, want);
		have += n;
	}
	fill(store, other, o, 0, 0, &refusal);
	fill(store, other, o, 1000000, PAGE_BYTES, &refusal);
	fill(store, other, o, 2000000, 200, &refusal);
	store_reclaim(store, 64 * MIB, 200);
	fill(store, other, o, 3000000, 0, &refusal);
	if (restart) {
		store = reopen(store, 96 * MIB);
		c = store_client_find(store, "c");
		other = store_client_find(store, "other");
		CHECK(c && other && store_credits(c) == want, "credits after a restart");
		fill(store, other, o, 4000000, 0, &refusal);
	}
	store_freeze(store, true);
	CHECK(!store_client_set_limits(c, &limits), "limits");
	CHECK(store_credits_grant(c, 1) == 0, "a credit while frozen");
	/* No store_work() from here on: nothing may depend on the worker. */
	for (unsigned i = 0; i < want; i++) {
		r = put(c, p, i, size, STORE_PUT_CREDIT);
		CHECK(r == 1, "posted put %u of %u (size %u) answered %d", i, want, size, r);
		CHECK(get(c, p, i, size) == 1, "posted put %u is lost", i);
		CHECK(store_credits(c) == want - i - 1, "%u credits left", store_credits(c));
		size = step ? (size + step > 4000 ? 30 : size + step) : size;
	}
	CHECK(put(c, p, want, PAGE_BYTES, STORE_PUT_CREDIT) == -TMEM_EFROZEN, "a forged credit");
	CHECK(gauge(store, c, CLIENT_CREDITS_FORGED) == 1, "it is not counted");
	CHECK(gauge(store, c, CLIENT_PUTS_POSTED) == want, "posted puts are not counted");
	store_close(store);
}

/* Oldest first; and what is persistent pushes out what is not. */
static void ephemeral(void)
{
	struct store *store = reopen(NULL, 64 * MIB);
	struct store_client *c = client(store, "c", 0, 0);
	uint32_t e = pool(c, INCLUSIVE), p = pool(c, PERSISTENT);
	uint64_t n = 24000, hits[4] = {0}, held;
	int refusal;

	work_all(store);
	for (uint64_t i = 0; i < n; i++)
		if (put(c, e, i, PAGE_BYTES, 0) != 1) {
			for (unsigned k = 0; k < 8; k++)
				store_work(store);
			put(c, e, i, PAGE_BYTES, 0);
		}
	for (uint64_t i = 0; i < n; i++)
		hits[i * 4 / n] += get(c, e, i, PAGE_BYTES) == 1;
	/* Each shard drops its oldest; which shard has its turn is not a matter of age. */
	CHECK(hits[0] < n / 4 * 15 / 100,
	      "%llu of the oldest quarter are there (%llu, %llu, %llu of the others)",
	      (unsigned long long)hits[0], (unsigned long long)hits[1], (unsigned long long)hits[2],
	      (unsigned long long)hits[3]);
	CHECK(hits[3] > n / 4 * 9 / 10, "only %llu of the newest quarter are there",
	      (unsigned long long)hits[3]);
	CHECK(gauge(store, c, CLIENT_EVICTED) > 0, "evictions are not counted");
	CHECK(store_freeable(store) > 32 * MIB, "ephemeral pages are freeable, only %llu bytes are",
	      (unsigned long long)store_freeable(store));
	held = fill(store, c, p, 0, PAGE_BYTES, &refusal);
	CHECK(held > 48 * MIB / WHOLE_PAGE, "%llu persistent pages pushed ephemeral ones out",
	      (unsigned long long)held);
	all_there(c, p, held, PAGE_BYTES);
	store_flush_ephemeral(store, c);
	CHECK(gauge(store, c, CLIENT_PAGES_EPHEMERAL) == 0, "ephemeral pages after their flush");
	all_there(c, p, held, PAGE_BYTES);
	store_close(store);
}

static uint64_t arena_bytes(void)
{
	struct stat st;

	return stat(scratch_path("arena"), &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

/* `freeable` tells the truth, also when the free memory is in pieces. (case 13) */
static void reclaim(void)
{
	struct store *store = reopen(NULL, 128 * MIB);
	struct store_client *c = client(store, "c", 0, 0);
	uint32_t p = pool(c, PERSISTENT);
	uint64_t n = 24000, before, freeable, gone, kept = 0;
	struct rng r = {5};

	for (uint64_t i = 0; i < n; i++)
		while (put(c, p, i, 0, 0) != 1)
			CHECK(store_work(store), "no room for page %llu", (unsigned long long)i);
	for (uint64_t i = 0; i < n; i++)
		if (rng_below(&r, 5))
			flush(c, p, i);
	freeable = store_freeable(store);
	before = arena_bytes();
	CHECK(freeable > 16 * MIB, "80 %% of the pages flushed, freeable %llu",
	      (unsigned long long)freeable);
	gone = store_reclaim(store, freeable, 5000);
	CHECK(gone >= freeable, "%llu freeable, %llu given back", (unsigned long long)freeable,
	      (unsigned long long)gone);
	CHECK(arena_bytes() + gone <= before, "the host sees %llu bytes less",
	      (unsigned long long)(before - arena_bytes()));
	r.state = 5;
	for (uint64_t i = 0; i < n; i++)
		if (!rng_below(&r, 5)) {
			CHECK(get(c, p, i, 0) == 1, "page %llu did not survive compaction",
			      (unsigned long long)i);
			kept++;
		}
	CHECK(gauge(store, c, CLIENT_PAGES_PERSISTENT) == kept, "pages");
	work_all(store);
	CHECK(put(c, p, n, 0, 0) == 1, "no put after a reclaim");
	store_close(store);
}

static void write_meminfo(unsigned long long kib)
{
	FILE *f = fopen(meminfo, "we");

	CHECK(f, "meminfo");
	fprintf(f,
		"MemTotal:       9000000 kB\nMemFree:         100000 kB\n"
		"MemAvailable:   %llu kB\n",
		kib);
	fclose(f);
}

/* The host runs short: the pool stops growing, ephemeral pages go, persistent ones do not. */
static void pressure(void)
{
	struct store *store;
	struct store_client *c;
	uint32_t p, e;
	uint64_t n = 3000, chunks;

	snprintf(meminfo, sizeof(meminfo), "%s", scratch_path("meminfo"));
	write_meminfo(8000000);
	store = reopen(NULL, 128 * MIB);
	store_set_host_reserve(store, 1000 * MIB);
	c = client(store, "c", 0, 0);
	p = pool(c, PERSISTENT);
	e = pool(c, INCLUSIVE);
	for (uint64_t i = 0; i < n; i++) {
		while (put(c, p, i, 0, 0) != 1)
			CHECK(store_work(store), "no room");
		put(c, e, i, PAGE_BYTES, 0);
	}
	CHECK(store_credits_grant(c, 4) == 4, "credits while there is room");
	CHECK(!store_wants_credits_back(store), "no need for credits");
	write_meminfo(500000);
	work_all(store);
	store_counters(store);
	CHECK(counter_get(&store_counters(store)[STORE_PRESSURE]) == 1, "pressure is not counted");
	CHECK(gauge(store, c, CLIENT_PAGES_EPHEMERAL) == 0, "ephemeral pages under pressure");
	CHECK(store_wants_credits_back(store), "credits are wanted back");
	CHECK(store_credits_grant(c, 4) == 0, "credits under pressure");
	all_there(c, p, n, 0);
	chunks = counter_get(&store_counters(store)[STORE_CHUNKS_POPULATED]);
	for (uint64_t i = 0; i < 20000; i++)
		put(c, p, n + i, PAGE_BYTES, 0);
	work_all(store);
	CHECK(counter_get(&store_counters(store)[STORE_CHUNKS_POPULATED]) == chunks,
	      "the pool grew under pressure");
	CHECK(put(c, p, 90000, PAGE_BYTES, 0) != 1, "room without end");
	CHECK(put(c, p, 90001, PAGE_BYTES, STORE_PUT_CREDIT) == 1, "a posted put under pressure");
	write_meminfo(8000000);
	work_all(store);
	CHECK(put(c, p, 90000, PAGE_BYTES, 0) == 1, "the pressure is over");
	CHECK(!store_wants_credits_back(store), "credits need not come back any more");
	store_close(store);
	meminfo[0] = 0;
}

/* A put that fails leaves nothing of the old page behind, whatever refuses it. (case 1) */
static void failed_put(void)
{
	struct store *store = reopen(NULL, 32 * MIB);
	struct store_client *c = client(store, "c", 0, 0);
	uint32_t p = pool(c, PERSISTENT), e = pool(c, INCLUSIVE);
	struct store_limits tight = {.max_bytes = 1}, none = {0};
	int refusal;
	uint64_t n;

	work_all(store);
	for (unsigned round = 0; round < 4; round++) {
		uint32_t id = round & 1 ? e : p;

		CHECK(put(c, id, 1, 700, 0) == 1, "put");
		if (round < 2)
			store_freeze(store, true);
		else
			store_client_set_limits(c, &tight);
		CHECK(put(c, id, 1, 900, 0) == (round < 2 ? -TMEM_EFROZEN : -EDQUOT), "refused");
		store_freeze(store, false);
		store_client_set_limits(c, &none);
		CHECK(get(c, id, 1, 700) == 0, "the old page shows after a refused put");
	}
	n = fill(store, c, p, 10, PAGE_BYTES, &refusal);
	CHECK(refusal == 0 || refusal == -ENOMEM, "full: %d", refusal);
	/* A small page is replaced by one for which there is no room, or the other way round. */
	refusal = put(c, p, 10 + n / 2, PAGE_BYTES - 1000, 0);
	CHECK(get(c, p, 10 + n / 2, PAGE_BYTES - 1000) == (refusal == 1), "put said %d", refusal);
	store_close(store);
}

static void names_and_pools(void)
{
	static const char *const bad[] = {"", ".hidden", "a b", "a/b", "\xc3\xa4", "x\n"};
	struct store *store = reopen(NULL, 32 * MIB);
	struct store_client *a = client(store, "a", 0, 0), *b = client(store, "vm-1_x.y+z@h", 0, 0);
	struct store_limits none = {0}, wrong = {.min_bytes = 2 * MIB, .max_bytes = MIB};
	struct store_client *c;
	uint64_t uuid[2] = {1, 2};
	struct store_pool_info info;
	char longest[STORE_NAME_MAX + 1];
	int first, second;

	memset(longest, 'n', STORE_NAME_MAX);
	longest[STORE_NAME_MAX] = 0;
	CHECK(store_client_open(store, longest, &none, &c) == -EINVAL, "64 letters");
	longest[STORE_NAME_MAX - 1] = 0;
	CHECK(store_client_open(store, longest, &none, &c) == 0, "63 letters");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(store_client_open(store, bad[i], &none, &c) == -EINVAL, "name %s", bad[i]);
	CHECK(store_client_open(store, "w", &wrong, &c) == -EINVAL, "minimum above maximum");
	first = store_pool_new(a, PRIVATE | TMEM_POOL_SHARED, uuid, 0);
	CHECK(first == -EPERM, "sharing is denied by default: %d", first);
	CHECK(!store_shared_auth(a, uuid, true) && !store_shared_auth(b, uuid, true), "auth");
	first = store_pool_new(a, PRIVATE | TMEM_POOL_SHARED, uuid, 0);
	pool(b, PRIVATE);
	second = store_pool_new(b, PRIVATE | TMEM_POOL_SHARED, uuid, 0);
	CHECK(first >= 0 && second >= 0, "%d %d", first, second);
	work_all(store);
	CHECK(put(a, first, 1, 500, 0) == 1, "put");
	{
		struct store_handle handle = at(second, 1);
		uint8_t want[PAGE_BYTES], got[PAGE_BYTES];

		make(want, first, 1, 500);
		for (unsigned i = 0; i < 2; i++)
			CHECK(store_get(b, &handle, got) == 1 && !memcmp(want, got, PAGE_BYTES),
			      "the other member's get %u", i);
		CHECK(store_pool_destroy(a, first) == 1, "leaving");
		CHECK(store_get(a, &handle, got) == -ENOENT || first != second, "after leaving");
		CHECK(store_get(b, &handle, got) == 1, "the rest keeps the page");
		CHECK(store_client_pools(b, &info, 1) == 2, "pools of b");
	}
	CHECK(store_pool_destroy(b, second) == 1, "the last one leaves");
	CHECK(store_pool_destroy(b, second) == -ENOENT, "twice");
	CHECK(store_pools_destroy(b) == 1, "pools of b");
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		pool(a, PERSISTENT);
	CHECK(store_pool_new(a, PERSISTENT, no_uuid, 0) == -ENOSPC, "65 pools");
	CHECK(store_pools_destroy(a) == STORE_MAX_CLIENT_POOLS, "all pools");
	store_close(store);
}

static uint64_t meta_bytes(struct store *store)
{
	return counter_get(&store_counters(store)[STORE_META_BYTES]);
}

/* An object that only failed puts have named does not stay in the table. (case 3) */
static void failed_objects(void)
{
	struct store *store = reopen(NULL, 32 * MIB);
	struct store_client *c = client(store, "c", 0, 0);
	struct store_handle handle = {.pool = pool(c, PERSISTENT)};
	uint8_t page[PAGE_BYTES];
	uint64_t before;

	work_all(store);
	make(page, 0, 1, PAGE_BYTES);
	before = meta_bytes(store);
	if (fault_arm(FAULT_ALLOC_DESC, FAULT_FAIL, 0, 65536))
		for (uint64_t i = 0; i < 65536; i++) {
			handle.object[0] = i;
			CHECK(store_put(c, &handle, page, 0) == -ENOMEM, "without a descriptor");
			if (i % 256 == 0)
				work_all(store);
		}
	else
		printf("  no fault points in this build\n");
	CHECK(meta_bytes(store) - before < MIB, "the tables grew by %llu KiB",
	      (unsigned long long)(meta_bytes(store) - before) >> 10);
	fault_arm(FAULT_ALLOC_DESC, FAULT_OFF, 0, 0);
	store_close(store);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"maximum", maximum},
		     {"minimum", minimum},
		     {"ephemeral", ephemeral},
		     {"reclaim", reclaim},
		     {"pressure", pressure},
		     {"failed put", failed_put},
		     {"failed objects", failed_objects},
		     {"names, pools", names_and_pools}};

	scratch_make("limits");
	log_setup(LOG_ERROR, false);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		printf("%s\n", cases[i].name);
		fflush(stdout);
		cases[i].run();
	}
	for (unsigned i = 0; i < 2; i++) {
		printf("credits%s\n", i ? ", with a restart" : "");
		fflush(stdout);
		credits(1, 0, i);
		credits(300, 0, i);
		credits(300, 8, i);
		credits(1000, 17, i);
	}
	return 0;
}
