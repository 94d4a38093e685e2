// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queues of both layouts: chains good and bad, notifications, positions after a restart, and that a
 * death between any two instructions loses or repeats nothing.
 */
#include "tests/unit/unit.h"
#include "tests/unit/vhost_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PACKED BIT(VIRTIO_F_RING_PACKED)
#define INDIRECT BIT(VIRTIO_RING_F_INDIRECT_DESC)
#define EVENT BIT(VIRTIO_RING_F_EVENT_IDX)
#define LOG_ALL BIT(VHOST_F_LOG_ALL)

#define OUT 0
#define IN VRING_DESC_F_WRITE
#define TABLE VRING_DESC_F_INDIRECT

/* Where a fresh ring begins. */
static uint32_t first(bool packed)
{
	return packed ? 0x80008000 : 0;
}

struct scene {
	struct peer peer;
	struct driver driver;
};

static void open_scene(struct scene *s, bool packed, uint64_t features, uint16_t num)
{
	peer_open(&s->peer);
	peer_negotiate(&s->peer, features | (packed ? PACKED : 0));
	driver_init(&s->driver, &s->peer, 0, num, packed);
	driver_set_up(&s->driver, first(packed));
	CU_ASSERT(vhost_running(s->peer.vhost, 0));
}

static void close_scene(struct scene *s)
{
	driver_close(&s->driver);
	peer_close(&s->peer);
}

static int pop(struct scene *s, struct vhost_chain *chain)
{
	return vhost_pop(s->peer.vhost, 0, chain);
}

/* Adds, pops, pushes one request, and finds it completed. */
static void one_round(struct scene *s, const struct piece *pieces, unsigned nr)
{
	uint16_t added = driver_add(&s->driver, pieces, nr), id;
	struct vhost_chain chain;
	uint32_t written;

	CU_ASSERT(vhost_pending(s->peer.vhost, 0));
	CU_ASSERT_EQUAL_FATAL(pop(s, &chain), 1);
	CU_ASSERT(!vhost_pending(s->peer.vhost, 0));
	CU_ASSERT(!driver_used(&s->driver, &id, &written));
	vhost_push(s->peer.vhost, 0, &chain, added & 1 ? 100 : 0);
	CU_ASSERT_FATAL(driver_used(&s->driver, &id, &written));
	CU_ASSERT_EQUAL(id, added);
	CU_ASSERT_EQUAL(written, added & 1 ? 100 : 0);
	CU_ASSERT(!vhost_pending(s->peer.vhost, 0));
	CU_ASSERT_EQUAL(pop(s, &chain), 0);
}

/* ---- Good chains ---------------------------------------------------------------------------- */

static const struct piece three[] = {
	{DATA, 16, OUT, 0}, {DATA + 0x1000, 4096, IN, 0}, {DATA + 0x3001, 1, IN, 0}};

/* Segment i is `bytes` at a guest address. */
static void check_segment(struct scene *s, const struct vhost_chain *chain, unsigned i,
			  uint64_t address, uint32_t bytes)
{
	uint8_t *base = chain->segments[i].base, *ours = at_guest(&s->peer, address);
	static uint8_t value;

	CU_ASSERT_EQUAL(chain->segments[i].len, bytes);
	/* Another mapping of the same memory, at both ends. */
	base[0] = ++value;
	CU_ASSERT_EQUAL(ours[0], value);
	ours[bytes - 1] = ++value;
	CU_ASSERT_EQUAL(base[bytes - 1], value);
}

static void check_three(struct scene *s, const struct vhost_chain *chain)
{
	CU_ASSERT_EQUAL(chain->nr_out, 1);
	CU_ASSERT_EQUAL_FATAL(chain->nr_in, 2);
	for (unsigned i = 0; i < 3; i++)
		check_segment(s, chain, i, three[i].address, three[i].bytes);
}

/* Many laps, of a size that does not divide the packed ring. */
static void laps(bool packed)
{
	uint16_t num = packed ? 17 : 16;
	struct vhost_chain chain;
	struct scene s;
	uint16_t added[4], id;
	uint32_t written;

	open_scene(&s, packed, 0, num);
	for (unsigned lap = 0; lap < 66000 / 4; lap++) {
		for (unsigned i = 0; i < 4; i++)
			added[i] = driver_add(&s.driver, three, 3);
		for (unsigned i = 0; i < 4; i++) {
			CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
			CU_ASSERT_EQUAL(chain.id, added[i]);
			CU_ASSERT_EQUAL(vhost_pending(s.peer.vhost, 0), i < 3);
			if (lap < 20)
				check_three(&s, &chain);
			vhost_push(s.peer.vhost, 0, &chain, i);
		}
		CU_ASSERT_EQUAL(pop(&s, &chain), 0);
		for (unsigned i = 0; i < 4; i++) {
			CU_ASSERT_FATAL(driver_used(&s.driver, &id, &written));
			CU_ASSERT(id == added[i] && written == i);
		}
		CU_ASSERT(!driver_used(&s.driver, &id, &written));
	}
	/* A chain that fills the ring. */
	struct piece all[17];

	for (unsigned i = 0; i < num; i++)
		all[i] = (struct piece){DATA + i, 1, OUT, 0};
	for (unsigned i = 0; i < 5; i++)
		one_round(&s, all, num);
	close_scene(&s);
}

static void laps_split(void)
{
	laps(false);
}

static void laps_packed(void)
{
	laps(true);
}

static void popped_again(void)
{
	struct vhost_chain chain, again;
	struct scene s;

	for (unsigned packed = 0; packed < 2; packed++) {
		open_scene(&s, packed, 0, 16);
		driver_add(&s.driver, three, 3);
		driver_add(&s.driver, three, 1);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(pop(&s, &again), 1);
		CU_ASSERT(chain.id == again.id && again.nr_in == 2);
		vhost_push(s.peer.vhost, 0, &again, 0);
		vhost_push(s.peer.vhost, 0, &again, 0); /* nothing is out */
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT(chain.nr_in == 0 && chain.nr_out == 1);
		close_scene(&s);
	}
}

/* Direct requests and one with a table, of several laps; nothing is popped by it. */
static void peeks(bool packed)
{
	static const char *const texts[] = {"first 8b", "second 8", "third 8b"};
	struct piece table[2], pieces[2], one = {DATA + 0x9000, 2 * 16, TABLE, 0};
	struct vhost_chain chain;
	char seen[4][8];
	struct scene s;

	open_scene(&s, packed, INDIRECT, 8);
	for (unsigned i = 0; i < 3; i++)
		memcpy(at_guest(&s.peer, DATA + i * 0x100), texts[i], 8);
	/* Across two mappings. */
	memcpy(at_guest(&s.peer, HIGH_GUEST - 4), texts[1], 4);
	memcpy(at_guest(&s.peer, HIGH_GUEST), texts[1] + 4, 4);
	table[0] = (struct piece){HIGH_GUEST - 4, 8, OUT, 0};
	table[1] = (struct piece){DATA + 0x2000, 1, IN, 0};
	driver_table(&s.driver, one.address, table, 2);
	for (unsigned lap = 0; lap < 20; lap++) {
		CU_ASSERT_EQUAL(vhost_peek(s.peer.vhost, 0, seen, 8, 4), 0);
		for (unsigned i = 0; i < 3; i++) {
			pieces[0] = (struct piece){DATA + i * 0x100, 8, OUT, 0};
			pieces[1] = (struct piece){DATA + 0x3000, 1, IN, 0};
			driver_add(&s.driver, i == 1 ? &one : pieces, i == 1 ? 1 : 2);
		}
		CU_ASSERT_EQUAL(vhost_peek(s.peer.vhost, 0, seen, 8, 4), 3);
		for (unsigned i = 0; i < 3; i++)
			CU_ASSERT(!memcmp(seen[i], texts[i], 8));
		CU_ASSERT_EQUAL(vhost_peek(s.peer.vhost, 0, seen, 8, 2), 2);
		/* Behind the one that is out. */
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(vhost_peek(s.peer.vhost, 0, seen, 8, 4), 2);
		CU_ASSERT(!memcmp(seen[0], texts[1], 8));
		/* The first that is too short for it ends it. */
		CU_ASSERT_EQUAL(vhost_peek(s.peer.vhost, 0, seen, 9, 2), 0);
		for (unsigned i = 0; i < 3; i++) {
			CU_ASSERT_EQUAL(pop(&s, &chain), 1);
			vhost_push(s.peer.vhost, 0, &chain, 0);
		}
	}
	close_scene(&s);
}

