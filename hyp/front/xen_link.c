// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Grants and event channels.
 *
 * Each event channel has a descriptor of its own, so that a worker waits for it like for any other
 * doorbell, and knows without looking whose it is. The devices can be opened by root alone, and
 * guests come when we are not root any more: descriptors are opened at the start, and go back to
 * the pool when their channel is unbound.
 */
#include "xen_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xentoollog.h>

#include "base/log.h"
#include "base/sigbus.h"

#define SPARE_BELLS TMEM_MAX_RINGS /* for clients that are added later */

struct xen_host {
	xentoollog_logger logger; /* first: the libraries hand it to quiet() */
	xengnttab_handle *gnttab;
	pthread_mutex_t lock; /* of the pool */
	unsigned nr_idle;
	unsigned nr; /* room of idle */
	xenevtchn_handle **idle;
};

/* What the libraries have to say is often a guest's doing. We say it ourselves, in fewer words. */
static void quiet(struct xentoollog_logger *logger, xentoollog_level level, int errnoval,
		  const char *context, const char *format, va_list ap)
{
	(void)logger;
	(void)level;
	(void)errnoval;
	(void)context;
	(void)format;
	(void)ap;
}

/* ---- Opening -------------------------------------------------------------------------------- */

static xenevtchn_handle *open_bell(struct xen_host *host)
{
	xenevtchn_handle *handle = xenevtchn_open(&host->logger, 0);

	if (!handle)
		return NULL;
	/* Nobody else has it, so the flag stays. A look for nothing must not wait. */
	if (!fcntl(xenevtchn_fd(handle), F_SETFL, O_RDWR | O_NONBLOCK))
		return handle;
	xenevtchn_close(handle);
	return NULL;
}

struct xen_host *xen_host_open(unsigned bells, char *err, size_t errlen)
{
	struct xen_host *host = calloc(1, sizeof(*host));
	const char *what = "memory";

	if (!host)
		goto failed;
	pthread_mutex_init(&host->lock, NULL);
	host->logger.vmessage = quiet;
	host->nr = bells + SPARE_BELLS;
	host->idle = calloc(host->nr, sizeof(*host->idle));
	if (!host->idle)
		goto failed;
	what = "/dev/xen/gntdev";
	host->gnttab = xengnttab_open(&host->logger, 0);
	if (!host->gnttab)
		goto failed;
	what = "/dev/xen/evtchn";
	while (host->nr_idle < host->nr) {
		host->idle[host->nr_idle] = open_bell(host);
		if (!host->idle[host->nr_idle])
			goto failed;
		host->nr_idle++;
	}
	return host;
failed:
	snprintf(err, errlen, "%s: %s", what, strerror(errno));
	xen_host_close(host);
	return NULL;
}

void xen_host_close(struct xen_host *host)
{
	if (!host)
		return;
	for (unsigned i = 0; i < host->nr_idle; i++)
		xenevtchn_close(host->idle[i]);
	if (host->gnttab)
		xengnttab_close(host->gnttab);
	pthread_mutex_destroy(&host->lock);
	free(host->idle);
	free(host);
}

/* ---- Event channels ------------------------------------------------------------------------- */

static xenevtchn_handle *take_bell(struct xen_host *host)
{
	xenevtchn_handle *handle = NULL;

	pthread_mutex_lock(&host->lock);
	if (host->nr_idle)
		handle = host->idle[--host->nr_idle];
	pthread_mutex_unlock(&host->lock);
	return handle ? handle : open_bell(host);
}

static void give_bell(struct xen_host *host, xenevtchn_handle *handle)
{
	pthread_mutex_lock(&host->lock);
	if (host->nr_idle < host->nr) {
		host->idle[host->nr_idle++] = handle;
		handle = NULL;
	}
	pthread_mutex_unlock(&host->lock);
	if (handle)
		xenevtchn_close(handle);
}

static int bind_bell(struct xen_link *link, unsigned domain, uint32_t port)
{
	struct xen_bell *bell = &link->bells[link->nr_bells];
	xenevtchn_port_or_error_t ours;
	int r;

	bell->handle = take_bell(link->host);
	if (!bell->handle)
		return -errno;
	ours = xenevtchn_bind_interdomain(bell->handle, domain, port);
	if (ours < 0) {
		r = -errno;
		give_bell(link->host, bell->handle);
		bell->handle = NULL;
		return r;
	}
	bell->port = (evtchn_port_t)ours;
	link->nr_bells++;
	return 0;
}

