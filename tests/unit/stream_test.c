// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Streams: what is saved comes back page by page, whatever the guest does while it is saved; what
 * is damaged anywhere leaves nothing; and the streams of former releases (case 21) are read for
 * ever.
 */
#include "stream/stream.h"
#include "tests/lib/rng.h"
#include "with_store.h"

#include <endian.h>
#include <xxhash.h>

#define HANDLES 1500
#define OBJECTS 3

struct memory {
	uint8_t *bytes;
	size_t len, room, at;
	void (*meanwhile)(void); /* something that happens while bytes are written */
};

static int memory_write(void *arg, const void *bytes, size_t len)
{
	struct memory *m = arg;

	if (m->len + len > m->room) {
		m->room = 2 * (m->len + len);
		m->bytes = realloc(m->bytes, m->room);
	}
	memcpy(m->bytes + m->len, bytes, len);
	m->len += len;
	if (m->meanwhile)
		m->meanwhile();
	return 0;
}

static int memory_read(void *arg, void *bytes, size_t len)
{
	struct memory *m = arg;

	if (len > m->len - m->at) {
		m->at = m->len;
		return -ENODATA;
	}
	memcpy(bytes, m->bytes + m->at, len);
	m->at += len;
	return 0;
}

/* The store has no thread of its own here; a page that waits for memory asks so. */
static struct store *working;

static bool memory_gone(void *arg)
{
	(void)arg;
	store_work(working);
	return false;
}

static struct stream_io io_of(struct memory *m)
{
	return (struct stream_io){memory_write, memory_read, memory_gone, m};
}

/* ---- What is saved --------------------------------------------------------------------------- */

static struct rng rng;
static struct store_client *source;
static uint32_t pool, other;
static uint64_t stamps[2][OBJECTS][HANDLES]; /* 0: nothing */

static struct store_handle handle_of(unsigned which, uint64_t object, uint32_t index)
{
	/* Far apart and near. */
	return handle_in(which ? other : pool, object, object == 2 ? index * 1000003 : index);
}

static void put(unsigned which, unsigned object, uint32_t index)
{
	struct store_handle handle = handle_of(which, object, index);
	uint64_t stamp = rng_next(&rng) | 1;
	uint8_t page[PAGE_BYTES];
	int r;

	page_make(page, stamp);
	do
		r = store_put(source, &handle, page, 0);
	while (r == -ENOMEM && store_work(source->store));
	CU_ASSERT_EQUAL_FATAL(r, 1);
	stamps[which][object][index] = stamp;
}

static void flush(unsigned which, unsigned object, uint32_t index)
{
	struct store_handle handle = handle_of(which, object, index);

	store_flush(source, &handle);
	stamps[which][object][index] = 0;
}

static void flush_object(unsigned which, unsigned object)
{
	struct store_handle handle = handle_of(which, object, 0);

	store_flush_object(source, handle.pool, handle.object);
	memset(stamps[which][object], 0, sizeof(stamps[which][object]));
}

static void anything(void)
{
	unsigned which = rng_below(&rng, 2), object = rng_below(&rng, OBJECTS);

	switch (rng_below(&rng, 8)) {
	case 0:
	case 1:
	case 2:
		flush(which, object, rng_below(&rng, HANDLES));
		break;
	case 3:
		if (!rng_below(&rng, 40))
			flush_object(which, object);
		break;
	default:
		put(which, object, rng_below(&rng, HANDLES));
	}
	if (!rng_below(&rng, 64))
		store_work(source->store);
}

static void some_of_it(void)
{
	for (unsigned n = rng_below(&rng, 40); n; n--)
		anything();
	/* A pool ends, and another begins under its number. */
	if (!rng_below(&rng, 60)) {
		store_pool_destroy(source, other);
		memset(stamps[1], 0, sizeof(stamps[1]));
		other = make_pool_of(source, PERSISTENT);
	}
}

static void fill(unsigned pages)
{
	memset(stamps, 0, sizeof(stamps));
	pool = make_pool_of(source, PERSISTENT);
	make_pool_of(source, PRIVATE);
	other = make_pool_of(source, PERSISTENT);
	for (unsigned i = 0; i < pages; i++)
		put(rng_below(&rng, 2), rng_below(&rng, OBJECTS), rng_below(&rng, HANDLES));
}

