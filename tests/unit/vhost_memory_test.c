// SPDX-License-Identifier: GPL-2.0-or-later
/* The messages of a front end, its memory, and all that can be wrong with them. */
#include "tests/unit/unit.h"
#include "tests/unit/vhost_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sigbus.h"
#include "vhost/vhost_priv.h"

#define NEED_REPLY 8u

/* ---- Answers to each request ---------------------------------------------------------------- */

/* What the specification says of each: a payload, whether it always has a reply, and of how many
 * bytes. */
static const struct expected {
	uint16_t size;	/* of a request that is in order (but says nothing useful) */
	int16_t reply;	/* bytes of the reply that it always has; -1: none */
	int8_t ack;	/* else, when asked: 0 done, 1 refused */
	uint64_t value; /* the first 8 bytes of the reply */
	bool any_value;
} expected[61] = {
	[1] = {0, 8, .any_value = true}, /* GET_FEATURES */
	[2] = {8, -1, .ack = 0},	   [3] = {0, -1, .ack = 0},
	[4] = {0, -1, .ack = 0},	   [5] = {8, -1, .ack = 0}, /* a table of no region */
	[6] = {16, 8, .value = 1},	   [7] = {0, -1, .ack = 0},
	[8] = {8, -1, .ack = 1}, /* of no descriptors */
	[9] = {40, -1, .ack = 0},	   [10] = {8, -1, .ack = 0},
	[11] = {8, 8, .value = 0},	   [12] = {8, -1, .ack = 1}, /* without its eventfd */
	[13] = {8, -1, .ack = 1},	   [14] = {8, -1, .ack = 1},
	[15] = {0, 8, .value = P_OFFERED}, [16] = {8, -1, .ack = 0},
	[17] = {0, 8, .value = QUEUES},	   [18] = {8, -1, .ack = 0},
	[19] = {8, -1, .ack = 1},	   [20] = {8, -1, .ack = 1},
	[21] = {0, -1, .ack = 1},	   [22] = {32, 8, .value = 1},
	[23] = {8, -1, .ack = 1},	   [24] = {12, 12, .value = 0},
	[25] = {12, -1, .ack = 0},	   [26] = {64, 64, .value = UINT64_MAX},
	[27] = {8, -1, .ack = 1},	   [28] = {0, .reply = 0},
	[29] = {0, -1, .ack = 1},	   [30] = {0, 8, .value = 1},
	[31] = {24, 24, .value = 0},	   [32] = {24, -1, .ack = 1},
	[33] = {0, -1, .ack = 1},	   [34] = {0, -1, .ack = 0},
	[35] = {8, -1, .ack = 1},	   [36] = {0, 8, .value = VHOST_MAX_SLOTS},
	[37] = {40, -1, .ack = 1},	   [38] = {40, -1, .ack = 1},
	[39] = {8, -1, .ack = 0},	   [40] = {0, 8, .value = 0},
	[41] = {16, 16, .value = 0},	   [42] = {8, 8, .value = 0x101},
	[43] = {0, 8, .value = 1},	   [44] = {0, 8, .value = 0},
};

/* A request of zeroes; but SET_PROTOCOL_FEATURES must not take REPLY_ACK away. */
static void ask(struct peer *peer, uint32_t request, uint32_t flags, bool acks)
{
	const struct expected *e = &expected[request];
	uint8_t payload[128] = {0}, reply[128] = {0};
	uint64_t protocol = acks ? P_OFFERED : P_OFFERED & ~P_REPLY_ACK, value;
	bool known = request >= 1 && request <= 44, acked = acks && flags & NEED_REPLY;
	int n;

	if (request == 16)
		memcpy(payload, &protocol, sizeof(protocol));
	CU_ASSERT_EQUAL(peer_say(peer, request, flags, payload, known ? e->size : 4, NULL, 0), 0);
	n = peer_hear(peer, request, reply, sizeof(reply), NULL);
	memcpy(&value, reply, sizeof(value));
	if (known && e->reply >= 0) {
		CU_ASSERT_EQUAL(n, e->reply);
		if (e->reply && !e->any_value)
			CU_ASSERT_EQUAL(value, e->value);
	} else {
		CU_ASSERT_EQUAL(n, acked ? 8 : -1);
		if (acked)
			CU_ASSERT_EQUAL(value, known ? (uint64_t)e->ack : 1);
	}
	/* And nothing more. */
	CU_ASSERT_EQUAL(peer_hear(peer, request, reply, sizeof(reply), NULL), -1);
}

