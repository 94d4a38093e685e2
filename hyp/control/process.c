// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the process does to itself before it serves: it must get memory while the host swaps, must
 * not be swapped out or killed for want of memory, and must not have more rights than it uses.
 *
 * Locking is by MCL_ONFAULT: without it the kernel would populate every mapping as it is made,
 * among them the arena (as large as the pool may ever be) and the regions of guests, which are
 * sparse files.
 */
#include "config.h"

#include "control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#define PR_GET_IO_FLUSHER 58
#endif

#define KEPT (1u << CAP_CHOWN | 1u << CAP_IPC_LOCK)

static bool have_capability(int cap)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[cap / 32].effective & (1u << (cap % 32));
}

static bool protect_io(void)
{
	int r = prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) ? -errno : 0;

	if (!r && prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) != 1)
		r = -EIO;
	if (r)
		log_msg(LOG_WARN,
			"IO_FLUSHER cannot be set (%s)%s: when the host is out of memory, the "
			"service "
			"may wait for its own guests' swap",
			strerror(-r), r == -EPERM ? ", CAP_SYS_RESOURCE is needed" : "");
	return !r;
}

static bool protect_memory(void)
{
	struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY}, limit;
	int r = 0;

	/*
	 * Under a limit MCL_FUTURE would let later mappings fail, so it takes the capability, which
	 * process_drop() keeps, or no limit.
	 */
	if (setrlimit(RLIMIT_MEMLOCK, &unlimited) && !have_capability(CAP_IPC_LOCK) &&
	    (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur != RLIM_INFINITY))
		r = -EPERM;
	if (!r && mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		r = -errno;
	if (r)
		log_msg(LOG_WARN,
			"memory cannot be locked (%s): start as root or with "
			"LimitMEMLOCK=infinity; "
			"else the host may swap the service itself out",
			strerror(-r));
	return !r;
}

/* Threads may take this niceness after process_drop() too. Whether they could is said by them. */
static void permit_priority(int nice)
{
	struct rlimit limit = {(rlim_t)(20 - nice), (rlim_t)(20 - nice)};

	setrlimit(RLIMIT_NICE, &limit);
}

static bool protect_from_oom(void)
{
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	char now[16] = "";
	bool done;

	/* The service manager may have done it; lowering it takes CAP_SYS_RESOURCE. */
	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 && !strncmp(now, "-999", 4)) {
		close(fd);
		return true;
	}
	done = fd >= 0 && pwrite(fd, "-999", 4, 0) == 4;
	if (!done)
		log_msg(LOG_WARN,
			"oom_score_adj cannot be set to -999 (%s): set OOMScoreAdjust=-999 in the "
			"unit; else the OOM killer may choose the service, which frees nothing",
			strerror(errno));
	if (fd >= 0)
		close(fd);
	return done;
}

void process_protect(int worker_nice)
{
	bool io = protect_io(), memory = protect_memory(), oom = protect_from_oom();

	permit_priority(worker_nice);
	if (io && memory && oom)
		log_msg(LOG_INFO, "IO_FLUSHER is set, memory is locked, oom_score_adj is -999");
}

static int keep_capabilities(unsigned mask)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return -errno;
	data[0].permitted &= mask;
	data[0].effective = data[0].permitted;
	data[0].inheritable = 0;
	memset(&data[1], 0, sizeof(data[1]));
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

int process_drop(const struct config *config, char *err, size_t errlen)
{
	struct passwd *pw;
	int r;

	if (config->user[0] && geteuid() == 0) {
		errno = 0;
		pw = getpwnam(config->user);
		if (!pw || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) ||
		    initgroups(config->user, pw->pw_gid) ||
		    setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) ||
		    setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid)) {
			r = errno ? -errno : -ENOENT;
			snprintf(err, errlen, "[service] user = %s: cannot become that user: %s",
				 config->user, strerror(-r));
			return r;
		}
		r = keep_capabilities(KEPT);
		if (r) {
			snprintf(err, errlen, "capabilities cannot be dropped: %s", strerror(-r));
			return r;
		}
	} else if (config->user[0]) {
		log_msg(LOG_NOTE, "[service] user = %s is left alone: not started as root",
			config->user);
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
		r = -errno;
		snprintf(err, errlen, "no_new_privs cannot be set: %s", strerror(-r));
		return r;
	}
	return 0;
}

bool log_to_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return text && sscanf(text, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &st) &&
	       st.st_dev == dev && st.st_ino == ino;
}
