// SPDX-License-Identifier: GPL-2.0-or-later
#include "model.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 40
#define DEFAULT_OPS 6000000

const char *const client_names[NR_CLIENTS] = {"alpha", "beta", "forger", "racer"};

void model_fail(const struct world *w, const struct model_thread *t, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (t)
		fprintf(stderr, "FAIL: seed %llu thread %u step %llu: %s\n",
			(unsigned long long)w->seed, t->nr, (unsigned long long)t->step, text);
	else
		fprintf(stderr, "FAIL: seed %llu between steps: %s\n", (unsigned long long)w->seed,
			text);
	_exit(1);
}

void check_put(struct model_thread *t, unsigned client, const struct control_view *view, int r,
	       bool posted)
{
	struct tally *tally = &t->tally[client];
	bool sure = control_same(t->world, view);

	if (posted && r != 1)
		model_fail(t->world, t, "a put with a credit answered %d", r);
	switch (r) {
	case 1:
		tally->puts++;
		tally->posted += posted;
		break;
	case 0:
	case -ENOMEM:
		tally->room++;
		break;
	case -EDQUOT:
		tally->maximum++;
		break;
	case -TMEM_EFROZEN:
		tally->frozen++;
		break;
	default:
		model_fail(t->world, t, "put answered %d", r);
	}
	if (!sure)
		return;
	if (view->frozen && !posted && r != -TMEM_EFROZEN)
		model_fail(t->world, t, "put answered %d though %s is frozen", r,
			   client_names[client]);
	if (!view->frozen && r == -TMEM_EFROZEN)
		model_fail(t->world, t, "put refused: frozen, which %s is not",
			   client_names[client]);
	if (!view->limited && r == -EDQUOT)
		model_fail(t->world, t, "put refused: maximum, which %s has not",
			   client_names[client]);
}

static void *thread_main(void *arg)
{
	struct model_thread *t = arg;

	for (uint64_t i = 0; i < t->world->round_steps; i++) {
		t->step++;
		if (rng_below(&t->rng, 4))
			exact_step(t);
		else
			race_step(t);
	}
	return NULL;
}

static void open_store(struct world *w)
{
	static const struct store_limits limits = {0};
	char err[256] = "";
	int r;

	w->config.no_worker = !w->worker;
	r = store_open(&w->store, &w->config, err, sizeof(err));
	if (r)
		model_fail(w, NULL, "store_open: %d %s", r, err);
	for (unsigned c = 0; c < NR_CLIENTS; c++) {
		r = store_client_open(w->store, client_names[c], &limits, &w->client[c]);
		if (r)
			model_fail(w, NULL, "client %s: %d", client_names[c], r);
	}
}

static void run_round(struct world *w)
{
	pthread_t operator_thread;

	atomic_store(&w->stop, false);
	if (pthread_create(&operator_thread, NULL, operator_main, w))
		model_fail(w, NULL, "no threads");
	for (unsigned n = 0; n < w->nr_threads; n++)
		if (pthread_create(&w->thread[n].thread, NULL, thread_main, &w->thread[n]))
			model_fail(w, NULL, "no threads");
	for (unsigned n = 0; n < w->nr_threads; n++)
		pthread_join(w->thread[n].thread, NULL);
	atomic_store(&w->stop, true);
	pthread_join(operator_thread, NULL);
	operator_calm(w);
}

static void restart(struct world *w, struct rng *r)
{
	store_close(w->store);
	w->worker = rng_below(r, 3);
	open_store(w);
	audit_restarted(w);
	operator_calm(w);
}

/* A life ends: all pools of one client, which shares none, go. */
static void end_life(struct world *w, unsigned client)
{
	store_pools_destroy(w->client[client]);
	for (unsigned n = 0; n < w->nr_threads; n++) {
		struct model_thread *t = &w->thread[n];

		for (unsigned p = 0; p < POOLS; p++)
			memset(&t->pools[client][p], 0, sizeof(t->pools[0][0]));
	}
}

static bool put_accepted(struct world *w)
{
	struct model_thread *t = &w->thread[0];
	struct store_handle handle = {.object = {77, 0, 0},
				      .pool = w->thread[0].pools[ALPHA][OWN_POOLS].id[ALPHA]};
	struct control_view view = control_begin(w, ALPHA);
	int r;

	page_make_sized(t->page, 1, PAGE_BYTES);
	r = store_put(w->client[ALPHA], &handle, t->page, 0);
	check_put(t, ALPHA, &view, r, false);
	if (r == 1)
		store_flush(w->client[ALPHA], &handle);
	return r == 1;
}

