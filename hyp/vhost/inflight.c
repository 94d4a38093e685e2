// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The in-flight record: memory that the front end keeps while we are dead, in the layout of the
 * specification: a region for each queue, here with only the fields that in-order completion needs.
 *
 * A completion on a packed ring is three stores: the record says where it will end (intend), the
 * flags of the descriptor publish it, the record says that it is done (settle). The record's four
 * fields are one word and are stored at once, so that a death between any two instructions leaves a
 * state that tells which it was: if the descriptor is still as the driver made it available, it was
 * not published. (It can be available again when it was: the driver, which lives on, may have used
 * the place for its next lap. The wrap counters tell these two apart.)
 *
 * Behind the regions stands which content of the device the record belongs to. When the service has
 * lost a content (its arena went with the host, say) and made a new one, a guest that is still
 * there must not go on: what it wrote would read as zeroes.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

#define RECORD_VERSION 1

/* What the specification calls QueueRegionSplit; 16 bytes for each descriptor follow. */
struct record_split {
	uint64_t features;
	uint16_t version; /* 0: not in use */
	uint16_t desc_num;
	uint16_t last_batch_head;
	uint16_t used_idx;
};

union packed_word {
	struct {
		uint16_t used_idx;
		uint16_t old_used_idx;
		uint8_t used_wrap_counter;
		uint8_t old_used_wrap_counter;
		uint8_t padding[2];
	};
	uint64_t whole;
};

/* QueueRegionPacked; 32 bytes for each descriptor follow. */
struct record_packed {
	uint64_t features;
	uint16_t version;
	uint16_t desc_num;
	uint16_t free_head;
	uint16_t old_free_head;
	union packed_word word;
	uint8_t padding[8];
};

_Static_assert(sizeof(struct record_split) == 16 && sizeof(struct record_packed) == 32 &&
		       offsetof(struct record_packed, word) == 16,
	       "as the specification lays them out");

/* The last 16 bytes. */
struct tail {
	uint64_t magic;
	uint64_t instance;
};
#define TAIL_MAGIC 0x6b736944646d6574ull /* "temdDisk" */

static uint64_t region_bytes(const struct vhost *vhost, uint16_t queue_size)
{
	return has_feature(vhost, VIRTIO_F_RING_PACKED)
		       ? sizeof(struct record_packed) + 32ull * queue_size
		       : sizeof(struct record_split) + 16ull * queue_size;
}

static uint64_t all_bytes(const struct vhost *vhost, const struct wire_inflight *inflight)
{
	return inflight->queues * region_bytes(vhost, inflight->queue_size) + sizeof(struct tail);
}

static bool sizes_possible(const struct vhost *vhost, const struct wire_inflight *inflight)
{
	return inflight->queues && inflight->queues <= vhost->device.max_queues &&
	       inflight->queue_size && inflight->queue_size <= VHOST_MAX_RING;
}

/* ---- Giving one out ------------------------------------------------------------------------- */

/* Sealed: nobody can cut it under us when it comes back. -1: errno says why. */
static int make_file(const struct vhost *vhost, uint64_t bytes)
{
	struct tail tail = {.magic = TAIL_MAGIC, .instance = vhost->device.instance};
	int fd = memfd_create("tmemd-inflight", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)bytes) &&
	    pwrite(fd, &tail, sizeof(tail), (off_t)(bytes - sizeof(tail))) == sizeof(tail) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return fd;
	close(fd);
	return -1;
}

int handle_get_inflight_fd(struct vhost *vhost, struct message *m)
{
	struct wire_inflight *inflight = &m->payload.inflight;
	int fd, r;

	if (!sizes_possible(vhost, inflight))
		return message_refuse(vhost, "%u queues of %u descriptors cannot be recorded",
				      inflight->queues, inflight->queue_size);
	inflight->bytes = all_bytes(vhost, inflight);
	inflight->offset = 0;
	fd = make_file(vhost, inflight->bytes);
	if (fd < 0)
		return message_refuse(vhost, "no memory for the record: %s", strerror(errno));
	r = session_reply(vhost, inflight, m->header.size, fd);
	close(fd);
	return r;
}

/* ---- Getting one back ----------------------------------------------------------------------- */

static uint64_t mapped_bytes(const struct vhost *vhost)
{
	return vhost->inflight_is.bytes;
}

static struct tail *tail(const struct vhost *vhost)
{
	return (struct tail *)(vhost->inflight.base + mapped_bytes(vhost) - sizeof(struct tail));
}

void *inflight_record(struct vhost *vhost, unsigned queue)
{
	const struct wire_inflight *is = &vhost->inflight_is;

	/* The layout may have changed since the record came. */
	if (!vhost->inflight.base || queue >= is->queues || all_bytes(vhost, is) > is->bytes)
		return NULL;
	return vhost->inflight.base + queue * region_bytes(vhost, is->queue_size);
}

bool inflight_in_use(const void *record)
{
	const struct record_split *r = record; /* both begin alike */

	return LOAD_ACQUIRE(r->version) == RECORD_VERSION;
}

