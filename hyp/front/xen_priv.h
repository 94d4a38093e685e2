/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the Xen channel share: xen.c speaks through xenstore, xen_link.c maps. */
#ifndef TMEMD_FRONT_XEN_PRIV_H
#define TMEMD_FRONT_XEN_PRIV_H

#include "front_priv.h"
#include "xen_nodes.h"

#include <xen/io/xenbus.h>
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>

/* ---- xen_link.c: grants and event channels -------------------------------------------------- */

struct xen_host; /* the devices of the host's Xen, opened before privileges were dropped */

struct xen_host *xen_host_open(unsigned bells, char *err, size_t errlen);
void xen_host_close(struct xen_host *host); /* NULL is fine */

/* An event channel, on a descriptor of its own. */
struct xen_bell {
	xenevtchn_handle *handle; /* NULL: none */
	evtchn_port_t port;	  /* ours */
};

/* What ties us to one guest: its region, mapped, and its event channels, bound. */
struct xen_link {
	struct xen_host *host;
	uint8_t *base; /* NULL: not mapped */
	uint64_t bytes;
	void *notice; /* its first page once more: when that mapping goes, the guest hears of it */
	unsigned nr_bells;
	struct xen_bell bells[TMEM_MAX_RINGS];
};

/*
 * Binds and maps what a front end chose. 0 or a negated errno with a sentence in `why`, and then
 * nothing is bound or mapped. -EAGAIN: an event channel is not free (yet).
 */
int xen_link_open(struct xen_link *link, struct xen_host *host, unsigned domain,
		  const struct xen_choice *choice, char *why, size_t whylen);

/* Each twice-callable; channels first, for the guest hears of the end by the mapping. */
void xen_link_unbind(struct xen_link *link);
void xen_link_unmap(struct xen_link *link);

int xen_bell_fd(const struct xen_bell *bell);
bool xen_bell_ring(const struct xen_bell *bell); /* any thread */
void xen_bell_heard(const struct xen_bell *bell);

/* ---- xen_store.c: the device's two directories ---------------------------------------------- */

struct xen_paths {
	char front[64]; /* the guest's */
	char back[64];	/* ours */
};

void xen_paths(struct xen_paths *paths, unsigned self, unsigned domain);

/* The text of a node; false: there is none, or it is longer than any that means something. */
bool xen_store_read(struct xs_handle *xs, char text[XEN_TEXT_MAX], const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool xen_store_write(struct xs_handle *xs, xs_transaction_t t, const char *dir, const char *node,
		     const char *text);

/* The state that stands in a directory; XenbusStateUnknown when none does. */
enum xenbus_state xen_store_state(struct xs_handle *xs, const char *dir);

/* Makes both directories anew, at once; ours invites the guest. False: xenstore did not do it. */
bool xen_store_make(struct xs_handle *xs, unsigned self, unsigned domain,
		    const struct xen_offer *offer);
void xen_store_remove(struct xs_handle *xs, const struct xen_paths *paths);

/* Is the domain there, with this UUID? True when xenstore does not answer: then nobody knows. */
bool xen_store_lives(struct xs_handle *xs, unsigned domain, const uint64_t uuid[2]);

/* The UUID of a domain. False: it has none. */
bool xen_store_uuid(struct xs_handle *xs, unsigned domain, uint64_t uuid[2]);

/* Finds the domain whose name or UUID that is, but not `self`. False: there is none. */
bool xen_store_find(struct xs_handle *xs, unsigned self, const char *wanted, unsigned *domain,
		    uint64_t uuid[2]);

/* ---- A device: xen.c, and xen_domain.c for who asks about it ----------------------------------
 */

/* What an operator, or a reload, wants of a device. */
enum xen_wish {
	XEN_WISH_NONE,
	XEN_WISH_OFFER, /* the guest may have it, also after it was taken away */
	XEN_WISH_TAKE,	/* the guest is to give it back */
	XEN_WISH_KEEP,	/* a guest that was to give it back and has not, keeps it */
};

struct xen_device {
	struct xen_device *next;

	/* Under front.lock. */
	struct front_client *client; /* NULL: removed, the thread takes the device down */
	char wanted[XEN_TEXT_MAX];   /* name or UUID of the domain */
	struct xen_offer offer;
	bool offer_changed;
	enum xen_wish wish;   /* the last one that the thread has not seen */
	struct xen_link link; /* of the life */
	/* As the thread left it. */
	enum front_device shown;
	unsigned shown_domain;
	uint64_t shown_uuid[2];

	_Atomic bool look; /* anybody's wish: the thread is to look at it */

	/* The thread's own. */
	char name[STORE_NAME_MAX]; /* constant */
	unsigned domain;	   /* 0: not here */
	uint64_t uuid[2];
	struct xen_paths paths;
	bool made;		 /* the directories are ours */
	enum xenbus_state state; /* of ours */
	bool leaving;		 /* the operator, or the end of the client, asked for it */
	bool left;		 /* ... and it is done; until another domain comes */
	unsigned rebind;	 /* tries */
	uint64_t not_before;
	uint64_t leave_until;
};

/* ---- xen.c ----------------------------------------------------------------------------------- */

struct xen {
	struct front *front;
	struct xen_host *host;
	struct xs_handle *xs;
	unsigned self; /* number of our own domain */
	pthread_t thread;
	bool started;
	_Atomic bool stopping;
	int wake;		    /* eventfd */
	pthread_mutex_t lock;	    /* of `devices`; inside front.lock */
	struct xen_device *devices; /* others add at the head, the thread removes */
	/* The thread's own. */
	bool domains_changed;
	uint64_t next_scan;
};

/* The thread looks at what it was told to look at. */
void xen_wake(struct xen *xen);

#endif
