// SPDX-License-Identifier: GPL-2.0-or-later
#include "config.h"

#include "control/config_priv.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "proto/size.h"

static const struct {
	const char *word;
	enum log_level level;
} levels[] = {
	{"error", LOG_ERROR}, {"warning", LOG_WARN}, {"note", LOG_NOTE},
	{"info", LOG_INFO},   {"debug", LOG_DBG},
};

int log_level_parse(const char *text, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (!strcmp(text, levels[i].word)) {
			*level = levels[i].level;
			return 0;
		}
	}
	return -EINVAL;
}

int uuid_parse(const char *text, uint64_t uuid[2])
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	unsigned char bytes[16] = {0};
	unsigned n = 0;

	if (strlen(text) != sizeof(form) - 1)
		return -EINVAL;
	for (size_t i = 0; form[i]; i++) {
		int c = tolower((unsigned char)text[i]);

		if (form[i] == '-') {
			if (c != '-')
				return -EINVAL;
			continue;
		}
		if (!isxdigit(c))
			return -EINVAL;
		bytes[n / 2] =
			(unsigned char)(bytes[n / 2] << 4 | (isdigit(c) ? c - '0' : c - 'a' + 10));
		n++;
	}
	memcpy(uuid, bytes, sizeof(bytes));
	return 0;
}

void uuid_format(const uint64_t uuid[2], char text[37])
{
	unsigned char b[16];
	char *out = text;

	memcpy(b, uuid, sizeof(b));
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		out += sprintf(out, "%02x", b[i]);
	}
}

/* A plain decimal number; false for anything else, also beyond 2^32 - 1. */
static bool number(const char *text, uint64_t *n)
{
	if (!*text || strlen(text) > 10 || strspn(text, "0123456789") != strlen(text))
		return false;
	*n = strtoull(text, NULL, 10);
	return *n <= UINT32_MAX;
}

static int value_path(const struct key *key, const char *text, char *out, char *why)
{
	if (text[0] != '/' || strlen(text) >= key->room) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is an absolute path of at most %zu characters", key->room - 1);
		return -EINVAL;
	}
	strncpy(out, text, key->room); /* fills up with zeros, for comparing */
	return 0;
}

static uint64_t host_memory(void)
{
	struct sysinfo info;

	if (sysinfo(&info))
		return 0;
	return (uint64_t)info.totalram * info.mem_unit;
}

static int value_size(const struct key *key, const char *text, uint64_t *out, char *why)
{
	size_t len = strlen(text);
	char digits[16] = "";
	uint64_t n = 0;
	bool good;

	if (key->type == KEY_PERCENT && len > 1 && len < sizeof(digits) && text[len - 1] == '%') {
		memcpy(digits, text, len - 1);
		good = number(digits, &n) && n <= 100;
		n = host_memory() / 100 * n;
	} else {
		good = !tmem_size_parse(text, &n);
	}
	if (!good || n < key->min || n > key->max) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is " TMEM_SIZE_FORM "%s, from %" PRIu64 " to %" PRIu64 " bytes",
			 key->type == KEY_PERCENT ? ", or a percentage of the host's memory" : "",
			 key->min, key->max);
		return -EINVAL;
	}
	*out = n;
	return 0;
}

static int value_uint(const struct key *key, const char *text, uint32_t *out, char *why)
{
	uint64_t n;

	if (!number(text, &n) || n < key->min || n > key->max) {
		snprintf(why, CONFIG_WHY_MAX, "allowed is a number from %" PRIu64 " to %" PRIu64,
			 key->min, key->max);
		return -EINVAL;
	}
	*out = (uint32_t)n;
	return 0;
}

static int value_mode(const char *text, uint32_t *out, char *why)
{
	char *end;
	unsigned long n = strtoul(text, &end, 8);

	if (!isdigit((unsigned char)*text) || *end || n > 0777) {
		snprintf(why, CONFIG_WHY_MAX, "allowed are permission bits in octal, such as 0660");
		return -EINVAL;
	}
	*out = (uint32_t)n;
	return 0;
}

static int value_owner(const struct key *key, const char *text, uint32_t *out, char *why)
{
	struct passwd *pw;
	struct group *gr;
	uint64_t n;

	if (number(text, &n) && n != UINT32_MAX) {
		*out = (uint32_t)n;
		return 0;
	}
	if (key->type == KEY_GROUP) {
		gr = getgrnam(text);
		if (gr) {
			*out = gr->gr_gid;
			return 0;
		}
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is the name of a group of this host, or a number");
		return -EINVAL;
	}
	pw = getpwnam(text);
	if (pw) {
		*out = pw->pw_uid;
		return 0;
	}
	snprintf(why, CONFIG_WHY_MAX, "allowed is the name of a user of this host, or a number");
	return -EINVAL;
}

static int value_name(const struct key *key, const char *text, char *out, char *why)
{
	if (strlen(text) >= key->room || !getpwnam(text)) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is the name of a user of this host; make one with "
			 "\"useradd --system --no-create-home NAME\"");
		return -EINVAL;
	}
	strncpy(out, text, key->room); /* fills up with zeros, for comparing */
	return 0;
}

