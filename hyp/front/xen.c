// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The Xen channel: the device `tmem` of domains, see docs/xen.md.
 *
 * A thread of its own speaks with xenstore, for each word of that waits for another process, and
 * the door must not. It holds front.lock only to begin, take up and end lives, when everything is
 * read, bound and mapped; the lock is what the client of a device may be looked at under.
 *
 * What survives us is in xenstore and in the note: after a restart the guest still stands at
 * Connected, its grants and event channels are named in its directory, and nobody but us notices.
 */
#include "xen_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sigbus.h"

#define LOOK_NS (20 * CLOCK_MS)	   /* one device is looked at no more often */
#define REFUSED_NS CLOCK_S	   /* one that was refused */
#define SCAN_NS (5 * CLOCK_S)	   /* for domains that get their name later */
#define REBIND_NS (100 * CLOCK_MS) /* the process before us has not let go yet */
#define REBIND_TRIES 50
#define LEAVE_NS (5 * CLOCK_S) /* for the guest to close */

#define TOKEN_DOMAINS "domains"

static struct xen_device *first_device(struct xen *xen)
{
	struct xen_device *device;

	pthread_mutex_lock(&xen->lock);
	device = xen->devices;
	pthread_mutex_unlock(&xen->lock);
	return device;
}

/* ---- Lives; the thread, with front.lock for a moment ------------------------------------------
 */

/* Whose life is noted for the device's client. pid 0: nobody's. */
static struct owner owner_of(struct xen *xen, struct xen_device *device)
{
	struct owner owner = {0};

	pthread_mutex_lock(&xen->front->lock);
	if (device->client)
		owner = device->client->owner;
	pthread_mutex_unlock(&xen->front->lock);
	return owner;
}

static bool is_owner(const struct owner *owner, const struct xen_device *device)
{
	return owner->pid == (pid_t)device->domain &&
	       !memcmp(owner->key, device->uuid, sizeof(device->uuid));
}

static void end_life(struct xen *xen, struct xen_device *device, const char *why)
{
	pthread_mutex_lock(&xen->front->lock);
	if (device->client && device->client->owner.pid && !device->client->ending) {
		log_limited(LOG_INFO, "client %s: domain %d %s; its life is over", device->name,
			    (int)device->client->owner.pid, why);
		life_end(device->client);
	}
	pthread_mutex_unlock(&xen->front->lock);
}

/* The client gets what was bound and mapped. */
static void adopt(struct front_client *client, struct xen_device *device,
		  const struct xen_choice *choice)
{
	struct xen_link *link = &device->link;

	client->max_rings = choice->rings;
	client->region = (struct region){.fd = -1, .base = link->base, .bytes = link->bytes};
	for (unsigned v = 0; v < link->nr_bells; v++)
		client->rings[v].bell_in = client->rings[v].bell_out = xen_bell_fd(&link->bells[v]);
	client->polling = false;
}

/* The life of an earlier run goes on. 0 or a negated errno. */
static int take_up_life(struct front_client *client)
{
	int r = life_attach_again(client);

	if (!r)
		log_msg(LOG_INFO, "client %s: attached again to domain %d", client->name,
			(int)client->owner.pid);
	return r;
}

/* It could not be taken up: may be tried again. */
static int put_down_life(struct front_client *client)
{
	struct owner owner = client->owner;

	life_stop(client);
	life_suspend(client);
	client->owner = owner;
	return -EAGAIN;
}

static int begin_life(struct front_client *client, const struct xen_device *device)
{
	struct owner owner = {.pid = (pid_t)device->domain,
			      .key = {device->uuid[0], device->uuid[1]},
			      .pidfd = -1};

	life_begin(client, &owner);
	log_limited(LOG_INFO, "client %s: domain %u is connected: %" PRIu64 " bytes, %u rings",
		    client->name, device->domain, client->region.bytes, client->max_rings);
	return bells_watch(client);
}

