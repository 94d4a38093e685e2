// SPDX-License-Identifier: GPL-2.0-or-later
/* The commands of the control socket: one table, and a function for each. */
#include "config.h"

#include "control/control_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/control.h"
#include "proto/tmem_abi.h"

/* A reclaim looks this often whether the service wants to stop. */
#define RECLAIM_STEP_MS 1000

/* ---- Values --------------------------------------------------------------------------------- */

void put_int(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

uint64_t get_int(json_t *request, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(request, key));
}

struct client_list {
	struct store_client **clients;
	unsigned nr, room;
};

static int collect(struct store_client *client, void *arg)
{
	struct client_list *list = arg;

	if (list->nr == list->room)
		return 1;
	list->clients[list->nr++] = client;
	return 0;
}

struct store_client **all_clients(struct store *store, unsigned *nr)
{
	struct client_list list = {.room = STORE_MAX_CLIENTS};

	list.clients = calloc(list.room, sizeof(*list.clients));
	if (list.clients)
		store_client_each(store, collect, &list);
	*nr = list.nr;
	return list.clients;
}

/* The client that the request names, or NULL: it names none, or (with the error) an unknown. */
static struct store_client *named_client(struct control *control, json_t *request,
					 struct reply *reply)
{
	const char *name = json_string_value(json_object_get(request, TMEM_KEY_CLIENT));
	struct store_client *client = name ? store_client_find(control->store, name) : NULL;

	if (name && !client)
		reply_error(reply, TMEM_ERR_NO_CLIENT, "there is no client \"%.64s\"", name);
	return client;
}

static uint64_t count(struct store_client *client, enum client_counter which)
{
	return counter_get(&store_client_counters(client)[which]);
}

/*
 * True when it is a disk, in the words of a channel: its queues are the rings. No socket: it is not
 * served.
 */
static bool disk_channel(struct control *control, const char *name, struct control_channel *ch)
{
	struct control_disk disk;

	if (control->ops.disk(control->arg, name, &disk))
		return false;
	ch->connected = disk.connected;
	ch->polling = disk.polling;
	ch->pid = disk.pid;
	ch->rings = disk.queues_running;
	ch->max_rings = disk.queues;
	if (disk.served)
		snprintf(ch->socket, sizeof(ch->socket), "%s", disk.socket);
	return true;
}

static void put_channel(struct control *control, const char *name, json_t *o)
{
	struct control_channel ch = {0};
	const char *state = TMEM_STATE_WAITING;
	bool is_disk = disk_channel(control, name, &ch);

	json_object_set_new(o, TMEM_KEY_KIND,
			    json_string(is_disk ? TMEM_KIND_DISK : TMEM_KIND_CLIENT));
	if (!ch.socket[0] && (is_disk || control->ops.channel(control->arg, name, &ch)))
		state = TMEM_STATE_UNCONFIGURED;
	else if (ch.connected)
		state = TMEM_STATE_CONNECTED;
	else if (ch.restored)
		state = TMEM_STATE_RESTORED;
	else if (ch.attached)
		state = TMEM_STATE_ATTACHED;
	json_object_set_new(o, TMEM_KEY_STATE, json_string(state));
	json_object_set_new(o, TMEM_KEY_POLLING, json_boolean(ch.polling));
	json_object_set_new(o, TMEM_KEY_PID, ch.pid ? json_integer(ch.pid) : json_null());
	if (ch.xen)
		json_object_set_new(o, TMEM_KEY_DOMAIN,
				    ch.domain ? json_integer(ch.domain) : json_null());
	put_int(o, TMEM_KEY_RINGS, ch.rings);
	put_int(o, TMEM_KEY_MAX_RINGS, ch.max_rings);
	put_int(o, TMEM_KEY_ENTRIES, ch.entries);
	put_int(o, TMEM_KEY_REGION_BYTES, ch.region_bytes);
	json_object_set_new(o, TMEM_KEY_SOCKET, json_string(ch.socket));
}

