// SPDX-License-Identifier: GPL-2.0-or-later
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "tests/lib/scratch.h"

struct owner_host owner;

/* Quick, and long enough for a busy machine and a sanitizer. */
struct peer_times world_times = {.hello = 4000,
				 .answer = 2000,
				 .hedge = 200,
				 .ping = 100,
				 .silence = 1500,
				 .retry = 20,
				 .request = 5000};

void nap_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
}

void world_begin(const char *name)
{
	log_setup(getenv("TMEMD_TEST_LOG") ? LOG_DBG : LOG_ERROR - 1, false);
	scratch_make(name);
	pki_begin();
}

/* ---- Hosts ---------------------------------------------------------------------------------- */

void host_begin(struct host *host, unsigned number, uint64_t room)
{
	memset(host, 0, sizeof(*host));
	snprintf(host->name, sizeof(host->name), "lender%u.test", number);
	host->keeper = keeper_make(room);
	host->epoch = 1000;
	host->settings = (struct lender_settings){
		.ops = &keeper_ops,
		.arg = host->keeper,
		.self = {.name = host->name, .uuid = {1, (uint8_t)number}},
		.tls = {.ca_dir = strdup(scratch_path("ca")),
			.dir = pki_host(host->name, PKI_GOOD)},
		.times = world_times,
		.address = "127.0.0.1",
	};
	host_up(host);
}

void host_up(struct host *host)
{
	char err[256] = "";
	int r;

	host->settings.port = host->port;
	host->settings.self.epoch = host->epoch;
	r = lender_open(&host->lender, &host->settings, err, sizeof(err));
	CHECK(!r, "%s", err);
	host->port = lender_port(host->lender);
	CHECK_IS(lender_allow(host->lender, "*.test"), 0);
}

void host_down(struct host *host)
{
	lender_close(host->lender);
	host->lender = NULL;
}

void host_end(struct host *host)
{
	if (host->lender)
		host_down(host);
	keeper_free(host->keeper);
	free((char *)host->settings.tls.ca_dir);
	free((char *)host->settings.tls.dir);
}

uint64_t host_counter(const struct host *host, enum lender_counter which)
{
	return counter_get(&lender_counters(host->lender)[which]);
}

/* ---- The owner ------------------------------------------------------------------------------ */

static void on_lost(void *arg, uint16_t holder)
{
	(void)arg;
	atomic_fetch_add(&owner.lost[holder], 1);
}

static void on_leave(void *arg, uint16_t holder, uint32_t deadline_ms)
{
	(void)arg;
	CHECK(deadline_ms, "no deadline");
	atomic_fetch_add(&owner.leave[holder], 1);
}

static void on_back(void *arg, uint16_t holder)
{
	(void)arg;
	atomic_fetch_add(&owner.back[holder], 1);
}

static void remember(void *arg, const struct peer_record *record)
{
	(void)arg;
	CHECK(record->holder && record->holder <= TIER_HOLDERS, "holder %u", record->holder);
	owner.records[record->holder - 1] = *record;
	atomic_fetch_add(&owner.remembered, 1);
}

void owner_begin(const char *dir)
{
	memset(&owner, 0, sizeof(owner));
	owner.settings = (struct peers_settings){
		.self = {.name = "owner.test", .uuid = {2}, .epoch = 500},
		.tls = {.ca_dir = strdup(scratch_path("ca")),
			.dir = dir ? dir : pki_host("owner.test", PKI_GOOD)},
		.times = world_times,
		.remember = remember,
	};
	owner_up();
}

/* Also again, after peers_close(): with what was remembered. */
void owner_up(void)
{
	char err[256] = "";
	uint32_t n = 0;
	int r;

	while (n < TIER_HOLDERS && owner.records[n].holder)
		n++;
	owner.settings.known = owner.records;
	owner.settings.nr_known = n;
	r = peers_open(&owner.peers, &owner.settings, err, sizeof(err));
	CHECK(!r, "%s", err);
	owner.tier = peers_tier(owner.peers);
	owner.tier->events = (struct tier_events){NULL, on_lost, on_leave, on_back};
	CHECK_IS(peers_start(owner.peers), 0);
}

