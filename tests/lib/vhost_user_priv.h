/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two halves of the front end share: the connection and the guest's memory
 * (vhost_user.c), the driver's side of the rings (vhost_ring.c).
 *
 * Everything that the driver needs to know of its requests is kept here, never read back from the
 * rings: so it notices what a back end writes there that it should not.
 */
#ifndef TMEMD_TESTS_VHOST_USER_PRIV_H
#define TMEMD_TESTS_VHOST_USER_PRIV_H

#include "vhost_user.h"

#include <linux/virtio_blk.h>

#define VU_MAX_DESCRIPTORS (VU_MAX_SEGMENTS + 2) /* header, data, status */
#define VU_STATUS_NONE 0xff			 /* before the device has written one */

/* Feature bits, virtio 1.2 section 6, and the one that vhost-user borrows. */
#define VU_F_INDIRECT (1ull << 28)
#define VU_F_EVENT_IDX (1ull << 29)
#define VU_F_PROTOCOL (1ull << 30)
#define VU_F_VERSION_1 (1ull << 32)
#define VU_F_PACKED (1ull << 34)

/* The parts of a request that are not data: in the guest's memory, one for each id. */
struct vu_slot {
	struct virtio_blk_outhdr header;
	struct virtio_blk_discard_write_zeroes range;
	uint8_t status;
	uint8_t padding[31];
	struct vu_descriptor table[VU_MAX_DESCRIPTORS]; /* indirect */
};

/* A request, by its id: of the head descriptor (split) or the buffer (packed). */
struct vu_flight {
	bool in_flight;
	uint16_t count;	   /* of descriptors in the ring */
	uint32_t writable; /* bytes */
	void *cookie;
};

struct vu_queue {
	unsigned size; /* descriptors */
	bool packed;
	bool indirect;
	bool event_idx;

	/* In the guest's memory. avail and used of a packed ring: event suppression structures. */
	uint8_t *memory;
	size_t bytes;
	struct vu_descriptor *desc;
	void *avail;
	void *used;
	struct vu_slot *slots;
	uint64_t slots_guest; /* its guest address */

	/* The driver's own. Free descriptors (split) or buffer ids (packed) are a stack. */
	struct vu_flight *flights;
	uint16_t *free;
	uint16_t *link; /* split: the next of the same request */
	unsigned nr_free;
	unsigned nr_free_descs; /* packed: places in the ring */
	unsigned nr_in_flight;
	uint16_t next_avail; /* split: free-running; packed: below size */
	uint16_t next_used;
	bool avail_wrap; /* packed */
	bool used_wrap;
	uint16_t since_kick; /* ring entries made available since the last look at the device's wish
			      */
	bool armed;	     /* the device was asked to call for the next completion */
	uint64_t kicks;
	uint64_t calls;

	int kick; /* eventfds */
	int call;
	int err;
};

struct vu_memory {
	int fd;
	uint8_t *base;
	struct vu_region region;
};

struct vu {
	struct vu_options options;
	char path[108];
	int socket;
	int backend[2]; /* the back end's own channel: our end, and what it was given */
	uint64_t features;
	uint64_t protocol;
	unsigned max_queues;
	struct vu_memory memories[VU_MEMORIES]; /* rings, first and second half of data */
	uint8_t *data;
	int inflight_fd;
	struct vu_inflight inflight;
	struct vu_queue queues[VU_MAX_QUEUES];
};

/* Bytes that a queue takes in the guest's memory, whole pages. */
size_t vu_queue_bytes(unsigned size);

/* Lays the queue out in that memory, zeroed, and empty. */
int vu_queue_init(struct vu_queue *q, unsigned size, uint8_t *memory, uint64_t guest,
		  uint64_t features);
void vu_queue_free(struct vu_queue *q);

/* A completion is there. */
bool vu_queue_visible(const struct vu_queue *q);

/* What SET_VRING_BASE says: at the first start, and after the back end died. */
uint32_t vu_queue_base(const struct vu_queue *q, bool again);

/* Whether a base from GET_VRING_BASE says where the ring is, with nothing in flight. */
bool vu_queue_base_is(const struct vu_queue *q, uint32_t base);

#endif
