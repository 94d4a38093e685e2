// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pools: making, joining, destroying, and the sweep that frees what destroyed ones left.
 *
 * A client's table maps its small ids to records; an entry carries the record's generation, so
 * that an operation that resolved an id before the pool was destroyed cannot reach the record's
 * next user. Destroying takes effect at once (the record is marked, the entry cleared); the pages
 * of a large pool are freed afterwards, in the background, and the record is used again only then.
 */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"

/* Destroy frees up to this many pages itself. */
#define SWEEP_AT_ONCE 4096
#define SWEEP_BATCH 256
/* Runtime state only: dying, and its destroyer sweeps it. */
#define POOL_SWEPT_BY_OWNER 3u

#define KNOWN_FLAGS                                                                                \
	(TMEM_POOL_PERSIST | TMEM_POOL_SHARED | TMEM_POOL_X_INCLUSIVE |                            \
	 TMEM_POOL_PAGESIZE_MASK << TMEM_POOL_PAGESIZE_SHIFT |                                     \
	 TMEM_POOL_VERSION_MASK << TMEM_POOL_VERSION_SHIFT)

static const uint64_t no_uuid[2];

void shards_lock(struct store *store)
{
	for (unsigned i = 0; i < NR_SHARDS; i++)
		pthread_mutex_lock(&store->shards[i].lock);
}

void shards_unlock(struct store *store)
{
	for (unsigned i = 0; i < NR_SHARDS; i++)
		pthread_mutex_unlock(&store->shards[i].lock);
}

uint32_t pool_lookup(struct store_client *client, uint32_t id, uint32_t *gen)
{
	uint64_t ref;

	if (id >= STORE_MAX_CLIENT_POOLS)
		return 0;
	ref = atomic_load_explicit(&client->pools[id], memory_order_acquire);
	*gen = ref >> 32;
	return (uint32_t)ref;
}

bool pool_alive(const struct store *store, const struct key *key)
{
	const struct pool *pool = &store->pools[key->pool];

	return atomic_load(&pool->gen) == key->gen && atomic_load(&pool->state) == RECORD_LIVE;
}

static uint64_t pool_ref(const struct store *store, uint32_t no)
{
	return (uint64_t)atomic_load(&store->pools[no].gen) << 32 | (no + 1);
}

static bool flags_valid(uint32_t flags)
{
	uint32_t version = flags >> TMEM_POOL_VERSION_SHIFT & TMEM_POOL_VERSION_MASK;

	if (flags & ~KNOWN_FLAGS || version != TMEM_SPEC_VERSION ||
	    flags >> TMEM_POOL_PAGESIZE_SHIFT & TMEM_POOL_PAGESIZE_MASK)
		return false;
	return !(flags & TMEM_POOL_PERSIST && flags & TMEM_POOL_X_INCLUSIVE);
}

static bool authorised(const struct store_client *client, const uint64_t uuid[2])
{
	if (!memcmp(uuid, no_uuid, sizeof(no_uuid)))
		return false;
	for (unsigned i = 0; i < CLIENT_AUTHS; i++)
		if (!memcmp(client->rec->auth[i], uuid, sizeof(no_uuid)))
			return true;
	return false;
}

/* The client's id of a pool that it has already: same nonce, or same shared pool. Else -1. */
static int known_id(struct store_client *client, uint32_t flags, const uint64_t uuid[2],
		    uint64_t nonce)
{
	struct store *store = client->store;

	for (int id = 0; id < STORE_MAX_CLIENT_POOLS; id++) {
		uint32_t no = (uint32_t)atomic_load(&client->pools[id]);
		const struct pool_rec *rec;

		if (!no)
			continue;
		rec = &store->arena.pools[no - 1];
		if (rec->flags != flags)
			continue;
		if (flags & TMEM_POOL_SHARED ? !memcmp(rec->uuid, uuid, sizeof(rec->uuid))
					     : nonce && rec->nonce == nonce)
			return id;
	}
	return -1;
}

static uint32_t find_shared(struct store *store, const uint64_t uuid[2])
{
	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++) {
		if (atomic_load(&store->pools[no].state) == RECORD_LIVE &&
		    store->pools[no].flags & TMEM_POOL_SHARED &&
		    !memcmp(store->arena.pools[no].uuid, uuid, sizeof(no_uuid)))
			return no + 1;
	}
	return 0;
}

