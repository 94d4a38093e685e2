// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The configuration: files, sections and keys.
 *
 * inih takes the lines apart; what it does not tell (which line, which section when that is empty)
 * the reader below notes as it hands out the lines. It also strips indentation, which inih would
 * take for the continuation of the line before.
 *
 * A file read later may say a key of a section again, that is what conf.d is for; one file may
 * not, and a client or disk has one section in all files. Everything that is wrong is said, and
 * then nothing of it is used.
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
static const struct key peers_keys[] = {
	K("name", KEY_PEER, peers.name, 0, 0),
	K("address", KEY_HOST, peers.address, 0, 0),
	K("port", KEY_UINT, peers.port, 1, 65535),
	K("lend", KEY_PERCENT, peers.lend, 0, 1ull << 46),
	K("copies", KEY_UINT, peers.copies, 1, 2),
	K("allow", KEY_PATTERNS, peers.allow, 0, 0),
	K("tls", KEY_PATH, peers.tls, 0, 0),
	K("ca", KEY_PATH, peers.ca, 0, 0),
	K("psk", KEY_PATH, peers.psk, 0, 0),
};
#undef K
#define K(name, type, member, min, max)                                                            \
	{                                                                                          \
		name, type, offsetof(struct config_client, member),                                \
			sizeof(((struct config_client *)0)->member), min, max                      \
	}

static const struct key client_keys[] = {
	K("front", KEY_FRONT, front, 0, 0),
	K("domain", KEY_DOMAIN, domain, 0, 0),
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
#define K(name, type, member, min, max)                                                            \
	{                                                                                          \
		name, type, offsetof(struct config_disk, member),                                  \
			sizeof(((struct config_disk *)0)->member), min, max                        \
	}

static const struct key disk_keys[] = {
	K("size", KEY_SIZE, bytes, CONFIG_DISK_BLOCK, CONFIG_DISK_MAX),
	K("queues", KEY_UINT, queues, 1, CONFIG_DISK_QUEUES),
	K("overcommit", KEY_YES, overcommit, 0, 0),
	K("socket", KEY_PATH, socket, 0, 0),
	K("socket_owner", KEY_USER, socket_uid, 0, 0),
	K("socket_group", KEY_GROUP, socket_gid, 0, 0),
	K("socket_mode", KEY_MODE, socket_mode, 0, 0),
	K("minimum", KEY_SIZE, limits.min_bytes, 0, 1ull << 46),
	K("maximum", KEY_SIZE, limits.max_bytes, 0, 1ull << 46),
	K("weight", KEY_UINT, limits.weight, 1, 10000),
};
#undef K

#define K(name, type, member, min, max)                                                            \
	{                                                                                          \
		name, type, offsetof(struct config_peer, member),                                  \
			sizeof(((struct config_peer *)0)->member), min, max                        \
	}

static const struct key peer_keys[] = {
	K("host", KEY_HOST, host, 0, 0),
	K("port", KEY_UINT, port, 1, 65535),
};
#undef K

static const struct section {
	const char *name;
	const struct key *keys;
	size_t nr;
} sections[] = {
	{"pool", pool_keys, NR(pool_keys)},	     {"front", front_keys, NR(front_keys)},
	{"control", control_keys, NR(control_keys)}, {"log", log_keys, NR(log_keys)},
	{"service", service_keys, NR(service_keys)}, {"peers", peers_keys, NR(peers_keys)},
	{"client", client_keys, NR(client_keys)},    {"disk", disk_keys, NR(disk_keys)},
	{"peer", peer_keys, NR(peer_keys)},
};
#define NR_PLAIN (NR(sections) - 3)
#define SECTION_CLIENT (&sections[NR_PLAIN])
#define SECTION_DISK (&sections[NR_PLAIN + 1])
#define SECTION_PEER (&sections[NR_PLAIN + 2])

_Static_assert(NR(client_keys) <= CONFIG_MAX_KEYS && NR(disk_keys) <= CONFIG_MAX_KEYS, "places");

struct reader {
	struct loader l;
	FILE *f;
	char *text; /* the line, and what inih has not taken of it */
	size_t room;
	const char *rest;
	struct place plain[NR_PLAIN][CONFIG_MAX_KEYS]; /* where their keys were given */
	/* The section that the line is in. */
	const struct section *section; /* NULL: none, or an unknown one */
	bool section_known;	       /* false: its keys have been complained of with it */
	char title[STORE_NAME_MAX + 8];
	char *values; /* key.offset counts from here */
	struct place *given;
};

void config_wrong(struct loader *l, const struct place *at, const char *fmt, ...)
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

static const struct place *place_in(const struct section *section, const struct part *part,
				    const char *key)
{
	for (size_t k = 0; k < section->nr; k++)
		if (!strcmp(section->keys[k].name, key) && part->given[k].line)
			return &part->given[k];
	return &part->at;
}

const struct place *config_client_place(const struct loader *l, unsigned i, const char *key)
{
	return place_in(SECTION_CLIENT, &l->clients[i], key);
}

const struct place *config_disk_place(const struct loader *l, unsigned i, const char *key)
{
	return place_in(SECTION_DISK, &l->disks[i], key);
}

const struct place *config_peer_place(const struct loader *l, unsigned i, const char *key)
{
	return place_in(SECTION_PEER, &l->peers[i], key);
}

/* ---- Sections ------------------------------------------------------------------------------- */

bool config_name_valid(const char *name)
{
	size_t len = strlen(name);

	if (!len || len >= STORE_NAME_MAX || name[0] == '.')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("-_.+@", *name))
			return false;
	return true;
}

