// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A hostile front end and a hostile guest in one: messages in order and out of order, descriptors
 * where none belong, memory that is cut, rings with anything in them, also changed between two
 * reads of the back end; deaths of the back end with an in-flight record kept. Behind it is a
 * device that touches all that a request names and completes it.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/loads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sigbus.h"
#include "vhost/vhost_priv.h"

#define MAX_OPERATIONS 150
#define QUEUES 2
#define RING 16

/* Two regions of one file, side by side in the guest; see memory_of(). */
#define GUEST 0x100000ull
#define BYTES 0x20000ull
#define USER 0x700000000000ull
#define HALF (BYTES / 2)

/* Of each queue, from the start of the memory. */
#define QUEUE_STEP 0x2000u
#define DESC 0u
#define AVAIL 0x800u
#define USED 0x1000u
#define TABLES 0x1800u
#define DATA 0x8000u

static struct {
	struct vhost *vhost;
	int sock;
	int file;
	int event;
	int record; /* -1: none */
	struct wire_inflight record_is;
	bool packed;
	uint64_t features;
	uint16_t slot[QUEUES]; /* the driver's next descriptor */
	bool wrap[QUEUES];
	uint16_t idx[QUEUES];
	int kicks[QUEUES];

	/* What happens before a read of the back end. */
	unsigned countdown; /* reads of guest memory; 0: nothing */
	uint64_t scribble;
	unsigned scribble_bytes;
} me;

/* ---- The device ----------------------------------------------------------------------------- */

static uint32_t get_config(void *arg, uint8_t space[VHOST_MAX_CONFIG])
{
	(void)arg;
	memset(space, 0x5a, 60);
	return 60;
}

static bool set_config(void *arg, uint32_t offset, const uint8_t *data, uint32_t len)
{
	(void)arg;
	MUST(offset <= VHOST_MAX_CONFIG && len <= VHOST_MAX_CONFIG - offset, "beyond the space");
	return !len || data[len - 1] & 1;
}

static void kick_changed(void *arg, unsigned queue, int kick)
{
	(void)arg;
	MUST(queue < QUEUES, "queue %u", queue);
	MUST(me.kicks[queue] < 0 || fcntl(me.kicks[queue], F_GETFD) >= 0, "closed too early");
	MUST(kick < 0 || fcntl(kick, F_GETFD) >= 0, "closed already");
	me.kicks[queue] = kick;
}

static void touch(const struct vhost_segment *segment, bool write)
{
	const volatile uint8_t *base = segment->base;

	MUST(segment->len, "an empty segment");
	for (uint32_t i = 0; i < segment->len; i += i + 512 < segment->len ? 512 : 1) {
		if (write)
			segment->base[i] = (uint8_t)i;
		else
			(void)base[i];
	}
}

static void turn(unsigned queue, unsigned max)
{
	static struct vhost_chain chain;
	uint8_t heads[8][16];

	vhost_peek(me.vhost, queue, heads, sizeof(heads[0]), 8);
	for (unsigned i = 0; i < max; i++) {
		int r = vhost_pop(me.vhost, queue, &chain);
		unsigned n = chain.nr_out + chain.nr_in;

		MUST(r == 1 || r == 0 || r == -EPROTO, "pop: %d", r);
		if (r < 0)
			MUST(!vhost_running(me.vhost, queue), "broken and running");
		if (r != 1)
			break;
		MUST(n && n <= VHOST_MAX_SEGMENTS, "%u segments", n);
		for (unsigned k = 0; k < n; k++)
			touch(&chain.segments[k], k >= chain.nr_out);
		vhost_push(me.vhost, queue, &chain, chain.nr_in ? chain.segments[n - 1].len : 0);
	}
	vhost_call(me.vhost, queue);
	vhost_error(me.vhost, queue);
	if (vhost_lost(me.vhost))
		MUST(me.vhost->lost || me.vhost->memory.nr || me.vhost->log.base ||
			     me.vhost->inflight.base,
		     "lost what it never had");
}

/* ---- Between two reads ---------------------------------------------------------------------- */

static void on_load(const void *address)
{
	const uint8_t *at = address;

	if (!me.countdown || !me.vhost)
		return;
	for (unsigned i = 0; i < me.vhost->memory.nr; i++) {
		const struct slot *slot = &me.vhost->memory.slots[i];

		if ((uint64_t)(at - slot->mapping.base) + 8 > slot->at.bytes || --me.countdown)
			continue;
		memcpy((void *)at, &me.scribble, me.scribble_bytes);
		return;
	}
}

/* ---- The front end -------------------------------------------------------------------------- */