static uint32_t make_pool(struct store_client *client, uint32_t flags, const uint64_t uuid[2],
			  uint64_t nonce)
{
	struct store *store = client->store;

	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++) {
		struct pool_rec *rec = &store->arena.pools[no];
		struct pool *pool = &store->pools[no];

		if (atomic_load(&pool->state) != RECORD_FREE)
			continue;
		rec->flags = flags;
		memcpy(rec->uuid, uuid, sizeof(rec->uuid));
		rec->nonce = nonce;
		rec->owner = client - store->clients;
		fault(FAULT_POOL_FILLED);
		atomic_store_explicit(&rec->state, RECORD_LIVE, memory_order_release);
		pool->flags = flags;
		pool->owner = client;
		pool->members = 0;
		atomic_store(&pool->pages, 0);
		atomic_store(&pool->bytes, 0);
		atomic_fetch_add(&pool->gen, 1);
		atomic_store(&pool->state, RECORD_LIVE);
		return no + 1;
	}
	return 0;
}

static void join_pool(struct store_client *client, int id, uint32_t no)
{
	client->store->pools[no - 1].members++;
	atomic_store_explicit(&client->rec->pools[id], no, memory_order_release);
	fault(FAULT_POOL_JOINED);
	atomic_store_explicit(&client->pools[id], pool_ref(client->store, no - 1),
			      memory_order_release);
}

static int free_id(const struct store_client *client)
{
	for (int id = 0; id < STORE_MAX_CLIENT_POOLS; id++)
		if (!atomic_load(&client->pools[id]))
			return id;
	return -ENOSPC;
}

/* admin lock held. A pool of that id, or (-1) of any that is free. */
static int make_or_join(struct store_client *client, int id, uint32_t flags, const uint64_t uuid[2],
			uint64_t nonce)
{
	struct store *store = client->store;
	uint32_t no = 0;

	if (id < 0)
		id = free_id(client);
	if (id < 0 || fault(FAULT_ALLOC_POOL))
		return -ENOSPC;
	if (flags & TMEM_POOL_SHARED)
		no = find_shared(store, uuid);
	if (no && store->pools[no - 1].flags != flags)
		return -EINVAL;
	if (!no)
		no = make_pool(client, flags, uuid, nonce);
	if (!no)
		return -ENOSPC;
	fault(FAULT_POOL_PUBLISHED);
	join_pool(client, id, no);
	return id;
}

/* admin lock held */
static int pool_new_locked(struct store_client *client, uint32_t flags, const uint64_t uuid[2],
			   uint64_t nonce)
{
	int id;

	if (flags & TMEM_POOL_SHARED && !authorised(client, uuid))
		return -EPERM;
	id = known_id(client, flags, uuid, nonce);
	return id >= 0 ? id : make_or_join(client, -1, flags, uuid, nonce);
}

int pool_make(struct store_client *client, int id, uint32_t flags, const uint64_t uuid[2],
	      uint64_t nonce)
{
	bool shared = flags & TMEM_POOL_SHARED;
	int r = -EINVAL;

	if (!flags_valid(flags) || id >= STORE_MAX_CLIENT_POOLS)
		return r;
	pthread_mutex_lock(&client->store->admin);
	if (shared && !authorised(client, uuid))
		r = -EPERM;
	else if (id >= 0 && atomic_load(&client->pools[id]))
		r = -EEXIST;
	else
		r = make_or_join(client, id, flags, shared ? uuid : no_uuid, nonce);
	pthread_mutex_unlock(&client->store->admin);
	return r;
}

int store_pool_new(struct store_client *client, uint32_t flags, const uint64_t uuid[2],
		   uint64_t nonce)
{
	int r = -EINVAL;

	if (flags_valid(flags)) {
		pthread_mutex_lock(&client->store->admin);
		r = pool_new_locked(client, flags, flags & TMEM_POOL_SHARED ? uuid : no_uuid,
				    nonce);
		pthread_mutex_unlock(&client->store->admin);
	}
	if (r < 0)
		counter_add(&client->counters[CLIENT_REFUSED_POOL], 1);
	return r;
}

