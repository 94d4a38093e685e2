// SPDX-License-Identifier: GPL-2.0-or-later
/* Pages that go to holders and come back, one case at a time; tests/model/away does it at random.
 */
#include "tests/lib/holders.h"
#include "tests/unit/with_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SMALL (24ull << 20)
#define PATIENCE_MS 10000

static struct holders_memory *memory;
static struct holders holders;
static struct store *store;
static struct store_client *client;
static uint32_t pool;
static atomic_uint woken;

static void wake(void *arg)
{
	(void)arg;
	atomic_fetch_add(&woken, 1);
}

static void open_store(void)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = SMALL,
				      .ready_chunks = 1,
				      .no_worker = true};
	char err[256] = "";
	int r = store_open(&store, &config, err, sizeof(err));

	if (r)
		fprintf(stderr, "%s\n", err);
	CU_ASSERT_FATAL(!r);
	holders_start(&holders, memory, 1);
	CU_ASSERT_FATAL(!store_set_tier(store, &holders.tier));
	client = make_client_named(store, "c");
	store_client_set_waker(client, wake, NULL);
}

static void close_store(void)
{
	CU_ASSERT(!store_set_tier(store, NULL));
	holders_end(&holders);
	store_close(store);
	CU_ASSERT_PTR_NULL(holders_complaint(memory));
	if (holders_complaint(memory))
		fprintf(stderr, "%s\n", holders_complaint(memory));
}

static void begin(void)
{
	holders_clear(memory);
	unlink(scratch_path("arena"));
	open_store();
	pool = make_pool_of(client, PERSISTENT);
}

static uint64_t count(enum store_counter counter)
{
	return counter_get(&store_counters(store)[counter]);
}

/* Until the tier has nothing to do. */
static void settle(void)
{
	for (unsigned i = 0; i < PATIENCE_MS; i++) {
		while (store_work(store))
			;
		if (!count(STORE_TIER_FLIGHTS) && holders_idle(&holders))
			return;
		usleep(1000);
	}
	CU_FAIL_FATAL("the tier does not answer");
}

/* Puts a page; when there is no room, lets the worker make some. */
static void put(uint32_t index, uint64_t stamp)
{
	for (unsigned i = 0; i < PATIENCE_MS; i++) {
		struct store_handle handle = handle_in(pool, 1, index);
		uint8_t page[PAGE_BYTES];
		int r;

		page_make_sized(page, stamp, 2000);
		r = store_put(client, &handle, page, 0);
		if (r == 1)
			return;
		CU_ASSERT_FATAL(r == -ENOMEM);
		if (!store_work(store))
			usleep(1000);
	}
	CU_FAIL_FATAL("no room");
}

static bool right(const uint8_t *page, uint64_t stamp)
{
	uint8_t want[PAGE_BYTES];

	page_make_sized(want, stamp, 2000);
	return !memcmp(page, want, PAGE_BYTES);
}

/* The answer of a get that waits while the page is away; other bytes than the stamp's: -EILSEQ. */
static int get(uint32_t index, uint64_t stamp)
{
	struct store_handle handle = handle_in(pool, 1, index);
	uint8_t page[PAGE_BYTES];
	int r = STORE_AWAY;

	for (unsigned i = 0; i < PATIENCE_MS && r == STORE_AWAY; i++) {
		unsigned before = atomic_load(&woken);

		r = store_get(client, &handle, page);
		for (unsigned k = 0; r == STORE_AWAY && atomic_load(&woken) == before && k < 2000;
		     k++) {
			store_work(store);
			usleep(500);
		}
	}
	return r == 1 && !right(page, stamp) ? -EILSEQ : r;
}

static bool is_away(uint32_t index)
{
	struct store_handle handle = handle_in(pool, 1, index);
	uint8_t page[PAGE_BYTES];

	return store_get_flags(client, &handle, page, STORE_GET_NO_FETCH) == STORE_AWAY;
}

/* Do the holders have as many blobs as there should be, by and by? Deletes are made good late. */
static bool blobs_are(uint64_t want)
{
	for (unsigned i = 0; i < PATIENCE_MS / 5; i++) {
		settle();
		if (holders_blobs(memory) == want)
			return true;
		usleep(5000);
	}
	fprintf(stderr, "%llu blobs, not %llu\n", (unsigned long long)holders_blobs(memory),
		(unsigned long long)want);
	return false;
}

static bool two_of_each(void)
{
	return blobs_are(2 * client_count(client, CLIENT_PAGES_AWAY));
}

#define MANY 10000u /* some 20 MB; the pool of 24 has room for half of them, and tables */

