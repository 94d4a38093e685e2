// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd goes away and comes back, with a service manager that keeps descriptors, under disks whose
 * front ends cannot connect again: they notice nothing but a wait. Their connections see no end,
 * every request completes once, and every block is what was written last (case 15, case 16,
 * case 17). What cannot be gone on with is closed, and never gone on with wrongly: front ends that
 * can connect again do so then.
 */
#include "diskload.h"
#include "manager.h"
#include "tests/lib/vhost_hostile.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISKS 2
#define KEPT 2 /* of each connection */
#define HANG_UP_MS 10000

/* Completions of a dead tmemd are called for when the next one is there. */
#define CALL_MS 60000u
#define STALL_MS 120000u

static struct load loads[DISKS];
static const char *const disks[DISKS] = {"d1", "d2"};

static void kill_and_start(int sig)
{
	service_kill(sig);
	service_start(NULL);
}

/* Whether the connection is recorded at this moment. */
static bool recorded(const char *disk)
{
	char name[32], byte;
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "%s/session1", disk);
	fd = manager_get(name);
	if (fd < 0)
		return false;
	n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	close(fd);
	return n == 1;
}

/* The same when nothing is under way: what was answered a moment ago is recorded soon. */
static void kill_at_rest(const char *disk, int sig)
{
	EVENTUALLY(recorded(disk));
	kill_and_start(sig);
}

static void some_work(uint64_t n)
{
	uint64_t from[DISKS];

	for (unsigned i = 0; i < DISKS; i++)
		from[i] = loads[i].done;
	for (unsigned i = 0; i < DISKS; i++)
		EVENTUALLY(loads[i].done - from[i] >= n);
}

/* ---- Under load ----------------------------------------------------------------------------- */

static void kills(struct rng *rng, uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++) {
		player_nap_ms(5 + rng_below(rng, 100));
		kill_and_start(i % 4 == 3 ? SIGTERM : SIGKILL);
		/* Killed once more as soon as it is back, also in the middle of taking over. */
		if (i % 4 == 1) {
			usleep(rng_below(rng, 20000));
			kill_and_start(SIGKILL);
		}
		some_work(50);
	}
}

#ifdef TMEMD_FAULT_INJECTION
static bool start_to_be_killed(const char *point, unsigned skip)
{
	char faults[64];

	snprintf(faults, sizeof(faults), "%s=kill:%u", point, skip);
	return service_try_start(faults);
}

static void wait_for_death(void)
{
	int status = 0, turns = 0;

	while (!service_ended(&status) && turns++ < 6000)
		player_nap_ms(5);
	CHECK(WIFSIGNALED(status));
}

static void kills_at_points(struct rng *rng)
{
	static const char *const points[] = {"put_payload", "put_published", "disk_executed",
					     "disk_completed"};

	for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		printf("killed at %s\n", points[i]);
		fflush(stdout);
		service_kill(SIGKILL);
		if (start_to_be_killed(points[i], rng_below(rng, 300)))
			wait_for_death();
		service_start(NULL);
		some_work(50);
	}
}
#endif

static void away_for_a_while(void)
{
	CHECK_IS(service_kill(SIGTERM), 0);
	player_nap_ms(2000);
	service_start(NULL);
	some_work(50);
}

static void under_load(struct rng *rng, const struct vu_options options[DISKS], uint64_t rounds)
{
	for (unsigned i = 0; i < DISKS; i++) {
		load_init(&loads[i], disk_open(disks[i], &options[i]), 2, rng_next(rng));
		loads[i].call_ms = CALL_MS;
		loads[i].stall_ms = STALL_MS;
		load_start(&loads[i]);
	}
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	some_work(100);
	kills(rng, rounds);
#ifdef TMEMD_FAULT_INJECTION
	kills_at_points(rng);
#endif
	away_for_a_while();
	for (unsigned i = 0; i < DISKS; i++) {
		load_end(&loads[i]);
		load_verify(&loads[i]);
		CHECK(!vu_hung_up(loads[i].vu, 0));
		printf("%s: %llu requests, longest %llu ms\n", disks[i],
		       (unsigned long long)loads[i].done, (unsigned long long)loads[i].longest_ms);
		fflush(stdout);
	}
	CHECK_IS(manager_kept(), DISKS * KEPT);
}

