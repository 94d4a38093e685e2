// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Disks come and go, and so do their front ends. The functions of front.h for disks, and the door's
 * side of a disk: socket, connection, messages.
 *
 * A disk has one front end at a time: two that write to one disk destroy what is on it. When the
 * service was away, its connection is taken over (disk_session.c), or the front end connects again
 * by itself (QEMU: reconnect=) and hands everything over anew; the rings in the guest's memory tell
 * what was in flight.
 */
#include "disk_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"

/* The pool's nonce: whoever makes the disk again after a crash in between finds this pool. */
#define DISK_NONCE 1

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* ---- The front end -------------------------------------------------------------------------- */

static uint32_t get_config(void *arg, uint8_t space[VHOST_MAX_CONFIG])
{
	return blk_config(arg, space);
}

static bool set_config(void *arg, uint32_t offset, const uint8_t *data, uint32_t len)
{
	return blk_set_config(arg, offset, data, len);
}

static void kick_changed(void *arg, unsigned queue, int kick)
{
	disk_queue_kick(arg, queue, kick);
}

/* The workers look again: while the door was in there they saw nothing and asked for no kicks. */
static void leave(struct disk *disk)
{
	disk_queues_settle(disk);
	pthread_rwlock_unlock(&disk->lock);
	for (unsigned i = 0; i < disk->record.known.queues; i++)
		lane_wake(&disk->queues[i].lane, i);
}

static void drop_front_end(struct disk *disk)
{
	if (disk->connection < 0)
		return;
	door_remove(disk->front, disk->connection);
	disk->connection = -1;
	disk->pid = 0;
	pthread_rwlock_wrlock(&disk->lock);
	disk_queues_finish(disk);
	disk_session_end(disk);
	vhost_close(disk->vhost);
	disk->vhost = NULL;
	atomic_store(&disk->lanes.broken, false);
	/* Whoever waited for a content that did not come has gone. */
	if (!disk->streaming)
		workers_let_go(&disk->lanes);
	leave(disk);
}

static struct vhost_device device_of(struct disk *disk)
{
	return (struct vhost_device){
		.name = disk->name,
		.features = blk_features(),
		.max_queues = disk->record.known.queues,
		.instance = disk->record.instance,
		.get_config = get_config,
		.set_config = set_config,
		.kick_changed = kick_changed,
		.arg = disk,
	};
}

static pid_t peer_of(int sock)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	return peer.pid;
}

static int serve(struct disk *disk, int sock)
{
	struct vhost_device device = device_of(disk);
	struct vhost *vhost;
	int r = vhost_open(&vhost, &device, sock);

	if (r)
		return r;
	r = door_add_disk(disk, DOOR_DISK_CONNECTION, sock);
	if (r) {
		vhost_close(vhost); /* and the socket */
		return r;
	}
	pthread_rwlock_wrlock(&disk->lock);
	disk->vhost = vhost;
	disk_session_begin(disk);
	pthread_rwlock_unlock(&disk->lock);
	disk->connection = sock;
	disk->pid = peer_of(sock);
	return 0;
}

/* The front end that a former process served, when it can be gone on with. */
static void take_front_end(struct disk *disk)
{
	struct vhost_device device = device_of(disk);
	char err[256] = "";
	int r;

	pthread_rwlock_wrlock(&disk->lock);
	r = disk_session_take(disk, &device, &disk->vhost, err, sizeof(err));
	if (disk->vhost) {
		disk->connection = vhost_connection(disk->vhost);
		disk->pid = peer_of(disk->connection);
		r = door_add_disk(disk, DOOR_DISK_CONNECTION, disk->connection);
		fault(FAULT_SESSION_TAKEN);
	}
	if (r)
		disk_session_end(disk);
	leave(disk);
	if (!r)
		return;
	log_msg(LOG_WARN, "disk %s: its front end has to connect again: %s", disk->name,
		err[0] ? err : strerror(-r));
	drop_front_end(disk);
}

/* The connection stays in the queue and would wake us without end: it has to wait a while. */
static void cannot_accept(struct disk *disk, int error)
{
	if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
		return;
	log_limited(LOG_WARN, "disk %s: a connection waits, it cannot be accepted: %s", disk->name,
		    strerror(error));
	door_remove(disk->front, disk->listener);
	disk->deaf = true;
}