/* Gives a link to the client, or drops it. 0 or a negated errno. */
static int start_life(struct xen *xen, struct xen_device *device, struct xen_link *link,
		      const struct xen_choice *choice)
{
	struct front_client *client;
	int r = -ENOENT;

	pthread_mutex_lock(&xen->front->lock);
	client = device->client;
	if (client) {
		bool again = client->owner.pid != 0;

		device->link = *link;
		adopt(client, device, choice);
		r = sigbus_watch(link->base, link->bytes, &client->region.lost);
		if (!r)
			r = again ? take_up_life(client) : begin_life(client, device);
		if (r && !again)
			life_end(client);
		if (r && again)
			r = put_down_life(client);
	} else {
		xen_link_unbind(link);
		xen_link_unmap(link);
	}
	pthread_mutex_unlock(&xen->front->lock);
	return r;
}

/* ---- One device ------------------------------------------------------------------------------ */

static void set_state(struct xen *xen, struct xen_device *device, enum xenbus_state state)
{
	char text[8];

	snprintf(text, sizeof(text), "%d", (int)state);
	xen_store_write(xen->xs, XBT_NULL, device->paths.back, "state", text);
	device->state = state;
}

/* It may try again, from the beginning. */
static void refuse(struct xen *xen, struct xen_device *device, const char *why)
{
	pthread_mutex_lock(&xen->front->lock);
	if (device->client)
		counter_add(&device->client->counters[CLIENT_CONNECTS_REFUSED], 1);
	pthread_mutex_unlock(&xen->front->lock);
	log_limited(LOG_WARN, "client %s: domain %u refused: %s", device->name, device->domain,
		    why);
	xen_store_write(xen->xs, XBT_NULL, device->paths.back, "error", why);
	set_state(xen, device, XenbusStateClosed);
	device->not_before = clock_ns() + REFUSED_NS;
}

static bool read_front(void *arg, const char *node, char text[XEN_TEXT_MAX])
{
	const struct xen_device *device = ((void **)arg)[1];
	struct xen *xen = ((void **)arg)[0];

	return xen_store_read(xen->xs, text, "%s/%s", device->paths.front, node);
}

/* Reads, binds and maps. 0 or a negated errno; the device then has the life. */
static int connect_front(struct xen *xen, struct xen_device *device, const struct xen_offer *offer,
			 char *why, size_t whylen)
{
	void *args[] = {xen, device};
	struct xen_choice choice;
	struct xen_link link;
	int r = xen_choice_read(&choice, offer, read_front, args, why, whylen);

	if (!r)
		r = xen_link_open(&link, xen->host, device->domain, &choice, why, whylen);
	if (r)
		return r;
	r = start_life(xen, device, &link, &choice);
	if (r)
		snprintf(why, whylen, "%s", strerror(-r));
	return r;
}

static struct xen_offer offer_of(struct xen *xen, struct xen_device *device)
{
	struct xen_offer offer;

	pthread_mutex_lock(&xen->front->lock);
	offer = device->offer;
	device->offer_changed = false;
	pthread_mutex_unlock(&xen->front->lock);
	return offer;
}

static void connect_new(struct xen *xen, struct xen_device *device)
{
	struct xen_offer offer = offer_of(xen, device);
	char why[128];

	if (connect_front(xen, device, &offer, why, sizeof(why)))
		refuse(xen, device, why);
	else
		set_state(xen, device, XenbusStateConnected);
}

static void watch_states(struct xen *xen, struct xen_device *device, bool on)
{
	const char *dirs[] = {device->paths.front, device->paths.back};
	char path[80];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/state", dirs[i]);
		if (on)
			xs_watch(xen->xs, path, device->name);
		else
			xs_unwatch(xen->xs, path, device->name);
	}
}

static void make_directories(struct xen *xen, struct xen_device *device)
{
	struct xen_offer offer = offer_of(xen, device);

	device->made = xen_store_make(xen->xs, xen->self, device->domain, &offer);
	device->state = XenbusStateInitWait;
	device->look = true;
	if (device->made)
		return;
	log_limited(LOG_WARN, "client %s: xenstore did not take the device of domain %u: %s",
		    device->name, device->domain, strerror(errno));
	device->not_before = clock_ns() + REFUSED_NS;
}

/*
 * A life of this domain is noted, and both sides stand at Connected: goes on in place. False: it
 * cannot go on, or (device->rebind) not yet.
 */
