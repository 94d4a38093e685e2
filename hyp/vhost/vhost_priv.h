/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the vhost room share. Threads: see vhost.h; functions here are exclusive unless
 * their comment says "queue".
 *
 * Rings and descriptors may be changed by the guest at any time: each word is read once, by the
 * macros below or by memory_read(), into memory of our own, and checked there.
 */
#ifndef TMEMD_VHOST_PRIV_H
#define TMEMD_VHOST_PRIV_H

#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vhost/vhost.h"

/* Since virtio 1.0 rings are little-endian, whatever the guest is. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "big-endian hosts would need swaps");

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)
#define FULL_BARRIER() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#define BIT(n) (1ull << (n))

/* ---- The wire ------------------------------------------------------------------------------- */

#define WIRE_MAX_PAYLOAD 4096
#define WIRE_MAX_FDS 8
#define WIRE_TABLE_REGIONS 8 /* of one SET_MEM_TABLE */

/* Flags of a message. */
#define WIRE_VERSION 1u
#define WIRE_VERSION_MASK 3u
#define WIRE_REPLY 4u
#define WIRE_NEED_REPLY 8u

/* Beside the index of a queue. */
#define WIRE_QUEUE_MASK 0xffull
#define WIRE_NO_FD 0x100ull

#define VHOST_USER_F_PROTOCOL_FEATURES 30

enum protocol_feature {
	PROTOCOL_MQ = 0,
	PROTOCOL_LOG_SHMFD = 1,
	PROTOCOL_REPLY_ACK = 3,
	PROTOCOL_BACKEND_REQ = 5,
	PROTOCOL_CONFIG = 9,
	PROTOCOL_INFLIGHT_SHMFD = 12,
	PROTOCOL_RESET_DEVICE = 13,
	PROTOCOL_CONFIGURE_MEM_SLOTS = 15,
	PROTOCOL_STATUS = 16,
};

/* A piece of guest memory: `bytes` at `offset` of a file. */
struct wire_region {
	uint64_t guest; /* address in the guest */
	uint64_t bytes;
	uint64_t user; /* address in the front end */
	uint64_t offset;
};

struct wire_inflight {
	uint64_t bytes;
	uint64_t offset;
	uint16_t queues;
	uint16_t queue_size;
	uint32_t padding; /* some front ends leave it out */
};
#define WIRE_INFLIGHT_MIN offsetof(struct wire_inflight, padding)

struct wire_config {
	uint32_t offset;
	uint32_t bytes;
	uint32_t flags;
	uint8_t space[VHOST_MAX_CONFIG];
};
#define WIRE_CONFIG_MIN offsetof(struct wire_config, space)

struct wire_header {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* of the payload */
};

union wire_payload {
	uint64_t u64;
	struct vhost_vring_state state;
	struct vhost_vring_addr addr;
	struct {
		uint32_t nr;
		uint32_t padding;
		struct wire_region regions[WIRE_TABLE_REGIONS];
	} table;
	struct {
		uint64_t padding;
		struct wire_region region;
	} slot;
	struct {
		uint64_t bytes;
		uint64_t offset;
	} log;
	struct wire_config config;
	struct wire_inflight inflight;
	uint8_t bytes[WIRE_MAX_PAYLOAD];
};

struct message {
	struct wire_header header;
	union wire_payload payload;
	size_t have;	       /* bytes of header and payload that have come */
	int fds[WIRE_MAX_FDS]; /* ours to close; -1: somebody took it */
	unsigned nr_fds;
};

/* ---- memory.c: files of the front end mapped here ------------------------------------------- */

struct mapping {
	uint8_t *base; /* of the bytes that were asked for; NULL: none */
	int fd;	       /* of the file, for vhost_save() */
	void *map;     /* the whole of it */
	size_t map_bytes;
	_Atomic bool *lost; /* see sigbus.h */
};

