// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disks: those of the configuration and those that commands make, in the store and at the
 * front.
 *
 * A guest is told of a full disk long after it was given one, by failed writes to its swap. So a
 * disk is refused when it is made or grows, if all disks together, with nothing on them that
 * compresses, and what is kept free for clients could be more than the pool: the exposure. Who asks
 * for overcommit takes that risk, for this disk and for the others.
 *
 * What the arena has of a disk is its VM's swap. So no error of a disk keeps the service from
 * starting, a disk never shrinks, and it goes only by a removed section while no front end is
 * connected, or by a command.
 */
#include "config.h"

#include "tmemd_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(CONFIG_MAX_DISKS == FRONT_MAX_DISKS && CONFIG_DISK_MAX == FRONT_DISK_MAX &&
		       CONFIG_DISK_QUEUES == FRONT_DISK_QUEUES,
	       "what the configuration allows is what the front can serve");

/* front_disk_config.flags, kept in the arena. */
#define DISK_OVERCOMMIT 1u
#define DISK_COMMAND 2u /* made by a command: it is served again at the next start */

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* The disk of that name in the arena; NULL: there is none, or its record is damaged. */
static struct store_client *known_disk(struct tmemd *t, const char *name,
				       struct front_disk_known *known)
{
	struct store_client *client = store_client_find(t->store, name);

	return client && front_disk_known(client, known) ? client : NULL;
}

/* ---- Exposure ------------------------------------------------------------------------------- */

struct exposure {
	const char *but; /* this one is left out; may be NULL */
	uint64_t disks;	 /* physical bytes that they can take */
	uint64_t minimums;
	bool promised; /* one of the disks did not ask for overcommit */
};

static int add_exposure(struct store_client *client, void *arg)
{
	struct exposure *sum = arg;
	struct front_disk_known known;
	struct store_limits limits;

	if (sum->but && !strcmp(sum->but, store_client_name(client)))
		return 0;
	store_client_limits(client, &limits);
	if (front_disk_known(client, &known)) {
		sum->disks += config_disk_exposure(known.bytes, limits.min_bytes);
		sum->promised |= !(known.flags & DISK_OVERCOMMIT);
	} else {
		sum->minimums += limits.min_bytes;
	}
	return 0;
}

static struct exposure exposure_but(struct tmemd *t, const char *name)
{
	struct exposure sum = {.but = name};

	store_client_each(t->store, add_exposure, &sum);
	return sum;
}

uint64_t disks_exposure(void *arg)
{
	struct exposure sum = exposure_but(arg, NULL);

	return sum.disks ? sum.disks + sum.minimums : 0;
}

/* 0, or -ENOSPC with the reason why a disk of so many bytes would be too much. */
static int check_exposure(struct tmemd *t, const struct config_disk *d, char *err, size_t errlen)
{
	struct exposure others = exposure_but(t, d->name);
	uint64_t own = config_disk_exposure(d->bytes, d->limits.min_bytes);
	uint64_t taken = others.disks + others.minimums, max = store_pool_max(t->store);
	uint64_t fits = taken < max ? (max - taken) / config_disk_exposure(CONFIG_DISK_BLOCK, 0) *
					      CONFIG_DISK_BLOCK
				    : 0;
	char smaller[64] = "";

	if (d->overcommit || taken + own <= max)
		return 0;
	if (fits)
		snprintf(smaller, sizeof(smaller), "make it at most %" PRIu64 " bytes, ", fits);
	return fail(-ENOSPC, err, errlen,
		    "disk %s of %" PRIu64 " bytes can take %" PRIu64
		    " physical bytes when nothing compresses; the other disks can take %" PRIu64
		    ", minimums of clients keep %" PRIu64 ", and pool_max is %" PRIu64
		    ": %sraise pool_max, or ask for overcommit",
		    d->name, d->bytes, own, others.disks, others.minimums, max, smaller);
}

static void say_exposure(struct tmemd *t)
{
	struct exposure sum = exposure_but(t, NULL);
	uint64_t max = store_pool_max(t->store);

	if (!sum.promised || sum.disks + sum.minimums <= max)
		return;
	log_msg(LOG_WARN,
		"disks can take %" PRIu64 " physical bytes when nothing compresses, minimums of "
		"clients keep %" PRIu64 ", and pool_max is %" PRIu64
		": writes of guests to disks may fail; raise pool_max, or remove a disk",
		sum.disks, sum.minimums, max);
}

