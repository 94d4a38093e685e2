// SPDX-License-Identifier: GPL-2.0-or-later
/* tmem-balloon and tmemd, by its control socket. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "proto/control.h"
#include "tools/tmemctl/tmemctl.h"
#include "tools/xen/balloon.h"

/* Seconds until an answer about the state. */
#define PATIENCE_S 5

/* tmemctl's statuses are ours. */
_Static_assert((int)CTL_REFUSED == (int)BALLOON_REFUSED &&
		       (int)CTL_UNREACHED == (int)BALLOON_UNREACHED,
	       "a status is handed on");

static int ask(const struct balloon_config *config, json_t *request, int patience, json_t **result,
	       char why[BALLOON_WHY_MAX])
{
	const struct ctl ctl = {.socket = config->socket};
	char said[CTL_WHY_MAX];
	int r = ctl_ask(&ctl, request, patience, result, said);

	if (r)
		snprintf(why, BALLOON_WHY_MAX, "tmemd: %s", said);
	return r;
}

static uint64_t get(json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

int balloon_service_look(const struct balloon_config *config, struct balloon_state *state,
			 char why[BALLOON_WHY_MAX])
{
	json_t *result = NULL, *service, *client;
	size_t i;
	int r = ask(config, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_STAT), PATIENCE_S,
		    &result, why);

	if (r)
		return r;
	service = json_object_get(result, TMEM_KEY_SERVICE);
	state->pool = get(service, TMEM_KEY_POOL_BYTES);
	state->pool_max = get(service, TMEM_KEY_POOL_MAX_BYTES);
	state->reserve = get(service, TMEM_KEY_HOST_RESERVE_BYTES);
	state->persistent_pages = 0;
	json_array_foreach(json_object_get(result, TMEM_KEY_CLIENTS), i, client)
		state->persistent_pages += get(client, TMEM_KEY_PAGES_PERSISTENT);
	json_decref(result);
	if (state->reserve)
		return BALLOON_OK;
	snprintf(why, BALLOON_WHY_MAX,
		 "tmemd has no host_reserve, so its pool would take what is meant for Xen: set it "
		 "in "
		 "[pool] of tmemd.conf to what this domain needs for itself, and reload");
	return BALLOON_REFUSED;
}

int balloon_service_reclaim(const struct balloon_config *config, uint64_t bytes, double seconds,
			    uint64_t *got, char why[BALLOON_WHY_MAX])
{
	json_t *result = NULL;
	json_t *request =
		json_pack("{s:s, s:I, s:I}", TMEM_KEY_COMMAND, TMEM_CMD_RECLAIM, TMEM_KEY_BYTES,
			  (json_int_t)bytes, TMEM_KEY_TIMEOUT_MS, (json_int_t)(seconds * 1000));
	int r = ask(config, request, (int)seconds + PATIENCE_S, &result, why);

	*got = r ? 0 : get(result, TMEM_KEY_RECLAIMED_BYTES);
	json_decref(result);
	return r;
}
