// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Kills at every publication step of the store, not by luck: for each point of hyp/base/fault.h
 * at its first pass, its second, its third, ..., in a tour of all operations; then restarts and
 * checks the whole contract. The same for the steps of the rebuild, of arenas that a kill at each
 * other point left. And each call that can fail is made to fail at each pass: what fails leaves
 * nothing locked, nothing referenced, and nothing of the old page (cases 1 and 3).
 *
 * A point that is never passed is an error: the list of points is the list of what is tested.
 */
#include "base/fault.h"
#include "crash.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Passes of each point at which it is killed, in a new arena and in one that others left. */
#define PASSES 4
#define PASSES_FAIL 8
#define HANDLES (4 * OBJECT_PAGES)
#define TOUR_STEPS 160

enum outcome { ENDED, KILLED, HIT };

static struct rng rng;
static unsigned killed_new[FAULT_NR], killed_worn[FAULT_NR];

/* ---- The child ------------------------------------------------------------------------------ */

static void some_steps(struct worker *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned pool = rng_below(&w->rng, POOLS), h = rng_below(&w->rng, crash.handles);

		switch (rng_below(&w->rng, 8)) {
		case 0:
			do_flush(w, pool, h);
			break;
		case 1:
			do_get(w, pool, h);
			break;
		case 2:
			do_grant(w, 1 + rng_below(&w->rng, 4));
			break;
		default:
			do_put(w, pool, h, i & 1, false);
			break;
		}
		if (i % 16 == 0)
			store_work(w->store);
	}
}

/* Slabs of one class with holes, in several chunks: something to move, to free, to give back. */
static void some_holes(struct worker *w)
{
	for (unsigned h = 0; h < crash.handles; h++)
		do_put(w, h & 1, h, false, true);
	do_flush_many(w, 0);
	do_flush_many(w, 1);
	store_reclaim(w->store, 64u << 20, 200);
	while (store_work(w->store))
		;
}

/* Passes every point of the store. The order varies, so that a pass meets different states. */
static void tour(struct worker *w)
{
	for (unsigned p = 0; p < POOLS; p++)
		if (!w->log->pools[p].alive)
			do_new_pool(w, p);
	for (unsigned i = 0, first = rng_below(&w->rng, 6); i < 6; i++)
		switch ((first + i) % 6) {
		case 0:
			some_steps(w, TOUR_STEPS);
			break;
		case 1:
			do_note(w);
			do_visitor(w);
			do_grant(w, 5);
			do_revoke(w, rng_below(&w->rng, w->log->credits + 1));
			break;
		case 2:
			do_remake_pool(w);
			some_steps(w, TOUR_STEPS / 4);
			break;
		case 3:
			do_flush_object(w, 0, rng_below(&w->rng, crash.handles));
			do_flush_object(w, EPHEMERAL, rng_below(&w->rng, crash.handles));
			break;
		case 4:
			some_holes(w);
			break;
		default:
			store_flush_ephemeral(w->store, w->client);
			do_visitor(w);
			break;
		}
	some_steps(w, TOUR_STEPS / 4);
}

/* With a call that failed out of the way everything works again: nothing is locked or lost. */
static void goes_on(struct worker *w)
{
	for (unsigned i = 0; i < FAULT_NR; i++)
		fault_arm(i, FAULT_OFF, 0, 0);
	if (!w->store)
		w->store = crash_open(true, false, &w->client);
	while (store_work(w->store))
		;
	tour(w);
	while (store_work(w->store))
		;
	for (unsigned p = 0; p < POOLS; p++)
		for (unsigned h = 0; h < crash.handles; h++)
			do_get(w, p, h);
	do_put(w, 0, 0, false, true);
	if (!w->log->pools[0].stamp[0])
		crash_fail("no put is accepted after a call that failed");
}

static int child(uint64_t seed, enum fault_point point, enum fault_action action, uint32_t skip)
{
	static struct worker w;
	bool fails = action == FAULT_FAIL, hit;

	w.log = &crash.shared->thread[0];
	w.rng.state = seed;
	/* Half of the failures come alone, half of them in a row. */
	fault_arm(point, action, skip, 1 + (skip & 1) * 3);
	w.store = crash_open(true, fails, &w.client);
	/* After a kill it is not settled what the arena holds: only opened, until it is checked. */
	if (w.store && fault_kind(point) != FAULT_KIND_REBUILD)
		tour(&w);
	hit = fault_passes(point) > skip;
	if (fails && hit)
		goes_on(&w);
	if (w.store)
		store_close(w.store);
	return hit ? HIT : ENDED;
}

/* ---- The parent ----------------------------------------------------------------------------- */

/* One tour with `point` armed. */
static enum outcome run(enum fault_point point, enum fault_action action, uint32_t skip)
{
	uint64_t seed = rng_next(&rng);
	int status;
	pid_t pid;

	crash.round++;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(120);
		_exit(child(seed, point, action, skip) + 10);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		crash_fail("fork: %s", strerror(errno));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return KILLED;
	if (!WIFEXITED(status) || WEXITSTATUS(status) < 10)
		crash_fail("the child ended with status %#x", status);
	return WEXITSTATUS(status) - 10;
}

static void say(const char *fmt, const char *a, unsigned skip, const char *b)
{
	snprintf(crash.what, sizeof(crash.what), fmt, a, skip, b);
}

/* Kills at each pass of the point; how many there were. */
static unsigned kill_at_each(enum fault_point point, bool new_arena)
{
	unsigned skip, most = (unsigned)test_scaled(PASSES);

	for (skip = 0; skip < most; skip++) {
		say("killed at %s, pass %u%s", fault_name(point), skip, new_arena ? ", new" : "");
		if (new_arena)
			crash_end_arena();
		if (run(point, FAULT_KILL, skip) != KILLED)
			break;
		crash_check();
	}
	return skip;
}

