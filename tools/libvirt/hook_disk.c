// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the hook asks of tmemd. The content of a disk is the swap of one life of one guest. It is
 * dropped when that life is known to be over, and kept in every other case: a guest that goes on
 * without its swapped pages is worse off than a pool that keeps pages which nobody needs.
 */
#include "config.h"

#include "tools/libvirt/hook.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/control.h"
#include "tools/libvirt/request.h"

/* Seconds for one answer; the whole hook has not more. */
#define ANSWER_S 2

static int ask(const struct hook *h, json_t *request, json_t **result, char why[CTL_WHY_MAX])
{
	return ctl_ask(&h->ctl, request, ANSWER_S, result, why);
}

static int ask_only(const struct hook *h, json_t *request, char why[CTL_WHY_MAX])
{
	json_t *result = NULL;
	int r = ask(h, request, &result, why);

	json_decref(result);
	return r;
}

static int ask_disks(const struct hook *h, json_t **disks, char why[CTL_WHY_MAX])
{
	return ask(h, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_DISK_LIST), disks, why);
}

static int64_t held(json_t *disk)
{
	return json_integer_value(json_object_get(disk, TMEM_KEY_LOGICAL_BYTES));
}

/* ---- Who QEMU is ---------------------------------------------------------------------------- */

/* A user as libvirt labels it: "+64055:+64055" or "name:name". -1: none. */
static int64_t user_of_label(char *label)
{
	const struct passwd *pw;
	char *end;
	long id;

	label[strcspn(label, ":")] = 0;
	id = strtol(label + (*label == '+'), &end, 10);
	if (*label && !*end && id >= 0)
		return id;
	pw = getpwnam(label);
	return pw ? (int64_t)pw->pw_uid : -1;
}

/*
 * The domain says it when it has a label of its own. Else libvirt has not chosen one yet; it is
 * the user of libvirt's configuration, which distributions call by one of two names.
 */
static int64_t qemu_user(const xmlNode *domain)
{
	static const char *const names[] = {"libvirt-qemu", "qemu"};
	const xmlNode *label = domain_child(domain, "seclabel", NULL);
	int64_t uid = -1;

	for (; label && uid < 0; label = domain_child(domain, "seclabel", label)) {
		const xmlNode *node = domain_child(label, "label", NULL);
		xmlChar *text = NULL;

		if (node && domain_attribute_is(label, "model", "dac"))
			text = xmlNodeGetContent(node);
		if (text)
			uid = user_of_label((char *)text);
		xmlFree(text);
	}
	for (size_t i = 0; i < 2 && uid < 0; i++) {
		const struct passwd *pw = getpwnam(names[i]);

		uid = pw ? (int64_t)pw->pw_uid : -1;
	}
	return uid;
}

/* ---- Beginning ------------------------------------------------------------------------------ */

static void say_gone(const struct hook *h, const struct domain_device *dev)
{
	hook_say(
		h,
		"disk %s is not there any more, and with it what the guest had swapped out when it "
		"was saved: it would go on with wrong memory. If the guest used no swap there, "
		"make "
		"the disk (tmemctl disk create %s --size %llu) and start again; else discard the "
		"saved state",
		dev->name, dev->name, (unsigned long long)dev->bytes);
}

static bool configured(json_t *disk)
{
	return !strcmp(string_of(disk, TMEM_KEY_ORIGIN), TMEM_ORIGIN_CONFIGURATION);
}

/*
 * A disk that is there keeps its values, also when it is made anew: they may have been changed by
 * command. But its socket must be the one that the machine's device names.
 */
static void as_it_is(struct domain_device *dev, json_t *disk)
{
	struct domain_device known = *dev;

	request_take(&known, disk);
	strcpy(known.socket, dev->socket);
	*dev = known;
}

#define GONE (-1)

/* CTL_OK, GONE when a restored guest finds its disk no more, or what was wrong. */
static int prepare_disk(const struct hook *h, const xmlNode *domain, struct domain_device dev,
			enum life life, char why[CTL_WHY_MAX])
{
	json_t *disks = NULL, *disk;
	int r = ask_disks(h, &disks, why);

	if (r)
		return r;
	disk = request_find(disks, TMEM_KEY_DISKS, dev.name);
	if (!disk && life == LIFE_RESTORED) {
		snprintf(why, CTL_WHY_MAX, "it is not there any more");
		r = GONE;
	}
	if (disk)
		as_it_is(&dev, disk);
	else if (dev.uid < 0)
		dev.uid = qemu_user(domain);
	/* One of the configuration cannot be made anew: the guest's swapon --discard empties it. */
	if (disk && life == LIFE_FRESH && held(disk) && !configured(disk))
		r = ask_only(h, request_about_disk(TMEM_CMD_DISK_REMOVE, dev.name), why);
	json_decref(disks);
	return r ? r : ask_only(h, request_create(&dev), why);
}

