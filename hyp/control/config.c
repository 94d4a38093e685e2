// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The configuration: files, sections and keys.
 *
 * inih takes the lines apart; what it does not tell (which line, which section when that is empty)
 * the reader below notes as it hands out the lines. It also strips indentation, which inih would
 * take for the continuation of the line before.
 *
 * A file read later may say a key of a section again, that is what conf.d is for; one file may
 * not, and a client has one section in all files. Everything that is wrong is said, and then
 * nothing of it is used.
 */
#include "config.h"

#include "control/config_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/tmem_abi.h"

#define LINE_MAX_CHARS 190 /* what any build of inih takes */
#define MIB (1ull << 20)
#define NR(array) (sizeof(array) / sizeof((array)[0]))

#define K(name, type, member, min, max)                                                            \
	{                                                                                          \
		name, type, offsetof(struct config, member), sizeof(((struct config *)0)->member), \
			min, max                                                                   \
	}

static const struct key pool_keys[] = {
	K("arena", KEY_PATH, arena, 0, 0),
	K("pool_max", KEY_PERCENT, pool_max, 16 * MIB, 1ull << 46),
	K("host_reserve", KEY_PERCENT, host_reserve, 0, 1ull << 46),
	K("ready_chunks", KEY_UINT, ready_chunks, 1, 1024),
};
static const struct key front_keys[] = {
	K("workers", KEY_UINT, workers, 0, 64),
	K("poll", KEY_UINT, poll_us, 0, 10000),
	K("regions", KEY_PATH, regions, 0, 0),
};
static const struct key control_keys[] = {
	K("socket", KEY_PATH, control_socket, 0, 0),
	K("mode", KEY_MODE, control_mode, 0, 0),
	K("group", KEY_GROUP, control_gid, 0, 0),
};
static const struct key log_keys[] = {
	K("level", KEY_LEVEL, log_level, 0, 0),
};
static const struct key service_keys[] = {
	K("user", KEY_NAME, user, 0, 0),
	K("seccomp", KEY_SWITCH, seccomp, 0, 0),
};
#undef K
#define K(name, type, member, min, max)                                                            \
	{                                                                                          \
		name, type, offsetof(struct config_client, member),                                \
			sizeof(((struct config_client *)0)->member), min, max                      \
	}

static const struct key client_keys[] = {
	{"front", KEY_FRONT, 0, 0, 0, 0},
	K("socket", KEY_PATH, socket, 0, 0),
	K("socket_owner", KEY_USER, socket_uid, 0, 0),
	K("socket_group", KEY_GROUP, socket_gid, 0, 0),
	K("socket_mode", KEY_MODE, socket_mode, 0, 0),
	K("region", KEY_SIZE, region_bytes, MIB, 1024 * MIB),
	K("rings", KEY_UINT, rings, 1, TMEM_MAX_RINGS),
	K("credits", KEY_UINT, credits, 0, TMEM_MAX_ENTRIES),
	K("minimum", KEY_SIZE, limits.min_bytes, 0, 1ull << 46),
	K("maximum", KEY_SIZE, limits.max_bytes, 0, 1ull << 46),
	K("weight", KEY_UINT, limits.weight, 1, 10000),
	{"shared_auth", KEY_UUIDS, 0, 0, 0, 0},
};
#undef K

static const struct section {
	const char *name;
	const struct key *keys;
	size_t nr;
} sections[] = {
	{"pool", pool_keys, NR(pool_keys)},	     {"front", front_keys, NR(front_keys)},
	{"control", control_keys, NR(control_keys)}, {"log", log_keys, NR(log_keys)},
	{"service", service_keys, NR(service_keys)}, {"client", client_keys, NR(client_keys)},
};
#define SECTION_CLIENT (&sections[NR(sections) - 1])
#define MAX_KEYS NR(client_keys)

struct place {
	char file[CONFIG_PATH_MAX];
	int line;
};

struct loader {
	config_say_fn say;
	bool wrong;
	struct config *config;
	struct place at; /* the line being read */
	FILE *f;
	char *text; /* the line, and what inih has not taken of it */
	size_t room;
	const char *rest;
	const struct section *section; /* NULL: none, or an unknown one */
	bool section_known;	       /* false: its keys have been complained of with it */
	struct place given[NR(sections)][MAX_KEYS];
	struct place *clients; /* of each client's section, and of its keys */
	struct place (*client_given)[MAX_KEYS];
};

/* Says that something is wrong at a place. */
static void wrong(struct loader *l, const struct place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void wrong(struct loader *l, const struct place *at, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	n = snprintf(line, sizeof(line), "%s:%d: ", at->file, at->line);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	l->say(line);
	l->wrong = true;
}

static bool good_client_name(const char *name)
{
	size_t len = strlen(name);

	if (!len || len >= STORE_NAME_MAX || name[0] == '.')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("-_.+@", *name))
			return false;
	return true;
}

