// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What is outstanding, by handle.
 *
 * Rings have no order between them, so an operation on a handle that has one outstanding goes to
 * the same ring, behind it. The table is hashed into stripes; a stripe's lock orders looking up,
 * submitting and whatever else is known about its handles (pending flushes, the state of a swap
 * slot). All pages of one object of an ephemeral pool share a stripe, so that flushing the object
 * sees everything that is outstanding on it; the pages of a swap device are spread over all.
 */
#include "tmem_priv.h"

#include <linux/err.h>
#include <linux/jhash.h>
#include <linux/random.h>

#define STRIPES 64

static struct tmem_stripe stripes[STRIPES];
static u32 hash_seed;

void tmem_stripes_setup(void)
{
	unsigned int i, j;

	hash_seed = get_random_u32();
	for (i = 0; i < STRIPES; i++) {
		spin_lock_init(&stripes[i].lock);
		INIT_HLIST_HEAD(&stripes[i].object_flushes);
		for (j = 0; j < TMEM_LISTS; j++) {
			INIT_HLIST_HEAD(&stripes[i].outstanding[j]);
			INIT_HLIST_HEAD(&stripes[i].flushes[j]);
		}
	}
}

struct tmem_stripe *tmem_stripe_number(unsigned int number)
{
	return number < STRIPES ? &stripes[number] : NULL;
}

struct tmem_stripe *tmem_stripe(const struct tmem_pool *pool, const u64 *object, u32 index)
{
	u32 hash;

	if (pool->persist)
		hash = jhash_2words(pool - tmem_pools, index, hash_seed);
	else
		hash = jhash(object, 3 * sizeof(*object), hash_seed + (pool - tmem_pools));
	return &stripes[hash % STRIPES];
}

unsigned int tmem_list_of(u32 index)
{
	return jhash_1word(index, hash_seed) % TMEM_LISTS;
}

static struct hlist_head *list_of(struct tmem_stripe *stripe, u32 index)
{
	return &stripe->outstanding[tmem_list_of(index)];
}

static bool on_object(const struct tmem_request *request, const struct tmem_pool *pool,
		      const u64 *object)
{
	return request->pool == pool && !memcmp(request->object, object, sizeof(request->object));
}

struct tmem_request *tmem_outstanding_find(struct tmem_stripe *stripe, const struct tmem_pool *pool,
					   const u64 *object, u32 index)
{
	struct tmem_request *request;

	lockdep_assert_held(&stripe->lock);
	hlist_for_each_entry(request, list_of(stripe, index),
			     node) if (request->index == index &&
				       on_object(request, pool, object)) return request;
	return NULL;
}

bool tmem_outstanding_object(struct tmem_stripe *stripe, const struct tmem_pool *pool,
			     const u64 *object)
{
	struct tmem_request *request;
	unsigned int i;

	lockdep_assert_held(&stripe->lock);
	for (i = 0; i < TMEM_LISTS; i++)
		hlist_for_each_entry(request, &stripe->outstanding[i],
				     node) if (on_object(request, pool, object)) return true;
	return false;
}

static bool on_pool(u8 op)
{
	return op == TMEM_NEW_POOL || op == TMEM_DESTROY_POOL;
}

struct tmem_request *tmem_submit(struct tmem_stripe *stripe, struct tmem_call *call)
{
	struct tmem_request *request;

	call->doorbell = false;
	call->posted = false;
	request = tmem_outstanding_find(stripe, call->pool, call->object, call->index);
	call->ring = request ? tmem_ring_get(request->ring) : tmem_ring_here();
	if (!call->ring || (!on_pool(call->op) && !tmem_pool_enter(call->pool)))
		return ERR_PTR(-ENOTCONN);
	request = tmem_ring_submit(call->ring, call);
	if (!IS_ERR(request))
		hlist_add_head(&request->node, list_of(stripe, call->index));
	else if (!on_pool(call->op))
		tmem_pool_exit(call->pool);
	return request;
}

void tmem_outstanding_done(struct tmem_request *request)
{
	struct tmem_pool *pool = request->pool;
	struct tmem_stripe *stripe = tmem_stripe(pool, request->object, request->index);
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	hlist_del(&request->node);
	spin_unlock_irqrestore(&stripe->lock, flags);
	if (on_pool(request->op)) {
		tmem_pool_answered(request);
		return;
	}
	if (request->op == TMEM_FLUSH_OBJECT)
		tmem_flush_object_done(request);
	if (request->posted && request->status != 1)
		tmem_count(posted_failed);
	tmem_pool_exit(pool);
}
