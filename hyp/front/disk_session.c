// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A front end's connection outlives this process: the service manager's fd store holds it, with all
 * that was said on it and all files that came with that. The next process goes on, and the front
 * end sees nothing.
 *
 * That is up to a hundred descriptors for a disk, and what they are for has to be known: the record
 * (what vhost_save() tells) and the descriptors must be of the same moment. So both are one message
 * in the queue of a pair of sockets, the box, and only the box is in the fd store. A kill finds the
 * message there or not, never a part of it, nor one with the descriptors of another.
 *
 * The message is taken out before a byte is read from the connection, and a new one is put in after
 * the answer was sent. So a box with a message tells the truth. An empty one was left by a process
 * that died while it read or answered: nobody knows what the front end waits for then. Such a
 * session is closed, as it is when anything of it is missing or damaged; the front end connects
 * again, if it can. Between messages, i.e. nearly always, a guest that is up is safe from that.
 *
 * Without a service manager, or when its store is full, nobody holds the box: it goes with this
 * process, and the connection with it.
 */
#include "disk_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/log.h"

/* "dses" */
#define NOTE_KIND 0x73657364u
#define NOTE_VERSION 1

/* Kind, check and version stay where they are in each version to come. */
struct note {
	uint32_t kind;
	uint32_t check; /* XXH32 of the whole note, with 0 here */
	uint32_t version;
	uint32_t writeback; /* as the driver set it; 0 or 1 */
	uint8_t vhost[VHOST_SAVED_BYTES];
};

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int) * VHOST_SAVED_FDS)];
};

static uint32_t note_check(const struct note *note)
{
	struct note copy = *note;

	copy.check = 0;
	return XXH32(&copy, sizeof(copy), 0);
}

/* ---- The box -------------------------------------------------------------------------------- */

/* False: errno says why not. */
static bool put(const int box[2], const struct note *note, const struct vhost_saved *saved)
{
	union control control = {0};
	struct iovec iov = {.iov_base = (void *)note, .iov_len = sizeof(*note)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(sizeof(int) * saved->nr_fds)};

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int) * saved->nr_fds);
	memcpy(CMSG_DATA(&control.align), saved->fds, sizeof(int) * saved->nr_fds);
	return sendmsg(box[0], &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*note);
}

/*
 * What is in it, which stays there; with descriptors of our own. The bytes of the note, 0 when
 * there is none.
 */
static size_t look(const int box[2], struct note *note, struct vhost_saved *saved)
{
	union control control;
	struct iovec iov = {.iov_base = note, .iov_len = sizeof(*note)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(box[1], &msg, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	saved->nr_fds = 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		saved->nr_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(saved->fds, CMSG_DATA(c), saved->nr_fds * sizeof(int));
	}
	return n > 0 ? (size_t)n : 0;
}

static void empty(const int box[2])
{
	char byte;

	while (recv(box[1], &byte, sizeof(byte), MSG_DONTWAIT) > 0)
		;
}

static void close_box(struct disk *disk)
{
	for (unsigned i = 0; i < 2; i++) {
		if (disk->box[i] >= 0)
			close(disk->box[i]);
		disk->box[i] = -1;
	}
}

/* ---- While it lives ------------------------------------------------------------------------- */

void disk_session_begin(struct disk *disk)
{
	if (!fdstore_is_there())
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, disk->box)) {
		disk->box[0] = disk->box[1] = -1;
		log_limited(LOG_WARN,
			    "disk %s: its front end's connection will not outlive this process: %s",
			    disk->name, strerror(errno));
		return;
	}
	fdstore_keep_pair(disk->name, disk->box);
	fault(FAULT_SESSION_KEPT);
	disk_session_record(disk);
}

void disk_session_forget(struct disk *disk)
{
	if (disk->box[0] < 0)
		return;
	empty(disk->box);
	fault(FAULT_SESSION_FORGOTTEN);
}

void disk_session_record(struct disk *disk)
{
	struct vhost_saved saved;
	struct note note = {.kind = NOTE_KIND,
			    .version = NOTE_VERSION,
			    .writeback = atomic_load(&disk->writeback)};

	if (disk->box[0] < 0)
		return;
	fault(FAULT_SESSION_ANSWERED);
	if (!vhost_save(disk->vhost, &saved))
		return;
	memcpy(note.vhost, saved.bytes, sizeof(note.vhost));
	note.check = note_check(&note);
	if (!put(disk->box, &note, &saved))
		log_limited(LOG_WARN,
			    "disk %s: its front end's connection cannot be recorded and will not "
			    "outlive this process: %s",
			    disk->name, strerror(errno));
	fault(FAULT_SESSION_RECORDED);
}

void disk_session_end(struct disk *disk)
{
	if (disk->box[0] < 0)
		return;
	empty(disk->box);
	fault(FAULT_SESSION_ENDED);
	fdstore_forget_pair(disk->name);
	close_box(disk);
}

void disk_session_leave(struct disk *disk)
{
	close_box(disk);
}

/* ---- The next process ----------------------------------------------------------------------- */

/* NULL, or what is wrong with it. */
static const char *check(const struct note *note, size_t bytes)
{
	if (!bytes)
		return "the former process died while it read or answered a message";
	if (bytes < offsetof(struct note, writeback) || note->kind != NOTE_KIND)
		return "what was recorded is damaged";
	if (note->version != NOTE_VERSION)
		return "another release recorded it";
	if (bytes != sizeof(*note) || note->check != note_check(note) || note->writeback > 1)
		return "what was recorded is damaged";
	return NULL;
}

int disk_session_take(struct disk *disk, const struct vhost_device *device, struct vhost **vhost,
		      char *err, size_t errlen)
{
	struct vhost_saved saved;
	struct note note = {0};
	const char *why;
	int r;

	*vhost = NULL;
	if (!fdstore_take_pair(disk->name, disk->box))
		return 0;
	why = check(&note, look(disk->box, &note, &saved));
	if (why) {
		while (saved.nr_fds)
			close(saved.fds[--saved.nr_fds]);
		snprintf(err, errlen, "%s", why);
		return -EPROTO;
	}
	memcpy(saved.bytes, note.vhost, sizeof(saved.bytes));
	r = vhost_restore(vhost, device, &saved, err, errlen);
	if (!r)
		atomic_store(&disk->writeback, (uint8_t)note.writeback);
	return r;
}
