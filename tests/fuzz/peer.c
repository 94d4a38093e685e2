// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wire between hosts, below TLS: frames, good and bad, to a lender from owners and to an owner
 * from lenders, and the two of them connected to each other by a wire that changes bytes.
 *
 * The input is a list of operations. The real lender and the real owner's side run, from buffer to
 * buffer, in one thread. What must be so: what they send is in form, every request has exactly one
 * answer, no more is in flight than was allowed, the lender's books agree.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tier/lender_priv.h"
#include "tier/peers_priv.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

#define CONNS 3u
#define PEERS 2u
#define BLOBS 64u
#define ASKS 64u
#define MAX_OPERATIONS 400u

struct ask {
	struct tier_request request;
	uint8_t bytes[TIER_BLOB_MAX];
	bool out;
};

static struct {
	struct lender *lender;
	struct peers *peers;
	struct ask asks[ASKS];
	unsigned renewals_out;
	uint64_t now;
	uint32_t blobs[BLOBS]; /* lengths; 0: none */
	uint64_t epoch[BLOBS];
	uint64_t renewed[64];
} me;

/* ---- What the lender holds ------------------------------------------------------------------ */

static int keep(void *arg, const struct lender_owner *owner, uint64_t blob, const void *bytes,
		uint32_t len)
{
	(void)arg;
	MUST(len && len <= TIER_BLOB_MAX, "a blob of %u bytes", len);
	me.blobs[blob % BLOBS] = 0;
	if (((const uint8_t *)bytes)[len - 1] == 0xfe)
		return -ENOSPC;
	me.blobs[blob % BLOBS] = len;
	me.epoch[blob % BLOBS] = owner->epoch;
	return 0;
}

static int give(void *arg, const struct lender_owner *owner, uint64_t blob, void *bytes)
{
	uint32_t len = me.blobs[blob % BLOBS];

	(void)arg;
	if (!len || me.epoch[blob % BLOBS] != owner->epoch)
		return -ENOENT;
	memset(bytes, (int)blob, len);
	return len == 77 ? -EIO : (int)len;
}

static void drop(void *arg, const struct lender_owner *owner, uint64_t blob)
{
	(void)arg;
	(void)owner;
	me.blobs[blob % BLOBS] = 0;
}

static uint32_t renew(void *arg, const struct lender_owner *owner, uint64_t first, uint64_t end,
		      const uint64_t *blobs, uint32_t nr)
{
	(void)arg;
	(void)owner;
	MUST(first <= end && nr <= TMEM_PEER_RENEW_MAX, "a range out of form");
	for (uint32_t i = 0; i < nr; i++)
		MUST(blobs[i] >= first && blobs[i] < end && (!i || blobs[i] > blobs[i - 1]),
		     "a number out of place");
	return nr / 2;
}

static void spare(void *arg, const struct lender_owner *owner, uint64_t *bytes, uint64_t *held)
{
	(void)arg;
	*bytes = 1 << 20;
	*held = 0;
	for (unsigned i = 0; i < BLOBS; i++)
		*held += me.blobs[i] && me.epoch[i] == owner->epoch;
}

static int forget_epoch(void *arg, const struct lender_owner *owner, uint64_t *newest)
{
	(void)arg;
	MUST(owner->epoch, "epoch 0");
	if (owner->epoch == 13) {
		*newest = 14;
		return -ESTALE;
	}
	return 0;
}

static const struct lender_ops ops = {keep, give, drop, renew, spare, forget_epoch};

/* ---- The lender's side ---------------------------------------------------------------------- */

static void check_frames(struct buffer *out, enum frame_side from)
{
	const uint8_t *at = out->bytes + out->start;
	uint32_t left = buffer_used(out);
	struct frame frame;
	const char *why = "";

	while (left) {
		int r = frame_next(at, left, from, &frame, &why);

		MUST(r == 1, "a frame of ours is not in form: %s", r ? why : "too short");
		at += frame.bytes;
		left -= frame.bytes;
	}
}