/* Case 22: known or not, offered or not, with an acknowledgement asked for or not. */
static void each_request(void)
{
	struct peer peer;

	for (unsigned acks = 0; acks < 2; acks++) {
		uint64_t protocol = acks ? P_OFFERED : P_OFFERED & ~P_REPLY_ACK;

		peer_open(&peer);
		peer_say(&peer, 16, 0, &protocol, sizeof(protocol), NULL, 0);
		for (uint32_t request = 0; request <= 60; request++) {
			ask(&peer, request, 0, acks);
			ask(&peer, request, NEED_REPLY, acks);
		}
		peer_close(&peer);
	}
}

static void features(void)
{
	uint64_t offered, want;
	struct peer peer;

	peer_open(&peer);
	offered = peer_ask_u64(&peer, 1);
	CU_ASSERT_EQUAL(offered, BIT(6) | BIT(9) | BIT(26) | BIT(28) | BIT(29) | BIT(30) | BIT(32) |
					 BIT(34));
	/* Each bit that was not offered is refused, alone or with others. */
	peer_negotiate(&peer, 0);
	want = vhost_features(peer.vhost);
	peer_do_u64(&peer, 39, 15, -1);
	CU_ASSERT_EQUAL(peer_ask_u64(&peer, 40), 15);
	for (unsigned i = 0; i < 64; i++) {
		if (offered & BIT(i))
			continue;
		CU_ASSERT_EQUAL(peer_do_u64(&peer, 2, BIT(i) | want, -1), 1);
		CU_ASSERT_EQUAL(vhost_features(peer.vhost), want);
	}
	CU_ASSERT_EQUAL(peer_ask_u64(&peer, 40), 7); /* without FEATURES_OK */
	CU_ASSERT_EQUAL(peer_do_u64(&peer, 2, offered, -1), 0);
	CU_ASSERT_EQUAL(peer_ask_u64(&peer, 40), 15);
	CU_ASSERT_EQUAL(vhost_features(peer.vhost), offered);
	for (unsigned i = 0; i < 64; i++)
		if (!(P_OFFERED & BIT(i)))
			CU_ASSERT_EQUAL(peer_do_u64(&peer, 16, P_OFFERED | BIT(i), -1), 1);
	/* A reset of the device forgets the driver's features, not the connection's. */
	CU_ASSERT_EQUAL(peer_do(&peer, 34, NULL, 0, -1), 0);
	CU_ASSERT_EQUAL(vhost_features(peer.vhost), 0);
	peer_close(&peer);
}

static int config_message(struct peer *peer, uint32_t request, uint32_t offset, uint32_t bytes,
			  uint32_t said, uint8_t *space)
{
	uint32_t payload[3 + 256 / 4] = {offset, said, 0};

	memcpy(payload + 3, space, bytes);
	CU_ASSERT_EQUAL(peer_say(peer, request, NEED_REPLY, payload, 12 + bytes, NULL, 0), 0);
	if (peer->r)
		return -1;
	bytes = (uint32_t)peer_hear(peer, request, payload, sizeof(payload), NULL);
	memcpy(space, payload + (request == 24 ? 3 : 0), 256);
	return (int)bytes;
}

