// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The front end's side of the vhost-user protocol (QEMU docs/interop/vhost-user.rst): connection,
 * negotiation, memory, queues, in-flight record. Messages come in the order in which QEMU sends
 * them, at the first start as after a crash of the back end.
 */
#include "vhost_user_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 10000
#define CLOSE_MS 10000
#define OWED_CALL_MS 5000
#define MAX_FDS 16
#define MAX_CONFIG 256u

#define DATA_BYTES (8u << 20)
#define RING 128u

/* Guest addresses: as on a PC, some memory low and some above 4 GiB. */
#define RINGS_GUEST 0x1000000ull
#define DATA_GUEST 0x100000000ull
/* The files of data begin with a page that is not the guest's. */
#define DATA_OFFSET 4096u

/* Protocol features. */
#define P_MQ (1u << 0)
#define P_REPLY_ACK (1u << 3)
#define P_BACKEND_REQ (1u << 5)
#define P_CONFIG (1u << 9)
#define P_INFLIGHT (1u << 12)
#define P_MEM_SLOTS (1u << 15)

/* From the back end, on its own channel. */
#define BACKEND_CONFIG_CHANGED 2u

/* Features of the disk that the driver understands. */
#define BLK_FEATURES                                                                               \
	(1ull << VIRTIO_BLK_F_SIZE_MAX | 1ull << VIRTIO_BLK_F_SEG_MAX |                            \
	 1ull << VIRTIO_BLK_F_BLK_SIZE | 1ull << VIRTIO_BLK_F_FLUSH |                              \
	 1ull << VIRTIO_BLK_F_TOPOLOGY | 1ull << VIRTIO_BLK_F_CONFIG_WCE |                         \
	 1ull << VIRTIO_BLK_F_MQ | 1ull << VIRTIO_BLK_F_DISCARD |                                  \
	 1ull << VIRTIO_BLK_F_WRITE_ZEROES)

struct config_message {
	uint32_t offset;
	uint32_t size;
	uint32_t flags; /* 0: the guest writes */
	uint8_t data[MAX_CONFIG];
};

int vu_complain(const struct vu *vu, const char *fmt, ...)
{
	char line[160];
	va_list ap;

	if (!vu->options.complain)
		return -EPROTO;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	vu->options.complain(line);
	return -EPROTO;
}

/* ---- Messages ------------------------------------------------------------------------------- */

int vu_send_raw(int socket, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
		const int *fds, unsigned nr_fds)
{
	struct vu_header h = {request, flags, size};
	struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)payload, size}};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = payload && size ? 2 : 1};
	struct cmsghdr *c;

	if (nr_fds > MAX_FDS)
		return -EINVAL;
	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nr_fds * sizeof(int));
	}
	if (sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return 0;
	return errno == EPIPE ? -ECONNRESET : -errno;
}

