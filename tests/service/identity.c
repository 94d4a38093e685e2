// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A client is who its channel says it is (case 29), its ids are its own (case 28), and shared pools
 * are denied unless the operator allowed them (case 30). vm1 holds pages; vm2 tries everything that
 * it can say to reach them.
 */
#include "raw.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGES 64
#define SHARED (EPHEMERAL | TMEM_POOL_SHARED)
#define STAMP(index) (4711 + (index))

static const uint64_t allowed[2] = {1, 2}, denied[2] = {1, 3};
static const uint32_t ids[] = {0, 1, 2, 3, 15, 16, 63, 64, 255, 256, 65535, 1u << 31, ~0u};

static struct tmem_client *owner, *other;
static uint32_t pools[2]; /* of vm1: persistent, ephemeral */

static void fill(void)
{
	for (unsigned p = 0; p < 2; p++)
		for (uint32_t i = 0; i < PAGES; i++)
			CHECK_IS(player_put(owner, pools[p], i, STAMP(i)), 1);
}

/* Everything that vm1 put is there, and nothing more. */
static void untouched(void)
{
	CHECK_IS(service_counter("vm1", "pages_persistent"), PAGES);
	CHECK_IS(service_counter("vm1", "pages_ephemeral"), PAGES);
	for (uint32_t i = 0; i < PAGES; i++)
		CHECK_IS(player_get(owner, pools[0], i, STAMP(i)), 1);
}

/* All operations with each id, on handles that vm1 has. */
static void foreign_pools(void)
{
	struct tmem_ring *ring = tmem_client_ring(other, 0);
	uint8_t page[TMEM_PAGE_SIZE] = {0};

	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct tmem_handle h = handle_at(ids[i], i);

		CHECK_IS(tmem_get(ring, &h, page), -ENOENT);
		CHECK_IS(tmem_put(ring, &h, page), -ENOENT);
		CHECK_IS(tmem_flush(ring, &h), -ENOENT);
		CHECK_IS(tmem_flush_object(ring, h.pool, h.object), -ENOENT);
		CHECK_IS(tmem_destroy_pool(ring, h.pool), -ENOENT);
	}
	untouched();
}

/* vm2 has pools with the same ids: the same handles are other pages. */
static void same_ids(void)
{
	struct tmem_ring *ring = tmem_client_ring(other, 0);
	struct tmem_handle h;

	CHECK_IS(player_pool(other, PERSISTENT), pools[0]);
	CHECK_IS(player_pool(other, EPHEMERAL), pools[1]);
	for (unsigned p = 0; p < 2; p++)
		for (uint32_t i = 0; i < PAGES; i++) {
			h = handle_at(pools[p], i);
			CHECK_IS(player_get(other, pools[p], i, 0), 0);
			CHECK_IS(tmem_flush(ring, &h), 0);
			CHECK_IS(player_put(other, pools[p], i, i), 1);
		}
	CHECK_IS(tmem_flush_object(ring, pools[0], h.object), 1);
	CHECK_IS(tmem_destroy_pool(ring, pools[0]), 1);
	CHECK_IS(tmem_destroy_pool(ring, pools[1]), 1);
	CHECK_IS(tmem_destroy_pool(ring, pools[1]), -ENOENT);
	untouched();
}

/* Positions, numbers and sizes whose sum or product wraps. */
static void overflows(void)
{
	static const struct {
		uint32_t rings, entries, abi;
		uint64_t features;
	} hellos[] = {
		{~0u, 64, 0, 0},
		{1, ~0u, 0, 0},
		{1, 1u << 31, 0, 0},
		{1u << 31, 1u << 31, 0, 0},
		{1u << 20, 1u << 12, 0, 0},
		{1, 64, ~0u, 0},
		{1, 64, 0, ~0ull},
	};
	struct tmem_hello hello = {.rings = 1, .entries = 64, .features = TMEM_F_ALL};
	struct raw raw;

	for (unsigned i = 0; i < sizeof(hellos) / sizeof(hellos[0]); i++) {
		struct tmem_hello bad = {.rings = hellos[i].rings,
					 .entries = hellos[i].entries,
					 .abi = hellos[i].abi,
					 .features = hellos[i].features,
					 .exact = true};

		CHECK_IS(tmem_client_hello(other, &bad), -ECONNREFUSED);
	}
	CHECK_IS(tmem_client_hello(other, &hello), 0);
	raw_take(&raw, other, 64);
	for (unsigned i = 0; i < 5; i++) {
		static const uint8_t ops[] = {TMEM_GET_PAGE, TMEM_PUT_PAGE, TMEM_FLUSH_PAGE,
					      TMEM_FLUSH_OBJECT, TMEM_DESTROY_POOL};

		CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = ops[i],
							    .pool = ~0u,
							    .object = {~0ull, ~0ull, ~0ull},
							    .index = ~0u}),
			 -ENOENT);
		CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = ops[i], .seq = ~0u}), -EINVAL);
	}
	CHECK_IS(tmem_client_hello(other, &hello), 0);
	untouched();
}

