/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Disks: vhost-user-blk. What the files disk*.c and blk.c share.
 *
 * A disk is a client of the store with one persistent pool: block n of 4096 bytes is index n of
 * object 0. Its record is the client's note. The front end (QEMU) comes and goes; the disk and its
 * content stay until they are removed.
 *
 * Locks: front.lock guards the table and everything but what the workers use. These hold disk.lock
 * for reading while they look at the vhost or execute a batch, and give way to the door, which
 * holds it for writing (under front.lock) while it handles messages: so no disk waits for another.
 */
#ifndef TMEMD_DISK_PRIV_H
#define TMEMD_DISK_PRIV_H

#include "front_priv.h"
#include "vhost/vhost.h"

struct virtio_blk_outhdr;

#define DISK_BLOCK TMEM_PAGE_SIZE
#define DISK_SECTORS (DISK_BLOCK / 512) /* of a block; virtio counts in sectors */

/*
 * Blocks that one request may read or write, and that it may discard. Segments and their number
 * are limited in the configuration space so that a driver keeps to the first.
 */
#define DISK_SEGMENT_MAX (128u << 10)
#define DISK_SEGMENTS 126
#define DISK_REQUEST_BLOCKS (DISK_SEGMENTS * DISK_SEGMENT_MAX / DISK_BLOCK)
#define DISK_DISCARD_BLOCKS (32u << 20 >> 12)

struct disk;

/* ---- blk.c: virtio-blk requests (virtio 1.2, section 5.2) ----------------------------------- */

/* How far the execution of a request has come. */
struct blk_request {
	uint32_t type;
	uint8_t status;	  /* that it will have */
	uint64_t block;	  /* the first one */
	uint32_t blocks;  /* to read, write or discard; 0: nothing to do */
	uint32_t done;	  /* of them */
	unsigned segment; /* of the chain: where the data goes on */
	uint32_t offset;  /* in it */
};

/* Looks at the header. What is wrong with the request becomes its status, with no blocks to do. */
void blk_begin(const struct disk *disk, const struct vhost_chain *chain,
	       struct blk_request *request);

/*
 * Executes at most `max` (<= STORE_BATCH) blocks of it. 0; or -EAGAIN: the store had no room for a
 * block just now, the caller tries again or gives up by setting the status and done = blocks; or
 * STORE_AWAY: the next block is away, the caller tries again when the disk's waker was called.
 */
int blk_step(struct disk *disk, const struct vhost_chain *chain, struct blk_request *request,
	     unsigned max);

/*
 * Loads what requests with these headers will need first into the cache. The headers are the
 * guest's, and may be anything.
 */
void blk_prefetch(const struct disk *disk, const struct virtio_blk_outhdr *headers, unsigned nr);

/* Writes the status; returns the bytes written, for vhost_push(). */
uint32_t blk_end(const struct vhost_chain *chain, const struct blk_request *request);

/* The configuration space. */
uint32_t blk_config(const struct disk *disk, uint8_t space[VHOST_MAX_CONFIG]);
bool blk_set_config(struct disk *disk, uint32_t offset, const uint8_t *data, uint32_t len);
uint64_t blk_features(void);

/* ---- disk_queue.c: the queues as lanes of the workers --------------------------------------- */

struct disk_queue {
	struct lane lane; /* first: a lane of a disk is a queue */
	struct disk *disk;
	unsigned index;
	bool running;	  /* when the door last looked */
	bool timed;	  /* no kick: looked at by a timer */
	int kick;	  /* that its worker listens to; -1 none */
	bool busy;	  /* a request is popped and not pushed */
	unsigned ahead;	  /* requests whose first block was prefetched */
	bool untold;	  /* requests are completed, and the guest may have to be told */
	uint64_t retry;	  /* its block has to wait: not looked at before this time; 0: at once */
	uint64_t give_up; /* then a request without room fails */
	bool away; /* its block waits because it is away: looked at when something has come */
	_Atomic bool come; /* set by anybody */
	struct blk_request request;
	struct vhost_chain chain;
};

/* Sets up the lane. */
void disk_queue_init(struct disk *disk, unsigned index);

/* A waker of the store: `arg` is the disk. */
void disk_queues_wake(void *arg);

/* Under disk.lock for writing. Completes what is half executed: its memory is about to change. */
void disk_queues_finish(struct disk *disk);

/* Under disk.lock for writing: the queue is (not) kicked by this eventfd, or is to be timed. */
void disk_queue_kick(struct disk *disk, unsigned index, int kick);
void disk_queues_settle(struct disk *disk); /* after messages: what runs now? */

/* ---- disk_record.c: what the arena knows of a disk ------------------------------------------ */

struct disk_record {
	struct front_disk_known known;
	uint64_t instance; /* random: this content */
	uint32_t pool;	   /* id */
};

/* 1; 0 the client has no note; -EBADMSG damaged; -EPROTO of another kind or version. */
int disk_record_read(const struct store_client *client, struct disk_record *record);
void disk_record_write(struct store_client *client, const struct disk_record *record);

/* ---- disk_session.c: a connection outlives this process -------------------------------------- */

/*
 * All under disk.lock for writing, or before the workers know of the vhost. Nothing fails: what is
 * not kept ends with this process.
 *
 * A new connection; its vhost is there.
 */
void disk_session_begin(struct disk *disk);

/* Before something of it is read, and after that is answered. */
void disk_session_forget(struct disk *disk);
void disk_session_record(struct disk *disk);

/* The connection is to be closed. Twice-callable. */
void disk_session_end(struct disk *disk);

/* It stays for the next process. Twice-callable. */
void disk_session_leave(struct disk *disk);

/*
 * The session that a former process left: 0 with the vhost, or NULL when there was none; or a
 * negated errno with a sentence: disk_session_end() then.
 */
int disk_session_take(struct disk *disk, const struct vhost_device *device, struct vhost **vhost,
		      char *err, size_t errlen);

/* ---- disk.c --------------------------------------------------------------------------------- */

struct disk {
	struct front *front;
	unsigned slot;	     /* in front.disks */
	uint32_t generation; /* of the slot */
	struct store_client *store;
	counter_t *counters;
	char name[STORE_NAME_MAX];
	struct disk_record record;
	_Atomic uint64_t blocks; /* the size; workers read it */
	_Atomic uint8_t writeback;
	_Atomic uint64_t full; /* when a write failed for lack of room; 0: none did */

	bool streaming;	    /* it is saved or restored, see stream.c */
	bool had_front_end; /* when the save began */
	int listener;
	bool deaf;
	int connection; /* of the vhost, which owns it; -1: no front end */
	pid_t pid;	/* of the front end */
	int box[2];	/* see disk_session.c; -1: none */

	pthread_rwlock_t lock;
	struct vhost *vhost; /* NULL: no front end */
	struct served lanes;
	struct disk_queue queues[FRONT_DISK_QUEUES];
};

/* Takes a connection, a message, or looks after broken ones. All under front.lock. */
void disk_accept(struct disk *disk);
void disk_message(struct disk *disk);
void disk_look(struct disk *disk);

/* Under front.lock. NULL: the front does not serve it. */
struct disk *disk_find(struct front *front, const char *name);

/* At the end of the front; the disk stays in the store. */
void disk_dispose(struct disk *disk);

#endif
