// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Handles that all threads race for.
 *
 * Every put of a handle has its own version, and every operation its time of beginning and end on
 * one clock that only counts. An operation w that was over before another began came before it.
 * For each handle three times are kept, of operations that are over:
 *   superseded: the latest beginning of one that left something else (put, flush, observation)
 *   filled:     the latest beginning of an accepted put
 *   emptied:    the latest end of one that may have left nothing (flush, refused put, ...)
 * A get that began after them must not return a version whose put ended before `superseded`; and
 * must not miss a persistent page when `filled` is later than `emptied` and nothing that may empty
 * is under way.
 */
#include "model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RACE_POOLS 4 /* persistent, persistent remade, inclusive remade, exclusive remade */
#define STEADY 0
#define EXCLUSIVE 3
#define RACE_OBJECTS 4
#define RACE_HANDLES 16
#define RACE_VERSIONS 16384 /* of a handle in one round */
#define SCRIBBLE_OBJECT 99

struct version {
	_Atomic uint64_t began;
	_Atomic uint64_t ended; /* 0: not yet, or not accepted */
	atomic_bool taken;	/* by an exclusive get */
};

struct race_handle {
	_Atomic uint32_t versions;
	_Atomic uint32_t pending; /* operations under way that may leave nothing */
	_Atomic uint64_t superseded, filled, emptied;
	struct version version[RACE_VERSIONS];
};

struct race_pool {
	_Atomic uint32_t id;
	_Atomic uint32_t generation; /* odd while the pool is destroyed and made again */
	uint32_t flags;
	struct race_handle handle[RACE_HANDLES];
};

struct race {
	_Atomic uint64_t clock;
	pthread_mutex_t remake;
	struct race_pool pool[RACE_POOLS];
	uint64_t scribbled[PAGE_BYTES / sizeof(uint64_t)];
};

static uint64_t now(struct race *race)
{
	return atomic_fetch_add(&race->clock, 1) + 1;
}

static void raise_to(_Atomic uint64_t *at, uint64_t value)
{
	uint64_t old = atomic_load(at);

	while (old < value && !atomic_compare_exchange_weak(at, &old, value))
		;
}

static void to_handle(const struct race_pool *pool, unsigned nr, unsigned h,
		      struct store_handle *handle)
{
	handle->pool = atomic_load(&pool->id);
	handle->object[0] = h % RACE_OBJECTS;
	handle->object[1] = nr;
	handle->object[2] = 0;
	handle->index = h / RACE_OBJECTS;
}

static uint64_t to_stamp(unsigned nr, unsigned h, uint32_t version)
{
	return 0xaaull << 56 | (uint64_t)nr << 48 | (uint64_t)h << 32 | version;
}

/* Case 4 of docs/cases.md. */
static void race_put(struct model_thread *t, unsigned nr, unsigned h)
{
	struct race *race = t->world->race;
	struct race_pool *pool = &race->pool[nr];
	struct race_handle *rh = &pool->handle[h];
	uint32_t v = atomic_load(&rh->versions), generation = atomic_load(&pool->generation);
	bool posted = nr == STEADY && t->credits[RACER] && rng_below(&t->rng, 2);
	struct store_handle handle;
	struct control_view view;
	uint64_t began, ended;
	int r;

	if (v >= RACE_VERSIONS - MAX_THREADS)
		return;
	v = atomic_fetch_add(&rh->versions, 1);
	page_make(t->page, to_stamp(nr, h, v));
	view = control_begin(t->world, RACER);
	atomic_fetch_add(&rh->pending, 1);
	began = now(race);
	atomic_store(&rh->version[v].began, began);
	to_handle(pool, nr, h, &handle);
	r = store_put(t->world->client[RACER], &handle, t->page, posted ? STORE_PUT_CREDIT : 0);
	ended = now(race);
	if (generation & 1 || generation != atomic_load(&pool->generation)) {
		/* Before or after the pool was made anew: either may be. */
		if (r == -ENOENT)
			t->tally[RACER].no_pool++;
		else
			check_put(t, RACER, &view, r, false);
		raise_to(&rh->emptied, ended);
		goto out;
	}
	check_put(t, RACER, &view, r, posted);
	t->credits[RACER] -= posted;
	if (r == 1) {
		atomic_store(&rh->version[v].ended, ended);
		raise_to(&rh->filled, began);
	} else {
		raise_to(&rh->emptied, ended);
	}
	raise_to(&rh->superseded, began);
out:
	atomic_fetch_sub(&rh->pending, 1);
}