/* Positions are right also for a front end that goes in order, and for the next one. */
static void reopen(void)
{
	for (unsigned i = 0; i < DISKS; i++) {
		CHECK_IS(vu_close(loads[i].vu), 0);
		loads[i].vu =
			disk_open(disks[i], &(struct vu_options){.packed = !i,
								 .queues = 2,
								 .no_indirect = i,
								 .memory_slots = true,
								 .data_bytes = LOAD_DATA_BYTES});
		load_verify(&loads[i]);
	}
	EVENTUALLY(manager_kept() == DISKS * KEPT);
}

/* ---- Quiet ones; both front ends from here on are loads[] ----------------------------------- */

static void verify_all(void)
{
	for (unsigned i = 0; i < DISKS; i++) {
		load_run(&loads[i], 40);
		load_drain(&loads[i]);
		load_verify(&loads[i]);
		CHECK(!vu_hung_up(loads[i].vu, 0));
	}
}

/* Nothing is under way; the position of the rings is all that there is to find. */
static void idle(void)
{
	for (unsigned turn = 0; turn < 4; turn++) {
		for (unsigned i = 0; i < DISKS; i++) {
			load_run(&loads[i], 37);
			load_drain(&loads[i]);
		}
		kill_and_start(turn % 2 ? SIGTERM : SIGKILL);
	}
	verify_all();
}

/* Requests made while tmemd is away, kicked for then or not at all. */
static void made_meanwhile(void)
{
	service_kill(SIGKILL);
	for (unsigned i = 0; i < DISKS; i++)
		load_run(&loads[i], 6);
	service_start(NULL);
	verify_all();
}

static void expect_config(struct vu *vu)
{
	uint8_t payload[64];
	uint32_t request, flags, size;

	CHECK_IS(vu_receive_raw(vu_socket(vu), &request, &flags, payload, sizeof(payload), &size,
				10000),
		 0);
	CHECK_IS(request, VU_GET_CONFIG);
	CHECK_IS(size, 12 + 8);
}

/* A message of which the first `bytes` are sent, and the rest later. */
static uint32_t config_message[] = {VU_GET_CONFIG, VU_VERSION, 12 + 8, 0, 8, 0, 0, 0};

static void send_part(struct vu *vu, size_t from, size_t to)
{
	const uint8_t *bytes = (const uint8_t *)config_message;

	CHECK_IS(send(vu_socket(vu), bytes + from, to - from, MSG_NOSIGNAL), to - from);
}

/* What is sent meanwhile is read by the next tmemd, all of it or the first part. */
static void messages_meanwhile(void)
{
	static const size_t parts[] = {sizeof(config_message), 1, 12, 20};
	struct vu *vu = loads[0].vu;

	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		EVENTUALLY(recorded("d1"));
		service_kill(i % 2 ? SIGTERM : SIGKILL);
		send_part(vu, 0, parts[i]);
		service_start(NULL);
		player_nap_ms(20);
		if (parts[i] < sizeof(config_message))
			send_part(vu, parts[i], sizeof(config_message));
		expect_config(vu);
	}
	kill_at_rest("d1", SIGKILL);
	verify_all();
}

/* The connection ends, the front end makes another, and goes on. */
static void closed_and_reconnects(unsigned disk)
{
	struct load *load = &loads[disk];

	CHECK(vu_hung_up(load->vu, HANG_UP_MS));
	CHECK_IS(vu_reconnect(load->vu, 10000), 0);
	load_run(load, 40);
	load_drain(load);
	load_verify(load);
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	EVENTUALLY(recorded(disks[disk]));
}

/*
 * Killed, or stopped, while a message is read in part: nobody could go on. When the rest comes
 * before that, it is as good as ever.
 */
static void half_a_message(void)
{
	static const size_t parts[] = {1, 12, 20};

	for (unsigned i = 0; i < 2 * 3; i++) {
		EVENTUALLY(recorded("d1"));
		send_part(loads[0].vu, 0, parts[i % 3]);
		EVENTUALLY(!recorded("d1"));
		kill_and_start(i % 2 ? SIGTERM : SIGKILL);
		closed_and_reconnects(0);

		send_part(loads[0].vu, 0, parts[i % 3]);
		EVENTUALLY(!recorded("d1"));
		send_part(loads[0].vu, parts[i % 3], sizeof(config_message));
		expect_config(loads[0].vu);
		EVENTUALLY(recorded("d1"));
		kill_and_start(SIGKILL);
	}
	verify_all();
}

