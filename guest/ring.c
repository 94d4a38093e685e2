// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rings of the region, one for each processor as far as they go: submission, completion,
 * waiting.
 *
 * The guest's own account of every entry (struct tmem_request) is what counts; from the region it
 * reads only what the service has written for it: `done` and `status` of an entry, the completion
 * queue (a hint where to look) and the words that say whether a doorbell is wanted. The other
 * side runs on another processor even if this guest has only one: therefore virt_ barriers, and
 * sync_cmpxchg for the credits, which keeps its lock prefix on a kernel patched for one CPU.
 */
#include "tmem_priv.h"

#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/sort.h>

#ifndef sync_cmpxchg
#define sync_cmpxchg cmpxchg
#endif

/* How long a waiter sleeps at most before it looks again, in nanoseconds. */
#define POLL_FIRST_NS (50 * NSEC_PER_USEC)
#define POLL_LAST_NS (1 * NSEC_PER_MSEC)
#define COARSE_SPIN_NS (2 * NSEC_PER_MSEC)
#define SPIN_FIRST_NS (2 * NSEC_PER_USEC)
#define WAKE_NS (50 * NSEC_PER_USEC) /* what a wake-up on another CPU takes */
#define DOORBELL_BATCH 32	     /* submissions that nobody waits for */
#define QUIET_TIME (3 * HZ)
#define LOST_INTERRUPT_NS (20 * NSEC_PER_MSEC)

static struct tmem_ring rings[TMEM_MAX_RINGS];
static u32 nr_rings;	    /* open */
static u32 allocated_rings; /* have room for allocated_entries */
static u32 allocated_entries;

void tmem_rings_setup(void)
{
	u32 i;

	for (i = 0; i < TMEM_MAX_RINGS; i++) {
		spin_lock_init(&rings[i].lock);
		init_waitqueue_head(&rings[i].wait);
		rings[i].number = i;
	}
}

int tmem_rings_alloc(u32 number, u32 entries)
{
	u32 i;

	if (allocated_rings)
		return number <= allocated_rings && entries <= allocated_entries ? 0 : -ENOSPC;
	for (i = 0; i < number; i++) {
		rings[i].requests = kvcalloc(entries, sizeof(*rings[i].requests), GFP_KERNEL);
		rings[i].free = kvcalloc(entries, sizeof(*rings[i].free), GFP_KERNEL);
		rings[i].order = kvcalloc(entries, sizeof(*rings[i].order), GFP_KERNEL);
		if (!rings[i].requests || !rings[i].free || !rings[i].order)
			goto fail;
	}
	allocated_rings = number;
	allocated_entries = entries;
	return 0;
fail:
	for (i = 0; i < number; i++) {
		kvfree(rings[i].requests);
		kvfree(rings[i].free);
		kvfree(rings[i].order);
		rings[i].requests = NULL;
		rings[i].free = NULL;
		rings[i].order = NULL;
	}
	return -ENOMEM;
}

static u32 spin_max(void)
{
	return min_t(u64, (u64)READ_ONCE(tmem_spin_us) * NSEC_PER_USEC, NSEC_PER_SEC);
}

/* Where the ring is, and nothing in it. */
static void ring_place(struct tmem_ring *ring, u8 *base, u32 entries)
{
	lockdep_assert_held(&ring->lock);
	ring->ctl = (struct tmem_ring_ctl *)base;
	ring->sq = (u16 *)(base + tmem_ring_sq_off());
	ring->cq = (u16 *)(base + tmem_ring_cq_off(entries));
	ring->entry = (struct tmem_entry *)(base + tmem_ring_entries_off(entries));
	ring->slots = base + tmem_ring_slots_off(entries);
	ring->entries = entries;
	ring->sq_tail = 0;
	ring->sq_told = 0;
	ring->cq_head = 0;
	ring->reaped = 0;
	ring->spin_ns = spin_max();
}

static void ring_open(struct tmem_ring *ring, u8 *base, u32 entries)
{
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&ring->lock, flags);
	ring_place(ring, base, entries);
	ring->nr_free = entries;
	for (i = 0; i < entries; i++) {
		ring->free[i] = entries - 1 - i;
		ring->requests[i].number = i;
		ring->requests[i].ring = ring->number;
		ring->requests[i].state = TMEM_REQUEST_FREE;
	}
	ring->open = true;
	spin_unlock_irqrestore(&ring->lock, flags);
}

void tmem_rings_open(void *region, u32 number, u32 entries)
{
	u32 i;

	for (i = 0; i < number; i++)
		ring_open(&rings[i], (u8 *)region + tmem_ring_off(i, entries), entries);
	smp_store_release(&nr_rings, number);
}

