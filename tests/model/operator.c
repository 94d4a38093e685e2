// SPDX-License-Identifier: GPL-2.0-or-later
/* The operator: everything that happens to a store besides the guests' operations. */
#include "model.h"
#include "base/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LARGE_POOL (96 * MIB)
#define VISITS 40

/* While it changes a setting, `control` is odd, and no thread relies on what it is. */
static void change_begin(struct world *w)
{
	atomic_fetch_add(&w->control, 1);
}

static void change_end(struct world *w)
{
	atomic_fetch_add(&w->control, 1);
}

struct control_view control_begin(struct world *w, unsigned client)
{
	struct control_view view;

	view.control = atomic_load(&w->control);
	view.frozen = atomic_load(&w->frozen[client]) || atomic_load(&w->all_frozen);
	view.limited = atomic_load(&w->maximum[client]) != 0;
	return view;
}

bool control_same(struct world *w, const struct control_view *view)
{
	return !(view->control & 1) && atomic_load(&w->control) == view->control;
}

static void set_frozen(struct world *w, unsigned client, bool frozen)
{
	change_begin(w);
	if (client == NR_CLIENTS) {
		store_freeze(w->store, frozen);
		atomic_store(&w->all_frozen, frozen);
	} else {
		store_client_freeze(w->client[client], frozen);
		atomic_store(&w->frozen[client], frozen);
	}
	change_end(w);
}

static void set_limits(struct world *w, unsigned client, uint64_t min, uint64_t max)
{
	struct store_limits limits = {.min_bytes = min, .max_bytes = max}, now;
	int r;

	change_begin(w);
	r = store_client_set_limits(w->client[client], &limits);
	if (r)
		model_fail(w, NULL, "limits %llu..%llu answered %d", (unsigned long long)min,
			   (unsigned long long)max, r);
	store_client_limits(w->client[client], &now);
	if (now.min_bytes != min || now.max_bytes != max)
		model_fail(w, NULL, "limits are not what was set");
	atomic_store(&w->maximum[client], max);
	change_end(w);
}

static void random_limits(struct world *w, struct rng *r)
{
	unsigned client = rng_below(r, NR_CLIENTS);
	uint64_t min = rng_below(r, 3) ? 0 : rng_below(r, MIB);
	uint64_t max = rng_below(r, 2) ? 0 : MIB + rng_below(r, 6 * MIB);

	set_limits(w, client, min, max);
}

static void random_pool_max(struct world *w, struct rng *r)
{
	uint64_t bytes = (4 + rng_below(r, 90)) * MIB + rng_below(r, MIB);
	int n = store_set_pool_max(w->store, bytes);

	/* Minimums of four clients are below 4 MiB, so it is never too little. */
	if (n)
		model_fail(w, NULL, "pool_max %llu answered %d", (unsigned long long)bytes, n);
	if (rng_below(r, 3))
		store_set_pool_max(w->store, LARGE_POOL);
}

static int look(struct store_client *client, void *arg)
{
	counter_t *counters = store_client_counters(client);
	struct store_pool_info info[8];
	uint64_t *sum = arg;

	for (unsigned i = 0; i < CLIENT_COUNTER_NR; i++)
		*sum += counter_get(&counters[i]);
	*sum += store_client_pools(client, info, 8) + strlen(store_client_name(client));
	return 0;
}

static void listing(struct world *w)
{
	uint64_t sum = 0;

	store_client_each(w->store, look, &sum);
	sum += counter_get(&store_counters(w->store)[STORE_META_BYTES]) + store_freeable(w->store);
	if (!sum)
		model_fail(w, NULL, "a listing of nothing but zeros");
}

