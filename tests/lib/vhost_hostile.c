// SPDX-License-Identifier: GPL-2.0-or-later
#include "vhost_hostile.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

int vu_receive_raw(int socket, uint32_t *request, uint32_t *flags, void *payload, uint32_t room,
		   uint32_t *size, unsigned timeout_ms)
{
	struct vu_header h = {0};
	int fd, r = vu_receive(socket, &h, payload, room, &fd, timeout_ms);

	if (fd >= 0)
		close(fd);
	*request = h.request;
	*flags = h.flags;
	*size = h.size;
	return r;
}

int vu_socket(struct vu *vu)
{
	return vu->socket;
}

int vu_memory_fd(struct vu *vu, unsigned memory)
{
	return vu->memories[memory].fd;
}

void vu_memory_region(struct vu *vu, unsigned memory, struct vu_region *region)
{
	*region = vu->memories[memory].region;
}

int vu_inflight_fd(struct vu *vu, struct vu_inflight *inflight)
{
	*inflight = vu->inflight;
	return vu->inflight_fd;
}

uint8_t *vu_ring_memory(struct vu *vu, unsigned queue, size_t *bytes)
{
	*bytes = vu->queues[queue].bytes;
	return vu->queues[queue].memory;
}

uint16_t *vu_avail_index(struct vu *vu, unsigned queue)
{
	return (uint16_t *)vu->queues[queue].avail + 1; /* behind the flags */
}

int vu_submit_raw(struct vu *vu, unsigned queue, const struct vu_descriptor *descriptors,
		  unsigned nr, uint16_t head)
{
	struct vu_queue *q = &vu->queues[queue];

	if (nr > q->size || (nr && q->nr_in_flight))
		return -EINVAL;
	if (nr && q->packed) {
		vu_packed_put(q, descriptors, nr);
	} else if (nr) {
		memcpy(q->desc, descriptors, nr * sizeof(*descriptors));
		vu_split_publish(q, head);
	}
	q->since_kick = 0;
	vu_ring_kick(q);
	return 0;
}

int vu_reap_raw(struct vu *vu, unsigned queue, unsigned timeout_ms, unsigned count, uint32_t *id,
		uint32_t *len)
{
	struct vu_queue *q = &vu->queues[queue];
	uint64_t end = vu_now_ms() + timeout_ms;

	while (!vu_queue_visible(q)) {
		if (vu_now_ms() >= end)
			return 0;
		usleep(200);
	}
	vu_used_entry(q, id, len);
	if (q->packed)
		vu_packed_advance(q, count);
	else
		q->next_used++;
	return 1;
}

bool vu_broken(struct vu *vu, unsigned queue, unsigned timeout_ms)
{
	struct pollfd fd = {.fd = vu->queues[queue].err, .events = POLLIN};

	return poll(&fd, 1, (int)timeout_ms) == 1;
}

uint64_t vu_guest_ring_address(struct vu *vu, const void *pointer)
{
	return vu->memories[0].region.guest +
	       (uint64_t)((const uint8_t *)pointer - vu->memories[0].base);
}

uint64_t vu_guest_address(struct vu *vu, size_t offset)
{
	return vu->memories[1].region.guest + offset;
}
