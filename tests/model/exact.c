// SPDX-License-Identifier: GPL-2.0-or-later
/* Handles that one thread owns: every answer is known beforehand. */
#include "model.h"

#include <errno.h>
#include <string.h>

bool keeps_pages(const struct model_pool *pool)
{
	return pool->flags & TMEM_POOL_PERSIST;
}

/* A get takes the page away. */
static bool get_takes(const struct model_pool *pool)
{
	return !(pool->flags & (TMEM_POOL_PERSIST | TMEM_POOL_SHARED | TMEM_POOL_X_INCLUSIVE));
}

void exact_handle(const struct model_thread *t, unsigned client, const struct model_pool *pool,
		  unsigned member, unsigned h, struct store_handle *handle)
{
	bool common = pool->slot >= OWN_POOLS;
	unsigned object = h / OBJECT_PAGES, i = h % OBJECT_PAGES;
	/* The same ids in each life of a pool: a page left from an earlier one would be found. */
	uint64_t name = client << 16 | pool->slot << 8 | object;

	if (!common)
		name |= (uint64_t)(t->nr + 1) << 32;
	handle->pool = pool->id[member];
	handle->object[0] = rng_mix(name + 1);
	handle->object[1] = common ? 0 : object;
	handle->object[2] = object & 1 ? rng_mix(name) : 0;
	/* Neighbours of one object in common pools belong to different threads. */
	handle->index = common ? i * t->world->nr_threads + t->nr : i ? i * 7919 : UINT32_MAX;
}

static unsigned any_member(struct model_thread *t, const struct model_pool *pool)
{
	unsigned m;

	do
		m = rng_below(&t->rng, EXACT_CLIENTS);
	while (!(pool->members & 1u << m));
	return m;
}

static uint64_t new_stamp(struct model_thread *t)
{
	/* The top byte is used: same-filled pages must keep all 64 bits. */
	uint64_t stamp = (uint64_t)(t->nr + 1) << 57 | ++t->stamps;

	if (rng_permille(&t->rng, 84) && t->old_stamp)
		return t->old_stamp; /* the same content under two handles */
	if (rng_permille(&t->rng, 50))
		t->old_stamp = stamp;
	return stamp;
}

static void exact_put(struct model_thread *t, unsigned client, struct model_pool *pool, unsigned h,
		      bool credit)
{
	unsigned member = any_member(t, pool);
	uint64_t stamp = new_stamp(t);
	struct store_handle handle;
	struct control_view view;
	bool posted;
	int r;

	exact_handle(t, client, pool, member, h, &handle);
	page_make(t->page, stamp);
	posted = credit && t->credits[member];
	if (credit && !posted && member != FORGER)
		credit = false; /* it would take another thread's */
	view = control_begin(t->world, member);
	if (pool->flags & TMEM_POOL_SHARED) /* the other member may be who pays */
		view.limited |= control_begin(t->world, !member).limited;
	r = store_put(t->world->client[member], &handle, t->page, credit ? STORE_PUT_CREDIT : 0);
	check_put(t, member, &view, r, posted);
	if (posted)
		t->credits[member]--;
	else if (credit)
		t->tally[member].forged++;
	pool->stamp[h] = r == 1 ? stamp : 0;
}

void exact_get(struct model_thread *t, unsigned client, struct model_pool *pool, unsigned h)
{
	static const uint64_t untouched = 0xfeedfacecafebeefull;
	unsigned member = any_member(t, pool);
	uint64_t want = pool->stamp[h];
	struct store_handle handle;
	int r;

	exact_handle(t, client, pool, member, h, &handle);
	memcpy(t->got, &untouched, sizeof(untouched));
	r = store_get(t->world->client[member], &handle, t->got);
	if (r != 1 && page_stamp(t->got) != untouched)
		model_fail(t->world, t, "get answered %d and wrote into the page", r);
	if (r == 1) {
		t->tally[member].hit++;
		if (!want)
			model_fail(t->world, t, "get found %#llx where nothing was (pool %u h %u)",
				   (unsigned long long)page_stamp(t->got), pool->slot, h);
		if (!page_is(t->got, want))
			model_fail(t->world, t, "get returned %#llx, put was %#llx (pool %u h %u)",
				   (unsigned long long)page_stamp(t->got), (unsigned long long)want,
				   pool->slot, h);
		if (get_takes(pool))
			pool->stamp[h] = 0;
	} else if (!r) {
		t->tally[member].miss++;
		if (want && keeps_pages(pool))
			model_fail(t->world, t, "persistent page %#llx is lost (pool %u h %u)",
				   (unsigned long long)want, pool->slot, h);
		pool->stamp[h] = 0;
	} else {
		model_fail(t->world, t, "get answered %d", r);
	}
}