static bool resume(struct xen *xen, struct xen_device *device)
{
	struct front_client *client;
	struct xen_offer offer;
	char why[128];
	int r = -ENOENT;

	pthread_mutex_lock(&xen->front->lock);
	client = device->client;
	if (client)
		offer = (struct xen_offer){client->region.bytes, client->max_rings};
	pthread_mutex_unlock(&xen->front->lock);
	if (client)
		r = connect_front(xen, device, &offer, why, sizeof(why));
	if (!r) {
		device->state = XenbusStateConnected;
		device->made = true;
		return true;
	}
	if (r == -EAGAIN && device->rebind++ < REBIND_TRIES) {
		device->not_before = clock_ns() + REBIND_NS;
		device->look = true;
		return false;
	}
	device->rebind = 0;
	end_life(xen, device, why);
	return false;
}

/*
 * The domain is here, and so far we have not looked at its directories. Ours is at Closing when an
 * operator wanted the device back and the guest has not given it: it goes on, and is asked again.
 */
static void take_over(struct xen *xen, struct xen_device *device)
{
	struct owner owner = owner_of(xen, device);
	enum xenbus_state front = xen_store_state(xen->xs, device->paths.front);
	enum xenbus_state back = xen_store_state(xen->xs, device->paths.back);

	if (owner.pid && is_owner(&owner, device) &&
	    (back == XenbusStateConnected || back == XenbusStateClosing) &&
	    (front == XenbusStateConnected || front == XenbusStateInitialised)) {
		if (resume(xen, device)) {
			device->look = true;
			return;
		}
		if (device->rebind)
			return;
	}
	end_life(xen, device, "has another device by now");
	make_directories(xen, device);
}

/* Both directories go; then the guest's bus drops the device. */
static void remove_directories(struct xen *xen, struct xen_device *device)
{
	set_state(xen, device, XenbusStateClosed);
	xen_store_remove(xen->xs, &device->paths);
	device->made = false;
	device->leaving = false;
	device->left = true;
}

/* `again`: also tells a guest that has been told and has refused. */
static void leave(struct xen *xen, struct xen_device *device, bool again)
{
	if (device->leaving && !again)
		return;
	device->leaving = true;
	device->leave_until = clock_ns() + LEAVE_NS;
	xen_store_write(xen->xs, XBT_NULL, device->paths.back, "online", "0");
	set_state(xen, device, XenbusStateClosing);
}

/* A guest that did not give its device back keeps it. */
static void stay(struct xen *xen, struct xen_device *device)
{
	device->leaving = false;
	xen_store_write(xen->xs, XBT_NULL, device->paths.back, "online", "1");
	set_state(xen, device, XenbusStateConnected);
}

/* What the guest says to our being on the way out. An operator's wish waits for it. */
static void go_on_leaving(struct xen *xen, struct xen_device *device, enum xenbus_state front,
			  bool removed)
{
	bool closed = front == XenbusStateClosed || front == XenbusStateUnknown ||
		      front == XenbusStateInitialising;

	/* Else the watch tells. */
	device->look = removed;
	if (closed || (removed && clock_ns() >= device->leave_until)) {
		end_life(xen, device, "gave its device back");
		remove_directories(xen, device);
	}
}

static void follow_front(struct xen *xen, struct xen_device *device, enum xenbus_state front)
{
	switch (front) {
	case XenbusStateInitialising:
		if (device->state == XenbusStateInitWait)
			break;
		end_life(xen, device, "began anew");
		set_state(xen, device, XenbusStateInitWait);
		break;
	case XenbusStateInitialised:
		if (device->state == XenbusStateInitWait)
			connect_new(xen, device);
		break;
	case XenbusStateConnected:
		if (device->state == XenbusStateInitWait)
			refuse(xen, device, "it is at Connected, and nobody connected it");
		break;
	case XenbusStateClosing:
		end_life(xen, device, "closes its device");
		if (device->state != XenbusStateClosing)
			set_state(xen, device, XenbusStateClosing);
		break;
	default:
		end_life(xen, device, "closed its device");
		if (device->state != XenbusStateClosed)
			set_state(xen, device, XenbusStateClosed);
	}
}

