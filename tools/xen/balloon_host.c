// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-balloon and Xen: how much is free, and the target of our own domain.
 *
 * The target is written as xl writes it, to memory/target in xenstore, so that xl knows of it; the
 * kernel hears of that by a watch. Where it does not hear (nobody may write there), sysfs is
 * written.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xenctrl.h>
#include <xenstore.h>

#include "tools/xen/balloon.h"

#define SYSFS "/sys/devices/system/xen_memory/xen_memory0/"
#define XEN_PAGE 4096
/* How long the kernel may take to hear of a target. */
#define HEARS_TRIES 20
#define HEARS_NS 50000000

struct balloon_host {
	xc_interface *xc;
	struct xs_handle *xs;
	uint32_t domain;
};

/* The first number behind `key` in a file; key "": the first in the file. In KiB. */
static int read_kib(const char *path, const char *key, uint64_t *bytes, char why[BALLOON_WHY_MAX])
{
	char text[4096], *at = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int error = errno;

	if (fd >= 0)
		close(fd);
	if (len >= 0) {
		text[len] = 0;
		at = strstr(text, key);
		error = EPROTO;
	}
	if (!at) {
		snprintf(why, BALLOON_WHY_MAX, "%s: %s", path, strerror(error));
		return -error;
	}
	*bytes = strtoull(at + strlen(key), NULL, 10) * 1024;
	return 0;
}

static int fail(int error, const char *what, char why[BALLOON_WHY_MAX])
{
	snprintf(why, BALLOON_WHY_MAX, "%s: %s", what, strerror(error));
	return -error;
}

/* Our maximum in Xen, which xl lowers with a target: without this we could not grow again. */
static int raise_maximum(struct balloon_host *host, uint64_t bytes, char why[BALLOON_WHY_MAX])
{
	xc_domaininfo_t info;
	int n = xc_domain_getinfolist(host->xc, host->domain, 1, &info);

	if (n != 1 || info.domain != host->domain)
		return fail(n < 0 ? errno : ESRCH, "Xen tells nothing of this domain", why);
	if (info.max_pages * XEN_PAGE >= bytes)
		return 0;
	return xc_domain_setmaxmem(host->xc, host->domain, bytes / 1024)
		       ? fail(errno, "Xen does not raise the maximum of this domain", why)
		       : 0;
}

struct balloon_host *balloon_host_open(const struct balloon_config *config,
				       char why[BALLOON_WHY_MAX])
{
	struct balloon_host *host = calloc(1, sizeof(*host));
	struct balloon_state state;
	unsigned len;
	char *text;
	int r;

	if (!host) {
		fail(ENOMEM, "tmem-balloon", why);
		return NULL;
	}
	host->xc = xc_interface_open(NULL, NULL, 0);
	host->xs = host->xc ? xs_open(0) : NULL;
	if (!host->xs) {
		fail(errno ? errno : ENODEV,
		     host->xc ? "xenstore cannot be reached"
			      : "Xen cannot be asked (this must be dom0, with xen-privcmd loaded, "
				"and root)",
		     why);
		balloon_host_close(host);
		return NULL;
	}
	text = xs_read(host->xs, XBT_NULL, "domid", &len);
	host->domain = text ? (uint32_t)strtoul(text, NULL, 10) : 0;
	free(text);
	r = balloon_host_look(host, &state, why);
	if (!r)
		r = raise_maximum(host, config->maximum, why);
	if (!r)
		return host;
	balloon_host_close(host);
	return NULL;
}

void balloon_host_close(struct balloon_host *host)
{
	if (!host)
		return;
	if (host->xs)
		xs_close(host->xs);
	if (host->xc)
		xc_interface_close(host->xc);
	free(host);
}

int balloon_host_look(struct balloon_host *host, struct balloon_state *state,
		      char why[BALLOON_WHY_MAX])
{
	xc_physinfo_t info = {0};
	int r;

	if (xc_physinfo(host->xc, &info))
		return fail(errno, "Xen does not say what is free; only dom0 may ask", why);
	state->xen_total = info.total_pages * XEN_PAGE;
	state->xen_free = info.free_pages > info.outstanding_pages
				  ? (info.free_pages - info.outstanding_pages) * XEN_PAGE
				  : 0;
	r = read_kib(SYSFS "target_kb", "", &state->target, why);
	if (!r)
		r = read_kib(SYSFS "info/current_kb", "", &state->current, why);
	if (!r)
		r = read_kib("/proc/meminfo", "MemAvailable:", &state->available, why);
	return r;
}

static bool heard(uint64_t kib)
{
	char why[BALLOON_WHY_MAX];
	uint64_t target;

	return !read_kib(SYSFS "target_kb", "", &target, why) && target / 1024 == kib;
}

static int write_sysfs(const char *text, char why[BALLOON_WHY_MAX])
{
	int fd = open(SYSFS "target_kb", O_WRONLY | O_CLOEXEC), error = 0;

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		error = errno;
	if (fd >= 0)
		close(fd);
	return error ? fail(error, SYSFS "target_kb", why) : 0;
}

int balloon_host_target(struct balloon_host *host, uint64_t bytes, char why[BALLOON_WHY_MAX])
{
	static const struct timespec pause = {.tv_nsec = HEARS_NS};
	/* The kernel counts in pages. */
	uint64_t kib = bytes / XEN_PAGE * (XEN_PAGE / 1024);
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, kib);
	if (xs_write(host->xs, XBT_NULL, "memory/target", text, (unsigned)strlen(text))) {
		for (int i = 0; i < HEARS_TRIES; i++) {
			if (heard(kib))
				return 0;
			nanosleep(&pause, NULL);
		}
	}
	return write_sysfs(text, why);
}
