// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An owner and its lenders over real TLS: what is put comes back, whatever becomes of one of the
 * lenders; every request has exactly one answer.
 */
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/scratch.h"

#define ROOM (64u << 20)

static struct host hosts[4];

static void begin(unsigned nr, uint64_t room)
{
	owner_begin(NULL);
	for (unsigned i = 0; i < nr; i++) {
		host_begin(&hosts[i], i + 1, room);
		owner_add(&hosts[i], 0);
	}
	for (unsigned i = 0; i < nr; i++)
		owner_wait_up(i);
}

static void end(unsigned nr)
{
	owner_end();
	for (unsigned i = 0; i < nr; i++)
		host_end(&hosts[i]);
}

static void one_blob(void)
{
	static struct ask ask;
	uint16_t holders[2];

	begin(1, ROOM);
	ask_put(&ask, 77, 0, 1);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.holders[0], 1);
	CHECK_IS(ask.request.holders[1], 0);
	memcpy(holders, ask.request.holders, sizeof(holders));
	ask_get(&ask, 77, 0, holders);
	CHECK_IS(ask_wait(&ask), 0);
	CHECK_IS(ask.request.from, 1);
	CHECK(blob_is(77, ask.bytes, ask.request.len), "wrong bytes");
	ask_get(&ask, 78, 0, holders);
	CHECK_IS(ask_wait(&ask), -ENOENT);
	owner.tier->ops->delete (owner.tier, 77, holders);
	EVENTUALLY(!keeper_blobs(hosts[0].keeper));
	end(1);
}

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	world_begin("peers");
	RUN(one_blob);
	puts("1 passed, 0 failed");
	return 0;
}
