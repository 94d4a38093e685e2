// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The owner of a region holds its file and may cut it or punch holes into it; the next access
 * here is then a SIGBUS. Jumping out of it could leave a lock of the store held. So the handler
 * puts private zeroed memory in the place of the whole mapping and marks the region lost: the
 * access goes on, with nonsense that is checked like any other, and the door ends that life.
 */
#include "front_priv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

/* The handler may not take locks, nor look at memory that somebody may free. base 0: free. */
static struct watched {
	_Atomic uintptr_t base;
	_Atomic uint64_t bytes;
	_Atomic bool lost;
} watched[STORE_MAX_CLIENTS];

static struct watched *find(uintptr_t address)
{
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		uintptr_t base = atomic_load(&watched[i].base);

		if (base && address - base < atomic_load(&watched[i].bytes))
			return &watched[i];
	}
	return NULL;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct watched *w = find((uintptr_t)info->si_addr);
	int saved = errno;

	(void)context;
	/* Not ours: return to the same instruction and die of it as usual. */
	if (!w ||
	    mmap((void *)atomic_load(&w->base), atomic_load(&w->bytes), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
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

/* Under front.lock: one thread at a time. */
int sigbus_watch(struct region *region)
{
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		struct watched *w = &watched[i];

		if (atomic_load(&w->base))
			continue;
		atomic_store(&w->lost, false);
		atomic_store(&w->bytes, region->bytes);
		atomic_store(&w->base, (uintptr_t)region->base);
		region->lost = &w->lost;
		return 0;
	}
	return -ENOSPC;
}

void sigbus_unwatch(struct region *region)
{
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (atomic_load(&watched[i].base) == (uintptr_t)region->base)
			atomic_store(&watched[i].base, 0);
}
