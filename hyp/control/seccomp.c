// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The filter of system calls, set after start-up for all threads.
 *
 * What is not in the list fails with EPERM: the service loses one function, says so, and goes on;
 * being killed by a filter would be worse for its guests. The list says why each group is there.
 * `seccomp = off` in [service] leaves the filter out.
 */
#include "config.h"

#include "control/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(HAVE_SECCOMP) && !defined(SANITIZED)
#include <seccomp.h>

static const char *const allowed[] = {
	/* Pages, rings, doorbells: worker threads. */
	"read",
	"write",
	"readv",
	"writev",
	"pread64",
	"pwrite64",
	"epoll_create1",
	"epoll_ctl",
	"epoll_wait",
	"epoll_pwait",
	"epoll_pwait2",
	"poll",
	"ppoll",
	"eventfd2",
	"io_submit",
	"io_getevents",
	"io_destroy",
	"futex",
	"sched_yield",
	"clock_gettime",
	"clock_getres",
	"clock_nanosleep",
	"nanosleep",
	"gettimeofday",
	"time",
	"getcpu",
	"timerfd_create",
	"timerfd_settime",
	"timerfd_gettime",
	/* The arena and regions: taking memory and giving it back. */
	"mmap",
	"munmap",
	"mremap",
	"mprotect",
	"madvise",
	"brk",
	"mlock",
	"mlock2",
	"munlock",
	"msync",
	"mincore",
	"fallocate",
	"ftruncate",
	"flock",
	"memfd_create",
	"statfs",
	"fstatfs",
	/* Files: configuration at reload, /proc/meminfo, /proc/PID/stat, regions, sockets' files.
	 */
	"open",
	"openat",
	"openat2",
	"close",
	"close_range",
	"stat",
	"fstat",
	"lstat",
	"newfstatat",
	"statx",
	"lseek",
	"fcntl",
	"access",
	"faccessat",
	"faccessat2",
	"readlink",
	"readlinkat",
	"getdents64",
	"mkdir",
	"mkdirat",
	"unlink",
	"unlinkat",
	"rename",
	"renameat",
	"renameat2",
	"chmod",
	"fchmod",
	"fchmodat",
	"chown",
	"fchown",
	"lchown",
	"fchownat",
	"umask",
	"dup",
	"dup2",
	"dup3",
	"pipe",
	"pipe2",
	"fsync",
	"fdatasync",
	"getcwd",
	/* Unix sockets: guests' doors, the control socket, the service manager, name services. */
	"socket",
	"socketpair",
	"bind",
	"listen",
	"accept",
	"accept4",
	"connect",
	"shutdown",
	"sendto",
	"sendmsg",
	"sendmmsg",
	"recvfrom",
	"recvmsg",
	"recvmmsg",
	"getsockopt",
	"setsockopt",
	"getsockname",
	"getpeername",
	/* Whether a VM's process lives, and the process itself. */
	"pidfd_open",
	"getpid",
	"getppid",
	"gettid",
	"kill",
	"tgkill",
	"getuid",
	"geteuid",
	"getgid",
	"getegid",
	"getgroups",
	"capget",
	"prctl",
	"getrlimit",
	"prlimit64",
	"getrusage",
	"sysinfo",
	"uname",
	"getrandom",
	"sched_getaffinity",
	"sched_setaffinity",
	"sched_getparam",
	"sched_getscheduler",
	"membarrier",
	"ioctl",
	/* Threads and signals. */
	"clone",
	"clone3",
	"set_robust_list",
	"get_robust_list",
	"rseq",
	"set_tid_address",
	"arch_prctl",
	"exit",
	"exit_group",
	"rt_sigaction",
	"rt_sigprocmask",
	"rt_sigreturn",
	"rt_sigtimedwait",
	"rt_sigpending",
	"sigaltstack",
	"signalfd4",
	"restart_syscall",
};

int process_seccomp(char *err, size_t errlen)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = -ENOMEM, call;

	if (!filter)
		goto failed;
	r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r)
		goto failed;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		call = seccomp_syscall_resolve_name(allowed[i]);
		if (call < 0) /* not on this architecture */
			continue;
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
		if (r)
			goto failed;
	}
	r = seccomp_load(filter);
failed:
	if (r)
		snprintf(err, errlen, "the system call filter cannot be set: %s", strerror(-r));
	if (filter)
		seccomp_release(filter);
	return r;
}

#else

int process_seccomp(char *err, size_t errlen)
{
	snprintf(err, errlen, "built without a system call filter");
	return -ENOTSUP;
}

#endif
