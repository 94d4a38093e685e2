/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the test programs of the guests share: numbers that look random, pages that can be told
 * apart, the clock.
 */
#ifndef TMEMD_TESTS_VM_STAMP_H
#define TMEMD_TESTS_VM_STAMP_H

#include <stdint.h>
#include <time.h>

#define PAGE 4096
#define WORDS (PAGE / 8)

static inline uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/*
 * A page made from the seed, its number and its generation, so that a stale page, a page of
 * somebody else and a damaged one all show. Of a hundred pages about 10 repeat one word, 20 are
 * random bytes, the others are a part random (1/16 to 12/16), the rest runs of a word.
 */
static inline void stamp_page(uint64_t *words, uint64_t seed, uint64_t number, uint32_t generation)
{
	uint64_t id = mix(seed + mix(number) + 3 * mix(generation + 1ull));
	unsigned kind = id % 100, random_words, i;
	uint64_t state = id;

	if (kind < 10)
		random_words = 0;
	else if (kind < 30)
		random_words = WORDS;
	else
		random_words = WORDS / 16 * (1 + (id >> 32) % 12);
	for (i = 0; i < random_words; i++)
		words[i] = mix(state += 0x9e3779b97f4a7c15ull);
	for (; i < WORDS; i++)
		words[i] = kind < 10 ? id : id + i / 32;
	if (kind >= 10) {
		words[0] = number;
		words[1] = generation;
	}
}

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
