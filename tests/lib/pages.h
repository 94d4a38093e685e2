/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contents of pages, made from a stamp.
 *
 * A page is a function of its stamp alone, and begins with it: a test needs to remember 8 bytes
 * for each page, and finds out from any page which one it is. Sizes under LZ4 follow the histogram
 * of real process memory (PAGES_HISTOGRAM); test_pages and `tmem-bench` measure what is reached.
 */
#ifndef TMEMD_TESTS_PAGES_H
#define TMEMD_TESTS_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_BYTES 4096u

/* X(share in 1/1000, from, below): bytes under LZ4. 7 of the first are same-filled. */
#define PAGES_HISTOGRAM(X)                                                                         \
	X(70, 20, 512)                                                                             \
	X(310, 512, 1280)                                                                          \
	X(240, 1280, 1792)                                                                         \
	X(240, 1792, 2560)                                                                         \
	X(100, 2560, 3584)                                                                         \
	X(18, 3584, 4000)                                                                          \
	X(22, 4096, 4200)

#define PAGES_SAME_FILLED 7 /* of 1000 */

/* A page of the histogram: same-filled, compressible or not, as the stamp has it. */
void page_make(void *page, uint64_t stamp);

/* A page that LZ4 makes about `target` bytes long (30..4000); 4096 and more: does not shrink. */
void page_make_sized(void *page, uint64_t stamp, unsigned target);

/* The 8-byte word `stamp` repeated. */
void page_make_same(void *page, uint64_t stamp);

static inline uint64_t page_stamp(const void *page)
{
	uint64_t stamp;

	__builtin_memcpy(&stamp, page, sizeof(stamp));
	return stamp;
}

/* True when `page` is, byte for byte, what page_make() makes from `stamp`. */
bool page_is(const void *page, uint64_t stamp);

#endif
