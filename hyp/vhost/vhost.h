/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The back end of the vhost-user protocol (QEMU docs/interop/vhost-user.rst): a front end (QEMU,
 * cloud-hypervisor) hands over the guest's memory and its virtqueues (virtio 1.2, section 2.6 to
 * 2.8) by messages on a socket. This room knows nothing of disks and pages; what the device is, it
 * is told by struct vhost_device.
 *
 * Everything that the front end or the guest writes is hostile: it is read once and checked; what
 * is wrong ends that connection or stops that queue, and nothing else.
 *
 * Requests of a queue are popped, executed and pushed strictly in their order. So what was in
 * flight when a former process died is what lies behind the last completion in the ring itself, and
 * the shared in-flight record only has to tell where in a packed ring that was.
 *
 * Threads: functions marked "exclusive" must not run beside any other of the same vhost. The
 * functions of a queue may run beside those of other queues of the same vhost, not of the same
 * queue. The caller has a lock for that. Nothing here waits, nothing on the queue functions'
 * way allocates.
 */
#ifndef TMEMD_VHOST_H
#define TMEMD_VHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VHOST_MAX_QUEUES 8
#define VHOST_MAX_RING 1024    /* descriptors of a queue */
#define VHOST_MAX_SEGMENTS 260 /* of one request: 256 pages of data, header, status */
#define VHOST_MAX_SLOTS 64     /* mappings of guest memory */
#define VHOST_MAX_CONFIG 256   /* bytes of the device's configuration space */

struct vhost;

/* What the device is. Copied by vhost_open(), but for the name. */
struct vhost_device {
	const char *name;    /* for the log; outlives the vhost */
	uint64_t features;   /* of the device type, beyond those of the transport */
	unsigned max_queues; /* 1..VHOST_MAX_QUEUES */
	uint64_t instance;   /* random, of the device's content: see vhost_input() */

	/* Fills in the configuration space; returns its length (<= VHOST_MAX_CONFIG). */
	uint32_t (*get_config)(void *arg, uint8_t space[VHOST_MAX_CONFIG]);

	/* The driver writes there. False: not possible. */
	bool (*set_config)(void *arg, uint32_t offset, const uint8_t *data, uint32_t len);

	/*
	 * The queue has a new eventfd by which the guest kicks (-1: none, it must be polled by time
	 * while vhost_running()). The former one is closed after the call. Called by exclusive
	 * functions.
	 */
	void (*kick_changed)(void *arg, unsigned queue, int kick);
	void *arg;
};

/*
 * Takes over a connected, non-blocking Unix socket. 0 or -ENOMEM (then the socket stays the
 * caller's).
 */
int vhost_open(struct vhost **vhost, const struct vhost_device *device, int connection);

/* Exclusive. Unmaps, closes everything (kick_changed(-1) before). NULL is allowed. */
void vhost_close(struct vhost *vhost);

/*
 * Exclusive. Reads what has come and handles whole messages, at most 16 a call so that a flood does
 * not keep others waiting (the socket stays readable then). 0; or a negated errno with a sentence
 * in err: the connection cannot go on and must be closed: -ECONNRESET the front end has gone,
 * -EPROTO what it said was wrong, -ESTALE its in-flight record was made with another content of the
 * device (`instance`): what the guest wrote there is lost, and it must not read zeroes in its
 * place. A message that is well formed but asks for something impossible is refused and logged, and
 * the connection goes on: with an error in the reply where the protocol has one.
 *
 * After it any queue may run, or not run any more, or have another kick; one that runs now may have
 * requests for which no kick comes. Segments of a request that is out are not to be used any more.
 */
int vhost_input(struct vhost *vhost, char *err, size_t errlen);

/* Exclusive. Tells the front end that the configuration space has changed, if it can be told. */
void vhost_config_changed(struct vhost *vhost);

/* Its socket, still the vhost's. */
int vhost_connection(const struct vhost *vhost);

/* Features that the driver accepted: those of the device and of the transport. */
uint64_t vhost_features(const struct vhost *vhost);

/*
 * Somebody cut the guest's memory, and zeroes were found in its place: the connection must be
 * closed. To be asked after requests were executed. Any thread under the lock.
 */
bool vhost_lost(const struct vhost *vhost);

/* ---- Over our death ------------------------------------------------------------------------- */

#define VHOST_SAVED_BYTES 3072
#define VHOST_SAVED_FDS (4 + VHOST_MAX_SLOTS + 3 * VHOST_MAX_QUEUES)

