// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd goes away and comes back under disks at work: killed at random times and at each fault
 * point on a disk's way, stopped in order, away for a while. Guests notice nothing but a wait:
 * every request completes once, with success, and every block is what was written last (case 15,
 * case 16).
 *
 * Two disks are at work all the time, one with split rings and one with packed ones. And when the
 * content is gone with the arena, nobody gets to see zeroes in its place.
 */
#include "diskload.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISKS 2

static struct load loads[DISKS];
static const char *const disks[DISKS] = {"d1", "d2"};

/* Each kill meets some work of each disk, after it has connected again. */
static void some_work(uint64_t n)
{
	uint64_t from[DISKS];

	for (unsigned i = 0; i < DISKS; i++)
		from[i] = loads[i].done;
	for (unsigned i = 0; i < DISKS; i++)
		EVENTUALLY(loads[i].done - from[i] >= n);
}

static void start_again(void)
{
	service_start(NULL);
	some_work(50);
}

static void kill_at_random(struct rng *rng)
{
	player_nap_ms(5 + rng_below(rng, 100));
	service_kill(SIGKILL);
	start_again();
}

/* Killed once more as soon as it is back, in the middle of what a front end hands over. */
static void kill_twice(struct rng *rng)
{
	service_kill(SIGKILL);
	service_start(NULL);
	usleep(rng_below(rng, 20000));
	service_kill(SIGKILL);
	start_again();
}

#ifdef TMEMD_FAULT_INJECTION
/* Points on the way of a request: in the store, and those of the disk's own. */
static void kill_at_points(struct rng *rng)
{
	static const char *const points[] = {"put_payload", "put_published", "put_old_freed",
					     "flush_half",  "disk_executed", "disk_completed"};

	for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		char faults[128];
		int status, turns = 0;

		printf("killed at %s\n", points[i]);
		fflush(stdout);
		service_kill(SIGKILL);
		snprintf(faults, sizeof(faults), "%s=kill:%u", points[i], rng_below(rng, 300));
		if (service_try_start(faults)) {
			while (!service_ended(&status) && turns++ < 3000)
				player_nap_ms(5);
			CHECK(WIFSIGNALED(status));
		}
		start_again();
	}
}
#endif

/* Requests wait for two seconds, and are executed then. */
static void away_for_a_while(void)
{
	some_work(50);
	CHECK_IS(service_kill(SIGTERM), 0);
	player_nap_ms(2000);
	start_again();
}

static void open_disks(uint64_t seed)
{
	for (unsigned i = 0; i < DISKS; i++) {
		struct vu_options options = {
			.packed = i, .queues = 2, .data_bytes = LOAD_DATA_BYTES};

		load_init(&loads[i], disk_open(disks[i], &options), 2, seed + i);
		loads[i].survives = true;
	}
}

/* Another front end for the same content. */
static void reopen(unsigned disk, const struct vu_options *options)
{
	CHECK_IS(vu_close(loads[disk].vu), 0);
	loads[disk].vu = disk_open(disks[disk], options);
}

static void under_load(struct rng *rng, uint64_t rounds)
{
	uint64_t before[DISKS];

	for (unsigned i = 0; i < DISKS; i++) {
		before[i] = loads[i].reconnects;
		load_start(&loads[i]);
	}
	some_work(100);
	for (uint64_t i = 0; i < rounds; i++)
		kill_at_random(rng);
	for (uint64_t i = 0; i < (rounds + 3) / 4; i++)
		kill_twice(rng);
#ifdef TMEMD_FAULT_INJECTION
	kill_at_points(rng);
#endif
	away_for_a_while();
	for (unsigned i = 0; i < DISKS; i++) {
		load_end(&loads[i]);
		load_verify(&loads[i]);
		CHECK(loads[i].reconnects >= before[i] + rounds);
		printf("%s: %llu requests, %llu times connected again, longest %llu ms\n", disks[i],
		       (unsigned long long)loads[i].done, (unsigned long long)loads[i].reconnects,
		       (unsigned long long)loads[i].longest_ms);
	}
}