static void peeks_split(void)
{
	peeks(false);
}

static void peeks_packed(void)
{
	peeks(true);
}

static void tables(bool packed)
{
	struct piece table[VHOST_MAX_SEGMENTS];
	struct piece one = {DATA + 0x8004, 3 * 16, TABLE, 0};
	struct piece behind[] = {{DATA + 0x4000, 8, OUT, 0}, one};
	struct vhost_chain chain;
	struct scene s;

	open_scene(&s, packed, INDIRECT, 16);
	/* Not aligned, also with a flag to be ignored, also behind a descriptor of the ring. */
	driver_table(&s.driver, one.address, three, 3);
	for (unsigned i = 0; i < 20; i++) {
		one.flags = (uint16_t)(i & 1 ? TABLE | IN : TABLE);
		driver_add(&s.driver, &one, 1);
		CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
		check_three(&s, &chain);
		vhost_push(s.peer.vhost, 0, &chain, 0);
		driver_add(&s.driver, behind, 2);
		CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
		CU_ASSERT(chain.nr_out == 2 && chain.nr_in == 2);
		check_segment(&s, &chain, 0, DATA + 0x4000, 8);
		vhost_push(s.peer.vhost, 0, &chain, 0);
	}
	/* Across two mappings, in the middle of a descriptor. */
	one = (struct piece){HIGH_GUEST - 24, 3 * 16, TABLE, 0};
	driver_table(&s.driver, DATA, three, 3);
	memcpy(at_guest(&s.peer, HIGH_GUEST - 24), at_guest(&s.peer, DATA), 24);
	memcpy(at_guest(&s.peer, HIGH_GUEST), at_guest(&s.peer, DATA + 24), 24);
	driver_add(&s.driver, &one, 1);
	CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
	check_three(&s, &chain);
	vhost_push(s.peer.vhost, 0, &chain, 0);
	/* As many pieces as a request may have; one more is too many. */
	for (unsigned i = 0; i < VHOST_MAX_SEGMENTS; i++)
		table[i] = (struct piece){DATA + 0x20000 + i * 0x400, 0x400, i < 5 ? OUT : IN, 0};
	driver_table(&s.driver, DATA + 0x8000, table, VHOST_MAX_SEGMENTS);
	one = (struct piece){DATA + 0x8000, VHOST_MAX_SEGMENTS * 16, TABLE, 0};
	driver_add(&s.driver, &one, 1);
	CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
	CU_ASSERT(chain.nr_out == 5 && chain.nr_in == VHOST_MAX_SEGMENTS - 5);
	vhost_push(s.peer.vhost, 0, &chain, 0);
	behind[1] = one;
	driver_add(&s.driver, behind, 2);
	CU_ASSERT_EQUAL(pop(&s, &chain), -EPROTO);
	close_scene(&s);
}

static void tables_split(void)
{
	tables(false);
}

static void tables_packed(void)
{
	tables(true);
}

static void crosses_mappings(void)
{
	struct piece across = {HIGH_GUEST - 100, 300, IN, 0};
	struct piece beyond = {HIGH_GUEST + HIGH_BYTES - 100, 101, IN, 0};
	struct vhost_chain chain;
	struct scene s;

	for (unsigned packed = 0; packed < 2; packed++) {
		open_scene(&s, packed, 0, 16);
		driver_add(&s.driver, &across, 1);
		CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL_FATAL(chain.nr_in, 2);
		check_segment(&s, &chain, 0, HIGH_GUEST - 100, 100);
		check_segment(&s, &chain, 1, HIGH_GUEST, 200);
		vhost_push(s.peer.vhost, 0, &chain, 0);
		driver_add(&s.driver, &beyond, 1);
		CU_ASSERT_EQUAL(pop(&s, &chain), -EPROTO);
		close_scene(&s);
	}
}

/* ---- Bad chains ----------------------------------------------------------------------------- */

/* The queue is broken, nobody else; it is well again when it is set up again. */
static void expect_broken(struct scene *s, const char *what)
{
	struct vhost_chain chain;
	struct vhost *v = s->peer.vhost;
	uint32_t state[2];
	bool packed = s->driver.packed;
	int error;

	CU_ASSERT_EQUAL(pop(s, &chain), -EPROTO);
	if (vhost_running(v, 0))
		printf("(not broken by %s) ", what);
	CU_ASSERT(!vhost_running(v, 0) && !vhost_pending(v, 0));
	CU_ASSERT_EQUAL(pop(s, &chain), 0);
	error = vhost_error(v, 0);
	CU_ASSERT(error >= 0 && error != vhost_call_fd(v, 0));
	CU_ASSERT_EQUAL(vhost_error(v, 0), -1); /* once */
	CU_ASSERT_EQUAL(peer_ask_u64(&s->peer, 40), VIRTIO_CONFIG_S_NEEDS_RESET);
	/* A message does not mend it. */
	CU_ASSERT_EQUAL(peer_do_state(&s->peer, 18, 0, 1), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s->peer, 12, 0, s->driver.kick), 0);
	CU_ASSERT(!vhost_running(v, 0));
	CU_ASSERT_EQUAL(peer_say(&s->peer, 11, 0, (uint32_t[]){0, 0}, 8, NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(&s->peer, 11, state, 8, NULL), 8);
	CU_ASSERT_EQUAL(peer_ask_u64(&s->peer, 40), 0);
	driver_close(&s->driver);
	driver_init(&s->driver, &s->peer, 0, 16, packed);
	driver_set_up(&s->driver, first(packed));
	CU_ASSERT(vhost_running(v, 0));
	one_round(s, three, 3);
}

