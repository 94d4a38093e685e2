// SPDX-License-Identifier: GPL-2.0-or-later
/* The least that a put or a get of these pages can cost with these libraries. */
#include "bench.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Results go here so that no work is optimised away. */
static volatile uint64_t sink;

static bool same_filled(const uint64_t *words)
{
	for (unsigned i = 1; i < PAGE_BYTES / 8; i++)
		if (words[i] != words[0])
			return false;
	return true;
}

void floor_put(const struct corpus *c)
{
	static char out[PAGE_BYTES];
	uint64_t sum = 0;

	for (size_t i = 0; i < c->nr; i++) {
		const uint8_t *page = c->pages + i * PAGE_BYTES;

		sum += same_filled((const uint64_t *)page);
		sum += XXH3_64bits(page, PAGE_BYTES);
		sum += LZ4_compress_default((const char *)page, out, PAGE_BYTES, sizeof(out));
	}
	sink = sum;
}

void floor_get(const struct corpus *c, const uint32_t *order)
{
	static _Alignas(64) char page[PAGE_BYTES];
	uint64_t sum = 0;

	for (size_t n = 0; n < c->nr; n++) {
		size_t i = order ? order[n] : n;
		const char *from = (const char *)c->packed + c->at[i];
		int len = c->at[i + 1] - c->at[i];

		if (len == PAGE_BYTES)
			memcpy(page, from, PAGE_BYTES);
		else
			sum += LZ4_decompress_safe(from, page, len, PAGE_BYTES);
		sum += page[n % PAGE_BYTES];
	}
	sink = sum;
}

uint32_t *bench_order(size_t n, struct rng *rng)
{
	uint32_t *order = malloc(n * sizeof(*order));

	for (size_t i = 0; order && i < n; i++) {
		size_t j = rng_next(rng) % (i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}