static uint64_t pages_of_model(void)
{
	uint64_t n = 0;

	for (unsigned w = 0; w < 2; w++)
		for (unsigned o = 0; o < OBJECTS; o++)
			for (unsigned i = 0; i < HANDLES; i++)
				n += stamps[w][o][i] != 0;
	return n;
}

/* Handles of this client that are not as the model says. */
static unsigned differences(struct store_client *client)
{
	uint8_t page[PAGE_BYTES];
	unsigned n = 0;

	for (unsigned w = 0; w < 2; w++)
		for (unsigned o = 0; o < OBJECTS; o++)
			for (unsigned i = 0; i < HANDLES; i++) {
				struct store_handle handle = handle_of(w, o, i);
				uint64_t stamp = stamps[w][o][i];
				int r = store_get(client, &handle, page);

				n += r != (stamp != 0) || (r == 1 && !page_is(page, stamp));
			}
	return n;
}

/* ---- Saving and restoring -------------------------------------------------------------------- */

static const struct tmem_stream_head a_guest = {.kind = TMEM_STREAM_CLIENT,
						.name = "a",
						.weight = 100,
						.epoch = 0x1234567890abcdef,
						.region_bytes = 8 << 20,
						.rings = 4,
						.entries = 64,
						.credits = 128};

static unsigned passes_left;
static struct memory *target;

static int quiet_after_passes(void *arg, uint64_t found, char *err, size_t errlen)
{
	(void)arg;
	(void)found;
	(void)err;
	(void)errlen;
	if (passes_left) {
		passes_left--;
		return 0;
	}
	target->meanwhile = NULL;
	return 1;
}

static bool still(void *arg)
{
	(void)arg;
	return true;
}

static int save(struct memory *m, unsigned passes, struct stream_totals *totals)
{
	struct stream_quiet quiet = {quiet_after_passes, still, NULL};
	struct stream_io io = io_of(m);
	char err[256] = "";
	int r;

	passes_left = passes;
	target = m;
	m->len = m->at = 0;
	r = stream_save(source, &a_guest, &io, &quiet, totals, err, sizeof(err));
	if (r)
		printf("%s\n", err);
	return r;
}

/* What is in the memory, into a client; the sentence of what was wrong stays in said. */
static char said[512];

static int restore(struct memory *m, struct store_client *client, struct stream_totals *totals)
{
	struct stream_io io = io_of(m);
	struct tmem_stream_head head;
	struct stream_in *in;
	uint32_t disk_pool;
	int r;

	working = client->store;
	said[0] = 0;
	m->at = 0;
	r = stream_in_open(&in, &io, &head, said, sizeof(said));
	if (r)
		return r;
	r = stream_in_restore(in, client, &disk_pool, totals, said, sizeof(said));
	stream_in_close(in);
	return r;
}

static bool is_empty(struct store_client *client)
{
	work_off(client->store);
	return !store_client_pools(client, NULL, 0) &&
	       !client_count(client, CLIENT_PAGES_PERSISTENT) &&
	       !client_count(client, CLIENT_PHYSICAL_BYTES);
}

static void begin(struct store **store)
{
	*store = open_new();
	source = make_client_named(*store, "a");
}

static void there_and_back(void)
{
	struct memory m = {0}, again = {0};
	struct stream_totals totals;
	struct store_client *b;
	struct store *store;

	begin(&store);
	fill(4000);
	CU_ASSERT_EQUAL(save(&m, 0, &totals), 0);
	CU_ASSERT_EQUAL(totals.passes, 1);
	CU_ASSERT_EQUAL(totals.pages, pages_of_model());
	CU_ASSERT_EQUAL(totals.bytes, m.len);
	b = make_client_named(store, "b");
	CU_ASSERT_EQUAL(restore(&m, b, &totals), 0);
	CU_ASSERT_STRING_EQUAL(said, "");
	CU_ASSERT_EQUAL(totals.pages, pages_of_model());
	CU_ASSERT_EQUAL(differences(b), 0);
	CU_ASSERT_EQUAL(store_client_pools(b, NULL, 0), 3);
	/* Not twice. */
	CU_ASSERT_EQUAL(restore(&m, b, &totals), -EBUSY);
	CU_ASSERT_EQUAL(differences(b), 0);
	/* What came back can go out again, also after a restart. */
	store_close(store);
	store = open_again(NULL, NULL);
	source = store_client_find(store, "b");
	CU_ASSERT_EQUAL(save(&again, 0, &totals), 0);
	store_pools_destroy(source);
	work_off(store);
	CU_ASSERT_EQUAL(restore(&again, source, &totals), 0);
	CU_ASSERT_EQUAL(differences(source), 0);
	store_close(store);
	free(m.bytes);
	free(again.bytes);
}

