// SPDX-License-Identifier: GPL-2.0-or-later
/* Disks for guests without software of ours: tmemctl disk ... */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/size.h"

/* ---- Values --------------------------------------------------------------------------------- */

static bool parse_number(const char *text, int base, json_int_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*value = strtoll(text, &end, base);
	return !*end && *value <= UINT_MAX - 1;
}

static bool parse_owner(const char *text, json_int_t *value)
{
	const struct passwd *pw = getpwnam(text);

	if (!pw)
		return parse_number(text, 10, value);
	*value = pw->pw_uid;
	return true;
}

static bool parse_group(const char *text, json_int_t *value)
{
	const struct group *gr = getgrnam(text);

	if (!gr)
		return parse_number(text, 10, value);
	*value = gr->gr_gid;
	return true;
}

static bool parse_size(const char *text, json_int_t *value)
{
	uint64_t bytes;

	if (tmem_size_parse(text, &bytes))
		return false;
	*value = (json_int_t)bytes;
	return true;
}

static bool parse_count(const char *text, json_int_t *value)
{
	return parse_number(text, 10, value);
}

static bool parse_mode(const char *text, json_int_t *value)
{
	return parse_number(text, 8, value);
}

static const struct {
	enum disk_option option;
	const char *key;
	bool (*parse)(const char *text, json_int_t *value);
	const char *allowed;
} values[] = {
	{DISK_SIZE, TMEM_KEY_SIZE, parse_size, "the size must be " TMEM_SIZE_FORM},
	{DISK_QUEUES, TMEM_KEY_QUEUES, parse_count, "allowed is a number of queues"},
	{DISK_MODE, TMEM_KEY_MODE, parse_mode,
	 "allowed are permission bits in octal, such as 0660"},
	{DISK_OWNER, TMEM_KEY_UID, parse_owner, "allowed is the name of a user, or a number"},
	{DISK_GROUP, TMEM_KEY_GID, parse_group, "allowed is the name of a group, or a number"},
	{DISK_MINIMUM, TMEM_KEY_MINIMUM, parse_size, "the minimum must be " TMEM_SIZE_FORM},
	{DISK_MAXIMUM, TMEM_KEY_MAXIMUM, parse_size, "the maximum must be " TMEM_SIZE_FORM},
	{DISK_WEIGHT, TMEM_KEY_WEIGHT, parse_count, "allowed is a number"},
};

static json_t *request_about(const char *command, const char *name)
{
	return json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, command, TMEM_KEY_NAME, name);
}

int disk_put_values(const struct ctl *ctl, json_t *request)
{
	json_int_t value;

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const char *text = ctl->disk[values[i].option];

		if (!text)
			continue;
		if (!values[i].parse(text, &value))
			return usage_error(values[i].allowed, text);
		json_object_set_new(request, values[i].key, json_integer(value));
	}
	if (ctl->disk[DISK_SOCKET])
		json_object_set_new(request, TMEM_KEY_SOCKET, json_string(ctl->disk[DISK_SOCKET]));
	if (ctl->overcommit)
		json_object_set_new(request, TMEM_KEY_OVERCOMMIT, json_true());
	return CTL_OK;
}

/* ---- Commands ------------------------------------------------------------------------------- */

static void print_created(json_t *result)
{
	json_t *disk = json_object_get(result, TMEM_KEY_DISK);
	bool created = json_is_true(json_object_get(result, TMEM_KEY_CREATED));
	const char *name = string_of(disk, TMEM_KEY_NAME);
	const char *socket = string_of(disk, TMEM_KEY_SOCKET);
	char size[16], most[16];

	print_size(number_of(disk, TMEM_KEY_SIZE), size);
	print_size(number_of(disk, TMEM_KEY_EXPOSURE_BYTES), most);
	printf("disk %s: %s logical, at most %s physical; %s\n"
	       "socket: %s\n"
	       "for QEMU, with size= of the VM's memory:\n"
	       "  -object memory-backend-memfd,id=mem,size=...,share=on -numa node,memdev=mem "
	       "-chardev socket,id=%s,path=%s,reconnect=1 "
	       "-device vhost-user-blk-pci,chardev=%s,num-queues=%.0f\n"
	       "or by NBD, for memory that is not shared (nbdkit-tmem-plugin(1)):\n"
	       "  nbdkit -U /run/tmem/%s.nbd.sock tmem socket=%s\n",
	       name, size, most, created ? "made" : "it was there already", socket, name, socket,
	       name, number_of(disk, TMEM_KEY_QUEUES), name, socket);
}

int run_disk_create(const struct ctl *ctl)
{
	json_t *request;
	int r;

	if (!ctl->disk[DISK_SIZE])
		return usage_error("say how large: --size SIZE", ctl->argv[0]);
	request = request_about(TMEM_CMD_DISK_CREATE, ctl->argv[0]);
	r = disk_put_values(ctl, request);
	if (!r)
		return call_and_print(ctl, request, print_created);
	json_decref(request);
	return r;
}

int run_disk_list(const struct ctl *ctl)
{
	return call_and_print(ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_DISK_LIST),
			      print_disks);
}

int run_disk_resize(const struct ctl *ctl)
{
	json_t *request;
	json_int_t bytes;

	if (!parse_size(ctl->argv[1], &bytes))
		return usage_error("the size must be " TMEM_SIZE_FORM, ctl->argv[1]);
	request = request_about(TMEM_CMD_DISK_RESIZE, ctl->argv[0]);
	json_object_set_new(request, TMEM_KEY_SIZE, json_integer(bytes));
	return call_and_print(ctl, request, NULL);
}

int run_disk_remove(const struct ctl *ctl)
{
	json_t *request = request_about(TMEM_CMD_DISK_REMOVE, ctl->argv[0]);

	if (ctl->force)
		json_object_set_new(request, TMEM_KEY_FORCE, json_true());
	return call_and_print(ctl, request, NULL);
}
