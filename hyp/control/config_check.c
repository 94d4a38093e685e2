// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What can be judged of the configuration only with everything read: sockets, sums, limits that go
 * together.
 */
#include "config.h"

#include "control/config_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/tmem_abi.h"

/* A page of a disk that does not compress, and its descriptor. */
#define BLOCK_COST (CONFIG_DISK_BLOCK + 64ull)

int config_default_socket(const char *name, char socket[CONFIG_SOCKET_MAX])
{
	int n = snprintf(socket, CONFIG_SOCKET_MAX, "/run/tmem/%s.sock", name);

	return n < CONFIG_SOCKET_MAX ? 0 : -ENAMETOOLONG;
}

uint64_t config_disk_exposure(uint64_t bytes, uint64_t minimum)
{
	uint64_t cost = bytes / CONFIG_DISK_BLOCK * BLOCK_COST;

	return cost > minimum ? cost : minimum;
}

/* Gives the socket its default; it must differ from those of the first clients and disks. */
static void check_socket(struct loader *l, const struct place *at, const char *title,
			 const char *name, char socket[CONFIG_SOCKET_MAX], unsigned nr_clients,
			 unsigned nr_disks)
{
	const struct config *config = l->config;
	static const char own[] = "allowed is a socket of its own";

	if (!socket[0] && config_default_socket(name, socket))
		config_wrong(
			l, at,
			"[%s]: the name is too long for a socket made of it; give socket =", title);
	if (!strcmp(socket, config->control_socket))
		config_wrong(l, at, "[%s] socket = %s: that is the control socket", title, socket);
	for (unsigned i = 0; i < nr_clients; i++)
		if (!strcmp(socket, config->clients[i].socket))
			config_wrong(l, at, "[%s] socket = %s: client %s has it; %s", title, socket,
				     config->clients[i].name, own);
	for (unsigned i = 0; i < nr_disks; i++)
		if (!strcmp(socket, config->disks[i].socket))
			config_wrong(l, at, "[%s] socket = %s: disk %s has it; %s", title, socket,
				     config->disks[i].name, own);
}

static void check_limits(struct loader *l, const struct place *at, const char *title,
			 const struct store_limits *limits)
{
	if (limits->max_bytes && limits->min_bytes > limits->max_bytes)
		config_wrong(l, at,
			     "[%s] minimum = %" PRIu64 ": allowed is at most maximum = %" PRIu64,
			     title, limits->min_bytes, limits->max_bytes);
}

/* Keys that say nothing of a client that is reached like this one. */
static void check_not_given(struct loader *l, unsigned i, const char *title, const char *front,
			    const char *const *keys)
{
	for (; *keys; keys++) {
		const struct place *at = config_client_place(l, i, *keys);

		if (at != &l->clients[i].at)
			config_wrong(l, at, "[%s] %s: not with front = %s", title, *keys, front);
	}
}

/* A domain that no other client has, by default the one of the client's name. */
static void check_domain(struct loader *l, unsigned i, const char *title)
{
	struct config_client *c = &l->config->clients[i];

	if (!c->domain[0])
		snprintf(c->domain, sizeof(c->domain), "%s", c->name);
	for (unsigned j = 0; j < i; j++)
		if (!strcmp(c->domain, l->config->clients[j].domain))
			config_wrong(l, config_client_place(l, i, "domain"),
				     "[%s] domain = %s: client %s has it; allowed is a domain of "
				     "its own",
				     title, c->domain, l->config->clients[j].name);
	if (c->region_bytes > CONFIG_XEN_REGION_MAX)
		config_wrong(l, config_client_place(l, i, "region"),
			     "[%s] region = %" PRIu64
			     ": allowed with front = xen is at most %llu, for a domain must grant "
			     "every page of it",
			     title, c->region_bytes, CONFIG_XEN_REGION_MAX);
}

static void check_client(struct loader *l, unsigned i)
{
	static const char *const of_sockets[] = {"socket", "socket_owner", "socket_group",
						 "socket_mode", NULL};
	static const char *const of_domains[] = {"domain", NULL};
	struct config_client *c = &l->config->clients[i];
	char title[STORE_NAME_MAX + 8];

	snprintf(title, sizeof(title), "client %s", c->name);
	if (c->front == CONFIG_XEN) {
		check_not_given(l, i, title, "xen", of_sockets);
		check_domain(l, i, title);
	} else {
		check_not_given(l, i, title, "ivshmem", of_domains);
		check_socket(l, config_client_place(l, i, "socket"), title, c->name, c->socket, i,
			     0);
	}
	if (c->region_bytes & (c->region_bytes - 1))
		config_wrong(l, config_client_place(l, i, "region"),
			     "[%s] region = %" PRIu64 ": allowed are powers of two", title,
			     c->region_bytes);
	if (tmem_region_need(c->rings, TMEM_MIN_ENTRIES) > c->region_bytes)
		config_wrong(l, config_client_place(l, i, "rings"),
			     "[%s] rings = %u: they need a region of %" PRIu64
			     " bytes at least, and region is %" PRIu64,
			     title, c->rings,
			     (uint64_t)tmem_region_need(c->rings, TMEM_MIN_ENTRIES),
			     c->region_bytes);
	check_limits(l, config_client_place(l, i, "minimum"), title, &c->limits);
}

