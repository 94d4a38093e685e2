// SPDX-License-Identifier: GPL-2.0-or-later
/* The configuration of tmem-balloon: one section, sizes as in tmemd.conf. */
#include "config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/control.h"
#include "proto/size.h"
#include "tools/xen/balloon.h"

struct reader {
	struct balloon_config *config;
	const char *path;
	bool bad;
};

static int say(struct reader *reader, const char *key, const char *what)
{
	fprintf(stderr, "tmem-balloon: %s: %s: %s\n", reader->path, key, what);
	reader->bad = true;
	return 1;
}

static int take(void *arg, const char *section, const char *key, const char *value)
{
	struct reader *reader = arg;
	struct balloon_config *c = reader->config;
	const struct {
		const char *key;
		uint64_t *size;
	} sizes[] = {{"minimum", &c->minimum},
		     {"maximum", &c->maximum},
		     {"xen_free", &c->xen_free},
		     {"step", &c->step}};
	char *end;

	if (strcmp(section, "balloon"))
		return say(reader, section, "the only section is [balloon]");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (strcmp(sizes[i].key, key))
			continue;
		if (tmem_size_parse(value, sizes[i].size))
			return say(reader, key, "allowed is " TMEM_SIZE_FORM);
		return 1;
	}
	if (!strcmp(key, "interval")) {
		c->interval = (uint32_t)strtoul(value, &end, 10);
		if (*end || c->interval < 1 || c->interval > 60)
			return say(reader, key, "allowed are 1 to 60 seconds");
	} else if (!strcmp(key, "socket")) {
		if (*value != '/' || strlen(value) >= sizeof(c->socket))
			return say(reader, key, "allowed is an absolute path of a socket");
		strcpy(c->socket, value);
	} else {
		return say(reader, key,
			   "allowed are minimum, maximum, xen_free, step, interval and socket");
	}
	return 1;
}

int balloon_config_load(struct balloon_config *config, const char *path)
{
	struct reader reader = {config, path, false};
	int r;

	*config = (struct balloon_config){
		.xen_free = 128ull << 20, .step = 64ull << 20, .interval = 1};
	strcpy(config->socket, TMEM_CONTROL_SOCKET);
	r = ini_parse(path, take, &reader);
	if (r < 0) {
		fprintf(stderr, "tmem-balloon: %s: %s\n", path, strerror(errno));
		return BALLOON_USAGE;
	}
	if (r > 0)
		fprintf(stderr, "tmem-balloon: %s: line %d is not understood\n", path, r);
	if (r > 0 || reader.bad)
		return BALLOON_USAGE;
	if (!config->minimum)
		say(&reader, "minimum", "say what the domain needs at least, without the pool");
	if (config->maximum < config->minimum || !config->maximum)
		say(&reader, "maximum", "say what the domain may have, not below minimum");
	if (config->step < 1 << 20)
		say(&reader, "step", "allowed is 1M and more");
	return reader.bad ? BALLOON_USAGE : BALLOON_OK;
}
