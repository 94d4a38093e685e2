// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pools of this guest and what is known of them at the host.
 *
 * An attachment asks for a pool and may use it as soon as it is READY; making and destroying it at
 * the host is done by the link's thread, so that it never waits in a context that may not. A pool
 * is destroyed only when nothing is outstanding in it: `inflight` counts operations and those
 * that are about to submit one; once the state is not READY any more, no new ones begin.
 */
#include "tmem_priv.h"

#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/string.h>

struct tmem_pool tmem_pools[TMEM_MAX_POOLS];
static DECLARE_WAIT_QUEUE_HEAD(ready_wait);

void tmem_pools_setup(void)
{
	unsigned int i;

	for (i = 0; i < TMEM_MAX_POOLS; i++)
		spin_lock_init(&tmem_pools[i].lock);
}

struct tmem_pool *tmem_pool_create(bool persist, struct tmem_slots *slots)
{
	struct tmem_pool *pool;
	unsigned long flags;
	unsigned int i;

	for (i = 0; i < TMEM_MAX_POOLS; i++) {
		pool = &tmem_pools[i];
		spin_lock_irqsave(&pool->lock, flags);
		if (pool->state != TMEM_POOL_FREE) {
			spin_unlock_irqrestore(&pool->lock, flags);
			continue;
		}
		pool->persist = persist;
		pool->has_host = false;
		pool->busy = false;
		pool->nonce = get_random_u64();
		pool->retry_at = jiffies;
		pool->slots = slots;
		pool->state = TMEM_POOL_WANTED;
		spin_unlock_irqrestore(&pool->lock, flags);
		tmem_link_kick();
		return pool;
	}
	return NULL;
}

void tmem_pool_forget(struct tmem_pool *pool, bool forever)
{
	unsigned long flags;

	spin_lock_irqsave(&pool->lock, flags);
	pool->generation++;
	if (forever)
		pool->state = TMEM_POOL_DYING;
	else if (pool->state == TMEM_POOL_READY)
		pool->state = TMEM_POOL_RENEW;
	spin_unlock_irqrestore(&pool->lock, flags);
	tmem_link_kick();
}

bool tmem_pool_wait_ready(struct tmem_pool *pool, unsigned long timeout)
{
	return wait_event_timeout(ready_wait, READ_ONCE(pool->state) != TMEM_POOL_WANTED, timeout);
}

bool tmem_pool_enter(struct tmem_pool *pool)
{
	atomic_inc(&pool->inflight);
	smp_mb__after_atomic();
	if (READ_ONCE(pool->state) == TMEM_POOL_READY)
		return true;
	tmem_pool_exit(pool);
	return false;
}

void tmem_pool_exit(struct tmem_pool *pool)
{
	smp_mb__before_atomic();
	atomic_dec(&pool->inflight);
}

/* Submits the operation that the pool's state asks for. */
static void submit(struct tmem_pool *pool, u8 op)
{
	struct tmem_call call = {.pool = pool, .op = op};
	struct tmem_stripe *stripe;
	struct tmem_request *request;
	unsigned long flags;

	if (op == TMEM_NEW_POOL) {
		call.index = (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT) |
			     (pool->persist ? TMEM_POOL_PERSIST : 0);
		call.arg = pool->nonce;
	}
	stripe = tmem_stripe(pool, call.object, call.index);
	spin_lock_irqsave(&stripe->lock, flags);
	pool->busy = true;
	request = tmem_submit(stripe, &call);
	if (IS_ERR(request))
		pool->busy = false;
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(&call);
}

void tmem_pool_answered(struct tmem_request *request)
{
	struct tmem_pool *pool = request->pool;
	unsigned long flags;

	spin_lock_irqsave(&pool->lock, flags);
	if (request->op == TMEM_DESTROY_POOL) {
		pool->has_host = request->status == -ESHUTDOWN;
		pool->nonce = get_random_u64();
	} else if (request->status >= 0) {
		pool->host_id = request->status;
		pool->has_host = true;
		if (pool->state == TMEM_POOL_WANTED)
			smp_store_release(&pool->state, TMEM_POOL_READY);
	} else {
		pool->retry_at = jiffies + HZ;
		pr_warn_ratelimited("the service made no pool: error %d\n", request->status);
	}
	pool->busy = false;
	spin_unlock_irqrestore(&pool->lock, flags);
	wake_up_all(&ready_wait);
	tmem_link_kick();
}

static void step(struct tmem_pool *pool)
{
	struct tmem_slots *free_slots = NULL;
	unsigned long flags;
	u8 op = 0;

	spin_lock_irqsave(&pool->lock, flags);
	if (pool->state == TMEM_POOL_FREE || pool->state == TMEM_POOL_READY || pool->busy)
		goto out;
	smp_mb(); /* the state is seen before inflight is read, see tmem_pool_enter() */
	if (pool->has_host) {
		op = atomic_read(&pool->inflight) ? 0 : TMEM_DESTROY_POOL;
	} else if (pool->state == TMEM_POOL_DYING) {
		free_slots = pool->slots;
		pool->slots = NULL;
		atomic_long_set(&pool->held, 0);
		pool->state = TMEM_POOL_FREE;
	} else {
		pool->state = TMEM_POOL_WANTED;
		op = time_after_eq(jiffies, pool->retry_at) ? TMEM_NEW_POOL : 0;
	}
out:
	spin_unlock_irqrestore(&pool->lock, flags);
	tmem_slots_free(free_slots);
	if (op)
		submit(pool, op);
}

void tmem_pools_step(void)
{
	unsigned int i;

	for (i = 0; i < TMEM_MAX_POOLS; i++)
		step(&tmem_pools[i]);
}

void tmem_pools_new_life(void)
{
	struct tmem_pool *pool;
	unsigned long flags;
	unsigned int i;

	for (i = 0; i < TMEM_MAX_POOLS; i++) {
		pool = &tmem_pools[i];
		spin_lock_irqsave(&pool->lock, flags);
		pool->has_host = false;
		pool->generation++;
		pool->nonce = get_random_u64();
		pool->retry_at = jiffies;
		if (pool->state == TMEM_POOL_READY || pool->state == TMEM_POOL_RENEW)
			pool->state = TMEM_POOL_WANTED;
		spin_unlock_irqrestore(&pool->lock, flags);
		if (pool->slots)
			tmem_slots_clear_pending(pool->slots);
	}
}

bool tmem_pool_id_is_used(const struct tmem_pool *pool)
{
	unsigned int i;

	for (i = 0; i < TMEM_MAX_POOLS; i++)
		if (&tmem_pools[i] != pool && READ_ONCE(tmem_pools[i].has_host) &&
		    READ_ONCE(tmem_pools[i].host_id) == pool->host_id)
			return true;
	return false;
}

long tmem_pools_held(void)
{
	unsigned int i;
	long held = 0;

	for (i = 0; i < TMEM_MAX_POOLS; i++)
		held += atomic_long_read(&tmem_pools[i].held);
	return held;
}
