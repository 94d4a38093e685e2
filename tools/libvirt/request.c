// SPDX-License-Identifier: GPL-2.0-or-later
/* A disk of a domain, as requests and answers of the control protocol have it. */
#include "config.h"

#include "tools/libvirt/request.h"

#include <stdio.h>
#include <string.h>

#include "proto/control.h"

static void put(json_t *request, const char *key, int64_t value, bool given)
{
	if (given)
		json_object_set_new(request, key, json_integer(value));
}

json_t *request_about_disk(const char *command, const char *name)
{
	return json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, command, TMEM_KEY_NAME, name);
}

json_t *request_create(const struct domain_device *dev)
{
	json_t *request = request_about_disk(TMEM_CMD_DISK_CREATE, dev->name);

	json_object_set_new(request, TMEM_KEY_SOCKET, json_string(dev->socket));
	put(request, TMEM_KEY_SIZE, (int64_t)dev->bytes, true);
	put(request, TMEM_KEY_QUEUES, dev->queues, dev->queues);
	put(request, TMEM_KEY_MINIMUM, (int64_t)dev->minimum, dev->minimum);
	put(request, TMEM_KEY_MAXIMUM, (int64_t)dev->maximum, dev->maximum);
	put(request, TMEM_KEY_WEIGHT, dev->weight, dev->weight);
	put(request, TMEM_KEY_MODE, dev->mode, dev->mode >= 0);
	put(request, TMEM_KEY_UID, dev->uid, dev->uid >= 0);
	put(request, TMEM_KEY_GID, dev->gid, dev->gid >= 0);
	if (dev->overcommit)
		json_object_set_new(request, TMEM_KEY_OVERCOMMIT, json_true());
	return request;
}

static int64_t value_of(json_t *object, const char *key, int64_t otherwise)
{
	json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

void request_take(struct domain_device *dev, json_t *object)
{
	const char *socket = json_string_value(json_object_get(object, TMEM_KEY_SOCKET));

	if (socket)
		snprintf(dev->socket, sizeof(dev->socket), "%s", socket);
	dev->bytes = (uint64_t)value_of(object, TMEM_KEY_SIZE, 0);
	dev->queues = (uint32_t)value_of(object, TMEM_KEY_QUEUES, 1);
	/* Requests and answers call these by two names. */
	dev->minimum = (uint64_t)value_of(object, TMEM_KEY_MINIMUM_BYTES,
					  value_of(object, TMEM_KEY_MINIMUM, 0));
	dev->maximum = (uint64_t)value_of(object, TMEM_KEY_MAXIMUM_BYTES,
					  value_of(object, TMEM_KEY_MAXIMUM, 0));
	dev->weight = (uint32_t)value_of(object, TMEM_KEY_WEIGHT, 0);
	dev->mode = value_of(object, TMEM_KEY_MODE, -1);
	dev->uid = value_of(object, TMEM_KEY_UID, -1);
	dev->gid = value_of(object, TMEM_KEY_GID, -1);
	dev->overcommit = json_is_true(json_object_get(object, TMEM_KEY_OVERCOMMIT));
}

json_t *request_find(json_t *list, const char *key, const char *name)
{
	json_t *array = json_object_get(list, key), *object;
	size_t i;

	json_array_foreach(array, i, object)
	{
		const char *found = json_string_value(json_object_get(object, TMEM_KEY_NAME));

		if (found && !strcmp(found, name))
			return object;
	}
	return NULL;
}
