/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vhost-user front end with a virtio-blk driver on top, for tests and the bench: it plays QEMU
 * and the guest at once, without a VM. Written against the specifications alone, not against
 * hyp/vhost: its wire structures and its ring code are its own.
 *
 * A struct vu belongs to one thread at a time. Functions return 0 or a negated errno unless they
 * say otherwise; what the back end did wrong is also said in a line on stderr.
 */
#ifndef TMEMD_TESTS_VHOST_USER_H
#define TMEMD_TESTS_VHOST_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VU_MAX_QUEUES 8
#define VU_MAX_RING 1024    /* descriptors of a queue */
#define VU_MAX_SEGMENTS 250 /* of the data of one request */
#define VU_MEMORIES 3	    /* files that the guest's memory is made of */

struct vu_options {
	bool packed;	   /* packed rings (when offered; -ENOTSUP if not) */
	bool no_indirect;  /* do not use indirect descriptors */
	bool no_event_idx; /* do not use event indexes */
	bool memory_slots; /* hand memory over by ADD_MEM_REG, not SET_MEM_TABLE */
	bool no_inflight;  /* do not use in-flight tracking */
	bool no_reply_ack; /* do not ask for an acknowledgement of each message */
	unsigned queues;   /* default 1 */
	unsigned ring;	   /* descriptors of a queue, a power of two, default 128 */
	size_t data_bytes; /* of the guest's memory for data, default 8 MiB */
};

struct vu; /* a guest with one disk */

/*
 * Connects, negotiates, hands over memory and queues, starts them. -ENOTSUP: the back end does not
 * offer what the options ask for; -EREMOTEIO: it refused a message; -ECONNRESET: it hung up;
 * -ETIMEDOUT: no answer for 10 s.
 */
int vu_open(struct vu **vu, const char *socket, const struct vu_options *options);

/*
 * As QEMU does after a crash of the back end: a new connection, same memory, rings and in-flight
 * record, with whatever was in flight. The position of split rings is that of the used ring; for
 * packed rings it is the stale one of the first start, from which only the in-flight record helps.
 * Tries for `timeout_ms`, then returns why the last try failed.
 *
 * A driver that sleeps does not know of all this. So when the former back end completed requests
 * and died before it said so, the new one must say it: -EPROTO when it does not within 5 s.
 */
int vu_reconnect(struct vu *vu, unsigned timeout_ms);

/*
 * Orderly: waits up to 10 s for what is in flight, then GET_VRING_BASE of all queues, then away.
 * -EPROTO when a position that comes back is not where the ring is. The vu is gone in any case.
 */
int vu_close(struct vu *vu);

/* Just away, as when a VM is killed. NULL is allowed. */
void vu_kill(struct vu *vu);

/*
 * The guest's memory for data. It lies in two files that follow each other in guest addresses: data
 * across the middle is one piece for the guest and two for the back end.
 */
uint8_t *vu_data(struct vu *vu);
size_t vu_data_bytes(const struct vu *vu);

uint64_t vu_features(const struct vu *vu); /* that were negotiated */
unsigned vu_max_queues(const struct vu *vu);
int vu_get_config(struct vu *vu, uint32_t offset, void *data, uint32_t len);
int vu_set_config(struct vu *vu, uint32_t offset, const void *data, uint32_t len);

/* Whether the back end has said, since the last call, that the configuration space changed. */
bool vu_config_changed(struct vu *vu);

/* A request; data by offset in vu_data(). Type: VIRTIO_BLK_T_* of <linux/virtio_blk.h>. */
struct vu_request {
	uint32_t type;
	uint64_t sector; /* 512 bytes; also of the one range of a discard or write-zeroes */
	uint32_t bytes;	 /* of data; of the range of a discard or write-zeroes */
	size_t offset;
	unsigned segments; /* data is cut into so many of uneven lengths, default 1 */
	uint32_t flags;	   /* of the range of a discard or write-zeroes */
	void *cookie;
};

/* Of the data of one request: with header and status no more than the ring has descriptors. */
unsigned vu_max_segments(const struct vu *vu);

/* 0; -EAGAIN no room in the ring: reap first; -EINVAL. Does not kick. */
int vu_submit(struct vu *vu, unsigned queue, const struct vu_request *request);

/* Kicks if the device asks for it. */
void vu_kick(struct vu *vu, unsigned queue);

/*
 * One completion, waited for up to timeout_ms (0: just looks; else spins a little, then sleeps on
 * the call eventfd). 1 with cookie and the request's status byte; 0 none; -ECONNRESET the back end
 * went away meanwhile: vu_reconnect(); -EPROTO the device broke the protocol: completed what is not
 * in flight, twice, out of range, without a status, or without a call where one was asked for.
 */
int vu_reap(struct vu *vu, unsigned queue, unsigned timeout_ms, void **cookie, uint8_t *status);

/* One request, submitted, kicked and waited for (10 s). Its status byte, or a negated errno. */
int vu_do(struct vu *vu, unsigned queue, const struct vu_request *request);

unsigned vu_in_flight(const struct vu *vu, unsigned queue);

/* Monotonic time. */
uint64_t vu_now_ms(void);

/* How often the driver kicked, and slept until the device called. */
uint64_t vu_kicks(const struct vu *vu, unsigned queue);
uint64_t vu_calls(const struct vu *vu, unsigned queue);

/* ---- For hostile tests: below the driver ---------------------------------------------------- */

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

int vu_socket(struct vu *vu);

/*
 * One message with up to 16 file descriptors as it is; no checks, and `size` goes to the header
 * even when `payload` is NULL (then nothing follows). Does not wait: -EAGAIN the socket is full;
 * -ECONNRESET the other side has gone.
 */
int vu_send_raw(int socket, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
		const int *fds, unsigned nr_fds);

/*
 * Header and payload of the next message from the back end; -ETIMEDOUT, -ECONNRESET, -EMSGSIZE.
 * Descriptors that come along are closed.
 */
int vu_receive_raw(int socket, uint32_t *request, uint32_t *flags, void *payload, uint32_t room,
		   uint32_t *size, unsigned timeout_ms);

/* A message as the driver sends it: with acknowledgement when that was negotiated. */
int vu_tell(struct vu *vu, uint32_t request, const void *payload, uint32_t size, const int *fds,
	    unsigned nr_fds);

uint8_t *vu_ring_memory(struct vu *vu, unsigned queue,
			size_t *bytes); /* all of the queue's parts */

/* The index of the available ring of a split queue. */
uint16_t *vu_avail_index(struct vu *vu, unsigned queue);

/* Files of the guest's memory (rings, first and second half of data) and of the in-flight record.
 */
int vu_memory_fd(struct vu *vu, unsigned memory);
void vu_memory_region(struct vu *vu, unsigned memory, struct vu_region *region);
int vu_inflight_fd(struct vu *vu, struct vu_inflight *inflight); /* -1 none */

struct vu_descriptor {
	uint64_t addr; /* of the guest */
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

#define VU_NEXT 1u
#define VU_WRITE 2u
#define VU_INDIRECT 4u

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

/* True when the back end has hung up within timeout_ms. */
bool vu_hung_up(struct vu *vu, unsigned timeout_ms);

uint64_t vu_guest_address(struct vu *vu, size_t offset);	    /* of data */
uint64_t vu_guest_ring_address(struct vu *vu, const void *pointer); /* of vu_ring_memory() */

#endif
