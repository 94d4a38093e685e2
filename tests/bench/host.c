// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-bench host: what this machine does, for an operator who wants to know what to expect: the
 * parts of a put and a get, memory from the host, and one CPU waking another.
 */
#include "bench.h"
#include "tests/lib/scratch.h"

#include <fcntl.h>
#include <lz4.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define DEFAULT_PAGES 20000
#define WAKES 2000
#define POPULATED (64u << 20)

static volatile uint64_t sink;

static void hash_all(const struct corpus *c)
{
	for (size_t i = 0; i < c->nr; i++)
		sink += XXH3_64bits(c->pages + i * PAGE_BYTES, PAGE_BYTES);
}

static void compress_all(const struct corpus *c)
{
	static char out[PAGE_BYTES];

	for (size_t i = 0; i < c->nr; i++)
		sink += LZ4_compress_default((const char *)c->pages + i * PAGE_BYTES, out,
					     PAGE_BYTES, sizeof(out));
}

static void copy_all(const struct corpus *c)
{
	static _Alignas(4096) uint8_t slot[256][PAGE_BYTES];

	for (size_t i = 0; i < c->nr; i++) {
		memcpy(slot[i % 256], c->pages + i * PAGE_BYTES, PAGE_BYTES);
		sink += slot[i % 256][i % PAGE_BYTES];
	}
}

static void decompress_all(const struct corpus *c)
{
	floor_get(c, NULL);
}

static void times(const char *name, void (*fn)(const struct corpus *), const struct corpus *c,
		  unsigned rounds)
{
	struct series s = {.nr = 0};

	for (unsigned i = 0; i < rounds; i++) {
		struct timing start = bench_now();

		fn(c);
		series_add(&s, bench_since(start), c->nr);
	}
	figure_times(name, &s, NULL);
}

/* A fresh page of a tmpfs file, populated as the store does it. */
static void populate(const char *name, const char *file, unsigned rounds)
{
	struct series s = {.nr = 0};

	for (unsigned i = 0; i < rounds; i++) {
		int fd = open(scratch_path(file), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		struct timing start = bench_now();
		uint8_t *map;

		if (fd < 0 || fallocate(fd, 0, 0, POPULATED))
			break;
		map = mmap(NULL, POPULATED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
			   0);
		if (map == MAP_FAILED)
			break;
		for (size_t at = 0; at < POPULATED; at += PAGE_BYTES)
			map[at] = 1;
		series_add(&s, bench_since(start), POPULATED / PAGE_BYTES);
		munmap(map, POPULATED);
		close(fd);
		unlink(scratch_path(file));
	}
	if (s.nr)
		figure_times(name, &s, NULL);
}

/* ---- One CPU wakes another ------------------------------------------------------------------ */

struct pair {
	int there, back;
	_Atomic uint32_t ball;
	bool poll;
};

static void *answer(void *arg)
{
	struct pair *p = arg;
	eventfd_t v;

	for (uint32_t i = 0; i < WAKES; i++) {
		if (p->poll) {
			while (atomic_load(&p->ball) != 2 * i + 1)
				;
			atomic_store(&p->ball, 2 * i + 2);
		} else if (eventfd_read(p->there, &v) || eventfd_write(p->back, 1)) {
			break;
		}
	}
	return NULL;
}

/* Half of a round trip, ns. */
static double ping_pong(bool poll)
{
	struct pair p = {
		.there = eventfd(0, EFD_CLOEXEC), .back = eventfd(0, EFD_CLOEXEC), .poll = poll};
	pthread_t thread;
	struct timing start;
	eventfd_t v;

	if (pthread_create(&thread, NULL, answer, &p))
		exit(1);
	start = bench_now();
	for (uint32_t i = 0; i < WAKES; i++) {
		if (poll) {
			atomic_store(&p.ball, 2 * i + 1);
			while (atomic_load(&p.ball) != 2 * i + 2)
				;
		} else if (eventfd_write(p.there, 1) || eventfd_read(p.back, &v)) {
			break;
		}
	}
	start = bench_since(start);
	pthread_join(thread, NULL);
	close(p.there);
	close(p.back);
	return (double)start.wall / WAKES / 2;
}

int bench_host(const struct bench_options *options)
{
	double wake[MAX_ROUNDS], poll[MAX_ROUNDS];
	struct corpus c;

	if (corpus_make(&c, options, DEFAULT_PAGES))
		return 1;
	scratch_make("bench");
	times("copy", copy_all, &c, options->rounds);
	times("xxh3", hash_all, &c, options->rounds);
	times("lz4_compress", compress_all, &c, options->rounds);
	times("lz4_decompress", decompress_all, &c, options->rounds);
	populate("populate_small_pages", "small", options->rounds);
	if (scratch_mount(0, "always"))
		populate("populate_huge_pages", "huge", options->rounds);
	else
		printf("huge pages: not measured, a tmpfs can be mounted by root only\n");
	for (unsigned i = 0; i < options->rounds; i++) {
		wake[i] = ping_pong(false);
		poll[i] = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? ping_pong(true) : 0;
	}
	figure_values("wake_up", "ns", wake, NULL, options->rounds);
	figure_values("polling", "ns", poll, NULL, options->rounds);
	printf("not measured here: exits of a guest (run tmem-bench in one), network cards\n");
	corpus_free(&c);
	return 0;
}
