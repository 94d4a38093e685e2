// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kill -9 at any instruction, then restart: every acknowledged persistent page is there, every
 * flushed one is not.
 *
 * A child works on the arena; before each operation it notes in shared memory what it is about to
 * do, and after it what was acknowledged. It dies by the parent's hand at a random time, or at a
 * fault point between two steps of a publication. The parent opens the arena and compares. Then
 * the next child goes on from there.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 300
#define ROUNDS_PER_ARENA 60
#define POINT_TIMEOUT_MS 600
#define THREADS 2
#define POOLS 3 /* persistent, persistent destroyed now and then, ephemeral */
#define REMADE 1
#define EPHEMERAL 2
#define OBJECTS 16
#define OBJECT_PAGES 64
#define HANDLES (OBJECTS * OBJECT_PAGES)
#define POOL_MAX (48ull << 20)
#define PRIVATE (1u << TMEM_POOL_VERSION_SHIFT)

enum doing { IDLE, PUT, POSTED, FLUSH, FLUSH_OBJECT, NEW_POOL, DESTROY_POOL, GRANT, REVOKE, NOTE };

static const char *const doing_names[] = {"idle",	  "put",      "posted put",   "flush",
					  "flush object", "new pool", "destroy pool", "grant",
					  "revoke",	  "note"};

struct pool_log {
	uint32_t id;
	bool alive;
	uint64_t nonce;
	uint64_t stamp[HANDLES]; /* acknowledged; 0: nothing */
};

/* One thread of the child, which has a client of its own. */
struct thread_log {
	_Atomic uint32_t doing; /* stored last before, first after, an operation */
	uint32_t pool;
	uint32_t handle;
	uint32_t n;
	uint64_t stamp;
	uint32_t credits;
	uint32_t note, new_note;
	uint64_t stamps; /* handed out */
	uint64_t acknowledged;
	struct pool_log pools[POOLS];
};

struct shared {
	atomic_bool ready;
	struct thread_log thread[THREADS];
};

struct worker {
	unsigned nr;
	struct rng rng;
	struct thread_log *log;
	struct store *store;
	struct store_client *client;
	uint8_t page[PAGE_BYTES];
	uint8_t got[PAGE_BYTES];
};

static struct shared *shared;
static uint64_t seed;
static unsigned round_nr;
static const char *killed_at = "random time";

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "FAIL: seed %llu round %u (killed at %s): ", (unsigned long long)seed,
		round_nr, killed_at);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	for (unsigned n = 0; n < THREADS; n++)
		fprintf(stderr, "  thread %u was doing: %s pool %u handle %u n %u stamp %#llx\n", n,
			doing_names[shared->thread[n].doing], shared->thread[n].pool,
			shared->thread[n].handle, shared->thread[n].n,
			(unsigned long long)shared->thread[n].stamp);
	_exit(1);
}

static const uint32_t pool_flags[POOLS] = {PRIVATE | TMEM_POOL_PERSIST, PRIVATE | TMEM_POOL_PERSIST,
					   PRIVATE | TMEM_POOL_X_INCLUSIVE};
static const uint64_t no_uuid[2];

static void to_handle(const struct pool_log *pool, unsigned h, struct store_handle *handle)
{
	handle->pool = pool->id;
	handle->object[0] = h / OBJECT_PAGES;
	handle->object[1] = h / OBJECT_PAGES * 31;
	handle->object[2] = 1;
	handle->index = h % OBJECT_PAGES;
}

static void client_name(unsigned nr, char name[16])
{
	snprintf(name, 16, "crash%u", nr);
}

static size_t make_note(uint32_t n, uint8_t note[STORE_MAX_NOTE])
{
	struct rng r = {n};
	size_t len = 1 + rng_below(&r, STORE_MAX_NOTE - 1);

	memset(note, 0, STORE_MAX_NOTE);
	for (size_t i = 0; i < len; i++)
		note[i] = rng_next(&r);
	return len;
}

/* ---- The child ----------------------------------------------------------------------------- */

