/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Time. Monotonic nanoseconds; goes on over a restart of the service, not over one of the host. */
#ifndef TMEMD_BASE_CLOCK_H
#define TMEMD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_US 1000ull
#define CLOCK_MS 1000000ull
#define CLOCK_S 1000000000ull

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * CLOCK_S + (uint64_t)ts.tv_nsec;
}

#endif