static void bad_chains(bool packed)
{
	static const struct {
		const char *what;
		unsigned nr;
		struct piece pieces[3];
	} bad[] = {
		{"no bytes", 1, {{DATA, 0, OUT, 0}}},
		{"no bytes behind some", 2, {{DATA, 1, OUT, 0}, {DATA, 0, IN, 0}}},
		{"below the memory", 1, {{LOW_GUEST - 1, 2, OUT, 0}}},
		{"address 0", 1, {{0, 1, OUT, 0}}},
		{"behind the memory", 1, {{HIGH_GUEST + HIGH_BYTES, 1, IN, 0}}},
		{"the end of addresses", 1, {{UINT64_MAX, 1, OUT, 0}}},
		{"an overflow", 1, {{UINT64_MAX - 1, 16, OUT, 0}}},
		{"as long as can be", 1, {{DATA, UINT32_MAX, OUT, 0}}},
		{"reads behind writes", 2, {{DATA, 1, IN, 0}, {DATA, 1, OUT, 0}}},
		{"table: nothing", 1, {{DATA, 0, TABLE, 0}}},
		{"table: odd", 1, {{DATA, 17, TABLE, 0}}},
		{"table: odd", 1, {{DATA, 15, TABLE, 0}}},
		{"table: long", 1, {{DATA, (VHOST_MAX_RING + 1) * 16, TABLE, 0}}},
		{"table: endless", 1, {{DATA, 0xfffffff0, TABLE, 0}}},
		{"table: outside", 1, {{HIGH_GUEST + HIGH_BYTES - 8, 16, TABLE, 0}}},
		{"table: nowhere", 1, {{0x10, 16, TABLE, 0}}},
		{"table: overflow", 1, {{UINT64_MAX - 15, 16, TABLE, 0}}},
		{"table, and more", 2, {{DATA + 0x1000, 16, TABLE, 0}, {DATA, 1, OUT, 0}}},
		{"table: zeroes", 1, {{DATA + 0x2000, 16, TABLE, 0}}},
	};
	static const struct piece good = {DATA, 16, OUT, 0};
	struct scene s;

	open_scene(&s, packed, INDIRECT, 16);
	driver_table(&s.driver, DATA + 0x1000, &good, 1);
	memset(at_guest(&s.peer, DATA + 0x2000), 0, 16);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* Not always at the first place. */
		for (unsigned n = 0; n < i; n++)
			one_round(&s, three, 1);
		driver_add(&s.driver, bad[i].pieces, bad[i].nr);
		expect_broken(&s, bad[i].what);
	}
	/* A table in a table; and a chain in the table that fails late. */
	static const struct piece nested[] = {{DATA + 0x1000, 16, TABLE, 0}};
	static const struct piece late[] = {{DATA, 1, OUT, 0}, {DATA, 1, IN, 0}, {DATA, 1, OUT, 0}};
	static const struct piece by_nested = {DATA + 0x3000, 16, TABLE, 0};
	static const struct piece by_late = {DATA + 0x3000, 48, TABLE, 0};

	driver_table(&s.driver, DATA + 0x3000, nested, 1);
	driver_add(&s.driver, &by_nested, 1);
	expect_broken(&s, "a table in a table");
	driver_table(&s.driver, DATA + 0x3000, late, 3);
	driver_add(&s.driver, &by_late, 1);
	expect_broken(&s, "a late fault");
	close_scene(&s);

	/* Not negotiated. */
	open_scene(&s, packed, 0, 16);
	driver_table(&s.driver, DATA + 0x1000, &good, 1);
	driver_add(&s.driver, &(struct piece){DATA + 0x1000, 16, TABLE, 0}, 1);
	expect_broken(&s, "a table not negotiated");
	close_scene(&s);
}

static void bad_split(void)
{
	static const struct piece loop[] = {{DATA, 1, OUT, 0}, {DATA, 1, OUT, 0}};
	struct piece table[] = {{DATA, 1, OUT, 0}, {DATA, 1, OUT, 1}, {DATA, 1, OUT, 0}};
	struct piece by_table = {DATA + 0x3000, 48, TABLE, 0};
	struct scene s;

	bad_chains(false);
	open_scene(&s, false, INDIRECT, 16);
	driver_add(&s.driver, loop, 2);
	split_desc(&s.driver)[1] = (struct vring_desc){DATA, 1, VRING_DESC_F_NEXT, 0};
	expect_broken(&s, "a loop");
	driver_add(&s.driver, loop, 1);
	split_desc(&s.driver)[s.driver.slot - 1].flags = VRING_DESC_F_NEXT;
	split_desc(&s.driver)[s.driver.slot - 1].next = 16;
	expect_broken(&s, "next outside");
	driver_add(&s.driver, loop, 1);
	split_desc(&s.driver)[s.driver.slot - 1].flags = VRING_DESC_F_NEXT;
	split_desc(&s.driver)[s.driver.slot - 1].next = UINT16_MAX;
	expect_broken(&s, "next far outside");
	driver_add(&s.driver, loop, 1);
	split_avail(&s.driver)->ring[(s.driver.idx - 1) % 16] = 16;
	expect_broken(&s, "head outside");
	driver_add(&s.driver, loop, 1);
	split_avail(&s.driver)->ring[(s.driver.idx - 1) % 16] = UINT16_MAX;
	expect_broken(&s, "head far outside");
	split_avail(&s.driver)->idx = (uint16_t)(s.driver.idx + 17);
	expect_broken(&s, "more than the ring");
	split_avail(&s.driver)->idx = (uint16_t)(s.driver.idx - 1);
	expect_broken(&s, "backwards");
	driver_table(&s.driver, by_table.address, table, 3); /* 1 points to itself */
	driver_add(&s.driver, &by_table, 1);
	expect_broken(&s, "a loop in a table");
	table[1].next = 3;
	driver_table(&s.driver, by_table.address, table, 3);
	driver_add(&s.driver, &by_table, 1);
	expect_broken(&s, "next outside of a table");
	close_scene(&s);
}

static void bad_packed(void)
{
	struct piece all[17];
	struct scene s;

	bad_chains(true);
	open_scene(&s, true, 0, 16);
	for (unsigned i = 0; i < 16; i++)
		all[i] = (struct piece){DATA, 1, OUT, 0};
	driver_add(&s.driver, all, 16);
	packed_desc(&s.driver)[15].flags |= VRING_DESC_F_NEXT;
	expect_broken(&s, "a chain without an end");
	close_scene(&s);
}

/* What the guest was told before a queue broke, it is told of. */
static void told_when_broken(void)
{
	struct vhost_chain chain;
	struct scene s;

	for (unsigned packed = 0; packed < 2; packed++) {
		open_scene(&s, packed, 0, 16);
		one_round(&s, three, 3);
		driver_add(&s.driver, &(struct piece){0, 1, OUT, 0}, 1);
		CU_ASSERT_EQUAL(pop(&s, &chain), -EPROTO);
		CU_ASSERT(vhost_call(s.peer.vhost, 0) >= 0);
		CU_ASSERT_EQUAL(vhost_call(s.peer.vhost, 0), -1);
		close_scene(&s);
	}
}

/* ---- Notifications -------------------------------------------------------------------------- */

static void rounds(struct scene *s, unsigned n)
{
	while (n--)
		one_round(s, three, 1);
}

static bool called(struct scene *s)
{
	int fd = vhost_call(s->peer.vhost, 0);

	CU_ASSERT(fd < 0 || fd == vhost_call_fd(s->peer.vhost, 0));
	return fd >= 0;
}