/* What was seen must be a version of this handle that nothing had superseded. */
static void check_seen(struct model_thread *t, unsigned nr, unsigned h, uint64_t superseded)
{
	struct race_handle *rh = &t->world->race->pool[nr].handle[h];
	uint64_t stamp = page_stamp(t->got), ended;
	uint32_t v = (uint32_t)stamp;

	if (stamp != to_stamp(nr, h, v) || v >= atomic_load(&rh->versions) ||
	    !atomic_load(&rh->version[v].began) || !page_is(t->got, stamp))
		model_fail(t->world, t, "race: handle %u.%u returned %#llx, which nobody put", nr,
			   h, (unsigned long long)stamp);
	ended = atomic_load(&rh->version[v].ended);
	if (ended && ended < superseded)
		model_fail(t->world, t, "race: handle %u.%u returned version %u, superseded", nr, h,
			   v);
	if (nr == EXCLUSIVE && atomic_exchange(&rh->version[v].taken, true))
		model_fail(t->world, t, "race: an exclusive get returned version %u twice", v);
	/* Who looks later may not see less. */
	raise_to(&rh->superseded, atomic_load(&rh->version[v].began));
}

static void race_get(struct model_thread *t, unsigned nr, unsigned h)
{
	struct race *race = t->world->race;
	struct race_pool *pool = &race->pool[nr];
	struct race_handle *rh = &pool->handle[h];
	uint64_t superseded = atomic_load(&rh->superseded), filled = atomic_load(&rh->filled);
	uint32_t generation = atomic_load(&pool->generation);
	uint64_t began = now(race);
	struct store_handle handle;
	int r;

	to_handle(pool, nr, h, &handle);
	r = store_get(t->world->client[RACER], &handle, t->got);
	if (r == 1) {
		t->tally[RACER].hit++;
		check_seen(t, nr, h, superseded);
		if (nr == EXCLUSIVE)
			raise_to(&rh->emptied, now(race));
		return;
	}
	if (r == -ENOENT && (generation & 1 || generation != atomic_load(&pool->generation))) {
		t->tally[RACER].no_pool++;
		return;
	}
	if (r)
		model_fail(t->world, t, "race: get answered %d", r);
	t->tally[RACER].miss++;
	if (nr <= 1 && !atomic_load(&rh->pending) && filled > atomic_load(&rh->emptied))
		model_fail(t->world, t, "race: persistent handle %u.%u is lost", nr, h);
	raise_to(&rh->superseded, began);
}

static void emptying_begin(struct race_pool *pool, unsigned object, unsigned nr_objects)
{
	for (unsigned h = 0; h < RACE_HANDLES; h++)
		if (h % RACE_OBJECTS >= object && h % RACE_OBJECTS < object + nr_objects)
			atomic_fetch_add(&pool->handle[h].pending, 1);
}

static void emptying_end(struct race_pool *pool, unsigned object, unsigned nr_objects,
			 uint64_t began, uint64_t ended)
{
	for (unsigned h = 0; h < RACE_HANDLES; h++) {
		if (h % RACE_OBJECTS < object || h % RACE_OBJECTS >= object + nr_objects)
			continue;
		raise_to(&pool->handle[h].emptied, ended);
		raise_to(&pool->handle[h].superseded, began);
		atomic_fetch_sub(&pool->handle[h].pending, 1);
	}
}

static void race_flush(struct model_thread *t, unsigned nr, unsigned h, bool object)
{
	struct race *race = t->world->race;
	struct race_pool *pool = &race->pool[nr];
	struct race_handle *rh = &pool->handle[h];
	uint32_t generation = atomic_load(&pool->generation);
	struct store_handle handle;
	uint64_t began;
	int r;

	if (object)
		emptying_begin(pool, h % RACE_OBJECTS, 1);
	else
		atomic_fetch_add(&rh->pending, 1);
	began = now(race);
	to_handle(pool, nr, h, &handle);
	r = object ? store_flush_object(t->world->client[RACER], handle.pool, handle.object)
		   : store_flush(t->world->client[RACER], &handle);
	if (generation & 1 || generation != atomic_load(&pool->generation))
		began = 0; /* perhaps it met the pool's former life */
	else if (r < 0)
		model_fail(t->world, t, "race: flush answered %d", r);
	if (r < 0)
		t->tally[RACER].no_pool++;
	if (object) {
		emptying_end(pool, h % RACE_OBJECTS, 1, began, now(race));
		return;
	}
	raise_to(&rh->emptied, now(race));
	raise_to(&rh->superseded, began);
	atomic_fetch_sub(&rh->pending, 1);
}

