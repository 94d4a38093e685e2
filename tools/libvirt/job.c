// SPDX-License-Identifier: GPL-2.0-or-later
/* A machine of libvirt that gets or loses a device of ours. */
#include "config.h"

#include "tools/libvirt/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/control.h"

int job_fail(const struct job *job, int status, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr,
		"tmemctl: %s: ", job->machine.name[0] ? job->machine.name : job->ctl->argv[1]);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return status;
}

xmlNode *job_domain(const struct job *job, int side)
{
	return job->docs[side] ? xmlDocGetRootElement(job->docs[side]) : NULL;
}

enum domain_kind job_kind(const struct ctl *ctl)
{
	if (ctl->nbd)
		return DOMAIN_NBD;
	return ctl->ring ? DOMAIN_RING : DOMAIN_DISK;
}

/* Which sides: as virsh, unless it is said. What is printed is for the configuration. */
static int choose(struct job *job, bool sides[NR_SIDES])
{
	const struct ctl *ctl = job->ctl;
	const struct machine *m = &job->machine;

	sides[SIDE_LIVE] = ctl->live;
	sides[SIDE_CONFIG] = ctl->config;
	if (ctl->print && !ctl->live)
		sides[m->persistent ? SIDE_CONFIG : SIDE_LIVE] = true;
	else if (!ctl->live && !ctl->config)
		sides[m->active ? SIDE_LIVE : SIDE_CONFIG] = true;
	if (sides[SIDE_LIVE] && !m->active)
		return job_fail(job, CTL_REFUSED, "it is not running: leave out --live");
	if (sides[SIDE_CONFIG] && !m->persistent)
		return job_fail(job, CTL_REFUSED,
				"it is transient and has no configuration: leave out --config");
	return CTL_OK;
}

int job_begin(struct job *job, const struct ctl *ctl)
{
	char why[DOMAIN_WHY_MAX];
	bool sides[NR_SIDES];
	int r;

	*job = (struct job){.ctl = ctl};
	r = machine_open(&job->machine, ctl->argv[0], ctl->argv[1], why);
	if (r)
		return job_fail(job, r, "%s", why);
	r = choose(job, sides);
	for (int side = 0; side < NR_SIDES && !r; side++) {
		if (!sides[side])
			continue;
		job->docs[side] = machine_xml(&job->machine, side == SIDE_LIVE, why);
		if (!job->docs[side])
			return job_fail(job, CTL_REFUSED, "%s", why);
	}
	return r;
}

void job_end(struct job *job)
{
	for (int side = 0; side < NR_SIDES; side++)
		if (job->docs[side])
			xmlFreeDoc(job->docs[side]);
	machine_close(&job->machine);
}

static void print_sentence(const struct job *job, const char *done, bool changed,
			   const char *target)
{
	bool live = job->docs[SIDE_LIVE], config = job->docs[SIDE_CONFIG];

	printf("%s: %s %s %s%s%s", job->machine.name, domain_kind_name(job->dev.kind),
	       job->dev.name, done, *target ? " as " : "", target);
	if (live && config)
		printf(", in the running machine and in its configuration\n");
	else if (live)
		printf(", in the running machine%s\n",
		       changed && job->machine.persistent
			       ? " until it ends (--config is for its next start)"
			       : "");
	else
		printf(", in its configuration%s\n",
		       changed && job->machine.active ? ": from its next start on" : "");
}

void job_print(const struct job *job, const char *done, bool changed, const char *target)
{
	json_t *result;

	if (!job->ctl->json) {
		print_sentence(job, done, changed, target);
		return;
	}
	result =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:b}", "vm", job->machine.name,
			  "uuid", job->machine.uuid, TMEM_KEY_KIND, domain_kind_name(job->dev.kind),
			  TMEM_KEY_NAME, job->dev.name, TMEM_KEY_SOCKET, job->dev.socket, "target",
			  target, "changed", changed, "live", job->docs[SIDE_LIVE] != NULL,
			  "config", job->docs[SIDE_CONFIG] != NULL);
	print_json(result);
	json_decref(result);
}
