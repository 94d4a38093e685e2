// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kill -9 at any instruction, then restart: every acknowledged persistent page is there, every
 * flushed one is not. Here at random times, while two threads and the store's worker are busy,
 * or while the arena is opened; enumerate.c kills at each publication step.
 */
#include "base/clock.h"
#include "crash.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 200
#define ROUNDS_PER_ARENA 60

static void *work(void *arg)
{
	struct worker *w = arg;

	for (;;) {
		unsigned pool = rng_below(&w->rng, POOLS), h = rng_below(&w->rng, crash.handles);
		unsigned what = rng_below(&w->rng, 10000);

		if (what < 6500)
			do_put(w, pool, h, what >= 5000, !rng_below(&w->rng, 50));
		else if (what < 7900)
			do_flush(w, pool, h);
		else if (what < 8000)
			do_flush_object(w, pool, h);
		else if (what < 8400)
			do_grant(w, 1 + rng_below(&w->rng, 8));
		else if (what < 8500)
			do_revoke(w, rng_below(&w->rng, w->log->credits + 1));
		else if (what < 8550)
			do_note(w);
		else if (what < 8600)
			do_visitor(w);
		else if (what < 8620)
			do_remake_pool(w);
		else if (what < 8635)
			do_flush_many(w, pool); /* compaction has work */
		else if (what < 8660)
			store_reclaim(w->store, 64u << 20, 10);
		else
			do_get(w, pool, h);
	}
	return NULL;
}

static void child(uint64_t seed, bool fresh)
{
	static struct worker w[CRASH_MAX_THREADS];
	struct store_client *client[CRASH_MAX_THREADS];
	struct store *store = crash_open(false, false, client);
	pthread_t thread;

	for (unsigned n = 0; n < crash.threads; n++) {
		w[n].nr = n;
		w[n].rng.state = rng_mix(seed + n);
		w[n].log = &crash.shared->thread[n];
		w[n].store = store;
		w[n].client = client[n];
		for (unsigned p = 0; p < POOLS && fresh; p++)
			do_new_pool(&w[n], p);
	}
	atomic_store(&crash.shared->ready, true);
	for (unsigned n = 1; n < crash.threads; n++)
		if (pthread_create(&thread, NULL, work, &w[n]))
			crash_fail("no threads");
	work(&w[0]);
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return !waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == pid;
}

/* Lets a child work, and kills it. */
static void run_child(struct rng *r, bool fresh)
{
	uint64_t seed = rng_next(r);
	bool early = !fresh && !rng_below(r, 8);
	siginfo_t info = {0};
	pid_t pid;

	atomic_store(&crash.shared->ready, false);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		child(seed, fresh);
		_exit(2);
	}
	if (pid < 0)
		crash_fail("fork: %s", strerror(errno));
	/* Early: perhaps while it opens the arena. */
	while (!early && !atomic_load(&crash.shared->ready) && !has_ended(pid))
		usleep(100);
	usleep(1000 * (early ? rng_below(r, 8) : 1 + rng_below(r, 60)));
	kill(pid, SIGKILL);
	waitid(P_PID, pid, &info, WEXITED);
	if (info.si_code != CLD_KILLED || info.si_status != SIGKILL)
		crash_fail("the child ended by itself: code %d status %d", info.si_code,
			   info.si_status);
}

int main(int argc, char **argv)
{
	uint64_t rounds = test_scaled(ROUNDS), acknowledged = 0;
	bool fresh = true;
	struct rng r;

	crash.seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	crash.threads = 2;
	crash.handles = MAX_HANDLES;
	crash.pool_max = 48ull << 20;
	crash_begin("crash");
	r.state = crash.seed;
	for (crash.round = 0; crash.round < rounds; crash.round++) {
		run_child(&r, fresh);
		fresh = false;
		crash_check();
		if (crash.round % ROUNDS_PER_ARENA != ROUNDS_PER_ARENA - 1 &&
		    crash.round != rounds - 1)
			continue;
		for (unsigned n = 0; n < crash.threads; n++)
			acknowledged += crash.shared->thread[n].acknowledged;
		crash_end_arena();
		fresh = true;
	}
	printf("%llu kills, %llu operations acknowledged before them\n", (unsigned long long)rounds,
	       (unsigned long long)acknowledged);
	return 0;
}
