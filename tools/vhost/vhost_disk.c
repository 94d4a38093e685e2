// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Threads with requests share one front end under one lock. Each request takes a slot, a part of
 * the memory that tmemd can see, and its data is copied through it. A thread that has submitted
 * looks at the ring for a moment, because an answer is often there sooner than a sleeping thread
 * would be awake; one thread at a time does so for all. The watcher sleeps until the device calls,
 * and is the only one that connects again.
 *
 * While the connection is away the front end belongs to the watcher alone: nobody else touches it,
 * with or without the lock. What was in the ring stays there, and the in-flight record of the
 * protocol says to the next tmemd what of it is to be done.
 */
#include "vhost_disk.h"

#include <errno.h>
#include <linux/virtio_blk.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vhost_user.h"

#define SLOTS 32u
#define SLOT_BYTES (64u << 10)
#define SECTOR 512u
#define SPIN_NS 20000u
#define TRY_AGAIN_MS 100u
#define SAY_WHY_MS 2000u /* a restart of tmemd needs no explanation */
#define SAY_AGAIN_MS 60000u
#define STALE_TRIES 3u /* that must fail alike while others are served */

struct slot {
	size_t at; /* of its data, in vu_data() */
	pthread_cond_t finished_cond;
	bool finished;
	bool abandoned; /* nobody waits: free when it is finished */
	uint8_t status;
	struct slot *next; /* free */
};

struct vhost_disk {
	struct vhost_disk_options options;
	char socket[108];
	struct vu *vu;
	uint32_t zero_bytes; /* of one request, at most */
	pthread_t watcher;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a slot became free; away, stale or stop changed */
	struct slot slots[SLOTS];
	struct slot *free;
	bool spinning; /* a thread looks at the ring for all */
	bool away;     /* no connection: the vu is the watcher's */
	bool stale;    /* the content is gone, for ever */
	bool stop;
};

static void __attribute__((format(printf, 2, 3)))
say(const struct vhost_disk *disk, const char *fmt, ...)
{
	char line[320];
	va_list ap;

	if (!disk->options.say)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	disk->options.say(line);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- Completions ---------------------------------------------------------------------------- */

static void free_slot(struct vhost_disk *disk, struct slot *slot)
{
	slot->abandoned = false;
	slot->next = disk->free;
	disk->free = slot;
	/* Threads wait for one of several things here; few wait at all. */
	if (!slot->next)
		pthread_cond_broadcast(&disk->changed);
}

/*
 * Takes what is completed. A device that breaks the protocol is not believed again: the connection
 * ends, and begins anew from what the ring and the in-flight record say.
 */
static void reap(struct vhost_disk *disk)
{
	struct slot *slot;
	uint8_t status;
	void *cookie;
	int r;

	while ((r = vu_reap(disk->vu, 0, 0, &cookie, &status)) == 1) {
		slot = cookie;
		slot->status = status;
		slot->finished = true;
		if (slot->abandoned)
			free_slot(disk, slot);
		else
			pthread_cond_signal(&slot->finished_cond);
	}
	if (r < 0 && !disk->away)
		vu_hang_up(disk->vu);
}

/* Whoever goes away from the ring leaves it so that the device calls for what is still open. */
static void arm(struct vhost_disk *disk)
{
	while (vu_arm(disk->vu, 0)) {
		unsigned before = vu_in_flight(disk->vu, 0);

		reap(disk);
		if (vu_in_flight(disk->vu, 0) == before)
			return; /* nonsense is there; the watcher sees the end of the connection */
	}
}

/* ---- The watcher ---------------------------------------------------------------------------- */

/*
 * tmemd hangs up on a front end whose content is gone, and when it dies. It is the former when at
 * the same time others are served.
 */
static bool others_are_served(struct vhost_disk *disk)
{
	return !vhost_disk_probe(disk->socket);
}

static const char *reason(int r)
{
	switch (r) {
	case -EBUSY:
		return "the connection was closed at once: another front end may have the disk, "
		       "see tmemctl list";
	case -ENOENT:
	case -ECONNREFUSED:
		return "nobody serves the socket: tmemd is down, or the disk was removed";
	case -EPROTO:
		return "it is not what it was before, see above";
	default:
		return strerror(-r);
	}
}

/* Under the lock. Sleeps, but not when it is the end. */
static void nap(struct vhost_disk *disk)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += TRY_AGAIN_MS * 1000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	while (!disk->stop && pthread_cond_timedwait(&disk->changed, &disk->lock, &ts) != ETIMEDOUT)
		;
}

