// SPDX-License-Identifier: GPL-2.0-or-later
/* In the place of the Xen channel, where the service was built without Xen's libraries. */
#include "front_priv.h"

#include <errno.h>
#include <stdio.h>

int xen_start(struct front *front)
{
	(void)front;
	return 0;
}

void xen_stop(struct front *front)
{
	(void)front;
}

bool front_xen_built(void)
{
	return false;
}

struct xen *front_xen_open(unsigned rings, char *err, size_t errlen)
{
	(void)rings;
	snprintf(err, errlen, "this tmemd was built without Xen's libraries");
	return NULL;
}

void front_xen_close(struct xen *xen)
{
	(void)xen;
}

int front_domain_find(struct front *front, const char *text, struct front_domain *found, char *err,
		      size_t errlen)
{
	(void)front;
	(void)text;
	(void)found;
	snprintf(err, errlen, "this tmemd serves no domains: it was built without Xen's libraries");
	return -ENODEV;
}

unsigned front_domains(struct front *front, struct front_domain *domains, unsigned room)
{
	(void)front;
	(void)domains;
	(void)room;
	return 0;
}

void front_domain_wish(struct front *front, const char *client, enum front_wish wish)
{
	(void)front;
	(void)client;
	(void)wish;
}

static int refuse(struct front_client *client, const struct front_client_config *config, char *err,
		  size_t errlen)
{
	(void)config;
	snprintf(err, errlen,
		 "client %s: front = xen: this tmemd was built without Xen's libraries",
		 client->name);
	return -ENOTSUP;
}

static int attach(struct front_client *client)
{
	(void)client;
	return -ENOTSUP;
}

static void nothing(struct front_client *client)
{
	(void)client;
}

static void nothing_more(struct front_client *client, bool forever)
{
	(void)client;
	(void)forever;
}

/* No client ever gets as far as to have a region. */
const struct channel_ops xen_channel = {
	.note = 2,
	.open = refuse,
	.close = nothing,
	.attach = attach,
	.bury = nothing,
	.hang_up = nothing_more,
	.unmap = nothing_more,
};
