// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Random operations on more pages than memory, with holders that are out of reach, full, lying,
 * refusing, leaving, or lose everything; and kill -9 at random times and at each step of a page's
 * way out and back. After each: what was acknowledged is there, what was flushed is not, no number
 * was used twice, and the holders have two copies of what is away and nothing else (case 25).
 *
 * What is promised ends with the last good copy, so the test never takes it: one holder at a time
 * loses what it has or lies, and the next only when the copies have been made again.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/lib/holders.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OBJECT_PAGES 256u
#define OBJECTS 24u
#define HANDLES (OBJECT_PAGES * OBJECTS)
#define POOL_MAX (24ull << 20)
#define PERSISTENT (1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST)
#define ROUNDS 10
#define PASSES 2
#define STEPS 60000u
#define PATIENCE (60 * CLOCK_S)

enum doing { IDLE, PUT, FLUSH, FLUSH_OBJECT, REMAKE };

struct log {
	_Atomic uint32_t doing;
	uint32_t handle;
	uint64_t stamp; /* being put */
	uint64_t stamps;
	uint32_t pool;
	uint64_t nonce;
	uint64_t held[HANDLES];	 /* acknowledged; 0: nothing */
	_Atomic uint32_t losing; /* a holder that has lost everything; 0: the copies are made */
	uint64_t waits, gets, losses, leaves;
};

static struct log *shared;
static struct holders_memory *memory;
static struct holders holders;
static struct store *store;
static struct store_client *client;
static struct rng rng;
static uint64_t seed, rounds_done;
static char what[80] = "random time";
static atomic_uint woken;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr,
		"FAIL: seed %llu round %llu (%s), doing %u handle %u: ", (unsigned long long)seed,
		(unsigned long long)rounds_done, what, shared->doing, shared->handle);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

static void wake(void *arg)
{
	(void)arg;
	atomic_fetch_add(&woken, 1);
}

static struct store_handle handle_of(uint32_t h)
{
	struct store_handle handle = {.object = {h / OBJECT_PAGES, 7, 1},
				      .pool = shared->pool,
				      .index = h % OBJECT_PAGES};

	return handle;
}

static void page_of(void *page, uint64_t stamp)
{
	if (stamp % 8 == 0)
		page_make_sized(page, stamp, PAGE_BYTES);
	else
		page_make(page, stamp);
}

static uint64_t count(enum store_counter counter)
{
	return counter_get(&store_counters(store)[counter]);
}

/* ---- The store with its holders -------------------------------------------------------------- */

static void make_pool(void)
{
	static const uint64_t uuid[2];
	int id = store_pool_new(client, PERSISTENT, uuid, shared->nonce);

	if (id < 0)
		fail("pool: %d", id);
	shared->pool = (uint32_t)id;
}

static void open_store(void)
{
	static const struct store_limits none;
	struct store_config config = {
		.arena_path = scratch_path("arena"), .pool_max = POOL_MAX, .ready_chunks = 1};
	char err[256] = "";
	int r = store_open(&store, &config, err, sizeof(err));

	if (r)
		fail("store_open: %d %s", r, err);
	holders_start(&holders, memory, rng_next(&rng));
	r = store_set_tier(store, &holders.tier);
	if (r)
		fail("store_set_tier: %d", r);
	if (shared->losing)
		holders.tier.events.lost(holders.tier.events.arg, shared->losing);
	for (unsigned h = 1; h <= HOLDERS; h++)
		holders.tier.events.back(holders.tier.events.arg, h);
	if (store_client_open(store, "away", &none, &client))
		fail("client");
	store_client_set_waker(client, wake, NULL);
	make_pool();
}

static void close_store(void)
{
	store_set_tier(store, NULL);
	holders_end(&holders);
	store_close(store);
	if (holders_complaint(memory))
		fail("%s", holders_complaint(memory));
}

static void all_well(void)
{
	atomic_store(&memory->refuse, 0);
	atomic_store(&memory->delay_us, 0);
	for (unsigned h = 1; h <= HOLDERS; h++) {
		atomic_store(&memory->holder[h].silent, false);
		atomic_store(&memory->holder[h].full, false);
		atomic_store(&memory->holder[h].lies, 0);
	}
	for (unsigned h = 1; store && h <= HOLDERS; h++)
		holders.tier.events.back(holders.tier.events.arg, h);
}