/* True when the device is not needed any more. */
static bool step(struct xen *xen, struct xen_device *device)
{
	enum xenbus_state front;
	enum xen_wish wish;
	bool removed, changed;

	device->look = false;
	device->not_before = clock_ns() + LOOK_NS;
	pthread_mutex_lock(&xen->front->lock);
	removed = !device->client;
	changed = device->offer_changed && !removed && !device->client->owner.pid;
	wish = device->wish;
	device->wish = XEN_WISH_NONE;
	if (wish == XEN_WISH_OFFER)
		device->left = false;
	pthread_mutex_unlock(&xen->front->lock);
	if (removed && !device->made)
		return true;
	if (!device->domain || device->left)
		return false;
	if (!device->made) {
		take_over(xen, device);
		return false;
	}
	if (changed)
		make_directories(xen, device);
	front = xen_store_state(xen->xs, device->paths.front);
	/* The third is the operator's doing: nobody else can write there. */
	if (removed || wish == XEN_WISH_TAKE ||
	    (device->state != XenbusStateClosing &&
	     xen_store_state(xen->xs, device->paths.back) == XenbusStateClosing))
		leave(xen, device, wish == XEN_WISH_TAKE);
	else if (wish != XEN_WISH_NONE && device->leaving && front == XenbusStateConnected)
		stay(xen, device);
	if (device->leaving)
		go_on_leaving(xen, device, front, removed);
	else
		follow_front(xen, device, front);
	return removed && !device->made;
}

/* For who asks, see xen_domain.c. */
static void show(struct xen *xen, struct xen_device *device)
{
	pthread_mutex_lock(&xen->front->lock);
	device->shown = !device->domain	  ? FRONT_DEVICE_ABSENT
			: device->left	  ? FRONT_DEVICE_LEFT
			: device->leaving ? FRONT_DEVICE_LEAVING
			: device->made	  ? FRONT_DEVICE_OFFERED
					  : FRONT_DEVICE_ABSENT;
	device->shown_domain = device->domain;
	memcpy(device->shown_uuid, device->uuid, sizeof(device->shown_uuid));
	pthread_mutex_unlock(&xen->front->lock);
}

/* ---- Domains ----------------------------------------------------------------------------------
 */

static void domain_gone(struct xen *xen, struct xen_device *device)
{
	end_life(xen, device, "is gone");
	watch_states(xen, device, false);
	if (device->made)
		xen_store_remove(xen->xs, &device->paths);
	device->made = device->leaving = device->left = false;
	device->domain = 0;
	device->rebind = 0;
	show(xen, device);
}

/* The domain of the noted life when there is one, else the one with the wanted name. */
static bool find_domain(struct xen *xen, struct xen_device *device)
{
	struct owner owner = owner_of(xen, device);
	char wanted[XEN_TEXT_MAX];

	if (owner.pid) {
		device->domain = (unsigned)owner.pid;
		memcpy(device->uuid, owner.key, sizeof(device->uuid));
		xen_paths(&device->paths, xen->self, device->domain);
		if (xen_store_lives(xen->xs, device->domain, device->uuid))
			return true;
		device->made = true; /* by an earlier run */
		domain_gone(xen, device);
	}
	pthread_mutex_lock(&xen->front->lock);
	snprintf(wanted, sizeof(wanted), "%s", device->wanted);
	pthread_mutex_unlock(&xen->front->lock);
	if (xen_store_find(xen->xs, xen->self, wanted, &device->domain, device->uuid))
		return true;
	device->domain = 0;
	return false;
}

/* A client that was removed may still be taking its device down, and this one have its name. */
static bool is_taken(struct xen *xen, const struct xen_device *device)
{
	for (struct xen_device *d = first_device(xen); d; d = d->next)
		if (d != device && d->domain == device->domain)
			return true;
	return false;
}

/* Whose number is used again must be gone before the next one is found by it. */
static void look_for_domains(struct xen *xen)
{
	struct xen_device *d;

	for (d = first_device(xen); d; d = d->next)
		if (d->domain && !xen_store_lives(xen->xs, d->domain, d->uuid))
			domain_gone(xen, d);
	for (d = first_device(xen); d; d = d->next) {
		if (d->domain || !find_domain(xen, d))
			continue;
		if (is_taken(xen, d)) {
			d->domain = 0;
			continue;
		}
		xen_paths(&d->paths, xen->self, d->domain);
		watch_states(xen, d, true);
		d->look = true;
		show(xen, d);
	}
}

