// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Workers execute lanes: the rings of clients and the queues of disks. Each lane belongs to one
 * worker; the lanes of one client are spread.
 *
 * Fairness: deficit round-robin over clients, in nanoseconds of measured work. In each round a
 * client with something to do gets QUANTUM_NS; batches are cut to what is left of it, and what a
 * batch takes too much is missing in the next round. A flood delays its sender only: others wait
 * for one quantum of each busy client, however many entries that one has submitted.
 *
 * Idle workers poll for a while, then ask for doorbells and sleep. The polling window grows when
 * work came soon after falling asleep, and shrinks when it did not. Clients without doorbells (the
 * service was restarted and nobody kept them) are looked at by a timer instead.
 */
#include "front_priv.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

#define QUANTUM_NS (100 * CLOCK_US)
#define PAGE_NS_MAX (20 * CLOCK_US) /* a page is charged no more: we may have been preempted */
#define PAGE_NS_START (4 * CLOCK_US)
#define POLL_NS_MIN (2 * CLOCK_US)
#define WAKE_NS (50 * CLOCK_US) /* what a wake-up on another CPU takes, see docs/performance.md */
#define NAP_NS_MIN (50 * CLOCK_US)
#define NAP_NS_ACTIVE (2 * CLOCK_MS)
#define NAP_NS_IDLE (8 * CLOCK_MS)
#define IDLE_NS CLOCK_S /* without work for so long is idle */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- One round ------------------------------------------------------------------------------ */

static bool pending(struct lane *lane)
{
	return lane->ops->pending(lane);
}

static bool share_pending(const struct share *share)
{
	for (struct lane *lane = share->lanes; lane; lane = lane->next)
		if (pending(lane))
			return true;
	return false;
}

/* The lanes of a client take turns. */
static struct lane *next_pending(struct share *share)
{
	struct lane *lane = share->current ? share->current : share->lanes;
	struct lane *first = lane;

	do {
		if (pending(lane)) {
			share->current = lane->next;
			return lane;
		}
		lane = lane->next ? lane->next : share->lanes;
	} while (lane != first);
	return NULL;
}

static void charge(struct share *share, uint64_t ns, unsigned pages)
{
	if (ns > pages * PAGE_NS_MAX)
		ns = pages * PAGE_NS_MAX;
	share->deficit -= (int64_t)ns;
	share->page_ns = (7 * share->page_ns + (uint32_t)(ns / pages)) / 8;
	if (!share->page_ns)
		share->page_ns = 1;
}

/* Executes what the client has submitted, as far as its deficit reaches. */
static void run_share(struct share *share)
{
	uint64_t start = clock_ns(), now;

	while (share->deficit > 0) {
		uint64_t fits = (uint64_t)share->deficit / share->page_ns;
		struct lane *lane = next_pending(share);
		unsigned max = fits > FRONT_BATCH ? FRONT_BATCH : fits ? (unsigned)fits : 1;
		unsigned nr;

		if (!lane) {
			share->deficit = 0;
			return;
		}
		nr = lane->ops->step(lane, max);
		if (!nr)
			return;
		now = clock_ns();
		charge(share, now - start, nr);
		start = now;
	}
}

static bool share_stopped(struct share *share)
{
	return atomic_load_explicit(&share->served->broken, memory_order_relaxed) ||
	       atomic_load_explicit(&share->served->held, memory_order_relaxed);
}

/* True when there was something to do. */
static bool round_robin(struct worker *worker)
{
	bool busy = false;

	for (struct share *share = worker->shares; share; share = share->next) {
		if (share_stopped(share) || !share_pending(share)) {
			share->deficit = 0;
			continue;
		}
		busy = true;
		share->deficit += QUANTUM_NS;
		run_share(share);
	}
	return busy;
}

static void do_chores(struct worker *worker)
{
	if (!atomic_exchange(&worker->chores, false))
		return;
	for (struct share *share = worker->shares; share; share = share->next)
		for (struct lane *lane = share->lanes; lane && !share_stopped(share);
		     lane = lane->next)
			if (lane->ops->chore)
				lane->ops->chore(lane);
}

/* ---- Sleeping ------------------------------------------------------------------------------- */

/* Asks for doorbells. False when there is work after all. */
static bool arm(struct worker *worker)
{
	struct share *share;

	for (share = worker->shares; share; share = share->next)
		for (struct lane *lane = share->lanes; lane; lane = lane->next)
			lane->armed = lane->ops->arm(lane);
	/* What was submitted is looked at after that is visible; the guest does it in reverse. */
	atomic_thread_fence(memory_order_seq_cst);
	for (share = worker->shares; share; share = share->next)
		if (!share_stopped(share) && share_pending(share))
			return false;
	return true;
}