/*
 * All that was said on a connection, and its files: the connection itself, the channel back,
 * memory, records, eventfds. Whoever has both can go on, and the front end does not notice.
 */
struct vhost_saved {
	uint8_t bytes[VHOST_SAVED_BYTES]; /* its form has a version; no pointers */
	unsigned nr_fds;
	int fds[VHOST_SAVED_FDS];
};

/*
 * Exclusive. False: nobody could go on, because a message is read in part, or memory was lost. The
 * descriptors stay the vhost's. What was saved is true up to the next vhost_input(), also while
 * requests are executed: where the queues are is not in it, the rings say that.
 */
bool vhost_save(const struct vhost *vhost, struct vhost_saved *saved);

/*
 * A vhost that goes on where the one that was saved was; in place of vhost_open(). What was saved
 * is checked like what a front end says. Takes the descriptors over, also when it fails: 0 or a
 * negated errno with a sentence: -EPROTO, -ENOMEM, -ESTALE as in vhost_input(). As after
 * vhost_input(), any queue may run.
 */
int vhost_restore(struct vhost **vhost, const struct vhost_device *device,
		  const struct vhost_saved *saved, char *err, size_t errlen);

/* ---- Queues --------------------------------------------------------------------------------- */

/* A piece of guest memory, contiguous here. It stays mapped until the next exclusive call. */
struct vhost_segment {
	uint8_t *base;
	uint32_t len;
};

/* One request of the guest. */
struct vhost_chain {
	uint16_t id;	 /* of the used entry */
	uint16_t count;	 /* descriptors in the ring, of a packed ring */
	uint16_t nr_out; /* segments that the device reads: the first ones */
	uint16_t nr_in;	 /* segments that it writes: those after them */
	struct vhost_segment segments[VHOST_MAX_SEGMENTS];
};

/* Set up, enabled, and not broken: requests may be popped. Cheap; any thread under the lock. */
bool vhost_running(const struct vhost *vhost, unsigned queue);

/* Running, but without a kick eventfd: must be looked at by time. */
bool vhost_polled(const struct vhost *vhost, unsigned queue);

/*
 * Running, and the guest has made a request available (behind the one that is popped, if any). Also
 * when memory was lost, so that whoever looks for work sees that.
 */
bool vhost_pending(struct vhost *vhost, unsigned queue);

/*
 * The next request: 1; 0 there is none; -EPROTO the ring is broken (a loop, an address outside of
 * the guest's memory, too long, an index beyond the ring): logged, the queue does not run until it
 * is set up anew, and the front end is to hear of it, see vhost_error(). At most one request of a
 * queue is popped and not pushed; to pop again gives the same one.
 */
int vhost_pop(struct vhost *vhost, unsigned queue, struct vhost_chain *chain);

/* The request that was popped and not pushed comes again. */
void vhost_unpop(struct vhost *vhost, unsigned queue);

/*
 * Looks at requests that are not popped yet, without consequences: copies the first `bytes` of each
 * of at most `nr` to `to`, one behind the other, and returns of how many. A guess of what will
 * come: the guest may change them.
 */
unsigned vhost_peek(struct vhost *vhost, unsigned queue, void *to, size_t bytes, unsigned nr);

/*
 * Completes the request that was popped last; `written` bytes of its in-segments were written (from
 * the first on), which the dirty log hears of when a migration asked for it. Ignored when an
 * exclusive function has stopped the queue or changed the memory since: the request comes again.
 */
void vhost_push(struct vhost *vhost, unsigned queue, const struct vhost_chain *chain,
		uint32_t written);

/*
 * After some pushes: the eventfd to signal, or -1: the guest does not want to be told, or cannot
 * be. Never written here: its owner could make that wait. Also after a queue has stopped or broken,
 * for what was pushed before.
 */
int vhost_call(struct vhost *vhost, unsigned queue);

/* The same eventfd whether the guest asks for it or not; -1: there is none. */
int vhost_call_fd(const struct vhost *vhost, unsigned queue);

/* After vhost_pop() said -EPROTO: the eventfd to signal, once; -1: none. Nor written here. */
int vhost_error(struct vhost *vhost, unsigned queue);

/*
 * Asks the guest for kicks, or not any more. After arming, look at vhost_pending() again before
 * sleeping (the full barrier between is included).
 */
void vhost_arm(struct vhost *vhost, unsigned queue);
void vhost_disarm(struct vhost *vhost, unsigned queue);

#endif