/* 1 when there is something to read or an end. */
static int wait_for_input(int socket, uint64_t until_ms)
{
	struct pollfd fd = {.fd = socket, .events = POLLIN};
	uint64_t now = vu_now_ms();
	int n;

	do {
		n = poll(&fd, 1, until_ms > now ? (int)(until_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Exactly so many bytes. A descriptor that comes along goes to *fd, which is -1 otherwise. */
static int receive(int socket, void *data, size_t bytes, int *fd, uint64_t until_ms)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;

	while (bytes) {
		struct iovec iov = {data, bytes};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.room,
				     .msg_controllen = sizeof(control.room)};
		struct cmsghdr *c;
		ssize_t n;

		if (wait_for_input(socket, until_ms) != 1)
			return -ETIMEDOUT;
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
		if (n <= 0)
			return -ECONNRESET;
		c = CMSG_FIRSTHDR(&msg);
		if (c && c->cmsg_type == SCM_RIGHTS && *fd < 0)
			memcpy(fd, CMSG_DATA(c), sizeof(*fd));
		data = (char *)data + n;
		bytes -= (size_t)n;
	}
	return 0;
}

int vu_receive(int socket, struct vu_header *h, void *payload, uint32_t room, int *fd,
	       unsigned timeout_ms)
{
	uint64_t until = vu_now_ms() + timeout_ms;
	int r;

	*fd = -1;
	r = receive(socket, h, sizeof(*h), fd, until);
	if (!r && h->size > room)
		r = -EMSGSIZE;
	if (!r)
		r = receive(socket, payload, h->size, fd, until);
	if (r && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return r;
}

static int send_message(struct vu *vu, uint32_t request, uint32_t flags, const void *payload,
			uint32_t size, const int *fds, unsigned nr_fds)
{
	uint64_t until = vu_now_ms() + ANSWER_MS;
	int r;

	while ((r = vu_send_raw(vu->socket, request, VU_VERSION | flags, payload, size, fds,
				nr_fds)) == -EAGAIN) {
		if (vu_now_ms() >= until)
			return -ETIMEDOUT;
		usleep(1000);
	}
	return r;
}

static int wrong_answer(const struct vu *vu, uint32_t request, const struct vu_header *h)
{
	return vu_complain(vu, "the answer to request %u is request %u, flags %#x, %u bytes",
			   request, h->request, h->flags, h->size);
}

/* The answer to a request: a payload of exactly that size. */
static int answer_to(struct vu *vu, uint32_t request, void *payload, uint32_t size, int *fd)
{
	struct vu_header h;
	int none, r = vu_receive(vu->socket, &h, payload, size, fd ? fd : &none, ANSWER_MS);

	if (r == -EMSGSIZE)
		return wrong_answer(vu, request, &h);
	if (r)
		return r;
	if (!fd && none >= 0)
		close(none);
	if (h.request != request || h.flags != (VU_VERSION | VU_REPLY) || h.size != size)
		return wrong_answer(vu, request, &h);
	return 0;
}

int vu_tell(struct vu *vu, uint32_t request, const void *payload, uint32_t size, const int *fds,
	    unsigned nr_fds)
{
	bool ack = vu->protocol & P_REPLY_ACK;
	uint64_t refused;
	int r;

	r = send_message(vu, request, ack ? VU_NEED_REPLY : 0, payload, size, fds, nr_fds);
	if (!r && ack)
		r = answer_to(vu, request, &refused, sizeof(refused), NULL);
	return !r && ack && refused ? -EREMOTEIO : r;
}

static int tell_u64(struct vu *vu, uint32_t request, uint64_t value)
{
	return vu_tell(vu, request, &value, sizeof(value), NULL, 0);
}

static int tell_fd(struct vu *vu, uint32_t request, uint64_t value, int fd)
{
	return vu_tell(vu, request, &value, sizeof(value), &fd, 1);
}

static int tell_state(struct vu *vu, uint32_t request, uint32_t index, uint32_t num)
{
	struct vu_state state = {index, num};

	return vu_tell(vu, request, &state, sizeof(state), NULL, 0);
}

static int ask_u64(struct vu *vu, uint32_t request, uint64_t *value)
{
	int r = send_message(vu, request, 0, NULL, 0, NULL, 0);

	return r ? r : answer_to(vu, request, value, sizeof(*value), NULL);
}

/* ---- Configuration space -------------------------------------------------------------------- */

int vu_get_config(struct vu *vu, uint32_t offset, void *data, uint32_t len)
{
	struct config_message m = {.offset = offset, .size = len};
	struct vu_header h;
	int fd, r;

	if (!(vu->protocol & P_CONFIG))
		return -ENOTSUP;
	if (len > MAX_CONFIG)
		return -EINVAL;
	r = send_message(vu, VU_GET_CONFIG, 0, &m, 12 + len, NULL, 0);
	if (!r)
		r = vu_receive(vu->socket, &h, &m, sizeof(m), &fd, ANSWER_MS);
	if (r)
		return r;
	if (fd >= 0)
		close(fd);
	if (h.request != VU_GET_CONFIG || h.flags != (VU_VERSION | VU_REPLY))
		return wrong_answer(vu, VU_GET_CONFIG, &h);
	if (!h.size)
		return -EREMOTEIO;
	if (h.size != 12 + len || m.offset != offset || m.size != len)
		return wrong_answer(vu, VU_GET_CONFIG, &h);
	memcpy(data, m.data, len);
	return 0;
}

int vu_set_config(struct vu *vu, uint32_t offset, const void *data, uint32_t len)
{
	struct config_message m = {.offset = offset, .size = len};

	if (!(vu->protocol & P_CONFIG))
		return -ENOTSUP;
	if (len > MAX_CONFIG)
		return -EINVAL;
	memcpy(m.data, data, len);
	return vu_tell(vu, VU_SET_CONFIG, &m, 12 + len, NULL, 0);
}

bool vu_config_changed(struct vu *vu)
{
	bool changed = false;
	uint64_t done = 0;
	struct vu_header h;
	int fd;

	if (vu->backend[0] < 0)
		return false;
	while (wait_for_input(vu->backend[0], 0) == 1 &&
	       !vu_receive(vu->backend[0], &h, NULL, 0, &fd, ANSWER_MS)) {
		if (fd >= 0)
			close(fd);
		changed = changed || h.request == BACKEND_CONFIG_CHANGED;
		if (h.flags & VU_NEED_REPLY)
			vu_send_raw(vu->backend[0], h.request, VU_VERSION | VU_REPLY, &done,
				    sizeof(done), NULL, 0);
	}
	return changed;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static int map_memory(struct vu_memory *m, void *at, uint64_t guest, size_t bytes, size_t offset)
{
	m->fd = memfd_create("guest", MFD_CLOEXEC);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)(offset + bytes)))
		return -errno;
	m->base = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), m->fd,
		       (off_t)offset);
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return -errno;
	}
	m->region = (struct vu_region){
		.guest = guest, .bytes = bytes, .user = (uintptr_t)m->base, .offset = offset};
	return 0;
}

