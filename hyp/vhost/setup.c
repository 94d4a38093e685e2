// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Messages that set up a queue. They only note what was said; queues_update() looks afterwards what
 * runs. What would move a running queue under a request is refused.
 */
#include "vhost_priv.h"

#include <unistd.h>

/* NULL: refused. */
static struct queue *queue_of(struct vhost *vhost, uint64_t index)
{
	if (index < vhost->device.max_queues)
		return &vhost->queues[index];
	message_refuse(vhost, "there is no queue %llu", (unsigned long long)index);
	return NULL;
}

int handle_set_vring_num(struct vhost *vhost, struct message *m)
{
	struct queue *queue = queue_of(vhost, m->payload.state.index);
	uint32_t num = m->payload.state.num;

	if (!queue)
		return 1;
	if (!num || num > VHOST_MAX_RING)
		return message_refuse(vhost, "a queue has 1 to %u descriptors, not %u",
				      VHOST_MAX_RING, num);
	if (!has_feature(vhost, VIRTIO_F_RING_PACKED) && num & (num - 1))
		return message_refuse(vhost, "%u descriptors: not a power of two", num);
	if (queue->running && num != queue->num)
		return message_refuse(vhost, "queue %u is running", queue->index);
	queue->num = num;
	return 0;
}

/* The log's part of it may change while the queue runs; if the ring moves, it starts there anew. */
int handle_set_vring_addr(struct vhost *vhost, struct message *m)
{
	const struct vhost_vring_addr *addr = &m->payload.addr;
	struct queue *queue = queue_of(vhost, addr->index);

	if (!queue)
		return 1;
	if (addr->flags & ~(uint32_t)BIT(VHOST_VRING_F_LOG))
		return message_refuse(vhost, "flags %#x are unknown", addr->flags);
	if (queue->addr.desc_user_addr != addr->desc_user_addr ||
	    queue->addr.avail_user_addr != addr->avail_user_addr ||
	    queue->addr.used_user_addr != addr->used_user_addr)
		queue_stop(queue);
	queue->addr = *addr;
	queue->addressed = true;
	return 0;
}

int handle_set_vring_base(struct vhost *vhost, struct message *m)
{
	struct queue *queue = queue_of(vhost, m->payload.state.index);

	if (!queue)
		return 1;
	if (queue->running)
		return message_refuse(vhost, "queue %u is running", queue->index);
	queue->base = m->payload.state.num;
	queue->based = true;
	queue->broken = false;
	return 0;
}

/* Stops the queue. */
int handle_get_vring_base(struct vhost *vhost, struct message *m)
{
	struct queue *queue = queue_of(vhost, m->payload.state.index);
	struct vhost_vring_state state;

	if (!queue)
		return 1;
	queue_end(vhost, queue);
	state = (struct vhost_vring_state){.index = queue->index, .num = queue->base};
	return session_reply(vhost, &state, sizeof(state), -1);
}

/* The queue, and the eventfd (-1: none). NULL: refused. */
static struct queue *take_eventfd(struct vhost *vhost, struct message *m, int *fd)
{
	struct queue *queue = queue_of(vhost, m->payload.u64 & WIRE_QUEUE_MASK);

	*fd = -1;
	if (!queue || m->payload.u64 & WIRE_NO_FD)
		return queue;
	*fd = message_take_fd(m, 0);
	if (*fd >= 0)
		return queue;
	message_refuse(vhost, "no eventfd came with it");
	return NULL;
}

int handle_set_vring_kick(struct vhost *vhost, struct message *m)
{
	int fd;
	struct queue *queue = take_eventfd(vhost, m, &fd);

	if (!queue)
		return 1;
	queue->kickable = true;
	queue_set_kick(vhost, queue, fd);
	return 0;
}

static void replace(int *fd, int with)
{
	if (*fd >= 0)
		close(*fd);
	*fd = with;
}

int handle_set_vring_call(struct vhost *vhost, struct message *m)
{
	int fd;
	struct queue *queue = take_eventfd(vhost, m, &fd);

	if (!queue)
		return 1;
	replace(&queue->call, fd);
	return 0;
}

int handle_set_vring_err(struct vhost *vhost, struct message *m)
{
	int fd;
	struct queue *queue = take_eventfd(vhost, m, &fd);

	if (!queue)
		return 1;
	replace(&queue->error, fd);
	return 0;
}

int handle_set_vring_enable(struct vhost *vhost, struct message *m)
{
	struct queue *queue = queue_of(vhost, m->payload.state.index);

	if (!queue)
		return 1;
	if (m->payload.state.num > 1)
		return message_refuse(vhost, "%u is neither on nor off", m->payload.state.num);
	queue->enabled = m->payload.state.num;
	return 0;
}