static void flags_split(void)
{
	struct scene s;

	open_scene(&s, false, 0, 16);
	CU_ASSERT(!called(&s)); /* nothing was completed */
	split_avail(&s.driver)->flags = VRING_AVAIL_F_NO_INTERRUPT;
	rounds(&s, 1);
	CU_ASSERT(called(&s)); /* the first time in any case */
	rounds(&s, 1);
	CU_ASSERT(!called(&s));
	split_avail(&s.driver)->flags = 0;
	CU_ASSERT(!called(&s)); /* that is the past */
	rounds(&s, 3);
	CU_ASSERT(called(&s));
	CU_ASSERT(!called(&s));
	vhost_disarm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(split_used(&s.driver)->flags, VRING_USED_F_NO_NOTIFY);
	vhost_arm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(split_used(&s.driver)->flags, 0);
	/* Without an eventfd there is nothing to signal. */
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 13, 0x100, -1), 0);
	rounds(&s, 1);
	CU_ASSERT(!called(&s) && vhost_call_fd(s.peer.vhost, 0) < 0);
	close_scene(&s);
}

static uint16_t *avail_event(struct scene *s)
{
	return (uint16_t *)&split_used(&s->driver)->ring[s->driver.num];
}

static void events_split(void)
{
	uint16_t *event;
	struct vhost_chain chain;
	struct scene s;

	open_scene(&s, false, EVENT, 16);
	event = &split_avail(&s.driver)->ring[16];
	split_avail(&s.driver)->flags = VRING_AVAIL_F_NO_INTERRUPT; /* means nothing here */
	rounds(&s, 1);
	called(&s);
	/* Through the wrap of the free-running index. */
	for (unsigned i = 1; i < 70000; i += 7) {
		*event = (uint16_t)(i + 3); /* the 4th of the next */
		rounds(&s, 3);
		CU_ASSERT(!called(&s));
		rounds(&s, 1);
		CU_ASSERT(called(&s));
		*event = (uint16_t)(i + 5);
		rounds(&s, 3); /* in the middle of these */
		CU_ASSERT(called(&s));
	}
	/* More completions than an index can tell apart. */
	*event = (uint16_t)(s.driver.idx - 1);
	rounds(&s, 65536);
	CU_ASSERT(called(&s));
	vhost_arm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(*avail_event(&s), s.driver.idx);
	driver_add(&s.driver, three, 1);
	CU_ASSERT(vhost_pending(s.peer.vhost, 0));
	CU_ASSERT_EQUAL(pop(&s, &chain), 1);
	vhost_arm(s.peer.vhost, 0); /* for the one behind what is out */
	CU_ASSERT_EQUAL(*avail_event(&s), s.driver.idx);
	vhost_disarm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(*avail_event(&s), s.driver.idx);
	CU_ASSERT_EQUAL(split_used(&s.driver)->flags, 0);
	close_scene(&s);
}

static void flags_packed(void)
{
	struct scene s;

	open_scene(&s, true, 0, 16);
	packed_driver_event(&s.driver)->flags = VRING_PACKED_EVENT_FLAG_DISABLE;
	rounds(&s, 1);
	CU_ASSERT(called(&s));
	rounds(&s, 1);
	CU_ASSERT(!called(&s));
	packed_driver_event(&s.driver)->flags = VRING_PACKED_EVENT_FLAG_ENABLE;
	rounds(&s, 1);
	CU_ASSERT(called(&s));
	vhost_disarm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(packed_device_event(&s.driver)->flags, VRING_PACKED_EVENT_FLAG_DISABLE);
	vhost_arm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(packed_device_event(&s.driver)->flags, VRING_PACKED_EVENT_FLAG_ENABLE);
	close_scene(&s);
}

/* The driver's event is a place in the ring, of this lap or the one before. */
static void events_packed(void)
{
	unsigned num = 16, at = 0;
	bool wrap = true;
	struct scene s;

	open_scene(&s, true, EVENT, 16);
	packed_driver_event(&s.driver)->flags = VRING_PACKED_EVENT_FLAG_DESC;
	rounds(&s, 1);
	called(&s);
	at = 1;
	for (unsigned i = 0; i < 200; i++) {
		unsigned want = at + 3; /* that place */
		bool want_wrap = want >= num ? !wrap : wrap;

		packed_driver_event(&s.driver)->off_wrap =
			(uint16_t)(want % num | (want_wrap ? 0x8000 : 0));
		rounds(&s, 3);
		CU_ASSERT(!called(&s));
		rounds(&s, 1);
		CU_ASSERT(called(&s));
		rounds(&s, 1);
		CU_ASSERT(!called(&s));
		at += 5;
		if (at >= num) {
			at -= num;
			wrap = !wrap;
		}
		vhost_arm(s.peer.vhost, 0);
		CU_ASSERT_EQUAL(packed_device_event(&s.driver)->flags,
				VRING_PACKED_EVENT_FLAG_DESC);
		CU_ASSERT_EQUAL(packed_device_event(&s.driver)->off_wrap, at | (wrap ? 0x8000 : 0));
	}
	rounds(&s, 17); /* more than a lap */
	CU_ASSERT(called(&s));
	vhost_disarm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(packed_device_event(&s.driver)->flags, VRING_PACKED_EVENT_FLAG_DISABLE);
	close_scene(&s);
}

/* ---- When a queue runs ---------------------------------------------------------------------- */

