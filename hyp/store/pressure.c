// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is the host short of memory?
 *
 * It is when MemAvailable falls below host_reserve. MemAvailable is an estimate, so between the
 * reserve and twice the reserve the kernel's own measure counts as well: time in which all tasks
 * waited for memory ("full" in /proc/pressure/memory, PSI). Without a reserve nothing is looked at.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/store_priv.h"

#define LOOK_INTERVAL (200 * CLOCK_MS)
/* The host is well again when it has 1/8 more than the reserve. */
#define HYSTERESIS 8
/* Waiting for memory for more than 1/STALLED of the time. */
#define STALLED 20

/* The number behind `key` in a small file of the kernel's; false when it cannot be read. */
static bool read_number(int fd, const char *line, const char *key, uint64_t *value)
{
	char text[2048], *at;
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = 0;
	at = strstr(text, line);
	at = at ? strstr(at, key) : NULL;
	if (!at)
		return false;
	*value = strtoull(at + strlen(key), NULL, 10);
	return true;
}

/* Did tasks wait for memory, more than a little, since the last look? */
static bool stalled(struct store *store, uint64_t now)
{
	uint64_t total, last = store->psi_total, passed = now - store->psi_at;
	bool first = !store->psi_at;

	if (!read_number(store->psi_fd, "full ", "total=", &total))
		return false;
	store->psi_total = total; /* microseconds */
	store->psi_at = now;
	return !first && (total - last) * CLOCK_US * STALLED > passed;
}

static bool short_of_memory(struct store *store, uint64_t reserve, uint64_t have, bool was,
			    uint64_t now)
{
	bool stall = stalled(store, now);

	if (have < reserve || (have < 2 * reserve && stall))
		return true;
	return was && have <= reserve + reserve / HYSTERESIS;
}

void pressure_check(struct store *store, bool at_once)
{
	uint64_t reserve = atomic_load(&store->host_reserve), have, now = clock_ns();
	bool was = atomic_load(&store->pressure), is;

	if (!at_once && now < store->next_look)
		return;
	store->next_look = now + LOOK_INTERVAL;
	if (!reserve) {
		atomic_store(&store->pressure, false);
		return;
	}
	if (!read_number(store->meminfo_fd, "MemAvailable:", ":", &have))
		return;
	have *= 1024;
	is = short_of_memory(store, reserve, have, was, now);
	atomic_store(&store->pressure, is);
	if (is && !was) {
		counter_add(&store->counters[STORE_PRESSURE], 1);
		log_limited(LOG_WARN,
			    "the host is short of memory: %llu MiB available, host_reserve is %llu "
			    "MiB: ephemeral pages go, the pool does not grow",
			    (unsigned long long)have >> 20, (unsigned long long)reserve >> 20);
	}
}