static void exact_flush(struct model_thread *t, unsigned client, struct model_pool *pool,
			unsigned h)
{
	unsigned member = any_member(t, pool);
	uint64_t want = pool->stamp[h];
	struct store_handle handle;
	int r;

	exact_handle(t, client, pool, member, h, &handle);
	r = store_flush(t->world->client[member], &handle);
	if (r < 0 || r > 1)
		model_fail(t->world, t, "flush answered %d", r);
	if (r != !!want && !(want && !keeps_pages(pool)))
		model_fail(t->world, t, "flush answered %d, the handle held %#llx", r,
			   (unsigned long long)want);
	pool->stamp[h] = 0;
}

static void exact_flush_object(struct model_thread *t, unsigned client, struct model_pool *pool)
{
	unsigned member = any_member(t, pool), object = rng_below(&t->rng, OBJECTS);
	uint64_t *stamp = pool->stamp + object * OBJECT_PAGES;
	struct store_handle handle;
	bool any = false;
	int r;

	if (pool->slot >= OWN_POOLS)
		return; /* other threads have pages in it */
	for (unsigned i = 0; i < OBJECT_PAGES; i++) {
		any |= stamp[i] != 0;
		stamp[i] = 0;
	}
	exact_handle(t, client, pool, member, object * OBJECT_PAGES, &handle);
	r = store_flush_object(t->world->client[member], handle.pool, handle.object);
	if (r < 0 || r > 1)
		model_fail(t->world, t, "flush object answered %d", r);
	if (r != any && !(any && !keeps_pages(pool)))
		model_fail(t->world, t, "flush object answered %d, pages there: %d", r, any);
}

static uint32_t any_flags(struct rng *r, unsigned client)
{
	switch (rng_below(r, 6)) {
	case 0:
		return PRIVATE;
	case 1:
		return PRIVATE | TMEM_POOL_X_INCLUSIVE;
	case 2:
		return client == FORGER ? PRIVATE : PRIVATE | TMEM_POOL_SHARED;
	default:
		return PRIVATE | TMEM_POOL_PERSIST;
	}
}

/* Id, or a counted refusal, which only an injected failure may cause. */
static int make_pool(struct model_thread *t, unsigned client, struct model_pool *pool)
{
	struct world *w = t->world;
	int r = store_pool_new(w->client[client], pool->flags, pool->uuid, pool->nonce);

	if (r < 0) {
		if (r != -ENOMEM && r != -ENOSPC)
			model_fail(w, t, "new pool answered %d", r);
		t->tally[client].pool++;
		return r;
	}
	if (!(pool->flags & TMEM_POOL_SHARED) && rng_permille(&t->rng, 300) &&
	    store_pool_new(w->client[client], pool->flags, pool->uuid, pool->nonce) != r)
		model_fail(w, t, "the same nonce gave another pool than %d", r);
	pool->id[client] = r;
	pool->members |= 1u << client;
	return r;
}

static void exact_new_pool(struct model_thread *t, unsigned client, struct model_pool *pool)
{
	unsigned slot = pool - t->pools[client], partner = !client;

	memset(pool, 0, sizeof(*pool));
	pool->slot = slot;
	pool->flags = any_flags(&t->rng, client);
	pool->nonce = rng_next(&t->rng) | 1;
	if (pool->flags & TMEM_POOL_SHARED) {
		pool->uuid[0] = rng_mix(t->nr * 1000 + client * 100 + slot + 1);
		pool->uuid[1] = t->nr;
		for (unsigned c = ALPHA; c <= BETA; c++)
			if (store_shared_auth(t->world->client[c], pool->uuid, true))
				pool->flags = PRIVATE; /* the table of permissions is full */
	}
	pool->alive = make_pool(t, client, pool) >= 0;
	if (pool->alive && (pool->flags & TMEM_POOL_SHARED))
		make_pool(t, partner, pool);
}

static void exact_destroy_pool(struct model_thread *t, unsigned client, struct model_pool *pool)
{
	struct world *w = t->world;
	int r;

	for (unsigned c = 0; c < EXACT_CLIENTS; c++) {
		if (!(pool->members & 1u << c))
			continue;
		r = store_pool_destroy(w->client[c], pool->id[c]);
		if (r != 1)
			model_fail(w, t, "destroying pool %u of %s answered %d", pool->id[c],
				   client_names[client], r);
	}
	if (pool->flags & TMEM_POOL_SHARED)
		for (unsigned c = ALPHA; c <= BETA; c++)
			store_shared_auth(w->client[c], pool->uuid, false);
	pool->alive = false;
	pool->members = 0;
	memset(pool->stamp, 0, sizeof(pool->stamp));
}

