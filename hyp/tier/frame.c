// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One table says of each type who sends it, what its fixed part is and what follows; from it comes
 * the one check that every frame passes before anybody looks at its parts.
 */
#include "frame.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#define HEAD sizeof(struct tmem_peer_frame)
#define ENTRY sizeof(struct tmem_peer_entry)

enum follow { NOTHING, ENTRIES, BLOBS, NUMBERS, TEXT, ANYTHING };

struct form {
	bool known;
	bool owner;  /* an owner may send it */
	bool lender; /* a lender may */
	uint16_t fixed;
	enum follow follow;
	uint16_t max; /* of what is counted */
};

#define BY_OWNER .known = true, .owner = true
#define BY_LENDER .known = true, .lender = true

static const struct form forms[] = {
	[TMEM_PEER_ERROR] = {BY_OWNER, .lender = true, .fixed = sizeof(struct tmem_peer_error),
			     .follow = TEXT},
	[TMEM_PEER_BYE] = {BY_OWNER, .lender = true},
	[TMEM_PEER_HELLO] = {BY_OWNER, .fixed = sizeof(struct tmem_peer_hello), .follow = ANYTHING},
	[TMEM_PEER_PUT] = {BY_OWNER, .follow = BLOBS, .max = TMEM_PEER_BATCH_MAX},
	[TMEM_PEER_GET] = {BY_OWNER, .follow = ENTRIES, .max = TMEM_PEER_BATCH_MAX},
	[TMEM_PEER_DELETE] = {BY_OWNER, .follow = NUMBERS, .max = TMEM_PEER_DELETE_MAX},
	[TMEM_PEER_RENEW] = {BY_OWNER, .fixed = sizeof(struct tmem_peer_range), .follow = NUMBERS,
			     .max = TMEM_PEER_RENEW_MAX},
	[TMEM_PEER_PING] = {BY_OWNER},
	[TMEM_PEER_WELCOME] = {BY_LENDER, .fixed = sizeof(struct tmem_peer_hello),
			       .follow = ANYTHING},
	[TMEM_PEER_PUT_DONE] = {BY_LENDER, .follow = ENTRIES, .max = TMEM_PEER_BATCH_MAX},
	[TMEM_PEER_GET_DONE] = {BY_LENDER, .follow = BLOBS, .max = TMEM_PEER_BATCH_MAX},
	[TMEM_PEER_RENEWED] = {BY_LENDER, .fixed = sizeof(struct tmem_peer_renewed)},
	[TMEM_PEER_STAT] = {BY_LENDER, .fixed = sizeof(struct tmem_peer_stat)},
	[TMEM_PEER_LEAVE] = {BY_LENDER, .fixed = sizeof(struct tmem_peer_leave)},
};

