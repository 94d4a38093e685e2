// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An owner and its lenders over real TLS: what is put comes back, whatever becomes of one of the
 * lenders; every request has exactly one answer; a client's storm leaves the others their window
 * (case 24).
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/scratch.h"

#define ROOM (64u << 20)

static struct host hosts[4];

static void begin(unsigned nr, uint64_t room)
{
	owner_begin(NULL);
	for (unsigned i = 0; i < nr; i++) {
		host_begin(&hosts[i], i + 1, room);
		owner_add(&hosts[i], 0);
	}
	for (unsigned i = 0; i < nr; i++)
		owner_wait_up(i);
}

static void end(unsigned nr)
{
	owner_end();
	for (unsigned i = 0; i < nr; i++)
		host_end(&hosts[i]);
}

static void one_blob(void)
{
	static struct ask ask;
	uint16_t holders[2];

	begin(1, ROOM);
	ask_put(&ask, 77, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.holders[0], 1);
	CHECK_IS(ask.request.holders[1], 0);
	memcpy(holders, ask.request.holders, sizeof(holders));
	ask_get(&ask, 77, 0, holders);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.from, 1);
	CHECK(blob_is(77, ask.bytes, ask.request.len), "wrong bytes");
	ask_get(&ask, 78, 0, holders);
	CHECK_IS(ask_wait(&ask), -ENOENT);
	owner.tier->ops->delete (owner.tier, 77, holders);
	EVENTUALLY(!keeper_blobs(hosts[0].keeper));
	end(1);
}

/* All that is there is what was not deleted: deletes arrive too. */
static uint64_t kept(unsigned nr)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < nr; i++)
		n += keeper_blobs(hosts[i].keeper);
	return n;
}

static void random_requests(void)
{
	struct load *load;
	unsigned held;

	begin(3, ROOM);
	load = load_begin(2, 512);
	EVENTUALLY(load_turns(load) > test_scaled(40000));
	load_stop(load);
	CHECK_IS(load_failed(load), 0);
	held = load_verify(load);
	EVENTUALLY(kept(3) == 2 * held);
	for (unsigned i = 0; i < 3; i++)
		CHECK(keeper_blobs(hosts[i].keeper) > held / 3, "host %u has few", i);
	load_forget(load);
	EVENTUALLY(!kept(3));
	load_end(load);
	end(3);
}

/* One after the other is gone and comes back, with or without what it had. */
static void killed_under_load(void)
{
	struct load *load;
	uint64_t turns;

	begin(3, ROOM);
	load = load_begin(2, 256);
	for (unsigned i = 0; i < 6; i++) {
		struct host *host = &hosts[i % 3];
		unsigned lost = atomic_load(&owner.lost[i % 3 + 1]);
		unsigned back = atomic_load(&owner.back[i % 3 + 1]);
		bool empty = i % 2;

		turns = load_turns(load);
		EVENTUALLY(load_turns(load) > turns + test_scaled(2000));
		host_down(host);
		turns = load_turns(load);
		EVENTUALLY(load_turns(load) > turns + test_scaled(1000));
		if (empty) {
			keeper_empty(host->keeper);
			host->epoch++;
		}
		host_up(host);
		EVENTUALLY(atomic_load(&owner.back[i % 3 + 1]) == back + 1);
		CHECK_IS(atomic_load(&owner.lost[i % 3 + 1]), lost + empty);
	}
	load_stop(load);
	for (unsigned i = 0; i < 3; i++)
		owner_wait_up(i);
	CHECK(load_verify(load), "nothing is left");
	load_end(load);
	end(3);
}

static _Atomic bool operator_goes_home;