static void fill(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		put(i, i + 1);
	settle();
}

static uint32_t some_away(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		if (is_away(i))
			return i;
	CU_FAIL_FATAL("nothing is away");
	return 0;
}

/* More pages than memory: all are there, in whatever order they are asked for. */
static void overflow(void)
{
	uint64_t away;

	begin();
	fill();
	away = client_count(client, CLIENT_PAGES_AWAY);
	CU_ASSERT(away > MANY / 4 && away < MANY);
	CU_ASSERT_EQUAL(count(STORE_AWAY_BYTES), away * 4096);
	CU_ASSERT_EQUAL(holders_blobs(memory), 2 * away);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_PERSISTENT), MANY);
	CU_ASSERT(count(STORE_POOL_BYTES) <= SMALL);
	/* A page that is away costs its descriptor and its entry. */
	CU_ASSERT(client_count(client, CLIENT_PHYSICAL_BYTES) <
		  (MANY - away) * (2000 + 200) + away * 72);
	for (uint32_t i = 0; i < MANY; i++)
		CU_ASSERT_FATAL(get(i, i + 1) == 1);
	for (uint32_t n = 0; n < 2000; n++) {
		uint32_t i = rng_mix(n) % MANY;

		CU_ASSERT_FATAL(get(i, i + 1) == 1);
	}
	CU_ASSERT(client_count(client, CLIENT_PAGES_HOME) > 0);
	settle();
	CU_ASSERT_EQUAL(store_flush_object(client, pool, handle_in(pool, 1, 0).object), 1);
	settle();
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), 0);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PHYSICAL_BYTES), 0);
	CU_ASSERT(blobs_are(0));
	close_store();
}

/* Put, flush and destroy end an away page at once, and its holders hear of it. */
static void replaced(void)
{
	uint32_t a, gone = 0;
	struct store_handle handle;

	begin();
	fill();
	a = some_away();
	put(a, 77777);
	CU_ASSERT(!is_away(a));
	CU_ASSERT_EQUAL(get(a, 77777), 1);
	for (uint32_t i = 0; i < MANY; i++) {
		if (!is_away(i))
			continue;
		handle = handle_in(pool, 1, i);
		CU_ASSERT_EQUAL(store_flush(client, &handle), 1);
		CU_ASSERT_EQUAL(store_flush(client, &handle), 0);
		CU_ASSERT_EQUAL(get(i, i + 1), 0);
		if (++gone == 500)
			break;
	}
	settle();
	CU_ASSERT(two_of_each());
	CU_ASSERT_EQUAL(store_pool_destroy(client, pool), 1);
	settle();
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), 0);
	CU_ASSERT(blobs_are(0));
	close_store();
}

/* Pages that change while they are on their way, to holders and back. */
static void overtaken(void)
{
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	static bool changed[MANY];
	uint32_t a, sent = 0;

	begin();
	holders_hold(&holders, true);
	for (uint32_t i = 0; i < MANY && count(STORE_TIER_FLIGHTS) < 100; i++) {
		handle = handle_in(pool, 1, i);
		page_make_sized(page, i + 1, 2000);
		if (store_put(client, &handle, page, 0) != 1)
			break;
		while (store_work(store))
			;
		sent = i + 1;
	}
	CU_ASSERT(count(STORE_TIER_FLIGHTS) >= 32);
	/* Flushed and put in turn: descriptors are used again. */
	for (uint32_t i = 0; i < sent; i += 2) {
		handle = handle_in(pool, 1, i);
		page_make_sized(page, i + 50001, 2000);
		changed[i] = i % 4 == 0 && store_put(client, &handle, page, 0) == 1;
		if (!changed[i])
			store_flush(client, &handle);
	}
	holders_hold(&holders, false);
	settle();
	CU_ASSERT(count(STORE_TIER_STALE) > 0);
	CU_ASSERT(two_of_each());
	for (uint32_t i = 0; i < sent; i++)
		CU_ASSERT_FATAL(get(i, i % 2 ? i + 1 : i + 50001) == (i % 2 || changed[i]));
	fill();
	a = some_away();
	holders_hold(&holders, true);
	handle = handle_in(pool, 1, a);
	CU_ASSERT_EQUAL(store_get(client, &handle, page), STORE_AWAY);
	CU_ASSERT_EQUAL(store_flush(client, &handle), 1);
	holders_hold(&holders, false);
	settle();
	CU_ASSERT_EQUAL(get(a, a + 1), 0);
	close_store();
}

