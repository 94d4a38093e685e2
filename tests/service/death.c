// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guests that die (case 20): processes that own vm1 and vm2 are killed at a random moment, from
 * before they connected to the middle of everything, or hang up, or send half a message, thousands
 * of times. Beside them pools are made, joined, left and destroyed in every order while the
 * operator lists and adds and removes a client (case 19). In the end nothing of it is left: no
 * page, credit, pool, file, thread, region, nor a descriptor kept by the service manager.
 */
#include "manager.h"
#include "player.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED "shared_auth = 01000000-0000-0000-0200-000000000000\n"

/* Under a sanitizer freed memory is kept for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_SLACK_KB (512 << 10)
#else
#define MEMORY_SLACK_KB (16 << 10)
#endif

#define POOLS 4

static const char *const clients[] = {"vm1", "vm2"};

/* ---- The guest that will die ---------------------------------------------------------------- */

/* Takes some of the handshake, perhaps says something that nobody asked for, and goes. */
static void half_a_handshake(const char *name, struct rng *rng)
{
	char bytes[256];
	int fd = player_dial(name);

	if (fd < 0)
		_exit(1);
	if (rng_below(rng, 2))
		recv(fd, bytes, 1 + rng_below(rng, sizeof(bytes)), 0);
	if (rng_below(rng, 2))
		send(fd, bytes, 1 + rng_below(rng, 7), MSG_NOSIGNAL);
	if (rng_below(rng, 2))
		shutdown(fd, (int)rng_below(rng, 3));
	if (rng_below(rng, 2))
		pause();
	_exit(0);
}

static int make_pool(struct tmem_ring *ring, struct rng *rng)
{
	static const uint64_t uuid[2] = {1, 2};

	switch (rng_below(rng, 4)) {
	case 0:
		return tmem_new_pool(ring, EPHEMERAL, NULL);
	case 1:
		return tmem_new_pool(ring, PERSISTENT, NULL);
	default:
		return tmem_new_pool(ring, EPHEMERAL | TMEM_POOL_SHARED, uuid);
	}
}

static void do_something(struct tmem_client *client, struct rng *rng, int *pools)
{
	struct tmem_ring *ring = tmem_client_ring(client, rng_below(rng, 2));
	int *pool = &pools[rng_below(rng, POOLS)];
	struct tmem_handle h = handle_at(*pool < 0 ? 0 : (uint32_t)*pool, rng_below(rng, 500));
	uint8_t page[TMEM_PAGE_SIZE];

	switch (rng_below(rng, 16)) {
	case 0:
		if (*pool < 0)
			*pool = make_pool(ring, rng);
		break;
	case 1:
		if (*pool >= 0)
			tmem_destroy_pool(ring, (uint32_t)*pool);
		*pool = -1;
		break;
	case 2:
		tmem_flush_object(ring, h.pool, h.object);
		break;
	case 3:
		tmem_flush(ring, &h);
		break;
	case 4:
	case 5:
		tmem_get(ring, &h, page);
		break;
	case 6:
		if (!rng_below(rng, 20))
			tmem_client_reconnect(client);
		break;
	default:
		page_make(page, rng_next(rng));
		if (tmem_put_posted(ring, &h, page) != 1)
			tmem_put(ring, &h, page);
	}
}

static void live(const char *name, uint64_t seed)
{
	struct rng rng = {seed};
	int pools[POOLS] = {-1, -1, -1, -1};
	struct tmem_hello hello = {.rings = 2, .features = TMEM_F_ALL};
	struct tmem_client *client;
	unsigned turns;

	if (rng_below(&rng, 5) == 0)
		half_a_handshake(name, &rng);
	client = player_open(name, 2, 8u << rng_below(&rng, 5));
	for (turns = rng_below(&rng, 2000); turns; turns--)
		do_something(client, &rng, pools);
	hello.entries = 8u << rng_below(&rng, 5);
	if (rng_below(&rng, 2))
		tmem_client_bye(client);
	else if (rng_below(&rng, 2))
		tmem_client_hello(client, &hello);
	if (rng_below(&rng, 2))
		pause();
	_exit(0);
}

/* ---- The operator --------------------------------------------------------------------------- */

static void ask_for_ever(void)
{
	static const char *const requests[] = {
		"{\"command\":\"list\"}",
		"{\"command\":\"stat\"}",
		"{\"command\":\"stat\",\"client\":\"vm1\"}",
		"{\"command\":\"metrics\"}",
		"{\"command\":\"flush\",\"client\":\"vm2\"}",
	};
	static char answer[1 << 20];

	for (unsigned i = 0;; i++) {
		CHECK(service_ask(requests[i % 5], answer, sizeof(answer)));
		CHECK(!strncmp(answer, "{\"ok\":true", 10));
	}
}

