// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Random requests from several threads. A number is used once, as the store does it; a blob of
 * which two copies were promised may be missing only where the owner was told that both are lost.
 */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct slot {
	struct ask ask;
	enum { IDLE, PUTTING, GETTING } doing;
	bool held;
	uint64_t blob;
	uint16_t holders[TIER_COPIES];
	unsigned lost_at[TIER_COPIES]; /* losses of the holder that were known then */
};

struct worker {
	struct load *load;
	pthread_t thread;
	unsigned number;
	uint64_t next_blob;
	struct rng rng;
	_Atomic uint64_t turns;
	_Atomic uint64_t failed;
};

struct load {
	unsigned nr_workers;
	unsigned nr_slots; /* of each worker */
	_Atomic bool stop;
	struct worker *workers;
	struct slot *slots;
};

static bool is_lost(const struct slot *slot)
{
	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (atomic_load(&owner.lost[slot->holders[i]]) == slot->lost_at[i])
			return false;
	return true;
}

static void put_answered(struct worker *w, struct slot *slot)
{
	const struct tier_request *r = &slot->ask.request;

	if (slot->ask.result) {
		CHECK(slot->ask.result == -ENOSPC || slot->ask.result == -EHOSTUNREACH, "put: %d",
		      slot->ask.result);
		CHECK(!r->holders[0] && !r->holders[1], "holders of a put that failed");
		atomic_fetch_add(&w->failed, 1);
		return;
	}
	CHECK(r->holders[0] && r->holders[1] && r->holders[0] != r->holders[1], "holders %u, %u",
	      r->holders[0], r->holders[1]);
	slot->held = true;
	memcpy(slot->holders, r->holders, sizeof(slot->holders));
	for (unsigned i = 0; i < TIER_COPIES; i++)
		slot->lost_at[i] = atomic_load(&owner.lost[slot->holders[i]]);
}

static void get_answered(struct worker *w, struct slot *slot)
{
	switch (slot->ask.result) {
	case 0:
		CHECK(blob_is(slot->blob, slot->ask.bytes, slot->ask.request.len),
		      "blob %#llx has other bytes", (unsigned long long)slot->blob);
		return;
	case -ENOENT:
		CHECK(is_lost(slot), "blob %#llx of holders %u and %u is gone",
		      (unsigned long long)slot->blob, slot->holders[0], slot->holders[1]);
		slot->held = false;
		return;
	default:
		CHECK_IS(slot->ask.result, -EHOSTUNREACH);
		atomic_fetch_add(&w->failed, 1);
	}
}

/* False: it has no answer yet. */
static bool take_answer(struct worker *w, struct slot *slot)
{
	if (slot->doing == IDLE)
		return true;
	if (!atomic_load(&slot->ask.answers))
		return false;
	CHECK_IS(atomic_load(&slot->ask.answers), 1);
	if (slot->doing == PUTTING)
		put_answered(w, slot);
	else
		get_answered(w, slot);
	slot->doing = IDLE;
	atomic_fetch_add(&w->turns, 1);
	return true;
}

static void ask_something(struct worker *w, struct slot *slot)
{
	uint32_t client = rng_below(&w->rng, 3);

	if (!slot->held) {
		slot->blob = w->next_blob++;
		slot->doing = PUTTING;
		ask_put(&slot->ask, slot->blob, client, 2);
	} else if (rng_permille(&w->rng, 250)) {
		owner.tier->ops->delete (owner.tier, slot->blob, slot->holders);
		slot->held = false;
	} else {
		slot->doing = GETTING;
		ask_get(&slot->ask, slot->blob, client, slot->holders);
	}
}

static struct slot *slot_of(struct load *load, const struct worker *w, unsigned i)
{
	return &load->slots[w->number * load->nr_slots + i];
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct load *load = w->load;

	while (!atomic_load(&load->stop)) {
		unsigned waiting = 0;

		for (unsigned i = 0; i < load->nr_slots; i++) {
			struct slot *slot = slot_of(load, w, i);

			if (!take_answer(w, slot))
				waiting++;
			else
				ask_something(w, slot);
		}
		if (waiting * 2 > load->nr_slots)
			nap_ms(1);
	}
	return NULL;
}

struct load *load_begin(unsigned threads, unsigned blobs)
{
	struct load *load = calloc(1, sizeof(*load));

	CHECK(load, "no memory");
	load->nr_workers = threads;
	load->nr_slots = blobs / threads;
	load->workers = calloc(threads, sizeof(*load->workers));
	load->slots = calloc((size_t)threads * load->nr_slots, sizeof(*load->slots));
	CHECK(load->workers && load->slots, "no memory");
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = &load->workers[i];

		w->load = load;
		w->number = i;
		w->next_blob = (uint64_t)(i + 1) << 40;
		w->rng.state = i * 77;
		CHECK(!pthread_create(&w->thread, NULL, work, w), "no thread");
	}
	return load;
}

void load_stop(struct load *load)
{
	atomic_store(&load->stop, true);
	for (unsigned i = 0; i < load->nr_workers; i++) {
		struct worker *w = &load->workers[i];

		pthread_join(w->thread, NULL);
		for (unsigned k = 0; k < load->nr_slots; k++)
			EVENTUALLY(take_answer(w, slot_of(load, w, k)));
	}
}

uint64_t load_turns(const struct load *load)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < load->nr_workers; i++)
		n += atomic_load(&load->workers[i].turns);
	return n;
}

uint64_t load_failed(const struct load *load)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < load->nr_workers; i++)
		n += atomic_load(&load->workers[i].failed);
	return n;
}

unsigned load_verify(struct load *load)
{
	unsigned held = 0, lost = 0;

	for (unsigned i = 0; i < load->nr_workers * load->nr_slots; i++) {
		struct slot *slot = &load->slots[i];
		int r;

		if (!slot->held)
			continue;
		ask_get(&slot->ask, slot->blob, 9, slot->holders);
		r = ask_wait(&slot->ask);
		if (r == -ENOENT && is_lost(slot)) {
			lost++;
			continue;
		}
		CHECK(!r, "blob %#llx of holders %u and %u: %d", (unsigned long long)slot->blob,
		      slot->holders[0], slot->holders[1], r);
		CHECK(blob_is(slot->blob, slot->ask.bytes, slot->ask.request.len), "other bytes");
		held++;
	}
	printf("  %llu answers, %llu of them failures; %u blobs there, %u lost with both holders\n",
	       (unsigned long long)load_turns(load), (unsigned long long)load_failed(load), held,
	       lost);
	return held;
}

void load_forget(struct load *load)
{
	for (unsigned i = 0; i < load->nr_workers * load->nr_slots; i++) {
		struct slot *slot = &load->slots[i];

		if (slot->held)
			owner.tier->ops->delete (owner.tier, slot->blob, slot->holders);
		slot->held = false;
	}
}

void load_end(struct load *load)
{
	free(load->workers);
	free(load->slots);
	free(load);
}