static void begin(struct worker *w, enum doing doing)
{
	atomic_store(&w->log->doing, doing);
}

static void acknowledge(struct worker *w)
{
	w->log->acknowledged++;
	atomic_store(&w->log->doing, IDLE);
}

static void do_put(struct worker *w, bool posted)
{
	struct thread_log *log = w->log;
	struct pool_log *pool = &log->pools[log->pool];
	struct store_handle handle;
	int r;

	posted = posted && log->credits;
	log->stamp = (uint64_t)(w->nr + 1) << 48 | ++log->stamps;
	page_make(w->page, log->stamp);
	to_handle(pool, log->handle, &handle);
	begin(w, posted ? POSTED : PUT);
	r = store_put(w->client, &handle, w->page, posted ? STORE_PUT_CREDIT : 0);
	if (posted && r != 1)
		fail("a put with a credit answered %d", r);
	pool->stamp[log->handle] = r == 1 ? log->stamp : 0;
	log->credits -= posted;
	acknowledge(w);
}

static void do_flush(struct worker *w)
{
	struct thread_log *log = w->log;
	struct pool_log *pool = &log->pools[log->pool];
	struct store_handle handle;

	to_handle(pool, log->handle, &handle);
	begin(w, FLUSH);
	if (store_flush(w->client, &handle) < 0)
		fail("flush failed");
	pool->stamp[log->handle] = 0;
	acknowledge(w);
}

static void do_flush_object(struct worker *w)
{
	struct thread_log *log = w->log;
	struct pool_log *pool = &log->pools[log->pool];
	struct store_handle handle;
	unsigned first = log->handle / OBJECT_PAGES * OBJECT_PAGES;

	to_handle(pool, log->handle, &handle);
	begin(w, FLUSH_OBJECT);
	if (store_flush_object(w->client, handle.pool, handle.object) < 0)
		fail("flush object failed");
	memset(pool->stamp + first, 0, OBJECT_PAGES * sizeof(pool->stamp[0]));
	acknowledge(w);
}

/* Many holes at once, so that compaction has work. */
static void do_flush_many(struct worker *w)
{
	for (unsigned h = 0; h < HANDLES; h++)
		if (rng_below(&w->rng, 10) < 7) {
			w->log->handle = h;
			do_flush(w);
		}
}

static void do_new_pool(struct worker *w, unsigned nr)
{
	struct pool_log *pool = &w->log->pools[nr];
	int r;

	w->log->pool = nr;
	pool->nonce = rng_next(&w->rng) | 1;
	memset(pool->stamp, 0, sizeof(pool->stamp));
	begin(w, NEW_POOL);
	r = store_pool_new(w->client, pool_flags[nr], no_uuid, pool->nonce);
	if (r < 0)
		fail("new pool answered %d", r);
	pool->id = r;
	pool->alive = true;
	acknowledge(w);
}

static void do_remake_pool(struct worker *w)
{
	struct pool_log *pool = &w->log->pools[REMADE];

	w->log->pool = REMADE;
	begin(w, DESTROY_POOL);
	if (store_pool_destroy(w->client, pool->id) != 1)
		fail("destroying a pool failed");
	pool->alive = false;
	acknowledge(w);
	do_new_pool(w, REMADE);
}

static void do_credits(struct worker *w)
{
	struct thread_log *log = w->log;
	unsigned n;

	if (rng_below(&w->rng, 4)) {
		log->n = 1 + rng_below(&w->rng, 8);
		begin(w, GRANT);
		n = store_credits_grant(w->client, log->n);
		log->credits += n;
	} else {
		log->n = rng_below(&w->rng, log->credits + 1);
		begin(w, REVOKE);
		store_credits_revoke(w->client, log->n);
		log->credits -= log->n;
	}
	acknowledge(w);
}

static void do_note(struct worker *w)
{
	uint8_t note[STORE_MAX_NOTE];
	size_t len;

	w->log->new_note = w->log->note + 1;
	len = make_note(w->log->new_note, note);
	begin(w, NOTE);
	if (store_client_set_note(w->client, note, len) != (int)len)
		fail("setting a note failed");
	w->log->note = w->log->new_note;
	acknowledge(w);
}

