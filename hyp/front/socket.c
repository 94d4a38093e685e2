// SPDX-License-Identifier: GPL-2.0-or-later
/* The Unix sockets that clients and disks are reached by. */
#include "front_priv.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int socket_set_access(const struct front_socket *access)
{
	if (chown(access->path, access->uid, access->gid) || chmod(access->path, access->mode))
		return -errno;
	return 0;
}

static int listen_at(int fd, const struct front_socket *access)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	int r;

	/* One of an earlier run; nobody else serves it, for we have the arena's lock. */
	if (!lstat(access->path, &st) && S_ISSOCK(st.st_mode))
		unlink(access->path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", access->path);
	/* The file gets the socket's mode, so that it never is open to others. */
	if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	r = socket_set_access(access);
	if (!r && listen(fd, 4))
		r = -errno;
	if (r)
		unlink(access->path);
	return r;
}

int socket_listen(const struct front_socket *access)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = listen_at(fd, access);
	if (!r)
		return fd;
	close(fd);
	return r;
}

void socket_close(int *fd, const char *path)
{
	if (*fd < 0)
		return;
	close(*fd);
	unlink(path);
	*fd = -1;
}

bool socket_peer_closed(int sock)
{
	char byte;

	return recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}
