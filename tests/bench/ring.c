// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-bench ring: pages through a ring. A child process is the guest, with the ring client; this
 * process is the service: store and front as tmemd has them. The guest also has a store of its own
 * for the reference: the same pages without a ring.
 */
#include "bench.h"
#include "front/front.h"
#include "proto/tmem_abi.h"
#include "tests/lib/scratch.h"
#include "tools/client/tmem_client.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_PAGES 20000
#define DEPTH 32
#define ENTRIES 256
#define CREDITS 256
#define REGION (4u << 20)
#define SLOTS 128

/* What the guest measured; it is printed by the service, which has the figures. */
struct results {
	atomic_bool service_up;
	struct series ring, own, posted, copied, trip;
	double doorbells[MAX_ROUNDS];
	unsigned rounds;
};

struct guest {
	struct results *results;
	struct corpus corpus;
	struct tmem_client *client;
	struct tmem_ring *ring;
	uint32_t pool;
	clockid_t service_clock; /* CPU time of the service's process */
	struct store *store;
	struct store_client *own;
	uint32_t own_pool;
	uint8_t (*slots)[PAGE_BYTES];
};

static void give_up(const char *what, int r)
{
	fprintf(stderr, "tmem-bench: %s answered %d\n", what, r);
	exit(1);
}

static struct tmem_handle handle_of(uint32_t pool, uint64_t i)
{
	struct store_handle h = bench_handle(pool, i);
	struct tmem_handle handle = {.pool = pool, .index = h.index};

	memcpy(handle.object, h.object, sizeof(handle.object));
	return handle;
}

static struct timing service_now(const struct guest *g)
{
	struct timing t = bench_now();
	struct timespec ts;

	if (clock_gettime(g->service_clock, &ts))
		give_up("the service's CPU clock", 0);
	t.cpu = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	return t;
}

static unsigned reap(struct guest *g)
{
	struct tmem_result results[DEPTH];
	unsigned n = tmem_reap(g->ring, results, DEPTH);

	for (unsigned i = 0; i < n; i++)
		if (results[i].status != 1)
			give_up("an operation in the ring", results[i].status);
	return n;
}

/* All pages, with DEPTH operations under way; submitted in batches of half of that. */
static void stream(struct guest *g, enum tmem_opcode op)
{
	static uint8_t into[DEPTH][PAGE_BYTES];
	size_t sent = 0, done = 0, left, nr = g->corpus.nr;

	while (done < nr) {
		while (sent < nr && sent - done < DEPTH) {
			struct tmem_request request = {.op = op,
						       .handle = handle_of(g->pool, sent),
						       .page = g->corpus.pages + sent * PAGE_BYTES,
						       .into = into[sent % DEPTH]};
			int r = tmem_submit(g->ring, &request);

			if (r)
				give_up("submit", r);
			sent++;
		}
		tmem_kick(g->ring);
		left = sent < nr ? DEPTH / 2 : 0;
		while (sent - done > left) {
			unsigned n = reap(g);

			done += n;
			if (!n && tmem_wait_many(g->ring, sent - done - left) < 0)
				give_up("wait", 0);
		}
	}
}

static void through_ring(struct guest *g)
{
	struct tmem_client_counts before, after;
	struct timing start = service_now(g), end;

	tmem_client_counts(g->client, &before);
	stream(g, TMEM_PUT_PAGE);
	stream(g, TMEM_GET_PAGE);
	end = service_now(g);
	tmem_client_counts(g->client, &after);
	end.cpu -= start.cpu;
	end.wall -= start.wall;
	series_add(&g->results->ring, end, 2 * g->corpus.nr);
	g->results->doorbells[g->results->rounds] =
		(double)(after.doorbells_in - before.doorbells_in + after.doorbells_out -
			 before.doorbells_out) /
		(2 * g->corpus.nr);
}

static void without_ring(struct guest *g)
{
	static uint8_t page[PAGE_BYTES];
	struct timing start = bench_now();

	for (size_t i = 0; i < g->corpus.nr; i++) {
		struct store_handle handle = bench_handle(g->own_pool, i);
		int r = store_put(g->own, &handle, g->corpus.pages + i * PAGE_BYTES, 0);

		if (r != 1)
			give_up("put", r);
	}
	for (size_t i = 0; i < g->corpus.nr; i++) {
		struct store_handle handle = bench_handle(g->own_pool, i);

		if (store_get(g->own, &handle, page) != 1)
			give_up("get", 0);
	}
	series_add(&g->results->own, bench_since(start), 2 * g->corpus.nr);
	for (size_t i = 0; i < g->corpus.nr; i++) {
		struct store_handle handle = bench_handle(g->own_pool, i);

		store_flush(g->own, &handle);
	}
}

static void add(struct timing *sum, struct timing part)
{
	sum->cpu += part.cpu;
	sum->wall += part.wall;
}

/* Only the guest's part is timed: into the slot, into the ring. */
static void posted(struct guest *g)
{
	struct timing sum = {0, 0}, start;
	size_t i = 0, n, nr = g->corpus.nr;

	while (i < nr) {
		n = tmem_credits(g->ring);
		if (n > SLOTS)
			n = SLOTS;
		if (n > nr - i)
			n = nr - i;
		start = bench_now();
		for (size_t end = i + n; i < end; i++) {
			struct tmem_handle handle = handle_of(g->pool, i);
			int r = tmem_put_posted(g->ring, &handle, g->corpus.pages + i * PAGE_BYTES);

			if (r != 1)
				give_up("posted put", r);
		}
		if (n)
			add(&sum, bench_since(start));
		tmem_drain(g->ring);
		if (!n)
			usleep(100);
	}
	series_add(&g->results->posted, sum, nr);
}

