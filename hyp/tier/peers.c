// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Peers: the functions that others call, and the thread that works.
 *
 * Callers put requests into a list and wake the thread, no more. The thread deals them out to one
 * queue for each client, and gives ops to the clients in turn, each only so many: a client that has
 * thousands of requests waits for its own, and the next one's get goes out with the next frame.
 */
#include "peers_priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define EVENTS 64
#define REQUESTS 1024u
#define CLIENT_REQUESTS 128u

uint64_t peers_random(struct peers *peers)
{
	uint64_t x = peers->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Under the lock. */
static void wake(struct peers *peers)
{
	uint64_t one = 1;

	if (peers->woken)
		return;
	peers->woken = true;
	while (peers->wake >= 0 && write(peers->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* ---- The table for the store ---------------------------------------------------------------- */

static void submit(struct store_tier *tier, struct tier_request *request, enum op_kind kind)
{
	struct peers *peers = (struct peers *)tier;

	request->next = NULL;
	pthread_mutex_lock(&peers->lock);
	*peers->submitted_last[kind] = request;
	peers->submitted_last[kind] = &request->next;
	wake(peers);
	pthread_mutex_unlock(&peers->lock);
}

static void tier_put(struct store_tier *tier, struct tier_request *request)
{
	submit(tier, request, OP_PUT);
}

static void tier_get(struct store_tier *tier, struct tier_request *request)
{
	submit(tier, request, OP_GET);
}

static void tier_delete(struct store_tier *tier, uint64_t blob, const uint16_t holders[TIER_COPIES])
{
	struct peers *peers = (struct peers *)tier;

	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (holders[i] && holders[i] <= atomic_load(&peers->nr))
			peer_delete(peers->peers[holders[i] - 1], blob);
	pthread_mutex_lock(&peers->lock);
	wake(peers);
	pthread_mutex_unlock(&peers->lock);
}

static void tier_renew(struct store_tier *tier, uint16_t holder, uint64_t first, uint64_t end,
		       const uint64_t *blobs, uint32_t nr,
		       void (*done)(void *arg, int result, uint32_t missing), void *arg)
{
	struct peers *peers = (struct peers *)tier;
	struct peer *peer;
	int r = -EBUSY;

	if (!holder || holder > atomic_load(&peers->nr) || end < first) {
		done(arg, -EINVAL, 0);
		return;
	}
	peer = peers->peers[holder - 1];
	pthread_mutex_lock(&peers->lock);
	if (peer->nr_renewals < RENEWALS_WAITING) {
		uint32_t at = (peer->renewal_first + peer->nr_renewals++) % RENEWALS_WAITING;

		peer->renewals[at] = (struct renewal){first, end, blobs, nr, done, arg};
		wake(peers);
		r = 0;
	}
	pthread_mutex_unlock(&peers->lock);
	if (r)
		done(arg, r, 0);
}

static void tier_stat(struct store_tier *tier, struct tier_stat *stat)
{
	struct peers *peers = (struct peers *)tier;
	unsigned nr = atomic_load(&peers->nr);

	*stat = (struct tier_stat){0};
	for (unsigned i = 0; i < nr; i++) {
		struct peer *peer = peers->peers[i];

		if (atomic_load(&peer->state) != PEER_UP)
			continue;
		stat->reachable++;
		if (!atomic_load(&peer->draining) && !atomic_load(&peer->leaving))
			stat->spare_bytes += counter_get(&peer->spare);
	}
}

static const struct tier_ops table = {
	.put = tier_put,
	.get = tier_get,
	.delete = tier_delete,
	.renew = tier_renew,
	.stat = tier_stat,
};

/* ---- Dealing out ---------------------------------------------------------------------------- */

void peers_list_bucket(struct peers *peers, struct bucket *bucket, enum op_kind kind)
{
	if (bucket->listed[kind] || !bucket->first[kind] ||
	    bucket->working[kind] >= peers->settings.client)
		return;
	bucket->listed[kind] = true;
	bucket->next[kind] = NULL;
	if (peers->waiting_first[kind])
		peers->waiting_last[kind]->next[kind] = bucket;
	else
		peers->waiting_first[kind] = bucket;
	peers->waiting_last[kind] = bucket;
}

static void deal_out(struct peers *peers, struct tier_request *request, enum op_kind kind)
{
	while (request) {
		struct bucket *bucket = &peers->buckets[request->client % PEERS_BUCKETS];
		struct tier_request *next = request->next;

		request->next = NULL;
		if (!bucket->first[kind])
			bucket->last[kind] = &bucket->first[kind];
		*bucket->last[kind] = request;
		bucket->last[kind] = &request->next;
		peers_list_bucket(peers, bucket, kind);
		request = next;
	}
}

void peers_take(struct peers *peers)
{
	struct tier_request *requests[OP_KINDS];

	pthread_mutex_lock(&peers->lock);
	for (unsigned kind = 0; kind < OP_KINDS; kind++) {
		requests[kind] = peers->submitted[kind];
		peers->submitted[kind] = NULL;
		peers->submitted_last[kind] = &peers->submitted[kind];
	}
	pthread_mutex_unlock(&peers->lock);
	for (unsigned kind = 0; kind < OP_KINDS; kind++)
		deal_out(peers, requests[kind], kind);
}

static void start_one(struct peers *peers, struct bucket *bucket, enum op_kind kind, uint64_t now)
{
	struct op *op = peers->free_ops;

	peers->free_ops = op->next;
	op->kind = kind;
	op->bucket = bucket;
	op->request = bucket->first[kind];
	bucket->first[kind] = op->request->next;
	bucket->working[kind]++;
	peers->working[kind]++;
	peers_list_bucket(peers, bucket, kind);
	op_start(op, now);
}

static void admit(struct peers *peers, enum op_kind kind, uint64_t now)
{
	/* Puts leave the other half to gets, for which somebody waits. */
	uint32_t limit = peers->settings.requests / (kind == OP_PUT ? 2 : 1);

	while (peers->waiting_first[kind] && peers->free_ops && peers->working[kind] < limit) {
		struct bucket *bucket = peers->waiting_first[kind];

		peers->waiting_first[kind] = bucket->next[kind];
		bucket->listed[kind] = false;
		start_one(peers, bucket, kind, now);
	}
}

void peers_admit(struct peers *peers, uint64_t now)
{
	admit(peers, OP_GET, now);
	admit(peers, OP_PUT, now);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void obey_peer(struct peer *peer, uint64_t now)
{
	struct peers *peers = peer->peers;
	bool denied, drained, had = peer->has_addresses;
	uint32_t drain_ms;

	pthread_mutex_lock(&peers->lock);
	denied = peer->want_denied;
	drained = peer->want_drained;
	drain_ms = peer->drain_ms;
	peer->drain_ms = 0;
	peer->has_addresses = peer->added && peer->nr_addresses;
	pthread_mutex_unlock(&peers->lock);
	if (!had || (peer->denied && !denied))
		peer->next_dial = now;
	if (denied && !peer->denied && peer->dial != DIAL_DOWN)
		dial_hang_up(peer, "denied", false, now);
	peer->denied = denied;
	if (peer->dial == DIAL_DOWN)
		atomic_store(&peer->state, denied ? PEER_DENIED : PEER_DOWN);
	atomic_store(&peer->draining, drained);
	if (drained && drain_ms && peers->tier.events.leave)
		peers->tier.events.leave(peers->tier.events.arg, (uint16_t)(peer->index + 1),
					 drain_ms);
}

/* What was asked for from outside. False: to stop. */
static bool obey(struct peers *peers, uint64_t now)
{
	bool changed, stop;

	pthread_mutex_lock(&peers->lock);
	changed = peers->changed;
	stop = peers->stop;
	peers->changed = false;
	/* What comes from here on wakes again: all that is asked for is looked at after this. */
	peers->woken = false;
	pthread_mutex_unlock(&peers->lock);
	for (unsigned i = 0; changed && i < atomic_load(&peers->nr); i++)
		obey_peer(peers->peers[i], now);
	return !stop;
}

/* ms until the next time that something has to be looked at; rounded up. */
static int until(uint64_t at, uint64_t now)
{
	if (at == UINT64_MAX)
		return -1;
	if (at <= now)
		return 0;
	at = (at - now + CLOCK_MS - 1) / CLOCK_MS;
	return at < 60000 ? (int)at : 60000;
}

/* Everything that can be done now; how long to wait then. */
static int work(struct peers *peers, uint64_t now)
{
	unsigned nr = atomic_load(&peers->nr);
	uint64_t at = UINT64_MAX;
	bool ready = false;

	for (unsigned i = 0; i < nr; i++)
		dial_step(peers->peers[i], now);
	peers_take(peers);
	peers_admit(peers, now);
	for (unsigned i = 0; i < nr; i++)
		dial_flush(peers->peers[i], now);
	for (unsigned i = 0; i < nr; i++) {
		uint64_t next = dial_times(peers->peers[i], now);

		at = next < at ? next : at;
	}
	for (unsigned i = 0; i < nr; i++)
		ready |= peers->peers[i]->dial != DIAL_DOWN &&
			 (peers->peers[i]->ready || peers->peers[i]->queued);
	/* Ops that have become free while legs failed. */
	for (unsigned kind = 0; kind < OP_KINDS; kind++)
		ready |= peers->waiting_first[kind] && peers->free_ops &&
			 peers->working[kind] < peers->settings.requests / 2;
	return ready ? 0 : until(at, now);
}

static bool anything_left(struct peers *peers)
{
	bool left;

	pthread_mutex_lock(&peers->lock);
	left = peers->submitted[OP_PUT] || peers->submitted[OP_GET];
	for (unsigned i = 0; i < atomic_load(&peers->nr); i++)
		left |= peers->peers[i]->nr_renewals != 0;
	pthread_mutex_unlock(&peers->lock);
	return left || peers->waiting_first[OP_PUT] || peers->waiting_first[OP_GET];
}

static void stop_work(struct peers *peers)
{
	uint64_t now = clock_ns();

	peers->stopping = true;
	for (unsigned i = 0; i < atomic_load(&peers->nr); i++)
		if (peers->peers[i]->dial != DIAL_DOWN)
			dial_hang_up(peers->peers[i], "we end", false, now);
	do {
		peers_take(peers);
		peers_admit(peers, now);
		for (unsigned i = 0; i < atomic_load(&peers->nr); i++)
			peer_fail_renewals(peers->peers[i]);
	} while (anything_left(peers));
}

static void *serve(void *arg)
{
	struct epoll_event events[EVENTS];
	struct peers *peers = arg;
	bool on = true;
	int wait = 0;

	while (on) {
		int n = epoll_wait(peers->epoll, events, EVENTS, wait);
		uint64_t now = clock_ns(), count;

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == &peers->wake) {
				if (read(peers->wake, &count, sizeof(count)) < 0)
					continue;
				on = obey(peers, now);
			} else {
				((struct peer *)events[i].data.ptr)->ready = true;
			}
		}
		wait = work(peers, now);
	}
	stop_work(peers);
	return NULL;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static int make_tables(struct peers *peers)
{
	uint32_t n = peers->settings.requests;

	peers->ops = calloc(n, sizeof(*peers->ops));
	peers->buckets = calloc(PEERS_BUCKETS, sizeof(*peers->buckets));
	if (!peers->ops || !peers->buckets)
		return -ENOMEM;
	for (uint32_t i = n; i--;) {
		peers->ops[i].peers = peers;
		peers->ops[i].next = peers->free_ops;
		peers->free_ops = &peers->ops[i];
	}
	for (unsigned kind = 0; kind < OP_KINDS; kind++)
		peers->submitted_last[kind] = &peers->submitted[kind];
	return 0;
}

static int take_known(struct peers *peers, const struct peer_record *known, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (!known[i].holder || known[i].holder > TIER_HOLDERS ||
		    !memchr(known[i].name, '\0', PEER_NAME))
			return -EINVAL;
	/* By number: they may come in any order, and numbers in between may be missing. */
	for (uint16_t holder = 1; holder <= TIER_HOLDERS; holder++)
		for (uint32_t i = 0; i < nr; i++) {
			struct peer *peer;

			if (known[i].holder != holder)
				continue;
			while (atomic_load(&peers->nr) + 1 < holder)
				if (!peers_new_peer(peers, ""))
					return -ENOMEM;
			peer = peers_new_peer(peers, known[i].name);
			if (!peer)
				return -ENOMEM;
			if (peer->index + 1 != holder)
				return -EINVAL;
			peer->record = known[i];
			atomic_store(&peer->epoch, known[i].epoch);
		}
	return 0;
}

int peers_make(struct peers **out, const struct peers_settings *settings)
{
	struct peers *peers = calloc(1, sizeof(*peers));
	struct peers_settings *s;
	int r;

	if (!peers)
		return -ENOMEM;
	peers->tier.ops = &table;
	peers->settings = *settings;
	s = &peers->settings;
	s->requests = s->requests ? s->requests : REQUESTS;
	s->requests = s->requests < PEERS_OPS_MAX ? s->requests : PEERS_OPS_MAX;
	s->requests = s->requests < 2 ? 2 : s->requests;
	s->client = s->client ? s->client : CLIENT_REQUESTS;
	s->known = NULL;
	peers->epoll = peers->wake = -1;
	pthread_mutex_init(&peers->lock, NULL);
	if (getrandom(&peers->random, sizeof(peers->random), 0) < 0)
		peers->random = clock_ns();
	r = make_tables(peers);
	if (!r)
		r = take_known(peers, settings->known, settings->nr_known);
	if (r) {
		peers_free(peers);
		return r;
	}
	*out = peers;
	return 0;
}

void peers_free(struct peers *peers)
{
	for (unsigned i = 0; i < atomic_load(&peers->nr); i++) {
		struct peer *peer = peers->peers[i];

		link_close(&peer->link);
		free(peer->link.in.bytes);
		free(peer->link.out.bytes);
		free(peer->deletes);
		free(peer);
	}
	if (peers->epoll >= 0)
		close(peers->epoll);
	if (peers->wake >= 0)
		close(peers->wake);
	credentials_free(&peers->credentials);
	pthread_mutex_destroy(&peers->lock);
	free(peers->ops);
	free(peers->buckets);
	free(peers);
}

int peers_open(struct peers **out, const struct peers_settings *settings, char *err, size_t size)
{
	struct epoll_event wakes = {EPOLLIN, {0}};
	struct peers *peers;
	int r = peers_make(&peers, settings);

	if (r) {
		snprintf(err, size, "peers: %s", strerror(-r));
		return r;
	}
	r = credentials_load(&peers->credentials, &settings->tls, false, settings->self.name, err,
			     size);
	if (r) {
		peers_free(peers);
		return r;
	}
	peers->epoll = epoll_create1(EPOLL_CLOEXEC);
	peers->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	wakes.data.ptr = &peers->wake;
	if (peers->epoll < 0 || peers->wake < 0 ||
	    epoll_ctl(peers->epoll, EPOLL_CTL_ADD, peers->wake, &wakes)) {
		r = -errno;
		snprintf(err, size, "peers: %s", strerror(errno));
		peers_free(peers);
		return r;
	}
	*out = peers;
	return 0;
}

struct store_tier *peers_tier(struct peers *peers)
{
	return &peers->tier;
}

int peers_start(struct peers *peers)
{
	int r = -pthread_create(&peers->thread, NULL, serve, peers);

	peers->running = !r;
	return r;
}

void peers_close(struct peers *peers)
{
	if (peers->running) {
		pthread_mutex_lock(&peers->lock);
		peers->stop = true;
		peers->woken = false;
		wake(peers);
		pthread_mutex_unlock(&peers->lock);
		pthread_join(peers->thread, NULL);
	}
	peers_free(peers);
}

/* ---- The list of peers ---------------------------------------------------------------------- */

static struct peer *find_peer(struct peers *peers, const char *name)
{
	for (unsigned i = 0; i < atomic_load(&peers->nr); i++)
		if (*name && !strcmp(peers->peers[i]->record.name, name))
			return peers->peers[i];
	return NULL;
}

struct peer *peers_new_peer(struct peers *peers, const char *name)
{
	struct peer *peer = find_peer(peers, name);
	unsigned nr = atomic_load(&peers->nr);

	if (peer || nr == TIER_HOLDERS)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->link.fd = -1;
	peer->link.in.bytes = malloc(LINK_BUFFER);
	peer->link.out.bytes = malloc(LINK_BUFFER);
	peer->deletes = calloc(DELETES_WAITING, sizeof(*peer->deletes));
	if (!peer->link.in.bytes || !peer->link.out.bytes || !peer->deletes) {
		free(peer->link.in.bytes);
		free(peer->link.out.bytes);
		free(peer->deletes);
		free(peer);
		return NULL;
	}
	peer->peers = peers;
	peer->index = nr;
	peer->record.holder = (uint16_t)(nr + 1);
	snprintf(peer->record.name, sizeof(peer->record.name), "%s", name);
	peers->peers[nr] = peer;
	atomic_store(&peers->nr, nr + 1);
	return peer;
}

/* The addresses of a host, as many as there is room for. */
static void set_addresses(struct peer *peer, const struct addrinfo *info)
{
	peer->nr_addresses = 0;
	for (; info && peer->nr_addresses < ADDRESSES_MAX; info = info->ai_next) {
		if (info->ai_addrlen > sizeof(peer->addresses[0].at))
			continue;
		memcpy(&peer->addresses[peer->nr_addresses].at, info->ai_addr, info->ai_addrlen);
		peer->addresses[peer->nr_addresses++].len = info->ai_addrlen;
	}
}

/* Under the lock. `record`: what is to be remembered of a new one; holder 0 when it is not new. */
static int add(struct peers *peers, const char *name, const char *host, uint16_t port,
	       const struct addrinfo *info, struct peer_record *record)
{
	bool known = find_peer(peers, name) != NULL;
	struct peer *peer = peers_new_peer(peers, name);

	if (!peer)
		return -ENOSPC;
	if (peer->added)
		return -EEXIST;
	snprintf(peer->host, sizeof(peer->host), "%s", host);
	peer->port = port;
	set_addresses(peer, info);
	peer->added = true;
	if (!known)
		*record = peer->record;
	return 0;
}

int peers_add(struct peers *peers, const char *name, const char *host, uint16_t port, char *err,
	      size_t size)
{
	struct addrinfo *info, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct peer_record record = {.holder = 0};
	char text[8];
	int r;

	if (!*name || strlen(name) >= PEER_NAME || strlen(host) >= 256) {
		snprintf(err, size, "a peer's name has 1 to %u characters", PEER_NAME - 1);
		return -EINVAL;
	}
	snprintf(text, sizeof(text), "%u", port);
	r = getaddrinfo(host, text, &hints, &info);
	if (r) {
		snprintf(err, size, "peer %s: no address of %s: %s", name, host, gai_strerror(r));
		return -EHOSTUNREACH;
	}
	pthread_mutex_lock(&peers->lock);
	r = add(peers, name, host, port, info, &record);
	pthread_mutex_unlock(&peers->lock);
	freeaddrinfo(info);
	if (r) {
		snprintf(err, size,
			 r == -EEXIST ? "peer %s is in the list already"
				      : "peer %s: there are too many peers",
			 name);
		return r;
	}
	if (record.holder && peers->settings.remember)
		peers->settings.remember(peers->settings.arg, &record);
	pthread_mutex_lock(&peers->lock);
	peers->changed = true;
	wake(peers);
	pthread_mutex_unlock(&peers->lock);
	return 0;
}

enum wish { ALLOW, DENY, DRAIN };

static int wish(struct peers *peers, const char *name, enum wish what, uint32_t ms)
{
	struct peer *peer;
	int r = -ENOENT;

	pthread_mutex_lock(&peers->lock);
	peer = find_peer(peers, name);
	if (peer) {
		peer->want_denied = what == DENY || (what == DRAIN && peer->want_denied);
		peer->want_drained = what == DRAIN || (what == DENY && peer->want_drained);
		peer->drain_ms = ms;
		peers->changed = true;
		wake(peers);
		r = 0;
	}
	pthread_mutex_unlock(&peers->lock);
	return r;
}

int peers_drain(struct peers *peers, const char *name, uint32_t deadline_ms)
{
	return wish(peers, name, DRAIN, deadline_ms ? deadline_ms : 1);
}

int peers_deny(struct peers *peers, const char *name)
{
	return wish(peers, name, DENY, 0);
}

int peers_allow(struct peers *peers, const char *name)
{
	return wish(peers, name, ALLOW, 0);
}

bool peers_info(struct peers *peers, unsigned i, struct peer_info *info)
{
	struct peer *peer;

	if (i >= atomic_load(&peers->nr))
		return false;
	peer = peers->peers[i];
	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&peers->lock);
	snprintf(info->name, sizeof(info->name), "%s", peer->record.name);
	snprintf(info->host, sizeof(info->host), "%s", peer->host);
	snprintf(info->why, sizeof(info->why), "%s", peer->why);
	info->port = peer->port;
	pthread_mutex_unlock(&peers->lock);
	info->holder = (uint16_t)(i + 1);
	info->state = atomic_load(&peer->state);
	info->draining = atomic_load(&peer->draining);
	info->leaving = atomic_load(&peer->leaving);
	info->epoch = atomic_load(&peer->epoch);
	info->spare_bytes = counter_get(&peer->spare);
	info->held = counter_get(&peer->counters[PEER_BLOBS]);
	info->latency_us = atomic_load(&peer->latency_us);
	for (unsigned k = 0; k < PEER_COUNTER_NR; k++)
		info->counters[k] = counter_get(&peer->counters[k]);
	for (unsigned k = 0; k < PEER_LATENCY_BUCKETS; k++) {
		info->get_latency[k] = counter_get(&peer->get_latency.buckets[k]);
		info->put_latency[k] = counter_get(&peer->put_latency.buckets[k]);
	}
	return true;
}
