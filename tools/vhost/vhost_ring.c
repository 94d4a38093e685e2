// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The driver's side of virtqueues: split (virtio 1.2, section 2.7) and packed (2.8), with indirect
 * descriptors and event indexes.
 *
 * It is pedantic on purpose. It kicks only when the device asked for it, sleeps only after it asked
 * for a call, and takes a completion only when it is one of a request that is in flight: what a
 * sloppy device gets away with under a real guest, until it hangs, is an error here.
 */
#include "vhost_user_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 512u
#define SPIN_NS 20000u	   /* before it sleeps */
#define LATE_CALL_MS 2000u /* a call may come that much later than its completion */
#define DO_MS 10000u

/* Bits of a packed descriptor, beside VU_NEXT and its like. */
#define PACKED_AVAIL (1u << 7)
#define PACKED_USED (1u << 15)

/* Values of `flags` of a packed ring's event suppression structures. */
#define EVENT_ENABLE 0u
#define EVENT_DISABLE 1u
#define EVENT_DESC 2u

struct packed_descriptor {
	uint64_t addr;
	uint32_t len;
	uint16_t id;
	uint16_t flags;
};

struct split_avail {
	uint16_t flags; /* 1: do not call */
	uint16_t idx;
	uint16_t ring[];
};

struct split_used {
	uint16_t flags; /* 1: do not kick */
	uint16_t idx;
	struct {
		uint32_t id;
		uint32_t len;
	} ring[];
};

struct packed_event {
	uint16_t off_wrap;
	uint16_t flags;
};

