// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The front's side of streams: when is a client at rest, and what becomes of a life that is brought
 * here. The pages themselves are not this room's business.
 *
 * A save takes the last pages when everything that the guest has submitted is executed, and from
 * then on nothing is, until it is over. If something was submitted meanwhile, the guest was not
 * paused, and the stream is worth nothing. So what a paused guest finds done in its ring, wherever
 * it wakes up, is in the stream; and what it does not find done it does once more.
 */
#include "disk_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* A client or a disk, whatever has the name. */
struct named {
	struct front_client *client;
	struct disk *disk;
};

static struct named lock_named(struct front *front, const char *name)
{
	struct named named;

	pthread_mutex_lock(&front->lock);
	named.client = client_find(front, name);
	named.disk = named.client ? NULL : disk_find(front, name);
	return named;
}

static void unlock(struct front *front)
{
	pthread_mutex_unlock(&front->lock);
}

static struct served *served_of(const struct named *named)
{
	return named->client ? &named->client->lanes : &named->disk->lanes;
}

static int nobody(const char *name, char *err, size_t errlen)
{
	return fail(-ENOENT, err, errlen, "nobody serves %s: it is not in the configuration", name);
}

/* ---- Saving --------------------------------------------------------------------------------- */

static unsigned most_credits(const struct front_client *client)
{
	unsigned each = atomic_load(&client->ring_credits);

	if (!(client->features & TMEM_F_POSTED))
		return 0;
	if (each > client->entries / 2)
		each = client->entries / 2;
	return each * client->nr_rings;
}

static int begin_client(struct front_client *client, struct front_life *life, char *err,
			size_t errlen)
{
	if (client->saving || client->restoring)
		return fail(-EBUSY, err, errlen, "client %s is being saved or restored already",
			    client->name);
	if (!client->epoch)
		return fail(-ENODATA, err, errlen,
			    "client %s has no guest that is connected, so there is nothing to save",
			    client->name);
	if (!(client->features & TMEM_F_RESUME))
		return fail(-ENODATA, err, errlen,
			    "the guest of client %s cannot go on elsewhere: its module is older "
			    "than that; swap off there first",
			    client->name);
	*life = (struct front_life){
		.epoch = client->epoch,
		.features = client->features,
		.region_bytes = client->region.bytes,
		.rings = client->nr_rings,
		.entries = client->entries,
		.credits = most_credits(client),
	};
	if (client->channel == &xen_channel)
		memcpy(life->uuid, client->owner.key, sizeof(life->uuid));
	client->saving = true;
	client->ending = false;
	atomic_store(&client->sums, true);
	return 0;
}

static int begin_disk(struct disk *disk, struct front_life *life, char *err, size_t errlen)
{
	if (disk->streaming)
		return fail(-EBUSY, err, errlen, "disk %s is being saved or restored already",
			    disk->name);
	*life = (struct front_life){
		.disk = true,
		.bytes = disk->record.known.bytes,
		.queues = disk->record.known.queues,
		.pool = disk->record.pool,
	};
	disk->streaming = true;
	disk->had_front_end = disk->connection >= 0;
	return 0;
}

int front_save_begin(struct front *front, const char *name, struct front_life *life, char *err,
		     size_t errlen)
{
	struct named named = lock_named(front, name);
	int r;

	if (named.client)
		r = begin_client(named.client, life, err, errlen);
	else if (named.disk)
		r = begin_disk(named.disk, life, err, errlen);
	else
		r = nobody(name, err, errlen);
	unlock(front);
	return r;
}

/* The life that is saved is still served. */
static bool goes_on(const struct named *named, const struct front_life *life)
{
	if (!named->client)
		return named->disk != NULL;
	return named->client->epoch == life->epoch && !atomic_load(&named->client->lanes.broken);
}

int front_save_hold(struct front *front, const char *name, const struct front_life *life)
{
	struct named named = lock_named(front, name);
	int r = -ESTALE;

	if (goes_on(&named, life))
		r = workers_hold(served_of(&named));
	unlock(front);
	return r;
}

bool front_save_held(struct front *front, const char *name, const struct front_life *life)
{
	struct named named = lock_named(front, name);
	bool held = goes_on(&named, life) && workers_held(served_of(&named));

	unlock(front);
	return held;
}

bool front_save_abandoned(struct front *front, const char *name)
{
	struct named named = lock_named(front, name);
	bool abandoned = named.client && named.client->ending;

	/* A disk that nobody had when the save began may be had yet. */
	if (named.disk)
		abandoned = named.disk->had_front_end && named.disk->connection < 0;
	unlock(front);
	return abandoned;
}

void front_save_end(struct front *front, const char *name)
{
	struct named named = lock_named(front, name);

	if (named.client) {
		named.client->saving = false;
		atomic_store(&named.client->sums, false);
		if (named.client->ending)
			life_end(named.client);
	} else if (named.disk) {
		named.disk->streaming = false;
	}
	if (named.client || named.disk)
		workers_let_go(served_of(&named));
	unlock(front);
}

/* ---- Restoring ------------------------------------------------------------------------------ */

