// SPDX-License-Identifier: GPL-2.0-or-later
/* Real stores to measure. */
#include "bench.h"
#include "proto/tmem_abi.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what, const char *why)
{
	fprintf(stderr, "tmem-bench: %s: %s\n", what, why);
	exit(1);
}

void bench_mount(void)
{
	static bool done;
	const char *how = "huge=always";

	if (done)
		return;
	done = true;
	scratch_make("bench");
	if (!scratch_mount(0, "always")) {
		how = "huge=advise";
		if (!scratch_mount(0, "advise"))
			how = "none of our own (not root): /dev/shm as it is";
	}
	printf("arena's tmpfs: %s\n", how);
}

struct store *bench_store_open(const char *file, uint64_t pool_max, unsigned ready, bool worker)
{
	struct store_config config = {
		.pool_max = pool_max, .ready_chunks = ready, .no_worker = !worker};
	struct store *store;
	struct store_info info;
	char err[256] = "";

	bench_mount();
	log_setup(LOG_ERROR, false);
	config.arena_path = scratch_path(file);
	unlink(config.arena_path);
	if (store_open(&store, &config, err, sizeof(err)))
		die("store", err);
	store_info(store, &info);
	printf("arena: huge pages %s\n", info.huge_pages ? "yes" : "no");
	return store;
}

struct store_client *bench_client(struct store *store, const char *name)
{
	static const struct store_limits limits = {0};
	struct store_client *client;

	if (store_client_open(store, name, &limits, &client))
		die("client", name);
	return client;
}

int bench_pool(struct store_client *client, uint32_t flags, uint64_t nonce)
{
	static const uint64_t uuid[2];
	int id = store_pool_new(client, flags | 1u << TMEM_POOL_VERSION_SHIFT, uuid, nonce);

	if (id < 0)
		die("pool", strerror(-id));
	return id;
}

uint64_t bench_counter(struct store *store, enum store_counter which)
{
	return counter_get(&store_counters(store)[which]);
}

void bench_settle(struct store *store, uint64_t chunks)
{
	uint64_t end = clock_ns() + 60 * CLOCK_S, before, now = 0;

	while (bench_counter(store, STORE_CHUNKS_READY) < chunks) {
		if (clock_ns() > end)
			die("store", "no memory was made ready within a minute");
		usleep(1000);
	}
	do {
		before = now;
		usleep(150000); /* longer than the worker sleeps */
		now = bench_counter(store, STORE_PAGES_MOVED) +
		      bench_counter(store, STORE_CHUNKS_POPULATED) +
		      bench_counter(store, STORE_CHUNKS_RETURNED) +
		      bench_counter(store, STORE_SWEPT);
	} while (now != before && clock_ns() < end);
}

uint64_t bench_arena_bytes(struct store *store)
{
	struct store_info info;
	struct stat st;

	store_info(store, &info);
	return stat(info.arena_path, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

uint64_t bench_private_bytes(void)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

/* Slots of a swap area in order: 65536 of them are an object. */
struct store_handle bench_handle(uint32_t pool, uint64_t i)
{
	struct store_handle handle = {.object = {i >> 16, 0, 0}, .pool = pool, .index = i & 0xffff};

	return handle;
}