/*
 * Maps a part of a file, shared, neither locked nor dumped. The descriptor (-1: there is none,
 * which is wrong) is the mapping's from now on, or closed. NULL, or what is wrong.
 */
const char *mapping_open(struct mapping *mapping, int fd, uint64_t offset, uint64_t bytes);

/* True when the memory was lost meanwhile. Twice-callable. */
bool mapping_close(struct mapping *mapping);

static inline bool mapping_lost(const struct mapping *mapping)
{
	return mapping->base && atomic_load_explicit(mapping->lost, memory_order_relaxed);
}

struct slot {
	struct wire_region at;
	struct mapping mapping;
};

/* The guest's memory; slots do not overlap in guest addresses, nor in those of the front end. */
struct memory {
	unsigned nr;
	struct slot slots[VHOST_MAX_SLOTS];
};

/* NULL, or what is wrong; then nothing has changed. The descriptor as in mapping_open(). */
const char *memory_add(struct memory *memory, const struct wire_region *region, int fd);

/* The caller sees that nobody uses the memory any more. *lost is set when it was lost. */
const char *memory_remove(struct memory *memory, const struct wire_region *region, bool *lost);
void memory_clear(struct memory *memory, bool *lost);

/* Queue. Where a guest address is, and how many bytes follow there in one piece; NULL: nowhere. */
uint8_t *memory_guest(const struct memory *memory, uint64_t address, uint64_t *bytes);

/* The same of an address of the front end, with the guest address. */
uint8_t *memory_user(const struct memory *memory, uint64_t address, uint64_t bytes,
		     uint64_t *guest);

/* Queue. Copies from guest addresses, once. False: they are not all there. */
bool memory_read(const struct memory *memory, uint64_t address, void *to, size_t bytes);

/* Copies what others may change; what is copied is not looked at again there. */
static inline void copy_once(void *to, const void *from, size_t bytes)
{
	__builtin_memcpy(to, from, bytes);
	__asm__ volatile("" ::: "memory");
}

/* ---- Queues --------------------------------------------------------------------------------- */

struct vhost;
struct queue;

/* Of a split ring: free-running. Of a packed ring: index and wrap counter. */
struct position {
	uint16_t index;
	bool wrap;
};

static inline bool position_same(struct position a, struct position b)
{
	return a.index == b.index && a.wrap == b.wrap;
}

/* What differs between the two layouts of a ring. Functions of a queue that runs, unless said. */
struct layout {
	/* Bytes of the three parts, and how each is aligned. */
	size_t desc_bytes, avail_bytes, used_bytes; /* for no descriptor */
	size_t desc_each, avail_each, used_each;    /* for each */
	unsigned desc_align, avail_align, used_align;

	/* Between positions and SET_VRING_BASE's number. */
	struct position (*decode)(uint32_t base);
	uint32_t (*encode)(struct position at);

	/* The ring's parts are there: where does it start? NULL, or what is wrong. */
	const char *(*start)(struct vhost *vhost, struct queue *queue, struct position base,
			     struct position *at);

	struct position (*after)(const struct queue *queue, struct position at, unsigned count);
	bool (*pending)(const struct queue *queue);

	/* 1: a chain; 0: there is none; -EPROTO with *why. */
	int (*pop)(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
		   const char **why);
	void (*push)(struct vhost *vhost, struct queue *queue, const struct vhost_chain *chain,
		     uint32_t written);

	/*
	 * The descriptor of the request at *at, where its table begins or else its first piece is,
	 * and *at moves behind it. False: there is none, or it is wrong.
	 */
	bool (*peek)(const struct queue *queue, struct position *at, struct vring_desc *desc);

	/* Does the guest want to hear of the last `count` completed descriptors? */
	bool (*wants_call)(const struct vhost *vhost, const struct queue *queue, unsigned count);
	void (*arm)(struct vhost *vhost, struct queue *queue, bool on);
};

