// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a guest, or the process that runs it, can do to the disk d1: malformed rings and messages,
 * memory that is cut away, descriptors that are not what they should be, floods, silence, death
 * (case 18, case 20).
 * All the time an honest guest works with d2, checks every block, and waits for no request longer
 * than five seconds. After each part d1 serves an honest guest again, and tmemd has as many files
 * open as before; in the end its log is short.
 */
#include "diskload.h"
#include "tests/lib/vhost_hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STALL_MS 5000u
#define LOG_LINES 300
#define KILLS 200

static struct load honest;
static struct service_costs before;
static struct rng rng;

/* ---- The honest ones ------------------------------------------------------------------------ */

static void still_served(void)
{
	uint64_t from = honest.done;

	EVENTUALLY(honest.done - from >= 200);
	CHECK(honest.longest_ms < STALL_MS);
}

/* d1 has been given up by the hostile part, which left nothing behind. */
static void recovered(const char *part)
{
	struct vu_options options = {.packed = rng_below(&rng, 2), .queues = 2};
	struct service_costs after;
	struct vu *vu;
	int status;

	CHECK(!service_ended(&status));
	still_served();
	vu = disk_open("d1", &options);
	for (unsigned queue = 0; queue < 2; queue++) {
		page_make(vu_data(vu), 1 + queue);
		CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_OUT, queue, 1), VIRTIO_BLK_S_OK);
		memset(vu_data(vu), 0xee, BLOCK);
		CHECK_IS(disk_do(vu, queue, VIRTIO_BLK_T_IN, queue, 1), VIRTIO_BLK_S_OK);
		CHECK(page_is(vu_data(vu), 1 + queue));
	}
	CHECK_IS(vu_close(vu), 0);
	EVENTUALLY((service_costs(&after), after.files) == before.files);
	CHECK_IS(after.threads, before.threads);
	printf("%s: d1 and d2 are served; log lines: %u\n", part, service_log_lines(NULL));
	fflush(stdout);
}

static struct vu *victim(bool packed)
{
	struct vu_options options = {.packed = packed, .queues = 2};

	return disk_open("d1", &options);
}

/* ---- Malformed chains ----------------------------------------------------------------------- */

/* Where a descriptor of the table below points to. */
enum where {
	NOWHERE,
	HEADER, /* of a write to block 0 */
	DATA,
	STATUS,
	TABLE,
	END,   /* 100 bytes before the end of the guest's memory */
	ABOVE, /* 256 bytes before the end of all addresses */
};

#define HEADER_AT 64
#define DATA_AT 4096
#define STATUS_AT 16384
#define TABLE_AT 20480

