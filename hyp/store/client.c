// SPDX-License-Identifier: GPL-2.0-or-later
/* Client records: names, limits, credits, notes of the fronts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "store/store_priv.h"

#define DEFAULT_WEIGHT 100
#define LENT_NAME ".lent" /* no name that anybody can ask for */

static uint64_t unused_minimum(const struct store_client *client, uint64_t have)
{
	uint64_t min = atomic_load(&client->min_bytes);

	return min > have ? min - have : 0;
}

/* Shard lock held, as for client_uncharge(): limits change only with all of them held. */
void client_charge(struct store_client *client, uint64_t bytes)
{
	uint64_t had = atomic_fetch_add_explicit(&client->counters[CLIENT_PHYSICAL_BYTES], bytes,
						 memory_order_relaxed);
	uint64_t less = unused_minimum(client, had) - unused_minimum(client, had + bytes);

	if (less)
		atomic_fetch_sub(&client->store->alloc.min_unused, less);
}

void client_uncharge(struct store_client *client, uint64_t bytes)
{
	uint64_t had = atomic_fetch_sub_explicit(&client->counters[CLIENT_PHYSICAL_BYTES], bytes,
						 memory_order_relaxed);
	uint64_t more = unused_minimum(client, had - bytes) - unused_minimum(client, had);

	if (more)
		atomic_fetch_add(&client->store->alloc.min_unused, more);
}

/* ---- Records -------------------------------------------------------------------------------- */

bool name_valid(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < STORE_NAME_MAX && name[0] != '.' &&
	       strspn(name,
		      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+@") == len;
}

/* admin lock held */
static uint64_t sum_of_minimums(const struct store *store, const struct store_client *but)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (store->clients[i].rec && &store->clients[i] != but)
			sum += atomic_load(&store->clients[i].min_bytes);
	return sum;
}

static int check_limits(const struct store *store, const struct store_client *client,
			const struct store_limits *limits)
{
	uint64_t others = sum_of_minimums(store, client), max = atomic_load(&store->pool_max);

	if (limits->max_bytes && limits->min_bytes > limits->max_bytes)
		return -EINVAL;
	return limits->min_bytes > max || others > max - limits->min_bytes ? -ENOSPC : 0;
}

/* admin lock held */
static void apply_limits(struct store_client *client, const struct store_limits *limits)
{
	struct store *store = client->store;
	uint64_t have;

	shards_lock(store);
	have = counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]);
	atomic_fetch_sub(&store->alloc.min_unused, unused_minimum(client, have));
	atomic_store(&client->min_bytes, limits->min_bytes);
	atomic_store(&client->max_bytes, limits->max_bytes);
	atomic_store(&client->weight, limits->weight ? limits->weight : DEFAULT_WEIGHT);
	atomic_fetch_add(&store->alloc.min_unused, unused_minimum(client, have));
	shards_unlock(store);
	client->rec->min_bytes = limits->min_bytes;
	fault(FAULT_CLIENT_LIMITS_HALF);
	client->rec->max_bytes = limits->max_bytes;
	client->rec->weight = limits->weight;
}

static struct store_client *find_client(struct store *store, const char *name)
{
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (store->clients[i].rec && !strcmp(store->clients[i].rec->name, name))
			return &store->clients[i];
	return NULL;
}

static void client_begin(struct store *store, unsigned no)
{
	struct store_client *client = &store->clients[no];

	for (unsigned i = 0; i < CLIENT_COUNTER_NR; i++)
		counter_set(&client->counters[i], 0);
	for (unsigned i = 0; i < STORE_MAX_CLIENT_POOLS; i++)
		atomic_store(&client->pools[i], 0);
	atomic_store(&client->min_bytes, 0);
	atomic_store(&client->max_bytes, 0);
	atomic_store(&client->weight, DEFAULT_WEIGHT);
	atomic_store(&client->frozen, false);
	atomic_store(&client->credits, 0);
	client->store = store;
	client->rec = &store->arena.clients[no];
}

static struct store_client *make_client(struct store *store, const char *name)
{
	for (unsigned no = 0; no < STORE_MAX_CLIENTS; no++) {
		struct client_rec *rec = &store->arena.clients[no];

		if (store->clients[no].rec)
			continue;
		memset(rec, 0, sizeof(*rec));
		strcpy(rec->name, name);
		fault(FAULT_CLIENT_FILLED);
		atomic_store_explicit(&rec->state, RECORD_LIVE, memory_order_release);
		fault(FAULT_CLIENT_PUBLISHED);
		client_begin(store, no);
		/* Without a key its pages stay in memory. */
		away_key_client(&store->clients[no]);
		return &store->clients[no];
	}
	return NULL;
}

