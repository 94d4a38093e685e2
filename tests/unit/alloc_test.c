// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/alloc.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY (64ull << 20)
#define OBJECTS 12000

static struct arena arena;
static struct alloc allocator;

static void begin(unsigned chunks)
{
	char err[256];

	unlink(scratch_path("arena"));
	CU_ASSERT_FATAL(
		!arena_open(&arena, scratch_path("arena"), CAPACITY, false, err, sizeof(err)));
	CU_ASSERT_FATAL(!alloc_init(&allocator, &arena));
	alloc_rebuild_begin(&allocator);
	alloc_rebuild_end(&allocator);
	for (unsigned i = 0; i < chunks; i++)
		CU_ASSERT_FATAL(!alloc_chunk_add(&allocator));
	/* The pool may not grow: what is there is all. */
	atomic_store(&allocator.growth, 0);
}

static void end(void)
{
	alloc_fini(&allocator);
	arena_close(&arena);
}

/* Objects of every size are apart from each other, sound, and name their owner. */
static void places(void)
{
	static struct {
		uint64_t loc;
		uint32_t len;
	} object[OBJECTS];
	struct rng r = {3};
	unsigned n = 0;

	begin(16);
	for (unsigned i = 0; i < OBJECTS; i++) {
		object[i].len = 1 + rng_below(&r, MAX_STORED);
		object[i].loc = alloc_place(&allocator, object[i].len, i + 1, ALLOC_PLAIN);
		if (!object[i].loc)
			continue;
		n++;
		memset(alloc_bytes(&allocator, object[i].loc), i & 0xff, object[i].len);
		if (alloc_size_at(&allocator, object[i].loc) < object[i].len + OBJECT_HEADER)
			CU_FAIL("an object that is too small");
	}
	CU_ASSERT(n > OBJECTS / 2);
	for (unsigned i = 0; i < OBJECTS; i++) {
		const uint8_t *bytes =
			object[i].loc ? alloc_bytes(&allocator, object[i].loc) : NULL;

		for (unsigned k = 0; bytes && k < object[i].len; k++)
			if (bytes[k] != (i & 0xff)) {
				CU_FAIL("two objects overlap");
				break;
			}
		if (bytes && (!alloc_sound(&allocator, object[i].loc, object[i].len) ||
			      alloc_owner(&allocator, object[i].loc) != i + 1))
			CU_FAIL("a live object is not sound, or another's");
	}
	for (unsigned i = 0; i < OBJECTS; i++)
		if (object[i].loc)
			alloc_free(&allocator, object[i].loc);
	CU_ASSERT_EQUAL(atomic_load(&allocator.used_slabs), 0);
	CU_ASSERT_EQUAL(atomic_load(&allocator.free_slabs), 16 * CHUNK_SLABS);
	end();
}

/* What rounding to classes, with the object's header, costs of the stored bytes. */
static void rounding(void)
{
	double sum = 0;
	unsigned n = 0;

	begin(1);
	for (uint32_t len = 512; len <= 3900; len++, n++) {
		double over = (double)alloc_cost(&allocator, len) / len - 1;

		if (over > (len < 800 ? 0.06 : 0.04))
			CU_FAIL("too much lost to rounding");
		sum += over;
	}
	CU_ASSERT(sum / n < 0.015);
	end();
}

static void nonsense_is_not_sound(void)
{
	uint64_t loc;
	struct rng r = {4};

	begin(2);
	loc = alloc_place(&allocator, 1000, 1, ALLOC_PLAIN);
	CU_ASSERT_FATAL(loc);
	CU_ASSERT(alloc_sound(&allocator, loc, 1000));
	CU_ASSERT(!alloc_sound(&allocator, loc + 1, 1000)); /* not where an object begins */
	CU_ASSERT(!alloc_sound(&allocator, loc, 3000));	    /* longer than the class */
	CU_ASSERT(!alloc_sound(&allocator, 0, 1000));
	CU_ASSERT(!alloc_sound(&allocator, CAPACITY / 8, 1000));
	CU_ASSERT(!alloc_sound(&allocator, UINT64_MAX, 1000));
	for (unsigned i = 0; i < 100000; i++) /* must not crash, whatever it says */
		alloc_sound(&allocator, rng_next(&r) >> rng_below(&r, 64), rng_below(&r, 8192));
	end();
}

/* A chunk goes back only when nothing is in it, and its memory is the host's then. */
static void chunks(void)
{
	uint64_t loc;

	begin(2);
	loc = alloc_place(&allocator, 4096, 1, ALLOC_PLAIN);
	CU_ASSERT_FATAL(loc);
	CU_ASSERT(alloc_chunk_return(&allocator));
	CU_ASSERT(!alloc_chunk_return(&allocator));
	alloc_free(&allocator, loc);
	CU_ASSERT(alloc_chunk_return(&allocator));
	CU_ASSERT(!alloc_place(&allocator, 4096, 1, ALLOC_PLAIN));
	CU_ASSERT_EQUAL(alloc_chunk_add(&allocator), 0);
	CU_ASSERT(alloc_place(&allocator, 4096, 1, ALLOC_PLAIN));
	end();
}

/* Plain puts take all they can get, of all sizes: every credit still has its place. */
static void credits(void)
{
	unsigned n = 200, got = 0;

	begin(8);
	CU_ASSERT(!alloc_reserve(&allocator, 1000000));
	CU_ASSERT_FATAL(alloc_reserve(&allocator, n));
	for (uint32_t len = 4096; len > 8; len -= 8)
		while (alloc_place(&allocator, len, 1, ALLOC_PLAIN))
			;
	for (unsigned i = 0; i < n; i++)
		got += alloc_place(&allocator, 4096, 2, ALLOC_CREDIT) != 0;
	CU_ASSERT_EQUAL(got, n);
	end();
}

/* Draining moves nothing by itself; it takes a slab out of use and gives it back. */
static void drain(void)
{
	static uint64_t loc[400];
	uint64_t at;
	uint32_t slab = 0, owner;
	unsigned i = 0, seen = 0;

	begin(2);
	for (unsigned k = 0; k < 400; k++) {
		loc[k] = alloc_place(&allocator, 2000, k + 1, ALLOC_PLAIN);
		CU_ASSERT_FATAL(loc[k]);
	}
	for (unsigned k = 0; k < 400; k++)
		if (k % 4)
			alloc_free(&allocator, loc[k]);
	for (unsigned cls = 0; cls < allocator.nr_classes; cls++) {
		slab = alloc_drain_class(&allocator, cls);
		if (slab)
			break;
	}
	CU_ASSERT_FATAL(slab);
	for (; alloc_next_object(&allocator, slab - 1, &i, &at, &owner); seen++)
		if (!owner || owner > 400 || loc[owner - 1] != at || (owner - 1) % 4)
			CU_FAIL("an object that nobody placed");
	CU_ASSERT(seen > 0);
	alloc_drain_end(&allocator, slab - 1);
	for (unsigned k = 0; k < 400; k += 4)
		alloc_free(&allocator, loc[k]);
	CU_ASSERT_EQUAL(atomic_load(&allocator.used_slabs), 0);
	end();
}

static CU_TestInfo tests[] = {{"places of all sizes", places},
			      {"rounding", rounding},
			      {"nonsense is not sound", nonsense_is_not_sound},
			      {"chunks go back", chunks},
			      {"credits have their places", credits},
			      {"draining", drain},
			      CU_TEST_INFO_NULL};

int main(void)
{
	CU_SuiteInfo suites[] = {{"alloc", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("alloc");
	return unit_run(suites);
}
