// SPDX-License-Identifier: GPL-2.0-or-later
/* Xenstore: the two directories of the device, and which domain is which. See docs/xen.md. */
#include "xen_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS "tmem"

void xen_paths(struct xen_paths *paths, unsigned self, unsigned domain)
{
	snprintf(paths->front, sizeof(paths->front), "/local/domain/%u/device/" CLASS "/0", domain);
	snprintf(paths->back, sizeof(paths->back), "/local/domain/%u/backend/" CLASS "/%u/0", self,
		 domain);
}

bool xen_store_read(struct xs_handle *xs, char text[XEN_TEXT_MAX], const char *fmt, ...)
{
	char path[128], *value;
	unsigned len = 0;
	va_list ap;
	bool fits;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	value = xs_read(xs, XBT_NULL, path, &len);
	fits = value && len < XEN_TEXT_MAX;
	if (fits)
		snprintf(text, XEN_TEXT_MAX, "%s", value);
	free(value);
	return fits;
}

bool xen_store_write(struct xs_handle *xs, xs_transaction_t t, const char *dir, const char *node,
		     const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, node);
	return xs_write(xs, t, path, text, (unsigned)strlen(text));
}

static bool write_number(struct xs_handle *xs, xs_transaction_t t, const char *dir,
			 const char *node, uint64_t value)
{
	char text[XEN_TEXT_MAX];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return xen_store_write(xs, t, dir, node, text);
}

enum xenbus_state xen_store_state(struct xs_handle *xs, const char *dir)
{
	char text[XEN_TEXT_MAX];
	uint64_t state;

	if (!xen_store_read(xs, text, "%s/state", dir) ||
	    xen_number(text, XenbusStateReconfigured, &state))
		return XenbusStateUnknown;
	return (enum xenbus_state)state;
}

/* ---- Directories ---------------------------------------------------------------------------- */

/* An empty directory of `owner` that `reader` may read; what is made in it later is the same. */
static bool make_directory(struct xs_handle *xs, xs_transaction_t t, const char *dir,
			   unsigned owner, unsigned reader)
{
	struct xs_permissions access[] = {{owner, XS_PERM_NONE}, {reader, XS_PERM_READ}};

	xs_rm(xs, t, dir);
	return xs_mkdir(xs, t, dir) && xs_set_permissions(xs, t, dir, access, 2);
}

static bool fill(struct xs_handle *xs, xs_transaction_t t, unsigned self, unsigned domain,
		 const struct xen_offer *offer)
{
	struct xen_paths p;

	xen_paths(&p, self, domain);
	return make_directory(xs, t, p.front, domain, self) &&
	       make_directory(xs, t, p.back, self, domain) &&
	       xen_store_write(xs, t, p.back, "frontend", p.front) &&
	       write_number(xs, t, p.back, "frontend-id", domain) &&
	       write_number(xs, t, p.back, "online", 1) &&
	       write_number(xs, t, p.back, "abi-min", TMEM_ABI_VERSION) &&
	       write_number(xs, t, p.back, "abi-max", TMEM_ABI_VERSION) &&
	       write_number(xs, t, p.back, "region-bytes", offer->bytes) &&
	       write_number(xs, t, p.back, "max-rings", offer->rings) &&
	       write_number(xs, t, p.back, "state", XenbusStateInitWait) &&
	       xen_store_write(xs, t, p.front, "backend", p.back) &&
	       write_number(xs, t, p.front, "backend-id", self) &&
	       write_number(xs, t, p.front, "state", XenbusStateInitialising);
}

bool xen_store_make(struct xs_handle *xs, unsigned self, unsigned domain,
		    const struct xen_offer *offer)
{
	xs_transaction_t t;
	bool filled;

	do {
		t = xs_transaction_start(xs);
		if (t == XBT_NULL)
			return false;
		filled = fill(xs, t, self, domain, offer);
		if (xs_transaction_end(xs, t, !filled))
			return filled;
	} while (errno == EAGAIN);
	return false;
}

void xen_store_remove(struct xs_handle *xs, const struct xen_paths *paths)
{
	char parent[sizeof(paths->back)], *slash;

	xs_rm(xs, XBT_NULL, paths->front);
	snprintf(parent, sizeof(parent), "%s", paths->back);
	slash = strrchr(parent, '/');
	*slash = 0; /* the guest's number has a directory of its own */
	xs_rm(xs, XBT_NULL, parent);
}

/* ---- Domains -------------------------------------------------------------------------------- */

bool xen_store_uuid(struct xs_handle *xs, unsigned domain, uint64_t uuid[2])
{
	char text[XEN_TEXT_MAX];

	return xen_store_read(xs, text, "/local/domain/%u/vm", domain) &&
	       !strncmp(text, "/vm/", 4) && !xen_uuid(text + 4, uuid);
}

bool xen_store_lives(struct xs_handle *xs, unsigned domain, const uint64_t uuid[2])
{
	unsigned nr = 0;
	uint64_t now[2];
	char **list;

	if (xs_is_domain_introduced(xs, domain) && xen_store_uuid(xs, domain, now))
		return !memcmp(now, uuid, sizeof(now));
	/* "No" also is the answer of a xenstore that is not there. */
	list = xs_directory(xs, XBT_NULL, "/local/domain", &nr);
	free(list);
	return list == NULL;
}

static bool is_wanted(struct xs_handle *xs, unsigned domain, const char *wanted, uint64_t uuid[2])
{
	char name[XEN_TEXT_MAX];
	uint64_t other[2];

	if (!xs_is_domain_introduced(xs, domain) || !xen_store_uuid(xs, domain, uuid))
		return false;
	if (!xen_uuid(wanted, other))
		return !memcmp(other, uuid, sizeof(other));
	return xen_store_read(xs, name, "/local/domain/%u/name", domain) && !strcmp(name, wanted);
}

bool xen_store_find(struct xs_handle *xs, unsigned self, const char *wanted, unsigned *domain,
		    uint64_t uuid[2])
{
	unsigned nr = 0;
	char **list = xs_directory(xs, XBT_NULL, "/local/domain", &nr);
	bool found = false;
	uint64_t id;

	for (unsigned i = 0; list && i < nr && !found; i++) {
		if (xen_number(list[i], UINT16_MAX, &id) || !id || id == self)
			continue;
		*domain = (unsigned)id;
		found = is_wanted(xs, *domain, wanted, uuid);
	}
	free(list);
	return found;
}
