// SPDX-License-Identifier: GPL-2.0-or-later
/* Connections that another process goes on with, and what it must not go on with. */
#include "tests/unit/unit.h"
#include "tests/unit/vhost_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sigbus.h"

#define PACKED BIT(VIRTIO_F_RING_PACKED)
#define LOG_ALL BIT(VHOST_F_LOG_ALL)
#define RING 16

static const struct piece pieces[] = {{DATA, 16, 0, 0}, {DATA + 0x1000, 64, VRING_DESC_F_WRITE, 0}};

struct record {
	uint64_t bytes;
	uint64_t offset;
	uint16_t queues;
	uint16_t queue_size;
	uint32_t padding;
};

struct scene {
	struct peer peer;
	struct driver driver;
	struct record is;
	int record; /* -1: none */
};

static void open_scene(struct scene *s, uint64_t features, bool with_record)
{
	peer_open(&s->peer);
	peer_negotiate(&s->peer, features);
	s->record = -1;
	s->is = (struct record){.queues = QUEUES, .queue_size = RING};
	if (with_record) {
		CU_ASSERT_EQUAL(peer_say(&s->peer, 31, 0, &s->is, 24, NULL, 0), 0);
		CU_ASSERT_EQUAL(peer_hear(&s->peer, 31, &s->is, 24, &s->record), 24);
		CU_ASSERT_EQUAL(peer_do(&s->peer, 32, &s->is, 24, s->record), 0);
	}
	driver_init(&s->driver, &s->peer, 0, RING, features & PACKED);
	driver_set_up(&s->driver, features & PACKED ? 0x80008000 : 0);
	CU_ASSERT(vhost_running(s->peer.vhost, 0));
}

static void close_scene(struct scene *s)
{
	if (s->record >= 0)
		close(s->record);
	driver_close(&s->driver);
	peer_close(&s->peer);
}

static void close_files(struct vhost_saved *saved)
{
	while (saved->nr_fds)
		close(saved->fds[--saved->nr_fds]);
}

/* ---- Going on ------------------------------------------------------------------------------- */

/* A request that was out comes again; one that was completed does not. */
static void requests(uint64_t features)
{
	struct vhost_chain chain;
	uint32_t written;
	struct scene s;
	uint16_t id;

	open_scene(&s, features, true);
	for (unsigned i = 0; i < 100; i++) {
		uint16_t added = driver_add(&s.driver, pieces, 2);

		CU_ASSERT_EQUAL(vhost_pop(s.peer.vhost, 0, &chain), 1);
		peer_take_over(&s.peer);
		CU_ASSERT(vhost_running(s.peer.vhost, 0) && !vhost_polled(s.peer.vhost, 0));
		CU_ASSERT(s.peer.kicks[0] >= 0 && s.peer.kicks[1] < 0);
		CU_ASSERT(!driver_used(&s.driver, &id, &written));
		CU_ASSERT_EQUAL_FATAL(vhost_pop(s.peer.vhost, 0, &chain), 1);
		CU_ASSERT(chain.nr_out == 1 && chain.nr_in == 1);
		vhost_push(s.peer.vhost, 0, &chain, i);
		if (i % 3)
			peer_take_over(&s.peer);
		CU_ASSERT(driver_used(&s.driver, &id, &written));
		CU_ASSERT(id == added && written == i);
		CU_ASSERT_EQUAL(vhost_pop(s.peer.vhost, 0, &chain), 0);
		CU_ASSERT(vhost_call_fd(s.peer.vhost, 0) >= 0);
	}
	close_scene(&s);
}

static void requests_split(void)
{
	requests(0);
}

static void requests_packed(void)
{
	requests(PACKED);
}

