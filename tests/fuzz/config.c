// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Text to the configuration. What stands behind a line "---" is a file in conf.d. Anything is
 * refused with a sentence, or comes out within its bounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/control.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/scratch.h"

#define SEPARATOR "\n---\n"
#define MIB (1ull << 20)

static unsigned complaints;

static void say(const char *line)
{
	MUST(line[0] && !strchr(line, '\n'), "a complaint is one line");
	complaints++;
}

static void write_file(const char *path, const void *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(fd >= 0 && write(fd, text, len) == (ssize_t)len, "%s: %s", path, strerror(errno));
	close(fd);
}

static void check_text(const char *text, size_t room)
{
	MUST(memchr(text, 0, room), "no end");
}

static void check_client(const struct config *config, const struct config_client *c)
{
	check_text(c->name, sizeof(c->name));
	check_text(c->socket, sizeof(c->socket));
	MUST(name_valid(c->name), "the store would refuse the client \"%s\"", c->name);
	MUST(config_client(config, c->name) == c, "two clients \"%s\"", c->name);
	MUST(c->socket[0] == '/' && c->socket_mode <= 0777, "socket");
	MUST(c->region_bytes >= MIB && c->region_bytes <= 1024 * MIB &&
		     __builtin_popcountll(c->region_bytes) == 1,
	     "region");
	MUST(c->rings && c->rings <= TMEM_MAX_RINGS && c->credits <= TMEM_MAX_ENTRIES, "rings");
	MUST(tmem_region_need(c->rings, TMEM_MIN_ENTRIES) <= c->region_bytes, "rings do not fit");
	MUST(!c->limits.max_bytes || c->limits.min_bytes <= c->limits.max_bytes, "limits");
	MUST(c->limits.weight && c->limits.weight <= 10000, "weight");
	MUST(!c->nr_shared == !c->shared, "shared pools");
}

static void check_disk(const struct config *config, const struct config_disk *d)
{
	check_text(d->name, sizeof(d->name));
	check_text(d->socket, sizeof(d->socket));
	MUST(name_valid(d->name), "the store would refuse the disk \"%s\"", d->name);
	MUST(config_disk(config, d->name) == d, "two disks \"%s\"", d->name);
	MUST(!config_client(config, d->name), "a disk and a client \"%s\"", d->name);
	MUST(d->socket[0] == '/' && d->socket_mode <= 0777, "socket");
	MUST(d->bytes && d->bytes % CONFIG_DISK_BLOCK == 0 && d->bytes <= CONFIG_DISK_MAX, "size");
	MUST(d->queues && d->queues <= CONFIG_DISK_QUEUES && d->overcommit <= 1, "queues");
	MUST(!d->limits.max_bytes || d->limits.min_bytes <= d->limits.max_bytes, "limits");
	MUST(d->limits.weight && d->limits.weight <= 10000, "weight");
}

/* Disks that must fit do fit. */
static void check_disks(const struct config *config, uint64_t minimums_of_clients)
{
	uint64_t exposure = minimums_of_clients, minimums = minimums_of_clients;
	bool must = false;

	MUST(config->nr_disks <= CONFIG_MAX_DISKS, "disks");
	for (unsigned i = 0; i < config->nr_disks; i++) {
		const struct config_disk *d = &config->disks[i];

		check_disk(config, d);
		MUST(d->limits.min_bytes <= config->pool_max - minimums, "minimums above pool_max");
		minimums += d->limits.min_bytes;
		if (!d->overcommit)
			exposure += config_disk_exposure(d->bytes, d->limits.min_bytes);
		must |= !d->overcommit;
	}
	MUST(!must || exposure <= config->pool_max, "the disks do not fit");
}

static void check(const struct config *config)
{
	uint64_t minimums = 0;

	check_text(config->arena, sizeof(config->arena));
	check_text(config->regions, sizeof(config->regions));
	check_text(config->control_socket, sizeof(config->control_socket));
	check_text(config->user, sizeof(config->user));
	MUST(config->arena[0] == '/' && config->regions[0] == '/' &&
		     config->control_socket[0] == '/',
	     "a path is not absolute");
	MUST(config->pool_max >= 16 * MIB && config->pool_max <= 1ull << 46, "pool_max");
	MUST(config->ready_chunks <= 1024 && config->poll_us <= 10000, "numbers");
	MUST(config->control_mode <= 0777 && config->seccomp <= 1, "control");
	MUST(config->log_level >= LOG_ERROR && config->log_level <= LOG_DBG, "log level");
	MUST(config->nr_clients <= STORE_MAX_CLIENTS, "clients");
	for (unsigned i = 0; i < config->nr_clients; i++) {
		check_client(config, &config->clients[i]);
		MUST(config->clients[i].limits.min_bytes <= config->pool_max - minimums,
		     "minimums above pool_max");
		minimums += config->clients[i].limits.min_bytes;
	}
	check_disks(config, minimums);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	scratch_make("fuzz-config");
	MUST(!mkdir(scratch_path("conf.d"), 0700), "conf.d");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *second = memmem(data, size, SEPARATOR, strlen(SEPARATOR));
	size_t first = second ? (size_t)(second - data) + 1 : size;
	struct config *config;

	complaints = 0;
	write_file(scratch_path("conf"), data, first);
	unlink(scratch_path("conf.d/a.conf"));
	if (second)
		write_file(scratch_path("conf.d/a.conf"), second + strlen(SEPARATOR),
			   size - first - strlen(SEPARATOR) + 1);
	config = config_load(scratch_path("conf"), say);
	MUST(!config == !!complaints, "refused in silence, or accepted with a complaint");
	if (config)
		check(config);
	config_free(config);
	return 0;
}
