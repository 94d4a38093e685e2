// SPDX-License-Identifier: GPL-2.0-or-later
/* What all engines of membership share: names, addresses, lists. */
#include "members_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

const struct members_ops *members_engine(const char *name)
{
	if (!strcmp(name, members_static.name))
		return &members_static;
#ifdef HAVE_LIBCURL
	if (!strcmp(name, members_etcd.name))
		return &members_etcd;
#endif
	return NULL;
}

/* ---- Names and addresses -------------------------------------------------------------------- */

bool member_name_valid(const char *name)
{
	size_t len = strlen(name);

	return len && len < MEMBER_NAME && strspn(name, ALNUM ".-_") == len &&
	       strchr(ALNUM, name[0]);
}

static bool parse_port(const char *text, uint16_t *port)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long value;

	if (!digits || digits > 5 || text[digits])
		return false;
	value = strtoul(text, NULL, 10);
	*port = (uint16_t)value;
	return value && value <= UINT16_MAX;
}

bool member_address(const char *address, char host[MEMBER_ADDRESS], uint16_t *port)
{
	const char *colon = strrchr(address, ':');
	const char *allowed = ALNUM ".-_";
	size_t len;

	if (!colon || strlen(address) >= MEMBER_ADDRESS || !parse_port(colon + 1, port))
		return false;
	len = (size_t)(colon - address);
	if (len > 2 && address[0] == '[' && colon[-1] == ']') {
		address++;
		len -= 2;
		allowed = "0123456789abcdefABCDEF:.";
	}
	if (!len || strspn(address, allowed) < len)
		return false;
	memcpy(host, address, len);
	host[len] = 0;
	return true;
}

int member_parse(struct member *member, const char *text, char *err, size_t size)
{
	const char *equals = strchr(text, '=');
	char host[MEMBER_ADDRESS];
	uint16_t port;

	memset(member, 0, sizeof(*member));
	member->spare_bytes = MEMBER_SPARE_UNKNOWN;
	if (!equals || equals - text >= MEMBER_NAME) {
		snprintf(err, size, "\"%.80s\" is not NAME=HOST:PORT", text);
		return -EINVAL;
	}
	memcpy(member->name, text, (size_t)(equals - text));
	if (!member_name_valid(member->name)) {
		snprintf(err, size, "\"%s\" is no name of a host (letters, digits, \".-_\")",
			 member->name);
		return -EINVAL;
	}
	if (!member_address(equals + 1, host, &port)) {
		snprintf(err, size, "\"%.80s\" is not HOST:PORT or [IPV6]:PORT", equals + 1);
		return -EINVAL;
	}
	snprintf(member->address, sizeof(member->address), "%s", equals + 1);
	return 0;
}

/* ---- Lists ---------------------------------------------------------------------------------- */

int member_by_name(const void *a, const void *b)
{
	return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static bool equal(const struct member *a, const struct member *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->address, b->address) &&
	       a->spare_bytes == b->spare_bytes && a->epoch == b->epoch;
}

bool members_equal(const struct member *a, unsigned nr_a, const struct member *b, unsigned nr_b)
{
	bool same = nr_a == nr_b;

	for (unsigned i = 0; same && i < nr_a; i++)
		same = equal(&a[i], &b[i]);
	return same;
}

static int check(const struct member *member, char *err, size_t size)
{
	char host[MEMBER_ADDRESS];
	uint16_t port;

	if (!memchr(member->name, 0, MEMBER_NAME) || !member_name_valid(member->name)) {
		snprintf(err, size, "\"%.*s\" is no name of a host", MEMBER_NAME - 1, member->name);
		return -EINVAL;
	}
	if (!memchr(member->address, 0, MEMBER_ADDRESS) ||
	    !member_address(member->address, host, &port)) {
		snprintf(err, size, "host %s: \"%.80s\" is not HOST:PORT", member->name,
			 member->address);
		return -EINVAL;
	}
	return 0;
}

static int check_all(const struct member *hosts, unsigned nr, char *err, size_t size)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < nr; i++) {
		rc = check(&hosts[i], err, size);
		if (!rc && i && !member_by_name(&hosts[i], &hosts[i - 1])) {
			snprintf(err, size, "host %s is there twice", hosts[i].name);
			rc = -EINVAL;
		}
	}
	return rc;
}

/* All hosts may have the same list, in which each finds itself. */
static unsigned leave_out(struct member *hosts, unsigned nr, const char *name)
{
	unsigned i = 0;

	while (i < nr && strcmp(hosts[i].name, name))
		i++;
	if (i == nr)
		return nr;
	memmove(&hosts[i], &hosts[i + 1], (nr - i - 1) * sizeof(*hosts));
	return nr - 1;
}

int members_copy(const struct members_config *config, const char *self, struct member **hosts,
		 unsigned *nr, char *err, size_t size)
{
	unsigned n = config->nr_hosts;
	struct member *list = calloc((size_t)n + 1, sizeof(*list));
	int rc;

	*hosts = NULL;
	*nr = 0;
	if (!list) {
		snprintf(err, size, "no memory");
		return -ENOMEM;
	}
	if (n)
		memcpy(list, config->hosts, n * sizeof(*list));
	for (unsigned i = 0; i < n; i++)
		list[i].name[MEMBER_NAME - 1] = 0;
	qsort(list, n, sizeof(*list), member_by_name);
	rc = check_all(list, n, err, size);
	if (!rc) {
		n = leave_out(list, n, self);
		if (n > MEMBERS_MAX) {
			snprintf(err, size, "%u other hosts are too many, at most %u", n,
				 MEMBERS_MAX);
			rc = -EINVAL;
		}
	}
	if (rc) {
		free(list);
		return rc;
	}
	*nr = n;
	*hosts = list;
	return 0;
}

/* ---- The table ------------------------------------------------------------------------------ */

int members_open(struct members **members, const struct members_ops *ops,
		 const struct members_config *config, const struct member *self,
		 members_changed_fn changed, void *arg, char *err, size_t size)
{
	int rc = check(self, err, size);

	*members = NULL;
	return rc ? rc : ops->open(members, config, self, changed, arg, err, size);
}

void members_spare(struct members *members, uint64_t bytes)
{
	members->ops->spare(members, bytes);
}

bool members_state(struct members *members, char *text, size_t size)
{
	return members->ops->state(members, text, size);
}

void members_close(struct members *members)
{
	if (members)
		members->ops->close(members);
}
