// SPDX-License-Identifier: GPL-2.0-or-later
/* Hosts that lend memory to this one, and what this one lends: tmemctl peer ... */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <stdio.h>
#include <string.h>

#include "proto/control.h"

/* ---- For a person --------------------------------------------------------------------------- */

static void state_of(json_t *peer, char *text, size_t room)
{
	snprintf(text, room, "%s%s%s", string_of(peer, TMEM_KEY_STATE),
		 json_is_true(json_object_get(peer, TMEM_KEY_DRAINING)) ? ",draining" : "",
		 json_is_true(json_object_get(peer, TMEM_KEY_LEAVING)) ? ",leaving" : "");
}

static void print_lending(json_t *lending)
{
	char lend[16], lent[16];

	if (!json_is_object(lending)) {
		printf("this host lends nothing\n");
		return;
	}
	print_size(number_of(lending, TMEM_KEY_LEND_BYTES), lend);
	print_size(number_of(lending, TMEM_KEY_LENT_BYTES), lent);
	printf("this host, as %s: %s physical lent, of at most %s, on port %.0f\n",
	       string_of(lending, TMEM_KEY_NAME), lent, lend, number_of(lending, TMEM_KEY_PORT));
}

static void print_peer(json_t *peer, int width)
{
	const char *why = json_string_value(json_object_get(peer, TMEM_KEY_WHY));
	char state[64], spare[16];

	state_of(peer, state, sizeof(state));
	print_size(number_of(peer, TMEM_KEY_SPARE_BYTES), spare);
	printf("%-*s  %-18s  %9.0f  %8s  %8.0f  %s:%.0f%s%s%s\n", width,
	       string_of(peer, TMEM_KEY_NAME), state, number_of(peer, TMEM_KEY_BLOBS), spare,
	       number_of(peer, TMEM_KEY_LATENCY_US), string_of(peer, TMEM_KEY_HOST),
	       number_of(peer, TMEM_KEY_PORT), why ? " (" : "", why ? why : "", why ? ")" : "");
}

static void print_peers(json_t *result)
{
	json_t *peers = json_object_get(result, TMEM_KEY_PEERS), *peer;
	int width = 4;
	size_t i;

	json_array_foreach(peers, i, peer)
	{
		int len = (int)strlen(string_of(peer, TMEM_KEY_NAME));

		width = len > width ? len : width;
	}
	printf("%-*s  %-18s  %9s  %8s  %8s  %s\n", width, "PEER", "STATE", "PAGES", "SPARE",
	       "LATENCY", "ADDRESS");
	printf("%-*s  %-18s  %9s  %8s  %8s\n", width, "", "", "THERE", "PHYSICAL", "US");
	json_array_foreach(peers, i, peer) print_peer(peer, width);
	print_lending(json_object_get(result, TMEM_KEY_LENDING));
}

static void print_counters(json_t *object)
{
	json_t *value;
	const char *key;

	json_object_foreach(json_object_get(object, TMEM_KEY_COUNTERS), key, value)
		printf("  %-24s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
}

/* The bound below which that share of all was. */
static void print_share(json_t *buckets, double share, const char *name)
{
	double all = 0, sum = 0;
	json_t *value;
	size_t i;

	json_array_foreach(buckets, i, value) all += (double)json_integer_value(value);
	if (all <= 0)
		return;
	json_array_foreach(buckets, i, value)
	{
		sum += (double)json_integer_value(value);
		if (sum >= all * share)
			break;
	}
	printf("  %-24s below %llu us\n", name, 2ull << i);
}

static void print_stats(json_t *result)
{
	json_t *peer, *lending = json_object_get(result, TMEM_KEY_LENDING);
	size_t i;

	json_array_foreach(json_object_get(result, TMEM_KEY_PEERS), i, peer)
	{
		char state[64];

		state_of(peer, state, sizeof(state));
		printf("peer %s (%s; bytes are physical)\n", string_of(peer, TMEM_KEY_NAME), state);
		print_counters(peer);
		print_share(json_object_get(peer, TMEM_KEY_GET_LATENCY), 0.5, "get_p50");
		print_share(json_object_get(peer, TMEM_KEY_GET_LATENCY), 0.99, "get_p99");
		print_share(json_object_get(peer, TMEM_KEY_PUT_LATENCY), 0.5, "put_p50");
		print_share(json_object_get(peer, TMEM_KEY_PUT_LATENCY), 0.99, "put_p99");
	}
	print_lending(lending);
	print_counters(lending);
}

/* ---- Commands ------------------------------------------------------------------------------- */

static json_t *request_about(const char *command, const char *name)
{
	return json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, command, TMEM_KEY_NAME, name);
}

int run_peer_list(const struct ctl *ctl)
{
	return call_and_print(ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_PEER_LIST),
			      print_peers);
}

/* Leaves the peer of that name alone in the list; false: there is none. */
static bool only(json_t *result, const char *name)
{
	json_t *peers = json_object_get(result, TMEM_KEY_PEERS);

	for (size_t i = json_array_size(peers); i-- > 0;)
		if (strcmp(string_of(json_array_get(peers, i), TMEM_KEY_NAME), name) != 0)
			json_array_remove(peers, i);
	return json_array_size(peers) != 0;
}

int run_peer_stat(const struct ctl *ctl)
{
	json_t *result;
	int r = ctl_call(ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_PEER_LIST),
			 CTL_PATIENCE_S, &result);

	if (r)
		return r;
	if (ctl->argc && !only(result, ctl->argv[0])) {
		fprintf(stderr, "tmemctl: there is no peer \"%s\"; see tmemctl peer list\n",
			ctl->argv[0]);
		r = CTL_REFUSED;
	} else if (ctl->json) {
		print_json(result);
	} else {
		print_stats(result);
	}
	json_decref(result);
	return r;
}

int run_peer_drain(const struct ctl *ctl)
{
	json_t *request = request_about(TMEM_CMD_PEER_DRAIN, ctl->argv[0]);

	if (ctl->timeout >= 0)
		json_object_set_new(request, TMEM_KEY_TIMEOUT_MS,
				    json_integer((json_int_t)(ctl->timeout * 1000)));
	return call_and_print(ctl, request, NULL);
}

int run_peer_allow(const struct ctl *ctl)
{
	return call_and_print(ctl, request_about(TMEM_CMD_PEER_ALLOW, ctl->argv[0]), NULL);
}

int run_peer_deny(const struct ctl *ctl)
{
	return call_and_print(ctl, request_about(TMEM_CMD_PEER_DENY, ctl->argv[0]), NULL);
}