/* So that no doorbell rings while we are awake. */
static void disarm(struct worker *worker)
{
	for (struct share *share = worker->shares; share; share = share->next)
		for (struct lane *lane = share->lanes; lane; lane = lane->next) {
			if (lane->armed)
				lane->ops->disarm(lane);
			lane->armed = false;
		}
}

static void heard(struct lane *lane)
{
	counter_add(&lane->served->counters[CLIENT_DOORBELLS_IN], 1);
	if (lane->ops->heard)
		lane->ops->heard(lane);
}

/*
 * Doorbells are watched for edges and never read: the owner may have emptied one before us, and
 * may have made its reads wait (see bell.c).
 */
static void hear_bells(struct worker *worker, int wait_ms)
{
	struct epoll_event events[16];
	int n = epoll_wait(worker->epoll, events, 16, wait_ms);
	uint64_t count;

	for (int i = 0; i < n; i++)
		if (events[i].data.ptr)
			heard(events[i].data.ptr);
		else
			(void)!read(worker->wake, &count, sizeof(count));
}

static void sleep_for_bells(struct worker *worker)
{
	struct pollfd p = {.fd = worker->epoll, .events = POLLIN};
	struct timespec nap = {.tv_nsec = (long)worker->nap_ns};

	bool timed = atomic_load(&worker->timed) != 0;

	if (timed && ppoll(&p, 1, &nap, NULL) <= 0)
		return;
	hear_bells(worker, timed ? 0 : -1);
}