/* A client that comes and goes; what it held must not show up in its next life. */
static void do_visitor(struct worker *w)
{
	static const struct store_limits limits = {0};
	struct store_client *client;
	struct store_handle handle = {.object = {5, 5, 5}};
	char name[16];
	int id;

	snprintf(name, sizeof(name), "visitor%u", w->nr);
	if (store_client_find(w->store, name))
		store_client_remove(store_client_find(w->store, name));
	if (store_client_open(w->store, name, &limits, &client))
		fail("the visitor was not let in");
	id = store_pool_new(client, PRIVATE | TMEM_POOL_PERSIST, no_uuid, 9);
	handle.pool = id;
	if (id < 0 || store_get(client, &handle, w->got) != 0)
		fail("the visitor found something");
	store_put(client, &handle, w->page, 0);
	if (rng_below(&w->rng, 2))
		store_client_remove(client);
}

static void do_get(struct worker *w)
{
	struct pool_log *pool = &w->log->pools[w->log->pool];
	uint64_t want = pool->stamp[w->log->handle];
	struct store_handle handle;
	int r;

	to_handle(pool, w->log->handle, &handle);
	r = store_get(w->client, &handle, w->got);
	if (r == 1 ? !want || !page_is(w->got, want) : r || (want && w->log->pool != EPHEMERAL))
		fail("thread %u: get of pool %u handle %u answered %d, %#llx; %#llx was put", w->nr,
		     w->log->pool, w->log->handle, r, (unsigned long long)page_stamp(w->got),
		     (unsigned long long)want);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned what;

	for (;;) {
		w->log->pool = rng_below(&w->rng, POOLS);
		w->log->handle = rng_below(&w->rng, HANDLES);
		what = rng_below(&w->rng, 10000);
		if (what < 5000)
			do_put(w, false);
		else if (what < 6500)
			do_put(w, true);
		else if (what < 7900)
			do_flush(w);
		else if (what < 8000)
			do_flush_object(w);
		else if (what < 8500)
			do_credits(w);
		else if (what < 8550)
			do_note(w);
		else if (what < 8600)
			do_visitor(w);
		else if (what < 8620)
			do_remake_pool(w);
		else if (what < 8635)
			do_flush_many(w);
		else if (what < 8660)
			store_reclaim(w->store, 64u << 20, 10);
		else
			do_get(w);
	}
	return NULL;
}

static struct store *open_arena(bool no_worker, struct store_client *client[THREADS])
{
	static const struct store_limits limits = {0};
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = POOL_MAX,
				      .ready_chunks = 2,
				      .no_worker = no_worker};
	struct store *store;
	char err[256] = "", name[16];
	int r = store_open(&store, &config, err, sizeof(err));

	if (r)
		fail("store_open: %d %s", r, err);
	for (unsigned n = 0; n < THREADS; n++) {
		client_name(n, name);
		r = store_client_open(store, name, &limits, &client[n]);
		if (r)
			fail("client %s: %d", name, r);
	}
	return store;
}

static void child(uint64_t child_seed, bool fresh)
{
	static struct worker w[THREADS];
	struct store_client *client[THREADS];
	struct store *store = open_arena(false, client);
	pthread_t thread;

	for (unsigned n = 0; n < THREADS; n++) {
		w[n].nr = n;
		w[n].rng.state = rng_mix(child_seed + n);
		w[n].log = &shared->thread[n];
		w[n].store = store;
		w[n].client = client[n];
		for (unsigned p = 0; p < POOLS && fresh; p++)
			do_new_pool(&w[n], p);
	}
	atomic_store(&shared->ready, true);
	for (unsigned n = 1; n < THREADS; n++)
		if (pthread_create(&thread, NULL, work, &w[n]))
			fail("no threads");
	work(&w[0]);
}

/* ---- The parent ---------------------------------------------------------------------------- */

