// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The connection: messages come in pieces, descriptors with any of them.
 *
 * A descriptor belongs to the message in whose bytes it comes. So a message is read in two steps,
 * header and payload, and never beyond its end. What a front end sends in excess is closed.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#define MESSAGES_A_CALL 16
#define BACKEND_CONFIG_CHANGE_MSG 2

int session_fail(struct vhost *vhost, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(vhost->err, vhost->errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static void close_fds(struct message *m)
{
	for (unsigned i = 0; i < m->nr_fds; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->nr_fds = 0;
}

int message_take_fd(struct message *m, unsigned i)
{
	int fd = i < m->nr_fds ? m->fds[i] : -1;

	if (fd >= 0)
		m->fds[i] = -1;
	return fd;
}

/* False: too many. */
static bool keep_fds(struct message *m, const struct cmsghdr *cmsg)
{
	size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	bool room = true;

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd), sizeof(fd));
		if (m->nr_fds < WIRE_MAX_FDS) {
			m->fds[m->nr_fds++] = fd;
		} else {
			close(fd);
			room = false;
		}
	}
	return room;
}

static int read_error(struct vhost *vhost)
{
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return 0;
	if (errno == ECONNRESET)
		return session_fail(vhost, -ECONNRESET, "the front end has gone");
	return session_fail(vhost, -EPROTO, "the connection cannot be read: %s", strerror(errno));
}

/* More of the message. How many bytes; 0: nothing for now; or a negated errno. */
static int receive(struct vhost *vhost, void *to, size_t bytes)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * WIRE_MAX_FDS)];
	} control;
	struct iovec iov = {.iov_base = to, .iov_len = bytes};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(vhost->connection, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	bool room = true;

	if (n < 0)
		return read_error(vhost);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			room &= keep_fds(&vhost->in, c);
	if (!room || msg.msg_flags & MSG_CTRUNC)
		return session_fail(vhost, -EPROTO,
				    "a message has more descriptors than the %u allowed, or this "
				    "process has too many open",
				    WIRE_MAX_FDS);
	if (!n)
		return session_fail(vhost, -ECONNRESET, "the front end has gone");
	return (int)n;
}

static int check_header(struct vhost *vhost)
{
	const struct wire_header *h = &vhost->in.header;

	if ((h->flags & WIRE_VERSION_MASK) != WIRE_VERSION)
		return session_fail(vhost, -EPROTO,
				    "request %u has version %u of the protocol, not %u", h->request,
				    h->flags & WIRE_VERSION_MASK, WIRE_VERSION);
	if (h->size > WIRE_MAX_PAYLOAD)
		return session_fail(vhost, -EPROTO, "request %u has %u bytes, more than %u",
				    h->request, h->size, WIRE_MAX_PAYLOAD);
	return 0;
}

/* 1: a whole message is there; 0: not yet; or a negated errno. */
static int read_message(struct vhost *vhost)
{
	struct message *m = &vhost->in;
	size_t head = sizeof(m->header);

	while (m->have < head || m->have < head + m->header.size) {
		int n = m->have < head
				? receive(vhost, (uint8_t *)&m->header + m->have, head - m->have)
				: receive(vhost, m->payload.bytes + m->have - head,
					  head + m->header.size - m->have);

		if (n <= 0)
			return n;
		m->have += (size_t)n;
		n = m->have == head ? check_header(vhost) : 0;
		if (n)
			return n;
	}
	return 1;
}

static void forget_message(struct message *m)
{
	close_fds(m);
	m->have = 0;
}

int vhost_input(struct vhost *vhost, char *err, size_t errlen)
{
	int r = 1;

	vhost->err = err;
	vhost->errlen = errlen;
	for (unsigned i = 0; i < MESSAGES_A_CALL && r > 0; i++) {
		r = read_message(vhost);
		if (r <= 0)
			break;
		r = message_handle(vhost);
		forget_message(&vhost->in);
		if (!r)
			r = 1;
	}
	return r < 0 ? r : 0;
}

/* ---- Writing -------------------------------------------------------------------------------- */

/* True when all of it is sent; else errno says why not. */
static bool send_message(int sock, const struct wire_header *header, const void *payload, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov[] = {{(void *)header, sizeof(*header)}, {(void *)payload, header->size}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = header->size ? 2 : 1};
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do
		n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0 && (size_t)n < sizeof(*header) + header->size)
		errno = EAGAIN;
	return n == (ssize_t)(sizeof(*header) + header->size);
}

int session_reply(struct vhost *vhost, const void *payload, uint32_t size, int fd)
{
	struct wire_header header = {.request = vhost->in.header.request,
				     .flags = WIRE_VERSION | WIRE_REPLY,
				     .size = size};

	if (send_message(vhost->connection, &header, payload, fd))
		return 0;
	if (errno == EPIPE || errno == ECONNRESET)
		return session_fail(vhost, -ECONNRESET, "the front end has gone");
	if (errno == EAGAIN)
		return session_fail(vhost, -EPROTO, "the front end does not read our replies");
	return session_fail(vhost, -EPROTO, "a reply cannot be sent: %s", strerror(errno));
}

void vhost_config_changed(struct vhost *vhost)
{
	struct wire_header header = {.request = BACKEND_CONFIG_CHANGE_MSG, .flags = WIRE_VERSION};
	uint64_t need = BIT(PROTOCOL_BACKEND_REQ) | BIT(PROTOCOL_CONFIG);

	if (vhost->backend < 0 || (vhost->protocol & need) != need)
		return;
	if (!send_message(vhost->backend, &header, NULL, -1))
		log_limited(LOG_NOTE, "%s: the front end cannot be told of a new configuration: %s",
			    vhost->device.name, strerror(errno));
}

bool session_is_unix_socket(int fd)
{
	int domain = -1;
	socklen_t len = sizeof(domain);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_UNIX;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

int vhost_open(struct vhost **vhost, const struct vhost_device *device, int connection)
{
	struct vhost *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->device = *device;
	v->connection = connection;
	v->backend = -1;
	for (unsigned i = 0; i < VHOST_MAX_QUEUES; i++)
		queue_init(&v->queues[i], i);
	*vhost = v;
	return 0;
}

static void close_queue(struct vhost *vhost, struct queue *queue)
{
	queue_end(vhost, queue);
	if (queue->call >= 0)
		close(queue->call);
	if (queue->error >= 0)
		close(queue->error);
}

void vhost_close(struct vhost *vhost)
{
	if (!vhost)
		return;
	for (unsigned i = 0; i < VHOST_MAX_QUEUES; i++)
		close_queue(vhost, &vhost->queues[i]);
	memory_clear(&vhost->memory, &vhost->lost);
	dirty_close(vhost);
	inflight_close(vhost);
	close_fds(&vhost->in);
	if (vhost->backend >= 0)
		close(vhost->backend);
	close(vhost->connection);
	free(vhost);
}

int vhost_connection(const struct vhost *vhost)
{
	return vhost->connection;
}

uint64_t vhost_features(const struct vhost *vhost)
{
	return vhost->features;
}

bool vhost_lost(const struct vhost *vhost)
{
	if (vhost->lost || mapping_lost(&vhost->log) || mapping_lost(&vhost->inflight))
		return true;
	for (unsigned i = 0; i < vhost->memory.nr; i++)
		if (mapping_lost(&vhost->memory.slots[i].mapping))
			return true;
	return false;
}
