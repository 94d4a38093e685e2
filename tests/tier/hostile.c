// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Owners and lenders that do not keep to the protocol, or to the truth: they are refused with a
 * sentence that has both values, or cut off; the others are served meanwhile, and nobody waits for
 * ever.
 */
#include "raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define ROOM (64u << 20)

static struct host host;
static const char *raw_dir;

/* An owner that has said hello and was welcomed. */
static void welcomed(struct raw *raw, struct tmem_peer_hello *hello)
{
	struct frame frame;

	raw_connect(raw, host.port, raw_dir);
	raw_hello(raw, hello, TMEM_PEER_HELLO, ++raw->next_id);
	raw_expect(raw, TMEM_PEER_WELCOME, &frame);
}

/* What is wrong with the hello is said with both values. */
static void hello_refused(const struct tmem_peer_hello *hello, uint32_t code, const char *says)
{
	struct raw raw;

	raw_connect(&raw, host.port, raw_dir);
	raw_hello(&raw, hello, TMEM_PEER_HELLO, 1);
	raw_expect_error(&raw, code, says);
	raw_end(&raw);
}

static void hellos(void)
{
	struct tmem_peer_hello good, hello;
	struct raw first, second;
	struct frame frame;
	uint64_t refused;

	host_begin(&host, 1, ROOM);
	raw_hello_of(&good);
	hello = good;
	hello.version_min = 3;
	hello.version_max = 5;
	hello_refused(&hello, TMEM_PEER_E_VERSION,
		      "the owner speaks versions 3 to 5, the lender 1 to 1");
	hello = good;
	hello.blob_max = 65536;
	hello_refused(&hello, TMEM_PEER_E_SIZE, "65536 bytes, the lender of up to 4096");
	hello = good;
	hello.magic = 0x1234;
	hello_refused(&hello, TMEM_PEER_E_PROTOCOL, "magic 0x1234, not 0x524545504d454d54");
	hello = good;
	hello.batch = 0;
	hello_refused(&hello, TMEM_PEER_E_SIZE, "0 blobs");
	hello = good;
	hello.epoch = 0;
	hello_refused(&hello, TMEM_PEER_E_EPOCH, "epoch 0");
	refused = host_counter(&host, LENDER_REFUSED_HELLO);
	CHECK_IS(refused, 5);

	/* A newer connection of the same owner ends the older one; an older one comes too late. */
	hello = good;
	hello.session = 10;
	welcomed(&first, &hello);
	hello.session = 11;
	welcomed(&second, &hello);
	CHECK(!raw_next(&first, &frame), "a frame of type %u", frame.type);
	hello.session = 9;
	hello_refused(&hello, TMEM_PEER_E_SESSION, "session 9 comes after 11");
	raw_put(&second, 1, 5);
	raw_expect(&second, TMEM_PEER_PUT_DONE, &frame);
	raw_end(&first);
	raw_end(&second);

	/* A newer epoch has no sessions yet, and no older one comes after it. */
	hello.epoch = good.epoch + 1;
	hello.session = 1;
	welcomed(&first, &hello);
	CHECK_IS(keeper_blobs(host.keeper), 0);
	hello.epoch = good.epoch;
	hello.session = 12;
	hello_refused(&hello, TMEM_PEER_E_EPOCH, "the owner has epoch 7, its blobs here are of 8");
	raw_end(&first);
	host_end(&host);
}

/* Another host's uuid, or a name of its own: it reaches only what is its own. */
static void other_names(void)
{
	struct tmem_peer_entry entry;
	struct tmem_peer_hello hello;
	const char *dir = raw_dir;
	struct frame_walk walk;
	const uint8_t *blob;
	struct raw raw;
	struct frame frame;
	char *thief_dir = (char *)pki_host("thief.test", PKI_GOOD);

	host_begin(&host, 1, ROOM);
	raw_hello_of(&hello);
	welcomed(&raw, &hello);
	raw_put(&raw, 1, 5);
	raw_expect(&raw, TMEM_PEER_PUT_DONE, &frame);
	raw_end(&raw);
	for (unsigned thief = 0; thief < 2; thief++) {
		raw_dir = thief ? thief_dir : dir;
		hello.session++;
		hello.epoch += thief; /* it would drop all of the owner's */
		welcomed(&raw, &hello);
		raw_get(&raw, 1, 6);
		raw_expect(&raw, TMEM_PEER_GET_DONE, &frame);
		frame_walk(&frame, &walk);
		CHECK(frame_walk_next(&walk, &entry, &blob), "no entry");
		CHECK_IS(entry.tag, 6);
		CHECK_IS(entry.status, thief ? TMEM_PEER_ABSENT : TMEM_PEER_OK);
		raw_end(&raw);
	}
	CHECK_IS(keeper_blobs(host.keeper), 1);
	raw_dir = dir;
	free(thief_dir);
	host_end(&host);
}

