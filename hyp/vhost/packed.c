// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Packed rings (virtio 1.2, section 2.8). Driver and device write the same descriptors, and each
 * counts its laps by a wrap counter. So the ring alone does not tell where it was: that is what
 * the in-flight record is for.
 */
#include "vhost_priv.h"

#include <errno.h>

#include "base/log.h"

#define WRAP 0x8000u /* beside an index of 15 bits */

static struct vring_packed_desc *ring(const struct queue *queue)
{
	return (struct vring_packed_desc *)queue->ring_desc;
}

/* What the driver wants to hear. */
static struct vring_packed_desc_event *driver_event(const struct queue *queue)
{
	return (struct vring_packed_desc_event *)queue->ring_avail;
}

/* What we want to hear. */
static struct vring_packed_desc_event *device_event(const struct queue *queue)
{
	return (struct vring_packed_desc_event *)queue->ring_used;
}

static struct position decode(uint32_t base)
{
	return (struct position){.index = base & ~WRAP & UINT16_MAX, .wrap = base & WRAP};
}

/* The same for what is available and for what is used: nothing is between them. */
static uint32_t encode(struct position at)
{
	uint32_t half = at.index | (at.wrap ? WRAP : 0);

	return half | half << 16;
}

static struct position after(const struct queue *queue, struct position at, unsigned count)
{
	unsigned index = at.index + count;

	if (index >= queue->num) {
		index -= queue->num;
		at.wrap = !at.wrap;
	}
	at.index = (uint16_t)index;
	return at;
}

/* In the lap that `at` belongs to, made available by the driver and not used. */
static bool available(const struct queue *queue, struct position at)
{
	uint16_t flags = LOAD_ACQUIRE(ring(queue)[at.index].flags);

	return !!(flags & BIT(VRING_PACKED_DESC_F_AVAIL)) == at.wrap &&
	       !!(flags & BIT(VRING_PACKED_DESC_F_USED)) != at.wrap;
}

static const char *start(struct vhost *vhost, struct queue *queue, struct position base,
			 struct position *at)
{
	struct position known;

	*at = base;
	if (inflight_packed_find(queue, &known, available)) {
		*at = known;
		if (queue->based && !position_same(base, known))
			log_limited(LOG_NOTE,
				    "%s: queue %u: the front end says that it is at %u (wrap %d), "
				    "the in-flight record says %u (wrap %d), which counts",
				    vhost->device.name, queue->index, base.index, base.wrap,
				    known.index, known.wrap);
	}
	if (at->index >= queue->num)
		return "its position is outside of the ring";
	inflight_packed_begin(vhost, queue, *at);
	return NULL;
}

static bool pending(const struct queue *queue)
{
	return available(queue, queue->avail);
}

/* The driver makes the first descriptor of a chain available last, so all of it is there. */
static const char *walk(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain)
{
	struct vring_packed_desc desc = {.flags = VRING_DESC_F_NEXT};
	unsigned at = queue->used.index;

	while (desc.flags & VRING_DESC_F_NEXT) {
		const char *why;

		if (chain->count == queue->num)
			return "a chain longer than the ring";
		copy_once(&desc, &ring(queue)[at], sizeof(desc));
		if (desc.flags & VRING_DESC_F_INDIRECT && desc.flags & VRING_DESC_F_NEXT)
			return "a table with something behind it";
		if (desc.flags & VRING_DESC_F_INDIRECT)
			why = chain_add_table(vhost, queue, chain, desc.addr, desc.len, true);
		else
			why = chain_add(vhost, queue, chain, desc.addr, desc.len,
					desc.flags & VRING_DESC_F_WRITE);
		if (why)
			return why;
		chain->count++;
		at = at + 1 == queue->num ? 0 : at + 1;
	}
	chain->id = desc.id; /* the last one has it */
	return NULL;
}

static int pop(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
	       const char **why)
{
	if (!available(queue, queue->used))
		return 0;
	chain->count = 0;
	*why = walk(vhost, queue, chain);
	return *why ? -EPROTO : 1;
}

