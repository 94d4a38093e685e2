// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Executes the entries of one ring.
 *
 * The order of writes is what a crash is survived by: the store publishes the effect, then the
 * status, then `done`, then the completion queue. An entry whose `done` is missing is executed
 * again by the next run, one that has it never.
 */
#include "front_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"

/* Completions are made visible, and a doorbell considered, at least after so many. */
#define PUBLISH 8

void ring_setup(struct ring *ring, uint32_t entries)
{
	uint8_t *base = ring->client->region.base + tmem_ring_off(ring->index, entries);

	ring->ctl = (struct tmem_ring_ctl *)base;
	ring->sq = (uint16_t *)(base + tmem_ring_sq_off());
	ring->cq = (uint16_t *)(base + tmem_ring_cq_off(entries));
	ring->entries = (struct tmem_entry *)(base + tmem_ring_entries_off(entries));
	ring->slots = base + tmem_ring_slots_off(entries);
	ring->n = entries;
	ring->head = 0;
	ring->cq_tail = 0;
	ring->cq_told = 0;
	ring->credits = 0;
	ring->nr_parked = 0;
	ring->lane.armed = false;
	ring->lane.ringer = &ring->client->front->ringer;
}

/* The guest's part of an entry, each word read once. */
static void copy_entry(struct tmem_entry *to, const struct tmem_entry *from)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const word *src = (const word *)from;
	word *dst = (word *)to;

	for (unsigned i = 0; i < offsetof(struct tmem_entry, status) / sizeof(word); i++)
		dst[i] = READ_ONCE(src[i]);
}

static void handle_of(struct store_handle *handle, const struct tmem_entry *entry)
{
	memcpy(handle->object, entry->object, sizeof(handle->object));
	handle->pool = entry->pool;
	handle->index = entry->index;
}

static bool well_formed(const struct tmem_entry *entry, uint32_t position)
{
	if (entry->seq != position + 1 || entry->reserved0)
		return false;
	if (entry->flags & ~(entry->op == TMEM_PUT_PAGE ? TMEM_ENTRY_POSTED : 0u))
		return false;
	return entry->op == TMEM_NEW_POOL || !entry->arg;
}

static int new_pool(struct front_client *client, const struct tmem_entry *entry)
{
	uint32_t flags = entry->index;
	uint64_t uuid[2] = {entry->object[0], entry->object[1]};

	if (entry->pool || entry->object[2])
		return -EINVAL;
	if ((flags & TMEM_POOL_X_INCLUSIVE) && !(client->features & TMEM_F_INCLUSIVE))
		return -EINVAL;
	return store_pool_new(client->store, flags, uuid, entry->arg);
}

static int put_page(struct ring *ring, const struct tmem_entry *entry, const uint8_t *slot)
{
	struct front_client *client = ring->client;
	struct store_handle handle;
	unsigned flags = 0;

	handle_of(&handle, entry);
	if (entry->flags & TMEM_ENTRY_POSTED) {
		if (ring_credit_use(ring))
			flags = STORE_PUT_CREDIT;
		else
			counter_add(&client->counters[CLIENT_CREDITS_FORGED], 1);
	}
	return store_put(client->store, &handle, slot, flags);
}

static int run(struct ring *ring, uint32_t position, const struct tmem_entry *entry, uint8_t *slot)
{
	struct store_client *store = ring->client->store;
	counter_t *bad = &ring->client->counters[CLIENT_RING_BAD];
	struct store_handle handle;

	if (!well_formed(entry, position)) {
		counter_add(bad, 1);
		/* The guest has spent the credit, so it must not stay counted. */
		if (entry->flags & TMEM_ENTRY_POSTED && ring_credit_use(ring))
			store_credits_revoke(store, 1);
		return -EINVAL;
	}
	handle_of(&handle, entry);
	switch (entry->op) {
	case TMEM_NEW_POOL:
		return new_pool(ring->client, entry);
	case TMEM_DESTROY_POOL:
		return store_pool_destroy(store, entry->pool);
	case TMEM_PUT_PAGE:
		return put_page(ring, entry, slot);
	case TMEM_GET_PAGE:
		return store_get(store, &handle, slot);
	case TMEM_FLUSH_PAGE:
		return store_flush(store, &handle);
	case TMEM_FLUSH_OBJECT:
		return store_flush_object(store, entry->pool, handle.object);
	}
	counter_add(bad, 1);
	return -ENOSYS;
}