/* A frame that must not be: said, and the end. */
static void frame_refused(const void *bytes, uint32_t len, bool welcome, const char *says)
{
	struct tmem_peer_hello hello;
	struct raw raw;
	static uint64_t session = 100;

	raw_hello_of(&hello);
	hello.session = ++session;
	if (welcome)
		welcomed(&raw, &hello);
	else
		raw_connect(&raw, host.port, raw_dir);
	raw_bytes(&raw, bytes, len);
	raw_expect_error(&raw, TMEM_PEER_E_PROTOCOL, says);
	raw_end(&raw);
}

static void frames(void)
{
	struct {
		struct tmem_peer_frame head;
		uint8_t parts[64];
	} f = {{16, 99, 0, 1}, {0}};

	host_begin(&host, 1, ROOM);
	frame_refused(&f, 16, true, "type 99: there is no such type");
	f.head.type = TMEM_PEER_WELCOME;
	frame_refused(&f, 16, true, "this side does not send it");
	f.head.type = TMEM_PEER_PING;
	frame_refused(&f, 16, false, "there was no hello");
	f.head.bytes = 15;
	frame_refused(&f, 16, true, "too short");
	f.head.bytes = 0xffffffff;
	frame_refused(&f, 16, true, "too long");
	f.head = (struct tmem_peer_frame){32, TMEM_PEER_PUT, 1, 1};
	f.parts[12] = 0x01; /* len 0x1001 */
	f.parts[13] = 0x10;
	frame_refused(&f, 32, true, "a blob in it is too long");
	f.parts[13] = 0;
	frame_refused(&f, 32, true, "not as long as its entries say");
	f.parts[12] = 0;
	frame_refused(&f, 32, true, "a blob in it is empty");
	f.head.count = 17;
	frame_refused(&f, 32, true, "too many entries");
	f.head.count = 0;
	frame_refused(&f, 32, true, "it has no entries");
	f.head = (struct tmem_peer_frame){16 + 16 + 16, TMEM_PEER_RENEW, 2, 1};
	memset(f.parts, 0, sizeof(f.parts));
	f.parts[8] = 10; /* the end */
	f.parts[16] = 5;
	f.parts[24] = 5;
	frame_refused(&f, 48, true, "the numbers do not rise");
	f.parts[24] = 10;
	frame_refused(&f, 48, true, "a number is not in the range");
	CHECK_IS(host_counter(&host, LENDER_BROKEN), 12);
	host_end(&host);
}

/* Anything but TLS, half a handshake, half a frame, a flood without reading: each is cut off. */
static void no_tls(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(host.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char answer[256];
	ssize_t r;
	int fd;

	for (unsigned silent = 0; silent < 2; silent++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)), "no connection");
		if (!silent)
			CHECK(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18, "not sent");
		do
			r = read(fd, answer, sizeof(answer));
		while (r > 0);
		close(fd);
	}
}

static void half_a_frame(void)
{
	struct tmem_peer_frame head = {1000, TMEM_PEER_PUT, 1, 1};
	struct tmem_peer_hello hello;
	struct frame frame;
	struct raw raw;

	raw_hello_of(&hello);
	hello.session = clock_ns();
	welcomed(&raw, &hello);
	raw_bytes(&raw, &head, sizeof(head));
	CHECK(!raw_next(&raw, &frame), "a frame of type %u", frame.type);
	raw_end(&raw);
}

/* Gets are sent as long as they go out, and no answer is read. */
static void no_reading(void)
{
	struct tmem_peer_hello hello;
	struct frame frame;
	struct raw raw;
	uint64_t until = clock_ns() + 60 * CLOCK_S;
	bool over = false;

	raw_hello_of(&hello);
	hello.session = clock_ns();
	hello.uuid[0] = 77;
	welcomed(&raw, &hello);
	raw_put(&raw, 1, 1);
	raw_expect(&raw, TMEM_PEER_PUT_DONE, &frame);
	/* A buffer that is full is not read into: as if nobody read. */
	raw.link.in.start = 0;
	raw.link.in.end = LINK_BUFFER;
	while (!over && clock_ns() < until) {
		if (buffer_room(&raw.link.out) > TMEM_PEER_FRAME_MAX) {
			struct tmem_peer_entry entry = {1, 1, 0, 0};
			struct frame_make make;

			frame_make(&make, raw.link.out.bytes + raw.link.out.end, TMEM_PEER_GET, 9);
			frame_make_entries(&make, 16);
			for (unsigned i = 0; i < 16; i++)
				frame_make_entry(&make, &entry, NULL);
			raw.link.out.end += frame_make_end(&make);
		}
		over = !raw_push(&raw);
		if (buffer_used(&raw.link.out) > TMEM_PEER_FRAME_MAX / 2)
			nap_ms(5);
	}
	CHECK(over, "it was not cut off");
	raw_end(&raw);
}

