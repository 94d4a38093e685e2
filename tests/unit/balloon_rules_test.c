// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When dom0 grows and shrinks: within its bounds, never by what Xen is to keep, never twice for the
 * same shortage, and not to and fro.
 */
#include "tools/xen/balloon.h"

#include <stdlib.h>

#include "tests/unit/unit.h"

#define M (1ull << 20)

static const struct balloon_config config = {
	.minimum = 512 * M, .maximum = 2048 * M, .xen_free = 128 * M, .step = 64 * M};

/* A pool that is up against the reserve, in a domain that stands at its target. */
static struct balloon_state hungry(void)
{
	return (struct balloon_state){.xen_total = 4096 * M,
				      .xen_free = 1000 * M,
				      .target = 1024 * M,
				      .current = 1024 * M,
				      .available = 320 * M,
				      .pool = 500 * M,
				      .pool_max = 1500 * M,
				      .reserve = 256 * M};
}

static void grows(void)
{
	struct balloon_state s = hungry();

	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 64 * M);
	/* Not above the maximum, nor into what stays free. */
	s.target = s.current = 2048 * M - 32 * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 32 * M);
	s.target = s.current = 2048 * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
	s = hungry();
	s.xen_free = 128 * M + 40 * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 40 * M);
	s.xen_free = 128 * M + 1 * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
	s.xen_free = 0;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
}

static void needs_it(void)
{
	struct balloon_state s = hungry();

	/* The pool has all that it may have. */
	s.pool = s.pool_max;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
	/* It has room: the reserve, an eighth, and a step. */
	s = hungry();
	s.available = (256 + 32 + 64) * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
	s.available--;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 64 * M);
	/* What it was given last has not come yet. */
	s.target += 64 * M;
	CU_ASSERT_EQUAL(balloon_growth(&config, &s), 0);
}

static void shortage(void)
{
	struct balloon_state s = hungry();

	CU_ASSERT_EQUAL(balloon_shortage(&s, 128 * M), 0);
	s.xen_free = 28 * M;
	CU_ASSERT_EQUAL(balloon_shortage(&s, 128 * M), 100 * M);
	/* It has been answered, and the kernel is at it. */
	s.target -= 100 * M;
	CU_ASSERT_EQUAL(balloon_shortage(&s, 128 * M), 0);
	s.current -= 60 * M;
	s.xen_free += 60 * M;
	CU_ASSERT_EQUAL(balloon_shortage(&s, 128 * M), 0);
	/* What we are about to take counts as taken. */
	s = hungry();
	s.xen_free = 150 * M;
	s.target += 64 * M;
	CU_ASSERT_EQUAL(balloon_shortage(&s, 128 * M), 42 * M);
	s.target += 4096 * M;
	CU_ASSERT_EQUAL(balloon_projected(&s), 0);
}

static void surplus(void)
{
	struct balloon_state s = hungry();

	CU_ASSERT_EQUAL(balloon_slack(&s), 32 * M);
	CU_ASSERT_EQUAL(balloon_surplus(&config, &s), 0);
	s.available = (256 + 32 + 4 * 64 + 1) * M;
	CU_ASSERT_EQUAL(balloon_surplus(&config, &s), 64 * M);
	s.target = s.current = 512 * M + 8 * M;
	CU_ASSERT_EQUAL(balloon_surplus(&config, &s), 8 * M);
	s.target = s.current = 512 * M;
	CU_ASSERT_EQUAL(balloon_surplus(&config, &s), 0);
	s.target = s.current = 256 * M;
	CU_ASSERT_EQUAL(balloon_surplus(&config, &s), 0);
	s.available = 100 * M;
	CU_ASSERT_EQUAL(balloon_slack(&s), 0);
}

/* From wherever it begins it comes to rest, and what Xen is to keep stays free from then on. */
static void comes_to_rest(void)
{
	for (unsigned seed = 1; seed < 200; seed++) {
		struct balloon_state s = hungry();
		uint64_t moved = 1, change;
		int turns = 0;

		srand(seed);
		s.target = s.current = (512 + (uint64_t)rand() % 1536) * M;
		s.xen_free = (uint64_t)rand() % 2048 * M;
		s.available = (uint64_t)rand() % 1024 * M;
		while (moved && turns++ < 100) {
			uint64_t target = s.target;

			change = balloon_shortage(&s, config.xen_free);
			if (change > s.target - config.minimum)
				change = s.target - config.minimum;
			s.target -= change;
			if (!change) {
				s.target += balloon_growth(&config, &s);
				if (s.target == target)
					s.target -= balloon_surplus(&config, &s);
			}
			moved = s.target - target;
			s.xen_free -= moved;
			/* tmemd gives what the reserve lacks. */
			s.available += s.available + moved < 288 * M ? 0 : moved;
			s.current = s.target;
		}
		CU_ASSERT(turns < 100);
		CU_ASSERT(s.xen_free >= config.xen_free || s.target == config.minimum);
		CU_ASSERT(s.target >= config.minimum && s.target <= config.maximum);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"grows within its bounds", grows},	   {"grows only for the pool", needs_it},
		{"shrinks once for a shortage", shortage}, {"what nobody needs", surplus},
		{"comes to rest", comes_to_rest},	   CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"balloon_rules", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
