// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What one lender is told and what it says.
 *
 * Requests go in batches: what has gathered while the last frame was on its way goes with the next
 * one, up to what the lender allows in flight. Gets and puts take turns, deletes go first: a put of
 * a number comes after a delete of it in the order in which the store asked.
 */
#include "peers_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define FULL_OUT (TMEM_PEER_FRAME_MAX / 2) /* so much in `out` is enough for the socket */

void legs_add(struct legs *legs, struct leg *leg)
{
	leg->next = NULL;
	leg->prev = legs->last;
	if (legs->last)
		legs->last->next = leg;
	else
		legs->first = leg;
	legs->last = leg;
}

void legs_remove(struct legs *legs, struct leg *leg)
{
	if (leg->prev)
		leg->prev->next = leg->next;
	else
		legs->first = leg->next;
	if (leg->next)
		leg->next->prev = leg->prev;
	else
		legs->last = leg->prev;
	leg->next = leg->prev = NULL;
}

bool peer_is_up(const struct peer *peer)
{
	return peer->dial == DIAL_UP;
}

bool peer_takes_puts(const struct peer *peer)
{
	return peer->dial == DIAL_UP && !atomic_load(&peer->draining) &&
	       !atomic_load(&peer->leaving);
}

void peer_queue(struct peer *peer, struct leg *leg, uint64_t now)
{
	struct op *op = leg->op;
	uint64_t spare = counter_get(&peer->spare);

	leg->state = LEG_QUEUED;
	leg->since = now;
	legs_add(&peer->queue[op->kind], leg);
	peer->queued = true;
	if (op->kind == OP_PUT)
		counter_set(&peer->spare, spare > op->request->len ? spare - op->request->len : 0);
}

void peer_delete(struct peer *peer, uint64_t blob)
{
	struct peers *peers = peer->peers;

	pthread_mutex_lock(&peers->lock);
	if (peer->nr_deletes < DELETES_WAITING) {
		uint32_t at = (peer->delete_first + peer->nr_deletes++) % DELETES_WAITING;

		peer->deletes[at] = blob;
	} else {
		counter_add(&peer->counters[PEER_DELETES_DROPPED], 1);
	}
	pthread_mutex_unlock(&peers->lock);
}

void peer_latency(struct peer *peer, struct peer_latency *histogram, uint64_t ns)
{
	uint64_t us = ns / CLOCK_US;
	uint32_t mean = atomic_load(&peer->latency_us), value;
	unsigned bucket = 0;

	value = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	if (mean)
		mean = (uint32_t)(((uint64_t)mean * (LATENCY_SHARE - 1) + value) / LATENCY_SHARE);
	else
		mean = value;
	atomic_store(&peer->latency_us, mean ? mean : 1);
	while (us > 1 && bucket < PEER_LATENCY_BUCKETS - 1) {
		us /= 2;
		bucket++;
	}
	if (histogram)
		counter_add(&histogram->buckets[bucket], 1);
}

static void set_in_flight(struct peer *peer, uint32_t n)
{
	peer->in_flight = n;
	counter_set(&peer->counters[PEER_IN_FLIGHT], n);
}

static void set_held(struct peer *peer, uint64_t held)
{
	peer->held = held;
	counter_set(&peer->counters[PEER_BLOBS], held);
}

/* ---- Out ------------------------------------------------------------------------------------ */

static uint8_t *room_for_frame(struct peer *peer)
{
	if (buffer_room(&peer->link.out) < TMEM_PEER_FRAME_MAX)
		return NULL;
	return peer->link.out.bytes + peer->link.out.end;
}

static void send_frame(struct peer *peer, struct frame_make *make)
{
	peer->link.out.end += frame_make_end(make);
}

void peer_hello(struct peer *peer)
{
	struct peers *peers = peer->peers;
	struct tmem_peer_hello hello = {
		.magic = TMEM_PEER_MAGIC,
		.version_min = TMEM_PEER_VERSION,
		.version_max = TMEM_PEER_VERSION,
		.features = TMEM_PEER_F_KNOWN,
		.blob_max = TMEM_PEER_BLOB_MAX,
		.batch = TMEM_PEER_BATCH_MAX,
		.renew = TMEM_PEER_RENEW_MAX,
		.window = peers->settings.requests,
		.epoch = peers->settings.self.epoch,
	};
	struct frame_make make;
	uint64_t now = clock_ns();

	/* Goes on over a restart within one life of the arena: that is within one boot. */
	peers->session = now > peers->session ? now : peers->session + 1;
	hello.session = peer->session = peers->session;
	memcpy(hello.uuid, peers->settings.self.uuid, PEER_UUID);
	snprintf(hello.name, sizeof(hello.name), "%s", peers->settings.self.name);
	frame_make(&make, room_for_frame(peer), TMEM_PEER_HELLO, ++peer->next_id);
	frame_make_hello(&make, &hello);
	send_frame(peer, &make);
}

