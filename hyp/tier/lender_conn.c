// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One owner's connection, as a lender has it: frames from `in` are executed in their order and
 * answered into `out`.
 *
 * Connections of one owner must not overlap: a put that is left over in an old one would undo what
 * a new one has said. So a hello with a higher session ends the older connection at once, and all
 * of it with it; one with a lower session comes too late and is refused. It is the same with
 * epochs, over which the ops watch.
 */
#include "lender_priv.h"

#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static void count(struct conn *conn, enum lender_counter which, uint64_t n)
{
	counter_add(&conn->lender->counters[which], n);
}

static uint8_t *room_for_frame(struct conn *conn)
{
	if (buffer_room(&conn->link.out) < TMEM_PEER_FRAME_MAX)
		return NULL;
	return conn->link.out.bytes + conn->link.out.end;
}

static void send_frame(struct conn *conn, struct frame_make *make)
{
	conn->link.out.end += frame_make_end(make);
	conn->ready = true;
}

/* The last frame: an error with a sentence that has both values. */
__attribute__((format(printf, 5, 6))) static void end_with(struct conn *conn,
							   enum tmem_peer_code code, uint64_t ours,
							   uint64_t theirs, const char *fmt, ...)
{
	struct tmem_peer_error error = {code, 0, ours, theirs};
	uint8_t *at = room_for_frame(conn);
	char text[TMEM_PEER_TEXT];
	struct frame_make make;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_limited(LOG_WARN, "peer %s is refused: %s", conn->name, text);
	if (at) {
		frame_make(&make, at, TMEM_PEER_ERROR, 0);
		frame_make_error(&make, &error, text);
		send_frame(conn, &make);
	}
	conn_forget(conn);
	conn->state = CONN_ENDING;
}

/* ---- Who it is ------------------------------------------------------------------------------ */

void conn_deny(struct conn *conn)
{
	count(conn, LENDER_REFUSED_NAME, 1);
	end_with(conn, TMEM_PEER_E_DENIED, 0, 0, "%s is not allowed to keep blobs on %s",
		 conn->name, conn->lender->settings.self.name);
}

void conn_names(struct conn *conn, const struct names *names)
{
	const char *which;

	conn->names = *names;
	conn->state = CONN_HELLO;
	snprintf(conn->name, sizeof(conn->name), "%s", names->nr ? names->name[0] : "(no name)");
	if (lender_is_allowed(conn->lender, names, &which))
		snprintf(conn->name, sizeof(conn->name), "%s", which);
	else
		conn_deny(conn);
}

/* What it has proved and what it says, in one number: two hosts never have the same. */
static bool make_id(struct conn *conn, const uint8_t *uuid)
{
	uint8_t text[PEER_NAME + PEER_UUID] = {0}, digest[32];

	/* By the first name, not by the allowed one: lists change. */
	if (conn->names.nr)
		memcpy(text, conn->names.name[0], PEER_NAME);
	memcpy(text + PEER_NAME, uuid, PEER_UUID);
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, sizeof(text), digest))
		return false;
	memcpy(conn->who.id, digest, sizeof(conn->who.id));
	conn->who.name = conn->name;
	return true;
}

/* The entry of this owner, or one to be used for it; NULL when all are connected. */
static struct owner *find_owner(struct conn *conn)
{
	struct owner *owners = conn->lender->owners, *oldest = NULL;

	for (unsigned i = 0; i < OWNERS_MAX; i++) {
		struct owner *owner = &owners[i];

		if (owner->epoch && !memcmp(owner->id, conn->who.id, sizeof(owner->id)))
			return owner;
		if (!owner->conn && (!oldest || owner->seen < oldest->seen))
			oldest = owner;
	}
	if (oldest) {
		memset(oldest, 0, sizeof(*oldest));
		memcpy(oldest->id, conn->who.id, sizeof(oldest->id));
	}
	return oldest;
}

/* ---- Hello ---------------------------------------------------------------------------------- */

