// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Flushes of ephemeral pages that could not be sent at once: a bounded table, allocated once.
 *
 * What is pending here decides on this side: a get of such a handle misses, whatever the host
 * still has. The host hears later, from the link's thread. A file as a whole is flushed only
 * when nothing is outstanding on it, and until the answer has come nothing new is submitted
 * on it. When the table is full the pool is renewed: destroyed at the host and made again.
 *
 * An entry belongs to one generation of its pool; entries of a former one mean nothing.
 */
#include "tmem_priv.h"

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#define STEP_ENTRIES 64 /* looked at while the lock of a stripe is held */

struct pending {
	struct hlist_node node;
	struct tmem_pool *pool;
	u64 object[3];
	u32 index;
	u32 generation;
	bool submitted; /* of a whole object: waits for the answer */
};

static struct pending *table;
static HLIST_HEAD(free_entries);
static DEFINE_SPINLOCK(free_lock);
static atomic_t nr_pending;

int tmem_flush_setup(void)
{
	unsigned int i;

	tmem_flush_entries = clamp(tmem_flush_entries, 64u, 1u << 20);
	table = kvcalloc(tmem_flush_entries, sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	for (i = 0; i < tmem_flush_entries; i++)
		hlist_add_head(&table[i].node, &free_entries);
	return 0;
}

void tmem_flush_free(void)
{
	kvfree(table);
}

static struct pending *take_entry(void)
{
	struct pending *entry = NULL;

	spin_lock(&free_lock);
	if (!hlist_empty(&free_entries)) {
		entry = hlist_entry(free_entries.first, struct pending, node);
		hlist_del(&entry->node);
		atomic_inc(&nr_pending);
	}
	spin_unlock(&free_lock);
	return entry;
}

static void drop_entry(struct pending *entry)
{
	hlist_del(&entry->node);
	spin_lock(&free_lock);
	hlist_add_head(&entry->node, &free_entries);
	spin_unlock(&free_lock);
	atomic_dec(&nr_pending);
}

static bool current_generation(const struct pending *entry)
{
	return entry->generation == READ_ONCE(entry->pool->generation);
}

static struct pending *find(struct hlist_head *list, const struct tmem_pool *pool,
			    const u64 *object, u32 index)
{
	struct pending *entry;

	hlist_for_each_entry(entry, list, node) if (entry->index == index && entry->pool == pool &&
						    current_generation(entry) &&
						    !memcmp(entry->object, object,
							    sizeof(entry->object))) return entry;
	return NULL;
}

bool tmem_flush_object_pending(struct tmem_stripe *stripe, const struct tmem_pool *pool,
			       const u64 *object)
{
	lockdep_assert_held(&stripe->lock);
	return find(&stripe->object_flushes, pool, object, 0);
}

bool tmem_flush_pending(struct tmem_stripe *stripe, const struct tmem_pool *pool, const u64 *object,
			u32 index)
{
	lockdep_assert_held(&stripe->lock);
	return find(&stripe->flushes[tmem_list_of(index)], pool, object, index) ||
	       find(&stripe->object_flushes, pool, object, 0);
}

void tmem_flush_add(struct tmem_stripe *stripe, struct tmem_pool *pool, const u64 *object,
		    u32 index, bool whole_object)
{
	struct hlist_head *list =
		whole_object ? &stripe->object_flushes : &stripe->flushes[tmem_list_of(index)];
	struct pending *entry;

	lockdep_assert_held(&stripe->lock);
	/* A pool that is not READY has nothing at the host that could still be read. */
	if (READ_ONCE(pool->state) != TMEM_POOL_READY || find(list, pool, object, index))
		return;
	entry = take_entry();
	if (!entry) {
		tmem_count(cache_renewals);
		tmem_pool_forget(pool, false);
		return;
	}
	entry->pool = pool;
	memcpy(entry->object, object, sizeof(entry->object));
	entry->index = index;
	entry->generation = READ_ONCE(pool->generation);
	entry->submitted = false;
	hlist_add_head(&entry->node, list);
}

void tmem_flush_cancel(struct tmem_stripe *stripe, const struct tmem_pool *pool, const u64 *object,
		       u32 index)
{
	struct pending *entry = find(&stripe->flushes[tmem_list_of(index)], pool, object, index);

	lockdep_assert_held(&stripe->lock);
	if (entry)
		drop_entry(entry);
}

void tmem_flush_object_done(struct tmem_request *request)
{
	struct tmem_stripe *stripe = tmem_stripe(request->pool, request->object, 0);
	struct pending *entry;
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	entry = find(&stripe->object_flushes, request->pool, request->object, 0);
	if (entry && entry->submitted)
		drop_entry(entry);
	spin_unlock_irqrestore(&stripe->lock, flags);
}

/* ---- Sending -------------------------------------------------------------------------------- */

/* False when there was no room. */
static bool send(struct tmem_stripe *stripe, struct pending *entry, u8 op)
{
	struct tmem_call call = {
		.pool = entry->pool,
		.index = entry->index,
		.op = op,
		.lazy = true,
		.keep_free = TMEM_KEEP_FREE,
	};

	memcpy(call.object, entry->object, sizeof(call.object));
	if (IS_ERR(tmem_submit(stripe, &call)))
		return false;
	tmem_call_ring(&call);
	return true;
}

/* What became of one pending flush. */
enum outcome { SENT, WAITS, NO_ROOM };

static enum outcome send_object(struct tmem_stripe *stripe, struct pending *entry)
{
	if (!current_generation(entry)) {
		drop_entry(entry);
		return SENT;
	}
	if (entry->submitted || tmem_outstanding_object(stripe, entry->pool, entry->object))
		return WAITS;
	if (!send(stripe, entry, TMEM_FLUSH_OBJECT))
		return NO_ROOM;
	entry->submitted = true;
	return SENT;
}

static enum outcome send_page(struct tmem_stripe *stripe, struct pending *entry)
{
	if (current_generation(entry) &&
	    !tmem_flush_object_pending(stripe, entry->pool, entry->object) &&
	    !send(stripe, entry, TMEM_FLUSH_PAGE))
		return NO_ROOM;
	drop_entry(entry);
	return SENT;
}

/* Sends entries of one list. True when something is left. */
static bool step_list(struct tmem_stripe *stripe, struct hlist_head *list, bool objects)
{
	unsigned int todo = STEP_ENTRIES;
	enum outcome outcome;
	struct hlist_node *next;
	struct pending *entry;
	bool left = false;
	unsigned long flags;

	if (hlist_empty(list))
		return false;
	spin_lock_irqsave(&stripe->lock, flags);
	hlist_for_each_entry_safe(entry, next, list, node)
	{
		if (!todo--)
			outcome = NO_ROOM;
		else
			outcome = objects ? send_object(stripe, entry) : send_page(stripe, entry);
		if (outcome != SENT)
			left = true;
		if (outcome == NO_ROOM)
			break;
	}
	spin_unlock_irqrestore(&stripe->lock, flags);
	return left;
}

bool tmem_flush_step(void)
{
	struct tmem_stripe *stripe;
	bool left = false;
	unsigned int i, j;

	if (!atomic_read(&nr_pending))
		return false;
	for (i = 0; (stripe = tmem_stripe_number(i)); i++) {
		left |= step_list(stripe, &stripe->object_flushes, true);
		for (j = 0; j < TMEM_LISTS; j++)
			left |= step_list(stripe, &stripe->flushes[j], false);
	}
	return left;
}

void tmem_flush_new_life(void)
{
	struct tmem_stripe *stripe;
	struct hlist_node *next;
	struct pending *entry;
	unsigned long flags;
	unsigned int i, j;

	for (i = 0; (stripe = tmem_stripe_number(i)); i++) {
		spin_lock_irqsave(&stripe->lock, flags);
		hlist_for_each_entry_safe(entry, next, &stripe->object_flushes, node)
			drop_entry(entry);
		for (j = 0; j < TMEM_LISTS; j++)
			hlist_for_each_entry_safe(entry, next, &stripe->flushes[j], node)
				drop_entry(entry);
		spin_unlock_irqrestore(&stripe->lock, flags);
	}
}