static void check_disk(struct loader *l, unsigned i)
{
	struct config_disk *d = &l->config->disks[i];
	char title[STORE_NAME_MAX + 8];

	snprintf(title, sizeof(title), "disk %s", d->name);
	check_socket(l, config_disk_place(l, i, "socket"), title, d->name, d->socket,
		     l->config->nr_clients, i);
	if (!d->bytes && config_disk_place(l, i, "size") == &l->disks[i].at)
		config_wrong(l, &l->disks[i].at, "[%s]: size is missing; give size =", title);
	if (d->bytes % CONFIG_DISK_BLOCK)
		config_wrong(l, config_disk_place(l, i, "size"),
			     "[%s] size = %" PRIu64 ": allowed are multiples of %d", title,
			     d->bytes, CONFIG_DISK_BLOCK);
	check_limits(l, config_disk_place(l, i, "minimum"), title, &d->limits);
}

/* Adds to a sum; says so when that makes it more than pool_max. */
static void add_minimum(struct loader *l, const struct place *at, const char *kind,
			const char *name, uint64_t minimum, uint64_t *sum)
{
	uint64_t before = *sum, max = l->config->pool_max;

	*sum += minimum;
	if (before <= max && *sum > max)
		config_wrong(l, at,
			     "[%s %s] minimum = %" PRIu64
			     ": the minimums up to here add up to %" PRIu64
			     ", allowed is pool_max = %" PRIu64,
			     kind, name, minimum, *sum, max);
}

static void check_minimums(struct loader *l)
{
	const struct config *config = l->config;
	uint64_t sum = 0;

	for (unsigned i = 0; i < config->nr_clients; i++)
		add_minimum(l, config_client_place(l, i, "minimum"), "client",
			    config->clients[i].name, config->clients[i].limits.min_bytes, &sum);
	for (unsigned i = 0; i < config->nr_disks; i++)
		add_minimum(l, config_disk_place(l, i, "minimum"), "disk", config->disks[i].name,
			    config->disks[i].limits.min_bytes, &sum);
}

/* What disks may take in the worst case must fit, but for those that need not. */
static void check_exposure(struct loader *l)
{
	const struct config *config = l->config;
	uint64_t sum = 0, before, own;

	for (unsigned i = 0; i < config->nr_clients; i++)
		sum += config->clients[i].limits.min_bytes;
	for (unsigned i = 0; i < config->nr_disks; i++) {
		const struct config_disk *d = &config->disks[i];

		if (d->overcommit)
			continue;
		before = sum;
		own = config_disk_exposure(d->bytes, d->limits.min_bytes);
		sum += own;
		if (before > config->pool_max || sum <= config->pool_max)
			continue;
		config_wrong(
			l, config_disk_place(l, i, "size"),
			"[disk %s] size = %" PRIu64 ": it can take %" PRIu64
			" physical bytes when nothing compresses; with the disks before it and "
			"the clients' minimums that is %" PRIu64 ", and pool_max is %" PRIu64
			"; make it smaller, raise pool_max, or give overcommit = yes",
			d->name, d->bytes, own, sum, config->pool_max);
	}
}

static void check_regions(struct loader *l)
{
	struct config *config = l->config;
	const char *slash = strrchr(config->arena, '/');
	int n;

	if (config->regions[0])
		return;
	n = snprintf(config->regions, sizeof(config->regions), "%.*s/regions",
		     (int)(slash - config->arena), config->arena);
	if (n >= (int)sizeof(config->regions))
		config_wrong(l, l->arena,
			     "[pool] arena = %s: too long to put \"regions\" beside it; give "
			     "[front] regions =",
			     config->arena);
}

/* The name of this host: what others allow, and what its certificate has. */
static void default_peer_name(struct config_peers *peers)
{
	char name[HOST_NAME_MAX + 1] = "";

	if (peers->name[0] || gethostname(name, sizeof(name) - 1))
		return;
	if (config_name_valid(name))
		snprintf(peers->name, sizeof(peers->name), "%.*s", STORE_NAME_MAX - 1, name);
}

static void check_peers(struct loader *l)
{
	struct config *config = l->config;
	struct config_peers *peers = &config->peers;

	default_peer_name(peers);
	if ((peers->lend || config->nr_peers) && !peers->name[0])
		config_wrong(l, &l->at,
			     "[peers]: this host has no name that others could allow; "
			     "give name =");
	if (peers->lend > config->pool_max)
		config_wrong(l, l->lend,
			     "[peers] lend = %" PRIu64 ": allowed is at most pool_max = %" PRIu64,
			     peers->lend, config->pool_max);
	for (unsigned i = 0; i < config->nr_peers; i++) {
		const struct config_peer *peer = &config->peer[i];

		if (!peer->host[0])
			config_wrong(l, &l->peers[i].at,
				     "[peer %s]: host is missing; give host =", peer->name);
		if (!strcmp(peer->name, peers->name))
			config_wrong(l, &l->peers[i].at,
				     "[peer %s]: that is this host; allowed are others, or a "
				     "different [peers] name =",
				     peer->name);
	}
}

void config_check(struct loader *l)
{
	check_regions(l);
	check_peers(l);
	for (unsigned i = 0; i < l->config->nr_clients; i++)
		check_client(l, i);
	for (unsigned i = 0; i < l->config->nr_disks; i++)
		check_disk(l, i);
	check_minimums(l);
	check_exposure(l);
}