/*
 * Where the section of a client or disk of that name is, or that of a peer when it is a peer's
 * name; NULL: there is none.
 */
static const struct place *named_already(const struct loader *l, const char *name,
					 const struct section **section)
{
	const struct config *config = l->config;
	bool peer = *section == SECTION_PEER;

	for (unsigned i = 0; peer && i < config->nr_peers; i++)
		if (!strcmp(config->peer[i].name, name))
			return &l->peers[i].at;
	if (peer)
		return NULL;
	for (unsigned i = 0; i < config->nr_clients; i++) {
		*section = SECTION_CLIENT;
		if (!strcmp(config->clients[i].name, name))
			return &l->clients[i].at;
	}
	for (unsigned i = 0; i < config->nr_disks; i++) {
		*section = SECTION_DISK;
		if (!strcmp(config->disks[i].name, name))
			return &l->disks[i].at;
	}
	return NULL;
}

static bool name_free(struct loader *l, const struct section *section, const char *name)
{
	const struct section *other = section;
	const struct place *at;

	if (!config_name_valid(name)) {
		config_wrong(l, &l->at,
			     "[%s %s]: a %s's name has 1 to %d letters, digits and -_.+@ and does "
			     "not begin with a dot",
			     section->name, name, section->name, STORE_NAME_MAX - 1);
		return false;
	}
	at = named_already(l, name, &other);
	if (at && other == section)
		config_wrong(l, &l->at, "[%s %s]: there is one already at %s:%d; allowed is one",
			     section->name, name, at->file, at->line);
	else if (at)
		config_wrong(l, &l->at,
			     "[%s %s]: a %s has that name, at %s:%d; allowed is a name of its own",
			     section->name, name, other->name, at->file, at->line);
	return !at;
}

/* Room for one more of something and for the places of its keys. False: said. */
static bool make_room(struct loader *l, const char *name, void **things, size_t size,
		      struct part **parts, unsigned n)
{
	void *p = reallocarray(*things, n + 1, size);

	if (p)
		*things = p;
	p = p ? reallocarray(*parts, n + 1, sizeof(**parts)) : NULL;
	if (!p) {
		config_wrong(l, &l->at, "%s: out of memory", name);
		return false;
	}
	*parts = p;
	(*parts)[n] = (struct part){.at = l->at};
	return true;
}

