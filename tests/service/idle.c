// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guests that need nothing cost nothing (case 34): the service wakes up for its heartbeat and to
 * look at the host's memory, its workers not at all. Wake-ups are counted, not timed.
 */
#include "player.h"

#include <dirent.h>
#include <string.h>

#define SECONDS 3
/* The door and the store look around ten times a second each; the others wait for events. */
#define WAKE_UPS_A_SECOND 40

struct wake_ups {
	unsigned long all, workers;
};

static unsigned long of_thread(const char *task, bool *worker)
{
	unsigned long n, sum = 0;
	char line[128];
	FILE *f = fopen(task, "re");

	*worker = false;
	while (f && fgets(line, sizeof(line), f)) {
		*worker |= !strcmp(line, "Name:\ttmemd-worker\n");
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
			sum += n;
	}
	if (f)
		fclose(f);
	return sum;
}

static struct wake_ups wake_ups(void)
{
	struct wake_ups sum = {0, 0};
	char dir[64], task[360];
	struct dirent *entry;
	unsigned threads = 0;
	bool worker;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/task", service_pid());
	d = opendir(dir);
	CHECK(d);
	while ((entry = readdir(d))) {
		unsigned long n;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(task, sizeof(task), "%s/%s/status", dir, entry->d_name);
		n = of_thread(task, &worker);
		sum.all += n;
		sum.workers += worker ? n : 0;
		threads += worker;
	}
	closedir(d);
	CHECK(threads);
	return sum;
}

int main(void)
{
	struct tmem_client *vm1, *vm2;
	struct wake_ups before, after;
	uint32_t pool;

	service_configure("idle", "");
	service_start(NULL);
	vm1 = player_open("vm1", 4, 64);
	vm2 = player_open("vm2", 4, 64);
	pool = player_pool(vm1, PERSISTENT);
	for (uint32_t i = 0; i < 200; i++)
		CHECK_IS(player_put(vm1, pool, i, i), 1);
	player_nap_ms(500); /* polling ends, memory for these puts is made ready again */
	before = wake_ups();
	player_nap_ms(SECONDS * 1000);
	after = wake_ups();
	printf("%lu wake-ups in %u s, %lu of them the workers'\n", after.all - before.all, SECONDS,
	       after.workers - before.workers);
	CHECK(after.all - before.all < SECONDS * WAKE_UPS_A_SECOND);
	CHECK_IS(after.workers - before.workers, 0);
	CHECK_IS(player_get(vm1, pool, 7, 7), 1);
	tmem_client_close(vm1);
	tmem_client_close(vm2);
	return 0;
}