/* Nothing fits into memory any more: everything that is away is still answered. */
static void no_room(void)
{
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	uint32_t i = MANY;

	begin();
	fill();
	/* The holders are full now, and the rest of memory with them. */
	for (unsigned h = 1; h <= HOLDERS; h++)
		atomic_store(&memory->holder[h].full, true);
	for (unsigned bad = 0; bad < 100; i++) {
		handle = handle_in(pool, 2, i);
		page_make_sized(page, i, PAGE_BYTES);
		bad += store_put(client, &handle, page, 0) != 1;
		while (store_work(store))
			;
	}
	CU_ASSERT(client_count(client, CLIENT_PAGES_AWAY) > 1000);
	for (uint32_t n = 0; n < MANY; n += 3)
		CU_ASSERT_FATAL(get(n, n + 1) == 1);
	CU_ASSERT(count(STORE_TIER_SERVED) > 0);
	close_store();
}

static void all_holders(void (*fn)(struct holder *holder, uint32_t value), uint32_t value)
{
	for (unsigned h = 1; h <= HOLDERS; h++)
		fn(&memory->holder[h], value);
}

static void set_lies(struct holder *holder, uint32_t value)
{
	atomic_store(&holder->lies, value);
}

static void set_loses(struct holder *holder, uint32_t value)
{
	atomic_store(&holder->loses, value);
}

static void set_silent(struct holder *holder, uint32_t value)
{
	atomic_store(&holder->silent, value != 0);
}

/* One that lies or has lost something is made good by the other; all of them are an error. */
static void lying(void)
{
	uint32_t a, b;

	begin();
	fill();
	set_lies(&memory->holder[1], 1000);
	set_loses(&memory->holder[2], 1000);
	for (uint32_t i = 0; i < MANY; i += 7) {
		int r = get(i, i + 1);

		CU_ASSERT_FATAL(r == 1 || r == -EIO);
		/* Those that are with both of them, and with nobody else. */
		if (r < 0)
			CU_ASSERT(is_away(i) == false);
	}
	CU_ASSERT(count(STORE_TIER_LIES) > 0);
	all_holders(set_loses, 0);
	all_holders(set_lies, 1000);
	a = some_away();
	CU_ASSERT_EQUAL(get(a, a + 1), -EIO);
	CU_ASSERT_EQUAL(get(a, a + 1), -EIO);
	all_holders(set_lies, 0);
	all_holders(set_loses, 1000);
	b = some_away();
	CU_ASSERT_EQUAL(get(b, b + 1), -EIO);
	CU_ASSERT(client_count(client, CLIENT_PAGES_LOST) >= 2);
	all_holders(set_loses, 0);
	put(b, 4711);
	CU_ASSERT_EQUAL(get(b, 4711), 1);
	close_store();
}

/* While a holder does not answer nothing is known; when it is back its pages are. */
static void silent(void)
{
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	unsigned before;
	uint32_t a;

	begin();
	fill();
	a = some_away();
	handle = handle_in(pool, 1, a);
	all_holders(set_silent, 1);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(store_get(client, &handle, page), STORE_AWAY);
		settle();
	}
	CU_ASSERT(count(STORE_TIER_UNREACHABLE) >= 1);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_LOST), 0);
	all_holders(set_silent, 0);
	before = atomic_load(&woken);
	holders.tier.events.back(holders.tier.events.arg, 1);
	store_work(store);
	CU_ASSERT(atomic_load(&woken) > before);
	CU_ASSERT_EQUAL(get(a, a + 1), 1);
	/* Without being told: after a second. The neighbours that came along are home before. */
	settle();
	a = some_away();
	handle = handle_in(pool, 1, a);
	all_holders(set_silent, 1);
	CU_ASSERT_EQUAL(store_get(client, &handle, page), STORE_AWAY);
	settle();
	all_holders(set_silent, 0);
	CU_ASSERT_EQUAL(get(a, a + 1), 1);
	close_store();
}

/* Lets the worker run until a pass for the events is over. */
static void pass_over(void)
{
	for (unsigned i = 0; i < PATIENCE_MS / 10; i++) {
		settle();
		if (!atomic_load(&store->away.copies_due) && !store->away.passing)
			return;
		usleep(10000);
	}
	CU_FAIL_FATAL("copies are not made");
}

static void told(void (*event)(void *arg, uint16_t holder), uint16_t holder)
{
	event(holders.tier.events.arg, holder);
	pass_over();
}

static uint64_t with(unsigned holder)
{
	return atomic_load(&memory->holder[holder].blobs);
}

static void all_right(uint32_t step)
{
	for (uint32_t i = 0; i < MANY; i += step)
		CU_ASSERT_FATAL(get(i, i + 1) == 1);
}

