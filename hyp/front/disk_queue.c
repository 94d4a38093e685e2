// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The queues of a disk as lanes of the workers. Requests are executed and completed in their order,
 * which is what lets the vhost room find out after a crash what was in flight.
 *
 * A disk has nothing behind it: a write that the pool refuses becomes an I/O error of the guest.
 * The pool refuses also when memory is only not populated yet, or an ephemeral page not dropped
 * yet. So a refused write is tried again for a while before it fails. What follows in the queue
 * waits meanwhile, other queues and disks do not. Once a write has failed, the next ones are given
 * less time, so that a full pool does not slow a guest down to one request a second.
 */
#include "disk_priv.h"

#include <errno.h>
#include <linux/virtio_blk.h>

#include "base/fault.h"
#include "base/log.h"

#define RETRY_NS CLOCK_MS
#define AWAY_NS (100 * CLOCK_MS) /* the waker is faster */
#define GIVE_UP_NS CLOCK_S
#define GIVE_UP_FULL_NS (10 * CLOCK_MS)

static struct disk_queue *queue_of(struct lane *lane)
{
	return (struct disk_queue *)lane;
}

/* The workers' side of disk.lock: the door goes first. */
static bool enter(struct disk *disk)
{
	if (pthread_rwlock_tryrdlock(&disk->lock))
		return false;
	if (disk->vhost)
		return true;
	pthread_rwlock_unlock(&disk->lock);
	return false;
}

static void leave(struct disk *disk)
{
	pthread_rwlock_unlock(&disk->lock);
}

static bool pending(struct lane *lane)
{
	struct disk_queue *queue = queue_of(lane);
	bool result = false;

	if (!enter(queue->disk))
		return false;
	if (!queue->busy)
		result = vhost_pending(queue->disk->vhost, queue->index);
	else
		result = !queue->retry || (queue->away && atomic_load(&queue->come)) ||
			 clock_ns() >= queue->retry;
	leave(queue->disk);
	return result;
}

/* ---- Executing ------------------------------------------------------------------------------ */

static void complete(struct disk_queue *queue)
{
	struct disk *disk = queue->disk;
	uint32_t written = blk_end(&queue->chain, &queue->request);

	fault(FAULT_DISK_EXECUTED);
	vhost_push(disk->vhost, queue->index, &queue->chain, written);
	fault(FAULT_DISK_COMPLETED);
	queue->busy = false;
	queue->untold = true;
	counter_add(&disk->counters[CLIENT_DISK_REQUESTS], 1);
	if (queue->request.status != VIRTIO_BLK_S_OK)
		counter_add(&disk->counters[CLIENT_DISK_ERRORS], 1);
}

/* The lane is looked at by a timer while its request waits for `ns`; 0: it waits no longer. */
static void wait_for(struct disk_queue *queue, uint64_t ns)
{
	if ((ns != 0) != (queue->retry != 0))
		lane_time(&queue->lane, queue->index, ns != 0);
	queue->retry = ns ? clock_ns() + ns : 0;
	queue->away = ns == AWAY_NS;
}

void disk_queues_wake(void *arg)
{
	struct disk *disk = arg;

	for (unsigned i = 0; i < FRONT_DISK_QUEUES; i++)
		if (!atomic_exchange(&disk->queues[i].come, true))
			lane_wake(&disk->queues[i].lane, i);
}

static void fail(struct disk_queue *queue, uint64_t now)
{
	struct disk *disk = queue->disk;

	queue->request.status = VIRTIO_BLK_S_IOERR;
	queue->request.done = queue->request.blocks;
	atomic_store(&disk->full, now);
	counter_add(&disk->counters[CLIENT_DISK_FULL], 1);
	log_limited(LOG_WARN,
		    "disk %s: a write failed: the pool, or the disk's maximum, is full, or it is "
		    "frozen; see tmemctl list",
		    disk->name);
}

/* No room for a block of the request. True when the request has failed for good. */
static bool no_room(struct disk_queue *queue)
{
	uint64_t now = clock_ns(), full = atomic_load(&queue->disk->full);

	if (!queue->retry)
		queue->give_up =
			now + (full && now - full < GIVE_UP_NS ? GIVE_UP_FULL_NS : GIVE_UP_NS);
	if (now < queue->give_up) {
		wait_for(queue, RETRY_NS);
		return false;
	}
	fail(queue, now);
	return true;
}

/* Goes on with the request, at most `max` blocks; false: it has to wait. */
static bool go_on(struct disk_queue *queue, unsigned max)
{
	int r;

	atomic_exchange(&queue->come, false);
	r = blk_step(queue->disk, &queue->chain, &queue->request, max);
	if (r == STORE_AWAY)
		wait_for(queue, AWAY_NS);
	if (r == STORE_AWAY || (r == -EAGAIN && !no_room(queue)))
		return false;
	wait_for(queue, 0);
	if (queue->request.done == queue->request.blocks)
		complete(queue);
	return true;
}

/* Small requests are as many as a batch of pages elsewhere: their misses are taken together. */
static void look_ahead(struct disk_queue *queue)
{
	struct virtio_blk_outhdr headers[STORE_BATCH];
	struct disk *disk = queue->disk;

	queue->ahead =
		vhost_peek(disk->vhost, queue->index, headers, sizeof(headers[0]), STORE_BATCH);
	if (queue->ahead > 1)
		blk_prefetch(disk, headers, queue->ahead);
}