/* True: it fits. */
static bool check_hello(struct conn *conn, const struct tmem_peer_hello *hello)
{
	if (hello->magic != TMEM_PEER_MAGIC)
		end_with(conn, TMEM_PEER_E_PROTOCOL, TMEM_PEER_MAGIC, hello->magic,
			 "magic %#" PRIx64 ", not %#" PRIx64, hello->magic,
			 (uint64_t)TMEM_PEER_MAGIC);
	else if (hello->version_min > TMEM_PEER_VERSION || hello->version_max < TMEM_PEER_VERSION)
		end_with(conn, TMEM_PEER_E_VERSION, TMEM_PEER_VERSION, hello->version_max,
			 "the owner speaks versions %u to %u, the lender %u to %u",
			 hello->version_min, hello->version_max, TMEM_PEER_VERSION,
			 TMEM_PEER_VERSION);
	else if (hello->blob_max != TMEM_PEER_BLOB_MAX)
		end_with(conn, TMEM_PEER_E_SIZE, TMEM_PEER_BLOB_MAX, hello->blob_max,
			 "the owner has blobs of up to %u bytes, the lender of up to %u",
			 hello->blob_max, TMEM_PEER_BLOB_MAX);
	else if (!hello->batch || !hello->renew || !hello->window)
		end_with(conn, TMEM_PEER_E_SIZE, 1, 0,
			 "the owner sends %u blobs and %u numbers in a frame, %u requests at once",
			 hello->batch, hello->renew, hello->window);
	else if (!hello->epoch)
		end_with(conn, TMEM_PEER_E_EPOCH, 1, 0, "the owner has epoch 0");
	else
		return true;
	return false;
}

static bool check_life(struct conn *conn, const struct owner *owner,
		       const struct tmem_peer_hello *hello)
{
	const struct lender_settings *s = &conn->lender->settings;
	uint64_t newest = owner->epoch;

	if (hello->epoch < owner->epoch ||
	    s->ops->forget_epoch(s->arg, &conn->who, &newest) == -ESTALE) {
		end_with(conn, TMEM_PEER_E_EPOCH, newest, hello->epoch,
			 "the owner has epoch %" PRIu64 ", its blobs here are of %" PRIu64,
			 hello->epoch, newest);
		return false;
	}
	if (hello->epoch == owner->epoch && hello->session <= owner->session) {
		end_with(conn, TMEM_PEER_E_SESSION, owner->session, hello->session,
			 "session %" PRIu64 " comes after %" PRIu64, hello->session,
			 owner->session);
		return false;
	}
	return true;
}

