// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ringload: a guest that puts, gets and flushes at random until it is told to stop, and knows of
 * every page what it must be. For tests that make the host short of memory meanwhile: it locks
 * itself in memory and allocates nothing after its start.
 *
 *   ringload SOCKET PAGES UNTIL-FILE [SEED]
 *
 * PAGES handles in a persistent pool and as many in an ephemeral one. Once a second, and at the end
 * after a check of all persistent pages, it prints a line of key=value: what it did, how many puts
 * were refused, and the slowest operation of the time since the last line. It ends when the file
 * exists; the exit status is 1 at the first wrong page.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/service/player.h"

enum kind { KEPT, SPARE, KINDS }; /* persistent, ephemeral */

struct load {
	struct tmem_client *client;
	struct tmem_ring *ring;
	struct rng rng;
	uint32_t pages;
	uint32_t pools[KINDS];
	uint64_t *stamps[KINDS]; /* 0: nothing is held */
	uint64_t put, refused, hit, missed, flushed;
	uint64_t slowest_us;
};

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static struct tmem_handle handle_of(const struct load *load, enum kind kind, uint32_t i)
{
	return (struct tmem_handle){
		.object = {i / 64, kind, 0}, .pool = load->pools[kind], .index = i};
}

static void put(struct load *load, enum kind kind, uint32_t i)
{
	struct tmem_handle handle = handle_of(load, kind, i);
	uint64_t stamp = rng_next(&load->rng) | 1;
	uint8_t page[PAGE_BYTES];
	int r = -ENOBUFS;

	page_make(page, stamp);
	if (stamp & 2)
		r = tmem_put_posted(load->ring, &handle, page);
	if (r == -ENOBUFS)
		r = tmem_put(load->ring, &handle, page);
	CHECK(r == 1 || r == -ENOMEM);
	load->stamps[kind][i] = r == 1 ? stamp : 0;
	load->put += r == 1;
	load->refused += r != 1;
}

static void get(struct load *load, enum kind kind, uint32_t i)
{
	struct tmem_handle handle = handle_of(load, kind, i);
	uint64_t stamp = load->stamps[kind][i];
	uint8_t page[PAGE_BYTES];
	int r = tmem_get(load->ring, &handle, page);

	if (kind == KEPT)
		CHECK_IS(r, stamp != 0);
	CHECK(r == 0 || r == 1);
	if (r)
		CHECK(stamp && page_is(page, stamp));
	/* A get takes an ephemeral page out. */
	if (kind == SPARE)
		load->stamps[kind][i] = 0;
	load->hit += r == 1;
	load->missed += r == 0;
}

static void flush(struct load *load, enum kind kind, uint32_t i)
{
	struct tmem_handle handle = handle_of(load, kind, i);

	CHECK(tmem_flush(load->ring, &handle) >= 0);
	load->stamps[kind][i] = 0;
	load->flushed++;
}

static void step(struct load *load)
{
	uint32_t i = rng_below(&load->rng, load->pages);
	enum kind kind = rng_below(&load->rng, KINDS);
	uint64_t start = now_us(), took;

	switch (rng_below(&load->rng, 10)) {
	case 0:
		flush(load, kind, i);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		get(load, kind, i);
		break;
	default:
		put(load, kind, i);
	}
	took = now_us() - start;
	if (took > load->slowest_us)
		load->slowest_us = took;
}

static void say(struct load *load, const char *word)
{
	printf("%s put=%llu refused=%llu hit=%llu missed=%llu flushed=%llu slowest_ms=%llu\n", word,
	       (unsigned long long)load->put, (unsigned long long)load->refused,
	       (unsigned long long)load->hit, (unsigned long long)load->missed,
	       (unsigned long long)load->flushed, (unsigned long long)load->slowest_us / 1000);
	fflush(stdout);
	load->slowest_us = 0;
}

static void start(struct load *load, const char *socket)
{
	struct tmem_hello hello = {.rings = 1, .entries = 128, .features = TMEM_F_ALL};
	char err[256];

	for (enum kind kind = 0; kind < KINDS; kind++) {
		load->stamps[kind] = calloc(load->pages, sizeof(uint64_t));
		CHECK(load->stamps[kind]);
	}
	if (tmem_client_connect(&load->client, socket, 60000, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	CHECK_IS(tmem_client_hello(load->client, &hello), 0);
	load->ring = tmem_client_ring(load->client, 0);
	load->pools[KEPT] = player_pool(load->client, PERSISTENT);
	load->pools[SPARE] = player_pool(load->client, EPHEMERAL);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		perror("ringload: mlockall");
}

int main(int argc, char **argv)
{
	struct load load = {0};
	uint64_t next;

	if (argc < 4) {
		fprintf(stderr, "usage: ringload SOCKET PAGES UNTIL-FILE [SEED]\n");
		return 2;
	}
	load.pages = (uint32_t)strtoul(argv[2], NULL, 10);
	load.rng.state = argc > 4 ? strtoull(argv[4], NULL, 10) : test_seed();
	printf("seed %llu\n", (unsigned long long)load.rng.state);
	start(&load, argv[1]);
	say(&load, "load");
	next = now_us() + 1000000;
	while (access(argv[3], F_OK)) {
		for (int i = 0; i < 16; i++)
			step(&load);
		if (now_us() >= next) {
			say(&load, "load");
			next = now_us() + 1000000;
		}
	}
	for (uint32_t i = 0; i < load.pages; i++)
		get(&load, KEPT, i);
	say(&load, "intact");
	CHECK_IS(tmem_client_posted_failed(load.client), 0);
	CHECK_IS(tmem_client_bye(load.client), 0);
	tmem_client_close(load.client);
	return 0;
}
