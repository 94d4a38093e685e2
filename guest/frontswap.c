// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attachment: frontswap. The kernel offers each page on its way to a swap device; what is refused
 * here goes to the disk.
 *
 * Contexts (5.10): store and load may sleep, and every store runs with PF_MEMALLOC; invalidate_page
 * is always atomic and sometimes has interrupts off. So nothing here allocates, and a flush is one
 * bit that the link's thread sends later. A load of an accepted page never fails: the kernel would
 * read a disk slot that was never written. It waits.
 *
 * Each swap device has a pool of its own; a page is (object 0, index = slot).
 */
#include "tmem_priv.h"

#ifdef TMEM_FRONTSWAP

#include <linux/err.h>
#include <linux/frontswap.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/swapfile.h>

#define SWAPON_WAIT (2 * HZ) /* for the pool to be made at the host */
#define PENDING_KICK 64	     /* pending flushes that wake the link's thread */

static const u64 no_object[3];
static struct tmem_pool *pools[MAX_SWAPFILES];

static struct tmem_pool *pool_of(unsigned int type)
{
	return type < MAX_SWAPFILES ? smp_load_acquire(&pools[type]) : NULL;
}

static void set_held(struct tmem_pool *pool, u64 slot, bool held)
{
	if (tmem_slot_set_held(pool->slots, slot, held) != held)
		atomic_long_add(held ? 1 : -1, &pool->held);
}

static void count_refusal(s32 status)
{
	switch (status) {
	case 0:
	case -ENOMEM:
		tmem_count(stores_no_room);
		break;
	case -EDQUOT:
		tmem_count(stores_maximum);
		break;
	case -TMEM_EFROZEN:
		tmem_count(stores_frozen);
		break;
	default:
		tmem_count(stores_failed);
	}
}

/*
 * Submits a put. The slot counts as held from here on, which is the safe side for those who ask
 * whether anything is held; a put that is refused takes it back. A pending flush of the slot is
 * done by the put, which replaces or drops the old page.
 */