extern const struct layout split_layout, packed_layout;

struct queue {
	unsigned index;

	/* What the front end said. */
	uint32_t num; /* descriptors; 0: not said */
	bool addressed;
	struct vhost_vring_addr addr;
	bool based;
	uint32_t base; /* where to start, as SET_VRING_BASE has it */
	bool kickable; /* SET_VRING_KICK came, perhaps without a descriptor */
	bool enabled;
	int kick, call, error; /* -1: none */

	/* How it goes. */
	bool running;
	bool broken;
	bool error_untold;
	bool popped;	       /* one request is out */
	bool call_anyway;      /* what the guest was told last is not known */
	uint32_t uncalled;     /* completed descriptors since the guest was called */
	struct position used;  /* of the first request that is not completed */
	struct position avail; /* of the first that is not popped */
	void *record;	       /* its part of the in-flight record; NULL: none */

	/* The ring, valid while it runs. */
	const struct layout *layout;
	uint8_t *ring_desc, *ring_avail, *ring_used;
	uint64_t desc_guest; /* the guest address of ring_desc */

	/* Guest addresses of the segments of the request that is out. */
	uint64_t addresses[VHOST_MAX_SEGMENTS];
};

struct vhost {
	struct vhost_device device;
	int connection;
	int backend; /* for our own requests; -1: none */
	struct message in;

	/* Of the present vhost_input(). */
	char *err;
	size_t errlen;

	uint64_t features; /* negotiated */
	uint64_t protocol; /* protocol features, negotiated */
	bool refused;	   /* the last SET_FEATURES */
	uint8_t status;

	bool lost; /* of memory that is not mapped any more */
	struct memory memory;
	struct queue queues[VHOST_MAX_QUEUES];

	struct mapping log;
	uint64_t log_bytes;
	uint64_t log_offset; /* in its file */

	struct mapping inflight;
	struct wire_inflight inflight_is; /* what is mapped */
};

static inline bool has_feature(const struct vhost *vhost, unsigned bit)
{
	return vhost->features & BIT(bit);
}

/* ---- chain.c: queue ------------------------------------------------------------------------- */

/* Each appends to the chain what a descriptor names. NULL, or what is wrong. */
const char *chain_add(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
		      uint64_t address, uint32_t bytes, bool write);
const char *chain_add_table(struct vhost *vhost, struct queue *queue, struct vhost_chain *chain,
			    uint64_t address, uint32_t bytes, bool packed);

/* ---- queue.c -------------------------------------------------------------------------------- */

void queue_init(struct queue *queue, unsigned index);

/* After each message: lets queues run that can, and stops the others. */
void queues_update(struct vhost *vhost);

/* It runs no more; where it was becomes its base. Twice-callable. */
void queue_stop(struct queue *queue);

/* Also forgets its kick and that it was broken: it runs when it has a new kick. */
void queue_end(struct vhost *vhost, struct queue *queue);

/* Guest memory goes: what is out comes again. */
void queues_forget(struct vhost *vhost);

/* A new kick eventfd, which is the queue's from now on; -1: none. */
void queue_set_kick(struct vhost *vhost, struct queue *queue, int kick);

/* ---- setup.c: messages about queues; see struct request in message.c ------------------------ */

int handle_set_vring_num(struct vhost *vhost, struct message *m);
int handle_set_vring_addr(struct vhost *vhost, struct message *m);
int handle_set_vring_base(struct vhost *vhost, struct message *m);
int handle_get_vring_base(struct vhost *vhost, struct message *m);
int handle_set_vring_kick(struct vhost *vhost, struct message *m);
int handle_set_vring_call(struct vhost *vhost, struct message *m);
int handle_set_vring_err(struct vhost *vhost, struct message *m);
int handle_set_vring_enable(struct vhost *vhost, struct message *m);

/* ---- inflight.c: the record that the front end keeps over our death ------------------------- */

