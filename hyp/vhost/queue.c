// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What both layouts of a queue share: when it runs, and the functions of vhost.h.
 *
 * A queue runs when all that it needs was said and its ring is in the guest's memory. That is
 * looked at after each message, so messages may come in any order.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

void queue_init(struct queue *queue, unsigned index)
{
	queue->index = index;
	queue->kick = -1;
	queue->call = -1;
	queue->error = -1;
	queue->layout = &split_layout;
}

/* ---- When it runs --------------------------------------------------------------------------- */

static bool is_enabled(const struct vhost *vhost, const struct queue *queue)
{
	return queue->enabled || !has_feature(vhost, VHOST_USER_F_PROTOCOL_FEATURES);
}

static bool is_set_up(const struct vhost *vhost, const struct queue *queue)
{
	return queue->num && queue->addressed && queue->kickable && !queue->broken &&
	       is_enabled(vhost, queue);
}

static uint8_t *part(const struct vhost *vhost, uint64_t address, uint64_t bytes, unsigned align,
		     uint64_t *guest)
{
	uint8_t *at = memory_user(&vhost->memory, address, bytes, guest);

	return (uintptr_t)at % align ? NULL : at;
}

/* Where the ring is now. */
static bool find_ring(const struct vhost *vhost, struct queue *queue)
{
	const struct layout *l = queue->layout;
	uint64_t num = queue->num, guest;

	queue->ring_desc =
		part(vhost, queue->addr.desc_user_addr, l->desc_bytes + num * l->desc_each,
		     l->desc_align, &queue->desc_guest);
	queue->ring_avail = part(vhost, queue->addr.avail_user_addr,
				 l->avail_bytes + num * l->avail_each, l->avail_align, &guest);
	queue->ring_used = part(vhost, queue->addr.used_user_addr,
				l->used_bytes + num * l->used_each, l->used_align, &guest);
	if (queue->ring_desc && queue->ring_avail && queue->ring_used)
		return true;
	log_limited(LOG_NOTE,
		    "%s: queue %u waits: its ring is not (or not aligned) in the memory that the "
		    "front end handed over",
		    vhost->device.name, queue->index);
	return false;
}

void queue_stop(struct queue *queue)
{
	if (queue->running) {
		queue->base = queue->layout->encode(queue->used);
		queue->based = true;
	}
	queue->running = false;
	queue->popped = false;
}

static void queue_break(struct vhost *vhost, struct queue *queue, const char *why)
{
	queue_stop(queue);
	queue->broken = true;
	queue->error_untold = true;
	log_limited(LOG_WARN, "%s: queue %u is broken until the guest sets it up again: %s",
		    vhost->device.name, queue->index, why);
}

static uint32_t base_of(const struct queue *queue)
{
	struct position first = {.index = 0, .wrap = true};

	return queue->based ? queue->base : queue->layout->encode(first);
}

static void queue_start(struct vhost *vhost, struct queue *queue)
{
	struct position base = queue->layout->decode(base_of(queue));
	const char *why;

	queue->record = inflight_record(vhost, queue->index);
	queue->popped = false;
	queue->call_anyway = true;
	why = queue->layout->start(vhost, queue, base, &queue->used);
	queue->avail = queue->used;
	if (why)
		queue_break(vhost, queue, why);
	else
		queue->running = true;
}

void queue_end(struct vhost *vhost, struct queue *queue)
{
	queue_stop(queue);
	queue->base = base_of(queue);
	queue->broken = false;
	queue->error_untold = false;
	queue->kickable = false;
	queue_set_kick(vhost, queue, -1);
}

void queue_set_kick(struct vhost *vhost, struct queue *queue, int kick)
{
	int former = queue->kick;

	if (former < 0 && kick < 0)
		return;
	queue->kick = kick;
	vhost->device.kick_changed(vhost->device.arg, queue->index, kick);
	if (former >= 0)
		close(former);
}

static void update(struct vhost *vhost, struct queue *queue)
{
	const struct layout *layout =
		has_feature(vhost, VIRTIO_F_RING_PACKED) ? &packed_layout : &split_layout;
	bool can_run;

	if (queue->layout != layout)
		queue_stop(queue);
	queue->layout = layout;
	can_run = is_set_up(vhost, queue) && find_ring(vhost, queue);
	if (!can_run)
		queue_stop(queue);
	else if (!queue->running)
		queue_start(vhost, queue);
}