/* Looks at everything and changes its mind all the time. */
static void *operate(void *arg)
{
	struct rng rng = {5};
	struct tier_stat stat;
	struct peer_info info;

	(void)arg;
	while (!atomic_load(&operator_goes_home)) {
		for (unsigned i = 0; peers_info(owner.peers, i, &info); i++)
			CHECK(info.holder == i + 1 && info.state <= PEER_DENIED, "peer %u", i);
		owner.tier->ops->stat(owner.tier, &stat);
		CHECK(stat.reachable <= 3, "%u reachable", stat.reachable);
		switch (rng_below(&rng, 20)) {
		case 0:
			CHECK_IS(peers_drain(owner.peers, hosts[1].name, 100), 0);
			break;
		case 1:
			CHECK_IS(peers_deny(owner.peers, hosts[2].name), 0);
			break;
		case 2:
			CHECK_IS(lender_deny(hosts[2].lender, "owner.test"), 0);
			break;
		case 3:
			lender_leave(hosts[0].lender, rng_below(&rng, 2) * 1000);
			break;
		default:
			CHECK_IS(peers_allow(owner.peers, hosts[1].name), 0);
			CHECK_IS(peers_allow(owner.peers, hosts[2].name), 0);
			CHECK_IS(lender_allow(hosts[2].lender, "owner.test"), 0);
		}
		nap_ms(5);
	}
	return NULL;
}

static void busy_operator(void)
{
	struct load *load;
	pthread_t thread;

	begin(3, ROOM);
	atomic_store(&operator_goes_home, false);
	load = load_begin(2, 128);
	CHECK(!pthread_create(&thread, NULL, operate, NULL), "no thread");
	EVENTUALLY(load_turns(load) > test_scaled(20000) &&
		   host_counter(&hosts[2], LENDER_CONNECTS) > test_scaled(20));
	atomic_store(&operator_goes_home, true);
	pthread_join(thread, NULL);
	load_stop(load);
	lender_leave(hosts[0].lender, 0);
	CHECK_IS(lender_allow(hosts[2].lender, "owner.test"), 0);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_IS(peers_allow(owner.peers, hosts[i].name), 0);
		owner_wait_up(i);
		CHECK_IS(atomic_load(&owner.lost[i + 1]), 0);
	}
	load_verify(load);
	load_end(load);
	end(3);
}

/* It is there in the same epoch, but has nothing: its operator dropped it. */
static void empty_in_the_same_epoch(void)
{
	static struct ask ask;

	begin(1, ROOM);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	host_down(&hosts[0]);
	keeper_empty(hosts[0].keeper);
	host_up(&hosts[0]);
	EVENTUALLY(atomic_load(&owner.back[1]) == 2);
	CHECK_IS(atomic_load(&owner.lost[1]), 1);
	end(1);
}

static void put_when_back(void *arg, uint16_t holder)
{
	(void)holder;
	ask_put(arg, 5, 0, 1);
}

/* The store puts as soon as it hears of a holder: it has room then, not only after a while. */
static void at_once(void)
{
	static struct ask ask;

	owner_begin(NULL);
	owner.tier->events.back = put_when_back;
	owner.tier->events.arg = &ask;
	host_begin(&hosts[0], 1, ROOM);
	owner_add(&hosts[0], 0);
	CHECK_IS(ask_wait(&ask), 0);
	end(1);
}

