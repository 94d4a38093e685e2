// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The clients of the configuration, in the store and at the front: at start and at reload.
 *
 * A client that is no longer configured is removed with its pages only when its VM is gone: while
 * the VM lives its pages are its swap. A client that the arena has and the configuration never
 * named in this run is left alone for the same reason: nobody serves it, so nobody knows.
 */
#include "config.h"

#include "tmemd_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int clients_channel(void *arg, const char *name, struct control_channel *channel)
{
	struct tmemd *t = arg;
	struct front_status status;
	int r = front_client_status(t->front, name, &status);

	if (r)
		return r;
	if (!status.serving)
		return -ENOENT;
	channel->attached = status.attached;
	channel->connected = status.connected;
	channel->polling = status.polling;
	channel->restored = status.restored;
	channel->xen = status.xen;
	channel->pid = status.pid;
	channel->domain = status.domain;
	channel->rings = status.rings;
	channel->max_rings = status.max_rings;
	channel->entries = status.entries;
	channel->region_bytes = status.region_bytes;
	snprintf(channel->socket, sizeof(channel->socket), "%s", status.socket);
	return 0;
}

/* Lets the client join the shared pools of `now`, and no longer those that only `before` names. */
static int authorise(struct store_client *client, const struct config_client *now,
		     const struct config_client *before)
{
	int r = 0;

	for (unsigned i = 0; before && i < before->nr_shared; i++)
		store_shared_auth(client, before->shared[i], false);
	for (unsigned i = 0; i < now->nr_shared && !r; i++)
		r = store_shared_auth(client, now->shared[i], true);
	return r;
}

struct socket_search {
	struct front *front;
	const char *name; /* whose it is to be */
	const char *socket;
	const char *owner; /* who has it */
};

static int has_socket(struct store_client *client, void *arg)
{
	struct socket_search *search = arg;
	const char *name = store_client_name(client);
	struct front_disk_status disk;
	struct front_status status;

	if (!strcmp(name, search->name))
		return 0;
	if ((!front_client_status(search->front, name, &status) &&
	     !strcmp(status.socket, search->socket)) ||
	    (!front_disk_status(search->front, name, &disk) &&
	     !strcmp(disk.socket, search->socket)))
		search->owner = name;
	return search->owner != NULL;
}

int clients_check_socket(struct tmemd *t, const char *name, const char *socket, char *err,
			 size_t errlen)
{
	struct socket_search search = {.front = t->front, .name = name, .socket = socket};

	if (!strcmp(socket, t->config->control_socket))
		search.owner = "the control socket";
	else if (!store_client_each(t->store, has_socket, &search))
		return 0;
	snprintf(err, errlen, "%s: socket %s: %s has it; allowed is a socket of its own", name,
		 socket, search.owner);
	return -EADDRINUSE;
}

/* Brings one client of the configuration into force. `before`: what was in force, or NULL. */
static int client_apply(struct tmemd *t, const struct config_client *c,
			const struct config_client *before, char *err, size_t errlen)
{
	struct front_client_config config = {
		.name = c->name,
		.xen = c->front == CONFIG_XEN,
		.domain = c->domain,
		.socket = c->socket,
		.socket_mode = c->socket_mode,
		.socket_uid = c->socket_uid,
		.socket_gid = c->socket_gid,
		.region_bytes = c->region_bytes,
		.max_rings = c->rings,
		.ring_credits = c->credits,
	};
	struct store_client *client = store_client_find(t->store, c->name);
	int r;

	if (client && disks_is_disk(client)) {
		snprintf(err, errlen,
			 "client %s: a disk in the arena has that name; give the client another",
			 c->name);
		return -EEXIST;
	}
	r = config.xen ? 0 : clients_check_socket(t, c->name, c->socket, err, errlen);
	if (r)
		return r;
	r = store_client_open(t->store, c->name, &c->limits, &client);
	if (r) {
		snprintf(err, errlen, "client %s: %s", c->name,
			 r == -ENOSPC ? "the arena has no room for another client, or the minimums "
					"of all "
					"clients it knows (see tmemctl list) are above pool_max"
				      : strerror(-r));
		return r;
	}
	r = authorise(client, c, before);
	if (r) {
		snprintf(err, errlen, "client %s: too many shared pools in shared_auth", c->name);
		return r;
	}
	return front_client_add(t->front, &config, err, errlen);
}

/* Says which clients of the arena nobody serves. */
static int say_unconfigured(struct store_client *client, void *arg)
{
	const struct tmemd *t = arg;
	counter_t *counters = store_client_counters(client);
	const char *name = store_client_name(client);

	if (!config_client(t->config, name) && !disks_is_disk(client))
		log_msg(LOG_WARN,
			"client %s is in the arena with %" PRIu64
			" persistent pages but not in the configuration: its pages are kept and "
			"its VM "
			"is not served; add [client %s] and reload, and remove it after its VM has "
			"ended",
			name, counter_get(&counters[CLIENT_PAGES_PERSISTENT]), name);
	return 0;
}

int clients_start(struct tmemd *t, char *err, size_t errlen)
{
	for (unsigned i = 0; i < t->config->nr_clients; i++) {
		const struct config_client *c = &t->config->clients[i];
		int r = client_apply(t, c, NULL, err, errlen);

		/* A host that was not booted under Xen has other clients to serve. */
		if (r && c->front == CONFIG_XEN)
			log_msg(LOG_ERROR, "%s", err);
		else if (r)
			return r;
	}
	disks_start(t);
	/* A disk that could just be made is one by now. */
	store_client_each(t->store, say_unconfigured, t);
	return 0;
}

/* ---- Reload --------------------------------------------------------------------------------- */