/* Nothing is under way; the position of the rings is all that there is to find. */
static void idle(void)
{
	for (unsigned turn = 0; turn < 3; turn++) {
		for (unsigned i = 0; i < DISKS; i++) {
			load_run(&loads[i], 37);
			load_drain(&loads[i]);
		}
		service_kill(turn == 1 ? SIGTERM : SIGKILL);
		service_start(NULL);
		for (unsigned i = 0; i < DISKS; i++)
			CHECK_IS(vu_reconnect(loads[i].vu, 10000), 0);
	}
	for (unsigned i = 0; i < DISKS; i++)
		load_verify(&loads[i]);
}

/* Requests made while tmemd is away; nobody kicks for them afterwards but what QEMU does. */
static void made_meanwhile(void)
{
	for (unsigned i = 0; i < DISKS; i++)
		load_drain(&loads[i]);
	service_kill(SIGKILL);
	for (unsigned i = 0; i < DISKS; i++)
		load_run(&loads[i], 6); /* the small rings have room for that */
	service_start(NULL);
	for (unsigned i = 0; i < DISKS; i++) {
		CHECK_IS(vu_reconnect(loads[i].vu, 10000), 0);
		load_drain(&loads[i]);
		load_verify(&loads[i]);
	}
}

/* A front end that goes in order finds the positions right after all that. */
static void in_order(void)
{
	for (unsigned i = 0; i < DISKS; i++) {
		struct vu_options options = {.packed = !i,
					     .queues = 2,
					     .ring = 32,
					     .no_indirect = true,
					     .no_event_idx = i,
					     .data_bytes = LOAD_DATA_BYTES};

		reopen(i, &options);
		load_verify(&loads[i]);
	}
}

/*
 * The arena is removed while tmemd is down: the disk is a new, empty one. A guest that has the old
 * one would read zeroes where it wrote something; it gets nothing instead. A guest that starts with
 * the new disk gets it.
 */
static void other_content(void)
{
	struct vu_options fresh = {.queues = 2, .data_bytes = LOAD_DATA_BYTES};
	struct vu *vu;

	for (unsigned i = 0; i < DISKS; i++)
		load_run(&loads[i], 1); /* a small ring has no room for more */
	service_kill(SIGKILL);
	CHECK(!unlink(service_socket("arena")));
	service_start(NULL);
	for (unsigned i = 0; i < DISKS; i++) {
		CHECK(vu_reconnect(loads[i].vu, 1000) < 0);
		vu = disk_open(disks[i], &fresh);
		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_IN, 0, 1), VIRTIO_BLK_S_OK);
		CHECK_IS(disk_do(vu, 1, VIRTIO_BLK_T_OUT, 5, 7), VIRTIO_BLK_S_OK);
		CHECK_IS(vu_close(vu), 0);
		/* Neither does it help to come again, now that somebody wrote to it. */
		CHECK(vu_reconnect(loads[i].vu, 500) < 0);
		vu_kill(loads[i].vu);
	}
	CHECK_IS(service_kill(SIGTERM), 0);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	struct vu_options small = {
		.packed = true, .queues = 2, .ring = 8, .data_bytes = LOAD_DATA_BYTES};
	struct rng rng = {seed};

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	disk_configure("disk-restart", "");
	service_start(NULL);
	open_disks(seed);
	under_load(&rng, test_scaled(8));
	/* Small rings turn around often. */
	reopen(1, &small);
	small.packed = false;
	reopen(0, &small);
	under_load(&rng, test_scaled(8));
	RUN(idle);
	RUN(made_meanwhile);
	RUN(in_order);
	RUN(other_content);
	for (unsigned i = 0; i < DISKS; i++)
		load_free(&loads[i]);
	return 0;
}
