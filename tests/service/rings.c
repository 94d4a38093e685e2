// SPDX-License-Identifier: GPL-2.0-or-later
/* Rings: two at once, handles that cross, full ones, credits, refusals, and everything broken. */
#include "player.h"
#include "raw.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Two threads, one set of handles -------------------------------------------------------- */

#define HANDLES 64

/* `version` is raised under the lock before each put; a get must see the last put's. */
static struct {
	pthread_mutex_t lock;
	uint64_t stamp; /* 0: nothing stored */
} shared[HANDLES];

struct crossing {
	struct tmem_client *client;
	unsigned ring;
	uint32_t pool;
	uint64_t turns;
};

static void cross_once(struct crossing *c, struct rng *rng, uint8_t *page)
{
	struct tmem_ring *ring = tmem_client_ring(c->client, c->ring);
	uint32_t i = rng_below(rng, HANDLES);
	struct tmem_handle h = handle_at(c->pool, i);
	int r;

	pthread_mutex_lock(&shared[i].lock);
	switch (rng_below(rng, 4)) {
	case 0:
	case 1:
		shared[i].stamp = rng_next(rng) | 1;
		page_make(page, shared[i].stamp);
		r = tmem_put_posted(ring, &h, page);
		if (r == -ENOBUFS)
			r = tmem_put(ring, &h, page);
		CHECK_IS(r, 1);
		break;
	case 2:
		r = tmem_get(ring, &h, page);
		CHECK_IS(r, shared[i].stamp != 0);
		CHECK(r != 1 || page_is(page, shared[i].stamp));
		break;
	default:
		CHECK_IS(tmem_flush(ring, &h), shared[i].stamp != 0);
		shared[i].stamp = 0;
		break;
	}
	pthread_mutex_unlock(&shared[i].lock);
}

static void *cross(void *arg)
{
	struct crossing *c = arg;
	struct rng rng = {c->ring * 77 + 1};
	uint8_t page[TMEM_PAGE_SIZE];

	for (uint64_t i = 0; i < c->turns; i++)
		cross_once(c, &rng, page);
	return NULL;
}

