// SPDX-License-Identifier: GPL-2.0-or-later
/* Disks in the configuration: values, defaults, what is refused and how it is said. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#define GIB (1ull << 30)

static char said[4096];

static void say(const char *line)
{
	size_t n = strlen(said);

	snprintf(said + n, sizeof(said) - n, "%s\n", line);
}

/* The configuration, or NULL with what is wrong in `said`. The caller frees it. */
static struct config *load(const char *text)
{
	FILE *f = fopen(scratch_path("conf"), "w");

	CU_ASSERT_FATAL(f != NULL);
	CU_ASSERT_FATAL(fputs(text, f) >= 0 && !fclose(f));
	said[0] = 0;
	return config_load(scratch_path("conf"), say);
}

static void check_refused(const char *text, const char *expected)
{
	struct config *config = load(text);

	if (config || !strstr(said, expected))
		fprintf(stderr, "%s\nsaid: %s\nnot: %s\n", text, said, expected);
	CU_ASSERT(config == NULL);
	CU_ASSERT(strstr(said, expected) != NULL);
	config_free(config);
}

static void defaults(void)
{
	struct config *config = load("[pool]\npool_max = 8G\n[disk swap1]\nsize = 2G\n");
	const struct config_disk *d;

	CU_ASSERT_FATAL(config != NULL);
	CU_ASSERT_FATAL(config->nr_disks == 1 && config->nr_clients == 0);
	d = config_disk(config, "swap1");
	CU_ASSERT_FATAL(d == &config->disks[0]);
	CU_ASSERT(config_disk(config, "swap2") == NULL && config_client(config, "swap1") == NULL);
	CU_ASSERT(!strcmp(d->socket, "/run/tmem/swap1.sock"));
	CU_ASSERT(d->bytes == 2 * GIB && d->queues == 1 && !d->overcommit);
	CU_ASSERT(d->socket_mode == 0660 && d->socket_uid == (uint32_t)-1 &&
		  d->socket_gid == (uint32_t)-1);
	CU_ASSERT(!d->limits.min_bytes && !d->limits.max_bytes && d->limits.weight == 100);
	config_free(config);
}

static void every_key(void)
{
	struct config *config = load("[pool]\npool_max = 8G\n"
				     "[client vm1]\n"
				     "[disk a]\nsize = 16T\nqueues = 8\novercommit = yes\n"
				     "socket = /x/a\nsocket_owner = 12\nsocket_group = 13\n"
				     "socket_mode = 0600\nminimum = 1M\nmaximum = 4G\nweight = 7\n"
				     "[disk b]\nsize = 4096\novercommit = no\n");
	const struct config_disk *d;

	CU_ASSERT_FATAL(config != NULL);
	CU_ASSERT_FATAL(config->nr_disks == 2 && config->nr_clients == 1);
	d = &config->disks[0];
	CU_ASSERT(d->bytes == CONFIG_DISK_MAX && d->queues == CONFIG_DISK_QUEUES && d->overcommit);
	CU_ASSERT(!strcmp(d->socket, "/x/a") && d->socket_mode == 0600);
	CU_ASSERT(d->socket_uid == 12 && d->socket_gid == 13);
	CU_ASSERT(d->limits.min_bytes == 1 << 20 && d->limits.max_bytes == 4 * GIB &&
		  d->limits.weight == 7);
	CU_ASSERT(config->disks[1].bytes == 4096 && !config->disks[1].overcommit);
	config_free(config);
}

