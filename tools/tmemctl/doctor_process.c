// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The service's process and the mount of its arena, as the kernel sees them: what the service
 * asked for at its start may have been refused, or changed since.
 */
#include "config.h"

#include "tools/tmemctl/doctor.h"
#include "tools/tmemctl/tmemctl.h"

#include <dirent.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "proto/control.h"

#define PF_MEMALLOC_NOIO 0x00080000 /* what PR_SET_IO_FLUSHER sets, see /proc/PID/stat */
#define OOM_SCORE_ADJ (-999)
#define WORKER_NAME "(tmemd-worker)"
#define WORKER_NICE (-10)
/* What tmemd(8) says that it keeps. */
#define KEPT_CAPABILITIES (1ull << CAP_CHOWN | 1ull << CAP_IPC_LOCK)
#define FDS_OF_ITS_OWN 64 /* of the service: arena, sockets, epoll, log, control connections */
/* Of a connected disk, beside the eventfds of its queues: memory, records, both connections. */
#define DISK_FDS (64 + 2 + 2)
#define HUGE_WORTH_LOOKING (64ull << 20)

static bool status_of(const struct doctor *d, char *text, size_t room)
{
	return look_text(d, text, room, "/proc/%d/status", d->pid);
}

/* Physical bytes that pool and regions may come to. */
static uint64_t all_bytes(const struct doctor *d)
{
	return (uint64_t)number_of(d->service, TMEM_KEY_POOL_MAX_BYTES) + d->region_bytes;
}

/* ---- What it did for itself ------------------------------------------------------------------ */

struct thread {
	uint64_t flags;
	int nice;
	bool worker;
};

/* From its line in /proc: the name may have spaces itself. */
static bool thread_of(const struct doctor *d, const char *name, struct thread *thread)
{
	char text[1024], *behind;

	if (!look_text(d, text, sizeof(text), "/proc/%d/task/%s/stat", d->pid, name))
		return false;
	thread->worker = strstr(text, WORKER_NAME);
	behind = strrchr(text, ')');
	return behind && sscanf(behind,
				") %*c %*d %*d %*d %*d %*d %" SCNu64
				" %*u %*u %*u %*u %*u %*u %*d %*d %*d %d",
				&thread->flags, &thread->nice) == 2;
}

/* How many of the service's threads are so. */
static unsigned count_threads(const struct doctor *d, bool (*is_so)(const struct thread *thread))
{
	char path[LOOK_PATH_MAX];
	struct dirent *entry;
	struct thread thread;
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/proc/%d/task", d->root, d->pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		n += thread_of(d, entry->d_name, &thread) && is_so(&thread);
	if (dir)
		closedir(dir);
	return n;
}

static bool waits_for_swap(const struct thread *thread)
{
	return !(thread->flags & PF_MEMALLOC_NOIO);
}

static bool waits_for_cpu(const struct thread *thread)
{
	return thread->worker && thread->nice > WORKER_NICE;
}

static void worker_nice(struct doctor *d)
{
	unsigned n = count_threads(d, waits_for_cpu);

	if (!n)
		return;
	found(d, "service", NULL,
	      "%u workers have no priority over the CPUs of guests: when the host's CPUs are "
	      "busy, each swapped page waits for its turn",
	      n);
	remedy(d, "LimitNICE=%d in the unit, or start it as root", WORKER_NICE);
}

static void io_flusher(struct doctor *d)
{
	unsigned without = count_threads(d, waits_for_swap);

	if (!without)
		return;
	found(d, "service", NULL,
	      "IO_FLUSHER is not set on %u threads: when the host is out of memory, they may wait "
	      "for their own guests' swap",
	      without);
	remedy(d, "start it as root (or with CAP_SYS_RESOURCE) and with user = in [service]");
}

static void memory_locked(struct doctor *d)
{
	char text[4096];
	uint64_t kib;

	if (!status_of(d, text, sizeof(text)) || !number_behind(text, "VmLck:", &kib) || kib)
		return;
	found(d, "service", NULL,
	      "its memory is not locked: the host may swap out the service and the pool");
	remedy(d, "LimitMEMLOCK=infinity in the unit, or start it as root");
}

