// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A flood delays its sender only. vm1 keeps four rings of 256 entries full; vm2 does one put at a
 * time. Counted is how many of vm1's entries are executed between vm2's submission and its
 * completion: in order of arrival it would always be the hundreds that wait. Counts, not times,
 * because the machine may be slow; the lower quartile, because when all CPUs are busy this process
 * often has to wait for its own turn while the flood goes on.
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

/* Entries of the flood that were executed. */
static uint32_t executed(struct tmem_client *client)
{
	uint32_t sum = 0;
	size_t bytes;
	uint8_t *base = tmem_client_region(client, &bytes);

	for (unsigned r = 0; r < RINGS; r++) {
		struct tmem_ring_ctl *ctl =
			(struct tmem_ring_ctl *)(base + tmem_ring_off(r, ENTRIES));

		sum += __atomic_load_n(&ctl->cq_tail, __ATOMIC_ACQUIRE);
	}
	return sum;
}

/* Entries of the flood that wait. */
static uint32_t waiting(struct tmem_client *client)
{
	uint32_t sum = 0;
	size_t bytes;
	uint8_t *base = tmem_client_region(client, &bytes);

	for (unsigned r = 0; r < RINGS; r++) {
		struct tmem_ring_ctl *ctl =
			(struct tmem_ring_ctl *)(base + tmem_ring_off(r, ENTRIES));

		sum += __atomic_load_n(&ctl->sq_tail, __ATOMIC_ACQUIRE) -
		       __atomic_load_n(&ctl->cq_tail, __ATOMIC_ACQUIRE);
	}
	return sum;
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
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_ring *ring;
	struct tmem_handle h;
	pthread_t thread;
	uint32_t pool;

	service_configure("fairness", "");
	service_start(NULL);
	flooder = player_open("vm1", RINGS, ENTRIES);
	victim = player_open("vm2", 1, 32);
	ring = tmem_client_ring(victim, 0);
	tmem_ring_set_spin(ring, 100000);
	pool = player_pool(victim, PERSISTENT);
	pthread_create(&thread, NULL, flood, flooder);
	EVENTUALLY(executed(flooder) > 10 * ENTRIES);
	for (unsigned i = 0; i < SAMPLES; i++) {
		h = handle_at(pool, i);
		page_make(page, i);
		/* Only puts that meet a backlog count. */
		while (waiting(flooder) < RINGS * ENTRIES * 3 / 4)
			sched_yield();
		before = executed(flooder);
		CHECK_IS(tmem_put(ring, &h, page), 1);
		counts[i] = executed(flooder) - before;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	qsort(counts, SAMPLES, sizeof(counts[0]), by_value);
	printf("the flood's entries during one put of the other: quartile %u, median %u, "
	       "90 %% %u\n",
	       counts[SAMPLES / 4], counts[SAMPLES / 2], counts[SAMPLES * 9 / 10]);
	CHECK(counts[SAMPLES / 4] < RINGS * ENTRIES / 8);
	tmem_client_close(flooder);
	tmem_client_close(victim);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