void disk_accept(struct disk *disk)
{
	int sock = accept4(disk->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), r;
	pid_t pid;

	if (sock < 0) {
		cannot_accept(disk, errno);
		return;
	}
	pid = peer_of(sock);
	if (disk->connection >= 0 && socket_peer_closed(disk->connection))
		drop_front_end(disk);
	if (disk->connection >= 0) {
		close(sock);
		counter_add(&disk->counters[CLIENT_CONNECTS_REFUSED], 1);
		log_limited(LOG_WARN,
			    "disk %s: connection of process %d refused: process %d has it",
			    disk->name, (int)pid, (int)disk->pid);
		return;
	}
	r = serve(disk, sock);
	if (!r)
		return;
	if (r == -ENOMEM)
		close(sock);
	log_limited(LOG_WARN, "disk %s: connection of process %d refused: %s", disk->name, (int)pid,
		    strerror(-r));
}

void disk_message(struct disk *disk)
{
	char err[256] = "";
	int r;

	if (disk->connection < 0)
		return;
	pthread_rwlock_wrlock(&disk->lock);
	disk_queues_finish(disk);
	disk_session_forget(disk);
	r = vhost_input(disk->vhost, err, sizeof(err));
	if (!r)
		disk_session_record(disk);
	leave(disk);
	if (!r)
		return;
	if (r != -ECONNRESET)
		log_limited(LOG_WARN, "disk %s: connection of process %d closed: %s", disk->name,
			    (int)disk->pid, err);
	drop_front_end(disk);
}

void disk_look(struct disk *disk)
{
	if (!atomic_load(&disk->lanes.broken))
		return;
	log_limited(LOG_WARN,
		    "disk %s: process %d cut the guest's memory; its connection is closed",
		    disk->name, (int)disk->pid);
	drop_front_end(disk);
}

/* ---- The disk ------------------------------------------------------------------------------- */

struct disk *disk_find(struct front *front, const char *name)
{
	for (unsigned i = 0; i < FRONT_MAX_DISKS; i++)
		if (front->disks[i] && !strcmp(front->disks[i]->name, name))
			return front->disks[i];
	return NULL;
}

static int check(const struct front_disk_config *config, char *err, size_t errlen)
{
	if (!config->bytes || config->bytes % DISK_BLOCK || config->bytes > FRONT_DISK_MAX)
		return fail(-EINVAL, err, errlen,
			    "disk %s: a size is a multiple of 4096 up to 16 TiB, not %llu",
			    config->name, (unsigned long long)config->bytes);
	if (!config->queues || config->queues > FRONT_DISK_QUEUES)
		return fail(-EINVAL, err, errlen, "disk %s: 1 to %u queues, not %u", config->name,
			    FRONT_DISK_QUEUES, config->queues);
	if (strlen(config->socket) >= sizeof(((struct front_disk_known *)0)->socket))
		return fail(-ENAMETOOLONG, err, errlen, "disk %s: the path %s is too long",
			    config->name, config->socket);
	return 0;
}

/* What of the configuration may change while the disk is there, becomes part of its record. */
static void take_over(struct disk_record *record, const struct front_disk_config *config)
{
	record->known.bytes = config->bytes;
	record->known.flags = config->flags;
	record->known.socket_mode = config->socket_mode;
	record->known.socket_uid = config->socket_uid;
	record->known.socket_gid = config->socket_gid;
	snprintf(record->known.socket, sizeof(record->known.socket), "%s", config->socket);
}

static int make_content(struct disk *disk, const struct front_disk_config *config)
{
	uint32_t flags = TMEM_POOL_PERSIST | TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT;
	int pool = store_pool_new(disk->store, flags, (const uint64_t[2]){0, 0}, DISK_NONCE);

	if (pool < 0)
		return pool;
	fault(FAULT_DISK_MADE);
	disk->record.pool = (uint32_t)pool;
	disk->record.known.queues = config->queues;
	if (getrandom(&disk->record.instance, sizeof(disk->record.instance), 0) !=
	    sizeof(disk->record.instance))
		return -EIO;
	return 0;
}

/* A content that was being restored when the service died, or one that such a content replaced. */
static void drop_strays(struct disk *disk)
{
	struct store_pool_info pools[STORE_MAX_CLIENT_POOLS];
	unsigned nr = store_client_pools(disk->store, pools, STORE_MAX_CLIENT_POOLS);

	for (unsigned i = 0; i < nr; i++)
		if (pools[i].id != disk->record.pool)
			store_pool_destroy(disk->store, pools[i].id);
}