static bool copies_made(void)
{
	return !atomic_load(&store->away.copies_due) && !count(STORE_TIER_FLIGHTS);
}

/* Everything that was lost is made again; only then another may be. */
static void make_good(void)
{
	uint64_t end = clock_ns() + PATIENCE;
	unsigned quiet = 0;

	all_well();
	/* Between two passes it looks the same for a moment. */
	while (quiet < 3) {
		if (clock_ns() > end)
			fail("copies are not made");
		quiet = copies_made() ? quiet + 1 : 0;
		usleep(2000);
		pthread_mutex_lock(&store->work);
		quiet = store->away.passing ? 0 : quiet;
		pthread_mutex_unlock(&store->work);
	}
	atomic_store(&shared->losing, 0);
}

/* ---- Operations ----------------------------------------------------------------------------- */

/* What the handle holds: its stamp, or 0. It waits for what is away. */
static uint64_t look(uint32_t h)
{
	struct store_handle handle = handle_of(h);
	uint8_t got[PAGE_BYTES], page[PAGE_BYTES];
	uint64_t begun = clock_ns(), end = begun + PATIENCE;
	int r;

	for (;;) {
		unsigned before = atomic_load(&woken);

		r = store_get(client, &handle, got);
		shared->gets++;
		if (r != STORE_AWAY)
			break;
		shared->waits++;
		for (unsigned i = 0; i < 40 && atomic_load(&woken) == before; i++)
			usleep(100);
		if (clock_ns() > begun + CLOCK_S)
			all_well();
		if (clock_ns() > end)
			fail("a page does not come home");
	}
	if (r < 0)
		fail("get of %u answered %d", h, r);
	page_of(page, page_stamp(got));
	if (r && memcmp(got, page, PAGE_BYTES))
		fail("%u: bytes that nobody put", h);
	return r ? page_stamp(got) : 0;
}

static void do_get(uint32_t h)
{
	uint64_t got = look(h);

	if (got != shared->held[h])
		fail("%u holds %#llx, %#llx was put", h, (unsigned long long)got,
		     (unsigned long long)shared->held[h]);
}

static void do_put(uint32_t h)
{
	struct store_handle handle = handle_of(h);
	uint8_t page[PAGE_BYTES];
	int r;

	shared->handle = h;
	shared->stamp = ++shared->stamps << 8 | rng_below(&rng, 256);
	page_of(page, shared->stamp);
	atomic_store(&shared->doing, PUT);
	r = store_put(client, &handle, page, 0);
	if (r != 1 && r != -ENOMEM)
		fail("put answered %d", r);
	shared->held[h] = r == 1 ? shared->stamp : 0;
	atomic_store(&shared->doing, IDLE);
	if (r != 1 && !rng_below(&rng, 4))
		usleep(300);
}

static void do_flush(uint32_t h, bool all)
{
	struct store_handle handle = handle_of(h);
	uint32_t first = h / OBJECT_PAGES * OBJECT_PAGES;
	int r;

	shared->handle = h;
	atomic_store(&shared->doing, all ? FLUSH_OBJECT : FLUSH);
	r = all ? store_flush_object(client, handle.pool, handle.object)
		: store_flush(client, &handle);
	if (!all && r != (shared->held[h] != 0))
		fail("flush of %u answered %d", h, r);
	if (all)
		memset(shared->held + first, 0, OBJECT_PAGES * sizeof(shared->held[0]));
	shared->held[h] = 0;
	atomic_store(&shared->doing, IDLE);
}

static void do_remake(void)
{
	atomic_store(&shared->doing, REMAKE);
	store_pools_destroy(client);
	memset(shared->held, 0, sizeof(shared->held));
	shared->nonce++;
	make_pool();
	atomic_store(&shared->doing, IDLE);
}

/* Another client gets its key and goes. */
static void do_visitor(void)
{
	static const struct store_limits none;
	struct store_client *visitor;

	if (store_client_open(store, "visitor", &none, &visitor))
		fail("visitor");
	store_client_remove(visitor);
}

