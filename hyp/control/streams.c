// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Saving and restoring by the control socket: the connection carries the stream, in chunks. It runs
 * on the job's own thread; what is written and read here never waits longer than it is told to,
 * and ends when the tool goes away or the service stops.
 */
#include "config.h"

#include "control/control_priv.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "proto/control.h"

#define LOOK_MS 200 /* whether the service stops */
#define BUFFER_BYTES (256u << 10)

struct link {
	struct control *control;
	int fd;
	bool gone;     /* the tool is */
	bool paused;   /* it said so of the guest */
	bool over;     /* the last chunk has come */
	uint32_t left; /* bytes of the chunk that has begun to come */
	size_t len;    /* of the chunk that is being made */
	uint8_t buffer[BUFFER_BYTES];
};

static bool is_gone(void *arg)
{
	struct link *link = arg;
	struct pollfd p = {.fd = link->fd};

	if (!link->gone && poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
		link->gone = true;
	return link->gone || atomic_load(&link->control->cancel);
}

/* Waits for the socket, until `end`. 0, -ECANCELED or -ETIMEDOUT. */
static int await(struct link *link, short what, uint64_t end)
{
	struct pollfd p = {.fd = link->fd, .events = what};

	for (;;) {
		if (atomic_load(&link->control->cancel))
			return -ECANCELED;
		if (poll(&p, 1, LOOK_MS) > 0)
			return 0;
		if (clock_ns() >= end)
			return -ETIMEDOUT;
	}
}

/* ---- Writing -------------------------------------------------------------------------------- */

static int send_all(struct link *link, const void *bytes, size_t len)
{
	uint64_t end = clock_ns() + TMEM_CHUNK_TIMEOUT_S * CLOCK_S;
	const uint8_t *at = bytes;

	while (len) {
		ssize_t n = send(link->fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r = 0;

		if (n > 0) {
			at += n;
			len -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			r = await(link, POLLOUT, end);
		} else if (n < 0 && errno != EINTR) {
			link->gone = true;
			r = -ECANCELED;
		}
		if (r)
			return r;
	}
	return 0;
}

static int send_number(struct link *link, uint32_t number)
{
	uint32_t wire = htole32(number);

	return send_all(link, &wire, sizeof(wire));
}

static int flush_chunk(struct link *link)
{
	size_t len = link->len;
	int r;

	if (!len)
		return 0;
	link->len = 0;
	r = send_number(link, (uint32_t)len);
	return r ? r : send_all(link, link->buffer, len);
}

static int write_bytes(void *arg, const void *bytes, size_t len)
{
	struct link *link = arg;
	const uint8_t *at = bytes;
	int r = 0;

	while (len && !r) {
		size_t part = sizeof(link->buffer) - link->len;

		part = part < len ? part : len;
		memcpy(link->buffer + link->len, at, part);
		link->len += part;
		at += part;
		len -= part;
		if (link->len == sizeof(link->buffer))
			r = flush_chunk(link);
	}
	return r;
}

static int pass_over(void *arg, uint64_t pages)
{
	struct link *link = arg;
	uint64_t wire = htole64(pages);
	int r = flush_chunk(link);

	if (!r)
		r = send_number(link, TMEM_CHUNK_PASS);
	return r ? r : send_all(link, &wire, sizeof(wire));
}

static bool is_paused(void *arg, unsigned ms)
{
	struct link *link = arg;
	struct pollfd p = {.fd = link->fd, .events = POLLIN};
	char word[64];
	ssize_t n;

	for (unsigned waited = 0; waited < ms && !link->paused && !is_gone(link);
	     waited += LOOK_MS) {
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		n = recv(link->fd, word, sizeof(word), MSG_DONTWAIT);
		if (n > 0)
			link->paused = true;
		else if (!n || (errno != EAGAIN && errno != EINTR))
			link->gone = true;
	}
	return link->paused;
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* As many as there are, at most `len`; waits for the first one. Or a negated errno. */
static ssize_t receive(struct link *link, void *bytes, size_t len)
{
	for (;;) {
		ssize_t n = recv(link->fd, bytes, len, MSG_DONTWAIT);
		int r = 0;

		if (n > 0)
			return n;
		if (n < 0 && errno == EAGAIN)
			/* Between two passes there may be nothing for a long time. */
			r = await(link, POLLIN, UINT64_MAX);
		else if (!n || errno != EINTR)
			r = -ECANCELED;
		link->gone |= r == -ECANCELED;
		if (r)
			return r;
	}
}

static int receive_all(struct link *link, void *bytes, size_t len)
{
	uint8_t *at = bytes;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = receive(link, at, len);
		if (n < 0)
			return (int)n;
	}
	return 0;
}

static int begin_chunk(struct link *link)
{
	uint32_t wire;
	int r = receive_all(link, &wire, sizeof(wire));

	if (r)
		return r;
	link->left = le32toh(wire);
	if (link->left > TMEM_CHUNK_MAX)
		return -EBADMSG;
	link->over = !link->left;
	return 0;
}

static int read_bytes(void *arg, void *bytes, size_t len)
{
	struct link *link = arg;
	uint8_t *at = bytes;
	int r = 0;

	while (len && !r) {
		size_t part = link->left < len ? link->left : len;

		if (link->over)
			return -ENODATA;
		if (!part) {
			r = begin_chunk(link);
			continue;
		}
		r = receive_all(link, at, part);
		link->left -= (uint32_t)part;
		at += part;
		len -= part;
	}
	return r;
}

/* ---- Commands ------------------------------------------------------------------------------- */

static struct link *new_link(struct control *control, int fd, struct reply *reply)
{
	static const char go[] = "{\"" TMEM_KEY_GO "\":true}\n";
	struct link *link = calloc(1, sizeof(*link));

	if (!link) {
		reply_error(reply, TMEM_ERR_BUSY, "the service is out of memory");
		return NULL;
	}
	link->control = control;
	link->fd = fd;
	if (!send_all(link, go, strlen(go)))
		return link;
	reply_error(reply, TMEM_ERR_TIMEOUT, "nobody is there");
	free(link);
	return NULL;
}

static const char *client_of(json_t *request)
{
	return json_string_value(json_object_get(request, TMEM_KEY_CLIENT));
}

static void fail(struct reply *reply, int error, const char *message)
{
	reply_error(reply, error == -ENOENT ? TMEM_ERR_NO_CLIENT : TMEM_ERR_REFUSED, "%s", message);
}

static void answer(struct reply *reply, const struct stream_totals *totals)
{
	reply->result = json_object();
	put_int(reply->result, TMEM_KEY_PAGES, totals->pages);
	put_int(reply->result, TMEM_KEY_STREAM_BYTES, totals->bytes);
}

void run_save(struct control *control, json_t *request, int fd, struct reply *reply)
{
	struct link *link = new_link(control, fd, reply);
	struct control_save how = {
		.name = client_of(request),
		.live = json_is_true(json_object_get(request, TMEM_KEY_LIVE)),
		.paused = is_paused,
		.passed = pass_over,
		.arg = link,
	};
	struct stream_io io = {.write = write_bytes, .gone = is_gone, .arg = link};
	struct stream_totals totals;
	char err[512] = "";
	int r;

	if (!link)
		return;
	r = control->ops.save(control->arg, &how, &io, &totals, err, sizeof(err));
	/* What is not whole is ended all the same: the answer says so. */
	if (!r)
		r = flush_chunk(link);
	if (!link->gone)
		send_number(link, 0);
	if (r) {
		fail(reply, r, err[0] ? err : strerror(-r));
	} else {
		answer(reply, &totals);
		put_int(reply->result, TMEM_KEY_PASSES, totals.passes);
	}
	free(link);
}

static json_t *describe(const struct tmem_stream_head *head)
{
	bool disk = head->kind == TMEM_STREAM_DISK;
	json_t *o = json_object();

	json_object_set_new(o, TMEM_KEY_KIND,
			    json_string(disk ? TMEM_KIND_DISK : TMEM_KIND_CLIENT));
	put_int(o, TMEM_KEY_VERSION, head->version);
	if (disk)
		put_int(o, TMEM_KEY_SIZE, head->disk_bytes);
	return o;
}

void run_restore(struct control *control, json_t *request, int fd, struct reply *reply)
{
	struct link *link = new_link(control, fd, reply);
	struct stream_io io = {.read = read_bytes, .gone = is_gone, .arg = link};
	struct tmem_stream_head head;
	struct stream_totals totals;
	char err[512] = "";
	int r;

	if (!link)
		return;
	r = control->ops.restore(control->arg, client_of(request), &io, &head, &totals, err,
				 sizeof(err));
	if (r) {
		fail(reply, r, err[0] ? err : strerror(-r));
	} else {
		answer(reply, &totals);
		json_object_set_new(reply->result, TMEM_KEY_STREAM, describe(&head));
	}
	free(link);
}

void run_restore_discard(struct control *control, json_t *request, struct reply *reply)
{
	const char *name = client_of(request);

	if (control->ops.restore_discard(control->arg, name))
		reply_error(reply, TMEM_ERR_REFUSED,
			    "\"%.64s\" has nothing that was restored and waits for its guest",
			    name);
	else
		reply->result = json_object();
}