int pool_named(struct store_client *client, const uint64_t uuid[2], uint64_t nonce, bool make)
{
	static const uint32_t flags =
		TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST;
	struct store *store = client->store;
	int r = -ENOENT;

	pthread_mutex_lock(&store->admin);
	for (int id = 0; id < STORE_MAX_CLIENT_POOLS && r < 0; id++) {
		uint32_t no = (uint32_t)atomic_load(&client->pools[id]);
		const struct pool_rec *rec = &store->arena.pools[no ? no - 1 : 0];

		if (no && rec->nonce == nonce && !memcmp(rec->uuid, uuid, sizeof(rec->uuid)))
			r = id;
	}
	if (r < 0 && make)
		r = make_or_join(client, -1, flags, uuid, nonce);
	pthread_mutex_unlock(&store->admin);
	return r;
}

/* ---- Destroying ----------------------------------------------------------------------------- */

/* Frees up to a batch of the pool's pages in one shard; how many. */
static unsigned sweep_shard(struct store *store, struct shard *shard, uint32_t no)
{
	unsigned n = 0;

	pthread_mutex_lock(&shard->lock);
	while (n < SWEEP_BATCH && shard->lists[no].oldest) {
		page_drop(store, shard, shard->lists[no].oldest);
		n++;
	}
	pthread_mutex_unlock(&shard->lock);
	return n;
}

/* Frees all pages of a pool that no operation can reach any more, then its record. */
static void sweep_pool(struct store *store, uint32_t no)
{
	struct pool *pool = &store->pools[no];
	struct store_client *owner = pool->owner;
	unsigned n;

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		do {
			n = sweep_shard(store, &store->shards[i], no);
			counter_add(&store->counters[STORE_SWEPT], n);
			counter_add(&owner->counters[CLIENT_FLUSHED], n);
		} while (n == SWEEP_BATCH);
	}
	atomic_store_explicit(&store->arena.pools[no].state, RECORD_FREE, memory_order_release);
	fault(FAULT_POOL_FREED);
	atomic_store(&pool->state, RECORD_FREE);
}

bool pool_sweep(struct store *store)
{
	if (!atomic_load(&store->dying_pools))
		return false;
	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++) {
		if (atomic_load(&store->pools[no].state) != RECORD_DYING)
			continue;
		sweep_pool(store, no);
		atomic_fetch_sub(&store->dying_pools, 1);
		return true;
	}
	return false;
}

/* Another member pays from now on. admin lock held. */
static void hand_over(struct store *store, uint32_t no, struct store_client *from)
{
	struct pool *pool = &store->pools[no];
	enum client_counter gauge =
		pool_persistent(pool) ? CLIENT_PAGES_PERSISTENT : CLIENT_PAGES_EPHEMERAL;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		struct store_client *to = &store->clients[i];
		bool member = false;

		for (unsigned id = 0; to->rec && id < STORE_MAX_CLIENT_POOLS; id++)
			member |= (uint32_t)atomic_load(&to->pools[id]) == no + 1;
		if (!member)
			continue;
		shards_lock(store);
		pool->owner = to;
		counter_sub(&from->counters[gauge], atomic_load(&pool->pages));
		counter_add(&to->counters[gauge], atomic_load(&pool->pages));
		client_uncharge(from, atomic_load(&pool->bytes));
		client_charge(to, atomic_load(&pool->bytes));
		shards_unlock(store);
		store->arena.pools[no].owner = i;
		return;
	}
}

/* admin lock held. True when the caller must sweep the pool. */
static bool leave_pool(struct store_client *client, uint32_t id, uint32_t no)
{
	struct store *store = client->store;
	struct pool *pool = &store->pools[no];
	bool small = atomic_load(&pool->pages) <= SWEEP_AT_ONCE, last = --pool->members == 0;

	if (last) {
		atomic_store_explicit(&store->arena.pools[no].state, RECORD_DYING,
				      memory_order_release);
		fault(FAULT_POOL_DYING);
		if (!small)
			atomic_fetch_add(&store->dying_pools, 1);
		atomic_store(&pool->state, small ? POOL_SWEPT_BY_OWNER : RECORD_DYING);
	}
	atomic_store_explicit(&client->rec->pools[id], 0, memory_order_release);
	fault(FAULT_POOL_LEFT);
	atomic_store(&client->pools[id], 0);
	if (!last && pool->owner == client)
		hand_over(store, no, client);
	return last && small;
}