static int make_memory(struct vu *vu)
{
	size_t rings = vu->options.queues * vu_queue_bytes(vu->options.ring);
	size_t half = vu->options.data_bytes / 2;
	int r;

	vu->data = mmap(NULL, 2 * half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vu->data == MAP_FAILED) {
		vu->data = NULL;
		return -errno;
	}
	r = map_memory(&vu->memories[0], NULL, RINGS_GUEST, rings, 0);
	if (!r)
		r = map_memory(&vu->memories[1], vu->data, DATA_GUEST, half, DATA_OFFSET);
	if (!r)
		r = map_memory(&vu->memories[2], vu->data + half, DATA_GUEST + half, half,
			       DATA_OFFSET);
	return r;
}

static void free_memory(struct vu *vu)
{
	if (vu->memories[0].base)
		munmap(vu->memories[0].base, vu->memories[0].region.bytes);
	if (vu->data)
		munmap(vu->data, vu->options.data_bytes);
	for (unsigned i = 0; i < VU_MEMORIES; i++)
		if (vu->memories[i].fd >= 0)
			close(vu->memories[i].fd);
}

int vu_lock_memory(struct vu *vu)
{
	const struct vu_memory *rings = &vu->memories[0];

	if (mlock(rings->base, rings->region.bytes) || mlock(vu->data, vu->options.data_bytes))
		return -errno;
	return 0;
}

static int hand_over_by_table(struct vu *vu)
{
	struct vu_mem_table table = {.nr = VU_MEMORIES};
	int fds[VU_MEMORIES];

	for (unsigned i = 0; i < VU_MEMORIES; i++) {
		table.regions[i] = vu->memories[i].region;
		fds[i] = vu->memories[i].fd;
	}
	return vu_tell(vu, VU_SET_MEM_TABLE, &table, sizeof(table), fds, VU_MEMORIES);
}

static int hand_over_by_slots(struct vu *vu)
{
	int r = 0;

	for (unsigned i = 0; i < VU_MEMORIES && !r; i++) {
		struct vu_mem_reg reg = {.region = vu->memories[i].region};

		r = vu_tell(vu, VU_ADD_MEM_REG, &reg, sizeof(reg), &vu->memories[i].fd, 1);
	}
	return r;
}

/* ---- Negotiation ---------------------------------------------------------------------------- */

