// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A service that runs out of file descriptors, because of a low limit and of many connections:
 * who is there is served, who comes waits or is refused, both said in the log; it does not spin,
 * and serves again when descriptors are free.
 */
#include "player.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPARE 12 /* one more than a connection of vm2 takes */
#define EXTRA 4
#define MANY 60

static int held[MANY];
static unsigned nr_held;

static unsigned files_now(void)
{
	struct service_costs costs;

	service_costs(&costs);
	return costs.files;
}

/*
 * Connects to the control socket until there is no descriptor left, and a few times more: what the
 * service has open for a moment only is taken when it looks for connections again, a second later.
 */
static void fill(unsigned limit)
{
	while (files_now() < limit) {
		CHECK(nr_held < MANY - EXTRA);
		held[nr_held] = player_dial("control");
		CHECK(held[nr_held++] >= 0);
		player_nap_ms(10);
	}
	for (unsigned i = 0; i < EXTRA; i++)
		held[nr_held++] = player_dial("control");
	player_nap_ms(2500);
}

static void release(unsigned n)
{
	while (nr_held && n--)
		close(held[--nr_held]);
}

/* It may look around ten times a second, no more. */
static void does_not_spin(void)
{
	struct service_costs before, after;

	service_costs(&before);
	player_nap_ms(1000);
	service_costs(&after);
	printf("%u ms of processor time in a second\n", after.cpu_ms - before.cpu_ms);
	CHECK(after.cpu_ms - before.cpu_ms < 100);
}

static int connect_error(const char *name, unsigned ms)
{
	struct tmem_client *client;
	char err[256];
	int r = tmem_client_connect(&client, service_socket(name), ms, err, sizeof(err));

	tmem_client_close(client);
	return r;
}

int main(void)
{
	struct service_costs rest;
	struct tmem_client *client;
	struct rlimit limit;
	uint32_t pool;
	int waiting;

	service_configure("files", "");
	service_start(NULL);
	client = player_open("vm1", 2, 64);
	pool = player_pool(client, PERSISTENT);
	service_costs_at_rest(&rest);
	limit.rlim_cur = limit.rlim_max = rest.files + SPARE;
	CHECK(!prlimit(service_pid(), RLIMIT_NOFILE, &limit, NULL));

	/* Not one left. */
	fill(rest.files + SPARE);
	waiting = player_dial("vm2");
	CHECK(waiting >= 0);
	does_not_spin();
	EVENTUALLY(service_log_lines("client vm2: a connection waits, it cannot be accepted: Too"));
	EVENTUALLY(service_log_lines("control: a connection cannot be accepted: Too many"));
	CHECK_IS(connect_error("vm2", 300), -ETIMEDOUT);
	for (uint32_t i = 0; i < 200; i++) {
		CHECK_IS(player_put(client, pool, i, i), 1);
		CHECK_IS(player_get(client, pool, i, i), 1);
	}

	/* Some, but not enough for the doorbells: refused at once, and nothing of it stays. */
	close(waiting);
	release(EXTRA + 6);
	CHECK_IS(connect_error("vm2", 30000), -ECONNREFUSED);
	EVENTUALLY(service_log_lines("client vm2: connection of process") > 0);
	CHECK(access(service_socket("vm2.region"), F_OK));

	release(MANY);
	EVENTUALLY(files_now() == rest.files);
	CHECK(service_counter("vm2", "connects_refused") > 0);
	CHECK_IS(connect_error("vm2", 30000), 0);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
	CHECK(service_log_lines(NULL) < 60);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