static void rude_owners(void)
{
	owner_begin(NULL);
	host_begin(&host, 1, ROOM);
	host_down(&host);
	host.settings.times.silence = 300; /* an owner is cut off after four times that */
	host.settings.times.hello = 500;
	host_up(&host);
	owner_add(&host, 0);
	owner_wait_up(0);
	no_tls();
	CHECK(host_counter(&host, LENDER_REFUSED_TLS) >= 1, "not counted");
	CHECK(host_counter(&host, LENDER_LATE) >= 1, "not counted");
	half_a_frame();
	no_reading();
	CHECK_IS(owner_peer(0).counters[PEER_CUT], 0); /* the good one was served all the while */
	CHECK_IS(owner_peer(0).state, PEER_UP);
	owner_end();
	host_end(&host);
}

/* More connections than there is room for: the next one is closed, the others stay. */
static void too_many(void)
{
	struct tmem_peer_hello hello;
	struct raw raws[3];

	host_begin(&host, 1, ROOM);
	host_down(&host);
	host.settings.connections = 3;
	host_up(&host);
	raw_hello_of(&hello);
	for (unsigned i = 0; i < 3; i++) {
		hello.uuid[1] = (uint8_t)i;
		welcomed(&raws[i], &hello);
	}
	owner_begin(NULL);
	owner_add(&host, 0);
	EVENTUALLY(host_counter(&host, LENDER_REFUSED_BUSY));
	CHECK(owner_peer(0).state != PEER_UP, "up");
	raw_end(&raws[1]);
	owner_wait_up(0);
	CHECK_IS(host_counter(&host, LENDER_OWNERS), 3);
	owner_end();
	raw_end(&raws[0]);
	raw_end(&raws[2]);
	host_end(&host);
}

/* Connections that say nothing take no room from who has a certificate. */
static void silent_crowd(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fds[6];

	host_begin(&host, 1, ROOM);
	host_down(&host);
	host.settings.connections = 3;
	host.settings.times.hello = 60000;
	host_up(&host);
	to.sin_port = htons(host.port);
	for (unsigned i = 0; i < 6; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(!connect(fds[i], (struct sockaddr *)&to, sizeof(to)), "no connection");
	}
	owner_begin(NULL);
	owner_add(&host, 0);
	owner_wait_up(0);
	CHECK_IS(host_counter(&host, LENDER_REFUSED_BUSY), 0);
	for (unsigned i = 0; i < 6; i++)
		close(fds[i]);
	owner_end();
	host_end(&host);
}

/* ---- Lenders -------------------------------------------------------------------------------- */

static struct raw lender;
static const char *lender_dir;

static void lender_begin(void)
{
	raw_listen(&lender, lender_dir);
	owner_begin(NULL);
	snprintf(host.name, sizeof(host.name), "lender1.test");
	owner_add(&host, lender.port);
}

static void lender_end(void)
{
	owner_end();
	raw_end(&lender);
}

/* The next connection, with its hello. */
static void take_hello(struct tmem_peer_hello *hello, uint64_t *id)
{
	struct frame frame;

	raw_accept(&lender);
	raw_expect(&lender, TMEM_PEER_HELLO, &frame);
	frame_hello(&frame, hello);
	*id = frame.id;
}

static void be_welcoming(void)
{
	struct tmem_peer_hello theirs, ours;
	uint64_t id;

	take_hello(&theirs, &id);
	raw_hello_of(&ours);
	ours.session = theirs.session;
	raw_hello(&lender, &ours, TMEM_PEER_WELCOME, id);
}

static void welcome_refused(void (*spoil)(struct tmem_peer_hello *hello), const char *says)
{
	struct tmem_peer_hello theirs, ours;
	uint64_t id;

	take_hello(&theirs, &id);
	raw_hello_of(&ours);
	ours.session = theirs.session;
	memcpy(ours.uuid, theirs.uuid, 1); /* ours.uuid[0] is 2: see spoil_uuid() */
	ours.uuid[1] = 1;
	spoil(&ours);
	raw_hello(&lender, &ours, TMEM_PEER_WELCOME, id);
	EVENTUALLY(strstr(owner_peer(0).why, says));
	CHECK_IS(owner_peer(0).counters[PEER_CONNECTS], 0);
}

static void spoil_version(struct tmem_peer_hello *hello)
{
	hello->version_min = hello->version_max = 9;
}

static void spoil_size(struct tmem_peer_hello *hello)
{
	hello->blob_max = 8192;
}

static void spoil_batch(struct tmem_peer_hello *hello)
{
	hello->batch = 1000;
}