void owner_add(const struct host *host, uint16_t port)
{
	char err[256] = "";
	int r = peers_add(owner.peers, host->name, "127.0.0.1", port ? port : host->port, err,
			  sizeof(err));

	CHECK(!r, "%s", err);
}

void owner_end(void)
{
	peers_close(owner.peers);
	owner.peers = NULL;
	free((char *)owner.settings.tls.ca_dir);
	free((char *)owner.settings.tls.dir);
}

struct peer_info owner_peer(unsigned i)
{
	struct peer_info info;

	CHECK(peers_info(owner.peers, i, &info), "no peer %u", i);
	return info;
}

void owner_wait_up(unsigned i)
{
	EVENTUALLY(owner_peer(i).state == PEER_UP && owner_peer(i).latency_us);
}

/* ---- Requests ------------------------------------------------------------------------------- */

uint32_t blob_make(uint64_t blob, uint8_t *bytes)
{
	struct rng rng = {blob};
	uint32_t len = 1 + rng_below(&rng, TIER_BLOB_MAX);

	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t word = rng_next(&rng);

		memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
	}
	return len;
}

bool blob_is(uint64_t blob, const uint8_t *bytes, uint32_t len)
{
	uint8_t right[TIER_BLOB_MAX];

	return blob_make(blob, right) == len && !memcmp(right, bytes, len);
}

static void on_done(struct tier_request *request, int result)
{
	struct ask *ask = request->arg;

	ask->result = result;
	atomic_fetch_add(&ask->answers, 1);
}

void ask_put(struct ask *ask, uint64_t blob, uint32_t client, uint16_t copies)
{
	uint16_t without[TIER_COPIES];

	memcpy(without, ask->request.without, sizeof(without));
	atomic_store(&ask->answers, 0);
	ask->request = (struct tier_request){.blob = blob,
					     .bytes = ask->bytes,
					     .len = blob_make(blob, ask->bytes),
					     .copies = copies,
					     .client = client,
					     .done = on_done,
					     .arg = ask};
	memcpy(ask->request.without, without, sizeof(without));
	owner.tier->ops->put(owner.tier, &ask->request);
}

void ask_get(struct ask *ask, uint64_t blob, uint32_t client, const uint16_t *holders)
{
	uint16_t copy[TIER_COPIES];

	memcpy(copy, holders, sizeof(copy));
	atomic_store(&ask->answers, 0);
	memset(ask->bytes, 0xee, sizeof(ask->bytes));
	ask->request = (struct tier_request){
		.blob = blob, .bytes = ask->bytes, .client = client, .done = on_done, .arg = ask};
	memcpy(ask->request.holders, copy, sizeof(copy));
	owner.tier->ops->get(owner.tier, &ask->request);
}

int ask_wait(struct ask *ask)
{
	EVENTUALLY(atomic_load(&ask->answers));
	CHECK_IS(atomic_load(&ask->answers), 1);
	return ask->result;
}

struct renewal_answer {
	_Atomic unsigned answers;
	int result;
	uint32_t missing;
};

static void on_renewed(void *arg, int result, uint32_t missing)
{
	struct renewal_answer *answer = arg;

	answer->result = result;
	answer->missing = missing;
	atomic_fetch_add(&answer->answers, 1);
}

int ask_renew(uint16_t holder, uint64_t first, uint64_t end, const uint64_t *blobs, uint32_t nr,
	      uint32_t *missing)
{
	static struct renewal_answer answer;

	memset(&answer, 0, sizeof(answer));
	owner.tier->ops->renew(owner.tier, holder, first, end, blobs, nr, on_renewed, &answer);
	EVENTUALLY(atomic_load(&answer.answers));
	CHECK_IS(atomic_load(&answer.answers), 1);
	*missing = answer.missing;
	return answer.result;
}