struct bad_desc {
	enum where where;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

static const struct bad_chain {
	const char *name;
	uint16_t head;
	unsigned nr;
	struct bad_desc descs[4];
	struct bad_desc table[2]; /* indirect, when there is something in it */
} bad_chains[] = {
	{"loop of one", 0, 1, {{HEADER, 16, VU_NEXT, 0}}, {}},
	{"loop of two", 0, 2, {{HEADER, 16, VU_NEXT, 1}, {DATA, 4096, VU_NEXT, 0}}, {}},
	{"next beyond the ring", 0, 1, {{HEADER, 16, VU_NEXT, 5000}}, {}},
	{"head beyond the ring", 128, 1, {{HEADER, 16, 0, 0}}, {}},
	{"head far beyond the ring", 0xffff, 1, {{HEADER, 16, 0, 0}}, {}},
	{"header nowhere", 0, 2, {{NOWHERE, 16, VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}}, {}},
	{"data nowhere",
	 0,
	 3,
	 {{HEADER, 16, VU_NEXT, 1}, {NOWHERE, 4096, VU_NEXT, 2}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"data beyond the end",
	 0,
	 3,
	 {{HEADER, 16, VU_NEXT, 1}, {END, 4096, VU_NEXT, 2}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"data above all addresses",
	 0,
	 3,
	 {{HEADER, 16, VU_NEXT, 1}, {ABOVE, 4096, VU_NEXT, 2}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"data of 4 GiB",
	 0,
	 3,
	 {{HEADER, 16, VU_NEXT, 1}, {DATA, 0xffffffff, VU_NEXT, 2}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"data of no block",
	 0,
	 3,
	 {{HEADER, 16, VU_NEXT, 1}, {DATA, 4095, VU_NEXT, 2}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"status nowhere", 0, 2, {{HEADER, 16, VU_NEXT, 1}, {NOWHERE, 1, VU_WRITE, 0}}, {}},
	{"status of no bytes", 0, 2, {{HEADER, 16, VU_NEXT, 1}, {STATUS, 0, VU_WRITE, 0}}, {}},
	{"no status", 0, 1, {{HEADER, 16, 0, 0}}, {}},
	{"nothing but a status", 0, 1, {{STATUS, 1, VU_WRITE, 0}}, {}},
	{"written before read", 0, 2, {{STATUS, 1, VU_WRITE | VU_NEXT, 1}, {HEADER, 16, 0, 0}}, {}},
	{"header of 15 bytes", 0, 2, {{HEADER, 15, VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}}, {}},
	{"header of no bytes", 0, 2, {{HEADER, 0, VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}}, {}},
	{"header to be written",
	 0,
	 2,
	 {{HEADER, 16, VU_WRITE | VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}},
	 {}},
	{"indirect and more",
	 0,
	 2,
	 {{TABLE, 32, VU_INDIRECT | VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}},
	 {{HEADER, 16, VU_NEXT, 1}, {STATUS, 1, VU_WRITE, 0}}},
	{"indirect of no bytes", 0, 1, {{TABLE, 0, VU_INDIRECT, 0}}, {}},
	{"indirect of 17 bytes", 0, 1, {{TABLE, 17, VU_INDIRECT, 0}}, {{HEADER, 16, 0, 0}}},
	{"indirect of 4 GiB", 0, 1, {{TABLE, 0xfffffff0, VU_INDIRECT, 0}}, {{HEADER, 16, 0, 0}}},
	{"indirect of 6 MiB",
	 0,
	 1,
	 {{TABLE, 6u << 20, VU_INDIRECT, 0}},
	 {{HEADER, 16, VU_NEXT, 1}, {STATUS, 1, VU_WRITE | VU_NEXT, 7}}},
	{"indirect nowhere", 0, 1, {{NOWHERE, 32, VU_INDIRECT, 0}}, {}},
	{"indirect beyond the end", 0, 1, {{END, 160, VU_INDIRECT, 0}}, {}},
	{"indirect in indirect",
	 0,
	 1,
	 {{TABLE, 16, VU_INDIRECT, 0}},
	 {{TABLE, 16, VU_INDIRECT, 0}}},
	{"indirect loop",
	 0,
	 1,
	 {{TABLE, 32, VU_INDIRECT, 0}},
	 {{HEADER, 16, VU_NEXT, 1}, {DATA, 4096, VU_NEXT, 0}}},
	{"next beyond the table",
	 0,
	 1,
	 {{TABLE, 32, VU_INDIRECT, 0}},
	 {{HEADER, 16, VU_NEXT, 7}, {STATUS, 1, VU_WRITE, 0}}},
};

static struct vu_descriptor real_desc(struct vu *vu, const struct bad_desc *d)
{
	const uint64_t at[] = {
		[NOWHERE] = 0x10,
		[HEADER] = vu_guest_address(vu, HEADER_AT),
		[DATA] = vu_guest_address(vu, DATA_AT),
		[STATUS] = vu_guest_address(vu, STATUS_AT),
		[TABLE] = vu_guest_address(vu, TABLE_AT),
		[END] = vu_guest_address(vu, vu_data_bytes(vu) - 100),
		[ABOVE] = 0ull - 256,
	};

	return (struct vu_descriptor){
		.addr = at[d->where], .len = d->len, .flags = d->flags, .next = d->next};
}

/* In a packed ring and its tables, `next` is an id, and comes before the flags. */
static void put_table(struct vu *vu, const struct bad_desc *table, bool packed)
{
	for (unsigned i = 0; i < 2; i++) {
		struct vu_descriptor d = real_desc(vu, &table[i]);

		if (packed)
			d = (struct vu_descriptor){
				.addr = d.addr, .len = d.len, .flags = d.next, .next = d.flags};
		memcpy(vu_data(vu) + TABLE_AT + i * sizeof(d), &d, sizeof(d));
	}
}

/* A completion that is not a success, a queue given up, or the end of the connection. */
static bool has_outcome(struct vu *vu)
{
	uint32_t id, len;

	for (unsigned turn = 0; turn < 500; turn++) {
		if (vu_reap_raw(vu, 0, 0, 1, &id, &len))
			return vu_data(vu)[STATUS_AT] != VIRTIO_BLK_S_OK;
		if (vu_broken(vu, 0, 10) || vu_hung_up(vu, 0))
			return true;
	}
	return false;
}

static void try_chain(const struct bad_chain *bad, bool packed)
{
	struct virtio_blk_outhdr header = {.type = VIRTIO_BLK_T_OUT};
	struct vu_descriptor descs[4];
	struct vu *vu = victim(packed);
	bool unfinished = packed && bad->descs[bad->nr - 1].flags & VU_NEXT;

	memcpy(vu_data(vu) + HEADER_AT, &header, sizeof(header));
	vu_data(vu)[STATUS_AT] = 0xff;
	put_table(vu, bad->table, packed);
	for (unsigned i = 0; i < bad->nr; i++)
		descs[i] = real_desc(vu, &bad->descs[i]);
	CHECK_IS(vu_submit_raw(vu, 0, descs, bad->nr, bad->head), 0);
	/* Of a packed ring, what does not end may just as well not be there yet. */
	if (!unfinished && !has_outcome(vu)) {
		fprintf(stderr, "%s, %s: nothing, or success\n", bad->name,
			packed ? "packed" : "split");
		player_die();
	}
	/* The other queue is none the worse for it. */
	CHECK(vu_hung_up(vu, 0) || disk_do(vu, 1, VIRTIO_BLK_T_IN, 0, 1) == VIRTIO_BLK_S_OK);
	vu_kill(vu);
}

static void malformed_chains(void)
{
	for (unsigned i = 0; i < sizeof(bad_chains) / sizeof(bad_chains[0]); i++)
		for (unsigned packed = 0; packed < 2; packed++) {
			/* These are fine in a packed ring: nothing there is beyond or a loop. */
			if (packed && (bad_chains[i].head ||
				       !strcmp(bad_chains[i].name, "next beyond the table") ||
				       !strcmp(bad_chains[i].name, "indirect loop")))
				continue;
			try_chain(&bad_chains[i], packed);
		}
}

/* More is available than the ring can hold. */
static void index_beyond(void)
{
	struct vu_options options = {.no_event_idx = true};

	for (unsigned i = 0; i < 3; i++) {
		struct vu *vu = disk_open("d1", &options);

		__atomic_fetch_add(vu_avail_index(vu, 0), i ? 20000 * i : 129, __ATOMIC_SEQ_CST);
		CHECK_IS(vu_submit_raw(vu, 0, NULL, 0, 0), 0);
		CHECK(vu_broken(vu, 0, 5000) || vu_hung_up(vu, 0));
		vu_kill(vu);
	}
}

/* ---- Scribbled rings ------------------------------------------------------------------------ */

/* Half of it makes some sense, so that more than the first check is met. */
static void scribble_desc(struct vu *vu, uint8_t *at)
{
	struct vu_descriptor d = {
		.addr = rng_below(&rng, 8) ? vu_guest_address(vu, rng_below(&rng, 8u << 20))
					   : rng_next(&rng),
		.len = rng_below(&rng, 4) ? 1 + rng_below(&rng, 3) * 4096
					  : (uint32_t)rng_next(&rng),
		.flags = (uint16_t)(rng_next(&rng) & (rng_below(&rng, 2) ? 0x8087 : 7)),
		.next = (uint16_t)rng_below(&rng, 130),
	};

	if (rng_below(&rng, 2)) {
		uint16_t flags = d.flags;

		d.flags = d.next;
		d.next = flags;
	}
	memcpy(at, &d, sizeof(d));
}

static void scribble_once(struct vu *vu, unsigned queue)
{
	size_t bytes;
	uint8_t *memory = vu_ring_memory(vu, queue, &bytes);
	/* Descriptors and the two rings behind them; the rest are the driver's slots. */
	size_t at = rng_below(&rng, 128 * 16 + 128 * 2 + 128 * 8);

	switch (rng_below(&rng, 4)) {
	case 0:
		memory[at] = (uint8_t)rng_next(&rng);
		break;
	case 1:
		/* Indexes and event suppression. */
		*(uint16_t *)(memory + 2048 + rng_below(&rng, 4) * 2) = (uint16_t)rng_next(&rng);
		break;
	case 2:
		__atomic_fetch_add((uint16_t *)(memory + 2050), 1 + rng_below(&rng, 3),
				   __ATOMIC_SEQ_CST);
		break;
	default:
		scribble_desc(vu, memory + rng_below(&rng, 128) * 16);
		break;
	}
}

static void scribbles(void)
{
	uint64_t rounds = test_scaled(100);

	for (uint64_t round = 0; round < rounds; round++) {
		struct vu_request request = {.type = VIRTIO_BLK_T_IN, .bytes = 8 * BLOCK};
		struct vu *vu = victim(round & 1);

		for (unsigned turn = 0; turn < 200 && !vu_hung_up(vu, 0); turn++) {
			unsigned queue = rng_below(&rng, 2);

			if (rng_below(&rng, 4) == 0)
				vu_submit(vu, queue, &request);
			for (unsigned i = rng_below(&rng, 30); i; i--)
				scribble_once(vu, queue);
			vu_submit_raw(vu, queue, NULL, 0, 0);
		}
		vu_kill(vu);
	}
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* Descriptors of each kind that somebody could send in place of the right one. */
enum {
	FD_EVENT,
	FD_PIPE_OUT,
	FD_PIPE_IN,
	FD_FILE,
	FD_MEMORY,
	FD_ZERO,
	FD_NULL,
	FD_SOCKET,
	FD_FULL,
	FD_ALWAYS,
	FD_FULL_PIPE,
	FD_KINDS
};
static int strange[FD_KINDS];
static int strange_others[3];

static void open_strange(void)
{
	int two[2];
	char bytes[4096] = {0};

	strange[FD_EVENT] = eventfd(0, EFD_CLOEXEC);
	CHECK(!pipe2(two, O_CLOEXEC));
	strange[FD_PIPE_OUT] = two[0];
	strange[FD_PIPE_IN] = two[1];
	strange[FD_FILE] = open(scratch_path("strange"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	strange[FD_MEMORY] = memfd_create("strange", MFD_CLOEXEC);
	strange[FD_ZERO] = open("/dev/zero", O_RDWR | O_CLOEXEC);
	strange[FD_NULL] = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two));
	strange[FD_SOCKET] = two[0];
	strange_others[0] = two[1];
	/* Whoever writes to it without O_NONBLOCK waits for ever. */
	strange[FD_FULL] = eventfd(0, EFD_CLOEXEC);
	CHECK(!eventfd_write(strange[FD_FULL], UINT64_MAX - 1));
	/* Reading it does not make it unreadable. */
	strange[FD_ALWAYS] = eventfd(1000000000, EFD_CLOEXEC | EFD_SEMAPHORE);
	CHECK(!pipe2(two, O_CLOEXEC | O_NONBLOCK));
	while (write(two[1], bytes, sizeof(bytes)) > 0)
		;
	CHECK(!fcntl(two[1], F_SETFL, 0));
	strange[FD_FULL_PIPE] = two[1];
	strange_others[1] = two[0];
	for (unsigned i = 0; i < FD_KINDS; i++)
		CHECK(strange[i] >= 0);
}

static bool refused(int r)
{
	return r == -EREMOTEIO || r == -ECONNRESET;
}

/* A message that is wrong is refused: with an answer that says so, or with the end. */
static void wrong_message(uint32_t request, const void *payload, uint32_t size, int fd)
{
	struct vu_options options = {
		.memory_slots = request == VU_ADD_MEM_REG || request == VU_REM_MEM_REG,
		.queues = 2,
	};
	struct vu *vu = disk_open("d1", &options);
	int r = vu_tell(vu, request, payload, size, &fd, fd >= 0);

	if (!refused(r)) {
		fprintf(stderr, "request %u of %u bytes: %d\n", request, size, r);
		player_die();
	}
	vu_kill(vu);
}

static void wrong_queues(void)
{
	static const struct vu_state nums[] = {{0, 0},		 {0, 3},   {0, 65536},
					       {0, 0x80000000},	 {2, 128}, {255, 128},
					       {0xffffffff, 128}};
	struct vu_addr addr = {0};

	for (unsigned i = 0; i < sizeof(nums) / sizeof(nums[0]); i++)
		wrong_message(VU_SET_VRING_NUM, &nums[i], sizeof(nums[i]), -1);
	for (unsigned i = 4; i < sizeof(nums) / sizeof(nums[0]); i++) {
		wrong_message(VU_SET_VRING_BASE, &nums[i], sizeof(nums[i]), -1);
		wrong_message(VU_SET_VRING_ENABLE, &nums[i], sizeof(nums[i]), -1);
		addr.index = nums[i].index;
		wrong_message(VU_SET_VRING_ADDR, &addr, sizeof(addr), -1);
	}
	wrong_message(VU_SET_VRING_NUM, &nums[0], 4, -1);
	wrong_message(VU_SET_VRING_NUM, nums, 16, -1);
	wrong_message(VU_SET_VRING_ADDR, &addr, sizeof(addr) - 1, -1);
}

static void wrong_memory(void)
{
	struct vu *vu = victim(false);
	struct vu_region good;
	struct vu_mem_reg reg = {0};
	struct vu_mem_table table = {.nr = 1};

	vu_memory_region(vu, 0, &good);
	vu_kill(vu);
	CHECK(!ftruncate(strange[FD_MEMORY], 1 << 20));

	reg.region = (struct vu_region){good.guest, good.bytes, good.user, 0};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_MEMORY]); /* is there already */
	reg.region = (struct vu_region){1ull << 40, 0, 1ull << 40, 0};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_MEMORY]);
	reg.region = (struct vu_region){0ull - 8192, 1 << 20, 1ull << 40, 0};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_MEMORY]);
	reg.region = (struct vu_region){1ull << 40, 1 << 20, 0ull - 8192, 0};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_MEMORY]);
	reg.region = (struct vu_region){1ull << 40, 1 << 20, 1ull << 40, 0ull - 4096};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_MEMORY]);
	reg.region = (struct vu_region){1ull << 40, 1 << 20, 1ull << 40, 0};
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), strange[FD_PIPE_OUT]);
	wrong_message(VU_ADD_MEM_REG, &reg, sizeof(reg), -1);
	wrong_message(VU_REM_MEM_REG, &reg, sizeof(reg), -1);

	table.regions[0] = reg.region;
	wrong_message(VU_SET_MEM_TABLE, &table, 8 + 32, -1);
	wrong_message(VU_SET_MEM_TABLE, &table, 8, strange[FD_MEMORY]);
	table.nr = 100;
	wrong_message(VU_SET_MEM_TABLE, &table, sizeof(table), strange[FD_MEMORY]);
	table.nr = 0xffffffff;
	wrong_message(VU_SET_MEM_TABLE, &table, sizeof(table), strange[FD_MEMORY]);
}

