/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Below the driver of tools/vhost: messages and descriptors of the caller's own making, and the
 * parts of which a front end consists. For tests that do what no front end should.
 */
#ifndef TMEMD_TESTS_VHOST_HOSTILE_H
#define TMEMD_TESTS_VHOST_HOSTILE_H

#include "tools/vhost/vhost_user_priv.h"

int vu_socket(struct vu *vu);

/*
 * Header and payload of the next message from the back end; -ETIMEDOUT, -ECONNRESET, -EMSGSIZE.
 * Descriptors that come along are closed.
 */
int vu_receive_raw(int socket, uint32_t *request, uint32_t *flags, void *payload, uint32_t room,
		   uint32_t *size, unsigned timeout_ms);

uint8_t *vu_ring_memory(struct vu *vu, unsigned queue,
			size_t *bytes); /* all of the queue's parts */

/* The index of the available ring of a split queue. */
uint16_t *vu_avail_index(struct vu *vu, unsigned queue);

/* Files of the guest's memory (rings, first and second half of data) and of the in-flight record.
 */
int vu_memory_fd(struct vu *vu, unsigned memory);
void vu_memory_region(struct vu *vu, unsigned memory, struct vu_region *region);
int vu_inflight_fd(struct vu *vu, struct vu_inflight *inflight); /* -1 none */

/*
 * Puts descriptors of the caller's own making into the ring, as they are. Split: into the table
 * from its beginning, and `head` becomes available. Packed: at the ring's position; of each, `next`
 * is the buffer id, and the bits that make it available are added. Kicks always, and touches
 * nothing of the guest's memory when `nr` is 0. Not to be mixed with requests of the driver in
 * flight.
 */
int vu_submit_raw(struct vu *vu, unsigned queue, const struct vu_descriptor *descriptors,
		  unsigned nr, uint16_t head);

/*
 * The next used entry, whatever it says: 1, or 0 none within timeout_ms. For vu_submit_raw(); in a
 * packed ring it stands for `count` descriptors.
 */
int vu_reap_raw(struct vu *vu, unsigned queue, unsigned timeout_ms, unsigned count, uint32_t *id,
		uint32_t *len);

/* Whether the back end has said within timeout_ms, by the error eventfd, that the queue is broken.
 */
bool vu_broken(struct vu *vu, unsigned queue, unsigned timeout_ms);

uint64_t vu_guest_address(struct vu *vu, size_t offset);	    /* of data */
uint64_t vu_guest_ring_address(struct vu *vu, const void *pointer); /* of vu_ring_memory() */

#endif