/* Called and left with the lock held. True: connected again. */
static bool connect_again(struct vhost_disk *disk)
{
	uint64_t start = vu_now_ms(), said_ms = start;
	unsigned stale = 0;
	int r, said = 0;

	say(disk, "%s: the connection ended: requests wait", disk->socket);
	for (;;) {
		/* What was completed needs no answer of the next one. */
		reap(disk);
		if (disk->stop)
			return false;
		pthread_mutex_unlock(&disk->lock);
		r = vu_reconnect(disk->vu, 0);
		if (r == -ESTALE)
			stale = others_are_served(disk) ? stale + 1 : 0;
		pthread_mutex_lock(&disk->lock);
		if (!r || stale == STALE_TRIES)
			break;
		if (vu_now_ms() - start >= SAY_WHY_MS &&
		    (r != said || vu_now_ms() - said_ms >= SAY_AGAIN_MS)) {
			say(disk, "%s: requests have waited for %llu s: %s", disk->socket,
			    (unsigned long long)(vu_now_ms() - start) / 1000, reason(r));
			said = r;
			said_ms = vu_now_ms();
		}
		nap(disk);
	}
	if (r) {
		disk->stale = true;
		say(disk,
		    "%s: the content of the disk is lost, it was made anew meanwhile: every "
		    "request fails until this program is restarted",
		    disk->socket);
		return false;
	}
	say(disk, "%s: connected again after %llu ms", disk->socket,
	    (unsigned long long)(vu_now_ms() - start));
	return true;
}

static void wake_all(struct vhost_disk *disk)
{
	pthread_cond_broadcast(&disk->changed);
	for (unsigned i = 0; i < SLOTS; i++)
		pthread_cond_broadcast(&disk->slots[i].finished_cond);
}