static struct tmem_request *submit_put(struct tmem_call *call)
{
	struct tmem_pool *pool = call->pool;
	struct tmem_stripe *stripe = tmem_stripe(pool, no_object, call->index);
	struct tmem_request *request;
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	request = tmem_submit(stripe, call);
	if (!IS_ERR(request)) {
		tmem_slot_set_pending(pool->slots, call->index, false);
		set_held(pool, call->index, true);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(call);
	return request;
}

/* Nobody will wait for this put any more: whatever comes of it is to be flushed. */
static bool abandon_put(struct tmem_call *call, struct tmem_request *request)
{
	struct tmem_stripe *stripe = tmem_stripe(call->pool, no_object, call->index);
	unsigned long flags;
	bool given_up;

	spin_lock_irqsave(&stripe->lock, flags);
	given_up = tmem_ring_abandon(call->ring, request);
	if (given_up) {
		tmem_slot_set_pending(call->pool->slots, call->index, true);
		set_held(call->pool, call->index, false);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	return given_up;
}

static int put(struct tmem_call *call)
{
	unsigned long end = jiffies + msecs_to_jiffies(READ_ONCE(tmem_put_timeout_ms));
	struct tmem_request *request;
	s32 status;

	tmem_ring_make_room();
	for (;;) {
		request = submit_put(call);
		if (!IS_ERR(request))
			break;
		if (PTR_ERR(request) != -EAGAIN || !tmem_link_up()) {
			tmem_count(stores_no_service);
			return -1;
		}
		if (time_after(jiffies, end)) {
			tmem_count(stores_timed_out);
			return -1;
		}
		tmem_ring_wait_room(call->ring, 0, HZ / 50);
	}
	if (call->posted) {
		tmem_count(stores_posted);
		return 0;
	}
	if (!tmem_ring_wait(call->ring, request, end - jiffies, true) &&
	    abandon_put(call, request)) {
		tmem_count(stores_timed_out);
		return -1;
	}
	status = request->status;
	tmem_ring_release(call->ring, request);
	if (status == 1) {
		tmem_count(stores_accepted);
		return 0;
	}
	set_held(call->pool, call->index, false);
	count_refusal(status);
	return -1;
}

static int store(unsigned int type, pgoff_t slot, struct page *page)
{
	struct tmem_pool *pool = pool_of(type);
	struct tmem_call call = {
		.pool = pool,
		.index = slot,
		.op = TMEM_PUT_PAGE,
		.wait = true,
		.may_post = true,
		.lazy = true,
		.page = page,
	};

	tmem_count(stores);
	/* Slot 0 is the swap header. */
	if (!pool || !slot || slot > U32_MAX || PageTransHuge(page) ||
	    !tmem_slots_ready(pool->slots, slot, page)) {
		tmem_count(stores_no_slot);
		return -1;
	}
	if (!tmem_link_up()) {
		tmem_count(stores_no_service);
		return -1;
	}
	return put(&call);
}

/* ---- Load
 * ---------------------------------------------------------------------------------------- */

/*
 * Answers from a put that is still in the ring, or submits a get behind whatever is outstanding.
 * NULL: the page has been copied.
 */
static struct tmem_request *submit_get(struct tmem_call *call, struct page *page)
{
	struct tmem_stripe *stripe = tmem_stripe(call->pool, no_object, call->index);
	struct tmem_request *request;
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	request = tmem_outstanding_find(stripe, call->pool, no_object, call->index);
	if (request && request->op == TMEM_PUT_PAGE) {
		tmem_copy_to_page(page, tmem_request_slot(request));
		tmem_count(loads_from_ring);
		request = NULL;
	} else {
		request = tmem_submit(stripe, call);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(call);
	return request;
}

/* One attempt: 0 the page is here, -EAGAIN try again. */
static int get(struct tmem_call *call, struct page *page, unsigned long start)
{
	struct tmem_request *request = submit_get(call, page);
	bool good;
	s32 status;

	if (!request)
		return 0;
	if (PTR_ERR(request) == -EAGAIN) {
		tmem_ring_wait_room(call->ring, 0, HZ);
		tmem_load_waits(start, "room in the ring");
		return -EAGAIN;
	}
	if (IS_ERR(request)) {
		schedule_timeout_idle(HZ / 10);
		tmem_load_waits(start, "the service");
		return -EAGAIN;
	}
	while (!tmem_ring_wait(call->ring, request, HZ, false)) {
		tmem_load_waits(start, "an answer");
		/* Should a doorbell have been lost, this must not wait for ever. */
		if (!tmem_link_polling() && tmem_link_up())
			tmem_link_doorbell(call->ring->number);
	}
	status = request->status;
	good = status == 1 && tmem_take_page(page, request);
	tmem_ring_release(call->ring, request);
	if (status == 1)
		return good ? 0 : -EAGAIN;
	if (status != -ESHUTDOWN) {
		tmem_count(loads_damaged);
		pr_err_ratelimited("slot %u: the service has no good copy (answer %d)\n",
				   call->index, status);
	}
	schedule_timeout_idle(HZ);
	tmem_load_waits(start, "a page that is damaged or lost");
	return -EAGAIN;
}

static int load(unsigned int type, pgoff_t slot, struct page *page)
{
	struct tmem_pool *pool = pool_of(type);
	unsigned long start = jiffies;
	struct tmem_call call;

	if (!pool || slot > U32_MAX || !tmem_slot_held(pool->slots, slot))
		return -1; /* never accepted */
	do {
		memset(&call, 0, sizeof(call));
		call.pool = pool;
		call.index = slot;
		call.op = TMEM_GET_PAGE;
		call.wait = true;
	} while (get(&call, page, start));
	tmem_count(loads);
	return 0;
}

/* ---- Flush
 * --------------------------------------------------------------------------------------- */

static void invalidate_page(unsigned int type, pgoff_t slot)
{
	struct tmem_pool *pool = pool_of(type);
	struct tmem_stripe *stripe;
	unsigned long flags;

	if (!pool || slot > U32_MAX || !tmem_slot_held(pool->slots, slot))
		return;
	tmem_count(swap_flushes);
	stripe = tmem_stripe(pool, no_object, slot);
	spin_lock_irqsave(&stripe->lock, flags);
	set_held(pool, slot, false);
	tmem_slot_set_pending(pool->slots, slot, true);
	spin_unlock_irqrestore(&stripe->lock, flags);
	if (tmem_slots_pending(pool->slots) == PENDING_KICK)
		tmem_link_kick();
}

static void invalidate_area(unsigned int type)
{
	struct tmem_pool *pool = pool_of(type);

	if (!pool)
		return;
	pools[type] = NULL;
	tmem_pool_forget(pool, true);
}

/* Sends one pending flush. False when there was no room. */
static bool send_flush(struct tmem_pool *pool, u32 slot)
{
	struct tmem_call call = {
		.pool = pool,
		.index = slot,
		.op = TMEM_FLUSH_PAGE,
		.lazy = true,
		.keep_free = TMEM_KEEP_FREE,
	};
	struct tmem_stripe *stripe = tmem_stripe(pool, no_object, slot);
	unsigned long flags;
	bool sent = true;

	spin_lock_irqsave(&stripe->lock, flags);
	if (tmem_slot_set_pending(pool->slots, slot, false)) {
		sent = !IS_ERR(tmem_submit(stripe, &call));
		if (!sent)
			tmem_slot_set_pending(pool->slots, slot, true);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(&call);
	return sent;
}

static bool drain_pool(struct tmem_pool *pool)
{
	u64 slot = 0;

	while ((slot = tmem_slots_next_pending(pool->slots, slot)) != U64_MAX) {
		if (!send_flush(pool, slot))
			return true;
		slot++;
	}
	return false;
}

bool tmem_frontswap_step(void)
{
	struct tmem_pool *pool;
	bool left = false;
	unsigned int i;

	/* Pools are ended by this thread alone, so their slots stay while we look. */
	for (i = 0; i < TMEM_MAX_POOLS; i++) {
		pool = &tmem_pools[i];
		if (pool->persist && READ_ONCE(pool->state) == TMEM_POOL_READY)
			left |= drain_pool(pool);
	}
	return left;
}

/* ---- Swapon
 * -------------------------------------------------------------------------------------- */

static void init(unsigned int type)
{
	struct tmem_slots *slots;
	struct tmem_pool *pool;

	if (type >= MAX_SWAPFILES || pools[type])
		return;
	slots = tmem_slots_alloc();
	pool = slots ? tmem_pool_create(true, slots) : NULL;
	if (!pool) {
		tmem_slots_free(slots);
		pr_err("swap device %u is not served: no memory, or too many pools\n", type);
		return;
	}
	if (tmem_link_up())
		tmem_pool_wait_ready(pool, SWAPON_WAIT);
	smp_store_release(&pools[type], pool);
}

static struct frontswap_ops ops = {
	.init = init,
	.store = store,
	.load = load,
	.invalidate_page = invalidate_page,
	.invalidate_area = invalidate_area,
};

int tmem_frontswap_register(void)
{
#ifdef TMEM_FRONTSWAP_REGISTER_RETURNS
	return frontswap_register_ops(&ops);
#else
	frontswap_register_ops(&ops);
	return 0;
#endif
}

#else

int tmem_frontswap_register(void)
{
	return -EOPNOTSUPP;
}

bool tmem_frontswap_step(void)
{
	return false;
}

#endif
