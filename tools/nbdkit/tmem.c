// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * nbdkit plugin: serves a disk of tmemd to any NBD client, so to guests whose memory is not shared.
 *
 * It is a front end of vhost-user like QEMU, not a client with a ring: the pool of such a client
 * ends with its process, while a disk outlives nbdkit. tools/vhost has all of that; here is what
 * NBD makes of it.
 */
#include "config.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/vhost/vhost_disk.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SOCKET_DIR "/run/tmem"
#define PREFERRED_BYTES (64u << 10) /* of a request: what goes through the ring in one piece */

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

/* A connection of a client. */
struct connection {
	bool told; /* that a request was not aligned: once is enough for the log */
};

static const char *disk_name; /* NULL: only its socket was given */
static char *socket_path;
static unsigned timeout_s;
static struct vhost_disk *disk;

static void say(const char *line)
{
	nbdkit_error("%s", line);
}

static bool ending(void)
{
	return nbdkit_nanosleep(0, 1) < 0;
}

/* ---- Parameters ----------------------------------------------------------------------------- */

static bool name_is_possible(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t len = strlen(name);

	return len >= 1 && len <= 63 && name[0] != '.' && strspn(name, allowed) == len;
}

static int set_socket(char *path)
{
	if (socket_path) {
		free(path);
		nbdkit_error("one disk is served: give disk=NAME or socket=PATH, and give it once");
		return -1;
	}
	if (path && strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		nbdkit_error("socket: the path may have %zu characters at most: %s",
			     sizeof(((struct sockaddr_un *)0)->sun_path) - 1, path);
		free(path);
		return -1;
	}
	socket_path = path;
	return path ? 0 : -1;
}

static int set_disk(const char *name)
{
	char *path;

	if (!name_is_possible(name)) {
		nbdkit_error("disk: \"%s\" cannot be the name of a disk: 1 to 63 letters, digits, "
			     "\"-\", \"_\" and \".\"; for the path of its socket say socket=PATH",
			     name);
		return -1;
	}
	if (asprintf(&path, SOCKET_DIR "/%s.sock", name) < 0) {
		nbdkit_error("no memory");
		return -1;
	}
	disk_name = name;
	return set_socket(path);
}

static int tmem_config(const char *key, const char *value)
{
	if (!strcmp(key, "disk"))
		return set_disk(value);
	if (!strcmp(key, "socket"))
		return set_socket(nbdkit_absolute_path(value));
	if (!strcmp(key, "timeout"))
		return nbdkit_parse_unsigned("timeout", value, &timeout_s);
	nbdkit_error("there is no parameter \"%s\": allowed are disk, socket and timeout", key);
	return -1;
}

static int tmem_config_complete(void)
{
	if (socket_path)
		return 0;
	nbdkit_error("say which disk: disk=NAME (\"tmemctl disk list\" has them) or socket=PATH");
	return -1;
}

#define CONFIG_HELP                                                                                \
	"[disk=]<NAME>        The disk of tmemd to serve, its socket is " SOCKET_DIR               \
	"/<NAME>.sock.\n"                                                                          \
	"socket=<PATH>        The socket of the disk, when it is elsewhere.\n"                     \
	"timeout=<SECONDS>    A request fails that waits so long for tmemd (default: 0, never)."

/* ---- Start and end -------------------------------------------------------------------------- */

static int cannot_serve(int r)
{
	const char *what = disk_name ? disk_name : socket_path;

	switch (r) {
	case -EBUSY:
		nbdkit_error("disk %s: tmemd closed the connection at once: another front end has "
			     "the disk, and two would destroy what is on it; \"tmemctl disk list\" "
			     "says which process",
			     what);
		break;
	case -ENOENT:
		nbdkit_error("disk %s: there is no %s: is tmemd running, and is there such a disk? "
			     "\"tmemctl disk create\" makes one",
			     what, socket_path);
		break;
	case -ECONNREFUSED:
		nbdkit_error("disk %s: nobody listens at %s: is tmemd running?", what, socket_path);
		break;
	case -EACCES:
		nbdkit_error("disk %s: %s may not be opened by this user: see the owner, group and "
			     "mode of the disk, \"tmemctl disk create\"",
			     what, socket_path);
		break;
	case -ENOTSUP:
	case -EPROTO:
	case -EREMOTEIO:
		nbdkit_error("disk %s: what serves %s is not a disk of tmemd", what, socket_path);
		break;
	default:
		nbdkit_error("disk %s: %s: %s", what, socket_path, strerror(-r));
	}
	return -1;
}

/* What can be wrong is said before nbdkit goes into the background. */
static int tmem_get_ready(void)
{
	int r = vhost_disk_probe(socket_path);

	return r ? cannot_serve(r) : 0;
}

/*
 * All of the process is locked in memory, but only what it touches: nbdkit's --swap would fill the
 * stacks of all its threads. Where locked memory is limited, only what requests pass through: other
 * mappings would fail when the limit is reached.
 */
static void lock_memory(void)
{
	struct rlimit limit = {0};
	int r;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if ((!geteuid() || limit.rlim_cur == RLIM_INFINITY) &&
	    !mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		nbdkit_debug("the process is locked in memory");
	r = vhost_disk_lock_memory(disk);
	if (r)
		nbdkit_error("warning: the memory of requests is not locked: %s; raise the limit "
			     "of locked memory (ulimit -l)",
			     strerror(-r));
}

/*
 * The connection is of the process that serves. Its threads come later: they inherit that they must
 * not wait for memory which only what is written here would free.
 */
static int tmem_after_fork(void)
{
	struct vhost_disk_options options = {
		.socket = socket_path, .timeout_s = timeout_s, .say = say, .ending = ending};
	int r;

	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0))
		nbdkit_debug("IO_FLUSHER is not set: %s", strerror(errno));
	r = vhost_disk_open(&disk, &options);
	if (r)
		return cannot_serve(r);
	lock_memory();
	return 0;
}