/* What a holder has lost is with two others soon, and no page is. */
static void holder_lost(void)
{
	uint64_t had;

	begin();
	fill();
	had = with(1);
	CU_ASSERT(had > 100);
	holder_loses_all(memory, 1);
	told(holders.tier.events.lost, 1);
	CU_ASSERT(count(STORE_TIER_COPIES) >= had);
	CU_ASSERT(two_of_each());
	/* So that the next one may go. */
	holder_loses_all(memory, 2);
	told(holders.tier.events.lost, 2);
	CU_ASSERT(two_of_each());
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_LOST), 0);
	all_right(1);
	close_store();
}

/*
 * No copy can be made: the good one is kept. (A tier deletes what it has made of a put that fails;
 * were the good copy's holder among those that may be chosen, that would be the page's end.)
 */
static void copy_refused(void)
{
	uint64_t had;

	begin();
	fill();
	atomic_store(&memory->refuse, 1000);
	holder_loses_all(memory, 3);
	had = holders_blobs(memory);
	holders.tier.events.lost(holders.tier.events.arg, 3);
	for (unsigned i = 0; i < 40; i++) {
		settle();
		usleep(20000);
	}
	CU_ASSERT(count(STORE_TIER_COPIES_FAILED) > 0);
	CU_ASSERT_EQUAL(count(STORE_TIER_COPIES), 0);
	CU_ASSERT_EQUAL(holders_blobs(memory), had);
	atomic_store(&memory->refuse, 300);
	pass_over();
	atomic_store(&memory->refuse, 0);
	pass_over();
	CU_ASSERT(two_of_each());
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_LOST), 0);
	all_right(3);
	close_store();
}

/* A holder that wants its memory back has nothing any more before the deadline. */
static void holder_leaves(void)
{
	begin();
	fill();
	CU_ASSERT(with(2) > 100);
	atomic_store(&memory->holder[2].full, true);
	holders.tier.events.leave(holders.tier.events.arg, 2, 20000);
	pass_over();
	CU_ASSERT_EQUAL(with(2), 0);
	CU_ASSERT(two_of_each());
	all_right(3);
	close_store();
}

/* Nobody else takes it: home, as far as there is room. */
static void leaves_home(void)
{
	uint64_t had, away;

	begin();
	fill();
	CU_ASSERT(!store_set_pool_max(store, 3 * SMALL));
	settle();
	away = client_count(client, CLIENT_PAGES_AWAY);
	had = with(4);
	CU_ASSERT(had > 100);
	for (unsigned h = 1; h <= HOLDERS; h++)
		atomic_store(&memory->holder[h].full, true);
	holders.tier.events.leave(holders.tier.events.arg, 4, 60000);
	for (unsigned i = 0; i < 8000 && with(4); i++) {
		settle();
		usleep(1000);
	}
	CU_ASSERT_EQUAL(with(4), 0);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), away - had);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_LOST), 0);
	close_store();
}

/* Blobs that nobody knows of any more go, those that live stay; what a holder lacks is copied. */
static void renewed(void)
{
	struct held_blob *held = NULL;
	uint64_t orphans;

	begin();
	fill();
	pass_over();
	atomic_store(&memory->holder[1].silent, true);
	CU_ASSERT_EQUAL(store_pool_destroy(client, pool), 1);
	settle();
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), 0);
	orphans = with(1);
	CU_ASSERT(orphans > 100);
	pool = make_pool_of(client, PERSISTENT);
	atomic_store(&memory->holder[1].silent, false);
	fill();
	CU_ASSERT(holders_blobs(memory) >= orphans + 2 * client_count(client, CLIENT_PAGES_AWAY));
	for (unsigned h = 1; h <= HOLDERS; h++)
		holders.tier.events.back(holders.tier.events.arg, h);
	pass_over();
	CU_ASSERT(two_of_each());
	CU_ASSERT(count(STORE_TIER_RENEWED) >= HOLDERS);
	CU_ASSERT_EQUAL(count(STORE_TIER_MISSING), 0);
	/* One blob is gone, and the holder does not know. */
	for (unsigned i = 0; i < HOLDER_BLOBS && !held; i++)
		if (atomic_load(&memory->holder[3].held[i].number) + 1 > 1)
			held = &memory->holder[3].held[i];
	CU_ASSERT_FATAL(held != NULL);
	atomic_store(&held->number, UINT64_MAX);
	atomic_fetch_sub(&memory->holder[3].blobs, 1);
	told(holders.tier.events.back, 3);
	pass_over();
	CU_ASSERT_EQUAL(count(STORE_TIER_MISSING), 1);
	told(holders.tier.events.back, 3);
	CU_ASSERT(two_of_each());
	all_right(3);
	close_store();
}

