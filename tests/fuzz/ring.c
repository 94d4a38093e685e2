// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A hostile guest at its rings. The input is a list of what it does: proper entries, entries
 * patched afterwards, indexes, credit words and any other byte of the region, changed also
 * between two reads of the service; and of what happens meanwhile: turns of the workers, a
 * freeze, memory pressure, a restart. Another guest of the same service must not notice.
 */
#include "tests/fuzz/world.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "tests/lib/pages.h"

#define MAX_OPERATIONS 200

static uint64_t epoch;

/* ---- What the guest does -------------------------------------------------------------------- */

static void hello(struct bytes *in)
{
	static const struct {
		uint8_t rings;
		uint8_t entries;
	} geometries[] = {{1, 8}, {2, 8}, {4, 8}, {2, 16}, {4, 32}, {1, 128}, {3, 64}, {1, 32}};
	unsigned g = take(in, 1) & 7;

	guest_say_hello(&world.hostile, geometries[g].rings, geometries[g].entries,
			take(in, 1) & TMEM_F_ALL, ++epoch);
	world_client(world.hostile.name)->hello_after = 0;
	world_work(2);
}

static unsigned some_ring(struct bytes *in)
{
	return (unsigned)take(in, 1) % world.hostile.nr_rings;
}

static unsigned some_number(struct bytes *in)
{
	return (unsigned)take(in, 1) % world.hostile.entries;
}

static void fill_slot(uint8_t *slot, uint8_t kind)
{
	switch (kind & 3) {
	case 0:
		break; /* as it is */
	case 1:
		page_make_same(slot, kind);
		break;
	case 2:
		page_make_sized(slot, kind, TMEM_PAGE_SIZE);
		break;
	default:
		page_make_sized(slot, kind, 1u << (kind >> 2 & 15));
	}
}

/* A credit, as the ABI says. */
static bool take_credit(unsigned ring)
{
	uint32_t *word = &guest_ring(&world.hostile, ring)->credits, n = *word;

	if (n)
		*word = n - 1;
	return n;
}

static void new_pool(struct bytes *in, struct tmem_entry *entry)
{
	static const uint32_t flags[] = {PERSISTENT,
					 PRIVATE,
					 PRIVATE | TMEM_POOL_X_INCLUSIVE,
					 PRIVATE | TMEM_POOL_SHARED,
					 PERSISTENT | TMEM_POOL_SHARED,
					 PERSISTENT | TMEM_POOL_X_INCLUSIVE,
					 0,
					 UINT32_MAX};

	entry->pool = 0;
	entry->index = flags[take(in, 1) & 7];
	entry->object[0] = take(in, 1);
	entry->object[1] = 0;
	entry->object[2] = 0;
	entry->arg = take(in, 1);
}

static void submit(struct bytes *in)
{
	static const uint8_t ops[] = {TMEM_PUT_PAGE,	 TMEM_GET_PAGE,	    TMEM_PUT_PAGE,
				      TMEM_FLUSH_PAGE,	 TMEM_FLUSH_OBJECT, TMEM_NEW_POOL,
				      TMEM_DESTROY_POOL, TMEM_PUT_PAGE};
	unsigned ring = some_ring(in), number = some_number(in), what = take(in, 1);
	struct tmem_entry entry = {.op = ops[what & 7], .pool = what >> 3 & 3};
	uint8_t kind;

	entry.object[0] = take(in, 1) & 3;
	entry.index = what & 32 ? (uint32_t)take(in, 4) : (uint32_t)take(in, 1);
	kind = take(in, 1);
	if (entry.op == TMEM_NEW_POOL)
		new_pool(in, &entry);
	if (entry.op == TMEM_PUT_PAGE)
		fill_slot(guest_slot(&world.hostile, ring, number), kind);
	if (what & 64 && (what & 128 || take_credit(ring)))
		entry.flags = TMEM_ENTRY_POSTED;
	guest_submit(&world.hostile, ring, number, &entry);
}

/* Puts page after page: more than the ring holds, or the pool. */
static void flood(struct bytes *in)
{
	unsigned ring = some_ring(in), n = (unsigned)take(in, 1);
	struct tmem_entry entry = {.op = TMEM_PUT_PAGE, .pool = take(in, 1) & 3};

	for (unsigned i = 0; i < n; i++) {
		unsigned number = i % world.hostile.entries;

		entry.index = i;
		page_make_sized(guest_slot(&world.hostile, ring, number), i, TMEM_PAGE_SIZE);
		guest_submit(&world.hostile, ring, number, &entry);
		if (number == world.hostile.entries - 1)
			world_work(8);
	}
}

static void patch_entry(struct bytes *in)
{
	static const uint8_t fields[][2] = {{0, 1},  {1, 1},  {2, 2},  {4, 4},	{8, 8},	 {16, 8},
					    {24, 8}, {32, 4}, {36, 4}, {40, 8}, {48, 4}, {52, 4}};
	uint8_t *entry = (uint8_t *)guest_entry(&world.hostile, some_ring(in), some_number(in));
	unsigned field = take(in, 1) % 12;
	uint64_t value = take(in, fields[field][1]);

	memcpy(entry + fields[field][0], &value, fields[field][1]);
}

