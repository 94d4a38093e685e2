// SPDX-License-Identifier: GPL-2.0-or-later
/* The arena's mount is full: puts are refused and counted, nothing is lost, no SIGBUS. */
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MIB (1ull << 20)
#define MOUNT (64 * MIB)
#define POOL_MAX (512 * MIB)
#define PERSISTENT (1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST)
#define REFUSALS 200 /* after each of which the worker has its turn */

static struct store *store;
static struct store_client *client;

static struct store_handle at(uint64_t i)
{
	struct store_handle handle = {.object = {i / 64, 0, 0}, .pool = 0, .index = i % 64};

	return handle;
}

static int open_it(void)
{
	struct store_config config = {
		.arena_path = scratch_path("arena"), .pool_max = POOL_MAX, .no_worker = true};
	static const struct store_limits limits = {0};
	char err[256] = "";
	int r = store_open(&store, &config, err, sizeof(err));

	CHECK(!r || err[0], "not a word for the operator");
	if (!r)
		CHECK(!store_client_open(store, "c", &limits, &client), "client");
	return r;
}

/* Puts until `REFUSALS` times in a row there is no room; returns the number of pages. */
static uint64_t fill(uint64_t from, uint64_t *refused)
{
	uint8_t page[PAGE_BYTES];
	uint64_t i = from;
	unsigned row = 0;

	while (row < REFUSALS) {
		struct store_handle handle = at(i);
		int r;

		page_make(page, i + 1);
		r = store_put(client, &handle, page, 0);
		CHECK(r == 1 || r == 0 || r == -ENOMEM, "put answered %d", r);
		if (r == 1) {
			i++;
			row = 0;
			continue;
		}
		(*refused)++;
		row++;
		store_work(store);
	}
	return i - from;
}

static void all_there(uint64_t from, uint64_t n)
{
	uint8_t got[PAGE_BYTES];

	for (uint64_t i = from; i < from + n; i++) {
		struct store_handle handle = at(i);
		int r = store_get(client, &handle, got);

		CHECK(r == 1 && page_is(got, i + 1), "page %llu: %d", (unsigned long long)i, r);
	}
}

int main(void)
{
	static const uint64_t uuid[2];
	uint64_t n, more, refused = 0;
	uint8_t zeros[PAGE_BYTES] = {0};
	int fd, r;

	scratch_make("full");
	log_setup(LOG_ERROR - 1, false);
	if (!scratch_mount(MOUNT, NULL)) {
		printf("skipped: a tmpfs can be mounted by root only (%s)\n", strerror(errno));
		return SKIPPED;
	}
	CHECK(!open_it(), "open");
	CHECK(store_pool_new(client, PERSISTENT, uuid, 1) == 0, "pool");
	n = fill(0, &refused);
	CHECK(n > MOUNT / 2 / 4096, "only %llu pages fit", (unsigned long long)n);
	store_counters(store);
	CHECK(counter_get(&store_client_counters(client)[CLIENT_REFUSED_ROOM]) == refused,
	      "refusals are not all counted");
	CHECK(counter_get(&store_counters(store)[STORE_POPULATE_FAILED]) > 0, "nor is their cause");
	all_there(0, n);
	/* Something else takes the last bytes of the mount, and keeps them. */
	fd = open(scratch_path("other"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	for (uint64_t i = 0; i < n / 2; i++) {
		struct store_handle handle = at(i);

		CHECK(store_flush(client, &handle) == 1, "flush");
	}
	more = fill(n, &refused);
	CHECK(more > 0, "room was made, no put is accepted");
	all_there(n / 2, n - n / 2 + more);
	store_reclaim(store, 8 * MIB, 500);
	all_there(n / 2, n - n / 2 + more);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	store_close(store);
	r = open_it(); /* with not a byte free */
	CHECK(!r, "a full mount after a restart: %d", r);
	all_there(n / 2, n - n / 2 + more);
	store_close(store);
	/* A mount too full to begin: refused with a reason, and again when there is room, not. */
	unlink(scratch_path("arena"));
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	r = open_it();
	CHECK(r == -ENOMEM || r == -ENOSPC, "a new arena on a full mount: %d", r);
	close(fd);
	unlink(scratch_path("other"));
	CHECK(!open_it(), "room again");
	store_close(store);
	printf("%llu pages, %llu more after a flush, %llu refused\n", (unsigned long long)n,
	       (unsigned long long)more, (unsigned long long)refused);
	return 0;
}