static void config(void)
{
	uint8_t space[256] = {0};
	int socks[2];
	char byte[13];
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	CU_ASSERT_EQUAL(config_message(&peer, 24, 2, 100, 100, space), 112);
	for (unsigned i = 0; i < 100; i++)
		CU_ASSERT_EQUAL(space[i], i < 58 ? i + 3 : 0);
	CU_ASSERT_EQUAL(config_message(&peer, 24, 0, 256, 256, space), 268);
	CU_ASSERT_EQUAL(config_message(&peer, 24, 1, 256, 256, space), 0); /* "no" */
	CU_ASSERT_EQUAL(config_message(&peer, 24, UINT32_MAX, 4, 4, space), 0);
	memset(space, 0x55, sizeof(space));
	CU_ASSERT_EQUAL(config_message(&peer, 25, 4, 2, 2, space), 8);
	CU_ASSERT_EQUAL(space[0], 0);
	CU_ASSERT(peer.config[4] == 0x55 && peer.config[5] == 0x55 && peer.config[6] == 7);
	CU_ASSERT_EQUAL(config_message(&peer, 25, 7, 2, 2, space), 8);
	CU_ASSERT_EQUAL(space[0], 1);

	/* Told by a socket of its own; nobody reads it, and we do not wait. */
	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	vhost_config_changed(peer.vhost); /* nobody to tell */
	CU_ASSERT_EQUAL(peer_do(&peer, 21, NULL, 0, socks[0]), 0);
	close(socks[0]);
	for (unsigned i = 0; i < 100000; i++)
		vhost_config_changed(peer.vhost);
	CU_ASSERT_EQUAL(recv(socks[1], byte, 12, MSG_DONTWAIT), 12);
	CU_ASSERT(!memcmp(byte, "\2\0\0\0\1\0\0\0\0\0\0\0", 12));
	close(socks[1]);
	vhost_config_changed(peer.vhost); /* nobody any more */
	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	CU_ASSERT_EQUAL(peer_do(&peer, 21, NULL, 0, socks[0]), 0);
	close(socks[0]);
	vhost_config_changed(peer.vhost);
	CU_ASSERT_EQUAL(recv(socks[1], byte, sizeof(byte), MSG_DONTWAIT), 12);
	close(socks[1]);
	CU_ASSERT_EQUAL(peer_do(&peer, 21, NULL, 0, peer.file), 1);
	peer_close(&peer);
}

/* ---- The form of messages ------------------------------------------------------------------- */

/* Expects the connection to end, and with it everything that was open. */
static void ends(const void *bytes, size_t size, const int *fds, unsigned nr, int how)
{
	unsigned before = open_fds();
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	peer_send(&peer, bytes, size, fds, nr);
	CU_ASSERT_EQUAL(peer.r, how);
	peer_close(&peer);
	CU_ASSERT_EQUAL(open_fds(), before);
}

static void wrong_forms(void)
{
	int fds[40];

	for (unsigned i = 0; i < 40; i++)
		fds[i] = STDERR_FILENO;
	for (uint32_t version = 0; version < 4; version++)
		ends((uint32_t[]){1, version, 0}, 12, NULL, 0, version == 1 ? 0 : -EPROTO);
	ends((uint32_t[]){1, 1, 4097}, 12, NULL, 0, -EPROTO);
	ends((uint32_t[]){1, 1, UINT32_MAX}, 12, NULL, 0, -EPROTO);
	ends((uint32_t[]){99, 1, 4096}, 12, NULL, 0, 0); /* waits for the rest */
	for (uint32_t size = 0; size < 64; size += 4) {
		uint32_t message[3 + 16] = {2, 1, size};
		uint32_t region[3 + 16] = {37, 1, size};

		ends(message, 12 + size, NULL, 0, size == 8 ? 0 : -EPROTO);
		ends(region, 12 + size, NULL, 0, size == 40 ? 0 : -EPROTO);
	}
	ends((uint32_t[]){5, 1, 8, 9, 0}, 20, NULL, 0, -EPROTO);
	ends((uint32_t[]){5, 1, 8, 1, 0}, 20, NULL, 0, -EPROTO);
	ends((uint32_t[]){5, 1, 8, 0x20000000, 0}, 20, NULL, 0, -EPROTO); /* x 32 is 0 */
	ends((uint32_t[]){24, 1, 16, 0, 5, 0, 0}, 28, NULL, 0, -EPROTO);
	ends((uint32_t[]){24, 1, 16, 0, 0, 0, 0}, 28, NULL, 0, -EPROTO);

	/* Descriptors where none belong, more than allowed, more than there is room for. */
	ends((uint32_t[]){3, 1, 0}, 12, fds, 1, -EPROTO);
	ends((uint32_t[]){12, 1, 8, 0, 0}, 20, fds, 1, 0);
	ends((uint32_t[]){12, 1, 8, 0, 0}, 20, fds, 2, -EPROTO);
	ends((uint32_t[]){99, 1, 0}, 12, fds, 8, 0);
	ends((uint32_t[]){99, 1, 0}, 12, fds, 9, -EPROTO);
	ends((uint32_t[]){99, 1, 0}, 12, fds, 40, -EPROTO);
	/* Not closed when it is said that there is none. */
	ends((uint32_t[]){12, 1, 8, 0x100, 0}, 20, fds, 1, 0);
}

