// SPDX-License-Identifier: GPL-2.0-or-later
/* The functions of front.h. */
#include "disk_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sigbus.h"

#define REGION_MIN (1ull << 20)
#define REGION_MAX (1ull << 30)

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	n = strlen(err);
	if (n < errlen)
		snprintf(err + n, errlen - n, ": %s", strerror(-error));
	return error;
}

static unsigned default_workers(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 1 : cpus > FRONT_MAX_WORKERS ? FRONT_MAX_WORKERS : (unsigned)cpus;
}

static void free_client(struct front_client *client)
{
	client->channel->close(client);
	if (client->store)
		store_client_set_waker(client->store, NULL, NULL);
	parked_close(client);
	free(client);
}

static void dispose(struct front *front)
{
	xen_stop(front);
	door_stop(front);
	workers_stop(front);
	for (unsigned i = 0; i < front->nr_slots; i++) {
		struct front_client *client = front->clients[i];

		if (!client)
			continue;
		life_suspend(client);
		free_client(client);
	}
	for (unsigned i = 0; i < FRONT_MAX_DISKS; i++)
		if (front->disks[i])
			disk_dispose(front->disks[i]);
	if (front->door_epoll >= 0)
		close(front->door_epoll);
	if (front->door_wake >= 0)
		close(front->door_wake);
	if (front->dir >= 0)
		close(front->dir);
	ringer_close(&front->ringer);
	fdstore_close();
	front_xen_close(front->xen);
	pthread_cond_destroy(&front->resume_cond);
	pthread_cond_destroy(&front->pause_cond);
	pthread_mutex_destroy(&front->pause_lock);
	pthread_mutex_destroy(&front->lock);
	free(front);
}

static struct front *new_front(struct store *store, const struct front_config *config)
{
	struct front *front = calloc(1, sizeof(*front));

	if (!front)
		return NULL;
	front->store = store;
	front->xen = config->xen;
	front->dir = front->door_epoll = front->door_wake = front->ringer.nothing = -1;
	front->poll_ns = config->poll_us * CLOCK_US;
	front->no_threads = config->no_threads;
	front->nr_workers = config->workers ? config->workers : default_workers();
	if (front->nr_workers > FRONT_MAX_WORKERS)
		front->nr_workers = FRONT_MAX_WORKERS;
	for (unsigned i = 0; i < FRONT_MAX_WORKERS; i++)
		front->workers[i].epoll = front->workers[i].wake =
			front->workers[i].ringer.nothing = -1;
	pthread_mutex_init(&front->lock, NULL);
	pthread_mutex_init(&front->pause_lock, NULL);
	pthread_cond_init(&front->pause_cond, NULL);
	pthread_cond_init(&front->resume_cond, NULL);
	return front;
}

static void open_ringers(struct front *front)
{
	int r = ringer_open(&front->ringer);

	for (unsigned i = 0; i < front->nr_workers && !r; i++)
		r = ringer_open(&front->workers[i].ringer);
	if (r)
		log_msg(LOG_WARN,
			"no asynchronous I/O (%s): the owner of a client can stop the service by "
			"its doorbells; see fs.aio-max-nr, and SECURITY.md",
			strerror(-r));
}

