// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Descriptors arrive with the first byte of what one recvmsg() takes, though they may have been
 * sent with a later one: the kernel joins what was sent without descriptors and what follows with
 * some. So no call reads beyond the end of a message, and what one call received is sent by one
 * call. The next piece is read when all of the last one is sent: one buffer each way, whoever
 * floods waits.
 */
#include "relay.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 253 /* of one message: SCM_MAX_FD of Linux */

/* What each message begins with (docs/interop/vhost-user.rst), in the host's byte order. */
struct header {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* of the payload that follows */
};

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
};

struct way {
	int from;
	int to;
	size_t have; /* bytes that were received */
	size_t sent; /* of them */
	unsigned nr_fds;
	int fds[MAX_FDS]; /* that came with them, and are not sent yet */
	char bytes[4096];
	struct header header; /* of the message under way */
	size_t header_have;
	uint32_t payload_left; /* to be received */
};

static bool waits(const struct way *way)
{
	return way->sent < way->have;
}

static void drop_fds(struct way *way)
{
	for (unsigned i = 0; i < way->nr_fds; i++)
		close(way->fds[i]);
	way->nr_fds = 0;
}

static void keep_fds(struct way *way, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		way->nr_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(way->fds, CMSG_DATA(c), way->nr_fds * sizeof(int));
	}
}

static bool transient(void)
{
	return errno == EAGAIN || errno == EINTR;
}

static bool gone(void)
{
	return errno == EPIPE || errno == ECONNRESET;
}

/* Bytes that surely belong to the message under way. */
static size_t readable(const struct way *way)
{
	if (!way->payload_left)
		return sizeof(way->header) - way->header_have;
	return way->payload_left < sizeof(way->bytes) ? way->payload_left : sizeof(way->bytes);
}

static void follow(struct way *way)
{
	if (way->payload_left) {
		way->payload_left -= (uint32_t)way->have;
		return;
	}
	memcpy((char *)&way->header + way->header_have, way->bytes, way->have);
	way->header_have += way->have;
	if (way->header_have == sizeof(way->header)) {
		way->header_have = 0;
		way->payload_left = way->header.size;
	}
}

/* 1: go on; 0: the sender has hung up; -1: errno. */
static int receive(struct way *way)
{
	union control control;
	struct iovec iov = {.iov_base = way->bytes, .iov_len = readable(way)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(way->from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && transient())
		return 1;
	if (n <= 0)
		return n < 0 && !gone() ? -1 : 0;
	way->have = (size_t)n;
	way->sent = 0;
	follow(way);
	keep_fds(way, &msg);
	/* This process has too many open: a message without its descriptors is another message. */
	if (msg.msg_flags & MSG_CTRUNC) {
		errno = EMFILE;
		return -1;
	}
	return 1;
}

/* 1: go on; 0: the receiver has hung up; -1: errno. */
static int pass_on(struct way *way)
{
	union control control = {0};
	size_t bytes = sizeof(int) * way->nr_fds;
	struct iovec iov = {.iov_base = way->bytes + way->sent, .iov_len = way->have - way->sent};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (way->nr_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(bytes);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.align), way->fds, bytes);
	}
	n = sendmsg(way->to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return transient() ? 1 : gone() ? 0 : -1;
	way->sent += (size_t)n;
	drop_fds(way);
	return 1;
}

static short wanted(const struct way *out, const struct way *in)
{
	return (short)((waits(out) ? 0 : POLLIN) | (waits(in) ? POLLOUT : 0));
}

/* One side's turn: what comes from it, and what goes to it. */
static int serve(struct pollfd *poll, struct way *out, struct way *in)
{
	int r = 1;

	if (!poll->revents)
		return 1;
	if (waits(in))
		r = pass_on(in);
	if (r > 0 && !waits(out))
		r = receive(out);
	return r;
}

static enum relay_end carry(struct way *to_back, struct way *to_front, int stop)
{
	enum { FRONT, BACK, STOP, NR };

	for (;;) {
		struct pollfd polls[NR] = {
			[FRONT] = {.fd = to_back->from, .events = wanted(to_back, to_front)},
			[BACK] = {.fd = to_front->from, .events = wanted(to_front, to_back)},
			[STOP] = {.fd = stop, .events = POLLIN},
		};
		int r;

		/* Who is not asked for anything would still report that it hung up, again and
		 * again. */
		for (int i = FRONT; i <= BACK; i++)
			if (!polls[i].events)
				polls[i].fd = -1;
		if (poll(polls, NR, -1) < 0) {
			if (errno == EINTR)
				continue;
			return RELAY_FAILED;
		}
		if (polls[STOP].revents)
			return RELAY_STOPPED;
		r = serve(&polls[FRONT], to_back, to_front);
		if (r <= 0)
			return r ? RELAY_FAILED : RELAY_FRONT_GONE;
		r = serve(&polls[BACK], to_front, to_back);
		if (r <= 0)
			return r ? RELAY_FAILED : RELAY_BACK_GONE;
	}
}

enum relay_end relay_run(int front, int back, int stop)
{
	struct way to_back = {.from = front, .to = back};
	struct way to_front = {.from = back, .to = front};
	enum relay_end end = carry(&to_back, &to_front, stop);
	int error = errno;

	drop_fds(&to_back);
	drop_fds(&to_front);
	errno = error;
	return end;
}