static void nobody_there(void)
{
	static struct ask ask;
	struct tier_stat stat;

	begin(1, ROOM);
	ask_put(&ask, 1, 0, 2); /* two copies need two hosts */
	CHECK_IS(ask_wait(&ask), -ENOSPC);
	ask_put(&ask, 2, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	host_down(&hosts[0]);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	ask_get(&ask, 2, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	ask_put(&ask, 3, 0, 1);
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	ask_get(&ask, 2, 0, (uint16_t[]){0, 0});
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	ask_get(&ask, 2, 0, (uint16_t[]){200, 0});
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	owner.tier->ops->stat(owner.tier, &stat);
	CHECK_IS(stat.reachable, 0);
	CHECK_IS(stat.spare_bytes, 0);
	end(1);
}

/* One is full: the others take it; all are: ENOSPC, and nothing of the put is left anywhere. */
static void full(void)
{
	static struct ask ask;

	begin(3, ROOM);
	keeper_set(hosts[0].keeper, 0, 0, false);
	EVENTUALLY(!owner_peer(0).spare_bytes);
	for (unsigned i = 0; i < 50; i++) {
		ask_put(&ask, 100 + i, 0, 2);
		CHECK_IS(ask_wait(&ask), 0);
		CHECK(ask.request.holders[0] != 1 && ask.request.holders[1] != 1, "the full one");
	}
	/* It is found out by putting, too, before it is said. */
	keeper_set(hosts[1].keeper, 0, 0, false);
	for (unsigned i = 0; i < 50; i++) {
		ask_put(&ask, 200 + i, 0, 2);
		CHECK_IS(ask_wait(&ask), -ENOSPC);
	}
	EVENTUALLY(keeper_blobs(hosts[2].keeper) == 50);
	ask_put(&ask, 300, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.holders[0], 3);
	keeper_set(hosts[2].keeper, 0, 0, false);
	ask_put(&ask, 301, 0, 1);
	CHECK_IS(ask_wait(&ask), -ENOSPC);
	end(3);
}

/* Copies that fail on one host are made on another one, and not on those that may not be. */
static void other_hosts(void)
{
	static struct ask ask;

	begin(3, ROOM);
	for (unsigned i = 0; i < 60; i++) {
		uint16_t not = (uint16_t)(1 + i % 3);

		ask.request.without[0] = not ;
		ask_put(&ask, 1000 + i, 0, 2);
		CHECK_IS(ask_wait(&ask), 0);
		CHECK(ask.request.holders[0] != not &&ask.request.holders[1] != not, "%u", not );
	}
	ask.request.without[0] = 1;
	ask.request.without[1] = 3;
	ask_put(&ask, 2000, 0, 2);
	CHECK_IS(ask_wait(&ask), -ENOSPC);
	ask.request.without[0] = ask.request.without[1] = 0;

	/* A get goes on to the other holder when one cannot. */
	ask_put(&ask, 3000, 0, 2);
	CHECK_IS(ask_wait(&ask), 0);
	for (unsigned bad = 0; bad < 2; bad++) {
		uint16_t holders[2] = {ask.request.holders[0], ask.request.holders[1]};

		if (bad)
			holders[1] = holders[0], holders[0] = ask.request.from;
		keeper_set(hosts[holders[0] - 1].keeper, ROOM, 0, true);
		ask_get(&ask, 3000, 0, holders);
		CHECK_IS(ask_wait(&ask), 0);
		CHECK_IS(ask.request.from, holders[1]);
		keeper_set(hosts[holders[0] - 1].keeper, ROOM, 0, false);
		memcpy(ask.request.holders, holders, sizeof(holders));
	}
	/* Nobody knows while one of them cannot say. */
	keeper_set(hosts[0].keeper, ROOM, 0, true);
	keeper_set(hosts[1].keeper, ROOM, 0, true);
	keeper_set(hosts[2].keeper, ROOM, 0, true);
	ask_get(&ask, 3000, 0, ask.request.holders);
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	end(3);
}

static void renewal(void)
{
	static struct ask ask;
	static uint64_t stay[10000];
	uint32_t missing, n = 0;

	begin(1, ROOM);
	for (uint64_t blob = 1; blob <= 200; blob++) {
		ask_put(&ask, blob * 50, 0, 1);
		CHECK_IS(ask_wait(&ask), 0);
	}
	/* Every second one stays; some that are not there; more than a frame takes. */
	for (uint64_t blob = 100; blob <= 10000; blob += 100)
		stay[n++] = blob;
	CHECK_IS(ask_renew(1, 50, 9951, stay, 99, &missing), 0);
	CHECK_IS(missing, 0);
	CHECK_IS(keeper_blobs(hosts[0].keeper), 100); /* 10000 is not in the range */
	n = 0;
	for (uint64_t blob = 1; blob <= 10000; blob++)
		stay[n++] = blob;
	CHECK_IS(ask_renew(1, 0, 20000, stay, n, &missing), 0);
	CHECK_IS(missing, 10000 - 100);
	CHECK_IS(keeper_blobs(hosts[0].keeper), 100);
	CHECK_IS(ask_renew(1, 0, 20000, NULL, 0, &missing), 0);
	CHECK_IS(missing, 0);
	CHECK_IS(keeper_blobs(hosts[0].keeper), 0);
	CHECK_IS(ask_renew(9, 0, 20000, NULL, 0, &missing), -EINVAL);
	host_down(&hosts[0]);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	CHECK_IS(ask_renew(1, 0, 20000, stay, n, &missing), -EHOSTUNREACH);
	end(1);
}

/* Deletes wait for a holder that is away, so many; what is too much is left to a renewal. */
static void deletes_wait(void)
{
	static struct ask ask;
	const uint32_t nr = 4096 + 904;

	begin(1, ROOM);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	host_down(&hosts[0]);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	for (uint32_t i = 0; i < nr; i++)
		owner.tier->ops->delete (owner.tier, 1 + i, (uint16_t[]){0, 1});
	CHECK_IS(owner_peer(0).counters[PEER_DELETES_DROPPED], 904);
	host_up(&hosts[0]);
	owner_wait_up(0);
	EVENTUALLY(host_counter(&hosts[0], LENDER_DELETES) == 4096);
	CHECK_IS(keeper_blobs(hosts[0].keeper), 0);
	end(1);
}

/* A put that failed is deleted; the same blob put again must not be what that delete meets. */
static void deletes_first(void)
{
	static struct ask ask;

	begin(1, ROOM);
	host_down(&hosts[0]);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	for (uint32_t i = 0; i < 3000; i++)
		owner.tier->ops->delete (owner.tier, 3004 - i, (uint16_t[]){1, 0});
	owner.tier->events.arg = &ask;
	owner.tier->events.back = put_when_back;	      /* 5, the last of them */
	CHECK_IS(peers_allow(owner.peers, hosts[0].name), 0); /* so that the thread sees it */
	host_up(&hosts[0]);
	CHECK_IS(ask_wait(&ask), 0);
	EVENTUALLY(host_counter(&hosts[0], LENDER_DELETES) == 3000);
	ask_get(&ask, 5, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), 0);
	end(1);
}

/* Lender and operator may want a host to be empty. */
static void leaving(void)
{
	static struct ask ask;

	begin(2, ROOM);
	lender_leave(hosts[0].lender, 5000);
	EVENTUALLY(atomic_load(&owner.leave[1]) == 1);
	CHECK(owner_peer(0).leaving, "not leaving");
	for (unsigned i = 0; i < 20; i++) {
		ask_put(&ask, 10 + i, 0, 1);
		CHECK_IS(ask_wait(&ask), 0);
		CHECK_IS(ask.request.holders[0], 2);
	}
	/* Who comes back is told again. */
	host_down(&hosts[0]);
	host_up(&hosts[0]);
	EVENTUALLY(atomic_load(&owner.back[1]) == 2);
	EVENTUALLY(!owner_peer(0).leaving);
	lender_leave(hosts[0].lender, 60000);
	EVENTUALLY(atomic_load(&owner.leave[1]) == 2);
	lender_leave(hosts[0].lender, 0);
	EVENTUALLY(!owner_peer(0).leaving);

	CHECK_IS(peers_drain(owner.peers, hosts[1].name, 1000), 0);
	EVENTUALLY(atomic_load(&owner.leave[2]) == 1);
	ask_put(&ask, 50, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.holders[0], 1);
	ask_get(&ask, 10, 0, (uint16_t[]){2, 0});
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(peers_allow(owner.peers, hosts[1].name), 0);
	EVENTUALLY(!owner_peer(1).draining);

	CHECK_IS(peers_deny(owner.peers, hosts[1].name), 0);
	EVENTUALLY(owner_peer(1).state == PEER_DENIED);
	ask_get(&ask, 10, 0, (uint16_t[]){2, 0});
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	CHECK_IS(peers_allow(owner.peers, hosts[1].name), 0);
	owner_wait_up(1);
	ask_get(&ask, 10, 0, (uint16_t[]){2, 0});
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(peers_drain(owner.peers, "nobody.test", 1), -ENOENT);
	end(2);
}

/* A new life of the owner: what the old one had goes, and the old one is not let in any more. */
static void newer_epoch(void)
{
	static struct ask ask;

	begin(1, ROOM);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	peers_close(owner.peers);
	owner_up(); /* the service again, on the same arena: numbers and blobs stay */
	owner_add(&hosts[0], 0);
	owner_wait_up(0);
	ask_get(&ask, 1, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(atomic_load(&owner.lost[1]), 0);
	peers_close(owner.peers);

	owner.settings.self.epoch++;
	memset(owner.records, 0, sizeof(owner.records));
	owner_up();
	owner_add(&hosts[0], 0);
	owner_wait_up(0);
	CHECK_IS(keeper_blobs(hosts[0].keeper), 0);
	ask_get(&ask, 1, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), -ENOENT);
	ask_put(&ask, 2, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	peers_close(owner.peers);

	for (unsigned lender_forgot = 0; lender_forgot < 2; lender_forgot++) {
		owner.settings.self.epoch = 500;
		owner_up();
		owner_add(&hosts[0], 0);
		EVENTUALLY(strstr(owner_peer(0).why, "epoch 500, its blobs here are of 501"));
		CHECK_IS(keeper_blobs(hosts[0].keeper), 1);
		peers_close(owner.peers);
		host_down(&hosts[0]); /* then only the blobs know */
		host_up(&hosts[0]);
	}
	owner_up();
	end(1);
}

/* A holder's number means the same host as long as the arena lives, and a loss is seen later. */
static void numbers_stay(void)
{
	static struct ask ask;

	begin(3, ROOM);
	ask_put(&ask, 5, 0, 2);
	CHECK_IS(ask_wait(&ask), 0);
	peers_close(owner.peers);
	host_down(&hosts[1]);
	keeper_empty(hosts[1].keeper);
	hosts[1].epoch += 7;
	host_up(&hosts[1]);
	owner_up();
	for (unsigned i = 3; i--;)
		owner_add(&hosts[i], 0);
	for (unsigned i = 0; i < 3; i++) {
		owner_wait_up(i);
		CHECK(!strcmp(owner_peer(i).name, hosts[i].name), "%s", owner_peer(i).name);
		CHECK_IS(atomic_load(&owner.lost[i + 1]), i == 1);
	}
	ask_get(&ask, 5, 0, ask.request.holders);
	CHECK_IS(ask_wait(&ask), 0);
	end(3);
}

static unsigned answered(struct ask *asks, unsigned nr)
{
	unsigned n = 0;

	for (unsigned i = 0; i < nr; i++)
		n += atomic_load(&asks[i].answers);
	return n;
}

/* One client asks for thousands at once; another one's gets do not stand behind all of them. */
static void storm(void)
{
	static struct ask asks[4000], ask;
	unsigned before = 0;

	begin(1, ROOM);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	keeper_set(hosts[0].keeper, ROOM, 1000, false);
	for (unsigned i = 0; i < 1000; i++)
		ask_get(&asks[i], 1, 1, (uint16_t[]){1, 0});
	/* What may be in work is in work; the rest must not be before the other client's. */
	EVENTUALLY(answered(asks, 1000) > 20);
	before = answered(asks, 1000);
	ask_get(&ask, 1, 2, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), 0);
	before = answered(asks, 1000) - before;
	CHECK(before < 300, "%u answers of the storm came first", before);
	keeper_set(hosts[0].keeper, ROOM, 0, false);
	for (unsigned i = 0; i < 1000; i++)
		CHECK_IS(ask_wait(&asks[i]), 0);
	/* Nor do those that wait in the end keep it from ending. */
	for (unsigned i = 0; i < 4000; i++)
		ask_get(&asks[i], 1, i, (uint16_t[]){1, 0});
	owner_end();
	for (unsigned i = 0; i < 4000; i++) {
		CHECK_IS(atomic_load(&asks[i].answers), 1);
		CHECK(!asks[i].result || asks[i].result == -EHOSTUNREACH, "%d", asks[i].result);
	}
	host_end(&hosts[0]);
}

static unsigned descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(int argc, char **argv)
{
	unsigned before;

	(void)argc;
	(void)argv;
	world_begin("peers");
	before = descriptors();
	RUN(one_blob);
	RUN(at_once);
	RUN(nobody_there);
	RUN(full);
	RUN(other_hosts);
	RUN(renewal);
	RUN(deletes_wait);
	RUN(deletes_first);
	RUN(leaving);
	RUN(newer_epoch);
	RUN(numbers_stay);
	RUN(empty_in_the_same_epoch);
	RUN(storm);
	RUN(random_requests);
	RUN(busy_operator);
	RUN(killed_under_load);
	CHECK_IS(descriptors(), before);
	puts("16 passed, 0 failed");
	return 0;
}