/* ---- Into the store and the front ----------------------------------------------------------- */

static int front_add(struct tmemd *t, const struct config_disk *d, uint64_t flags, char *err,
		     size_t errlen)
{
	const struct front_disk_config config = {
		.name = d->name,
		.socket = d->socket,
		.socket_mode = d->socket_mode,
		.socket_uid = d->socket_uid,
		.socket_gid = d->socket_gid,
		.bytes = d->bytes,
		.queues = d->queues,
		.flags = flags | (d->overcommit ? DISK_OVERCOMMIT : 0),
	};
	int r = clients_check_socket(t, d->name, d->socket, err, errlen);

	return r ? r : front_disk_add(t->front, &config, err, errlen);
}

/* The front does not serve it any more. */
static void drop(struct tmemd *t, struct store_client *client)
{
	if (t->control)
		control_exclude(t->control, true);
	store_client_remove(client);
	if (t->control)
		control_exclude(t->control, false);
}

/* Makes the disk, or brings changed values of it into force. */
static int apply(struct tmemd *t, const struct config_disk *d, uint64_t flags, char *err,
		 size_t errlen)
{
	struct store_client *client = store_client_find(t->store, d->name);
	struct front_disk_known known = {0};
	struct front_status status;
	bool is_new = !client;
	int r = 0;

	if (client && !front_disk_known(client, &known) &&
	    !front_client_status(t->front, d->name, &status))
		return fail(-EEXIST, err, errlen,
			    "disk %s: a client has that name; give the disk another", d->name);
	if (d->bytes > known.bytes)
		r = check_exposure(t, d, err, errlen);
	if (r)
		return r;
	r = store_client_open(t->store, d->name, &d->limits, &client);
	if (r)
		return fail(r, err, errlen, "disk %s: %s", d->name,
			    r == -ENOSPC ? "the arena has no room for another client, or the "
					   "minimums of all (see tmemctl list) are above pool_max"
					 : strerror(-r));
	r = front_add(t, d, flags, err, errlen);
	if (r && is_new)
		drop(t, client);
	return r;
}

/* One of the configuration. What cannot be changed, stays and is said. */
static int apply_configured(struct tmemd *t, const struct config_disk *d, char *err, size_t errlen)
{
	struct config_disk want = *d;
	struct front_disk_known known;

	if (known_disk(t, d->name, &known)) {
		if (want.bytes < known.bytes)
			log_msg(LOG_WARN,
				"disk %s has %" PRIu64 " bytes and cannot shrink to %" PRIu64
				": it stays as it is; remove it and make it anew",
				d->name, known.bytes, want.bytes);
		else if (want.bytes > known.bytes && check_exposure(t, d, err, errlen))
			log_msg(LOG_ERROR, "%s; it stays at %" PRIu64 " bytes", err, known.bytes);
		else
			known.bytes = want.bytes;
		want.bytes = known.bytes;
	}
	return apply(t, &want, 0, err, errlen);
}

/* The disk as the arena knows it. */
static void as_known(struct config_disk *d, struct store_client *client,
		     const struct front_disk_known *known)
{
	config_disk_defaults(d, store_client_name(client));
	snprintf(d->socket, sizeof(d->socket), "%s", known->socket);
	d->socket_mode = known->socket_mode;
	d->socket_uid = known->socket_uid;
	d->socket_gid = known->socket_gid;
	d->bytes = known->bytes;
	d->queues = known->queues;
	d->overcommit = !!(known->flags & DISK_OVERCOMMIT);
	store_client_limits(client, &d->limits);
}

/* ---- Start ---------------------------------------------------------------------------------- */

static void say_kept(struct store_client *client, const char *remedy)
{
	counter_t *counters = store_client_counters(client);

	log_msg(LOG_WARN,
		"disk %s is in the arena with %" PRIu64
		" pages but %s; its pages are kept and nobody serves it",
		store_client_name(client), counter_get(&counters[CLIENT_PAGES_PERSISTENT]), remedy);
}

