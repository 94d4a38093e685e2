// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemctl detach: what attach put in is taken out again.
 *
 * A running guest loses what it has swapped to a disk that is unplugged. Whether it still swaps
 * there cannot be seen from here, but whether the disk holds anything can: after swapoff and
 * blkdiscard it does not.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/control.h"
#include "tools/libvirt/job.h"
#include "tools/libvirt/request.h"

/* Milliseconds between two looks, and looks, until a guest must have let go of a device. */
#define LOOK_MS 100
#define LOOKS 300

/* ---- Which one ------------------------------------------------------------------------------ */

static bool meant(const struct ctl *ctl, const struct domain_device *dev)
{
	if (ctl->name)
		return !strcmp(dev->name, ctl->name) && dev->kind == job_kind(ctl);
	return (!ctl->nbd && !ctl->ring) || dev->kind == job_kind(ctl);
}

/* The names that are recorded, for a person. */
static void list_devices(const struct domain_device *devices, int nr, char *text, size_t room)
{
	*text = 0;
	for (int i = 0; i < nr; i++) {
		size_t len = strlen(text);

		snprintf(text + len, room - len, "%s%s %s", i ? ", " : "",
			 domain_kind_name(devices[i].kind), devices[i].name);
	}
}

/* Adds what is meant on a side to what was found before. The number found; -1: it has been said. */
static int find_on_side(struct job *job, int side, int found)
{
	struct domain_device devices[DOMAIN_MAX_DEVICES];
	char why[DOMAIN_WHY_MAX], text[1024];
	int nr = domain_record(job_domain(job, side), devices, NULL, why);

	if (nr < 0)
		return job_fail(job, -1, "%s", why);
	for (int i = 0; i < nr; i++) {
		if (!meant(job->ctl, &devices[i]))
			continue;
		/* The other side may have the same one. */
		if (found && job->dev.kind == devices[i].kind &&
		    !strcmp(job->dev.name, devices[i].name))
			continue;
		if (found++) {
			list_devices(devices, nr, text, sizeof(text));
			return job_fail(job, -1,
					"say which by --name (and --nbd, --ring): it has %s", text);
		}
		job->dev = devices[i];
	}
	return found;
}

static int find_device(struct job *job)
{
	int found = 0;

	for (int side = 0; side < NR_SIDES && found >= 0; side++)
		if (job->docs[side])
			found = find_on_side(job, side, found);
	if (found < 0)
		return CTL_REFUSED;
	if (!found)
		return job_fail(job, CTL_REFUSED,
				"nothing that is meant was attached there by tmemctl%s",
				job->machine.active && !job->docs[SIDE_CONFIG]
					? " (its configuration is looked at with --config)"
					: "");
	return CTL_OK;
}

/* ---- Taking it out -------------------------------------------------------------------------- */

static int check_empty(struct job *job)
{
	char why[CTL_WHY_MAX];
	json_t *list = NULL, *client;
	double held;
	int r;

	if (!job->docs[SIDE_LIVE] || job->ctl->force)
		return CTL_OK;
	r = ctl_ask(job->ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_LIST), CTL_PATIENCE_S,
		    &list, why);
	if (r)
		return job_fail(job, r,
				"%s; what the guest has there cannot be seen, and only --force "
				"unplugs it",
				why);
	client = request_find(list, TMEM_KEY_CLIENTS, job->dev.name);
	held = client ? number_of(client, TMEM_KEY_LOGICAL_BYTES) : 0;
	json_decref(list);
	if (held > 0)
		return job_fail(
			job, CTL_REFUSED,
			"%s %s holds %.0f logical bytes, which its guest would lose: there do "
			"swapoff%s; then, or with --force, it is unplugged",
			domain_kind_name(job->dev.kind), job->dev.name, held,
			job->dev.kind == DOMAIN_RING ? "" : " and blkdiscard");
	return CTL_OK;
}

/* Waits until the guest has let go of it. */
static bool gone(struct job *job)
{
	char why[DOMAIN_WHY_MAX];

	for (int i = 0; i < LOOKS; i++) {
		xmlDoc *doc = machine_xml(&job->machine, true, why);
		bool there = doc && domain_device_find(xmlDocGetRootElement(doc), &job->dev);

		xmlFreeDoc(doc);
		if (!there)
			return true;
		usleep(LOOK_MS * 1000);
	}
	return false;
}