static bool peek(const struct queue *queue, struct position *at, struct vring_desc *desc)
{
	struct vring_packed_desc here;

	if (!available(queue, *at))
		return false;
	copy_once(&here, &ring(queue)[at->index], sizeof(here));
	*desc = (struct vring_desc){.addr = here.addr, .len = here.len, .flags = here.flags};
	for (unsigned count = 0; count < queue->num; count++) {
		*at = after(queue, *at, 1);
		if (!(here.flags & VRING_DESC_F_NEXT))
			return true;
		copy_once(&here, &ring(queue)[at->index], sizeof(here));
	}
	return false;
}

/* The second half of a descriptor. */
union used_half {
	struct {
		uint32_t len;
		uint16_t id;
		uint16_t flags;
	};
	uint64_t whole;
};

/* Other code sees the fields of a descriptor there. */
typedef uint64_t __attribute__((may_alias)) any_word;

_Static_assert(offsetof(struct vring_packed_desc, len) == 8 &&
		       offsetof(struct vring_packed_desc, id) == 12 &&
		       offsetof(struct vring_packed_desc, flags) == 14,
	       "length, id and flags are one aligned word");

/*
 * One descriptor is written for the whole chain; the driver skips the others. Its length, id and
 * flags are written at once: if we died after the length alone, the request would be found again
 * with a wrong one.
 */
static void push(struct vhost *vhost, struct queue *queue, const struct vhost_chain *chain,
		 uint32_t written)
{
	struct vring_packed_desc *desc = &ring(queue)[queue->used.index];
	union used_half half = {.len = written, .id = chain->id};

	if (queue->used.wrap)
		half.flags = BIT(VRING_PACKED_DESC_F_AVAIL) | BIT(VRING_PACKED_DESC_F_USED);
	if (written)
		half.flags |= VRING_DESC_F_WRITE;
	inflight_packed_intend(queue, queue->used, queue->avail);
	STORE_RELEASE(*(any_word *)&desc->len, half.whole);
	inflight_packed_settle(queue, queue->avail);
	if (dirty_ring_wanted(vhost, queue))
		dirty_mark(vhost, queue->desc_guest + queue->used.index * sizeof(*desc),
			   sizeof(*desc));
}

static bool wants_call(const struct vhost *vhost, const struct queue *queue, unsigned count)
{
	uint16_t flags = LOAD_ACQUIRE(driver_event(queue)->flags), event, now;
	struct position at = queue->used;

	if (flags != VRING_PACKED_EVENT_FLAG_DESC || !has_feature(vhost, VIRTIO_RING_F_EVENT_IDX))
		return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	if (count > queue->num)
		return true;
	event = READ_ONCE(driver_event(queue)->off_wrap);
	now = at.index;
	/* One of the lap before lies before all of this lap. */
	if (!!(event & WRAP) != at.wrap)
		event = (uint16_t)((event & ~WRAP) - queue->num);
	else
		event &= (uint16_t)~WRAP;
	return vring_need_event(event, now, (uint16_t)(now - count));
}

static void arm(struct vhost *vhost, struct queue *queue, bool on)
{
	struct vring_packed_desc_event *event = device_event(queue);
	uint16_t flags = VRING_PACKED_EVENT_FLAG_DISABLE;

	if (on && has_feature(vhost, VIRTIO_RING_F_EVENT_IDX)) {
		uint32_t half = encode(queue->avail) & UINT16_MAX;

		WRITE_ONCE(event->off_wrap, (uint16_t)half);
		flags = VRING_PACKED_EVENT_FLAG_DESC;
	} else if (on) {
		flags = VRING_PACKED_EVENT_FLAG_ENABLE;
	}
	STORE_RELEASE(event->flags, flags);
	if (dirty_ring_wanted(vhost, queue))
		dirty_used(vhost, queue, 0, sizeof(*event));
}

const struct layout packed_layout = {
	.desc_each = sizeof(struct vring_packed_desc),
	.desc_align = VRING_DESC_ALIGN_SIZE,
	.avail_bytes = sizeof(struct vring_packed_desc_event),
	.avail_align = VRING_USED_ALIGN_SIZE,
	.used_bytes = sizeof(struct vring_packed_desc_event),
	.used_align = VRING_USED_ALIGN_SIZE,
	.decode = decode,
	.encode = encode,
	.start = start,
	.after = after,
	.pending = pending,
	.pop = pop,
	.peek = peek,
	.push = push,
	.wants_call = wants_call,
	.arm = arm,
};
