// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The protocol of QEMU's ivshmem server, version 0: messages of one little-endian 64-bit number,
 * some with a file descriptor.
 *
 *   0                 version of the protocol
 *   0                 the peer's id: 0, so that QEMU may be told master=on
 *   -1     + fd       the region
 *   1      + fd       n times: the doorbells of peer 1, which is the service
 *   0      + fd       n times: the peer's own doorbells
 *
 * Nothing is ever received. Each client has its own socket; a connection only hands things out,
 * and its end means nothing as long as the process lives.
 */
#include "front_priv.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

static void unlisten(struct front_client *client)
{
	if (client->listener < 0)
		return;
	door_remove(client->front, client->listener);
	socket_close(&client->listener, client->socket);
	client->deaf = false;
}

/* In the place of the socket that it had. */
static int listen_anew(struct front_client *client, const struct front_socket *access)
{
	int fd = socket_listen(access), r;

	if (fd < 0)
		return fd;
	r = door_add(client, DOOR_LISTENER, fd);
	if (r) {
		socket_close(&fd, access->path);
		return r;
	}
	unlisten(client);
	client->listener = fd;
	snprintf(client->socket, sizeof(client->socket), "%s", access->path);
	return 0;
}

static int open_socket(struct front_client *client, const struct front_client_config *config,
		       char *err, size_t errlen)
{
	struct front_socket access = {.path = config->socket,
				      .mode = config->socket_mode,
				      .uid = config->socket_uid,
				      .gid = config->socket_gid};
	int r = -ENAMETOOLONG;

	if (strlen(config->socket) < sizeof(client->socket))
		r = strcmp(client->socket, config->socket) ? listen_anew(client, &access)
							   : socket_set_access(&access);
	if (r)
		snprintf(err, errlen, "client %s: socket %s: %s", client->name, config->socket,
			 strerror(-r));
	return r;
}