static void client_begin(struct loader *l, const char *name)
{
	struct config *config = l->config;
	unsigned n = config->nr_clients;
	struct config_client *c;
	void *p;

	if (!good_client_name(name)) {
		wrong(l, &l->at,
		      "[client %s]: a client's name has 1 to %d letters, digits and -_.+@ and does "
		      "not "
		      "begin with a dot",
		      name, STORE_NAME_MAX - 1);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!strcmp(config->clients[i].name, name)) {
			wrong(l, &l->at,
			      "[client %s]: there is one already at %s:%d; allowed is one", name,
			      l->clients[i].file, l->clients[i].line);
			return;
		}
	}
	if (n == STORE_MAX_CLIENTS) {
		wrong(l, &l->at, "[client %s]: allowed are %d clients", name, STORE_MAX_CLIENTS);
		return;
	}
	p = realloc(config->clients, (n + 1) * sizeof(*config->clients));
	if (p)
		config->clients = p;
	p = p ? reallocarray(l->clients, n + 1, sizeof(*l->clients)) : NULL;
	if (p)
		l->clients = p;
	p = p ? reallocarray(l->client_given, n + 1, sizeof(*l->client_given)) : NULL;
	if (!p) {
		wrong(l, &l->at, "[client %s]: out of memory", name);
		return;
	}
	l->client_given = p;
	l->clients[n] = l->at;
	memset(&l->client_given[n], 0, sizeof(l->client_given[n]));
	config->nr_clients = n + 1;

	c = &config->clients[n];
	memset(c, 0, sizeof(*c));
	strcpy(c->name, name);
	c->socket_uid = (uint32_t)-1;
	c->socket_gid = (uint32_t)-1;
	c->socket_mode = 0660;
	c->region_bytes = 8 * MIB;
	c->rings = 4;
	c->credits = 64;
	c->limits.weight = 100;
	l->section = SECTION_CLIENT;
	l->section_known = true;
}

/* A line "[...]": text begins behind the bracket. */
static void section_begin(struct loader *l, const char *text)
{
	char name[LINE_MAX_CHARS + 1];
	char *end, *word;

	l->section = NULL;
	l->section_known = false;
	snprintf(name, sizeof(name), "%s", text);
	end = strchr(name, ']');
	if (!end) {
		wrong(l, &l->at, "[%s: the closing bracket is missing", name);
		return;
	}
	*end = 0;
	if (!strncmp(name, "client", 6) && (!name[6] || isspace((unsigned char)name[6]))) {
		word = name + 6 + strspn(name + 6, " \t");
		client_begin(l, word);
		return;
	}
	for (size_t i = 0; i < NR(sections) - 1; i++) {
		if (!strcmp(sections[i].name, name)) {
			l->section = &sections[i];
			l->section_known = true;
			return;
		}
	}
	wrong(l, &l->at,
	      "[%s]: unknown section; allowed are [pool], [front], [control], [log], [service] and "
	      "[client NAME]",
	      name);
}

/* The next line, without indentation, in l->text. False at the end of the file. */
static bool next_line(struct loader *l)
{
	ssize_t len = getline(&l->text, &l->room, l->f);
	size_t blank;

	if (len < 0)
		return false;
	l->at.line++;
	if (strlen(l->text) != (size_t)len) {
		wrong(l, &l->at, "the line holds a zero byte; allowed is text");
		len = (ssize_t)strlen(l->text);
	}
	while (len && isspace((unsigned char)l->text[len - 1]))
		l->text[--len] = 0;
	blank = strspn(l->text, " \t");
	memmove(l->text, l->text + blank, (size_t)len - blank + 1);
	len -= (ssize_t)blank;
	if (len > LINE_MAX_CHARS) {
		wrong(l, &l->at,
		      "the line is longer than %d characters; keys that take lists may be "
		      "given several times",
		      LINE_MAX_CHARS);
		l->text[0] = 0;
	}
	if (l->text[0] == '[')
		section_begin(l, l->text + 1);
	return true;
}

/* inih's reader: like fgets(). */
static char *read_piece(char *buf, int size, void *arg)
{
	struct loader *l = arg;
	size_t n;

	if (size < 2)
		return NULL;
	if (!l->rest) {
		if (!next_line(l))
			return NULL;
		l->rest = l->text;
	}
	n = strlen(l->rest);
	if (n + 2 <= (size_t)size) {
		memcpy(buf, l->rest, n);
		strcpy(buf + n, "\n");
		l->rest = NULL;
	} else {
		memcpy(buf, l->rest, (size_t)size - 1);
		buf[size - 1] = 0;
		l->rest += size - 1;
	}
	return buf;
}

