// SPDX-License-Identifier: GPL-2.0-or-later
#include "raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/lib/scratch.h"

#define WAIT_MS 20000

static void load(struct raw *raw, const char *dir, bool server)
{
	struct peer_tls tls = {.ca_dir = scratch_path("ca"), .dir = dir};
	char err[256] = "";

	CHECK(!credentials_load(&raw->credentials, &tls, server, "raw", err, sizeof(err)), "%s",
	      err);
	raw->link.fd = -1;
	raw->link.in.bytes = malloc(LINK_BUFFER);
	raw->link.out.bytes = malloc(LINK_BUFFER);
	CHECK(raw->link.in.bytes && raw->link.out.bytes, "no memory");
}

/* Until the socket may have something, at most 10 ms. */
static void wait_a_bit(struct raw *raw)
{
	struct pollfd fd = {raw->link.fd, POLLIN, 0};

	poll(&fd, 1, 10);
}

static void shake_hands(struct raw *raw)
{
	for (unsigned i = 0; i < WAIT_MS / 10 && !raw->link.open; i++) {
		CHECK(!link_step(&raw->link, clock_ns()), "%s", raw->link.why);
		if (!raw->link.open)
			wait_a_bit(raw);
	}
	CHECK(raw->link.open, "the handshake did not end");
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

void raw_connect(struct raw *raw, uint16_t port, const char *dir)
{
	struct sockaddr_in to = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memset(raw, 0, sizeof(*raw));
	load(raw, dir, false);
	raw->listener = -1;
	raw->from = FRAME_LENDER;
	CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)) || errno == EINPROGRESS,
	      "no connection");
	CHECK(!link_begin(&raw->link, &raw->credentials, fd, "lender1.test", clock_ns()), "TLS");
	shake_hands(raw);
}

void raw_listen(struct raw *raw, const char *dir)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);

	memset(raw, 0, sizeof(*raw));
	load(raw, dir, true);
	raw->from = FRAME_OWNER;
	raw->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(!bind(raw->listener, (struct sockaddr *)&at, sizeof(at)), "no port");
	CHECK(!listen(raw->listener, 16), "no port");
	CHECK(!getsockname(raw->listener, (struct sockaddr *)&at, &len), "no port");
	raw->port = ntohs(at.sin_port);
}