json_t *client_summary(struct control *control, struct store_client *client)
{
	uint64_t ephemeral = count(client, CLIENT_PAGES_EPHEMERAL);
	uint64_t persistent = count(client, CLIENT_PAGES_PERSISTENT);
	uint64_t logical = (ephemeral + persistent) * TMEM_PAGE_SIZE;
	uint64_t away = count(client, CLIENT_PAGES_AWAY);
	uint64_t here = away * TMEM_PAGE_SIZE < logical ? logical - away * TMEM_PAGE_SIZE : 0;
	uint64_t physical = count(client, CLIENT_PHYSICAL_BYTES);
	const char *name = store_client_name(client);
	struct store_limits limits;
	json_t *o = json_object();

	store_client_limits(client, &limits);
	json_object_set_new(o, TMEM_KEY_NAME, json_string(name));
	put_channel(control, name, o);
	json_object_set_new(o, TMEM_KEY_FROZEN, json_boolean(store_client_frozen(client)));
	put_int(o, TMEM_KEY_PAGES_EPHEMERAL, ephemeral);
	put_int(o, TMEM_KEY_PAGES_PERSISTENT, persistent);
	put_int(o, TMEM_KEY_PAGES_AWAY, away);
	put_int(o, TMEM_KEY_LOGICAL_BYTES, logical);
	put_int(o, TMEM_KEY_PHYSICAL_BYTES, physical);
	json_object_set_new(o, TMEM_KEY_RATIO,
			    here && physical ? json_real((double)here / (double)physical)
					     : json_null());
	put_int(o, TMEM_KEY_REFUSED,
		count(client, CLIENT_REFUSED_ROOM) + count(client, CLIENT_REFUSED_MAXIMUM) +
			count(client, CLIENT_REFUSED_FROZEN));
	put_int(o, TMEM_KEY_MINIMUM_BYTES, limits.min_bytes);
	put_int(o, TMEM_KEY_MAXIMUM_BYTES, limits.max_bytes);
	put_int(o, TMEM_KEY_WEIGHT, limits.weight);
	return o;
}

static json_t *counters_object(counter_t *counters, const struct counter_info *info, int nr)
{
	json_t *o = json_object();

	for (int i = 0; i < nr; i++)
		put_int(o, info[i].name, counter_get(&counters[i]));
	return o;
}

static json_t *pools_array(struct store_client *client)
{
	struct store_pool_info info[STORE_MAX_CLIENT_POOLS];
	unsigned nr = store_client_pools(client, info, STORE_MAX_CLIENT_POOLS);
	json_t *array = json_array();
	char uuid[37];

	for (unsigned i = 0; i < nr && i < STORE_MAX_CLIENT_POOLS; i++) {
		bool shared = info[i].flags & TMEM_POOL_SHARED;
		json_t *flags = json_array();
		json_t *o = json_object();

		json_array_append_new(flags,
				      json_string(info[i].flags & TMEM_POOL_PERSIST ? "persistent"
										    : "ephemeral"));
		json_array_append_new(flags, json_string(shared ? "shared" : "private"));
		if (info[i].flags & TMEM_POOL_X_INCLUSIVE)
			json_array_append_new(flags, json_string("inclusive"));
		put_int(o, TMEM_KEY_ID, info[i].id);
		json_object_set_new(o, TMEM_KEY_FLAGS, flags);
		uuid_format(info[i].uuid, uuid);
		json_object_set_new(o, TMEM_KEY_UUID, shared ? json_string(uuid) : json_null());
		put_int(o, TMEM_KEY_PAGES, info[i].pages);
		put_int(o, TMEM_KEY_MEMBERS, info[i].members);
		json_array_append_new(array, o);
	}
	return array;
}

/* ---- Commands that look --------------------------------------------------------------------- */