/* Posted puts return before they are done, so handles do have operations outstanding elsewhere. */
static void crossing(void)
{
	struct tmem_client *client = player_open("vm1", 2, 32);
	uint32_t pool = player_pool(client, PERSISTENT);
	struct crossing c[2];
	pthread_t thread[2];

	for (unsigned i = 0; i < HANDLES; i++)
		pthread_mutex_init(&shared[i].lock, NULL);
	for (unsigned i = 0; i < 2; i++) {
		c[i] = (struct crossing){client, i, pool, test_scaled(20000)};
		pthread_create(&thread[i], NULL, cross, &c[i]);
	}
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	CHECK_IS(tmem_client_posted_failed(client), 0);
	CHECK(service_counter("vm1", "puts_posted") > 1000);
	CHECK_IS(service_counter("vm1", "credits_forged"), 0);
	CHECK_IS(tmem_client_bye(client), 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
	tmem_client_close(client);
}

/* ---- Full rings ----------------------------------------------------------------------------- */

static void full(void)
{
	struct tmem_client *client = player_open("vm1", 1, 8);
	struct tmem_ring *ring = tmem_client_ring(client, 0);
	struct tmem_request request = {.op = TMEM_PUT_PAGE};
	uint8_t pages[16][TMEM_PAGE_SIZE];
	struct tmem_result results[8];
	uint64_t done = 0, turns = test_scaled(2000);

	request.handle = handle_at(player_pool(client, PERSISTENT), 0);
	for (unsigned i = 0; i < 16; i++)
		page_make(pages[i], i);
	for (uint64_t t = 0; t < turns; t++) {
		for (unsigned i = 0; i < 8; i++) {
			request.handle.index = i;
			request.page = pages[(t + i) % 16];
			CHECK_IS(tmem_submit(ring, &request), 0);
		}
		CHECK_IS(tmem_submit(ring, &request), -EAGAIN);
		for (unsigned got = 0; got < 8;) {
			CHECK_IS(tmem_wait(ring), 1);
			unsigned n = tmem_reap(ring, results, 8);

			for (unsigned i = 0; i < n; i++)
				CHECK_IS(results[i].status, 1);
			got += n;
			done += n;
		}
	}
	CHECK_IS(done, 8 * turns);
	CHECK_IS(tmem_wait(ring), 0);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* ---- Credits -------------------------------------------------------------------------------- */

/* Frozen, the service takes credits back while they are used; those taken before are honoured. */
static void credits_taken_back(void)
{
	struct tmem_client *client = player_open("vm1", 1, 128);
	struct tmem_ring *ring = tmem_client_ring(client, 0);
	uint32_t pool = player_pool(client, PERSISTENT), posted = 0;
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_handle h;

	for (unsigned round = 0; round < 6; round++) {
		EVENTUALLY(tmem_credits(ring) > 0);
		pid_t child = player_fork();

		if (!child) {
			player_nap_ms(10);
			service_ctl("freeze vm1");
			_exit(0);
		}
		while (!waitpid(child, NULL, WNOHANG) || tmem_credits(ring)) {
			h = handle_at(pool, posted);
			page_make(page, posted);
			if (tmem_put_posted(ring, &h, page) == 1)
				posted++;
			if (posted % 64 == 0)
				CHECK_IS(tmem_drain(ring), 0);
		}
		CHECK_IS(tmem_drain(ring), 0);
		EVENTUALLY(service_counter("vm1", "credits") == 0);
		h = handle_at(pool, 1u << 30);
		CHECK_IS(tmem_put(ring, &h, page), -TMEM_EFROZEN);
		service_ctl("thaw vm1");
	}
	CHECK_IS(tmem_client_posted_failed(client), 0);
	CHECK(service_counter("vm1", "credits_revoked") > 0);
	for (uint32_t i = 0; i < posted; i++) {
		h = handle_at(pool, i);
		CHECK_IS(tmem_get(ring, &h, page), 1);
		CHECK(page_is(page, i));
	}
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* ---- A guest that does not keep the rules --------------------------------------------------- */

static void reserved_bits(void)
{
	struct raw raw;
	uint64_t bad;
	int pool;

	raw_open(&raw, "vm1", 32);
	bad = service_counter("vm1", "ring_bad");
	pool = raw_call(&raw,
			(struct tmem_entry){.op = TMEM_NEW_POOL, .index = PERSISTENT, .arg = 9});
	CHECK(pool >= 0);
	CHECK_IS(raw_call(&raw,
			  (struct tmem_entry){.op = TMEM_NEW_POOL, .index = PERSISTENT, .arg = 9}),
		 pool);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_GET_PAGE, .flags = 1}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_PUT_PAGE, .flags = 2}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_GET_PAGE, .reserved0 = 1}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_GET_PAGE, .arg = 1}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_GET_PAGE, .seq = 77777}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_NEW_POOL, .pool = 1}), -EINVAL);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = 3}), -ENOSYS);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = 200}), -ENOSYS);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_GET_PAGE, .pool = 12345}), -ENOENT);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_DESTROY_POOL, .pool = ~0u}),
		 -ENOENT);
	CHECK_IS(raw_call(&raw, (struct tmem_entry){.op = TMEM_NEW_POOL,
						    .index = PERSISTENT | TMEM_POOL_SHARED,
						    .object = {1, 2, 0},
						    .arg = 3}),
		 -EPERM);
	CHECK_IS(service_counter("vm1", "ring_bad") - bad, 7);
	CHECK_IS(tmem_client_bye(raw.client), 0);
	tmem_client_close(raw.client);
}