/* Memory that comes and goes, before and after; d1 and d2 both have slots. */
static void memory_slots(void)
{
	struct vu_mem_reg more = {
		.region = {.guest = 1ull << 40, .bytes = 8192, .user = 1ull << 40, .offset = 4096}};
	struct vu_mem_reg half = {};
	struct vu *vu = loads[1].vu;
	int fd = memfd_create("more", MFD_CLOEXEC);

	CHECK(fd >= 0 && !ftruncate(fd, 3 * 4096));
	vu_memory_region(vu, 2, &half.region);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_IS(vu_tell(vu, VU_ADD_MEM_REG, &more, sizeof(more), &fd, 1), 0);
		CHECK_IS(vu_tell(vu, VU_ADD_MEM_REG, &more, sizeof(more), &fd, 1), -EREMOTEIO);
		kill_at_rest("d2", SIGKILL);
		CHECK_IS(vu_tell(vu, VU_ADD_MEM_REG, &more, sizeof(more), &fd, 1), -EREMOTEIO);
		CHECK_IS(vu_tell(vu, VU_REM_MEM_REG, &half, sizeof(half), NULL, 0), 0);
		kill_at_rest("d2", SIGTERM);
		half.region.offset = 4096;
		CHECK_IS(vu_tell(vu, VU_ADD_MEM_REG, &half, sizeof(half),
				 &(int){vu_memory_fd(vu, 2)}, 1),
			 0);
		CHECK_IS(vu_tell(vu, VU_REM_MEM_REG, &more, sizeof(more), NULL, 0), 0);
		CHECK_IS(vu_tell(vu, VU_REM_MEM_REG, &more, sizeof(more), NULL, 0), -EREMOTEIO);
		kill_at_rest("d2", SIGKILL);
		verify_all();
	}
	close(fd);
}

/* What is in the configuration space is heard by the same channel; what the driver set there stays.
 */
static void configuration(void)
{
	struct vu_options options = {.queues = 1};
	uint64_t sectors = 0;
	char command[256];
	struct vu *vu;
	uint8_t off = 0, wce = 1;
	bool told;

	snprintf(command, sizeof(command), "disk create d3 --size 8M --socket %s",
		 service_socket("d3"));
	service_ctl(command);
	vu = disk_open("d3", &options);
	EVENTUALLY(manager_kept() == (DISKS + 1) * KEPT);
	CHECK_IS(vu_set_config(vu, offsetof(struct virtio_blk_config, wce), &off, 1), 0);
	vu_config_changed(vu);
	for (unsigned mib = 16; mib <= 32; mib += 16) {
		kill_at_rest("d3", SIGKILL);
		told = vu_config_changed(vu);
		CHECK(!told);
		snprintf(command, sizeof(command), "disk resize d3 %uM", mib);
		service_ctl(command);
		EVENTUALLY((told = told || vu_config_changed(vu)));
		CHECK_IS(vu_get_config(vu, 0, &sectors, sizeof(sectors)), 0);
		CHECK_IS(sectors, (uint64_t)mib << 20 >> 9);
		CHECK_IS(vu_get_config(vu, offsetof(struct virtio_blk_config, wce), &wce, 1), 0);
		CHECK_IS(wce, 0);
		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_OUT, (mib << 20) / BLOCK - 1, 1), 0);
	}
	CHECK_IS(vu_close(vu), 0);
	EVENTUALLY(manager_kept() == DISKS * KEPT);

	/* Removed while somebody is connected. */
	vu = disk_open("d3", &options);
	kill_at_rest("d3", SIGKILL);
	service_ctl("disk remove d3 --force");
	CHECK(vu_hung_up(vu, HANG_UP_MS));
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	vu_kill(vu);
}

/* ---- What cannot be gone on with ------------------------------------------------------------ */

#define NOTE_ROOM 8192
#define NOTE_FDS 128

struct kept_note {
	uint8_t bytes[NOTE_ROOM];
	size_t nr_bytes;
	int fds[NOTE_FDS];
	unsigned nr_fds;
};

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int) * NOTE_FDS)];
};

static void take_out(int fd, struct kept_note *note)
{
	union control control;
	struct iovec iov = {note->bytes, sizeof(note->bytes)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = sizeof(control.room)};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	CHECK(n > 0 && c && c->cmsg_type == SCM_RIGHTS);
	note->nr_bytes = (size_t)n;
	note->nr_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(note->fds, CMSG_DATA(c), note->nr_fds * sizeof(int));
}