int store_client_open(struct store *store, const char *name, const struct store_limits *limits,
		      struct store_client **out)
{
	struct store_client *client;
	int r;

	*out = NULL;
	if (!name_valid(name))
		return -EINVAL;
	pthread_mutex_lock(&store->admin);
	client = find_client(store, name);
	r = check_limits(store, client, limits);
	if (r)
		goto out;
	if (!client)
		client = make_client(store, name);
	if (!client) {
		r = -ENOSPC;
		goto out;
	}
	apply_limits(client, limits);
	*out = client;
out:
	pthread_mutex_unlock(&store->admin);
	return r;
}

struct store_client *store_client_find(struct store *store, const char *name)
{
	struct store_client *client;

	if (!strcmp(name, LENT_NAME))
		return NULL;
	pthread_mutex_lock(&store->admin);
	client = find_client(store, name);
	pthread_mutex_unlock(&store->admin);
	return client;
}

struct store_client *client_lent(struct store *store, bool make)
{
	struct store_client *client = atomic_load(&store->lent);

	if (client)
		return client;
	pthread_mutex_lock(&store->admin);
	client = find_client(store, LENT_NAME);
	if (!client && make)
		client = make_client(store, LENT_NAME);
	atomic_store(&store->lent, client);
	pthread_mutex_unlock(&store->admin);
	return client;
}

int store_client_each(struct store *store, int (*fn)(struct store_client *client, void *arg),
		      void *arg)
{
	int r = 0;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS && !r; i++)
		if (store->clients[i].rec && &store->clients[i] != atomic_load(&store->lent))
			r = fn(&store->clients[i], arg);
	return r;
}

/* Admin lock held. Without shard locks nobody uses it: a flight that lands looks for the pool. */
static void forget_key(struct store_client *client)
{
	struct store *store = client->store;

	store_client_set_waker(client, NULL, NULL);
	atomic_store(&client->rec->keyed, 0);
	if (!atomic_load(&client->seal))
		return;
	shards_lock(store);
	seal_free(atomic_exchange(&client->seal, NULL));
	explicit_bzero(&store->arena.away[client - store->clients], AWAY_KEY_BYTES);
	shards_unlock(store);
}

void store_client_remove(struct store_client *client)
{
	static const struct store_limits none;
	struct store *store = client->store;

	store_pools_destroy(client);
	/* Pages point to their payer: they must be gone before the record is used again. */
	pthread_mutex_lock(&store->work);
	while (pool_sweep(store))
		;
	pthread_mutex_unlock(&store->work);
	store_credits_revoke(client, store_credits(client));
	pthread_mutex_lock(&store->admin);
	apply_limits(client, &none);
	forget_key(client);
	atomic_store_explicit(&client->rec->state, RECORD_FREE, memory_order_release);
	fault(FAULT_CLIENT_REMOVED);
	client->rec = NULL;
	pthread_mutex_unlock(&store->admin);
}

void client_attach_rec(struct store *store, uint32_t no)
{
	struct client_rec *rec = &store->arena.clients[no];
	struct store_limits limits = {rec->min_bytes, rec->max_bytes, rec->weight};
	uint32_t credits = atomic_load(&rec->credits);

	if (atomic_load(&rec->state) != RECORD_LIVE)
		return;
	rec->name[STORE_NAME_MAX - 1] = 0;
	client_begin(store, no);
	apply_limits(&store->clients[no], &limits);
	atomic_store(&store->clients[no].frozen, atomic_load(&rec->frozen) != 0);
	atomic_store(&store->clients[no].credits, credits);
	counter_set(&store->clients[no].counters[CLIENT_CREDITS], credits);
	atomic_fetch_add(&store->alloc.credits, credits);
}

const char *store_client_name(const struct store_client *client)
{
	return client->rec->name;
}

int store_client_set_limits(struct store_client *client, const struct store_limits *limits)
{
	int r;

	pthread_mutex_lock(&client->store->admin);
	r = check_limits(client->store, client, limits);
	if (!r)
		apply_limits(client, limits);
	pthread_mutex_unlock(&client->store->admin);
	worker_wake(client->store);
	return r;
}

void store_client_limits(const struct store_client *client, struct store_limits *limits)
{
	limits->min_bytes = atomic_load(&client->min_bytes);
	limits->max_bytes = atomic_load(&client->max_bytes);
	limits->weight = atomic_load(&client->weight);
}