static uint32_t stop(struct peer *peer, uint32_t queue)
{
	uint32_t state[2] = {queue, 0};

	CU_ASSERT_EQUAL(peer_say(peer, 11, 0, state, sizeof(state), NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(peer, 11, state, sizeof(state), NULL), 8);
	CU_ASSERT_EQUAL(state[0], queue);
	return state[1];
}

/* Set up but for one thing, in each order of what is missing. */
static void runs_when_complete(void)
{
	for (unsigned last = 0; last < 5; last++) {
		struct driver d;
		struct peer peer;

		peer_open(&peer);
		peer_negotiate(&peer, 0);
		driver_init(&d, &peer, 1, 16, false);
		if (last == 4)
			CU_ASSERT_EQUAL(peer_set_table(&peer, NULL, NULL, 0), 0);
		for (unsigned i = 0; i < 5; i++) {
			unsigned what = (last + 1 + i) % 5;

			CU_ASSERT(!vhost_running(peer.vhost, 1));
			if (what == 0)
				CU_ASSERT_EQUAL(peer_do_state(&peer, 8, 1, 16), 0);
			if (what == 1)
				CU_ASSERT_EQUAL(driver_set_addr(&d, 0, 0), 0);
			if (what == 2)
				CU_ASSERT_EQUAL(peer_do_u64(&peer, 12, 1, d.kick), 0);
			if (what == 3)
				CU_ASSERT_EQUAL(peer_do_state(&peer, 18, 1, 1), 0);
			if (what == 4)
				CU_ASSERT_EQUAL(peer_give_memory(&peer), 0);
		}
		CU_ASSERT(vhost_running(peer.vhost, 1) && !vhost_running(peer.vhost, 0));
		CU_ASSERT(!vhost_polled(peer.vhost, 1) && peer.kicks[1] >= 0);
		CU_ASSERT_EQUAL(peer_do_state(&peer, 18, 1, 0), 0);
		CU_ASSERT(!vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_do_state(&peer, 18, 1, 1), 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_do_u64(&peer, 12, 0x101, -1), 0);
		CU_ASSERT(vhost_polled(peer.vhost, 1) && peer.kicks[1] == -1);
		/* Memory without the ring. */
		CU_ASSERT_EQUAL(peer_slot(&peer, 38, &high_region, -1), 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_slot(&peer, 38, &low_region, -1), 0);
		CU_ASSERT(!vhost_running(peer.vhost, 1) && !vhost_polled(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_slot(&peer, 37, &low_region, peer.file), 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		stop(&peer, 1);
		CU_ASSERT(!vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_do_u64(&peer, 12, 1, d.kick), 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		/* The driver's reset, in both forms. */
		CU_ASSERT_EQUAL(peer_do_u64(&peer, 39, 15, -1), 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_do_u64(&peer, 39, 0, -1), 0);
		CU_ASSERT(!vhost_running(peer.vhost, 1) && peer.kicks[1] == -1);
		driver_set_up(&d, 0);
		CU_ASSERT(vhost_running(peer.vhost, 1));
		CU_ASSERT_EQUAL(peer_do(&peer, 34, NULL, 0, -1), 0);
		CU_ASSERT(!vhost_running(peer.vhost, 1) && peer.kicks[1] == -1);
		driver_close(&d);
		peer_close(&peer);
	}
}

/* Without VHOST_USER_F_PROTOCOL_FEATURES nobody enables a queue. */
static void enabled_from_the_start(void)
{
	struct driver d;
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	CU_ASSERT_EQUAL(peer_do_u64(&peer, 2, BIT(32), -1), 0);
	driver_init(&d, &peer, 0, 16, false);
	CU_ASSERT_EQUAL(peer_do_state(&peer, 8, 0, 16), 0);
	CU_ASSERT_EQUAL(driver_set_addr(&d, 0, 0), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&peer, 12, 0, d.kick), 0);
	CU_ASSERT(vhost_running(peer.vhost, 0));
	driver_close(&d);
	peer_close(&peer);
}

static void refused_setups(void)
{
	static const uint32_t sizes[] = {0, 3, 17, 1025, 2048, UINT32_MAX};
	struct vhost_vring_addr addr = {.desc_user_addr = LOW_USER + 8,
					.avail_user_addr = LOW_USER + 0x8000,
					.used_user_addr = LOW_USER + 0x9000};
	uint32_t state[2] = {QUEUES, 0};
	struct scene s;

	open_scene(&s, false, 0, 16);
	/* Queues that there are not. */
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 8, QUEUES, 16), 1);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, UINT32_MAX, 0), 1);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 18, QUEUES, 1), 1);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, QUEUES, s.driver.kick), 1);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 13, 0xff, s.driver.kick), 1);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 14, 0x1ff, -1), 1);
	addr.index = QUEUES;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 1);
	CU_ASSERT_EQUAL(peer_say(&s.peer, 11, 0, state, 8, NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(&s.peer, 11, state, 8, NULL), 0); /* "no" */
	/* Sizes. */
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		CU_ASSERT_EQUAL(peer_do_state(&s.peer, 8, 1, sizes[i]), 1);
	/* Under a running queue. */
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 8, 0, 32), 1);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 5), 1);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 18, 0, 2), 1);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	rounds(&s, 3);
	/* Rings that are not aligned, or not all there; flags nobody knows. */
	addr.index = 0;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	addr.desc_user_addr = LOW_USER + LOW_BYTES - 240;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	addr.desc_user_addr = UINT64_MAX - 15;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	addr.desc_user_addr = LOW_USER + LOW_BYTES - 256;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	addr.used_user_addr = LOW_USER + 0x9002;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	addr.flags = 2;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 9, &addr, sizeof(addr), -1), 1);
	CU_ASSERT_EQUAL(driver_set_addr(&s.driver, 0, 0), 0);
	rounds(&s, 3); /* where it was */
	close_scene(&s);
}

/* A queue of three descriptors may be packed, but is not split. */
static void layout_changes(void)
{
	struct scene s;

	open_scene(&s, true, 0, 3);
	rounds(&s, 10);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 2, F_PROTOCOL, -1), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	CU_ASSERT_EQUAL(vhost_error(s.peer.vhost, 0) >= 0, 1);
	close_scene(&s);
}

/* Memory changes under a request that is out: it comes again, and is completed once. */
static void memory_changes(void)
{
	struct vhost_chain chain, again;
	uint32_t written;
	uint16_t id;
	struct scene s;

	for (unsigned packed = 0; packed < 2; packed++) {
		open_scene(&s, packed, 0, 16);
		rounds(&s, 5);
		driver_add(&s.driver, three, 3);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(peer_give_memory(&s.peer), 0);
		CU_ASSERT(vhost_running(s.peer.vhost, 0));
		vhost_push(s.peer.vhost, 0, &chain, 0);
		CU_ASSERT(!driver_used(&s.driver, &id, &written));
		CU_ASSERT(vhost_pending(s.peer.vhost, 0));
		CU_ASSERT_EQUAL(pop(&s, &again), 1);
		check_three(&s, &again);
		CU_ASSERT_EQUAL(peer_slot(&s.peer, 38, &high_region, -1), 0);
		vhost_push(s.peer.vhost, 0, &again, 0);
		CU_ASSERT(!driver_used(&s.driver, &id, &written));
		CU_ASSERT_EQUAL(pop(&s, &again), 1);
		vhost_push(s.peer.vhost, 0, &again, 9);
		CU_ASSERT(driver_used(&s.driver, &id, &written) && written == 9);
		CU_ASSERT(!vhost_pending(s.peer.vhost, 0));
		/* Stopped with one out: the position is before it. */
		driver_add(&s.driver, three, 3);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(stop(&s.peer, 0), packed ? 0x80088008 : 6);
		vhost_push(s.peer.vhost, 0, &chain, 0);
		CU_ASSERT(!driver_used(&s.driver, &id, &written));
		CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		check_three(&s, &chain);
		close_scene(&s);
	}
}

/* ---- Where a queue starts ------------------------------------------------------------------- */

/* The ring says where it is, whatever the front end says. */
/* One that is given back is pending again, and in the ring's position. */
static void given_back(void)
{
	struct vhost_chain chain;
	struct scene s;

	for (unsigned packed = 0; packed < 2; packed++) {
		open_scene(&s, packed, 0, 16);
		driver_add(&s.driver, three, 3);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT(!vhost_pending(s.peer.vhost, 0));
		vhost_unpop(s.peer.vhost, 0);
		CU_ASSERT(vhost_pending(s.peer.vhost, 0));
		vhost_push(s.peer.vhost, 0, &chain, 0); /* nothing is out */
		CU_ASSERT(vhost_pending(s.peer.vhost, 0));
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(chain.nr_in, 2);
		vhost_unpop(s.peer.vhost, 0);
		CU_ASSERT_EQUAL(stop(&s.peer, 0), first(packed));
		close_scene(&s);
	}
}