u32 tmem_rings_number(void)
{
	return smp_load_acquire(&nr_rings);
}

struct tmem_ring *tmem_ring_get(u32 number)
{
	return &rings[number];
}

struct tmem_ring *tmem_ring_here(void)
{
	u32 number = tmem_rings_number();

	return number ? &rings[raw_smp_processor_id() % number] : NULL;
}

void *tmem_request_slot(const struct tmem_request *request)
{
	return rings[request->ring].slots + (size_t)request->number * TMEM_PAGE_SIZE;
}

void tmem_copy_to_page(struct page *page, const void *slot)
{
	void *to = kmap_atomic(page);

	copy_page(to, (void *)slot);
	kunmap_atomic(to);
}

bool tmem_take_page(struct page *page, const struct tmem_request *request)
{
	void *to = kmap_atomic(page);
	bool good;

	copy_page(to, tmem_request_slot(request));
	good = !request->sum || tmem_page_sum(to) == request->sum;
	kunmap_atomic(to);
	if (!good)
		tmem_count(gets_again);
	return good;
}

static void copy_from_page(void *slot, struct page *page)
{
	void *from = kmap_atomic(page);

	copy_page(slot, from);
	kunmap_atomic(from);
}

/* ---- Submission ----------------------------------------------------------------------------- */

static bool take_credit(struct tmem_ring *ring)
{
	u32 *word = &ring->ctl->credits;
	u32 old = READ_ONCE(*word), seen;

	while (old) {
		seen = sync_cmpxchg(word, old, old - 1);
		if (seen == old)
			return true;
		old = seen;
	}
	return false;
}

static void fill_entry(struct tmem_ring *ring, const struct tmem_request *request)
{
	struct tmem_entry *entry = &ring->entry[request->number];
	bool makes = request->op == TMEM_NEW_POOL;

	entry->op = request->op;
	entry->flags = request->posted ? TMEM_ENTRY_POSTED : 0;
	entry->reserved0 = 0;
	entry->pool = makes ? 0 : request->pool->host_id;
	memcpy(entry->object, request->object, sizeof(entry->object));
	entry->index = request->index;
	entry->seq = request->seq;
	entry->arg = makes ? request->pool->nonce : 0;
}

/* Behind what is in the submission queue; its tail is raised later. */
static void enqueue(struct tmem_ring *ring, struct tmem_request *request)
{
	u32 tail = ring->sq_tail++;

	request->seq = tail + 1;
	fill_entry(ring, request);
	WRITE_ONCE(ring->sq[tail & (ring->entries - 1)], request->number);
}

/*
 * Has the service to be told now? What nobody waits for is told of in batches: a doorbell is an
 * exit to the host. The link's thread tells of the rest.
 */
static bool wants_doorbell(struct tmem_ring *ring, bool lazy)
{
	u32 told = ring->sq_told;

	lockdep_assert_held(&ring->lock);
	if (lazy && ring->sq_tail - told < min_t(u32, DOORBELL_BATCH, ring->entries / 4))
		return false;
	ring->sq_told = ring->sq_tail;
	virt_mb();
	return !tmem_link_polling() &&
	       tmem_need_event(READ_ONCE(ring->ctl->sq_event), ring->sq_tail, told);
}

/* In jiffies; 0: nobody asked for quiet. */
static unsigned long quiet_until;

void tmem_rings_quiet(bool quiet)
{
	WRITE_ONCE(quiet_until, quiet ? (jiffies + QUIET_TIME) | 1 : 0);
	tmem_rings_barrier();
}

/* Not for longer than a machine takes to stop: nobody tells when it did not. */
static bool is_quiet(void)
{
	unsigned long until = READ_ONCE(quiet_until);

	return until && time_before(jiffies, until);
}

struct tmem_request *tmem_ring_submit(struct tmem_ring *ring, struct tmem_call *call)
{
	struct tmem_request *request;

