// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd is killed at random times and at each fault point of the ring, and started again, while
 * two threads put, get and flush. They notice nothing but a wait: every acknowledged page is
 * there, every flushed one is not, and what was under way is done once more.
 */
#include "raw.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RINGS 2
#define HANDLES 1500 /* of each ring */

struct player {
	struct tmem_client *client;
	unsigned ring;
	uint32_t pool;
	struct rng rng;
	uint64_t stamps[HANDLES]; /* 0: nothing stored */
	uint64_t operations;
	pthread_t thread;
};

static atomic_bool stop;

/* Counts turns, so that each kill meets some work. */
static atomic_ulong work_done;

static struct tmem_handle mine(const struct player *p, uint32_t i)
{
	return handle_at(p->pool, p->ring * 100000 + i);
}

static void verify(struct player *p, uint32_t i)
{
	struct tmem_handle h = mine(p, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = tmem_get(tmem_client_ring(p->client, p->ring), &h, page);

	CHECK_IS(r, p->stamps[i] != 0);
	CHECK(r != 1 || page_is(page, p->stamps[i]));
}

static void put_one(struct player *p, uint32_t i, bool posted)
{
	struct tmem_ring *ring = tmem_client_ring(p->client, p->ring);
	struct tmem_handle h = mine(p, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = -ENOBUFS;

	p->stamps[i] = rng_next(&p->rng) | 1;
	page_make(page, p->stamps[i]);
	if (posted)
		r = tmem_put_posted(ring, &h, page);
	if (r == -ENOBUFS)
		r = tmem_put(ring, &h, page);
	/* A restarted service may have no populated memory ready yet: refused, and nothing there.
	 */
	if (r == -ENOMEM || r == 0)
		p->stamps[i] = 0;
	else
		CHECK_IS(r, 1);
}

static void *play(void *arg)
{
	struct player *p = arg;
	struct tmem_handle h;

	while (!atomic_load(&stop)) {
		uint32_t i = rng_below(&p->rng, HANDLES);

		switch (rng_below(&p->rng, 8)) {
		case 0:
			h = mine(p, i);
			CHECK(tmem_flush(tmem_client_ring(p->client, p->ring), &h) >= 0);
			p->stamps[i] = 0;
			break;
		case 1:
		case 2:
			verify(p, i);
			break;
		case 3:
			put_one(p, i, false);
			break;
		default:
			put_one(p, i, true);
			break;
		}
		p->operations++;
		atomic_fetch_add(&work_done, 1);
	}
	return NULL;
}

static void some_work(unsigned long n)
{
	unsigned long from = atomic_load(&work_done);

	EVENTUALLY(atomic_load(&work_done) - from >= n);
}

/* Kills at a random moment of the work. */
static void kill_at_random(struct rng *rng)
{
	player_nap_ms(20 + rng_below(rng, 60));
	service_kill(SIGKILL);
	service_start(NULL);
	some_work(50);
}

#ifdef TMEMD_FAULT_INJECTION
/* Kills at the point; then once more while attaching; then starts in peace. */
static void kill_at(const char *point, struct rng *rng)
{
	char faults[128];
	int status, turns = 0;

	service_kill(SIGKILL);
	snprintf(faults, sizeof(faults), "%s=kill:%u", point, rng_below(rng, 200));
	if (service_try_start(faults)) {
		while (!service_ended(&status) && turns++ < 3000)
			player_nap_ms(5);
		CHECK(WIFSIGNALED(status));
	}
	snprintf(faults, sizeof(faults), "%s=kill:0", point);
	if (service_try_start(faults)) {
		for (turns = 0; !service_ended(&status) && turns < 100; turns++)
			player_nap_ms(5);
		service_kill(SIGKILL);
	}
	service_start(NULL);
	some_work(50);
}

/* Cases 16 and 17 of docs/cases.md. */
static void kill_at_points(struct rng *rng)
{
	static const char *const points[] = {"ring_executed",  "ring_done",   "put_published",
					     "credit_granted", "credit_used", "flush_half",
					     "put_payload"};

	for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		printf("killed at %s\n", points[i]);
		fflush(stdout);
		kill_at(points[i], rng);
	}
	/* Only an attachment passes this one. */
	service_kill(SIGKILL);
	CHECK(!service_try_start("attach_recorded=kill"));
	service_start(NULL);
	some_work(50);
}
#endif

static void start_players(struct player *players, struct tmem_client *client, uint64_t seed)
{
	uint32_t pool = player_pool(client, PERSISTENT);

	atomic_store(&stop, false);
	for (unsigned r = 0; r < RINGS; r++) {
		memset(&players[r], 0, sizeof(players[r]));
		players[r].client = client;
		players[r].ring = r;
		players[r].pool = pool;
		players[r].rng.state = seed + r;
		pthread_create(&players[r].thread, NULL, play, &players[r]);
	}
}

static void end_players(struct player *players)
{
	atomic_store(&stop, true);
	for (unsigned r = 0; r < RINGS; r++)
		pthread_join(players[r].thread, NULL);
	for (unsigned r = 0; r < RINGS; r++)
		for (uint32_t i = 0; i < HANDLES; i++)
			verify(&players[r], i);
	CHECK_IS(tmem_client_posted_failed(players[0].client), 0);
}

static void *boot_again(void *client)
{
	struct tmem_hello hello = {.rings = 1, .entries = 32};

	CHECK_IS(tmem_client_hello(client, &hello), 0);
	return NULL;
}

/* The guest boots again, or its owner dies, while nobody is there to see it. */
static void ended_meanwhile(void)
{
	struct tmem_client *client;
	uint8_t page[TMEM_PAGE_SIZE] = {1};
	struct tmem_handle h;
	pthread_t thread;
	pid_t child;

	child = player_fork();
	if (!child) {
		client = player_open("vm2", 1, 32);
		h = handle_at(player_pool(client, PERSISTENT), 1);
		CHECK_IS(tmem_put(tmem_client_ring(client, 0), &h, page), 1);
		pause();
	}
	EVENTUALLY(service_counter("vm2", "pages_persistent") == 1);
	service_kill(SIGKILL);
	player_end(child);
	service_start(NULL);
	EVENTUALLY(service_counter("vm2", "pages_persistent") == 0);

	client = player_open("vm2", 1, 32);
	h = handle_at(player_pool(client, PERSISTENT), 1);
	CHECK_IS(tmem_put(tmem_client_ring(client, 0), &h, page), 1);
	service_kill(SIGKILL);
	/* The hello is said while the service is away. */
	pthread_create(&thread, NULL, boot_again, client);
	player_nap_ms(50);
	service_start(NULL);
	pthread_join(thread, NULL);
	EVENTUALLY(service_counter("vm2", "pages_persistent") == 0);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* While nobody is there to see it, the guest says other sizes, and more credits than it has. */
static void forged_meanwhile(void)
{
	struct tmem_entry e = {.op = TMEM_PUT_PAGE};
	struct tmem_region *page;
	struct raw raw;
	uint32_t given;
	size_t bytes;

	raw_open(&raw, "vm2", 32);
	page = tmem_client_region(raw.client, &bytes);
	e.pool = player_pool(raw.client, PERSISTENT);
	CHECK_IS(raw_call(&raw, e), 1);
	EVENTUALLY(raw.ctl->credits);
	given = raw.ctl->credits;
	service_kill(SIGKILL);
	page->nr_rings = 4;
	page->entries = 256;
	page->features = 0;
	raw.ctl->credits = 1000000;
	service_start(NULL);
	e.op = TMEM_GET_PAGE;
	CHECK_IS(raw_call(&raw, e), 1);
	EVENTUALLY(raw.ctl->credits == given);
	CHECK_IS(tmem_client_bye(raw.client), 0);
	tmem_client_close(raw.client);
}

int main(int argc, char **argv)
{
	static struct player players[RINGS];
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	struct rng rng = {seed};
	struct tmem_client *client;
	uint64_t rounds = test_scaled(20);
	struct tmem_client_counts counts;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	service_configure("restart", "");
	service_start(NULL);
	client = player_open("vm1", RINGS, 64);
	start_players(players, client, seed);
	for (uint64_t i = 0; i < rounds; i++)
		kill_at_random(&rng);
#ifdef TMEMD_FAULT_INJECTION
	kill_at_points(&rng);
#else
	printf("no fault points in this build: kills at random times only\n");
#endif
	/* An orderly stop, and doorbells again. */
	CHECK_IS(service_kill(SIGTERM), 0);
	service_start(NULL);
	some_work(50);
	end_players(players);
	CHECK_IS(tmem_client_reconnect(client), 0);
	for (uint32_t i = 0; i < HANDLES; i++)
		verify(&players[0], i);
	tmem_client_counts(client, &counts);
	CHECK(counts.restarts >= rounds);
	printf("%llu operations over the restarts\n",
	       (unsigned long long)(players[0].operations + players[1].operations));
	CHECK_IS(tmem_client_bye(client), 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
	tmem_client_close(client);
	ended_meanwhile();
	forged_meanwhile();
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
