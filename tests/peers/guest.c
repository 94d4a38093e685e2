// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guest: a client of tmemd that does what it is told by lines on its standard input, and knows of
 * every page what it must be.
 *
 *   guest SOCKET PAGES
 *
 *   put FIRST NR      puts new content; a refused page holds nothing afterwards
 *   get FIRST NR      gets and compares
 *   flush FIRST NR
 *   load SECONDS      all of these at random
 *   destroy           the pool goes, and a new one is made
 *
 * Each line is answered by one of key=value. At the first wrong page, or one that is missing or
 * there against all rules, it says so and ends with exit status 1.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tools/client/tmem_client.h"

#define DEPTH 64u

static struct tmem_client *client;
static struct tmem_ring *ring;
static struct rng rng;
static uint32_t pages;
static uint32_t pool;
static uint64_t *stamps; /* 0: nothing is held */

struct sums {
	uint64_t done, refused, empty;
	uint64_t slowest_us;
};

static void __attribute__((format(printf, 1, 2), noreturn)) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static struct tmem_handle handle_of(uint32_t i)
{
	return (struct tmem_handle){.object = {i >> 12}, .pool = pool, .index = i & 4095};
}

static void took(struct sums *sums, uint64_t since)
{
	uint64_t us = now_us() - since;

	if (us > sums->slowest_us)
		sums->slowest_us = us;
}

/* ---- Operations ----------------------------------------------------------------------------- */

static void put(uint32_t i, struct sums *sums)
{
	struct tmem_handle handle = handle_of(i);
	uint64_t stamp = rng_next(&rng) | 1, start = now_us();
	uint8_t page[PAGE_BYTES];
	int r;

	page_make(page, stamp);
	r = tmem_put_posted(ring, &handle, page);
	if (r != 1)
		r = tmem_put(ring, &handle, page);
	if (r != 1 && r != -ENOMEM)
		die("put of page %u: %d", i, r);
	stamps[i] = r == 1 ? stamp : 0;
	sums->done += r == 1;
	sums->refused += r != 1;
	took(sums, start);
}

static void flush(uint32_t i, struct sums *sums)
{
	struct tmem_handle handle = handle_of(i);
	uint64_t start = now_us();
	int r = tmem_flush(ring, &handle);

	if (r < 0 || r != (stamps[i] != 0))
		die("flush of page %u: %d", i, r);
	stamps[i] = 0;
	sums->done++;
	took(sums, start);
}

static void check(uint32_t i, int status, const void *page, struct sums *sums)
{
	if (status != (stamps[i] != 0))
		die("get of page %u: %d, and it holds %s", i, status,
		    stamps[i] ? "something" : "nothing");
	if (status && !page_is(page, stamps[i]))
		die("page %u is not what was put", i);
	sums->done += status == 1;
	sums->empty += status == 0;
}

static void get(uint32_t i, struct sums *sums)
{
	struct tmem_handle handle = handle_of(i);
	uint64_t start = now_us();
	uint8_t page[PAGE_BYTES];
	int r = tmem_get(ring, &handle, page);

	check(i, r, page, sums);
	took(sums, start);
}

/* Many at once, as a guest does that swaps in with several tasks. */
static void get_many(uint32_t first, uint32_t nr, struct sums *sums)
{
	static struct slot {
		uint8_t page[PAGE_BYTES];
		uint64_t start;
		uint32_t i;
		struct slot *next;
	} slots[DEPTH];
	struct slot *idle = NULL;
	struct tmem_result results[DEPTH];
	unsigned out = 0;

	for (unsigned s = 0; s < DEPTH; s++) {
		slots[s].next = idle;
		idle = &slots[s];
	}
	for (uint32_t i = first; i < first + nr || out;) {
		struct slot *slot = idle;
		struct tmem_request request = {.op = TMEM_GET_PAGE};
		unsigned n;

		if (slot && i < first + nr) {
			request.handle = handle_of(i);
			request.into = slot->page;
			request.tag = slot;
			if (!tmem_submit(ring, &request)) {
				idle = slot->next;
				slot->i = i++;
				slot->start = now_us();
				out++;
				continue;
			}
		}
		if (tmem_wait(ring) < 0)
			die("no answer to %u gets, the first of page %u", out, first);
		n = tmem_reap(ring, results, DEPTH);
		for (unsigned k = 0; k < n; k++) {
			slot = results[k].tag;
			check(slot->i, results[k].status, slot->page, sums);
			took(sums, slot->start);
			slot->next = idle;
			idle = slot;
		}
		out -= n;
	}
}

static void load(unsigned seconds, struct sums *sums)
{
	uint64_t end = now_us() + seconds * 1000000ull;

	while (now_us() < end) {
		uint32_t i = (uint32_t)rng_below(&rng, pages);

		switch (rng_below(&rng, 8)) {
		case 0:
			flush(i, sums);
			break;
		case 1:
		case 2:
		case 3:
			put(i, sums);
			break;
		default:
			get(i, sums);
		}
	}
}

static void make_pool(void)
{
	uint32_t flags = TMEM_POOL_PERSIST | TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT;
	int r = tmem_new_pool(ring, flags, (const uint64_t[2]){0, 0});

	if (r < 0)
		die("a pool: %d", r);
	pool = (uint32_t)r;
	memset(stamps, 0, pages * sizeof(*stamps));
}

/* ---- Lines ---------------------------------------------------------------------------------- */

static void obey(const char *line)
{
	struct sums sums = {0};
	uint64_t start = now_us();
	char word[16] = "";
	uint32_t first = 0, nr = 0;
	int n = sscanf(line, "%15s %u %u", word, &first, &nr);

	if (n == 3 && (first > pages || nr > pages - first))
		die("%s: there are %u pages", line, pages);
	if (!strcmp(word, "put") && n == 3)
		for (uint32_t i = first; i < first + nr; i++)
			put(i, &sums);
	else if (!strcmp(word, "get") && n == 3)
		get_many(first, nr, &sums);
	else if (!strcmp(word, "flush") && n == 3)
		for (uint32_t i = first; i < first + nr; i++)
			flush(i, &sums);
	else if (!strcmp(word, "load") && n == 2)
		load(first, &sums);
	else if (!strcmp(word, "destroy") && tmem_destroy_pool(ring, pool) == 1)
		make_pool();
	else
		die("not understood, or not possible: %s", line);
	if (tmem_client_posted_failed(client))
		die("posted puts were refused");
	printf("%s done=%llu refused=%llu empty=%llu slowest_ms=%llu ms=%llu\n", word,
	       (unsigned long long)sums.done, (unsigned long long)sums.refused,
	       (unsigned long long)sums.empty, (unsigned long long)sums.slowest_us / 1000,
	       (unsigned long long)(now_us() - start) / 1000);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct tmem_hello hello = {.rings = 1, .entries = 128, .features = TMEM_F_ALL};
	char line[128], err[256];
	int r;

	if (argc != 3 || !(pages = (uint32_t)strtoul(argv[2], NULL, 10))) {
		fprintf(stderr, "usage: guest SOCKET PAGES\n");
		return 2;
	}
	rng.state = (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	stamps = calloc(pages, sizeof(*stamps));
	if (!stamps)
		die("no memory");
	if (tmem_client_connect(&client, argv[1], 0, err, sizeof(err)))
		die("%s", err);
	r = tmem_client_hello(client, &hello);
	if (r)
		die("hello: %s", strerror(-r));
	ring = tmem_client_ring(client, 0);
	make_pool();
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		obey(line);
	}
	tmem_client_bye(client);
	tmem_client_close(client);
	return 0;
}