/* Is pool `id` still the client's? */
static bool has_pool(struct store_client *client, uint32_t id)
{
	struct store_pool_info info[STORE_MAX_CLIENT_POOLS];
	unsigned n = store_client_pools(client, info, STORE_MAX_CLIENT_POOLS);

	for (unsigned i = 0; i < n; i++)
		if (info[i].id == id)
			return true;
	return false;
}

/* What the handle holds: its stamp, or 0. It must be a whole page that was once put there. */
static uint64_t look(struct store_client *client, const struct pool_log *pool, unsigned h)
{
	uint8_t got[PAGE_BYTES];
	struct store_handle handle;
	int r;

	to_handle(pool, h, &handle);
	r = store_get(client, &handle, got);
	if (r < 0)
		fail("get of pool %u handle %u answered %d", pool->id, h, r);
	if (r && !page_is(got, page_stamp(got)))
		fail("pool %u handle %u: bytes nobody put", pool->id, h);
	return r ? page_stamp(got) : 0;
}

/* True when the operation under way at the kill may have changed this handle. */
static bool touched(struct thread_log *log, unsigned pool, unsigned h)
{
	if (log->pool != pool)
		return false;
	switch (atomic_load(&log->doing)) {
	case PUT:
	case POSTED:
	case FLUSH:
		return log->handle == h;
	case FLUSH_OBJECT:
		return log->handle / OBJECT_PAGES == h / OBJECT_PAGES;
	default:
		return false;
	}
}

static void check_handle(struct thread_log *log, struct store_client *client, unsigned p,
			 unsigned h)
{
	struct pool_log *pool = &log->pools[p];
	uint64_t want = p == EPHEMERAL ? 0 : pool->stamp[h], got = look(client, pool, h);
	bool put = log->doing == PUT || log->doing == POSTED;

	if (p == EPHEMERAL && got)
		fail("an ephemeral page outlived the service");
	if (got != want && !touched(log, p, h))
		fail("pool %u handle %u holds %#llx, acknowledged was %#llx", p, h,
		     (unsigned long long)got, (unsigned long long)want);
	if (got && got != want && !(put && got == log->stamp))
		fail("pool %u handle %u holds %#llx: neither old %#llx nor new %#llx", p, h,
		     (unsigned long long)got, (unsigned long long)want,
		     (unsigned long long)log->stamp);
	pool->stamp[h] = got;
}

static void check_pool(struct thread_log *log, struct store_client *client, unsigned p)
{
	struct pool_log *pool = &log->pools[p];
	bool destroying = log->doing == DESTROY_POOL && log->pool == p;
	int r;

	if ((destroying && !has_pool(client, pool->id)) || !pool->alive) {
		/* Made anew, perhaps under the old number: nothing of the old may show. */
		if (log->doing != NEW_POOL || log->pool != p)
			pool->nonce = rng_mix(pool->nonce + p + 1) | 1;
		memset(pool->stamp, 0, sizeof(pool->stamp));
		pool->alive = false;
	}
	r = store_pool_new(client, pool_flags[p], no_uuid, pool->nonce);
	if (r < 0 || (pool->alive && (uint32_t)r != pool->id))
		fail("pool %u of the same nonce is now %d", pool->id, r);
	pool->id = r;
	pool->alive = true;
	for (unsigned h = 0; h < HANDLES; h++)
		check_handle(log, client, p, h);
}

/* A posted put that was under way is executed again when its credit is still recorded. */
static void replay(struct thread_log *log, struct store_client *client)
{
	struct pool_log *pool = &log->pools[log->pool];
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	int r;

	page_make(page, log->stamp);
	to_handle(pool, log->handle, &handle);
	store_client_freeze(client, round_nr & 1);
	r = store_put(client, &handle, page, STORE_PUT_CREDIT);
	store_client_freeze(client, false);
	if (r != 1)
		fail("a posted put executed again answered %d", r);
	if (store_credits(client) != log->credits - 1)
		fail("executed again, the credit is still there");
	pool->stamp[log->handle] = log->stamp;
	if (look(client, pool, log->handle) != log->stamp && log->pool != EPHEMERAL)
		fail("executed again, the page is not there");
}

