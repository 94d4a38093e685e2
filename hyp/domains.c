// SPDX-License-Identifier: GPL-2.0-or-later
/* What the control socket wants to know of domains of Xen, from the front that has them. */
#include "config.h"

#include "tmemd_priv.h"

#include <string.h>

_Static_assert(STORE_NAME_MAX == FRONT_DOMAIN_TEXT && CONFIG_DOMAIN_MAX == FRONT_DOMAIN_TEXT,
	       "the texts are of one size");

static void translate(struct control_domain *to, const struct front_domain *from)
{
	static const int devices[] = {
		[FRONT_DEVICE_ABSENT] = CONTROL_DEVICE_ABSENT,
		[FRONT_DEVICE_OFFERED] = CONTROL_DEVICE_OFFERED,
		[FRONT_DEVICE_LEAVING] = CONTROL_DEVICE_LEAVING,
		[FRONT_DEVICE_LEFT] = CONTROL_DEVICE_LEFT,
	};

	memcpy(to->client, from->client, sizeof(to->client));
	memcpy(to->wanted, from->wanted, sizeof(to->wanted));
	to->domain = from->domain;
	memcpy(to->uuid, from->uuid, sizeof(to->uuid));
	to->device = devices[from->device];
}

unsigned domains_list(void *arg, struct control_domain *domains, unsigned room)
{
	struct front_domain found[STORE_MAX_CLIENTS];
	struct tmemd *t = arg;
	unsigned nr =
		front_domains(t->front, found, room < STORE_MAX_CLIENTS ? room : STORE_MAX_CLIENTS);

	for (unsigned i = 0; i < nr; i++)
		translate(&domains[i], &found[i]);
	return nr;
}

int domains_find(void *arg, const char *text, struct control_domain *domain, char *err,
		 size_t errlen)
{
	struct front_domain found;
	struct tmemd *t = arg;
	int r = front_domain_find(t->front, text, &found, err, errlen);

	if (!r)
		translate(domain, &found);
	return r;
}

void domains_wish(void *arg, const char *client, enum control_wish wish)
{
	static const enum front_wish wishes[] = {
		[CONTROL_WISH_OFFER] = FRONT_WISH_OFFER,
		[CONTROL_WISH_TAKE] = FRONT_WISH_TAKE,
		[CONTROL_WISH_KEEP] = FRONT_WISH_KEEP,
	};
	struct tmemd *t = arg;

	front_domain_wish(t->front, client, wishes[wish]);
}