static void oom_score(struct doctor *d)
{
	char text[16];
	int score;

	if (!look_text(d, text, sizeof(text), "/proc/%d/oom_score_adj", d->pid))
		return;
	score = atoi(text);
	if (score <= OOM_SCORE_ADJ)
		return;
	found(d, "service", NULL,
	      "oom_score_adj is %d: the OOM killer may choose it, which frees nothing", score);
	remedy(d, "OOMScoreAdjust=%d in the unit", OOM_SCORE_ADJ);
}

static void privileges(struct doctor *d)
{
	unsigned long long caps = 0;
	char text[4096], *line;
	unsigned user;

	if (!status_of(d, text, sizeof(text)))
		return;
	line = strstr(text, "\nCapEff:");
	if (!line || sscanf(line, "\nCapEff: %llx", &caps) != 1)
		return;
	line = strstr(text, "\nUid:");
	if (!line || sscanf(line, "\nUid: %*u %u", &user) != 1)
		return;
	if (user && !(caps & ~KEPT_CAPABILITIES))
		return;
	found(d, "service", NULL, "it runs as %s, with capabilities %llx where it needs %llx",
	      user ? "a user of its own" : "root", caps, KEPT_CAPABILITIES);
	remedy(d, "user = tmemd in [service], and restart");
}

static void seccomp(struct doctor *d)
{
	char text[4096];
	uint64_t mode;

	if (!status_of(d, text, sizeof(text)) || !number_behind(text, "Seccomp:", &mode) || mode)
		return;
	found(d, "service", NULL, "there is no filter of system calls");
	remedy(d, "seccomp = on in [service] (a build needs libseccomp), and restart");
}

/* ---- What it is given ------------------------------------------------------------------------ */

/* A pair of sockets for each disk; a connection and two doorbells a ring for each other client. */
static unsigned kept_fds(const struct doctor *d)
{
	json_t *client;
	unsigned n = 0;
	size_t i;

	json_array_foreach(d->clients, i, client) n +=
		is_disk(client) ? 2 : 1 + 2 * (unsigned)number_of(client, TMEM_KEY_MAX_RINGS);
	return n;
}

/* Beside what is kept: a listening socket, and the region or all that a front end can hand over. */
static unsigned open_fds(const struct doctor *d)
{
	json_t *client;
	unsigned n = 0;
	size_t i;

	json_array_foreach(d->clients, i, client) n +=
		is_disk(client) ? 1 + DISK_FDS + 3 * (unsigned)number_of(client, TMEM_KEY_MAX_RINGS)
				: 2;
	return n;
}

static void fd_store(struct doctor *d)
{
	json_t *most = json_object_get(d->service, TMEM_KEY_FD_STORE);
	unsigned needed = kept_fds(d);

	if (!json_is_integer(most) || json_integer_value(most) >= needed)
		return;
	if (json_integer_value(most))
		found(d, "service", NULL,
		      "the service manager keeps %d descriptors over a restart, %u are needed",
		      (int)json_integer_value(most), needed);
	else
		found(d, "service", NULL,
		      "nobody keeps its descriptors over a restart: guests would be served without "
		      "doorbells");
	remedy(d,
	       "run it under systemd with FileDescriptorStoreMax=%u or more (tmemd.service has it)",
	       needed);
}

static void descriptors(struct doctor *d)
{
	unsigned needed = kept_fds(d) + open_fds(d) + FDS_OF_ITS_OWN;
	char text[4096];
	uint64_t most;

	if (!look_text(d, text, sizeof(text), "/proc/%d/limits", d->pid) ||
	    !number_behind(text, "Max open files", &most) || most >= needed)
		return;
	found(d, "service", NULL,
	      "it may open %" PRIu64 " files, and needs %u when all clients are connected", most,
	      needed);
	remedy(d, "LimitNOFILE=%u or more in the unit", needed);
}

/* Path of the process in the hierarchy that limits memory, and where that is mounted. */
static const char *memory_cgroup(const struct doctor *d, char *path, size_t room)
{
	const char *mount = NULL;
	char line[LOOK_PATH_MAX];
	FILE *f = look_open(d, "/proc/%d/cgroup", d->pid);

	while (f && fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *at;

		at = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!at)
			continue;
		*at++ = 0;
		/* The first version's hierarchy has the memory controller where there are both. */
		if (strcmp(controllers, ":memory") && (mount || strcmp(controllers, ":")))
			continue;
		mount = controllers[1] ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
		snprintf(path, room, "%.*s", (int)strcspn(at, "\n"), at);
	}
	if (f)
		fclose(f);
	return mount;
}