static void check_books(void)
{
	uint32_t serving = 0, owners = 0;

	for (unsigned i = 0; i < CONNS; i++) {
		const struct conn *conn = &me.lender->conns[i];

		MUST(!conn->owner == (conn->state != CONN_SERVING), "state %d", conn->state);
		MUST(!conn->owner || conn->owner->conn == conn, "an owner of two connections");
		serving += conn->state == CONN_SERVING;
	}
	for (unsigned i = 0; i < OWNERS_MAX; i++)
		owners += me.lender->owners[i].conn != NULL;
	MUST(serving == me.lender->serving && owners == serving, "%u, %u, %u", serving, owners,
	     me.lender->serving);
}

static void open_conn(struct conn *conn, unsigned name)
{
	struct names names = {.nr = 1};

	conn_forget(conn);
	conn->lender = me.lender;
	conn->link.in.start = conn->link.in.end = 0;
	conn->link.out.start = conn->link.out.end = 0;
	snprintf(names.name[0], PEER_NAME, "%s", name ? "other.test" : "owner.test");
	conn_names(conn, &names);
	MUST(conn->state == CONN_HELLO, "not allowed");
}

/* Behind the bytes that have come nothing is to be read; the address sanitizer sees it. */
static void close_behind(struct buffer *b)
{
	ASAN_POISON_MEMORY_REGION(b->bytes + b->end, LINK_BUFFER - b->end);
}

static void open_behind(struct buffer *b)
{
	ASAN_UNPOISON_MEMORY_REGION(b->bytes, LINK_BUFFER);
}

static void lend(struct conn *conn)
{
	close_behind(&conn->link.in);
	while (conn_input(conn, me.now))
		check_frames(&conn->link.out, FRAME_LENDER);
	open_behind(&conn->link.in);
	conn_tell(conn, me.now);
	check_books();
}

static struct conn *some_conn(struct bytes *in)
{
	return &me.lender->conns[take(in, 1) % CONNS];
}

/* ---- The owner's side ----------------------------------------------------------------------- */

static void on_done(struct tier_request *request, int result)
{
	struct ask *ask = request->arg;

	MUST(ask->out, "two answers");
	MUST(!result || result == -ENOSPC || result == -EHOSTUNREACH || result == -ENOENT, "%d",
	     result);
	ask->out = false;
}

static void on_renewed(void *arg, int result, uint32_t missing)
{
	(void)arg;
	(void)missing;
	MUST(!result || result == -EHOSTUNREACH || result == -EBUSY || result == -EINVAL, "%d",
	     result);
	MUST(me.renewals_out--, "two answers");
}

static void some_event(void *arg, uint16_t holder)
{
	(void)arg;
	MUST(holder && holder <= PEERS, "holder %u", holder);
}

static void leave_event(void *arg, uint16_t holder, uint32_t deadline_ms)
{
	MUST(deadline_ms, "no deadline");
	some_event(arg, holder);
}

static void check_peer(struct peer *peer)
{
	uint32_t sent = 0;

	check_frames(&peer->link.out, FRAME_OWNER);
	for (struct leg *leg = peer->sent.first; leg; leg = leg->next)
		sent++;
	MUST(sent == peer->in_flight, "%u sent, %u in flight", sent, peer->in_flight);
}

static void work(void)
{
	peers_take(me.peers);
	peers_admit(me.peers, me.now);
	for (unsigned i = 0; i < PEERS; i++) {
		struct peer *peer = me.peers->peers[i];
		uint32_t before = peer->in_flight;

		peer_output(peer, me.now);
		MUST(peer->in_flight <= peer->window || peer->in_flight == before, "window");
		check_peer(peer);
	}
}

static void dial(struct peer *peer)
{
	if (peer->dial != DIAL_DOWN)
		dial_hang_up(peer, "again", true, me.now);
	peer->link.in.start = peer->link.in.end = 0;
	peer->link.out.start = peer->link.out.end = 0;
	peer->dial = DIAL_HELLO;
	peer_hello(peer);
	check_peer(peer);
}

static void hear(struct peer *peer)
{
	if (peer->dial == DIAL_DOWN)
		return;
	close_behind(&peer->link.in);
	if (peer_input(peer, me.now))
		dial_hang_up(peer, peer->link.why, true, me.now);
	open_behind(&peer->link.in);
	check_peer(peer);
}