/* A client comes, leaves pages, and is removed with them. */
static void visitor(struct world *w, struct rng *r)
{
	static const struct store_limits limits = {.weight = 10};
	struct store_client *client;
	uint8_t page[PAGE_BYTES], got[PAGE_BYTES];
	uint64_t uuid[2] = {0, 0};
	struct store_handle handle = {.object = {rng_below(r, 100), 0, 0}};
	int id, n;

	if (store_client_open(w->store, "visitor", &limits, &client))
		model_fail(w, NULL, "the visitor was not let in");
	if (store_client_find(w->store, "visitor") != client)
		model_fail(w, NULL, "the visitor is not found");
	id = store_pool_new(client, PRIVATE | TMEM_POOL_PERSIST, uuid, 7);
	handle.pool = id;
	for (unsigned i = 0; id >= 0 && i < VISITS; i++) {
		handle.index = i;
		n = store_get(client, &handle, got);
		if (n)
			model_fail(w, NULL, "a new client's get answered %d: an earlier life's", n);
		page_make(page, 1 + i);
		if (store_put(client, &handle, page, 0) == 1 &&
		    (store_get(client, &handle, got) != 1 || memcmp(page, got, PAGE_BYTES)))
			model_fail(w, NULL, "the visitor's page is lost");
	}
	store_client_remove(client);
	if (store_client_find(w->store, "visitor"))
		model_fail(w, NULL, "a removed client is found");
}

static void inject(struct rng *r)
{
	static const enum fault_point failing[] = {FAULT_ARENA_POPULATE, FAULT_ALLOC_PAYLOAD,
						   FAULT_ALLOC_DESC, FAULT_ALLOC_OBJECT,
						   FAULT_ALLOC_POOL};
	static const enum fault_point slow[] = {FAULT_PUT_PAYLOAD_WRITTEN, FAULT_PUT_DESC_FILLED,
						FAULT_PUT_PUBLISHED,	   FAULT_PUT_OLD_FREED,
						FAULT_FLUSH_HALF,	   FAULT_OBJECT_PUBLISHED,
						FAULT_POOL_DYING,	   FAULT_SLAB_CLAIMED,
						FAULT_MOVE_COPIED,	   FAULT_MOVE_SWITCHED,
						FAULT_CREDIT_USED,	   FAULT_POOL_RESOLVED};

	if (rng_below(r, 3))
		fault_arm(failing[rng_below(r, 5)], FAULT_FAIL, rng_below(r, 100),
			  1 + rng_below(r, 200));
	else
		fault_arm(slow[rng_below(r, sizeof(slow) / sizeof(slow[0]))], FAULT_SLEEP,
			  rng_below(r, 20), 1 + rng_below(r, 5));
}

/* Case 2 of docs/cases.md. */
static void operator_step(struct world *w, struct rng *r)
{
	unsigned client = rng_below(r, NR_CLIENTS + 1);

	switch (rng_below(r, 12)) {
	case 0:
		set_frozen(w, client, true);
		usleep(rng_below(r, 2000));
		set_frozen(w, client, false);
		break;
	case 1:
	case 2:
		random_limits(w, r);
		break;
	case 3:
		random_pool_max(w, r);
		break;
	case 4:
		store_reclaim(w->store, rng_below(r, 12 * MIB), rng_below(r, 20));
		break;
	case 5:
		store_flush_ephemeral(w->store, client < NR_CLIENTS ? w->client[client] : NULL);
		break;
	case 6:
		listing(w);
		break;
	case 7:
		visitor(w, r);
		break;
	case 8:
	case 9:
		inject(r);
		break;
	default:
		store_wants_credits_back(w->store);
		usleep(rng_below(r, 3000));
	}
}

void operator_calm(struct world *w)
{
	for (int p = 0; p < FAULT_NR; p++)
		fault_arm(p, FAULT_OFF, 0, 0);
	for (unsigned c = 0; c < NR_CLIENTS; c++) {
		set_frozen(w, c, false);
		set_limits(w, c, 0, 0);
	}
	set_frozen(w, NR_CLIENTS, false);
	if (store_set_pool_max(w->store, LARGE_POOL))
		model_fail(w, NULL, "the pool cannot be made large again");
}

void *operator_main(void *world)
{
	struct world *w = world;
	struct rng r = {w->seed ^ rng_mix(atomic_load(&w->control))};
	unsigned step = 0;

	while (!atomic_load(&w->stop)) {
		if (!w->worker)
			store_work(w->store);
		if (w->worker || ++step % 16 == 0)
			operator_step(w, &r);
		else if (step % 64 == 1)
			usleep(200);
	}
	return NULL;
}
