/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Random numbers of the tests and the bench: splitmix64, the same everywhere for one seed. */
#ifndef TMEMD_TESTS_RNG_H
#define TMEMD_TESTS_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint64_t rng_next(struct rng *r)
{
	return rng_mix(r->state += 0x9e3779b97f4a7c15ull);
}

/* Evenly spread over 0..n-1; n not 0. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

/* True in `n` of 1000 cases. */
static inline bool rng_permille(struct rng *r, unsigned n)
{
	return rng_below(r, 1000) < n;
}

#endif