static void surplus_in_pieces(void)
{
	uint32_t header[] = {99, 1, 8};
	int fds[8];
	unsigned before = open_fds();
	struct peer peer;

	for (unsigned i = 0; i < 8; i++)
		fds[i] = STDERR_FILENO;
	peer_open(&peer);
	peer_negotiate(&peer, 0);
	peer_send(&peer, header, 12, fds, 4);
	CU_ASSERT_EQUAL(peer.r, 0);
	peer_send(&peer, header, 4, fds, 4);
	CU_ASSERT_EQUAL(peer.r, 0);
	peer_send(&peer, header, 4, fds, 1);
	CU_ASSERT_EQUAL(peer.r, -EPROTO);
	peer_close(&peer);
	CU_ASSERT_EQUAL(open_fds(), before);
}

/* The descriptor comes with one of the bytes; each time another one. */
static void byte_by_byte(void)
{
	uint32_t kick[] = {12, 1 | NEED_REPLY, 8, 1, 0};
	unsigned before = open_fds();
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	uint64_t value = 5;
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	for (unsigned with = 0; with < sizeof(kick); with++) {
		for (unsigned i = 0; i < sizeof(kick); i++) {
			CU_ASSERT_EQUAL(peer_hear(&peer, 12, &value, 8, NULL), -1);
			peer_send(&peer, (uint8_t *)kick + i, 1, &event, i == with);
			CU_ASSERT_EQUAL(peer.r, 0);
		}
		CU_ASSERT_EQUAL(peer_hear(&peer, 12, &value, 8, NULL), 8);
		CU_ASSERT_EQUAL(value, 0);
		CU_ASSERT_EQUAL(peer.kick_changes, with + 1);
	}
	peer_close(&peer);
	close(event);
	CU_ASSERT_EQUAL(open_fds(), before);
}

/* Several messages at once, each with its own descriptor; and not more than 16 a call. */
static void many_at_once(void)
{
	uint32_t message[] = {12, 1 | NEED_REPLY, 8, 0, 0};
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	unsigned answers = 0;
	uint64_t value;
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	for (unsigned i = 0; i < 20; i++) {
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = {0};
		struct iovec iov = {message, sizeof(message)};
		struct msghdr msg = {&(struct sockaddr){0}, 0, &iov, 1, &control,
				     sizeof(control),	    0};

		control.align = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), &event, sizeof(event));
		CU_ASSERT_EQUAL(sendmsg(peer.sock, &msg, 0), (ssize_t)sizeof(message));
	}
	CU_ASSERT_EQUAL(vhost_input(peer.vhost, peer.err, sizeof(peer.err)), 0);
	while (peer_hear(&peer, 12, &value, 8, NULL) == 8)
		answers += value == 0;
	CU_ASSERT_EQUAL(answers, 16);
	CU_ASSERT_EQUAL(vhost_input(peer.vhost, peer.err, sizeof(peer.err)), 0);
	while (peer_hear(&peer, 12, &value, 8, NULL) == 8)
		answers += value == 0;
	CU_ASSERT_EQUAL(answers, 20);
	CU_ASSERT_EQUAL(peer.kick_changes, 20);
	peer_close(&peer);
	close(event);
}

static void goes_away(void)
{
	uint32_t header[] = {1, 1, 0};
	char err[64] = "";
	struct peer peer;

	peer_open(&peer);
	CU_ASSERT_EQUAL(vhost_input(peer.vhost, err, sizeof(err)), 0); /* nothing has come */
	peer_send(&peer, header, 5, NULL, 0);
	shutdown(peer.sock, SHUT_RDWR);
	CU_ASSERT_EQUAL(vhost_input(peer.vhost, err, sizeof(err)), -ECONNRESET);
	CU_ASSERT(err[0] != '\0');
	peer_close(&peer);
}

