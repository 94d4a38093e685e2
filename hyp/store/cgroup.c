// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What stays free below a limit: 1/16 of it, within these. */
#define RESERVE_LEAST (8ull << 20)
#define RESERVE_MOST (256ull << 20)
/* v1 has no word for "none", only a large number. */
#define NO_LIMIT (1ull << 60)

bool read_number(int fd, const char *line, const char *key, uint64_t *value)
{
	char text[8192], *at, *end;
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = 0;
	at = strstr(text, line);
	at = at ? strstr(at, key) : NULL;
	if (!at)
		return false;
	*value = strtoull(at + strlen(key), &end, 10);
	return end != at + strlen(key);
}

/* ---- Finding them --------------------------------------------------------------------------- */

/* The path of our group in the hierarchy that controls memory; `v2` says which kind it is. */
static bool own_path(const char *proc, char path[256], bool *v2)
{
	char name[300], line[1024], *controllers, *at;
	bool found = false;
	FILE *f;

	snprintf(name, sizeof(name), "%s/cgroup", proc);
	f = fopen(name, "re");
	/* hierarchy:controllers:path; "0::path" is v2's. With both, v1 has the controller. */
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		controllers = strchr(line, ':');
		at = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!at)
			continue;
		*at++ = 0;
		if (!strncmp(line, "0:", 2) ? found : !strstr(controllers + 1, "memory"))
			continue;
		found = true;
		*v2 = !strncmp(line, "0:", 2);
		snprintf(path, 256, "%s", at);
		if (!*v2)
			break;
	}
	if (f)
		fclose(f);
	return found;
}

/* Where that hierarchy is mounted, and which part of it is seen there. */
static bool mount_of(const char *proc, bool v2, char root[256], char dir[256])
{
	char name[300], line[2048], type[32], super[1024];
	bool found = false;
	FILE *f;

	snprintf(name, sizeof(name), "%s/mountinfo", proc);
	f = fopen(name, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(rest, " - %31s %*s %1023s", type, super) != 2 ||
		    sscanf(line, "%*s %*s %*s %255s %255s", root, dir) != 2)
			continue;
		found = v2 ? !strcmp(type, "cgroup2")
			   : !strcmp(type, "cgroup") && strstr(super, "memory");
	}
	if (f)
		fclose(f);
	return found;
}

static int open_in(const char *dir, const char *file)
{
	char path[640];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void add_level(struct cgroup *cg, const char *dir, bool v2)
{
	struct cgroup_level *level = &cg->levels[cg->nr];

	level->usage = open_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
	if (level->usage < 0)
		return; /* the root has none */
	level->stat = open_in(dir, "memory.stat");
	level->limits[0] = open_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
	level->limits[1] = v2 ? open_in(dir, "memory.high") : -1;
	level->low = false;
	cg->nr++;
}

void cgroup_open(struct cgroup *cg, const char *proc)
{
	char path[256], root[256], dir[256], full[600];
	const char *below = path;
	bool v2;

	cg->nr = 0;
	if (!own_path(proc, path, &v2) || !mount_of(proc, v2, root, dir))
		return;
	cg->file_key = v2 ? "\ninactive_file " : "\ntotal_inactive_file ";
	/* A container may see a part of the tree only. */
	if (strcmp(root, "/") && !strncmp(path, root, strlen(root)))
		below = path + strlen(root);
	snprintf(full, sizeof(full), "%s%s", dir, strcmp(below, "/") ? below : "");
	while (cg->nr < CGROUP_LEVELS && strlen(full) >= strlen(dir)) {
		add_level(cg, full, v2);
		*strrchr(full, '/') = 0;
	}
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void cgroup_close(struct cgroup *cg)
{
	for (unsigned i = 0; i < cg->nr; i++) {
		close_fd(cg->levels[i].usage);
		close_fd(cg->levels[i].stat);
		close_fd(cg->levels[i].limits[0]);
		close_fd(cg->levels[i].limits[1]);
	}
	cg->nr = 0;
}

/* ---- Looking -------------------------------------------------------------------------------- */

static uint64_t at_least(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t reserve_of(uint64_t limit)
{
	return at_most(at_least(limit / 16, RESERVE_LEAST), RESERVE_MOST);
}

static uint64_t limit_of(const struct cgroup_level *level)
{
	uint64_t limit = UINT64_MAX, value;

	/* "max" is no number. */
	for (int i = 0; i < 2; i++)
		if (read_number(level->limits[i], "", "", &value))
			limit = at_most(limit, value);
	return limit < NO_LIMIT ? limit : UINT64_MAX;
}

/* Bytes to the limit. */
static uint64_t left_to(const struct cgroup *cg, const struct cgroup_level *level, uint64_t limit)
{
	uint64_t used, cache, left;

	if (limit == UINT64_MAX || !read_number(level->usage, "", "", &used))
		return UINT64_MAX;
	left = limit > used ? limit - used : 0;
	/* Cached files give way; asked only when it matters, because adding it up takes time. */
	if (left < 2 * reserve_of(limit) &&
	    read_number(level->stat, cg->file_key, cg->file_key, &cache))
		left = at_most(left + cache, limit);
	return left;
}

void cgroup_look(struct cgroup *cg, struct cgroup_room *room)
{
	*room = (struct cgroup_room){.limit = UINT64_MAX, .grow = UINT64_MAX};
	for (unsigned i = 0; i < cg->nr; i++) {
		struct cgroup_level *level = &cg->levels[i];
		uint64_t limit = limit_of(level), left = left_to(cg, level, limit), reserve;

		if (left == UINT64_MAX) {
			level->low = false;
			continue;
		}
		reserve = reserve_of(limit);
		level->low = left < reserve / 2 || (level->low && left < reserve / 4 * 3);
		room->low |= level->low;
		room->limit = at_most(room->limit, limit);
		room->grow = at_most(room->grow, left > reserve ? left - reserve : 0);
	}
}

uint64_t cgroup_left(const struct cgroup *cg)
{
	uint64_t left = UINT64_MAX;

	for (unsigned i = 0; i < cg->nr; i++)
		left = at_most(left, left_to(cg, &cg->levels[i], limit_of(&cg->levels[i])));
	return left;
}