/* ---- The thread -------------------------------------------------------------------------------
 */

static void drop_device(struct xen *xen, struct xen_device *device)
{
	struct xen_device **at;

	if (device->domain)
		watch_states(xen, device, false);
	pthread_mutex_lock(&xen->lock);
	for (at = &xen->devices; *at != device; at = &(*at)->next)
		;
	*at = device->next;
	pthread_mutex_unlock(&xen->lock);
	free(device);
	xen->domains_changed = true;
}

/* A guest can send as many events as it likes; all that they do is to have its device looked at. */
static void hear_watches(struct xen *xen)
{
	char **event;

	while ((event = xs_check_watch(xen->xs))) {
		const char *token = event[XS_WATCH_TOKEN];

		if (!strcmp(token, TOKEN_DOMAINS))
			xen->domains_changed = true;
		for (struct xen_device *d = first_device(xen); d; d = d->next)
			if (!strcmp(token, d->name))
				d->look = true;
		free(event);
	}
}

static void look_at_devices(struct xen *xen)
{
	uint64_t now = clock_ns();
	struct xen_device *next;

	if (xen->domains_changed || now >= xen->next_scan) {
		xen->domains_changed = false;
		xen->next_scan = now + SCAN_NS;
		look_for_domains(xen);
	}
	for (struct xen_device *d = first_device(xen); d; d = next) {
		next = d->next;
		if (!d->look || clock_ns() < d->not_before)
			continue;
		if (step(xen, d))
			drop_device(xen, d);
		else
			show(xen, d);
	}
}

static int until_next_ms(struct xen *xen)
{
	uint64_t now = clock_ns(), next = xen->domains_changed ? now : xen->next_scan;

	for (struct xen_device *d = first_device(xen); d; d = d->next)
		if (d->look && d->not_before < next)
			next = d->not_before;
	return next <= now ? 0 : (int)((next - now + CLOCK_MS - 1) / CLOCK_MS);
}

static void *serve(void *arg)
{
	struct xen *xen = arg;
	struct pollfd fds[] = {{.fd = xs_fileno(xen->xs), .events = POLLIN},
			       {.fd = xen->wake, .events = POLLIN}};
	uint64_t count;

	prctl(PR_SET_NAME, "tmemd-xen");
	if (!xs_watch(xen->xs, "@introduceDomain", TOKEN_DOMAINS) ||
	    !xs_watch(xen->xs, "@releaseDomain", TOKEN_DOMAINS))
		log_msg(LOG_ERROR, "xenstore does not tell of domains: %s", strerror(errno));
	while (!atomic_load(&xen->stopping)) {
		poll(fds, 2, until_next_ms(xen));
		(void)!read(xen->wake, &count, sizeof(count));
		hear_watches(xen);
		look_at_devices(xen);
	}
	return NULL;
}

void xen_wake(struct xen *xen)
{
	static const uint64_t one = 1;

	(void)!write(xen->wake, &one, sizeof(one));
}

/* The caller has blocked the signals that are not for threads. */
int xen_start(struct front *front)
{
	struct xen *xen = front->xen;
	int r;

	if (!xen)
		return 0;
	xen->front = front;
	r = pthread_create(&xen->thread, NULL, serve, xen);
	xen->started = !r;
	return -r;
}

void xen_stop(struct front *front)
{
	struct xen *xen = front->xen;

	if (!xen || !xen->started)
		return;
	atomic_store(&xen->stopping, true);
	xen_wake(xen);
	pthread_join(xen->thread, NULL);
	xen->started = false;
}

bool front_xen_built(void)
{
	return true;
}

struct xen *front_xen_open(unsigned rings, char *err, size_t errlen)
{
	struct xen *xen = calloc(1, sizeof(*xen));
	char text[XEN_TEXT_MAX];
	uint64_t self = 0;

