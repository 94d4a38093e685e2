// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How a page of a wanted size is made: as LZ4 will see it, runs of fresh random bytes (literals)
 * and copies of earlier runs (matches) in turn. A pair costs LZ4 its literals and three bytes, so
 * the number of pairs and of literals follow from the size. About 14 stored bytes a pair is what
 * process memory shows; it also sets how long compression takes. Copies begin where a literal run
 * began, because LZ4 remembers those places.
 */
#include "pages.h"
#include "rng.h"

#include <string.h>

#define PAIR_BYTES 14 /* of stored bytes, for one run and one copy */
#define MIN_MATCH 5
#define MAX_RUNS 512
#define SLACK 1024 /* the last run or copy may end behind the page */

struct maker {
	struct rng rng;
	unsigned pos;
	unsigned runs;
	uint16_t run[MAX_RUNS]; /* where literal runs began */
	uint8_t bytes[PAGE_BYTES + SLACK];
};

/* Whole words, for speed: what is too much is overwritten by what comes next. */
static void add_run(struct maker *m, unsigned n)
{
	uint64_t word;

	if (m->runs < MAX_RUNS)
		m->run[m->runs++] = m->pos;
	for (unsigned i = 0; i < n; i += sizeof(word)) {
		word = rng_next(&m->rng);
		memcpy(m->bytes + m->pos + i, &word, sizeof(word));
	}
	m->pos += n;
}

static void add_copy(struct maker *m, unsigned n)
{
	unsigned from = m->run[rng_below(&m->rng, m->runs)];
	unsigned step = m->pos - from < 8 ? m->pos - from : 8;

	/* A copy may overlap itself, like LZ4's. */
	for (unsigned i = 0; i < n; i += step)
		memcpy(m->bytes + m->pos + i, m->bytes + from + i, 8);
	m->pos += n;
}

/* lowest + 0..2*more evenly, `more` in 1/256: the mean is exact, though lengths are whole. */
static unsigned length(struct rng *r, unsigned lowest, unsigned more)
{
	unsigned n = lowest + (((rng_next(r) >> 32) * (2 * more + 256)) >> 40);

	return n < SLACK - 8 ? n : SLACK - 8;
}

/*
 * LZ4 needs more than literals and pairs: long lengths take bytes, and it misses some copies.
 * Measured: what was asked for, and the mean that came out. Between them it is a straight line.
 */
static unsigned corrected(unsigned target)
{
	static const struct {
		uint16_t asked, got;
	} seen[] = {{1, 20},	  {30, 113},	{180, 249},   {480, 598},   {1080, 1267},
		    {1680, 1908}, {2280, 2492}, {2880, 3062}, {3330, 3472}, {4096, 4096}};
	unsigned i = 1;

	while (target > seen[i].got)
		i++;
	return seen[i - 1].asked + (target - seen[i - 1].got) *
					   (seen[i].asked - seen[i - 1].asked) /
					   (seen[i].got - seen[i - 1].got);
}

void page_make_sized(void *page, uint64_t stamp, unsigned target)
{
	struct maker m = {.rng = {stamp}, .pos = sizeof(stamp), .runs = 1};
	unsigned pairs, literals, lit, copy;

	memcpy(m.bytes, &stamp, sizeof(stamp));
	if (target >= PAGE_BYTES) {
		add_run(&m, PAGE_BYTES - m.pos);
		memcpy(page, m.bytes, PAGE_BYTES);
		return;
	}
	target = corrected(target < 20 ? 20 : target);
	pairs = target / PAIR_BYTES;
	if (pairs > (PAGE_BYTES - target) / 4) /* room for copies of useful length */
		pairs = (PAGE_BYTES - target) / 4;
	if (!pairs)
		pairs = 1;
	literals = target > 4 * pairs ? target - 3 * pairs : pairs;
	lit = (literals - pairs) * 256 / pairs;
	copy = (PAGE_BYTES - literals) * 256 / pairs;
	copy = copy > MIN_MATCH * 256 ? copy - MIN_MATCH * 256 : 0;
	while (m.pos < PAGE_BYTES) {
		add_run(&m, length(&m.rng, 1, lit));
		if (m.pos < PAGE_BYTES)
			add_copy(&m, length(&m.rng, MIN_MATCH, copy));
	}
	memcpy(page, m.bytes, PAGE_BYTES);
}

void page_make_same(void *page, uint64_t stamp)
{
	uint8_t *p = page;

	for (unsigned i = 0; i < PAGE_BYTES; i += sizeof(stamp))
		memcpy(p + i, &stamp, sizeof(stamp));
}

static const struct {
	uint16_t share, from, below;
} histogram[] = {
#define X(share, from, below) {share, from, below},
	PAGES_HISTOGRAM(X)
#undef X
};

void page_make(void *page, uint64_t stamp)
{
	/* Not the generator's own sequence, or size and bytes would go together. */
	struct rng r = {rng_mix(stamp ^ 0x5a6e10c4d1b2f397ull)};
	unsigned draw = rng_below(&r, 1000), i = 0;

	if (draw < PAGES_SAME_FILLED) {
		page_make_same(page, stamp);
		return;
	}
	while (draw >= histogram[i].share)
		draw -= histogram[i++].share;
	page_make_sized(page, stamp,
			histogram[i].from + rng_below(&r, histogram[i].below - histogram[i].from));
}

bool page_is(const void *page, uint64_t stamp)
{
	uint8_t want[PAGE_BYTES];

	page_make(want, stamp);
	return !memcmp(page, want, PAGE_BYTES);
}