static int dial(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static int choose_features(struct vu *vu)
{
	uint64_t offered, wanted = BLK_FEATURES | VU_F_INDIRECT | VU_F_EVENT_IDX;
	uint64_t needed = VU_F_PROTOCOL | VU_F_VERSION_1;
	int r = ask_u64(vu, VU_GET_FEATURES, &offered);

	if (r)
		return r == -ECONNRESET ? -EBUSY : r;
	if (vu->options.no_indirect)
		wanted &= ~VU_F_INDIRECT;
	if (vu->options.no_event_idx)
		wanted &= ~VU_F_EVENT_IDX;
	if (vu->options.packed)
		needed |= VU_F_PACKED;
	vu->features = offered & (wanted | needed);
	return needed & ~offered ? -ENOTSUP : 0;
}

static int choose_protocol(struct vu *vu)
{
	uint64_t offered, wanted = P_REPLY_ACK | P_BACKEND_REQ;
	uint64_t needed = P_CONFIG;
	int r = ask_u64(vu, VU_GET_PROTOCOL_FEATURES, &offered);

	if (r)
		return r;
	if (vu->options.no_reply_ack)
		wanted &= ~(uint64_t)P_REPLY_ACK;
	if (vu->options.queues > 1)
		needed |= P_MQ;
	if (vu->options.memory_slots)
		needed |= P_MEM_SLOTS;
	if (!vu->options.no_inflight)
		needed |= P_INFLIGHT;
	if (needed & ~offered)
		return -ENOTSUP;
	wanted |= needed | P_MQ;
	/* No acknowledgement of this one: it is not agreed upon yet. */
	vu->protocol = 0;
	wanted &= offered;
	r = tell_u64(vu, VU_SET_PROTOCOL_FEATURES, wanted);
	vu->protocol = wanted;
	return r;
}

static int ask_limits(struct vu *vu)
{
	uint64_t queues = 1, slots = VU_MEMORIES;
	int r = 0;

	if (vu->protocol & P_MQ)
		r = ask_u64(vu, VU_GET_QUEUE_NUM, &queues);
	if (!r && vu->options.memory_slots)
		r = ask_u64(vu, VU_GET_MAX_MEM_SLOTS, &slots);
	vu->max_queues = (unsigned)queues;
	if (!r && (queues < vu->options.queues || slots < VU_MEMORIES))
		r = -ENOTSUP;
	return r;
}

static int give_channel(struct vu *vu)
{
	int r;

	if (!(vu->protocol & P_BACKEND_REQ))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, vu->backend))
		return -errno;
	r = vu_tell(vu, VU_SET_BACKEND_REQ_FD, NULL, 0, &vu->backend[1], 1);
	close(vu->backend[1]);
	vu->backend[1] = -1;
	return r;
}

static int negotiate(struct vu *vu)
{
	int r;

	if ((r = choose_features(vu)) || (r = choose_protocol(vu)) || (r = ask_limits(vu)) ||
	    (r = give_channel(vu)))
		return r;
	return vu_tell(vu, VU_SET_OWNER, NULL, 0, NULL, 0);
}

/* ---- Start ---------------------------------------------------------------------------------- */

/* A new record at the first start; that of the former connection after it. */
static int agree_on_inflight(struct vu *vu, bool again)
{
	int r;

	if (vu->options.no_inflight)
		return 0;
	if (vu->inflight_fd < 0) {
		vu->inflight = (struct vu_inflight){.queues = (uint16_t)vu->options.queues,
						    .ring = (uint16_t)vu->options.ring};
		r = send_message(vu, VU_GET_INFLIGHT_FD, 0, &vu->inflight, sizeof(vu->inflight),
				 NULL, 0);
		if (!r)
			r = answer_to(vu, VU_GET_INFLIGHT_FD, &vu->inflight, sizeof(vu->inflight),
				      &vu->inflight_fd);
		if (r)
			return r;
		if (vu->inflight_fd < 0 || !vu->inflight.mmap_bytes)
			return vu_complain(vu, "no in-flight record in the answer");
	}
	r = vu_tell(vu, VU_SET_INFLIGHT_FD, &vu->inflight, sizeof(vu->inflight), &vu->inflight_fd,
		    1);
	return again && r == -ECONNRESET ? -ESTALE : r;
}

/* QEMU makes kick eventfds that are readable from the start: what the guest did meanwhile counts.
 */
static int make_eventfds(struct vu_queue *q)
{
	q->kick = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	q->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	q->err = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return q->kick < 0 || q->call < 0 || q->err < 0 ? -errno : 0;
}

