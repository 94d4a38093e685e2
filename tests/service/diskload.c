// SPDX-License-Identifier: GPL-2.0-or-later
#include "diskload.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define OPEN_MS 5000
#define STALL_MS 30000u
#define CALL_MS 1000u
#define RECONNECT_MS 30000u
#define HOT_BLOCKS 256u	 /* of each queue's part: half of the requests go there */
#define LOAD_SEGMENTS 17 /* at most that many pieces, of odd lengths */
#define GUARD 8u	 /* bytes before and behind the data of a read */
#define GUARD_BYTE 0xee
#define DISCARD_BLOCKS (32u << 20 >> 12)
#define BUFFER_BYTES ((LOAD_MAX_BLOCKS + 1) * (size_t)BLOCK)

void disk_configure(const char *name, const char *more)
{
	service_configure(name, "");
	disk_configure_again(more);
}

void disk_configure_again(const char *more)
{
	char text[1024];
	int n = 0;

	for (int i = 1; i <= 2; i++)
		n += snprintf(text + n, sizeof(text) - n,
			      "[disk d%d]\nsize = %uM\nqueues = 2\nsocket = %s\n", i,
			      DISK_BYTES >> 20, service_socket(i == 1 ? "d1" : "d2"));
	snprintf(text + n, sizeof(text) - n, "%s", more);
	service_configure_again(text);
}

static void complain(const char *line)
{
	fprintf(stderr, "front end: %s\n", line);
}

struct vu *disk_open(const char *disk, const struct vu_options *options)
{
	struct vu_options o = *options;
	uint64_t end = 0;
	struct vu *vu;
	int r;

	o.complain = complain;
	while ((r = vu_open(&vu, service_socket(disk), &o)) && end++ < OPEN_MS / 10)
		player_nap_ms(10);
	CHECK_IS(r, 0);
	return vu;
}

int disk_do(struct vu *vu, unsigned queue, uint32_t type, uint64_t block, uint32_t blocks)
{
	struct vu_request r = {.type = type, .sector = block * SECTORS, .bytes = blocks * BLOCK};

	return vu_do(vu, queue, &r);
}

void disk_discard_all(struct vu *vu)
{
	for (uint32_t block = 0; block < DISK_BLOCKS; block += DISCARD_BLOCKS)
		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_DISCARD, block, DISCARD_BLOCKS), 0);
}

uint64_t disk_pages(const char *disk)
{
	return service_counter(disk, "pages_persistent");
}

/* ---- Completions ---------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *page)
{
	return !page[0] && !memcmp(page, page + 1, BLOCK - 1);
}

static void check_block(const struct load_op *op, uint32_t i, const uint8_t *page)
{
	uint64_t want = op->stamps[i];

	if (want ? page_is(page, want) : is_zero(page))
		return;
	fprintf(stderr, "block %u, request %llu of queue %u: stamp %llx, not %llx\n", op->block + i,
		(unsigned long long)op->number, op->queue, (unsigned long long)page_stamp(page),
		(unsigned long long)want);
	player_die();
}

static void check_read(struct load *load, const struct load_op *op)
{
	const uint8_t *data = vu_data(load->vu) + op->at;

	for (uint32_t i = 0; i < op->blocks; i++)
		check_block(op, i, data + i * BLOCK);
	for (unsigned i = 0; i < GUARD; i++) {
		CHECK_IS(data[-1 - (int)i], GUARD_BYTE);
		CHECK_IS(data[op->blocks * BLOCK + i], GUARD_BYTE);
	}
}

static unsigned stall_ms(const struct load *load)
{
	return load->stall_ms ? load->stall_ms : STALL_MS;
}

static void completed(struct load *load, struct load_op *op, uint8_t status)
{
	uint64_t took = vu_now_ms() - op->since_ms;

	if (status != VIRTIO_BLK_S_OK)
		fprintf(stderr, "request %llu of queue %u, type %u, block %u, %u blocks:\n",
			(unsigned long long)op->number, op->queue, op->type, op->block, op->blocks);
	CHECK_IS(status, VIRTIO_BLK_S_OK);
	CHECK_IS(op->number, load->completed[op->queue]);
	load->completed[op->queue]++;
	if (op->type == VIRTIO_BLK_T_IN)
		check_read(load, op);
	if (took > atomic_load(&load->longest_ms))
		atomic_store(&load->longest_ms, took);
	load->free[load->nr_free++] = op;
	atomic_fetch_add(&load->done, 1);
}

static void reconnect(struct load *load)
{
	CHECK(load->survives);
	CHECK_IS(vu_reconnect(load->vu, RECONNECT_MS), 0);
	atomic_fetch_add(&load->reconnects, 1);
}

/* Waits for one completion of the queue, which has something under way. */
static void reap(struct load *load, unsigned queue)
{
	uint64_t end = vu_now_ms() + stall_ms(load);
	uint8_t status;
	void *op;
	int r;

	vu_kick(load->vu, queue);
	for (;;) {
		r = vu_reap(load->vu, queue, load->call_ms ? load->call_ms : CALL_MS, &op, &status);
		if (r == 1)
			break;
		if (r == -ECONNRESET)
			reconnect(load);
		else
			CHECK_IS(r, 0);
		if (vu_now_ms() >= end)
			fprintf(stderr, "queue %u stands still with %u requests\n", queue,
				vu_in_flight(load->vu, queue));
		CHECK(vu_now_ms() < end);
	}
	completed(load, op, status);
}

/* ---- Requests ------------------------------------------------------------------------------- */

static uint32_t part_of(const struct load *load)
{
	return DISK_BLOCKS / load->queues;
}

