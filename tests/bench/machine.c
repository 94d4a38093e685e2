// SPDX-License-Identifier: GPL-2.0-or-later
/* What the machine is, and what on it makes figures doubtful. */
#include "bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static struct {
	char cpu[128], kernel[128], governor[32], thp_shmem[64];
	long cpus;
	uint64_t memory, swap_used;
	double load;
	bool virtual;
} machine;

/* The rest of the first line that begins with `key`, behind its colon. */
static void file_field(const char *path, const char *key, char *to, size_t room)
{
	char line[4096], *at;
	FILE *f = fopen(path, "re");

	snprintf(to, room, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)))
			continue;
		at = *key ? strchr(line, ':') : line - 1;
		if (!at)
			continue;
		at += 1 + strspn(at + 1, " \t");
		at[strcspn(at, "\n")] = 0;
		snprintf(to, room, "%.*s", (int)room - 1, at);
		break;
	}
	if (f)
		fclose(f);
}

static uint64_t meminfo(const char *key)
{
	char text[64];

	file_field("/proc/meminfo", key, text, sizeof(text));
	return strtoull(text, NULL, 10) * 1024;
}

void machine_begin(void)
{
	struct utsname name;
	char flags[4096];

	file_field("/proc/cpuinfo", "model name", machine.cpu, sizeof(machine.cpu));
	file_field("/proc/cpuinfo", "flags", flags, sizeof(flags));
	file_field("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", machine.governor,
		   sizeof(machine.governor));
	file_field("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "", machine.thp_shmem,
		   sizeof(machine.thp_shmem));
	machine.virtual = strstr(flags, " hypervisor") != NULL;
	machine.cpus = sysconf(_SC_NPROCESSORS_ONLN);
	machine.memory = meminfo("MemTotal");
	machine.swap_used = meminfo("SwapTotal") - meminfo("SwapFree");
	if (!uname(&name))
		snprintf(machine.kernel, sizeof(machine.kernel), "%.60s %.60s", name.sysname,
			 name.release);
	if (getloadavg(&machine.load, 1) != 1)
		machine.load = -1;
	printf("machine: %s, %ld CPUs%s, %llu MiB, %s; governor %s; shmem huge pages %s\n",
	       machine.cpu, machine.cpus, machine.virtual ? " (virtual)" : "",
	       (unsigned long long)machine.memory >> 20, machine.kernel, machine.governor,
	       machine.thp_shmem);
	printf("state at start: load %.2f, swap in use %llu MiB\n", machine.load,
	       (unsigned long long)machine.swap_used >> 20);
	if (machine.load > 0.5)
		printf("WARNING: the machine is not idle; wall times and spread will show it\n");
	if (machine.swap_used)
		printf("WARNING: swap is in use: the figures may measure the disk\n");
}

void *machine_json(void)
{
	return json_pack("{s:s,s:I,s:b,s:I,s:s,s:s,s:s,s:f,s:I}", "cpu", machine.cpu, "cpus",
			 (json_int_t)machine.cpus, "virtual", machine.virtual, "memory_bytes",
			 (json_int_t)machine.memory, "kernel", machine.kernel, "governor",
			 machine.governor, "shmem_huge_pages", machine.thp_shmem, "load_at_start",
			 machine.load, "swap_used_bytes", (json_int_t)machine.swap_used);
}