/* Random puts and flushes while passes go on, after each batch that is written. */
static void while_it_is_used(void)
{
	for (uint64_t round = 0; round < test_scaled(12); round++) {
		struct memory m = {.meanwhile = some_of_it};
		struct stream_totals totals;
		struct store_client *b;
		struct store *store;

		begin(&store);
		fill(rng_below(&rng, 4000));
		CU_ASSERT_EQUAL(save(&m, rng_below(&rng, 4), &totals), 0);
		CU_ASSERT_EQUAL(totals.pages, pages_of_model());
		b = make_client_named(store, "b");
		CU_ASSERT_EQUAL(restore(&m, b, &totals), 0);
		CU_ASSERT_STRING_EQUAL(said, "");
		CU_ASSERT_EQUAL(differences(b), 0);
		CU_ASSERT_EQUAL(differences(source), 0);
		store_close(store);
		free(m.bytes);
	}
}

static void not_quiet(void)
{
	struct stream_quiet quiet = {quiet_after_passes, still, NULL};
	struct memory m = {0};
	struct stream_io io = io_of(&m);
	struct stream_totals totals;
	char err[256] = "";
	struct store *store;
	struct desc *desc;

	begin(&store);
	fill(200);
	passes_left = 0;
	target = &m;
	/* A pool ends under the last pass. */
	CU_ASSERT_EQUAL(stream_save(source, &a_guest, &io, &quiet, &totals, err, sizeof(err)), 0);
	desc = &store->arena.descs[0];
	while (!atomic_load(&desc->word))
		desc++;
	desc->check ^= 1;
	CU_ASSERT_EQUAL(stream_save(source, &a_guest, &io, &quiet, &totals, err, sizeof(err)),
			-EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "damaged"));
	store_close(store);
	free(m.bytes);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static void a_small_one(struct store **store, struct memory *m)
{
	struct stream_totals totals;

	begin(store);
	memset(stamps, 0, sizeof(stamps));
	pool = make_pool_of(source, PERSISTENT);
	make_pool_of(source, PRIVATE);
	other = make_pool_of(source, PERSISTENT);
	for (unsigned i = 0; i < 4; i++)
		put(i % 2, i % OBJECTS, i);
	m->meanwhile = NULL;
	passes_left = 1;
	CU_ASSERT_EQUAL(save(m, 1, &totals), 0);
}

static void refused(struct memory *m, struct store_client *b, const char *what, size_t at)
{
	struct stream_totals totals;
	int r = restore(m, b, &totals);

	if (r >= 0 || !said[0] || !is_empty(b)) {
		printf("%s at byte %zu: %d \"%s\"\n", what, at, r, said);
		CU_FAIL("not refused, or something is left");
	}
}

static void cut_anywhere(void)
{
	struct memory m = {0};
	struct store_client *b;
	struct store *store;
	size_t whole;

	a_small_one(&store, &m);
	b = make_client_named(store, "b");
	whole = m.len;
	for (size_t n = 0; n < whole; n += n < 512 ? 1 : 13) {
		m.len = n;
		refused(&m, b, "cut", n);
	}
	/* Something behind the end. */
	m.len = whole;
	memory_write(&m, "x", 1);
	refused(&m, b, "more", whole);
	store_close(store);
	free(m.bytes);
}

static void any_byte(void)
{
	struct memory m = {0};
	struct store_client *b;
	struct store *store;

	a_small_one(&store, &m);
	b = make_client_named(store, "b");
	for (size_t n = 0; n < m.len; n++) {
		uint8_t bit = (uint8_t)(1u << rng_below(&rng, 8));

		m.bytes[n] ^= bit;
		refused(&m, b, "changed", n);
		m.bytes[n] ^= bit;
	}
	store_close(store);
	free(m.bytes);
}

/* Bytes of the record at `at`, which is aligned to nothing. */
static size_t record_bytes(const struct memory *m, size_t at)
{
	struct tmem_stream_record record;

	memcpy(&record, m->bytes + at, sizeof(record));
	return sizeof(record) + le32toh(record.bytes);
}