/* A request as descriptors, before it goes into a ring. */
struct chain {
	unsigned nr;
	uint32_t writable; /* bytes */
	struct vu_descriptor descs[VU_MAX_DESCRIPTORS];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t vu_now_ms(void)
{
	return now_ns() / 1000000;
}

static struct packed_descriptor *packed_at(const struct vu_queue *q, unsigned i)
{
	return (struct packed_descriptor *)q->desc + i;
}

/* Behind the ring of the other side lies the index whose passing is worth a notification. */
static uint16_t *split_used_event(const struct vu_queue *q)
{
	return &((struct split_avail *)q->avail)->ring[q->size];
}

static uint16_t *split_avail_event(const struct vu_queue *q)
{
	return (uint16_t *)&((struct split_used *)q->used)->ring[q->size];
}

/* ---- The queue ------------------------------------------------------------------------------ */

static size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* One layout for both kinds: the parts of a split ring are the larger ones. */
static size_t avail_offset(unsigned size)
{
	return size * sizeof(struct vu_descriptor);
}

static size_t used_offset(unsigned size)
{
	return up(avail_offset(size) + 6 + 2 * size, 64);
}

static size_t slots_offset(unsigned size)
{
	return up(used_offset(size) + 6 + 8 * size, 64);
}

size_t vu_queue_bytes(unsigned size)
{
	return up(slots_offset(size) + size * sizeof(struct vu_slot), 4096);
}

int vu_queue_init(struct vu_queue *q, unsigned size, uint8_t *memory, uint64_t guest,
		  uint64_t features)
{
	q->size = size;
	q->packed = features & VU_F_PACKED;
	q->indirect = features & VU_F_INDIRECT;
	q->event_idx = features & VU_F_EVENT_IDX;
	q->memory = memory;
	q->bytes = vu_queue_bytes(size);
	q->desc = (struct vu_descriptor *)memory;
	q->avail = memory + avail_offset(size);
	q->used = memory + used_offset(size);
	q->slots = (struct vu_slot *)(memory + slots_offset(size));
	q->slots_guest = guest + slots_offset(size);
	memset(memory, 0, q->bytes);

	q->flights = calloc(size, sizeof(*q->flights));
	q->free = calloc(size, sizeof(*q->free));
	q->link = calloc(size, sizeof(*q->link));
	if (!q->flights || !q->free || !q->link)
		return -ENOMEM;
	for (unsigned i = 0; i < size; i++)
		q->free[i] = (uint16_t)(size - 1 - i);
	q->nr_free = q->nr_free_descs = size;
	q->avail_wrap = q->used_wrap = true;
	return 0;
}

void vu_queue_free(struct vu_queue *q)
{
	free(q->flights);
	free(q->free);
	free(q->link);
	q->flights = NULL;
	q->free = q->link = NULL;
}

static uint16_t position(uint16_t index, bool wrap)
{
	return (uint16_t)(index | (wrap ? 0x8000u : 0));
}

uint32_t vu_queue_base(const struct vu_queue *q, bool again)
{
	const struct split_used *used = q->used;

	if (q->packed)
		return 0x80008000u; /* avail and used position: index 0 of the first turn */
	return again ? __atomic_load_n(&used->idx, __ATOMIC_ACQUIRE) : 0;
}

bool vu_queue_base_is(const struct vu_queue *q, uint32_t base)
{
	if (!q->packed)
		return base == q->next_avail;
	return (base & 0xffff) == position(q->next_avail, q->avail_wrap) &&
	       base >> 16 == position(q->next_used, q->used_wrap);
}

/* ---- Requests in ---------------------------------------------------------------------------- */

static void chain_add(struct chain *c, uint64_t addr, uint32_t len, uint16_t flags)
{
	c->descs[c->nr++] = (struct vu_descriptor){.addr = addr, .len = len, .flags = flags};
	if (flags & VU_WRITE)
		c->writable += len;
}

static bool is_range(uint32_t type)
{
	return type == VIRTIO_BLK_T_DISCARD || type == VIRTIO_BLK_T_WRITE_ZEROES ||
	       type == VIRTIO_BLK_T_SECURE_ERASE;
}

/* Where the i-th segment begins: uneven, when there is room for that. */
static uint32_t cut_at(const struct vu_request *r, unsigned i, unsigned segments)
{
	uint32_t piece = r->bytes / segments;

	if (i == 0 || i == segments)
		return i ? r->bytes : 0;
	return i * piece + (piece > 64 ? i * 37 % 61 : 0);
}

static void chain_data(struct chain *c, const struct vu *vu, const struct vu_request *r)
{
	unsigned segments = r->segments ? r->segments : 1;
	uint64_t guest = vu->memories[1].region.guest + r->offset;
	uint16_t flags = r->type & 1 ? 0 : VU_WRITE;

	for (unsigned i = 0; i < segments; i++) {
		uint32_t from = cut_at(r, i, segments);

		chain_add(c, guest + from, cut_at(r, i + 1, segments) - from, flags);
	}
}

static void chain_make(struct chain *c, const struct vu *vu, const struct vu_queue *q, uint16_t id,
		       const struct vu_request *r)
{
	uint64_t guest = q->slots_guest + id * sizeof(struct vu_slot);
	struct vu_slot *slot = &q->slots[id];

	c->nr = c->writable = 0;
	slot->header = (struct virtio_blk_outhdr){.type = r->type, .sector = r->sector};
	slot->status = VU_STATUS_NONE;
	chain_add(c, guest + offsetof(struct vu_slot, header), sizeof(slot->header), 0);
	if (is_range(r->type)) {
		slot->header.sector = 0;
		slot->range = (struct virtio_blk_discard_write_zeroes){
			.sector = r->sector, .num_sectors = r->bytes / SECTOR, .flags = r->flags};
		chain_add(c, guest + offsetof(struct vu_slot, range), sizeof(slot->range), 0);
	} else if (r->bytes) {
		chain_data(c, vu, r);
	}
	chain_add(c, guest + offsetof(struct vu_slot, status), 1, VU_WRITE);
}

/* Replaces the chain by one descriptor of a table with it. */
static void chain_fold(struct chain *c, const struct vu_queue *q, uint16_t id)
{
	struct vu_descriptor *table = q->slots[id].table;
	uint64_t guest =
		q->slots_guest + id * sizeof(struct vu_slot) + offsetof(struct vu_slot, table);
	unsigned nr = c->nr;

	for (unsigned i = 0; i < nr; i++) {
		if (q->packed) {
			((struct packed_descriptor *)table)[i] =
				(struct packed_descriptor){.addr = c->descs[i].addr,
							   .len = c->descs[i].len,
							   .flags = c->descs[i].flags};
			continue;
		}
		table[i] = c->descs[i];
		if (i + 1 < nr) {
			table[i].flags |= VU_NEXT;
			table[i].next = (uint16_t)(i + 1);
		}
	}
	c->descs[0] = (struct vu_descriptor){
		.addr = guest, .len = nr * sizeof(*table), .flags = VU_INDIRECT};
	c->nr = 1;
}

void vu_split_publish(struct vu_queue *q, uint16_t head)
{
	struct split_avail *avail = q->avail;

	avail->ring[q->next_avail % q->size] = head;
	__atomic_store_n(&avail->idx, ++q->next_avail, __ATOMIC_RELEASE);
	q->since_kick++;
}

/* The head is on top of the stack of free descriptors. */
static void split_put(struct vu_queue *q, const struct chain *c)
{
	uint16_t head = q->free[q->nr_free - 1];

	for (unsigned i = 0; i < c->nr; i++) {
		uint16_t at = q->free[--q->nr_free];
		uint16_t next = i + 1 < c->nr ? q->free[q->nr_free - 1] : 0;

		q->desc[at] = c->descs[i];
		if (i + 1 < c->nr) {
			q->desc[at].flags |= VU_NEXT;
			q->desc[at].next = next;
		}
		q->link[at] = next;
	}
	vu_split_publish(q, head);
}

static uint16_t packed_available(bool wrap)
{
	return wrap ? PACKED_AVAIL : PACKED_USED;
}

/*
 * Writes descriptors at the ring's position; their `next` is the buffer id. The device may look at
 * them when the flags of the first have changed, which are written last.
 */
void vu_packed_put(struct vu_queue *q, const struct vu_descriptor *descs, unsigned nr)
{
	uint16_t at = q->next_avail, first_flags = 0;

	for (unsigned i = 0; i < nr; i++) {
		struct packed_descriptor *d = packed_at(q, q->next_avail);
		uint16_t flags = descs[i].flags | packed_available(q->avail_wrap);

		d->addr = descs[i].addr;
		d->len = descs[i].len;
		d->id = descs[i].next;
		if (i)
			d->flags = flags;
		else
			first_flags = flags;
		if (++q->next_avail == q->size) {
			q->next_avail = 0;
			q->avail_wrap = !q->avail_wrap;
		}
	}
	__atomic_store_n(&packed_at(q, at)->flags, first_flags, __ATOMIC_RELEASE);
	q->since_kick += nr;
}

static void packed_put_chain(struct vu_queue *q, struct chain *c, uint16_t id)
{
	for (unsigned i = 0; i < c->nr; i++) {
		c->descs[i].next = id;
		if (i + 1 < c->nr)
			c->descs[i].flags |= VU_NEXT;
	}
	q->nr_free--;
	q->nr_free_descs -= c->nr;
	vu_packed_put(q, c->descs, c->nr);
}

static int request_check(const struct vu *vu, unsigned queue, const struct vu_request *r)
{
	if (queue >= vu->options.queues || r->segments > VU_MAX_SEGMENTS)
		return -EINVAL;
	if (is_range(r->type))
		return 0;
	if (r->bytes > vu_data_bytes(vu) || r->offset > vu_data_bytes(vu) - r->bytes)
		return -EINVAL;
	return r->bytes && r->segments > r->bytes ? -EINVAL : 0;
}

int vu_submit(struct vu *vu, unsigned queue, const struct vu_request *request)
{
	struct vu_queue *q = &vu->queues[queue];
	struct vu_flight *flight;
	struct chain c;
	uint16_t id;
	int r = request_check(vu, queue, request);

	if (r)
		return r;
	if (!q->nr_free)
		return -EAGAIN;
	id = q->free[q->nr_free - 1];
	chain_make(&c, vu, q, id, request);
	/* A driver's duty, for an indirect table as well. */
	if (c.nr > q->size)
		return -EINVAL;
	if (q->indirect)
		chain_fold(&c, q, id);
	if (c.nr > (q->packed ? q->nr_free_descs : q->nr_free))
		return -EAGAIN;
	flight = &q->flights[id];
	flight->in_flight = true;
	flight->count = (uint16_t)c.nr;
	flight->writable = c.writable;
	flight->cookie = request->cookie;
	q->nr_in_flight++;
	if (q->packed)
		packed_put_chain(q, &c, id);
	else
		split_put(q, &c);
	return 0;
}

unsigned vu_max_segments(const struct vu *vu)
{
	unsigned size = vu->options.ring;

	return size - 2 < VU_MAX_SEGMENTS ? size - 2 : VU_MAX_SEGMENTS;
}

unsigned vu_in_flight(const struct vu *vu, unsigned queue)
{
	return vu->queues[queue].nr_in_flight;
}

/* ---- Notifications -------------------------------------------------------------------------- */

/* Whether `event` lies among the entries made available since `old`, up to `now`. */
static bool passed(uint16_t event, uint16_t now, uint16_t old)
{
	return (uint16_t)(now - event - 1) < (uint16_t)(now - old);
}

static bool kick_wanted(const struct vu_queue *q)
{
	uint16_t old = (uint16_t)(q->next_avail - q->since_kick);
	const struct split_used *used = q->used;
	const struct packed_event *event = q->used;
	uint16_t flags, off_wrap, at;

	if (!q->packed && q->event_idx)
		return passed(*(volatile uint16_t *)split_avail_event(q), q->next_avail, old);
	if (!q->packed)
		return !(*(volatile const uint16_t *)&used->flags & 1);
	flags = __atomic_load_n(&event->flags, __ATOMIC_ACQUIRE);
	if (flags != EVENT_DESC)
		return flags == EVENT_ENABLE;
	off_wrap = *(volatile const uint16_t *)&event->off_wrap;
	at = off_wrap & 0x7fff;
	if (off_wrap >> 15 != q->avail_wrap)
		at = (uint16_t)(at - q->size);
	return passed(at, q->next_avail, old);
}

void vu_ring_kick(struct vu_queue *q)
{
	if (!eventfd_write(q->kick, 1))
		q->kicks++;
}

void vu_kick(struct vu *vu, unsigned queue)
{
	struct vu_queue *q = &vu->queues[queue];

	/* What was made available must be visible before the device's wish is read. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (q->since_kick && kick_wanted(q))
		vu_ring_kick(q);
	q->since_kick = 0;
}

/* Asks for a call at the next completion. Look at the ring once more before sleeping. */
static void arm(struct vu_queue *q)
{
	struct split_avail *avail = q->avail;
	struct packed_event *event = q->avail;

	if (!q->packed && q->event_idx) {
		*(volatile uint16_t *)split_used_event(q) = q->next_used;
	} else if (!q->packed) {
		*(volatile uint16_t *)&avail->flags = 0;
	} else {
		event->off_wrap = position(q->next_used, q->used_wrap);
		__atomic_store_n(&event->flags, q->event_idx ? EVENT_DESC : EVENT_ENABLE,
				 __ATOMIC_RELEASE);
	}
	q->armed = true;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* The event index of a split ring is left behind by itself. */
static void disarm(struct vu_queue *q)
{
	struct split_avail *avail = q->avail;
	struct packed_event *event = q->avail;

	if (q->packed)
		*(volatile uint16_t *)&event->flags = EVENT_DISABLE;
	else if (!q->event_idx)
		*(volatile uint16_t *)&avail->flags = 1;
	q->armed = false;
}

uint64_t vu_kicks(const struct vu *vu, unsigned queue)
{
	return vu->queues[queue].kicks;
}

uint64_t vu_calls(const struct vu *vu, unsigned queue)
{
	return vu->queues[queue].calls;
}

/* ---- Completions out ------------------------------------------------------------------------ */

static int wrong(const struct vu *vu, const char *what, unsigned long long value)
{
	return vu_complain(vu, "the device %s (%llu)", what, value);
}

static bool packed_used(const struct vu_queue *q)
{
	uint16_t flags = __atomic_load_n(&packed_at(q, q->next_used)->flags, __ATOMIC_ACQUIRE);

	return !!(flags & PACKED_AVAIL) == q->used_wrap && !!(flags & PACKED_USED) == q->used_wrap;
}

bool vu_queue_visible(const struct vu_queue *q)
{
	const struct split_used *used = q->used;

	if (q->packed)
		return packed_used(q);
	return __atomic_load_n(&used->idx, __ATOMIC_ACQUIRE) != q->next_used;
}

void vu_packed_advance(struct vu_queue *q, unsigned count)
{
	q->next_used = (uint16_t)(q->next_used + count);
	if (q->next_used >= q->size) {
		q->next_used = (uint16_t)(q->next_used - q->size);
		q->used_wrap = !q->used_wrap;
	}
}

/* The used entry at the ring's position, which stays there. */
void vu_used_entry(const struct vu_queue *q, uint32_t *id, uint32_t *len)
{
	const struct split_used *used = q->used;

	if (q->packed) {
		*id = packed_at(q, q->next_used)->id;
		*len = packed_at(q, q->next_used)->len;
	} else {
		*id = used->ring[q->next_used % q->size].id;
		*len = used->ring[q->next_used % q->size].len;
	}
}

/* Gives back what the request had of the ring, and goes on behind its completion. */
static void retire(struct vu_queue *q, uint16_t id)
{
	struct vu_flight *flight = &q->flights[id];
	uint16_t at = id;

	if (q->packed) {
		q->free[q->nr_free++] = id;
		q->nr_free_descs += flight->count;
		vu_packed_advance(q, flight->count);
	} else {
		for (unsigned i = 0; i < flight->count; i++) {
			q->free[q->nr_free++] = at;
			at = q->link[at];
		}
		q->next_used++;
	}
	flight->in_flight = false;
	q->nr_in_flight--;
}

/* 1, 0 none there, -EPROTO. */
static int look(const struct vu *vu, struct vu_queue *q, void **cookie, uint8_t *status)
{
	const struct split_used *used = q->used;
	uint32_t id, len;

	if (!vu_queue_visible(q))
		return 0;
	if (!q->nr_in_flight)
		return wrong(vu, "completes a request though none is in flight", q->next_used);
	if (!q->packed && (uint16_t)(used->idx - q->next_used) > q->nr_in_flight)
		return wrong(vu, "completes more requests than are in flight", used->idx);
	vu_used_entry(q, &id, &len);
	if (id >= q->size || !q->flights[id].in_flight)
		return wrong(vu, "completes a request that is not in flight", id);
	if (len > q->flights[id].writable)
		return wrong(vu, "wrote more than it may", len);
	if (q->slots[id].status == VU_STATUS_NONE)
		return wrong(vu, "completes a request without a status", id);
	*cookie = q->flights[id].cookie;
	*status = q->slots[id].status;
	retire(q, (uint16_t)id);
	if (q->armed)
		disarm(q);
	return 1;
}

/* 1 called; 0 not within that time; -ECONNRESET the back end has gone. */
static int wait_for_call(struct vu *vu, struct vu_queue *q, int timeout_ms)
{
	struct pollfd fds[2] = {{.fd = q->call, .events = POLLIN},
				{.fd = vu->socket, .events = POLLRDHUP}};
	eventfd_t value;

	if (poll(fds, 2, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents & POLLIN) {
		eventfd_read(q->call, &value);
		q->calls++;
		return 1;
	}
	return fds[1].revents ? -ECONNRESET : 0;
}

/* The driver has slept for its time, was not called, and yet something is there. */
static int late(struct vu *vu, struct vu_queue *q)
{
	int r = wait_for_call(vu, q, LATE_CALL_MS);

	return r ? r : wrong(vu, "completed a request and did not call for it", q->next_used);
}

int vu_reap(struct vu *vu, unsigned queue, unsigned timeout_ms, void **cookie, uint8_t *status)
{
	struct vu_queue *q = &vu->queues[queue];
	uint64_t start = now_ns(), end = start / 1000000 + timeout_ms, now;
	int r;

	do {
		r = look(vu, q, cookie, status);
	} while (!r && timeout_ms && now_ns() - start < SPIN_NS);

	while (!r && (now = vu_now_ms()) < end) {
		arm(q);
		r = look(vu, q, cookie, status);
		if (r)
			return r;
		r = wait_for_call(vu, q, (int)(end - now));
		if (!r && vu_now_ms() >= end && vu_queue_visible(q))
			r = late(vu, q);
		/* A guest that sleeps on does not see what the ring holds now. */
		if (r < 0)
			return r;
		r = look(vu, q, cookie, status);
	}
	return r;
}

bool vu_arm(struct vu *vu, unsigned queue)
{
	struct vu_queue *q = &vu->queues[queue];

	arm(q);
	return vu_queue_visible(q);
}

int vu_wait(struct vu *vu, unsigned queue, int timeout_ms)
{
	return wait_for_call(vu, &vu->queues[queue], timeout_ms);
}

void vu_interrupt(struct vu *vu, unsigned queue)
{
	eventfd_write(vu->queues[queue].call, 1);
}

int vu_do(struct vu *vu, unsigned queue, const struct vu_request *request)
{
	struct vu_request r = *request;
	uint8_t status;
	void *cookie;
	int n;

	r.cookie = &r;
	n = vu_submit(vu, queue, &r);
	if (n)
		return n;
	vu_kick(vu, queue);
	n = vu_reap(vu, queue, DO_MS, &cookie, &status);
	if (n < 0)
		return n;
	if (!n)
		return -ETIMEDOUT;
	return cookie == &r ? status : wrong(vu, "completes another request", 0);
}
