// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Domains of Xen: which client is whose, and the device that a domain is given. xl knows nothing of
 * it, so tmemd does all of this by its configuration and xenstore, and we ask it to.
 */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <stdio.h>
#include <string.h>

#include "proto/control.h"

static const char *number_or_dash(json_t *object, char text[16])
{
	json_t *number = json_object_get(object, TMEM_KEY_DOMAIN);

	if (!json_is_integer(number))
		return "-";
	snprintf(text, 16, "%.0f", json_number_value(number));
	return text;
}

static void print_domains(json_t *result)
{
	json_t *domain;
	char text[16];
	size_t i;

	printf("%-20s  %6s  %-8s  %-36s  %s\n", "CLIENT", "DOMAIN", "DEVICE", "UUID",
	       "CONFIGURED FOR");
	json_array_foreach(json_object_get(result, TMEM_KEY_DOMAINS), i, domain)
	{
		printf("%-20s  %6s  %-8s  %-36s  %s\n", string_of(domain, TMEM_KEY_NAME),
		       number_or_dash(domain, text), string_of(domain, TMEM_KEY_DEVICE),
		       string_of(domain, TMEM_KEY_UUID), string_of(domain, TMEM_KEY_CONFIGURED));
	}
}

static void print_client(json_t *result)
{
	json_t *domain = json_array_get(json_object_get(result, TMEM_KEY_DOMAINS), 0);

	puts(string_of(domain, TMEM_KEY_NAME));
}

int run_domain(const struct ctl *ctl)
{
	json_t *request = json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_DOMAIN);

	if (ctl->argc)
		json_object_set_new(request, TMEM_KEY_DOMAIN, json_string(ctl->argv[0]));
	return call_and_print(ctl, request, ctl->argc ? print_client : print_domains);
}

/* What is for machines of libvirt. */
static int check_options(const struct ctl *ctl)
{
	bool disk = ctl->overcommit;

	for (int i = 0; i < DISK_NR_OPTIONS; i++)
		disk |= ctl->disk[i] != NULL;
	if (disk || ctl->nbd || ctl->ring || ctl->config || ctl->live || ctl->required ||
	    ctl->force || ctl->remove_disk || (ctl->name && !ctl->print))
		return usage_error("an option for machines of libvirt; a domain of Xen has its "
				   "device from tmemd's configuration, front = xen",
				   ctl->argv[1]);
	return CTL_OK;
}

/* Asks, waits, and says what has become of it. */
static int change(const struct ctl *ctl, const char *command, const char *done)
{
	json_t *request, *result;
	char text[16];
	int r = check_options(ctl), seconds = TMEM_CONTROL_DOMAIN_MS / 1000;

	if (r)
		return r;
	request = json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, command, TMEM_KEY_DOMAIN, ctl->argv[1]);
	if (!request)
		return usage_error("the name must be UTF-8", ctl->argv[1]);
	if (ctl->timeout >= 0) {
		json_object_set_new(request, TMEM_KEY_TIMEOUT_MS,
				    json_integer((json_int_t)(ctl->timeout * 1000)));
		seconds = (int)ctl->timeout;
	}
	r = ctl_call(ctl, request, seconds + CTL_PATIENCE_S, &result);
	if (r)
		return r;
	if (ctl->json)
		print_json(result);
	else
		printf("domain %s (client %s): the device is %s%s\n", number_or_dash(result, text),
		       string_of(result, TMEM_KEY_NAME), done,
		       json_is_true(json_object_get(result, TMEM_KEY_CHANGED)) ? "" : " already");
	json_decref(result);
	return CTL_OK;
}

int xl_attach(const struct ctl *ctl)
{
	const char *domain = ctl->argv[1];
	int r = check_options(ctl);

	if (r || !ctl->print)
		return r ? r : change(ctl, TMEM_CMD_DOMAIN_ATTACH, "there");
	printf("[client %s]\nfront = xen\ndomain = %s\n", ctl->name ? ctl->name : domain, domain);
	return CTL_OK;
}

int xl_detach(const struct ctl *ctl)
{
	return change(ctl, TMEM_CMD_DOMAIN_DETACH, "taken away");
}
