// SPDX-License-Identifier: GPL-2.0-or-later
/* A proxy for TCP that spoils what it passes on. A thread for each direction of each connection. */
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 256u
#define PIECE 4096

struct direction {
	struct proxy *proxy;
	int from;
	int to;
	bool answers; /* from the lender */
	pthread_t thread;
};

struct proxy {
	uint16_t port;
	uint16_t target;
	int listener;
	pthread_t thread;
	_Atomic int fault;
	_Atomic unsigned ms;
	_Atomic bool stop;
	_Atomic unsigned epoch; /* of connections: those of an older one are cut */
	struct direction directions[2 * CONNECTIONS];
	unsigned nr;
};

static bool stands_still(const struct direction *d)
{
	int fault = atomic_load(&d->proxy->fault);

	return fault == PROXY_STALL || (fault == PROXY_HALF && d->answers);
}

/* What becomes of n bytes; how many of them pass. -1: this is the end. */
static ssize_t spoil(struct direction *d, uint8_t *bytes, ssize_t n)
{
	int fault = atomic_load(&d->proxy->fault);

	if (fault == PROXY_DELAY)
		nap_ms(atomic_load(&d->proxy->ms));
	if (!d->answers || n < 64)
		return n;
	if (fault == PROXY_CORRUPT &&
	    atomic_compare_exchange_strong(&d->proxy->fault, &fault, PROXY_PASS))
		bytes[n / 2] ^= 0x10;
	if (fault == PROXY_TRUNCATE &&
	    atomic_compare_exchange_strong(&d->proxy->fault, &fault, PROXY_PASS)) {
		if (write(d->to, bytes, (size_t)n / 2) < 0)
			return -1;
		return -1;
	}
	return n;
}

static bool write_all(int fd, const uint8_t *bytes, ssize_t n)
{
	while (n > 0) {
		ssize_t r = send(fd, bytes, (size_t)n, MSG_NOSIGNAL);

		if (r <= 0)
			return false;
		bytes += r;
		n -= r;
	}
	return true;
}

static void *pump(void *arg)
{
	struct direction *d = arg;
	struct proxy *proxy = d->proxy;
	unsigned epoch = atomic_load(&proxy->epoch);
	uint8_t bytes[PIECE];

	while (!atomic_load(&proxy->stop) && atomic_load(&proxy->epoch) == epoch) {
		struct pollfd poll_fd = {d->from, POLLIN, 0};
		ssize_t n;

		if (stands_still(d)) {
			nap_ms(5);
			continue;
		}
		if (poll(&poll_fd, 1, 20) <= 0)
			continue;
		n = read(d->from, bytes, sizeof(bytes));
		if (n > 0)
			n = spoil(d, bytes, n);
		while (n > 0 && stands_still(d) && !atomic_load(&proxy->stop))
			nap_ms(5);
		if (n <= 0 || !write_all(d->to, bytes, n))
			break;
	}
	shutdown(d->from, SHUT_RDWR);
	shutdown(d->to, SHUT_RDWR);
	return NULL;
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void pass_on(struct proxy *proxy, int owner_side)
{
	int lender_side = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = loopback(proxy->target);

	CHECK(lender_side >= 0 && proxy->nr < 2 * CONNECTIONS, "too many connections");
	if (connect(lender_side, (struct sockaddr *)&to, sizeof(to))) {
		close(lender_side);
		close(owner_side);
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		struct direction *d = &proxy->directions[proxy->nr++];

		*d = (struct direction){.proxy = proxy,
					.from = i ? lender_side : owner_side,
					.to = i ? owner_side : lender_side,
					.answers = i};
		CHECK(!pthread_create(&d->thread, NULL, pump, d), "no thread");
	}
}

static void *accept_all(void *arg)
{
	struct proxy *proxy = arg;

	while (!atomic_load(&proxy->stop)) {
		struct pollfd poll_fd = {proxy->listener, POLLIN, 0};
		int fd;

		if (poll(&poll_fd, 1, 20) <= 0)
			continue;
		fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			pass_on(proxy, fd);
	}
	return NULL;
}

struct proxy *proxy_begin(uint16_t to)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);

	CHECK(proxy, "no memory");
	proxy->target = to;
	proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(!bind(proxy->listener, (struct sockaddr *)&at, sizeof(at)), "%s", strerror(errno));
	CHECK(!listen(proxy->listener, 16), "%s", strerror(errno));
	CHECK(!getsockname(proxy->listener, (struct sockaddr *)&at, &len), "%s", strerror(errno));
	proxy->port = ntohs(at.sin_port);
	CHECK(!pthread_create(&proxy->thread, NULL, accept_all, proxy), "no thread");
	return proxy;
}

uint16_t proxy_port(const struct proxy *proxy)
{
	return proxy->port;
}

void proxy_set(struct proxy *proxy, enum proxy_fault fault, unsigned ms)
{
	atomic_store(&proxy->ms, ms);
	atomic_store(&proxy->fault, fault == PROXY_CUT ? PROXY_PASS : fault);
	if (fault == PROXY_CUT)
		atomic_fetch_add(&proxy->epoch, 1);
}

bool proxy_is(const struct proxy *proxy, enum proxy_fault fault)
{
	return atomic_load(&proxy->fault) == (int)fault;
}

void proxy_end(struct proxy *proxy)
{
	atomic_store(&proxy->stop, true);
	pthread_join(proxy->thread, NULL);
	for (unsigned i = 0; i < proxy->nr; i++)
		pthread_join(proxy->directions[i].thread, NULL);
	for (unsigned i = 0; i < proxy->nr; i++)
		close(proxy->directions[i].from);
	close(proxy->listener);
	free(proxy);
}