/* With all limits gone a put is accepted again within seconds. */
static void must_recover(struct world *w)
{
	uint64_t end = clock_ns() + 5 * CLOCK_S;

	while (!put_accepted(w)) {
		if (clock_ns() > end)
			model_fail(w, NULL, "no put is accepted though there is room");
		if (w->worker)
			usleep(1000);
		else
			store_work(w->store);
	}
}

static void report(struct world *w, unsigned round, struct tally *total)
{
	for (unsigned n = 0; n < w->nr_threads; n++)
		for (unsigned c = 0; c < NR_CLIENTS; c++) {
			const uint64_t *from = (const uint64_t *)&w->thread[n].tally[c];
			uint64_t *to = (uint64_t *)total;

			for (unsigned i = 0; i < sizeof(*total) / sizeof(*to); i++)
				to[i] += from[i];
		}
	counter_t *s = store_counters(w->store);

	printf("round %u: chunks %llu, moved %llu, returned %llu, rebuilt %llu\n", round,
	       (unsigned long long)counter_get(&s[STORE_CHUNKS_USED]),
	       (unsigned long long)counter_get(&s[STORE_PAGES_MOVED]),
	       (unsigned long long)counter_get(&s[STORE_CHUNKS_RETURNED]),
	       (unsigned long long)counter_get(&s[STORE_REBUILT]));
	fflush(stdout);
}

static void run(struct world *w)
{
	struct rng r = {w->seed};
	struct tally total = {0};

	open_store(w);
	for (unsigned c = 0; c < EXACT_CLIENTS; c++)
		exact_setup(w, c);
	race_setup(w);
	operator_calm(w);
	for (unsigned round = 0; round < ROUNDS; round++) {
		run_round(w);
		must_recover(w);
		audit(w);
		if (!rng_below(&r, 8)) {
			end_life(w, FORGER);
			exact_setup(w, FORGER);
		}
		if (rng_below(&r, 2) || round == ROUNDS - 1) {
			report(w, round, &total);
			restart(w, &r);
		}
	}
	audit_empty(w);
	store_close(w->store);
	printf("accepted %llu (posted %llu), refused: room %llu, maximum %llu, frozen %llu; "
	       "hits %llu, misses %llu; credits forged %llu\n",
	       (unsigned long long)total.puts, (unsigned long long)total.posted,
	       (unsigned long long)total.room, (unsigned long long)total.maximum,
	       (unsigned long long)total.frozen, (unsigned long long)total.hit,
	       (unsigned long long)total.miss, (unsigned long long)total.forged);
	if (total.puts < total.room + total.maximum + total.frozen)
		model_fail(w, NULL, "most puts were refused: the test shows little");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", 1, NULL, 's'},
						{"ops", 1, NULL, 'o'},
						{"threads", 1, NULL, 't'},
						{NULL, 0, NULL, 0}};
	static struct world w;
	uint64_t ops = test_scaled(DEFAULT_OPS);
	int c;

	w.seed = test_seed();
	w.nr_threads = 4;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			w.seed = strtoull(optarg, NULL, 0);
		else if (c == 'o')
			ops = strtoull(optarg, NULL, 0);
		else if (c == 't')
			w.nr_threads = strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (!w.nr_threads || w.nr_threads > MAX_THREADS)
		return 2;
	printf("seed %llu, %llu operations, %u threads\n", (unsigned long long)w.seed,
	       (unsigned long long)ops, w.nr_threads);
	scratch_make("model");
	log_setup(LOG_ERROR, false);
	w.round_steps = ops / w.nr_threads / ROUNDS + 1;
	w.worker = w.seed & 1;
	w.config.arena_path = scratch_path("arena");
	w.config.pool_max = 96 * MIB;
	w.config.ready_chunks = 2;
	for (unsigned n = 0; n < w.nr_threads; n++) {
		w.thread[n].world = &w;
		w.thread[n].nr = n;
		w.thread[n].rng.state = rng_mix(w.seed + n);
	}
	run(&w);
	return 0;
}
