// SPDX-License-Identifier: GPL-2.0-or-later
/* The background thread: sleeps until a put finds things short, or a tenth of a second. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <errno.h>

#include "base/clock.h"
#include "store/store_priv.h"

#define IDLE_MS 100

void worker_wake(struct store *store)
{
	/* One system call for many refusals. */
	if (store->worker_runs && !atomic_exchange(&store->woken, true))
		if (eventfd_write(store->wake_fd, 1) < 0)
			atomic_store(&store->woken, false);
}

bool store_work(struct store *store)
{
	bool any;

	pthread_mutex_lock(&store->work);
	pressure_check(store, !store->worker_runs);
	any = populate_step(store);
	any |= pool_sweep(store);
	if (!any)
		any = give_back_step(store) || make_room_step(store) || tidy_step(store);
	any |= away_step(store);
	pthread_mutex_unlock(&store->work);
	return any;
}

static void *worker_main(void *arg)
{
	struct store *store = arg;
	struct pollfd fd = {store->wake_fd, POLLIN, 0};
	eventfd_t v;

	prctl(PR_SET_NAME, "store");
	/* Guests' puts are refused while this thread waits for a CPU. Needs CAP_SYS_NICE. */
	setpriority(PRIO_PROCESS, gettid(), -10);
	while (!atomic_load(&store->stop)) {
		if (store_work(store))
			continue;
		poll(&fd, 1, IDLE_MS);
		/* In this order: what a put finds short after the store is seen by the next step.
		 */
		eventfd_read(store->wake_fd, &v);
		atomic_store(&store->woken, false);
	}
	return NULL;
}

int worker_start(struct store *store)
{
	sigset_t all, old;
	int r;

	store->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (store->wake_fd < 0)
		return -errno;
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	store->worker_runs = true;
	r = -pthread_create(&store->worker, NULL, worker_main, store);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		store->worker_runs = false;
	return r;
}

void worker_stop(struct store *store)
{
	if (store->worker_runs) {
		atomic_store(&store->stop, true);
		eventfd_write(store->wake_fd, 1);
		pthread_join(store->worker, NULL);
		store->worker_runs = false;
	}
	if (store->wake_fd >= 0)
		close(store->wake_fd);
	store->wake_fd = -1;
}
