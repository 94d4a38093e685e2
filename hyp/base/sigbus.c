// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The owner of a region, or of a guest's memory, holds its file and may cut it or punch holes into
 * it; the next access here is then a SIGBUS. Jumping out of it could leave a lock of the store
 * held. So the handler puts private zeroed memory in the place of the whole mapping and marks it
 * lost: the access goes on, with nonsense that is checked like any other, and whoever mapped it
 * ends that client's connection.
 */
#include "sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_WATCHED 4096

/* The handler may not take locks, nor look at memory that somebody may free. base 0: free. */
static struct watched {
	_Atomic uintptr_t base;
	_Atomic uint64_t bytes;
	_Atomic bool lost;
} watched[MAX_WATCHED];

/* Of those who change the table. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct watched *find(uintptr_t address)
{
	for (unsigned i = 0; i < MAX_WATCHED; i++) {
		uintptr_t base = atomic_load(&watched[i].base);

		if (base && address - base < atomic_load(&watched[i].bytes))
			return &watched[i];
	}
	return NULL;
}

/*
 * A guest's memory may be larger than what the host could promise: nothing is reserved. The bare
 * call, for the thread sanitizer takes mmap() for a write to all of the memory, and other threads
 * go on reading there: what they find is checked like anything that the owner may write.
 */
static bool put_zeroes(uintptr_t base, uint64_t bytes)
{
	return syscall(SYS_mmap, base, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != -1;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct watched *w = find((uintptr_t)info->si_addr);
	int saved = errno;

	(void)context;
	/* Not ours: return to the same instruction and die of it as usual. */
	if (!w || !put_zeroes(atomic_load(&w->base), atomic_load(&w->bytes)))
		signal(sig, SIG_DFL);
	else
		atomic_store(&w->lost, true);
	errno = saved;
}

int sigbus_install(void)
{
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}

int sigbus_watch(void *base, size_t bytes, _Atomic bool **lost)
{
	int r = -ENOSPC;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_WATCHED && r; i++) {
		struct watched *w = &watched[i];

		if (atomic_load(&w->base))
			continue;
		atomic_store(&w->lost, false);
		atomic_store(&w->bytes, bytes);
		atomic_store(&w->base, (uintptr_t)base);
		*lost = &w->lost;
		r = 0;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void sigbus_unwatch(void *base)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_WATCHED; i++)
		if (atomic_load(&watched[i].base) == (uintptr_t)base)
			atomic_store(&watched[i].base, 0);
	pthread_mutex_unlock(&lock);
}
