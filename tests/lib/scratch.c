// SPDX-License-Identifier: GPL-2.0-or-later
#include "scratch.h"
#include "rng.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

static char dir[64];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

static void remove_files(void)
{
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Waits until nobody holds the other end of the pipe, which the kernel sees to. */
static void guard(int fd)
{
	char c;

	setsid();
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 3; i++)
		if (i != fd)
			close(i);
	while (read(fd, &c, 1) < 0 && errno == EINTR)
		;
	remove_files();
	umount2(dir, MNT_DETACH);
	remove_files();
	rmdir(dir);
	_exit(0);
}

const char *scratch_make(const char *name)
{
	int fd[2];
	pid_t pid;

	snprintf(dir, sizeof(dir), "/dev/shm/tmemd-%.24s-XXXXXX", name);
	if (!mkdtemp(dir))
		die(dir);
	if (pipe(fd))
		die("pipe");
	fcntl(fd[1], F_SETFD, FD_CLOEXEC);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		close(fd[1]);
		guard(fd[0]);
	}
	close(fd[0]);
	return dir;
}

bool scratch_mount(uint64_t bytes, const char *huge)
{
	char options[128];
	int n = snprintf(options, sizeof(options), "mode=0700");

	if (bytes)
		n += snprintf(options + n, sizeof(options) - n, ",size=%llu",
			      (unsigned long long)bytes);
	if (huge)
		snprintf(options + n, sizeof(options) - n, ",huge=%s", huge);
	return !mount("tmemd-test", dir, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

const char *scratch_path(const char *file)
{
	static _Thread_local char path[4][128];
	static _Thread_local unsigned next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, file);
	return p;
}

uint64_t test_scaled(uint64_t n)
{
	const char *scale = getenv("TMEMD_TEST_SCALE");
	uint64_t percent = scale ? strtoull(scale, NULL, 10) : 100;

	n = n * (percent ? percent : 1) / 100;
	return n ? n : 1;
}

uint64_t test_seed(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return rng_mix((uint64_t)ts.tv_sec * 1000000007u + (uint64_t)ts.tv_nsec) & 0xffffffff;
}