json_t *service_summary(struct control *control)
{
	counter_t *counters = store_counters(control->store);
	json_t *o = json_object();

	json_object_set_new(o, TMEM_KEY_VERSION, json_string(PACKAGE_VERSION));
	put_int(o, TMEM_KEY_POOL_BYTES, counter_get(&counters[STORE_POOL_BYTES]));
	put_int(o, TMEM_KEY_POOL_MAX_BYTES, store_pool_max(control->store));
	put_int(o, TMEM_KEY_EXPOSURE_BYTES, control->ops.exposure(control->arg));
	json_object_set_new(o, TMEM_KEY_FROZEN, json_boolean(store_frozen(control->store)));
	return o;
}

static void run_list(struct control *control, json_t *request, struct reply *reply)
{
	json_t *array = json_array();
	struct store_client **clients;
	unsigned nr;

	(void)request;
	clients = all_clients(control->store, &nr);
	for (unsigned i = 0; i < nr; i++)
		json_array_append_new(array, client_summary(control, clients[i]));
	free(clients);
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_SERVICE, service_summary(control));
	json_object_set_new(reply->result, TMEM_KEY_CLIENTS, array);
}

static json_t *client_details(struct control *control, struct store_client *client)
{
	json_t *o = client_summary(control, client);

	json_object_set_new(o, TMEM_KEY_COUNTERS,
			    counters_object(store_client_counters(client), client_counter_info,
					    CLIENT_COUNTER_NR));
	json_object_set_new(o, TMEM_KEY_POOLS, pools_array(client));
	return o;
}

static json_t *service_details(struct control *control)
{
	json_t *o = service_summary(control);
	int64_t fd_store = notify_fd_store();
	struct store_info info;

	store_info(control->store, &info);
	put_int(o, TMEM_KEY_PID, (uint64_t)getpid());
	put_int(o, TMEM_KEY_HOST_RESERVE_BYTES, store_host_reserve(control->store));
	json_object_set_new(o, TMEM_KEY_FD_STORE,
			    fd_store < 0 ? json_null() : json_integer(fd_store));
	json_object_set_new(o, TMEM_KEY_ARENA, json_string(info.arena_path));
	put_int(o, TMEM_KEY_ARENA_FORMAT, info.format);
	put_int(o, TMEM_KEY_ARENA_BYTES, info.capacity);
	json_object_set_new(o, TMEM_KEY_HUGE_PAGES, json_boolean(info.huge_pages));
	json_object_set_new(o, TMEM_KEY_COUNTERS,
			    counters_object(store_counters(control->store), store_counter_info,
					    STORE_COUNTER_NR));
	return o;
}

static void run_stat(struct control *control, json_t *request, struct reply *reply)
{
	struct store_client *client = named_client(control, request, reply);
	struct store_client **clients;
	json_t *array;
	unsigned nr;

	if (reply->code)
		return;
	array = json_array();
	reply->result = json_object();
	if (client) {
		json_array_append_new(array, client_details(control, client));
	} else {
		json_object_set_new(reply->result, TMEM_KEY_SERVICE, service_details(control));
		clients = all_clients(control->store, &nr);
		for (unsigned i = 0; i < nr; i++)
			json_array_append_new(array, client_details(control, clients[i]));
		free(clients);
	}
	json_object_set_new(reply->result, TMEM_KEY_CLIENTS, array);
}

static void run_metrics(struct control *control, json_t *request, struct reply *reply)
{
	char *text = metrics_text(control);

	(void)request;
	if (!text) {
		reply_error(reply, TMEM_ERR_BUSY, "the service is out of memory");
		return;
	}
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_TEXT, json_string(text));
	free(text);
}

static void run_freeable(struct control *control, json_t *request, struct reply *reply)
{
	(void)request;
	reply->result = json_object();
	put_int(reply->result, TMEM_KEY_FREEABLE_BYTES, store_freeable(control->store));
}

static void run_version(struct control *control, json_t *request, struct reply *reply)
{
	(void)control;
	(void)request;
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_VERSION, json_string(PACKAGE_VERSION));
	put_int(reply->result, TMEM_KEY_PROTOCOL, TMEM_CONTROL_VERSION);
	put_int(reply->result, TMEM_KEY_ABI_VERSION, TMEM_ABI_VERSION);
}

