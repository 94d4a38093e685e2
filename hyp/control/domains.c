// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The commands about domains of Xen. A domain has a client by the configuration; here its device is
 * looked at, given and taken away. They wait for xenstore and for guests, so they are long ones.
 */
#include "config.h"

#include "control/control_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "proto/control.h"

#define LOOK_NS (50 * CLOCK_MS) /* between two looks at a device */
#define KEEP_NS (2 * CLOCK_S)	/* until a wish that is taken back has been seen */

static const char *const device_words[] = {
	[CONTROL_DEVICE_ABSENT] = TMEM_DEVICE_ABSENT,
	[CONTROL_DEVICE_OFFERED] = TMEM_DEVICE_OFFERED,
	[CONTROL_DEVICE_LEAVING] = TMEM_DEVICE_LEAVING,
	[CONTROL_DEVICE_LEFT] = TMEM_DEVICE_LEFT,
};

static json_t *domain_object(const struct control_domain *domain)
{
	json_t *o = json_object();
	char uuid[37];

	uuid_format(domain->uuid, uuid);
	json_object_set_new(o, TMEM_KEY_NAME, json_string(domain->client));
	json_object_set_new(o, TMEM_KEY_CONFIGURED, json_string(domain->wanted));
	json_object_set_new(o, TMEM_KEY_DOMAIN,
			    domain->domain ? json_integer(domain->domain) : json_null());
	json_object_set_new(o, TMEM_KEY_UUID, domain->domain ? json_string(uuid) : json_null());
	json_object_set_new(o, TMEM_KEY_DEVICE, json_string(device_words[domain->device]));
	return o;
}

static bool find(struct control *control, json_t *request, struct control_domain *domain,
		 struct reply *reply)
{
	const char *text = json_string_value(json_object_get(request, TMEM_KEY_DOMAIN));
	char err[512];
	int r = control->ops.domain_find(control->arg, text, domain, err, sizeof(err));

	if (r)
		reply_error(reply, r == -ENODEV ? TMEM_ERR_REFUSED : TMEM_ERR_NO_CLIENT, "%s", err);
	return !r;
}

void run_domain(struct control *control, json_t *request, struct reply *reply)
{
	struct control_domain *domains = calloc(STORE_MAX_CLIENTS, sizeof(*domains));
	json_t *array = json_array();
	unsigned nr = 1;

	if (!domains)
		reply_error(reply, TMEM_ERR_BUSY, "the service is out of memory");
	else if (!json_object_get(request, TMEM_KEY_DOMAIN))
		nr = control->ops.domains(control->arg, domains, STORE_MAX_CLIENTS);
	else
		find(control, request, domains, reply);
	for (unsigned i = 0; !reply->code && i < nr; i++)
		json_array_append_new(array, domain_object(&domains[i]));
	free(domains);
	reply->result = json_object();
	json_object_set_new(reply->result, TMEM_KEY_DOMAINS, array);
}

/* ---- Changes -------------------------------------------------------------------------------- */

/* The device of the client as it is now; false: the client is gone. */
static bool look(struct control *control, struct control_domain *domain)
{
	struct control_domain *all = calloc(STORE_MAX_CLIENTS, sizeof(*all));
	unsigned nr = all ? control->ops.domains(control->arg, all, STORE_MAX_CLIENTS) : 0;
	bool found = false;

	for (unsigned i = 0; i < nr && !found; i++) {
		found = !strcmp(all[i].client, domain->client);
		if (found)
			*domain = all[i];
	}
	free(all);
	return found;
}

/* Until the device is as it should be; false: it was not in time. */
static bool wait_for(struct control *control, struct control_domain *domain, int device,
		     uint64_t ns)
{
	static const struct timespec pause = {.tv_nsec = LOOK_NS};
	uint64_t end = clock_ns() + ns;

	while (look(control, domain)) {
		if ((int)domain->device == device)
			return true;
		if (clock_ns() >= end || atomic_load(&control->cancel))
			return false;
		nanosleep(&pause, NULL);
	}
	return false;
}

static uint64_t patience(json_t *request)
{
	if (json_object_get(request, TMEM_KEY_TIMEOUT_MS))
		return get_int(request, TMEM_KEY_TIMEOUT_MS) * CLOCK_MS;
	return TMEM_CONTROL_DOMAIN_MS * CLOCK_MS;
}

static void answer(const struct control_domain *domain, bool changed, struct reply *reply)
{
	reply->result = domain_object(domain);
	json_object_set_new(reply->result, TMEM_KEY_CHANGED, json_boolean(changed));
}

void run_domain_attach(struct control *control, json_t *request, struct reply *reply)
{
	struct control_domain domain;
	bool changed;

	if (!find(control, request, &domain, reply))
		return;
	if (!domain.domain) {
		reply_error(reply, TMEM_ERR_REFUSED,
			    "domain %s of client %s does not run; it gets its device as soon as it "
			    "is created",
			    domain.wanted, domain.client);
		return;
	}
	changed = domain.device != CONTROL_DEVICE_OFFERED;
	if (changed)
		control->ops.domain_wish(control->arg, domain.client, CONTROL_WISH_OFFER);
	if (changed && !wait_for(control, &domain, CONTROL_DEVICE_OFFERED, patience(request)))
		reply_error(reply, TMEM_ERR_REFUSED,
			    "the device of domain %u (client %s) is not in xenstore yet: see what "
			    "the service logs, and try again",
			    domain.domain, domain.client);
	else
		answer(&domain, changed, reply);
}

/* The guest has not given it back. It goes on with it, unless it gives it back just now. */
static bool keep(struct control *control, struct control_domain *domain)
{
	control->ops.domain_wish(control->arg, domain->client, CONTROL_WISH_KEEP);
	return wait_for(control, domain, CONTROL_DEVICE_OFFERED, KEEP_NS) ||
	       domain->device == CONTROL_DEVICE_LEAVING;
}

void run_domain_detach(struct control *control, json_t *request, struct reply *reply)
{
	struct control_domain domain;
	bool there;

	if (!find(control, request, &domain, reply))
		return;
	there = domain.device == CONTROL_DEVICE_OFFERED || domain.device == CONTROL_DEVICE_LEAVING;
	if (there)
		control->ops.domain_wish(control->arg, domain.client, CONTROL_WISH_TAKE);
	if (there && !wait_for(control, &domain, CONTROL_DEVICE_LEFT, patience(request)) &&
	    keep(control, &domain))
		reply_error(reply, TMEM_ERR_REFUSED,
			    "domain %u (client %s) does not give its device back, for it has pages "
			    "here: swapoff in the guest, then detach it again",
			    domain.domain, domain.client);
	else
		answer(&domain, there, reply);
}
