// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of blobs that the lenders of the tests serve. */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct keeper *keeper_make(uint64_t room)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));

	CHECK(keeper, "no memory");
	pthread_mutex_init(&keeper->lock, NULL);
	keeper->room = room;
	return keeper;
}

static struct kept **place(struct keeper *keeper, const struct lender_owner *who, uint64_t blob)
{
	struct kept **at = &keeper->slots[rng_mix(blob) % KEEPER_SLOTS];

	while (*at && ((*at)->blob != blob || (*at)->epoch != who->epoch ||
		       memcmp((*at)->id, who->id, sizeof(who->id)) != 0))
		at = &(*at)->next;
	return at;
}

static void drop(struct keeper *keeper, struct kept **at)
{
	struct kept *old = *at;

	if (!old)
		return;
	*at = old->next;
	keeper->used -= old->len;
	keeper->blobs--;
	free(old);
}

static void lock(struct keeper *keeper)
{
	pthread_mutex_lock(&keeper->lock);
}

static void unlock(struct keeper *keeper)
{
	unsigned slow = keeper->slow_us;

	pthread_mutex_unlock(&keeper->lock);
	if (slow)
		nap_ms(slow / 1000);
}

static int put(void *arg, const struct lender_owner *who, uint64_t blob, const void *bytes,
	       uint32_t len)
{
	struct keeper *keeper = arg;
	struct kept *new = malloc(sizeof(*new) + len);
	int r = 0;

	lock(keeper);
	drop(keeper, place(keeper, who, blob));
	if (keeper->closed || keeper->used + len > keeper->room) {
		free(new);
		r = -ENOSPC;
	} else {
		*new = (struct kept){.epoch = who->epoch, .blob = blob, .len = len};
		memcpy(new->id, who->id, sizeof(new->id));
		memcpy(new->bytes, bytes, len);
		*place(keeper, who, blob) = new;
		keeper->used += len;
		keeper->blobs++;
	}
	unlock(keeper);
	return r;
}

static int get(void *arg, const struct lender_owner *who, uint64_t blob, void *bytes)
{
	struct keeper *keeper = arg;
	struct kept *kept;
	int r = -ENOENT;

	lock(keeper);
	kept = *place(keeper, who, blob);
	if (kept) {
		memcpy(bytes, kept->bytes, kept->len);
		r = keeper->broken ? -EIO : (int)kept->len;
	}
	unlock(keeper);
	return r;
}

static void delete (void *arg, const struct lender_owner *who, uint64_t blob)
{
	struct keeper *keeper = arg;

	lock(keeper);
	drop(keeper, place(keeper, who, blob));
	pthread_mutex_unlock(&keeper->lock);
}

static bool stays(uint64_t blob, const uint64_t *blobs, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (blobs[i] == blob)
			return true;
	return false;
}

static uint32_t renew(void *arg, const struct lender_owner *who, uint64_t first, uint64_t end,
		      const uint64_t *blobs, uint32_t nr)
{
	struct keeper *keeper = arg;
	uint32_t missing = 0;

	lock(keeper);
	for (uint64_t blob = first; blob < end && end - first < 1u << 20; blob++)
		if (!stays(blob, blobs, nr))
			drop(keeper, place(keeper, who, blob));
	for (uint32_t i = 0; i < nr; i++)
		missing += !*place(keeper, who, blobs[i]);
	pthread_mutex_unlock(&keeper->lock);
	return missing;
}

static void spare(void *arg, const struct lender_owner *who, uint64_t *bytes, uint64_t *held)
{
	struct keeper *keeper = arg;

	lock(keeper);
	*bytes = keeper->closed || keeper->used >= keeper->room ? 0 : keeper->room - keeper->used;
	*held = 0;
	for (unsigned i = 0; i < KEEPER_SLOTS && keeper->blobs; i++)
		for (struct kept *k = keeper->slots[i]; k; k = k->next)
			*held += k->epoch == who->epoch && !memcmp(k->id, who->id, sizeof(k->id));
	pthread_mutex_unlock(&keeper->lock);
}

static int forget_epoch(void *arg, const struct lender_owner *who, uint64_t *newest)
{
	struct keeper *keeper = arg;
	int r = 0;

	lock(keeper);
	for (unsigned i = 0; i < KEEPER_SLOTS; i++)
		for (struct kept **at = &keeper->slots[i]; *at;) {
			bool mine = !memcmp((*at)->id, who->id, sizeof(who->id));

			if (mine && (*at)->epoch > who->epoch) {
				*newest = (*at)->epoch;
				r = -ESTALE;
			}
			if (mine && (*at)->epoch < who->epoch)
				drop(keeper, at);
			else
				at = &(*at)->next;
		}
	pthread_mutex_unlock(&keeper->lock);
	return r;
}

const struct lender_ops keeper_ops = {put, get, delete, renew, spare, forget_epoch};

void keeper_empty(struct keeper *keeper)
{
	lock(keeper);
	for (unsigned i = 0; i < KEEPER_SLOTS; i++)
		while (keeper->slots[i])
			drop(keeper, &keeper->slots[i]);
	pthread_mutex_unlock(&keeper->lock);
}

void keeper_free(struct keeper *keeper)
{
	keeper_empty(keeper);
	pthread_mutex_destroy(&keeper->lock);
	free(keeper);
}

uint64_t keeper_blobs(struct keeper *keeper)
{
	uint64_t n;

	lock(keeper);
	n = keeper->blobs;
	pthread_mutex_unlock(&keeper->lock);
	return n;
}

void keeper_set(struct keeper *keeper, uint64_t room, unsigned slow_us, bool broken)
{
	lock(keeper);
	keeper->room = room;
	keeper->slow_us = slow_us;
	keeper->broken = broken;
	pthread_mutex_unlock(&keeper->lock);
}