/* Sleeps until a doorbell or the timer, and learns from how long that was. */
static void rest(struct worker *worker, uint64_t last_work)
{
	uint64_t start = clock_ns(), slept, max = worker->front->poll_ns;

	if (arm(worker)) {
		sleep_for_bells(worker);
		slept = clock_ns() - start;
		/* Work that came while we would still have polled; hearing of it takes its time. */
		if (slept < max + WAKE_NS)
			worker->poll_ns *= 2;
		else
			worker->poll_ns /= 2;
		if (worker->poll_ns < POLL_NS_MIN)
			worker->poll_ns = POLL_NS_MIN;
		if (worker->poll_ns > max)
			worker->poll_ns = max;
		worker->nap_ns *= 2;
		if (worker->nap_ns > NAP_NS_ACTIVE)
			worker->nap_ns = start - last_work > IDLE_NS ? NAP_NS_IDLE : NAP_NS_ACTIVE;
	}
	disarm(worker);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void pause_here(struct front *front)
{
	pthread_mutex_lock(&front->pause_lock);
	front->paused++;
	pthread_cond_signal(&front->pause_cond);
	while (atomic_load(&front->pausing))
		pthread_cond_wait(&front->resume_cond, &front->pause_lock);
	front->paused--;
	pthread_mutex_unlock(&front->pause_lock);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct front *front = worker->front;
	uint64_t last_work = clock_ns();

	prctl(PR_SET_NAME, "tmemd-worker");
	prctl(PR_SET_TIMERSLACK, 1000); /* ns: naps are short */
	worker->nap_ns = NAP_NS_MIN;
	worker->poll_ns = front->poll_ns;
	while (!atomic_load(&front->stop)) {
		if (atomic_load(&front->pausing))
			pause_here(front);
		do_chores(worker);
		if (round_robin(worker)) {
			last_work = clock_ns();
			worker->nap_ns = NAP_NS_MIN;
		} else if (clock_ns() - last_work < worker->poll_ns) {
			relax();
		} else {
			rest(worker, last_work);
		}
	}
	return NULL;
}

bool workers_turn(struct front *front)
{
	bool busy = false;

	for (unsigned i = 0; i < front->nr_workers; i++) {
		struct worker *worker = &front->workers[i];

		do_chores(worker);
		busy |= round_robin(worker);
		if (arm(worker))
			hear_bells(worker, 0);
		disarm(worker);
	}
	return busy;
}

static void wake(struct worker *worker)
{
	static const uint64_t one = 1;

	/* Cannot block: the worker reads it before it comes near the limit. */
	while (write(worker->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static int worker_start(struct front *front, unsigned index)
{
	struct worker *worker = &front->workers[index];
	struct epoll_event event = {.events = EPOLLIN};
	int r;

	worker->front = front;
	worker->index = index;
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	worker->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (worker->epoll < 0 || worker->wake < 0 ||
	    epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->wake, &event))
		return -errno;
	if (front->no_threads)
		return 0;
	r = pthread_create(&worker->thread, NULL, work, worker);
	worker->started = !r;
	return -r;
}

/*
 * Threads inherit the niceness of the one that starts them. A worker is short of CPU just when the
 * guests' CPUs are more than the host's, and behind each of its runs a guest waits.
 */
int workers_start(struct front *front)
{
	int usual = getpriority(PRIO_PROCESS, 0), r = 0;
	bool raised = usual > FRONT_WORKER_NICE && !front->no_threads;

	if (raised && setpriority(PRIO_PROCESS, 0, FRONT_WORKER_NICE)) {
		raised = false;
		log_msg(LOG_INFO,
			"workers have no priority over the CPUs of guests (%s): set LimitNICE=%d "
			"in the unit",
			strerror(errno), FRONT_WORKER_NICE);
	}
	for (unsigned i = 0; i < front->nr_workers && !r; i++)
		r = worker_start(front, i);
	if (raised)
		setpriority(PRIO_PROCESS, 0, usual);
	return r;
}

void workers_stop(struct front *front)
{
	atomic_store(&front->stop, true);
	for (unsigned i = 0; i < front->nr_workers; i++) {
		struct worker *worker = &front->workers[i];

		if (worker->started) {
			wake(worker);
			pthread_join(worker->thread, NULL);
			worker->started = false;
		}
		if (worker->epoll >= 0)
			close(worker->epoll);
		if (worker->wake >= 0)
			close(worker->wake);
		ringer_close(&worker->ringer);
		worker->epoll = worker->wake = -1;
	}
}

void workers_pause(struct front *front)
{
	if (front->no_threads)
		return;
	atomic_store(&front->pausing, true);
	for (unsigned i = 0; i < front->nr_workers; i++)
		wake(&front->workers[i]);
	pthread_mutex_lock(&front->pause_lock);
	while (front->paused < front->nr_workers)
		pthread_cond_wait(&front->pause_cond, &front->pause_lock);
	pthread_mutex_unlock(&front->pause_lock);
}

void workers_resume(struct front *front)
{
	pthread_mutex_lock(&front->pause_lock);
	atomic_store(&front->pausing, false);
	pthread_cond_broadcast(&front->resume_cond);
	pthread_mutex_unlock(&front->pause_lock);
}

void workers_chores(struct front *front)
{
	for (unsigned i = 0; i < front->nr_workers; i++) {
		atomic_store(&front->workers[i].chores, true);
		wake(&front->workers[i]);
	}
}

/* ---- Clients come and go -------------------------------------------------------------------- */

static struct worker *worker_of(const struct served *served, unsigned lane)
{
	return &served->front->workers[(served->place + lane) % served->front->nr_workers];
}

void workers_add(struct served *served, struct lane **lanes, unsigned nr)
{
	for (unsigned w = 0; w < served->front->nr_workers; w++) {
		struct worker *worker = &served->front->workers[w];
		struct share *share = &served->shares[w];

		memset(share, 0, sizeof(*share));
		share->served = served;
		share->page_ns = PAGE_NS_START;
		for (unsigned i = 0; i < nr; i++)
			if (worker_of(served, i) == worker) {
				lanes[i]->ringer = &worker->ringer;
				lanes[i]->next = share->lanes;
				share->lanes = lanes[i];
			}
		if (!share->lanes)
			continue;
		share->next = worker->shares;
		worker->shares = share;
		worker->nap_ns = NAP_NS_MIN;
	}
}

void workers_remove(struct served *served)
{
	for (unsigned w = 0; w < served->front->nr_workers; w++)
		for (struct share **at = &served->front->workers[w].shares; *at; at = &(*at)->next)
			if (*at == &served->shares[w]) {
				*at = (*at)->next;
				break;
			}
}

static bool has_nothing_to_do(struct served *served)
{
	for (unsigned w = 0; w < served->front->nr_workers; w++)
		if (share_pending(&served->shares[w]))
			return false;
	return true;
}

bool workers_hold(struct served *served)
{
	bool quiet;

	workers_pause(served->front);
	quiet = has_nothing_to_do(served);
	if (quiet)
		atomic_store(&served->held, true);
	workers_resume(served->front);
	return quiet;
}

bool workers_held(struct served *served)
{
	return atomic_load(&served->held) && has_nothing_to_do(served);
}

void workers_let_go(struct served *served)
{
	if (!atomic_exchange(&served->held, false))
		return;
	for (unsigned w = 0; w < served->front->nr_workers; w++)
		wake(&served->front->workers[w]);
}

int lane_watch(struct lane *lane, unsigned index, int bell)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = lane};

	if (epoll_ctl(worker_of(lane->served, index)->epoll, EPOLL_CTL_ADD, bell, &event))
		return -errno;
	return 0;
}

void lane_unwatch(struct lane *lane, unsigned index, int bell)
{
	epoll_ctl(worker_of(lane->served, index)->epoll, EPOLL_CTL_DEL, bell, NULL);
}

void lane_time(struct lane *lane, unsigned index, bool timed)
{
	atomic_fetch_add(&worker_of(lane->served, index)->timed, timed ? 1 : -1u);
}

void lane_wake(struct lane *lane, unsigned index)
{
	wake(worker_of(lane->served, index));
}
