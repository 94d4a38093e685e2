// SPDX-License-Identifier: GPL-2.0-or-later
#include "vhost_peer.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

const struct region low_region = {LOW_GUEST, LOW_BYTES, LOW_USER, 0};
const struct region high_region = {HIGH_GUEST, HIGH_BYTES, HIGH_USER, HIGH_OFFSET};

unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and the directory itself */
}

int make_file(uint64_t bytes)
{
	int fd = memfd_create("guest", MFD_CLOEXEC);

	CU_ASSERT_FATAL(fd >= 0 && !ftruncate(fd, (off_t)bytes));
	return fd;
}

void *at_guest(struct peer *peer, uint64_t address)
{
	if (address >= HIGH_GUEST)
		return peer->memory + HIGH_OFFSET + (address - HIGH_GUEST);
	return peer->memory + (address - LOW_GUEST);
}

/* ---- The device ----------------------------------------------------------------------------- */

static uint32_t get_config(void *arg, uint8_t space[VHOST_MAX_CONFIG])
{
	struct peer *peer = arg;

	memcpy(space, peer->config, 60);
	return 60;
}

/* Only its first 8 bytes can be written. */
static bool set_config(void *arg, uint32_t offset, const uint8_t *data, uint32_t len)
{
	struct peer *peer = arg;

	if (offset + len > 8)
		return false;
	memcpy(peer->config + offset, data, len);
	peer->written_offset = offset;
	peer->written_bytes = len;
	return true;
}

static void kick_changed(void *arg, unsigned queue, int kick)
{
	struct peer *peer = arg;

	/* Neither the former one nor the new one is closed. */
	if (peer->kicks[queue] >= 0)
		CU_ASSERT(fcntl(peer->kicks[queue], F_GETFD) >= 0);
	if (kick >= 0)
		CU_ASSERT(fcntl(kick, F_GETFD) == FD_CLOEXEC);
	peer->kicks[queue] = kick;
	peer->kick_changes++;
}

/* ---- The front end -------------------------------------------------------------------------- */

static struct vhost_device device_of(struct peer *peer, uint64_t instance)
{
	return (struct vhost_device){
		.name = "test",
		.features = BIT(6) | BIT(9),
		.max_queues = QUEUES,
		.instance = instance,
		.get_config = get_config,
		.set_config = set_config,
		.kick_changed = kick_changed,
		.arg = peer,
	};
}

static void connect_peer(struct peer *peer, uint64_t instance)
{
	struct vhost_device device = device_of(peer, instance);
	int socks[2];

	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, socks));
	peer->sock = socks[0];
	peer->protocol = 0;
	for (unsigned i = 0; i < QUEUES; i++)
		peer->kicks[i] = -1;
	CU_ASSERT_FATAL(!vhost_open(&peer->vhost, &device, socks[1]));
}

void peer_open(struct peer *peer)
{
	memset(peer, 0, sizeof(*peer));
	for (unsigned i = 0; i < sizeof(peer->config); i++)
		peer->config[i] = (uint8_t)(i + 1);
	peer->file = make_file(FILE_BYTES);
	peer->memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, peer->file, 0);
	CU_ASSERT_FATAL(peer->memory != MAP_FAILED);
	connect_peer(peer, INSTANCE);
}

void peer_reopen(struct peer *peer, uint64_t instance)
{
	vhost_close(peer->vhost);
	close(peer->sock);
	connect_peer(peer, instance);
}

bool peer_save(struct peer *peer, struct vhost_saved *saved)
{
	if (!vhost_save(peer->vhost, saved))
		return false;
	for (unsigned i = 0; i < saved->nr_fds; i++) {
		saved->fds[i] = fcntl(saved->fds[i], F_DUPFD_CLOEXEC, 0);
		CU_ASSERT_FATAL(saved->fds[i] >= 0);
	}
	return true;
}

void peer_die(struct peer *peer)
{
	vhost_close(peer->vhost);
	peer->vhost = NULL;
}

int peer_restore(struct peer *peer, const struct vhost_saved *saved, uint64_t instance)
{
	struct vhost_device device = device_of(peer, instance);

	peer->err[0] = 0;
	peer->r = vhost_restore(&peer->vhost, &device, saved, peer->err, sizeof(peer->err));
	CU_ASSERT_EQUAL(peer->vhost == NULL, peer->r != 0);
	CU_ASSERT(!peer->r || peer->err[0]);
	return peer->r;
}