/* ---- Commands that change ------------------------------------------------------------------- */

/*
 * True, with the error, when what disks can take fits into the pool now and would not fit then:
 * with so much exposure and such a pool.
 */
static bool uncovers(struct control *control, uint64_t exposure, uint64_t pool_max,
		     struct reply *reply)
{
	uint64_t now = control->ops.exposure(control->arg);

	if (!now || now > store_pool_max(control->store) || exposure <= pool_max)
		return false;
	reply_error(reply, TMEM_ERR_REFUSED,
		    "all disks when nothing compresses, and the minimums of clients, would be "
		    "%" PRIu64 " physical bytes, and pool_max %" PRIu64
		    ": guests' writes to disks could fail; remove a disk first",
		    exposure, pool_max);
	return true;
}

/* What the client adds to the exposure with such a minimum. */
static uint64_t own_exposure(struct control *control, const struct store_client *client,
			     uint64_t minimum)
{
	struct control_disk disk;

	if (control->ops.disk(control->arg, store_client_name(client), &disk))
		return minimum;
	return config_disk_exposure(disk.bytes, minimum);
}

static void set_pool_max(struct control *control, json_t *request, struct reply *reply)
{
	uint64_t max = get_int(request, TMEM_KEY_POOL_MAX);

	if (uncovers(control, control->ops.exposure(control->arg), max, reply))
		return;
	if (store_set_pool_max(control->store, max))
		reply_error(reply, TMEM_ERR_REFUSED,
			    "pool_max cannot be below the sum of the clients' minimums nor above "
			    "what the arena was made for");
}

static void set_client(struct control *control, struct store_client *client, json_t *request,
		       struct reply *reply)
{
	uint64_t exposure = control->ops.exposure(control->arg), before;
	struct store_limits limits;
	int r;

	store_client_limits(client, &limits);
	before = limits.min_bytes;
	if (json_object_get(request, TMEM_KEY_MINIMUM))
		limits.min_bytes = get_int(request, TMEM_KEY_MINIMUM);
	if (json_object_get(request, TMEM_KEY_MAXIMUM))
		limits.max_bytes = get_int(request, TMEM_KEY_MAXIMUM);
	if (json_object_get(request, TMEM_KEY_WEIGHT))
		limits.weight = (uint32_t)get_int(request, TMEM_KEY_WEIGHT);
	if (limits.max_bytes && limits.min_bytes > limits.max_bytes) {
		reply_error(reply, TMEM_ERR_REFUSED,
			    "minimum %" PRIu64 " would be above maximum %" PRIu64, limits.min_bytes,
			    limits.max_bytes);
		return;
	}
	if (uncovers(control,
		     exposure - own_exposure(control, client, before) +
			     own_exposure(control, client, limits.min_bytes),
		     store_pool_max(control->store), reply))
		return;
	r = store_client_set_limits(client, &limits);
	if (r == -ENOSPC)
		reply_error(reply, TMEM_ERR_REFUSED,
			    "the minimums of all clients would add up to more than pool_max");
	else if (r)
		reply_error(reply, TMEM_ERR_REFUSED, "the limits are not possible: %s",
			    strerror(-r));
}

static void run_set(struct control *control, json_t *request, struct reply *reply)
{
	struct store_client *client = named_client(control, request, reply);
	bool limits = json_object_get(request, TMEM_KEY_MINIMUM) ||
		      json_object_get(request, TMEM_KEY_MAXIMUM) ||
		      json_object_get(request, TMEM_KEY_WEIGHT);
	bool pool = json_object_get(request, TMEM_KEY_POOL_MAX);

	if (reply->code)
		return;
	if (!limits && !pool)
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "nothing to set");
	else if (limits != (client != NULL) || pool == limits)
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "minimum, maximum and weight go with a client, pool_max without one");
	else if (client)
		set_client(control, client, request, reply);
	else
		set_pool_max(control, request, reply);
	if (!reply->code)
		reply->result = json_object();
}

