// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Links that go bad, and certificates that are not good. A proxy stands between the owner and the
 * first of three lenders. Every request has one answer within the times that were set, and no blob
 * with two copies is ever missing or wrong (case 27).
 */
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/scratch.h"

#define ROOM (64u << 20)

static struct host hosts[3];
static struct proxy *proxy;

static void begin(unsigned nr)
{
	owner_begin(NULL);
	for (unsigned i = 0; i < nr; i++) {
		host_begin(&hosts[i], i + 1, ROOM);
		if (!i)
			proxy = proxy_begin(hosts[0].port);
		owner_add(&hosts[i], i ? 0 : proxy_port(proxy));
	}
	for (unsigned i = 0; i < nr; i++)
		owner_wait_up(i);
}

static void end(unsigned nr)
{
	owner_end();
	proxy_end(proxy);
	for (unsigned i = 0; i < nr; i++)
		host_end(&hosts[i]);
}

/* A put and a get while the first lender's link is bad: how long they take, in ms. */
static unsigned timed_pair(uint64_t blob, uint16_t copies, int *put, int *get)
{
	static struct ask ask;
	uint64_t from = clock_ns();

	ask_put(&ask, blob, 0, copies);
	*put = ask_wait(&ask);
	if (!*put) {
		ask_get(&ask, blob, 0, ask.request.holders);
		*get = ask_wait(&ask);
		CHECK(*get || blob_is(blob, ask.bytes, ask.request.len), "other bytes");
	}
	return (unsigned)((clock_ns() - from) / CLOCK_MS);
}

/* The longest that a request may take when links are bad; twice for machines that are busy. */
static unsigned patience(void)
{
	return 2 * (world_times.answer + world_times.request);
}

/* With one bad link of three nothing fails, and with a silent one not for long. */
static void one_bad_link(enum proxy_fault fault, unsigned ms)
{
	struct load *load;
	uint64_t turns;

	begin(3);
	load = load_begin(2, 128);
	for (unsigned round = 0; round < 3; round++) {
		unsigned cut = (unsigned)owner_peer(0).counters[PEER_CUT];
		int put = 0, get = 0;

		turns = load_turns(load);
		EVENTUALLY(load_turns(load) > turns + test_scaled(1000));
		proxy_set(proxy, fault, ms);
		for (unsigned i = 0; i < 5; i++)
			CHECK(timed_pair(round * 100 + i + 1, 2, &put, &get) < patience(),
			      "longer than %u ms", patience());
		if (fault != PROXY_DELAY)
			EVENTUALLY(owner_peer(0).counters[PEER_CUT] > cut);
		turns = load_turns(load);
		EVENTUALLY(load_turns(load) > turns + test_scaled(500));
		proxy_set(proxy, PROXY_PASS, 0);
		owner_wait_up(0);
	}
	load_stop(load);
	for (unsigned i = 0; i < 3; i++)
		owner_wait_up(i);
	CHECK_IS(atomic_load(&owner.lost[1]), 0);
	CHECK(load_verify(load), "nothing is left");
	load_end(load);
	end(3);
}

static void delay(void)
{
	one_bad_link(PROXY_DELAY, 30);
}

static void stall(void)
{
	one_bad_link(PROXY_STALL, 0);
}

static void half_open(void)
{
	one_bad_link(PROXY_HALF, 0);
}

static void corruption(void)
{
	one_bad_link(PROXY_CORRUPT, 0);
}

static void truncation(void)
{
	one_bad_link(PROXY_TRUNCATE, 0);
}

static void cut(void)
{
	one_bad_link(PROXY_CUT, 0);
}

/* All that there is is silent: requests end all the same, and say so. */
static void nothing_but_silence(void)
{
	int put = 0, get = 0;
	unsigned ms;

	begin(1);
	proxy_set(proxy, PROXY_STALL, 0);
	ms = timed_pair(1, 1, &put, &get);
	CHECK_IS(put, -EHOSTUNREACH);
	CHECK(ms < 2 * (world_times.answer + world_times.silence), "%u ms", ms);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	CHECK(owner_peer(0).counters[PEER_LATE], "not late");
	ms = timed_pair(2, 1, &put, &get);
	CHECK_IS(put, -EHOSTUNREACH);
	CHECK(ms < 1000, "%u ms, though nobody is there", ms);
	proxy_set(proxy, PROXY_PASS, 0);
	owner_wait_up(0);
	/* The put of which nothing was known is deleted. */
	EVENTUALLY(!keeper_blobs(hosts[0].keeper));
	end(1);
}