void raw_accept(struct raw *raw)
{
	struct pollfd listener = {raw->listener, POLLIN, 0};
	int fd;

	raw_hang_up(raw);
	CHECK(poll(&listener, 1, WAIT_MS) == 1, "nobody connects");
	fd = accept4(raw->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	CHECK(fd >= 0, "nobody connects");
	CHECK(!link_begin(&raw->link, &raw->credentials, fd, NULL, clock_ns()), "TLS");
	shake_hands(raw);
}

bool raw_push(struct raw *raw)
{
	return !link_step(&raw->link, clock_ns());
}

static void flush(struct raw *raw)
{
	for (unsigned i = 0; i < WAIT_MS && buffer_used(&raw->link.out); i++) {
		if (!raw_push(raw))
			return;
		if (buffer_used(&raw->link.out))
			nap_ms(1);
	}
}

void raw_bytes(struct raw *raw, const void *bytes, uint32_t len)
{
	CHECK(buffer_room(&raw->link.out) >= len, "no room");
	memcpy(raw->link.out.bytes + raw->link.out.end, bytes, len);
	raw->link.out.end += len;
	flush(raw);
}

void raw_hello_of(struct tmem_peer_hello *hello)
{
	*hello = (struct tmem_peer_hello){.magic = TMEM_PEER_MAGIC,
					  .version_min = TMEM_PEER_VERSION,
					  .version_max = TMEM_PEER_VERSION,
					  .blob_max = TMEM_PEER_BLOB_MAX,
					  .batch = TMEM_PEER_BATCH_MAX,
					  .renew = TMEM_PEER_RENEW_MAX,
					  .window = 100,
					  .epoch = 7,
					  .session = 1,
					  .uuid = {9},
					  .name = "raw"};
}

static uint8_t *frame_room(struct raw *raw)
{
	CHECK(buffer_room(&raw->link.out) >= TMEM_PEER_FRAME_MAX, "no room");
	return raw->link.out.bytes + raw->link.out.end;
}

static void send_frame(struct raw *raw, struct frame_make *make)
{
	raw->link.out.end += frame_make_end(make);
	flush(raw);
}

void raw_hello(struct raw *raw, const struct tmem_peer_hello *hello, uint16_t type, uint64_t id)
{
	struct frame_make make;

	frame_make(&make, frame_room(raw), type, id);
	frame_make_hello(&make, hello);
	send_frame(raw, &make);
}

void raw_empty(struct raw *raw, uint16_t type, uint64_t id)
{
	struct frame_make make;

	frame_make(&make, frame_room(raw), type, id);
	send_frame(raw, &make);
}

void raw_put(struct raw *raw, uint64_t blob, uint32_t tag)
{
	struct tmem_peer_entry entry = {blob, tag, 0, 0};
	uint8_t bytes[TMEM_PEER_BLOB_MAX];
	struct frame_make make;

	entry.len = (uint16_t)blob_make(blob, bytes);
	frame_make(&make, frame_room(raw), TMEM_PEER_PUT, ++raw->next_id);
	frame_make_entries(&make, 1);
	frame_make_entry(&make, &entry, bytes);
	send_frame(raw, &make);
}

void raw_get(struct raw *raw, uint64_t blob, uint32_t tag)
{
	struct tmem_peer_entry entry = {blob, tag, 0, 0};
	struct frame_make make;

	frame_make(&make, frame_room(raw), TMEM_PEER_GET, ++raw->next_id);
	frame_make_entries(&make, 1);
	frame_make_entry(&make, &entry, NULL);
	send_frame(raw, &make);
}

bool raw_next(struct raw *raw, struct frame *frame)
{
	struct buffer *in = &raw->link.in;
	bool over = false;
	const char *why;

	for (unsigned i = 0; i < WAIT_MS / 10; i++) {
		int r = frame_next(in->bytes + in->start, buffer_used(in), raw->from, frame, &why);

		CHECK(r >= 0, "%s", why);
		if (r) {
			buffer_take(in, frame->bytes);
			return true;
		}
		if (over)
			return false;
		over = link_step(&raw->link, clock_ns());
		if (!over && !buffer_used(in))
			wait_a_bit(raw);
	}
	CHECK(false, "no frame comes");
	return false;
}

void raw_expect(struct raw *raw, uint16_t type, struct frame *frame)
{
	do
		CHECK(raw_next(raw, frame), "the connection ended: %s", raw->link.why);
	while (frame->type != type &&
	       (frame->type == TMEM_PEER_PING || frame->type == TMEM_PEER_STAT ||
		frame->type == TMEM_PEER_DELETE));
	CHECK_IS(frame->type, type);
}

void raw_expect_error(struct raw *raw, uint32_t code, const char *says)
{
	struct tmem_peer_error error;
	char text[TMEM_PEER_TEXT + 1];
	struct frame frame;

	raw_expect(raw, TMEM_PEER_ERROR, &frame);
	frame_error(&frame, &error, text);
	CHECK_IS(error.code, code);
	CHECK(strstr(text, says), "it says: %s", text);
	CHECK(!raw_next(raw, &frame), "a frame after the error");
}

void raw_hang_up(struct raw *raw)
{
	link_close(&raw->link);
	raw->link.in.start = raw->link.in.end = 0;
	raw->link.out.start = raw->link.out.end = 0;
}

void raw_end(struct raw *raw)
{
	raw_hang_up(raw);
	if (raw->listener >= 0)
		close(raw->listener);
	free(raw->link.in.bytes);
	free(raw->link.out.bytes);
	credentials_free(&raw->credentials);
}
