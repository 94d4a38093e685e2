// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The connection to one lender: made, watched, given up, made again.
 *
 * A link that says nothing for a while, or lets a request wait for too long, is cut off: a wait
 * that has no end is worse than asking somebody else. After a failure the next attempt waits longer
 * each time, with a random part, so that owners do not all come back to a lender at the same
 * moment.
 */
#include "peers_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define BACKOFF_DOUBLES 6u

static const struct peer_times *times(const struct peer *peer)
{
	return &peer->peers->settings.times;
}

static void schedule(struct peer *peer, uint64_t now)
{
	unsigned doubles = peer->attempts < BACKOFF_DOUBLES ? peer->attempts : BACKOFF_DOUBLES;
	uint64_t wait = peers_ms(times(peer)->retry, 100) << doubles;

	peer->attempts++;
	peer->next_dial = now + wait / 2 + peers_random(peer->peers) % wait;
}

static void set_why(struct peer *peer, const char *why)
{
	pthread_mutex_lock(&peer->peers->lock);
	snprintf(peer->why, sizeof(peer->why), "%s", why);
	pthread_mutex_unlock(&peer->peers->lock);
}

void dial_hang_up(struct peer *peer, const char *why, bool failed, uint64_t now)
{
	bool up = peer->dial == DIAL_UP;
	char text[LINK_WHY];

	snprintf(text, sizeof(text), "%s", why);
	set_why(peer, text);
	if (failed) {
		counter_add(&peer->counters[up ? PEER_CUT : PEER_CONNECTS_FAILED], 1);
		log_limited(LOG_WARN, "peer %s: %s", peer->record.name, text);
	}
	link_close(&peer->link);
	/* Down before the legs fail: none of them is to be tried here again. */
	peer->dial = DIAL_DOWN;
	atomic_store(&peer->state, PEER_DOWN);
	counter_set(&peer->spare, 0);
	schedule(peer, now);
	peer_fail_all(peer, now);
}

/* A connecting socket, or a negated errno. */
static int connect_to(const struct sockaddr_storage *at, socklen_t len, uint64_t silence)
{
	int fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	unsigned timeout = (unsigned)(silence / CLOCK_MS);
	int one = 1, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	if (!connect(fd, (const struct sockaddr *)at, len) || errno == EINPROGRESS)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static void dial(struct peer *peer, uint64_t now)
{
	struct peers *peers = peer->peers;
	struct sockaddr_storage at;
	socklen_t len;
	int fd;

	pthread_mutex_lock(&peers->lock);
	peer->address %= peer->nr_addresses;
	at = peer->addresses[peer->address].at;
	len = peer->addresses[peer->address].len;
	peer->address++;
	pthread_mutex_unlock(&peers->lock);
	fd = connect_to(&at, len, peers_ms(times(peer)->silence, 4000));
	if (fd >= 0 && !link_begin(&peer->link, &peers->credentials, fd, peer->record.name, now)) {
		peer->dial = DIAL_HELLO;
		peer->ready = true;
		atomic_store(&peer->state, PEER_CONNECTING);
		peer_hello(peer);
		return;
	}
	set_why(peer, fd < 0 ? strerror(-fd) : "TLS: no memory");
	counter_add(&peer->counters[PEER_CONNECTS_FAILED], 1);
	schedule(peer, now);
}

void dial_step(struct peer *peer, uint64_t now)
{
	int ended, wrong;

	if (peer->dial == DIAL_DOWN) {
		peer_fail_renewals(peer);
		if (!peer->has_addresses || peer->denied || peer->peers->stopping ||
		    now < peer->next_dial)
			return;
		dial(peer, now);
	}
	if (peer->dial == DIAL_DOWN || !peer->ready)
		return;
	peer->ready = false;
	ended = link_step(&peer->link, now);
	/* Answers that came before the end are answers. Of two reasons that of the frames counts.
	 */
	wrong = peer_input(peer, now);
	if (ended || wrong)
		dial_hang_up(peer, peer->link.why, true, now);
	else if (link_pending(&peer->link))
		peer->ready = true;
}

void dial_flush(struct peer *peer, uint64_t now)
{
	if (peer->dial == DIAL_DOWN)
		return;
	peer_output(peer, now);
	if (link_flush(&peer->link, now)) {
		/* What has come before the end is in the socket still. */
		peer->ready = true;
		return;
	}
	if (link_poll(&peer->link, peer->peers->epoll, peer))
		dial_hang_up(peer, "it cannot be polled", true, now);
}

/* Until when something has to happen for the link not to be late; *what is missing then. */
static uint64_t late_at(const struct peer *peer, const char **what)
{
	uint64_t answer = peers_ms(times(peer)->answer, 3000), oldest = UINT64_MAX, at;

	if (peer->dial != DIAL_UP) {
		*what = peer->link.open ? "no welcome in time" : "no connection in time";
		return peer->link.began + peers_ms(times(peer)->hello, 5000);
	}
	*what = "it has been silent for too long";
	at = peer->link.heard + peers_ms(times(peer)->silence, 4000);
	if (peer->sent.first)
		oldest = peer->sent.first->since;
	for (unsigned kind = 0; kind < OP_KINDS; kind++)
		if (peer->queue[kind].first && peer->queue[kind].first->since < oldest)
			oldest = peer->queue[kind].first->since;
	if (peer->renew_sent && peer->renew_sent < oldest)
		oldest = peer->renew_sent;
	if (oldest < UINT64_MAX && oldest + answer < at) {
		*what = "an answer took too long";
		at = oldest + answer;
	}
	return at;
}

/* Gets that wait for long; when the next one will. */
static uint64_t hedge(struct peer *peer, uint64_t now)
{
	uint64_t patience = peers_ms(times(peer)->hedge, 250);

	for (struct leg *leg = peer->sent.first; leg; leg = leg->next) {
		if (leg->op->kind != OP_GET || leg->op->hedged)
			continue;
		if (leg->since + patience > now)
			return leg->since + patience;
		op_hedge(leg->op, now);
	}
	return UINT64_MAX;
}

uint64_t dial_times(struct peer *peer, uint64_t now)
{
	const char *what;
	uint64_t at, next;

	if (peer->dial == DIAL_DOWN)
		return peer->has_addresses && !peer->denied ? peer->next_dial : UINT64_MAX;
	at = late_at(peer, &what);
	if (now >= at) {
		if (peer->dial == DIAL_UP)
			counter_add(&peer->counters[PEER_LATE], 1);
		dial_hang_up(peer, what, true, now);
		return peer->next_dial;
	}
	if (peer->dial != DIAL_UP)
		return at;
	next = hedge(peer, now);
	if (!peer->pinged && peer->next_ping < next)
		next = peer->next_ping;
	return next < at ? next : at;
}
