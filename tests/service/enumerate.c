// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd is killed at every step of the front that hyp/base/fault.h lists, at its first pass, its
 * second, ..., and then while it takes up again what that left; one guest works all the time, and
 * another begins a life, ends it, begins anew and goes, all the time. They notice nothing but a
 * wait: what was accepted is there, what was flushed or is of another life is not.
 */
#include "player.h"

#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSES 3
#define HANDLES 48
#define WAIT_MS 60000
/* So many turns of both guests pass every point. */
#define ENOUGH_TURNS 6

/* What the guests, which are processes, tell. */
struct progress {
	atomic_ulong work;  /* turns of the steady guest */
	atomic_ulong lives; /* of the other */
};
static struct progress *progress;
static pid_t guests[2];

/* ---- The guests ----------------------------------------------------------------------------- */

struct holder {
	struct tmem_client *client;
	struct rng rng;
	uint32_t pool;
	uint64_t stamps[HANDLES]; /* 0: nothing */
};

static void put(struct holder *h, uint32_t i, bool posted)
{
	struct tmem_ring *ring = tmem_client_ring(h->client, i % 2);
	struct tmem_handle handle = handle_at(h->pool, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = -ENOBUFS;

	h->stamps[i] = rng_next(&h->rng) | 1;
	page_make(page, h->stamps[i]);
	if (posted)
		r = tmem_put_posted(ring, &handle, page);
	if (r == -ENOBUFS)
		r = tmem_put(ring, &handle, page);
	if (r == 1 || (posted && !r))
		return;
	/* Refused: no memory ready yet, or frozen; then nothing is there. */
	CHECK(r == -ENOMEM || r == 0 || r == -TMEM_EFROZEN);
	h->stamps[i] = 0;
}

static void look(struct holder *h, uint32_t i)
{
	struct tmem_handle handle = handle_at(h->pool, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = tmem_get(tmem_client_ring(h->client, i % 2), &handle, page);

	CHECK_IS(r, h->stamps[i] != 0);
	CHECK(r != 1 || page_is(page, h->stamps[i]));
}

/* Every handle once: what is there is looked at, then put, or flushed. */
static void turn(struct holder *h)
{
	for (uint32_t i = 0; i < HANDLES; i++) {
		struct tmem_handle handle = handle_at(h->pool, i);

		look(h, i);
		if (rng_below(&h->rng, 4)) {
			put(h, i, rng_below(&h->rng, 3));
		} else {
			CHECK(tmem_flush(tmem_client_ring(h->client, i % 2), &handle) >= 0);
			h->stamps[i] = 0;
		}
	}
}

static void new_life(struct holder *h)
{
	struct tmem_hello hello = {.rings = 2, .entries = 32, .features = TMEM_F_ALL};

	CHECK_IS(tmem_client_hello(h->client, &hello), 0);
	h->pool = player_pool(h->client, PERSISTENT);
	memset(h->stamps, 0, sizeof(h->stamps));
}

/* The service may go while it is asked for a region: asked again until there is one. */
static void connect_to(struct holder *h, const char *name)
{
	char err[256] = "";

	for (unsigned ms = 0; ms < WAIT_MS; ms += 20) {
		if (!tmem_client_connect(&h->client, service_socket(name), WAIT_MS, err,
					 sizeof(err)))
			return;
		player_nap_ms(20);
	}
	fprintf(stderr, "%s\n", err);
	exit(1);
}

static void one_life(uint64_t seed)
{
	struct holder h = {.rng.state = seed};

	connect_to(&h, "vm2");
	new_life(&h);
	turn(&h);
	new_life(&h);
	turn(&h);
	if (seed & 1)
		return; /* the process ends without a word */
	CHECK_IS(tmem_client_bye(h.client), 0);
	new_life(&h);
	turn(&h);
}

static void steady_guest(uint64_t seed)
{
	struct holder h = {.rng.state = seed};

	connect_to(&h, "vm1");
	new_life(&h);
	for (;;) {
		turn(&h);
		CHECK_IS(tmem_client_posted_failed(h.client), 0);
		atomic_fetch_add(&progress->work, 1);
	}
}

static void changing_guest(uint64_t seed)
{
	for (;;) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			one_life(++seed);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK_IS(status, 0);
		seed += 1;
		atomic_fetch_add(&progress->lives, 1);
	}
}

static void start_guest(unsigned i, void (*guest)(uint64_t seed), uint64_t seed)
{
	guests[i] = fork();
	CHECK(guests[i] >= 0);
	if (guests[i])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	guest(seed);
}

/* ---- The host ------------------------------------------------------------------------------- */

static void check_guests(void)
{
	for (unsigned i = 0; i < 2; i++)
		CHECK(waitpid(guests[i], NULL, WNOHANG) == 0);
}

/* The service may be killed meanwhile: nobody asks how it went. */
static void try_ctl(const char *words)
{
	char command[512];

	snprintf(command, sizeof(command), "%s --socket %s %s > /dev/null 2>&1",
		 service_program("TMEMCTL"), scratch_path("control"), words);
	if (system(command) < 0)
		perror("system");
}

/* Lets the guests go on until tmemd is killed, or they have done `turns`; true when killed. */
static bool killed_within(unsigned long turns)
{
	unsigned long work = atomic_load(&progress->work) + turns * 2;
	unsigned long lives = atomic_load(&progress->lives) + turns;
	int status;

	for (unsigned ms = 0; ms < WAIT_MS; ms += 10) {
		check_guests();
		if (service_ended(&status)) {
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
			return true;
		}
		if (atomic_load(&progress->work) >= work && atomic_load(&progress->lives) >= lives)
			return false;
		/* Credits are taken back while a client is frozen. */
		if (ms % 100 == 0) {
			try_ctl("freeze vm1");
			try_ctl("thaw vm1");
		}
		player_nap_ms(10);
	}
	CHECK(!"the guests go on");
	return false;
}

/* Kills at that pass of the point, then at its first while what is left is taken up. */
static bool kill_at(enum fault_point point, unsigned skip)
{
	char faults[64];
	bool killed;

	snprintf(faults, sizeof(faults), "%s=kill:%u", fault_name(point), skip);
	killed = !service_try_start(faults) || killed_within(ENOUGH_TURNS);
	service_kill(SIGKILL);
	if (!killed)
		return false;
	snprintf(faults, sizeof(faults), "%s=kill", fault_name(point));
	if (service_try_start(faults))
		player_nap_ms(20);
	service_kill(SIGKILL);
	service_start(NULL);
	service_ctl("thaw vm1");
	CHECK(!killed_within(1));
	service_kill(SIGKILL);
	return true;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	unsigned most = (unsigned)test_scaled(PASSES);
	bool all = true;

	if (!fault_arm(FAULT_RING_DONE, FAULT_OFF, 0, 0)) {
		printf("skipped: fault injection is not compiled in\n");
		return SKIPPED;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	service_configure("lives", "");
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	CHECK(progress != MAP_FAILED);
	service_start(NULL);
	start_guest(0, steady_guest, rng_mix(seed));
	start_guest(1, changing_guest, rng_mix(seed + 1));
	CHECK(!killed_within(1));
	service_kill(SIGKILL);
	for (int p = 0; p < FAULT_NR; p++) {
		unsigned skip = 0;

		if (fault_kind(p) != FAULT_KIND_FRONT)
			continue;
		while (skip < most && kill_at(p, skip))
			skip++;
		printf("%-16s killed at %u passes  %s\n", fault_name(p), skip, fault_text(p));
		fflush(stdout);
		all &= skip > 0;
	}
	for (unsigned i = 0; i < 2; i++)
		kill(guests[i], SIGKILL);
	CHECK(all);
	service_start(NULL);
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 0);
	EVENTUALLY(service_counter("vm2", "pages_persistent") == 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