void store_client_freeze(struct store_client *client, bool frozen)
{
	atomic_store(&client->rec->frozen, frozen);
	atomic_store(&client->frozen, frozen);
}

bool store_client_frozen(const struct store_client *client)
{
	return atomic_load(&client->frozen);
}

counter_t *store_client_counters(struct store_client *client)
{
	return client->counters;
}

/* ---- Notes: two copies and a word that says which one is valid ------------------------------- */

int store_client_set_note(struct store_client *client, const void *note, size_t len)
{
	struct client_rec *rec = client->rec;
	uint32_t which = ~atomic_load(&rec->note_sel) & 1;

	if (len > STORE_MAX_NOTE)
		return -EINVAL;
	if (len)
		memcpy(rec->note[which], note, len);
	fault(FAULT_NOTE_WRITTEN);
	atomic_store_explicit(&rec->note_sel, (uint32_t)len << 1 | which, memory_order_release);
	fault(FAULT_NOTE_SELECTED);
	return len;
}

int store_client_note(const struct store_client *client, void *note, size_t room)
{
	uint32_t sel = atomic_load(&client->rec->note_sel), len = sel >> 1;

	if (len > STORE_MAX_NOTE || len > room)
		return -EINVAL;
	memcpy(note, client->rec->note[sel & 1], len);
	return len;
}

/* ---- Credits -------------------------------------------------------------------------------- */

/* Are there a descriptor and an object, not yet dealt out to a shard, for each credit? */
static bool tables_cover_credits(struct store *store)
{
	uint64_t credits = atomic_load(&store->alloc.credits);
	struct superblock *sb = store->arena.sb;

	return atomic_load(&store->desc_next) + credits <= atomic_load(&sb->descs_high) &&
	       atomic_load(&store->object_next) + credits <= atomic_load(&sb->objects_high);
}

/*
 * Three numbers: rec->credits in the arena, never less than what the guest may hold; the client's
 * own, from which puts take; and the sum in the allocator, which keeps the memory. Granting raises
 * the arena's first, using lowers it last.
 */
unsigned store_credits_grant(struct store_client *client, unsigned want)
{
	struct store *store = client->store;
	uint64_t max = atomic_load(&client->max_bytes), have, room;
	counter_t *held = &client->counters[CLIENT_CREDITS];

	if (atomic_load(&client->frozen) || atomic_load(&store->frozen) ||
	    store_wants_credits_back(store))
		return 0;
	if (max) {
		have = counter_get(&client->counters[CLIENT_PHYSICAL_BYTES]) +
		       counter_get(held) * CREDIT_BYTES;
		room = have < max ? (max - have) / CREDIT_BYTES : 0;
		want = want < room ? want : room;
	}
	if (!want || !alloc_reserve(&store->alloc, want)) {
		worker_wake(store);
		return 0;
	}
	/* Each may need a descriptor and an object of its own. */
	if (!tables_cover_credits(store)) {
		alloc_unreserve(&store->alloc, want);
		worker_wake(store);
		return 0;
	}
	counter_add(held, want);
	atomic_fetch_add(&client->rec->credits, want);
	atomic_fetch_add(&client->credits, want);
	counter_add(&client->counters[CLIENT_CREDITS_GRANTED], want);
	fault(FAULT_CREDIT_GRANTED);
	return want;
}

static unsigned take(struct store_client *client, unsigned n)
{
	uint32_t have = atomic_load(&client->credits), got;

	do
		got = have < n ? have : n;
	while (!atomic_compare_exchange_weak(&client->credits, &have, have - got));
	return got;
}

static void settle(struct store_client *client, unsigned n)
{
	alloc_unreserve(&client->store->alloc, n);
	counter_sub(&client->counters[CLIENT_CREDITS], n);
	atomic_fetch_sub(&client->rec->credits, n);
	fault(FAULT_CREDIT_SETTLED);
}

void store_credits_revoke(struct store_client *client, unsigned n)
{
	n = take(client, n);
	settle(client, n);
	counter_add(&client->counters[CLIENT_CREDITS_REVOKED], n);
}

bool client_take_credit(struct store_client *client)
{
	return take(client, 1) == 1;
}

void client_credit_used(struct store_client *client)
{
	settle(client, 1);
}

unsigned store_credits(const struct store_client *client)
{
	return atomic_load(&client->credits);
}

bool store_wants_credits_back(const struct store *store)
{
	return atomic_load(&store->pressure) || atomic_load(&store->reclaim_want);
}
