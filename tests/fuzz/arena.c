// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A damaged arena at start. The input is a list of changes to a small arena with pages of all
 * kinds; changes of single fields, because noise would end at the first check. The store must
 * refuse it and leave it as it is, or open it: then no page has wrong bytes, and a page of which
 * nothing was changed is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/fuzz/audit.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"

#define CAPACITY (16ull << 20)
#define PRIVATE (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT)
#define PERSISTENT (PRIVATE | TMEM_POOL_PERSIST)
#define PAGES 64
#define EPHEMERAL_PAGES 8
#define MAX_CHANGES 24
#define CREDITS 10

/* Where a page stands in the arena as it was made. */
struct where {
	uint32_t desc;
	uint32_t object;
	uint64_t loc; /* 0: same-filled */
	uint32_t bytes;
};

struct range {
	size_t from, to;
};

static struct {
	uint8_t *arena; /* the file, as the damage is done */
	uint8_t *good;	/* what it is when nothing is damaged */
	size_t bytes;
	size_t tables; /* bytes before the payload area */
	struct superblock sb;
	struct where pages[PAGES];
	uint64_t uuid[2];
} made;

static struct range changes[MAX_CHANGES];
static unsigned nr_changes;
static bool forged; /* a checksum was made to fit */

/*
 * Another descriptor says that it is the newer one of the page's handle. When its bytes are damaged
 * it may be what a put left that was killed: the page may be old, and an error is right.
 */
static bool contested[PAGES];

/* ---- The arena ------------------------------------------------------------------------------ */

static int open_arena(struct store **store, char err[256])
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = CAPACITY,
				      .ready_chunks = 1,
				      .no_worker = true};

	err[0] = 0;
	return store_open(store, &config, err, 256);
}

/* Of client "a": three in four in its first pool, in a few objects; the others in the second. */
static struct store_handle handle_of(unsigned i)
{
	return (struct store_handle){
		.object = {i / 4 % 4, 5, 6}, .pool = i % 4 == 3, .index = i * 16};
}

static void page_of(unsigned i, uint8_t *page)
{
	if (i % 8 == 3)
		page_make_sized(page, i + 1, PAGE_BYTES);
	else if (i % 8 == 6)
		page_make_same(page, 0x0123456789abcdefull * (i + 1));
	else
		page_make_sized(page, i + 1, 100 + i * 50);
}

static void put(struct store_client *client, const struct store_handle *handle, unsigned i)
{
	uint8_t page[PAGE_BYTES];
	int r;

	page_of(i, page);
	do
		r = store_put(client, handle, page, 0);
	while (r == -ENOMEM && store_work(client->store));
	MUST(r == 1, "page %u: %d", i, r);
}

static void fill(struct store *store)
{
	static const struct store_limits limits = {.min_bytes = 1 << 16};
	struct store_client *a, *b;

	MUST(!store_client_open(store, "a", &limits, &a), "client");
	MUST(!store_client_open(store, "b", &limits, &b), "client");
	MUST(store_pool_new(a, PERSISTENT, made.uuid, 1) == 0, "pool");
	MUST(store_pool_new(a, PERSISTENT, made.uuid, 2) == 1, "pool");
	MUST(store_pool_new(a, PRIVATE, made.uuid, 3) == 2, "pool");
	MUST(!store_shared_auth(a, made.uuid, true) && !store_shared_auth(b, made.uuid, true),
	     "shared");
	MUST(store_pool_new(a, PERSISTENT | TMEM_POOL_SHARED, made.uuid, 0) == 3, "pool");
	MUST(store_pool_new(b, PERSISTENT | TMEM_POOL_SHARED, made.uuid, 0) == 0, "pool");
	for (unsigned i = 0; i < PAGES; i++) {
		struct store_handle handle = handle_of(i);

		put(a, &handle, i);
	}
	for (unsigned i = 0; i < EPHEMERAL_PAGES; i++) {
		struct store_handle handle = {.pool = 2, .index = i};

		put(a, &handle, i);
		handle.pool = 3;
		put(a, &handle, i);
	}
	MUST(store_credits_grant(a, CREDITS) == CREDITS, "credits");
	store_client_set_note(a, "a note", 6);
}

