// SPDX-License-Identifier: GPL-2.0-or-later
/* What the child of a crash test does, one noted operation after the other. */
#include "crash.h"
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PRIVATE (1u << TMEM_POOL_VERSION_SHIFT)

static const char *const doing_names[] = {"idle",	  "put",      "posted put",   "flush",
					  "flush object", "new pool", "destroy pool", "grant",
					  "revoke",	  "note"};

const uint32_t crash_pool_flags[POOLS] = {PRIVATE | TMEM_POOL_PERSIST, PRIVATE | TMEM_POOL_PERSIST,
					  PRIVATE | TMEM_POOL_X_INCLUSIVE};
static const uint64_t no_uuid[2];

struct crash crash = {.what = "random time"};

void crash_fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "FAIL: seed %llu round %llu (%s): ", (unsigned long long)crash.seed,
		(unsigned long long)crash.round, crash.what);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	for (unsigned n = 0; n < crash.threads; n++) {
		const struct thread_log *log = &crash.shared->thread[n];

		fprintf(stderr, "  thread %u was doing: %s pool %u handle %u n %u stamp %#llx\n", n,
			doing_names[log->doing], log->pool, log->handle, log->n,
			(unsigned long long)log->stamp);
	}
	_exit(1);
}

void crash_begin(const char *name)
{
	scratch_make(name);
	log_setup(LOG_ERROR, false);
	crash.shared = mmap(NULL, sizeof(*crash.shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (crash.shared == MAP_FAILED)
		_exit(1);
	printf("seed %llu\n", (unsigned long long)crash.seed);
	fflush(stdout);
}

void crash_handle(const struct pool_log *pool, unsigned h, struct store_handle *handle)
{
	handle->pool = pool->id;
	handle->object[0] = h / OBJECT_PAGES;
	handle->object[1] = h / OBJECT_PAGES * 31;
	handle->object[2] = 1;
	handle->index = h % OBJECT_PAGES;
}

void crash_page(void *page, uint64_t stamp)
{
	if (stamp & RAW_STAMP)
		page_make_sized(page, stamp, PAGE_BYTES);
	else
		page_make(page, stamp);
}

size_t crash_note(uint32_t n, uint8_t note[STORE_MAX_NOTE])
{
	struct rng r = {n};
	size_t len = 1 + rng_below(&r, STORE_MAX_NOTE - 1);

	memset(note, 0, STORE_MAX_NOTE);
	for (size_t i = 0; i < len; i++)
		note[i] = rng_next(&r);
	return len;
}

struct store *crash_open(bool no_worker, bool may_fail, struct store_client **client)
{
	static const struct store_limits limits = {0};
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = crash.pool_max,
				      .ready_chunks = 2,
				      .no_worker = no_worker};
	struct store *store;
	char err[256] = "", name[16];
	int r = store_open(&store, &config, err, sizeof(err));

	if (r == -ENOMEM && may_fail && err[0])
		return NULL;
	if (r)
		crash_fail("store_open: %d %s", r, err);
	for (unsigned n = 0; n < crash.threads; n++) {
		snprintf(name, sizeof(name), "crash%u", n);
		r = store_client_open(store, name, &limits, &client[n]);
		if (r)
			crash_fail("client %s: %d", name, r);
	}
	return store;
}

static void begin(struct worker *w, enum doing doing)
{
	atomic_store(&w->log->doing, doing);
}

static void acknowledge(struct worker *w)
{
	w->log->acknowledged++;
	atomic_store(&w->log->doing, IDLE);
}

/* The handle that the next operation is about. */
static struct pool_log *aim(struct worker *w, unsigned pool, unsigned h,
			    struct store_handle *handle)
{
	w->log->pool = pool;
	w->log->handle = h;
	crash_handle(&w->log->pools[pool], h, handle);
	return &w->log->pools[pool];
}

void do_put(struct worker *w, unsigned p, unsigned h, bool posted, bool raw)
{
	struct thread_log *log = w->log;
	struct store_handle handle;
	struct pool_log *pool = aim(w, p, h, &handle);
	int r;

	posted = posted && log->credits;
	log->stamp = (uint64_t)(w->nr + 1) << 48 | (raw ? RAW_STAMP : 0) | ++log->stamps;
	crash_page(w->page, log->stamp);
	begin(w, posted ? POSTED : PUT);
	r = store_put(w->client, &handle, w->page, posted ? STORE_PUT_CREDIT : 0);
	if (posted ? r != 1 : r != 1 && r != -ENOMEM)
		crash_fail("a put%s answered %d", posted ? " with a credit" : "", r);
	pool->stamp[h] = r == 1 ? log->stamp : 0;
	log->credits -= posted;
	acknowledge(w);
	if (r != 1)
		do_get(w, p, h); /* a failed put leaves nothing */
}

void do_get(struct worker *w, unsigned p, unsigned h)
{
	struct store_handle handle;
	uint64_t want = aim(w, p, h, &handle)->stamp[h];
	int r = store_get(w->client, &handle, w->got);

	crash_page(w->page, want);
	if (r == 1 ? !want || memcmp(w->got, w->page, PAGE_BYTES) : r || (want && p != EPHEMERAL))
		crash_fail("thread %u: get of pool %u handle %u answered %d, %#llx; %#llx was put",
			   w->nr, p, h, r, (unsigned long long)page_stamp(w->got),
			   (unsigned long long)want);
}

void do_flush(struct worker *w, unsigned p, unsigned h)
{
	struct store_handle handle;
	struct pool_log *pool = aim(w, p, h, &handle);

	begin(w, FLUSH);
	if (store_flush(w->client, &handle) < 0)
		crash_fail("flush failed");
	pool->stamp[h] = 0;
	acknowledge(w);
}

void do_flush_object(struct worker *w, unsigned p, unsigned h)
{
	struct store_handle handle;
	struct pool_log *pool = aim(w, p, h, &handle);

	begin(w, FLUSH_OBJECT);
	if (store_flush_object(w->client, handle.pool, handle.object) < 0)
		crash_fail("flush object failed");
	memset(pool->stamp + h / OBJECT_PAGES * OBJECT_PAGES, 0,
	       OBJECT_PAGES * sizeof(pool->stamp[0]));
	acknowledge(w);
}

void do_flush_many(struct worker *w, unsigned pool)
{
	for (unsigned h = 0; h < crash.handles; h++)
		if (rng_below(&w->rng, 10) < 7)
			do_flush(w, pool, h);
}

void do_new_pool(struct worker *w, unsigned p)
{
	struct pool_log *pool = &w->log->pools[p];
	int r = -ENOSPC;

	w->log->pool = p;
	pool->nonce = rng_next(&w->rng) | 1;
	memset(pool->stamp, 0, sizeof(pool->stamp));
	begin(w, NEW_POOL);
	/* Refusals are injected, a few in a row. */
	for (unsigned i = 0; i < 8 && r == -ENOSPC; i++)
		r = store_pool_new(w->client, crash_pool_flags[p], no_uuid, pool->nonce);
	if (r < 0)
		crash_fail("new pool answered %d", r);
	pool->id = r;
	pool->alive = true;
	acknowledge(w);
}

void do_remake_pool(struct worker *w)
{
	struct pool_log *pool = &w->log->pools[REMADE];

	w->log->pool = REMADE;
	begin(w, DESTROY_POOL);
	if (store_pool_destroy(w->client, pool->id) != 1)
		crash_fail("destroying a pool failed");
	pool->alive = false;
	acknowledge(w);
	do_new_pool(w, REMADE);
}

void do_grant(struct worker *w, unsigned n)
{
	w->log->n = n;
	begin(w, GRANT);
	w->log->credits += store_credits_grant(w->client, n);
	acknowledge(w);
}

void do_revoke(struct worker *w, unsigned n)
{
	w->log->n = n;
	begin(w, REVOKE);
	store_credits_revoke(w->client, n);
	w->log->credits -= n;
	acknowledge(w);
}

void do_note(struct worker *w)
{
	uint8_t note[STORE_MAX_NOTE];
	size_t len;

	w->log->new_note = w->log->note + 1;
	len = crash_note(w->log->new_note, note);
	begin(w, NOTE);
	if (store_client_set_note(w->client, note, len) != (int)len)
		crash_fail("setting a note failed");
	w->log->note = w->log->new_note;
	acknowledge(w);
}

void do_visitor(struct worker *w)
{
	static const struct store_limits limits = {.max_bytes = 8u << 20, .weight = 7};
	struct store_client *client;
	struct store_handle handle = {.object = {5, 5, 5}};
	uint8_t note[4];
	char name[16];
	int id;

	snprintf(name, sizeof(name), "visitor%u", w->nr);
	if (store_client_find(w->store, name))
		store_client_remove(store_client_find(w->store, name));
	if (store_client_open(w->store, name, &limits, &client))
		crash_fail("the visitor was not let in");
	if (store_client_note(client, note, sizeof(note)) || store_credits(client))
		crash_fail("the visitor has another one's note or credits");
	id = store_pool_new(client, PRIVATE | TMEM_POOL_PERSIST, no_uuid, 9);
	handle.pool = id;
	if (id >= 0) {
		if (store_get(client, &handle, w->got) != 0)
			crash_fail("the visitor found something");
		store_put(client, &handle, w->page, 0);
	}
	store_credits_grant(client, 1);
	store_client_set_note(client, "hello", 3);
	if (rng_below(&w->rng, 2))
		store_client_remove(client);
}
