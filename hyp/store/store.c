// SPDX-License-Identifier: GPL-2.0-or-later
/* Opening and closing the store, and what concerns it as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "store/store_priv.h"

/* Chunks ready by default: 1/32 of the pool, within these. */
#define READY_LEAST 4
#define READY_MOST 32
/* Steps of populating before anybody is served. */
#define FIRST_STEPS 64
/* Below its group's limit nobody but the kernel and small allocations go. */
#define ROOM_LEAST (4ull << 20)

static uint64_t default_capacity(const struct store_config *config)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);

	/* Sparse: room for a later, larger pool_max costs nothing. */
	return config->pool_max > ram ? config->pool_max : ram;
}

static unsigned default_ready(uint64_t pool_max)
{
	uint64_t ready = pool_max / CHUNK_BYTES / 32;

	return ready < READY_LEAST ? READY_LEAST : ready > READY_MOST ? READY_MOST : ready;
}

static int populate_first(struct store *store, char *err, size_t errlen)
{
	for (unsigned i = 0; i < FIRST_STEPS; i++) {
		pressure_check(store, !i);
		if (!populate_step(store))
			break;
	}
	if (!atomic_load(&store->alloc.free_slabs) && !atomic_load(&store->alloc.used_slabs)) {
		snprintf(err, errlen,
			 "no memory for the pool: pool_max must be at least 16M, the mount of %s "
			 "must have room, the host more than host_reserve available, and a limit "
			 "of the control group must leave more than its reserve of 8M or 1/16",
			 store->arena.path);
		return -ENOMEM;
	}
	return 0;
}

static int set_up(struct store *store, const struct store_config *config, char *err, size_t errlen)
{
	const char *meminfo = config->meminfo_path ? config->meminfo_path : "/proc/meminfo";
	int r;

	r = arena_open(&store->arena, config->arena_path, default_capacity(config),
		       config->any_filesystem, err, errlen);
	if (r)
		return r;
	if (config->pool_max > store->arena.sb->capacity) {
		snprintf(err, errlen,
			 "pool_max is more than the arena %s was made for (%llu bytes)",
			 store->arena.path, (unsigned long long)store->arena.sb->capacity);
		return -EINVAL;
	}
	store->seed = store->arena.sb->hash_seed;
	atomic_store(&store->frozen, atomic_load(&store->arena.sb->frozen) != 0);
	atomic_store(&store->pool_max, config->pool_max);
	atomic_store(&store->host_reserve, config->host_reserve);
	store->ready_chunks =
		config->ready_chunks ? config->ready_chunks : default_ready(config->pool_max);
	store->meminfo_fd = open(meminfo, O_RDONLY | O_CLOEXEC);
	if (store->meminfo_fd < 0) {
		snprintf(err, errlen, "%s: %s", meminfo, strerror(errno));
		return -errno;
	}
	/* Kernels without PSI have no such file. */
	store->psi_fd = open(config->psi_path ? config->psi_path : "/proc/pressure/memory",
			     O_RDONLY | O_CLOEXEC);
	cgroup_open(&store->cgroup, config->proc_path ? config->proc_path : "/proc/self");
	r = alloc_init(&store->alloc, &store->arena);
	if (!r)
		r = index_init(store);
	if (r) {
		snprintf(err, errlen, "no address space for the indexes");
		return r;
	}
	if (rebuild(store)) {
		snprintf(err, errlen, "%s: the superblock is damaged; it was left as it is",
			 store->arena.path);
		return -EPROTO;
	}
	client_lent(store, false);
	r = populate_first(store, err, errlen);
	if (r || config->no_worker)
		return r;
	r = worker_start(store);
	if (r)
		snprintf(err, errlen, "the background thread cannot be started: %s", strerror(-r));
	return r;
}

