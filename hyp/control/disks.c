// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The commands about disks. What they do is the service's, by struct control_ops; here a request
 * becomes the values of a disk, and a disk an answer.
 *
 * They run on the main thread, one at a time, like the reload that also makes and removes disks.
 */
#include "config.h"

#include "control/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"

static const char *name_of(json_t *request)
{
	return json_string_value(json_object_get(request, TMEM_KEY_NAME));
}

static bool asks(json_t *request, const char *key)
{
	return json_object_get(request, key) != NULL;
}

static void fail(struct reply *reply, int error, const char *message)
{
	reply_error(reply, error == -ENOENT ? TMEM_ERR_NO_CLIENT : TMEM_ERR_REFUSED, "%s", message);
}

/* ---- Answers -------------------------------------------------------------------------------- */

static const char *origin(const struct control_disk *disk)
{
	if (disk->configured)
		return TMEM_ORIGIN_CONFIGURATION;
	return disk->command ? TMEM_ORIGIN_COMMAND : TMEM_ORIGIN_NONE;
}

static json_int_t id_of(uint32_t id)
{
	return id == (uint32_t)-1 ? -1 : (json_int_t)id;
}

/* Its summary as a client, and what only disks have. */
static json_t *disk_object(struct control *control, struct store_client *client,
			   const struct control_disk *disk)
{
	json_t *o = client_summary(control, client);
	struct store_limits limits;

	store_client_limits(client, &limits);
	put_int(o, TMEM_KEY_SIZE, disk->bytes);
	put_int(o, TMEM_KEY_QUEUES, disk->queues);
	put_int(o, TMEM_KEY_QUEUES_RUNNING, disk->queues_running);
	json_object_set_new(o, TMEM_KEY_SOCKET, json_string(disk->socket));
	put_int(o, TMEM_KEY_MODE, disk->socket_mode);
	json_object_set_new(o, TMEM_KEY_UID, json_integer(id_of(disk->socket_uid)));
	json_object_set_new(o, TMEM_KEY_GID, json_integer(id_of(disk->socket_gid)));
	json_object_set_new(o, TMEM_KEY_OVERCOMMIT, json_boolean(disk->overcommit));
	json_object_set_new(o, TMEM_KEY_ORIGIN, json_string(origin(disk)));
	put_int(o, TMEM_KEY_EXPOSURE_BYTES, config_disk_exposure(disk->bytes, limits.min_bytes));
	return o;
}

/* The answer to a command about one disk. */
static void answer_disk(struct control *control, const char *name, struct reply *reply)
{
	struct store_client *client = store_client_find(control->store, name);
	struct control_disk disk;

	reply->result = json_object();
	if (client && !control->ops.disk(control->arg, name, &disk))
		json_object_set_new(reply->result, TMEM_KEY_DISK,
				    disk_object(control, client, &disk));
}

void run_disk_list(struct control *control, json_t *request, struct reply *reply)
{
	json_t *array = json_array();
	struct store_client **clients;
	struct control_disk disk;
	unsigned nr;

	(void)request;
	clients = all_clients(control->store, &nr);
	for (unsigned i = 0; i < nr; i++)
		if (!control->ops.disk(control->arg, store_client_name(clients[i]), &disk))
			json_array_append_new(array, disk_object(control, clients[i], &disk));
	free(clients);
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_SERVICE, service_summary(control));
	json_object_set_new(reply->result, TMEM_KEY_DISKS, array);
}

/* ---- Changes -------------------------------------------------------------------------------- */

/* What the request says of the disk, into it. */
static int take_values(json_t *request, struct config_disk *d, struct reply *reply)
{
	const char *socket = json_string_value(json_object_get(request, TMEM_KEY_SOCKET));

	d->bytes = get_int(request, TMEM_KEY_SIZE);
	if (asks(request, TMEM_KEY_QUEUES))
		d->queues = (uint32_t)get_int(request, TMEM_KEY_QUEUES);
	if (asks(request, TMEM_KEY_MODE))
		d->socket_mode = (uint32_t)get_int(request, TMEM_KEY_MODE);
	if (asks(request, TMEM_KEY_UID))
		d->socket_uid = (uint32_t)get_int(request, TMEM_KEY_UID);
	if (asks(request, TMEM_KEY_GID))
		d->socket_gid = (uint32_t)get_int(request, TMEM_KEY_GID);
	if (asks(request, TMEM_KEY_MINIMUM))
		d->limits.min_bytes = get_int(request, TMEM_KEY_MINIMUM);
	if (asks(request, TMEM_KEY_MAXIMUM))
		d->limits.max_bytes = get_int(request, TMEM_KEY_MAXIMUM);
	if (asks(request, TMEM_KEY_WEIGHT))
		d->limits.weight = (uint32_t)get_int(request, TMEM_KEY_WEIGHT);
	if (asks(request, TMEM_KEY_OVERCOMMIT))
		d->overcommit = json_is_true(json_object_get(request, TMEM_KEY_OVERCOMMIT));
	if (socket && (socket[0] != '/' || strlen(socket) >= sizeof(d->socket)))
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "\"%s\" must be an absolute path of at most %zu characters",
			    TMEM_KEY_SOCKET, sizeof(d->socket) - 1);
	else if (socket)
		strcpy(d->socket, socket);
	else if (!d->socket[0] && config_default_socket(d->name, d->socket))
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "the name is too long for a socket made of it; give \"%s\"",
			    TMEM_KEY_SOCKET);
	return reply->code ? -EINVAL : 0;
}

