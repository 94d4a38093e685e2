// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/lib/noalloc.h"

#ifndef NOALLOC_SKIPS
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local bool noalloc_forbidden;

static void used(const char *what)
{
	char text[80];
	int n;

	if (!noalloc_forbidden)
		return;
	noalloc_forbidden = false;
	n = snprintf(text, sizeof(text), "FAIL: %s() on the page path\n", what);
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(NOALLOC_STATUS + 1);
	_exit(NOALLOC_STATUS);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

void *malloc(size_t n)
{
	used("malloc");
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	used("calloc");
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	used("realloc");
	return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	used("aligned_alloc");
	return __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
	used("posix_memalign");
	*p = __libc_memalign(align, n);
	return *p ? 0 : ENOMEM;
}

void free(void *p)
{
	used("free");
	__libc_free(p);
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	used("mmap");
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int munmap(void *addr, size_t len)
{
	used("munmap");
	return syscall(SYS_munmap, addr, len);
}

int madvise(void *addr, size_t len, int advice)
{
	used("madvise");
	return syscall(SYS_madvise, addr, len, advice);
}

void *mremap(void *addr, size_t old, size_t len, int flags, ...)
{
	used("mremap");
	return (void *)syscall(SYS_mremap, addr, old, len, flags, 0);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	used("fallocate");
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}
#endif
