// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Split rings (virtio 1.2, section 2.7). Completion is in order, so the ring itself says where it
 * is: what lies between its used index and its available index was not completed.
 */
#include "vhost_priv.h"

#include <errno.h>

#include "base/log.h"

static struct vring_desc *table(const struct queue *queue)
{
	return (struct vring_desc *)queue->ring_desc;
}

static struct vring_avail *avail(const struct queue *queue)
{
	return (struct vring_avail *)queue->ring_avail;
}

static struct vring_used *used(const struct queue *queue)
{
	return (struct vring_used *)queue->ring_used;
}

/* Behind the last element: which kick we want. */
static uint16_t *avail_event(const struct queue *queue)
{
	return (uint16_t *)&used(queue)->ring[queue->num];
}

static struct position decode(uint32_t base)
{
	return (struct position){.index = (uint16_t)base};
}

static uint32_t encode(struct position at)
{
	return at.index;
}

static bool within(const struct queue *queue, uint16_t first, uint16_t end)
{
	return (uint16_t)(end - first) <= queue->num;
}

/*
 * A front end was seen to give a wrong base after it connected again, and requests were skipped. So
 * what it says counts only when the ring cannot be right.
 */
static const char *start(struct vhost *vhost, struct queue *queue, struct position base,
			 struct position *at)
{
	uint16_t done = READ_ONCE(used(queue)->idx), end = LOAD_ACQUIRE(avail(queue)->idx);

	*at = base;
	if (queue->num & (queue->num - 1))
		return "its size is not a power of two";
	if (within(queue, done, end))
		at->index = done;
	if (queue->based && base.index != done)
		log_limited(LOG_NOTE,
			    "%s: queue %u: the front end says that it is at %u, the ring says %u; "
			    "%u counts",
			    vhost->device.name, queue->index, base.index, done, at->index);
	inflight_split_begin(vhost, queue);
	return NULL;
}

static struct position after(const struct queue *queue, struct position at, unsigned count)
{
	(void)queue;
	at.index = (uint16_t)(at.index + count);
	return at;
}

static bool pending(const struct queue *queue)
{
	return LOAD_ACQUIRE(avail(queue)->idx) != queue->avail.index;
}

static const char *walk(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain)
{
	uint32_t next = chain->id;

	for (uint32_t count = 0;; count++) {
		struct vring_desc desc;
		const char *why;

		if (count == queue->num)
			return "a chain with a loop";
		if (next >= queue->num)
			return "a descriptor outside of the ring";
		copy_once(&desc, &table(queue)[next], sizeof(desc));
		if (desc.flags & VRING_DESC_F_INDIRECT && desc.flags & VRING_DESC_F_NEXT)
			return "a table with something behind it";
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return chain_add_table(vhost, queue, chain, desc.addr, desc.len, false);
		why = chain_add(vhost, queue, chain, desc.addr, desc.len,
				desc.flags & VRING_DESC_F_WRITE);
		if (why || !(desc.flags & VRING_DESC_F_NEXT))
			return why;
		next = desc.next;
	}
}

static int pop(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
	       const char **why)
{
	uint16_t at = queue->used.index, end = LOAD_ACQUIRE(avail(queue)->idx);

	if (at == end)
		return 0;
	if (!within(queue, at, end)) {
		*why = "more is available than fits the ring";
		return -EPROTO;
	}
	chain->id = READ_ONCE(avail(queue)->ring[at & (queue->num - 1)]);
	chain->count = 1;
	*why = walk(vhost, queue, chain);
	return *why ? -EPROTO : 1;
}

static bool peek(const struct queue *queue, struct position *at, struct vring_desc *desc)
{
	uint16_t id;

	if (LOAD_ACQUIRE(avail(queue)->idx) == at->index)
		return false;
	id = READ_ONCE(avail(queue)->ring[at->index & (queue->num - 1)]);
	if (id >= queue->num)
		return false;
	copy_once(desc, &table(queue)[id], sizeof(*desc));
	at->index++;
	return true;
}

static void push(struct vhost *vhost, struct queue *queue, const struct vhost_chain *chain,
		 uint32_t written)
{
	uint16_t at = queue->used.index & (queue->num - 1);
	struct vring_used_elem *element = &used(queue)->ring[at];

	WRITE_ONCE(element->id, (uint32_t)chain->id);
	WRITE_ONCE(element->len, written);
	STORE_RELEASE(used(queue)->idx, queue->avail.index);
	inflight_split_used(queue, queue->avail.index);
	if (dirty_ring_wanted(vhost, queue)) {
		dirty_used(vhost, queue, offsetof(struct vring_used, ring[at]), sizeof(*element));
		dirty_used(vhost, queue, offsetof(struct vring_used, idx), sizeof(uint16_t));
	}
}

static bool wants_call(const struct vhost *vhost, const struct queue *queue, unsigned count)
{
	uint16_t now = queue->used.index;

	if (!has_feature(vhost, VIRTIO_RING_F_EVENT_IDX))
		return !(READ_ONCE(avail(queue)->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	return count > UINT16_MAX || vring_need_event(READ_ONCE(avail(queue)->ring[queue->num]),
						      now, (uint16_t)(now - count));
}

/* With event indexes nothing stops kicks: they are asked for one at a time. */
static void arm(struct vhost *vhost, struct queue *queue, bool on)
{
	uint64_t offset;

	if (has_feature(vhost, VIRTIO_RING_F_EVENT_IDX)) {
		if (!on)
			return;
		WRITE_ONCE(*avail_event(queue), queue->avail.index);
		offset = offsetof(struct vring_used, ring) +
			 queue->num * sizeof(struct vring_used_elem);
	} else {
		WRITE_ONCE(used(queue)->flags, (uint16_t)(on ? 0 : VRING_USED_F_NO_NOTIFY));
		offset = offsetof(struct vring_used, flags);
	}
	if (dirty_ring_wanted(vhost, queue))
		dirty_used(vhost, queue, offset, sizeof(uint16_t));
}

const struct layout split_layout = {
	.desc_each = sizeof(struct vring_desc),
	.desc_align = VRING_DESC_ALIGN_SIZE,
	.avail_bytes = sizeof(struct vring_avail) + sizeof(uint16_t), /* used_event */
	.avail_each = sizeof(uint16_t),
	.avail_align = VRING_AVAIL_ALIGN_SIZE,
	.used_bytes = sizeof(struct vring_used) + sizeof(uint16_t), /* avail_event */
	.used_each = sizeof(struct vring_used_elem),
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