/* Records that are whole, in the wrong places. */
static void wrong_order(void)
{
	struct memory m = {0}, wrong = {0};
	struct store_client *b;
	struct store *store;
	size_t at[64], nr = 0;

	a_small_one(&store, &m);
	b = make_client_named(store, "b");
	for (size_t n = sizeof(struct tmem_stream_head); n < m.len; n += record_bytes(&m, n))
		at[nr++] = n;
	at[nr] = m.len;
	/* Each left out, and each twice. */
	for (unsigned i = 0; i < nr; i++)
		for (unsigned twice = 0; twice < 2; twice++) {
			wrong.len = 0;
			memory_write(&wrong, m.bytes, twice ? at[i + 1] : at[i]);
			memory_write(&wrong, m.bytes + at[i + !twice], m.len - at[i + !twice]);
			refused(&wrong, b, twice ? "twice" : "missing", at[i]);
		}
	store_close(store);
	free(m.bytes);
	free(wrong.bytes);
}

/* A head that is in order but for one value. */
static void heads(void)
{
	static const struct {
		size_t offset;
		uint64_t value;
		const char *says;
	} wrong[] = {
		{offsetof(struct tmem_stream_head, magic), 1, "not a stream"},
		{offsetof(struct tmem_stream_head, version), 2, "version 2"},
		{offsetof(struct tmem_stream_head, features), 1, "features"},
		{offsetof(struct tmem_stream_head, kind), 3, "damaged"},
		{offsetof(struct tmem_stream_head, epoch), 0, "impossible"},
		{offsetof(struct tmem_stream_head, rings), 65, "impossible"},
		{offsetof(struct tmem_stream_head, entries), 65, "impossible"},
		{offsetof(struct tmem_stream_head, credits), 1000000, "impossible"},
	};
	struct memory m = {0};
	struct store_client *b;
	struct store *store;

	a_small_one(&store, &m);
	b = make_client_named(store, "b");
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct tmem_stream_head *head = (void *)m.bytes, kept = *head;
		size_t bytes =
			wrong[i].offset == offsetof(struct tmem_stream_head, magic) ||
					wrong[i].offset ==
						offsetof(struct tmem_stream_head, features) ||
					wrong[i].offset == offsetof(struct tmem_stream_head, epoch)
				? 8
				: 4;
		uint64_t value = htole64(wrong[i].value);

		memcpy(m.bytes + wrong[i].offset, &value, bytes);
		head->check = htole64(XXH3_64bits(head, offsetof(struct tmem_stream_head, check)));
		refused(&m, b, "head", i);
		CU_ASSERT_PTR_NOT_NULL(strstr(said, wrong[i].says));
		*head = kept;
	}
	store_close(store);
	free(m.bytes);
}

/* Over the client's maximum nothing is left either. */
static void no_room(void)
{
	struct store_limits limits = {.max_bytes = 200000};
	struct stream_totals totals;
	struct memory m = {0};
	struct store_client *b;
	struct store *store;

	begin(&store);
	fill(1000);
	CU_ASSERT_EQUAL(save(&m, 0, &totals), 0);
	b = make_client_named(store, "b");
	CU_ASSERT_EQUAL(store_client_set_limits(b, &limits), 0);
	CU_ASSERT_EQUAL(restore(&m, b, &totals), -EDQUOT);
	CU_ASSERT_PTR_NOT_NULL(strstr(said, "maximum"));
	CU_ASSERT(is_empty(b));
	limits.max_bytes = 0;
	CU_ASSERT_EQUAL(store_client_set_limits(b, &limits), 0);
	CU_ASSERT_EQUAL(restore(&m, b, &totals), 0);
	CU_ASSERT_EQUAL(differences(b), 0);
	store_close(store);
	free(m.bytes);
}

/* ---- Streams of former releases -------------------------------------------------------------- */

/*
 * What is in all of them: pool 0 persistent, pool 1 ephemeral, pool 2 persistent; of object 1 in
 * pool 0 the indexes 0..19 with stamps 1..20, but 7, which was flushed when it had been sent, and
 * 3, which was put again with stamp 1003; in pool 2 one page of zeroes and one of random bytes.
 */