static int start_queue(struct vu *vu, unsigned index, bool again)
{
	struct vu_queue *q = &vu->queues[index];
	struct vu_addr addr = {.index = index,
			       .desc = (uintptr_t)q->desc,
			       .used = (uintptr_t)q->used,
			       .avail = (uintptr_t)q->avail};
	int r;

	if ((r = tell_state(vu, VU_SET_VRING_NUM, index, q->size)) ||
	    (r = tell_state(vu, VU_SET_VRING_BASE, index, vu_queue_base(q, again))) ||
	    (r = vu_tell(vu, VU_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0)) ||
	    (r = tell_fd(vu, VU_SET_VRING_ERR, index, q->err)) ||
	    (r = tell_fd(vu, VU_SET_VRING_KICK, index, q->kick)) ||
	    (r = tell_fd(vu, VU_SET_VRING_CALL, index, q->call)))
		return r;
	q->since_kick = 0;
	return 0;
}

static int start_queues(struct vu *vu, bool again)
{
	int r = 0;

	for (unsigned i = 0; i < vu->options.queues && !r; i++)
		r = make_eventfds(&vu->queues[i]);
	for (unsigned i = 0; i < vu->options.queues && !r; i++)
		r = start_queue(vu, i, again);
	for (unsigned i = 0; i < vu->options.queues && !r; i++)
		r = tell_state(vu, VU_SET_VRING_ENABLE, i, 1);
	return r;
}

/* Makes what lies in the guest's memory, after the features are known. */
static int make_queues(struct vu *vu)
{
	size_t bytes = vu_queue_bytes(vu->options.ring);
	int r = 0;

	for (unsigned i = 0; i < vu->options.queues && !r; i++)
		r = vu_queue_init(&vu->queues[i], vu->options.ring,
				  vu->memories[0].base + i * bytes, RINGS_GUEST + i * bytes,
				  vu->features);
	return r;
}