void xen_link_unbind(struct xen_link *link)
{
	for (unsigned i = 0; i < link->nr_bells; i++) {
		struct xen_bell *bell = &link->bells[i];

		xenevtchn_unbind(bell->handle, bell->port);
		/* What rang until now is not for the next one. */
		while (xenevtchn_pending(bell->handle) >= 0)
			;
		give_bell(link->host, bell->handle);
		bell->handle = NULL;
	}
	link->nr_bells = 0;
}

int xen_bell_fd(const struct xen_bell *bell)
{
	return xenevtchn_fd(bell->handle);
}

bool xen_bell_ring(const struct xen_bell *bell)
{
	return !xenevtchn_notify(bell->handle, bell->port);
}

/* A channel that rang is masked until we say that we heard it. */
void xen_bell_heard(const struct xen_bell *bell)
{
	xenevtchn_port_or_error_t port = xenevtchn_pending(bell->handle);

	if (port >= 0)
		xenevtchn_unmask(bell->handle, (evtchn_port_t)port);
}

/* ---- Grants --------------------------------------------------------------------------------- */

static int read_directories(struct xen_host *host, unsigned domain, const struct xen_choice *choice,
			    uint32_t *refs, char *why, size_t whylen)
{
	unsigned left = xen_pages(choice->bytes), nr;

	for (unsigned i = 0; left; i++, left -= nr, refs += nr) {
		void *page = xengnttab_map_grant_ref(host->gnttab, domain, choice->directory[i],
						     PROT_READ);

		if (!page) {
			snprintf(why, whylen, "directory-ref-%u: grant %u cannot be mapped: %s", i,
				 choice->directory[i], strerror(errno));
			return -EINVAL;
		}
		nr = left < XEN_DIRECTORY_REFS ? left : (unsigned)XEN_DIRECTORY_REFS;
		xen_directory_copy(refs, nr, page);
		xengnttab_unmap(host->gnttab, page, 1);
	}
	return 0;
}

static int map_region(struct xen_link *link, unsigned domain, uint32_t *refs, char *why,
		      size_t whylen)
{
	xengnttab_handle *gnttab = link->host->gnttab;
	unsigned pages = xen_pages(link->bytes);

	link->base = xengnttab_map_domain_grant_refs(gnttab, pages, domain, refs,
						     PROT_READ | PROT_WRITE);
	if (link->base)
		link->notice = xengnttab_map_grant_ref_notify(gnttab, domain, refs[0],
							      PROT_READ | PROT_WRITE,
							      offsetof(struct tmem_region, mapped),
							      link->bells[0].port);
	if (link->base && link->notice)
		return 0;
	snprintf(why, whylen, "%u grants of the region cannot be mapped: %s", pages,
		 strerror(errno));
	return -EINVAL;
}

void xen_link_unmap(struct xen_link *link)
{
	if (link->base)
		xengnttab_unmap(link->host->gnttab, link->base, xen_pages(link->bytes));
	link->base = NULL;
	if (link->notice)
		xengnttab_unmap(link->host->gnttab, link->notice, 1);
	link->notice = NULL;
}

int xen_link_open(struct xen_link *link, struct xen_host *host, unsigned domain,
		  const struct xen_choice *choice, char *why, size_t whylen)
{
	uint32_t *refs = malloc(xen_pages(choice->bytes) * sizeof(*refs));
	int r = refs ? 0 : -ENOMEM;

	memset(link, 0, sizeof(*link));
	link->host = host;
	link->bytes = choice->bytes;
	for (unsigned i = 0; i < choice->rings && !r; i++) {
		r = bind_bell(link, domain, choice->port[i]);
		if (!r)
			continue;
		snprintf(why, whylen, "event-channel-%u: channel %u cannot be bound: %s", i,
			 choice->port[i], strerror(-r));
		r = -EAGAIN;
	}
	if (!r)
		r = read_directories(host, domain, choice, refs, why, whylen);
	if (!r)
		r = map_region(link, domain, refs, why, whylen);
	if (r == -ENOMEM)
		snprintf(why, whylen, "%s", strerror(ENOMEM));
	if (r) {
		xen_link_unbind(link);
		xen_link_unmap(link);
	}
	free(refs);
	return r;
}