static int load_content(struct disk *disk, const struct front_disk_config *config, char *err,
			size_t errlen)
{
	int r = disk_record_read(disk->store, &disk->record);

	if (r < 0)
		return fail(r, err, errlen,
			    r == -EBADMSG ? "disk %s: its record in the arena is damaged; its "
					    "content cannot be served any more, remove it"
					  : "disk %s: a client of that name exists already, or its "
					    "record is of another release",
			    config->name);
	if (r > 0)
		drop_strays(disk);
	if (!r) {
		r = make_content(disk, config);
		return r ? fail(r, err, errlen, "disk %s: it cannot be made: %s", config->name,
				strerror(-r))
			 : 0;
	}
	if (config->bytes < disk->record.known.bytes)
		return fail(-EINVAL, err, errlen,
			    "disk %s: it has %llu bytes and cannot shrink; remove it and create it "
			    "anew",
			    config->name, (unsigned long long)disk->record.known.bytes);
	if (config->queues != disk->record.known.queues)
		log_msg(LOG_WARN, "disk %s: it keeps its %u queues until it is removed",
			config->name, disk->record.known.queues);
	return 0;
}

static struct disk *new_disk(struct front *front, const struct front_disk_config *config)
{
	pthread_rwlockattr_t attributes;
	struct disk *disk;
	unsigned slot = 0;

	while (slot < FRONT_MAX_DISKS && front->disks[slot])
		slot++;
	disk = slot < FRONT_MAX_DISKS ? calloc(1, sizeof(*disk)) : NULL;
	if (!disk)
		return NULL;
	disk->front = front;
	disk->slot = slot;
	disk->generation = ++front->generation;
	disk->listener = disk->connection = disk->box[0] = disk->box[1] = -1;
	disk->writeback = 1;
	disk->lanes.front = front;
	disk->lanes.place = slot;
	snprintf(disk->name, sizeof(disk->name), "%s", config->name);
	pthread_rwlockattr_init(&attributes);
	/* Workers try again and again; the door would never find them all away. */
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&disk->lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
	for (unsigned i = 0; i < FRONT_DISK_QUEUES; i++)
		disk_queue_init(disk, i);
	front->disks[slot] = disk;
	return disk;
}

static void release(struct disk *disk)
{
	disk->front->disks[disk->slot] = NULL;
	store_client_set_waker(disk->store, NULL, NULL);
	pthread_rwlock_destroy(&disk->lock);
	free(disk);
}

static int listen_on(struct disk *disk, const struct front_disk_config *config)
{
	struct front_socket access = {.path = config->socket,
				      .mode = config->socket_mode,
				      .uid = config->socket_uid,
				      .gid = config->socket_gid};
	int fd, r;

	if (disk->listener >= 0 && !strcmp(disk->record.known.socket, config->socket))
		return socket_set_access(&access);
	fd = socket_listen(&access);
	if (fd < 0)
		return fd;
	r = door_add_disk(disk, DOOR_DISK_LISTENER, fd);
	if (r) {
		socket_close(&fd, config->socket);
		return r;
	}
	if (disk->listener >= 0 && !disk->deaf)
		door_remove(disk->front, disk->listener);
	socket_close(&disk->listener, disk->record.known.socket);
	disk->listener = fd;
	disk->deaf = false;
	return 0;
}

/* Socket, then record: a path that cannot be had is not remembered. */
static int apply(struct disk *disk, const struct front_disk_config *config, char *err,
		 size_t errlen)
{
	int r = listen_on(disk, config);

	if (r)
		return fail(r, err, errlen, "disk %s: socket %s: %s", config->name, config->socket,
			    strerror(-r));
	take_over(&disk->record, config);
	disk_record_write(disk->store, &disk->record);
	atomic_store(&disk->blocks, config->bytes / DISK_BLOCK);
	return 0;
}

static void serve_queues(struct disk *disk)
{
	struct lane *lanes[FRONT_DISK_QUEUES];

	for (unsigned i = 0; i < disk->record.known.queues; i++)
		lanes[i] = &disk->queues[i].lane;
	workers_pause(disk->front);
	workers_add(&disk->lanes, lanes, disk->record.known.queues);
	workers_resume(disk->front);
}

