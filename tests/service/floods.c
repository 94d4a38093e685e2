// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Floods: doorbells, bad entries, hellos and connections, as fast as two threads of vm1's owner
 * can. vm2 is served all the time; the log stays short, and the service as small as it was.
 */
#include "raw.h"
#include "tools/client/tmem_client_priv.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENTRIES 256
#define LOG_LINES 12 /* of one kind in a minute: 10, and how many were held back */

static struct tmem_client *victim;
static uint32_t pool;

/* Keeps vm1 flooded in a process of its own with two threads. */
static pid_t flood(void *(*body)(void *))
{
	pid_t child = player_fork();
	pthread_t thread;
	struct raw raw;

	if (child)
		return child;
	raw_open(&raw, "vm1", ENTRIES);
	CHECK(!pthread_create(&thread, NULL, body, &raw));
	body(&raw);
	_exit(1);
}

/* vm2 puts and gets while the counter of vm1 shows that the flood goes on. */
static void served(const char *counter, uint64_t at_least)
{
	uint64_t turns = test_scaled(2000), before;

	EVENTUALLY(service_counter("vm1", counter) > 0);
	before = service_counter("vm1", counter);
	for (uint32_t i = 0; i < turns; i++) {
		CHECK_IS(player_put(victim, pool, i % 500, i), 1);
		CHECK_IS(player_get(victim, pool, i % 500, i), 1);
	}
	EVENTUALLY(service_counter("vm1", counter) - before >= at_least);
}

static void *ring_for_ever(void *arg)
{
	struct raw *raw = arg;

	for (;;)
		tmem_ring_bell(raw->client, 0);
	return NULL;
}

static void doorbells(void)
{
	pid_t child = flood(ring_for_ever);

	served("doorbells_in", 100);
	player_end(child);
}

/* Half of them known, half not; none of them right. */
static void *submit_for_ever(void *arg)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct raw *raw = arg;

	for (;;) {
		uint32_t tail;

		pthread_mutex_lock(&lock);
		tail = raw->ctl->sq_tail;
		if (tail - __atomic_load_n(&raw->ctl->sq_head, __ATOMIC_ACQUIRE) < ENTRIES) {
			raw->entries[tail % ENTRIES] = (struct tmem_entry){
				.op = (uint8_t)(tail % 16), .reserved0 = 1, .seq = tail + 1};
			raw->sq[tail % ENTRIES] = (uint16_t)(tail % ENTRIES);
			raw_ring(raw, tail + 1);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void bad_entries(void)
{
	pid_t child = flood(submit_for_ever);

	served("ring_bad", 1000);
	player_end(child);
}

/* Each of them refused, and with a new epoch. */
static void *greet_for_ever(void *arg)
{
	struct raw *raw = arg;
	struct tmem_region *page = raw->client->page;

	__atomic_store_n(&page->nr_rings, 1000, __ATOMIC_RELAXED);
	for (;;) {
		__atomic_fetch_add(&page->guest_epoch, 1, __ATOMIC_SEQ_CST);
		tmem_ring_bell(raw->client, 0);
	}
	return NULL;
}

static void hellos(void)
{
	pid_t child = flood(greet_for_ever);

	served("hellos_refused", 2 * LOG_LINES);
	player_end(child);
	CHECK(service_log_lines("hello refused") > 0);
	CHECK(service_log_lines("hello refused") <= LOG_LINES);
}

/* Breaks its ring, again and again. */
static void *break_for_ever(void *arg)
{
	struct raw *raw = arg;
	struct tmem_region *page = raw->client->page;

	for (;;) {
		raw_ring(raw, (uint32_t)-1);
		if (page->service_state == TMEM_SERVICE_REFUSED)
			__atomic_fetch_add(&page->guest_epoch, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void broken_rings(void)
{
	pid_t child = flood(break_for_ever);

	served("ring_broken", 2 * LOG_LINES);
	player_end(child);
	CHECK(service_log_lines("is broken") > 0);
	CHECK(service_log_lines("is broken") <= LOG_LINES);
}

/* From a process that may not have the region, which has an owner. */
static void *dial_for_ever(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = player_dial("vm2");

		if (fd >= 0)
			close(fd);
	}
	return NULL;
}

static void strangers(void)
{
	uint64_t before = service_counter("vm2", "connects_refused");
	pid_t child = flood(dial_for_ever);

	served("doorbells_in", 0);
	EVENTUALLY(service_counter("vm2", "connects_refused") - before > 10);
	player_end(child);
	CHECK(service_log_lines("refused: the region has an owner") > 0);
	CHECK(service_log_lines("refused: the region has an owner") <= LOG_LINES);
}

/*
 * From the owner itself, who gets new doorbells each time, for which all workers stop. It says
 * something, which nobody may.
 */
static void *reconnect_for_ever(void *arg)
{
	struct raw *raw = arg;

	/* The one it has would keep the others out. */
	shutdown(raw->client->connection, SHUT_RDWR);
	for (;;) {
		int fd = player_dial("vm1");

		if (fd < 0)
			continue;
		if (send(fd, "x", 1, MSG_NOSIGNAL) == 1)
			usleep(1000);
		close(fd);
	}
	return NULL;
}

static void reconnects(void)
{
	pid_t child = flood(reconnect_for_ever);

	served("doorbells_in", 0);
	EVENTUALLY(service_log_lines("the peer sent something") > 0);
	player_end(child);
	CHECK(service_log_lines("the peer sent something") <= LOG_LINES);
}

/* Half-open connections to the control socket do not keep others out of the rings. */
static void *ask_for_ever(void *arg)
{
	char answer[4096];

	(void)arg;
	for (;;)
		service_ask("{\"command\":\"list\"", answer, sizeof(answer));
	return NULL;
}

static void requests(void)
{
	pid_t child = flood(ask_for_ever);

	served("doorbells_in", 0);
	player_end(child);
}

static void same_as(const struct service_costs *before)
{
	struct service_costs after;

	EVENTUALLY(service_counter("vm1", "physical_bytes") == 0);
	EVENTUALLY((service_costs(&after), after.files) == before->files);
	CHECK_IS(after.threads, before->threads);
}

int main(void)
{
	static void (*const parts[])(void) = {doorbells, bad_entries, hellos,  broken_rings,
					      strangers, reconnects,  requests};
	struct service_costs before;

	service_configure("floods", "");
	service_start(NULL);
	victim = player_open("vm2", 1, 32);
	pool = player_pool(victim, PERSISTENT);
	service_costs_at_rest(&before);
	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		parts[i]();
		same_as(&before);
		printf("part %u: vm2 was served\n", i + 1);
		fflush(stdout);
	}
	/* All that guests made it say. */
	CHECK(service_log_lines(NULL) < 100);
	CHECK_IS(tmem_client_bye(victim), 0);
	tmem_client_close(victim);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