/* Every connection's share of what may be in flight. */
static uint32_t window_now(const struct lender *lender)
{
	uint32_t share = WINDOW / (lender->serving ? lender->serving : 1);

	return share > WINDOW_MIN ? share : WINDOW_MIN;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void welcome(struct conn *conn, const struct tmem_peer_hello *hello, uint64_t id,
		    uint64_t now)
{
	struct lender *lender = conn->lender;
	const struct lender_settings *s = &lender->settings;
	struct tmem_peer_hello answer = {
		.magic = TMEM_PEER_MAGIC,
		.version_min = TMEM_PEER_VERSION,
		.version_max = TMEM_PEER_VERSION,
		.features = hello->features & TMEM_PEER_F_KNOWN,
		.blob_max = TMEM_PEER_BLOB_MAX,
		.batch = smaller(hello->batch, TMEM_PEER_BATCH_MAX),
		.renew = smaller(hello->renew, TMEM_PEER_RENEW_MAX),
		.epoch = s->self.epoch,
		.session = hello->session,
		.leave_ms = lender_leave_ms(lender, now),
	};
	struct frame_make make;

	lender->serving++;
	conn->state = CONN_SERVING;
	conn->batch = answer.batch;
	conn->renew = answer.renew;
	conn->window = answer.window = smaller(hello->window, window_now(lender));
	conn->told_leave = answer.leave_ms != 0;
	s->ops->spare(s->arg, &conn->who, &answer.spare, &answer.held);
	memcpy(answer.uuid, s->self.uuid, PEER_UUID);
	snprintf(answer.name, sizeof(answer.name), "%s", s->self.name);
	frame_make(&make, room_for_frame(conn), TMEM_PEER_WELCOME, id);
	frame_make_hello(&make, &answer);
	send_frame(conn, &make);
	count(conn, LENDER_CONNECTS, 1);
	counter_set(&lender->counters[LENDER_OWNERS], lender->serving);
	log_limited(LOG_NOTE,
		    "peer %s is connected, epoch %" PRIu64 ", %" PRIu64 " blobs of it here",
		    conn->name, conn->who.epoch, answer.held);
}

static void handle_hello(struct conn *conn, const struct frame *frame, uint64_t now)
{
	struct tmem_peer_hello hello;
	struct owner *owner;

	frame_hello(frame, &hello);
	conn->who.epoch = hello.epoch;
	owner = make_id(conn, hello.uuid) ? find_owner(conn) : NULL;
	if (!owner) {
		count(conn, LENDER_REFUSED_BUSY, 1);
		end_with(conn, TMEM_PEER_E_BUSY, OWNERS_MAX, OWNERS_MAX + 1,
			 "the lender has %u owners already", OWNERS_MAX);
		return;
	}
	if (!check_hello(conn, &hello) || !check_life(conn, owner, &hello)) {
		count(conn, LENDER_REFUSED_HELLO, 1);
		return;
	}
	if (owner->conn) {
		struct conn *old = owner->conn;

		conn_forget(old);
		old->state = CONN_ENDING;
		old->link.in.start = old->link.in.end = 0;
		old->link.out.start = old->link.out.end = 0;
		old->ready = true;
	}
	owner->epoch = hello.epoch;
	owner->session = hello.session;
	owner->seen = now;
	owner->conn = conn;
	conn->owner = owner;
	welcome(conn, &hello, frame->id, now);
}

/* ---- Requests ------------------------------------------------------------------------------- */

static uint16_t put(struct conn *conn, const struct tmem_peer_entry *entry, const uint8_t *blob)
{
	const struct lender_settings *s = &conn->lender->settings;
	int r = s->ops->put(s->arg, &conn->who, entry->blob, blob, entry->len);

	count(conn, r == -ENOSPC ? LENDER_PUTS_FULL : r ? LENDER_FAILED : LENDER_PUTS, 1);
	count(conn, LENDER_BYTES_IN, r ? 0 : entry->len);
	return r == -ENOSPC ? TMEM_PEER_FULL : r ? TMEM_PEER_FAILED : TMEM_PEER_OK;
}

static void handle_put(struct conn *conn, const struct frame *frame)
{
	struct tmem_peer_entry entry;
	struct frame_make make;
	struct frame_walk walk;
	const uint8_t *blob;

	frame_make(&make, room_for_frame(conn), TMEM_PEER_PUT_DONE, frame->id);
	frame_make_entries(&make, frame->count);
	frame_walk(frame, &walk);
	while (frame_walk_next(&walk, &entry, &blob)) {
		/* An entry without a blob has no status OK, which is not for an owner to say. */
		entry.status = entry.len ? put(conn, &entry, blob) : TMEM_PEER_FAILED;
		entry.len = 0;
		frame_make_entry(&make, &entry, NULL);
	}
	send_frame(conn, &make);
}

static void get(struct conn *conn, struct tmem_peer_entry *entry, uint8_t *room)
{
	const struct lender_settings *s = &conn->lender->settings;
	int r = s->ops->get(s->arg, &conn->who, entry->blob, room);

	if (r > 0 && r <= (int)TMEM_PEER_BLOB_MAX) {
		entry->status = TMEM_PEER_OK;
		entry->len = (uint16_t)r;
		count(conn, LENDER_GETS, 1);
		count(conn, LENDER_BYTES_OUT, entry->len);
	} else {
		entry->status = r == -ENOENT ? TMEM_PEER_ABSENT : TMEM_PEER_FAILED;
		entry->len = 0;
		count(conn, r == -ENOENT ? LENDER_GETS_ABSENT : LENDER_FAILED, 1);
	}
}

static void handle_get(struct conn *conn, const struct frame *frame)
{
	struct tmem_peer_entry entry;
	struct frame_make make;
	struct frame_walk walk;
	const uint8_t *blob;

	frame_make(&make, room_for_frame(conn), TMEM_PEER_GET_DONE, frame->id);
	frame_make_entries(&make, frame->count);
	frame_walk(frame, &walk);
	while (frame_walk_next(&walk, &entry, &blob)) {
		get(conn, &entry, frame_make_room(&make));
		frame_make_filled(&make, &entry);
	}
	send_frame(conn, &make);
}

static void handle_delete(struct conn *conn, const struct frame *frame)
{
	const struct lender_settings *s = &conn->lender->settings;

	for (unsigned i = 0; i < frame->count; i++)
		s->ops->delete (s->arg, &conn->who, frame_number(frame, i));
	count(conn, LENDER_DELETES, frame->count);
}

static const char *check_renewal(struct conn *conn, const struct frame *frame,
				 const struct tmem_peer_range *range)
{
	uint64_t *numbers = conn->lender->renewal;

	for (unsigned i = 0; i < frame->count; i++) {
		numbers[i] = frame_number(frame, i);
		if (numbers[i] < range->first || numbers[i] >= range->end)
			return "a number is not in the range";
		if (i && numbers[i] <= numbers[i - 1])
			return "the numbers do not rise";
	}
	return range->end < range->first ? "the range ends before it begins" : NULL;
}

static const char *handle_renew(struct conn *conn, const struct frame *frame)
{
	const struct lender_settings *s = &conn->lender->settings;
	struct tmem_peer_range range;
	struct frame_make make;
	const char *why;
	uint32_t missing;

	frame_range(frame, &range);
	why = frame->count > conn->renew ? "more numbers than agreed on"
					 : check_renewal(conn, frame, &range);
	if (why)
		return why;
	missing = s->ops->renew(s->arg, &conn->who, range.first, range.end, conn->lender->renewal,
				frame->count);
	count(conn, LENDER_RENEWALS, 1);
	frame_make(&make, room_for_frame(conn), TMEM_PEER_RENEWED, frame->id);
	frame_make_missing(&make, missing);
	send_frame(conn, &make);
	return NULL;
}

static void handle_ping(struct conn *conn, uint64_t id, uint64_t now)
{
	const struct lender_settings *s = &conn->lender->settings;
	struct tmem_peer_stat stat = {.leave_ms = lender_leave_ms(conn->lender, now),
				      .window = window_now(conn->lender)};
	struct frame_make make;

	s->ops->spare(s->arg, &conn->who, &stat.spare, &stat.held);
	conn->told_leave = stat.leave_ms != 0;
	frame_make(&make, room_for_frame(conn), TMEM_PEER_STAT, id);
	frame_make_stat(&make, &stat);
	send_frame(conn, &make);
}

/* NULL, or what is wrong with the frame. */
static const char *serve(struct conn *conn, const struct frame *frame, uint64_t now)
{
	switch (frame->type) {
	case TMEM_PEER_PUT:
	case TMEM_PEER_GET:
		if (frame->count > conn->batch)
			return "more entries than agreed on";
		if (frame->type == TMEM_PEER_PUT)
			handle_put(conn, frame);
		else
			handle_get(conn, frame);
		return NULL;
	case TMEM_PEER_DELETE:
		handle_delete(conn, frame);
		return NULL;
	case TMEM_PEER_RENEW:
		return handle_renew(conn, frame);
	case TMEM_PEER_PING:
		handle_ping(conn, frame->id, now);
		return NULL;
	default:
		return "it is not its time";
	}
}

/* The other side says goodbye, one way or the other. */
static void handle_end(struct conn *conn, const struct frame *frame)
{
	struct tmem_peer_error error;
	char text[TMEM_PEER_TEXT + 1];

	if (frame->type == TMEM_PEER_ERROR) {
		frame_error(frame, &error, text);
		log_limited(LOG_WARN, "peer %s ends: %s", conn->name, text);
	}
	conn_forget(conn);
	conn->state = CONN_ENDING;
}

static void handle(struct conn *conn, const struct frame *frame, uint64_t now)
{
	const char *why = NULL;

	if (frame->type == TMEM_PEER_ERROR || frame->type == TMEM_PEER_BYE)
		handle_end(conn, frame);
	else if (conn->state == CONN_SERVING)
		why = serve(conn, frame, now);
	else if (frame->type == TMEM_PEER_HELLO)
		handle_hello(conn, frame, now);
	else
		why = "there was no hello";
	if (why) {
		count(conn, LENDER_BROKEN, 1);
		end_with(conn, TMEM_PEER_E_PROTOCOL, 0, frame->type, "a frame of type %u: %s",
			 frame->type, why);
	}
}

bool conn_input(struct conn *conn, uint64_t now)
{
	struct buffer *in = &conn->link.in;
	struct frame frame;
	const char *why;
	int r;

	if (conn->state != CONN_HELLO && conn->state != CONN_SERVING)
		return false;
	if (!room_for_frame(conn))
		return false;
	r = frame_next(in->bytes + in->start, buffer_used(in), FRAME_OWNER, &frame, &why);
	if (!r)
		return false;
	if (r < 0) {
		count(conn, LENDER_BROKEN, 1);
		end_with(conn, TMEM_PEER_E_PROTOCOL, 0, frame.type, "a frame of type %u: %s",
			 frame.type, why);
		return true;
	}
	handle(conn, &frame, now);
	if (buffer_used(in) >= frame.bytes)
		buffer_take(in, frame.bytes);
	return true;
}

void conn_tell(struct conn *conn, uint64_t now)
{
	uint32_t leave = lender_leave_ms(conn->lender, now);
	uint8_t *at = room_for_frame(conn);
	struct frame_make make;

	if (conn->state != CONN_SERVING || !leave || conn->told_leave || !at)
		return;
	conn->told_leave = true;
	frame_make(&make, at, TMEM_PEER_LEAVE, 0);
	frame_make_leave(&make, leave);
	send_frame(conn, &make);
}

void conn_forget(struct conn *conn)
{
	if (!conn->owner)
		return;
	conn->owner->conn = NULL;
	conn->owner = NULL;
	conn->lender->serving--;
	counter_set(&conn->lender->counters[LENDER_OWNERS], conn->lender->serving);
}