static void client_begin(struct reader *r, const char *name)
{
	struct config *config = r->l.config;
	unsigned n = config->nr_clients;
	void *clients = config->clients;
	struct config_client *c;
	bool room;

	if (!name_free(&r->l, SECTION_CLIENT, name))
		return;
	if (n + config->nr_disks == STORE_MAX_CLIENTS) {
		config_wrong(&r->l, &r->l.at, "[client %s]: allowed are %d clients and disks", name,
			     STORE_MAX_CLIENTS);
		return;
	}
	room = make_room(&r->l, name, &clients, sizeof(*c), &r->l.clients, n);
	config->clients = clients;
	if (!room)
		return;
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
	r->section = SECTION_CLIENT;
	r->values = (char *)c;
	r->given = r->l.clients[n].given;
}

void config_disk_defaults(struct config_disk *disk, const char *name)
{
	memset(disk, 0, sizeof(*disk));
	snprintf(disk->name, sizeof(disk->name), "%s", name);
	disk->socket_uid = (uint32_t)-1;
	disk->socket_gid = (uint32_t)-1;
	disk->socket_mode = 0660;
	disk->queues = 1;
	disk->limits.weight = 100;
}

static void disk_begin(struct reader *r, const char *name)
{
	struct config *config = r->l.config;
	unsigned n = config->nr_disks;
	void *disks = config->disks;
	bool room;

	if (!name_free(&r->l, SECTION_DISK, name))
		return;
	if (n == CONFIG_MAX_DISKS || n + config->nr_clients == STORE_MAX_CLIENTS) {
		config_wrong(&r->l, &r->l.at,
			     "[disk %s]: allowed are %d disks, and %d clients and disks", name,
			     CONFIG_MAX_DISKS, STORE_MAX_CLIENTS);
		return;
	}
	room = make_room(&r->l, name, &disks, sizeof(*config->disks), &r->l.disks, n);
	config->disks = disks;
	if (!room)
		return;
	config->nr_disks = n + 1;
	config_disk_defaults(&config->disks[n], name);
	r->section = SECTION_DISK;
	r->values = (char *)&config->disks[n];
	r->given = r->l.disks[n].given;
}

static void peer_begin(struct reader *r, const char *name)
{
	struct config *config = r->l.config;
	unsigned n = config->nr_peers;
	void *peers = config->peer;
	bool room;

	if (!name_free(&r->l, SECTION_PEER, name))
		return;
	if (n == CONFIG_MAX_PEERS) {
		config_wrong(&r->l, &r->l.at, "[peer %s]: allowed are %d peers", name,
			     CONFIG_MAX_PEERS);
		return;
	}
	room = make_room(&r->l, name, &peers, sizeof(*config->peer), &r->l.peers, n);
	config->peer = peers;
	if (!room)
		return;
	config->nr_peers = n + 1;
	memset(&config->peer[n], 0, sizeof(config->peer[n]));
	snprintf(config->peer[n].name, sizeof(config->peer[n].name), "%s", name);
	config->peer[n].port = CONFIG_PEER_PORT;
	r->section = SECTION_PEER;
	r->values = (char *)&config->peer[n];
	r->given = r->l.peers[n].given;
}

static void plain_begin(struct reader *r, const char *name)
{
	for (size_t i = 0; i < NR_PLAIN; i++) {
		if (!strcmp(sections[i].name, name)) {
			r->section = &sections[i];
			r->values = (char *)r->l.config;
			r->given = r->plain[i];
			return;
		}
	}
	config_wrong(&r->l, &r->l.at,
		     "[%s]: unknown section; allowed are [pool], [front], [control], [log], "
		     "[service], [peers], [client NAME], [disk NAME] and [peer NAME]",
		     name);
}