static void check_credits(struct thread_log *log, struct store_client *client)
{
	uint32_t now = store_credits(client), least = log->credits, most = log->credits;
	bool used = log->doing == POSTED && now == log->credits - 1;

	if (log->doing == GRANT)
		most += log->n;
	if (log->doing == REVOKE)
		least -= log->n;
	if (used) {
		/* Ephemeral pages are dropped at restart, acknowledged or not. */
		if (log->pool != EPHEMERAL &&
		    log->pools[log->pool].stamp[log->handle] != log->stamp)
			fail("the credit is used, its page is not there");
	} else if (now < least || now > most) {
		fail("%u credits recorded, acknowledged were %u..%u", now, least, most);
	} else if (log->doing == POSTED) {
		replay(log, client);
	}
	log->credits = store_credits(client);
}

static void check_note(struct thread_log *log, struct store_client *client)
{
	uint8_t got[STORE_MAX_NOTE] = {0}, want[STORE_MAX_NOTE];
	int len = store_client_note(client, got, sizeof(got));

	if (log->doing == NOTE && len == (int)make_note(log->new_note, want) &&
	    !memcmp(got, want, sizeof(want)))
		log->note = log->new_note;
	if (log->note && (len != (int)make_note(log->note, want) || memcmp(got, want, len)))
		fail("the note is neither the old nor the new one");
}

static bool pages_agree(struct store *store, struct store_client *client,
			const struct thread_log *log)
{
	uint64_t held = 0, end = clock_ns() + 10 * CLOCK_S;
	counter_t *counters = store_client_counters(client);

	for (unsigned p = 0; p < POOLS; p++)
		for (unsigned h = 0; h < HANDLES; h++)
			held += p != EPHEMERAL && log->pools[p].stamp[h];
	while (clock_ns() < end) {
		store_counters(store);
		if (counter_get(&counters[CLIENT_PAGES_PERSISTENT]) == held)
			return true;
		store_work(store);
	}
	return false;
}

static void check(void)
{
	struct store_client *client[THREADS];
	struct store *store = open_arena(true, client);

	for (unsigned n = 0; n < THREADS; n++) {
		struct thread_log *log = &shared->thread[n];

		for (unsigned p = 0; p < POOLS; p++)
			check_pool(log, client[n], p);
		check_credits(log, client[n]);
		check_note(log, client[n]);
		for (unsigned h = 0; h < HANDLES; h++)
			log->pools[EPHEMERAL].stamp[h] = 0;
		store_flush_ephemeral(store, client[n]);
		if (!pages_agree(store, client[n], log))
			fail("pages_persistent does not agree with what gets find");
		log->doing = IDLE;
	}
	store_close(store);
}

static const enum fault_point points[] = {FAULT_PUT_PAYLOAD_WRITTEN, FAULT_PUT_DESC_FILLED,
					  FAULT_PUT_PUBLISHED,	     FAULT_PUT_OLD_FREED,
					  FAULT_FLUSH_HALF,	     FAULT_OBJECT_PUBLISHED,
					  FAULT_POOL_PUBLISHED,	     FAULT_POOL_DYING,
					  FAULT_CLIENT_PUBLISHED,    FAULT_SLAB_CLAIMED,
					  FAULT_MOVE_COPIED,	     FAULT_MOVE_SWITCHED,
					  FAULT_CREDIT_GRANTED,	     FAULT_CREDIT_USED};
#define NR_POINTS (sizeof(points) / sizeof(points[0]))

static unsigned killed[NR_POINTS], tried[NR_POINTS];

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	return !waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == pid;
}