/* A disk that the configuration does not name: served if a command made it, else said. */
static int take_up(struct store_client *client, void *arg)
{
	struct tmemd *t = arg;
	const char *name = store_client_name(client);
	struct front_disk_known known;
	struct config_disk d;
	char err[512];

	if (config_disk(t->config, name))
		return 0;
	if (front_disk_damaged(client)) {
		say_kept(client, "its record is damaged: remove it (tmemctl disk remove)");
		return 0;
	}
	if (!front_disk_known(client, &known))
		return 0;
	if (!(known.flags & DISK_COMMAND)) {
		say_kept(client, "not in the configuration: add its section again and reload, or "
				 "remove it after its VM has ended (tmemctl disk remove)");
		return 0;
	}
	as_known(&d, client, &known);
	if (front_add(t, &d, DISK_COMMAND, err, sizeof(err)))
		log_msg(LOG_ERROR, "%s; the disk is kept and nobody serves it", err);
	return 0;
}

void disks_start(struct tmemd *t)
{
	char err[512];

	for (unsigned i = 0; i < t->config->nr_disks; i++)
		if (apply_configured(t, &t->config->disks[i], err, sizeof(err)))
			log_msg(LOG_ERROR, "%s; nobody serves it", err);
	store_client_each(t->store, take_up, t);
	say_exposure(t);
}

bool disks_is_disk(const struct store_client *client)
{
	struct front_disk_known known;

	return front_disk_known(client, &known) || front_disk_damaged(client);
}

/* ---- Reload --------------------------------------------------------------------------------- */

/* True when the disk is gone. */
static bool remove_unnamed(struct tmemd *t, const char *name)
{
	struct store_client *client = store_client_find(t->store, name);
	struct front_disk_status status;

	/* What is called so and is no disk kept this one from being made. */
	if (!client || !disks_is_disk(client))
		return true;
	if (front_disk_remove(t->front, name, false) == -EBUSY) {
		front_disk_status(t->front, name, &status);
		if (status.streaming)
			log_msg(LOG_WARN,
				"reload: disk %s stays: it is being saved or restored; reload "
				"again after that",
				name);
		else
			log_msg(LOG_WARN,
				"reload: disk %s stays: a front end (process %d) is connected; "
				"reload again after it has ended",
				name, (int)status.pid);
		return false;
	}
	drop(t, client);
	log_msg(LOG_NOTE, "reload: disk %s removed", name);
	return true;
}

/* A disk that stays, though it is no longer configured, goes to next. */
static void carry_over(struct config *next, const struct config_disk *d)
{
	struct config_disk *more = reallocarray(next->disks, next->nr_disks + 1, sizeof(*more));

	if (!more) {
		log_msg(LOG_ERROR, "reload: disk %s: out of memory", d->name);
		return;
	}
	next->disks = more;
	more[next->nr_disks++] = *d;
}

void disks_reload_remove(struct tmemd *t, struct config *next)
{
	for (unsigned i = 0; i < t->config->nr_disks; i++) {
		const struct config_disk *d = &t->config->disks[i];

		if (!config_disk(next, d->name) && !remove_unnamed(t, d->name))
			carry_over(next, d);
	}
}

void disks_reload(struct tmemd *t, const struct config *next, unsigned nr)
{
	char err[512];

	for (unsigned i = 0; i < nr; i++) {
		const struct config_disk *d = &next->disks[i];

		if (apply_configured(t, d, err, sizeof(err)))
			log_msg(LOG_ERROR, "reload: %s", err);
		else if (!config_disk(t->config, d->name))
			log_msg(LOG_NOTE, "reload: disk %s added", d->name);
	}
	say_exposure(t);
}

/* ---- Commands ------------------------------------------------------------------------------- */