/* Without a request, too: pings find it. */
static void silence_when_idle(void)
{
	begin(1);
	proxy_set(proxy, PROXY_HALF, 0);
	EVENTUALLY(owner_peer(0).state != PEER_UP);
	CHECK(strstr(owner_peer(0).why, "silent") || strstr(owner_peer(0).why, "connection"), "%s",
	      owner_peer(0).why);
	end(1);
}

/* A holder that takes long: the other one is asked as well, and the answer does not wait. */
static void hedge(void)
{
	static struct ask ask;
	uint64_t from;

	begin(2);
	ask_put(&ask, 5, 0, 2);
	CHECK_IS(ask_wait(&ask), 0);
	/* The faster one is asked first: make it the second lender that is slow to all. */
	keeper_set(hosts[1].keeper, ROOM, 20000, false);
	for (unsigned i = 0; i < 20; i++) {
		ask_get(&ask, 5, 0, (uint16_t[]){2, 0});
		CHECK_IS(ask_wait(&ask), 0);
	}
	keeper_set(hosts[1].keeper, ROOM, 0, false);
	proxy_set(proxy, PROXY_HALF, 0);
	from = clock_ns();
	ask_get(&ask, 5, 0, (uint16_t[]){1, 2});
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.from, 2);
	CHECK(clock_ns() - from < world_times.silence * CLOCK_MS, "it waited for the end");
	CHECK(owner_peer(0).counters[PEER_GETS_HEDGED], "not hedged");
	end(2);
}

/* ---- Certificates --------------------------------------------------------------------------- */

/* An owner whose certificates are in `dir` (freed) is refused, and the reason says this. */
static void refused(const char *dir, enum lender_counter counter, const char *says)
{
	struct host *host = &hosts[0];
	uint64_t before = host_counter(host, counter);

	owner_begin(dir);
	owner_add(host, 0);
	EVENTUALLY(host_counter(host, counter) > before);
	EVENTUALLY(owner_peer(0).why[0]);
	for (unsigned i = 0; i < 100 && !strstr(owner_peer(0).why, says); i++)
		nap_ms(20);
	CHECK(strstr(owner_peer(0).why, says), "%s", owner_peer(0).why);
	CHECK_IS(owner_peer(0).counters[PEER_CONNECTS], 0);
	CHECK_IS(host_counter(host, LENDER_CONNECTS), 0);
	owner_end();
}

static void bad_owners(void)
{
	const char *dir;

	host_begin(&hosts[0], 1, ROOM);
	refused(pki_host("owner.test", PKI_EXPIRED), LENDER_REFUSED_TLS, "expired");
	refused(pki_host("owner.test", PKI_STRANGER), LENDER_REFUSED_TLS,
		"Certificate is required");
	refused(pki_host("owner.test", PKI_PURPOSE), LENDER_REFUSED_TLS, "Certificate is bad");
	refused(pki_host("owner.elsewhere", PKI_GOOD), LENDER_REFUSED_NAME,
		"owner.elsewhere is not allowed to keep blobs on lender1.test");
	CHECK_IS(lender_deny(hosts[0].lender, "owner.*"), 0);
	refused(pki_host("owner.test", PKI_GOOD), LENDER_REFUSED_NAME, "is not allowed");
	CHECK_IS(lender_allow(hosts[0].lender, "owner.*"), 0);
	host_down(&hosts[0]);
	dir = pki_host("owner.test", PKI_GOOD);
	pki_call_back(dir);
	host_up(&hosts[0]);
	refused(dir, LENDER_REFUSED_TLS, "revoked");
	pki_call_none_back();
	host_end(&hosts[0]);
}

/* The owner does not take a lender with such a certificate for the one that it means. */
static void bad_lender(enum pki_flaw flaw, const char *name, const char *says)
{
	struct host *host = &hosts[0];

	host_begin(host, 1, ROOM);
	host_down(host);
	free((char *)host->settings.tls.dir);
	host->settings.tls.dir = pki_host(name, flaw);
	host_up(host);
	owner_begin(NULL);
	owner_add(host, 0);
	EVENTUALLY(owner_peer(0).why[0]);
	CHECK(strstr(owner_peer(0).why, says), "%s", owner_peer(0).why);
	CHECK_IS(owner_peer(0).counters[PEER_CONNECTS], 0);
	owner_end();
	host_end(host);
}

static void bad_lenders(void)
{
	bad_lender(PKI_EXPIRED, "lender1.test", "expired");
	bad_lender(PKI_STRANGER, "lender1.test", "issuer is unknown");
	bad_lender(PKI_GOOD, "lender2.test", "name in the certificate does not match");
}

