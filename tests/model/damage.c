// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Damage: the service refuses what it cannot trust, never re-initialises, never returns wrong
 * bytes and never goes down.
 */
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/arena.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#define PAGES 1500
#define POOL_MAX (64ull << 20)
#define FLIP_ROUNDS 80
#define PERSISTENT (1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST)

static struct rng rng;

static int try_open(struct store **store, uint64_t pool_max)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = pool_max,
				      .ready_chunks = 1,
				      .no_worker = true};
	char err[256] = "";
	int r = store_open(store, &config, err, sizeof(err));

	CHECK(!r || err[0], "%d, and not a word for the operator", r);
	return r;
}

static struct store_handle handle_of(unsigned i)
{
	struct store_handle handle = {.object = {i / 100, 1, 2}, .pool = 0, .index = i % 100};

	return handle;
}

/* One page in eight is incompressible, one in sixteen same-filled. */
static void page_of(unsigned i, uint8_t *page)
{
	uint64_t stamp = (uint64_t)(i + 1) << 40 | 0xd5;

	if (i % 8 == 3)
		page_make_sized(page, stamp, PAGE_BYTES);
	else if (i % 16 == 6)
		page_make_same(page, stamp);
	else
		page_make(page, stamp);
}

static void fill(void)
{
	static const struct store_limits limits = {0};
	uint64_t uuid[2] = {0, 0};
	struct store *store;
	struct store_client *client;
	uint8_t page[PAGE_BYTES];

	unlink(scratch_path("arena"));
	CHECK(!try_open(&store, POOL_MAX), "a new arena");
	CHECK(!store_client_open(store, "c", &limits, &client), "a client");
	CHECK(store_pool_new(client, PERSISTENT, uuid, 1) == 0, "the first pool is number 0");
	for (unsigned i = 0; i < PAGES; i++) {
		struct store_handle handle = handle_of(i);
		int r;

		page_of(i, page);
		while ((r = store_put(client, &handle, page, 0)) != 1)
			CHECK(store_work(store), "page %u: no room: %d", i, r);
	}
	store_close(store);
}

struct found {
	unsigned right, missing, damaged;
};

/* Whatever the state of the arena, a page that comes back is the right one. */
static void look_at_all(struct store *store, struct found *found)
{
	struct store_client *client = store_client_find(store, "c");
	uint8_t page[PAGE_BYTES], got[PAGE_BYTES];

	memset(found, 0, sizeof(*found));
	for (unsigned i = 0; client && i < PAGES; i++) {
		struct store_handle handle = handle_of(i);
		int r = store_get(client, &handle, got);

		page_of(i, page);
		CHECK(r == 1 || r == 0 || r == -EIO || r == -ENOENT, "get answered %d", r);
		CHECK(r != 1 || !memcmp(page, got, PAGE_BYTES), "page %u: wrong bytes", i);
		found->right += r == 1;
		found->missing += r == 0 || r == -ENOENT;
		found->damaged += r == -EIO;
	}
}

static void all_there(void)
{
	struct store *store;
	struct found found;
	int r = try_open(&store, POOL_MAX);

	CHECK(!r, "undamaged again, but %d", r);
	look_at_all(store, &found);
	CHECK(found.right == PAGES, "%u of %u pages", found.right, PAGES);
	store_close(store);
}

static uint8_t *map_arena(size_t *len)
{
	int fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	struct stat st;
	uint8_t *map;

	CHECK(fd >= 0 && !fstat(fd, &st), "%s", strerror(errno));
	map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED, "%s", strerror(errno));
	close(fd);
	*len = st.st_size;
	return map;
}

static void refused(const char *what, int want)
{
	struct store *store;
	int r = try_open(&store, POOL_MAX);

	CHECK(r == want, "%s: store_open answered %d, not %d", what, r, want);
}

/* Any bit of the superblock's constant part. */
static void superblock(void)
{
	size_t len, checked = offsetof(struct superblock, check) + sizeof(uint64_t);
	uint8_t *map = map_arena(&len);
	struct superblock *sb = (struct superblock *)map;
	uint8_t before[4096];

	memcpy(before, map, sizeof(before));
	for (size_t at = 0; at < checked; at++) {
		uint8_t bit = 1u << rng_below(&rng, 8);

		map[at] ^= bit;
		refused("damaged superblock", -EPROTO);
		map[at] ^= bit;
	}
	sb->format++;
	sb->check = XXH3_64bits(sb, offsetof(struct superblock, check));
	refused("a later format", -EPROTO);
	memcpy(map, before, checked);
	CHECK(!memcmp(map, before, sizeof(before)), "a refused arena was written to");
	munmap(map, len);
	all_there();
}