static struct peer *some_peer(struct bytes *in)
{
	return me.peers->peers[take(in, 1) % PEERS];
}

static void request(struct bytes *in)
{
	unsigned what = (unsigned)take(in, 1);
	struct ask *ask = &me.asks[what >> 2 & 31];
	struct store_tier *tier = &me.peers->tier;
	uint16_t holders[2] = {(uint16_t)(what >> 6 & 1) + 1, (uint16_t)(what >> 7 & 1) + 1};

	if ((what & 3) == 2) {
		tier->ops->delete (tier, take(in, 1), holders);
		return;
	}
	if ((what & 3) == 3) {
		me.renewals_out++;
		tier->ops->renew(tier, holders[0], 0, 1000, me.renewed, take(in, 1) % 64,
				 on_renewed, NULL);
		return;
	}
	if (ask->out)
		return;
	ask->out = true;
	ask->request = (struct tier_request){.blob = take(in, 1),
					     .bytes = ask->bytes,
					     .len = 1 + (uint32_t)take(in, 2) % TIER_BLOB_MAX,
					     .copies = 1 + (what >> 7),
					     .client = what >> 5,
					     .done = on_done,
					     .arg = ask};
	if (what & 1)
		memcpy(ask->request.holders, holders, sizeof(holders));
	(what & 1 ? tier->ops->get : tier->ops->put)(tier, &ask->request);
}

/* ---- Frames --------------------------------------------------------------------------------- */

static void add_bytes(struct buffer *b, const void *bytes, uint32_t n)
{
	if (buffer_room(b) < n)
		return;
	memcpy(b->bytes + b->end, bytes, n);
	b->end += n;
}

static void raw_bytes(struct bytes *in, struct buffer *b)
{
	uint32_t n = (uint32_t)take(in, 1);

	for (uint32_t i = 0; i < n; i++) {
		uint8_t byte = (uint8_t)take(in, 1);

		add_bytes(b, &byte, 1);
	}
}

static void hello(struct bytes *in, struct buffer *b, uint16_t type, uint64_t session)
{
	unsigned what = (unsigned)take(in, 1);
	struct tmem_peer_hello h = {.magic = TMEM_PEER_MAGIC,
				    .version_min = 1,
				    .version_max = 1 + (what & 1),
				    .blob_max = TMEM_PEER_BLOB_MAX,
				    .batch = 1 + (what >> 1 & 15),
				    .renew = 8,
				    .window = 1 + (what >> 5),
				    .epoch = 1 + take(in, 1) % 16,
				    .session = session ? session : take(in, 1),
				    .held = take(in, 1)};
	struct frame_make make;

	if (type == TMEM_PEER_WELCOME)
		h.version_max = 1;
	h.uuid[0] = (uint8_t)take(in, 1);
	h.leave_ms = (uint32_t)take(in, 1) & 1;
	if (buffer_room(b) < TMEM_PEER_FRAME_MAX)
		return;
	frame_make(&make, b->bytes + b->end, type, 1);
	frame_make_hello(&make, &h);
	b->end += frame_make_end(&make);
}