static void spoil_session(struct tmem_peer_hello *hello)
{
	hello->session++;
}

static void spoil_uuid(struct tmem_peer_hello *hello)
{
	hello->uuid[1] = 0;
}

static void welcomes(void)
{
	lender_begin();
	welcome_refused(spoil_version, "it speaks version 9, we speak 1");
	welcome_refused(spoil_size, "up to 8192 bytes, ours 4096");
	welcome_refused(spoil_batch, "1000 blobs");
	welcome_refused(spoil_session, "session");
	welcome_refused(spoil_uuid, "it has our own uuid");
	lender_end();
}

/* Answers to what was not asked: cut off, and the request goes on to an error. */
static void wrong_answer(uint16_t type, const struct tmem_peer_entry *entry, const void *blob,
			 const char *says)
{
	struct frame_make make;
	struct frame frame;
	struct tmem_peer_stat stat = {.spare = ROOM, .window = 10};
	static struct ask ask;
	struct tmem_peer_entry asked;
	struct frame_walk walk;
	const uint8_t *none;

	be_welcoming();
	frame_make(&make, lender.link.out.bytes, TMEM_PEER_STAT, 0);
	frame_make_stat(&make, &stat);
	lender.link.out.end = frame_make_end(&make);
	raw_push(&lender);
	EVENTUALLY(owner_peer(0).state == PEER_UP && owner_peer(0).spare_bytes);
	if (type == TMEM_PEER_PUT_DONE)
		ask_put(&ask, 5, 0, 1);
	else
		ask_get(&ask, 5, 0, (uint16_t[]){1, 0});
	raw_expect(&lender, type == TMEM_PEER_PUT_DONE ? TMEM_PEER_PUT : TMEM_PEER_GET, &frame);
	frame_walk(&frame, &walk);
	CHECK(frame_walk_next(&walk, &asked, &none), "no entry");
	CHECK_IS(asked.blob, 5);
	asked.blob = entry->blob ? entry->blob : asked.blob;
	asked.tag ^= entry->tag;
	asked.len = entry->len;
	asked.status = entry->status;
	frame_make(&make, lender.link.out.bytes, type, frame.id);
	frame_make_entries(&make, 1);
	frame_make_entry(&make, &asked, blob);
	lender.link.out.end = frame_make_end(&make);
	raw_push(&lender);
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	EVENTUALLY(strstr(owner_peer(0).why, says));
}

static void lies(void)
{
	uint8_t blob[TMEM_PEER_BLOB_MAX + 1] = {0};

	lender_begin();
	wrong_answer(TMEM_PEER_PUT_DONE, &(struct tmem_peer_entry){.tag = 0x10000}, NULL,
		     "answers what was not asked: blob 5");
	wrong_answer(TMEM_PEER_PUT_DONE, &(struct tmem_peer_entry){.tag = 1}, NULL, "blob 5");
	wrong_answer(TMEM_PEER_PUT_DONE, &(struct tmem_peer_entry){.tag = 0xff00}, NULL, "blob 5");
	wrong_answer(TMEM_PEER_GET_DONE, &(struct tmem_peer_entry){.blob = 6, .len = 10}, blob,
		     "blob 6");
	wrong_answer(TMEM_PEER_GET_DONE, &(struct tmem_peer_entry){.len = 4097}, blob,
		     "a blob in it is too long");
	wrong_answer(TMEM_PEER_GET_DONE, &(struct tmem_peer_entry){.status = TMEM_PEER_FAILED},
		     NULL, "");
	raw_hang_up(&lender);
	lender_end();
}

/* It welcomes and then says nothing, or never welcomes. */
static void silent_lender(void)
{
	static struct ask ask;
	struct tmem_peer_hello hello;
	uint64_t id, from;

	lender_begin();
	take_hello(&hello, &id);
	EVENTUALLY(strstr(owner_peer(0).why, "no welcome in time"));
	be_welcoming();
	EVENTUALLY(owner_peer(0).state == PEER_UP);
	from = clock_ns();
	ask_get(&ask, 5, 0, (uint16_t[]){1, 0});
	CHECK_IS(ask_wait(&ask), -EHOSTUNREACH);
	CHECK(clock_ns() - from < 2 * world_times.answer * CLOCK_MS, "too long");
	lender_end();
}

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	world_begin("hostile");
	raw_dir = pki_host("raw.test", PKI_GOOD);
	lender_dir = pki_host("lender1.test", PKI_GOOD);
	RUN(hellos);
	RUN(other_names);
	RUN(frames);
	RUN(rude_owners);
	RUN(too_many);
	RUN(silent_crowd);
	RUN(welcomes);
	RUN(lies);
	RUN(silent_lender);
	free((char *)raw_dir);
	free((char *)lender_dir);
	puts("9 passed, 0 failed");
	return 0;
}