static void unknown_key(struct loader *l, const char *title, const char *name)
{
	char allowed[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < l->section->nr; i++)
		n += (size_t)snprintf(allowed + n, sizeof(allowed) - n, "%s%s", i ? ", " : "",
				      l->section->keys[i].name);
	wrong(l, &l->at, "[%s] %s: unknown key; allowed here are %s", title, name, allowed);
}

static void key_given(struct loader *l, const char *title, size_t i, const char *text)
{
	const struct key *key = &l->section->keys[i];
	struct config_client *client = NULL;
	char why[CONFIG_WHY_MAX];
	struct place *given;
	char *base;

	if (l->section == SECTION_CLIENT) {
		client = &l->config->clients[l->config->nr_clients - 1];
		given = &l->client_given[l->config->nr_clients - 1][i];
		base = (char *)client;
	} else {
		given = &l->given[l->section - sections][i];
		base = (char *)l->config;
	}
	if (given->line && key->type != KEY_UUIDS && !strcmp(given->file, l->at.file)) {
		wrong(l, &l->at, "[%s] %s: given already in line %d; allowed is once", title,
		      key->name, given->line);
		return;
	}
	*given = l->at;
	if (config_value(key, text, base + key->offset, why))
		wrong(l, &l->at, "[%s] %s = %s: %s", title, key->name, text, why);
}

/* inih's handler; the section is what section_begin() noted. */
static int handle(void *arg, const char *section, const char *name, const char *value)
{
	struct loader *l = arg;
	char title[STORE_NAME_MAX + 8];

	(void)section;
	if (!l->section) {
		if (l->section_known)
			wrong(l, &l->at, "%s: a key before the first section; begin with [pool]",
			      name);
		return 1;
	}
	snprintf(title, sizeof(title), "%s%s%s", l->section->name,
		 l->section == SECTION_CLIENT ? " " : "",
		 l->section == SECTION_CLIENT ? l->config->clients[l->config->nr_clients - 1].name
					      : "");
	for (size_t i = 0; i < l->section->nr; i++) {
		if (!strcmp(l->section->keys[i].name, name)) {
			key_given(l, title, i, value);
			return 1;
		}
	}
	unknown_key(l, title, name);
	return 1;
}

static void load_file(struct loader *l, const char *path)
{
	int line;

	l->at.line = 0;
	l->section = NULL;
	l->section_known = true;
	l->rest = NULL;
	if (strlen(path) >= sizeof(l->at.file)) {
		snprintf(l->at.file, sizeof(l->at.file), "%.150s...", path);
		wrong(l, &l->at, "the path is too long; allowed are %d characters",
		      CONFIG_PATH_MAX - 1);
		return;
	}
	strcpy(l->at.file, path);
	l->f = fopen(path, "re");
	if (!l->f) {
		wrong(l, &l->at, "cannot be read: %s", strerror(errno));
		return;
	}
	line = ini_parse_stream(read_piece, l, handle, l);
	if (line > 0) {
		l->at.line = line;
		wrong(l, &l->at, "neither a [section] nor \"key = value\" nor a comment");
	}
	/* A line for which there was no memory must not pass for the end. */
	if (line < 0 || !feof(l->f))
		wrong(l, &l->at, "cannot be read to its end");
	fclose(l->f);
}

static int is_conf(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return len > 5 && entry->d_name[0] != '.' && !strcmp(entry->d_name + len - 5, ".conf");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_directory(struct loader *l, const char *path)
{
	const char *slash = strrchr(path, '/');
	int dirlen = slash ? (int)(slash - path) + 1 : 0;
	struct dirent **entries;
	char name[PATH_MAX];
	int n;

	snprintf(name, sizeof(name), "%.*sconf.d", dirlen, path);
	n = scandir(name, &entries, is_conf, by_name);
	if (n < 0) {
		if (errno != ENOENT) {
			snprintf(l->at.file, sizeof(l->at.file), "%.*sconf.d", dirlen, path);
			l->at.line = 0;
			wrong(l, &l->at, "cannot be listed: %s", strerror(errno));
		}
		return;
	}
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%.*sconf.d/%s", dirlen, path, entries[i]->d_name);
		load_file(l, name);
		free(entries[i]);
	}
	free(entries);
}

/* Where a key of client i was given, or its section when it was not. */
static const struct place *client_place(const struct loader *l, unsigned i, const char *name)
{
	for (size_t k = 0; k < NR(client_keys); k++)
		if (!strcmp(client_keys[k].name, name) && l->client_given[i][k].line)
			return &l->client_given[i][k];
	return &l->clients[i];
}