static int value_level(const char *text, uint32_t *out, char *why)
{
	enum log_level level;

	if (log_level_parse(text, &level)) {
		snprintf(why, CONFIG_WHY_MAX, "allowed are error, warning, note, info and debug");
		return -EINVAL;
	}
	*out = level;
	return 0;
}

static int value_word(const char *text, const char *one, const char *zero, uint32_t *out, char *why)
{
	bool is_one = !strcmp(text, one);

	if (!is_one && strcmp(text, zero)) {
		snprintf(why, CONFIG_WHY_MAX, "allowed are %s and %s", one, zero);
		return -EINVAL;
	}
	*out = is_one;
	return 0;
}

/* What xenstore and a path in it may hold: printable, no slash. */
static int value_domain(const struct key *key, const char *text, char *out, char *why)
{
	size_t len = strlen(text);
	bool good = len && len < key->room;

	for (const char *c = text; *c && good; c++)
		good = isgraph((unsigned char)*c) && *c != '/';
	if (!good) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is the name of a domain or its UUID, 1 to %zu characters without "
			 "blanks and slashes",
			 key->room - 1);
		return -EINVAL;
	}
	strncpy(out, text, key->room); /* fills up with zeros, for comparing */
	return 0;
}

/* Names and addresses of both kinds; whether there is such a host is not asked here. */
static int value_host(const struct key *key, const char *text, char *out, char *why)
{
	size_t len = strlen(text);
	bool good = len && len < key->room;

	for (const char *c = text; *c && good; c++)
		good = isalnum((unsigned char)*c) || strchr(".:-_", *c);
	if (!good) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed is the name or the address of a host, without a port; that has a "
			 "key of its own");
		return -EINVAL;
	}
	strncpy(out, text, key->room); /* fills up with zeros, for comparing */
	return 0;
}

static int value_peer(const struct key *key, const char *text, char *out, char *why)
{
	if (!config_name_valid(text)) {
		snprintf(why, CONFIG_WHY_MAX,
			 "allowed are 1 to %zu letters, digits and -_.+@, the first no dot",
			 key->room - 1);
		return -EINVAL;
	}
	strncpy(out, text, key->room); /* fills up with zeros, for comparing */
	return 0;
}

/* Adds patterns, separated by spaces or commas. */
static int value_patterns(const char *text, struct config_patterns *out, char *why)
{
	char copy[CONFIG_WHY_MAX];
	char *save, *word;

	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " \t,", &save); word; word = strtok_r(NULL, " \t,", &save)) {
		if (out->nr == CONFIG_MAX_PATTERNS || strlen(word) >= sizeof(out->text[0])) {
			snprintf(why, CONFIG_WHY_MAX,
				 "allowed are %d names or patterns of at most %zu characters, "
				 "separated by spaces",
				 CONFIG_MAX_PATTERNS, sizeof(out->text[0]) - 1);
			return -EINVAL;
		}
		strcpy(out->text[out->nr++], word);
	}
	return 0;
}

int config_value(const struct key *key, const char *text, void *value, char why[CONFIG_WHY_MAX])
{
	switch (key->type) {
	case KEY_PATH:
		return value_path(key, text, value, why);
	case KEY_SIZE:
	case KEY_PERCENT:
		return value_size(key, text, value, why);
	case KEY_UINT:
		return value_uint(key, text, value, why);
	case KEY_SWITCH:
		return value_word(text, "on", "off", value, why);
	case KEY_YES:
		return value_word(text, "yes", "no", value, why);
	case KEY_MODE:
		return value_mode(text, value, why);
	case KEY_USER:
	case KEY_GROUP:
		return value_owner(key, text, value, why);
	case KEY_NAME:
		return value_name(key, text, value, why);
	case KEY_LEVEL:
		return value_level(text, value, why);
	case KEY_FRONT:
		return value_word(text, "xen", "ivshmem", value, why);
	case KEY_DOMAIN:
		return value_domain(key, text, value, why);
	case KEY_HOST:
		return value_host(key, text, value, why);
	case KEY_PEER:
		return value_peer(key, text, value, why);
	case KEY_UUIDS:
		return config_uuids(value, text, why);
	case KEY_PATTERNS:
		return value_patterns(text, value, why);
	}
	return -EINVAL;
}

int config_uuids(struct config_client *client, const char *text, char why[CONFIG_WHY_MAX])
{
	uint64_t(*more)[2], uuid[2];
	char copy[CONFIG_WHY_MAX];
	char *save, *word;

	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " \t,", &save); word; word = strtok_r(NULL, " \t,", &save)) {
		if (uuid_parse(word, uuid)) {
			snprintf(why, CONFIG_WHY_MAX,
				 "allowed are UUIDs such as 01234567-89ab-cdef-0123-456789abcdef, "
				 "separated by spaces");
			return -EINVAL;
		}
		more = realloc(client->shared, (client->nr_shared + 1) * sizeof(*more));
		if (!more) {
			snprintf(why, CONFIG_WHY_MAX, "out of memory");
			return -EINVAL;
		}
		client->shared = more;
		memcpy(more[client->nr_shared++], uuid, sizeof(uuid));
	}
	return 0;
}