int store_open(struct store **out, const struct store_config *config, char *err, size_t errlen)
{
	struct store *store;
	int r;

	*out = NULL;
	/* Not calloc: the struct is populated now, not at the first operation that touches it. */
	store = mmap(NULL, sizeof(*store), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (store == MAP_FAILED) {
		snprintf(err, errlen, "there is no memory for the store");
		return -ENOMEM;
	}
	store->arena.fd = -1;
	store->wake_fd = -1;
	store->meminfo_fd = -1;
	store->psi_fd = -1;
	pthread_mutex_init(&store->admin, NULL);
	pthread_mutex_init(&store->work, NULL);
	away_init(store);
	r = set_up(store, config, err, errlen);
	if (r)
		store_close(store);
	else
		*out = store;
	return r;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	worker_stop(store);
	away_fini(store);
	index_fini(store);
	alloc_fini(&store->alloc);
	arena_close(&store->arena);
	cgroup_close(&store->cgroup);
	if (store->meminfo_fd >= 0)
		close(store->meminfo_fd);
	if (store->psi_fd >= 0)
		close(store->psi_fd);
	munmap(store, sizeof(*store));
}

void store_freeze(struct store *store, bool frozen)
{
	atomic_store(&store->arena.sb->frozen, frozen);
	atomic_store(&store->frozen, frozen);
}

bool store_frozen(const struct store *store)
{
	return atomic_load(&store->frozen);
}

static int add_minimum(struct store_client *client, void *arg)
{
	*(uint64_t *)arg += atomic_load(&client->min_bytes);
	return 0;
}

int store_set_pool_max(struct store *store, uint64_t pool_max)
{
	uint64_t minimums = 0;
	int r = 0;

	pthread_mutex_lock(&store->admin);
	store_client_each(store, add_minimum, &minimums);
	if (pool_max < minimums || pool_max > store->arena.sb->capacity)
		r = -EINVAL;
	else
		atomic_store(&store->pool_max, pool_max);
	pthread_mutex_unlock(&store->admin);
	worker_wake(store);
	return r;
}

uint64_t store_pool_max(const struct store *store)
{
	return atomic_load(&store->pool_max);
}

void store_set_host_reserve(struct store *store, uint64_t host_reserve)
{
	atomic_store(&store->host_reserve, host_reserve);
	worker_wake(store);
}

uint64_t store_host_reserve(const struct store *store)
{
	return atomic_load(&store->host_reserve);
}

bool store_has_room(const struct store *store, uint64_t bytes)
{
	uint64_t left = cgroup_left(&store->cgroup);

	return left >= bytes && left - bytes >= ROOM_LEAST;
}

counter_t *store_counters(struct store *store)
{
	uint64_t whole = atomic_load(&store->alloc.whole_chunks), stored = 0;
	uint64_t chunks = atomic_load(&store->alloc.nr_populated);

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		pthread_mutex_lock(&store->shards[i].lock);
		stored += store->shards[i].stored_bytes;
		pthread_mutex_unlock(&store->shards[i].lock);
	}
	counter_set(&store->counters[STORE_CHUNKS_READY], whole);
	counter_set(&store->counters[STORE_CHUNKS_USED], chunks > whole ? chunks - whole : 0);
	counter_set(&store->counters[STORE_META_BYTES], pool_bytes(store) - chunks * CHUNK_BYTES);
	counter_set(&store->counters[STORE_POOL_BYTES], pool_bytes(store));
	counter_set(&store->counters[STORE_STORED_BYTES], stored);
	counter_set(&store->counters[STORE_SHORT], atomic_load(&store->pressure));
	counter_set(&store->counters[STORE_GROWTH_BYTES],
		    atomic_load(&store->alloc.growth) * SLAB_BYTES);
	counter_set(&store->counters[STORE_AWAY_BYTES], atomic_load(&store->away.pages) * 4096);
	lent_counters(store);
	counter_set(&store->counters[STORE_TIER_FLIGHTS], away_flights(store));
	counter_set(&store->counters[STORE_ALLOCATED_BYTES],
		    atomic_load(&store->alloc.used_slabs) * SLAB_BYTES);
	return store->counters;
}

void store_info(const struct store *store, struct store_info *info)
{
	memcpy(info->arena_path, store->arena.path, sizeof(info->arena_path));
	/* The secret itself is not told. */
	info->id = XXH3_64bits_withSeed("id", 2, store->arena.sb->hash_seed);
	info->capacity = store->arena.sb->capacity;
	info->format = store->arena.sb->format;
	info->huge_pages = store->arena.huge;
}
