// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is the host short of memory, and how much may the pool still take?
 *
 * It is short when MemAvailable falls below host_reserve. MemAvailable is an estimate, so between
 * the reserve and twice the reserve the kernel's own measure counts as well: time in which all
 * tasks waited for memory ("full" in /proc/pressure/memory, PSI). Without a reserve the host is not
 * looked at. A control group near its limit counts like a host (cgroup.h).
 *
 * The pool grows until it comes near to where the host would be short, and stops there: growing
 * into the shortage would drop the ephemeral pages that it grew for. What it may take is counted
 * down between two looks, and near the end there is a look for each chunk, because populating is
 * much faster than looks are frequent.
 */
#include "base/clock.h"
#include "base/log.h"
#include "store/store_priv.h"

#define LOOK_INTERVAL (200 * CLOCK_MS)
/* The host is well again when it has 1/8 more than the reserve. */
#define HYSTERESIS 8
/* Percent of the last ten seconds in which all tasks waited for memory. */
#define STALLED 5
/* With no more than this left to take, each chunk is worth a look. */
#define NEAR (64ull << 20)

/* MemAvailable as seen from the reserve. An unreadable one changes nothing but growth. */
static bool host_short(struct store *store, struct cgroup_room *room)
{
	uint64_t reserve = atomic_load(&store->host_reserve), have, enough, percent;

	if (!reserve)
		return false;
	if (!read_number(store->meminfo_fd, "MemAvailable:", ":", &have)) {
		room->grow = 0;
		return store->host_low;
	}
	have *= 1024;
	enough = reserve + reserve / HYSTERESIS;
	if (have < enough + room->grow)
		room->grow = have > enough ? have - enough : 0;
	if (have < reserve || (have <= enough && store->host_low))
		return true;
	return have < 2 * reserve && read_number(store->psi_fd, "full ", "avg10=", &percent) &&
	       percent >= STALLED;
}

static void say(const struct store *store, const struct cgroup_room *room)
{
	uint64_t reserve = atomic_load(&store->host_reserve);

	if (room->low)
		log_limited(LOG_WARN,
			    "the control group of the service is near its limit of %llu MiB: "
			    "ephemeral pages go, the pool does not grow",
			    (unsigned long long)room->limit >> 20);
	else
		log_limited(LOG_WARN,
			    "the host is short of memory: less than host_reserve, %llu MiB, or "
			    "near it and stalling: ephemeral pages go, the pool does not grow",
			    (unsigned long long)reserve >> 20);
}

void pressure_check(struct store *store, bool at_once)
{
	bool was = atomic_load(&store->pressure), is;
	uint64_t now = clock_ns();
	struct cgroup_room room;

	if (!at_once && now < store->next_look)
		return;
	store->next_look = now + LOOK_INTERVAL;
	cgroup_look(&store->cgroup, &room);
	store->host_low = host_short(store, &room);
	is = store->host_low || room.low;
	atomic_store(&store->host_left, is ? 0 : room.grow);
	atomic_store(&store->pressure, is);
	if (is && !was) {
		counter_add(&store->counters[STORE_PRESSURE], 1);
		say(store, &room);
	}
}

void pressure_taken(struct store *store, uint64_t bytes)
{
	uint64_t left = atomic_load(&store->host_left);

	if (left == UINT64_MAX)
		return;
	left -= bytes < left ? bytes : left;
	atomic_store(&store->host_left, left);
	if (left < NEAR)
		store->next_look = 0;
}