/* What the blocks hold once the request is executed, or what it will read. */
static void remember(struct load *load, struct load_op *op, const uint64_t *stamps)
{
	uint64_t *shadow = load->stamps + op->block;

	switch (op->type) {
	case VIRTIO_BLK_T_IN:
		memcpy(op->stamps, shadow, op->blocks * sizeof(*shadow));
		break;
	case VIRTIO_BLK_T_OUT:
		memcpy(shadow, stamps, op->blocks * sizeof(*shadow));
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		memset(shadow, 0, op->blocks * sizeof(*shadow));
		break;
	default:
		break;
	}
}

static void fill(struct load *load, struct load_op *op, uint64_t *stamps)
{
	uint8_t *data = vu_data(load->vu) + op->at;

	if (op->type == VIRTIO_BLK_T_IN)
		memset(data - GUARD, GUARD_BYTE, op->blocks * BLOCK + 2 * GUARD);
	for (uint32_t i = 0; op->type == VIRTIO_BLK_T_OUT && i < op->blocks; i++) {
		stamps[i] = rng_next(&load->rng) | 1;
		page_make(data + i * BLOCK, stamps[i]);
	}
}

static struct load_op *get_op(struct load *load, unsigned queue)
{
	while (!load->nr_free || vu_in_flight(load->vu, queue) >= load->depth) {
		unsigned from = queue;

		while (!vu_in_flight(load->vu, from))
			from = (from + 1) % load->queues;
		reap(load, from);
	}
	return load->free[--load->nr_free];
}

static unsigned max_segments(const struct load *load)
{
	unsigned max = vu_max_segments(load->vu);

	return max < LOAD_SEGMENTS ? max : LOAD_SEGMENTS;
}

static void submit(struct load *load, unsigned queue, uint32_t type, uint32_t block,
		   uint32_t blocks)
{
	struct load_op *op = get_op(load, queue);
	struct vu_request request = {.type = type, .sector = (uint64_t)block * SECTORS};
	bool data = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_OUT;
	uint64_t stamps[LOAD_MAX_BLOCKS];
	int r;

	op->type = type;
	op->queue = queue;
	op->block = block;
	op->blocks = blocks;
	op->at = (size_t)(op - load->ops) * BUFFER_BYTES + GUARD +
		 rng_below(&load->rng, BLOCK - 2 * GUARD);
	fill(load, op, stamps);
	request.bytes = type == VIRTIO_BLK_T_FLUSH ? 0 : blocks * BLOCK;
	request.offset = op->at;
	request.segments = data ? 1 + rng_below(&load->rng, max_segments(load)) : 1;
	request.cookie = op;
	op->since_ms = vu_now_ms();
	while ((r = vu_submit(load->vu, queue, &request)) == -EAGAIN)
		reap(load, queue);
	CHECK_IS(r, 0);
	op->number = load->submitted[queue]++;
	remember(load, op, stamps);
	if (rng_below(&load->rng, 2))
		vu_kick(load->vu, queue);
}

static uint32_t random_type(struct rng *rng)
{
	uint32_t n = rng_below(rng, 100);

	if (n < 45)
		return VIRTIO_BLK_T_OUT;
	if (n < 82)
		return VIRTIO_BLK_T_IN;
	if (n < 90)
		return VIRTIO_BLK_T_DISCARD;
	return n < 98 ? VIRTIO_BLK_T_WRITE_ZEROES : VIRTIO_BLK_T_FLUSH;
}

static void submit_random(struct load *load)
{
	unsigned queue = rng_below(&load->rng, load->queues);
	uint32_t range = rng_below(&load->rng, 2) ? HOT_BLOCKS : part_of(load);
	uint32_t blocks = 1 + rng_below(&load->rng, LOAD_MAX_BLOCKS);
	uint32_t block = queue * part_of(load) + rng_below(&load->rng, range - blocks + 1);

	submit(load, queue, random_type(&load->rng), block, blocks);
}

/* ---- The load ------------------------------------------------------------------------------- */

void load_init(struct load *load, struct vu *vu, unsigned queues, uint64_t seed)
{
	memset(load, 0, sizeof(*load));
	load->vu = vu;
	load->queues = queues;
	load->depth = LOAD_OPS / 2;
	load->rng.state = seed;
	load->stamps = calloc(DISK_BLOCKS, sizeof(*load->stamps));
	CHECK(load->stamps);
	for (unsigned i = 0; i < LOAD_OPS; i++)
		load->free[load->nr_free++] = &load->ops[i];
	CHECK(vu_data_bytes(vu) >= LOAD_OPS * BUFFER_BYTES);
}

void load_free(struct load *load)
{
	free(load->stamps);
	load->stamps = NULL;
}

void load_run(struct load *load, uint64_t requests)
{
	while (requests--)
		submit_random(load);
}

void load_drain(struct load *load)
{
	for (unsigned i = 0; i < load->queues; i++)
		while (vu_in_flight(load->vu, i))
			reap(load, i);
}

void load_verify(struct load *load)
{
	for (uint32_t block = 0; block < DISK_BLOCKS; block += LOAD_MAX_BLOCKS)
		submit(load, block / part_of(load), VIRTIO_BLK_T_IN, block, LOAD_MAX_BLOCKS);
	load_drain(load);
}

static void *run_until_stopped(void *arg)
{
	struct load *load = arg;

	while (!atomic_load(&load->stop)) {
		load_run(load, 16);
		if (!rng_below(&load->rng, 32))
			load_drain(load);
	}
	load_drain(load);
	return NULL;
}

void load_start(struct load *load)
{
	atomic_store(&load->stop, false);
	CHECK(!pthread_create(&load->thread, NULL, run_until_stopped, load));
}

void load_end(struct load *load)
{
	atomic_store(&load->stop, true);
	CHECK(!pthread_join(load->thread, NULL));
}