static unsigned fail_at_each(enum fault_point point)
{
	unsigned skip, most = (unsigned)test_scaled(PASSES_FAIL);

	for (skip = 0; skip < most; skip++) {
		say("%s failed at pass %u%s", fault_name(point), skip, "");
		crash_end_arena();
		if (run(point, FAULT_FAIL, skip) != HIT)
			break;
		crash_check();
	}
	return skip;
}

/*
 * A point to be killed at before the rebuild that is of interest: each that can be in turn, and
 * every other time the one that leaves two descriptors of a handle.
 */
static enum fault_point mess_point(unsigned turn)
{
	unsigned p = turn / 2;

	if (turn & 1)
		return FAULT_PUT_PUBLISHED;
	while (!killed_worn[p % FAULT_NR] || fault_kind(p % FAULT_NR) != FAULT_KIND_STORE)
		p++;
	return p % FAULT_NR;
}

/*
 * Kills at each pass of a step of the rebuild, and then at its first pass again: a rebuild that
 * was killed is rebuilt.
 */
static unsigned kill_rebuild(enum fault_point point)
{
	unsigned skip = 0, most = (unsigned)test_scaled(PASSES), turn = 0;

	for (unsigned tried = 0; skip < most && tried < (skip ? 12 : 2 * FAULT_NR); tried++) {
		enum fault_point mess = mess_point(turn++);

		say("killed at %s, then in the rebuild (%u) at %s", fault_name(mess), skip,
		    fault_name(point));
		/* Not beyond its passes: a pool dies a few times in a tour only. */
		run(mess, FAULT_KILL,
		    rng_below(&rng, mess == FAULT_PUT_PUBLISHED ? 40 : killed_worn[mess]));
		if (run(point, FAULT_KILL, skip) == KILLED) {
			run(point, FAULT_KILL, 0);
			skip++;
			tried = 0;
		}
		crash_check();
	}
	return skip;
}

/* Opens the arena and puts the page `n` at `handle`; never returns. */
static void put_and_die(struct store_handle handle, unsigned n)
{
	struct store_client *client;
	uint8_t page[PAGE_BYTES];

	crash_open(true, false, &client);
	store_pool_new(client, crash_pool_flags[0], (uint64_t[2]){0, 0}, 1);
	/* The first run leaves a number that the next ones have to go on from. */
	for (unsigned old = 0; n == 0 && old < 8; old++) {
		crash_page(page, 100 + old);
		store_put(client, &handle, page, 0);
	}
	fault_arm(FAULT_PUT_PUBLISHED, FAULT_KILL, 0, 0);
	crash_page(page, 1 + n);
	store_put(client, &handle, page, 0);
	_exit(1);
}

/*
 * What had been published is what a get returns, over several restarts: of two descriptors the
 * newest wins.
 */
static void newest_wins(void)
{
	struct store_handle handle = {.object = {1, 2, 3}};
	uint8_t page[PAGE_BYTES], got[PAGE_BYTES];
	struct store_client *client;
	struct store *store;
	int status, r;
	pid_t pid;

	for (unsigned n = 0; n < 4; n++) {
		say("%skilled at put_published in run %u%s", "", n, "");
		pid = fork();
		if (!pid)
			put_and_die(handle, n);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
			crash_fail("the child ended with status %#x", status);
		store = crash_open(true, false, &client);
		crash_page(page, 1 + n);
		r = store_get(client, &handle, got);
		if (r != 1 || memcmp(page, got, PAGE_BYTES))
			crash_fail("get answered %d, %#llx; what was published last is %#x", r,
				   (unsigned long long)page_stamp(got), 1 + n);
		if (n == 3)
			store_pools_destroy(client);
		store_close(store);
	}
}

static void table(void)
{
	bool all = true;

	printf("%-20s %5s %5s\n", "point", "new", "worn");
	for (unsigned p = 0; p < FAULT_NR; p++) {
		if (fault_kind(p) == FAULT_KIND_FRONT || fault_kind(p) == FAULT_KIND_DISK ||
		    fault_kind(p) == FAULT_KIND_SESSION || fault_kind(p) == FAULT_KIND_STREAM ||
		    fault_kind(p) == FAULT_KIND_AWAY || fault_kind(p) == FAULT_KIND_SLOW)
			continue;
		printf("%-20s %5u %5u  %s\n", fault_name(p), killed_new[p], killed_worn[p],
		       fault_text(p));
		all &= killed_new[p] || killed_worn[p];
	}
	fflush(stdout);
	if (!all)
		crash_fail("a point was never passed");
}

int main(int argc, char **argv)
{
	crash.seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	crash.threads = 1;
	crash.handles = HANDLES;
	crash.pool_max = 48ull << 20;
	if (!fault_arm(FAULT_PUT_PUBLISHED, FAULT_OFF, 0, 0)) {
		printf("skipped: fault injection is not compiled in\n");
		return SKIPPED;
	}
	crash_begin("enumerate");
	rng.state = crash.seed;
	newest_wins();
	for (unsigned p = 0; p < FAULT_NR; p++)
		switch (fault_kind(p)) {
		case FAULT_KIND_STORE:
			killed_new[p] = kill_at_each(p, true);
			killed_worn[p] = kill_at_each(p, false);
			break;
		case FAULT_KIND_REBUILD:
			killed_worn[p] = kill_rebuild(p);
			break;
		case FAULT_KIND_FAIL:
			killed_new[p] = fail_at_each(p);
			break;
		default:
			break;
		}
	crash_end_arena();
	table();
	return 0;
}