/* A frame in form, with values that may be anything. `answer`: to what this peer has asked. */
static void some_frame(struct bytes *in, struct buffer *b, const struct peer *answer)
{
	static const uint16_t types[] = {TMEM_PEER_ERROR,   TMEM_PEER_BYE,	TMEM_PEER_PUT,
					 TMEM_PEER_GET,	    TMEM_PEER_DELETE,	TMEM_PEER_RENEW,
					 TMEM_PEER_PING,    TMEM_PEER_PUT_DONE, TMEM_PEER_GET_DONE,
					 TMEM_PEER_RENEWED, TMEM_PEER_STAT,	TMEM_PEER_LEAVE};
	uint16_t type = types[take(in, 1) % (sizeof(types) / sizeof(types[0]))];
	unsigned n = (unsigned)take(in, 1) % 18;
	const struct leg *leg = answer ? answer->sent.first : NULL;
	uint64_t numbers[18], number = 0, id = take(in, 1);
	uint8_t bytes[TMEM_PEER_BLOB_MAX];
	struct tmem_peer_error error = {(uint32_t)id, 0, 1, 2};
	struct tmem_peer_stat stat = {id << 12, n, (uint32_t)id & 15, n & 1};
	struct tmem_peer_range range = {0, 1000};
	struct frame_make make;

	if (buffer_room(b) < 2 * TMEM_PEER_FRAME_MAX - 1)
		return;
	memset(bytes, (int)id, sizeof(bytes));
	for (unsigned i = 0; i < n; i++)
		numbers[i] = number += 1 + take(in, 1) % 80;
	if (answer && type == TMEM_PEER_RENEWED)
		id = answer->renew_id;
	if (answer && type == TMEM_PEER_STAT && id & 1)
		id = answer->ping_id;
	frame_make(&make, b->bytes + b->end, type, id);
	if (type == TMEM_PEER_ERROR)
		frame_make_error(&make, &error, "some text");
	else if (type == TMEM_PEER_STAT)
		frame_make_stat(&make, &stat);
	else if (type == TMEM_PEER_LEAVE)
		frame_make_leave(&make, n);
	else if (type == TMEM_PEER_RENEWED)
		frame_make_missing(&make, n);
	else if (type == TMEM_PEER_RENEW)
		frame_make_range(&make, &range);
	if (type == TMEM_PEER_RENEW || type == TMEM_PEER_DELETE)
		frame_make_numbers(&make, numbers, (uint16_t)n);
	if (type == TMEM_PEER_PUT || type == TMEM_PEER_GET || type == TMEM_PEER_PUT_DONE ||
	    type == TMEM_PEER_GET_DONE) {
		n = n < 16 ? n : 16;
		frame_make_entries(&make, (uint16_t)n);
		for (unsigned i = 0; i < n; i++) {
			unsigned how = (unsigned)take(in, 1);
			struct tmem_peer_entry entry = {numbers[i], how, 0, how & 3};

			if (type == TMEM_PEER_PUT || (type == TMEM_PEER_GET_DONE && !(how & 3))) {
				entry.status = 0;
				entry.len = (uint16_t)(1 + how * 16 % TMEM_PEER_BLOB_MAX);
			}
			if (leg && how & 4) { /* what was asked */
				const struct op *op = leg->op;

				entry.blob = op->blob;
				entry.tag = (uint32_t)op->generation << 16 |
					    (uint32_t)(op - me.peers->ops) << 1 |
					    (uint32_t)(leg - op->legs);
				leg = leg->next;
			}
			frame_make_entry(&make, &entry, bytes);
		}
	}
	b->end += frame_make_end(&make);
}

/* A byte of what is to be read gets another value. */
static void spoil(struct bytes *in, struct buffer *b)
{
	uint32_t at = (uint32_t)take(in, 1);

	if (at < buffer_used(b))
		b->bytes[b->start + at] = (uint8_t)take(in, 1);
}

/* From one side's `out` to the other one's `in`, with a byte changed when the input says so. */
static void carry(struct bytes *in, struct buffer *from, struct buffer *to)
{
	unsigned what = (unsigned)take(in, 1);
	uint32_t n = buffer_used(from), room = buffer_room(to);

	n = n < room ? n : room;
	if (what & 1)
		n = n < what ? n : what;
	if (n && what & 2)
		from->bytes[from->start + take(in, 2) % n] ^= (uint8_t)(1 + take(in, 1));
	memcpy(to->bytes + to->end, from->bytes + from->start, n);
	to->end += n;
	/* A part of a frame is left: not for check_frames(), which sees what we make. */
	buffer_take(from, n);
	if (what & 1)
		from->start = from->end = 0;
}