/* All that there can be, and it is the same for the next process, and the next but one. */
static void all_of_it(void)
{
	static const struct region third = {0x10000000, 0x1000, 0x10000000, 0x800};
	uint64_t where[2] = {0x1000, 0x800}, value = 0;
	int back[2], log = make_file(0x2000);
	struct vhost_saved saved[3];
	uint32_t change[3];
	unsigned before;
	struct scene s;

	open_scene(&s, LOG_ALL, true);
	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, back));
	CU_ASSERT_EQUAL(peer_do(&s.peer, 21, NULL, 0, back[1]), 0);
	CU_ASSERT_EQUAL(peer_say(&s.peer, 6, 0, where, 16, &log, 1), 0);
	CU_ASSERT_EQUAL(peer_hear(&s.peer, 6, &value, 8, NULL), 8);
	CU_ASSERT_EQUAL(peer_slot(&s.peer, 37, &third, s.peer.file), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 39, 0xf, -1), 0);
	CU_ASSERT_EQUAL(peer_do_u64(&s.peer, 2, BIT(63), -1), 1); /* refused */
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 8, 1, 8), 0);
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 1, 77), 0);
	before = open_fds();
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT(vhost_save(s.peer.vhost, &saved[i]));
		peer_take_over(&s.peer);
		CU_ASSERT_EQUAL(open_fds(), before);
	}
	/* Connection, channel, log, record, three pieces of memory, three eventfds. */
	CU_ASSERT(saved[0].nr_fds == 10 && saved[2].nr_fds == 10);
	/* (That a base was once said of a queue that runs, does not count any more.) */
	CU_ASSERT(!memcmp(saved[1].bytes, saved[2].bytes, sizeof(saved[1].bytes)));
	CU_ASSERT_EQUAL(vhost_features(s.peer.vhost), LOG_ALL | F_PROTOCOL | BIT(32));
	CU_ASSERT_EQUAL(peer_ask_u64(&s.peer, 40), 7); /* without FEATURES_OK */
	CU_ASSERT_EQUAL(peer_slot(&s.peer, 38, &third, -1), 0);
	CU_ASSERT_EQUAL(peer_slot(&s.peer, 38, &third, -1), 1);
	vhost_config_changed(s.peer.vhost);
	CU_ASSERT_EQUAL(recv(back[0], change, sizeof(change), MSG_DONTWAIT), 12);
	/* The other queue: where it is to start. */
	CU_ASSERT_EQUAL(peer_say(&s.peer, 11, 0, (uint32_t[]){1, 0}, 8, NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(&s.peer, 11, &value, 8, NULL), 8);
	CU_ASSERT_EQUAL(value, 77ull << 32 | 1);
	close(back[0]);
	close(back[1]);
	close(log);
	close_scene(&s);
}

/* A former process may have died between a write to the ring and its mark. */
static void dirty_rings(void)
{
	uint64_t where[2] = {0x100, 0}, value;
	int log = make_file(0x1000);
	struct scene s;
	uint8_t byte;

	open_scene(&s, LOG_ALL, true);
	CU_ASSERT_EQUAL(peer_say(&s.peer, 6, 0, where, 16, &log, 1), 0);
	CU_ASSERT_EQUAL(peer_hear(&s.peer, 6, &value, 8, NULL), 8);
	CU_ASSERT_EQUAL(driver_set_addr(&s.driver, 1, LOW_GUEST + s.driver.used), 0);
	CU_ASSERT(pread(log, &byte, 1, (LOW_GUEST + s.driver.used) >> 15) == 1 && !byte);
	peer_take_over(&s.peer);
	CU_ASSERT(pread(log, &byte, 1, (LOW_GUEST + s.driver.used) >> 15) == 1);
	CU_ASSERT(byte & 1u << ((LOW_GUEST + s.driver.used) >> 12 & 7));
	close(log);
	close_scene(&s);
}

/* Broken queues stay so until they are set up anew; stopped ones stop. */
static void stopped(void)
{
	struct vhost_chain chain;
	struct scene s;

	open_scene(&s, 0, false);
	driver_add(&s.driver, &(struct piece){0, 1, 0, 0}, 1);
	CU_ASSERT_EQUAL(vhost_pop(s.peer.vhost, 0, &chain), -EPROTO);
	peer_take_over(&s.peer);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 10, 0, s.driver.idx), 0);
	/* The ring says that nothing was completed: it is found again. */
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 18, 0, 0), 0);
	peer_take_over(&s.peer);
	CU_ASSERT(!vhost_running(s.peer.vhost, 0));
	CU_ASSERT_EQUAL(peer_do_state(&s.peer, 18, 0, 1), 0);
	CU_ASSERT(vhost_running(s.peer.vhost, 0));
	close_scene(&s);
}

/* ---- Not going on --------------------------------------------------------------------------- */

static void not_saved(void)
{
	static const uint32_t message[] = {1, 1, 0};
	struct vhost_saved saved;
	struct scene s;

	open_scene(&s, 0, true);
	CU_ASSERT(vhost_save(s.peer.vhost, &saved));
	peer_send(&s.peer, message, 5, NULL, 0);
	CU_ASSERT(!vhost_save(s.peer.vhost, &saved));
	peer_send(&s.peer, (const uint8_t *)message + 5, 7, NULL, 0);
	CU_ASSERT(vhost_save(s.peer.vhost, &saved));
	/* Memory is cut, and somebody looks. */
	CU_ASSERT(!ftruncate(s.peer.file, 0));
	CU_ASSERT(!vhost_pending(s.peer.vhost, 0) || vhost_lost(s.peer.vhost));
	CU_ASSERT(vhost_lost(s.peer.vhost));
	CU_ASSERT(!vhost_save(s.peer.vhost, &saved));
	close_scene(&s);
}