/* The service handles signals in its main thread. */
static int start_threads(struct front *front)
{
	sigset_t block, before;
	int r;

	open_ringers(front);
	sigfillset(&block);
	sigdelset(&block, SIGBUS);
	sigdelset(&block, SIGSEGV);
	sigdelset(&block, SIGFPE);
	sigdelset(&block, SIGILL);
	pthread_sigmask(SIG_BLOCK, &block, &before);
	r = door_start(front);
	if (!r)
		r = workers_start(front);
	if (!r)
		r = xen_start(front);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int front_open(struct front **front_out, struct store *store, const struct front_config *config,
	       char *err, size_t errlen)
{
	struct front *front = new_front(store, config);
	int r;

	*front_out = NULL;
	if (!front) {
		front_xen_close(config->xen);
		return fail(-ENOMEM, err, errlen, "front");
	}
	if (mkdir(config->region_dir, 0700) && errno != EEXIST) {
		r = fail(-errno, err, errlen, "%s", config->region_dir);
		goto out;
	}
	front->dir = open(config->region_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (front->dir < 0) {
		r = fail(-errno, err, errlen, "%s", config->region_dir);
		goto out;
	}
	fdstore_open(store);
	r = sigbus_install();
	if (!r)
		r = start_threads(front);
	if (r) {
		fail(r, err, errlen, "cannot start the front's threads");
		goto out;
	}
	*front_out = front;
	return 0;
out:
	dispose(front);
	return r;
}

bool front_work(struct front *front)
{
	door_turn(front, 0);
	return workers_turn(front);
}

void front_close(struct front *front)
{
	if (front)
		dispose(front);
}

/* ---- Clients -------------------------------------------------------------------------------- */

struct front_client *client_find(struct front *front, const char *name)
{
	for (unsigned i = 0; i < front->nr_slots; i++)
		if (front->clients[i] && !strcmp(front->clients[i]->name, name))
			return front->clients[i];
	return NULL;
}

static int check(const struct front_client_config *config, char *err, size_t errlen)
{
	uint64_t bytes = config->region_bytes;

	if (bytes < REGION_MIN || bytes > REGION_MAX || (bytes & (bytes - 1)))
		return fail(-EINVAL, err, errlen,
			    "client %s: a region is 1 MiB to 1 GiB, a power of two, not %llu",
			    config->name, (unsigned long long)bytes);
	if (!config->max_rings || config->max_rings > TMEM_MAX_RINGS)
		return fail(-EINVAL, err, errlen, "client %s: 1 to %u rings, not %u", config->name,
			    TMEM_MAX_RINGS, config->max_rings);
	return 0;
}

static void release(struct front_client *client)
{
	client->front->clients[client->slot] = NULL;
	free_client(client);
}

static struct front_client *new_client(struct front *front,
				       const struct front_client_config *config)
{
	struct front_client *client;
	unsigned slot = 0;

	while (slot < STORE_MAX_CLIENTS && front->clients[slot])
		slot++;
	client = slot < STORE_MAX_CLIENTS ? calloc(1, sizeof(*client)) : NULL;
	if (!client)
		return NULL;
	client->front = front;
	client->channel = config->xen ? &xen_channel : &ivshmem_channel;
	client->slot = slot;
	client->lanes.front = front;
	client->lanes.place = slot;
	client->generation = ++front->generation;
	snprintf(client->name, sizeof(client->name), "%s", config->name);
	snprintf(client->file, sizeof(client->file), "%s.region", config->name);
	client->region_bytes = config->region_bytes;
	client->max_rings = config->max_rings;
	client->ring_credits = config->ring_credits;
	client->listener = client->connection = client->region.fd = client->owner.pidfd = -1;
	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++) {
		client->rings[i].lane =
			(struct lane){.ops = &ring_lane_ops, .served = &client->lanes};
		client->rings[i].client = client;
		client->rings[i].index = i;
		client->rings[i].bell_in = client->rings[i].bell_out = -1;
	}
	if (parked_open(client)) {
		free(client);
		return NULL;
	}
	front->clients[slot] = client;
	if (slot >= front->nr_slots)
		front->nr_slots = slot + 1;
	return client;
}

static int add(struct front *front, const struct front_client_config *config, char *err,
	       size_t errlen)
{
	struct store_client *store = store_client_find(front->store, config->name);
	struct front_client *client;
	int r;

	if (!store)
		return fail(-ENOENT, err, errlen, "the store has no client %s", config->name);
	client = new_client(front, config);
	if (!client)
		return fail(-ENOMEM, err, errlen, "client %s", config->name);
	client->store = store;
	client->counters = client->lanes.counters = store_client_counters(store);
	store_client_set_waker(store, parked_wake, client);
	r = life_attach(client);
	if (r) {
		fail(r, err, errlen, "client %s: what an earlier run left cannot be taken up",
		     config->name);
		goto out;
	}
	r = client->channel->open(client, config, err, errlen);
	if (!r)
		return 0;
out:
	life_stop(client);
	life_suspend(client);
	release(client);
	return r;
}

static int change(struct front_client *client, const struct front_client_config *config, char *err,
		  size_t errlen)
{
	int r = client->channel->open(client, config, err, errlen);

	if (r)
		return r;
	client->ring_credits = config->ring_credits;
	if (!client->owner.pid) {
		/* The next owner's. */
		client->region_bytes = config->region_bytes;
		client->max_rings = config->max_rings;
	}
	return 0;
}

int front_client_add(struct front *front, const struct front_client_config *config, char *err,
		     size_t errlen)
{
	struct front_client *client;
	int r = check(config, err, errlen);

	if (r)
		return r;
	pthread_mutex_lock(&front->lock);
	client = client_find(front, config->name);
	if (client)
		r = change(client, config, err, errlen);
	else
		r = add(front, config, err, errlen);
	pthread_mutex_unlock(&front->lock);
	return r;
}

int front_client_remove(struct front *front, const char *name)
{
	struct front_client *client;
	int r = -ENOENT;

	pthread_mutex_lock(&front->lock);
	client = client_find(front, name);
	if (client)
		r = client->saving || client->restoring ? -EBUSY : 0;
	if (!r) {
		life_end(client);
		release(client);
	}
	pthread_mutex_unlock(&front->lock);
	return r;
}

int front_client_status(struct front *front, const char *name, struct front_status *status)
{
	const struct front_client *client;

	memset(status, 0, sizeof(*status));
	pthread_mutex_lock(&front->lock);
	client = client_find(front, name);
	if (client) {
		status->serving = true;
		status->attached = client->owner.pid != 0;
		status->connected = client->epoch != 0;
		status->polling = client->polling;
		status->restored = client->former != 0;
		status->streaming = client->saving || client->restoring;
		status->xen = client->channel == &xen_channel;
		status->pid = status->xen ? 0 : client->owner.pid;
		status->domain = status->xen ? (unsigned)client->owner.pid : 0;
		status->rings = client->nr_rings;
		status->max_rings = client->max_rings;
		status->entries = client->entries;
		status->region_bytes = status->attached ? client->region.bytes : 0;
		snprintf(status->socket, sizeof(status->socket), "%s", client->socket);
	}
	pthread_mutex_unlock(&front->lock);
	return client ? 0 : -ENOENT;
}

void front_refresh(struct front *front)
{
	pthread_mutex_lock(&front->lock);
	for (unsigned i = 0; i < front->nr_slots; i++)
		if (front->clients[i] && front->clients[i]->region.base)
			life_beat(front->clients[i]);
	workers_chores(front);
	pthread_mutex_unlock(&front->lock);
}
