// SPDX-License-Identifier: GPL-2.0-or-later
/* The pages that tests and bench work with are what they claim to be. */
#include "tests/lib/pages.h"
#include "tests/unit/unit.h"

#include <lz4.h>
#include <stdlib.h>

#define PAGES 20000

static unsigned packed(const uint8_t *page)
{
	static char out[2 * PAGE_BYTES];

	return LZ4_compress_default((const char *)page, out, PAGE_BYTES, sizeof(out));
}

static void histogram(void)
{
	static const struct {
		unsigned share, from, below;
	} want[] = {
#define X(share, from, below) {share, from, below},
		PAGES_HISTOGRAM(X)
#undef X
	};
	unsigned count[7] = {0};
	uint8_t page[PAGE_BYTES];
	uint64_t sum = 0;

	for (uint64_t i = 0; i < PAGES; i++) {
		unsigned len, b = 0;

		page_make(page, i * 77 + 5);
		len = packed(page);
		while (b < 6 && len >= want[b + 1].from)
			b++;
		count[b]++;
		sum += len > PAGE_BYTES ? PAGE_BYTES : len;
	}
	for (unsigned b = 0; b < 7; b++)
		CU_ASSERT(abs((int)(count[b] * 1000 / PAGES) - (int)want[b].share) < 20);
	CU_ASSERT(sum / PAGES > 1640 && sum / PAGES < 1706); /* 1673 within 2 % */
}

static void sizes(void)
{
	uint8_t page[PAGE_BYTES];

	for (unsigned target = 150; target < 4000; target += 20) {
		uint64_t sum = 0;

		for (uint64_t i = 0; i < 100; i++) {
			page_make_sized(page, i << 20 | target, target);
			sum += packed(page);
		}
		CU_ASSERT(sum / 100 > target * 85 / 100 - 10 &&
			  sum / 100 < target * 115 / 100 + 10);
	}
}

static void stamps(void)
{
	uint8_t page[PAGE_BYTES];

	for (uint64_t stamp = 1; stamp < 2000; stamp++) {
		page_make(page, stamp);
		CU_ASSERT(page_stamp(page) == stamp && page_is(page, stamp));
		page[stamp % PAGE_BYTES] ^= 1;
		CU_ASSERT(!page_is(page, stamp));
	}
}

int main(void)
{
	static CU_TestInfo tests[] = {{"histogram of sizes", histogram},
				      {"wanted sizes", sizes},
				      {"stamps", stamps},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"pages", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