void peer_take_over(struct peer *peer)
{
	struct vhost_saved saved;

	CU_ASSERT_FATAL(peer_save(peer, &saved));
	peer_die(peer);
	CU_ASSERT_EQUAL_FATAL(peer_restore(peer, &saved, INSTANCE), 0);
}

void peer_close(struct peer *peer)
{
	vhost_close(peer->vhost);
	for (unsigned i = 0; i < QUEUES; i++)
		CU_ASSERT_EQUAL(peer->kicks[i], -1);
	close(peer->sock);
	munmap(peer->memory, FILE_BYTES);
	close(peer->file);
}

void peer_send(struct peer *peer, const void *bytes, size_t size, const int *fds, unsigned nr_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 64)];
	} control = {0};
	struct iovec iov = {(void *)bytes, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nr_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nr_fds);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int) * nr_fds);
		memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * nr_fds);
	}
	CU_ASSERT_EQUAL(sendmsg(peer->sock, &msg, MSG_NOSIGNAL), (ssize_t)size);
	peer->r = vhost_input(peer->vhost, peer->err, sizeof(peer->err));
	if (peer->r)
		CU_ASSERT(peer->err[0] != '\0');
}

int peer_say(struct peer *peer, uint32_t request, uint32_t flags, const void *payload,
	     uint32_t size, const int *fds, unsigned nr_fds)
{
	uint32_t message[3 + 4096 / 4 + 1] = {request, 1 | flags, size};

	if (size)
		memcpy(message + 3, payload, size);
	peer_send(peer, message, 12 + size, fds, nr_fds);
	return peer->r;
}

int peer_hear(struct peer *peer, uint32_t request, void *payload, uint32_t max, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	uint32_t header[3];
	struct iovec iov = {header, sizeof(header)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(peer->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);
	int came = -1;

	if (n < 0)
		return -1;
	CU_ASSERT_EQUAL_FATAL(n, 12);
	CU_ASSERT_EQUAL(header[0], request);
	CU_ASSERT_EQUAL(header[1], 5); /* version 1, a reply */
	CU_ASSERT_FATAL(header[2] <= max);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&came, CMSG_DATA(c), sizeof(came));
	if (fd)
		*fd = came;
	else
		CU_ASSERT_EQUAL(came, -1);
	if (header[2])
		CU_ASSERT_EQUAL(recv(peer->sock, payload, header[2], MSG_DONTWAIT),
				(ssize_t)header[2]);
	return (int)header[2];
}

int peer_do(struct peer *peer, uint32_t request, const void *payload, uint32_t size, int fd)
{
	uint64_t value = 0;

	if (peer_say(peer, request, 8, payload, size, &fd, fd >= 0))
		return -1;
	if (peer_hear(peer, request, &value, sizeof(value), NULL) != 8)
		return -1;
	CU_ASSERT(value <= 1);
	return (int)value;
}

int peer_do_u64(struct peer *peer, uint32_t request, uint64_t value, int fd)
{
	return peer_do(peer, request, &value, sizeof(value), fd);
}

int peer_do_state(struct peer *peer, uint32_t request, uint32_t index, uint32_t num)
{
	uint32_t state[2] = {index, num};

	return peer_do(peer, request, state, sizeof(state), -1);
}

uint64_t peer_ask_u64(struct peer *peer, uint32_t request)
{
	uint64_t value = 0;

	CU_ASSERT_EQUAL(peer_say(peer, request, 0, NULL, 0, NULL, 0), 0);
	CU_ASSERT_EQUAL(peer_hear(peer, request, &value, sizeof(value), NULL), 8);
	return value;
}

int peer_set_table(struct peer *peer, const struct region *regions, const int *fds, unsigned nr)
{
	uint32_t payload[2 + 8 * 8] = {nr};
	uint64_t value = 2;

	if (nr)
		memcpy(payload + 2, regions, nr * sizeof(*regions));
	CU_ASSERT_EQUAL(peer_say(peer, 5, 8, payload, 8 + nr * 32, fds, nr), 0);
	CU_ASSERT_EQUAL(peer_hear(peer, 5, &value, sizeof(value), NULL), 8);
	return (int)value;
}

