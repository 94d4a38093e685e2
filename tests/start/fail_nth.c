// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A library to preload: of the calls by which a program asks for memory, descriptors and files, the
 * one with number FAIL_NTH fails, as it would on a host that has no more. Counting begins at
 * main(). The call that failed is written to the file FAIL_NTH_REPORT.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc's own names of what is replaced here; dlsym() may itself allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static atomic_long left; /* calls until the one that fails; 0: not any more, or not yet */

static void __attribute__((constructor)) begin(void)
{
	const char *nth = getenv("FAIL_NTH");

	if (nth)
		atomic_store(&left, strtol(nth, NULL, 10));
}

/* Nothing here may be a call that is counted. */
static void report(const char *call, const void *caller)
{
	const char *path = getenv("FAIL_NTH_REPORT");
	char text[256];
	Dl_info info = {0};
	int fd, n;

	if (!path)
		return;
	dladdr(caller, &info);
	n = snprintf(text, sizeof(text), "%s called by %s+%#lx\n", call,
		     info.dli_fname ? info.dli_fname : "?",
		     (unsigned long)((const char *)caller - (const char *)info.dli_fbase));
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || syscall(SYS_write, fd, text, (size_t)n) != n)
		abort();
	syscall(SYS_close, fd);
}

static bool fails(const char *call, const void *caller, int error)
{
	long n = atomic_load(&left);

	while (n > 0 && !atomic_compare_exchange_weak(&left, &n, n - 1))
		;
	if (n != 1)
		return false;
	report(call, caller);
	errno = error;
	return true;
}

#define FAILS(call, error) fails(call, __builtin_return_address(0), error)

void *malloc(size_t bytes)
{
	return FAILS("malloc", ENOMEM) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	return FAILS("calloc", ENOMEM) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
	return FAILS("realloc", ENOMEM) ? NULL : __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return FAILS("aligned_alloc", ENOMEM) ? NULL : __libc_memalign(align, bytes);
}

int posix_memalign(void **p, size_t align, size_t bytes)
{
	if (FAILS("posix_memalign", ENOMEM))
		return ENOMEM;
	*p = __libc_memalign(align, bytes);
	return *p ? 0 : ENOMEM;
}

/* The next function of this name, and what it returns unless it is its turn to fail. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define INT_CALL(name, error, params, ...)                                                         \
	int name params                                                                            \
	{                                                                                          \
		return FAILS(#name, error) ? -1 : NEXT(name)(__VA_ARGS__);                         \
	}

INT_CALL(epoll_create1, EMFILE, (int flags), flags)
INT_CALL(epoll_ctl, ENOMEM, (int ep, int op, int fd, struct epoll_event *e), ep, op, fd, e)
INT_CALL(eventfd, EMFILE, (unsigned int value, int flags), value, flags)
INT_CALL(socket, EMFILE, (int domain, int type, int protocol), domain, type, protocol)
INT_CALL(socketpair, EMFILE, (int domain, int type, int protocol, int fd[2]), domain, type,
	 protocol, fd)
INT_CALL(pipe2, EMFILE, (int fd[2], int flags), fd, flags)
INT_CALL(bind, ENOMEM, (int fd, const struct sockaddr *a, socklen_t len), fd, a, len)
INT_CALL(listen, ENOMEM, (int fd, int backlog), fd, backlog)
INT_CALL(mkdir, ENOSPC, (const char *path, mode_t mode), path, mode)
INT_CALL(ftruncate, ENOSPC, (int fd, off_t len), fd, len)
INT_CALL(ftruncate64, ENOSPC, (int fd, off64_t len), fd, len)
INT_CALL(fallocate, ENOSPC, (int fd, int mode, off_t off, off_t len), fd, mode, off, len)
INT_CALL(fallocate64, ENOSPC, (int fd, int mode, off64_t off, off64_t len), fd, mode, off, len)
INT_CALL(memfd_create, EMFILE, (const char *name, unsigned int flags), name, flags)
INT_CALL(madvise, ENOMEM, (void *at, size_t len, int advice), at, len, advice)

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
	if (FAILS("pthread_create", EAGAIN))
		return EAGAIN;
	return NEXT(pthread_create)(thread, attr, main, arg);
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	if (FAILS("mmap", ENOMEM))
		return MAP_FAILED;
	return NEXT(mmap)(at, len, prot, flags, fd, off);
}

void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t off)
{
	if (FAILS("mmap64", ENOMEM))
		return MAP_FAILED;
	return NEXT(mmap64)(at, len, prot, flags, fd, off);
}

FILE *fopen(const char *path, const char *mode)
{
	return FAILS("fopen", EMFILE) ? NULL : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return FAILS("fopen64", EMFILE) ? NULL : NEXT(fopen64)(path, mode);
}

/* The mode is read whether it was given or not, as the kernel does. */
#define OPEN_CALL(name, dirfd, params)                                                             \
	int name params                                                                            \
	{                                                                                          \
		va_list ap;                                                                        \
		int mode;                                                                          \
                                                                                                   \
		va_start(ap, flags);                                                               \
		mode = va_arg(ap, int);                                                            \
		va_end(ap);                                                                        \
		if (FAILS(#name, EMFILE))                                                          \
			return -1;                                                                 \
		return (int)syscall(SYS_openat, dirfd, path, flags, mode);                         \
	}

OPEN_CALL(open, AT_FDCWD, (const char *path, int flags, ...))
OPEN_CALL(open64, AT_FDCWD, (const char *path, int flags, ...))
OPEN_CALL(openat, dir, (int dir, const char *path, int flags, ...))
OPEN_CALL(openat64, dir, (int dir, const char *path, int flags, ...))