static void patch_ctl(struct bytes *in)
{
	unsigned ring = some_ring(in), what = take(in, 1);
	struct tmem_ring_ctl *ctl = guest_ring(&world.hostile, ring);
	uint32_t *words[] = {&ctl->sq_tail, &ctl->cq_head,  &ctl->cq_event, &ctl->cq_tail,
			     &ctl->credits, &ctl->sq_event, &ctl->sq_head,  &ctl->credits};
	uint32_t *word = words[what & 7];

	/* By a little, or anything. */
	if (what & 8)
		*word = (uint32_t)take(in, 4);
	else
		*word += (uint32_t)(int8_t)take(in, 1);
	if (word == &ctl->sq_tail && what & 16)
		world.hostile.tail[ring] = *word;
}

static void patch_anything(struct bytes *in)
{
	size_t at = take(in, 3) % (world.hostile.bytes - 64);
	unsigned len = 1 + (take(in, 1) & 63);

	for (unsigned i = 0; i < len; i++)
		world.hostile.base[at + i] = (uint8_t)take(in, 1);
}

static void patch_sq(struct bytes *in)
{
	unsigned ring = some_ring(in);

	*guest_sq(&world.hostile, ring, (uint32_t)take(in, 1)) = (uint16_t)take(in, 2);
}

static void cut(struct bytes *in)
{
	guest_cut(&world.hostile, take(in, 3) % world.hostile.bytes);
	world_work(4);
	world.front->next_tick = 0;
	world_work(4);
	MUST(guest_connect(&world.hostile), "no new life after a cut region");
	hello(in);
}

static void ring_bell(struct bytes *in)
{
	uint64_t n = take(in, 1) & 1 ? UINT64_MAX - 1 : 1;
	unsigned v = take(in, 1);

	if (world.hostile.nr_bells &&
	    write(world.hostile.ring_service[v % world.hostile.nr_bells], &n, sizeof(n)) < 0)
		MUST(errno == EAGAIN, "a doorbell cannot be rung");
}

/* ---- What happens meanwhile ----------------------------------------------------------------- */

static void freeze(struct bytes *in)
{
	unsigned what = take(in, 1);
	struct store_client *client = store_client_find(world.store, world.hostile.name);

	world.frozen = what & 1;
	store_freeze(world.store, what & 1);
	store_client_freeze(client, what & 2);
	atomic_store(&world.store->pressure, !!(what & 4));
	front_refresh(world.front);
}

static void limit(struct bytes *in)
{
	struct store_limits limits = {.max_bytes = take(in, 2) * 64};

	store_client_set_limits(store_client_find(world.store, world.hostile.name), &limits);
}

static void background(void)
{
	for (unsigned i = 0; i < 4 && store_work(world.store); i++)
		;
	/* It looks at the host itself. */
	atomic_store(&world.store->pressure, false);
}

/* Only what the hostile guest asks for while the fault is armed fails. */
static void fail(struct bytes *in)
{
	static const enum fault_point points[] = {FAULT_ALLOC_PAYLOAD, FAULT_ALLOC_DESC,
						  FAULT_ALLOC_OBJECT, FAULT_ALLOC_POOL};
	enum fault_point point = points[take(in, 1) & 3];

	fault_arm(point, FAULT_FAIL, (uint32_t)take(in, 1), 1 + (uint32_t)take(in, 1));
	world_work(4);
	fault_arm(point, FAULT_OFF, 0, 0);
}

static void honest(struct bytes *in)
{
	unsigned page = take(in, 1) % HONEST_PAGES;

	if (take(in, 1) & 1)
		world_honest_put(page, 1 + take(in, 2));
	world_honest_look(page);
}

static void time_passes(void)
{
	world.front->next_tick = 0;
	world_work(2);
}

static void restart(void)
{
	struct front_client_config config = world_config(world.hostile.name);

	world_restart(&config);
}

static void operation(struct bytes *in)
{
	switch (take(in, 1) % 24) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
	case 5:
		submit(in);
		break;
	case 6:
	case 7:
		world_work(1 + (take(in, 1) & 7));
		break;
	case 8:
		patch_entry(in);
		break;
	case 9:
	case 10:
		patch_ctl(in);
		break;
	case 11:
		patch_anything(in);
		break;
	case 12:
		patch_sq(in);
		break;
	case 13:
	case 14:
		world_arm(in);
		break;
	case 15:
		hello(in);
		break;
	case 16:
		ring_bell(in);
		break;
	case 17:
		freeze(in);
		break;
	case 18:
		limit(in);
		break;
	case 19:
		background();
		break;
	case 20:
		restart();
		break;
	case 21:
		honest(in);
		break;
	case 22:
		switch (take(in, 1) & 3) {
		case 0:
			cut(in);
			break;
		case 1:
			fail(in);
			break;
		case 2:
			flood(in);
			break;
		default:
			time_passes();
		}
		break;
	default:
		time_passes();
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	world_make("fuzz-ring");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = {data, data + size};

	world_begin();
	MUST(guest_connect(&world.hostile), "the hostile guest cannot connect");
	hello(&in);
	for (unsigned i = 0; i < MAX_OPERATIONS && more(&in); i++)
		operation(&in);
	world_work(16);
	world_end();
	return 0;
}