int peer_slot(struct peer *peer, uint32_t request, const struct region *region, int fd)
{
	uint64_t payload[5] = {0};

	memcpy(payload + 1, region, sizeof(*region));
	return peer_do(peer, request, payload, sizeof(payload), fd);
}

int peer_give_memory(struct peer *peer)
{
	struct region regions[] = {low_region, high_region};
	int fds[] = {peer->file, peer->file};

	return peer_set_table(peer, regions, fds, 2);
}

void peer_negotiate(struct peer *peer, uint64_t features)
{
	uint64_t protocol = P_OFFERED;

	CU_ASSERT_EQUAL(peer_ask_u64(peer, 15), P_OFFERED);
	CU_ASSERT_EQUAL(peer_say(peer, 16, 0, &protocol, sizeof(protocol), NULL, 0), 0);
	peer->protocol = protocol;
	CU_ASSERT_EQUAL(peer_do_u64(peer, 2, features | F_PROTOCOL | BIT(VIRTIO_F_VERSION_1), -1),
			0);
	CU_ASSERT_EQUAL(peer_give_memory(peer), 0);
}

/* ---- The driver ----------------------------------------------------------------------------- */

static void *in_low(struct driver *driver, uint64_t offset)
{
	return driver->peer->memory + offset;
}

struct vring_desc *split_desc(struct driver *driver)
{
	return in_low(driver, driver->desc);
}

struct vring_avail *split_avail(struct driver *driver)
{
	return in_low(driver, driver->avail);
}

struct vring_used *split_used(struct driver *driver)
{
	return in_low(driver, driver->used);
}

struct vring_packed_desc *packed_desc(struct driver *driver)
{
	return in_low(driver, driver->desc);
}

struct vring_packed_desc_event *packed_driver_event(struct driver *driver)
{
	return in_low(driver, driver->avail);
}

struct vring_packed_desc_event *packed_device_event(struct driver *driver)
{
	return in_low(driver, driver->used);
}

