// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Restart with a service manager that keeps the file descriptors: doorbells work on, the peer's
 * connection sees no end, and what is not needed any more is given up.
 */
#include "manager.h"
#include "player.h"

#include <signal.h>

#define KEPT (2 * 4 + 1) /* doorbells both ways for 4 vectors, and the connection */

static const struct tmem_region *page_of(struct tmem_client *client)
{
	size_t bytes;

	return tmem_client_region(client, &bytes);
}

int main(void)
{
	struct tmem_client *client;
	struct tmem_client_counts counts;
	struct tmem_ring *ring;
	struct tmem_handle h;
	uint8_t page[TMEM_PAGE_SIZE];
	uint32_t pool;

#ifndef HAVE_SYSTEMD
	printf("built without libsystemd: there is no fd store\n");
	return SKIPPED;
#endif
	service_configure("fdstore", "");
	manager_open(service_socket("notify"));
	service_start(NULL);
	client = player_open("vm1", 2, 32);
	ring = tmem_client_ring(client, 1);
	tmem_ring_set_spin(ring, 0);
	pool = player_pool(client, PERSISTENT);
	EVENTUALLY(manager_kept() == KEPT);

	for (uint32_t i = 0; i < 200; i++) {
		if (i % 50 == 25) {
			service_kill(i % 100 == 25 ? SIGKILL : SIGTERM);
			service_start(NULL);
			EVENTUALLY(page_of(client)->service_state == TMEM_SERVICE_CONNECTED);
			CHECK_IS(page_of(client)->polling, 0);
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
	CHECK(counts.doorbells_in > 0);
	CHECK_IS(counts.restarts, 4);
	/* The service that came last rings: it has not only been looked at by timer. */
	CHECK(service_counter("vm1", "doorbells_out") > 0);

	/* Another connection of the owner: new doorbells in place of the old. */
	CHECK_IS(tmem_client_reconnect(client), 0);
	EVENTUALLY(manager_kept() == KEPT);
	CHECK_IS(tmem_get(ring, &h, page), 1);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
