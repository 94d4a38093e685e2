/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The other side of the vhost room for its unit tests: a front end that may send any bytes, and a
 * driver that may put anything into its rings. One thread: what is sent is handled at once.
 */
#ifndef TMEMD_TESTS_VHOST_PEER_H
#define TMEMD_TESTS_VHOST_PEER_H

#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stdint.h>

#include "vhost/vhost.h"

#define BIT(n) (1ull << (n))

/*
 * Guest memory: two regions of one file, side by side in the guest, apart in the front end. The
 * second begins in the middle of a page of the file.
 */
#define LOW_GUEST 0x100000ull
#define LOW_BYTES 0x100000ull
#define LOW_USER 0x7f0000000000ull
#define HIGH_GUEST (LOW_GUEST + LOW_BYTES)
#define HIGH_BYTES 0x10000ull
#define HIGH_USER 0x7e0000000000ull
#define HIGH_OFFSET (LOW_BYTES + 0x800)
#define FILE_BYTES 0x120000ull

#define DATA (LOW_GUEST + 0x80000ull) /* guest address of memory without rings */

#define F_PROTOCOL BIT(30)
#define P_OFFERED 0x1b22bull /* all protocol features that are offered */
#define P_REPLY_ACK BIT(3)

#define INSTANCE 0x1122334455667788ull
#define QUEUES 2

struct peer {
	struct vhost *vhost;
	int sock; /* the front end's side */
	int file;
	uint8_t *memory; /* all of the file */
	uint64_t protocol;

	/* What the device heard. */
	int kicks[QUEUES];
	unsigned kick_changes;
	uint8_t config[VHOST_MAX_CONFIG];
	uint32_t written_offset;
	uint32_t written_bytes;

	int r; /* of the last vhost_input() */
	char err[256];
};

/* A connection; then protocol features, features, memory. All assert what they do. */
void peer_open(struct peer *peer);
void peer_negotiate(struct peer *peer, uint64_t features);
void peer_close(struct peer *peer);

/* The same front end, memory and rings with a new back end, of another instance perhaps. */
void peer_reopen(struct peer *peer, uint64_t instance);

/*
 * What vhost_save() tells, with descriptors of its own; then the back end dies, or
 * vhost_restore(): its result, in peer->r, too. There is no back end when that failed.
 */
bool peer_save(struct peer *peer, struct vhost_saved *saved);
void peer_die(struct peer *peer);
int peer_restore(struct peer *peer, const struct vhost_saved *saved, uint64_t instance);

/* All three, which have to succeed. */
void peer_take_over(struct peer *peer);

/* Sends bytes as they are; vhost_input() until nothing is left to do or it fails: peer->r. */
void peer_send(struct peer *peer, const void *bytes, size_t size, const int *fds, unsigned nr_fds);

/* A message; flags beside the version. */
int peer_say(struct peer *peer, uint32_t request, uint32_t flags, const void *payload,
	     uint32_t size, const int *fds, unsigned nr_fds);

/* The reply: its bytes of payload, or -1: there is none. *fd: a descriptor that came, or -1. */
int peer_hear(struct peer *peer, uint32_t request, void *payload, uint32_t max, int *fd);

/* A message with NEED_REPLY: 0 it was done, 1 refused, -1 no answer. */
int peer_do(struct peer *peer, uint32_t request, const void *payload, uint32_t size, int fd);
int peer_do_u64(struct peer *peer, uint32_t request, uint64_t value, int fd);
int peer_do_state(struct peer *peer, uint32_t request, uint32_t index, uint32_t num);
uint64_t peer_ask_u64(struct peer *peer, uint32_t request);

struct region {
	uint64_t guest, bytes, user, offset;
};
int peer_set_table(struct peer *peer, const struct region *regions, const int *fds, unsigned nr);
int peer_slot(struct peer *peer, uint32_t request, const struct region *region, int fd);
extern const struct region low_region, high_region;
int peer_give_memory(struct peer *peer);

/* Where a guest address is in our own mapping. */
void *at_guest(struct peer *peer, uint64_t address);

/* How many descriptors this process has open. */
unsigned open_fds(void);
int make_file(uint64_t bytes);

/* ---- The driver ----------------------------------------------------------------------------- */

struct driver {
	struct peer *peer;
	unsigned queue;
	bool packed;
	uint16_t num;
	uint64_t desc, avail, used; /* offsets in the low region */
	uint16_t slot;		    /* next free descriptor */
	uint16_t idx;		    /* split: avail index */
	bool wrap;		    /* packed: of slot */
	uint16_t seen;		    /* used entries seen, or the place of the next one */
	bool seen_wrap;
	uint16_t lengths[1024]; /* packed: descriptors of the chain that begins there */
	int kick, call, err;
};

void driver_init(struct driver *driver, struct peer *peer, unsigned queue, uint16_t num,
		 bool packed);
void driver_close(struct driver *driver);

/* NUM, ADDR, BASE, KICK, CALL, ERR, ENABLE. */
void driver_set_up(struct driver *driver, uint32_t base);
int driver_set_addr(struct driver *driver, uint32_t flags, uint64_t log);

struct piece {
	uint64_t address;
	uint32_t bytes;
	uint16_t flags; /* VRING_DESC_F_WRITE, VRING_DESC_F_INDIRECT, and what is wrong */
	int next;	/* split: instead of the following one; 0: that */
};

/* Makes a chain available; returns its id. */
uint16_t driver_add(struct driver *driver, const struct piece *pieces, unsigned nr);

/* Writes a table of descriptors at a guest address. */
void driver_table(struct driver *driver, uint64_t address, const struct piece *pieces, unsigned nr);

/* The next completion; false: there is none. */
bool driver_used(struct driver *driver, uint16_t *id, uint32_t *written);

struct vring_desc *split_desc(struct driver *driver);
struct vring_avail *split_avail(struct driver *driver);
struct vring_used *split_used(struct driver *driver);
struct vring_packed_desc *packed_desc(struct driver *driver);
struct vring_packed_desc_event *packed_driver_event(struct driver *driver);
struct vring_packed_desc_event *packed_device_event(struct driver *driver);

#endif
