// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A session as plain data and a list of files, in which the next process finds it.
 *
 * What the front end said is there; what the rings say is not. A split ring says itself where it
 * is, of a packed one the in-flight record does, and without that nobody can go on with it. (The
 * position at the time of saving would be older than the last completions: requests would be
 * executed and completed twice.)
 *
 * The files are in the order in which struct saved speaks of them: connection, backend, log,
 * in-flight record, memory, and of each queue kick, call, error; those that are not there are left
 * out.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVED_VERSION 1

struct saved_queue {
	struct vhost_vring_addr addr;
	uint32_t num;
	uint32_t base;
	uint8_t addressed, based, kickable, enabled, broken;
	uint8_t running;
	uint8_t kick, call, error; /* there is an eventfd */
	uint8_t padding[7];
};

/* Flags are 0 or 1. */
struct saved {
	uint32_t version;
	uint32_t nr_queues; /* of the device */
	uint64_t instance;
	uint64_t features;
	uint64_t protocol;
	uint64_t log_bytes;
	uint64_t log_offset;
	struct wire_inflight inflight_is;
	uint32_t nr_slots;
	uint8_t status;
	uint8_t refused;
	uint8_t backend, log, inflight; /* there is a file */
	uint8_t padding[7];
	struct saved_queue queues[VHOST_MAX_QUEUES];
	struct wire_region slots[VHOST_MAX_SLOTS];
};

_Static_assert(sizeof(struct saved_queue) == 64 &&
		       sizeof(struct saved) == 88 + 64 * VHOST_MAX_QUEUES + 32 * VHOST_MAX_SLOTS,
	       "no holes");
_Static_assert(sizeof(struct saved) <= VHOST_SAVED_BYTES, "it fits");

/* ---- Saving --------------------------------------------------------------------------------- */

/* 1 when there is one. */
static uint8_t add_fd(struct vhost_saved *out, int fd)
{
	if (fd < 0)
		return 0;
	out->fds[out->nr_fds++] = fd;
	return 1;
}

static uint8_t add_mapping(struct vhost_saved *out, const struct mapping *mapping)
{
	return add_fd(out, mapping->base ? mapping->fd : -1);
}

static void save_memory(const struct memory *memory, struct saved *s, struct vhost_saved *out)
{
	s->nr_slots = memory->nr;
	for (unsigned i = 0; i < memory->nr; i++) {
		s->slots[i] = memory->slots[i].at;
		add_mapping(out, &memory->slots[i].mapping);
	}
}

static void save_queue(const struct queue *queue, struct saved_queue *s, struct vhost_saved *out)
{
	*s = (struct saved_queue){
		.addr = queue->addr,
		.num = queue->num,
		.base = queue->base,
		.addressed = queue->addressed,
		.based = queue->based,
		.kickable = queue->kickable,
		.enabled = queue->enabled,
		.broken = queue->broken,
		.running = queue->running,
		.kick = add_fd(out, queue->kick),
		.call = add_fd(out, queue->call),
		.error = add_fd(out, queue->error),
	};
}

bool vhost_save(const struct vhost *vhost, struct vhost_saved *out)
{
	struct saved s = {
		.version = SAVED_VERSION,
		.nr_queues = vhost->device.max_queues,
		.instance = vhost->device.instance,
		.features = vhost->features,
		.protocol = vhost->protocol,
		.log_bytes = vhost->log_bytes,
		.log_offset = vhost->log_offset,
		.inflight_is = vhost->inflight_is,
		.status = vhost->status,
		.refused = vhost->refused,
	};

	if (vhost->in.have || vhost_lost(vhost))
		return false;
	out->nr_fds = 0;
	add_fd(out, vhost->connection);
	s.backend = add_fd(out, vhost->backend);
	s.log = add_mapping(out, &vhost->log);
	s.inflight = add_mapping(out, &vhost->inflight);
	save_memory(&vhost->memory, &s, out);
	for (unsigned i = 0; i < s.nr_queues; i++)
		save_queue(&vhost->queues[i], &s.queues[i], out);
	memset(out->bytes, 0, sizeof(out->bytes));
	memcpy(out->bytes, &s, sizeof(s));
	return true;
}

/* ---- Restoring ------------------------------------------------------------------------------ */

struct files {
	const int *fds;
	unsigned nr, next;
};

static int next_fd(struct files *files, bool is_there)
{
	return is_there ? files->fds[files->next++] : -1;
}

static void close_rest(struct files *files)
{
	while (files->next < files->nr)
		close(files->fds[files->next++]);
}

static unsigned files_wanted(const struct saved *s)
{
	unsigned n = 1u + s->nr_slots + !!s->backend + !!s->log + !!s->inflight;

	for (unsigned i = 0; i < s->nr_queues; i++)
		n += (unsigned)!!s->queues[i].kick + !!s->queues[i].call + !!s->queues[i].error;
	return n;
}