/* Names the first value in which two disks differ, or NULL. */
static const char *difference(const struct config_disk *a, const struct config_disk *b)
{
	if (a->bytes != b->bytes)
		return TMEM_KEY_SIZE;
	if (a->queues != b->queues)
		return TMEM_KEY_QUEUES;
	if (strcmp(a->socket, b->socket))
		return TMEM_KEY_SOCKET;
	if (a->socket_mode != b->socket_mode)
		return TMEM_KEY_MODE;
	if (a->socket_uid != b->socket_uid)
		return TMEM_KEY_UID;
	if (a->socket_gid != b->socket_gid)
		return TMEM_KEY_GID;
	if (a->overcommit != b->overcommit)
		return TMEM_KEY_OVERCOMMIT;
	if (a->limits.min_bytes != b->limits.min_bytes)
		return TMEM_KEY_MINIMUM;
	if (a->limits.max_bytes != b->limits.max_bytes)
		return TMEM_KEY_MAXIMUM;
	return a->limits.weight != b->limits.weight ? TMEM_KEY_WEIGHT : NULL;
}

static void as_known(struct config_disk *d, const struct control_disk *known,
		     struct store_client *client)
{
	strcpy(d->socket, known->socket);
	d->socket_mode = known->socket_mode;
	d->socket_uid = known->socket_uid;
	d->socket_gid = known->socket_gid;
	d->bytes = known->bytes;
	d->queues = known->queues;
	d->overcommit = known->overcommit;
	store_client_limits(client, &d->limits);
}

/* What is asked for and not there as such, in the reply; else the disk as it is, in d. */
static void check_same(json_t *request, const struct control_disk *known,
		       struct store_client *client, struct config_disk *d, struct reply *reply)
{
	struct config_disk asked;
	const char *key;

	as_known(d, known, client);
	asked = *d;
	if (take_values(request, &asked, reply))
		return;
	key = difference(&asked, d);
	if (key)
		reply_error(reply, TMEM_ERR_REFUSED,
			    "disk %s is there already, with another \"%s\"; see disk-list, and "
			    "change it by disk-resize or set, or remove it first",
			    d->name, key);
}

static void check_limits(const struct config_disk *d, struct reply *reply)
{
	if (d->bytes % CONFIG_DISK_BLOCK)
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" must be a multiple of %d",
			    TMEM_KEY_SIZE, CONFIG_DISK_BLOCK);
	else if (d->limits.max_bytes && d->limits.min_bytes > d->limits.max_bytes)
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "minimum would be above maximum");
}

void run_disk_create(struct control *control, json_t *request, struct reply *reply)
{
	const char *name = name_of(request);
	struct control_disk known = {0};
	struct store_client *client;
	struct config_disk d;
	char err[512];
	bool there;
	int r = 0;

	if (!config_name_valid(name)) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST,
			    "a disk's name has 1 to %d letters, digits and -_.+@ and does not "
			    "begin with a dot",
			    STORE_NAME_MAX - 1);
		return;
	}
	config_disk_defaults(&d, name);
	client = store_client_find(control->store, name);
	there = client && !control->ops.disk(control->arg, name, &known);
	if (there)
		check_same(request, &known, client, &d, reply);
	else if (!take_values(request, &d, reply))
		check_limits(&d, reply);
	if (reply->code)
		return;
	if (!known.served)
		r = control->ops.disk_create(control->arg, &d, err, sizeof(err));
	if (r) {
		fail(reply, r, err);
		return;
	}
	answer_disk(control, name, reply);
	json_object_set_new(reply->result, TMEM_KEY_CREATED, json_boolean(!there));
}

void run_disk_resize(struct control *control, json_t *request, struct reply *reply)
{
	uint64_t bytes = get_int(request, TMEM_KEY_SIZE);
	char err[512];
	int r;

	if (bytes % CONFIG_DISK_BLOCK) {
		reply_error(reply, TMEM_ERR_BAD_REQUEST, "\"%s\" must be a multiple of %d",
			    TMEM_KEY_SIZE, CONFIG_DISK_BLOCK);
		return;
	}
	r = control->ops.disk_resize(control->arg, name_of(request), bytes, err, sizeof(err));
	if (r)
		fail(reply, r, err);
	else
		answer_disk(control, name_of(request), reply);
}

void run_disk_remove(struct control *control, json_t *request, struct reply *reply)
{
	bool force = json_is_true(json_object_get(request, TMEM_KEY_FORCE));
	char err[512];
	int r = control->ops.disk_remove(control->arg, name_of(request), force, err, sizeof(err));

	if (r)
		fail(reply, r, err);
	else
		reply->result = json_object();
}