static void finish(struct ring *ring, uint16_t number, uint32_t seq, int status, uint64_t sum)
{
	struct tmem_entry *entry = &ring->entries[number];

	fault(FAULT_RING_EXECUTED);
	WRITE_ONCE(entry->status, status);
	if (ring->client->features & TMEM_F_RESUME)
		WRITE_ONCE(entry->page_sum, sum);
	STORE_RELEASE(entry->done, seq);
	fault(FAULT_RING_DONE);
	WRITE_ONCE(ring->cq[ring->cq_tail & (ring->n - 1)], number);
	ring->cq_tail++;
}

/* False: the page is away, and the entry has to wait for it. */
static bool execute(struct ring *ring, uint32_t position, uint16_t number,
		    const struct tmem_entry *copy)
{
	uint8_t *slot = ring->slots + (size_t)number * TMEM_PAGE_SIZE;
	int status = run(ring, position, copy, slot);
	uint64_t sum = 0;

	if (copy->op == TMEM_GET_PAGE && status == STORE_AWAY)
		return false;
	if (copy->op == TMEM_GET_PAGE && status == 1 &&
	    atomic_load_explicit(&ring->client->sums, memory_order_relaxed))
		sum = tmem_page_sum(slot);
	finish(ring, number, copy->seq, status, sum);
	return true;
}

static void execute_or_park(struct ring *ring, uint32_t position, uint16_t number,
			    const struct tmem_entry *copy)
{
	struct parked parked;

	if (!(ring->nr_parked && parked_before(ring, ring->nr_parked, copy)) &&
	    execute(ring, position, number, copy))
		return;
	parked = (struct parked){.entry = *copy, .position = position, .number = number};
	parked_add(ring, &parked);
}

/* Makes completions visible and rings the guest when it wants that. */
static void publish(struct ring *ring)
{
	uint32_t old = ring->cq_told;
	uint32_t event;

	if (ring->cq_tail == old)
		return;
	ring->cq_told = ring->cq_tail;
	STORE_RELEASE(ring->ctl->cq_tail, ring->cq_tail);
	fault(FAULT_RING_TOLD);
	if (ring->client->polling || ring->bell_out < 0)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	event = READ_ONCE(ring->ctl->cq_event);
	if (!tmem_need_event(event, ring->cq_tail, old))
		return;
	if (ring->client->channel->ring(ring))
		counter_add(&ring->client->counters[CLIENT_DOORBELLS_OUT], 1);
}

static unsigned give_up(struct ring *ring, const char *what, uint64_t guest, uint64_t bound)
{
	struct front_client *client = ring->client;
	static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;

	/* Rings of one client may break at the same time on two workers. */
	pthread_mutex_lock(&first);
	if (!atomic_load(&client->lanes.broken)) {
		client->broken_guest = guest;
		client->broken_service = bound;
		atomic_store(&client->lanes.broken, true);
		counter_add(&client->counters[CLIENT_RING_BROKEN], 1);
		log_limited(LOG_WARN, "client %s: ring %u is broken: %s %llu, bound %llu",
			    client->name, ring->index, what, (unsigned long long)guest,
			    (unsigned long long)bound);
	}
	pthread_mutex_unlock(&first);
	door_poke(client->front);
	return 0;
}