	if (!xen) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		return NULL;
	}
	pthread_mutex_init(&xen->lock, NULL);
	xen->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	xen->xs = xs_open(0);
	if (xen->wake < 0 || !xen->xs) {
		snprintf(err, errlen, "xenstore cannot be reached: %s", strerror(errno));
		front_xen_close(xen);
		return NULL;
	}
	/* A domain that does not know its number is the first one. */
	if (xen_store_read(xen->xs, text, "domid") && !xen_number(text, UINT16_MAX, &self))
		xen->self = (unsigned)self;
	xen->host = xen_host_open(rings, err, errlen);
	if (xen->host)
		return xen;
	front_xen_close(xen);
	return NULL;
}

void front_xen_close(struct xen *xen)
{
	struct xen_device *device;

	if (!xen)
		return;
	while ((device = xen->devices)) {
		xen->devices = device->next;
		free(device);
	}
	if (xen->xs)
		xs_close(xen->xs);
	xen_host_close(xen->host);
	if (xen->wake >= 0)
		close(xen->wake);
	pthread_mutex_destroy(&xen->lock);
	free(xen);
}

/* ---- The channel ------------------------------------------------------------------------------
 */

static int open_device(struct front_client *client, const struct front_client_config *config,
		       char *err, size_t errlen)
{
	struct xen *xen = client->front->xen;
	struct xen_device *device = client->device;
	struct xen_offer offer = {config->region_bytes, config->max_rings};

	if (!xen) {
		snprintf(err, errlen,
			 "client %s: front = xen: there is no Xen that can be served, or no client "
			 "was to be served by it when the service started; restart it",
			 client->name);
		return -ENODEV;
	}
	if (offer.bytes > XEN_REGION_MAX) {
		snprintf(err, errlen, "client %s: the region of a domain has at most %llu bytes",
			 client->name, XEN_REGION_MAX);
		return -EINVAL;
	}
	if (!device)
		device = calloc(1, sizeof(*device));
	if (!device) {
		snprintf(err, errlen, "client %s: %s", client->name, strerror(ENOMEM));
		return -ENOMEM;
	}
	snprintf(device->wanted, sizeof(device->wanted), "%s", config->domain);
	device->offer_changed =
		device->offer.bytes != offer.bytes || device->offer.rings != offer.rings;
	device->offer = offer;
	device->wish = XEN_WISH_OFFER;
	if (!client->device) {
		snprintf(device->name, sizeof(device->name), "%s", client->name);
		device->client = client;
		client->device = device;
		pthread_mutex_lock(&xen->lock);
		device->next = xen->devices;
		xen->devices = device;
		pthread_mutex_unlock(&xen->lock);
	}
	device->look = true;
	xen_wake(xen);
	return 0;
}

/* While the service runs the thread takes the device down; when it ends the device stays. */
static void close_device(struct front_client *client)
{
	struct xen_device *device = client->device;

	if (!device)
		return;
	device->client = NULL;
	device->look = true;
	client->device = NULL;
	xen_wake(client->front->xen);
}

/* The thread does it, when it has found the domain. */
static int attach(struct front_client *client)
{
	if (client->front->xen)
		return 0;
	log_msg(LOG_WARN, "client %s: what domain %d has stored is kept, but Xen cannot be served",
		client->name, (int)client->owner.pid);
	return -ENODEV;
}

/* The device is made anew, of which the guest hears. */
static void bury(struct front_client *client)
{
	(void)client;
}

static void hang_up(struct front_client *client, bool forever)
{
	(void)forever;
	if (!client->device)
		return;
	bells_unwatch(client);
	xen_link_unbind(&client->device->link);
	for (unsigned v = 0; v < TMEM_MAX_RINGS; v++)
		client->rings[v].bell_in = client->rings[v].bell_out = -1;
}

static void unmap(struct front_client *client, bool forever)
{
	(void)forever;
	if (client->region.base)
		sigbus_unwatch(client->region.base);
	client->region.base = NULL;
	if (client->device)
		xen_link_unmap(&client->device->link);
}

static bool ring_bell(struct ring *ring)
{
	return xen_bell_ring(&ring->client->device->link.bells[ring->index]);
}

static void heard(struct ring *ring)
{
	xen_bell_heard(&ring->client->device->link.bells[ring->index]);
}

const struct channel_ops xen_channel = {
	.note = 2,
	.open = open_device,
	.close = close_device,
	.attach = attach,
	.bury = bury,
	.hang_up = hang_up,
	.unmap = unmap,
	.ring = ring_bell,
	.heard = heard,
};
