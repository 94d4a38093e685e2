// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A draw, not "the one with the most": what a host says of its spare memory is a while old, and all
 * of its owners would take the same one at the same time.
 */
#include "place.h"

#define FLOOR_US 100u	    /* differences below are noise */
#define SLOW_FACTOR 8u	    /* times the fastest one's latency: slow */
#define SLOW_FLOOR_US 5000u /* but nobody is slow below that */
#define UNIT 4096u	    /* of spare memory; less counts as one */
#define UNITS_MAX (1ull << 32)

static uint32_t latency(const struct place_host *host)
{
	return host->latency_us > FLOOR_US ? host->latency_us : FLOOR_US;
}

static bool can(const struct place_host *host, uint32_t len)
{
	return host->usable && host->spare >= len;
}

/* Below 2^32 units times 2^10: 256 hosts do not overflow. 0: not to be chosen. */
static uint64_t weight(const struct place_host *host, uint32_t len, uint32_t fastest)
{
	uint64_t units = host->spare / UNIT + 1;
	uint64_t slow = (uint64_t)fastest * SLOW_FACTOR;

	if (!can(host, len))
		return 0;
	if (latency(host) > (slow > SLOW_FLOOR_US ? slow : SLOW_FLOOR_US))
		return 0;
	units = units < UNITS_MAX ? units : UNITS_MAX;
	return units * 1024 * fastest / latency(host) + 1;
}

int place_choose(const struct place_host *hosts, unsigned nr, uint32_t len, uint64_t random)
{
	uint32_t fastest = UINT32_MAX;
	uint64_t sum = 0;

	for (unsigned i = 0; i < nr; i++)
		if (can(&hosts[i], len) && latency(&hosts[i]) < fastest)
			fastest = latency(&hosts[i]);
	for (unsigned i = 0; i < nr; i++)
		sum += weight(&hosts[i], len, fastest);
	if (!sum)
		return PLACE_NONE;
	random %= sum;
	for (unsigned i = 0; i < nr; i++) {
		uint64_t w = weight(&hosts[i], len, fastest);

		if (random < w)
			return (int)i;
		random -= w;
	}
	return PLACE_NONE;
}