	lockdep_assert_irqs_disabled();
	call->ring = ring;
	spin_lock(&ring->lock);
	if (!ring->open || is_quiet() || (call->op == TMEM_PUT_PAGE && tmem_link_suspended()))
		request = ERR_PTR(-ENOTCONN);
	else if (ring->nr_free <= call->keep_free)
		request = ERR_PTR(-EAGAIN);
	else
		request = &ring->requests[ring->free[--ring->nr_free]];
	if (IS_ERR(request)) {
		spin_unlock(&ring->lock);
		return request;
	}
	request->pool = call->pool;
	memcpy(request->object, call->object, sizeof(request->object));
	request->index = call->index;
	request->op = call->op;
	request->sum = 0;
	request->posted = call->may_post && tmem_link_credits() && take_credit(ring);
	request->waited = call->wait && !request->posted;
	request->state = TMEM_REQUEST_OUT;
	call->posted = request->posted;
	if (call->page)
		copy_from_page(tmem_request_slot(request), call->page);
	enqueue(ring, request);
	virt_store_release(&ring->ctl->sq_tail, ring->sq_tail);
	call->doorbell = wants_doorbell(ring, call->lazy && !request->waited);
	spin_unlock(&ring->lock);
	return request;
}

void tmem_call_ring(const struct tmem_call *call)
{
	if (!call->doorbell)
		return;
	tmem_count(doorbells);
	tmem_link_doorbell(call->ring->number);
}

void tmem_ring_tell(struct tmem_ring *ring)
{
	struct tmem_call call = {.ring = ring};
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	call.doorbell = ring->open && wants_doorbell(ring, false);
	spin_unlock_irqrestore(&ring->lock, flags);
	tmem_call_ring(&call);
}

/* ---- Completion ------------------------------------------------------------------------------ */

static void free_request(struct tmem_ring *ring, struct tmem_request *request)
{
	lockdep_assert_held(&ring->lock);
	request->state = TMEM_REQUEST_FREE;
	ring->free[ring->nr_free++] = request->number;
}

static bool executed(const struct tmem_ring *ring, const struct tmem_request *request)
{
	return virt_load_acquire(&ring->entry[request->number].done) == request->seq;
}

static void take_done(struct tmem_ring *ring, u32 number, struct list_head *done)
{
	struct tmem_request *request = &ring->requests[number];

	if (request->state != TMEM_REQUEST_OUT || !executed(ring, request))
		return;
	request->status = (s32)READ_ONCE(ring->entry[number].status);
	if (request->op == TMEM_GET_PAGE && tmem_link_can_move())
		request->sum = READ_ONCE(ring->entry[number].page_sum);
	if ((s32)(request->seq - ring->reaped) > 0)
		ring->reaped = request->seq;
	request->state = TMEM_REQUEST_FINISHED;
	list_add_tail(&request->done_link, done);
}

/* Takes the requests out of the table, tells who has to know, and frees their entries. */
static void finish(struct tmem_ring *ring, struct list_head *done)
{
	struct tmem_request *request, *next;
	unsigned long flags;

	list_for_each_entry_safe(request, next, done, done_link)
	{
		tmem_outstanding_done(request);
		spin_lock_irqsave(&ring->lock, flags);
		if (request->waited)
			smp_store_release(&request->state, TMEM_REQUEST_DONE);
		else
			free_request(ring, request);
		spin_unlock_irqrestore(&ring->lock, flags);
	}
	wake_up(&ring->wait);
}

void tmem_ring_reap(struct tmem_ring *ring, bool all)
{
	unsigned long flags;
	LIST_HEAD(done);
	u32 tail, number;

	spin_lock_irqsave(&ring->lock, flags);
	if (!ring->open) {
		spin_unlock_irqrestore(&ring->lock, flags);
		return;
	}
	tail = virt_load_acquire(&ring->ctl->cq_tail);
	if (all || tail - ring->cq_head > ring->entries) {
		for (number = 0; number < ring->entries; number++)
			take_done(ring, number, &done);
		ring->cq_head = tail;
	}
	while (ring->cq_head != tail) {
		number = READ_ONCE(ring->cq[ring->cq_head++ & (ring->entries - 1)]);
		if (number < ring->entries)
			take_done(ring, number, &done);
	}
	WRITE_ONCE(ring->ctl->cq_head, tail);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (!list_empty(&done))
		finish(ring, &done);
}

void tmem_ring_make_room(void)
{
	struct tmem_ring *ring = tmem_ring_here();

	if (ring && READ_ONCE(ring->nr_free) < READ_ONCE(ring->entries) / 4)
		tmem_ring_reap(ring, false);
}

/* The same for one request that its waiter has seen executed. */
static void reap_one(struct tmem_ring *ring, struct tmem_request *request)
{
	unsigned long flags;
	LIST_HEAD(done);

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->open)
		take_done(ring, request->number, &done);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (!list_empty(&done))
		finish(ring, &done);
}

