// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The door thread: sockets, ends of processes, hellos, and the heartbeat. It never executes an
 * entry, so a busy ring does not delay it, and it holds front.lock while it works.
 */
#include "disk_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"

#define WAKE UINT64_MAX

/*
 * An event names its client or disk by slot and generation: it may be gone by the time that the
 * event is looked at.
 */
static int add(struct front *front, uint32_t generation, unsigned slot, enum door_watch what,
	       int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

	event.data.u64 = (uint64_t)generation << 32 | slot << 8 | what;
	return epoll_ctl(front->door_epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int door_add(struct front_client *client, enum door_watch what, int fd)
{
	return add(client->front, client->generation, client->slot, what, fd);
}

int door_add_disk(struct disk *disk, enum door_watch what, int fd)
{
	return add(disk->front, disk->generation, disk->slot, what, fd);
}

void door_remove(struct front *front, int fd)
{
	epoll_ctl(front->door_epoll, EPOLL_CTL_DEL, fd, NULL);
}

void door_poke(struct front *front)
{
	static const uint64_t one = 1;

	if (atomic_exchange(&front->door_poked, true))
		return;
	while (write(front->door_wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void dispatch_disk(struct disk *disk, enum door_watch what)
{
	if (what == DOOR_DISK_LISTENER)
		disk_accept(disk);
	else
		disk_message(disk);
}

static void dispatch(struct front *front, uint64_t name)
{
	enum door_watch what = name & 0xff;
	unsigned slot = name >> 8 & 0xffffff;
	struct front_client *client;

	if (what >= DOOR_DISK_LISTENER) {
		struct disk *disk = slot < FRONT_MAX_DISKS ? front->disks[slot] : NULL;

		if (disk && disk->generation == name >> 32)
			dispatch_disk(disk, what);
		return;
	}
	client = slot < STORE_MAX_CLIENTS ? front->clients[slot] : NULL;
	if (!client || client->generation != name >> 32)
		return;
	switch (what) {
	case DOOR_LISTENER:
		ivshmem_accept(client);
		break;
	case DOOR_CONNECTION:
		ivshmem_connection(client);
		break;
	case DOOR_OWNER:
		if (owner_alive(&client->owner))
			break;
		log_msg(LOG_INFO, "client %s: process %d is gone; its life is over", client->name,
			(int)client->owner.pid);
		/* While it is saved its life goes on, and the end is not to wake us again and
		 * again. */
		door_remove(front, client->owner.pidfd);
		life_end(client);
		break;
	default:
		break;
	}
}

static void tick_disks(struct front *front)
{
	for (unsigned i = 0; i < FRONT_MAX_DISKS; i++) {
		struct disk *disk = front->disks[i];

		if (disk && disk->deaf)
			disk->deaf = door_add_disk(disk, DOOR_DISK_LISTENER, disk->listener) != 0;
	}
}

static void tick(struct front *front)
{
	for (unsigned i = 0; i < front->nr_slots; i++) {
		struct front_client *client = front->clients[i];

		if (client && client->deaf)
			client->deaf = door_add(client, DOOR_LISTENER, client->listener) != 0;
		if (!client || !client->region.base)
			continue;
		if (region_tampered(&client->region)) {
			/* Cut it to its size, so that the owner cannot keep the file system full.
			 */
			if (ftruncate(client->region.fd, (off_t)client->region.bytes))
				log_limited(LOG_WARN, "client %s: region not restored: %s",
					    client->name, strerror(errno));
			atomic_store(client->region.lost, true);
			continue;
		}
		life_beat(client);
	}
	tick_disks(front);
	if (atomic_exchange(&front->credits_short, false) || store_wants_credits_back(front->store))
		workers_chores(front);
}

static void look_at_all(struct front *front)
{
	for (unsigned i = 0; i < front->nr_slots; i++)
		if (front->clients[i])
			life_look(front->clients[i]);
	for (unsigned i = 0; i < FRONT_MAX_DISKS; i++)
		if (front->disks[i])
			disk_look(front->disks[i]);
}

static int until_tick_ms(const struct front *front)
{
	uint64_t now = clock_ns();

	return now >= front->next_tick ? 0
				       : (int)((front->next_tick - now + CLOCK_MS - 1) / CLOCK_MS);
}

void door_turn(struct front *front, int wait_ms)
{
	struct epoll_event events[32];
	int n = epoll_wait(front->door_epoll, events, 32, wait_ms);
	uint64_t count, now;

	pthread_mutex_lock(&front->lock);
	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 != WAKE)
			dispatch(front, events[i].data.u64);
		else if (read(front->door_wake, &count, sizeof(count)) > 0)
			atomic_store(&front->door_poked, false);
	}
	now = clock_ns();
	if (now >= front->next_tick) {
		front->next_tick = now + FRONT_TICK_NS;
		tick(front);
	}
	look_at_all(front);
	pthread_mutex_unlock(&front->lock);
}

static void *door(void *arg)
{
	struct front *front = arg;

	prctl(PR_SET_NAME, "tmemd-door");
	while (!atomic_load(&front->door_stopping))
		door_turn(front, until_tick_ms(front));
	return NULL;
}

int door_start(struct front *front)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE};
	int r;

	front->door_epoll = epoll_create1(EPOLL_CLOEXEC);
	front->door_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (front->door_epoll < 0 || front->door_wake < 0 ||
	    epoll_ctl(front->door_epoll, EPOLL_CTL_ADD, front->door_wake, &event))
		return -errno;
	if (front->no_threads)
		return 0;
	r = pthread_create(&front->door, NULL, door, front);
	front->door_started = !r;
	return -r;
}

/* Before the workers: what it is in the middle of may have to pause them. */
void door_stop(struct front *front)
{
	atomic_store(&front->door_stopping, true);
	if (front->door_started) {
		atomic_store(&front->door_poked, false);
		door_poke(front);
		pthread_join(front->door, NULL);
		front->door_started = false;
	}
}