static bool send_deletes(struct peer *peer)
{
	uint64_t numbers[TMEM_PEER_DELETE_MAX];
	uint8_t *at = room_for_frame(peer);
	struct frame_make make;
	uint32_t n = 0;

	if (!at)
		return false;
	pthread_mutex_lock(&peer->peers->lock);
	while (n < TMEM_PEER_DELETE_MAX && peer->nr_deletes) {
		numbers[n++] = peer->deletes[peer->delete_first];
		peer->delete_first = (peer->delete_first + 1) % DELETES_WAITING;
		peer->nr_deletes--;
	}
	pthread_mutex_unlock(&peer->peers->lock);
	if (!n)
		return false;
	frame_make(&make, at, TMEM_PEER_DELETE, ++peer->next_id);
	frame_make_numbers(&make, numbers, (uint16_t)n);
	send_frame(peer, &make);
	set_held(peer, peer->held > n ? peer->held - n : 0);
	counter_add(&peer->counters[PEER_DELETES], n);
	return true;
}

static uint32_t tag_of(const struct leg *leg)
{
	const struct op *op = leg->op;

	return (uint32_t)op->generation << 16 | (uint32_t)(op - op->peers->ops) << 1 |
	       (uint32_t)(leg - op->legs);
}

static void add_leg(struct peer *peer, struct frame_make *make, struct leg *leg, uint64_t now)
{
	struct op *op = leg->op;
	struct tmem_peer_entry entry = {op->blob, tag_of(leg), 0, 0};

	legs_remove(&peer->queue[op->kind], leg);
	leg->state = LEG_SENT;
	leg->since = now;
	legs_add(&peer->sent, leg);
	if (op->kind == OP_PUT) {
		entry.len = (uint16_t)op->request->len;
		counter_add(&peer->counters[PEER_BYTES_OUT], entry.len);
		frame_make_entry(make, &entry, op->request->bytes);
	} else {
		frame_make_entry(make, &entry, NULL);
	}
}

static bool send_batch(struct peer *peer, enum op_kind kind, uint64_t now)
{
	uint32_t room = peer->window > peer->in_flight ? peer->window - peer->in_flight : 0;
	uint32_t n = 0, max = peer->batch < room ? peer->batch : room;
	uint8_t *at = room_for_frame(peer);
	struct frame_make make;

	for (struct leg *leg = peer->queue[kind].first; leg && n < max; leg = leg->next)
		n++;
	if (!n || !at)
		return false;
	frame_make(&make, at, kind == OP_PUT ? TMEM_PEER_PUT : TMEM_PEER_GET, ++peer->next_id);
	frame_make_entries(&make, (uint16_t)n);
	for (uint32_t i = 0; i < n; i++)
		add_leg(peer, &make, peer->queue[kind].first, now);
	send_frame(peer, &make);
	set_in_flight(peer, peer->in_flight + n);
	return true;
}

static struct renewal *first_renewal(struct peer *peer)
{
	struct renewal *renewal = NULL;

	pthread_mutex_lock(&peer->peers->lock);
	if (peer->nr_renewals)
		renewal = &peer->renewals[peer->renewal_first];
	pthread_mutex_unlock(&peer->peers->lock);
	return renewal;
}

/* The next part of a range: one at a time is out. */
static void send_renewal(struct peer *peer, uint64_t now)
{
	struct renewal *renewal = peer->renew_sent ? NULL : first_renewal(peer);
	uint8_t *at = room_for_frame(peer);
	struct tmem_peer_range range;
	struct frame_make make;
	uint32_t n;

	if (!renewal || !at)
		return;
	if (!peer->renewing) {
		peer->renewing = true;
		peer->renew_at = peer->renew_missing = 0;
		peer->renew_first = renewal->first;
	}
	n = renewal->nr - peer->renew_at;
	n = n < peer->renew ? n : peer->renew;
	range.first = peer->renew_first;
	range.end = peer->renew_at + n < renewal->nr ? renewal->blobs[peer->renew_at + n]
						     : renewal->end;
	frame_make(&make, at, TMEM_PEER_RENEW, ++peer->next_id);
	frame_make_range(&make, &range);
	frame_make_numbers(&make, renewal->blobs + peer->renew_at, (uint16_t)n);
	send_frame(peer, &make);
	peer->renew_id = peer->next_id;
	peer->renew_sent = now;
	peer->renew_at += n;
	peer->renew_first = range.end;
	counter_add(&peer->counters[PEER_RENEWALS], 1);
}