/* Denied while it is connected: cut off; allowed again: everything is there still. */
static void denied_while_connected(void)
{
	static struct ask ask;

	begin(1);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(lender_deny(hosts[0].lender, "owner.test"), 0);
	EVENTUALLY(strstr(owner_peer(0).why, "not allowed"));
	CHECK(owner_peer(0).state != PEER_UP, "still up");
	CHECK_IS(keeper_blobs(hosts[0].keeper), 1);
	CHECK_IS(lender_allow(hosts[0].lender, "owner.test"), 0);
	owner_wait_up(0);
	ask_get(&ask, 1, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(atomic_load(&owner.lost[1]), 0);
	end(1);
}

/* ---- Secrets -------------------------------------------------------------------------------- */

static void secrets(void)
{
	static const char *const all[] = {"lender1.test", "owner.test", NULL};
	static const char *const others[] = {"owner.test", "lender1.test", NULL};
	const char *good = pki_secrets("psk", all), *bad = pki_secrets("psk-bad", others);
	static struct ask ask;
	struct host *host = &hosts[0];

	host_begin(host, 1, ROOM);
	host_down(host);
	host->settings.tls.psk_file = good;
	host_up(host);
	owner_begin(NULL);
	peers_close(owner.peers);
	owner.settings.tls.psk_file = bad; /* our secret is not the one that the lender has */
	owner_up();
	owner_add(host, 0);
	EVENTUALLY(host_counter(host, LENDER_REFUSED_TLS));
	CHECK_IS(owner_peer(0).counters[PEER_CONNECTS], 0);
	peers_close(owner.peers);
	owner.settings.tls.psk_file = good;
	owner_up();
	owner_add(host, 0);
	owner_wait_up(0);
	ask_put(&ask, 1, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	ask_get(&ask, 1, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), 0);
	peers_close(owner.peers);

	/* It says another name than that of the one we mean. */
	memset(owner.records, 0, sizeof(owner.records));
	owner_up();
	host_down(host);
	host->settings.self.name = "lender1.other";
	host_up(host);
	owner_add(host, 0);
	EVENTUALLY(strstr(owner_peer(0).why, "it is lender1.other, not lender1.test"));
	owner_end();
	host_end(host);
	free((char *)good);
	free((char *)bad);
}

/* What cannot be opened is said with the file's name. */
static void missing_files(void)
{
	struct peers_settings settings;
	struct peers *peers;
	char err[256] = "";

	owner_begin(NULL);
	settings = owner.settings;
	settings.tls.dir = "/nonexistent";
	CHECK(peers_open(&peers, &settings, err, sizeof(err)) < 0, "opened");
	CHECK(strstr(err, "/nonexistent/private/clientkey.pem"), "%s", err);
	settings.tls.ca_dir = "/nonexistent";
	CHECK(peers_open(&peers, &settings, err, sizeof(err)) < 0, "opened");
	CHECK(strstr(err, "/nonexistent/cacert.pem"), "%s", err);
	settings.tls.psk_file = "/nonexistent/psk";
	CHECK(peers_open(&peers, &settings, err, sizeof(err)) < 0, "opened");
	CHECK(strstr(err, "/nonexistent/psk"), "%s", err);

	/* A port that is taken; and all addresses of the host, when none is named. */
	host_begin(&hosts[0], 1, ROOM);
	CHECK_IS(lender_open(&hosts[1].lender,
			     &(struct lender_settings){.ops = &keeper_ops,
						       .self = hosts[0].settings.self,
						       .tls = hosts[0].settings.tls,
						       .address = "127.0.0.1",
						       .port = hosts[0].port},
			     err, sizeof(err)),
		 -EADDRINUSE);
	CHECK(strstr(err, "at 127.0.0.1: Address already in use"), "%s", err);
	host_down(&hosts[0]);
	hosts[0].settings.address = NULL;
	host_up(&hosts[0]);
	owner_add(&hosts[0], 0);
	owner_wait_up(0);
	CHECK_IS(peers_add(owner.peers, "other.test", "no.such.host.invalid", 1, err, sizeof(err)),
		 -EHOSTUNREACH);
	CHECK(strstr(err, "no address of no.such.host.invalid"), "%s", err);
	CHECK_IS(peers_add(owner.peers, hosts[0].name, "127.0.0.1", 1, err, sizeof(err)), -EEXIST);
	owner_end();
	host_end(&hosts[0]);
}

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	world_begin("faults");
	RUN(bad_owners);
	RUN(bad_lenders);
	RUN(denied_while_connected);
	RUN(secrets);
	RUN(missing_files);
	RUN(silence_when_idle);
	RUN(nothing_but_silence);
	RUN(hedge);
	RUN(delay);
	RUN(cut);
	RUN(corruption);
	RUN(truncation);
	RUN(half_open);
	RUN(stall);
	puts("14 passed, 0 failed");
	return 0;
}