static struct vhost_device device_of(uint64_t instance)
{
	return (struct vhost_device){.name = "fuzz",
				     .features = BIT(6),
				     .max_queues = QUEUES,
				     .instance = instance,
				     .get_config = get_config,
				     .set_config = set_config,
				     .kick_changed = kick_changed};
}

static void connect_back_end(uint64_t instance)
{
	struct vhost_device device = device_of(instance);
	int socks[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks),
	     "no socket");
	me.sock = socks[0];
	for (unsigned i = 0; i < QUEUES; i++)
		me.kicks[i] = -1;
	MUST(!vhost_open(&me.vhost, &device, socks[1]), "no vhost");
}

static void disconnect(void)
{
	vhost_close(me.vhost);
	me.vhost = NULL;
	for (unsigned i = 0; i < QUEUES; i++)
		MUST(me.kicks[i] < 0, "a kick was left");
	close(me.sock);
}

/* All that was said to us; a record is kept. */
static void listen_to_it(void)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct {
		struct wire_header header;
		uint8_t payload[WIRE_MAX_PAYLOAD];
	} in;
	ssize_t n;

	do {
		struct iovec iov = {&in, sizeof(in.header)};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = &control,
				     .msg_controllen = sizeof(control)};
		struct cmsghdr *c;
		int fd = -1;

		n = recvmsg(me.sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n <= 0)
			break;
		c = CMSG_FIRSTHDR(&msg);
		if (c)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		MUST(n == sizeof(in.header) && in.header.flags == (WIRE_VERSION | WIRE_REPLY) &&
			     in.header.size <= WIRE_MAX_PAYLOAD,
		     "not a reply");
		n = in.header.size ? recv(me.sock, in.payload, in.header.size, MSG_DONTWAIT) : 0;
		MUST(n == (ssize_t)in.header.size, "a reply in pieces");
		if (fd < 0)
			continue;
		MUST(in.header.request == 31, "a descriptor with %u", in.header.request);
		if (me.record >= 0)
			close(me.record);
		me.record = fd;
		memcpy(&me.record_is, in.payload,
		       in.header.size < sizeof(me.record_is) ? in.header.size
							     : sizeof(me.record_is));
	} while (true);
}

/* The back end reads; when it gives up, another one begins. */
static void input(void)
{
	char err[256] = "";
	int r = vhost_input(me.vhost, err, sizeof(err));

	listen_to_it();
	if (!r)
		return;
	MUST(r == -EPROTO || r == -ECONNRESET || r == -ESTALE, "input: %d", r);
	MUST(err[0], "no sentence");
	disconnect();
	connect_back_end(1);
}

