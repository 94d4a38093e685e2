// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Restart with a service manager that keeps the file descriptors: doorbells work on, the peer's
 * connection sees no end, and what is not needed any more is given up: also what belongs to lives
 * that ended while the service was away, and to clients that are no longer there.
 */
#include "manager.h"
#include "player.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT (2 * 4 + 1) /* doorbells both ways for 4 vectors, and the connection */

static const struct tmem_region *page_of(struct tmem_client *client)
{
	size_t bytes;

	return tmem_client_region(client, &bytes);
}

static void kill_and_start(int sig)
{
	service_kill(sig);
	service_start(NULL);
}

/* Doorbells of this life are the ones that are heard, on both sides. */
static void bells_work(struct tmem_client *client, uint32_t pool)
{
	char answer[4096];
	uint64_t in;

	EVENTUALLY(page_of(client)->service_state == TMEM_SERVICE_CONNECTED);
	EVENTUALLY(service_ask("{\"command\":\"version\"}", answer, sizeof(answer)));
	in = service_counter("vm1", "doorbells_in");
	CHECK_IS(page_of(client)->polling, 0);
	for (uint32_t i = 0; i < 10; i++) {
		player_nap_ms(20);
		CHECK_IS(player_put(client, pool, i, i), 1);
	}
	CHECK(service_counter("vm1", "doorbells_in") > in);
}

/* A get whose answer is held back until the guest sleeps. True when a doorbell woke it. */
static bool get_is_rung(struct tmem_client *client, struct tmem_ring *ring,
			const struct tmem_handle *h)
{
	struct tmem_client_counts before, after;
	uint8_t page[TMEM_PAGE_SIZE];
	pid_t child, service = service_pid();

	tmem_client_counts(client, &before);
	CHECK_IS(kill(service, SIGSTOP), 0);
	child = player_fork();
	if (!child) {
		player_nap_ms(70);
		_exit(kill(service, SIGCONT));
	}
	CHECK_IS(tmem_get(ring, h, page), 1);
	CHECK_IS(waitpid(child, NULL, 0), child);
	tmem_client_counts(client, &after);
	return after.doorbells_in > before.doorbells_in;
}

/*
 * The service that runs now rings the guest's doorbell. A guest looks by itself, too, a few times a
 * second: when it does so just as the answer comes, nothing needs to ring.
 */
static void guest_is_woken(struct tmem_client *client, struct tmem_ring *ring,
			   const struct tmem_handle *h)
{
	int tries = 20;

	while (!get_is_rung(client, ring, h))
		CHECK(--tries);
}

static void goes_on(void)
{
	struct tmem_client *client;
	struct tmem_client_counts counts;
	struct tmem_ring *ring;
	struct tmem_handle h;
	uint8_t page[TMEM_PAGE_SIZE];
	uint32_t pool;

	client = player_open("vm1", 2, 32);
	ring = tmem_client_ring(client, 1);
	tmem_ring_set_spin(ring, 0);
	pool = player_pool(client, PERSISTENT);
	EVENTUALLY(manager_kept() == KEPT);

	for (uint32_t i = 0; i < 200; i++) {
		if (i % 50 == 25) {
			kill_and_start(i % 100 == 25 ? SIGKILL : SIGTERM);
			EVENTUALLY(page_of(client)->service_state == TMEM_SERVICE_CONNECTED);
			CHECK_IS(page_of(client)->polling, 0);
			guest_is_woken(client, ring, &h);
		}
		h = handle_at(pool, i);
		page_make(page, i);
		CHECK_IS(tmem_put(ring, &h, page), 1);
	}
	for (uint32_t i = 0; i < 200; i++) {
		h = handle_at(pool, i);
		CHECK_IS(tmem_get(ring, &h, page), 1);
		CHECK(page_is(page, i));
	}
	CHECK_IS(manager_kept(), KEPT);
	tmem_client_counts(client, &counts);
	CHECK_IS(counts.restarts, 4);

	/* Another connection of the owner: new doorbells in place of the old. */
	CHECK_IS(tmem_client_reconnect(client), 0);
	EVENTUALLY(manager_kept() == KEPT);
	CHECK_IS(tmem_get(ring, &h, page), 1);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* A guest that lives until it is killed. */
static pid_t other_guest(const char *name)
{
	struct tmem_client *client;
	pid_t child = player_fork();

	if (child)
		return child;
	client = player_open(name, 2, 32);
	CHECK_IS(player_put(client, player_pool(client, PERSISTENT), 1, 1), 1);
	pause();
	_exit(1);
}

/* Its descriptors are given up, and those of the next guest are not taken for them. */
static void ended_meanwhile(void)
{
	pid_t child = other_guest("vm1");
	struct tmem_client *client;
	uint32_t pool;

	EVENTUALLY(service_counter("vm1", "pages_persistent") == 1);
	EVENTUALLY(manager_kept() == KEPT);
	service_kill(SIGKILL);
	player_end(child);
	service_start(NULL);
	EVENTUALLY(manager_kept() == 0);

	child = player_fork();
	if (!child) {
		client = player_open("vm1", 1, 32);
		tmem_ring_set_spin(tmem_client_ring(client, 0), 0);
		pool = player_pool(client, PERSISTENT);
		bells_work(client, pool);
		CHECK_IS(page_of(client)->service_epoch, 1);
		EVENTUALLY(page_of(client)->service_epoch == 2);
		bells_work(client, pool);
		_exit(0);
	}
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 10);
	EVENTUALLY(manager_kept() == KEPT);
	kill_and_start(SIGTERM);
	player_join(child);
	EVENTUALLY(manager_kept() == 0);
}

/* Clients that the operator removes; vm3 has four rings as well. */
static void removed(void)
{
	char more[256];
	pid_t child;

	snprintf(more, sizeof(more), "[client vm3]\nsocket = %s\nregion = 8M\nrings = 4\n",
		 service_socket("vm3"));
	service_configure_again(more);
	kill_and_start(SIGTERM);
	child = other_guest("vm3");
	EVENTUALLY(service_counter("vm3", "pages_persistent") == 1);
	EVENTUALLY(manager_kept() == KEPT);

	/* From the configuration while the service is away: its guest may want to go on. */
	service_kill(SIGTERM);
	service_configure_again("");
	service_start(NULL);
	CHECK_IS(manager_kept(), KEPT);
	service_configure_again(more);
	kill(service_pid(), SIGHUP);
	EVENTUALLY(!access(service_socket("vm3"), F_OK));
	CHECK_IS(manager_kept(), KEPT);

	/* Together with the arena: nobody can go on. */
	service_kill(SIGTERM);
	CHECK(!unlink(service_socket("arena")));
	service_configure_again("");
	service_start(NULL);
	EVENTUALLY(manager_kept() == 0);
	player_end(child);
}

int main(void)
{
#ifndef HAVE_SYSTEMD
	printf("built without libsystemd: there is no fd store\n");
	return SKIPPED;
#endif
	service_configure("fdstore", "");
	manager_open(service_socket("notify"));
	service_start(NULL);
	RUN(ended_meanwhile);
	RUN(removed);
	/* The last: from here on this process owns vm1. */
	RUN(goes_on);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