static void exact_credits(struct model_thread *t, unsigned client)
{
	struct world *w = t->world;
	struct control_view view;
	unsigned n;

	if (client == FORGER)
		return;
	if (rng_below(&t->rng, 3)) {
		view = control_begin(w, client);
		n = store_credits_grant(w->client[client], 1 + rng_below(&t->rng, 16));
		if (n > 16)
			model_fail(w, t, "granted %u credits, more than asked for", n);
		if (n && view.frozen && control_same(w, &view))
			model_fail(w, t, "%u credits granted while frozen", n);
		t->credits[client] += n;
		t->tally[client].granted += n;
		return;
	}
	n = rng_below(&t->rng, t->credits[client] + 1);
	store_credits_revoke(w->client[client], n);
	t->credits[client] -= n;
	t->tally[client].revoked += n;
}

/* Requests that no state of the store makes right. */
static void exact_wrong(struct model_thread *t, unsigned client)
{
	static const uint32_t bad_flags[] = {0, 2u << TMEM_POOL_VERSION_SHIFT,
					     PRIVATE | 1u << TMEM_POOL_PAGESIZE_SHIFT,
					     PRIVATE | 1u << 15};
	static const uint32_t bad_pools[] = {NO_SUCH_POOL, 64, 4096, UINT32_MAX};
	struct store_client *c = t->world->client[client];
	struct store_handle handle = {.pool = bad_pools[rng_below(&t->rng, 4)]};
	uint64_t uuid[2] = {rng_next(&t->rng), client};
	int r;

	switch (rng_below(&t->rng, 6)) {
	case 0:
		r = store_get(c, &handle, t->got);
		break;
	case 1:
		r = store_put(c, &handle, t->page, 0);
		break;
	case 2:
		r = store_flush(c, &handle);
		break;
	case 3:
		r = store_flush_object(c, handle.pool, handle.object);
		break;
	case 4:
		r = store_pool_new(c, bad_flags[rng_below(&t->rng, 4)], uuid, 0);
		t->tally[client].pool++;
		if (r != -EINVAL)
			model_fail(t->world, t, "bad flags answered %d", r);
		return;
	default:
		r = store_pool_new(c, PRIVATE | TMEM_POOL_SHARED, uuid, 0);
		t->tally[client].pool++;
		if (r != -EPERM)
			model_fail(t->world, t, "sharing without permission answered %d", r);
		return;
	}
	t->tally[client].no_pool++;
	if (r != -ENOENT)
		model_fail(t->world, t, "a pool that does not exist answered %d", r);
}

void exact_step(struct model_thread *t)
{
	unsigned client = rng_below(&t->rng, EXACT_CLIENTS);
	struct model_pool *pool = &t->pools[client][rng_below(&t->rng, POOLS)];
	unsigned h = rng_below(&t->rng, HANDLES), what = rng_below(&t->rng, 1000);
	struct store_handle handle;

	if (!pool->alive) {
		exact_new_pool(t, client, pool);
		return;
	}
	if (what < 360) {
		exact_put(t, client, pool, h, false);
	} else if (what < 440) {
		exact_put(t, client, pool, h, true);
	} else if (what < 820) {
		exact_get(t, client, pool, h);
	} else if (what < 940) {
		exact_flush(t, client, pool, h);
	} else if (what < 946) {
		exact_flush_object(t, client, pool);
	} else if (what < 948) {
		if (pool->slot < OWN_POOLS)
			exact_destroy_pool(t, client, pool);
	} else if (what < 968) {
		exact_credits(t, client);
	} else if (what < 972) {
		exact_wrong(t, client);
	} else {
		exact_handle(t, client, pool, any_member(t, pool), h, &handle);
		store_prefetch(t->world->client[any_member(t, pool)], &handle, 1);
	}
}

void exact_setup(struct world *w, unsigned c)
{
	static const uint32_t flags[COMMON_POOLS] = {PRIVATE | TMEM_POOL_PERSIST,
						     PRIVATE | TMEM_POOL_X_INCLUSIVE};
	uint64_t uuid[2] = {0, 0};

	for (unsigned i = 0; i < COMMON_POOLS; i++) {
		int id = store_pool_new(w->client[c], flags[i], uuid, 1000 + i);

		if (id < 0)
			model_fail(w, NULL, "new pool answered %d", id);
		for (unsigned n = 0; n < w->nr_threads; n++) {
			struct model_pool *p = &w->thread[n].pools[c][OWN_POOLS + i];

			memset(p, 0, sizeof(*p));
			p->alive = true;
			p->slot = OWN_POOLS + i;
			p->flags = flags[i];
			p->members = 1u << c;
			p->id[c] = id;
		}
	}
}