static bool any_in_use(struct vhost *vhost)
{
	for (unsigned i = 0; i < vhost->inflight_is.queues; i++) {
		const void *record = inflight_record(vhost, i);

		if (record && inflight_in_use(record))
			return true;
	}
	return false;
}

int inflight_check(struct vhost *vhost)
{
	struct tail *t;

	if (!vhost->inflight.base)
		return 0;
	t = tail(vhost);
	if (any_in_use(vhost) && (READ_ONCE(t->magic) != TAIL_MAGIC ||
				  READ_ONCE(t->instance) != vhost->device.instance)) {
		inflight_close(vhost);
		return session_fail(vhost, -ESTALE,
				    "the guest was using this device before its content was lost "
				    "and made anew; restart the guest");
	}
	WRITE_ONCE(t->magic, TAIL_MAGIC);
	WRITE_ONCE(t->instance, vhost->device.instance);
	return 0;
}

static bool any_running(const struct vhost *vhost)
{
	for (unsigned i = 0; i < vhost->device.max_queues; i++)
		if (vhost->queues[i].running)
			return true;
	return false;
}

/* Without a record a guest lives as well; it is only not safe from our death. */
static bool is_too_small(const struct vhost *vhost, const struct wire_inflight *inflight)
{
	if (inflight->bytes >= all_bytes(vhost, inflight))
		return false;
	log_limited(LOG_NOTE, "%s: an in-flight record of %llu bytes is too small and not used",
		    vhost->device.name, (unsigned long long)inflight->bytes);
	return true;
}

const char *inflight_open(struct vhost *vhost, const struct wire_inflight *inflight, int fd)
{
	const char *why = NULL;

	if (fd < 0)
		return "no file came with it";
	if (!sizes_possible(vhost, inflight) || inflight->offset % 16 || inflight->bytes % 16) {
		close(fd);
		return "its sizes are impossible";
	}
	inflight_close(vhost);
	if (is_too_small(vhost, inflight))
		close(fd);
	else
		why = mapping_open(&vhost->inflight, fd, inflight->offset, inflight->bytes);
	if (!why)
		vhost->inflight_is = *inflight;
	return why;
}

int handle_set_inflight_fd(struct vhost *vhost, struct message *m)
{
	const char *why = "a queue is running";

	if (!any_running(vhost))
		why = inflight_open(vhost, &m->payload.inflight, message_take_fd(m, 0));
	return why ? message_refuse(vhost, "the in-flight record cannot be used: %s", why)
		   : inflight_check(vhost);
}

void inflight_close(struct vhost *vhost)
{
	for (unsigned i = 0; i < VHOST_MAX_QUEUES; i++)
		vhost->queues[i].record = NULL;
	vhost->lost |= mapping_close(&vhost->inflight);
}

/* ---- Split rings ---------------------------------------------------------------------------- */

void inflight_split_begin(struct vhost *vhost, struct queue *queue)
{
	struct record_split *record = queue->record;

	if (!record)
		return;
	WRITE_ONCE(record->desc_num, vhost->inflight_is.queue_size);
	STORE_RELEASE(record->version, (uint16_t)RECORD_VERSION);
}

void inflight_split_used(struct queue *queue, uint16_t used)
{
	struct record_split *record = queue->record;

	if (record)
		WRITE_ONCE(record->used_idx, used);
}

/* ---- Packed rings --------------------------------------------------------------------------- */

bool inflight_packed_find(struct queue *queue, struct position *at,
			  bool (*available)(const struct queue *queue, struct position at))
{
	struct record_packed *record = queue->record;
	struct position intended, old;
	union packed_word word;

	if (!record || !inflight_in_use(record))
		return false;
	word.whole = READ_ONCE(record->word.whole);
	intended = (struct position){word.used_idx, word.used_wrap_counter & 1};
	old = (struct position){word.old_used_idx, word.old_used_wrap_counter & 1};
	*at = old;
	if (old.index < queue->num && !position_same(intended, old) && !available(queue, old))
		*at = intended; /* it was published */
	return true;
}

static void store_word(struct record_packed *record, struct position intended, struct position old)
{
	union packed_word word = {.used_idx = intended.index,
				  .old_used_idx = old.index,
				  .used_wrap_counter = intended.wrap,
				  .old_used_wrap_counter = old.wrap};

	STORE_RELEASE(record->word.whole, word.whole);
}

void inflight_packed_begin(struct vhost *vhost, struct queue *queue, struct position at)
{
	struct record_packed *record = queue->record;

	if (!record)
		return;
	WRITE_ONCE(record->desc_num, vhost->inflight_is.queue_size);
	store_word(record, at, at);
	STORE_RELEASE(record->version, (uint16_t)RECORD_VERSION);
}

void inflight_packed_intend(struct queue *queue, struct position from, struct position to)
{
	if (queue->record)
		store_word(queue->record, to, from);
}

/* Not before the flags: the release of store_word() sees to that. */
void inflight_packed_settle(struct queue *queue, struct position to)
{
	if (queue->record)
		store_word(queue->record, to, to);
}