/* Denied by default; what is allowed to one client is not to another. */
static void shared_pools(void)
{
	struct tmem_ring *mine = tmem_client_ring(owner, 0), *its = tmem_client_ring(other, 0);
	uint64_t none[2] = {0, 0};
	int pool;

	CHECK_IS(tmem_new_pool(mine, SHARED, denied), -EPERM);
	CHECK_IS(tmem_new_pool(its, SHARED, denied), -EPERM);
	CHECK_IS(tmem_new_pool(its, SHARED, none), -EPERM);
	CHECK_IS(tmem_new_pool(mine, SHARED, allowed), -EPERM);
	pool = tmem_new_pool(its, SHARED, allowed);
	CHECK(pool >= 0);
	CHECK_IS(player_put(other, (uint32_t)pool, 1, 1), 1);
	/* It exists now, and is denied all the same. */
	CHECK_IS(tmem_new_pool(mine, SHARED, allowed), -EPERM);
	service_ctl("shared-auth vm1 01000000-0000-0000-0200-000000000000 allow");
	pool = tmem_new_pool(mine, SHARED, allowed);
	CHECK(pool >= 0);
	CHECK_IS(player_get(owner, (uint32_t)pool, 1, 1), 1);
	CHECK_IS(tmem_destroy_pool(mine, (uint32_t)pool), 1);
	service_ctl("shared-auth vm1 01000000-0000-0000-0200-000000000000 deny");
	CHECK_IS(tmem_new_pool(mine, SHARED, allowed), -EPERM);
}

/* Another process may not have the region of vm1, and another user not even ask. */
static void channels(void)
{
	struct tmem_client *thief;
	char answer[512], err[256];
	pid_t child = player_fork();

	if (!child) {
		CHECK_IS(tmem_client_connect(&thief, service_socket("vm1"), 5000, err, sizeof(err)),
			 -ECONNREFUSED);
		_exit(0);
	}
	player_join(child);
	if (geteuid()) {
		printf("not root: no other user can be played\n");
		return;
	}
	CHECK(!chmod(service_socket(""), 0755));
	child = player_fork();
	if (!child) {
		CHECK(!setgroups(0, NULL) && !setgid(12345) && !setuid(12345));
		CHECK(player_dial("vm1") < 0 && errno == EACCES);
		CHECK(player_dial("control") < 0 && errno == EACCES);
		_exit(0);
	}
	player_join(child);
	/* By its credentials, also where the file's mode lets it in. */
	CHECK(!chmod(service_socket("control"), 0666));
	child = player_fork();
	if (!child) {
		CHECK(!setgroups(0, NULL) && !setgid(12345) && !setuid(12345));
		CHECK(service_ask("{\"command\":\"flush\",\"client\":\"vm1\"}", answer,
				  sizeof(answer)));
		CHECK(strstr(answer, "\"denied\""));
		_exit(0);
	}
	player_join(child);
	untouched();
}

int main(void)
{
	service_configure("identity", "shared_auth = 01000000-0000-0000-0200-000000000000\n");
	service_start(NULL);
	owner = player_open("vm1", 1, 64);
	other = player_open("vm2", 1, 64);
	pools[0] = player_pool(owner, PERSISTENT);
	pools[1] = player_pool(owner, EPHEMERAL);
	fill();
	RUN(foreign_pools);
	RUN(same_ids);
	RUN(overflows);
	RUN(channels);
	RUN(shared_pools);
	CHECK_IS(tmem_client_bye(owner), 0);
	CHECK_IS(tmem_client_bye(other), 0);
	tmem_client_close(owner);
	tmem_client_close(other);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