/* A posted put without a credit is a plain put, and counted. */
static void forged(void)
{
	struct tmem_entry e = {.op = TMEM_PUT_PAGE, .flags = TMEM_ENTRY_POSTED};
	struct tmem_ring_ctl *second;
	uint64_t before, posted;
	uint32_t given;
	struct raw raw;

	raw_take(&raw, player_open("vm1", 2, 32), 32);
	second = (void *)((uint8_t *)raw.ctl + tmem_ring_off(1, 32) - tmem_ring_off(0, 32));
	EVENTUALLY(second->credits && raw.ctl->credits == second->credits);
	/* Taken for entries of the second ring, so that they stay. */
	given = __atomic_exchange_n(&second->credits, 0, __ATOMIC_SEQ_CST);
	before = service_counter("vm1", "credits_forged");
	posted = service_counter("vm1", "puts_posted");
	e.pool = player_pool(raw.client, PERSISTENT);
	service_ctl("freeze vm1");
	EVENTUALLY(service_counter("vm1", "credits") == given);
	/* More credits than there ever were, said by the guest. */
	__atomic_store_n(&raw.ctl->credits, 1000000, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < 3; i++) {
		e.index = i;
		CHECK_IS(raw_call(&raw, e), -TMEM_EFROZEN);
	}
	CHECK_IS(service_counter("vm1", "credits_forged") - before, 3);
	CHECK_IS(service_counter("vm1", "credits"), given);
	service_ctl("thaw vm1");
	EVENTUALLY(raw.ctl->credits == given);
	CHECK_IS(service_counter("vm1", "puts_posted"), posted);
	CHECK_IS(tmem_client_bye(raw.client), 0);
	tmem_client_close(raw.client);
}

static void broken(void)
{
	struct tmem_hello hello = {.rings = 1, .entries = 32};
	struct tmem_refusal_info info;
	struct raw raw;
	uint64_t before = service_counter("vm1", "ring_broken");

	raw_open(&raw, "vm1", 32);
	raw_ring(&raw, 33);
	EVENTUALLY(tmem_client_refused(raw.client));
	tmem_client_refusal(raw.client, &info);
	CHECK_IS(info.reason, TMEM_REFUSED_RING);
	CHECK_IS(info.guest, 33);
	CHECK_IS(info.service, 32);
	CHECK_IS(tmem_client_hello(raw.client, &hello), 0);
	raw.sq[0] = 40;
	raw_ring(&raw, 1);
	EVENTUALLY(tmem_client_refused(raw.client));
	tmem_client_refusal(raw.client, &info);
	CHECK_IS(info.reason, TMEM_REFUSED_RING);
	CHECK_IS(info.guest, 40);
	CHECK_IS(info.service, 32);
	CHECK_IS(service_counter("vm1", "ring_broken") - before, 2);
	CHECK_IS(tmem_client_hello(raw.client, &hello), 0);
	CHECK_IS(tmem_client_bye(raw.client), 0);
	tmem_client_close(raw.client);
}

/* Rubbish over the whole region, again and again, by a process of its own. */
static void scribble(void)
{
	struct rng rng = {test_seed()};
	uint64_t end = test_scaled(400), *words;
	struct tmem_client *client;
	size_t bytes;

	for (uint64_t turn = 0; turn < end; turn++) {
		struct tmem_hello hello = {.rings = 4, .entries = 64, .features = TMEM_F_ALL};

		if (turn == 0)
			client = player_open("vm1", 4, 64);
		else if (turn % 8 == 0 && tmem_client_hello(client, &hello))
			continue;
		words = tmem_client_region(client, &bytes);
		for (unsigned r = 0; r < 4; r++) {
			uint32_t tail =
				rng_below(&rng, 8) ? rng_below(&rng, 65) : (uint32_t)rng_next(&rng);
			uint64_t *ring = words + tmem_ring_off(r, 64) / 8;

			for (unsigned i = 24; i < tmem_ring_slots_off(64) / 8; i++)
				if (rng_below(&rng, 3))
					ring[i] = rng_below(&rng, 2) ? rng_next(&rng)
								     : rng_below(&rng, 70);
			__atomic_store_n(&((struct tmem_ring_ctl *)ring)->credits, rng_next(&rng),
					 __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&((struct tmem_ring_ctl *)ring)->sq_tail, tail,
					   __ATOMIC_SEQ_CST);
		}
		tmem_client_reconnect(client);
	}
	_exit(0);
}