/* Closes what it has of its descriptors. */
static void put_in(int fd, const struct kept_note *note, unsigned nr_fds)
{
	union control control = {};
	struct iovec iov = {(void *)note->bytes, note->nr_bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = &control.header;

	if (nr_fds) {
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr_fds);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nr_fds);
		memcpy(CMSG_DATA(c), note->fds, sizeof(int) * nr_fds);
	}
	CHECK_IS(sendmsg(fd, &msg, MSG_NOSIGNAL), note->nr_bytes);
	for (unsigned i = 0; i < note->nr_fds; i++)
		close(note->fds[i]);
}

/* Something else lies in the box of d1 while tmemd is away. */
static void damage(void (*change)(struct kept_note *note, unsigned *nr_fds, unsigned how),
		   unsigned how)
{
	int in = manager_get("d1/session0"), out = manager_get("d1/session1");
	struct kept_note note;
	unsigned nr_fds;

	CHECK(in >= 0 && out >= 0);
	take_out(out, &note);
	nr_fds = note.nr_fds;
	change(&note, &nr_fds, how);
	put_in(in, &note, nr_fds);
	close(in);
	close(out);
}

static void flip(struct kept_note *note, unsigned *nr_fds, unsigned how)
{
	(void)nr_fds;
	note->bytes[how % note->nr_bytes] ^= (uint8_t)(1u << how % 8);
}

static void shorten(struct kept_note *note, unsigned *nr_fds, unsigned how)
{
	(void)nr_fds;
	note->nr_bytes = how;
}

static void fewer_files(struct kept_note *note, unsigned *nr_fds, unsigned how)
{
	(void)note;
	*nr_fds -= how < *nr_fds ? how : *nr_fds;
}

/* The connection is something else. */
static void other_file(struct kept_note *note, unsigned *nr_fds, unsigned how)
{
	int fd = note->fds[0];

	(void)nr_fds;
	note->fds[0] = note->fds[how];
	note->fds[how] = fd;
}

static void damaged(struct rng *rng)
{
	static const unsigned lengths[] = {1, 4, 8, 12, 100};

	for (unsigned i = 0; i < 12 + 5 + 3; i++) {
		EVENTUALLY(recorded("d1"));
		service_kill(SIGKILL);
		if (i < 12)
			damage(flip, i < 4 ? i * 4 : rng_below(rng, NOTE_ROOM));
		else if (i < 17)
			damage(shorten, lengths[i - 12]);
		else
			damage(fewer_files, (const unsigned[]){1, 5, NOTE_FDS}[i - 17]);
		service_start(NULL);
		closed_and_reconnects(0);
	}
	EVENTUALLY(recorded("d1"));
	service_kill(SIGKILL);
	damage(other_file, 3);
	service_start(NULL);
	closed_and_reconnects(0);
	verify_all();
}

/* The manager has lost one, or both, or its store is full. */
static void not_kept(void)
{
	static const char *const names[] = {"d1/session0", "d1/session1"};

	for (unsigned i = 1; i < 4; i++) {
		EVENTUALLY(recorded("d1"));
		service_kill(i % 2 ? SIGKILL : SIGTERM);
		for (unsigned k = 0; k < 2; k++)
			if (i >> k & 1)
				manager_forget(names[k]);
		service_start(NULL);
		closed_and_reconnects(0);
	}
	for (int room = 0; room < KEPT; room++) {
		CHECK_IS(vu_close(loads[0].vu), 0);
		EVENTUALLY(manager_kept() == KEPT);
		manager_limit(KEPT + room);
		loads[0].vu = disk_open("d1", &(struct vu_options){.queues = 2,
								   .data_bytes = LOAD_DATA_BYTES});
		load_verify(&loads[0]);
		service_kill(SIGKILL);
		CHECK(vu_hung_up(loads[0].vu, room ? 0 : HANG_UP_MS) || room);
		manager_limit(128);
		service_start(NULL);
		closed_and_reconnects(0);
	}
	verify_all();
}

/* Without the record nobody knows where a packed ring was. A split one says that itself. */
static void no_inflight(void)
{
	struct vu_options options = {
		.queues = 2, .no_inflight = true, .data_bytes = LOAD_DATA_BYTES};

	CHECK_IS(vu_close(loads[0].vu), 0);
	loads[0].vu = disk_open("d1", &options);
	load_run(&loads[0], 100);
	kill_at_rest("d1", SIGKILL);
	verify_all();
	CHECK_IS(vu_close(loads[0].vu), 0);
	options.packed = true;
	loads[0].vu = disk_open("d1", &options);
	load_verify(&loads[0]);
	kill_at_rest("d1", SIGTERM);
	CHECK(vu_hung_up(loads[0].vu, HANG_UP_MS));
	vu_kill(loads[0].vu);
	options.no_inflight = false;
	loads[0].vu = disk_open("d1", &options);
	verify_all();
}