static void refusals(void)
{
	check_refused("[disk a]\n", "conf:1: [disk a]: size is missing; give size =");
	check_refused("[disk a]\nsize = 5000\n", "conf:2: [disk a] size = 5000: allowed are mult");
	check_refused("[disk a]\nsize = 0\n", "from 4096 to 17592186044416 bytes");
	check_refused("[disk a]\nsize = 17T\n", "from 4096 to 17592186044416 bytes");
	check_refused("[disk a]\nsize = 1M\nqueues = 9\n", "conf:3: [disk a] queues = 9");
	check_refused("[disk a]\nsize = 1M\nqueues = 0\n", "a number from 1 to 8");
	check_refused("[disk a]\nsize = 1M\novercommit = on\n", "allowed are yes and no");
	check_refused("[disk a]\nsize = 1M\nrings = 4\n", "rings: unknown key; allowed here are "
							  "size, queues");
	check_refused("[disk a]\nsize = 1M\nsize = 2M\n", "given already in line 2");
	check_refused("[disk a]\nsize = 1M\nminimum = 2M\nmaximum = 1M\n",
		      "conf:3: [disk a] minimum = 2097152: allowed is at most maximum");
	check_refused("[disk]\nsize = 1M\n", "a disk's name has 1 to 63 letters");
	check_refused("[disk a/b]\nsize = 1M\n", "a disk's name has 1 to 63 letters");
	check_refused("[diskette]\n", "unknown section");
}

static void names(void)
{
	check_refused("[disk a]\nsize = 1M\n[disk a]\nsize = 1M\n",
		      "[disk a]: there is one already");
	check_refused("[client a]\n[disk a]\nsize = 1M\n", "[disk a]: a client has that name, at ");
	check_refused("[disk a]\nsize = 1M\n[client a]\n", "[client a]: a disk has that name, at ");
	check_refused("[client a]\nsocket = /x\n[disk b]\nsize = 1M\nsocket = /x\n",
		      "conf:5: [disk b] socket = /x: client a has it");
	check_refused("[disk a]\nsize = 1M\nsocket = /x\n[disk b]\nsize = 1M\nsocket = /x\n",
		      "conf:6: [disk b] socket = /x: disk a has it");
	check_refused("[control]\nsocket = /x\n[disk b]\nsize = 1M\nsocket = /x\n",
		      "that is the control socket");
}

/* With nothing that compresses: 4096 + 64 bytes for each block. */
static void exposure(void)
{
	struct config *config;

	CU_ASSERT(config_disk_exposure(4096, 0) == 4160);
	CU_ASSERT(config_disk_exposure(4096, 5000) == 5000);
	CU_ASSERT(config_disk_exposure(CONFIG_DISK_MAX, 0) == CONFIG_DISK_MAX / 4096 * 4160);
	/* 64512 blocks are 268369920 bytes, 65536 below 256 MiB; the minimum takes these. */
	config = load("[pool]\npool_max = 256M\n[client c]\nminimum = 65536\n"
		      "[disk a]\nsize = 264241152\n");
	CU_ASSERT(config != NULL);
	config_free(config);
	check_refused("[pool]\npool_max = 256M\n[client c]\nminimum = 65537\n"
		      "[disk a]\nsize = 264241152\n",
		      "conf:6: [disk a] size = 264241152: it can take 268369920 physical bytes");
	check_refused("[pool]\npool_max = 256M\n[disk a]\nsize = 200M\n[disk b]\nsize = 200M\n",
		      "conf:6: [disk b] size");
	config = load("[pool]\npool_max = 256M\n[disk a]\nsize = 200M\n"
		      "[disk b]\nsize = 1T\novercommit = yes\n[disk c]\nsize = 40M\n");
	CU_ASSERT(config != NULL);
	config_free(config);
	check_refused("[pool]\npool_max = 64M\n[client a]\nminimum = 40M\n"
		      "[disk b]\nsize = 1M\novercommit = yes\nminimum = 40M\n",
		      "[disk b] minimum = 41943040: the minimums up to here add up to 83886080");
}

int main(void)
{
	CU_TestInfo tests[] = {{"defaults", defaults}, {"every key", every_key},
			       {"refusals", refusals}, {"names and sockets", names},
			       {"exposure", exposure}, CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"config", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("config");
	return unit_run(suites);
}