static void remember(struct store *store, unsigned i)
{
	struct store_handle handle = handle_of(i);
	struct where *w = &made.pages[i];
	struct store_client *a = store_client_find(store, "a");
	const struct desc *desc;
	struct key key;
	uint32_t gen, pool = pool_lookup(a, handle.pool, &gen);

	key_make(store, &key, pool - 1, handle.object, handle.index);
	w->object = object_find(store, &store->shards[key.shard], &key);
	w->desc = page_find(store, &store->shards[key.shard], &key, w->object);
	MUST(w->object && w->desc, "page %u is not found", i);
	desc = &store->arena.descs[w->desc - 1];
	if (WORD_CODEC(desc->word) == CODEC_SAME)
		return;
	w->loc = WORD_LOC(desc->word);
	w->bytes = alloc_size_at(&store->alloc, w->loc);
}

static void map_arena(void)
{
	int fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	struct stat st;

	MUST(fd >= 0 && !fstat(fd, &st), "the arena is gone");
	made.bytes = (size_t)st.st_size;
	made.arena = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	made.good = mmap(NULL, made.bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(made.arena != MAP_FAILED && made.good != MAP_FAILED, "mmap");
	close(fd);
	memcpy(&made.sb, made.arena, sizeof(made.sb));
	made.tables = made.sb.descs_off + made.sb.descs_high * sizeof(struct desc);
}

static size_t place_off(uint64_t loc)
{
	return made.sb.payload_off + (loc - 1) * 8;
}

static void copy(uint8_t *to, const uint8_t *from)
{
	memcpy(to, from, made.tables);
	for (unsigned i = 0; i < PAGES; i++)
		if (made.pages[i].loc)
			memcpy(to + place_off(made.pages[i].loc),
			       from + place_off(made.pages[i].loc), made.pages[i].bytes);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct arena arena;
	struct store *store;
	char err[256];

	(void)argc;
	(void)argv;
	scratch_make("fuzz-arena");
	log_setup(LOG_ERROR - 1, false);
	made.uuid[0] = 7;
	/* A small one: the store would make it as large as the host's memory. */
	MUST(!arena_open(&arena, scratch_path("arena"), CAPACITY, false, err, sizeof(err)), "%s",
	     err);
	arena_close(&arena);
	MUST(!open_arena(&store, err), "%s", err);
	fill(store);
	for (unsigned i = 0; i < PAGES; i++)
		remember(store, i);
	store_close(store);
	map_arena();
	copy(made.good, made.arena);
	return 0;
}

/* ---- Damage --------------------------------------------------------------------------------- */

static void changed(size_t from, size_t len)
{
	if (nr_changes < MAX_CHANGES)
		changes[nr_changes++] = (struct range){from, from + len};
}

/* One field becomes something else: a bit, a small step, or anything. */
static void change(struct bytes *in, size_t at, unsigned len)
{
	uint64_t value = 0;
	unsigned how = (unsigned)take(in, 1);

	if (at + len > made.bytes)
		return;
	memcpy(&value, made.arena + at, len);
	if (how & 1)
		value ^= 1ull << (how >> 1) % (8 * len);
	else if (how & 2)
		value += (uint64_t)(int64_t)(int8_t)take(in, 1);
	else
		value = take(in, len);
	memcpy(made.arena + at, &value, len);
	changed(at, len);
}

static void change_superblock(struct bytes *in)
{
	static const uint8_t tail[] = {offsetof(struct superblock, objects_high),
				       offsetof(struct superblock, descs_high),
				       offsetof(struct superblock, frozen)};
	struct superblock *sb = (struct superblock *)made.arena;
	unsigned what = (unsigned)take(in, 1);

	if (what & 1) {
		change(in, tail[(what >> 1) % 3], 8);
		return;
	}
	change(in, (what >> 2) * 8 % offsetof(struct superblock, objects_high), 8);
	if (what & 2)
		sb->check = XXH3_64bits(sb, offsetof(struct superblock, check));
}

static void change_client(struct bytes *in)
{
	size_t no = (size_t)take(in, 1) & 3, at = (size_t)take(in, 2);
	unsigned len = 1u << (at >> 14);

	/* The first fields, or any. */
	at = at & 0x2000 ? at % 64 : at % sizeof(struct client_rec);
	change(in, made.sb.clients_off + no * sizeof(struct client_rec) + at / len * len, len);
}

static void change_pool(struct bytes *in)
{
	size_t no = (size_t)take(in, 1) & 7, at = (size_t)take(in, 1) % 48;

	change(in, made.sb.pools_off + no * sizeof(struct pool_rec) + at / 4 * 4, 4);
}

static void change_chunk(struct bytes *in)
{
	size_t no = (size_t)take(in, 1) & 7, what = (size_t)take(in, 1);
	size_t at = made.sb.chunks_off + no * sizeof(struct chunk_rec);

	if (what & 1)
		change(in, at, 4);
	else
		change(in, at + offsetof(struct chunk_rec, slab_class) + what / 2 % CHUNK_SLABS, 1);
}

static size_t object_off(uint32_t no)
{
	return made.sb.objects_off + (no - 1) * sizeof(struct object);
}

static size_t desc_off(uint32_t no)
{
	return made.sb.descs_off + (no - 1) * sizeof(struct desc);
}

static void change_object(struct bytes *in)
{
	const struct where *w = &made.pages[take(in, 1) % PAGES];
	unsigned what = (unsigned)take(in, 1);
	size_t at = object_off(what & 128 ? 1 + (uint32_t)take(in, 2) : w->object);

	if (what & 1)
		change(in, at, 4); /* its pool */
	else
		change(in, at + (what >> 1) % 12 * 4, 4);
}

/* Of a live page or of any entry: word, sequence and length, object, index, checksum, links. */
static void change_desc(struct bytes *in)
{
	const struct where *w = &made.pages[take(in, 1) % PAGES];
	unsigned what = (unsigned)take(in, 1);
	size_t at = desc_off(what & 128 ? 1 + (uint32_t)take(in, 2) : w->desc);
	struct desc *desc = (struct desc *)(made.arena + at);

	switch (what & 7) {
	case 0:
		change(in, at, 8);
		break;
	case 1:
		/* Another codec, the place of another page, a place near by. */
		atomic_store(&desc->word,
			     DESC_WORD(DESC_LIVE, what >> 3 & 3, WORD_LOC(desc->word)));
		changed(at, 8);
		break;
	case 2:
		atomic_store(&desc->word, DESC_WORD(DESC_LIVE, WORD_CODEC(desc->word),
						    made.pages[take(in, 1) % PAGES].loc));
		changed(at, 8);
		break;
	case 3:
		change(in, at + offsetof(struct desc, seq_len), 8);
		break;
	case 4:
		desc->object = made.pages[take(in, 1) % PAGES].object;
		changed(at + offsetof(struct desc, object), 4);
		break;
	case 5:
		desc->index = (uint32_t)take(in, 1) * 16;
		changed(at + offsetof(struct desc, index), 4);
		break;
	default:
		change(in, at + take(in, 1) % sizeof(struct desc) / 4 * 4, 4);
	}
}

/* One descriptor over another: two for one handle, or for one place. */
static void copy_desc(struct bytes *in)
{
	const struct where *from = &made.pages[take(in, 1) % PAGES];
	const struct where *to = &made.pages[take(in, 1) % PAGES];
	uint32_t no = take(in, 1) & 1 ? to->desc : 1 + (uint32_t)take(in, 2);
	struct desc *desc = (struct desc *)(made.arena + desc_off(no));

	if (desc_off(no) + sizeof(*desc) > made.tables)
		return;
	memcpy(desc, made.arena + desc_off(from->desc), sizeof(*desc));
	desc->seq_len += (uint64_t)(int64_t)(int8_t)take(in, 1) << DESC_LEN_BITS;
	changed(desc_off(no), sizeof(*desc));
	/* Which of the two counts is not ours to say. */
	changed(desc_off(from->desc), sizeof(*desc));
}

static void change_payload(struct bytes *in)
{
	const struct where *w = &made.pages[take(in, 1) % PAGES];
	size_t at = (size_t)take(in, 2);

	if (w->loc)
		change(in, place_off(w->loc) + at % w->bytes, 1);
}

/* The stored bytes are anything, and the checksum is theirs: what a bug of ours could leave. */
static void forge_payload(struct bytes *in)
{
	const struct where *w = &made.pages[take(in, 1) % PAGES];
	struct desc *desc = (struct desc *)(made.arena + desc_off(w->desc));
	const struct object *object = (struct object *)(made.arena + object_off(w->object));
	struct store store = {.seed = made.sb.hash_seed};
	unsigned n = (unsigned)take(in, 1) & 31, at = (unsigned)take(in, 2) % 64;
	uint64_t hash;

	if (!w->loc || DESC_LEN(desc) > w->bytes - OBJECT_HEADER || at + n > DESC_LEN(desc))
		return;
	for (unsigned i = 0; i < n; i++)
		made.arena[place_off(w->loc) + OBJECT_HEADER + at + i] = (uint8_t)take(in, 1);
	hash = object_hash(&store, atomic_load(&object->pool) - 1, object->id);
	desc->check = codec_check(made.arena + place_off(w->loc) + OBJECT_HEADER, DESC_LEN(desc),
				  hash, desc->index, DESC_SEQ(desc));
	changed(place_off(w->loc), w->bytes);
	changed(desc_off(w->desc), sizeof(*desc));
	forged = true;
}

/* A page of the host's memory is lost. */
static void lose_memory(struct bytes *in)
{
	const struct where *w = &made.pages[take(in, 1) % PAGES];
	size_t places[] = {w->loc ? place_off(w->loc) : 0,
			   desc_off(w->desc),
			   object_off(w->object),
			   made.sb.pools_off,
			   made.sb.chunks_off,
			   made.sb.clients_off};
	size_t at = places[take(in, 1) % 6] & ~4095ul;

	memset(made.arena + at, 0, 4096);
	changed(at, 4096);
}

static bool damage(struct bytes *in)
{
	switch (take(in, 1) % 16) {
	case 0:
		change_superblock(in);
		break;
	case 1:
	case 2:
		change_client(in);
		break;
	case 3:
	case 4:
		change_pool(in);
		break;
	case 5:
		change_chunk(in);
		break;
	case 6:
	case 7:
		change_object(in);
		break;
	case 8:
	case 9:
	case 10:
		change_desc(in);
		break;
	case 11:
		copy_desc(in);
		break;
	case 12:
	case 13:
		change_payload(in);
		break;
	case 14:
		forge_payload(in);
		break;
	default:
		lose_memory(in);
	}
	return more(in);
}

/* ---- What must be so ------------------------------------------------------------------------ */

static bool touched(size_t from, size_t len)
{
	for (unsigned i = 0; i < nr_changes; i++)
		if (changes[i].from < from + len && from < changes[i].to)
			return true;
	return false;
}

/* Was anything changed that the page depends on? */
static bool harmed(unsigned i)
{
	const struct where *w = &made.pages[i];
	size_t chunk = w->loc ? (w->loc - 1) * 8 / CHUNK_BYTES : 0;

	return touched(0, made.sb.pools_off + 8 * sizeof(struct pool_rec)) ||
	       touched(object_off(w->object), sizeof(struct object)) ||
	       touched(desc_off(w->desc), sizeof(struct desc)) ||
	       (w->loc && (touched(place_off(w->loc), w->bytes) ||
			   touched(made.sb.chunks_off + chunk * sizeof(struct chunk_rec),
				   sizeof(struct chunk_rec))));
}

static void find_contested(void)
{
	const struct desc *descs = (struct desc *)(made.arena + made.sb.descs_off);

	for (unsigned i = 0; i < PAGES; i++) {
		const struct desc *own = &descs[made.pages[i].desc - 1];

		contested[i] = false;
		for (uint64_t no = 1; no <= made.sb.descs_high; no++) {
			const struct desc *other = &descs[no - 1];

			if (WORD_STATE(atomic_load(&other->word)) == DESC_LIVE &&
			    other->object == own->object && other->index == own->index &&
			    DESC_SEQ(other) > DESC_SEQ(own))
				contested[i] = true;
		}
	}
}

static void look(struct store *store)
{
	struct store_client *a = store_client_find(store, "a");
	uint8_t want[PAGE_BYTES], got[PAGE_BYTES];

	for (unsigned i = 0; i < PAGES; i++) {
		struct store_handle handle = handle_of(i);
		int r = a ? store_get(a, &handle, got) : -ENOENT;

		MUST(r == 1 || r == 0 || r == -EIO || r == -ENOENT, "page %u: get answers %d", i,
		     r);
		MUST(r == 1 || harmed(i) || (r == -EIO && contested[i]),
		     "page %u: nothing of it was changed, yet %d", i, r);
		if (r != 1 || (forged && harmed(i)))
			continue;
		page_of(i, want);
		MUST(!memcmp(want, got, PAGE_BYTES), "page %u: wrong bytes", i);
	}
}

/* Everything that a service does, on what is left. */
static void live(struct store *store)
{
	struct store_client *a = store_client_find(store, "a");
	uint8_t page[PAGE_BYTES];

	for (unsigned i = 0; i < 8; i++)
		store_work(store);
	for (unsigned i = 0; a && i < PAGES; i++) {
		struct store_handle handle = handle_of(i);

		page_of(i + 1, page);
		if (i % 4 == 0)
			store_flush(a, &handle);
		else if (i % 4 == 1)
			store_put(a, &handle, page, STORE_PUT_CREDIT);
		else if (i % 4 == 2)
			store_put(a, &handle, page, 0);
	}
	audit_store(store);
	store_reclaim(store, CAPACITY, 1000);
	audit_store(store);
	if (!a)
		return;
	store_flush_object(a, 0, (uint64_t[3]){1, 5, 6});
	store_client_remove(a);
	audit_store(store);
}

static void refused(int r, const char *err)
{
	struct range *c = &changes[nr_changes];

	MUST(r == -EPROTO || r == -ENOMEM || r == -EINVAL, "refused with %d", r);
	MUST(err[0], "%d, and not a word for the operator", r);
	if (r != -EPROTO)
		return;
	/* The last change was made last. */
	while (c-- > changes)
		memcpy(made.arena + c->from, made.good + c->from, c->to - c->from);
	((struct superblock *)made.arena)->check = made.sb.check;
	MUST(!memcmp(made.arena, made.good, made.tables), "a refused arena was written to");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = {data, data + size};
	struct store *store;
	char err[256];
	bool again;
	int r;

	copy(made.arena, made.good);
	nr_changes = 0;
	forged = false;
	again = take(&in, 1) & 1;
	while (nr_changes < MAX_CHANGES - 2 && damage(&in))
		;
	find_contested();
	r = open_arena(&store, err);
	if (r) {
		refused(r, err);
		return 0;
	}
	audit_store(store);
	look(store);
	if (again) {
		/* What the first start made of it must be as good as new. */
		store_close(store);
		MUST(!open_arena(&store, err), "opened once, not twice: %s", err);
		audit_store(store);
		look(store);
	}
	live(store);
	store_close(store);
	return 0;
}
