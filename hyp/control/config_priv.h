/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Values of the configuration: from text to what struct config holds. */
#ifndef TMEMD_CONFIG_PRIV_H
#define TMEMD_CONFIG_PRIV_H

#include "control/control.h"

enum key_type {
	KEY_PATH,    /* char[]: an absolute path */
	KEY_SIZE,    /* uint64_t: bytes */
	KEY_PERCENT, /* uint64_t: bytes, or a percentage of the host's memory */
	KEY_UINT,    /* uint32_t */
	KEY_SWITCH,  /* uint32_t: on or off */
	KEY_MODE,    /* uint32_t: permission bits in octal */
	KEY_USER,    /* uint32_t: uid, by name or number */
	KEY_GROUP,   /* uint32_t: gid, by name or number */
	KEY_NAME,    /* char[]: name of a user that exists */
	KEY_LEVEL,   /* uint32_t: enum log_level */
	KEY_FRONT,   /* the word ivshmem; nothing to keep */
	KEY_UUIDS,   /* shared pools; may be given several times */
};

struct key {
	const char *name;
	enum key_type type;
	size_t offset; /* in struct config or struct config_client */
	size_t room;   /* of a char[] */
	uint64_t min;  /* of a number */
	uint64_t max;
};

#define CONFIG_WHY_MAX 256

/* Parses `text` into *value. 0, or -EINVAL with what was wrong and what is allowed in why. */
int config_value(const struct key *key, const char *text, void *value, char why[CONFIG_WHY_MAX]);

/* Adds UUIDs, separated by spaces or commas, to the client. As config_value(). */
int config_uuids(struct config_client *client, const char *text, char why[CONFIG_WHY_MAX]);

#endif