static void check_client(struct loader *l, unsigned i)
{
	struct config_client *c = &l->config->clients[i];
	const struct place *at = client_place(l, i, "socket");

	if (!c->socket[0] && snprintf(c->socket, sizeof(c->socket), "/run/tmem/%s.sock", c->name) >=
				     (int)sizeof(c->socket))
		wrong(l, at,
		      "[client %s]: the name is too long for a socket made of it; give socket =",
		      c->name);
	if (!strcmp(c->socket, l->config->control_socket))
		wrong(l, at, "[client %s] socket = %s: that is the control socket", c->name,
		      c->socket);
	for (unsigned j = 0; j < i; j++)
		if (!strcmp(c->socket, l->config->clients[j].socket))
			wrong(l, at,
			      "[client %s] socket = %s: client %s has it; allowed is a socket of "
			      "its "
			      "own",
			      c->name, c->socket, l->config->clients[j].name);
	at = client_place(l, i, "region");
	if (c->region_bytes & (c->region_bytes - 1))
		wrong(l, at, "[client %s] region = %" PRIu64 ": allowed are powers of two", c->name,
		      c->region_bytes);
	if (tmem_region_need(c->rings, TMEM_MIN_ENTRIES) > c->region_bytes)
		wrong(l, client_place(l, i, "rings"),
		      "[client %s] rings = %u: they need a region of %" PRIu64
		      " bytes at least, and region is %" PRIu64,
		      c->name, c->rings, (uint64_t)tmem_region_need(c->rings, TMEM_MIN_ENTRIES),
		      c->region_bytes);
	if (c->limits.max_bytes && c->limits.min_bytes > c->limits.max_bytes)
		wrong(l, client_place(l, i, "minimum"),
		      "[client %s] minimum = %" PRIu64 ": allowed is at most maximum = %" PRIu64,
		      c->name, c->limits.min_bytes, c->limits.max_bytes);
}

/* What can be judged only with everything read. */
static void check_whole(struct loader *l)
{
	struct config *config = l->config;
	uint64_t sum = 0, before;
	char *slash;

	if (!config->regions[0]) {
		slash = strrchr(config->arena, '/');
		if (snprintf(config->regions, sizeof(config->regions), "%.*s/regions",
			     (int)(slash - config->arena),
			     config->arena) >= (int)sizeof(config->regions))
			wrong(l, &l->given[0][0],
			      "[pool] arena = %s: too long to put \"regions\" beside it; give "
			      "[front] "
			      "regions =",
			      config->arena);
	}
	for (unsigned i = 0; i < config->nr_clients; i++) {
		before = sum;
		sum += config->clients[i].limits.min_bytes;
		check_client(l, i);
		if (before <= config->pool_max && sum > config->pool_max)
			wrong(l, client_place(l, i, "minimum"),
			      "[client %s] minimum = %" PRIu64
			      ": the minimums up to here add up to "
			      "%" PRIu64 ", allowed is pool_max = %" PRIu64,
			      config->clients[i].name, config->clients[i].limits.min_bytes, sum,
			      config->pool_max);
	}
}

static struct config *config_defaults(void)
{
	struct config *config = calloc(1, sizeof(*config));
	const struct key percent = {"", KEY_PERCENT, 0, 0, 0, UINT64_MAX};
	char why[CONFIG_WHY_MAX];

	if (!config)
		return NULL;
	strcpy(config->arena, "/run/tmemd/arena");
	config_value(&percent, "25%", &config->pool_max, why);
	config_value(&percent, "5%", &config->host_reserve, why);
	config->ready_chunks = 0; /* by the size of the pool */
	config->poll_us = 50;
	strcpy(config->control_socket, TMEM_CONTROL_SOCKET);
	config->control_mode = 0660;
	config->control_gid = (uint32_t)-1;
	config->log_level = LOG_INFO;
	config->seccomp = 1;
	return config;
}

struct config *config_load(const char *path, config_say_fn say)
{
	struct loader l = {.say = say, .config = config_defaults()};

	if (!l.config) {
		say("there is no memory for the configuration");
		return NULL;
	}
	load_file(&l, path);
	load_directory(&l, path);
	check_whole(&l);
	free(l.text);
	free(l.clients);
	free(l.client_given);
	if (l.wrong) {
		config_free(l.config);
		return NULL;
	}
	return l.config;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (unsigned i = 0; i < config->nr_clients; i++)
		free(config->clients[i].shared);
	free(config->clients);
	free(config);
}

const struct config_client *config_client(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->nr_clients; i++)
		if (!strcmp(config->clients[i].name, name))
			return &config->clients[i];
	return NULL;
}