/* What stands behind the word `kind`; NULL: the section is of another kind. */
static const char *name_behind(const char *text, const char *kind)
{
	size_t len = strlen(kind);

	if (strncmp(text, kind, len) || (text[len] && !isspace((unsigned char)text[len])))
		return NULL;
	return text + len + strspn(text + len, " \t");
}

/* A line "[...]": text begins behind the bracket. */
static void section_begin(struct reader *r, const char *text)
{
	static const struct {
		const struct section *section;
		void (*begin)(struct reader *r, const char *name);
	} named[] = {{SECTION_CLIENT, client_begin},
		     {SECTION_DISK, disk_begin},
		     {SECTION_PEER, peer_begin}};
	const char *of = NULL, *kind = "";
	char name[LINE_MAX_CHARS + 1];
	char *end;

	r->section = NULL;
	snprintf(name, sizeof(name), "%s", text);
	end = strchr(name, ']');
	if (!end) {
		config_wrong(&r->l, &r->l.at, "[%s: the closing bracket is missing", name);
		r->section_known = false;
		return;
	}
	*end = 0;
	for (size_t i = 0; i < NR(named) && !of; i++) {
		kind = named[i].section->name;
		of = name_behind(name, kind);
		if (of)
			named[i].begin(r, of);
	}
	if (!of)
		plain_begin(r, name);
	r->section_known = r->section != NULL;
	if (of)
		snprintf(r->title, sizeof(r->title), "%s %.*s", kind, STORE_NAME_MAX - 1, of);
	else
		snprintf(r->title, sizeof(r->title), "%.*s", STORE_NAME_MAX - 1, name);
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* The next line, without indentation, in r->text. False at the end of the file. */
static bool next_line(struct reader *r)
{
	ssize_t len = getline(&r->text, &r->room, r->f);
	size_t blank;

	if (len < 0)
		return false;
	r->l.at.line++;
	if (strlen(r->text) != (size_t)len) {
		config_wrong(&r->l, &r->l.at, "the line holds a zero byte; allowed is text");
		len = (ssize_t)strlen(r->text);
	}
	while (len && isspace((unsigned char)r->text[len - 1]))
		r->text[--len] = 0;
	blank = strspn(r->text, " \t");
	memmove(r->text, r->text + blank, (size_t)len - blank + 1);
	len -= (ssize_t)blank;
	if (len > LINE_MAX_CHARS) {
		config_wrong(&r->l, &r->l.at,
			     "the line is longer than %d characters; keys that take lists may be "
			     "given several times",
			     LINE_MAX_CHARS);
		r->text[0] = 0;
	}
	if (r->text[0] == '[')
		section_begin(r, r->text + 1);
	return true;
}

/* inih's reader: like fgets(). */
static char *read_piece(char *buf, int size, void *arg)
{
	struct reader *r = arg;
	size_t n;

	if (size < 2)
		return NULL;
	if (!r->rest) {
		if (!next_line(r))
			return NULL;
		r->rest = r->text;
	}
	n = strlen(r->rest);
	if (n + 2 <= (size_t)size) {
		memcpy(buf, r->rest, n);
		strcpy(buf + n, "\n");
		r->rest = NULL;
	} else {
		memcpy(buf, r->rest, (size_t)size - 1);
		buf[size - 1] = 0;
		r->rest += size - 1;
	}
	return buf;
}

static void unknown_key(struct reader *r, const char *name)
{
	char allowed[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < r->section->nr; i++)
		n += (size_t)snprintf(allowed + n, sizeof(allowed) - n, "%s%s", i ? ", " : "",
				      r->section->keys[i].name);
	config_wrong(&r->l, &r->l.at, "[%s] %s: unknown key; allowed here are %s", r->title, name,
		     allowed);
}

static void key_given(struct reader *r, size_t i, const char *text)
{
	const struct key *key = &r->section->keys[i];
	struct place *given = &r->given[i];
	char why[CONFIG_WHY_MAX];

	if (given->line && key->type != KEY_UUIDS && key->type != KEY_PATTERNS &&
	    !strcmp(given->file, r->l.at.file)) {
		config_wrong(&r->l, &r->l.at, "[%s] %s: given already in line %d; allowed is once",
			     r->title, key->name, given->line);
		return;
	}
	*given = r->l.at;
	if (config_value(key, text, r->values + key->offset, why))
		config_wrong(&r->l, &r->l.at, "[%s] %s = %s: %s", r->title, key->name, text, why);
}

/* inih's handler; the section is what section_begin() noted. */
static int handle(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *r = arg;

	(void)section;
	if (!r->section) {
		if (r->section_known)
			config_wrong(&r->l, &r->l.at,
				     "%s: a key before the first section; begin with [pool]", name);
		return 1;
	}
	for (size_t i = 0; i < r->section->nr; i++) {
		if (!strcmp(r->section->keys[i].name, name)) {
			key_given(r, i, value);
			return 1;
		}
	}
	unknown_key(r, name);
	return 1;
}

/* ---- Files ---------------------------------------------------------------------------------- */

static void load_file(struct reader *r, const char *path)
{
	int line;

	r->l.at.line = 0;
	r->section = NULL;
	r->section_known = true;
	r->rest = NULL;
	if (strlen(path) >= sizeof(r->l.at.file)) {
		snprintf(r->l.at.file, sizeof(r->l.at.file), "%.150s...", path);
		config_wrong(&r->l, &r->l.at, "the path is too long; allowed are %d characters",
			     CONFIG_PATH_MAX - 1);
		return;
	}
	strcpy(r->l.at.file, path);
	r->f = fopen(path, "re");
	if (!r->f) {
		config_wrong(&r->l, &r->l.at, "cannot be read: %s", strerror(errno));
		return;
	}
	line = ini_parse_stream(read_piece, r, handle, r);
	if (line > 0) {
		r->l.at.line = line;
		config_wrong(&r->l, &r->l.at,
			     "neither a [section] nor \"key = value\" nor a comment");
	}
	/* A line for which there was no memory must not pass for the end. */
	if (line < 0 || !feof(r->f))
		config_wrong(&r->l, &r->l.at, "cannot be read to its end");
	fclose(r->f);
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

static void load_directory(struct reader *r, const char *path)
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
			snprintf(r->l.at.file, sizeof(r->l.at.file), "%.*sconf.d", dirlen, path);
			r->l.at.line = 0;
			config_wrong(&r->l, &r->l.at, "cannot be listed: %s", strerror(errno));
		}
		return;
	}
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%.*sconf.d/%s", dirlen, path, entries[i]->d_name);
		load_file(r, name);
		free(entries[i]);
	}
	free(entries);
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
	config->peers.port = CONFIG_PEER_PORT;
	config->peers.copies = 2;
	return config;
}

struct config *config_load(const char *path, config_say_fn say)
{
	struct reader r = {.l = {.say = say, .config = config_defaults()}};

	if (!r.l.config) {
		say("there is no memory for the configuration");
		return NULL;
	}
	load_file(&r, path);
	load_directory(&r, path);
	r.l.arena = &r.plain[0][0];
	r.l.lend = &r.plain[NR_PLAIN - 1][3];
	config_check(&r.l);
	free(r.text);
	free(r.l.clients);
	free(r.l.disks);
	free(r.l.peers);
	if (r.l.wrong) {
		config_free(r.l.config);
		return NULL;
	}
	return r.l.config;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (unsigned i = 0; i < config->nr_clients; i++)
		free(config->clients[i].shared);
	free(config->clients);
	free(config->disks);
	free(config->peer);
	free(config);
}

const struct config_client *config_client(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->nr_clients; i++)
		if (!strcmp(config->clients[i].name, name))
			return &config->clients[i];
	return NULL;
}

const struct config_disk *config_disk(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->nr_disks; i++)
		if (!strcmp(config->disks[i].name, name))
			return &config->disks[i];
	return NULL;
}