static void wrong_inflight(void)
{
	struct vu_inflight good, bad;
	struct vu *vu = victim(false);

	CHECK(vu_inflight_fd(vu, &good) >= 0);
	vu_kill(vu);
	CHECK(!ftruncate(strange[FD_MEMORY], 1 << 20));
	bad = good;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), -1);
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_PIPE_OUT]);
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad) - 1, strange[FD_MEMORY]);
	bad.mmap_bytes = 1;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_MEMORY]);
	bad.mmap_bytes = 1ull << 62;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_MEMORY]);
	bad = good;
	bad.mmap_offset = 0ull - 4096;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_MEMORY]);
	bad = good;
	bad.queues = 60000;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_MEMORY]);
	bad = good;
	bad.ring = 60000;
	wrong_message(VU_SET_INFLIGHT_FD, &bad, sizeof(bad), strange[FD_MEMORY]);
}

static void wrong_messages(void)
{
	uint8_t payload[4096] = {0};

	wrong_queues();
	wrong_memory();
	wrong_inflight();
	/* What there is not. */
	wrong_message(0, NULL, 0, -1);
	wrong_message(19, payload, 8, -1);
	wrong_message(0x7fffffff, payload, 8, -1);
	wrong_message(VU_SET_FEATURES, &(uint64_t){~0ull}, 8, -1);
	wrong_message(VU_SET_PROTOCOL_FEATURES, &(uint64_t){~0ull}, 8, -1);
	wrong_message(VU_SET_FEATURES, payload, 4, -1);
	wrong_message(VU_SET_CONFIG, payload, 4, -1);
	wrong_message(VU_SET_VRING_KICK, payload, 7, strange[FD_EVENT]);
}

