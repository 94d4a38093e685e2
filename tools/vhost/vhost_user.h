/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vhost-user front end with a virtio-blk driver on top: it is QEMU and the guest at once, without
 * a VM. For programs of the host that use a disk (vhost_disk.h is for many threads), tests and the
 * bench. Written against the specifications alone, not against hyp/vhost: its wire structures and
 * its ring code are its own.
 *
 * A struct vu belongs to one thread at a time. Functions return 0 or a negated errno unless they
 * say otherwise; they print nothing and never end the process.
 */
#ifndef TMEMD_VHOST_USER_H
#define TMEMD_VHOST_USER_H

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

	/* Is told in one line, without newline, what the back end did wrong; may be NULL. */
	void (*complain)(const char *line);
};

struct vu; /* a guest with one disk */

/*
 * Connects, negotiates, hands over memory and queues, starts them. -ENOTSUP: the back end does not
 * offer what the options ask for; -EREMOTEIO: it refused a message; -ECONNRESET: it hung up;
 * -EBUSY: it hung up before its first answer, as tmemd does when the disk has another front end;
 * -ETIMEDOUT: no answer for 10 s. Whatever connect(2) says: nobody listens there.
 */
int vu_open(struct vu **vu, const char *socket, const struct vu_options *options);

/*
 * As QEMU does after a crash of the back end: a new connection, same memory, rings and in-flight
 * record, with whatever was in flight. The position of split rings is that of the used ring; for
 * packed rings it is the stale one of the first start, from which only the in-flight record helps.
 * Tries for `timeout_ms`, at least once, then returns why the last try failed. -ESTALE: the back
 * end hung up when it saw the in-flight record. It has died just then, or it has not the content
 * any more that this front end was using.
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

/* Ends the connection; the back end sees the end of it, and so does vu_wait(). */
void vu_hang_up(struct vu *vu);

/* Locks rings and data in memory, mlock(2). */
int vu_lock_memory(struct vu *vu);

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

/*
 * The parts of vu_reap() for who shares a vu between threads under a lock of his own.
 *
 * vu_arm() asks the device to call at the next completion, and returns whether there is one
 * already. vu_wait() sleeps until it calls: 1; 0 not within timeout_ms (negative: for ever);
 * -ECONNRESET the back end went away. vu_wait() alone needs no lock: it may run beside all others
 * but vu_reconnect(), vu_close() and vu_kill(); vu_interrupt() lets it return 1.
 */
bool vu_arm(struct vu *vu, unsigned queue);
int vu_wait(struct vu *vu, unsigned queue, int timeout_ms);
void vu_interrupt(struct vu *vu, unsigned queue);

/* One request, submitted, kicked and waited for (10 s). Its status byte, or a negated errno. */
int vu_do(struct vu *vu, unsigned queue, const struct vu_request *request);

unsigned vu_in_flight(const struct vu *vu, unsigned queue);

/* Monotonic time. */
uint64_t vu_now_ms(void);

/* How often the driver kicked, and slept until the device called. */
uint64_t vu_kicks(const struct vu *vu, unsigned queue);
uint64_t vu_calls(const struct vu *vu, unsigned queue);

#endif
