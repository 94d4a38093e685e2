// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The dirty log: while a guest migrates, a bit for each page of its memory that we wrote. The front
 * end takes bits away meanwhile, so they are set one by one, atomically, and after the write: a bit
 * set before could be taken away, and the old page be sent.
 */
#include "vhost_priv.h"

#include "base/log.h"

#define PAGE_SHIFT 12

const char *dirty_open(struct vhost *vhost, uint64_t offset, uint64_t bytes, int fd)
{
	struct mapping mapping = {0};
	const char *why = mapping_open(&mapping, fd, offset, bytes);

	if (why)
		return why;
	dirty_close(vhost);
	vhost->log = mapping;
	vhost->log_bytes = bytes;
	vhost->log_offset = offset;
	return NULL;
}

int handle_set_log_base(struct vhost *vhost, struct message *m)
{
	const char *why = "shared memory for it was not negotiated";

	if (vhost->protocol & BIT(PROTOCOL_LOG_SHMFD) && m->header.size >= 16)
		why = dirty_open(vhost, m->payload.log.offset, m->payload.log.bytes,
				 message_take_fd(m, 0));
	return why ? message_refuse(vhost, "the dirty log cannot be used: %s", why) : 0;
}

void dirty_close(struct vhost *vhost)
{
	vhost->lost |= mapping_close(&vhost->log);
}

static void beyond(const struct vhost *vhost, uint64_t guest)
{
	log_limited(LOG_WARN, "%s: guest address %#llx was written and is beyond the dirty log",
		    vhost->device.name, (unsigned long long)guest);
}

void dirty_mark(struct vhost *vhost, uint64_t guest, uint64_t bytes)
{
	uint64_t page = guest >> PAGE_SHIFT, last = (guest + bytes - 1) >> PAGE_SHIFT;

	if (!bytes)
		return;
	if (guest > UINT64_MAX - bytes) {
		beyond(vhost, guest);
		return;
	}
	for (; page <= last; page++) {
		if (page / 8 >= vhost->log_bytes) {
			beyond(vhost, page << PAGE_SHIFT);
			return;
		}
		__atomic_fetch_or(&vhost->log.base[page / 8], (uint8_t)(1u << page % 8),
				  __ATOMIC_RELEASE);
	}
}

void dirty_chain(struct vhost *vhost, const struct queue *queue, const struct vhost_chain *chain,
		 uint32_t written)
{
	unsigned end = (unsigned)chain->nr_out + chain->nr_in;

	for (unsigned i = chain->nr_out; i < end && written; i++) {
		uint32_t part = chain->segments[i].len;

		if (part > written)
			part = written;
		dirty_mark(vhost, queue->addresses[i], part);
		written -= part;
	}
}

void dirty_used(struct vhost *vhost, const struct queue *queue, uint64_t offset, uint64_t bytes)
{
	uint64_t base = queue->addr.log_guest_addr;

	if (base > UINT64_MAX - offset)
		beyond(vhost, base);
	else
		dirty_mark(vhost, base + offset, bytes);
}

void dirty_ring(struct vhost *vhost, const struct queue *queue)
{
	const struct layout *l = queue->layout;

	if (!dirty_ring_wanted(vhost, queue))
		return;
	dirty_mark(vhost, queue->desc_guest, l->desc_bytes + queue->num * l->desc_each);
	dirty_used(vhost, queue, 0, l->used_bytes + queue->num * l->used_each);
}
