// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pagehog: fills memory with pages that can be told apart and checks every one of them.
 *
 *   pagehog [--mb N] [--passes N] [--seed N] [--until FILE] [--pause MS]
 *
 * The pages are those of stamp.h; each has a generation, the number of times it was written anew.
 * After filling, each pass checks all pages (odd passes far from one to the next) and writes every
 * eighth anew. With --until, checking goes on in further passes until FILE exists. With --pause it
 * sleeps that many milliseconds after each pass. The last line is a summary of key=value; the exit
 * status is 1 when any page was wrong.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stamp.h"

#define FAR 7919 /* pages, a prime: what odd passes go on by */

struct hog {
	uint8_t *memory;
	uint32_t *generation;
	uint64_t pages;
	uint64_t seed;
	uint64_t verified;
	uint64_t wrong;
};

static void make_page(const struct hog *hog, uint64_t number, uint64_t *words)
{
	stamp_page(words, hog->seed, number, hog->generation[number]);
}

static uint64_t *page_at(struct hog *hog, uint64_t number)
{
	return (uint64_t *)(hog->memory + number * PAGE);
}

static void check_page(struct hog *hog, uint64_t number)
{
	uint64_t expected[WORDS], *page = page_at(hog, number);

	make_page(hog, number, expected);
	hog->verified++;
	if (!memcmp(expected, page, PAGE))
		return;
	if (hog->wrong++ < 10)
		printf("pagehog: page %llu generation %u is wrong: begins %016llx %016llx\n",
		       (unsigned long long)number, hog->generation[number],
		       (unsigned long long)page[0], (unsigned long long)page[1]);
}

static void pass(struct hog *hog, unsigned turn)
{
	/* A step that shares no factor with the number of pages visits each of them once. */
	uint64_t step = turn & 1 && hog->pages % FAR ? FAR : 1;
	uint64_t i, at = mix(hog->seed + turn) % hog->pages;

	for (i = 0; i < hog->pages; i++, at = (at + step) % hog->pages) {
		check_page(hog, at);
		if (i % 8 == 0) {
			hog->generation[at]++;
			make_page(hog, at, page_at(hog, at));
		}
	}
}

static void *memory(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED) {
		fprintf(stderr, "pagehog: no memory: %s\n", strerror(errno));
		exit(2);
	}
	/* A huge page is never offered to frontswap; kernels without them answer EINVAL. */
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

int main(int argc, char **argv)
{
	struct hog hog = {.seed = 1};
	unsigned passes = 2, pause_ms = 0, turn = 0;
	const char *until = NULL;
	uint64_t mb = 64;
	double start;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--mb"))
			mb = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--passes"))
			passes = (unsigned)strtoul(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seed"))
			hog.seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--until"))
			until = argv[i + 1];
		else if (!strcmp(argv[i], "--pause"))
			pause_ms = (unsigned)strtoul(argv[i + 1], NULL, 0);
	}
	hog.pages = mb * (1048576 / PAGE);
	if (!hog.pages)
		return 2;
	hog.memory = memory(hog.pages * PAGE);
	hog.generation = memory(hog.pages * sizeof(*hog.generation));
	setvbuf(stdout, NULL, _IOLBF, 0);
	start = now();
	for (uint64_t i = 0; i < hog.pages; i++)
		make_page(&hog, i, page_at(&hog, i));
	printf("pagehog: filled pages=%llu seconds=%.1f\n", (unsigned long long)hog.pages,
	       now() - start);
	while (turn < passes || (until && access(until, F_OK))) {
		pass(&hog, turn++);
		printf("pagehog: pass=%u verified=%llu wrong=%llu seconds=%.1f\n", turn,
		       (unsigned long long)hog.verified, (unsigned long long)hog.wrong,
		       now() - start);
		usleep(pause_ms * 1000);
	}
	for (uint64_t i = 0; i < hog.pages; i++)
		check_page(&hog, i);
	printf("pagehog: result=%s pages=%llu passes=%u verified=%llu wrong=%llu seconds=%.1f\n",
	       hog.wrong ? "wrong" : "intact", (unsigned long long)hog.pages, turn,
	       (unsigned long long)hog.verified, (unsigned long long)hog.wrong, now() - start);
	return hog.wrong != 0;
}
