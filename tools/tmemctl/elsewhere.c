// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Commands about virtual machines of libvirt are another program's: tmemctl-libvirt, built from the
 * same sources. tmemctl itself stays free of libvirt and of libxml2, so that it can be copied into
 * guests and needs nothing on hosts without libvirt. Domains of xl are tmemd's own business.
 */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int elsewhere(const struct ctl *ctl)
{
	const char *dir = getenv("TMEMCTL_LIBEXEC");
	char path[4096];

	snprintf(path, sizeof(path), "%s/tmemctl-libvirt", dir ? dir : TMEM_LIBEXECDIR);
	execv(path, ctl->whole);
	fprintf(stderr, "tmemctl: %s: %s%s\n", path, strerror(errno),
		errno == ENOENT ? "; this tmemd was built without libxml2" : "");
	return CTL_UNREACHED;
}

static bool is_xl(const struct ctl *ctl)
{
	return !strcmp(ctl->argv[0], "xl:");
}

int run_attach(const struct ctl *ctl)
{
	if (is_xl(ctl))
		return xl_attach(ctl);
	if (ctl->timeout >= 0)
		return usage_error("--timeout is for xl:", ctl->argv[0]);
	return elsewhere(ctl);
}

int run_detach(const struct ctl *ctl)
{
	if (is_xl(ctl))
		return xl_detach(ctl);
	if (ctl->timeout >= 0)
		return usage_error("--timeout is for xl:", ctl->argv[0]);
	return elsewhere(ctl);
}