/* We must not wait for a front end that asks and does not listen. */
static void does_not_listen(void)
{
	unsigned i = 0;
	struct peer peer;

	peer_open(&peer);
	while (i++ < 100000 && !peer_say(&peer, 1, 0, NULL, 0, NULL, 0))
		;
	CU_ASSERT_EQUAL(peer.r, -EPROTO);
	CU_ASSERT(i > 1);
	peer_close(&peer);
}

/* ---- Memory --------------------------------------------------------------------------------- */

static void refused_regions(void)
{
	int short_file = make_file(0x1000), read_only, proc, events, sealed;
	struct mapping mapping = {0};
	unsigned before;
	char path[64];
	struct peer peer;

	peer_open(&peer);
	peer_negotiate(&peer, 0);
	before = open_fds();
	struct {
		struct region region;
		int fd;
	} wrong[] = {
		{{0x10000, 0, 0x10000, 0}, peer.file},
		{{UINT64_MAX - 0xfff, 0x1000, 0x10000, 0}, peer.file},
		{{UINT64_MAX - 0xfff, 0x2000, 0x10000, 0}, peer.file},
		{{0x10000, 0x1000, UINT64_MAX - 0xfff, 0}, peer.file},
		{{0x10000, 0x1000, 0x10000, UINT64_MAX - 0xfff}, peer.file},
		{{0x10000, UINT64_MAX - 0x20000, 0x10000, 0}, peer.file},
		{{0x10000, 1ull << 62, 1ull << 62, 1ull << 62}, peer.file},
		{{0x10000, 0x1001, 0x10000, 0}, short_file},
		{{0x10000, 0x1000, 0x10000, 1}, short_file},
		{{0x10000, 0x1000, 0x10000, FILE_BYTES}, peer.file},
		{{LOW_GUEST, LOW_BYTES, 0x10000, 0}, peer.file},
		{{LOW_GUEST - 0x1000, 0x1001, 0x10000, 0}, peer.file},
		{{LOW_GUEST + LOW_BYTES - 1, 1, 0x10000, 0}, peer.file},
		{{0x1000, 0x100000000, 0x10000, 0}, peer.file},
		{{0x10000, 0x1000, LOW_USER + 0x1000, 0}, peer.file},
		{{0x10000, 0x1000, 0x10000, 0}, -1},
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CU_ASSERT_EQUAL(peer_slot(&peer, 37, &wrong[i].region, wrong[i].fd), 1);

	/* Files that cannot be written, or that a stranger answers for, or that are none. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", peer.file);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	proc = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	events = eventfd(0, EFD_CLOEXEC);
	sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CU_ASSERT(!ftruncate(sealed, 0x1000) && !fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	struct region fine = {0x10000, 0x1000, 0x10000, 0};
	int bad[] = {read_only, proc, events, sealed, peer.sock};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_FATAL(bad[i] >= 0);
		CU_ASSERT_EQUAL(peer_slot(&peer, 37, &fine, bad[i]), 1);
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(mapping_open(&mapping, dup(proc), 0, 1), "memfd"));
	CU_ASSERT_EQUAL(open_fds(), before + 4);
	/* The same with a proper file, which is kept open. */
	CU_ASSERT_EQUAL(peer_slot(&peer, 37, &fine, peer.file), 0);
	CU_ASSERT_EQUAL(open_fds(), before + 5);
	for (unsigned i = 0; i < 4; i++)
		close(bad[i]);
	close(short_file);
	peer_close(&peer);
}

static unsigned mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:guest") != NULL;
	fclose(maps);
	return n;
}