static void send_ping(struct peer *peer, uint64_t now)
{
	uint8_t *at = room_for_frame(peer);
	struct frame_make make;

	if (peer->pinged || now < peer->next_ping || !at)
		return;
	frame_make(&make, at, TMEM_PEER_PING, ++peer->next_id);
	send_frame(peer, &make);
	peer->ping_id = peer->next_id;
	peer->pinged = now;
	peer->next_ping = now + peers_ms(peer->peers->settings.times.ping, 1000);
}

void peer_output(struct peer *peer, uint64_t now)
{
	bool more = true;

	peer->queued = false;
	if (peer->dial != DIAL_UP)
		return;
	send_ping(peer, now);
	while (more && buffer_used(&peer->link.out) < FULL_OUT) {
		/* All of them: one may be of a put that failed and is in the queue once more. */
		if (send_deletes(peer))
			continue;
		more = send_batch(peer, peer->turn, now);
		peer->turn = peer->turn == OP_PUT ? OP_GET : OP_PUT;
		more |= send_batch(peer, peer->turn, now);
	}
	send_renewal(peer, now);
}

/* ---- In ------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int over(struct peer *peer, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(peer->link.why, sizeof(peer->link.why), fmt, ap);
	va_end(ap);
	return -1;
}

static void set_leaving(struct peer *peer, uint32_t deadline_ms)
{
	struct peers *peers = peer->peers;
	bool before = atomic_exchange(&peer->leaving, deadline_ms != 0);

	if (!deadline_ms || before)
		return;
	log_limited(LOG_NOTE, "peer %s wants its memory back in %u ms", peer->record.name,
		    deadline_ms);
	if (peers->tier.events.leave)
		peers->tier.events.leave(peers->tier.events.arg, (uint16_t)(peer->index + 1),
					 deadline_ms);
}

/* Has it lost what it had of ours? */
static bool has_lost(const struct peer *peer, const struct tmem_peer_hello *hello)
{
	const struct peer_record *record = &peer->record;

	if (!record->epoch)
		return false; /* it never had anything */
	return record->epoch != hello->epoch || memcmp(record->uuid, hello->uuid, PEER_UUID) != 0 ||
	       (peer->held && !hello->held);
}

/* The store learns of a loss before it is forgotten that there may have been one. */
static void know(struct peer *peer, const struct tmem_peer_hello *hello)
{
	struct peers *peers = peer->peers;
	struct peer_record *record = &peer->record;
	bool changed =
		record->epoch != hello->epoch || memcmp(record->uuid, hello->uuid, PEER_UUID) != 0;

	if (has_lost(peer, hello)) {
		counter_add(&peer->counters[PEER_LOST], 1);
		log_limited(LOG_WARN,
			    "peer %s has lost what it held: epoch %" PRIu64 ", it was %" PRIu64,
			    record->name, hello->epoch, record->epoch);
		if (peers->tier.events.lost)
			peers->tier.events.lost(peers->tier.events.arg,
						(uint16_t)(peer->index + 1));
	}
	record->epoch = hello->epoch;
	memcpy(record->uuid, hello->uuid, PEER_UUID);
	atomic_store(&peer->epoch, hello->epoch);
	if (changed && peers->settings.remember)
		peers->settings.remember(peers->settings.arg, record);
}

