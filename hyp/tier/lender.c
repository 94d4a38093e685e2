// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The lender: a thread that serves all connections of owners in turn, one frame of each, so that
 * none waits for another one's storm. What it keeps of a connection is bounded: it reads nothing
 * more while an answer has no room, and cuts off who reads no answers, says nothing, or does not
 * get to a hello in time.
 */
#include "lender_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define EVENTS 64
#define TICK_MS 250  /* how exactly times are kept while somebody is connected */
#define OVER_MS 1000 /* that the other side has to hang up */
#define ACCEPTS 4    /* at once */

static uint64_t ms(uint32_t value, uint32_t standard)
{
	return (value ? value : standard) * CLOCK_MS;
}

/* ---- Who is allowed ------------------------------------------------------------------------- */

static bool matches(const struct patterns *patterns, const char *name)
{
	for (unsigned i = 0; i < patterns->nr; i++)
		if (!fnmatch(patterns->at[i], name, 0))
			return true;
	return false;
}

bool lender_is_allowed(struct lender *lender, const struct names *names, const char **which)
{
	bool denied = false;

	*which = NULL;
	pthread_mutex_lock(&lender->lock);
	for (unsigned i = 0; i < names->nr; i++) {
		denied |= matches(&lender->denied, names->name[i]);
		if (!*which && matches(&lender->allowed, names->name[i]))
			*which = names->name[i];
	}
	pthread_mutex_unlock(&lender->lock);
	return *which && !denied;
}

static void take_out(struct patterns *patterns, const char *pattern)
{
	for (unsigned i = 0; i < patterns->nr; i++)
		if (!strcmp(patterns->at[i], pattern)) {
			memmove(patterns->at[i], patterns->at[patterns->nr - 1], PEER_NAME);
			patterns->nr--;
			return;
		}
}