/* Lowers *least to what the file says, unless that is "max". */
static bool lower_to(const struct doctor *d, uint64_t *least, const char *dir, const char *file)
{
	char text[32];
	uint64_t n;

	if (!look_text(d, text, sizeof(text), "%s/%s", dir, file) ||
	    sscanf(text, "%" SCNu64, &n) != 1 || n >= *least)
		return false;
	*least = n;
	return true;
}

static void cgroup_limit(struct doctor *d)
{
	static const char *const files[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
	char path[LOOK_PATH_MAX / 2], dir[LOOK_PATH_MAX],
		at[LOOK_PATH_MAX + 32] = "", least_text[16], need_text[16];
	uint64_t need = all_bytes(d), least = need;
	const char *mount = memory_cgroup(d, path, sizeof(path));

	while (mount) {
		snprintf(dir, sizeof(dir), "%s%s", mount, path);
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
			if (lower_to(d, &least, dir, files[i]))
				snprintf(at, sizeof(at), "%s/%s", dir, files[i]);
		if (!strchr(path, '/'))
			break;
		*strrchr(path, '/') = 0;
	}
	if (!*at)
		return;
	print_size((double)least, least_text);
	print_size((double)need, need_text);
	found(d, "service", NULL,
	      "its cgroup has %s, less than the %s that pool_max and the guests' regions may come "
	      "to "
	      "(%s)",
	      least_text, need_text, at);
	remedy(d,
	       "raise the limit (MemoryMax= and MemoryHigh= of the unit or a slice above it), or "
	       "lower pool_max");
}

/* ---- The arena's mount ----------------------------------------------------------------------- */

struct mount {
	char point[LOOK_PATH_MAX / 2];
	char type[32];
	char options[LOOK_PATH_MAX]; /* of the file system: ",size=1G,huge=advise," */
};

static bool path_is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (path[len] == '/' || len == 1);
}

/* The mount that holds the arena, as the service sees it. */
static bool arena_mount(const struct doctor *d, struct mount *found_mount)
{
	const char *arena = json_string_value(json_object_get(d->service, TMEM_KEY_ARENA));
	struct mount m = {0};
	char line[2048], *behind;
	size_t longest = 0;
	FILE *f = look_open(d, "/proc/%d/mountinfo", d->pid);

	while (f && arena && fgets(line, sizeof(line), f)) {
		behind = strstr(line, " - ");
		if (!behind || sscanf(line, "%*s %*s %*s %*s %255s", m.point) != 1 ||
		    sscanf(behind, " - %31s %*s %509s", m.type, m.options + 1) != 2)
			continue;
		/* Of two at one place the later one counts. */
		if (strlen(m.point) < longest || !path_is_below(arena, m.point))
			continue;
		longest = strlen(m.point);
		m.options[0] = ',';
		strcat(m.options, ",");
		*found_mount = m;
	}
	if (f)
		fclose(f);
	return longest > 0;
}

static void arena_not_huge(struct doctor *d)
{
	struct mount m;
	char text[128];

	if (look_text(d, text, sizeof(text), "/sys/kernel/mm/transparent_hugepage/shmem_enabled") &&
	    strstr(text, "[deny]")) {
		found(d, "host", NULL, "shmem_enabled is deny: no tmpfs has huge pages");
		remedy(d,
		       "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled: then each "
		       "mount says for itself");
		return;
	}
	/* "force" gives huge pages whatever the mount says. */
	if (json_is_true(json_object_get(d->service, TMEM_KEY_HUGE_PAGES)) ||
	    strstr(text, "[force]") || !arena_mount(d, &m))
		return;
	found(d, "arena", NULL,
	      "%s has no huge pages: taking memory is slower, and gets miss caches more often",
	      m.point);
	remedy(d,
	       "mount -o remount,huge=advise %s; memory that the pool takes from then on is huge",
	       m.point);
}