static int check_welcome(struct peer *peer, const struct tmem_peer_hello *hello)
{
	const struct peer_self *self = &peer->peers->settings.self;

	if (hello->magic != TMEM_PEER_MAGIC)
		return over(peer, "magic %#" PRIx64 ", not %#" PRIx64, hello->magic,
			    (uint64_t)TMEM_PEER_MAGIC);
	if (hello->version_min != TMEM_PEER_VERSION || hello->version_max != TMEM_PEER_VERSION)
		return over(peer, "it speaks version %u, we speak %u", hello->version_max,
			    TMEM_PEER_VERSION);
	if (hello->blob_max != TMEM_PEER_BLOB_MAX)
		return over(peer, "its blobs have up to %u bytes, ours %u", hello->blob_max,
			    TMEM_PEER_BLOB_MAX);
	if (!hello->batch || hello->batch > TMEM_PEER_BATCH_MAX || !hello->renew ||
	    hello->renew > TMEM_PEER_RENEW_MAX || !hello->window)
		return over(peer, "it allows %u blobs and %u numbers in a frame, %u requests",
			    hello->batch, hello->renew, hello->window);
	if (!hello->epoch)
		return over(peer, "it has epoch 0");
	if (hello->session != peer->session)
		return over(peer, "session %" PRIu64 ", not %" PRIu64, hello->session,
			    peer->session);
	if (!memcmp(hello->uuid, self->uuid, PEER_UUID))
		return over(peer, "it has our own uuid: the address is this host's");
	/* With secrets nobody but this tells that it is the host that was meant. */
	if (peer->peers->credentials.psk &&
	    strncmp(hello->name, peer->record.name, TMEM_PEER_NAME) != 0)
		return over(peer, "it is %.63s, not %s", hello->name, peer->record.name);
	return 0;
}

static int handle_welcome(struct peer *peer, const struct frame *frame, uint64_t now)
{
	struct peers *peers = peer->peers;
	struct tmem_peer_hello hello;

	frame_hello(frame, &hello);
	hello.name[TMEM_PEER_NAME - 1] = '\0';
	if (check_welcome(peer, &hello))
		return -1;
	know(peer, &hello);
	peer->batch = hello.batch;
	peer->renew = hello.renew;
	peer->window = hello.window < TMEM_PEER_WINDOW_MAX ? hello.window : TMEM_PEER_WINDOW_MAX;
	set_held(peer, hello.held);
	counter_set(&peer->spare, hello.spare);
	set_leaving(peer, hello.leave_ms);
	peer->dial = DIAL_UP;
	peer->next_ping = now; /* how far away it is */
	atomic_store(&peer->state, PEER_UP);
	counter_add(&peer->counters[PEER_CONNECTS], 1);
	log_limited(LOG_NOTE, "peer %s answers, epoch %" PRIu64 ", %" PRIu64 " blobs of ours",
		    peer->record.name, hello.epoch, hello.held);
	if (peers->tier.events.back)
		peers->tier.events.back(peers->tier.events.arg, (uint16_t)(peer->index + 1));
	return 0;
}

/* The leg that the entry answers, if there is one. */
static struct leg *find_leg(struct peer *peer, const struct tmem_peer_entry *entry,
			    enum op_kind kind)
{
	struct peers *peers = peer->peers;
	uint32_t index = (entry->tag & 0xffff) >> 1;
	struct leg *leg;
	struct op *op;

	if (index >= peers->settings.requests)
		return NULL;
	op = &peers->ops[index];
	leg = &op->legs[entry->tag & 1];
	if (op->generation != entry->tag >> 16 || op->kind != kind || op->blob != entry->blob)
		return NULL;
	return leg->state == LEG_SENT && leg->peer == peer ? leg : NULL;
}

static int handle_answers(struct peer *peer, const struct frame *frame, uint64_t now)
{
	enum op_kind kind = frame->type == TMEM_PEER_PUT_DONE ? OP_PUT : OP_GET;
	struct tmem_peer_entry entry;
	struct frame_walk walk;
	const uint8_t *blob;

	frame_walk(frame, &walk);
	while (frame_walk_next(&walk, &entry, &blob)) {
		struct leg *leg = find_leg(peer, &entry, kind);

		if (!leg)
			return over(peer, "it answers what was not asked: blob %" PRIu64,
				    entry.blob);
		legs_remove(&peer->sent, leg);
		set_in_flight(peer, peer->in_flight - 1);
		peer_latency(peer, kind == OP_PUT ? &peer->put_latency : &peer->get_latency,
			     now - leg->since);
		counter_add(&peer->counters[PEER_BYTES_IN], entry.len);
		op_answer(leg, entry.status, blob, entry.len, now);
	}
	return 0;
}