static void base_split(void)
{
	static const uint32_t wrong[] = {0, 1, 29, 31, 33, 0x8000, 0xffff, 0x12345};
	struct vhost_chain chain;
	struct scene s;

	open_scene(&s, false, 0, 16);
	rounds(&s, 30);
	CU_ASSERT_EQUAL(stop(&s.peer, 0), 30);
	driver_add(&s.driver, three, 1);
	driver_add(&s.driver, three, 2);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, wrong[i]), 0);
		CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT(chain.nr_out == 1 && chain.nr_in == 0);
		CU_ASSERT_EQUAL(stop(&s.peer, 0), 30);
	}
	/* A ring that cannot be right: then what the front end says. */
	split_used(&s.driver)->idx = 33;
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 31), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT_EQUAL(pop(&s, &chain), 1);
	CU_ASSERT(chain.nr_out == 1 && chain.nr_in == 1);
	CU_ASSERT_EQUAL(stop(&s.peer, 0), 31);
	split_used(&s.driver)->idx = 32 - 17;
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 31), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT_EQUAL(stop(&s.peer, 0), 31);
	/* As full as it can be. */
	split_used(&s.driver)->idx = 32 - 16;
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 31), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT_EQUAL(stop(&s.peer, 0), 16);
	/* Neither can be: broken at once. */
	split_used(&s.driver)->idx = 33;
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 40), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT_EQUAL(pop(&s, &chain), -EPROTO);
	close_scene(&s);
}

static void base_packed(void)
{
	struct vhost_chain chain;
	struct scene s;

	open_scene(&s, true, 0, 16);
	rounds(&s, 20); /* four into the second lap */
	CU_ASSERT_EQUAL(stop(&s.peer, 0), 0x00040004);
	driver_add(&s.driver, three, 3);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 0x00040004), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT_EQUAL(pop(&s, &chain), 1);
	CU_ASSERT_EQUAL(chain.count, 3);
	stop(&s.peer, 0);
	/* Outside of the ring. */
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 0x80108010), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 12, 0, s.driver.kick), 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	CU_ASSERT(vhost_error(s.peer.vhost, 0) >= 0);
	/* Another beginning mends it. */
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, 0x00040004), 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	/* Never said where: a fresh ring. */
	CU_ASSERT_EQUAL(stop(&s.peer, 1), 0x80008000);
	close_scene(&s);
}

/* ---- The in-flight record ------------------------------------------------------------------- */

struct inflight {
	uint64_t bytes, offset;
	uint16_t queues, size;
	uint32_t padding;
};

/* QueueRegionPacked of the specification. */
struct packed_record {
	uint64_t features;
	uint16_t version, desc_num, free_head, old_free_head;
	uint16_t used_idx, old_used_idx;
	uint8_t used_wrap, old_used_wrap, padding[10];
};

struct split_record {
	uint64_t features;
	uint16_t version, desc_num, last_batch_head, used_idx;
};

static int get_record(struct peer *peer, struct inflight *is, uint32_t size)
{
	int fd = -1;

	CU_ASSERT_EQUAL(peer_say(peer, 31, 0, is, size, NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(peer, 31, is, sizeof(*is), &fd), (int)size);
	return fd;
}

static void get_inflight(void)
{
	static const struct inflight wrong[] = {
		{0, 0, 0, 16, 0}, {0, 0, QUEUES + 1, 16, 0}, {0, 0, 1, 0, 0}, {0, 0, 1, 1025, 0}};
	struct inflight is = {0, 0, 2, 16, 0};
	uint8_t byte;
	struct peer peer;
	int fd;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	fd = get_record(&peer, &is, 20);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT(is.bytes == 2 * (16 + 16 * 16) + 16 && !is.offset && is.queues == 2);
	CU_ASSERT(ftruncate(fd, 0) < 0 && ftruncate(fd, 1 << 20) < 0); /* sealed */
	for (unsigned i = 0; i < is.bytes - 16; i++)
		CU_ASSERT(pread(fd, &byte, 1, i) == 1 && !byte);
	close(fd);
	CU_ASSERT_EQUAL(peer_do_u64(&peer, 2, PACKED | F_PROTOCOL, -1), 0);
	is = (struct inflight){0, 0, 1, 17, 0};
	fd = get_record(&peer, &is, 24);
	CU_ASSERT_EQUAL(is.bytes, 32 + 32 * 17 + 16);
	close(fd);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		is = wrong[i];
		CU_ASSERT_EQUAL(get_record(&peer, &is, 24), -1);
		CU_ASSERT_EQUAL(is.bytes, 0);
	}
	peer_close(&peer);
}