/* vm3 comes and goes. */
static void reload(bool with_vm3)
{
	char more[512];
	int n = snprintf(more, sizeof(more), SHARED);

	if (with_vm3)
		snprintf(more + n, sizeof(more) - (size_t)n,
			 "[client vm3]\nsocket = %s\nregion = 8M\n", service_socket("vm3"));
	service_configure_again(more);
	kill(service_pid(), SIGHUP);
}

/* ---- The test ------------------------------------------------------------------------------- */

/* In microseconds; most are short, so that many meet the handshake. */
static unsigned random_delay(struct rng *rng)
{
	return rng_below(rng, 1u << rng_below(rng, 14));
}

static void kill_many(struct rng *rng, uint64_t rounds)
{
	pid_t child[2] = {0};
	int status;

	for (uint64_t i = 0; i < rounds; i++) {
		unsigned c = (unsigned)(i % 2);
		uint64_t seed = rng_next(rng);

		usleep(random_delay(rng));
		if (child[c]) {
			kill(child[c], SIGKILL);
			CHECK(waitpid(child[c], &status, 0) == child[c]);
			CHECK(!status || WIFSIGNALED(status));
		}
		child[c] = player_fork();
		if (!child[c])
			live(clients[c], seed);
		if (i % 64 == 63)
			reload(i % 128 == 63);
	}
	player_end(child[0]);
	player_end(child[1]);
	reload(false);
}

static void one_of_each(void)
{
	for (unsigned c = 0; c < 2; c++) {
		pid_t child = player_fork();

		if (!child) {
			struct tmem_client *client = player_open(clients[c], 2, 64);

			CHECK_IS(player_put(client, player_pool(client, PERSISTENT), 1, 1), 1);
			_exit(0);
		}
		player_join(child);
	}
}

static bool all_gone(void)
{
	static const char *const counters[] = {"pages_persistent", "pages_ephemeral", "credits",
					       "physical_bytes"};

	for (unsigned c = 0; c < 2; c++)
		for (unsigned i = 0; i < 4; i++)
			if (service_counter(clients[c], counters[i]))
				return false;
	return !service_counter(NULL, "stored_bytes") && !service_counter(NULL, "allocated_bytes");
}

static bool region_left(void)
{
	return !access(service_socket("vm1.region"), F_OK) ||
	       !access(service_socket("vm2.region"), F_OK);
}

/* The service is told to stop just when its guests end. It must not wait for itself. */
static void end_together(struct rng *rng)
{
	pid_t child[2];
	int status;

	for (uint64_t n = test_scaled(40); n; n--) {
		bool ended = false;

		for (unsigned i = 0; i < 2; i++) {
			child[i] = player_fork();
			if (!child[i])
				live(clients[i], rng_next(rng) + i);
		}
		usleep(20000 + random_delay(rng));
		for (unsigned i = 0; i < 2; i++)
			player_end(child[i]);
		usleep(rng_below(rng, 300));
		kill(service_pid(), SIGTERM);
		EVENTUALLY(ended || (ended = service_ended(&status)));
		CHECK_IS(status, 0);
		service_start(NULL);
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	uint64_t rounds = test_scaled(2500);
	struct rng rng = {seed};
	struct service_costs before, after;
	static char answer[65536];
	pid_t operator;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	service_configure("death", SHARED);
	manager_open(service_socket("notify"));
	service_start(NULL);
	one_of_each();
	EVENTUALLY(all_gone() && !region_left() && manager_kept() == 0);
	service_costs_at_rest(&before);

	operator= player_fork();
	if (!operator)
		ask_for_ever();
	kill_many(&rng, rounds);
	CHECK_IS(waitpid(operator, NULL, WNOHANG), 0);
	player_end(operator);

	EVENTUALLY(all_gone() && !region_left());
	EVENTUALLY(manager_kept() == 0);
	EVENTUALLY((service_costs(&after), after.files) == before.files);
	CHECK_IS(after.threads, before.threads);
	CHECK(after.memory_kb < before.memory_kb + MEMORY_SLACK_KB);
	/* No client is connected, no pool is left. */
	CHECK(service_ask("{\"command\":\"stat\"}", answer, sizeof(answer)));
	CHECK(!strstr(answer, "\"members\":"));
	CHECK(!strstr(answer, "\"vm3\""));
	printf("%llu deaths: %u files, %u threads, %u kB resident; before %u, %u, %u\n",
	       (unsigned long long)rounds, after.files, after.threads, after.memory_kb,
	       before.files, before.threads, before.memory_kb);
	end_together(&rng);
	one_of_each();
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