/* Takes the first renewal out of the ring and answers it. */
static void end_renewal(struct peer *peer, int result)
{
	struct renewal renewal = *first_renewal(peer);
	uint32_t missing = peer->renew_missing;

	pthread_mutex_lock(&peer->peers->lock);
	peer->renewal_first = (peer->renewal_first + 1) % RENEWALS_WAITING;
	peer->nr_renewals--;
	pthread_mutex_unlock(&peer->peers->lock);
	peer->renewing = false;
	peer->renew_sent = 0;
	renewal.done(renewal.arg, result, result ? 0 : missing);
}

static int handle_renewed(struct peer *peer, const struct frame *frame)
{
	struct renewal *renewal = first_renewal(peer);

	if (!peer->renew_sent || !renewal || frame->id != peer->renew_id)
		return over(peer, "it answers a renewal that was not asked for");
	peer->renew_sent = 0;
	peer->renew_missing += frame_missing(frame);
	if (peer->renew_at == renewal->nr && peer->renew_first == renewal->end)
		end_renewal(peer, 0);
	return 0;
}

static int handle_stat(struct peer *peer, const struct frame *frame, uint64_t now)
{
	struct tmem_peer_stat stat;

	frame_stat(frame, &stat);
	if (frame->id) {
		if (!peer->pinged || frame->id != peer->ping_id)
			return over(peer, "it answers a ping that was not sent");
		peer_latency(peer, NULL, now - peer->pinged);
		peer->pinged = 0;
		peer->attempts = 0; /* it stayed */
	}
	counter_set(&peer->spare, stat.spare);
	set_held(peer, stat.held);
	set_leaving(peer, stat.leave_ms);
	if (stat.window)
		peer->window =
			stat.window < TMEM_PEER_WINDOW_MAX ? stat.window : TMEM_PEER_WINDOW_MAX;
	return 0;
}

static int handle_error(struct peer *peer, const struct frame *frame)
{
	struct tmem_peer_error error;
	char text[TMEM_PEER_TEXT + 1];

	frame_error(frame, &error, text);
	return over(peer, "it says: %s", text);
}

static int handle(struct peer *peer, const struct frame *frame, uint64_t now)
{
	if (frame->type == TMEM_PEER_ERROR)
		return handle_error(peer, frame);
	if (frame->type == TMEM_PEER_BYE)
		return over(peer, "it ends the connection");
	if (peer->dial == DIAL_HELLO && frame->type == TMEM_PEER_WELCOME)
		return handle_welcome(peer, frame, now);
	if (peer->dial != DIAL_UP)
		return over(peer, "a frame of type %u before the welcome", frame->type);
	switch (frame->type) {
	case TMEM_PEER_PUT_DONE:
	case TMEM_PEER_GET_DONE:
		return handle_answers(peer, frame, now);
	case TMEM_PEER_RENEWED:
		return handle_renewed(peer, frame);
	case TMEM_PEER_STAT:
		return handle_stat(peer, frame, now);
	case TMEM_PEER_LEAVE:
		set_leaving(peer, frame_leave(frame));
		return 0;
	default:
		return over(peer, "a frame of type %u: it is not its time", frame->type);
	}
}

int peer_input(struct peer *peer, uint64_t now)
{
	struct buffer *in = &peer->link.in;
	struct frame frame;
	const char *why;

	for (;;) {
		int r = frame_next(in->bytes + in->start, buffer_used(in), FRAME_LENDER, &frame,
				   &why);

		if (!r)
			return 0;
		if (r < 0)
			return over(peer, "a frame of type %u: %s", frame.type, why);
		if (handle(peer, &frame, now))
			return -1;
		buffer_take(in, frame.bytes);
	}
}

/* Those that are there now: done() may ask for more. */
void peer_fail_renewals(struct peer *peer)
{
	uint32_t n;

	pthread_mutex_lock(&peer->peers->lock);
	n = peer->nr_renewals;
	pthread_mutex_unlock(&peer->peers->lock);
	while (n--)
		end_renewal(peer, -EHOSTUNREACH);
}

void peer_fail_all(struct peer *peer, uint64_t now)
{
	struct leg *leg;

	while ((leg = peer->sent.first)) {
		legs_remove(&peer->sent, leg);
		op_unanswered(leg, true, now);
	}
	for (unsigned kind = 0; kind < OP_KINDS; kind++)
		while ((leg = peer->queue[kind].first)) {
			legs_remove(&peer->queue[kind], leg);
			op_unanswered(leg, false, now);
		}
	set_in_flight(peer, 0);
	peer->pinged = 0;
	peer_fail_renewals(peer);
}