/* Executes at most `max` entries in order; returns how many. */
static unsigned step(struct ring *ring, unsigned max)
{
	struct tmem_entry batch[FRONT_BATCH];
	uint16_t number[FRONT_BATCH];
	uint32_t mask = ring->n - 1, head = ring->head;
	uint32_t waiting = LOAD_ACQUIRE(ring->ctl->sq_tail) - head;
	struct store_handle handles[FRONT_BATCH];
	unsigned nr, i;

	/* Who keeps to the rules has no more entries than there are, those included that wait. */
	if (waiting > ring->n - ring->nr_parked)
		return give_up(ring, "entries submitted", waiting, ring->n - ring->nr_parked);
	nr = waiting < max ? waiting : max;
	if (!nr)
		return 0;
	for (i = 0; i < nr; i++) {
		number[i] = READ_ONCE(ring->sq[(head + i) & mask]);
		if (number[i] >= ring->n)
			break;
		copy_entry(&batch[i], &ring->entries[number[i]]);
		handle_of(&handles[i], &batch[i]);
	}
	/* What came before the bad number is honoured; the next step begins with it. */
	if (!i)
		return give_up(ring, "entry number", number[0], ring->n);
	nr = i;
	store_prefetch(ring->client->store, handles, nr);
	for (i = 0; i < nr; i++) {
		execute_or_park(ring, head + i, number[i], &batch[i]);
		if (i % PUBLISH == PUBLISH - 1)
			publish(ring);
	}
	ring->head = head + nr;
	WRITE_ONCE(ring->ctl->sq_head, ring->head);
	publish(ring);
	counter_add(&ring->client->counters[CLIENT_RING_ENTRIES], nr);
	return nr;
}

/*
 * A posted put whose effect was published before the crash has used its credit; to execute it
 * again without one could be refused, and a posted put must not be. So it is looked for first.
 * Only in a persistent pool: in another a get may drop the page, and posted puts have no promise.
 * 1, 0, or STORE_AWAY.
 */
static int already_there(struct front_client *client, const struct tmem_entry *entry,
			 const uint8_t *slot)
{
	struct store_pool_info pools[STORE_MAX_CLIENT_POOLS];
	uint8_t page[TMEM_PAGE_SIZE];
	struct store_handle handle;
	unsigned nr;
	int r;

	if (entry->op != TMEM_PUT_PAGE || !(entry->flags & TMEM_ENTRY_POSTED))
		return 0;
	nr = store_client_pools(client->store, pools, STORE_MAX_CLIENT_POOLS);
	for (unsigned i = 0; i < nr && i < STORE_MAX_CLIENT_POOLS; i++) {
		if (pools[i].id != entry->pool || !(pools[i].flags & TMEM_POOL_PERSIST))
			continue;
		handle_of(&handle, entry);
		r = store_get(client->store, &handle, page);
		return r == STORE_AWAY ? r : r == 1 && !memcmp(page, slot, sizeof(page));
	}
	return 0;
}

/* An entry that an earlier run left. False: it has to wait for a page. */
static bool execute_again(struct ring *ring, uint32_t position, uint16_t number,
			  const struct tmem_entry *copy)
{
	const uint8_t *slot = ring->slots + (size_t)number * TMEM_PAGE_SIZE;
	int r = well_formed(copy, position) ? already_there(ring->client, copy, slot) : 0;

	if (!r)
		return execute(ring, position, number, copy);
	if (r == STORE_AWAY)
		return false;
	finish(ring, number, copy->seq, 1, 0);
	return true;
}

static bool attempt(struct ring *ring, const struct parked *parked)
{
	if (parked->replayed)
		return execute_again(ring, parked->position, parked->number, &parked->entry);
	return execute(ring, parked->position, parked->number, &parked->entry);
}

/* Executes what has waited for pages that have come; returns how many entries. */
static unsigned retry(struct ring *ring)
{
	unsigned nr = parked_retry(ring, attempt);

	publish(ring);
	return nr;
}

/* ---- The ring as a lane of its client -------------------------------------------------------- */

static struct ring *ring_of(struct lane *lane)
{
	return (struct ring *)lane;
}