static int add(struct front *front, const struct front_disk_config *config, char *err,
	       size_t errlen)
{
	struct store_client *store = store_client_find(front->store, config->name);
	struct disk *disk;
	int r;

	if (!store)
		return fail(-ENOENT, err, errlen, "the store has no client %s", config->name);
	disk = new_disk(front, config);
	if (!disk)
		return fail(-ENOMEM, err, errlen, "disk %s: at most %u disks can be served",
			    config->name, FRONT_MAX_DISKS);
	disk->store = store;
	disk->counters = disk->lanes.counters = store_client_counters(store);
	store_client_set_waker(store, disk_queues_wake, disk);
	r = load_content(disk, config, err, errlen);
	if (!r)
		r = apply(disk, config, err, errlen);
	if (r)
		release(disk);
	else
		serve_queues(disk);
	if (!r)
		take_front_end(disk);
	return r;
}

static int change(struct disk *disk, const struct front_disk_config *config, char *err,
		  size_t errlen)
{
	uint64_t before = disk->record.known.bytes;
	int r;

	if (config->bytes < before)
		return fail(-EINVAL, err, errlen,
			    "disk %s: it has %llu bytes and cannot shrink; remove it and create it "
			    "anew",
			    config->name, (unsigned long long)before);
	r = apply(disk, config, err, errlen);
	if (r || config->bytes == before || !disk->vhost)
		return r;
	pthread_rwlock_wrlock(&disk->lock);
	disk_queues_finish(disk);
	vhost_config_changed(disk->vhost);
	leave(disk);
	return 0;
}

int front_disk_add(struct front *front, const struct front_disk_config *config, char *err,
		   size_t errlen)
{
	struct disk *disk;
	int r = check(config, err, errlen);

	if (r)
		return r;
	pthread_mutex_lock(&front->lock);
	disk = disk_find(front, config->name);
	if (disk)
		r = change(disk, config, err, errlen);
	else
		r = add(front, config, err, errlen);
	pthread_mutex_unlock(&front->lock);
	return r;
}

/*
 * The workers have stopped, or are stopped here. In the first case it is the service that ends, and
 * the front end stays for the next one.
 */
void disk_dispose(struct disk *disk)
{
	bool stopped = atomic_load(&disk->front->stop);

	if (stopped)
		disk_session_leave(disk);
	drop_front_end(disk);
	if (!stopped) {
		workers_pause(disk->front);
		workers_remove(&disk->lanes);
		workers_resume(disk->front);
	}
	if (disk->listener >= 0 && !disk->deaf)
		door_remove(disk->front, disk->listener);
	socket_close(&disk->listener, disk->record.known.socket);
	release(disk);
}

int front_disk_remove(struct front *front, const char *name, bool force)
{
	struct disk *disk;
	int r = 0;

	pthread_mutex_lock(&front->lock);
	disk = disk_find(front, name);
	if (!disk) {
		/* A front end may wait for it all the same. */
		fdstore_forget_pair(name);
		r = -ENOENT;
	} else if (disk->streaming) {
		r = -EBUSY;
	} else if (disk->connection >= 0 && !socket_peer_closed(disk->connection) && !force) {
		r = -EBUSY;
	} else {
		disk_dispose(disk);
	}
	pthread_mutex_unlock(&front->lock);
	return r;
}

int front_disk_status(struct front *front, const char *name, struct front_disk_status *status)
{
	struct disk *disk;

	memset(status, 0, sizeof(*status));
	pthread_mutex_lock(&front->lock);
	disk = disk_find(front, name);
	if (disk) {
		status->connected = disk->connection >= 0;
		status->pid = disk->pid;
		status->streaming = disk->streaming;
		status->queues = disk->record.known.queues;
		status->bytes = disk->record.known.bytes;
		for (unsigned i = 0; disk->vhost && i < status->queues; i++) {
			status->queues_running += vhost_running(disk->vhost, i);
			status->polling |= disk->queues[i].timed;
		}
		status->running = status->queues_running != 0;
		snprintf(status->socket, sizeof(status->socket), "%s", disk->record.known.socket);
	}
	pthread_mutex_unlock(&front->lock);
	return disk ? 0 : -ENOENT;
}