static void send_bytes(const void *bytes, size_t size, const int *fds, unsigned nr)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 16)];
	} control = {0};
	struct iovec iov = {(void *)bytes, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nr) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int) * nr);
		memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * nr);
	}
	if (sendmsg(me.sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		MUST(errno == EAGAIN || errno == EPIPE, "cannot send: %s", strerror(errno));
}

static void say(uint32_t request, const void *payload, uint32_t size, const int *fds, unsigned nr)
{
	struct {
		struct wire_header header;
		uint8_t payload[512];
	} out = {.header = {.request = request, .flags = WIRE_VERSION, .size = size}};

	if (size)
		memcpy(out.payload, payload, size);
	send_bytes(&out, sizeof(out.header) + size, fds, nr);
	input();
}

static void say_u64(uint32_t request, uint64_t value, int fd)
{
	say(request, &value, sizeof(value), &fd, fd >= 0);
}

static void say_state(uint32_t request, uint32_t index, uint32_t num)
{
	struct vhost_vring_state state = {index, num};

	say(request, &state, sizeof(state), NULL, 0);
}

static struct wire_region memory_of(unsigned half)
{
	return (struct wire_region){.guest = GUEST + half * HALF,
				    .bytes = HALF,
				    .user = USER + half * 2 * HALF,
				    .offset = half * HALF};
}

/* What a proper front end says; after it the queue runs. */
static void set_up(unsigned queue)
{
	struct {
		uint64_t nr;
		struct wire_region regions[2];
	} table = {2, {memory_of(0), memory_of(1)}};
	uint64_t at = USER + queue * QUEUE_STEP;
	struct vhost_vring_addr addr = {.index = queue,
					.flags = me.features & BIT(VHOST_F_LOG_ALL) ? 1 : 0,
					.desc_user_addr = at + DESC,
					.avail_user_addr = at + AVAIL,
					.used_user_addr = at + USED,
					.log_guest_addr = GUEST + queue * QUEUE_STEP + USED};
	int files[] = {me.file, me.file};
	uint64_t log[] = {(GUEST + BYTES) / 4096 / 8, 0};
	int log_file = me.features & BIT(VHOST_F_LOG_ALL) ? memfd_create("log", MFD_CLOEXEC) : -1;

	say_u64(16, 0x1b223, -1); /* no REPLY_ACK: nobody asks for it */
	say_u64(2, me.features, -1);
	say(5, &table, sizeof(table), files, 2);
	if (log_file >= 0) {
		MUST(!ftruncate(log_file, 4096), "no log");
		say(6, log, sizeof(log), &log_file, 1);
		close(log_file);
	}
	if (me.record >= 0)
		say(32, &me.record_is, sizeof(me.record_is), &me.record, 1);
	say_state(8, queue, RING);
	say(9, &addr, sizeof(addr), NULL, 0);
	say_state(10, queue, me.packed ? 0x80008000 : 0);
	say_u64(12, queue, me.event);
	say_u64(13, queue, me.event);
	say_state(18, queue, 1);
}

/* The driver forgets what was, and begins again. */
static void begin(struct bytes *in)
{
	static const uint64_t bits[] = {BIT(VIRTIO_F_RING_PACKED), BIT(VIRTIO_RING_F_INDIRECT_DESC),
					BIT(VIRTIO_RING_F_EVENT_IDX), BIT(VHOST_F_LOG_ALL)};
	static const uint8_t zeroes[QUEUES * QUEUE_STEP];
	unsigned what = (unsigned)take(in, 1);

	me.features = BIT(VHOST_USER_F_PROTOCOL_FEATURES) | BIT(VIRTIO_F_VERSION_1);
	for (unsigned i = 0; i < 4; i++)
		if (what & 1u << i)
			me.features |= bits[i];
	me.packed = what & 1;
	MUST(!ftruncate(me.file, BYTES), "cannot grow");
	MUST(pwrite(me.file, zeroes, sizeof(zeroes), 0) == sizeof(zeroes), "cannot write");
	for (unsigned i = 0; i < QUEUES; i++) {
		say_state(11, i, 0);
		me.slot[i] = 0;
		me.idx[i] = 0;
		me.wrap[i] = true;
		if (what & 16u << i)
			set_up(i);
	}
}

static void get_record(struct bytes *in)
{
	struct wire_inflight is = {.queues = (uint16_t)(take(in, 1) % (QUEUES + 2)),
				   .queue_size = RING};

	say(31, &is, sizeof(is), NULL, 0);
}

/* A message in form, with values that may be anything. */
static void message(struct bytes *in)
{
	static const uint16_t sizes[] = {
		[2] = 8,   [5] = 8,   [6] = 16,	 [8] = 8,   [9] = 40, [10] = 8,	 [11] = 8,
		[12] = 8,  [13] = 8,  [14] = 8,	 [16] = 8,  [18] = 8, [22] = 32, [24] = 12,
		[25] = 12, [26] = 64, [31] = 24, [32] = 24, [35] = 8, [37] = 40, [38] = 40,
		[39] = 8,  [41] = 16, [42] = 8,	 [44] = 0};
	uint32_t request = (uint32_t)take(in, 1) % 46, how = (uint32_t)take(in, 1);
	uint32_t size = request < 45 ? sizes[request] : (uint32_t)take(in, 1);
	int fds[] = {me.file, me.event, me.file, me.sock, me.record >= 0 ? me.record : me.file,
		     me.file, me.file,	me.file, me.file, me.file};
	struct {
		struct wire_header header;
		uint8_t payload[512];
	} out = {{request, WIRE_VERSION | (how & 1 ? WIRE_NEED_REPLY : 0), size}, {0}};

	if (request == 5) {
		out.payload[0] = (uint8_t)(take(in, 1) % 10);
		out.header.size = size = 8 + 32u * out.payload[0];
	}
	for (unsigned i = request == 5 ? 8 : 0; i < size; i++)
		out.payload[i] = how & 2 ? (uint8_t)take(in, 1) : 0;
	if (how & 4) /* all of a kind that is nearly right */
		for (unsigned i = 0; i + 8 <= size && more(in); i += 8) {
			uint64_t value = USER + take(in, 1) * 0x1000;

			memcpy(out.payload + i, &value, 8);
		}
	if (how & 8)
		memset(out.payload, 0, size < 8 ? size : 8);
	if (how & 8 && size >= 8)
		out.payload[0] = (uint8_t)take(in, 1);
	send_bytes(&out, sizeof(out.header) + size, fds, how >> 4 ? (how >> 4) % 10 : 0);
	input();
}

static void raw_bytes(struct bytes *in)
{
	uint8_t out[64];
	unsigned n = 1 + (unsigned)take(in, 1) % sizeof(out), nr = (unsigned)take(in, 1) % 4;
	int fds[] = {me.file, me.event, me.file};

	for (unsigned i = 0; i < n; i++)
		out[i] = (uint8_t)take(in, 1);
	send_bytes(out, n, fds, nr);
	input();
}

/* A slot comes or goes. */
static void slot(struct bytes *in)
{
	unsigned what = (unsigned)take(in, 1);
	struct {
		uint64_t padding;
		struct wire_region region;
	} message = {0, memory_of(what & 1)};

	if (what & 4)
		message.region.guest += take(in, 2);
	if (what & 8)
		message.region.bytes += take(in, 2);
	if (what & 16)
		message.region.offset += take(in, 2);
	say(what & 2 ? 37 : 38, &message, sizeof(message), &me.file, what >> 5 & 1);
}

/* ---- The driver ----------------------------------------------------------------------------- */

static void poke(uint64_t offset, const void *bytes, size_t n)
{
	if (offset + n <= BYTES)
		MUST(pwrite(me.file, bytes, n, (off_t)offset) == (ssize_t)n, "cannot write");
}

static struct vring_desc some_desc(struct bytes *in)
{
	unsigned what = (unsigned)take(in, 1);
	struct vring_desc desc = {.addr = GUEST + DATA + take(in, 2),
				  .len = (uint32_t)(take(in, 2) & 0x3fff) + 1,
				  .flags = (uint16_t)(what & 7 & ~VRING_DESC_F_NEXT)};

	if (what & 8)
		desc.addr = GUEST + (what >> 5 & 1) * QUEUE_STEP + TABLES;
	if (what & 16)
		desc.len = 16 * (1 + desc.len % 8);
	if (what & 64)
		desc.addr = take(in, 8);
	if (what & 128)
		desc.len = (uint32_t)take(in, 4);
	return desc;
}

static void table(struct bytes *in)
{
	unsigned queue = (unsigned)take(in, 1) % QUEUES, n = (unsigned)take(in, 1) % 8;

	for (unsigned i = 0; i < n; i++) {
		struct vring_desc desc = some_desc(in);

		desc.next = (uint16_t)(i + 1);
		if (!me.packed && i + 1 < n)
			desc.flags |= VRING_DESC_F_NEXT;
		if (me.packed)
			desc.next = desc.flags;
		poke(queue * QUEUE_STEP + TABLES + 16 * i, &desc, sizeof(desc));
	}
}

static void add(struct bytes *in)
{
	unsigned queue = (unsigned)take(in, 1) % QUEUES, n = 1 + (unsigned)take(in, 1) % 4;
	uint64_t at = queue * QUEUE_STEP;
	uint16_t head = me.slot[queue];

	for (unsigned i = 0; i < n; i++) {
		struct vring_desc desc = some_desc(in);
		uint16_t here = me.slot[queue], next = (uint16_t)((here + 1) % RING);

		desc.flags |= i + 1 < n ? VRING_DESC_F_NEXT : 0;
		desc.next = next;
		if (me.packed) { /* id and flags are there where flags and next are */
			desc.next = desc.flags | (me.wrap[queue] ? 0x80 : 0x8000);
			desc.flags = here;
		}
		poke(at + DESC + 16 * here, &desc, sizeof(desc));
		if (!next)
			me.wrap[queue] = !me.wrap[queue];
		me.slot[queue] = next;
	}
	if (me.packed)
		return;
	poke(at + AVAIL + 4 + 2 * (me.idx[queue] % RING), &head, sizeof(head));
	me.idx[queue]++;
	poke(at + AVAIL + 2, &me.idx[queue], sizeof(uint16_t));
}

static void scribble(struct bytes *in)
{
	static const uint32_t places[] = {DESC, AVAIL, USED, TABLES};
	unsigned what = (unsigned)take(in, 1), n = 1u << (what >> 3 & 3);
	uint64_t value, at = places[what & 3] + (what >> 2 & 1) * QUEUE_STEP + take(in, 1);

	value = take(in, n);
	poke(at, &value, n);
}

static void cut(struct bytes *in)
{
	MUST(!ftruncate(me.file, (off_t)(take(in, 2) % BYTES)), "cannot cut");
	for (unsigned i = 0; i < QUEUES; i++)
		turn(i, 4);
	MUST(!ftruncate(me.file, BYTES), "cannot grow");
	if (vhost_lost(me.vhost)) {
		disconnect();
		connect_back_end(1);
	}
}

/* The back end dies with a request out, and comes back. */
static void die(struct bytes *in)
{
	static struct vhost_chain chain;
	unsigned what = (unsigned)take(in, 1);

	for (unsigned i = 0; i < QUEUES; i++)
		if (what & 1u << i)
			vhost_pop(me.vhost, i, &chain);
	disconnect();
	connect_back_end(what & 64 ? 2 : 1);
	for (unsigned i = 0; i < QUEUES; i++)
		if (what & 4u << i)
			set_up(i);
}

/* The back end dies, and the next one goes on with what it saved, and what became of that. */
static void take_over(struct bytes *in)
{
	unsigned what = (unsigned)take(in, 1);
	struct vhost_device device = device_of(what & 1 ? 1 : 1 + (what >> 1 & 1));
	struct vhost_saved saved;
	char err[256] = "";
	int r = -EPROTO;

	if (vhost_save(me.vhost, &saved)) {
		if (what & 4)
			saved.bytes[take(in, 2) % sizeof(saved.bytes)] ^= (uint8_t)take(in, 1);
		for (unsigned i = 0; i < saved.nr_fds; i++)
			saved.fds[i] = fcntl(saved.fds[i], F_DUPFD_CLOEXEC, 0);
		vhost_close(me.vhost);
		me.vhost = NULL;
		for (unsigned i = 0; i < QUEUES; i++)
			MUST(me.kicks[i] < 0, "a kick was left");
		r = vhost_restore(&me.vhost, &device, &saved, err, sizeof(err));
		MUST(!r || err[0], "no sentence");
		MUST(!r == !!me.vhost, "%d and a back end", r);
	}
	if (!r)
		return;
	disconnect();
	connect_back_end(1);
}

static void scribble_record(struct bytes *in)
{
	uint64_t at = take(in, 1), value = take(in, 4);

	if (me.record >= 0 && pwrite(me.record, &value, 4, (off_t)at) < 0)
		MUST(errno == EPERM || errno == EINVAL, "cannot write: %s", strerror(errno));
}

static void operation(struct bytes *in)
{
	unsigned queue;

	switch (take(in, 1) % 18) {
	case 0:
		begin(in);
		break;
	case 1:
		set_up((unsigned)take(in, 1) % QUEUES);
		break;
	case 2:
	case 3:
		message(in);
		break;
	case 4:
		raw_bytes(in);
		break;
	case 5:
		slot(in);
		break;
	case 6:
	case 7:
	case 8:
		add(in);
		break;
	case 9:
		table(in);
		break;
	case 10:
	case 11:
		scribble(in);
		break;
	case 12:
	case 13:
		queue = (unsigned)take(in, 1);
		turn(queue % QUEUES, 1 + queue / QUEUES % 32);
		break;
	case 14:
		queue = (unsigned)take(in, 1);
		if (queue & 2)
			vhost_arm(me.vhost, queue % QUEUES);
		else
			vhost_disarm(me.vhost, queue % QUEUES);
		vhost_pending(me.vhost, queue % QUEUES);
		if (queue & 4)
			vhost_config_changed(me.vhost);
		break;
	case 15:
		me.countdown = 1 + (unsigned)take(in, 1);
		me.scribble_bytes = 1u << (take(in, 1) & 3);
		me.scribble = take(in, me.scribble_bytes);
		break;
	case 16:
		switch (take(in, 1) & 3) {
		case 0:
			get_record(in);
			break;
		case 1:
			scribble_record(in);
			break;
		case 2:
			take_over(in);
			break;
		default:
			die(in);
		}
		break;
	default:
		cut(in);
	}
}

/* ---- Each input ----------------------------------------------------------------------------- */

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_setup(LOG_ERROR - 1, false);
	MUST(!sigbus_install(), "no handler");
	fuzz_on_load = on_load;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = {data, data + size};
	unsigned before = open_descriptors();

	memset(&me, 0, sizeof(me));
	me.record = -1;
	me.file = memfd_create("fuzz", MFD_CLOEXEC);
	me.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	MUST(me.file >= 0 && me.event >= 0, "no descriptors");
	connect_back_end(1);
	begin(&in);
	for (unsigned i = 0; i < MAX_OPERATIONS && more(&in); i++)
		operation(&in);
	for (unsigned i = 0; i < QUEUES; i++)
		turn(i, 32);
	disconnect();
	if (me.record >= 0)
		close(me.record);
	close(me.event);
	close(me.file);
	MUST(open_descriptors() == before, "descriptors leak");
	return 0;
}