/* Sums two lines of the arena's mappings. False without the right to see them. */
static bool arena_mapped(const struct doctor *d, uint64_t *resident, uint64_t *huge)
{
	const char *arena = json_string_value(json_object_get(d->service, TMEM_KEY_ARENA));
	FILE *f = look_open(d, "/proc/%d/smaps", d->pid);
	bool inside = false;
	char line[1024];
	uint64_t kib;

	*resident = *huge = 0;
	while (f && arena && fgets(line, sizeof(line), f)) {
		/* The first line of a mapping begins with its addresses, the others with a key. */
		if (strspn(line, "0123456789abcdef") &&
		    line[strspn(line, "0123456789abcdef")] == '-')
			inside = strstr(line, arena);
		else if (inside && number_behind(line, "Rss:", &kib))
			*resident += kib * 1024;
		else if (inside && number_behind(line, "ShmemPmdMapped:", &kib))
			*huge += kib * 1024;
	}
	if (!f)
		return false;
	fclose(f);
	return true;
}

static void arena_scattered(struct doctor *d)
{
	char huge_text[16], resident_text[16];
	uint64_t resident, huge;

	if (!json_is_true(json_object_get(d->service, TMEM_KEY_HUGE_PAGES)) ||
	    !arena_mapped(d, &resident, &huge) || resident < HUGE_WORTH_LOOKING ||
	    huge >= resident / 2)
		return;
	print_size((double)huge, huge_text);
	print_size((double)resident, resident_text);
	found(d, "arena", NULL,
	      "its mount allows huge pages, but of %s only %s are in huge pages: the host's memory "
	      "is fragmented",
	      resident_text, huge_text);
	remedy(d, "echo 1 > /proc/sys/vm/compact_memory; memory that the pool takes later is huge");
}

static void mount_small(struct doctor *d)
{
	uint64_t need = all_bytes(d), size;
	char need_text[16], size_text[16];
	struct statvfs fs;
	struct mount m;

	if (!arena_mount(d, &m) || statvfs(m.point, &fs))
		return;
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	/* 0: no limit. */
	if (!size || size >= need)
		return;
	print_size((double)need, need_text);
	print_size((double)size, size_text);
	found(d, "arena", NULL,
	      "%s has a size of %s, pool_max and the guests' regions may come to %s", m.point,
	      size_text, need_text);
	remedy(d, "mount -o remount,size=%" PRIu64 "M %s, and size= in its mount unit",
	       (need + need / 20) >> 20, m.point);
}

/* tmpfs knows noswap from 6.4 on. */
static bool kernel_has_noswap(const struct doctor *d)
{
	unsigned major = 0, minor = 0;
	char text[64];

	return look_text(d, text, sizeof(text), "/proc/sys/kernel/osrelease") &&
	       sscanf(text, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 4));
}

static void mount_swaps(struct doctor *d)
{
	struct mount m;

	if (!(swap_bytes(d, true) + swap_bytes(d, false)) || !kernel_has_noswap(d) ||
	    !arena_mount(d, &m) || strcmp(m.type, "tmpfs") || strstr(m.options, ",noswap,"))
		return;
	found(d, "arena", NULL,
	      "%s may be swapped out by the host while the service is not there to lock it",
	      m.point);
	remedy(d, "add noswap to the options of its mount unit; it takes effect when it is mounted "
		  "anew, with no VM running");
}

const struct check process_checks[] = {
	{"io-flusher", SEVERITY_WARNING, io_flusher},
	{"worker-nice", SEVERITY_NOTE, worker_nice},
	{"memory-locked", SEVERITY_WARNING, memory_locked},
	{"oom-score", SEVERITY_WARNING, oom_score},
	{"privileges", SEVERITY_WARNING, privileges},
	{"seccomp", SEVERITY_WARNING, seccomp},
	{"fd-store", SEVERITY_WARNING, fd_store},
	{"descriptors", SEVERITY_WARNING, descriptors},
	{"cgroup-limit", SEVERITY_ERROR, cgroup_limit},
	{"arena-not-huge", SEVERITY_WARNING, arena_not_huge},
	{"arena-scattered", SEVERITY_NOTE, arena_scattered},
	{"mount-small", SEVERITY_WARNING, mount_small},
	{"mount-swaps", SEVERITY_WARNING, mount_swaps},
	{0},
};