/* A scene with a record; *map: ours of it. */
static int open_with_record(struct scene *s, bool packed, struct inflight *is, void **map)
{
	int fd;

	peer_open(&s->peer);
	peer_negotiate(&s->peer, packed ? PACKED : 0);
	*is = (struct inflight){0, 0, 2, 16, 0};
	fd = get_record(&s->peer, is, 24);
	*map = mmap(NULL, is->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CU_ASSERT_FATAL(*map != MAP_FAILED);
	CU_ASSERT_EQUAL(peer_do(&s->peer, 32, is, 24, fd), 0);
	driver_init(&s->driver, &s->peer, 0, 16, packed);
	driver_set_up(&s->driver, first(packed));
	return fd;
}

/* A new back end; what the front end says of the position is stale. */
static void reconnect(struct scene *s, const struct inflight *is, int fd, uint64_t instance)
{
	peer_reopen(&s->peer, instance);
	peer_negotiate(&s->peer, s->driver.packed ? PACKED : 0);
	peer_say(&s->peer, 32, 0, is, 24, &fd, 1);
	if (!s->peer.r)
		driver_set_up(&s->driver, first(s->driver.packed));
}

static void record_of_split(void)
{
	struct vhost_chain chain;
	struct split_record *record;
	struct inflight is;
	struct scene s;
	void *map;
	int fd = open_with_record(&s, false, &is, &map);

	record = map;
	CU_ASSERT(record->version == 1 && record->desc_num == 16 && record->features == 0);
	rounds(&s, 21);
	CU_ASSERT_EQUAL(record->used_idx, 21);
	driver_add(&s.driver, three, 2);
	CU_ASSERT_EQUAL(pop(&s, &chain), 1); /* and dies */
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	CU_ASSERT_EQUAL(pop(&s, &chain), 1);
	CU_ASSERT(chain.nr_out == 1 && chain.nr_in == 1);
	munmap(map, is.bytes);
	close(fd);
	close_scene(&s);
}

static void record_of_packed(void)
{
	struct vhost_chain chain;
	struct packed_record *record;
	struct inflight is;
	struct scene s;
	void *map;
	int fd = open_with_record(&s, true, &is, &map);

	record = map;
	CU_ASSERT(record->version == 1 && record->desc_num == 16 && record->features == 0);
	CU_ASSERT(record->used_idx == 0 && record->used_wrap == 1);
	for (unsigned i = 0; i < 7; i++)
		one_round(&s, three, 3);
	CU_ASSERT(record->used_idx == 5 && record->used_wrap == 0);
	CU_ASSERT(record->old_used_idx == 5 && record->old_used_wrap == 0);
	driver_add(&s.driver, three, 2);
	CU_ASSERT_EQUAL(pop(&s, &chain), 1); /* and dies */
	for (unsigned i = 0; i < 40; i++) {
		reconnect(&s, &is, fd, INSTANCE);
		CU_ASSERT_EQUAL(s.peer.r, 0);
		CU_ASSERT_EQUAL(pop(&s, &chain), 1);
		CU_ASSERT_EQUAL(chain.count, 2);
		vhost_push(s.peer.vhost, 0, &chain, 0);
		CU_ASSERT_EQUAL(pop(&s, &chain), 0);
		driver_add(&s.driver, three, 2);
	}
	munmap(map, is.bytes);
	close(fd);
	close_scene(&s);
}

/*
 * The states in which a death leaves a completion on a packed ring, at each place of a ring of
 * which all descriptors are available but for the driver's own delay.
 */
static void states_of_packed(void)
{
	enum { INTENDED, PUBLISHED, REUSED, SETTLED, STATES };

	for (unsigned at = 0; at < 40; at++) {
		for (unsigned state = 0; state < STATES; state++) {
			struct packed_record *record;
			struct vhost_chain chain;
			struct inflight is;
			struct scene s;
			void *map;
			int fd = open_with_record(&s, true, &is, &map);
			unsigned next = at % 16 + 3;
			bool wrap = !(at / 16 & 1);
			uint16_t id, second;
			uint32_t written;

			record = map;
			rounds(&s, at);
			driver_add(&s.driver, three, 3);
			second = driver_add(&s.driver, three, 2);
			/* As hyp/vhost does it, or the specification. */
			record->used_idx = (uint16_t)(next % 16);
			record->used_wrap = next >= 16 ? !wrap : wrap;
			if (state >= PUBLISHED) {
				struct vring_packed_desc *d = &packed_desc(&s.driver)[at % 16];

				d->len = 0;
				d->flags = wrap ? 0x8080 : 0;
				CU_ASSERT(driver_used(&s.driver, &id, &written));
			}
			if (state == REUSED) { /* the driver goes on, all around the ring */
				for (unsigned i = 0; i < 14; i++)
					driver_add(&s.driver, three, 1);
			}
			if (state == SETTLED) {
				record->old_used_idx = record->used_idx;
				record->old_used_wrap = record->used_wrap;
			}
			reconnect(&s, &is, fd, INSTANCE);
			CU_ASSERT_EQUAL(pop(&s, &chain), 1);
			CU_ASSERT_EQUAL(chain.count, state == INTENDED ? 3 : 2);
			if (state != INTENDED)
				CU_ASSERT_EQUAL(chain.id, second);
			CU_ASSERT(record->old_used_idx == record->used_idx &&
				  record->old_used_wrap == record->used_wrap);
			munmap(map, is.bytes);
			close(fd);
			close_scene(&s);
		}
	}
}

/* Another content of the device; a record too small; or empty; or nonsense. */
static void records_of_others(void)
{
	struct vhost_chain chain;
	struct packed_record *record;
	struct inflight is, small;
	struct scene s;
	void *map;
	int fd = open_with_record(&s, true, &is, &map);

	record = map;
	/* Not in use when the driver has not started a queue with it. */
	memset(map, 0, 32);
	reconnect(&s, &is, fd, INSTANCE + 1);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	rounds(&s, 3);
	/* In use now, and of the new instance. */
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, -ESTALE);
	CU_ASSERT_PTR_NOT_NULL(strstr(s.peer.err, "restart"));
	CU_ASSERT_EQUAL(record->used_idx, 3);
	reconnect(&s, &is, fd, INSTANCE + 1);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	rounds(&s, 3);
	/* The second queue's region counts too. */
	memset(map, 0, 32);
	((struct packed_record *)((uint8_t *)map + 32 + 32 * 16))->version = 1;
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, -ESTALE);
	/* One of another back end, without our mark. */
	memset(map, 0, is.bytes);
	record->version = 1;
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, -ESTALE);
	/* All zeroes: a new one. */
	memset(map, 0, is.bytes);
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0) && record->version == 1);
	/* A position outside of the ring breaks the queue, nothing else. */
	record->used_idx = record->old_used_idx = 16;
	reconnect(&s, &is, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0) && vhost_error(s.peer.vhost, 0) >= 0);
	/* Too small: the front end's position counts. */
	record->used_idx = record->old_used_idx = 7;
	small = is;
	small.bytes -= 16;
	driver_close(&s.driver);
	driver_init(&s.driver, &s.peer, 0, 16, true);
	reconnect(&s, &small, fd, INSTANCE);
	CU_ASSERT_EQUAL(s.peer.r, 0);
	rounds(&s, 1);
	CU_ASSERT_EQUAL(record->used_idx, 7);
	/* Refused: larger than its file, at an odd place, of too many queues, under a queue. */
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &is, 24, fd), 1);
	stop(&s.peer, 0);
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &is, 24, fd), 0);
	small = is;
	small.bytes += 1 << 20;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &small, 24, fd), 1);
	small = is;
	small.offset = 8;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &small, 24, fd), 1);
	small = is;
	small.queues = QUEUES + 1;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &small, 24, fd), 1);
	small.queues = 0;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 32, &small, 24, fd), 1);
	CU_ASSERT_EQUAL(pop(&s, &chain), 0);
	munmap(map, is.bytes);
	close(fd);
	close_scene(&s);
}

/* ---- Killed at any instruction -------------------------------------------------------------- */

/*
 * A child completes one request of several pieces while its parent lets it go instruction by
 * instruction, and kills it after `steps` of them. Returns false when the child was through.
 */
static bool die_in_push(struct scene *s, struct vhost_chain *chain, unsigned steps)
{
	pid_t child = fork();
	bool through = false;
	int status;

	CU_ASSERT_FATAL(child >= 0);
	if (!child) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(99);
		raise(SIGSTOP);
		vhost_push(s->peer.vhost, 0, chain, 4000);
		raise(SIGUSR1);
		_exit(98);
	}
	CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
	CU_ASSERT_FATAL(WIFSTOPPED(status)); /* else: no ptrace here */
	while (steps-- && !through) {
		ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
		CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
		through = !WIFSTOPPED(status) || WSTOPSIG(status) == SIGUSR1;
	}
	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) == child && !WIFSIGNALED(status) && !WIFEXITED(status))
		;
	return !through;
}

/* Steps from the end of raise() to the end of raise(). Each of them is a place to die at. */
static void killed_anywhere(bool packed)
{
	unsigned steps = 0, lost = 0, completed = 0;
	bool goes_on = true;

	while (goes_on) {
		struct vhost_chain chain;
		struct inflight is;
		struct scene s;
		uint16_t ids[2], id = 0;
		uint32_t written = 0;
		bool done;
		void *map;
		int fd = open_with_record(&s, packed, &is, &map);

		/* The chain goes over the end of the ring. */
		rounds(&s, 14);
		ids[0] = driver_add(&s.driver, three, 3);
		ids[1] = driver_add(&s.driver, three, 2);
		CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
		goes_on = die_in_push(&s, &chain, steps);
		done = driver_used(&s.driver, &id, &written);
		CU_ASSERT(!done || (id == ids[0] && written == 4000));
		completed += done;
		reconnect(&s, &is, fd, INSTANCE);
		CU_ASSERT_EQUAL_FATAL(pop(&s, &chain), 1);
		if (chain.id != ids[done])
			lost++;
		check_segment(&s, &chain, 0, three[0].address, three[0].bytes);
		if (!done)
			check_three(&s, &chain);
		vhost_push(s.peer.vhost, 0, &chain, 1);
		CU_ASSERT(driver_used(&s.driver, &id, &written) && id == ids[done]);
		munmap(map, is.bytes);
		close(fd);
		close_scene(&s);
		steps++;
	}
	CU_ASSERT_EQUAL(lost, 0);
	CU_ASSERT(completed > 1 && completed < steps);
	printf("(%u places to die at) ", steps);
}

static void killed_split(void)
{
	killed_anywhere(false);
}

static void killed_packed(void)
{
	killed_anywhere(true);
}

/* ---- The dirty log -------------------------------------------------------------------------- */

