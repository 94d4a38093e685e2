// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which client is whose domain, and what an operator wants of its device. All of it is for other
 * threads than that of xen.c, which alone changes a device: here only wishes are left for it, and
 * what it showed last is read. libxenstore lets threads share a connection.
 */
#include "xen_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(FRONT_DOMAIN_TEXT >= STORE_NAME_MAX && FRONT_DOMAIN_TEXT >= XEN_TEXT_MAX,
	       "names fit");

/* A domain as xenstore has it. */
struct here {
	unsigned domain; /* 0: none */
	char name[XEN_TEXT_MAX];
	uint64_t uuid[2];
};

static void look_up(struct xen *xen, const char *text, struct here *here)
{
	uint64_t id;

	memset(here, 0, sizeof(*here));
	if (!xen_number(text, UINT16_MAX, &id)) {
		if (xs_is_domain_introduced(xen->xs, (unsigned)id) &&
		    xen_store_uuid(xen->xs, (unsigned)id, here->uuid))
			here->domain = (unsigned)id;
	} else if (!xen_store_find(xen->xs, xen->self, text, &here->domain, here->uuid)) {
		here->domain = 0;
	}
	if (here->domain)
		xen_store_read(xen->xs, here->name, "/local/domain/%u/name", here->domain);
}

/* Under front.lock. */
static bool is_for(const struct xen_device *device, const struct here *here, const char *text)
{
	uint64_t uuid[2], other[2];

	if (!here->domain)
		return !strcmp(device->client->name, text) || !strcmp(device->wanted, text) ||
		       (!xen_uuid(device->wanted, uuid) && !xen_uuid(text, other) &&
			!memcmp(uuid, other, sizeof(uuid)));
	if (device->shown_domain == here->domain)
		return true;
	if (!xen_uuid(device->wanted, uuid))
		return !memcmp(uuid, here->uuid, sizeof(uuid));
	return !strcmp(device->wanted, here->name);
}

/* Under front.lock. */
static void take(struct front_domain *to, const struct xen_device *device)
{
	snprintf(to->client, sizeof(to->client), "%s", device->client->name);
	snprintf(to->wanted, sizeof(to->wanted), "%s", device->wanted);
	to->domain = device->shown_domain;
	memcpy(to->uuid, device->shown_uuid, sizeof(to->uuid));
	to->device = device->shown;
}

/* The device of a client, or NULL. Under front.lock. */
static struct xen_device *device_at(struct front *front, unsigned slot)
{
	struct front_client *client = front->clients[slot];

	return client && client->channel == &xen_channel ? client->device : NULL;
}

static bool search(struct front *front, const struct here *here, const char *text,
		   struct front_domain *found)
{
	bool there = false;

	pthread_mutex_lock(&front->lock);
	for (unsigned i = 0; i < front->nr_slots && !there; i++) {
		struct xen_device *device = device_at(front, i);

		there = device && is_for(device, here, text);
		if (there)
			take(found, device);
	}
	pthread_mutex_unlock(&front->lock);
	/* The thread may not have seen it yet. */
	if (there && here->domain && found->domain != here->domain) {
		found->domain = here->domain;
		found->device = FRONT_DEVICE_ABSENT;
		memcpy(found->uuid, here->uuid, sizeof(found->uuid));
	}
	return there;
}

int front_domain_find(struct front *front, const char *text, struct front_domain *found, char *err,
		      size_t errlen)
{
	const struct here nowhere = {0};
	struct here here;

	if (!front->xen) {
		snprintf(err, errlen,
			 "this tmemd serves no domains: no client has front = xen, or Xen could "
			 "not be served when it started (see its log)");
		return -ENODEV;
	}
	look_up(front->xen, text, &here);
	/* A client's own name is no domain's, when they differ. */
	if (search(front, &here, text, found) || search(front, &nowhere, text, found))
		return 0;
	if (!here.domain) {
		snprintf(err, errlen,
			 "there is no domain \"%.64s\", and no client is for one of that name",
			 text);
		return -ENOENT;
	}
	snprintf(err, errlen,
		 "no client is for domain %u (%s): write [client %s], front = xen and domain = %s "
		 "into the configuration and reload it",
		 here.domain, here.name, here.name, here.name);
	return -ENXIO;
}

unsigned front_domains(struct front *front, struct front_domain *domains, unsigned room)
{
	unsigned nr = 0;

	pthread_mutex_lock(&front->lock);
	for (unsigned i = 0; i < front->nr_slots && nr < room; i++) {
		struct xen_device *device = device_at(front, i);

		if (device)
			take(&domains[nr++], device);
	}
	pthread_mutex_unlock(&front->lock);
	return nr;
}

void front_domain_wish(struct front *front, const char *client, enum front_wish wish)
{
	static const enum xen_wish wishes[] = {
		[FRONT_WISH_OFFER] = XEN_WISH_OFFER,
		[FRONT_WISH_TAKE] = XEN_WISH_TAKE,
		[FRONT_WISH_KEEP] = XEN_WISH_KEEP,
	};

	pthread_mutex_lock(&front->lock);
	for (unsigned i = 0; i < front->nr_slots; i++) {
		struct xen_device *device = device_at(front, i);

		if (!device || strcmp(device->client->name, client))
			continue;
		device->wish = wishes[wish];
		device->look = true;
	}
	pthread_mutex_unlock(&front->lock);
	if (front->xen)
		xen_wake(front->xen);
}
