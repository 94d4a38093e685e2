/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk of tmemd for many threads of a program of this host: requests that block. It lives through
 * restarts of tmemd: requests wait meanwhile, those under way included, and a thread of its own
 * connects again. A front end of vhost-user (vhost_user.h) with one queue; a disk has one front end
 * at a time.
 *
 * All functions but open and close may be called by any number of threads at once. Nothing of a
 * request allocates. Requests of different threads are executed in any order, as on any disk; one
 * that has returned is executed before those that begin afterwards.
 */
#ifndef TMEMD_VHOST_DISK_H
#define TMEMD_VHOST_DISK_H

#include <stdbool.h>
#include <stdint.h>

#define VHOST_DISK_BLOCK 4096u /* offsets and lengths are multiples of it */

struct vhost_disk_options {
	const char *socket; /* copied */
	unsigned timeout_s; /* a request waits no longer; 0: without end */

	/*
	 * One line, without newline, on what happens to the connection; of any thread, not more
	 * than a few in a minute. It may be called with locks held: it must not call back.
	 */
	void (*say)(const char *line);

	/* Asked once a second by requests that wait: true lets them fail. May be NULL. */
	bool (*ending)(void);
};

struct vhost_disk;

/*
 * Connects, once. Errors as of vu_open(): -EBUSY another front end has the disk; -ENOENT,
 * -ECONNREFUSED nobody serves that socket; -ENOTSUP what serves it is no disk of tmemd. Starts a
 * thread: not to be called before a fork(2) of which the child goes on.
 */
int vhost_disk_open(struct vhost_disk **disk, const struct vhost_disk_options *options);

/* The same, tried only: connects and disconnects. Starts nothing. */
int vhost_disk_probe(const char *socket);

/* No request may be waiting. NULL is allowed. */
void vhost_disk_close(struct vhost_disk *disk);

/* Locks the memory that requests pass through; 0 or a negated errno. */
int vhost_disk_lock_memory(struct vhost_disk *disk);

/*
 * 0; -EINVAL not whole blocks; -EIO the disk says no (beyond its end, or the pool is full);
 * -ETIMEDOUT after options.timeout_s (and it may be executed later); -ESHUTDOWN options.ending said
 * so; -ESTALE tmemd has the disk, but not the content any more that this front end was using: so
 * it remains.
 */
int vhost_disk_read(struct vhost_disk *disk, void *buf, uint32_t bytes, uint64_t offset);
int vhost_disk_write(struct vhost_disk *disk, const void *buf, uint32_t bytes, uint64_t offset);
int vhost_disk_flush(struct vhost_disk *disk);

/* The blocks read as zeroes afterwards and cost nothing. */
int vhost_disk_zero(struct vhost_disk *disk, uint32_t bytes, uint64_t offset);

/* The size of now, in bytes: a disk may grow. Waits as requests do. */
int vhost_disk_size(struct vhost_disk *disk, uint64_t *bytes);

#endif
