/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which host gets a blob. Pure: the same code places blobs of a host and of a simulated fleet.
 */
#ifndef TMEMD_TIER_PLACE_H
#define TMEMD_TIER_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#define PLACE_NONE (-1)

struct place_host {
	bool usable;	     /* answers, takes blobs, and has not been tried */
	uint64_t spare;	     /* bytes */
	uint32_t latency_us; /* 0: not known */
};

/*
 * One of `nr` hosts for a blob of `len` bytes, or PLACE_NONE: drawn with a chance in proportion to
 * its spare memory and, among hosts that differ in it, to its speed. A host that is much slower
 * than the fastest gets blobs only when no other can have them. `random`: 64 random bits.
 */
int place_choose(const struct place_host *hosts, unsigned nr, uint32_t len, uint64_t random);

#endif