static void golden_pages(void)
{
	struct store_handle handle;
	uint8_t page[PAGE_BYTES];
	struct rng own = {4711};

	pool = make_pool_of(source, PERSISTENT);
	make_pool_of(source, PRIVATE);
	other = make_pool_of(source, PERSISTENT);
	for (uint32_t i = 0; i < 20; i++)
		CU_ASSERT_EQUAL(put_stamp(source, pool, i, i + 1), 1);
	memset(page, 0, sizeof(page));
	handle = handle_in(other, 1, 0);
	CU_ASSERT_EQUAL(store_put(source, &handle, page, 0), 1);
	for (unsigned i = 0; i < PAGE_BYTES; i++)
		page[i] = (uint8_t)rng_next(&own);
	handle = handle_in(other, 1, 1u << 31);
	CU_ASSERT_EQUAL(store_put(source, &handle, page, 0), 1);
}

static void golden_change(void)
{
	static unsigned turns;
	struct store_handle handle = handle_in(pool, 1, 7);

	/* Head, three pools with two writes each, pages. */
	if (++turns != 9)
		return;
	store_flush(source, &handle);
	CU_ASSERT_EQUAL(put_stamp(source, pool, 3, 1003), 1);
}

static void check_golden(struct store_client *client)
{
	uint8_t page[PAGE_BYTES], want[PAGE_BYTES];
	struct rng own = {4711};
	struct store_handle handle;

	for (uint32_t i = 0; i < 20; i++)
		CU_ASSERT_EQUAL(holds_stamp(client, 0, i, i == 3 ? 1003 : i + 1), i != 7);
	handle = handle_in(2, 1, 0);
	memset(want, 0, sizeof(want));
	CU_ASSERT(store_get(client, &handle, page) == 1 && !memcmp(page, want, sizeof(page)));
	handle = handle_in(2, 1, 1u << 31);
	for (unsigned i = 0; i < PAGE_BYTES; i++)
		want[i] = (uint8_t)rng_next(&own);
	CU_ASSERT(store_get(client, &handle, page) == 1 && !memcmp(page, want, sizeof(page)));
	CU_ASSERT_EQUAL(client_count(client, CLIENT_PAGES_PERSISTENT), 21);
	CU_ASSERT_EQUAL(store_client_pools(client, NULL, 0), 3);
}

static void read_file(struct memory *m, const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/unit/streams/%s", srcdir ? srcdir : ".", name);
	f = fopen(path, "re");
	if (!f)
		printf("%s: %s\n", path, strerror(errno));
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	m->bytes = malloc(1 << 20);
	m->len = fread(m->bytes, 1, 1 << 20, f);
	fclose(f);
}

static void golden(void)
{
	struct stream_totals totals;
	struct memory m = {0};
	struct store *store;
	struct store_client *b;

	begin(&store);
	b = make_client_named(store, "b");
	read_file(&m, "v1");
	CU_ASSERT_EQUAL(restore(&m, b, &totals), 0);
	CU_ASSERT_STRING_EQUAL(said, "");
	check_golden(b);
	store_close(store);
	free(m.bytes);
}

static const char *golden_path;

/* For a new version: what this program writes as such a stream. */
static void write_golden(void)
{
	struct memory m = {.meanwhile = golden_change};
	struct stream_totals totals;
	struct store *store;
	FILE *f = fopen(golden_path, "we");

	begin(&store);
	golden_pages();
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(save(&m, 1, &totals), 0);
	CU_ASSERT_EQUAL(totals.pages, 21);
	CU_ASSERT_EQUAL(fwrite(m.bytes, 1, m.len, f), m.len);
	CU_ASSERT_EQUAL(fclose(f), 0);
	store_close(store);
	free(m.bytes);
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {{"there and back", there_and_back},
			       {"while it is used", while_it_is_used},
			       {"damaged at the source", not_quiet},
			       {"cut anywhere", cut_anywhere},
			       {"any byte changed", any_byte},
			       {"records in the wrong places", wrong_order},
			       {"heads", heads},
			       {"no room", no_room},
			       {"golden streams", golden},
			       CU_TEST_INFO_NULL};
	CU_TestInfo writing[] = {{"write a golden stream", write_golden}, CU_TEST_INFO_NULL};
	bool write = argc > 2 && !strcmp(argv[1], "--write-golden");
	CU_SuiteInfo suites[] = {{"stream", NULL, NULL, NULL, NULL, write ? writing : tests},
				 CU_SUITE_INFO_NULL};

	scratch_make("unit-stream");
	rng.state = test_seed();
	printf("seed %llu\n", (unsigned long long)rng.state);
	golden_path = write ? argv[2] : NULL;
	return unit_run(suites);
}