static uint16_t load16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static uint32_t load32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint64_t load64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static void load_entry(const uint8_t *at, struct tmem_peer_entry *entry)
{
	*entry = (struct tmem_peer_entry){
		.blob = load64(at + offsetof(struct tmem_peer_entry, blob)),
		.tag = load32(at + offsetof(struct tmem_peer_entry, tag)),
		.len = load16(at + offsetof(struct tmem_peer_entry, len)),
		.status = load16(at + offsetof(struct tmem_peer_entry, status)),
	};
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* What the lengths in the entries add up to must be what is there. */
static const char *check_entries(const struct frame *frame, bool blobs)
{
	uint32_t sum = frame->count * (uint32_t)ENTRY;

	if (sum > frame->parts)
		return "it is too short for its entries";
	for (unsigned i = 0; i < frame->count; i++) {
		struct tmem_peer_entry entry;

		load_entry(frame->part + i * ENTRY, &entry);
		if (entry.len > (blobs ? TMEM_PEER_BLOB_MAX : 0))
			return "a blob in it is too long";
		if (blobs && !entry.len && entry.status == TMEM_PEER_OK)
			return "a blob in it is empty";
		if (entry.len && entry.status != TMEM_PEER_OK)
			return "there is a blob with a refusal";
		sum += entry.len;
	}
	return sum == frame->parts ? NULL : "it is not as long as its entries say";
}

static const char *check(const struct form *form, const struct frame *frame)
{
	uint32_t behind;

	if (frame->parts < form->fixed)
		return "it is too short";
	behind = frame->parts - form->fixed;
	if (frame->count > form->max)
		return "it has too many entries";
	switch (form->follow) {
	case NOTHING:
		return behind ? "it is too long" : NULL;
	case TEXT:
	case ANYTHING:
		return behind > TMEM_PEER_TEXT ? "it is too long" : NULL;
	case NUMBERS:
		return behind == 8u * frame->count ? NULL : "it is not as long as its count says";
	case ENTRIES:
	case BLOBS:
		break;
	}
	if (!frame->count)
		return "it has no entries";
	return check_entries(frame, form->follow == BLOBS);
}

int frame_next(const uint8_t *bytes, size_t len, enum frame_side from, struct frame *frame,
	       const char **why)
{
	const struct form *form;

	if (len < HEAD)
		return 0;
	frame->bytes = load32(bytes + offsetof(struct tmem_peer_frame, bytes));
	frame->type = load16(bytes + offsetof(struct tmem_peer_frame, type));
	frame->count = load16(bytes + offsetof(struct tmem_peer_frame, count));
	frame->id = load64(bytes + offsetof(struct tmem_peer_frame, id));
	form = &forms[frame->type < sizeof(forms) / sizeof(forms[0]) ? frame->type : 0];
	*why = NULL;
	if (!form->known)
		*why = "there is no such type";
	else if (!(from == FRAME_OWNER ? form->owner : form->lender))
		*why = "this side does not send it";
	else if (frame->bytes < HEAD)
		*why = "it is too short";
	else if (frame->bytes > TMEM_PEER_FRAME_MAX)
		*why = "it is too long";
	if (*why)
		return -1;
	if (len < frame->bytes)
		return 0;
	frame->part = bytes + HEAD;
	frame->parts = frame->bytes - (uint32_t)HEAD;
	frame->numbers = frame->part + form->fixed;
	*why = check(form, frame);
	return *why ? -1 : 1;
}

void frame_walk(const struct frame *frame, struct frame_walk *walk)
{
	*walk = (struct frame_walk){frame->part, frame->part + frame->count * ENTRY, frame->count};
}

bool frame_walk_next(struct frame_walk *walk, struct tmem_peer_entry *entry, const uint8_t **blob)
{
	if (!walk->left)
		return false;
	load_entry(walk->entry, entry);
	*blob = walk->blob;
	walk->entry += ENTRY;
	walk->blob += entry->len;
	walk->left--;
	return true;
}

uint64_t frame_number(const struct frame *frame, unsigned i)
{
	return load64(frame->numbers + 8 * (size_t)i);
}

#define FIELD32(type, field) load32(frame->part + offsetof(struct type, field))
#define FIELD64(type, field) load64(frame->part + offsetof(struct type, field))

void frame_hello(const struct frame *frame, struct tmem_peer_hello *hello)
{
	const uint8_t *part = frame->part;

	*hello = (struct tmem_peer_hello){
		.magic = FIELD64(tmem_peer_hello, magic),
		.version_min = load16(part + offsetof(struct tmem_peer_hello, version_min)),
		.version_max = load16(part + offsetof(struct tmem_peer_hello, version_max)),
		.features = FIELD64(tmem_peer_hello, features),
		.blob_max = FIELD32(tmem_peer_hello, blob_max),
		.batch = FIELD32(tmem_peer_hello, batch),
		.renew = FIELD32(tmem_peer_hello, renew),
		.window = FIELD32(tmem_peer_hello, window),
		.epoch = FIELD64(tmem_peer_hello, epoch),
		.session = FIELD64(tmem_peer_hello, session),
		.held = FIELD64(tmem_peer_hello, held),
		.leave_ms = FIELD32(tmem_peer_hello, leave_ms),
		.spare = FIELD64(tmem_peer_hello, spare),
	};
	memcpy(hello->uuid, part + offsetof(struct tmem_peer_hello, uuid), sizeof(hello->uuid));
	memcpy(hello->name, part + offsetof(struct tmem_peer_hello, name), TMEM_PEER_NAME);
}

void frame_range(const struct frame *frame, struct tmem_peer_range *range)
{
	range->first = FIELD64(tmem_peer_range, first);
	range->end = FIELD64(tmem_peer_range, end);
}

void frame_stat(const struct frame *frame, struct tmem_peer_stat *stat)
{
	stat->spare = FIELD64(tmem_peer_stat, spare);
	stat->held = FIELD64(tmem_peer_stat, held);
	stat->window = FIELD32(tmem_peer_stat, window);
	stat->leave_ms = FIELD32(tmem_peer_stat, leave_ms);
}

uint32_t frame_missing(const struct frame *frame)
{
	return FIELD32(tmem_peer_renewed, missing);
}

uint32_t frame_leave(const struct frame *frame)
{
	return FIELD32(tmem_peer_leave, deadline_ms);
}

void frame_error(const struct frame *frame, struct tmem_peer_error *error, char *text)
{
	uint32_t len = frame->parts - (uint32_t)sizeof(*error);

	error->code = FIELD32(tmem_peer_error, code);
	error->reserved = 0;
	error->ours = FIELD64(tmem_peer_error, ours);
	error->theirs = FIELD64(tmem_peer_error, theirs);
	for (uint32_t i = 0; i < len; i++) {
		uint8_t c = frame->part[sizeof(*error) + i];

		text[i] = c >= ' ' && c <= '~' ? (char)c : '?';
	}
	text[len] = '\0';
}

/* ---- Writing -------------------------------------------------------------------------------- */

static void store16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static void store32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static void store64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

void frame_make(struct frame_make *make, uint8_t *at, uint16_t type, uint64_t id)
{
	*make = (struct frame_make){at, HEAD, HEAD};
	store16(at + offsetof(struct tmem_peer_frame, type), type);
	store16(at + offsetof(struct tmem_peer_frame, count), 0);
	store64(at + offsetof(struct tmem_peer_frame, id), id);
}

/* The next n bytes, zeroed. */
static uint8_t *add(struct frame_make *make, size_t n)
{
	uint8_t *at = make->at + make->bytes;

	memset(at, 0, n);
	make->bytes += (uint32_t)n;
	return at;
}

void frame_make_entries(struct frame_make *make, uint16_t count)
{
	store16(make->at + offsetof(struct tmem_peer_frame, count), count);
	add(make, count * ENTRY);
}

uint8_t *frame_make_room(struct frame_make *make)
{
	return make->at + make->bytes;
}

void frame_make_filled(struct frame_make *make, const struct tmem_peer_entry *entry)
{
	uint8_t *at = make->at + make->entry;

	store64(at + offsetof(struct tmem_peer_entry, blob), entry->blob);
	store32(at + offsetof(struct tmem_peer_entry, tag), entry->tag);
	store16(at + offsetof(struct tmem_peer_entry, len), entry->len);
	store16(at + offsetof(struct tmem_peer_entry, status), entry->status);
	make->entry += ENTRY;
	make->bytes += entry->len;
}

void frame_make_entry(struct frame_make *make, const struct tmem_peer_entry *entry,
		      const void *blob)
{
	if (entry->len)
		memcpy(frame_make_room(make), blob, entry->len);
	frame_make_filled(make, entry);
}

void frame_make_numbers(struct frame_make *make, const uint64_t *numbers, uint16_t count)
{
	uint8_t *at = add(make, 8 * (size_t)count);

	store16(make->at + offsetof(struct tmem_peer_frame, count), count);
	for (unsigned i = 0; i < count; i++)
		store64(at + 8 * (size_t)i, numbers[i]);
}

void frame_make_hello(struct frame_make *make, const struct tmem_peer_hello *hello)
{
	uint8_t *at = add(make, sizeof(*hello));

	store64(at + offsetof(struct tmem_peer_hello, magic), hello->magic);
	store16(at + offsetof(struct tmem_peer_hello, version_min), hello->version_min);
	store16(at + offsetof(struct tmem_peer_hello, version_max), hello->version_max);
	store64(at + offsetof(struct tmem_peer_hello, features), hello->features);
	store32(at + offsetof(struct tmem_peer_hello, blob_max), hello->blob_max);
	store32(at + offsetof(struct tmem_peer_hello, batch), hello->batch);
	store32(at + offsetof(struct tmem_peer_hello, renew), hello->renew);
	store32(at + offsetof(struct tmem_peer_hello, window), hello->window);
	store64(at + offsetof(struct tmem_peer_hello, epoch), hello->epoch);
	store64(at + offsetof(struct tmem_peer_hello, session), hello->session);
	store64(at + offsetof(struct tmem_peer_hello, held), hello->held);
	store32(at + offsetof(struct tmem_peer_hello, leave_ms), hello->leave_ms);
	store64(at + offsetof(struct tmem_peer_hello, spare), hello->spare);
	memcpy(at + offsetof(struct tmem_peer_hello, uuid), hello->uuid, sizeof(hello->uuid));
	memcpy(at + offsetof(struct tmem_peer_hello, name), hello->name, TMEM_PEER_NAME);
}

void frame_make_range(struct frame_make *make, const struct tmem_peer_range *range)
{
	uint8_t *at = add(make, sizeof(*range));

	store64(at + offsetof(struct tmem_peer_range, first), range->first);
	store64(at + offsetof(struct tmem_peer_range, end), range->end);
}

void frame_make_stat(struct frame_make *make, const struct tmem_peer_stat *stat)
{
	uint8_t *at = add(make, sizeof(*stat));

	store64(at + offsetof(struct tmem_peer_stat, spare), stat->spare);
	store64(at + offsetof(struct tmem_peer_stat, held), stat->held);
	store32(at + offsetof(struct tmem_peer_stat, window), stat->window);
	store32(at + offsetof(struct tmem_peer_stat, leave_ms), stat->leave_ms);
}

void frame_make_missing(struct frame_make *make, uint32_t missing)
{
	store32(add(make, sizeof(struct tmem_peer_renewed)) +
			offsetof(struct tmem_peer_renewed, missing),
		missing);
}

void frame_make_leave(struct frame_make *make, uint32_t deadline_ms)
{
	store32(add(make, sizeof(struct tmem_peer_leave)) +
			offsetof(struct tmem_peer_leave, deadline_ms),
		deadline_ms);
}

void frame_make_error(struct frame_make *make, const struct tmem_peer_error *error,
		      const char *text)
{
	uint8_t *at = add(make, sizeof(*error));
	size_t len = strnlen(text, TMEM_PEER_TEXT);

	store32(at + offsetof(struct tmem_peer_error, code), error->code);
	store64(at + offsetof(struct tmem_peer_error, ours), error->ours);
	store64(at + offsetof(struct tmem_peer_error, theirs), error->theirs);
	memcpy(add(make, len), text, len);
}

uint32_t frame_make_end(struct frame_make *make)
{
	store32(make->at + offsetof(struct tmem_peer_frame, bytes), make->bytes);
	return make->bytes;
}
