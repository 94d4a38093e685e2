// SPDX-License-Identifier: GPL-2.0-or-later
/* Connection and life. */
#include "tmem_client_priv.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SERVICE_PEER 1

uint64_t tmem_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t tmem_deadline(const struct tmem_client *client)
{
	return client->timeout_ns ? tmem_now_ns() + client->timeout_ns : UINT64_MAX;
}

void tmem_nap(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000ull),
			      .tv_nsec = (long)(ns % 1000000000ull)};

	nanosleep(&ts, NULL);
}

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* ---- The protocol of the ivshmem server ----------------------------------------------------- */

struct message {
	int64_t value;
	int fd; /* -1: none */
};

static int receive(int sock, uint64_t deadline, struct message *message)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	uint64_t wire, now = tmem_now_ns();
	struct iovec iov = {.iov_base = &wire, .iov_len = sizeof(wire)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = sizeof(control.room)};
	struct pollfd p = {.fd = sock, .events = POLLIN};
	int ms = deadline == UINT64_MAX ? -1 : (int)((deadline - now) / 1000000ull + 1);
	struct cmsghdr *c;
	ssize_t n;

	message->fd = -1;
	if (now >= deadline || poll(&p, 1, ms) <= 0)
		return -ETIMEDOUT;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	if (n < 0)
		return errno == ECONNRESET ? -ECONNREFUSED : -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&message->fd, CMSG_DATA(c), sizeof(int));
	if (!n)
		return -ECONNREFUSED;
	if (n != sizeof(wire))
		return -EPROTO;
	message->value = (int64_t)le64toh(wire);
	return 0;
}

static void close_bells(struct tmem_client *client)
{
	for (unsigned v = 0; v < client->vectors; v++) {
		if (client->bells_out && client->bells_out[v] >= 0)
			close(client->bells_out[v]);
		if (client->bells_in && client->bells_in[v] >= 0)
			close(client->bells_in[v]);
	}
	free(client->bells_out);
	free(client->bells_in);
	client->bells_out = client->bells_in = NULL;
	client->vectors = 0;
}

static int alloc_bells(struct tmem_client *client, unsigned vectors)
{
	client->bells_out = malloc(vectors * sizeof(int));
	client->bells_in = malloc(vectors * sizeof(int));
	if (!client->bells_out || !client->bells_in)
		return -ENOMEM;
	for (unsigned v = 0; v < vectors; v++)
		client->bells_out[v] = client->bells_in[v] = -1;
	client->vectors = vectors;
	return 0;
}

/* Maps the region, or makes sure that it is the one that we have mapped. */
static int take_region(struct tmem_client *client, int fd)
{
	struct stat st, mine;
	void *base;

	if (fd < 0 || fstat(fd, &st) || st.st_size < (off_t)TMEM_PAGE_SIZE)
		return -EPROTO;
	if (client->page) {
		if (fstat(client->region_fd, &mine))
			return -errno;
		if (mine.st_ino != st.st_ino || mine.st_dev != st.st_dev)
			return -ESTALE;
		close(fd);
		return 0;
	}
	base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	client->page = base;
	client->bytes = (size_t)st.st_size;
	client->region_fd = fd;
	return 0;
}

static int take_bells(struct tmem_client *client, int64_t me, uint64_t deadline)
{
	unsigned vectors = READ_ONCE(client->page->nr_vectors);
	struct message m;
	int r;

	if (LOAD_ACQUIRE(client->page->magic) != TMEM_REGION_MAGIC || !vectors ||
	    vectors > TMEM_MAX_RINGS)
		return -EPROTO;
	r = alloc_bells(client, vectors);
	for (unsigned i = 0; i < 2 * vectors && !r; i++) {
		bool out = i < vectors;

		r = receive(client->connection, deadline, &m);
		if (!r && (m.fd < 0 || m.value != (out ? SERVICE_PEER : me)))
			r = -EPROTO;
		if (r) {
			if (m.fd >= 0)
				close(m.fd);
			break;
		}
		(out ? client->bells_out : client->bells_in)[i % vectors] = m.fd;
	}
	return r;
}