static int send_message(int sock, int64_t value, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	int64_t wire = (int64_t)htole64((uint64_t)value);
	struct iovec iov = {.iov_base = &wire, .iov_len = sizeof(wire)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	/* All messages fit into an empty socket's buffer; who does not read is not waited for. */
	if (sendmsg(sock, &message, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(wire))
		return errno ? -errno : -EIO;
	return 0;
}

static int hand_out(const struct front_client *client, int sock)
{
	unsigned v;
	int r;

	r = send_message(sock, 0, -1);
	if (!r)
		r = send_message(sock, FRONT_VM_PEER, -1);
	if (!r)
		r = send_message(sock, -1, client->region.fd);
	for (v = 0; v < client->max_rings && !r; v++)
		r = send_message(sock, FRONT_SERVICE_PEER, client->rings[v].bell_in);
	for (v = 0; v < client->max_rings && !r; v++)
		r = send_message(sock, FRONT_VM_PEER, client->rings[v].bell_out);
	return r;
}

static void drop_bells(struct front_client *client)
{
	bells_unwatch(client);
	for (unsigned v = 0; v < TMEM_MAX_RINGS; v++) {
		struct ring *ring = &client->rings[v];

		if (ring->bell_in >= 0)
			close(ring->bell_in);
		if (ring->bell_out >= 0)
			close(ring->bell_out);
		ring->bell_in = ring->bell_out = -1;
	}
}

static bool ring_bell(struct ring *ring)
{
	return ringer_ring(ring->lane.ringer, ring->bell_out);
}

static int make_bells(struct front_client *client)
{
	for (unsigned v = 0; v < client->max_rings; v++) {
		struct ring *ring = &client->rings[v];

		ring->bell_in = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		ring->bell_out = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (ring->bell_in < 0 || ring->bell_out < 0)
			return -errno;
	}
	return bells_watch(client);
}

static void close_connection(struct front_client *client)
{
	if (client->connection < 0)
		return;
	door_remove(client->front, client->connection);
	close(client->connection);
	client->connection = -1;
}

static void hang_up(struct front_client *client, bool forever)
{
	if (forever)
		fdstore_forget(client);
	close_connection(client);
	drop_bells(client);
}

static void unmap(struct front_client *client, bool forever)
{
	region_close(&client->region);
	if (forever)
		unlinkat(client->front->dir, client->file, 0);
}

/* New doorbells, then everything to the peer. */
static int connect_peer(struct front_client *client, int sock)
{
	int r;

	life_stop(client);
	fdstore_forget(client);
	drop_bells(client);
	r = make_bells(client);
	client->polling = r != 0;
	if (r)
		drop_bells(client);
	WRITE_ONCE(region_page(&client->region)->polling, client->polling);
	if (!r)
		r = hand_out(client, sock);
	if (!r)
		r = door_add(client, DOOR_CONNECTION, sock);
	if (!r) {
		client->connection = sock;
		fdstore_keep(client);
	}
	life_serve(client);
	return r;
}

/*
 * Who may have the region: nobody had it (then a life is begun), or the process that has it lost
 * its connection.
 */
static int admit(struct front_client *client, struct owner *owner, bool *begun)
{
	int r;

	if (client->owner.pid && !owner_alive(&client->owner))
		life_end(client);
	if (client->connection >= 0 && socket_peer_closed(client->connection))
		close_connection(client);
	if (client->owner.pid) {
		bool same =
			client->owner.pid == owner->pid && client->owner.key[0] == owner->key[0];

		owner_close(owner);
		return same && client->connection < 0 ? 0 : -EBUSY;
	}
	r = -ENOMEM;
	if (store_has_room(client->front->store, client->region_bytes))
		r = region_create(&client->region, client->front->dir, client->file,
				  client->region_bytes);
	if (r) {
		owner_close(owner);
		return r;
	}
	owner->key[1] = client->region.inode;
	life_begin(client, owner);
	*begun = true;
	return door_add(client, DOOR_OWNER, client->owner.pidfd);
}

/* The connection stays in the queue and would wake us without end: it has to wait a while. */
static void cannot_accept(struct front_client *client, int error)
{
	if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
		return;
	log_limited(LOG_WARN, "client %s: a connection waits, it cannot be accepted: %s",
		    client->name, strerror(error));
	door_remove(client->front, client->listener);
	client->deaf = true;
}

void ivshmem_accept(struct front_client *client)
{
	int sock = accept4(client->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct owner owner;
	bool begun = false;
	pid_t pid;
	int r;

	if (sock < 0) {
		cannot_accept(client, errno);
		return;
	}
	r = owner_of_socket(&owner, sock);
	pid = owner.pid;
	if (!r)
		r = admit(client, &owner, &begun);
	if (!r)
		r = connect_peer(client, sock);
	if (!r)
		return;
	/* It has nothing in its hands; the next one is to have a chance. */
	if (begun)
		life_end(client);
	close(sock);
	counter_add(&client->counters[CLIENT_CONNECTS_REFUSED], 1);
	log_limited(LOG_WARN, "client %s: connection of process %d refused: %s", client->name,
		    (int)pid, r == -EBUSY ? "the region has an owner" : strerror(-r));
}

void ivshmem_connection(struct front_client *client)
{
	char bytes[64];
	ssize_t n;

	if (client->connection < 0)
		return;
	n = recv(client->connection, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		log_limited(LOG_WARN, "client %s: the peer sent something; connection closed",
			    client->name);
	close_connection(client);
}

/* ---- What an earlier run left -----------------------------------------------------------------
 */

/* A region that the arena does not know: whoever has it mapped waits for pages that are gone. */
static void bury(struct front_client *client)
{
	struct answer answer = {.state = TMEM_SERVICE_REFUSED, .refusal = TMEM_REFUSED_STATE};
	struct region region = {.fd = -1};
	struct tmem_region *page;

	if (!region_open(&region, client->front->dir, client->file, 0, TMEM_PAGE_SIZE)) {
		page = region_page(&region);
		answer.epoch = READ_ONCE(page->guest_epoch);
		region_answer(&region, &answer);
		region_close(&region);
	}
	unlinkat(client->front->dir, client->file, 0);
}

static int attach(struct front_client *client)
{
	struct owner noted = client->owner;
	int r = owner_find(&client->owner, noted.pid, noted.key[0]);

	if (!r) {
		client->owner.key[1] = noted.key[1];
		r = region_open(&client->region, client->front->dir, client->file, noted.key[1],
				client->region.bytes);
	}
	if (r == -ESRCH || r == -ENOENT || r == -ESTALE) {
		log_msg(LOG_NOTE, "client %s: %s; its life is over", client->name,
			r == -ESRCH ? "its owner is gone" : "its region is gone");
		life_end(client);
		return 0;
	}
	if (!r)
		r = door_add(client, DOOR_OWNER, client->owner.pidfd);
	if (r)
		return r;
	client->polling = !fdstore_take(client);
	if (client->polling)
		drop_bells(client);
	r = life_attach_again(client);
	if (!r)
		log_msg(LOG_INFO, "client %s: attached again to process %d, %s", client->name,
			(int)client->owner.pid,
			client->polling ? "without doorbells" : "with its doorbells");
	return r;
}

const struct channel_ops ivshmem_channel = {
	.note = 1,
	.open = open_socket,
	.close = unlisten,
	.attach = attach,
	.bury = bury,
	.hang_up = hang_up,
	.unmap = unmap,
	.ring = ring_bell,
};
