// SPDX-License-Identifier: GPL-2.0-or-later
/* The record of a disk: the note of its client in the arena, set at once or not at all. */
#include "disk_priv.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

/* "disk": where the notes of clients with rings have their version. */
#define NOTE_KIND 0x6b736964u
#define NOTE_VERSION 1

/* Kind, check and version stay where they are in each version to come. */
struct note {
	uint32_t kind;
	uint32_t check; /* XXH32 of the whole note, with 0 here */
	uint32_t version;
	uint32_t pool;
	uint64_t instance;
	uint64_t bytes;
	uint64_t flags;
	uint32_t queues;
	uint32_t socket_mode;
	uint32_t socket_uid;
	uint32_t socket_gid;
	char socket[112]; /* with at least one final zero */
};

_Static_assert(sizeof(struct note) == 168, "the note has no holes");
_Static_assert(sizeof(struct note) <= STORE_MAX_NOTE, "the note fits its record");
_Static_assert(sizeof(((struct note *)0)->socket) >= sizeof(((struct front_disk_known *)0)->socket),
	       "any socket's path fits the note");

static uint32_t note_check(const struct note *note)
{
	struct note copy = *note;

	copy.check = 0;
	return XXH32(&copy, sizeof(copy), 0);
}

static bool in_order(const struct note *note)
{
	return note->bytes && note->bytes % DISK_BLOCK == 0 && note->bytes <= FRONT_DISK_MAX &&
	       note->queues && note->queues <= FRONT_DISK_QUEUES &&
	       note->pool < STORE_MAX_CLIENT_POOLS;
}

int disk_record_read(const struct store_client *client, struct disk_record *record)
{
	uint8_t bytes[STORE_MAX_NOTE] = {0};
	int len = store_client_note(client, bytes, sizeof(bytes));
	struct note note;

	if (!len)
		return 0;
	memcpy(&note, bytes, sizeof(note));
	if (note.kind != NOTE_KIND)
		return -EPROTO;
	if (note.version != NOTE_VERSION)
		return -EPROTO;
	if (len != sizeof(note) || note.check != note_check(&note) || !in_order(&note))
		return -EBADMSG;
	*record = (struct disk_record){
		.known = {.bytes = note.bytes,
			  .queues = note.queues,
			  .flags = note.flags,
			  .socket_mode = note.socket_mode,
			  .socket_uid = note.socket_uid,
			  .socket_gid = note.socket_gid},
		.instance = note.instance,
		.pool = note.pool,
	};
	memcpy(record->known.socket, note.socket, sizeof(record->known.socket) - 1);
	return 1;
}

void disk_record_write(struct store_client *client, const struct disk_record *record)
{
	struct note note = {
		.kind = NOTE_KIND,
		.version = NOTE_VERSION,
		.pool = record->pool,
		.instance = record->instance,
		.bytes = record->known.bytes,
		.flags = record->known.flags,
		.queues = record->known.queues,
		.socket_mode = record->known.socket_mode,
		.socket_uid = record->known.socket_uid,
		.socket_gid = record->known.socket_gid,
	};

	memcpy(note.socket, record->known.socket, sizeof(record->known.socket));
	note.check = note_check(&note);
	store_client_set_note(client, &note, sizeof(note));
}

bool front_disk_known(const struct store_client *client, struct front_disk_known *known)
{
	struct disk_record record;

	if (disk_record_read(client, &record) != 1)
		return false;
	*known = record.known;
	return true;
}

bool front_disk_damaged(const struct store_client *client)
{
	struct disk_record record;

	return disk_record_read(client, &record) == -EBADMSG;
}