/* A stream finds what is away, and does not wait for ever. */
static void streamed(void)
{
	static struct store_found found;
	struct store_walk *walk;
	uint64_t pages = 0;
	int r;

	begin();
	fill();
	CU_ASSERT_FATAL(!store_walk_open(&walk, client, pool));
	while ((r = store_walk_next(walk, &found)) == 1) {
		for (unsigned i = 0; i < found.nr; i++) {
			uint8_t page[PAGE_BYTES];

			CU_ASSERT(codec_decode(found.pages[i].codec, found.pages[i].bytes,
					       found.pages[i].len, page));
			CU_ASSERT(right(page, found.pages[i].index + 1));
		}
		pages += found.nr;
	}
	CU_ASSERT_EQUAL(r, 0);
	CU_ASSERT_EQUAL(pages, MANY);
	store_walk_close(walk);
	all_holders(set_silent, 1);
	CU_ASSERT_FATAL(!store_walk_open(&walk, client, pool));
	store_walk_patience(walk, 50);
	while ((r = store_walk_next(walk, &found)) == 1)
		;
	CU_ASSERT_EQUAL(r, -EHOSTUNREACH);
	all_holders(set_silent, 0);
	store_walk_patience(walk, 20000);
	for (pages = 0; (r = store_walk_next(walk, &found)) == 1;)
		pages += found.nr;
	CU_ASSERT_EQUAL(r, 0);
	store_walk_close(walk);
	close_store();
}

/* What is away is so after a restart, also when there is no tier at first. */
static void restarted(void)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = SMALL,
				      .ready_chunks = 1,
				      .no_worker = true};
	uint64_t away;
	char err[256];

	begin();
	fill();
	away = client_count(client, CLIENT_PAGES_AWAY);
	close_store();
	CU_ASSERT_FATAL(!store_open(&store, &config, err, sizeof(err)));
	client = make_client_named(store, "c");
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), away);
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_PERSISTENT), MANY);
	CU_ASSERT(is_away(some_away()));
	store_close(store);
	open_store();
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_AWAY), away);
	for (uint32_t i = 0; i < MANY; i++)
		CU_ASSERT_FATAL(get(i, i + 1) == 1);
	store_client_remove(client);
	settle();
	CU_ASSERT(blobs_are(0));
	close_store();
}

/* An arena of the previous format is opened as it is, and made one of ours when a tier comes. */
static void old_format(void)
{
	struct superblock sb;
	struct store_info info;
	uint32_t one = ARENA_FORMAT_1;
	int fd;

	store = open_new();
	client = make_client_named(store, "c");
	pool = make_pool_of(client, PERSISTENT);
	put(1, 11);
	store_close(store);
	fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	CU_ASSERT_FATAL(pread(fd, &sb, sizeof(sb), 0) == sizeof(sb));
	CU_ASSERT(pwrite(fd, &one, 4, offsetof(struct superblock, format)) == 4);
	CU_ASSERT(!ftruncate(fd, (off_t)sb.file_bytes));
	close(fd);
	store = open_again(NULL, NULL);
	store_info(store, &info);
	CU_ASSERT_EQUAL(info.format, ARENA_FORMAT_1);
	client = make_client_named(store, "c");
	CU_ASSERT_EQUAL(get(1, 11), 1);
	store_close(store);
	holders_clear(memory);
	open_store();
	store_info(store, &info);
	CU_ASSERT_EQUAL(info.format, ARENA_FORMAT);
	CU_ASSERT_EQUAL(get(1, 11), 1);
	fill();
	CU_ASSERT(client_count(client, CLIENT_PAGES_AWAY) > 0);
	for (uint32_t i = 0; i < MANY; i += 5)
		CU_ASSERT_FATAL(get(i, i + 1) == 1);
	close_store();
}

int main(void)
{
	static CU_TestInfo tests[] = {{"more pages than memory", overflow},
				      {"replaced, flushed, destroyed", replaced},
				      {"overtaken on the way", overtaken},
				      {"no room to come home to", no_room},
				      {"holders that lie and lose", lying},
				      {"holders that do not answer", silent},
				      {"a holder loses everything", holder_lost},
				      {"and nobody takes the copies", copy_refused},
				      {"a holder wants its memory back", holder_leaves},
				      {"and nobody else has room", leaves_home},
				      {"holders are told what lives", renewed},
				      {"streamed", streamed},
				      {"over a restart", restarted},
				      {"an arena of the previous format", old_format},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"away", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("away");
	memory = holders_memory();
	return unit_run(suites);
}
