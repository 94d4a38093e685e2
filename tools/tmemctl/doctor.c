// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemctl doctor: what is wrong or wasteful, one line each with the remedy.
 *
 * On a host it asks the service and looks at its process and at the machine; in a guest
 * (--guest) it looks at the machine alone, since only the guest knows what else of it swaps.
 */
#include "config.h"

#include "tools/tmemctl/doctor.h"
#include "tools/tmemctl/tmemctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/control.h"

static const char *const severity_names[] = {"note", "warning", "error"};

/* What does not fit is cut: a sentence has an end somewhere. */
static json_t *sentence(const char *fmt, va_list ap)
{
	char text[768];

	vsnprintf(text, sizeof(text), fmt, ap);
	return json_string(text);
}

void found(struct doctor *d, const char *about, const char *name, const char *fmt, ...)
{
	json_t *finding = json_object();
	char subject[128];
	va_list ap;

	snprintf(subject, sizeof(subject), "%s%s%s", about, name ? " " : "", name ? name : "");
	va_start(ap, fmt);
	json_object_set_new(finding, "id", json_string(d->check->id));
	json_object_set_new(finding, "severity", json_string(severity_names[d->check->severity]));
	json_object_set_new(finding, "subject", json_string(subject));
	json_object_set_new(finding, "finding", sentence(fmt, ap));
	json_object_set_new(finding, "remedy", json_string(""));
	va_end(ap);
	json_array_append_new(d->findings, finding);
}

void remedy(struct doctor *d, const char *fmt, ...)
{
	json_t *last = json_array_get(d->findings, json_array_size(d->findings) - 1);
	va_list ap;

	va_start(ap, fmt);
	json_object_set_new(last, "remedy", sentence(fmt, ap));
	va_end(ap);
}

/* How many there were. */
static int run_checks(struct doctor *d, const struct check *checks)
{
	int n;

	for (n = 0; checks[n].id; n++) {
		d->check = &checks[n];
		d->check->look(d);
	}
	return n;
}

/* Fetches what the service says of itself. The result, which owns it, or NULL with a finding. */
static json_t *ask_service(const struct ctl *ctl, struct doctor *d)
{
	static const struct check reach = {"service-unreachable", SEVERITY_ERROR, NULL};
	char why[CTL_WHY_MAX];
	json_t *result = NULL, *client;
	size_t i;

	if (ctl_ask(ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_STAT), CTL_PATIENCE_S,
		    &result, why)) {
		d->check = &reach;
		found(d, "service", NULL, "it does not answer: %s", why);
		remedy(d, "systemctl status tmemd; tmemd --check-config; or name its socket by "
			  "--socket");
		return NULL;
	}
	d->service = json_object_get(result, TMEM_KEY_SERVICE);
	d->clients = json_object_get(result, TMEM_KEY_CLIENTS);
	d->pid = (int)number_of(d->service, TMEM_KEY_PID);
	json_array_foreach(d->clients, i, client) d->region_bytes +=
		(uint64_t)number_of(client, TMEM_KEY_REGION_BYTES);
	return result;
}

static const char *text_of(json_t *finding, const char *key)
{
	return json_string_value(json_object_get(finding, key));
}

static void print_findings(const json_t *findings, int checks)
{
	json_t *finding;
	size_t i;

	json_array_foreach(findings, i, finding)
		printf("%s: %s: %s; remedy: %s [%s]\n", text_of(finding, "severity"),
		       text_of(finding, "subject"), text_of(finding, "finding"),
		       text_of(finding, "remedy"), text_of(finding, "id"));
	if (!json_array_size(findings))
		printf("nothing found; checks: %d\n", checks);
}

static bool worse_than_notes(const json_t *findings)
{
	json_t *finding;
	size_t i;

	json_array_foreach(findings, i,
			   finding) if (strcmp(text_of(finding, "severity"),
					       severity_names[SEVERITY_NOTE])) return true;
	return false;
}

int run_doctor(const struct ctl *ctl)
{
	struct doctor d = {.root = ctl->root ? ctl->root : "", .findings = json_array()};
	json_t *answer = NULL;
	int checks = 0, r;

	if (ctl->guest) {
		checks = run_checks(&d, guest_checks);
	} else {
		answer = ask_service(ctl, &d);
		if (answer)
			checks = run_checks(&d, service_checks) + run_checks(&d, process_checks);
		checks += run_checks(&d, host_checks);
	}
	if (ctl->json)
		print_json(d.findings);
	else
		print_findings(d.findings, checks);
	r = worse_than_notes(d.findings) ? CTL_REFUSED : CTL_OK;
	json_decref(d.findings);
	json_decref(answer);
	return r;
}
