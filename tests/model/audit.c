// SPDX-License-Identifier: GPL-2.0-or-later
/* The books, compared while nothing runs. */
#include "model.h"
#include "base/clock.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATIENCE (10 * CLOCK_S) /* for what the worker does by and by */

static uint64_t value(struct world *w, unsigned client, enum client_counter which)
{
	store_counters(w->store);
	return counter_get(&store_client_counters(w->client[client])[which]);
}

/* Lets background work be done while `done` says no; false when it takes too long. */
static bool wait_for(struct world *w, bool (*done)(struct world *w, uint64_t arg), uint64_t arg)
{
	uint64_t end = clock_ns() + PATIENCE;

	while (!done(w, arg)) {
		if (clock_ns() > end)
			return false;
		if (w->worker)
			usleep(1000);
		else
			store_work(w->store);
	}
	return true;
}

static void same(struct world *w, unsigned client, enum client_counter which, uint64_t want)
{
	uint64_t got = value(w, client, which);

	if (got != want)
		model_fail(w, NULL, "%s of %s is %llu, should be %llu",
			   client_counter_info[which].name, client_names[client],
			   (unsigned long long)got, (unsigned long long)want);
}

static void audit_counters(struct world *w, unsigned c)
{
	struct tally sum = {0};
	unsigned credits = 0;

	for (unsigned n = 0; n < w->nr_threads; n++) {
		const uint64_t *from = (const uint64_t *)&w->thread[n].tally[c];
		uint64_t *to = (uint64_t *)&sum;

		for (unsigned i = 0; i < sizeof(sum) / sizeof(*to); i++)
			to[i] += from[i];
		credits += w->thread[n].credits[c];
	}
	same(w, c, CLIENT_PUTS, sum.puts);
	same(w, c, CLIENT_PUTS_POSTED, sum.posted);
	same(w, c, CLIENT_REFUSED_ROOM, sum.room);
	same(w, c, CLIENT_REFUSED_MAXIMUM, sum.maximum);
	same(w, c, CLIENT_REFUSED_FROZEN, sum.frozen);
	same(w, c, CLIENT_REFUSED_NO_POOL, sum.no_pool);
	same(w, c, CLIENT_REFUSED_POOL, sum.pool);
	same(w, c, CLIENT_GETS_HIT, sum.hit);
	same(w, c, CLIENT_GETS_MISS, sum.miss);
	same(w, c, CLIENT_GETS_DAMAGED, 0);
	same(w, c, CLIENT_CREDITS_GRANTED, sum.granted);
	same(w, c, CLIENT_CREDITS_REVOKED, sum.revoked);
	same(w, c, CLIENT_CREDITS_FORGED, sum.forged);
	same(w, c, CLIENT_CREDITS, credits);
	if (store_credits(w->client[c]) != credits)
		model_fail(w, NULL, "%s has %u credits, should have %u", client_names[c],
			   store_credits(w->client[c]), credits);
}

/* Gets what can be got without taking it away; what is left in the model is then exact. */
static void audit_pages(struct world *w)
{
	for (unsigned n = 0; n < w->nr_threads; n++)
		for (unsigned c = 0; c < EXACT_CLIENTS; c++)
			for (unsigned p = 0; p < POOLS; p++)
				for (unsigned h = 0; h < HANDLES; h++) {
					struct model_thread *t = &w->thread[n];

					if (t->pools[c][p].alive)
						exact_get(t, c, &t->pools[c][p], h);
				}
}

struct held {
	uint64_t persistent[EXACT_CLIENTS];
	uint64_t ephemeral;
};

static void count_held(struct world *w, struct held *held)
{
	memset(held, 0, sizeof(*held));
	for (unsigned n = 0; n < w->nr_threads; n++)
		for (unsigned c = 0; c < EXACT_CLIENTS; c++)
			for (unsigned p = 0; p < POOLS; p++)
				for (unsigned h = 0; h < HANDLES; h++) {
					struct model_pool *pool = &w->thread[n].pools[c][p];

					if (!pool->alive || !pool->stamp[h])
						continue;
					if (keeps_pages(pool))
						held->persistent[c]++;
					else
						held->ephemeral++;
				}
}

/* Pages of destroyed pools are freed in the background. */
static bool gauges_agree(struct world *w, uint64_t arg)
{
	struct held *held = (struct held *)(uintptr_t)arg;
	uint64_t ephemeral = 0;

	for (unsigned c = 0; c < EXACT_CLIENTS; c++) {
		if (value(w, c, CLIENT_PAGES_PERSISTENT) != held->persistent[c])
			return false;
		ephemeral += value(w, c, CLIENT_PAGES_EPHEMERAL);
	}
	return ephemeral <= held->ephemeral;
}