/* Sizes that are right more often than not. */
static uint32_t some_size(uint32_t request)
{
	static const uint8_t sizes[46] = {
		[2] = 8,   [5] = 104, [6] = 16,	 [8] = 8,   [9] = 40,  [10] = 8,
		[11] = 8,  [12] = 8,  [13] = 8,	 [14] = 8,  [16] = 8,  [18] = 8,
		[24] = 72, [25] = 13, [31] = 20, [32] = 20, [37] = 40, [38] = 40};

	return rng_below(&rng, 5) ? sizes[request] : rng_below(&rng, 600);
}

static void send_something(int socket)
{
	uint32_t request = rng_below(&rng, 46), size = some_size(request);
	uint32_t flags = rng_below(&rng, 10) ? VU_VERSION : (uint32_t)rng_next(&rng);
	uint32_t payload[150];
	int fds[4];
	unsigned nr = rng_below(&rng, 3) ? rng_below(&rng, 2) : rng_below(&rng, 5);

	for (unsigned i = 0; i < 150; i++)
		payload[i] = rng_below(&rng, 3) ? rng_below(&rng, 4)
						: (uint32_t)rng_next(&rng) >> rng_below(&rng, 32);
	for (unsigned i = 0; i < nr; i++)
		fds[i] = strange[rng_below(&rng, FD_KINDS)];
	vu_send_raw(socket, request, flags | (rng_below(&rng, 2) ? VU_NEED_REPLY : 0), payload,
		    size, fds, nr);
}