static void do_loss(void)
{
	uint32_t h = 1 + rng_below(&rng, HOLDERS);

	make_good();
	shared->losses++;
	atomic_store(&shared->losing, h);
	holder_loses_all(memory, h);
	holders.tier.events.lost(holders.tier.events.arg, h);
	/* While they are made again, copies are refused. */
	atomic_store(&memory->refuse, rng_below(&rng, 3) * 300);
}

static void do_event(void)
{
	struct holder *holder = &memory->holder[1 + rng_below(&rng, HOLDERS)];

	switch (rng_below(&rng, 12)) {
	case 0:
		all_well();
		break;
	case 1:
		atomic_store(&holder->silent, true);
		break;
	case 2:
		atomic_store(&holder->full, true);
		break;
	case 3:
		atomic_store(&memory->refuse, rng_below(&rng, 500));
		break;
	case 4:
		atomic_store(&memory->delay_us, rng_below(&rng, 200));
		break;
	case 5:
		make_good();
		atomic_store(&holder->lies, rng_below(&rng, 1001));
		break;
	case 6:
		do_loss();
		break;
	case 7:
	case 8:
		shared->leaves++;
		holders.tier.events.leave(holders.tier.events.arg, holder - memory->holder,
					  rng_below(&rng, 2000));
		break;
	case 9:
		do_visitor();
		break;
	default:
		holders.tier.events.back(holders.tier.events.arg, holder - memory->holder);
		break;
	}
}

static void step(void)
{
	uint32_t h = rng_below(&rng, HANDLES), r = rng_below(&rng, 10000);

	if (r < 5600) {
		/* Neighbours, as they come. */
		for (uint32_t i = 0; i < 8 && h + i < HANDLES; i++)
			do_put(h + i);
	} else if (r < 7400) {
		for (uint32_t i = 0; i < 4 && h + i < HANDLES; i++)
			do_get(h + i);
	} else if (r < 9850) {
		do_flush(h, false);
	} else if (r < 9900) {
		do_flush(h, true);
	} else if (r < 9903) {
		do_remake();
	} else {
		do_event();
	}
}

static void child(uint64_t child_seed, uint32_t steps)
{
	rng.state = child_seed;
	alarm(300);
	open_store();
	for (uint32_t i = 0; i < steps; i++)
		step();
	make_good();
	close_store();
	_exit(0);
}

/* ---- The parent ----------------------------------------------------------------------------- */

static bool may_differ(uint32_t h, uint64_t got)
{
	switch (atomic_load(&shared->doing)) {
	case PUT:
		return h == shared->handle && (!got || got == shared->stamp);
	case FLUSH:
		return h == shared->handle && !got;
	case FLUSH_OBJECT:
		return h / OBJECT_PAGES == shared->handle / OBJECT_PAGES && !got;
	case REMAKE:
		return !got;
	default:
		return false;
	}
}

static void settle_books(void)
{
	counter_t *counters = store_client_counters(client);
	uint64_t held = 0, end = clock_ns() + PATIENCE, away;

	for (uint32_t h = 0; h < HANDLES; h++)
		held += shared->held[h] != 0;
	do {
		all_well();
		usleep(5000);
		away = counter_get(&counters[CLIENT_PAGES_AWAY]);
		if (clock_ns() > end)
			fail("%llu pages held, %llu found; %llu away, %llu blobs",
			     (unsigned long long)counter_get(&counters[CLIENT_PAGES_PERSISTENT]),
			     (unsigned long long)held, (unsigned long long)away,
			     (unsigned long long)holders_blobs(memory));
	} while (counter_get(&counters[CLIENT_PAGES_PERSISTENT]) != held ||
		 holders_blobs(memory) != 2 * away);
}

/* Opens what a killed child has left. */
static void check(void)
{
	store = NULL;
	holders_recount(memory);
	all_well();
	open_store();
	for (uint32_t h = 0; h < HANDLES; h++) {
		uint64_t got = look(h);

		if (got != shared->held[h] && !may_differ(h, got))
			fail("%u holds %#llx, acknowledged was %#llx", h, (unsigned long long)got,
			     (unsigned long long)shared->held[h]);
		shared->held[h] = got;
	}
	atomic_store(&shared->doing, IDLE);
	make_good();
	settle_books();
	close_store();
	store = NULL;
}