/* Exactly one of client and all. The client, or NULL for all; or NULL and the error. */
static struct store_client *client_or_all(struct control *control, json_t *request,
					  struct reply *reply)
{
	bool all = json_is_true(json_object_get(request, TMEM_KEY_ALL));

	if (all == (json_object_get(request, TMEM_KEY_CLIENT) != NULL)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "say either a client or all");
		return NULL;
	}
	return named_client(control, request, reply);
}

static void freeze(struct control *control, json_t *request, struct reply *reply, bool frozen)
{
	struct store_client *client = client_or_all(control, request, reply);

	if (reply->code)
		return;
	if (client)
		store_client_freeze(client, frozen);
	else
		store_freeze(control->store, frozen);
	control->ops.refresh(control->arg);
	log_msg(LOG_NOTE, "%s: %s", client ? store_client_name(client) : "the service",
		frozen ? "frozen" : "thawed");
	reply->result = json_object();
}

static void run_freeze(struct control *control, json_t *request, struct reply *reply)
{
	freeze(control, request, reply, true);
}

static void run_thaw(struct control *control, json_t *request, struct reply *reply)
{
	freeze(control, request, reply, false);
}

static void run_shared_auth(struct control *control, json_t *request, struct reply *reply)
{
	struct store_client *client = named_client(control, request, reply);
	const char *text = json_string_value(json_object_get(request, TMEM_KEY_UUID));
	bool allow = json_is_true(json_object_get(request, TMEM_KEY_ALLOW));
	uint64_t uuid[2];

	if (reply->code)
		return;
	if (uuid_parse(text, uuid)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "\"%.64s\" is not a UUID such as 01234567-89ab-cdef-0123-456789abcdef",
			    text);
		return;
	}
	if (store_shared_auth(client, uuid, allow)) {
		reply_error(reply, TMEM_ERR_REFUSED,
			    "the client has as many authorisations as there is room for");
		return;
	}
	reply->result = json_object();
}

/* ---- Long commands: on a thread of their own ------------------------------------------------- */

static void run_reclaim(struct control *control, json_t *request, struct reply *reply)
{
	uint64_t want = get_int(request, TMEM_KEY_BYTES), done = 0, now = clock_ns(), end, left,
		 got;
	const struct timespec pause = {.tv_nsec = 20 * CLOCK_MS};
	bool timed = json_object_get(request, TMEM_KEY_TIMEOUT_MS);

	end = now +
	      CLOCK_MS * (timed ? get_int(request, TMEM_KEY_TIMEOUT_MS) : TMEM_CONTROL_RECLAIM_MS);
	do {
		left = (end - now) / CLOCK_MS;
		got = store_reclaim(control->store, want - done,
				    left < RECLAIM_STEP_MS ? (unsigned)left : RECLAIM_STEP_MS);
		done += got;
		/* Nothing to be had now; guests may flush something. */
		if (!got)
			nanosleep(&pause, NULL);
		now = clock_ns();
	} while (done < want && now < end && !atomic_load(&control->cancel));
	reply->result = json_object();
	put_int(reply->result, TMEM_KEY_RECLAIMED_BYTES, done);
	json_object_set_new(reply->result, TMEM_KEY_COMPLETE, json_boolean(done >= want));
}

static void run_flush(struct control *control, json_t *request, struct reply *reply)
{
	struct store_client *client;
	uint64_t pages;

	pthread_rwlock_rdlock(&control->clients);
	client = client_or_all(control, request, reply);
	if (!reply->code) {
		pages = store_flush_ephemeral(control->store, client);
		reply->result = json_object();
		put_int(reply->result, TMEM_KEY_PAGES, pages);
	}
	pthread_rwlock_unlock(&control->clients);
}

/* ---- The table ------------------------------------------------------------------------------ */

#define CLIENT(needed)                                                                             \
	{                                                                                          \
		TMEM_KEY_CLIENT, PARAM_STRING, needed, 0, 0                                        \
	}
