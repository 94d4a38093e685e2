// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rules of tmem-balloon.
 *
 * tmemd's pool grows until the domain's available memory is down to host_reserve and an eighth of
 * it. So a domain that is kept a little above that has room for the pool as it is needed, and what
 * lies above is nobody's. All decisions are made on Xen's free memory as it will be when the kernel
 * has done what it was told last, or the same shortage would be answered twice.
 */
#include "tools/xen/balloon.h"

/* tmemd's pool stops so much above its reserve: HYSTERESIS of hyp/store/pressure.c. */
#define POOL_STOPS(reserve) ((reserve) + (reserve) / 8)
/* Steps of memory that nobody needs, at which the domain gives one of them back. */
#define SURPLUS_STEPS 4

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t balloon_slack(const struct balloon_state *state)
{
	return above(state->available, POOL_STOPS(state->reserve));
}

uint64_t balloon_projected(const struct balloon_state *state)
{
	if (state->current >= state->target)
		return state->xen_free + (state->current - state->target);
	return above(state->xen_free, state->target - state->current);
}

uint64_t balloon_growth(const struct balloon_config *config, const struct balloon_state *state)
{
	uint64_t coming = above(state->target, state->current);
	uint64_t growth = above(balloon_projected(state), config->xen_free);

	/* The pool has what it may have, or has room, or the domain is not there yet. */
	if (state->pool >= state->pool_max || balloon_slack(state) + coming >= config->step ||
	    coming)
		return 0;
	growth = smaller(growth, config->step);
	growth = smaller(growth, above(config->maximum, state->target));
	/* Little by little is not worth the kernel's work. */
	return growth < config->step / 4 ? 0 : growth;
}

uint64_t balloon_shortage(const struct balloon_state *state, uint64_t want)
{
	return above(want, balloon_projected(state));
}

uint64_t balloon_surplus(const struct balloon_config *config, const struct balloon_state *state)
{
	if (state->current != state->target || balloon_slack(state) <= SURPLUS_STEPS * config->step)
		return 0;
	return smaller(config->step, above(state->target, config->minimum));
}