#ifdef TMEMD_FAULT_INJECTION
struct visitors {
	struct vu_options options;
	_Atomic bool stop;
	unsigned failed;
};

/* Front ends connect and go. */
static void *come_and_go(void *arg)
{
	struct visitors *visitors = arg;
	struct vu *vu;

	while (!atomic_load(&visitors->stop)) {
		int r = vu_open(&vu, service_socket("d1"), &visitors->options);

		if (!r) {
			vu_close(vu);
			continue;
		}
		/* Nobody listens while the service is away, or takes up the first word: no set-up.
		 */
		visitors->failed += r != -ECONNREFUSED && r != -ENOENT && r != -EBUSY;
		player_nap_ms(5);
	}
	return NULL;
}

/* Killed at the n-th pass. */
static void kill_at(const char *point, unsigned skip)
{
	struct visitors visitors = {.options = {.queues = 2, .data_bytes = LOAD_DATA_BYTES}};
	pthread_t thread;

	printf("killed at %s, pass %u\n", point, skip + 1);
	fflush(stdout);
	EVENTUALLY(recorded("d1"));
	service_kill(SIGKILL);
	CHECK(start_to_be_killed(point, skip));
	CHECK(!vu_hung_up(loads[0].vu, 0));
	vu_kill(loads[0].vu);
	CHECK(!pthread_create(&thread, NULL, come_and_go, &visitors));
	wait_for_death();
	service_start(NULL);
	atomic_store(&visitors.stop, true);
	CHECK(!pthread_join(thread, NULL));
	/* What was recorded goes on, in the middle of the set-up. */
	CHECK(!visitors.failed || strcmp(point, "session_recorded"));
	loads[0].vu = disk_open("d1", &visitors.options);
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	load_run(&loads[0], 40);
	load_drain(&loads[0]);
}

/* While sessions are taken over: they are all the same for the next one. */
static void kill_at_start(unsigned skip)
{
	CHECK(!start_to_be_killed("session_taken", skip));
	service_start(NULL);
	verify_all();
}

static void at_points(void)
{
	static const char *const points[] = {"session_kept", "session_forgotten",
					     "session_answered", "session_recorded",
					     "session_ended"};

	for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		for (unsigned skip = 0; skip < 40; skip += skip < 3 ? 1 : 9)
			kill_at(points[i], skip);
	verify_all();
	for (unsigned i = 0; i < DISKS; i++) {
		service_kill(SIGKILL);
		kill_at_start(i);
	}
}

/* A session that is at work when it happens. What was answered is not waited for. */
static void at_points_connected(void)
{
	static const struct {
		const char *point;
		bool answered, goes_on;
	} cases[] = {
		{"session_forgotten", false, false},
		{"session_answered", true, false},
		{"session_recorded", true, true},
	};
	uint64_t sectors;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vu *vu = loads[0].vu;

		EVENTUALLY(recorded("d1"));
		service_kill(SIGKILL);
		CHECK(start_to_be_killed(cases[i].point, 0));
		CHECK_IS(vu_get_config(vu, 0, &sectors, sizeof(sectors)),
			 cases[i].answered ? 0 : -ECONNRESET);
		wait_for_death();
		service_start(NULL);
		if (!cases[i].goes_on)
			closed_and_reconnects(0);
		verify_all();
	}
}
#endif

/* Nobody goes on with what has ended while tmemd was away. */
static void ended_meanwhile(void)
{
	service_kill(SIGKILL);
	vu_kill(loads[0].vu);
	CHECK_IS(manager_kept(), DISKS * KEPT);
	service_start(NULL);
	EVENTUALLY(manager_kept() == KEPT);
	loads[0].vu =
		disk_open("d1", &(struct vu_options){.queues = 2, .data_bytes = LOAD_DATA_BYTES});
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	verify_all();
}

