// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sorter: sorts an array larger than the caches, and checks what came out.
 *
 *   sorter [--mb N] [--seed N]
 *
 * The array holds 64-bit numbers of 24 random bits, made from the seed: pages that compress a
 * little, to about three quarters, and better when they are in order. Quicksort goes over the whole
 * array, then over both halves, and so on: the shape of access that is known from qsbench. The C
 * library's qsort() would take a second array. Sorted means: in order, and with the sum and the sum
 * of mixed numbers from before. The last line is a summary of key=value; the exit status is 1 when
 * it was wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stamp.h"

#define SMALL 16 /* numbers, below which insertion is faster */

struct digest {
	uint64_t sum;
	uint64_t mixed;
};

static void digest_add(struct digest *digest, uint64_t number)
{
	digest->sum += number;
	digest->mixed += mix(number);
}

static struct digest fill(uint64_t *numbers, size_t count, uint64_t seed)
{
	struct digest digest = {0};

	for (size_t i = 0; i < count; i++) {
		numbers[i] = mix(mix(seed) + i) >> 40;
		digest_add(&digest, numbers[i]);
	}
	return digest;
}

static void insert(uint64_t *numbers, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		uint64_t number = numbers[i];
		size_t at = i;

		for (; at && numbers[at - 1] > number; at--)
			numbers[at] = numbers[at - 1];
		numbers[at] = number;
	}
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
	if (a > b) {
		uint64_t t = a;

		a = b;
		b = t;
	}
	return c < a ? a : c > b ? b : c;
}

/* Hoare's partition: returns the size of the lower part, neither part is empty. */
static size_t partition(uint64_t *numbers, size_t count)
{
	uint64_t pivot = median(numbers[0], numbers[count / 2 - 1], numbers[count - 2]);
	size_t low = 0, high = count - 1;

	for (;;) {
		uint64_t number;

		while (numbers[low] < pivot)
			low++;
		while (numbers[high] > pivot)
			high--;
		if (low >= high)
			return high + 1;
		number = numbers[low];
		numbers[low++] = numbers[high];
		numbers[high--] = number;
	}
}

/* Goes down into the smaller part, on with the larger one: the depth is logarithmic. */
static void sort(uint64_t *numbers, size_t count)
{
	while (count > SMALL) {
		size_t lower = partition(numbers, count);

		if (lower < count - lower) {
			sort(numbers, lower);
			numbers += lower;
			count -= lower;
		} else {
			sort(numbers + lower, count - lower);
			count = lower;
		}
	}
	insert(numbers, count);
}

static bool is_sorted(const uint64_t *numbers, size_t count, const struct digest *before)
{
	struct digest after = {0};
	bool right = true;

	for (size_t i = 0; i < count; i++) {
		digest_add(&after, numbers[i]);
		if (i && numbers[i - 1] > numbers[i])
			right = false;
	}
	return right && after.sum == before->sum && after.mixed == before->mixed;
}

int main(int argc, char **argv)
{
	size_t count, mb = 16;
	uint64_t *numbers, seed = 1;
	struct digest before;
	double start;
	bool right;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--mb"))
			mb = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
	}
	count = mb * (1048576 / sizeof(*numbers));
	if (!count)
		return 2;
	numbers = mmap(NULL, count * sizeof(*numbers), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (numbers == MAP_FAILED) {
		fprintf(stderr, "sorter: no memory: %s\n", strerror(errno));
		return 2;
	}
	/* A huge page is never offered to frontswap; kernels without them answer EINVAL. */
	madvise(numbers, count * sizeof(*numbers), MADV_NOHUGEPAGE);
	start = now();
	before = fill(numbers, count, seed);
	sort(numbers, count);
	right = is_sorted(numbers, count, &before);
	printf("sorter: sorted=%s numbers=%zu seed=%" PRIu64 " seconds=%.1f\n",
	       right ? "right" : "wrong", count, seed, now() - start);
	return !right;
}