static void audit_gauges(struct world *w)
{
	struct held held;
	uint64_t ephemeral = 0, physical = 0;
	counter_t *whole;

	count_held(w, &held);
	if (!wait_for(w, gauges_agree, (uintptr_t)&held)) {
		for (unsigned c = 0; c < EXACT_CLIENTS; c++) {
			same(w, c, CLIENT_PAGES_PERSISTENT, held.persistent[c]);
			ephemeral += value(w, c, CLIENT_PAGES_EPHEMERAL);
		}
		model_fail(w, NULL, "pages_ephemeral says %llu, gets found %llu",
			   (unsigned long long)ephemeral, (unsigned long long)held.ephemeral);
	}
	whole = store_counters(w->store);
	for (unsigned c = 0; c < NR_CLIENTS; c++)
		physical += value(w, c, CLIENT_PHYSICAL_BYTES);
	if (physical < counter_get(&whole[STORE_STORED_BYTES]) ||
	    physical > counter_get(&whole[STORE_ALLOCATED_BYTES]) +
			       counter_get(&whole[STORE_META_BYTES]))
		model_fail(w, NULL, "clients' physical bytes %llu; stored %llu, allocated %llu",
			   (unsigned long long)physical,
			   (unsigned long long)counter_get(&whole[STORE_STORED_BYTES]),
			   (unsigned long long)counter_get(&whole[STORE_ALLOCATED_BYTES]));
}

void audit(struct world *w)
{
	audit_pages(w);
	race_settle(w);
	audit_gauges(w);
	for (unsigned c = 0; c < NR_CLIENTS; c++)
		audit_counters(w, c);
}

void audit_restarted(struct world *w)
{
	for (unsigned n = 0; n < w->nr_threads; n++) {
		memset(w->thread[n].tally, 0, sizeof(w->thread[n].tally));
		for (unsigned c = 0; c < EXACT_CLIENTS; c++)
			for (unsigned p = 0; p < POOLS; p++) {
				struct model_pool *pool = &w->thread[n].pools[c][p];

				if (!keeps_pages(pool))
					memset(pool->stamp, 0, sizeof(pool->stamp));
			}
	}
	audit(w);
}

static bool all_zero(struct world *w, uint64_t unused)
{
	(void)unused;
	for (unsigned c = 0; c < NR_CLIENTS; c++)
		if (value(w, c, CLIENT_PAGES_PERSISTENT) || value(w, c, CLIENT_PAGES_EPHEMERAL) ||
		    value(w, c, CLIENT_PHYSICAL_BYTES))
			return false;
	return true;
}

static bool memory_returned(struct world *w, uint64_t unused)
{
	(void)unused;
	store_reclaim(w->store, UINT64_MAX / 2, 100);
	return !counter_get(&store_counters(w->store)[STORE_CHUNKS_USED]);
}

void audit_empty(struct world *w)
{
	counter_t *whole;
	struct stat st;

	for (unsigned c = 0; c < NR_CLIENTS; c++)
		store_pools_destroy(w->client[c]);
	if (!wait_for(w, all_zero, 0))
		for (unsigned c = 0; c < NR_CLIENTS; c++) {
			same(w, c, CLIENT_PAGES_PERSISTENT, 0);
			same(w, c, CLIENT_PAGES_EPHEMERAL, 0);
			same(w, c, CLIENT_PHYSICAL_BYTES, 0);
		}
	for (unsigned c = 0; c < NR_CLIENTS; c++)
		store_credits_revoke(w->client[c], store_credits(w->client[c]));
	whole = store_counters(w->store);
	if (counter_get(&whole[STORE_STORED_BYTES]) || counter_get(&whole[STORE_ALLOCATED_BYTES]))
		model_fail(w, NULL, "nothing is held, yet stored %llu, allocated %llu bytes",
			   (unsigned long long)counter_get(&whole[STORE_STORED_BYTES]),
			   (unsigned long long)counter_get(&whole[STORE_ALLOCATED_BYTES]));
	if (!wait_for(w, memory_returned, 0))
		model_fail(w, NULL, "nothing is held, yet %llu chunks are used",
			   (unsigned long long)counter_get(&whole[STORE_CHUNKS_USED]));
	/* What the file still takes is what the store says it takes. */
	whole = store_counters(w->store);
	if (stat(w->config.arena_path, &st))
		model_fail(w, NULL, "the arena is gone");
	if ((uint64_t)st.st_blocks * 512 > counter_get(&whole[STORE_POOL_BYTES]) +
						   counter_get(&whole[STORE_META_BYTES]) +
						   2 * STORE_CHUNK_BYTES)
		model_fail(w, NULL, "the arena takes %llu bytes, pool_bytes is %llu",
			   (unsigned long long)st.st_blocks * 512,
			   (unsigned long long)counter_get(&whole[STORE_POOL_BYTES]));
}