static void operation(struct bytes *in)
{
	struct conn *conn;
	struct peer *peer;

	me.now += take(in, 1) * CLOCK_MS;
	switch (take(in, 1) % 15) {
	case 0:
		conn = some_conn(in);
		open_conn(conn, (unsigned)take(in, 1) & 1);
		break;
	case 1:
		conn = some_conn(in);
		hello(in, &conn->link.in, TMEM_PEER_HELLO, 0);
		lend(conn);
		break;
	case 2:
		conn = some_conn(in);
		raw_bytes(in, &conn->link.in);
		lend(conn);
		break;
	case 3:
		conn = some_conn(in);
		some_frame(in, &conn->link.in, NULL);
		lend(conn);
		break;
	case 4:
		conn = some_conn(in);
		some_frame(in, &conn->link.in, NULL);
		spoil(in, &conn->link.in);
		lend(conn);
		break;
	case 5:
		conn = some_conn(in);
		conn->link.out.start = conn->link.out.end = 0;
		lend(conn);
		break;
	case 6:
		dial(some_peer(in));
		break;
	case 7:
		peer = some_peer(in);
		hello(in, &peer->link.in, TMEM_PEER_WELCOME, peer->session);
		hear(peer);
		break;
	case 8:
		peer = some_peer(in);
		raw_bytes(in, &peer->link.in);
		hear(peer);
		break;
	case 9:
		peer = some_peer(in);
		some_frame(in, &peer->link.in, peer);
		hear(peer);
		break;
	case 14:
		peer = some_peer(in);
		some_frame(in, &peer->link.in, peer);
		spoil(in, &peer->link.in);
		hear(peer);
		break;
	case 10:
	case 11:
		request(in);
		work();
		break;
	case 12:
		peer = some_peer(in);
		carry(in, &peer->link.out, &me.lender->conns[peer->index].link.in);
		lend(&me.lender->conns[peer->index]);
		carry(in, &me.lender->conns[peer->index].link.out, &peer->link.in);
		hear(peer);
		work();
		break;
	default:
		peer = some_peer(in);
		if (peer->sent.first)
			op_hedge(peer->sent.first->op, me.now);
		peer->link.out.start = peer->link.out.end = 0;
		work();
	}
}

/* ---- Each input ----------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_setup(LOG_ERROR - 1, false);
	return 0;
}

static void begin(void)
{
	static uint8_t in[CONNS][LINK_BUFFER], out[CONNS][LINK_BUFFER];
	struct lender_settings lends = {.ops = &ops,
					.self = {.name = "lender", .uuid = {1}, .epoch = 5},
					.connections = CONNS};
	struct peers_settings borrows = {
		.self = {.name = "owner", .uuid = {2}, .epoch = 3}, .requests = 16, .client = 5};

	memset(&me, 0, sizeof(me));
	me.now = CLOCK_S;
	MUST(!lender_make(&me.lender, &lends), "no lender");
	MUST(lender_allow(me.lender, "*") != -ENOSPC, "not allowed");
	for (unsigned i = 0; i < CONNS; i++) {
		me.lender->conns[i].link.in.bytes = in[i];
		me.lender->conns[i].link.out.bytes = out[i];
		open_conn(&me.lender->conns[i], i == 2);
	}
	MUST(!peers_make(&me.peers, &borrows), "no peers");
	me.peers->tier.events = (struct tier_events){NULL, some_event, leave_event, some_event};
	for (unsigned i = 0; i < PEERS; i++) {
		MUST(peers_new_peer(me.peers, i ? "b" : "a"), "no peer");
		dial(me.peers->peers[i]);
	}
	for (unsigned i = 0; i < 64; i++)
		me.renewed[i] = 3 * i;
}

static void end(void)
{
	me.peers->stopping = true;
	for (unsigned i = 0; i < PEERS; i++)
		dial_hang_up(me.peers->peers[i], "the end", false, me.now);
	work();
	for (unsigned i = 0; i < ASKS; i++)
		MUST(!me.asks[i].out, "no answer to request %u", i);
	MUST(!me.renewals_out, "no answer to %u renewals", me.renewals_out);
	for (unsigned i = 0; i < OP_KINDS; i++)
		MUST(!me.peers->working[i], "%u ops are not free", me.peers->working[i]);
	for (unsigned i = 0; i < CONNS; i++) {
		conn_forget(&me.lender->conns[i]);
		me.lender->conns[i].state = CONN_FREE;
		me.lender->conns[i].link.in.bytes = me.lender->conns[i].link.out.bytes = NULL;
	}
	check_books();
	peers_free(me.peers);
	lender_free(me.lender);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = {data, data + size};

	begin();
	for (unsigned i = 0; i < MAX_OPERATIONS && more(&in); i++)
		operation(&in);
	end();
	return 0;
}