int disks_lookup(void *arg, const char *name, struct control_disk *disk)
{
	struct tmemd *t = arg;
	struct store_client *client = store_client_find(t->store, name);
	struct front_disk_known known = {0};
	struct front_disk_status status;

	if (!client || (!front_disk_known(client, &known) && !front_disk_damaged(client)))
		return -ENOENT;
	*disk = (struct control_disk){
		.configured = config_disk(t->config, name) != NULL,
		.command = known.flags & DISK_COMMAND,
		.overcommit = known.flags & DISK_OVERCOMMIT,
		.queues = known.queues,
		.bytes = known.bytes,
		.socket_mode = known.socket_mode,
		.socket_uid = known.socket_uid,
		.socket_gid = known.socket_gid,
	};
	snprintf(disk->socket, sizeof(disk->socket), "%s", known.socket);
	if (front_disk_status(t->front, name, &status))
		return 0;
	disk->served = true;
	disk->connected = status.connected;
	disk->polling = status.polling;
	disk->pid = status.pid;
	disk->queues_running = status.queues_running;
	return 0;
}

/*
 * The front takes a socket that it finds for one of an earlier run. That of a new disk must not be
 * there.
 */
static int check_path(const struct config_disk *d, char *err, size_t errlen)
{
	struct stat st;

	if (!lstat(d->socket, &st))
		return fail(-EEXIST, err, errlen,
			    "disk %s: socket %s: there is a file already; remove it, or name "
			    "another socket",
			    d->name, d->socket);
	return 0;
}

int disks_create(void *arg, const struct config_disk *disk, char *err, size_t errlen)
{
	struct tmemd *t = arg;
	struct front_disk_known known;
	int r;

	if (config_client(t->config, disk->name))
		return fail(-EEXIST, err, errlen,
			    "disk %s: a client has that name; give the disk another", disk->name);
	r = clients_check_socket(t, disk->name, disk->socket, err, errlen);
	if (!r && !known_disk(t, disk->name, &known))
		r = check_path(disk, err, errlen);
	if (r)
		return r;
	r = apply(t, disk, config_disk(t->config, disk->name) ? 0 : DISK_COMMAND, err, errlen);
	if (!r)
		log_msg(LOG_NOTE, "disk %s: %" PRIu64 " bytes, served by command", disk->name,
			disk->bytes);
	return r;
}

int disks_resize(void *arg, const char *name, uint64_t bytes, char *err, size_t errlen)
{
	struct tmemd *t = arg;
	struct front_disk_known known;
	struct store_client *client = known_disk(t, name, &known);
	struct config_disk d;
	int r;

	if (!client)
		return fail(-ENOENT, err, errlen, "there is no disk \"%s\"", name);
	if (config_disk(t->config, name))
		return fail(-EPERM, err, errlen,
			    "disk %s is in the configuration: change its size there and reload",
			    name);
	if (bytes < known.bytes)
		return fail(-EINVAL, err, errlen,
			    "disk %s has %" PRIu64
			    " bytes and cannot shrink: remove it and make it "
			    "anew",
			    name, known.bytes);
	as_known(&d, client, &known);
	d.bytes = bytes;
	r = apply(t, &d, known.flags & DISK_COMMAND, err, errlen);
	if (!r && bytes != known.bytes)
		log_msg(LOG_NOTE, "disk %s: %" PRIu64 " bytes by command, %" PRIu64 " before", name,
			bytes, known.bytes);
	return r;
}

int disks_remove(void *arg, const char *name, bool force, char *err, size_t errlen)
{
	struct tmemd *t = arg;
	struct store_client *client = store_client_find(t->store, name);
	struct front_disk_status status;

	if (!client || !disks_is_disk(client))
		return fail(-ENOENT, err, errlen, "there is no disk \"%s\"", name);
	if (config_disk(t->config, name) && !force)
		return fail(-EPERM, err, errlen,
			    "disk %s is in the configuration: remove its section there and reload; "
			    "removed by force it is made anew at the next reload",
			    name);
	if (front_disk_remove(t->front, name, force) == -EBUSY) {
		front_disk_status(t->front, name, &status);
		if (status.streaming)
			return fail(-EBUSY, err, errlen, "disk %s is being saved or restored",
				    name);
		return fail(-EBUSY, err, errlen,
			    "disk %s: a front end (process %d) is connected; swapoff in its guest "
			    "and unplug it, or stop the VM, or remove it by force: what the guest "
			    "has on it is lost then, and its reads wait for ever",
			    name, (int)status.pid);
	}
	drop(t, client);
	log_msg(LOG_NOTE, "disk %s: removed by command%s", name, force ? ", by force" : "");
	return 0;
}