static void drain(int socket)
{
	uint8_t bytes[4096];

	while (recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* From the first message on, or in the middle of work. */
static void random_messages(void)
{
	uint64_t rounds = test_scaled(400);

	for (uint64_t round = 0; round < rounds; round++) {
		struct vu *vu = round & 1 ? victim(round & 2) : NULL;
		int socket = vu ? vu_socket(vu) : player_dial("d1");
		struct vu_request request = {.type = VIRTIO_BLK_T_IN, .bytes = 8 * BLOCK};

		CHECK(socket >= 0);
		for (unsigned i = 0; i < 20; i++) {
			if (vu && !vu_submit(vu, 0, &request))
				vu_submit_raw(vu, 0, NULL, 0, 0);
			send_something(socket);
			drain(socket);
		}
		if (vu)
			vu_kill(vu);
		else
			close(socket);
	}
}

/* Half a message, and then nothing more. Nobody else is kept waiting, but on d1. */
static void half_messages(void)
{
	for (uint32_t n = 1; n < 20; n += 3) {
		uint32_t message[5] = {VU_SET_FEATURES, VU_VERSION, 8, 0, 0};
		int socket = player_dial("d1");

		CHECK(socket >= 0);
		CHECK(send(socket, message, n, MSG_NOSIGNAL) == (ssize_t)n);
		still_served();
		if (n % 2)
			shutdown(socket, SHUT_WR);
		close(socket);
	}
	for (unsigned i = 0; i < 3; i++) {
		/* The rest would be larger than any message. */
		uint32_t message[3] = {VU_SET_MEM_TABLE, VU_VERSION, 0xffffffffu >> (8 * i)};
		struct vu *vu = victim(false);

		send(vu_socket(vu), message, sizeof(message), MSG_NOSIGNAL);
		still_served();
		vu_kill(vu);
	}
}

/*
 * Questions whose answers nobody reads, for a second. When that ends the connection, it begins
 * anew.
 */
static void message_floods(void)
{
	static const uint32_t requests[] = {VU_GET_FEATURES, VU_GET_PROTOCOL_FEATURES,
					    VU_GET_QUEUE_NUM, VU_SET_OWNER};

	for (unsigned i = 0; i < 4; i++) {
		uint64_t sent = 0, from = honest.done, end = vu_now_ms() + 1000;
		struct vu *vu = victim(i & 1);

		/* Longer where a second is not enough for anything. */
		while (vu_now_ms() < end || (sent <= 10 && vu_now_ms() < end + 30000)) {
			int r = vu_send_raw(vu_socket(vu), requests[i], VU_VERSION | VU_NEED_REPLY,
					    NULL, 0, NULL, 0);

			sent += !r;
			if (r == -ECONNRESET) {
				vu_kill(vu);
				vu = victim(i & 1);
			}
		}
		CHECK(sent > 10);
		CHECK(honest.done > from);
		still_served();
		vu_kill(vu);
	}
}

/* Settings for which the door keeps the workers out. */
static void config_floods(void)
{
	struct vu *vu = victim(false);
	uint64_t from = honest.done;

	for (uint64_t end = vu_now_ms() + 1000; vu_now_ms() < end;) {
		struct vu_state state = {.index = 0, .num = rng_below(&rng, 2)};

		CHECK_IS(vu_tell(vu, VU_SET_VRING_ENABLE, &state, sizeof(state), NULL, 0), 0);
	}
	CHECK(honest.done > from);
	vu_kill(vu);
}

/* ---- Connections ---------------------------------------------------------------------------- */

static void connection_floods(void)
{
	uint64_t turns = test_scaled(3000), made = 0, held = 0;
	int fds[300];

	for (uint64_t i = 0; i < turns; i++) {
		int fd = player_dial(i % 3 ? "d1" : "d2");

		if (fd < 0)
			continue;
		made++;
		if (i % 5 == 0)
			send(fd, "x", 1, MSG_NOSIGNAL);
		close(fd);
	}
	CHECK(made > 0);
	/* The queue of a socket is short, and connect() would wait for a place in it. */
	for (unsigned i = 0; i < 300; i++) {
		fds[held] = player_dial(i % 3 ? "d1" : "d2");
		held += fds[held] >= 0;
	}
	still_served();
	while (held)
		close(fds[--held]);
}

/* Works on d1 until it is killed. */
static void live_on_d1(uint64_t its_seed)
{
	static struct load load;
	struct vu_options options = {.packed = its_seed & 1,
				     .no_indirect = its_seed & 2,
				     .memory_slots = its_seed & 4,
				     .no_inflight = its_seed & 8,
				     .queues = 2,
				     .data_bytes = LOAD_DATA_BYTES};
	struct vu *vu = disk_open("d1", &options);

	disk_discard_all(vu);
	load_init(&load, vu, 2, its_seed);
	for (;;)
		load_run(&load, 100);
}

static void killed_front_ends(void)
{
	uint64_t kills = test_scaled(KILLS);

	for (uint64_t i = 0; i < kills; i++) {
		pid_t child = player_fork();
		int status;

		if (!child)
			live_on_d1(rng.state + i);
		usleep(rng_below(&rng, 40000));
		kill(child, SIGKILL);
		CHECK(waitpid(child, &status, 0) == child);
		/* It did not end by itself, which it does when something is wrong. */
		CHECK(WIFSIGNALED(status));
	}
}

/* ---- Memory that goes away ------------------------------------------------------------------ */

/* In a process of its own, which dies itself when it touches that memory. Never comes back. */
static void cut_and_kick(unsigned what, bool packed)
{
	struct vu_request request = {.type = VIRTIO_BLK_T_OUT, .bytes = 32 * BLOCK, .segments = 3};
	struct vu *vu = victim(packed);
	struct vu_inflight inflight;
	int fd = what < VU_MEMORIES ? vu_memory_fd(vu, what) : vu_inflight_fd(vu, &inflight);
	bool cut;

	for (unsigned i = 0; i < 30; i++) {
		request.sector = i * 32 * SECTORS;
		request.offset = i % 2 ? 0 : vu_data_bytes(vu) - request.bytes;
		request.type = i & 1;
		vu_submit(vu, i % 2, &request);
	}
	vu_submit_raw(vu, 0, NULL, 0, 0);
	vu_submit_raw(vu, 1, NULL, 0, 0);
	cut = !ftruncate(fd, rng_below(&rng, 2) ? 0 : 8192);
	for (unsigned turn = 0; turn < 100 && !vu_hung_up(vu, 5); turn++) {
		vu_submit_raw(vu, 0, NULL, 0, 0);
		vu_submit_raw(vu, 1, NULL, 0, 0);
	}
	/* The rings are looked at after each kick: their end is noticed. */
	_exit(what == 0 && cut && !vu_hung_up(vu, 0) ? 2 : 0);
}

static void memory_cut(void)
{
	uint64_t rounds = test_scaled(6);

	for (uint64_t round = 0; round < rounds; round++)
		for (unsigned what = 0; what <= VU_MEMORIES; what++) {
			pid_t child = player_fork();

			rng_next(&rng);
			if (!child)
				cut_and_kick(what, round & 1);
			player_join(child);
		}
	still_served();
}

/* More memory is promised than the file has. */
static void memory_promised(void)
{
	struct vu *vu = victim(false);
	struct vu_request request = {.type = VIRTIO_BLK_T_OUT, .bytes = 8 * BLOCK};
	struct vu_mem_table table = {.nr = VU_MEMORIES};
	int fds[VU_MEMORIES], r;

	for (unsigned i = 0; i < VU_MEMORIES; i++) {
		vu_memory_region(vu, i, &table.regions[i]);
		fds[i] = vu_memory_fd(vu, i);
	}
	request.offset = vu_data_bytes(vu) - request.bytes;
	table.regions[2].offset += 64 * BLOCK;
	r = vu_tell(vu, VU_SET_MEM_TABLE, &table, sizeof(table), fds, VU_MEMORIES);
	CHECK(!r || refused(r));
	CHECK(!vu_submit(vu, 0, &request));
	vu_submit_raw(vu, 0, NULL, 0, 0);
	player_nap_ms(100);
	still_served();
	vu_kill(vu);
}

/* ---- Descriptors that are not eventfds ------------------------------------------------------- */

/* Requests with such a doorbell. False when the connection has ended. */
static bool work_with(struct vu *vu)
{
	struct vu_request request = {.type = VIRTIO_BLK_T_IN, .bytes = 8 * BLOCK};
	uint8_t status;
	void *cookie;

	for (unsigned i = 0; i < 100; i++) {
		if (vu_submit(vu, 0, &request))
			break;
		vu_submit_raw(vu, 0, NULL, 0, 0);
	}
	for (uint64_t end = vu_now_ms() + STALL_MS; vu_in_flight(vu, 0);) {
		int r = vu_reap(vu, 0, 0, &cookie, &status);

		CHECK(r >= 0);
		if (vu_hung_up(vu, 0))
			return false;
		CHECK(vu_now_ms() < end);
	}
	return true;
}

static void strange_doorbells(void)
{
	static const uint32_t requests[] = {VU_SET_VRING_CALL, VU_SET_VRING_ERR, VU_SET_VRING_KICK};

	for (unsigned i = 0; i < 3; i++)
		for (unsigned kind = 0; kind < FD_KINDS; kind++) {
			struct vu *vu = victim(kind & 1);
			uint64_t queue = 0;
			int r = vu_tell(vu, requests[i], &queue, sizeof(queue), &strange[kind], 1);

			CHECK(!r || refused(r));
			/* Without a call it works; without a kick perhaps not. */
			if (!r && requests[i] != VU_SET_VRING_KICK)
				work_with(vu);
			player_nap_ms(requests[i] == VU_SET_VRING_KICK ? 50 : 0);
			still_served();
			vu_kill(vu);
		}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{"malformed chains", malformed_chains},
		{"index beyond the ring", index_beyond},
		{"scribbled rings", scribbles},
		{"wrong messages", wrong_messages},
		{"random messages", random_messages},
		{"half messages", half_messages},
		{"floods of messages", message_floods},
		{"floods of settings", config_floods},
		{"floods of connections", connection_floods},
		{"front ends killed", killed_front_ends},
		{"memory cut", memory_cut},
		{"memory promised", memory_promised},
		{"strange doorbells", strange_doorbells},
	};
	struct vu_options options = {.queues = 2, .data_bytes = LOAD_DATA_BYTES};

	rng.state = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	printf("seed %llu\n", (unsigned long long)rng.state);
	fflush(stdout);
	signal(SIGPIPE, SIG_IGN);
	disk_configure("disk-hostile", "");
	open_strange();
	service_start(NULL);
	load_init(&honest, disk_open("d2", &options), 2, rng.state);
	honest.depth = 8;
	honest.stall_ms = STALL_MS;
	load_start(&honest);
	service_costs_at_rest(&before);
	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (argc > 2 && !strstr(parts[i].name, argv[2]))
			continue;
		parts[i].run();
		recovered(parts[i].name);
	}
	load_end(&honest);
	load_verify(&honest);
	CHECK(honest.longest_ms < STALL_MS);
	CHECK(service_log_lines(NULL) < LOG_LINES);
	printf("d2: %llu requests, the longest %llu ms\n", (unsigned long long)honest.done,
	       (unsigned long long)honest.longest_ms);
	CHECK_IS(vu_close(honest.vu), 0);
	load_free(&honest);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