#define BYTES(key, needed, min)                                                                    \
	{                                                                                          \
		key, PARAM_INTEGER, needed, min, INT64_MAX                                         \
	}
#define ALL                                                                                        \
	{                                                                                          \
		TMEM_KEY_ALL, PARAM_BOOLEAN, false, 0, 0                                           \
	}

#define DOMAIN(needed)                                                                             \
	{                                                                                          \
		TMEM_KEY_DOMAIN, PARAM_STRING, needed, 0, 0                                        \
	}
#define TIMEOUT                                                                                    \
	{                                                                                          \
		TMEM_KEY_TIMEOUT_MS, PARAM_INTEGER, false, 0, TMEM_CONTROL_MAX_RECLAIM_MS          \
	}
#define NAME                                                                                       \
	{                                                                                          \
		TMEM_KEY_NAME, PARAM_STRING, true, 0, 0                                            \
	}
#define DISK_SIZE                                                                                  \
	{                                                                                          \
		TMEM_KEY_SIZE, PARAM_INTEGER, true, CONFIG_DISK_BLOCK, CONFIG_DISK_MAX             \
	}

static const struct command commands[] = {
	{TMEM_CMD_LIST, false, run_list, NULL, {{0}}},
	{TMEM_CMD_STAT, false, run_stat, NULL, {CLIENT(false)}},
	{TMEM_CMD_METRICS, false, run_metrics, NULL, {{0}}},
	{TMEM_CMD_SET,
	 false,
	 run_set,
	 NULL,
	 {CLIENT(false),
	  BYTES(TMEM_KEY_MINIMUM, false, 0),
	  BYTES(TMEM_KEY_MAXIMUM, false, 0),
	  {TMEM_KEY_WEIGHT, PARAM_INTEGER, false, 1, 10000},
	  BYTES(TMEM_KEY_POOL_MAX, false, 1)}},
	{TMEM_CMD_FREEZE, false, run_freeze, NULL, {CLIENT(false), ALL}},
	{TMEM_CMD_THAW, false, run_thaw, NULL, {CLIENT(false), ALL}},
	{TMEM_CMD_FREEABLE, false, run_freeable, NULL, {{0}}},
	{TMEM_CMD_RECLAIM, true, run_reclaim, NULL, {BYTES(TMEM_KEY_BYTES, true, 1), TIMEOUT}},
	{TMEM_CMD_FLUSH, true, run_flush, NULL, {CLIENT(false), ALL}},
	{TMEM_CMD_SHARED_AUTH,
	 false,
	 run_shared_auth,
	 NULL,
	 {CLIENT(true),
	  {TMEM_KEY_UUID, PARAM_STRING, true, 0, 0},
	  {TMEM_KEY_ALLOW, PARAM_BOOLEAN, true, 0, 0}}},
	{TMEM_CMD_VERSION, false, run_version, NULL, {{0}}},
	{TMEM_CMD_DISK_CREATE,
	 false,
	 run_disk_create,
	 NULL,
	 {NAME,
	  DISK_SIZE,
	  {TMEM_KEY_QUEUES, PARAM_INTEGER, false, 1, CONFIG_DISK_QUEUES},
	  {TMEM_KEY_SOCKET, PARAM_STRING, false, 0, 0},
	  {TMEM_KEY_MODE, PARAM_INTEGER, false, 0, 0777},
	  {TMEM_KEY_UID, PARAM_INTEGER, false, -1, UINT32_MAX - 1},
	  {TMEM_KEY_GID, PARAM_INTEGER, false, -1, UINT32_MAX - 1},
	  BYTES(TMEM_KEY_MINIMUM, false, 0),
	  BYTES(TMEM_KEY_MAXIMUM, false, 0),
	  {TMEM_KEY_WEIGHT, PARAM_INTEGER, false, 1, 10000},
	  {TMEM_KEY_OVERCOMMIT, PARAM_BOOLEAN, false, 0, 0}}},
	{TMEM_CMD_DISK_LIST, false, run_disk_list, NULL, {{0}}},
	{TMEM_CMD_DISK_RESIZE, false, run_disk_resize, NULL, {NAME, DISK_SIZE}},
	{TMEM_CMD_DISK_REMOVE,
	 false,
	 run_disk_remove,
	 NULL,
	 {NAME, {TMEM_KEY_FORCE, PARAM_BOOLEAN, false, 0, 0}}},
	{TMEM_CMD_PEER_LIST, false, run_peer_list, NULL, {{0}}},
	{TMEM_CMD_PEER_DRAIN,
	 false,
	 run_peer_drain,
	 NULL,
	 {NAME, {TMEM_KEY_TIMEOUT_MS, PARAM_INTEGER, false, 0, TMEM_CONTROL_MAX_DRAIN_MS}}},
	{TMEM_CMD_PEER_ALLOW, false, run_peer_allow, NULL, {NAME}},
	{TMEM_CMD_PEER_DENY, false, run_peer_deny, NULL, {NAME}},
	{TMEM_CMD_DOMAIN, true, run_domain, NULL, {DOMAIN(false)}},
	{TMEM_CMD_DOMAIN_ATTACH, true, run_domain_attach, NULL, {DOMAIN(true), TIMEOUT}},
	{TMEM_CMD_DOMAIN_DETACH, true, run_domain_detach, NULL, {DOMAIN(true), TIMEOUT}},
	{TMEM_CMD_SAVE,
	 true,
	 NULL,
	 run_save,
	 {CLIENT(true), {TMEM_KEY_LIVE, PARAM_BOOLEAN, false, 0, 0}}},
	{TMEM_CMD_RESTORE, true, NULL, run_restore, {CLIENT(true)}},
	{TMEM_CMD_RESTORE_DISCARD, false, run_restore_discard, NULL, {CLIENT(true)}},
};