static int start(struct vu *vu, bool again)
{
	uint64_t features = vu->features;
	int r;

	vu->socket = dial(vu->path);
	if (vu->socket < 0)
		return vu->socket;
	r = negotiate(vu);
	/* A newer one may offer more. */
	if (!r && again && features & ~vu->features)
		r = vu_complain(vu, "features were %#llx, are %#llx", (unsigned long long)features,
				(unsigned long long)vu->features);
	if (again)
		vu->features = features;
	if (!r && !again)
		r = make_queues(vu);
	if (!r)
		r = tell_u64(vu, VU_SET_FEATURES, vu->features);
	if (!r)
		r = agree_on_inflight(vu, again);
	if (!r)
		r = vu->options.memory_slots ? hand_over_by_slots(vu) : hand_over_by_table(vu);
	if (!r)
		r = start_queues(vu, again);
	return r;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void disconnect(struct vu *vu)
{
	close_fd(&vu->socket);
	close_fd(&vu->backend[0]);
	close_fd(&vu->backend[1]);
	for (unsigned i = 0; i < VU_MAX_QUEUES; i++) {
		close_fd(&vu->queues[i].kick);
		close_fd(&vu->queues[i].call);
		close_fd(&vu->queues[i].err);
	}
}

static struct vu *make(const char *socket, const struct vu_options *options)
{
	struct vu *vu = calloc(1, sizeof(*vu));

	if (!vu)
		return NULL;
	snprintf(vu->path, sizeof(vu->path), "%s", socket);
	vu->options = *options;
	if (!vu->options.queues)
		vu->options.queues = 1;
	if (!vu->options.ring)
		vu->options.ring = RING;
	if (!vu->options.data_bytes)
		vu->options.data_bytes = DATA_BYTES;
	/* Two halves of whole pages. */
	vu->options.data_bytes = (vu->options.data_bytes + 8191) / 8192 * 8192;
	vu->socket = vu->backend[0] = vu->backend[1] = vu->inflight_fd = -1;
	for (unsigned i = 0; i < VU_MAX_QUEUES; i++)
		vu->queues[i].kick = vu->queues[i].call = vu->queues[i].err = -1;
	for (unsigned i = 0; i < VU_MEMORIES; i++)
		vu->memories[i].fd = -1;
	return vu;
}

int vu_open(struct vu **result, const char *socket, const struct vu_options *options)
{
	unsigned ring = options->ring;
	struct vu *vu;
	int r;

	*result = NULL;
	if (options->queues > VU_MAX_QUEUES || ring > VU_MAX_RING || (ring & (ring - 1)) ||
	    (ring && ring < 4))
		return -EINVAL;
	vu = make(socket, options);
	if (!vu)
		return -ENOMEM;
	r = make_memory(vu);
	if (!r)
		r = start(vu, false);
	if (r) {
		vu_kill(vu);
		return r;
	}
	*result = vu;
	return 0;
}

void vu_kill(struct vu *vu)
{
	if (!vu)
		return;
	disconnect(vu);
	close_fd(&vu->inflight_fd);
	for (unsigned i = 0; i < VU_MAX_QUEUES; i++)
		vu_queue_free(&vu->queues[i]);
	free_memory(vu);
	free(vu);
}

/* ---- After a crash of the back end ---------------------------------------------------------- */

/* A bit for each queue whose driver sleeps though the dead back end has completed something. */
static unsigned owed_calls(const struct vu *vu)
{
	unsigned owed = 0;

	for (unsigned i = 0; i < vu->options.queues; i++)
		if (vu->queues[i].armed && vu_queue_visible(&vu->queues[i]))
			owed |= 1u << i;
	return owed;
}

static int await_calls(struct vu *vu, unsigned owed)
{
	for (unsigned i = 0; i < vu->options.queues; i++) {
		if (owed & 1u << i &&
		    wait_for_input(vu->queues[i].call, vu_now_ms() + OWED_CALL_MS) != 1) {
			/* Perhaps this one has died, too. */
			if (vu_hung_up(vu, 0))
				return -ECONNRESET;
			return vu_complain(vu,
					   "queue %u sleeps on: what was completed before the "
					   "restart is not called for",
					   i);
		}
	}
	return 0;
}

int vu_reconnect(struct vu *vu, unsigned timeout_ms)
{
	uint64_t until = vu_now_ms() + timeout_ms;
	unsigned owed;
	int r;

	for (;;) {
		disconnect(vu);
		owed = owed_calls(vu);
		r = start(vu, true);
		if (!r)
			r = await_calls(vu, owed);
		if (!r || r == -EPROTO || vu_now_ms() >= until)
			return r;
		usleep(10000);
	}
}

/* ---- The end -------------------------------------------------------------------------------- */

static int reap_all(struct vu *vu, unsigned queue)
{
	uint64_t until = vu_now_ms() + CLOSE_MS;
	uint8_t status;
	void *cookie;
	int r = 0;

	while (r >= 0 && vu_in_flight(vu, queue)) {
		uint64_t now = vu_now_ms();

		if (now >= until)
			return -ETIMEDOUT;
		r = vu_reap(vu, queue, (unsigned)(until - now), &cookie, &status);
	}
	return r < 0 ? r : 0;
}

static int stop_queue(struct vu *vu, unsigned queue)
{
	struct vu_state state = {.index = queue};
	int r = reap_all(vu, queue);

	if (!r)
		r = send_message(vu, VU_GET_VRING_BASE, 0, &state, sizeof(state), NULL, 0);
	if (!r)
		r = answer_to(vu, VU_GET_VRING_BASE, &state, sizeof(state), NULL);
	if (r)
		return r;
	if (state.index == queue && vu_queue_base_is(&vu->queues[queue], state.num))
		return 0;
	return vu_complain(vu, "the base of queue %u is %#x of queue %u", queue, state.num,
			   state.index);
}

int vu_close(struct vu *vu)
{
	int r = 0;

	for (unsigned i = 0; i < vu->options.queues && !r; i++)
		r = stop_queue(vu, i);
	vu_kill(vu);
	return r;
}

/* ---- What callers ask for ------------------------------------------------------------------- */

uint8_t *vu_data(struct vu *vu)
{
	return vu->data;
}

size_t vu_data_bytes(const struct vu *vu)
{
	return vu->options.data_bytes;
}

uint64_t vu_features(const struct vu *vu)
{
	return vu->features;
}

unsigned vu_max_queues(const struct vu *vu)
{
	return vu->max_queues;
}

void vu_hang_up(struct vu *vu)
{
	shutdown(vu->socket, SHUT_RDWR);
}

bool vu_hung_up(struct vu *vu, unsigned timeout_ms)
{
	struct pollfd fd = {.fd = vu->socket, .events = POLLRDHUP};

	return poll(&fd, 1, (int)timeout_ms) == 1;
}