/* Restores what was saved when `change` is done to it; no descriptor is left. */
static void expect(struct scene *s, int error, const char *word,
		   void (*change)(struct scene *s, struct vhost_saved *saved))
{
	struct vhost_saved saved;
	int instance = error == -ESTALE;
	unsigned left;

	CU_ASSERT_FATAL(peer_save(&s->peer, &saved));
	peer_die(&s->peer);
	if (change)
		change(s, &saved);
	left = open_fds() - saved.nr_fds;
	CU_ASSERT_EQUAL(peer_restore(&s->peer, &saved, INSTANCE + instance), error);
	if (!strstr(s->peer.err, word))
		CU_FAIL(word);
	if (s->peer.vhost)
		peer_die(&s->peer);
	CU_ASSERT_EQUAL(open_fds(), left);
	CU_ASSERT(s->peer.kicks[0] < 0 && s->peer.kicks[1] < 0);
	CU_ASSERT_EQUAL(recv(s->peer.sock, &saved, 1, MSG_DONTWAIT), 0); /* the end */
	close_scene(s);
}

static void cut_memory(struct scene *s, struct vhost_saved *saved)
{
	(void)saved;
	CU_ASSERT(!ftruncate(s->peer.file, LOW_BYTES - 1));
}

static void scribble_record(struct scene *s, struct vhost_saved *saved)
{
	uint16_t none = 0;

	(void)saved;
	CU_ASSERT_EQUAL(pwrite(s->record, &none, 2, 8), 2); /* the version: not in use */
}

static void other_version(struct scene *s, struct vhost_saved *saved)
{
	(void)s;
	saved->bytes[0]++;
}

static void less(struct scene *s, struct vhost_saved *saved)
{
	(void)s;
	close(saved->fds[--saved->nr_fds]);
}

static void nothing(struct scene *s, struct vhost_saved *saved)
{
	(void)s;
	close_files(saved);
}

static void refused(void)
{
	struct scene s;

	open_scene(&s, 0, false);
	expect(&s, -ESTALE, "made anew", NULL);
	open_scene(&s, PACKED, false);
	expect(&s, -EPROTO, "in-flight record", NULL);
	open_scene(&s, PACKED, true);
	expect(&s, -EPROTO, "in-flight record", scribble_record);
	open_scene(&s, 0, true);
	expect(&s, 0, "", scribble_record);
	open_scene(&s, 0, true);
	expect(&s, -EPROTO, "too short", cut_memory);
	open_scene(&s, 0, true);
	expect(&s, -EPROTO, "release", other_version);
	open_scene(&s, 0, true);
	expect(&s, -EPROTO, "files", less);
	open_scene(&s, 0, true);
	expect(&s, -EPROTO, "connection", nothing);
}

/* Any byte wrong: refused, or something that a front end could have said as well. */
static void damaged(void)
{
	unsigned went_on = 0, before;
	struct vhost_saved good, bad;
	struct vhost_chain chain;
	struct scene s;

	log_setup(LOG_ERROR - 1, false);
	open_scene(&s, 0, true);
	driver_add(&s.driver, pieces, 2);
	before = open_fds();
	for (unsigned i = 0; i < 900 * 2; i++) {
		bool opened;

		CU_ASSERT_FATAL(peer_save(&s.peer, &good));
		CU_ASSERT_FATAL(peer_save(&s.peer, &bad));
		peer_die(&s.peer);
		bad.bytes[i / 2] ^= i & 1 ? 0x80 : 1;
		opened = !peer_restore(&s.peer, &bad, INSTANCE);
		if (opened) {
			went_on++;
			for (unsigned q = 0; q < QUEUES; q++)
				while (vhost_pop(s.peer.vhost, q, &chain) == 1)
					vhost_push(s.peer.vhost, q, &chain, 0);
			peer_die(&s.peer);
		}
		CU_ASSERT_EQUAL_FATAL(peer_restore(&s.peer, &good, INSTANCE), 0);
		CU_ASSERT_EQUAL_FATAL(open_fds(), before);
	}
	CU_ASSERT(went_on > 0 && went_on < 900 * 2);
	log_setup(LOG_NOTE, false);
	close_scene(&s);
}

int main(void)
{
	CU_TestInfo goes_on[] = {{"requests, split", requests_split},
				 {"requests, packed", requests_packed},
				 {"all of it", all_of_it},
				 {"rings in the dirty log", dirty_rings},
				 {"broken and stopped queues", stopped},
				 CU_TEST_INFO_NULL};
	CU_TestInfo refusals[] = {{"not saved", not_saved},
				  {"refused", refused},
				  {"damaged", damaged},
				  CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"vhost: going on", NULL, NULL, NULL, NULL, goes_on},
				 {"vhost: not going on", NULL, NULL, NULL, NULL, refusals},
				 CU_SUITE_INFO_NULL};

	if (sigbus_install())
		return 1;
	return unit_run(suites);
}