static void *other_core(void *arg)
{
	uint8_t(*slots)[PAGE_BYTES] = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (unsigned i = 0; i < SLOTS; i++)
		for (unsigned at = 0; at < PAGE_BYTES; at += 64)
			((volatile uint8_t *)slots[i])[at]++;
	return NULL;
}

/* The reference of a posted put: a copy of a cold page into a slot that the other core touched. */
static void copied(struct guest *g)
{
	struct timing sum = {0, 0}, start;
	pthread_t thread;

	for (size_t i = 0; i < g->corpus.nr;) {
		if (pthread_create(&thread, NULL, other_core, g->slots))
			give_up("pthread_create", 0);
		pthread_join(thread, NULL);
		start = bench_now();
		for (unsigned s = 0; s < SLOTS && i < g->corpus.nr; s++, i++)
			memcpy(g->slots[s], g->corpus.pages + i * PAGE_BYTES, PAGE_BYTES);
		add(&sum, bench_since(start));
	}
	series_add(&g->results->copied, sum, g->corpus.nr);
}

/* One get at a time: what a page fault in the guest waits for. */
static void round_trips(struct guest *g)
{
	static uint8_t page[PAGE_BYTES];
	struct timing start = bench_now();
	size_t n = g->corpus.nr / 10 + 1;

	for (size_t i = 0; i < n; i++) {
		struct tmem_handle handle = handle_of(g->pool, i);

		if (tmem_get(g->ring, &handle, page) != 1)
			give_up("get", 0);
		if (page_stamp(page) != page_stamp(g->corpus.pages + i * PAGE_BYTES))
			give_up("a page came back wrong; get", 1);
	}
	series_add(&g->results->trip, bench_since(start), n);
}

static void flush_all(struct guest *g)
{
	for (size_t i = 0; i < g->corpus.nr; i++) {
		struct tmem_handle handle = handle_of(g->pool, i);

		tmem_flush(g->ring, &handle);
	}
	usleep(200000); /* memory is made ready again */
}

static void attach(struct guest *g)
{
	struct tmem_hello hello = {.rings = 1, .entries = ENTRIES, .features = TMEM_F_POSTED};
	uint64_t uuid[2] = {0, 0};
	char err[256] = "";
	int r = tmem_client_connect(&g->client, scratch_path("socket"), 10000, err, sizeof(err));

	if (r) {
		fprintf(stderr, "tmem-bench: connect: %s\n", err);
		exit(1);
	}
	r = tmem_client_hello(g->client, &hello);
	if (r)
		give_up("hello", r);
	g->ring = tmem_client_ring(g->client, 0);
	r = tmem_new_pool(g->ring, 1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST, uuid);
	if (r < 0)
		give_up("new pool", r);
	g->pool = r;
}

static void guest_main(struct results *results, const struct bench_options *options,
		       uint64_t chunks)
{
	struct guest g = {.results = results};

	if (corpus_make(&g.corpus, options, DEFAULT_PAGES) ||
	    clock_getcpuclockid(getppid(), &g.service_clock))
		exit(1);
	g.slots = aligned_alloc(PAGE_BYTES, SLOTS * PAGE_BYTES);
	memset(g.slots, 1, SLOTS * PAGE_BYTES);
	while (!atomic_load(&results->service_up))
		usleep(1000);
	g.store = bench_store_open("own", 4 * chunks * STORE_CHUNK_BYTES, chunks, true);
	g.own = bench_client(g.store, "own");
	g.own_pool = bench_pool(g.own, TMEM_POOL_PERSIST, 1);
	bench_settle(g.store, chunks);
	attach(&g);
	for (unsigned i = 0; i < options->rounds; i++) {
		through_ring(&g);
		without_ring(&g);
		round_trips(&g);
		flush_all(&g);
		posted(&g);
		copied(&g);
		flush_all(&g);
		results->rounds++;
	}
	tmem_client_bye(g.client);
	tmem_client_close(g.client);
	store_close(g.store);
	exit(0);
}

static void serve(struct store *store, struct front **front)
{
	struct front_config config = {.region_dir = scratch_path(""), .workers = 1, .poll_us = 50};
	struct front_client_config client = {.name = "guest",
					     .socket = scratch_path("socket"),
					     .socket_mode = 0600,
					     .socket_uid = (uid_t)-1,
					     .socket_gid = (gid_t)-1,
					     .region_bytes = REGION,
					     .max_rings = 1,
					     .ring_credits = CREDITS};
	char err[256] = "";

	bench_client(store, "guest");
	if (front_open(front, store, &config, err, sizeof(err)) ||
	    front_client_add(*front, &client, err, sizeof(err))) {
		fprintf(stderr, "tmem-bench: front: %s\n", err);
		exit(1);
	}
}

int bench_ring(const struct bench_options *options)
{
	uint64_t pages = options->pages ? options->pages : DEFAULT_PAGES;
	uint64_t chunks = pages * 1900 / STORE_CHUNK_BYTES + 48;
	struct results *results = mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct front *front;
	struct store *store;
	int status;
	pid_t pid;

	if (results == MAP_FAILED)
		return 1;
	bench_mount();
	pid = fork();
	if (!pid)
		guest_main(results, options, chunks);
	store = bench_store_open("arena", 4 * chunks * STORE_CHUNK_BYTES, chunks, true);
	serve(store, &front);
	bench_settle(store, chunks);
	atomic_store(&results->service_up, true);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	figure_times("ring_load", &results->ring, &results->own);
	figure_values("doorbells", "1/page", results->doorbells, NULL, results->rounds);
	figure_times("posted_put", &results->posted, &results->copied);
	figure_times("round_trip", &results->trip, NULL);
	front_client_remove(front, "guest");
	front_close(front);
	store_close(store);
	munmap(results, sizeof(*results));
	return 0;
}