int store_pool_destroy(struct store_client *client, uint32_t id)
{
	struct store *store = client->store;
	uint32_t no, gen;
	bool sweep = false;

	pthread_mutex_lock(&store->admin);
	no = pool_lookup(client, id, &gen);
	if (no)
		sweep = leave_pool(client, id, no - 1);
	pthread_mutex_unlock(&store->admin);
	if (!no) {
		counter_add(&client->counters[CLIENT_REFUSED_NO_POOL], 1);
		return -ENOENT;
	}
	if (sweep)
		sweep_pool(store, no - 1);
	else
		worker_wake(store);
	return 1;
}

int store_pools_destroy(struct store_client *client)
{
	uint32_t gen;
	int n = 0;

	for (uint32_t id = 0; id < STORE_MAX_CLIENT_POOLS; id++)
		if (pool_lookup(client, id, &gen) && store_pool_destroy(client, id) == 1)
			n++;
	return n;
}

/* ---- The operator's side -------------------------------------------------------------------- */

int store_shared_auth(struct store_client *client, const uint64_t uuid[2], bool allow)
{
	struct store *store = client->store;
	int r = 0, slot = -1;

	if (!memcmp(uuid, no_uuid, sizeof(no_uuid)))
		return -EINVAL;
	pthread_mutex_lock(&store->admin);
	for (int i = 0; i < CLIENT_AUTHS; i++) {
		if (!memcmp(client->rec->auth[i], uuid, sizeof(no_uuid)))
			slot = i;
		else if (slot < 0 && allow && !memcmp(client->rec->auth[i], no_uuid, 16))
			slot = i;
	}
	if (slot >= 0)
		memcpy(client->rec->auth[slot], allow ? uuid : no_uuid, sizeof(no_uuid));
	else if (allow)
		r = -ENOSPC;
	pthread_mutex_unlock(&store->admin);
	return r;
}

unsigned store_client_pools(struct store_client *client, struct store_pool_info *info,
			    unsigned room)
{
	struct store *store = client->store;
	unsigned n = 0;
	uint32_t no, gen;

	pthread_mutex_lock(&store->admin);
	for (uint32_t id = 0; id < STORE_MAX_CLIENT_POOLS; id++) {
		no = pool_lookup(client, id, &gen);
		if (!no)
			continue;
		if (n < room) {
			info[n].id = id;
			info[n].flags = store->pools[no - 1].flags;
			memcpy(info[n].uuid, store->arena.pools[no - 1].uuid, 16);
			info[n].nonce = store->arena.pools[no - 1].nonce;
			info[n].instance = pool_ref(store, no - 1);
			info[n].pages = atomic_load(&store->pools[no - 1].pages);
			info[n].members = store->pools[no - 1].members;
		}
		n++;
	}
	pthread_mutex_unlock(&store->admin);
	return n;
}

/* ---- Rebuild -------------------------------------------------------------------------------- */

/* Takes the pools over from the records: memberships first, then what nobody is a member of. */
void pools_rebuild(struct store *store)
{
	for (unsigned c = 0; c < STORE_MAX_CLIENTS; c++) {
		struct store_client *client = &store->clients[c];

		for (unsigned id = 0; client->rec && id < STORE_MAX_CLIENT_POOLS; id++) {
			uint32_t no = atomic_load(&client->rec->pools[id]);
			struct pool_rec *rec;
			struct pool *pool;

			if (!no || no > ARENA_MAX_POOLS ||
			    atomic_load(&store->arena.pools[no - 1].state) != RECORD_LIVE ||
			    !flags_valid(store->arena.pools[no - 1].flags)) {
				atomic_store(&client->rec->pools[id], 0);
				continue;
			}
			rec = &store->arena.pools[no - 1];
			pool = &store->pools[no - 1];
			if (!pool->members || rec->owner == c)
				pool->owner = client;
			pool->flags = rec->flags;
			pool->members++;
			atomic_store(&pool->gen, 1);
			atomic_store(&pool->state, RECORD_LIVE);
			atomic_store(&client->pools[id], pool_ref(store, no - 1));
		}
	}
	for (uint32_t no = 0; no < ARENA_MAX_POOLS; no++)
		if (atomic_load(&store->pools[no].state) != RECORD_LIVE)
			atomic_store(&store->arena.pools[no].state, RECORD_FREE);
}
