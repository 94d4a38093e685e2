// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Saving and restoring: the front says when a client is at rest and what its life is, the stream
 * room moves the pages, and here is how the two go together. Any thread.
 */
#include "config.h"

#include "tmemd_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "proto/tmem_abi.h"

/* A pass that wrote more is followed by the next one at once. */
#define FEW_PAGES 1024
#define BETWEEN_PASSES_MS 1000
/* What was submitted is executed within this time, or the guest goes on submitting. */
#define QUIET_NS (10 * CLOCK_S)
#define QUIET_NAP_NS (5 * CLOCK_MS) /* each look stops the workers for a moment */
/* Until there is memory for what the guest was promised. */
#define CREDITS_NS (10 * CLOCK_S)

static void nap(void)
{
	static const struct timespec ts = {.tv_nsec = QUIET_NAP_NS};

	nanosleep(&ts, NULL);
}

/* ---- Saving --------------------------------------------------------------------------------- */

struct saving {
	struct tmemd *t;
	const struct control_save *how;
	const struct stream_io *io;
	struct front_life life;
	bool paused;
};

static int hold(struct saving *s, char *err, size_t errlen)
{
	uint64_t end = clock_ns() + QUIET_NS;
	int r;

	while (!(r = front_save_hold(s->t->front, s->how->name, &s->life))) {
		if (s->io->gone(s->io->arg))
			return -ECANCELED;
		if (clock_ns() >= end)
			break;
		nap();
	}
	if (r < 0)
		snprintf(err, errlen, "%s: the life of its guest is over, another one has begun",
			 s->how->name);
	else if (!r)
		snprintf(err, errlen,
			 "%s is at work all the time: pause its guest first, or save it with "
			 "--live",
			 s->how->name);
	return r ? r : -EBUSY;
}

/* Is it time for the last pass? 1, 0 or a negated errno. */
static int last_pass(struct saving *s, uint64_t found)
{
	const struct control_save *how = s->how;
	int r;

	if (!how->live || s->paused)
		return 1;
	if (found == UINT64_MAX)
		return 0;
	r = how->passed(how->arg, found);
	if (r)
		return r;
	s->paused = how->paused(how->arg, found > FEW_PAGES ? 1 : BETWEEN_PASSES_MS);
	if (!s->paused && s->io->gone(s->io->arg))
		return -ECANCELED;
	return s->paused || front_save_abandoned(s->t->front, how->name);
}

static int wait_until_quiet(void *arg, uint64_t found, char *err, size_t errlen)
{
	struct saving *s = arg;
	int r = last_pass(s, found);

	return r == 1 ? hold(s, err, errlen) : r;
}

static bool still_quiet(void *arg)
{
	struct saving *s = arg;

	return front_save_held(s->t->front, s->how->name, &s->life);
}

static void head_of(struct tmem_stream_head *head, struct store_client *client,
		    const struct front_life *life)
{
	struct store_limits limits;

	store_client_limits(client, &limits);
	*head = (struct tmem_stream_head){
		.kind = life->disk ? TMEM_STREAM_DISK : TMEM_STREAM_CLIENT,
		.weight = limits.weight,
		.minimum = limits.min_bytes,
		.maximum = limits.max_bytes,
		.epoch = life->epoch,
		.guest_features = life->features,
		.region_bytes = life->region_bytes,
		.rings = life->rings,
		.entries = life->entries,
		.credits = life->credits,
		.disk_bytes = life->bytes,
		.queues = life->queues,
		.pool = life->pool,
	};
	snprintf(head->name, sizeof(head->name), "%s", store_client_name(client));
	memcpy(head->uuid, life->uuid, sizeof(head->uuid));
}

int streams_save(void *arg, const struct control_save *how, const struct stream_io *io,
		 struct stream_totals *totals, char *err, size_t errlen)
{
	struct tmemd *t = arg;
	struct saving s = {.t = t, .how = how, .io = io};
	struct stream_quiet quiet = {wait_until_quiet, still_quiet, &s};
	struct store_client *client = store_client_find(t->store, how->name);
	struct tmem_stream_head head;
	int r;