static int detach_live(struct job *job)
{
	xmlNode *domain = job_domain(job, SIDE_LIVE), *device;
	char why[DOMAIN_WHY_MAX];

	if (!domain)
		return CTL_OK;
	device = domain_device_find(domain, &job->dev);
	if (device && machine_unplug(&job->machine, device, why))
		return job_fail(job, CTL_REFUSED, "%s", why);
	if (device && !gone(job))
		return job_fail(
			job, CTL_REFUSED,
			"the guest does not let go of %s within %d s: is it booted, and does "
			"it know hot plugging? Try again",
			job->dev.name, LOOKS * LOOK_MS / 1000);
	domain_record_drop(domain, job->dev.kind, job->dev.name);
	if (machine_record(&job->machine, domain, why))
		return job_fail(job, CTL_REFUSED, "%s", why);
	return CTL_OK;
}

static int detach_config(struct job *job)
{
	xmlNode *domain = job_domain(job, SIDE_CONFIG), *device;
	struct domain_device left[DOMAIN_MAX_DEVICES];
	char why[DOMAIN_WHY_MAX];
	unsigned memory;

	if (!domain)
		return CTL_OK;
	device = domain_device_find(domain, &job->dev);
	if (device)
		domain_remove(device);
	domain_record_drop(domain, job->dev.kind, job->dev.name);
	memory = domain_record_memory(domain);
	if (memory && domain_record(domain, left, NULL, why) == 0) {
		domain_memory_unshare(domain, memory);
		domain_record_put_memory(domain, 0);
	}
	if (machine_define(&job->machine, job->docs[SIDE_CONFIG], why))
		return job_fail(job, CTL_REFUSED, "%s", why);
	return CTL_OK;
}

/* ---- The disk in tmemd ---------------------------------------------------------------------- */

static int remove_disk(struct job *job)
{
	char why[CTL_WHY_MAX];
	json_t *result = NULL;
	int r = CTL_REFUSED;

	/* QEMU lets go of the socket a moment after the device. */
	for (int i = 0; i < 20 && r == CTL_REFUSED; i++) {
		if (i)
			usleep(LOOK_MS * 1000);
		r = ctl_ask(job->ctl, request_about_disk(TMEM_CMD_DISK_REMOVE, job->dev.name),
			    CTL_PATIENCE_S, &result, why);
		if (!job->docs[SIDE_LIVE])
			break;
	}
	json_decref(result);
	if (r)
		return job_fail(job, r, "detached, but its disk stays: %s", why);
	return CTL_OK;
}

static int check_remove(struct job *job)
{
	if (!job->ctl->remove_disk)
		return CTL_OK;
	if (job->dev.kind != DOMAIN_DISK)
		return usage_error("only a vhost-user disk can be removed by --remove-disk",
				   job->dev.name);
	if (job->machine.saved)
		return job_fail(
			job, CTL_REFUSED,
			"it has a saved state (virsh managedsave), whose guest needs what is "
			"on disk %s: start it, or do virsh managedsave-remove",
			job->dev.name);
	return CTL_OK;
}

static int detach(struct job *job)
{
	bool remove = job->ctl->remove_disk;
	int r = find_device(job);

	if (!r)
		r = check_remove(job);
	if (!r)
		r = check_empty(job);
	if (!r)
		r = detach_live(job);
	if (!r)
		r = detach_config(job);
	if (!r && remove)
		r = remove_disk(job);
	if (!r)
		job_print(job, remove ? "detached and removed" : "detached", true, "");
	return r;
}

int run_detach(const struct ctl *ctl)
{
	struct job job = {.ctl = ctl};
	int r = CTL_OK;

	if (ctl->nbd && ctl->ring)
		return usage_error("--nbd and --ring are two devices", ctl->argv[1]);
	r = job_begin(&job, ctl);
	if (!r)
		r = detach(&job);
	job_end(&job);
	return r;
}
