// SPDX-License-Identifier: GPL-2.0-or-later
/* Hellos, refusals with both values, lives and owners. */
#include "player.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void put_one(struct tmem_client *client, uint32_t pool, uint32_t index)
{
	CHECK_IS(player_put(client, pool, index, 1000 + index), 1);
}

static int get_one(struct tmem_client *client, uint32_t pool, uint32_t index)
{
	return player_get(client, pool, index, 1000 + index);
}

/* Case 18 of docs/cases.md. */
/* The operator is told both values, too. */
static bool said(unsigned reason, uint64_t guest, uint64_t service)
{
	char text[96];

	snprintf(text, sizeof(text), "client vm1: hello refused, reason %u: guest %llu, here %llu",
		 reason, (unsigned long long)guest, (unsigned long long)service);
	return service_log_lines(text) > 0;
}

/* Whatever client and service disagree on is refused with both values (case 18). */
static void refusals(void)
{
	static const struct {
		struct tmem_hello hello;
		enum tmem_refusal reason;
		uint64_t guest, service;
	} cases[] = {
		{{.rings = 1, .entries = 32, .abi = 2}, TMEM_REFUSED_ABI, 2, 1},
		{{.rings = 1, .entries = 32, .features = 1u << 7},
		 TMEM_REFUSED_FEATURES,
		 1u << 7,
		 TMEM_F_ALL},
		{{.rings = 0, .entries = 32}, TMEM_REFUSED_RINGS, 0, 4},
		{{.rings = 5, .entries = 32}, TMEM_REFUSED_RINGS, 5, 4},
		{{.rings = 1, .entries = 33}, TMEM_REFUSED_ENTRIES, 33, TMEM_MAX_ENTRIES},
		{{.rings = 1, .entries = 4}, TMEM_REFUSED_ENTRIES, 4, TMEM_MAX_ENTRIES},
		{{.rings = 1, .entries = 2048}, TMEM_REFUSED_ENTRIES, 2048, TMEM_MAX_ENTRIES},
		{{.rings = 4, .entries = 1024}, TMEM_REFUSED_SIZE, 0, 8u << 20},
	};
	struct tmem_client *client = player_open("vm1", 1, 32);
	unsigned n = sizeof(cases) / sizeof(cases[0]);
	struct tmem_refusal_info info;
	struct tmem_hello hello;

	for (unsigned i = 0; i < n; i++) {
		hello = cases[i].hello;
		hello.exact = true;
		CHECK_IS(tmem_client_hello(client, &hello), -ECONNREFUSED);
		tmem_client_refusal(client, &info);
		CHECK_IS(info.reason, cases[i].reason);
		CHECK_IS(info.guest, info.reason == TMEM_REFUSED_SIZE ? tmem_region_need(4, 1024)
								      : cases[i].guest);
		CHECK_IS(info.service, cases[i].service);
		CHECK(said(info.reason, info.guest, info.service));
	}
	CHECK_IS(service_counter("vm1", "hellos_refused"), n);
	hello = (struct tmem_hello){.rings = 4, .entries = 64, .features = TMEM_F_ALL};
	CHECK_IS(tmem_client_hello(client, &hello), 0);
	put_one(client, player_pool(client, PERSISTENT), 1);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* A guest that boots again in the same VM finds nothing of its former life. */
static void reboot(void)
{
	struct tmem_hello hello = {.rings = 2, .entries = 128};
	struct tmem_client *client = player_open("vm1", 1, 32);
	uint64_t lives = service_counter("vm1", "lives");
	uint32_t pool = player_pool(client, PERSISTENT);
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_handle h;

	for (uint32_t i = 0; i < 100; i++)
		put_one(client, pool, i);
	CHECK_IS(service_counter("vm1", "pages_persistent"), 100);
	CHECK_IS(tmem_client_hello(client, &hello), 0);
	CHECK_IS(service_counter("vm1", "lives"), lives + 1);
	h = handle_at(pool, 5);
	CHECK_IS(tmem_get(tmem_client_ring(client, 1), &h, page), -ENOENT);
	CHECK_IS(player_pool(client, PERSISTENT), pool);
	CHECK_IS(get_one(client, pool, 5), 0);
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 0);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

static int connect_error(const char *name)
{
	struct tmem_client *client;
	char err[256];
	int r = tmem_client_connect(&client, service_socket(name), 5000, err, sizeof(err));

	tmem_client_close(client);
	return r;
}

/* While the owner lives nobody else gets in, and it gets its own region again. (case 29) */
static void owners(void)
{
	struct tmem_client *client = player_open("vm2", 2, 32);
	uint32_t pool = player_pool(client, PERSISTENT);
	pid_t child;

	put_one(client, pool, 7);
	CHECK_IS(connect_error("vm2"), -ECONNREFUSED);
	tmem_client_hang_up(client);
	child = player_fork();
	if (!child)
		_exit(connect_error("vm2") == -ECONNREFUSED ? 0 : 1);
	player_join(child);
	CHECK_IS(get_one(client, pool, 7), 1);
	CHECK_IS(tmem_client_reconnect(client), 0);
	CHECK_IS(get_one(client, pool, 7), 1);
	CHECK(service_counter("vm2", "connects_refused") >= 2);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* The end of the owner's process is the end of its life, and frees the socket for the next. */
static void owner_death(void)
{
	int ready[2];
	pid_t child;
	char c;

	CHECK(!pipe(ready));
	child = player_fork();
	if (!child) {
		struct tmem_client *client = player_open("vm1", 1, 64);
		uint32_t pool = player_pool(client, PERSISTENT);

		for (uint32_t i = 0; i < 50; i++)
			put_one(client, pool, i);
		CHECK(write(ready[1], "x", 1) == 1);
		pause();
	}
	CHECK(read(ready[0], &c, 1) == 1);
	CHECK_IS(service_counter("vm1", "pages_persistent"), 50);
	CHECK_IS(connect_error("vm1"), -ECONNREFUSED);
	player_end(child);
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
}

/* An owner that cuts its own region harms itself only. */
static void cut_region(void)
{
	struct tmem_client *victim = player_open("vm2", 1, 32);
	uint32_t pool = player_pool(victim, PERSISTENT);
	pid_t child;

	put_one(victim, pool, 3);
	child = player_fork();
	if (!child) {
		struct tmem_client *client = player_open("vm1", 4, 128);
		struct tmem_request request = {.op = TMEM_GET_PAGE};

		for (unsigned i = 0; i < 100; i++)
			tmem_submit(tmem_client_ring(client, i % 4), &request);
		CHECK(!ftruncate(tmem_client_region_fd(client), 0));
		pause();
	}
	EVENTUALLY(service_counter("vm1", "lives") >= 1);
	player_nap_ms(500);
	CHECK_IS(get_one(victim, pool, 3), 1);
	player_end(child);
	/* The next owner of vm1 gets a region of its own. */
	reboot();
	CHECK_IS(get_one(victim, pool, 3), 1);
	CHECK_IS(tmem_client_bye(victim), 0);
	tmem_client_close(victim);
}

int main(void)
{
	service_configure("handshake", "");
	service_start(NULL);
	owner_death();
	cut_region();
	/* From here on vm1 and vm2 are owned by this process, one connection after the other. */
	refusals();
	reboot();
	owners();
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