/* Also true when the tail is out of bounds. */
static bool lane_pending(struct lane *lane)
{
	const struct ring *ring = ring_of(lane);

	return LOAD_ACQUIRE(ring->ctl->sq_tail) != ring->head || parked_pending(ring);
}

static unsigned lane_step(struct lane *lane, unsigned max)
{
	struct ring *ring = ring_of(lane);
	unsigned nr = parked_pending(ring) ? retry(ring) : 0;

	if (nr < max)
		nr += step(ring, max - nr);
	if (!nr)
		return 0;
	ring_credits_step(ring);
	if (!atomic_load_explicit(ring->client->region.lost, memory_order_relaxed))
		return nr;
	door_poke(ring->client->front);
	return 0;
}

static bool lane_arm(struct lane *lane)
{
	struct ring *ring = ring_of(lane);

	if (ring->client->polling)
		return false;
	WRITE_ONCE(ring->ctl->sq_event, ring->head);
	return true;
}

/* Leaves the event position behind. */
static void lane_disarm(struct lane *lane)
{
	struct ring *ring = ring_of(lane);

	WRITE_ONCE(ring->ctl->sq_event, ring->head - 1);
}

static void lane_heard(struct lane *lane)
{
	struct ring *ring = ring_of(lane);

	if (ring->client->channel->heard)
		ring->client->channel->heard(ring);
	if (!ring->index && life_knocks(ring->client))
		door_poke(ring->client->front);
}

/* What is parked is looked at now and then, whatever the store has said of it. */
static void lane_chore(struct lane *lane)
{
	ring_credits_step(ring_of(lane));
	atomic_store(&ring_of(lane)->come, true);
}

const struct lane_ops ring_lane_ops = {
	.pending = lane_pending,
	.step = lane_step,
	.arm = lane_arm,
	.disarm = lane_disarm,
	.heard = lane_heard,
	.chore = lane_chore,
};

/* ---- Restart -------------------------------------------------------------------------------- */

static int by_position(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (int32_t)(x - y) < 0 ? -1 : x != y;
}

/*
 * The submission queue does not tell all that is left: the place of a slow entry may have been
 * used again by a later one. The entries do. One that the guest is filling while we look has a
 * seq beyond the tail, and is executed when the tail has passed it.
 */
void ring_scan(struct ring *ring, struct replay *replay)
{
	replay->tail = LOAD_ACQUIRE(ring->ctl->sq_tail);
	replay->nr = 0;
	for (uint32_t i = 0; i < ring->n; i++) {
		struct tmem_entry *entry = &ring->entries[i];
		uint32_t seq = READ_ONCE(entry->seq);

		if (READ_ONCE(entry->done) == seq || (int32_t)(replay->tail - seq) < 0)
			continue;
		replay->todo[replay->nr].seq = seq;
		replay->todo[replay->nr++].entry = i;
	}
	qsort(replay->todo, replay->nr, sizeof(replay->todo[0]), by_position);
	ring->head = replay->tail;
	ring->cq_tail = READ_ONCE(ring->ctl->cq_tail);
	ring->cq_told = ring->cq_tail;
}

void ring_replay(struct ring *ring, const struct replay *replay)
{
	struct front_client *client = ring->client;

	for (unsigned i = 0; i < replay->nr; i++) {
		struct parked left = {
			.position = replay->todo[i].seq - 1,
			.number = replay->todo[i].entry,
			.replayed = true,
		};

		copy_entry(&left.entry, &ring->entries[left.number]);
		if (left.entry.seq != replay->todo[i].seq)
			continue;
		if (parked_before(ring, ring->nr_parked, &left.entry) ||
		    !execute_again(ring, left.position, left.number, &left.entry))
			parked_add(ring, &left);
	}
	WRITE_ONCE(ring->ctl->sq_head, ring->head);
	publish(ring);
	counter_add(&client->counters[CLIENT_RING_ENTRIES], replay->nr);
	counter_add(&client->counters[CLIENT_RING_REPLAYED], replay->nr);
}
