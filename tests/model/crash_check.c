// SPDX-License-Identifier: GPL-2.0-or-later
/* What the parent of a crash test finds in the arena, against what was acknowledged. */
#include "crash.h"
#include "base/clock.h"
#include "store/arena.h"
#include "tests/lib/scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t no_uuid[2];

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
	uint8_t got[PAGE_BYTES], page[PAGE_BYTES];
	struct store_handle handle;
	int r;

	crash_handle(pool, h, &handle);
	r = store_get(client, &handle, got);
	if (r < 0)
		crash_fail("get of pool %u handle %u answered %d", pool->id, h, r);
	crash_page(page, page_stamp(got));
	if (r && memcmp(got, page, PAGE_BYTES))
		crash_fail("pool %u handle %u: bytes nobody put", pool->id, h);
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
		crash_fail("an ephemeral page outlived the service");
	if (got != want && !touched(log, p, h))
		crash_fail("pool %u handle %u holds %#llx, acknowledged was %#llx", p, h,
			   (unsigned long long)got, (unsigned long long)want);
	if (got && got != want && !(put && got == log->stamp))
		crash_fail("pool %u handle %u holds %#llx: neither old %#llx nor new %#llx", p, h,
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
	r = store_pool_new(client, crash_pool_flags[p], no_uuid, pool->nonce);
	if (r < 0 || (pool->alive && (uint32_t)r != pool->id))
		crash_fail("pool %u of the same nonce is now %d", pool->id, r);
	pool->id = r;
	pool->alive = true;
	for (unsigned h = 0; h < crash.handles; h++)
		check_handle(log, client, p, h);
}

/* A posted put that was under way is executed again when its credit is still recorded. */
static void replay(struct thread_log *log, struct store_client *client)
{
	struct pool_log *pool = &log->pools[log->pool];
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	int r;

	crash_page(page, log->stamp);
	crash_handle(pool, log->handle, &handle);
	store_client_freeze(client, crash.round & 1);
	r = store_put(client, &handle, page, STORE_PUT_CREDIT);
	store_client_freeze(client, false);
	if (r != 1)
		crash_fail("a posted put executed again answered %d", r);
	if (store_credits(client) != log->credits - 1)
		crash_fail("executed again, the credit is still there");
	pool->stamp[log->handle] = log->stamp;
	if (look(client, pool, log->handle) != log->stamp && log->pool != EPHEMERAL)
		crash_fail("executed again, the page is not there");
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
			crash_fail("the credit is used, its page is not there");
	} else if (now < least || now > most) {
		crash_fail("%u credits recorded, acknowledged were %u..%u", now, least, most);
	} else if (log->doing == POSTED) {
		replay(log, client);
	}
	log->credits = store_credits(client);
}

static void check_note(struct thread_log *log, struct store_client *client)
{
	uint8_t got[STORE_MAX_NOTE] = {0}, want[STORE_MAX_NOTE];
	int len = store_client_note(client, got, sizeof(got));

	if (log->doing == NOTE && len == (int)crash_note(log->new_note, want) &&
	    !memcmp(got, want, sizeof(want)))
		log->note = log->new_note;
	if (log->note && (len != (int)crash_note(log->note, want) || memcmp(got, want, len)))
		crash_fail("the note is neither the old nor the new one");
}

static bool pages_agree(struct store *store, struct store_client *client,
			const struct thread_log *log)
{
	uint64_t held = 0, end = clock_ns() + 10 * CLOCK_S;
	counter_t *counters = store_client_counters(client);

	for (unsigned p = 0; p < POOLS; p++)
		for (unsigned h = 0; h < crash.handles; h++)
			held += p != EPHEMERAL && log->pools[p].stamp[h];
	while (clock_ns() < end) {
		store_counters(store);
		if (counter_get(&counters[CLIENT_PAGES_PERSISTENT]) == held)
			return true;
		store_work(store);
	}
	return false;
}

static uint64_t whole_chunks(uint64_t bytes)
{
	return (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
}

/* Memory that a kill left behind, in no record, would be the host's loss for ever. */
static void check_memory(void)
{
	int fd = open(scratch_path("arena"), O_RDONLY | O_CLOEXEC);
	const struct superblock *sb;
	const struct chunk_rec *chunks;
	uint64_t recorded, head;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		crash_fail("the arena is gone");
	if (!access(scratch_path("arena.new"), F_OK))
		crash_fail("half an arena was left behind");
	sb = mmap(NULL, CHUNK_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (sb == MAP_FAILED)
		crash_fail("mmap");
	head = sb->objects_off;
	sb = mremap((void *)sb, CHUNK_BYTES, head, MREMAP_MAYMOVE);
	chunks = (const void *)((const uint8_t *)sb + sb->chunks_off);
	recorded = head + whole_chunks(sb->objects_high * sizeof(struct object)) +
		   whole_chunks(sb->descs_high * sizeof(struct desc)) +
		   whole_chunks(sb->away_high * sizeof(struct away_rec));
	for (uint64_t c = 0; c < sb->capacity / CHUNK_BYTES; c++)
		recorded += chunks[c].populated ? CHUNK_BYTES : 0;
	if ((uint64_t)st.st_blocks * 512 > recorded)
		crash_fail("the arena takes %llu bytes, its records say %llu",
			   (unsigned long long)st.st_blocks * 512, (unsigned long long)recorded);
	munmap((void *)sb, head);
	close(fd);
}

void crash_check(void)
{
	struct store_client *client[CRASH_MAX_THREADS];
	struct store *store = crash_open(true, false, client);

	check_memory();
	for (unsigned n = 0; n < crash.threads; n++) {
		struct thread_log *log = &crash.shared->thread[n];

		for (unsigned p = 0; p < POOLS; p++)
			check_pool(log, client[n], p);
		check_credits(log, client[n]);
		check_note(log, client[n]);
		for (unsigned h = 0; h < crash.handles; h++)
			log->pools[EPHEMERAL].stamp[h] = 0;
		store_flush_ephemeral(store, client[n]);
		if (!pages_agree(store, client[n], log))
			crash_fail("pages_persistent does not agree with what gets find");
		log->doing = IDLE;
	}
	store_close(store);
}

/* For store_client_each(): any one. */
static int any(struct store_client *client, void *arg)
{
	*(struct store_client **)arg = client;
	return 1;
}

void crash_end_arena(void)
{
	struct store_client *client[CRASH_MAX_THREADS];
	struct store *store = crash_open(true, false, client);
	uint64_t end = clock_ns() + 10 * CLOCK_S;
	counter_t *counters = store_counters(store);
	struct store_client *one;

	while (store_client_each(store, any, &one))
		store_client_remove(one);
	do
		store_reclaim(store, UINT64_MAX / 2, 100);
	while (counter_get(&store_counters(store)[STORE_CHUNKS_USED]) && clock_ns() < end);
	if (counter_get(&counters[STORE_STORED_BYTES]) ||
	    counter_get(&counters[STORE_ALLOCATED_BYTES]) ||
	    counter_get(&counters[STORE_CHUNKS_USED]))
		crash_fail(
			"all clients removed, yet stored %llu, allocated %llu bytes, %llu chunks",
			(unsigned long long)counter_get(&counters[STORE_STORED_BYTES]),
			(unsigned long long)counter_get(&counters[STORE_ALLOCATED_BYTES]),
			(unsigned long long)counter_get(&counters[STORE_CHUNKS_USED]));
	store_close(store);
	unlink(scratch_path("arena"));
	memset(crash.shared, 0, sizeof(*crash.shared));
}
