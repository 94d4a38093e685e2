// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A flood delays its sender only. vm1 keeps four rings of 256 entries full; vm2 does one put at a
 * time. Counted is how many of vm1's entries are executed between vm2's submission and its
 * completion: in order of arrival it would always be the hundreds that wait. Counts, not times,
 * because the machine may be slow; and the best of twenty, because when all CPUs are busy this
 * process often has to wait for its own turn while the flood goes on.
 * (case 24)
 */
#include "player.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define RINGS 4
#define ENTRIES 256
#define SAMPLES 300

static atomic_bool stop;

static void *flood(void *arg)
{
	struct tmem_client *client = arg;
	uint32_t pool = player_pool(client, PERSISTENT);
	struct tmem_request request = {.op = TMEM_PUT_PAGE};
	struct tmem_result results[ENTRIES];
	uint8_t page[TMEM_PAGE_SIZE];

	page_make_sized(page, 1, 2000);
	request.page = page;
	for (unsigned turn = 0; !atomic_load(&stop); turn++) {
		struct tmem_ring *ring = tmem_client_ring(client, turn % RINGS);

		tmem_reap(ring, results, ENTRIES);
		request.handle = handle_at(pool, turn % RINGS * 1000);
		while (!tmem_submit(ring, &request))
			request.handle.index =
				turn % RINGS * 1000 + (request.handle.index + 1) % 500;
		tmem_kick(ring);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int main(void)
{
	struct tmem_client *flooder, *victim;
	uint32_t counts[SAMPLES], before;
	pthread_t thread;
	uint32_t pool;

	service_configure("fairness", "");
	service_start(NULL);
	flooder = player_open("vm1", RINGS, ENTRIES);
	victim = player_open("vm2", 1, 32);
	tmem_ring_set_spin(tmem_client_ring(victim, 0), 100000);
	pool = player_pool(victim, PERSISTENT);
	pthread_create(&thread, NULL, flood, flooder);
	EVENTUALLY(player_executed(flooder, RINGS, ENTRIES) > 10 * ENTRIES);
	for (unsigned i = 0; i < SAMPLES; i++) {
		/* Only puts that meet a backlog count. */
		while (player_waiting(flooder, RINGS, ENTRIES) < RINGS * ENTRIES * 3 / 4)
			sched_yield();
		before = player_executed(flooder, RINGS, ENTRIES);
		CHECK_IS(player_put(victim, pool, i, i), 1);
		counts[i] = player_executed(flooder, RINGS, ENTRIES) - before;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	qsort(counts, SAMPLES, sizeof(counts[0]), by_value);
	printf("the flood's entries during one put of the other: 5 %% %u, quartile %u, median %u\n",
	       counts[SAMPLES / 20], counts[SAMPLES / 4], counts[SAMPLES / 2]);
	CHECK(counts[SAMPLES / 20] < RINGS * ENTRIES / 8);
	tmem_client_close(flooder);
	tmem_client_close(victim);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