static void sizes(void)
{
	struct stat st;
	struct store *store;
	int r;

	CHECK(!stat(scratch_path("arena"), &st), "%s", strerror(errno));
	/* The end of the payload area has never been used: nothing is lost by this. */
	CHECK(!truncate(scratch_path("arena"), st.st_size - 4096), "%s", strerror(errno));
	refused("a truncated file", -EPROTO);
	CHECK(!truncate(scratch_path("arena"), st.st_size + 4096), "%s", strerror(errno));
	refused("a file that is too long", -EPROTO);
	CHECK(!truncate(scratch_path("arena"), st.st_size), "%s", strerror(errno));
	all_there();
	/* More memory than the arena was made for: refused with a reason, or held to capacity. */
	r = try_open(&store, 1ull << 46);
	if (!r) {
		struct store_info info;

		store_info(store, &info);
		CHECK(store_pool_max(store) <= info.capacity, "pool_max above the capacity");
		store_close(store);
	}
	all_there();
}

static void other_file(void)
{
	int fd = open(scratch_path("arena2"), O_RDWR | O_CREAT | O_EXCL, 0600);
	struct store_config config = {.arena_path = scratch_path("arena2"), .pool_max = POOL_MAX};
	struct store *store, *second;
	char err[256] = "";
	int r;

	CHECK(fd >= 0 && write(fd, "not an arena", 12) == 12, "%s", strerror(errno));
	r = store_open(&store, &config, err, sizeof(err));
	CHECK(r == -EPROTO, "a text file: %d", r);
	CHECK(lseek(fd, 0, SEEK_END) == 12, "it was written to");
	close(fd);
	config.arena_path = "/var/tmp/tmemd-test-arena";
	r = store_open(&store, &config, err, sizeof(err));
	unlink(config.arena_path);
	CHECK(r == -EMEDIUMTYPE || r == 0, "an arena on a disk: %d", r);
	if (!r)
		store_close(store); /* /var/tmp is a tmpfs here */
	CHECK(!try_open(&store, POOL_MAX), "it is ours");
	r = try_open(&second, POOL_MAX);
	CHECK(r == -EWOULDBLOCK, "a second owner: %d", r);
	store_close(store);
}

static const uint8_t *find_page(const uint8_t *map, size_t len, const uint8_t *page)
{
	const struct superblock *sb = (const struct superblock *)map;
	int fd = open(scratch_path("arena"), O_RDONLY | O_CLOEXEC);
	off_t at = sb->payload_off, end;
	const uint8_t *found = NULL;

	while (!found && at < (off_t)len && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		found = memmem(map + at, end - at, page, PAGE_BYTES);
		at = end;
	}
	close(fd);
	return found;
}

/* look_at_all() with the log in a file; the number of its lines. */
static unsigned lines_said(struct store *store, struct found *found)
{
	const char *path = scratch_path("log");
	int saved = dup(STDERR_FILENO),
	    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unsigned lines = 0;
	char byte;

	CHECK(saved >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0, "%s", strerror(errno));
	log_setup(LOG_ERROR, false);
	look_at_all(store, found);
	log_setup(LOG_ERROR - 1, false);
	CHECK(dup2(saved, STDERR_FILENO) >= 0 && !lseek(fd, 0, SEEK_SET), "%s", strerror(errno));
	while (read(fd, &byte, 1) == 1)
		lines += byte == '\n';
	close(saved);
	close(fd);
	return lines;
}

/* A bit flips in one page's payload while the service runs. */
static void payload(void)
{
	size_t len;
	uint8_t *map = map_arena(&len), page[PAGE_BYTES], got[PAGE_BYTES];
	struct store *store;
	struct store_client *client;
	struct found found;
	unsigned flipped = 0, lines;

	CHECK(!try_open(&store, POOL_MAX), "open");
	client = store_client_find(store, "c");
	for (unsigned i = 3; i < 3 + 8 * 20; i += 8) {
		uint8_t *at;

		page_of(i, page);
		at = (uint8_t *)find_page(map, len, page);
		CHECK(at, "incompressible page %u is not in the arena as it is", i);
		at[rng_below(&rng, PAGE_BYTES)] ^= 1u << rng_below(&rng, 8);
		flipped++;
	}
	lines = lines_said(store, &found);
	CHECK(lines && lines <= LOG_BURST, "%u lines", lines);
	CHECK(found.damaged == flipped && found.right == PAGES - flipped,
	      "%u damaged, %u right, %u missing; flipped were %u", found.damaged, found.right,
	      found.missing, flipped);
	store_counters(store);
	CHECK(counter_get(&store_client_counters(client)[CLIENT_GETS_DAMAGED]) == flipped,
	      "not all are counted");
	for (unsigned i = 3; i < 3 + 8 * 20; i += 8) {
		struct store_handle handle = handle_of(i);

		page_of(i, page);
		if (i & 8)
			CHECK(store_flush(client, &handle) == 1, "flush of a damaged page");
		CHECK(store_put(client, &handle, page, 0) == 1, "put over a damaged page");
		CHECK(store_get(client, &handle, got) == 1 && !memcmp(page, got, PAGE_BYTES),
		      "put again, damaged still");
	}
	store_close(store);
	munmap(map, len);
	all_there();
}