static int make_pool(struct model_thread *t, struct world *w, struct race_pool *pool)
{
	uint64_t uuid[2] = {0, 0};
	int r;

	while ((r = store_pool_new(w->client[RACER], pool->flags, uuid, 0)) < 0) {
		if (!t || (r != -ENOMEM && r != -ENOSPC))
			model_fail(w, t, "race: new pool answered %d", r);
		t->tally[RACER].pool++;
	}
	atomic_store(&pool->id, r);
	return r;
}

/* The pool is destroyed under those who use it. */
static void race_remake(struct model_thread *t, unsigned nr)
{
	struct race *race = t->world->race;
	struct race_pool *pool = &race->pool[nr];
	uint64_t began;
	int r;

	pthread_mutex_lock(&race->remake);
	atomic_fetch_add(&pool->generation, 1);
	emptying_begin(pool, 0, RACE_OBJECTS);
	began = now(race);
	r = store_pool_destroy(t->world->client[RACER], atomic_load(&pool->id));
	if (r != 1)
		model_fail(t->world, t, "race: destroying a pool answered %d", r);
	make_pool(t, t->world, pool);
	emptying_end(pool, 0, RACE_OBJECTS, began, now(race));
	atomic_fetch_add(&pool->generation, 1);
	pthread_mutex_unlock(&race->remake);
}

#if !defined(__SANITIZE_THREAD__)
/* A guest that changes its page while it is put: content is its own affair, the store is sound. */
static void race_scribble(struct model_thread *t)
{
	struct world *w = t->world;
	volatile uint64_t *word = w->race->scribbled;
	struct store_handle handle = {{SCRIBBLE_OBJECT, t->nr, 0}, w->race->pool[STEADY].id, 5};
	struct control_view view;
	int r;

	for (unsigned i = rng_below(&t->rng, 64); i < 512; i += 16)
		word[i] = rng_next(&t->rng);
	view = control_begin(w, RACER);
	r = store_put(w->client[RACER], &handle, w->race->scribbled, 0);
	check_put(t, RACER, &view, r, false);
	if (r != 1)
		return;
	r = store_get(w->client[RACER], &handle, t->got);
	if (r != 1)
		model_fail(w, t, "race: a page that changed while it was put: get answered %d", r);
	t->tally[RACER].hit++;
	store_flush(w->client[RACER], &handle);
}
#else
/* The race is in the test's page on purpose; the sanitizer would report nothing else. */
static void race_scribble(struct model_thread *t)
{
	(void)t;
}
#endif

static void race_credits(struct model_thread *t)
{
	struct world *w = t->world;
	unsigned n;

	if (t->credits[RACER] < 8) {
		n = store_credits_grant(w->client[RACER], 8);
		t->credits[RACER] += n;
		t->tally[RACER].granted += n;
	}
}

void race_step(struct model_thread *t)
{
	unsigned nr = rng_below(&t->rng, RACE_POOLS), h = rng_below(&t->rng, RACE_HANDLES);
	unsigned what = rng_below(&t->rng, 1000);

	if (what < 400)
		race_put(t, nr, h);
	else if (what < 850)
		race_get(t, nr, h);
	else if (what < 950)
		race_flush(t, nr, h, false);
	else if (what < 960)
		race_flush(t, nr, h, true);
	else if (what < 962)
		race_remake(t, 1 + rng_below(&t->rng, RACE_POOLS - 1));
	else if (what < 980)
		race_credits(t);
	else
		race_scribble(t);
}

void race_setup(struct world *w)
{
	static const uint32_t flags[RACE_POOLS] = {PRIVATE | TMEM_POOL_PERSIST,
						   PRIVATE | TMEM_POOL_PERSIST,
						   PRIVATE | TMEM_POOL_X_INCLUSIVE, PRIVATE};

	w->race = calloc(1, sizeof(*w->race));
	if (!w->race)
		model_fail(w, NULL, "no memory");
	pthread_mutex_init(&w->race->remake, NULL);
	for (unsigned i = 0; i < RACE_POOLS; i++) {
		w->race->pool[i].flags = flags[i];
		make_pool(NULL, w, &w->race->pool[i]);
	}
}

void race_settle(struct world *w)
{
	struct model_thread *t = &w->thread[0];

	for (unsigned nr = 0; nr < RACE_POOLS; nr++)
		for (unsigned h = 0; h < RACE_HANDLES; h++) {
			struct race_handle *rh = &w->race->pool[nr].handle[h];

			race_get(t, nr, h);
			race_flush(t, nr, h, false);
			if (atomic_load(&rh->pending))
				model_fail(w, NULL, "the test lost count of what is under way");
			memset((void *)rh, 0, sizeof(*rh));
			race_get(t, nr, h);
		}
}