#define LOG_BYTES ((HIGH_GUEST + HIGH_BYTES) / 4096 / 8 + 16)
#define LOG_OFFSET 0x840

static bool is_dirty(const uint8_t *log, uint64_t address)
{
	return log[LOG_OFFSET + address / 4096 / 8] & 1 << address / 4096 % 8;
}

static unsigned count_dirty(const uint8_t *log)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LOG_BYTES; i++)
		n += (unsigned)__builtin_popcount(log[LOG_OFFSET + i]);
	return n;
}

static const struct piece io[] = {{DATA, 4096, OUT, 0},
				  {DATA + 0x1800, 0x1000, IN, 0},
				  {DATA + 0x8000, 0x1000, IN, 0},
				  {HIGH_GUEST - 16, 32, IN, 0}};

static void write_io(struct scene *s, uint32_t bytes)
{
	struct vhost_chain chain;
	uint32_t written;
	uint16_t id;

	driver_add(&s->driver, io, 4);
	CU_ASSERT_EQUAL(pop(s, &chain), 1);
	vhost_push(s->peer.vhost, 0, &chain, bytes);
	CU_ASSERT(driver_used(&s->driver, &id, &written) && written == bytes);
}

static void dirty(bool packed)
{
	/* The rings have pages of their own; the used ring is said to be where nothing else is. */
	static const uint64_t used_log = 0x5000;
	uint64_t where[2] = {LOG_BYTES, LOG_OFFSET}, value;
	int file = make_file(0x2000);
	uint8_t *log = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	uint64_t data = F_PROTOCOL | (packed ? PACKED : 0);
	struct scene s;

	CU_ASSERT_FATAL(log != MAP_FAILED);
	open_scene(&s, packed, 0, 16);
	CU_ASSERT_EQUAL(peer_say(&s.peer, 6, 0, where, 16, &file, 1), 0);
	CU_ASSERT_EQUAL(peer_hear(&s.peer, 6, &value, 8, NULL), 8); /* always */
	CU_ASSERT_EQUAL(value, 0);
	/* Not before it is asked for. */
	write_io(&s, 0x2020);
	CU_ASSERT_EQUAL(count_dirty(log), 0);
	/* Data alone, as far as it was written. */
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 2, data | LOG_ALL, -1), 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	write_io(&s, 0);
	CU_ASSERT_EQUAL(count_dirty(log), 0);
	write_io(&s, 0x1001);
	CU_ASSERT(is_dirty(log, DATA + 0x1000) && is_dirty(log, DATA + 0x2000));
	CU_ASSERT(is_dirty(log, DATA + 0x8000));
	CU_ASSERT_EQUAL(count_dirty(log), 3);
	write_io(&s, 0x2011);
	CU_ASSERT(is_dirty(log, HIGH_GUEST - 1) && is_dirty(log, HIGH_GUEST));
	CU_ASSERT_EQUAL(count_dirty(log), 5);
	/* Bits that are there stay. */
	memset(log, 0, 0x2000);
	log[LOG_OFFSET + (DATA + 0x1000) / 4096 / 8] = 0xff;
	/* The ring with it. */
	CU_ASSERT_EQUAL(driver_set_addr(&s.driver, 1, used_log), 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	one_round(&s, three, 1);
	CU_ASSERT(is_dirty(log, packed ? LOW_GUEST : used_log));
	CU_ASSERT_EQUAL(count_dirty(log), 9);
	vhost_arm(s.peer.vhost, 0);
	CU_ASSERT(is_dirty(log, used_log));
	CU_ASSERT_EQUAL(count_dirty(log), packed ? 10 : 9);
	CU_ASSERT_EQUAL(log[LOG_OFFSET + (DATA + 0x1000) / 4096 / 8], 0xff);
	/* Beyond the log, at all ends: nothing else is written. */
	memset(log, 0, 0x2000);
	CU_ASSERT_EQUAL(driver_set_addr(&s.driver, 1, LOG_BYTES * 8 * 4096), 0);
	vhost_arm(s.peer.vhost, 0);
	CU_ASSERT_EQUAL(driver_set_addr(&s.driver, 1, UINT64_MAX - 1), 0);
	vhost_arm(s.peer.vhost, 0);
	one_round(&s, three, 1);
	for (unsigned i = 0; i < 0x2000; i++)
		if (i != LOG_OFFSET + LOW_GUEST / 4096 / 8)
			CU_ASSERT_EQUAL(log[i], 0);
	/* And no more when it is over. */
	memset(log, 0, 0x2000);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 2, data, -1), 0);
	write_io(&s, 0x2020);
	CU_ASSERT_EQUAL(count_dirty(log), 0);
	/* Logs that are refused; the old one stays. */
	where[0] = 0x2000;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 6, where, 16, file), 1);
	where[0] = 0;
	CU_ASSERT_EQUAL(peer_do(&s.peer, 6, where, 16, file), 1);
	CU_ASSERT_EQUAL(peer_do(&s.peer, 6, where, 8, file), 1);
	CU_ASSERT_EQUAL(peer_do(&s.peer, 7, NULL, 0, file), 0);
	munmap(log, 0x2000);
	close(file);
	close_scene(&s);
}

static void dirty_split(void)
{
	dirty(false);
}

static void dirty_packed(void)
{
	dirty(true);
}

int main(void)
{
	CU_TestInfo chains[] = {{"laps, split", laps_split},
				{"laps, packed", laps_packed},
				{"popped again", popped_again},
				{"looked at ahead, split", peeks_split},
				{"looked at ahead, packed", peeks_packed},
				{"tables, split", tables_split},
				{"tables, packed", tables_packed},
				{"across mappings", crosses_mappings},
				{"bad chains, split", bad_split},
				{"bad chains, packed", bad_packed},
				{"told before it broke", told_when_broken},
				CU_TEST_INFO_NULL};
	CU_TestInfo notifications[] = {{"flags, split", flags_split},
				       {"event index, split", events_split},
				       {"flags, packed", flags_packed},
				       {"event index, packed", events_packed},
				       CU_TEST_INFO_NULL};
	CU_TestInfo states[] = {{"runs when it is complete", runs_when_complete},
				{"enabled from the start", enabled_from_the_start},
				{"refused", refused_setups},
				{"the layout changes", layout_changes},
				{"memory changes under a request", memory_changes},
				{"given back", given_back},
				{"position, split", base_split},
				{"position, packed", base_packed},
				CU_TEST_INFO_NULL};
	CU_TestInfo inflights[] = {{"a record is given out", get_inflight},
				   {"split", record_of_split},
				   {"packed", record_of_packed},
				   {"each state of a completion", states_of_packed},
				   {"records of others", records_of_others},
				   {"killed at any instruction, split", killed_split},
				   {"killed at any instruction, packed", killed_packed},
				   CU_TEST_INFO_NULL};
	CU_TestInfo logs[] = {{"split", dirty_split}, {"packed", dirty_packed}, CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"vhost: chains", NULL, NULL, NULL, NULL, chains},
				 {"vhost: notifications", NULL, NULL, NULL, NULL, notifications},
				 {"vhost: states", NULL, NULL, NULL, NULL, states},
				 {"vhost: in-flight record", NULL, NULL, NULL, NULL, inflights},
				 {"vhost: dirty log", NULL, NULL, NULL, NULL, logs},
				 CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