void queues_update(struct vhost *vhost)
{
	for (unsigned i = 0; i < vhost->device.max_queues; i++)
		update(vhost, &vhost->queues[i]);
}

void queues_forget(struct vhost *vhost)
{
	for (unsigned i = 0; i < vhost->device.max_queues; i++)
		vhost_unpop(vhost, i);
}

/* ---- vhost.h -------------------------------------------------------------------------------- */

bool vhost_running(const struct vhost *vhost, unsigned queue)
{
	return vhost->queues[queue].running;
}

bool vhost_polled(const struct vhost *vhost, unsigned queue)
{
	const struct queue *q = &vhost->queues[queue];

	return q->running && q->kick < 0;
}

bool vhost_pending(struct vhost *vhost, unsigned queue)
{
	const struct queue *q = &vhost->queues[queue];

	/* A ring that was lost is all zeroes, in which nothing may be available. */
	return q->running && (q->layout->pending(q) || vhost_lost(vhost));
}

int vhost_pop(struct vhost *vhost, unsigned queue, struct vhost_chain *chain)
{
	struct queue *q = &vhost->queues[queue];
	const char *why = NULL;
	int r;

	if (!q->running)
		return 0;
	chain->nr_out = 0;
	chain->nr_in = 0;
	r = q->layout->pop(vhost, q, chain, &why);
	if (r < 0)
		queue_break(vhost, q, why);
	if (r <= 0)
		return r;
	q->popped = true;
	q->avail = q->layout->after(q, q->used, chain->count);
	return 1;
}

void vhost_unpop(struct vhost *vhost, unsigned queue)
{
	struct queue *q = &vhost->queues[queue];

	q->popped = false;
	q->avail = q->used;
}

/* Tables of both layouts begin each entry with an address, a length. */
static bool read_first(const struct vhost *vhost, struct vring_desc desc, void *to, size_t bytes)
{
	if (desc.flags & VRING_DESC_F_INDIRECT &&
	    !memory_read(&vhost->memory, desc.addr, &desc, sizeof(desc)))
		return false;
	return desc.len >= bytes && memory_read(&vhost->memory, desc.addr, to, bytes);
}

unsigned vhost_peek(struct vhost *vhost, unsigned queue, void *to, size_t bytes, unsigned nr)
{
	struct queue *q = &vhost->queues[queue];
	struct position at = q->avail;
	struct vring_desc desc;
	unsigned n = 0;

	while (q->running && n < nr && q->layout->peek(q, &at, &desc) &&
	       read_first(vhost, desc, (uint8_t *)to + n * bytes, bytes))
		n++;
	return n;
}

void vhost_push(struct vhost *vhost, unsigned queue, const struct vhost_chain *chain,
		uint32_t written)
{
	struct queue *q = &vhost->queues[queue];

	if (!q->popped)
		return;
	if (dirty_logging(vhost))
		dirty_chain(vhost, q, chain, written);
	q->layout->push(vhost, q, chain, written);
	q->used = q->avail;
	q->popped = false;
	q->uncalled += chain->count;
}

int vhost_call(struct vhost *vhost, unsigned queue)
{
	struct queue *q = &vhost->queues[queue];
	unsigned count = q->uncalled;
	bool want = true;

	if (!count)
		return -1;
	q->uncalled = 0;
	FULL_BARRIER(); /* what was completed is visible before the guest's wish is read */
	/* Of a ring that is gone nothing can be read. */
	if (q->running && !q->call_anyway)
		want = q->layout->wants_call(vhost, q, count);
	q->call_anyway = false;
	return want ? q->call : -1;
}

int vhost_call_fd(const struct vhost *vhost, unsigned queue)
{
	return vhost->queues[queue].call;
}

int vhost_error(struct vhost *vhost, unsigned queue)
{
	struct queue *q = &vhost->queues[queue];

	if (!q->error_untold)
		return -1;
	q->error_untold = false;
	return q->error;
}

void vhost_arm(struct vhost *vhost, unsigned queue)
{
	struct queue *q = &vhost->queues[queue];

	if (q->running)
		q->layout->arm(vhost, q, true);
	FULL_BARRIER(); /* the guest sees our wish, or we see its request */
}

void vhost_disarm(struct vhost *vhost, unsigned queue)
{
	struct queue *q = &vhost->queues[queue];

	if (q->running)
		q->layout->arm(vhost, q, false);
}
