/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two halves of the front end share: the connection and the guest's memory
 * (vhost_user.c), the driver's side of the rings (vhost_ring.c). Tests that are hostile include it
 * as well (tests/lib/vhost_hostile.h).
 *
 * Everything that the driver needs to know of its requests is kept here, never read back from the
 * rings: so it notices what a back end writes there that it should not.
 */
#ifndef TMEMD_VHOST_USER_PRIV_H
#define TMEMD_VHOST_USER_PRIV_H

#include "vhost_user.h"

#include <linux/virtio_blk.h>

/* Requests of the protocol, as sent in messages. */
enum vu_message {
	VU_GET_FEATURES = 1,
	VU_SET_FEATURES = 2,
	VU_SET_OWNER = 3,
	VU_SET_MEM_TABLE = 5,
	VU_SET_LOG_BASE = 6,
	VU_SET_LOG_FD = 7,
	VU_SET_VRING_NUM = 8,
	VU_SET_VRING_ADDR = 9,
	VU_SET_VRING_BASE = 10,
	VU_GET_VRING_BASE = 11,
	VU_SET_VRING_KICK = 12,
	VU_SET_VRING_CALL = 13,
	VU_SET_VRING_ERR = 14,
	VU_GET_PROTOCOL_FEATURES = 15,
	VU_SET_PROTOCOL_FEATURES = 16,
	VU_GET_QUEUE_NUM = 17,
	VU_SET_VRING_ENABLE = 18,
	VU_SET_BACKEND_REQ_FD = 21,
	VU_GET_CONFIG = 24,
	VU_SET_CONFIG = 25,
	VU_GET_INFLIGHT_FD = 31,
	VU_SET_INFLIGHT_FD = 32,
	VU_GET_MAX_MEM_SLOTS = 36,
	VU_ADD_MEM_REG = 37,
	VU_REM_MEM_REG = 38,
};

#define VU_VERSION 0x1u
#define VU_REPLY 0x4u
#define VU_NEED_REPLY 0x8u

/* Payloads, as they are on the wire. */
struct vu_state {
	uint32_t index;
	uint32_t num;
};

struct vu_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc; /* user addresses */
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};

struct vu_region {
	uint64_t guest;
	uint64_t bytes;
	uint64_t user;
	uint64_t offset; /* in the file */
};

struct vu_mem_table {
	uint32_t nr;
	uint32_t padding;
	struct vu_region regions[VU_MEMORIES];
};

struct vu_mem_reg {
	uint64_t padding;
	struct vu_region region;
};

struct vu_inflight {
	uint64_t mmap_bytes;
	uint64_t mmap_offset;
	uint16_t queues;
	uint16_t ring;
} __attribute__((packed));

#define VU_MAX_DESCRIPTORS (VU_MAX_SEGMENTS + 2) /* header, data, status */
#define VU_STATUS_NONE 0xff			 /* before the device has written one */

/* Feature bits, virtio 1.2 section 6, and the one that vhost-user borrows. */
#define VU_F_INDIRECT (1ull << 28)
#define VU_F_EVENT_IDX (1ull << 29)
#define VU_F_PROTOCOL (1ull << 30)
#define VU_F_VERSION_1 (1ull << 32)
#define VU_F_PACKED (1ull << 34)

struct vu_descriptor {
	uint64_t addr; /* of the guest */
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

#define VU_NEXT 1u
#define VU_WRITE 2u
#define VU_INDIRECT 4u

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

/*
 * One message with up to 16 file descriptors as it is; no checks, and `size` goes to the header
 * even when `payload` is NULL (then nothing follows). Does not wait: -EAGAIN the socket is full;
 * -ECONNRESET the other side has gone.
 */
int vu_send_raw(int socket, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
		const int *fds, unsigned nr_fds);

struct vu_header {
	uint32_t request;
	uint32_t flags;
	uint32_t size;
};

/*
 * The next message: header, and a payload of at most `room`. A descriptor that comes along goes to
 * *fd, which is -1 otherwise. -ETIMEDOUT, -ECONNRESET, -EMSGSIZE.
 */
int vu_receive(int socket, struct vu_header *h, void *payload, uint32_t room, int *fd,
	       unsigned timeout_ms);

/* A message as the driver sends it: with acknowledgement when that was negotiated. */
int vu_tell(struct vu *vu, uint32_t request, const void *payload, uint32_t size, const int *fds,
	    unsigned nr_fds);

/* True when the back end has hung up within timeout_ms. */
bool vu_hung_up(struct vu *vu, unsigned timeout_ms);

/* Tells the caller's options.complain, if there is one. Returns -EPROTO. */
int __attribute__((format(printf, 2, 3))) vu_complain(const struct vu *vu, const char *fmt, ...);

/* Bytes that a queue takes in the guest's memory, whole pages. */
size_t vu_queue_bytes(unsigned size);

/* Lays the queue out in that memory, zeroed, and empty. */
int vu_queue_init(struct vu_queue *q, unsigned size, uint8_t *memory, uint64_t guest,
		  uint64_t features);
void vu_queue_free(struct vu_queue *q);

/* A completion is there. */
bool vu_queue_visible(const struct vu_queue *q);

/* What the driver's functions are made of: publishing, kicking, and what was used. */
void vu_split_publish(struct vu_queue *q, uint16_t head);
void vu_packed_put(struct vu_queue *q, const struct vu_descriptor *descs, unsigned nr);
void vu_ring_kick(struct vu_queue *q);
void vu_used_entry(const struct vu_queue *q, uint32_t *id, uint32_t *len);
void vu_packed_advance(struct vu_queue *q, unsigned count);

/* What SET_VRING_BASE says: at the first start, and after the back end died. */
uint32_t vu_queue_base(const struct vu_queue *q, bool again);

/* Whether a base from GET_VRING_BASE says where the ring is, with nothing in flight. */
bool vu_queue_base_is(const struct vu_queue *q, uint32_t base);

#endif