static void tmem_cleanup(void)
{
	vhost_disk_close(disk);
	disk = NULL;
}

static void tmem_unload(void)
{
	free(socket_path);
}

static void tmem_dump_plugin(void)
{
	printf("tmem_socket_directory=%s\n", SOCKET_DIR);
	printf("tmem_block_bytes=%u\n", VHOST_DISK_BLOCK);
}

/* ---- Connections ---------------------------------------------------------------------------- */

/* NBD has few errors: what has none of its own would become EINVAL, which is the client's fault. */
static int failed(int r)
{
	nbdkit_set_error(r == -EINVAL || r == -ESHUTDOWN ? -r : EIO);
	return -1;
}

static void *tmem_open(int readonly)
{
	struct connection *c = calloc(1, sizeof(*c));

	(void)readonly;
	if (!c)
		nbdkit_error("no memory for a connection");
	return c;
}

static void tmem_close(void *handle)
{
	free(handle);
}

static int64_t tmem_get_size(void *handle)
{
	uint64_t bytes;
	int r = vhost_disk_size(disk, &bytes);

	(void)handle;
	if (!r)
		return (int64_t)bytes;
	nbdkit_error("the size of the disk: %s", strerror(-r));
	return failed(r);
}

static const char *tmem_export_description(void *handle)
{
	(void)handle;
	return nbdkit_printf_intern("disk %s in the memory of this host (tmemd)",
				    disk_name ? disk_name : socket_path);
}

static int tmem_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	(void)handle;
	*minimum = VHOST_DISK_BLOCK;
	*preferred = PREFERRED_BYTES;
	*maximum = UINT32_MAX;
	return 0;
}

static int yes(void *handle)
{
	(void)handle;
	return 1;
}

static int no(void *handle)
{
	(void)handle;
	return 0;
}

/* A write that has returned is as safe as it ever will be. */
static int tmem_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

/* It is all in memory. */
static int tmem_can_cache(void *handle)
{
	(void)handle;
	return NBDKIT_CACHE_NATIVE;
}

static int tmem_cache(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	(void)count;
	(void)offset;
	(void)flags;
	return 0;
}

/* ---- Requests ------------------------------------------------------------------------------- */

static bool aligned(struct connection *c, uint32_t count, uint64_t offset)
{
	if (!((count | offset) % VHOST_DISK_BLOCK))
		return true;
	if (!__atomic_exchange_n(&c->told, true, __ATOMIC_RELAXED))
		nbdkit_error(
			"a request of %u bytes at %llu is not of whole blocks of %u bytes; for "
			"clients that ask for less use --filter=blocksize minblock=4096",
			count, (unsigned long long)offset, VHOST_DISK_BLOCK);
	return false;
}

static int tmem_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	int r = -EINVAL;

	(void)flags;
	if (aligned(handle, count, offset))
		r = vhost_disk_read(disk, buf, count, offset);
	return r ? failed(r) : 0;
}

static int tmem_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
		       uint32_t flags)
{
	int r = -EINVAL;

	(void)flags;
	if (aligned(handle, count, offset))
		r = vhost_disk_write(disk, buf, count, offset);
	return r ? failed(r) : 0;
}

/* Trim as well: what is not stored reads as zeroes. */
static int tmem_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	int r = -EINVAL;

	(void)flags;
	if (aligned(handle, count, offset))
		r = vhost_disk_zero(disk, count, offset);
	return r ? failed(r) : 0;
}

static int tmem_flush(void *handle, uint32_t flags)
{
	int r = vhost_disk_flush(disk);

	(void)handle;
	(void)flags;
	return r ? failed(r) : 0;
}

static struct nbdkit_plugin plugin = {
	.name = "tmem",
	.longname = "tmemd disk",
	.version = PACKAGE_VERSION,
	.description = "A disk of tmemd: compressed memory of this host",
	.magic_config_key = "disk",
	.config_help = CONFIG_HELP,
	.errno_is_preserved = 0,

	.config = tmem_config,
	.config_complete = tmem_config_complete,
	.get_ready = tmem_get_ready,
	.after_fork = tmem_after_fork,
	.cleanup = tmem_cleanup,
	.unload = tmem_unload,
	.dump_plugin = tmem_dump_plugin,

	.open = tmem_open,
	.close = tmem_close,
	.get_size = tmem_get_size,
	.export_description = tmem_export_description,
	.block_size = tmem_block_size,
	.can_write = yes,
	.can_flush = yes,
	.is_rotational = no,
	.can_trim = yes,
	.can_zero = yes,
	.can_fast_zero = yes,
	.can_fua = tmem_can_fua,
	.can_multi_conn = yes,
	.can_cache = tmem_can_cache,
	.cache = tmem_cache,

	.pread = tmem_pread,
	.pwrite = tmem_pwrite,
	.flush = tmem_flush,
	.trim = tmem_zero,
	.zero = tmem_zero,
};

/* The macro defines it without a prototype. */
NBDKIT_DLL_PUBLIC struct nbdkit_plugin *plugin_init(void);
NBDKIT_REGISTER_PLUGIN(plugin)