/* True when the child was killed. */
static bool run(enum fault_point point, uint32_t skip, uint32_t steps, uint32_t kill_ms)
{
	uint64_t child_seed = rng_next(&rng);
	int status;
	pid_t pid;

	rounds_done++;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (point != FAULT_NR)
			fault_arm(point, FAULT_KILL, skip, 1);
		child(child_seed, steps);
	}
	if (pid > 0 && kill_ms) {
		usleep(kill_ms * 1000);
		kill(pid, SIGKILL);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		fail("fork: %s", strerror(errno));
	if (!WIFSIGNALED(status) && (!WIFEXITED(status) || WEXITSTATUS(status)))
		fail("the child ended with status %#x", status);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		fail("the child ended with signal %d", WTERMSIG(status));
	return WIFSIGNALED(status);
}

static void new_arena(void)
{
	uint64_t nonce = shared->nonce;

	unlink(scratch_path("arena"));
	holders_clear(memory);
	memset(shared, 0, sizeof(*shared));
	shared->nonce = nonce + 1;
}

/* Makes the arena one of the format before. */
static void make_old(void)
{
	uint32_t one = ARENA_FORMAT_1;
	struct superblock sb;
	int fd;

	new_arena();
	open_store();
	close_store();
	store = NULL;
	fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &sb, sizeof(sb), 0) != sizeof(sb) ||
	    pwrite(fd, &one, sizeof(one), offsetof(struct superblock, format)) != sizeof(one) ||
	    ftruncate(fd, (off_t)sb.file_bytes))
		fail("%s", strerror(errno));
	close(fd);
}

/* Kills at passes of each step; all must be passed. */
static void enumerate(void)
{
	bool all = true;

	printf("%-20s kills\n", "point");
	for (unsigned p = 0; p < FAULT_NR; p++) {
		unsigned n = 0, most = (unsigned)test_scaled(PASSES);

		if (fault_kind(p) != FAULT_KIND_AWAY)
			continue;
		for (unsigned i = 0; i < most; i++) {
			uint32_t skip = i < 2 ? i : rng_below(&rng, 1u << (2 + 2 * i));

			snprintf(what, sizeof(what), "killed at %s, pass %u", fault_name(p), skip);
			if (p == FAULT_ARENA_GROWN)
				make_old();
			if (p == FAULT_ARENA_GROWN || p == FAULT_BLOBS_RESERVED)
				skip = 0;
			if (run(p, skip, STEPS / 10, 0))
				n++;
			check();
		}
		printf("%-20s %5u  %s\n", fault_name(p), n, fault_text(p));
		fflush(stdout);
		all &= n != 0;
	}
	if (!all)
		fail("a point was never passed");
}

int main(int argc, char **argv)
{
	uint64_t rounds = test_scaled(ROUNDS);

	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	printf("seed %llu\n", (unsigned long long)seed);
	rng.state = seed;
	scratch_make("model-away");
	log_setup(LOG_ERROR, false);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	memory = holders_memory();
	new_arena();
	/* Once to the end, then killed at any time. */
	snprintf(what, sizeof(what), "to the end");
	run(FAULT_NR, 0, (uint32_t)test_scaled(STEPS), 0);
	check();
	printf("gets %llu, of them away %llu; puts to holders %llu, gets from them %llu, losses "
	       "%llu, "
	       "leaves %llu\n",
	       (unsigned long long)shared->gets, (unsigned long long)shared->waits,
	       (unsigned long long)memory->puts, (unsigned long long)memory->gets,
	       (unsigned long long)shared->losses, (unsigned long long)shared->leaves);
	if (!shared->waits || !memory->gets || !shared->losses || !shared->leaves)
		fail("the test shows little");
	snprintf(what, sizeof(what), "random time");
	for (uint64_t i = 0; i < rounds; i++) {
		run(FAULT_NR, 0, STEPS, 1 + rng_below(&rng, 800));
		check();
	}
	if (fault_arm(FAULT_AWAY_SENT, FAULT_OFF, 0, 0))
		enumerate();
	return 0;
}
