// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The commands about peers: hosts that lend memory to this one, or borrow from it. What they do is
 * the service's, by struct control_ops.
 */
#include "config.h"

#include "control/control_priv.h"

#include <errno.h>

#include "proto/control.h"

/* ---- Answers -------------------------------------------------------------------------------- */

static json_t *counters_object(const struct counter_info *info, const uint64_t *values, int nr)
{
	json_t *o = json_object();

	for (int i = 0; i < nr; i++)
		put_int(o, info[i].name, values[i]);
	return o;
}

static json_t *buckets(const uint64_t values[CONTROL_LATENCY_BUCKETS])
{
	json_t *array = json_array();

	for (unsigned i = 0; i < CONTROL_LATENCY_BUCKETS; i++)
		json_array_append_new(array, json_integer((json_int_t)values[i]));
	return array;
}

static json_t *peer_object(const struct control_peer *peer)
{
	json_t *o = json_object();

	json_object_set_new(o, TMEM_KEY_NAME, json_string(peer->name));
	json_object_set_new(o, TMEM_KEY_HOST, json_string(peer->host));
	put_int(o, TMEM_KEY_PORT, peer->port);
	json_object_set_new(o, TMEM_KEY_STATE, json_string(peer->state));
	json_object_set_new(o, TMEM_KEY_DRAINING, json_boolean(peer->draining));
	json_object_set_new(o, TMEM_KEY_LEAVING, json_boolean(peer->leaving));
	put_int(o, TMEM_KEY_SPARE_BYTES, peer->spare_bytes);
	put_int(o, TMEM_KEY_BLOBS, peer->blobs);
	put_int(o, TMEM_KEY_LATENCY_US, peer->latency_us);
	json_object_set_new(o, TMEM_KEY_WHY, peer->why[0] ? json_string(peer->why) : json_null());
	json_object_set_new(o, TMEM_KEY_COUNTERS,
			    counters_object(peer_counter_info, peer->counters, PEER_COUNTER_NR));
	json_object_set_new(o, TMEM_KEY_GET_LATENCY, buckets(peer->get_latency));
	json_object_set_new(o, TMEM_KEY_PUT_LATENCY, buckets(peer->put_latency));
	return o;
}

static json_t *lending_object(struct control *control)
{
	struct control_lending lending = {0};
	json_t *o;

	if (!control->ops.lending(control->arg, &lending))
		return json_null();
	o = json_object();
	json_object_set_new(o, TMEM_KEY_NAME, json_string(lending.name));
	put_int(o, TMEM_KEY_PORT, lending.port);
	put_int(o, TMEM_KEY_LEND_BYTES, lending.lend_bytes);
	put_int(o, TMEM_KEY_LENT_BYTES, lending.lent_bytes);
	json_object_set_new(o, TMEM_KEY_COUNTERS,
			    counters_object(lender_counter_info, lending.counters,
					    LENDER_COUNTER_NR));
	return o;
}

void run_peer_list(struct control *control, json_t *request, struct reply *reply)
{
	json_t *array = json_array();
	struct control_peer peer = {0};

	(void)request;
	for (unsigned i = 0; control->ops.peer(control->arg, i, &peer); i++)
		json_array_append_new(array, peer_object(&peer));
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_PEERS, array);
	json_object_set_new(reply->result, TMEM_KEY_LENDING, lending_object(control));
}

/* ---- Changes -------------------------------------------------------------------------------- */

static void change(struct control *control, json_t *request, enum control_peer_change what,
		   struct reply *reply)
{
	const char *name = json_string_value(json_object_get(request, TMEM_KEY_NAME));
	uint32_t deadline = TMEM_CONTROL_DRAIN_MS;
	char err[512] = "";
	int r;

	if (json_object_get(request, TMEM_KEY_TIMEOUT_MS))
		deadline = (uint32_t)get_int(request, TMEM_KEY_TIMEOUT_MS);
	r = control->ops.peer_change(control->arg, what, name, deadline, err, sizeof(err));
	if (r)
		reply_error(reply, r == -ENOENT ? TMEM_ERR_NO_CLIENT : TMEM_ERR_REFUSED, "%s", err);
	else
		reply->result = json_object();
}

void run_peer_drain(struct control *control, json_t *request, struct reply *reply)
{
	change(control, request, CONTROL_PEER_DRAIN, reply);
}

void run_peer_allow(struct control *control, json_t *request, struct reply *reply)
{
	change(control, request, CONTROL_PEER_ALLOW, reply);
}

void run_peer_deny(struct control *control, json_t *request, struct reply *reply)
{
	change(control, request, CONTROL_PEER_DENY, reply);
}