/* Lets a child work until it dies. point < 0: at a random time. True when the point killed it. */
static bool run_child(struct rng *r, int point, bool fresh)
{
	uint64_t child_seed = rng_next(r), deadline;
	uint32_t skip = rng_below(r, 2) ? rng_below(r, 4) : rng_below(r, 400);
	bool early = !fresh && !rng_below(r, 8), by_point = point >= 0;
	unsigned ms = by_point ? POINT_TIMEOUT_MS : 1 + rng_below(r, 60);
	siginfo_t info = {0};
	pid_t pid;

	atomic_store(&shared->ready, false);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (by_point)
			fault_arm(points[point], FAULT_KILL, skip, 1);
		child(child_seed, fresh);
		_exit(2);
	}
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (early && !by_point)
		ms = rng_below(r, 8); /* perhaps while it opens the arena */
	else if (!by_point || fresh)
		while (!atomic_load(&shared->ready) && !has_ended(pid))
			usleep(100);
	deadline = clock_ns() + ms * CLOCK_MS;
	while (clock_ns() < deadline && !has_ended(pid))
		usleep(200);
	by_point &= has_ended(pid);
	kill(pid, SIGKILL);
	waitid(P_PID, pid, &info, WEXITED);
	if (info.si_code != CLD_KILLED || info.si_status != SIGKILL)
		fail("the child ended by itself: code %d status %d", info.si_code, info.si_status);
	return by_point;
}

/* Everything flushed: nothing is left. Then the next arena begins. */
static void end_arena(void)
{
	struct store_client *client[THREADS];
	struct store *store = open_arena(true, client);

	for (unsigned n = 0; n < THREADS; n++) {
		counter_t *counters = store_client_counters(client[n]);
		uint64_t end = clock_ns() + 10 * CLOCK_S;

		store_pools_destroy(client[n]);
		while (counter_get(&counters[CLIENT_PHYSICAL_BYTES]) && clock_ns() < end)
			store_work(store);
		if (counter_get(&counters[CLIENT_PAGES_PERSISTENT]) ||
		    counter_get(&counters[CLIENT_PHYSICAL_BYTES]))
			fail("all pools destroyed, %llu pages and %llu bytes are left",
			     (unsigned long long)counter_get(&counters[CLIENT_PAGES_PERSISTENT]),
			     (unsigned long long)counter_get(&counters[CLIENT_PHYSICAL_BYTES]));
	}
	store_close(store);
	unlink(scratch_path("arena"));
	memset(shared, 0, sizeof(*shared));
}

static void summary(uint64_t rounds, uint64_t acknowledged)
{
	bool all = true;

	printf("%llu kills, %llu operations acknowledged before them\n", (unsigned long long)rounds,
	       (unsigned long long)acknowledged);
	for (unsigned i = 0; i < NR_POINTS; i++) {
		printf("%-18s killed %u of %u\n", fault_name(points[i]), killed[i], tried[i]);
		all &= !tried[i] || killed[i] || tried[i] < 12;
	}
	if (!all)
		fail("a fault point was never reached");
}

int main(int argc, char **argv)
{
	uint64_t rounds = test_scaled(ROUNDS), acknowledged = 0;
	bool fresh = true, faults;
	struct rng r;
	int point;

	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	printf("seed %llu\n", (unsigned long long)seed);
	r.state = seed;
	scratch_make("crash");
	log_setup(LOG_ERROR, false);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	faults = fault_arm(FAULT_PUT_PUBLISHED, FAULT_OFF, 0, 0);
	for (round_nr = 0; round_nr < rounds; round_nr++) {
		point = faults && rng_below(&r, 3) ? (int)rng_below(&r, NR_POINTS) : -1;
		killed_at = point < 0 ? "random time" : fault_name(points[point]);
		if (run_child(&r, fresh ? -1 : point, fresh) && !fresh)
			killed[point]++;
		if (!fresh && point >= 0)
			tried[point]++;
		fresh = false;
		check();
		if (round_nr % ROUNDS_PER_ARENA == ROUNDS_PER_ARENA - 1) {
			for (unsigned n = 0; n < THREADS; n++)
				acknowledged += shared->thread[n].acknowledged;
			end_arena();
			fresh = true;
		}
	}
	for (unsigned n = 0; n < THREADS; n++)
		acknowledged += shared->thread[n].acknowledged;
	summary(rounds, acknowledged);
	return 0;
}