static void slots(void)
{
	unsigned before, fds;
	struct region region = {0, 0x1000, 0, 0};
	struct peer peer;

	peer_open(&peer);
	before = mappings();
	fds = open_fds();
	peer_negotiate(&peer, 0);
	CU_ASSERT_EQUAL(mappings(), before + 2);
	CU_ASSERT_EQUAL(open_fds(), fds + 2);
	/* Apart, so that the kernel does not make one mapping of them. */
	for (uint64_t i = 0; i < VHOST_MAX_SLOTS; i++) {
		region.guest = 0x10000000 + i * 0x2000;
		region.user = 0x20000000 + i * 0x2000;
		region.offset = i * 0x1000 & 0xfffff;
		CU_ASSERT_EQUAL(peer_slot(&peer, 37, &region, peer.file), i >= VHOST_MAX_SLOTS - 2);
	}
	CU_ASSERT(mappings() > before + 2);
	/* Only the very one is removed; a file that comes by mistake is closed. */
	region = low_region;
	region.bytes -= 0x1000;
	CU_ASSERT_EQUAL(peer_slot(&peer, 38, &region, -1), 1);
	CU_ASSERT_EQUAL(peer_slot(&peer, 38, &low_region, peer.file), 0);
	CU_ASSERT_EQUAL(peer_slot(&peer, 38, &low_region, -1), 1);
	CU_ASSERT_EQUAL(peer_slot(&peer, 37, &low_region, peer.file), 0);
	/* A table replaces all, or nothing. */
	struct region table[] = {low_region, high_region, low_region};
	int files[] = {peer.file, peer.file, peer.file};
	uint32_t wrong[2 + 8] = {1}; /* one region, two files */
	unsigned full = mappings();
	uint64_t value = 0;

	CU_ASSERT_EQUAL(peer_set_table(&peer, table, files, 3), 1);
	CU_ASSERT_EQUAL(mappings(), full);
	CU_ASSERT_EQUAL(peer_set_table(&peer, table, files, 1), 0);
	CU_ASSERT_EQUAL(peer_say(&peer, 5, NEED_REPLY, wrong, sizeof(wrong), files, 2), 0);
	CU_ASSERT_EQUAL(peer_hear(&peer, 5, &value, sizeof(value), NULL), 8);
	CU_ASSERT_EQUAL(value, 1);
	CU_ASSERT_EQUAL(mappings(), before + 1);
	CU_ASSERT_EQUAL(peer_set_table(&peer, table, files, 2), 0);
	CU_ASSERT_EQUAL(mappings(), before + 2);
	CU_ASSERT_EQUAL(peer_set_table(&peer, NULL, NULL, 0), 0);
	CU_ASSERT_EQUAL(mappings(), before);
	CU_ASSERT_EQUAL(open_fds(), fds);
	peer_close(&peer);
}

/* The process locks what it touches; what it maps of guests is not locked, nor dumped. */
static void neither_locked_nor_dumped(void)
{
	FILE *smaps;
	char line[512];
	unsigned found = 0;
	bool ours = false;
	struct peer peer;

	peer_open(&peer);
	if (mlockall(MCL_FUTURE | MCL_ONFAULT))
		printf("(cannot lock memory here) ");
	peer_negotiate(&peer, 0);
	smaps = fopen("/proc/self/smaps", "re");
	CU_ASSERT_PTR_NOT_NULL_FATAL(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (strstr(line, "memfd:guest"))
			ours = strtoull(line, NULL, 16) != (uintptr_t)peer.memory;
		if (!ours || strncmp(line, "VmFlags:", 8))
			continue;
		found++;
		CU_ASSERT_PTR_NULL(strstr(line, " lo"));
		CU_ASSERT_PTR_NOT_NULL(strstr(line, " dd"));
		ours = false;
	}
	fclose(smaps);
	munlockall();
	CU_ASSERT_EQUAL(found, 2);
	peer_close(&peer);
}

/* ---- Memory that is cut --------------------------------------------------------------------- */

static const struct piece one_page = {DATA, 4096, 0, 0};

/* Nothing is available in zeroes; still somebody has to look. */
static void cut_ring(void)
{
	struct vhost_chain chain;
	struct driver driver;
	struct peer peer;

	CU_ASSERT_EQUAL(sigbus_install(), 0);
	for (unsigned packed = 0; packed < 2; packed++) {
		peer_open(&peer);
		peer_negotiate(&peer, packed ? BIT(VIRTIO_F_RING_PACKED) : 0);
		driver_init(&driver, &peer, 0, 16, packed);
		driver_set_up(&driver, packed ? 0x80008000 : 0);
		CU_ASSERT(!vhost_pending(peer.vhost, 0) && !vhost_lost(peer.vhost));
		CU_ASSERT(!ftruncate(peer.file, 0));
		CU_ASSERT(vhost_pending(peer.vhost, 0) && vhost_lost(peer.vhost));
		CU_ASSERT_EQUAL(vhost_pop(peer.vhost, 0, &chain), 0);
		driver_close(&driver);
		peer_close(&peer);
	}
}