/* Case 28 of docs/cases.md. */
static void garbage(void)
{
	struct tmem_client *victim = player_open("vm2", 1, 32);
	struct tmem_ring *ring = tmem_client_ring(victim, 0);
	uint32_t pool = player_pool(victim, PERSISTENT), nr = 0;
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_handle h;
	int status;
	pid_t child = player_fork();

	if (!child)
		scribble();
	while (!waitpid(child, &status, WNOHANG)) {
		h = handle_at(pool, nr % 2000);
		page_make(page, nr);
		CHECK_IS(tmem_put(ring, &h, page), 1);
		CHECK_IS(tmem_get(ring, &h, page), 1);
		CHECK(page_is(page, nr));
		nr++;
	}
	CHECK_IS(status, 0);
	CHECK(!service_ended(&status));
	CHECK_IS(tmem_client_bye(victim), 0);
	tmem_client_close(victim);
}

/* ---- Limits --------------------------------------------------------------------------------- */

static void maximum(void)
{
	struct tmem_client *client = player_open("vm1", 1, 64);
	struct tmem_ring *ring = tmem_client_ring(client, 0);
	uint32_t pool = player_pool(client, PERSISTENT), i, nr = 0;
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_handle h;
	int r = 1;

	service_ctl("set vm1 maximum=8M");
	for (i = 0; i < 20000 && r == 1; i++) {
		h = handle_at(pool, i);
		page_make_sized(page, i, 4096);
		r = tmem_put_posted(ring, &h, page);
		if (r == -ENOBUFS)
			r = tmem_put(ring, &h, page);
		nr += r == 1;
	}
	CHECK_IS(r, -EDQUOT);
	CHECK_IS(tmem_drain(ring), 0);
	CHECK_IS(tmem_client_posted_failed(client), 0);
	CHECK(nr > 1000 && nr < 2100);
	CHECK(service_counter("vm1", "refused_maximum") > 0);
	/* What was accepted is there, what was refused is not, and flushing makes room. */
	CHECK_IS(tmem_get(ring, &h, page), 0);
	for (i = 0; i < nr; i++) {
		h = handle_at(pool, i);
		CHECK_IS(tmem_get(ring, &h, page), 1);
		CHECK_IS(tmem_flush(ring, &h), 1);
	}
	page_make(page, 1);
	EVENTUALLY(tmem_put(ring, &h, page) == 1);
	service_ctl("set vm1 maximum=0");
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* Under load the service polls and the guest does not wait for each page: hardly a doorbell. */
static void doorbells(void)
{
	struct tmem_client *client = player_open("vm1", 1, 256);
	struct tmem_ring *ring = tmem_client_ring(client, 0);
	struct tmem_request request = {.op = TMEM_PUT_PAGE};
	struct tmem_client_counts before, after;
	uint8_t page[TMEM_PAGE_SIZE];
	struct tmem_result results[256];
	uint64_t submitted = 0, reaped = 0, turns = test_scaled(20000), bells;

	request.handle = handle_at(player_pool(client, PERSISTENT), 0);
	request.page = page;
	page_make(page, 5);
	tmem_client_counts(client, &before);
	bells = service_counter("vm1", "doorbells_out");
	while (reaped < turns) {
		while (submitted < turns) {
			request.handle.index = submitted % 4096;
			if (tmem_submit(ring, &request))
				break;
			if (++submitted % 64 == 0)
				tmem_kick(ring);
		}
		CHECK(tmem_wait_many(ring, 128) >= 0);
		reaped += tmem_reap(ring, results, 256);
	}
	tmem_client_counts(client, &after);
	bells = service_counter("vm1", "doorbells_out") - bells;
	printf("doorbells for %llu pages: %llu to the service, %llu to the guest\n",
	       (unsigned long long)turns,
	       (unsigned long long)(after.doorbells_out - before.doorbells_out),
	       (unsigned long long)bells);
	CHECK((after.doorbells_out - before.doorbells_out) * 32 <= turns + 320);
	CHECK(bells * 32 <= turns + 320);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

int main(void)
{
	service_configure("rings", "");
	service_start(NULL);
	RUN(garbage);
	RUN(crossing);
	RUN(full);
	RUN(credits_taken_back);
	RUN(reserved_bits);
	RUN(forged);
	RUN(broken);
	RUN(maximum);
	RUN(doorbells);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