static int check_fit(const struct front_client *client, const struct front_life *life, char *err,
		     size_t errlen)
{
	uint64_t offered = client->ring_credits ? TMEM_F_ALL : TMEM_F_ALL & ~TMEM_F_POSTED;
	uint64_t bytes = client->owner.pid ? client->region.bytes : client->region_bytes;

	if (life->disk)
		return fail(-EINVAL, err, errlen,
			    "the stream is that of a disk, and %s is a client with rings",
			    client->name);
	if (life->features & ~offered)
		return fail(-EINVAL, err, errlen,
			    "the guest had features (%llx) that client %s does not offer; "
			    "credits = must not be 0",
			    (unsigned long long)(life->features & ~offered), client->name);
	if (life->rings > client->max_rings)
		return fail(-EINVAL, err, errlen, "the guest had %u rings and client %s allows %u",
			    life->rings, client->name, client->max_rings);
	if (tmem_region_need(life->rings, life->entries) > bytes)
		return fail(-EINVAL, err, errlen,
			    "the guest had a region of %llu bytes, and that of client %s has %llu, "
			    "which is too small for its rings",
			    (unsigned long long)life->region_bytes, client->name,
			    (unsigned long long)bytes);
	return 0;
}

static int restore_client(struct front_client *client, const struct front_life *life, char *err,
			  size_t errlen)
{
	int r = check_fit(client, life, err, errlen);

	if (r)
		return r;
	if (client->saving || client->restoring)
		return fail(-EBUSY, err, errlen, "client %s is being saved or restored already",
			    client->name);
	if (client->former)
		return fail(-EBUSY, err, errlen,
			    "client %s was restored already and waits for its guest; see "
			    "tmemctl restore --discard",
			    client->name);
	if (client->epoch || store_client_pools(client->store, NULL, 0))
		return fail(-EBUSY, err, errlen,
			    "client %s is not empty: a guest is connected, or has left pages; a "
			    "stream is restored before its guest goes on",
			    client->name);
	life_restoring(client);
	return 0;
}

static bool is_running(const struct disk *disk)
{
	for (unsigned i = 0; disk->vhost && i < disk->record.known.queues; i++)
		if (vhost_running(disk->vhost, i))
			return true;
	return false;
}

static int restore_disk(struct disk *disk, const struct front_life *life, char *err, size_t errlen)
{
	counter_t *pages = &disk->counters[CLIENT_PAGES_PERSISTENT];

	if (!life->disk)
		return fail(-EINVAL, err, errlen,
			    "the stream is that of a client with rings, and %s is a disk",
			    disk->name);
	if (disk->streaming)
		return fail(-EBUSY, err, errlen, "disk %s is being saved or restored already",
			    disk->name);
	if (life->bytes > disk->record.known.bytes)
		return fail(-EINVAL, err, errlen,
			    "the stream is that of a disk of %llu bytes, and disk %s has %llu; see "
			    "tmemctl disk resize",
			    (unsigned long long)life->bytes, disk->name,
			    (unsigned long long)disk->record.known.bytes);
	if (is_running(disk) || counter_get(pages))
		return fail(-EBUSY, err, errlen,
			    "disk %s is not empty: a guest uses it, or has left pages; a stream is "
			    "restored before its guest goes on",
			    disk->name);
	if (!workers_hold(&disk->lanes))
		return fail(-EBUSY, err, errlen, "disk %s is in use", disk->name);
	disk->streaming = true;
	return 0;
}

int front_restore_begin(struct front *front, const char *name, const struct front_life *life,
			char *err, size_t errlen)
{
	struct named named = lock_named(front, name);
	int r;

	if (named.client)
		r = restore_client(named.client, life, err, errlen);
	else if (named.disk)
		r = restore_disk(named.disk, life, err, errlen);
	else
		r = nobody(name, err, errlen);
	unlock(front);
	return r;
}

/* Record first: whoever finds two contents goes by it. */
static void give_content(struct disk *disk, uint32_t pool)
{
	uint32_t old = disk->record.pool;

	disk->record.pool = pool;
	disk_record_write(disk->store, &disk->record);
	fault(FAULT_DISK_RESTORED);
	store_pool_destroy(disk->store, old);
}

/* A guest that runs by now takes what is not stored for zeroes; it had better wait. */
static void end_disk(struct disk *disk, const struct front_life *life)
{
	disk->streaming = false;
	if (life)
		give_content(disk, life->pool);
	if (life || !is_running(disk))
		workers_let_go(&disk->lanes);
	else
		log_msg(LOG_ERROR,
			"disk %s: it was not restored, and a guest runs that needs what is on it: "
			"it waits until its front end goes",
			disk->name);
}

void front_restore_end(struct front *front, const char *name, const struct front_life *life)
{
	struct named named = lock_named(front, name);

	if (life)
		fault(FAULT_RESTORE_WHOLE);
	if (named.client && life)
		life_restored(named.client, life->epoch);
	else if (named.client)
		life_discard(named.client);
	else if (named.disk)
		end_disk(named.disk, life);
	unlock(front);
}

int front_restore_discard(struct front *front, const char *name)
{
	struct named named = lock_named(front, name);
	int r = -ENOENT;

	if (named.client && named.client->former) {
		life_discard(named.client);
		r = 0;
	}
	unlock(front);
	return r;
}