static int change(struct lender *lender, struct patterns *to, struct patterns *from,
		  const char *pattern)
{
	uint64_t one = 1;
	int r = 0;

	if (!*pattern || strlen(pattern) >= PEER_NAME)
		return -EINVAL;
	pthread_mutex_lock(&lender->lock);
	take_out(from, pattern);
	take_out(to, pattern);
	if (to->nr == PATTERNS_MAX)
		r = -ENOSPC;
	else
		snprintf(to->at[to->nr++], PEER_NAME, "%s", pattern);
	lender->denied_more = true;
	pthread_mutex_unlock(&lender->lock);
	if (write(lender->wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
		return -errno;
	return r;
}

int lender_allow(struct lender *lender, const char *pattern)
{
	return change(lender, &lender->allowed, &lender->denied, pattern);
}

int lender_deny(struct lender *lender, const char *pattern)
{
	return change(lender, &lender->denied, &lender->allowed, pattern);
}

void lender_leave(struct lender *lender, uint32_t deadline_ms)
{
	uint64_t one = 1;

	pthread_mutex_lock(&lender->lock);
	lender->leave_at = deadline_ms ? clock_ns() + deadline_ms * CLOCK_MS : 0;
	lender->leave_changed = true;
	pthread_mutex_unlock(&lender->lock);
	if (write(lender->wake, &one, sizeof(one)) < 0)
		return; /* it is awake, or will be in a tick */
}

uint32_t lender_leave_ms(struct lender *lender, uint64_t now)
{
	uint64_t at;

	pthread_mutex_lock(&lender->lock);
	at = lender->leave_at;
	pthread_mutex_unlock(&lender->lock);
	if (!at)
		return 0;
	return at > now + CLOCK_MS ? (uint32_t)((at - now) / CLOCK_MS) : 1;
}

/* ---- Connections ---------------------------------------------------------------------------- */

static void hang_up(struct conn *conn)
{
	conn_forget(conn);
	link_close(&conn->link);
	conn->state = CONN_FREE;
}

static struct conn *free_conn(struct lender *lender)
{
	for (uint32_t i = 0; i < lender->settings.connections; i++) {
		struct conn *conn = &lender->conns[i];
		size_t bytes = LINK_BUFFER;

		if (conn->state != CONN_FREE)
			continue;
		if (!conn->link.in.bytes)
			conn->link.in.bytes = malloc(bytes);
		if (!conn->link.out.bytes)
			conn->link.out.bytes = malloc(bytes);
		return conn->link.in.bytes && conn->link.out.bytes ? conn : NULL;
	}
	return NULL;
}

/*
 * Room for one that comes: who has not got to a hello for the longest time gives way, so that
 * nobody without a certificate keeps out those who have one.
 */
static struct conn *make_room(struct lender *lender)
{
	struct conn *oldest = NULL;

	for (uint32_t i = 0; i < lender->settings.connections; i++) {
		struct conn *conn = &lender->conns[i];

		if (conn->state == CONN_SERVING || conn->state == CONN_FREE)
			continue;
		if (!oldest || conn->link.began < oldest->link.began)
			oldest = conn;
	}
	if (!oldest)
		return NULL;
	hang_up(oldest);
	return oldest;
}

static void set_options(int fd, uint64_t silence)
{
	unsigned timeout = (unsigned)(silence / CLOCK_MS);
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

/* Whether epoll tells of connections. */
static void listen_for(struct lender *lender, bool on)
{
	struct epoll_event listens = {on ? EPOLLIN : 0, {.ptr = &lender->listener}};

	lender->deaf = !on;
	if (epoll_ctl(lender->epoll, EPOLL_CTL_MOD, lender->listener, &listens))
		log_limited(LOG_ERROR, "the lender cannot listen: %s", strerror(errno));
}

/* False: nobody waits, or cannot be had. */
static bool accept_one(struct lender *lender, uint64_t now)
{
	int fd = accept4(lender->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct conn *conn;

	if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
		log_limited(LOG_WARN, "a connection cannot be accepted: %s", strerror(errno));
		listen_for(lender, false);
	}
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	conn = free_conn(lender);
	if (!conn)
		conn = make_room(lender);
	if (!conn) {
		counter_add(&lender->counters[LENDER_REFUSED_BUSY], 1);
		close(fd);
		return true;
	}
	set_options(fd, 4 * ms(lender->settings.times.silence, 4000));
	conn->lender = lender;
	conn->owner = NULL;
	conn->ready = true;
	if (link_begin(&conn->link, &lender->credentials, fd, NULL, now))
		return true;
	conn->state = CONN_TLS;
	return true;
}

/* So that a refusal is read, not lost. */
static void let_go(struct conn *conn, uint64_t now)
{
	conn_forget(conn);
	link_end(&conn->link);
	conn->state = CONN_OVER;
	conn->ready = true;
	conn->link.moved = now;
}

/* The link has ended, or never came up. */
static void link_over(struct conn *conn, uint64_t now)
{
	if (conn->state != CONN_TLS) {
		hang_up(conn);
		return;
	}
	counter_add(&conn->lender->counters[LENDER_REFUSED_TLS], 1);
	log_limited(LOG_WARN, "a peer that connected is refused: %s", conn->link.why);
	let_go(conn, now);
}

/* As much as it may have until it is the others' turn. */
static void turn(struct conn *conn, uint64_t now)
{
	struct names names;

	conn->ready = false;
	if (conn->state == CONN_OVER) {
		if (link_drain(&conn->link) || link_poll(&conn->link, conn->lender->epoll, conn))
			hang_up(conn);
		return;
	}
	if (link_step(&conn->link, now)) {
		/* What came before the end is done still: deletes are not sent again. */
		while (conn_input(conn, now))
			;
		link_over(conn, now);
		return;
	}
	if (conn->state == CONN_TLS && conn->link.open) {
		link_names(&conn->link, &names);
		conn_names(conn, &names);
	}
	if (conn_input(conn, now))
		conn->ready = true;
	conn_tell(conn, now);
	if (link_flush(&conn->link, now)) {
		conn->ready = true; /* it ends when all that came before is done */
		return;
	}
	/* What is in memory already, epoll does not tell of. */
	if (link_pending(&conn->link) && buffer_room(&conn->link.in))
		conn->ready = true;
	if (conn->state == CONN_ENDING && !buffer_used(&conn->link.out))
		let_go(conn, now);
	else if (link_poll(&conn->link, conn->lender->epoll, conn))
		hang_up(conn);
}

static bool is_late(const struct conn *conn, uint64_t now)
{
	const struct peer_times *times = &conn->lender->settings.times;
	const struct link *link = &conn->link;
	uint64_t silence = 4 * ms(times->silence, 4000);

	if (conn->state == CONN_TLS || conn->state == CONN_HELLO)
		return now - link->began > ms(times->hello, 5000);
	if (conn->state == CONN_ENDING)
		return now - link->moved > ms(times->hello, 5000);
	if (conn->state == CONN_OVER)
		return now - link->moved > OVER_MS * CLOCK_MS;
	return now - link->heard > silence ||
	       (buffer_used(&link->out) && now - link->moved > silence);
}

static void check_times(struct lender *lender, uint64_t now)
{
	for (uint32_t i = 0; i < lender->settings.connections; i++) {
		struct conn *conn = &lender->conns[i];

		if (conn->state == CONN_FREE || !is_late(conn, now))
			continue;
		if (conn->state != CONN_OVER)
			counter_add(&lender->counters[LENDER_LATE], 1);
		hang_up(conn);
	}
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* What was asked for from outside. False: to stop. */
static bool obey(struct lender *lender)
{
	bool denied, leave, stop;
	const char *which;
	uint64_t n;

	if (read(lender->wake, &n, sizeof(n)) < 0)
		return true;
	pthread_mutex_lock(&lender->lock);
	denied = lender->denied_more;
	leave = lender->leave_changed;
	stop = lender->stop;
	lender->denied_more = lender->leave_changed = false;
	pthread_mutex_unlock(&lender->lock);
	for (uint32_t i = 0; i < lender->settings.connections; i++) {
		struct conn *conn = &lender->conns[i];

		if (leave) {
			conn->told_leave = false;
			conn->ready = true;
		}
		if (!denied || (conn->state != CONN_HELLO && conn->state != CONN_SERVING))
			continue;
		if (!lender_is_allowed(lender, &conn->names, &which))
			conn_deny(conn);
	}
	return !stop;
}

/*
 * True: somebody has more to do. One handshake at most: that is far more work than a
 * get, and anybody can ask for it.
 */
static bool turns(struct lender *lender, uint64_t now)
{
	bool more = false, shaken = false;

	for (uint32_t i = 0; i < lender->settings.connections; i++) {
		struct conn *conn = &lender->conns[i];
		bool shaking = conn->state == CONN_TLS;

		if (conn->state != CONN_FREE && conn->ready && !(shaking && shaken)) {
			shaken |= shaking;
			turn(conn, now);
		}
		more |= conn->state != CONN_FREE && conn->ready;
	}
	return more;
}

static bool anybody(const struct lender *lender)
{
	for (uint32_t i = 0; i < lender->settings.connections; i++)
		if (lender->conns[i].state != CONN_FREE)
			return true;
	return false;
}

static void *serve(void *arg)
{
	struct epoll_event events[EVENTS];
	struct lender *lender = arg;
	uint64_t now, checked = 0;
	bool more = false, on = true;

	while (on) {
		int wait = more ? 0 : anybody(lender) || lender->deaf ? TICK_MS : -1;
		int n = epoll_wait(lender->epoll, events, EVENTS, wait);

		now = clock_ns();
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr == &lender->listener)
				for (int k = 0; k < ACCEPTS && accept_one(lender, now); k++)
					;
			else if (events[i].data.ptr == &lender->wake)
				on = obey(lender);
			else
				((struct conn *)events[i].data.ptr)->ready = true;
		}
		more = turns(lender, now);
		if (now - checked >= TICK_MS * CLOCK_MS) {
			check_times(lender, now);
			if (lender->deaf)
				listen_for(lender, true);
			checked = now;
		}
	}
	return NULL;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

int lender_make(struct lender **out, const struct lender_settings *settings)
{
	struct lender *lender = calloc(1, sizeof(*lender));

	if (!lender)
		return -ENOMEM;
	*out = lender;
	lender->settings = *settings;
	if (!lender->settings.connections)
		lender->settings.connections = 64;
	lender->listener = lender->epoll = lender->wake = -1;
	pthread_mutex_init(&lender->lock, NULL);
	lender->conns = calloc(lender->settings.connections, sizeof(*lender->conns));
	lender->owners = calloc(OWNERS_MAX, sizeof(*lender->owners));
	lender->allowed.at = calloc(PATTERNS_MAX, PEER_NAME);
	lender->denied.at = calloc(PATTERNS_MAX, PEER_NAME);
	if (!lender->conns || !lender->owners || !lender->allowed.at || !lender->denied.at) {
		lender_free(lender);
		*out = NULL;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < lender->settings.connections; i++)
		lender->conns[i].link.fd = -1;
	return 0;
}

void lender_free(struct lender *lender)
{
	for (uint32_t i = 0; lender->conns && i < lender->settings.connections; i++) {
		link_close(&lender->conns[i].link);
		free(lender->conns[i].link.in.bytes);
		free(lender->conns[i].link.out.bytes);
	}
	if (lender->listener >= 0)
		close(lender->listener);
	if (lender->epoll >= 0)
		close(lender->epoll);
	if (lender->wake >= 0)
		close(lender->wake);
	credentials_free(&lender->credentials);
	pthread_mutex_destroy(&lender->lock);
	free(lender->conns);
	free(lender->owners);
	free(lender->allowed.at);
	free(lender->denied.at);
	free(lender);
}

static int listen_at(const struct addrinfo *info)
{
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, zero = 0, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (info->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, info->ai_addr, info->ai_addrlen) && !listen(fd, SOMAXCONN))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static int open_listener(struct lender *lender, char *err, size_t size)
{
	const struct lender_settings *s = &lender->settings;
	struct addrinfo *info, hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
					.ai_family = s->address ? AF_UNSPEC : AF_INET6,
					.ai_socktype = SOCK_STREAM};
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} bound;
	socklen_t len = sizeof(bound);
	char port[8];
	int r;

	snprintf(port, sizeof(port), "%u", s->port);
	r = getaddrinfo(s->address, port, &hints, &info);
	if (r) {
		snprintf(err, size, "the address %s: %s", s->address, gai_strerror(r));
		return -EINVAL;
	}
	r = listen_at(info);
	freeaddrinfo(info);
	if ((r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL) && !s->address) { /* no IPv6 here */
		hints.ai_family = AF_INET;
		if (!getaddrinfo(NULL, port, &hints, &info)) {
			r = listen_at(info);
			freeaddrinfo(info);
		}
	}
	if (r < 0 || getsockname(r, &bound.any, &len)) {
		snprintf(err, size, "port %u at %s: %s", s->port, s->address ? s->address : "all",
			 strerror(r < 0 ? -r : errno));
		return r < 0 ? r : -errno;
	}
	lender->listener = r;
	lender->port =
		ntohs(bound.any.sa_family == AF_INET ? bound.v4.sin_port : bound.v6.sin6_port);
	return 0;
}

static int start(struct lender *lender, char *err, size_t size)
{
	struct epoll_event listens = {EPOLLIN, {.ptr = &lender->listener}};
	struct epoll_event wakes = {EPOLLIN, {.ptr = &lender->wake}};
	int r = 0;

	lender->epoll = epoll_create1(EPOLL_CLOEXEC);
	lender->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (lender->epoll < 0 || lender->wake < 0 ||
	    epoll_ctl(lender->epoll, EPOLL_CTL_ADD, lender->listener, &listens) ||
	    epoll_ctl(lender->epoll, EPOLL_CTL_ADD, lender->wake, &wakes))
		r = -errno;
	if (!r)
		r = -pthread_create(&lender->thread, NULL, serve, lender);
	if (r)
		snprintf(err, size, "the thread of the lender: %s", strerror(-r));
	lender->running = !r;
	return r;
}

int lender_open(struct lender **out, const struct lender_settings *settings, char *err, size_t size)
{
	struct lender *lender;
	int r = lender_make(&lender, settings);

	if (r) {
		snprintf(err, size, "no memory for %u connections", settings->connections);
		return r;
	}
	r = credentials_load(&lender->credentials, &settings->tls, true, settings->self.name, err,
			     size);
	if (!r)
		r = open_listener(lender, err, size);
	if (!r)
		r = start(lender, err, size);
	if (r)
		lender_free(lender);
	else
		*out = lender;
	return r;
}

void lender_close(struct lender *lender)
{
	uint64_t one = 1;

	pthread_mutex_lock(&lender->lock);
	lender->stop = true;
	pthread_mutex_unlock(&lender->lock);
	while (write(lender->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	if (lender->running)
		pthread_join(lender->thread, NULL);
	lender_free(lender);
}

uint16_t lender_port(const struct lender *lender)
{
	return lender->port;
}

const counter_t *lender_counters(const struct lender *lender)
{
	return lender->counters;
}
