/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the fuzz targets share: taking an input apart, and saying what must be so.
 *
 * Most inputs are lists of operations, not raw bytes: random bytes would end at the first check. A
 * read behind the end gives zeroes, so that every input means something.
 */
#ifndef TMEMD_TESTS_FUZZ_H
#define TMEMD_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the run as a crash, which keeps the input. */
#define MUST(cond, fmt, ...)                                                                       \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: " fmt "\n", __FILE__, __LINE__, ##__VA_ARGS__);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct bytes {
	const uint8_t *at;
	const uint8_t *end;
};

/* The next n (at most 8) bytes as a little-endian number. */
static inline uint64_t take(struct bytes *in, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n && in->at < in->end; i++)
		v |= (uint64_t)*in->at++ << 8 * i;
	return v;
}

static inline bool more(const struct bytes *in)
{
	return in->at < in->end;
}

#endif
