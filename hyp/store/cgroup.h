/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Control groups that limit the memory of this process.
 *
 * Why: at its group's limit an allocation of ours would not fail. The kernel would look for a
 * victim in the group, find the service (often nobody else is in it), and kill it, although that
 * frees nothing, because the arena stays. So the pool ends a little below the limit, as it does
 * below host_reserve.
 *
 * A limit is memory.max or memory.high (cgroup v2; above `high` the kernel makes the one who
 * allocates sleep) or memory.limit_in_bytes (v1), of our own group and of each one above it.
 */
#ifndef TMEMD_STORE_CGROUP_H
#define TMEMD_STORE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#define CGROUP_LEVELS 16

struct cgroup {
	unsigned nr;
	struct cgroup_level {
		int usage, stat;
		int limits[2]; /* -1: there is none */
		bool low;
	} levels[CGROUP_LEVELS];
	const char *file_key; /* of memory.stat */
};

struct cgroup_room {
	uint64_t limit; /* lowest limit; UINT64_MAX: none */
	uint64_t grow;	/* bytes that may be taken so that the reserve stays */
	bool low;	/* less than half of a reserve is left; until three quarters are */
};

/* Finds the groups; `proc` is /proc/self. Without any everything below says so. */
void cgroup_open(struct cgroup *cg, const char *proc);
void cgroup_close(struct cgroup *cg);

/* Limits and use as they are now. One thread at a time. */
void cgroup_look(struct cgroup *cg, struct cgroup_room *room);

/* Bytes to the nearest limit, without a reserve; UINT64_MAX: there is no limit. Any thread. */
uint64_t cgroup_left(const struct cgroup *cg);

/*
 * The number behind `key`, after `line`, in a small file of the kernel's, read from its beginning;
 * false when there is none. An empty line and key: the file is a number.
 */
bool read_number(int fd, const char *line, const char *key, uint64_t *value);

#endif