/* NULL, or why it cannot be gone on with, before anything of it is used. */
static const char *check(const struct vhost_device *device, const struct saved *s, unsigned nr_fds)
{
	if (s->version != SAVED_VERSION)
		return "another release saved it";
	if (s->nr_queues != device->max_queues || s->nr_slots > VHOST_MAX_SLOTS)
		return "what was saved is damaged";
	if (files_wanted(s) != nr_fds)
		return "not all of its files are there";
	for (unsigned i = 0; i < s->nr_queues; i++)
		if (s->queues[i].num > VHOST_MAX_RING)
			return "what was saved is damaged";
	return NULL;
}

static const char *restore_features(struct vhost *vhost, const struct saved *s)
{
	vhost->features = s->features;
	vhost->protocol = s->protocol;
	vhost->refused = s->refused;
	vhost->status = s->status;
	return s->features & ~message_offered(vhost) || s->protocol & ~message_protocol_offered
		       ? "it has features that this release does not offer"
		       : NULL;
}

static const char *restore_files(struct vhost *vhost, const struct saved *s, struct files *files)
{
	const char *why = NULL;

	vhost->backend = next_fd(files, s->backend);
	if (!session_is_unix_socket(vhost->connection) ||
	    (vhost->backend >= 0 && !session_is_unix_socket(vhost->backend)))
		return "what was saved is damaged";
	if (s->log)
		why = dirty_open(vhost, s->log_offset, s->log_bytes, next_fd(files, true));
	if (!why && s->inflight)
		why = inflight_open(vhost, &s->inflight_is, next_fd(files, true));
	for (unsigned i = 0; i < s->nr_slots && !why; i++)
		why = memory_add(&vhost->memory, &s->slots[i], next_fd(files, true));
	return why;
}

/* Whether it can be found where a queue was that ran. */
static bool has_position(struct vhost *vhost, unsigned queue)
{
	const void *record = inflight_record(vhost, queue);

	return !has_feature(vhost, VIRTIO_F_RING_PACKED) || (record && inflight_in_use(record));
}

static const char *restore_queue(struct vhost *vhost, unsigned index, const struct saved_queue *s,
				 struct files *files)
{
	struct queue *queue = &vhost->queues[index];

	queue->addr = s->addr;
	queue->num = s->num;
	queue->base = s->base;
	queue->addressed = s->addressed;
	queue->based = s->based && !s->running;
	queue->kickable = s->kickable;
	queue->enabled = s->enabled;
	queue->broken = s->broken;
	queue_set_kick(vhost, queue, next_fd(files, s->kick));
	queue->call = next_fd(files, s->call);
	queue->error = next_fd(files, s->error);
	return s->running && !has_position(vhost, index)
		       ? "it has a packed ring and no in-flight record that says where that was"
		       : NULL;
}

static const char *run(struct vhost *vhost, const struct saved *s)
{
	queues_update(vhost);
	for (unsigned i = 0; i < s->nr_queues; i++) {
		struct queue *queue = &vhost->queues[i];

		if (queue->running)
			dirty_ring(vhost, queue);
		else if (s->queues[i].running && !queue->broken)
			return "the ring of a queue that ran is gone";
	}
	return NULL;
}

static const char *restore_queues(struct vhost *vhost, const struct saved *s, struct files *files)
{
	const char *why = NULL;

	for (unsigned i = 0; i < s->nr_queues && !why; i++)
		why = restore_queue(vhost, i, &s->queues[i], files);
	return why ? why : run(vhost, s);
}

/* 0, or a negated errno with the sentence. */
static int restore(struct vhost *vhost, const struct saved *s, struct files *files)
{
	const char *why = check(&vhost->device, s, files->nr);
	int r;

	if (!why && s->instance != vhost->device.instance)
		return session_fail(vhost, -ESTALE,
				    "the guest was using this device before its content was lost "
				    "and made anew; restart the guest");
	if (!why)
		why = restore_features(vhost, s);
	if (!why)
		why = restore_files(vhost, s, files);
	r = why ? 0 : inflight_check(vhost);
	if (r)
		return r;
	if (!why)
		why = restore_queues(vhost, s, files);
	return why ? session_fail(vhost, -EPROTO, "%s", why) : 0;
}

int vhost_restore(struct vhost **vhost, const struct vhost_device *device,
		  const struct vhost_saved *saved, char *err, size_t errlen)
{
	struct files files = {.fds = saved->fds, .nr = saved->nr_fds};
	struct vhost *v = NULL;
	struct saved s;
	int r = -EPROTO;

	memcpy(&s, saved->bytes, sizeof(s));
	snprintf(err, errlen, "its connection was not kept");
	if (files.nr)
		r = vhost_open(&v, device, files.fds[0]);
	if (!r) {
		files.next = 1;
		v->err = err;
		v->errlen = errlen;
		r = restore(v, &s, &files);
	} else if (r == -ENOMEM) {
		snprintf(err, errlen, "out of memory");
	}
	close_rest(&files);
	if (r)
		vhost_close(v);
	*vhost = r ? NULL : v;
	return r;
}
