// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fill: a client that fills the pool with pages that do not shrink, and keeps it full until it is
 * told to stop.
 *
 *   fill SOCKET ephemeral|persistent UNTIL-FILE
 *
 * Prints put=N refused=N once a second. A persistent page that was accepted is kept, and all of
 * them are checked at the end: "intact N"; ephemeral pages are put over and over, and those that
 * are still there at the end are checked. The exit status is 1 at the first wrong page.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/service/player.h"

#define BATCH 32
#define MOST 262144 /* 1 GiB */

static struct tmem_client *client;
static struct tmem_ring *ring;
static uint32_t pool;
static bool held[MOST];

static void make(uint8_t page[PAGE_BYTES], uint32_t index)
{
	page_make_sized(page, index + 1, PAGE_BYTES);
}

/* From `first` on; how many were accepted. */
static unsigned put_batch(uint32_t first)
{
	struct tmem_result results[BATCH];
	uint8_t page[PAGE_BYTES];
	unsigned done = 0, accepted = 0;

	for (uint32_t i = 0; i < BATCH; i++) {
		struct tmem_request request = {.op = TMEM_PUT_PAGE,
					       .handle = handle_at(pool, first + i),
					       .page = page,
					       .tag = &held[first + i]};

		make(page, first + i);
		CHECK_IS(tmem_submit(ring, &request), 0);
	}
	while (done < BATCH) {
		unsigned n;

		CHECK(tmem_wait_many(ring, BATCH - done) >= 0);
		n = tmem_reap(ring, results, BATCH);
		for (unsigned i = 0; i < n; i++) {
			CHECK(results[i].status == 1 || results[i].status == -ENOMEM);
			*(bool *)results[i].tag = results[i].status == 1;
			accepted += results[i].status == 1;
		}
		done += n;
	}
	return accepted;
}

/* Gets up to BATCH pages that are held, from *at on; how many were there, all of them right. */
static unsigned get_batch(uint32_t *at, bool persistent)
{
	static uint8_t pages[BATCH][PAGE_BYTES];
	struct tmem_result results[BATCH];
	uint8_t want[PAGE_BYTES];
	unsigned asked = 0, done = 0, found = 0;
	uint32_t index[BATCH];

	for (; *at < MOST && asked < BATCH; ++*at) {
		struct tmem_request request = {.op = TMEM_GET_PAGE,
					       .handle = handle_at(pool, *at),
					       .into = pages[asked],
					       .tag = &index[asked]};

		if (!held[*at])
			continue;
		index[asked++] = *at;
		CHECK_IS(tmem_submit(ring, &request), 0);
	}
	while (done < asked) {
		unsigned n;

		CHECK(tmem_wait_many(ring, asked - done) >= 0);
		n = tmem_reap(ring, results, BATCH);
		done += n;
		for (unsigned i = 0; i < n; i++) {
			const uint32_t *got = results[i].tag;

			CHECK(results[i].status == 1 || (results[i].status == 0 && !persistent));
			make(want, *got);
			CHECK(!results[i].status || !memcmp(pages[got - index], want, PAGE_BYTES));
			found += results[i].status == 1;
		}
	}
	return found;
}

static void check(bool persistent)
{
	unsigned found = 0;

	for (uint32_t at = 0; at < MOST;)
		found += get_batch(&at, persistent);
	printf("intact %u\n", found);
}

int main(int argc, char **argv)
{
	struct tmem_hello hello = {.rings = 1, .entries = 128};
	unsigned long put = 0, refused = 0;
	bool persistent;
	time_t said = 0;
	char err[256];

	if (argc != 4)
		return 2;
	persistent = !strcmp(argv[2], "persistent");
	if (tmem_client_connect(&client, argv[1], 60000, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 1;
	}
	CHECK_IS(tmem_client_hello(client, &hello), 0);
	ring = tmem_client_ring(client, 0);
	pool = player_pool(client, persistent ? PERSISTENT : EPHEMERAL);
	for (uint32_t at = 0; access(argv[3], F_OK);) {
		unsigned accepted = put_batch(at);

		put += accepted;
		refused += BATCH - accepted;
		/* What was refused is tried again; what is accepted stays, if it can. */
		if (accepted)
			at = (at + BATCH) % MOST;
		if (persistent && !at)
			break;
		/* tmemd has its one CPU in dom0, too. */
		player_nap_ms(accepted < BATCH ? 20 : 5);
		if (time(NULL) != said) {
			said = time(NULL);
			printf("put=%lu refused=%lu\n", put, refused);
			fflush(stdout);
		}
	}
	while (access(argv[3], F_OK))
		player_nap_ms(100);
	check(persistent);
	return 0;
}