/* A byte of the file that memory stands behind; mostly one that is not zero. */
static size_t some_byte(const uint8_t *map, size_t len, int fd)
{
	const struct superblock *sb = (const struct superblock *)map;
	off_t areas[] = {0,
			 sb->clients_off,
			 sb->pools_off,
			 sb->chunks_off,
			 sb->objects_off,
			 sb->descs_off,
			 sb->payload_off};
	unsigned area = rng_below(&rng, 7);
	off_t end, at = lseek(fd, areas[area], SEEK_DATA);
	size_t byte = 0;

	if (at < 0)
		return rng_below(&rng, 4096);
	end = lseek(fd, at, SEEK_HOLE);
	if (end > (off_t)len)
		end = len;
	for (unsigned tries = rng_below(&rng, 4000); tries; tries--) {
		byte = at + rng_below(&rng, end - at);
		if (map[byte])
			break;
	}
	return byte ? byte : (size_t)at;
}

/* In a child: whatever happens to it is seen, also a hang. */
static void open_damaged(void)
{
	struct store *store;
	struct store_client *client;
	struct found first, found;
	uint8_t page[PAGE_BYTES];
	uint64_t uuid[2] = {0, 0};

	alarm(120);
	if (try_open(&store, POOL_MAX))
		_exit(10);
	look_at_all(store, &first);
	for (unsigned i = 0; i < 50; i++)
		store_work(store);
	client = store_client_find(store, "c");
	for (unsigned i = 0; client && i < PAGES; i++) {
		struct store_handle handle = handle_of(i);

		page_of(i, page);
		if (i & 1)
			store_flush(client, &handle);
		else
			store_put(client, &handle, page, 0);
	}
	look_at_all(store, &found);
	if (client) {
		store_pool_new(client, PERSISTENT, uuid, 2);
		store_pools_destroy(client);
		store_client_remove(client);
	}
	for (unsigned i = 0; i < 50; i++)
		store_work(store);
	store_reclaim(store, POOL_MAX, 50);
	store_close(store);
	_exit(first.right == PAGES ? 11 : 12);
}

/* Case 5 of docs/cases.md. */
static void anywhere(uint64_t rounds)
{
	unsigned outcome[3] = {0};

	for (uint64_t i = 0; i < rounds; i++) {
		size_t len;
		uint8_t *map;
		unsigned flips = 1 + rng_below(&rng, 1u << rng_below(&rng, 8));
		int fd, status;
		pid_t pid;

		fill();
		fd = open(scratch_path("arena"), O_RDONLY | O_CLOEXEC);
		map = map_arena(&len);
		for (unsigned n = 0; n < flips; n++)
			map[some_byte(map, len, fd)] ^= 1u << rng_below(&rng, 8);
		munmap(map, len);
		close(fd);
		fflush(stdout);
		pid = fork();
		if (!pid)
			open_damaged();
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) >= 10 && WEXITSTATUS(status) <= 12,
		      "round %llu, %u flips: the service ended with status %#x",
		      (unsigned long long)i, flips, status);
		outcome[WEXITSTATUS(status) - 10]++;
	}
	printf("bits flipped anywhere, %llu arenas: %u refused, %u unharmed, %u with pages gone\n",
	       (unsigned long long)rounds, outcome[0], outcome[1], outcome[2]);
}

int main(int argc, char **argv)
{
	rng.state = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	printf("seed %llu\n", (unsigned long long)rng.state);
	fflush(stdout);
	scratch_make("damage");
	log_setup(LOG_ERROR - 1, false);
	fill();
	all_there();
	superblock();
	sizes();
	other_file();
	payload();
	anywhere(test_scaled(FLIP_ROUNDS));
	return 0;
}