	if (!client) {
		snprintf(err, errlen, "there is no client \"%.64s\"", how->name);
		return -ENOENT;
	}
	r = front_save_begin(t->front, how->name, &s.life, err, errlen);
	if (r)
		return r;
	head_of(&head, client, &s.life);
	r = stream_save(client, &head, io, &quiet, totals, err, errlen);
	front_save_end(t->front, how->name);
	if (!r)
		log_msg(LOG_NOTE, "%s: saved, %" PRIu64 " pages in %" PRIu64 " bytes", how->name,
			totals->pages, totals->bytes);
	return r;
}

/* ---- Restoring ------------------------------------------------------------------------------ */

/* Memory for what the guest may have promised its processes and not yet put. */
static int reserve_credits(struct store_client *client, unsigned want, const struct stream_io *io,
			   char *err, size_t errlen)
{
	uint64_t end = clock_ns() + CREDITS_NS;
	unsigned got = 0;

	while ((got += store_credits_grant(client, want - got)) < want) {
		if (io->gone(io->arg))
			return -ECANCELED;
		if (clock_ns() >= end) {
			snprintf(err, errlen,
				 "there is no room for %u pages that the guest may have been "
				 "promised beside those of the stream: raise pool_max, or the "
				 "client's maximum; nothing of it was kept",
				 want);
			return -ENOMEM;
		}
		nap();
	}
	return 0;
}

static int bring_pages(struct stream_in *in, struct store_client *client, struct front_life *life,
		       const struct stream_io *io, struct stream_totals *totals, char *err,
		       size_t errlen)
{
	int r = stream_in_restore(in, client, &life->pool, totals, err, errlen);

	return r ? r : reserve_credits(client, life->credits, io, err, errlen);
}

static int restore(struct tmemd *t, const char *name, struct stream_in *in,
		   const struct tmem_stream_head *head, const struct stream_io *io,
		   struct stream_totals *totals, char *err, size_t errlen)
{
	struct store_client *client;
	struct front_life life = {
		.disk = head->kind == TMEM_STREAM_DISK,
		.epoch = head->epoch,
		.features = head->guest_features,
		.region_bytes = head->region_bytes,
		.rings = head->rings,
		.entries = head->entries,
		.credits = head->credits,
		.bytes = head->disk_bytes,
		.queues = head->queues,
	};
	int r = front_restore_begin(t->front, name, &life, err, errlen);

	if (r)
		return r;
	/* What is being restored is not removed. */
	client = store_client_find(t->store, name);
	if (store_frozen(t->store) || store_client_frozen(client)) {
		snprintf(err, errlen, "%s is frozen: see tmemctl thaw", name);
		r = -EPERM;
	} else {
		r = bring_pages(in, client, &life, io, totals, err, errlen);
	}
	front_restore_end(t->front, name, r ? NULL : &life);
	return r;
}

int streams_restore(void *arg, const char *name, const struct stream_io *io,
		    struct tmem_stream_head *head, struct stream_totals *totals, char *err,
		    size_t errlen)
{
	struct stream_in *in;
	int r = stream_in_open(&in, io, head, err, errlen);

	if (r)
		return r;
	r = restore(arg, name, in, head, io, totals, err, errlen);
	stream_in_close(in);
	if (r)
		log_msg(LOG_WARN, "%s: not restored: %s", name, err[0] ? err : strerror(-r));
	else
		log_msg(LOG_NOTE, "%s: restored, %" PRIu64 " pages", name, totals->pages);
	return r;
}

int streams_discard(void *arg, const char *name)
{
	struct tmemd *t = arg;
	int r = front_restore_discard(t->front, name);

	if (!r)
		log_msg(LOG_NOTE, "%s: what was restored is dropped by command", name);
	return r;
}