static void cut_memory(void)
{
	int file = make_file(LOW_BYTES);
	struct vhost_chain chain;
	struct driver driver;
	unsigned sum = 0;
	uint8_t *own;
	struct peer peer;

	CU_ASSERT_EQUAL(sigbus_install(), 0);
	peer_open(&peer);
	peer_negotiate(&peer, 0);
	own = mmap(NULL, LOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CU_ASSERT_FATAL(own != MAP_FAILED);
	munmap(peer.memory, FILE_BYTES);
	peer.memory = own;
	CU_ASSERT_EQUAL(peer_set_table(&peer, &low_region, &file, 1), 0);
	driver_init(&driver, &peer, 0, 16, false);
	driver_set_up(&driver, 0);
	memset(at_guest(&peer, DATA), 0xee, 4096);
	driver_add(&driver, &one_page, 1);
	CU_ASSERT_EQUAL(vhost_pop(peer.vhost, 0, &chain), 1);
	CU_ASSERT_EQUAL(chain.segments[0].base[4095], 0xee);
	CU_ASSERT(!vhost_lost(peer.vhost));
	CU_ASSERT(!ftruncate(file, 0));
	for (unsigned i = 0; i < 4096; i++)
		sum += chain.segments[0].base[i];
	CU_ASSERT_EQUAL(sum, 0);
	CU_ASSERT(vhost_lost(peer.vhost));
	vhost_push(peer.vhost, 0, &chain, 0);
	vhost_call(peer.vhost, 0);
	/* Once lost, never whole again: something was read that was not there. */
	CU_ASSERT_EQUAL(peer_give_memory(&peer), 0);
	CU_ASSERT(vhost_lost(peer.vhost));
	driver_close(&driver);
	munmap(own, LOW_BYTES);
	peer.memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, peer.file, 0);
	close(file);
	peer_close(&peer);
}

/* Each of many is found, and a place that is free is used again. */
static void watches(void)
{
	static struct {
		uint8_t *base;
		_Atomic bool *lost;
	} maps[5000];
	unsigned n = 0;
	int file = make_file(0x1000);

	CU_ASSERT_EQUAL(sigbus_install(), 0);
	for (; n < 5000; n++) {
		maps[n].base = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		CU_ASSERT_FATAL(maps[n].base != MAP_FAILED);
		if (sigbus_watch(maps[n].base, 0x1000, &maps[n].lost))
			break;
	}
	CU_ASSERT_EQUAL(n, 4096);
	sigbus_unwatch(maps[17].base);
	CU_ASSERT_EQUAL(sigbus_watch(maps[n].base, 0x1000, &maps[n].lost), 0);
	CU_ASSERT_EQUAL(sigbus_watch(maps[17].base, 0x1000, &maps[17].lost), -ENOSPC);
	CU_ASSERT(!ftruncate(file, 0));
	for (unsigned i = 0; i <= n; i++) {
		if (i == 17)
			continue;
		CU_ASSERT(!*maps[i].lost);
		CU_ASSERT_EQUAL(*(volatile uint8_t *)maps[i].base, 0);
		CU_ASSERT(*maps[i].lost);
		sigbus_unwatch(maps[i].base);
		munmap(maps[i].base, 0x1000);
	}
	munmap(maps[17].base, 0x1000);
	close(file);
}

int main(void)
{
	CU_TestInfo tests[] = {{"features", features},
			       {"each request is answered as it must be", each_request},
			       {"configuration", config},
			       {"wrong forms end the connection", wrong_forms},
			       {"too many descriptors in pieces", surplus_in_pieces},
			       {"a message byte by byte", byte_by_byte},
			       {"many messages at once", many_at_once},
			       {"the front end goes away", goes_away},
			       {"a front end that does not listen", does_not_listen},
			       {"regions that are refused", refused_regions},
			       {"slots and tables", slots},
			       {"guests' memory is neither locked nor dumped",
				neither_locked_nor_dumped},
			       {"memory is cut", cut_memory},
			       {"a ring is cut", cut_ring},
			       {"watched memory", watches},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"vhost: messages and memory", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
