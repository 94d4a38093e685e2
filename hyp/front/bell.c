// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rings the doorbells of guests, and never waits.
 *
 * A doorbell is an eventfd that the owner of the client holds too. O_NONBLOCK belongs to what is
 * shared: the owner can clear it and fill the counter, and write(2) would then stop the worker and
 * every client that it serves. No check before the write helps, for it can be done in between.
 * But the kernel itself signals an eventfd without waiting, whatever its flags; a full one stays
 * full. So we let it: by an asynchronous read of nothing from /dev/null, which has finished when
 * io_submit(2) returns, and names the doorbell as what to signal then (IOCB_FLAG_RESFD).
 *
 * For the same reason doorbells from guests are not read at all, see hear_bells() in worker.c.
 */
#include "front_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Results in the context that nobody has taken yet; it has room for at least twice as many. */
#define REAP 32

int ringer_open(struct ringer *ringer)
{
	aio_context_t context = 0;

	ringer->nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (ringer->nothing < 0 || syscall(SYS_io_setup, 2 * REAP, &context))
		return -errno;
	ringer->context = context;
	ringer->unreaped = 0;
	return 0;
}

void ringer_close(struct ringer *ringer)
{
	if (ringer->context)
		syscall(SYS_io_destroy, ringer->context);
	if (ringer->nothing >= 0)
		close(ringer->nothing);
	ringer->context = 0;
	ringer->nothing = -1;
}

/* They tell nothing: a read of nothing succeeds. */
static void reap(struct ringer *ringer)
{
	struct io_event events[REAP];
	struct timespec now = {0};

	syscall(SYS_io_getevents, ringer->context, 0, REAP, events, &now);
	ringer->unreaped = 0;
}

static bool submit(struct ringer *ringer, int bell)
{
	struct iocb request = {
		.aio_fildes = (uint32_t)ringer->nothing,
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_flags = IOCB_FLAG_RESFD,
		.aio_resfd = (uint32_t)bell,
	};
	struct iocb *requests[] = {&request};

	if (ringer->unreaped == REAP)
		reap(ringer);
	if (syscall(SYS_io_submit, ringer->context, 1, requests) != 1)
		return false;
	ringer->unreaped++;
	return true;
}

/* Without a context: as good as it can be. SECURITY.md says what that leaves open. */
static bool write_to(int bell)
{
	static const uint64_t one = 1;
	struct pollfd p = {.fd = bell, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && p.revents & POLLOUT &&
	       write(bell, &one, sizeof(one)) == sizeof(one);
}

bool ringer_ring(struct ringer *ringer, int bell)
{
	return ringer->context ? submit(ringer, bell) : write_to(bell);
}

/* ---- Doorbells from guests --------------------------------------------------------------------
 */

int bells_watch(struct front_client *client)
{
	int r = 0;

	for (unsigned v = 0; v < client->max_rings && !r; v++)
		r = lane_watch(&client->rings[v].lane, v, client->rings[v].bell_in);
	return r;
}

void bells_unwatch(struct front_client *client)
{
	if (atomic_load(&client->front->stop))
		return;
	workers_pause(client->front);
	for (unsigned v = 0; v < client->max_rings; v++)
		if (client->rings[v].bell_in >= 0)
			lane_unwatch(&client->rings[v].lane, v, client->rings[v].bell_in);
	workers_resume(client->front);
}
