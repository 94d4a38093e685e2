// SPDX-License-Identifier: GPL-2.0-or-later
/* Limits of control groups: found in both kinds of hierarchy, the nearest one counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/cgroup.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#define MIB (1ull << 20)

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(scratch_path(name), "we");

	CU_ASSERT_FATAL(f != NULL);
	fputs(text, f);
	fclose(f);
}

static void write_number(const char *name, uint64_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);
	write_file(name, text);
}

/* /proc/self of a process in /a/b, with the hierarchy mounted at `tree`, seen from `root` on. */
static void make_proc(const char *groups, const char *root, const char *type)
{
	char line[600];

	mkdir(scratch_path("proc"), 0700);
	mkdir(scratch_path("tree"), 0700);
	mkdir(scratch_path("tree/a"), 0700);
	mkdir(scratch_path("tree/a/b"), 0700);
	write_file("proc/cgroup", groups);
	snprintf(line, sizeof(line),
		 "22 1 0:20 / /proc rw - proc proc rw\n"
		 "30 22 0:26 %s %s rw,nosuid shared:4 - %s\n",
		 root, scratch_path("tree"), type);
	write_file("proc/mountinfo", line);
}

static void clear(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf %s %s", scratch_path("proc"),
		 scratch_path("tree"));
	CU_ASSERT(!system(command));
}

static struct cgroup_room look(struct cgroup *cg)
{
	struct cgroup_room room;

	cgroup_look(cg, &room);
	return room;
}

/* 512 MiB of a 1 GiB group, in a parent without limit: 64 MiB are the reserve. */
static void unified(void)
{
	struct cgroup cg;

	make_proc("1:name=systemd:/x\n0::/a/b\n", "/", "cgroup2 cgroup2 rw");
	write_number("tree/a/b/memory.current", 512 * MIB);
	write_file("tree/a/b/memory.max", "max\n");
	write_file("tree/a/b/memory.high", "max\n");
	write_file("tree/a/b/memory.stat", "anon 5\nactive_file 7\ninactive_file 1048576\n");
	write_number("tree/a/memory.current", 600 * MIB);
	write_file("tree/a/memory.max", "max\n");
	cgroup_open(&cg, scratch_path("proc"));
	CU_ASSERT(cg.nr == 2);
	CU_ASSERT(look(&cg).limit == UINT64_MAX && look(&cg).grow == UINT64_MAX);
	CU_ASSERT(cgroup_left(&cg) == UINT64_MAX);
	/* Limits are read anew. */
	write_number("tree/a/b/memory.max", 1024 * MIB);
	CU_ASSERT(look(&cg).limit == 1024 * MIB && look(&cg).grow == 448 * MIB);
	CU_ASSERT(!look(&cg).low && cgroup_left(&cg) == 512 * MIB);
	write_number("tree/a/b/memory.high", 800 * MIB);
	CU_ASSERT(look(&cg).limit == 800 * MIB && look(&cg).grow == 238 * MIB);
	/* The parent's is nearer; what is cached there counts as free. */
	write_number("tree/a/memory.max", 640 * MIB);
	CU_ASSERT(look(&cg).limit == 640 * MIB && look(&cg).grow == 0);
	CU_ASSERT(cgroup_left(&cg) == 40 * MIB);
	write_file("tree/a/memory.stat", "anon 1\ninactive_file 10485760\n");
	cgroup_close(&cg);
	cgroup_open(&cg, scratch_path("proc"));
	CU_ASSERT(look(&cg).grow == 10 * MIB && cgroup_left(&cg) == 50 * MIB);
	/* Low below half of the reserve of 40 MiB, until there are three quarters. */
	write_file("tree/a/memory.stat", "anon 1\ninactive_file 0\n");
	write_number("tree/a/memory.current", 621 * MIB);
	CU_ASSERT(look(&cg).low);
	write_number("tree/a/memory.current", 611 * MIB);
	CU_ASSERT(look(&cg).low);
	write_number("tree/a/memory.current", 609 * MIB);
	CU_ASSERT(!look(&cg).low);
	write_number("tree/a/memory.current", 641 * MIB);
	CU_ASSERT(look(&cg).low && cgroup_left(&cg) == 0);
	cgroup_close(&cg);
	clear();
}

/* The memory controller is in a hierarchy of its own; a container's part of it is mounted. */
static void legacy(void)
{
	struct cgroup cg;

	make_proc("5:cpu:/y\n4:memory:/docker/a/b\n0::/\n", "/docker", "cgroup memory rw,memory");
	write_number("tree/a/b/memory.usage_in_bytes", 100 * MIB);
	write_number("tree/a/b/memory.limit_in_bytes", 128 * MIB);
	write_file("tree/a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 0\n");
	write_number("tree/memory.usage_in_bytes", 1000 * MIB);
	write_file("tree/memory.limit_in_bytes", "9223372036854771712\n");
	cgroup_open(&cg, scratch_path("proc"));
	CU_ASSERT(cg.nr == 2);
	CU_ASSERT(look(&cg).limit == 128 * MIB && look(&cg).grow == 20 * MIB);
	cgroup_close(&cg);
	clear();
}

static void none(void)
{
	struct cgroup cg;

	cgroup_open(&cg, scratch_path("nothing"));
	CU_ASSERT(cg.nr == 0 && look(&cg).grow == UINT64_MAX && !look(&cg).low);
	cgroup_close(&cg);
	make_proc("nonsense\n0:\n::\n", "/", "cgroup2 cgroup2 rw");
	cgroup_open(&cg, scratch_path("proc"));
	CU_ASSERT(cg.nr == 0);
	cgroup_close(&cg);
	clear();
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"unified", unified}, {"legacy", legacy}, {"none", none}, CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"cgroup", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("cgroup-test");
	return unit_run(suites);
}