/* A disk that nobody serves: its front end waits until somebody does, or it is removed. */
static void not_served(void)
{
	char command[256];
	struct vu *vu;

	snprintf(command, sizeof(command), "[disk d3]\nsize = 8M\nsocket = %s\n",
		 service_socket("d3"));
	disk_configure_again(command);
	kill_and_start(SIGTERM);
	vu = disk_open("d3", &(struct vu_options){.queues = 1});
	for (unsigned i = 0; i < 2; i++) {
		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_OUT, i, 1), VIRTIO_BLK_S_OK);
		EVENTUALLY(recorded("d3"));
		service_kill(SIGTERM);
		disk_configure_again("");
		service_start(NULL);
		CHECK_IS(manager_kept(), (DISKS + 1) * KEPT);
		CHECK(!vu_hung_up(vu, 0));
		if (i)
			break;
		disk_configure_again(command);
		kill(service_pid(), SIGHUP);
		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_IN, i, 1), VIRTIO_BLK_S_OK);
	}
	service_ctl("disk remove d3");
	CHECK(vu_hung_up(vu, HANG_UP_MS));
	EVENTUALLY(manager_kept() == DISKS * KEPT);
	vu_kill(vu);
	verify_all();
}

/*
 * The arena is removed while tmemd is down: nobody gets to see zeroes in the place of what he
 * wrote, whether the disk is made anew or not.
 */
static void other_content(void)
{
	for (unsigned i = 0; i < DISKS; i++)
		load_run(&loads[i], 1);
	service_kill(SIGKILL);
	CHECK(!unlink(service_socket("arena")));
	service_start(NULL);
	for (unsigned i = 0; i < DISKS; i++)
		CHECK(vu_hung_up(loads[i].vu, HANG_UP_MS));
	EVENTUALLY(manager_kept() == 0);
	CHECK(vu_reconnect(loads[1].vu, 500) < 0);
	for (unsigned i = 0; i < DISKS; i++) {
		vu_kill(loads[i].vu);
		load_free(&loads[i]);
	}
}

/* The same, with descriptors that the next tmemd takes for those of its disk. */
static void other_content_of_that_name(void)
{
	struct vu_options options = {.queues = 2};
	struct vu *vu = disk_open("d1", &options), *other;
	int kept[2];

	EVENTUALLY(recorded("d1"));
	service_kill(SIGKILL);
	kept[0] = manager_get("d1/session0");
	kept[1] = manager_get("d1/session1");
	CHECK(!unlink(service_socket("arena")));
	service_start(NULL);
	EVENTUALLY(manager_kept() == 0);
	other = disk_open("d1", &options);
	EVENTUALLY(recorded("d1"));
	service_kill(SIGKILL);
	manager_put("d1/session0", kept[0]);
	manager_put("d1/session1", kept[1]);
	CHECK(!vu_hung_up(vu, 0));
	service_start(NULL);
	CHECK(vu_hung_up(vu, HANG_UP_MS));
	CHECK(vu_hung_up(other, HANG_UP_MS));
	EVENTUALLY(manager_kept() == 0);
	vu_kill(vu);
	vu_kill(other);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	static const struct vu_options large[DISKS] = {
		{.queues = 2, .data_bytes = LOAD_DATA_BYTES},
		{.packed = true, .queues = 2, .memory_slots = true, .data_bytes = LOAD_DATA_BYTES}};
	static const struct vu_options small[DISKS] = {
		{.packed = true, .queues = 2, .ring = 8, .data_bytes = LOAD_DATA_BYTES},
		{.queues = 2, .ring = 8, .no_event_idx = true, .data_bytes = LOAD_DATA_BYTES}};
	struct rng rng = {seed};

#ifndef HAVE_SYSTEMD
	printf("built without libsystemd: there is no fd store\n");
	return SKIPPED;
#endif
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	disk_configure("disk-fdstore", "");
	manager_open(service_socket("notify"));
	service_start(NULL);
	under_load(&rng, large, test_scaled(24));
	for (unsigned i = 0; i < DISKS; i++) {
		disk_discard_all(loads[i].vu);
		CHECK_IS(vu_close(loads[i].vu), 0);
		load_free(&loads[i]);
	}
	EVENTUALLY(manager_kept() == 0);
	under_load(&rng, small, test_scaled(12));
	RUN(reopen);
	RUN(idle);
	RUN(made_meanwhile);
	RUN(messages_meanwhile);
	RUN(half_a_message);
	RUN(memory_slots);
	RUN(configuration);
	printf("damaged\n");
	damaged(&rng);
	RUN(not_kept);
	RUN(no_inflight);
#ifdef TMEMD_FAULT_INJECTION
	RUN(at_points);
	RUN(at_points_connected);
#endif
	RUN(ended_meanwhile);
	RUN(not_served);
	RUN(other_content);
	RUN(other_content_of_that_name);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