int handle_get_inflight_fd(struct vhost *vhost, struct message *m);
int handle_set_inflight_fd(struct vhost *vhost, struct message *m);
void inflight_close(struct vhost *vhost);

/*
 * Maps a record in place of the former one, which goes in any case; one that is too small is left
 * out. The descriptor as in mapping_open(). NULL, or what is wrong.
 */
const char *inflight_open(struct vhost *vhost, const struct wire_inflight *inflight, int fd);

/* Whose content it tells of. 0, or what message_handle() returns; then it is closed. */
int inflight_check(struct vhost *vhost);

/* A part of the record is in use, i.e. says where its queue is. */
bool inflight_in_use(const void *record);

/* The part of a queue in the present layout; NULL: it has none. */
void *inflight_record(struct vhost *vhost, unsigned queue);

/* Queue. For information only: a split ring says itself where it is. */
void inflight_split_begin(struct vhost *vhost, struct queue *queue);
void inflight_split_used(struct queue *queue, uint16_t used);

/*
 * Where a packed ring was. False: the record was not in use. `available`: whether the descriptor at
 * a position is still as the driver made it available.
 */
bool inflight_packed_find(struct queue *queue, struct position *at,
			  bool (*available)(const struct queue *queue, struct position at));
void inflight_packed_begin(struct vhost *vhost, struct queue *queue, struct position at);

/* Queue. Before and after the completion that ends at `to` is published. */
void inflight_packed_intend(struct queue *queue, struct position from, struct position to);
void inflight_packed_settle(struct queue *queue, struct position to);

/* ---- dirty.c: the log of pages written, for migration --------------------------------------- */

int handle_set_log_base(struct vhost *vhost, struct message *m);
void dirty_close(struct vhost *vhost);

/* Maps a log in place of the former one, as mapping_open(); else that one stays. */
const char *dirty_open(struct vhost *vhost, uint64_t offset, uint64_t bytes, int fd);

static inline bool dirty_logging(const struct vhost *vhost)
{
	return vhost->log.base && has_feature(vhost, VHOST_F_LOG_ALL);
}

/* Queue. After the write. */
void dirty_mark(struct vhost *vhost, uint64_t guest, uint64_t bytes);

/* Queue. The first `written` bytes of the in-segments. */
void dirty_chain(struct vhost *vhost, const struct queue *queue, const struct vhost_chain *chain,
		 uint32_t written);

/* Queue. A part of the used ring, or of the device's area of a packed ring. */
static inline bool dirty_ring_wanted(const struct vhost *vhost, const struct queue *queue)
{
	return dirty_logging(vhost) && queue->addr.flags & BIT(VHOST_VRING_F_LOG);
}
void dirty_used(struct vhost *vhost, const struct queue *queue, uint64_t offset, uint64_t bytes);

/* All of a running queue's ring: a former process may have died between a write and its mark. */
void dirty_ring(struct vhost *vhost, const struct queue *queue);

/* ---- message.c, session.c ------------------------------------------------------------------- */

/*
 * Executes the message that has come, and answers it. 0, or a negated errno with the sentence in
 * vhost->err: the connection cannot go on.
 */
int message_handle(struct vhost *vhost);

/* In a handler: logs why, and returns what makes the front end's answer "no". */
int message_refuse(struct vhost *vhost, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets vhost->err; returns `error`. */
int session_fail(struct vhost *vhost, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The i-th descriptor of the message, for the caller to close; -1: there is none. */
int message_take_fd(struct message *m, unsigned i);

/* Others might wait where we must not. */
bool session_is_unix_socket(int fd);

/* What may be negotiated: features, and protocol features. */
uint64_t message_offered(const struct vhost *vhost);
extern const uint64_t message_protocol_offered;

/* Sends without waiting. `fd`: sent along, -1: none. As message_handle(). */
int session_reply(struct vhost *vhost, const void *payload, uint32_t size, int fd);

#endif