static int prepare_nbd(const struct domain_device *dev, char why[CTL_WHY_MAX])
{
	struct stat st;

	if (!stat(dev->socket, &st) && S_ISSOCK(st.st_mode))
		return CTL_OK;
	snprintf(why, CTL_WHY_MAX, "there is no socket %s: start tmem-nbd@%s.service", dev->socket,
		 dev->name);
	return CTL_UNREACHED;
}

int hook_prepare(const struct hook *h, const xmlNode *domain, const struct domain_device *devices,
		 int nr, enum life life)
{
	char why[CTL_WHY_MAX];
	int status = 0, r;

	for (int i = 0; i < nr; i++) {
		const struct domain_device *dev = &devices[i];

		/* A ring's client is of the configuration, and QEMU says when it is missing. */
		if (dev->kind == DOMAIN_RING)
			continue;
		r = dev->kind == DOMAIN_NBD ? prepare_nbd(dev, why)
					    : prepare_disk(h, domain, *dev, life, why);
		if (!r)
			continue;
		hook_say(h, "%s %s: %s%s", domain_kind_name(dev->kind), dev->name, why,
			 dev->required ? "; it is required, so the machine does not start" : "");
		if (dev->required || r == GONE)
			status = 1;
	}
	return status;
}

int hook_check_restore(const struct hook *h, const struct domain_device *devices, int nr)
{
	char why[CTL_WHY_MAX];
	json_t *disks = NULL;
	int status = 0;

	/* Without tmemd QEMU waits for its disk; that comes back with the service, or never. */
	if (!nr || ask_disks(h, &disks, why))
		return 0;
	for (int i = 0; i < nr; i++) {
		if (devices[i].kind != DOMAIN_DISK ||
		    request_find(disks, TMEM_KEY_DISKS, devices[i].name))
			continue;
		say_gone(h, &devices[i]);
		status = 1;
	}
	json_decref(disks);
	return status;
}

/* ---- End ------------------------------------------------------------------------------------ */

/*
 * libvirt says since 10.5 why the machine ended; "-" before. "failed" may be a saved image that
 * could not be restored, and will be again.
 */
static bool over_for_good(const char *reason)
{
	return !strcmp(reason, "shutdown") || !strcmp(reason, "destroyed") ||
	       !strcmp(reason, "crashed");
}

/* tmemd sees the end of QEMU a moment after libvirt. The time of the hook bounds the tries. */
static void free_disk(const struct hook *h, const char *name)
{
	char why[CTL_WHY_MAX];
	json_t *disks, *disk;
	bool connected;
	int r;

	do {
		disks = NULL;
		r = ask_disks(h, &disks, why);
		disk = r ? NULL : request_find(disks, TMEM_KEY_DISKS, name);
		connected = disk && !strcmp(string_of(disk, TMEM_KEY_STATE), TMEM_STATE_CONNECTED);
		if (connected)
			usleep(20 * 1000);
		else if (disk && !configured(disk))
			r = ask_only(h, request_about_disk(TMEM_CMD_DISK_REMOVE, name), why);
		json_decref(disks);
	} while (connected);
	if (r)
		hook_say(h, "disk %s: %s", name, why);
}

static void say_kept(const struct hook *h, const struct domain_device *dev, json_t *disk)
{
	if (!held(disk))
		return;
	hook_say(h,
		 "disk %s keeps %lld logical bytes: %s. They are dropped when the machine boots "
		 "the next "
		 "time, or by tmemctl disk remove %s",
		 dev->name, (long long)held(disk),
		 strcmp(h->extra, "-") ? h->extra
				       : "this libvirt does not say whether the machine was saved",
		 dev->name);
}

void hook_release(const struct hook *h, const struct domain_device *devices, int nr)
{
	char why[CTL_WHY_MAX];
	json_t *disks = NULL;

	for (int i = 0; i < nr; i++)
		if (devices[i].kind == DOMAIN_DISK && over_for_good(h->extra))
			free_disk(h, devices[i].name);
	if (over_for_good(h->extra) || !nr || ask_disks(h, &disks, why))
		return;
	for (int i = 0; i < nr; i++) {
		json_t *disk = request_find(disks, TMEM_KEY_DISKS, devices[i].name);

		if (disk && devices[i].kind == DOMAIN_DISK)
			say_kept(h, &devices[i], disk);
	}
	json_decref(disks);
}
