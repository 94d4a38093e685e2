// SPDX-License-Identifier: GPL-2.0-or-later
/* Built without libvirt: no machine can be looked at or changed, only XML be printed. */
#include "config.h"

#include "tools/libvirt/machine.h"

#include <stdio.h>

int machine_open(struct machine *m, const char *uri, const char *name, char why[DOMAIN_WHY_MAX])
{
	(void)uri;
	(void)name;
	*m = (struct machine){0};
	snprintf(why, DOMAIN_WHY_MAX,
		 "this tmemd was built without libvirt and cannot change its machines; --print "
		 "prints the XML, to be put in by virsh edit");
	return CTL_UNREACHED;
}

void machine_close(struct machine *m)
{
	(void)m;
}

static int none(char why[DOMAIN_WHY_MAX])
{
	snprintf(why, DOMAIN_WHY_MAX, "built without libvirt");
	return -1;
}

xmlDoc *machine_xml(const struct machine *m, bool live, char why[DOMAIN_WHY_MAX])
{
	(void)m;
	(void)live;
	none(why);
	return NULL;
}

int machine_define(const struct machine *m, xmlDoc *doc, char why[DOMAIN_WHY_MAX])
{
	(void)m;
	(void)doc;
	return none(why);
}

int machine_plug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX])
{
	(void)m;
	(void)device;
	return none(why);
}

int machine_unplug(const struct machine *m, xmlNode *device, char why[DOMAIN_WHY_MAX])
{
	(void)m;
	(void)device;
	return none(why);
}

int machine_record(const struct machine *m, const xmlNode *domain, char why[DOMAIN_WHY_MAX])
{
	(void)m;
	(void)domain;
	return none(why);
}

int64_t machine_user(const struct machine *m)
{
	(void)m;
	return -1;
}
