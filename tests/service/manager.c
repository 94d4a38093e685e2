// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager.h"
#include "player.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_KEPT 128
#define FIRST_FD 3

static char notify_path[108];
static int notify = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char name[96];
	int fd;
} kept[MAX_KEPT];
static int nr_kept, max_kept = MAX_KEPT;

static void forget(const char *name)
{
	for (int i = 0; i < nr_kept; i++)
		if (!strcmp(kept[i].name, name)) {
			close(kept[i].fd);
			kept[i--] = kept[--nr_kept];
		}
}

static void keep(const char *name, int fd)
{
	snprintf(kept[nr_kept].name, sizeof(kept[nr_kept].name), "%s", name);
	kept[nr_kept++].fd = fd;
}

static void handle(const char *text, int fd)
{
	const char *name = strstr(text, "FDNAME=");
	char copy[96] = "";

	if (name)
		snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(name + 7, "\n"), name + 7);
	pthread_mutex_lock(&lock);
	if (strstr(text, "FDSTOREREMOVE=1")) {
		forget(copy);
	} else if (strstr(text, "FDSTORE=1") && fd >= 0 && nr_kept < max_kept) {
		keep(copy, fd);
		fd = -1;
	}
	pthread_mutex_unlock(&lock);
	if (fd >= 0)
		close(fd);
}

static void *listen_for_ever(void *arg)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char text[512];

	(void)arg;
	for (;;) {
		struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.room,
				     .msg_controllen = sizeof(control.room)};
		ssize_t n = recvmsg(notify, &msg, MSG_CMSG_CLOEXEC);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		int fd = -1;

		if (n < 0)
			return NULL;
		text[n] = 0;
		if (c && c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		handle(text, fd);
	}
}

void manager_open(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_t thread;

	snprintf(notify_path, sizeof(notify_path), "%s", path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(notify >= 0);
	CHECK(!bind(notify, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!pthread_create(&thread, NULL, listen_for_ever, NULL));
}

int manager_kept(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = nr_kept;
	pthread_mutex_unlock(&lock);
	return n;
}

void manager_limit(int max)
{
	pthread_mutex_lock(&lock);
	max_kept = max;
	pthread_mutex_unlock(&lock);
}

int manager_get(const char *name)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < nr_kept && fd < 0; i++)
		if (!strcmp(kept[i].name, name))
			fd = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&lock);
	return fd;
}

void manager_forget(const char *name)
{
	pthread_mutex_lock(&lock);
	forget(name);
	pthread_mutex_unlock(&lock);
}

void manager_put(const char *name, int fd)
{
	CHECK(fd >= 0);
	pthread_mutex_lock(&lock);
	forget(name);
	keep(name, fd);
	pthread_mutex_unlock(&lock);
}

void manager_hand_over(void)
{
	char names[MAX_KEPT * 96] = "", number[16];
	int high[MAX_KEPT];

	if (notify < 0)
		return;
	setenv("NOTIFY_SOCKET", notify_path, 1);
	for (int i = 0; i < nr_kept; i++)
		high[i] = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, FIRST_FD + 2 * MAX_KEPT);
	for (int i = 0; i < nr_kept; i++) {
		CHECK(dup2(high[i], FIRST_FD + i) == FIRST_FD + i);
		if (i)
			strcat(names, ":");
		strcat(names, kept[i].name);
	}
	snprintf(number, sizeof(number), "%d", nr_kept);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", names, 1);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
}
