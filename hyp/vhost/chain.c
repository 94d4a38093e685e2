// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What both layouts share of a chain of descriptors: pieces of guest memory, first those that we
 * read, then those that we write. A piece that crosses two mappings becomes two segments.
 */
#include "vhost_priv.h"

static unsigned segments(const struct vhost_chain *chain)
{
	return (unsigned)chain->nr_out + chain->nr_in;
}

const char *chain_add(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
		      uint64_t address, uint32_t bytes, bool write)
{
	if (!bytes)
		return "a descriptor of no bytes";
	if (!write && chain->nr_in)
		return "a descriptor to read behind one to write";
	while (bytes) {
		unsigned n = segments(chain);
		uint64_t here;
		uint8_t *base = memory_guest(&vhost->memory, address, &here);

		if (!base)
			return "an address outside of the guest's memory";
		if (n == VHOST_MAX_SEGMENTS)
			return "a chain of too many pieces";
		if (here > bytes)
			here = bytes;
		queue->addresses[n] = address;
		chain->segments[n] = (struct vhost_segment){.base = base, .len = (uint32_t)here};
		if (write)
			chain->nr_in++;
		else
			chain->nr_out++;
		address += here;
		bytes -= (uint32_t)here;
	}
	return NULL;
}

/* The descriptors of a table of a packed ring follow each other. */
static const char *add_packed(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
			      uint64_t address, uint32_t nr)
{
	const char *why = NULL;

	for (uint32_t i = 0; i < nr && !why; i++) {
		struct vring_packed_desc desc;

		if (!memory_read(&vhost->memory, address + i * sizeof(desc), &desc, sizeof(desc)))
			return "a table outside of the guest's memory";
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return "a table in a table";
		why = chain_add(vhost, queue, chain, desc.addr, desc.len,
				desc.flags & VRING_DESC_F_WRITE);
	}
	return why;
}

static const char *add_split(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
			     uint64_t address, uint32_t nr)
{
	struct vring_desc desc = {.flags = VRING_DESC_F_NEXT};

	for (uint32_t count = 0; desc.flags & VRING_DESC_F_NEXT; count++) {
		const char *why;

		if (count == nr)
			return "a table with a loop";
		if (desc.next >= nr)
			return "a next descriptor outside of the table";
		if (!memory_read(&vhost->memory, address + desc.next * sizeof(desc), &desc,
				 sizeof(desc)))
			return "a table outside of the guest's memory";
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return "a table in a table";
		why = chain_add(vhost, queue, chain, desc.addr, desc.len,
				desc.flags & VRING_DESC_F_WRITE);
		if (why)
			return why;
	}
	return NULL;
}

const char *chain_add_table(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
			    uint64_t address, uint32_t bytes, bool packed)
{
	uint32_t nr = bytes / sizeof(struct vring_desc);

	_Static_assert(sizeof(struct vring_desc) == sizeof(struct vring_packed_desc),
		       "tables of both layouts count alike");
	if (!has_feature(vhost, VIRTIO_RING_F_INDIRECT_DESC))
		return "a table, which was not negotiated";
	if (!nr || bytes % sizeof(struct vring_desc))
		return "a table that is not a number of descriptors";
	if (nr > VHOST_MAX_RING)
		return "a table of too many descriptors";
	if (address > UINT64_MAX - bytes)
		return "a table outside of the guest's memory";
	return packed ? add_packed(vhost, queue, chain, address, nr)
		      : add_split(vhost, queue, chain, address, nr);
}
