// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Attachment: cleancache. The kernel offers clean pages of files as they leave its page cache and
 * asks for them before it reads the disk.
 *
 * Contexts (5.10): put_page and invalidate_page run with interrupts off, get_page may sleep. A put
 * is submitted and forgotten; if it cannot be submitted it is a flush, because the kernel counts on
 * a put to replace a stale copy. Pools are private and ephemeral: a get removes the page.
 */
#include "tmem_priv.h"

#ifdef TMEM_CLEANCACHE

#include <linux/cleancache.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/string.h>

#define GET_TIMEOUT HZ

static void object_of(struct cleancache_filekey *key, u64 *object)
{
	BUILD_BUG_ON(sizeof(key->u.key) != 3 * sizeof(u64));
	memcpy(object, key->u.key, sizeof(key->u.key));
}

static struct tmem_pool *pool_of(int id)
{
	return id >= 0 && id < TMEM_MAX_POOLS ? &tmem_pools[id] : NULL;
}

static int init_fs(size_t page_size)
{
	struct tmem_pool *pool = page_size == TMEM_PAGE_SIZE ? tmem_pool_create(false, NULL) : NULL;

	return pool ? pool - tmem_pools : -1;
}

/* Shared pools are for cluster file systems whose hosts are authorised to share: not offered. */
static int init_shared_fs(uuid_t *uuid, size_t page_size)
{
	return -1;
}

static struct tmem_request *submit_get(struct tmem_call *call)
{
	struct tmem_stripe *stripe = tmem_stripe(call->pool, call->object, call->index);
	struct tmem_request *request = ERR_PTR(-ENOENT);
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	if (!tmem_flush_pending(stripe, call->pool, call->object, call->index))
		request = tmem_submit(stripe, call);
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(call);
	return request;
}

static int get_page_from(int id, struct cleancache_filekey key, pgoff_t index, struct page *page)
{
	struct tmem_call call = {
		.pool = pool_of(id),
		.index = index,
		.op = TMEM_GET_PAGE,
		.wait = true,
		.keep_free = TMEM_KEEP_FREE,
	};
	struct tmem_request *request;
	bool hit;

	tmem_count(cache_gets);
	if (!call.pool || index > U32_MAX || !tmem_link_up())
		return -1;
	object_of(&key, call.object);
	request = submit_get(&call);
	if (IS_ERR(request))
		return -1;
	if (!tmem_ring_wait(call.ring, request, GET_TIMEOUT, true) &&
	    tmem_ring_abandon(call.ring, request))
		return -1;
	hit = request->status == 1;
	if (hit)
		hit = tmem_take_page(page, request);
	tmem_ring_release(call.ring, request);
	if (!hit)
		return -1;
	tmem_count(cache_hits);
	return 0;
}

static void put_page_to(int id, struct cleancache_filekey key, pgoff_t index, struct page *page)
{
	struct tmem_call call = {
		.pool = pool_of(id),
		.index = index,
		.op = TMEM_PUT_PAGE,
		.lazy = true,
		.keep_free = TMEM_KEEP_FREE,
		.page = page,
	};
	struct tmem_stripe *stripe;
	unsigned long flags;
	bool sent = false;

	tmem_count(cache_puts);
	/* Pages beyond 16 TiB of a file were never put, so there is nothing to flush. */
	if (!call.pool || index > U32_MAX)
		return;
	object_of(&key, call.object);
	tmem_ring_make_room();
	stripe = tmem_stripe(call.pool, call.object, call.index);
	spin_lock_irqsave(&stripe->lock, flags);
	if (!tmem_flush_object_pending(stripe, call.pool, call.object)) {
		sent = tmem_link_up() && !IS_ERR(tmem_submit(stripe, &call));
		if (sent)
			tmem_flush_cancel(stripe, call.pool, call.object, call.index);
		else
			tmem_flush_add(stripe, call.pool, call.object, call.index, false);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	if (sent)
		tmem_call_ring(&call);
	else
		tmem_count(cache_puts_dropped);
}

static void invalidate_page(int id, struct cleancache_filekey key, pgoff_t index)
{
	struct tmem_call call = {
		.pool = pool_of(id),
		.index = index,
		.op = TMEM_FLUSH_PAGE,
		.lazy = true,
		.keep_free = TMEM_KEEP_FREE,
	};
	struct tmem_stripe *stripe;
	unsigned long flags;
	bool sent = false;

	if (!call.pool || index > U32_MAX)
		return;
	tmem_count(cache_flushes);
	object_of(&key, call.object);
	tmem_ring_make_room();
	stripe = tmem_stripe(call.pool, call.object, call.index);
	spin_lock_irqsave(&stripe->lock, flags);
	if (!tmem_flush_pending(stripe, call.pool, call.object, call.index)) {
		sent = tmem_link_up() && !IS_ERR(tmem_submit(stripe, &call));
		if (!sent)
			tmem_flush_add(stripe, call.pool, call.object, call.index, false);
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	if (sent)
		tmem_call_ring(&call);
}

static void invalidate_inode(int id, struct cleancache_filekey key)
{
	struct tmem_pool *pool = pool_of(id);
	struct tmem_stripe *stripe;
	unsigned long flags;
	u64 object[3];

	if (!pool)
		return;
	tmem_count(cache_object_flushes);
	object_of(&key, object);
	stripe = tmem_stripe(pool, object, 0);
	spin_lock_irqsave(&stripe->lock, flags);
	tmem_flush_add(stripe, pool, object, 0, true);
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_link_kick();
}

static void invalidate_fs(int id)
{
	struct tmem_pool *pool = pool_of(id);

	if (pool)
		tmem_pool_forget(pool, true);
}

static const struct cleancache_ops ops = {
	.init_fs = init_fs,
	.init_shared_fs = init_shared_fs,
	.get_page = get_page_from,
	.put_page = put_page_to,
	.invalidate_page = invalidate_page,
	.invalidate_inode = invalidate_inode,
	.invalidate_fs = invalidate_fs,
};

int tmem_cleancache_register(void)
{
	return cleancache_register_ops(&ops);
}

#else

int tmem_cleancache_register(void)
{
	return -EOPNOTSUPP;
}

#endif
