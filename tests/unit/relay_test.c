// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The relay: descriptors arrive with the bytes they were sent with, a side that floods or does not
 * read keeps nobody else waiting, what was sent before the end arrives.
 */
#include "tests/unit/unit.h"
#include "tools/backend/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct scene {
	int front; /* our ends */
	int back;
	int relay_front;
	int relay_back;
	int stop;
	enum relay_end end;
	pthread_t thread;
};

static void *relay_thread(void *arg)
{
	struct scene *s = arg;

	s->end = relay_run(s->relay_front, s->relay_back, s->stop);
	return NULL;
}

static void open_scene(struct scene *s)
{
	int front[2], back[2];

	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, front));
	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, back));
	*s = (struct scene){front[0], back[0], front[1], back[1], eventfd(0, EFD_CLOEXEC), 0, 0};
	CU_ASSERT_FATAL(!pthread_create(&s->thread, NULL, relay_thread, s));
}

/* How the relay ended. */
static enum relay_end close_scene(struct scene *s)
{
	pthread_join(s->thread, NULL);
	close(s->front);
	close(s->back);
	close(s->relay_front);
	close(s->relay_back);
	close(s->stop);
	return s->end;
}

static void stop(struct scene *s)
{
	uint64_t one = 1;

	CU_ASSERT(write(s->stop, &one, sizeof(one)) == sizeof(one));
}

static bool send_piece(int to, const void *bytes, size_t len, const int *fds, unsigned nr)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 253)];
	} control = {0};
	struct iovec iov = {(void *)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nr) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int) * nr);
		memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * nr);
	}
	return sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)len;
}

/* One byte and the descriptors that came with it; -1 at the end. */
static int receive_byte(int from, int *fds, unsigned *nr)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 253)];
	} control;
	uint8_t byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&msg) : NULL;

	*nr = c ? (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
	if (*nr)
		memcpy(fds, CMSG_DATA(c), *nr * sizeof(int));
	return n == 1 ? byte : -1;
}

/* A message of 12 bytes and `payload`, as it is on the wire; its length. */
static size_t message(uint8_t *to, uint32_t request, uint32_t payload)
{
	uint32_t header[] = {request, 1, payload};

	memcpy(to, header, sizeof(header));
	memset(to + sizeof(header), (int)request, payload);
	return sizeof(header) + payload;
}

/*
 * The nth message has n mod 5 bytes of payload and n mod 4 eventfds, each of which holds a number.
 * Some come in two pieces. Each has its own when they are taken byte by byte.
 */
static void test_descriptors(void)
{
	enum { MESSAGES = 200 };
	unsigned number = 0, seen = 0;
	struct scene s;

	open_scene(&s);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint8_t bytes[32];
		size_t len = message(bytes, i, i % 5), first = i % 3 ? len : 7;
		int fds[3];

		for (unsigned f = 0; f < i % 4; f++)
			fds[f] = eventfd(++number, EFD_CLOEXEC | EFD_NONBLOCK);
		CU_ASSERT(send_piece(s.front, bytes, first, fds, i % 4));
		if (first < len)
			CU_ASSERT(send_piece(s.front, bytes + first, len - first, NULL, 0));
		for (unsigned f = 0; f < i % 4; f++)
			close(fds[f]);
	}
	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint8_t expected[32];
		size_t len = message(expected, i, i % 5);
		unsigned came = 0;

		for (size_t at = 0; at < len; at++) {
			int fds[253];
			unsigned nr;

			CU_ASSERT_FATAL(receive_byte(s.back, fds, &nr) == expected[at]);
			for (unsigned f = 0; f < nr; f++) {
				uint64_t value = 0;

				CU_ASSERT(read(fds[f], &value, sizeof(value)) == sizeof(value));
				CU_ASSERT_EQUAL(value, ++seen);
				close(fds[f]);
			}
			came += nr;
		}
		CU_ASSERT_EQUAL(came, i % 4);
	}
	CU_ASSERT_EQUAL(seen, number);
	stop(&s);
	CU_ASSERT_EQUAL(close_scene(&s), RELAY_STOPPED);
}

/* The front floods a back that does not read; what the back says gets through all the same. */
static void test_flood(void)
{
	static uint8_t chunk[65536];
	uint64_t sent = 0, got = 0;
	struct pollfd back;
	struct scene s;
	uint8_t byte = 0;
	ssize_t n;

	open_scene(&s);
	memset(chunk, 0x5a, sizeof(chunk));
	back = (struct pollfd){.fd = s.back, .events = POLLIN};
	for (int quiet = 0; quiet < 20;) {
		n = send(s.front, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (n > 0) {
			sent += (uint64_t)n;
			quiet = 0;
		} else {
			quiet++;
			usleep(1000);
		}
	}
	for (unsigned i = 0; i < 100; i++) {
		uint8_t said = (uint8_t)i;

		CU_ASSERT(send(s.back, &said, 1, 0) == 1);
		CU_ASSERT(recv(s.front, &byte, 1, 0) == 1 && byte == said);
	}
	/* All of the flood arrives, also what is under way when the front hangs up. */
	shutdown(s.front, SHUT_WR);
	while (got < sent && poll(&back, 1, 5000) == 1) {
		n = recv(s.back, chunk, sizeof(chunk), 0);
		if (n <= 0)
			break;
		got += (uint64_t)n;
	}
	CU_ASSERT_EQUAL(got, sent);
	CU_ASSERT_EQUAL(close_scene(&s), RELAY_FRONT_GONE);
}

static void test_ends(void)
{
	struct scene s;

	open_scene(&s);
	shutdown(s.back, SHUT_RDWR);
	CU_ASSERT_EQUAL(close_scene(&s), RELAY_BACK_GONE);

	open_scene(&s);
	shutdown(s.front, SHUT_RDWR);
	CU_ASSERT_EQUAL(close_scene(&s), RELAY_FRONT_GONE);

	/* A back end that goes while something waits for it. */
	open_scene(&s);
	CU_ASSERT(send(s.front, "x", 1, 0) == 1);
	shutdown(s.back, SHUT_RDWR);
	CU_ASSERT_EQUAL(close_scene(&s), RELAY_BACK_GONE);
}

static unsigned open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Descriptors that could not be passed on any more are not kept. */
static void test_no_leak(void)
{
	unsigned before = open_files();
	struct scene s;
	int fd;

	for (unsigned i = 0; i < 50; i++) {
		open_scene(&s);
		fd = eventfd(0, EFD_CLOEXEC);
		for (unsigned k = 0; k < 10; k++)
			send_piece(s.front, "xyz", 3, &fd, 1);
		close(fd);
		shutdown(s.back, SHUT_RDWR);
		CU_ASSERT_EQUAL(close_scene(&s), RELAY_BACK_GONE);
	}
	CU_ASSERT_EQUAL(open_files(), before);
}

int main(void)
{
	CU_TestInfo tests[] = {{"descriptors stay with their bytes", test_descriptors},
			       {"a flood", test_flood},
			       {"ends", test_ends},
			       {"no descriptor stays", test_no_leak},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"relay of tmem-vhost-user-blk", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	signal(SIGPIPE, SIG_IGN);
	return unit_run(suites);
}