static void ring_close(struct tmem_ring *ring)
{
	unsigned long flags;
	LIST_HEAD(done);
	u32 i;

	spin_lock_irqsave(&ring->lock, flags);
	ring->open = false;
	for (i = 0; i < ring->entries; i++) {
		if (ring->requests[i].state != TMEM_REQUEST_OUT)
			continue;
		ring->requests[i].status = -ESHUTDOWN;
		ring->requests[i].state = TMEM_REQUEST_FINISHED;
		list_add_tail(&ring->requests[i].done_link, &done);
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	finish(ring, &done);
}

void tmem_rings_close(void)
{
	u32 i, number = tmem_rings_number();

	smp_store_release(&nr_rings, 0);
	for (i = 0; i < number; i++)
		ring_close(&rings[i]);
}

/* ---- The machine goes on elsewhere ----------------------------------------------------------- */

/*
 * What the service has executed before the machine was stopped is part of what was moved. A done
 * flag in this copy of the region says so, but of a get: the page in its slot may be older.
 */
static void ring_pause(struct tmem_ring *ring)
{
	unsigned long flags;
	LIST_HEAD(done);
	u32 i;

	spin_lock_irqsave(&ring->lock, flags);
	for (i = 0; ring->open && i < ring->entries; i++)
		if (ring->requests[i].op != TMEM_GET_PAGE)
			take_done(ring, i, &done);
	ring->open = false;
	spin_unlock_irqrestore(&ring->lock, flags);
	if (!list_empty(&done))
		finish(ring, &done);
}

void tmem_rings_pause(void)
{
	u32 i;

	for (i = 0; i < tmem_rings_number(); i++)
		ring_pause(&rings[i]);
}

/*
 * Some done flags may not have made it into the copy. An operation before one that was seen
 * executed was executed, too, for a ring is executed in order; to do it again could undo a later
 * one on its handle. Who waits for an answer has none, and nothing came after him on his handle.
 * And the id of a pool that was destroyed may be another's by now.
 */
static bool was_executed(const struct tmem_ring *ring, const struct tmem_request *request)
{
	if (request->op == TMEM_DESTROY_POOL && tmem_pool_id_is_used(request->pool))
		return true;
	return !request->waited && request->op != TMEM_NEW_POOL &&
	       request->op != TMEM_DESTROY_POOL && (s32)(ring->reaped - request->seq) > 0;
}

static int by_order(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Numbers of the outstanding entries behind their distance from the oldest possible. */
static u32 sort_outstanding(struct tmem_ring *ring, struct list_head *done)
{
	struct tmem_request *request;
	u32 i, nr = 0;

	for (i = 0; i < ring->entries; i++) {
		request = &ring->requests[i];
		if (request->state != TMEM_REQUEST_OUT)
			continue;
		if (was_executed(ring, request)) {
			request->status = 1;
			request->state = TMEM_REQUEST_FINISHED;
			list_add_tail(&request->done_link, done);
			continue;
		}
		ring->order[nr++] = (u64)(U32_MAX - (ring->sq_tail - request->seq)) << 32 | i;
	}
	sort(ring->order, nr, sizeof(*ring->order), by_order, NULL);
	return nr;
}

static void ring_resume(struct tmem_ring *ring, u8 *base, u32 entries)
{
	unsigned long flags;
	LIST_HEAD(done);
	u32 i, nr;

	spin_lock_irqsave(&ring->lock, flags);
	nr = sort_outstanding(ring, &done);
	ring_place(ring, base, entries);
	for (i = 0; i < nr; i++)
		enqueue(ring, &ring->requests[(u32)ring->order[i]]);
	virt_store_release(&ring->ctl->sq_tail, ring->sq_tail);
	ring->open = true;
	spin_unlock_irqrestore(&ring->lock, flags);
	tmem_count_add(resubmitted, nr);
	finish(ring, &done);
	tmem_ring_tell(ring);
}

void tmem_rings_resume(void *region, u32 number, u32 entries)
{
	u32 i;

	for (i = 0; i < number; i++)
		ring_resume(&rings[i], (u8 *)region + tmem_ring_off(i, entries), entries);
}

bool tmem_rings_idle(void)
{
	unsigned long flags;
	bool idle = true;
	u32 i;

	for (i = 0; i < allocated_rings && idle; i++) {
		spin_lock_irqsave(&rings[i].lock, flags);
		idle = rings[i].nr_free == rings[i].entries;
		spin_unlock_irqrestore(&rings[i].lock, flags);
	}
	return idle;
}

void tmem_rings_barrier(void)
{
	unsigned long flags;
	u32 i;

	for (i = 0; i < allocated_rings; i++) {
		spin_lock_irqsave(&rings[i].lock, flags);
		spin_unlock_irqrestore(&rings[i].lock, flags);
	}
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Asks for an interrupt at the next completion, then looks once more. */
static void want_interrupt(struct tmem_ring *ring)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->open) {
		WRITE_ONCE(ring->ctl->cq_event, READ_ONCE(ring->ctl->cq_tail));
		virt_mb();
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	tmem_ring_reap(ring, false);
}

static bool request_done(const struct tmem_request *request)
{
	return smp_load_acquire(&request->state) == TMEM_REQUEST_DONE;
}

static bool has_room(struct tmem_ring *ring, u32 keep_free)
{
	return READ_ONCE(ring->nr_free) > keep_free || !READ_ONCE(ring->open);
}

/* Sleeps once, until woken or for `*ns`, and makes the next sleep longer while polling. */
static void nap(struct tmem_ring *ring, struct tmem_request *request, u32 keep_free, u64 *ns)
{
	DEFINE_WAIT(wait);
	ktime_t time;

	prepare_to_wait(&ring->wait, &wait, TASK_IDLE);
	want_interrupt(ring);
	if (request ? !request_done(request) : !has_room(ring, keep_free)) {
		time = ns_to_ktime(tmem_link_polling() ? *ns : LOST_INTERRUPT_NS);
		schedule_hrtimeout_range(&time, *ns / 4, HRTIMER_MODE_REL);
	}
	finish_wait(&ring->wait, &wait);
	*ns = min_t(u64, *ns * 2, POLL_LAST_NS);
}

/*
 * A sleep lasts a tick at least where timers are no finer. While polling that would be a tick for
 * each page, tens of times longer than the answer takes: the service's naps are shorter than
 * COARSE_SPIN_NS while it has work.
 */
static u64 spin_ns(const struct tmem_ring *ring)
{
	if (tmem_link_polling() && hrtimer_resolution > POLL_LAST_NS)
		return COARSE_SPIN_NS;
	return min(READ_ONCE(ring->spin_ns), spin_max());
}

/*
 * Learns from a wait of `waited` ns that ended in sleep how long the next one spins: longer if
 * spinning would have seen the answer, taking off what the wake-up took. Waiters of one ring may
 * overwrite each other's lesson.
 */
static void tune_spin(struct tmem_ring *ring, u64 waited)
{
	u32 ns = READ_ONCE(ring->spin_ns), max = spin_max();

	if (waited < max + WAKE_NS)
		ns = max_t(u32, 2 * ns, SPIN_FIRST_NS);
	else
		ns /= 2;
	WRITE_ONCE(ring->spin_ns, min(ns, max));
}

static bool spin(struct tmem_ring *ring, struct tmem_request *request, u64 start)
{
	u64 end = start + spin_ns(ring);

	do {
		if (executed(ring, request))
			reap_one(ring, request);
		if (request_done(request))
			return true;
		cpu_relax();
	} while (ktime_get_ns() < end && !need_resched());
	return false;
}

bool tmem_ring_wait(struct tmem_ring *ring, struct tmem_request *request, unsigned long timeout,
		    bool while_up)
{
	unsigned long end = jiffies + timeout;
	u64 start = ktime_get_ns(), ns = POLL_FIRST_NS;

	if (spin(ring, request, start))
		return true;
	for (;;) {
		nap(ring, request, 0, &ns);
		if (executed(ring, request))
			reap_one(ring, request);
		if (request_done(request)) {
			tune_spin(ring, ktime_get_ns() - start);
			return true;
		}
		if (time_after_eq(jiffies, end) || (while_up && !tmem_link_up()))
			return false;
	}
}

void tmem_ring_wait_room(struct tmem_ring *ring, u32 keep_free, unsigned long timeout)
{
	unsigned long end = jiffies + timeout;
	u64 ns = POLL_FIRST_NS;

	tmem_ring_reap(ring, false);
	while (!has_room(ring, keep_free) && time_before(jiffies, end))
		nap(ring, NULL, keep_free, &ns);
}

void tmem_ring_release(struct tmem_ring *ring, struct tmem_request *request)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	free_request(ring, request);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (wq_has_sleeper(&ring->wait))
		wake_up(&ring->wait);
}

bool tmem_ring_abandon(struct tmem_ring *ring, struct tmem_request *request)
{
	unsigned long flags;
	bool given_up;

	spin_lock_irqsave(&ring->lock, flags);
	given_up = request->state != TMEM_REQUEST_DONE;
	if (given_up)
		request->waited = false;
	spin_unlock_irqrestore(&ring->lock, flags);
	if (given_up)
		tmem_count(abandoned);
	return given_up;
}