static bool take(struct disk_queue *queue)
{
	int r;

	if (!queue->ahead)
		look_ahead(queue);
	if (queue->ahead)
		queue->ahead--;
	r = vhost_pop(queue->disk->vhost, queue->index, &queue->chain);
	if (r < 0) {
		int bell = vhost_error(queue->disk->vhost, queue->index);

		counter_add(&queue->disk->counters[CLIENT_DISK_BROKEN], 1);
		if (bell >= 0)
			ringer_ring(queue->lane.ringer, bell);
	}
	if (r != 1)
		return false;
	blk_begin(queue->disk, &queue->chain, &queue->request);
	queue->busy = true;
	return true;
}

/* A request without blocks counts as a page: its way through the ring costs about as much. */
static unsigned run(struct disk_queue *queue, unsigned max)
{
	unsigned pages = 0;

	while (pages < max && (queue->busy || take(queue))) {
		unsigned left = queue->request.blocks - queue->request.done;
		unsigned part = left < max - pages ? left : max - pages;

		if (!go_on(queue, part))
			break;
		pages += part ? part : 1;
	}
	return pages;
}

static void tell(struct disk_queue *queue)
{
	int bell;

	if (!queue->untold)
		return;
	queue->untold = false;
	bell = vhost_call(queue->disk->vhost, queue->index);
	if (bell >= 0 && ringer_ring(queue->lane.ringer, bell))
		counter_add(&queue->disk->counters[CLIENT_DOORBELLS_OUT], 1);
}

static unsigned step(struct lane *lane, unsigned max)
{
	struct disk_queue *queue = queue_of(lane);
	struct disk *disk = queue->disk;
	unsigned pages;

	if (!enter(disk))
		return 0;
	pages = run(queue, max);
	tell(queue);
	if (vhost_lost(disk->vhost)) {
		atomic_store(&disk->lanes.broken, true);
		door_poke(disk->front);
	}
	leave(disk);
	return pages;
}

/* ---- Doorbells ------------------------------------------------------------------------------ */

static bool arm(struct lane *lane)
{
	struct disk_queue *queue = queue_of(lane);

	/* When the door is in there, it wakes the worker as it leaves. */
	if (!enter(queue->disk))
		return false;
	vhost_arm(queue->disk->vhost, queue->index);
	leave(queue->disk);
	return true;
}

static void disarm(struct lane *lane)
{
	struct disk_queue *queue = queue_of(lane);

	if (!enter(queue->disk))
		return;
	vhost_disarm(queue->disk->vhost, queue->index);
	leave(queue->disk);
}

static const struct lane_ops disk_lane_ops = {
	.pending = pending,
	.step = step,
	.arm = arm,
	.disarm = disarm,
};

void disk_queue_init(struct disk *disk, unsigned index)
{
	struct disk_queue *queue = &disk->queues[index];

	queue->lane = (struct lane){
		.ops = &disk_lane_ops, .served = &disk->lanes, .ringer = &disk->front->ringer};
	queue->disk = disk;
	queue->index = index;
	queue->kick = -1;
}

/* ---- The door's side: disk.lock is held for writing ------------------------------------------ */

/* A write that finds no room is not waited for here; a read of what is away begins again. */
static void finish(struct disk_queue *queue)
{
	struct disk *disk = queue->disk;

	while (queue->busy) {
		int r = blk_step(disk, &queue->chain, &queue->request, STORE_BATCH);

		if (r == STORE_AWAY) {
			vhost_unpop(disk->vhost, queue->index);
			queue->busy = false;
			queue->ahead = 0;
			break;
		}
		if (r)
			fail(queue, clock_ns());
		if (queue->request.done == queue->request.blocks)
			complete(queue);
	}
	wait_for(queue, 0);
}

void disk_queues_finish(struct disk *disk)
{
	for (unsigned i = 0; i < disk->record.known.queues; i++) {
		struct disk_queue *queue = &disk->queues[i];
		struct ringer *ringer = queue->lane.ringer;

		if (!queue->busy)
			continue;
		finish(queue);
		/* The worker's ringer is for one thread at a time. */
		queue->lane.ringer = &disk->front->ringer;
		tell(queue);
		queue->lane.ringer = ringer;
	}
}

void disk_queue_kick(struct disk *disk, unsigned index, int kick)
{
	struct disk_queue *queue = &disk->queues[index];

	if (queue->kick >= 0)
		lane_unwatch(&queue->lane, index, queue->kick);
	queue->kick = -1;
	if (kick < 0)
		return;
	if (lane_watch(&queue->lane, index, kick))
		log_limited(LOG_WARN,
			    "disk %s: queue %u is looked at by a timer: its kick cannot be waited "
			    "for",
			    disk->name, index);
	else
		queue->kick = kick;
}

/*
 * A queue that runs without a kick is looked at by a timer. One that begins to run is told of its
 * completions, whether it asks for that or not: a former process may have died between a completion
 * and the call, and the guest would wait for ever.
 */
void disk_queues_settle(struct disk *disk)
{
	for (unsigned i = 0; i < disk->record.known.queues; i++) {
		struct disk_queue *queue = &disk->queues[i];
		bool running = disk->vhost && vhost_running(disk->vhost, i);
		bool timed = running && queue->kick < 0;
		int bell = running && !queue->running ? vhost_call_fd(disk->vhost, i) : -1;

		if (bell >= 0)
			ringer_ring(&disk->front->ringer, bell);
		if (timed != queue->timed)
			lane_time(&queue->lane, i, timed);
		queue->running = running;
		queue->timed = timed;
	}
}
