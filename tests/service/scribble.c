// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entries changed while they are read, pages changed while they are compressed: in vm1 one thread
 * submits, another writes over entries, queues, positions, credit words and page slots without a
 * pause. Meanwhile vm2 is served and finds its pages, also over restarts of the service, which
 * replays what is left in vm1's rings. The scribbler harms itself only.
 */
#include "raw.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES 64
#define PAGES 1000

static uint64_t seed;

/* ---- vm1 ------------------------------------------------------------------------------------ */

static void *write_over(void *arg)
{
	struct raw *raw = arg;
	struct rng rng = {seed + 1};
	volatile uint64_t *entries = (uint64_t *)raw->entries, *slots = (uint64_t *)raw->slots;

	for (;;) {
		uint32_t n = rng_below(&rng, ENTRIES), word = rng_below(&rng, 6);

		/* The low bytes only in most cases: what looks right gets further. */
		entries[n * 8 + word] ^= rng_next(&rng) >> (rng_below(&rng, 4) ? 58 : 0);
		slots[n * 512 + rng_below(&rng, 512)] = rng_next(&rng);
		if (!rng_below(&rng, 8))
			raw->sq[n] = (uint16_t)rng_below(&rng, ENTRIES);
		if (!rng_below(&rng, 64))
			raw->ctl->credits = (uint32_t)rng_next(&rng);
		if (!rng_below(&rng, 64))
			raw->ctl->cq_event = (uint32_t)rng_next(&rng);
		if (!rng_below(&rng, 64))
			raw->ctl->cq_tail = raw->ctl->sq_event = (uint32_t)rng_next(&rng);
		if (!rng_below(&rng, 4000000))
			raw->sq[n] = (uint16_t)rng_next(&rng);
		if (!rng_below(&rng, 4000000))
			raw->ctl->sq_tail = (uint32_t)rng_next(&rng);
	}
	return NULL;
}

static struct tmem_entry random_entry(struct rng *rng, uint32_t position)
{
	static const uint8_t ops[] = {TMEM_PUT_PAGE,	 TMEM_PUT_PAGE,	    TMEM_PUT_PAGE,
				      TMEM_GET_PAGE,	 TMEM_GET_PAGE,	    TMEM_FLUSH_PAGE,
				      TMEM_FLUSH_OBJECT, TMEM_DESTROY_POOL, TMEM_NEW_POOL};
	struct tmem_entry e = {.op = ops[rng_below(rng, rng_below(rng, 8) ? 6 : 9)],
			       .pool = rng_below(rng, 2),
			       .object = {rng_below(rng, 4)},
			       .index = rng_below(rng, 64),
			       .seq = position + 1};

	if (e.op == TMEM_NEW_POOL)
		e = (struct tmem_entry){.op = TMEM_NEW_POOL,
					.index = rng_below(rng, 2) ? PERSISTENT : EPHEMERAL,
					.arg = 1 + rng_below(rng, 2),
					.seq = position + 1};
	if (e.op == TMEM_PUT_PAGE && rng_below(rng, 2))
		e.flags = TMEM_ENTRY_POSTED;
	return e;
}

static void submit(struct raw *raw, struct rng *rng)
{
	uint32_t tail = raw->ctl->sq_tail, n = 1 + rng_below(rng, 8);

	for (uint32_t i = 0; i < n; i++, tail++) {
		raw->entries[tail % ENTRIES] = random_entry(rng, tail);
		raw->sq[tail % ENTRIES] = (uint16_t)(tail % ENTRIES);
	}
	raw_ring(raw, tail);
	/* Without waiting for its own entries it would only ever be broken. */
	for (unsigned i = 0; i < 2000 && raw->ctl->sq_head != raw->ctl->sq_tail; i++)
		usleep(i < 1000 ? 0 : 100);
}

static void scribble(void)
{
	struct tmem_hello hello = {.rings = 1, .entries = ENTRIES, .features = TMEM_F_ALL};
	struct rng rng = {seed};
	pthread_t thread;
	struct raw raw;

	raw_open(&raw, "vm1", ENTRIES);
	CHECK(!pthread_create(&thread, NULL, write_over, &raw));
	for (;;) {
		/* Broken again before it is looked at: the next one. */
		if (tmem_client_refused(raw.client) && tmem_client_hello(raw.client, &hello))
			continue;
		submit(&raw, &rng);
	}
}

/* ---- vm2 ------------------------------------------------------------------------------------ */

static void work(struct tmem_client *client, uint32_t pool, uint64_t *stamps, struct rng *rng)
{
	uint32_t i = rng_below(rng, PAGES);

	if (stamps[i])
		CHECK_IS(player_get(client, pool, i, stamps[i]), 1);
	stamps[i] = rng_next(rng) | 1;
	/* A service that has just been started may have no memory ready: then nothing is held. */
	if (player_put(client, pool, i, stamps[i]) != 1)
		stamps[i] = 0;
}

int main(int argc, char **argv)
{
	uint64_t turns = test_scaled(6000), held = 0;
	static uint64_t stamps[PAGES];
	struct rng rng = {0};
	struct tmem_client *client;
	uint32_t pool;
	pid_t child;

	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	rng.state = seed + 2;
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	service_configure("scribble", "");
	service_start(NULL);
	child = player_fork();
	if (!child)
		scribble();
	client = player_open("vm2", 1, 32);
	pool = player_pool(client, PERSISTENT);
	EVENTUALLY(service_counter("vm1", "ring_bad") > 100);
	for (uint64_t i = 0; i < turns; i++) {
		work(client, pool, stamps, &rng);
		if (i % (turns / 4) == turns / 8) {
			service_kill(SIGKILL);
			service_start(NULL);
		}
	}
	EVENTUALLY(service_counter("vm1", "ring_bad") > 100);
	EVENTUALLY(service_counter("vm1", "ring_broken") > 0);
	EVENTUALLY(service_counter("vm1", "lives") > 0);
	EVENTUALLY(service_counter("vm1", "puts") > 0);
	/* Whatever vm1 did to its slots, what was stored is what was checksummed. */
	CHECK_IS(service_counter("vm1", "gets_damaged"), 0);
	CHECK_IS(service_counter("vm2", "gets_damaged"), 0);
	CHECK_IS(service_counter("vm2", "ring_bad"), 0);
	player_end(child);

	for (uint32_t i = 0; i < PAGES; i++) {
		held += stamps[i] != 0;
		CHECK_IS(player_get(client, pool, i, stamps[i]), stamps[i] != 0);
	}
	CHECK_IS(service_counter("vm2", "pages_persistent"), held);
	EVENTUALLY(service_counter("vm1", "physical_bytes") == 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
	CHECK_IS(tmem_client_bye(client), 0);
	EVENTUALLY(service_counter(NULL, "allocated_bytes") == 0);
	CHECK_IS(service_counter(NULL, "stored_bytes"), 0);
	tmem_client_close(client);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