void driver_init(struct driver *driver, struct peer *peer, unsigned queue, uint16_t num,
		 bool packed)
{
	uint64_t at = queue * 0x20000ull;

	*driver = (struct driver){.peer = peer,
				  .queue = queue,
				  .packed = packed,
				  .num = num,
				  .desc = at,
				  .avail = at + 0x8000,
				  .used = at + 0x10000,
				  .wrap = true,
				  .seen_wrap = true,
				  .kick = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				  .call = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				  .err = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
	memset(peer->memory + at, 0, 0x18000);
}

void driver_close(struct driver *driver)
{
	close(driver->kick);
	close(driver->call);
	close(driver->err);
}

int driver_set_addr(struct driver *driver, uint32_t flags, uint64_t log)
{
	struct vhost_vring_addr addr = {.index = driver->queue,
					.flags = flags,
					.desc_user_addr = LOW_USER + driver->desc,
					.avail_user_addr = LOW_USER + driver->avail,
					.used_user_addr = LOW_USER + driver->used,
					.log_guest_addr = log};

	return peer_do(driver->peer, 9, &addr, sizeof(addr), -1);
}

void driver_set_up(struct driver *driver, uint32_t base)
{
	struct peer *peer = driver->peer;
	uint32_t q = driver->queue;

	CU_ASSERT_EQUAL(peer_do_state(peer, 8, q, driver->num), 0);
	CU_ASSERT_EQUAL(driver_set_addr(driver, 0, 0), 0);
	CU_ASSERT_EQUAL(peer_do_state(peer, 10, q, base), 0);
	CU_ASSERT_EQUAL(peer_do_u64(peer, 12, q, driver->kick), 0);
	CU_ASSERT_EQUAL(peer_do_u64(peer, 13, q, driver->call), 0);
	CU_ASSERT_EQUAL(peer_do_u64(peer, 14, q, driver->err), 0);
	CU_ASSERT_EQUAL(peer_do_state(peer, 18, q, 1), 0);
}

static uint16_t add_split(struct driver *driver, const struct piece *pieces, unsigned nr)
{
	struct vring_desc *desc = split_desc(driver);
	struct vring_avail *avail = split_avail(driver);
	uint16_t head = driver->slot;

	for (unsigned i = 0; i < nr; i++) {
		uint16_t at = driver->slot;

		driver->slot = (uint16_t)((at + 1) % driver->num);
		desc[at] = (struct vring_desc){
			.addr = pieces[i].address,
			.len = pieces[i].bytes,
			.flags = (uint16_t)(pieces[i].flags | (i + 1 < nr ? VRING_DESC_F_NEXT : 0)),
			.next = pieces[i].next ? (uint16_t)pieces[i].next : driver->slot};
	}
	avail->ring[driver->idx % driver->num] = head;
	__atomic_store_n(&avail->idx, ++driver->idx, __ATOMIC_RELEASE);
	return head;
}

static uint16_t packed_flags(bool wrap)
{
	return wrap ? BIT(VRING_PACKED_DESC_F_AVAIL) : BIT(VRING_PACKED_DESC_F_USED);
}

static uint16_t add_packed(struct driver *driver, const struct piece *pieces, unsigned nr)
{
	struct vring_packed_desc *desc = packed_desc(driver);
	uint16_t head = driver->slot, head_flags = 0;

	driver->lengths[head] = (uint16_t)nr;
	for (unsigned i = 0; i < nr; i++) {
		uint16_t at = driver->slot;
		uint16_t flags = (uint16_t)(pieces[i].flags | packed_flags(driver->wrap) |
					    (i + 1 < nr ? VRING_DESC_F_NEXT : 0));

		desc[at].addr = pieces[i].address;
		desc[at].len = pieces[i].bytes;
		desc[at].id = (uint16_t)(head + 7);
		if (i)
			desc[at].flags = flags;
		else
			head_flags = flags;
		if (++driver->slot == driver->num) {
			driver->slot = 0;
			driver->wrap = !driver->wrap;
		}
	}
	__atomic_store_n(&desc[head].flags, head_flags, __ATOMIC_RELEASE);
	return (uint16_t)(head + 7);
}

uint16_t driver_add(struct driver *driver, const struct piece *pieces, unsigned nr)
{
	return driver->packed ? add_packed(driver, pieces, nr) : add_split(driver, pieces, nr);
}

void driver_table(struct driver *driver, uint64_t address, const struct piece *pieces, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		uint8_t *to = at_guest(driver->peer, address + i * 16);
		uint16_t flags = pieces[i].flags, last;

		if (!driver->packed && i + 1 < nr)
			flags |= VRING_DESC_F_NEXT;
		last = pieces[i].next ? (uint16_t)pieces[i].next : (uint16_t)(i + 1);
		memcpy(to, &pieces[i].address, 8);
		memcpy(to + 8, &pieces[i].bytes, 4);
		memcpy(to + (driver->packed ? 14 : 12), &flags, 2);
		memcpy(to + (driver->packed ? 12 : 14), &last, 2);
	}
}

static bool used_packed(struct driver *driver, uint16_t *id, uint32_t *written)
{
	struct vring_packed_desc *desc = &packed_desc(driver)[driver->seen];
	uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
	bool avail = flags & BIT(VRING_PACKED_DESC_F_AVAIL);
	bool used = flags & BIT(VRING_PACKED_DESC_F_USED);
	unsigned next = driver->seen;

	if (avail != driver->seen_wrap || used != driver->seen_wrap)
		return false;
	*id = desc->id;
	*written = desc->len;
	CU_ASSERT_EQUAL(!!(flags & VRING_DESC_F_WRITE), *written != 0);
	next += driver->lengths[*id - 7];
	if (next >= driver->num) {
		next -= driver->num;
		driver->seen_wrap = !driver->seen_wrap;
	}
	driver->seen = (uint16_t)next;
	return true;
}

bool driver_used(struct driver *driver, uint16_t *id, uint32_t *written)
{
	struct vring_used *used = split_used(driver);

	if (driver->packed)
		return used_packed(driver, id, written);
	if (__atomic_load_n(&used->idx, __ATOMIC_ACQUIRE) == driver->seen)
		return false;
	*id = (uint16_t)used->ring[driver->seen % driver->num].id;
	*written = used->ring[driver->seen % driver->num].len;
	driver->seen++;
	return true;
}
