/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the configuration share: places, values, checks. */
#ifndef TMEMD_CONFIG_PRIV_H
#define TMEMD_CONFIG_PRIV_H

#include "control/control.h"

enum key_type {
	KEY_PATH,     /* char[]: an absolute path */
	KEY_SIZE,     /* uint64_t: bytes */
	KEY_PERCENT,  /* uint64_t: bytes, or a percentage of the host's memory */
	KEY_UINT,     /* uint32_t */
	KEY_SWITCH,   /* uint32_t: on or off */
	KEY_YES,      /* uint32_t: yes or no */
	KEY_MODE,     /* uint32_t: permission bits in octal */
	KEY_USER,     /* uint32_t: uid, by name or number */
	KEY_GROUP,    /* uint32_t: gid, by name or number */
	KEY_NAME,     /* char[]: name of a user that exists */
	KEY_LEVEL,    /* uint32_t: enum log_level */
	KEY_FRONT,    /* uint32_t: enum config_front */
	KEY_DOMAIN,   /* char[]: name or UUID of a Xen domain */
	KEY_HOST,     /* char[]: a host's name, or an address */
	KEY_PEER,     /* char[]: what a peer may be called */
	KEY_UUIDS,    /* shared pools; may be given several times */
	KEY_PATTERNS, /* struct config_patterns; may be given several times */
};

struct key {
	const char *name;
	enum key_type type;
	size_t offset; /* in struct config, config_client, config_disk or config_peer */
	size_t room;   /* of a char[] */
	uint64_t min;  /* of a number */
	uint64_t max;
};

/* ---- config.c: reading ---------------------------------------------------------------------- */

struct place {
	char file[CONFIG_PATH_MAX];
	int line;
};

#define CONFIG_MAX_KEYS 13 /* of a section */

/* The section of a client, disk or peer: where it begins, and where its keys were given. */
struct part {
	struct place at;
	struct place given[CONFIG_MAX_KEYS];
};

struct loader {
	config_say_fn say;
	bool wrong;
	struct config *config;
	struct place at;	   /* the line being read */
	const struct place *arena; /* where that key was given */
	const struct place *lend;
	struct part *clients; /* as many as in config */
	struct part *disks;
	struct part *peers;
};

/* Says that something is wrong at a place. */
void config_wrong(struct loader *l, const struct place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Where a key of client or disk i was given, or its section when it was not. */
const struct place *config_client_place(const struct loader *l, unsigned i, const char *key);
const struct place *config_disk_place(const struct loader *l, unsigned i, const char *key);
const struct place *config_peer_place(const struct loader *l, unsigned i, const char *key);

/* ---- config_check.c ------------------------------------------------------------------------- */

/* Fills in what follows from other values, and judges what can be judged only with all read. */
void config_check(struct loader *l);

/* ---- config_value.c ------------------------------------------------------------------------- */

#define CONFIG_WHY_MAX 256

/* Parses `text` into *value. 0, or -EINVAL with what was wrong and what is allowed in why. */
int config_value(const struct key *key, const char *text, void *value, char why[CONFIG_WHY_MAX]);

/* Adds UUIDs, separated by spaces or commas, to the client. As config_value(). */
int config_uuids(struct config_client *client, const char *text, char why[CONFIG_WHY_MAX]);

#endif
