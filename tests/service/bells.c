// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Doorbells are shared with the owner of a client, their flags too: it fills those that the service
 * rings and makes them block. vm2 must be served all the same, by each of its rings, so by each
 * worker.
 */
#include "raw.h"
#include "tools/client/tmem_client_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define ENTRIES 64
#define RINGS 4
#define FULL 0xfffffffffffffffeull

static struct tmem_client *victim;
static uint32_t pool;

static void make_blocking(int bell)
{
	int flags = fcntl(bell, F_GETFL);

	CHECK(flags >= 0 && !fcntl(bell, F_SETFL, flags & ~O_NONBLOCK));
}

/* One that the service rings: a write to it blocks from now on. */
static void fill(int bell)
{
	struct pollfd p = {.fd = bell, .events = POLLOUT};
	uint64_t count = FULL;

	CHECK(read(bell, &count, sizeof(count)) > 0 || errno == EAGAIN);
	count = FULL;
	CHECK(write(bell, &count, sizeof(count)) == sizeof(count));
	make_blocking(bell);
	CHECK_IS(poll(&p, 1, 0), 0);
}

/* Submits for ever, and wants to be rung after each entry. */
static void be_rung(struct raw *raw)
{
	for (uint32_t tail = raw->ctl->sq_tail;; tail++) {
		__atomic_store_n(&raw->ctl->cq_event, tail, __ATOMIC_SEQ_CST);
		raw->entries[tail % ENTRIES] =
			(struct tmem_entry){.op = TMEM_FLUSH_PAGE, .seq = tail + 1, .done = tail};
		raw->sq[tail % ENTRIES] = (uint16_t)(tail % ENTRIES);
		raw_ring(raw, tail + 1);
		while (__atomic_load_n(&raw->ctl->sq_head, __ATOMIC_ACQUIRE) != tail + 1)
			usleep(10);
	}
}

static void fill_bells(void)
{
	struct raw raw;

	raw_open(&raw, "vm1", ENTRIES);
	for (unsigned v = 0; v < raw.client->vectors; v++)
		fill(raw.client->bells_in[v]);
	be_rung(&raw);
}

static void serve(uint64_t stamp)
{
	for (unsigned r = 0; r < RINGS; r++) {
		struct tmem_ring *ring = tmem_client_ring(victim, r);
		struct tmem_handle h = handle_at(pool, r);
		uint8_t page[TMEM_PAGE_SIZE];

		page_make(page, stamp + r);
		CHECK_IS(tmem_put(ring, &h, page), 1);
		CHECK_IS(tmem_get(ring, &h, page), 1);
		CHECK(page_is(page, stamp + r));
	}
}

/* The owner works in a process of its own; `counter` shows that it does. */
static void serve_beside(void (*owner)(void), const char *counter)
{
	uint64_t turns = test_scaled(500), before = service_counter("vm1", counter);
	pid_t child = player_fork();

	if (!child) {
		owner();
		_exit(1);
	}
	EVENTUALLY(service_counter("vm1", counter) > before + 20);
	for (uint64_t i = 0; i < turns; i++) {
		serve(i);
		if (i % 10 == 0)
			player_nap_ms(1); /* so that workers sleep, and hear bells */
	}
	before = service_counter("vm1", counter);
	EVENTUALLY(service_counter("vm1", counter) > before + 20);
	player_end(child);
	EVENTUALLY(service_counter("vm1", "physical_bytes") == 0);
	/* Workers stop for each life that ends: all of them must have come back. */
	serve(turns);
}

static void filled(void)
{
	serve_beside(fill_bells, "doorbells_out");
}

int main(void)
{
	service_configure("bells", "");
	service_start(NULL);
	victim = player_open("vm2", RINGS, 32);
	pool = player_pool(victim, PERSISTENT);
	RUN(filled);
	CHECK_IS(tmem_client_bye(victim), 0);
	tmem_client_close(victim);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