/* Keeps what is in force where it cannot change while the service runs, and says so. */
static void keep(const char *key, const void *now, void *next, size_t size)
{
	if (!memcmp(now, next, size))
		return;
	log_msg(LOG_WARN, "reload: %s has changed; it takes effect at the next start", key);
	memcpy(next, now, size);
}

static void keep_fixed(const struct config *now, struct config *next)
{
#define KEEP(key, member) keep(key, &now->member, &next->member, sizeof(next->member))
	KEEP("[pool] arena", arena);
	KEEP("[pool] ready_chunks", ready_chunks);
	KEEP("[front] workers", workers);
	KEEP("[front] poll", poll_us);
	KEEP("[front] regions", regions);
	KEEP("[control] socket", control_socket);
	KEEP("[control] mode", control_mode);
	KEEP("[control] group", control_gid);
	KEEP("[service] user", user);
	KEEP("[service] seccomp", seccomp);
#undef KEEP
}

/* The same for a client: what its VM was started with. */
static void keep_fixed_client(const struct config_client *now, struct config_client *next)
{
	if (now->region_bytes == next->region_bytes && now->rings == next->rings &&
	    now->front == next->front && !strcmp(now->domain, next->domain))
		return;
	log_msg(LOG_WARN,
		"reload: client %s: front, domain, region and rings stay those of its start; "
		"remove the client, reload, and add it again",
		now->name);
	if (now->front != next->front)
		memcpy(next->socket, now->socket, sizeof(next->socket));
	next->front = now->front;
	memcpy(next->domain, now->domain, sizeof(next->domain));
	next->region_bytes = now->region_bytes;
	next->rings = now->rings;
}

static void lower_minimum(struct tmemd *t, const char *name, uint64_t min_bytes)
{
	struct store_client *client = store_client_find(t->store, name);
	struct store_limits limits;

	if (!client)
		return;
	store_client_limits(client, &limits);
	if (limits.min_bytes <= min_bytes)
		return;
	limits.min_bytes = min_bytes;
	store_client_set_limits(client, &limits);
}

/*
 * Lowers the minimums that are to be lowered, so that the others find room whatever the order of
 * the clients and disks.
 */
static void lower_minimums(struct tmemd *t, const struct config *next)
{
	for (unsigned i = 0; i < next->nr_clients; i++)
		lower_minimum(t, next->clients[i].name, next->clients[i].limits.min_bytes);
	for (unsigned i = 0; i < next->nr_disks; i++)
		lower_minimum(t, next->disks[i].name, next->disks[i].limits.min_bytes);
}

/* True when the client is gone. */
static bool client_remove(struct tmemd *t, const char *name)
{
	struct store_client *client = store_client_find(t->store, name);
	struct front_status status = {0};

	/* A disk of that name kept this client from being made. */
	if (!client || disks_is_disk(client))
		return true;
	if (!front_client_status(t->front, name, &status) && status.attached) {
		log_msg(LOG_WARN,
			"reload: client %s stays: its VM (%s %d) lives; reload again after it "
			"has ended",
			name, status.xen ? "domain" : "process",
			status.xen ? (int)status.domain : (int)status.pid);
		return false;
	}
	if (front_client_remove(t->front, name) == -EBUSY) {
		log_msg(LOG_WARN,
			"reload: client %s stays: it is being saved or restored; reload again "
			"after that",
			name);
		return false;
	}
	control_exclude(t->control, true);
	store_client_remove(client);
	control_exclude(t->control, false);
	log_msg(LOG_NOTE, "reload: client %s removed", name);
	return true;
}

/* Moves a client that stays, though it is no longer configured, to next. */
static void carry_over(struct config *next, struct config_client *c)
{
	struct config_client *more =
		reallocarray(next->clients, next->nr_clients + 1, sizeof(*more));

	if (!more) {
		log_msg(LOG_ERROR, "reload: client %s: out of memory", c->name);
		return;
	}
	next->clients = more;
	more[next->nr_clients++] = *c;
	c->shared = NULL; /* moved */
	c->nr_shared = 0;
}

static void reload_pool(struct tmemd *t, const struct config *next)
{
	int r;

	store_set_host_reserve(t->store, next->host_reserve);
	r = store_set_pool_max(t->store, next->pool_max);
	if (r)
		log_msg(LOG_ERROR,
			"reload: pool_max stays at %" PRIu64
			": %s; it cannot be below the sum of the minimums, nor above what the "
			"arena was "
			"made for",
			store_pool_max(t->store), strerror(-r));
}

void clients_reload(struct tmemd *t, struct config *next)
{
	char err[512];
	unsigned n = next->nr_clients, nr_disks = next->nr_disks;

	keep_fixed(t->config, next);
	if (!t->log_level_forced)
		log_setup(next->log_level, log_to_journal());
	for (unsigned i = 0; i < t->config->nr_clients; i++) {
		struct config_client *c = &t->config->clients[i];

		if (!config_client(next, c->name) && !client_remove(t, c->name))
			carry_over(next, c);
	}
	disks_reload_remove(t, next);
	lower_minimums(t, next);
	reload_pool(t, next);
	for (unsigned i = 0; i < n; i++) {
		struct config_client *c = &next->clients[i];
		const struct config_client *before = config_client(t->config, c->name);

		if (before)
			keep_fixed_client(before, c);
		if (client_apply(t, c, before, err, sizeof(err)))
			log_msg(LOG_ERROR, "reload: %s", err);
		else if (!before)
			log_msg(LOG_NOTE, "reload: client %s added", c->name);
	}
	disks_reload(t, next, nr_disks);
	peering_reload(t, next);
	config_free(t->config);
	t->config = next;
}