static int handshake(struct tmem_client *client, uint64_t deadline)
{
	struct message version, id, region;
	int r;

	r = receive(client->connection, deadline, &version);
	if (!r && version.value)
		r = -EPROTO;
	if (!r)
		r = receive(client->connection, deadline, &id);
	if (!r)
		r = receive(client->connection, deadline, &region);
	if (r)
		return r;
	r = region.value == -1 ? take_region(client, region.fd) : -EPROTO;
	if (r && region.fd >= 0)
		close(region.fd);
	return r ? r : take_bells(client, id.value, deadline);
}

static int dial(struct tmem_client *client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, client->socket, sizeof(address.sun_path));
	client->connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->connection < 0)
		return -errno;
	if (connect(client->connection, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return 0;
}

static int wait_for_offer(struct tmem_client *client, uint64_t deadline)
{
	const struct tmem_region *page = client->page;

	while (READ_ONCE(page->service_state) == TMEM_SERVICE_DOWN) {
		if (tmem_now_ns() > deadline)
			return -ETIMEDOUT;
		tmem_nap(1000000);
	}
	if (READ_ONCE(page->abi_min) > TMEM_ABI_VERSION ||
	    READ_ONCE(page->abi_max) < TMEM_ABI_VERSION)
		return -EPROTO;
	return 0;
}

int tmem_client_connect(struct tmem_client **client_out, const char *socket_path,
			unsigned timeout_ms, char *err, size_t errlen)
{
	struct tmem_client *client = calloc(1, sizeof(*client));
	uint64_t deadline;
	int r;

	*client_out = NULL;
	if (!client)
		return fail(-ENOMEM, err, errlen, "out of memory");
	client->connection = client->region_fd = -1;
	client->timeout_ns = timeout_ms * 1000000ull;
	deadline = tmem_deadline(client);
	if (strlen(socket_path) >= sizeof(client->socket)) {
		r = -ENAMETOOLONG;
		goto out;
	}
	strcpy(client->socket, socket_path);
	client->buckets = calloc(BUCKETS, sizeof(*client->buckets));
	r = client->buckets ? dial(client) : -ENOMEM;
	if (!r)
		r = handshake(client, deadline);
	if (!r)
		r = wait_for_offer(client, deadline);
	if (!r) {
		*client_out = client;
		return 0;
	}
out:
	tmem_client_close(client);
	return fail(r, err, errlen, "%s: %s", socket_path,
		    r == -EPROTO ? "not a tmem service that we understand" : strerror(-r));
}

void tmem_client_hang_up(struct tmem_client *client)
{
	if (client->connection >= 0)
		close(client->connection);
	client->connection = -1;
}

int tmem_client_reconnect(struct tmem_client *client)
{
	int r;

	tmem_client_hang_up(client);
	close_bells(client);
	r = dial(client);
	return r ? r : handshake(client, tmem_deadline(client));
}

void tmem_client_close(struct tmem_client *client)
{
	if (!client)
		return;
	tmem_client_hang_up(client);
	close_bells(client);
	tmem_rings_close(client);
	if (client->page)
		munmap(client->page, client->bytes);
	if (client->region_fd >= 0)
		close(client->region_fd);
	free(client->buckets);
	free(client);
}

/* ---- Hello and bye -------------------------------------------------------------------------- */

void tmem_ring_bell(struct tmem_client *client, unsigned v)
{
	static const uint64_t one = 1;

	if (!client->vectors || READ_ONCE(client->page->polling))
		return;
	if (write(client->bells_out[v % client->vectors], &one, sizeof(one)) == sizeof(one))
		atomic_fetch_add_explicit(&client->doorbells_out, 1, memory_order_relaxed);
}

static void say_hello(struct tmem_client *client, const struct tmem_hello *hello)
{
	struct tmem_region *page = client->page;
	uint64_t features = hello->features;

	if (!hello->exact)
		features &= READ_ONCE(page->features_offered);
	/* The service must not take a half-written hello for a whole one. */
	STORE_RELEASE(page->guest_state, TMEM_GUEST_NONE);
	atomic_thread_fence(memory_order_seq_cst);
	WRITE_ONCE(page->abi, hello->abi ? hello->abi : TMEM_ABI_VERSION);
	WRITE_ONCE(page->features, features);
	WRITE_ONCE(page->nr_rings, hello->rings);
	WRITE_ONCE(page->entries, hello->entries);
	WRITE_ONCE(page->guest_epoch, client->epoch);
	WRITE_ONCE(page->former_epoch, hello->former);
	WRITE_ONCE(page->hello_offer, READ_ONCE(page->offer));
	STORE_RELEASE(page->guest_state, TMEM_GUEST_HELLO);
	client->features = features;
	tmem_ring_bell(client, 0);
}

static int wait_for_answer(struct tmem_client *client)
{
	uint64_t deadline = tmem_deadline(client), nap = 20000;

	while (LOAD_ACQUIRE(client->page->answered_epoch) != client->epoch) {
		if (tmem_now_ns() > deadline)
			return -ETIMEDOUT;
		tmem_nap(nap);
		if (nap < 2000000)
			nap *= 2;
	}
	return 0;
}

int tmem_client_hello(struct tmem_client *client, const struct tmem_hello *hello)
{
	int r;

	tmem_rings_close(client);
	client->epoch = hello->epoch;
	while (!client->epoch)
		if (getrandom(&client->epoch, sizeof(client->epoch), 0) < 0 && errno != EINTR)
			return -errno;
	say_hello(client, hello);
	r = wait_for_answer(client);
	if (r)
		return r;
	client->refusal.reason = READ_ONCE(client->page->refusal);
	client->refusal.guest = READ_ONCE(client->page->refused_guest);
	client->refusal.service = READ_ONCE(client->page->refused_service);
	if (READ_ONCE(client->page->service_state) != TMEM_SERVICE_CONNECTED)
		return -ECONNREFUSED;
	return tmem_rings_open(client, hello->rings, hello->entries);
}

void tmem_client_refusal(const struct tmem_client *client, struct tmem_refusal_info *info)
{
	*info = client->refusal;
	if (tmem_client_refused(client)) {
		info->reason = READ_ONCE(client->page->refusal);
		info->guest = READ_ONCE(client->page->refused_guest);
		info->service = READ_ONCE(client->page->refused_service);
	}
}

int tmem_client_bye(struct tmem_client *client)
{
	uint64_t deadline = tmem_deadline(client);

	tmem_rings_close(client);
	STORE_RELEASE(client->page->guest_state, TMEM_GUEST_BYE);
	tmem_ring_bell(client, 0);
	while (LOAD_ACQUIRE(client->page->service_state) == TMEM_SERVICE_CONNECTED ||
	       LOAD_ACQUIRE(client->page->service_state) == TMEM_SERVICE_DOWN) {
		if (tmem_now_ns() > deadline)
			return -ETIMEDOUT;
		tmem_nap(200000);
	}
	return 0;
}

/* ---- Questions ------------------------------------------------------------------------------ */

unsigned tmem_client_max_rings(const struct tmem_client *client)
{
	return READ_ONCE(client->page->max_rings);
}

uint64_t tmem_client_epoch(const struct tmem_client *client)
{
	return client->epoch;
}

uint64_t tmem_client_features(const struct tmem_client *client)
{
	return client->features;
}

void *tmem_client_region(const struct tmem_client *client, size_t *bytes)
{
	*bytes = client->bytes;
	return client->page;
}

int tmem_client_region_fd(const struct tmem_client *client)
{
	return client->region_fd;
}

bool tmem_client_service_alive(struct tmem_client *client)
{
	uint64_t before = READ_ONCE(client->page->heartbeat);
	uint64_t end = tmem_now_ns() + 1000000000ull;

	while (tmem_now_ns() < end) {
		tmem_nap(10000000);
		if (READ_ONCE(client->page->heartbeat) != before)
			return READ_ONCE(client->page->service_state) != TMEM_SERVICE_DOWN;
	}
	return false;
}

bool tmem_client_refused(const struct tmem_client *client)
{
	return LOAD_ACQUIRE(client->page->answered_epoch) == client->epoch &&
	       READ_ONCE(client->page->service_state) == TMEM_SERVICE_REFUSED;
}

uint64_t tmem_client_posted_failed(const struct tmem_client *client)
{
	return client->posted_failed;
}

void tmem_client_counts(const struct tmem_client *client, struct tmem_client_counts *counts)
{
	counts->doorbells_out = client->doorbells_out;
	counts->doorbells_in = client->doorbells_in;
	counts->restarts = client->restarts;
}
