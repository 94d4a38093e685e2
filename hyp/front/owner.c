// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A life ends when the process that owns the region is gone, not when a connection drops. A pid
 * is used again; with the time of its start it names one process for as long as the host runs.
 */
#include "front_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int start_time(pid_t pid, uint64_t *start)
{
	char path[32], text[1024], *at;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return -ESRCH;
	text[len] = 0;
	/* The name, field 2, may hold anything; field 3 begins after its last parenthesis. */
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EPROTO;
	*start = strtoull(at, NULL, 10);
	return 0;
}

/* The process is pinned by the pidfd first, so that its start time cannot be another one's. */
static int pin(struct owner *owner, pid_t pid)
{
	int r;

	*owner = (struct owner){.pidfd = syscall(SYS_pidfd_open, pid, 0)};
	if (owner->pidfd < 0)
		return -errno;
	fcntl(owner->pidfd, F_SETFD, FD_CLOEXEC);
	r = start_time(pid, &owner->key[0]);
	if (!r) {
		owner->pid = pid;
		if (!owner_alive(owner))
			r = -ESRCH;
	}
	if (r)
		owner_close(owner);
	return r;
}

int owner_of_socket(struct owner *owner, int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*owner = (struct owner){.pidfd = -1};
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	/* 0: a process of a pid namespace that is not seen from here. */
	return cred.pid > 0 ? pin(owner, cred.pid) : -ESRCH;
}

int owner_find(struct owner *owner, pid_t pid, uint64_t start)
{
	int r = pin(owner, pid);

	if (!r && owner->key[0] != start) {
		owner_close(owner);
		r = -ESRCH;
	}
	return r;
}

bool owner_alive(const struct owner *owner)
{
	struct pollfd p = {.fd = owner->pidfd, .events = POLLIN};

	return owner->pid && poll(&p, 1, 0) == 0;
}

void owner_close(struct owner *owner)
{
	if (owner->pidfd >= 0)
		close(owner->pidfd);
	owner->pidfd = -1;
	owner->pid = 0;
}