/* The parameter of that key, or NULL. */
static const struct param *find_param(const struct command *command, const char *key)
{
	for (const struct param *p = command->params; p->key; p++)
		if (!strcmp(p->key, key))
			return p;
	return NULL;
}

static bool check_param(const struct param *p, json_t *value, struct reply *reply)
{
	json_int_t n = json_integer_value(value);

	if (p->type == PARAM_STRING && !json_is_string(value)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" must be a string", p->key);
	} else if (p->type == PARAM_BOOLEAN && !json_is_boolean(value)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" must be true or false", p->key);
	} else if (p->type == PARAM_INTEGER &&
		   (!json_is_integer(value) || n < p->min || n > p->max)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "\"%s\" must be an integer from %" PRId64 " to %" PRId64, p->key,
			    p->min, p->max);
	}
	return !reply->code;
}

static bool check_params(const struct command *command, json_t *request, struct reply *reply)
{
	const struct param *p;
	const char *key;
	json_t *value;

	json_object_foreach(request, key, value)
	{
		if (!strcmp(key, TMEM_KEY_COMMAND) || !strcmp(key, TMEM_KEY_ID))
			continue;
		p = find_param(command, key);
		if (!p) {
			reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" has no key \"%.64s\"",
				    command->name, key);
			return false;
		}
		if (!check_param(p, value, reply))
			return false;
	}
	for (p = command->params; p->key; p++) {
		if (p->needed && !json_object_get(request, p->key)) {
			reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" needs the key \"%s\"",
				    command->name, p->key);
			return false;
		}
	}
	return true;
}

const struct command *command_find(json_t *request, struct reply *reply)
{
	const char *name = json_string_value(json_object_get(request, TMEM_KEY_COMMAND));

	if (!name) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "a request is an object with a string \"" TMEM_KEY_COMMAND "\"");
		return NULL;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return check_params(&commands[i], request, reply) ? &commands[i] : NULL;
	reply_error(reply, TMEM_ERR_UNKNOWN_COMMAND, "there is no command \"%.64s\"", name);
	return NULL;
}