static void *watch(void *arg)
{
	struct vhost_disk *disk = arg;
	int r;

	pthread_mutex_lock(&disk->lock);
	while (!disk->stop && !disk->stale) {
		reap(disk);
		arm(disk);
		pthread_mutex_unlock(&disk->lock);
		r = vu_wait(disk->vu, 0, -1);
		pthread_mutex_lock(&disk->lock);
		if (disk->stop || r != -ECONNRESET)
			continue;
		disk->away = true;
		disk->away = !connect_again(disk);
		wake_all(disk);
	}
	pthread_mutex_unlock(&disk->lock);
	return NULL;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

/*
 * Waits on the condition for at most a second: what else may have happened has to be looked at
 * meanwhile. 0, or why the request must not wait any longer; `until_ms` 0: no limit.
 */
static int wait_on(struct vhost_disk *disk, pthread_cond_t *cond, uint64_t until_ms)
{
	struct timespec ts;
	uint64_t now = vu_now_ms();
	bool whole_second = !until_ms || until_ms - now >= 1000;
	int r;

	if (disk->stale)
		return -ESTALE;
	if (until_ms && now >= until_ms)
		return -ETIMEDOUT;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	if (whole_second)
		ts.tv_sec++;
	else
		ts.tv_nsec += (long)(until_ms - now) * 1000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	r = pthread_cond_timedwait(cond, &disk->lock, &ts);
	if (r == ETIMEDOUT && disk->options.ending && disk->options.ending())
		return -ESHUTDOWN;
	return 0;
}

static uint64_t deadline(const struct vhost_disk *disk)
{
	return disk->options.timeout_s ? vu_now_ms() + disk->options.timeout_s * 1000ull : 0;
}

static int wait_until_here(struct vhost_disk *disk, uint64_t until_ms)
{
	int r = disk->stale ? -ESTALE : 0;

	while (!r && disk->away)
		r = wait_on(disk, &disk->changed, until_ms);
	return r;
}

static int take_slot(struct vhost_disk *disk, uint64_t until_ms, struct slot **slot)
{
	int r = disk->stale ? -ESTALE : 0;

	while (!r && !disk->free)
		r = wait_on(disk, &disk->changed, until_ms);
	if (r)
		return r;
	*slot = disk->free;
	disk->free = (*slot)->next;
	(*slot)->finished = false;
	return 0;
}

/* Looks at the ring for a while; for all threads, so one is enough. */
static void spin(struct vhost_disk *disk, const struct slot *slot)
{
	uint64_t end = now_ns() + SPIN_NS;

	disk->spinning = true;
	while (!disk->away) {
		reap(disk);
		if (slot->finished || now_ns() >= end)
			break;
		pthread_mutex_unlock(&disk->lock);
		relax();
		pthread_mutex_lock(&disk->lock);
	}
	disk->spinning = false;
	if (!disk->away)
		arm(disk);
}

/* Until it is finished. Else the slot is not the caller's any more. */
static int await(struct vhost_disk *disk, struct slot *slot, uint64_t until_ms)
{
	int r = 0;

	if (!disk->spinning)
		spin(disk, slot);
	while (!slot->finished && !r)
		r = wait_on(disk, &slot->finished_cond, until_ms);
	if (slot->finished)
		return 0;
	slot->abandoned = true;
	return r;
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* One request of at most SLOT_BYTES of data, or of a range. `in` is copied before, `out` after. */
static int perform(struct vhost_disk *disk, struct vu_request *request, const void *in, void *out,
		   uint64_t until_ms)
{
	struct slot *slot;
	uint8_t *data;
	int r;

	pthread_mutex_lock(&disk->lock);
	r = take_slot(disk, until_ms, &slot);
	if (r)
		goto out_unlock;
	data = vu_data(disk->vu) + slot->at;
	if (in) {
		pthread_mutex_unlock(&disk->lock);
		memcpy(data, in, request->bytes);
		pthread_mutex_lock(&disk->lock);
	}
	r = wait_until_here(disk, until_ms);
	if (r)
		goto out_free;
	request->offset = slot->at;
	request->cookie = slot;
	r = vu_submit(disk->vu, 0, request); /* the ring has room for all slots */
	if (r)
		goto out_free;
	vu_kick(disk->vu, 0);
	r = await(disk, slot, until_ms);
	if (r)
		goto out_unlock;
	if (slot->status)
		r = -EIO;
	if (out && !r) {
		pthread_mutex_unlock(&disk->lock);
		memcpy(out, data, request->bytes);
		pthread_mutex_lock(&disk->lock);
	}
out_free:
	free_slot(disk, slot);
out_unlock:
	pthread_mutex_unlock(&disk->lock);
	return r;
}

static bool whole_blocks(uint32_t bytes, uint64_t offset)
{
	return !(bytes % VHOST_DISK_BLOCK) && !(offset % VHOST_DISK_BLOCK);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int vhost_disk_read(struct vhost_disk *disk, void *buf, uint32_t bytes, uint64_t offset)
{
	uint64_t until = deadline(disk);
	int r = whole_blocks(bytes, offset) ? 0 : -EINVAL;

	for (uint32_t n; bytes && !r; bytes -= n, offset += n, buf = (uint8_t *)buf + n) {
		struct vu_request request = {.type = VIRTIO_BLK_T_IN, .sector = offset / SECTOR};

		request.bytes = n = smaller(bytes, SLOT_BYTES);
		r = perform(disk, &request, NULL, buf, until);
	}
	return r;
}

int vhost_disk_write(struct vhost_disk *disk, const void *buf, uint32_t bytes, uint64_t offset)
{
	uint64_t until = deadline(disk);
	int r = whole_blocks(bytes, offset) ? 0 : -EINVAL;

	for (uint32_t n; bytes && !r; bytes -= n, offset += n, buf = (const uint8_t *)buf + n) {
		struct vu_request request = {.type = VIRTIO_BLK_T_OUT, .sector = offset / SECTOR};

		request.bytes = n = smaller(bytes, SLOT_BYTES);
		r = perform(disk, &request, buf, NULL, until);
	}
	return r;
}

int vhost_disk_zero(struct vhost_disk *disk, uint32_t bytes, uint64_t offset)
{
	uint64_t until = deadline(disk);
	int r = whole_blocks(bytes, offset) ? 0 : -EINVAL;

	for (uint32_t n; bytes && !r; bytes -= n, offset += n) {
		struct vu_request request = {.type = VIRTIO_BLK_T_WRITE_ZEROES,
					     .sector = offset / SECTOR,
					     .flags = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP};

		request.bytes = n = smaller(bytes, disk->zero_bytes);
		r = perform(disk, &request, NULL, NULL, until);
	}
	return r;
}

int vhost_disk_flush(struct vhost_disk *disk)
{
	struct vu_request request = {.type = VIRTIO_BLK_T_FLUSH};

	return perform(disk, &request, NULL, NULL, deadline(disk));
}

int vhost_disk_size(struct vhost_disk *disk, uint64_t *bytes)
{
	uint64_t until = deadline(disk), sectors;
	int r;

	pthread_mutex_lock(&disk->lock);
	while (!(r = wait_until_here(disk, until))) {
		vu_config_changed(disk->vu); /* what it has said of that so far is answered now */
		r = vu_get_config(disk->vu, offsetof(struct virtio_blk_config, capacity), &sectors,
				  sizeof(sectors));
		if (!r)
			break;
		/* It died, or what comes now would be taken for another answer. */
		vu_hang_up(disk->vu);
		r = wait_on(disk, &disk->changed, until);
		if (r)
			break;
	}
	pthread_mutex_unlock(&disk->lock);
	*bytes = r ? 0 : sectors * SECTOR;
	return r;
}

/* ---- Open and close ------------------------------------------------------------------------- */

/* What serves the socket must be a disk with the properties that are relied on here. */
static int examine(struct vu *vu, uint32_t *zero_bytes)
{
	uint64_t needed = 1ull << VIRTIO_BLK_F_BLK_SIZE | 1ull << VIRTIO_BLK_F_WRITE_ZEROES |
			  1ull << VIRTIO_BLK_F_FLUSH;
	struct virtio_blk_config config;
	int r = vu_get_config(vu, 0, &config, sizeof(config));

	if (r)
		return r;
	if (needed & ~vu_features(vu) || config.blk_size != VHOST_DISK_BLOCK ||
	    config.max_write_zeroes_sectors < VHOST_DISK_BLOCK / SECTOR)
		return -ENOTSUP;
	*zero_bytes = smaller(config.max_write_zeroes_sectors, 1u << 20) * SECTOR /
		      VHOST_DISK_BLOCK * VHOST_DISK_BLOCK;
	return 0;
}

static int connect_to(struct vu **vu, const struct vhost_disk_options *options,
		      uint32_t *zero_bytes)
{
	/* No chain has more than header, two pieces of data and status: all slots fit the ring. */
	struct vu_options o = {
		.ring = 4 * SLOTS, .data_bytes = SLOTS * SLOT_BYTES, .complain = options->say};
	int r = vu_open(vu, options->socket, &o);

	if (!r)
		r = examine(*vu, zero_bytes);
	if (r) {
		vu_kill(*vu);
		*vu = NULL;
	}
	return r;
}

int vhost_disk_probe(const char *socket)
{
	const struct vhost_disk_options options = {.socket = socket};
	uint32_t zero_bytes;
	struct vu *vu;
	int r = connect_to(&vu, &options, &zero_bytes);

	vu_kill(vu);
	return r;
}

static void init_locks(struct vhost_disk *disk)
{
	pthread_condattr_t monotonic;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&disk->lock, NULL);
	pthread_cond_init(&disk->changed, &monotonic);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &disk->slots[i];

		pthread_cond_init(&slot->finished_cond, &monotonic);
		slot->at = i * (size_t)SLOT_BYTES;
		slot->next = disk->free;
		disk->free = slot;
	}
	pthread_condattr_destroy(&monotonic);
}

static void release(struct vhost_disk *disk)
{
	for (unsigned i = 0; i < SLOTS; i++)
		pthread_cond_destroy(&disk->slots[i].finished_cond);
	pthread_cond_destroy(&disk->changed);
	pthread_mutex_destroy(&disk->lock);
	vu_kill(disk->vu);
	free(disk);
}

int vhost_disk_open(struct vhost_disk **result, const struct vhost_disk_options *options)
{
	struct vhost_disk *disk;
	int r;

	*result = NULL;
	if (strlen(options->socket) >= sizeof(disk->socket))
		return -ENAMETOOLONG;
	disk = calloc(1, sizeof(*disk));
	if (!disk)
		return -ENOMEM;
	disk->options = *options;
	strcpy(disk->socket, options->socket);
	disk->options.socket = disk->socket;
	init_locks(disk);
	r = connect_to(&disk->vu, &disk->options, &disk->zero_bytes);
	if (!r)
		r = -pthread_create(&disk->watcher, NULL, watch, disk);
	if (r) {
		release(disk);
		return r;
	}
	*result = disk;
	return 0;
}

int vhost_disk_lock_memory(struct vhost_disk *disk)
{
	return vu_lock_memory(disk->vu);
}

void vhost_disk_close(struct vhost_disk *disk)
{
	if (!disk)
		return;
	pthread_mutex_lock(&disk->lock);
	disk->stop = true;
	pthread_cond_broadcast(&disk->changed);
	if (!disk->away)
		vu_interrupt(disk->vu, 0);
	pthread_mutex_unlock(&disk->lock);
	pthread_join(disk->watcher, NULL);
	release(disk);
}
