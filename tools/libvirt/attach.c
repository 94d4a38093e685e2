// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemctl attach. Everything that can be refused is looked at before the first change; then comes
 * the disk in tmemd, the running machine, and its configuration.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/control.h"
#include "tools/libvirt/job.h"
#include "tools/libvirt/request.h"

struct attach {
	struct job job;
	json_t *request;      /* what was said about a disk by options */
	bool known;	      /* tmemd has the disk */
	bool made;	      /* we made it */
	bool there[NR_SIDES]; /* it is attached there already */
	unsigned memory;      /* what was added to the configuration */
	char target[16];
};

/* ---- Options -------------------------------------------------------------------------------- */

static bool any_option(const struct ctl *ctl, bool socket)
{
	for (int i = 0; i < DISK_NR_OPTIONS; i++)
		if (ctl->disk[i] && (socket || i != DISK_SOCKET))
			return true;
	return ctl->overcommit;
}

static int check_options(struct attach *a)
{
	const struct ctl *ctl = a->job.ctl;

	if (ctl->nbd && ctl->ring)
		return usage_error("--nbd and --ring are two devices", ctl->argv[1]);
	if (ctl->nbd && any_option(ctl, false))
		return usage_error("a disk behind --nbd has its values from its service; only "
				   "--socket can be given",
				   ctl->argv[1]);
	if (ctl->ring && (any_option(ctl, true) || ctl->required))
		return usage_error("a ring has its values from tmemd's configuration",
				   ctl->argv[1]);
	if (ctl->disk[DISK_SOCKET] && !xmlCheckUTF8((const xmlChar *)ctl->disk[DISK_SOCKET]))
		return usage_error("the path of the socket must be UTF-8", ctl->argv[1]);
	a->request = json_object();
	return disk_put_values(ctl, a->request);
}

/* The name: as given, or made of the machine's. */
static int name_device(struct attach *a)
{
	const struct ctl *ctl = a->job.ctl;
	const char *vm = a->job.machine.name[0] ? a->job.machine.name : ctl->argv[1];
	enum domain_kind kind = job_kind(ctl);
	char name[128], why[DOMAIN_WHY_MAX];

	if (ctl->name)
		snprintf(name, sizeof(name), "%s", ctl->name);
	else
		snprintf(name, sizeof(name), "%s%.100s", kind == DOMAIN_RING ? "" : "tmem-", vm);
	domain_device_init(&a->job.dev, kind);
	if (domain_device_name(&a->job.dev, name, why))
		return job_fail(&a->job, CTL_USAGE, "%s%s", why,
				ctl->name ? "" : "; say --name NAME");
	a->job.dev.required = ctl->required;
	return CTL_OK;
}

/* ---- What tmemd has ------------------------------------------------------------------------- */

static json_t *request_of(const char *command)
{
	return json_pack("{s:s}", TMEM_KEY_COMMAND, command);
}

/* The disk as tmemd has it, or as it is asked for. */
static int look_at_disk(struct attach *a)
{
	const struct ctl *ctl = a->job.ctl;
	struct domain_device *dev = &a->job.dev;
	char why[CTL_WHY_MAX];
	json_t *disks = NULL, *disk;
	int r = ctl_ask(ctl, request_of(TMEM_CMD_DISK_LIST), CTL_PATIENCE_S, &disks, why);

	/* What is only printed can be printed without tmemd. */
	if (r && !ctl->print)
		return job_fail(&a->job, r, "%s", why);
	disk = r ? NULL : request_find(disks, TMEM_KEY_DISKS, dev->name);
	a->known = disk;
	if (!disk && !ctl->disk[DISK_OWNER]) {
		int64_t uid = machine_user(&a->job.machine);

		if (uid >= 0)
			json_object_set_new(a->request, TMEM_KEY_UID, json_integer(uid));
	}
	request_take(dev, disk ? disk : a->request);
	json_decref(disks);
	if (!dev->bytes)
		return job_fail(&a->job, CTL_USAGE,
				"there is no disk %s yet; say how large it is to be: --size SIZE",
				dev->name);
	return CTL_OK;
}

static int look_at_nbd(struct attach *a)
{
	struct domain_device *dev = &a->job.dev;
	struct stat st;

	if (a->job.ctl->disk[DISK_SOCKET] &&
	    snprintf(dev->socket, sizeof(dev->socket), "%s", a->job.ctl->disk[DISK_SOCKET]) >=
		    (int)sizeof(dev->socket))
		return usage_error("the path is too long", a->job.ctl->disk[DISK_SOCKET]);
	if (a->job.ctl->print || (!stat(dev->socket, &st) && S_ISSOCK(st.st_mode)))
		return CTL_OK;
	if (a->job.docs[SIDE_LIVE])
		return job_fail(&a->job, CTL_REFUSED,
				"there is no socket %s: start tmem-nbd@%s.service first",
				dev->socket, dev->name);
	fprintf(stderr,
		"tmemctl: there is no socket %s yet: tmem-nbd@%s.service must run before %s\n",
		dev->socket, dev->name, a->job.machine.name);
	return CTL_OK;
}

static int look_at_ring(struct attach *a)
{
	struct domain_device *dev = &a->job.dev;
	json_t *list = NULL, *client;
	int r = ctl_call(a->job.ctl, request_of(TMEM_CMD_LIST), CTL_PATIENCE_S, &list);

	if (r)
		return r;
	client = request_find(list, TMEM_KEY_CLIENTS, dev->name);
	if (!client || strcmp(string_of(client, TMEM_KEY_KIND), TMEM_KIND_CLIENT)) {
		json_decref(list);
		return job_fail(
			&a->job, CTL_REFUSED,
			"tmemd has no client %s: write [client %s] into its configuration and "
			"reload it, or say another one: --name NAME",
			dev->name, dev->name);
	}
	snprintf(dev->socket, sizeof(dev->socket), "%s", string_of(client, TMEM_KEY_SOCKET));
	dev->queues = (uint32_t)number_of(client, TMEM_KEY_MAX_RINGS);
	json_decref(list);
	return CTL_OK;
}

static int look_at_tmemd(struct attach *a)
{
	domain_device_default_socket(&a->job.dev);
	switch (a->job.dev.kind) {
	case DOMAIN_DISK:
		return look_at_disk(a);
	case DOMAIN_NBD:
		return look_at_nbd(a);
	default:
		return look_at_ring(a);
	}
}

static int make_disk(struct attach *a)
{
	struct job *job = &a->job;
	json_t *result = NULL;
	int r;

	if (job->dev.kind != DOMAIN_DISK)
		return CTL_OK;
	json_object_set_new(a->request, TMEM_KEY_COMMAND, json_string(TMEM_CMD_DISK_CREATE));
	json_object_set_new(a->request, TMEM_KEY_NAME, json_string(job->dev.name));
	if (!json_object_get(a->request, TMEM_KEY_SIZE))
		json_object_set_new(a->request, TMEM_KEY_SIZE,
				    json_integer((json_int_t)job->dev.bytes));
	r = ctl_call(job->ctl, json_incref(a->request), CTL_PATIENCE_S, &result);
	if (r)
		return r;
	a->made = json_is_true(json_object_get(result, TMEM_KEY_CREATED));
	request_take(&job->dev, json_object_get(result, TMEM_KEY_DISK));
	json_decref(result);
	return CTL_OK;
}

static void unmake_disk(struct attach *a)
{
	json_t *result = NULL;
	char why[CTL_WHY_MAX];

	if (a->made)
		ctl_ask(a->job.ctl, request_about_disk(TMEM_CMD_DISK_REMOVE, a->job.dev.name),
			CTL_PATIENCE_S, &result, why);
	json_decref(result);
}

/* ---- What the machine has ------------------------------------------------------------------- */

/* Takes over what is recorded of the device on a side. False: nothing. */
static bool recorded(const xmlNode *domain, struct domain_device *dev)
{
	struct domain_device found[DOMAIN_MAX_DEVICES];
	char why[DOMAIN_WHY_MAX];
	int nr = domain_record(domain, found, NULL, why);

	for (int i = 0; i < nr; i++) {
		if (found[i].kind != dev->kind || strcmp(found[i].name, dev->name))
			continue;
		*dev = found[i];
		return true;
	}
	return false;
}

/* True when there is nothing left to do on any side. */
static bool look_at_sides(struct attach *a)
{
	bool all = true;

	for (int side = 0; side < NR_SIDES; side++) {
		const xmlNode *domain = job_domain(&a->job, side);

		if (!domain)
			continue;
		a->there[side] = domain_device_find(domain, &a->job.dev);
		all &= a->there[side];
	}
	return all;
}

/* The same by the record alone: tmemd need not be there for it. */
static bool attached_as_recorded(struct attach *a)
{
	struct domain_device wanted = a->job.dev;
	bool found = false;

	for (int side = 0; side < NR_SIDES && !found; side++)
		found = job_domain(&a->job, side) &&
			recorded(job_domain(&a->job, side), &a->job.dev);
	if (found && look_at_sides(a))
		return true;
	a->job.dev = wanted;
	return false;
}

/*
 * libvirt 9.0 tells QEMU not to connect again (reconnect 0) when a vhost-user disk is plugged in,
 * whatever its XML says; 10.0 has that mended.
 */
#define RECONNECTS_VERSION 10000000

static int check_reconnect(const struct attach *a)
{
	unsigned long v = a->job.machine.version;

	if (!a->job.docs[SIDE_LIVE] || a->there[SIDE_LIVE] || a->job.ctl->force ||
	    a->job.dev.kind != DOMAIN_DISK || v >= RECONNECTS_VERSION)
		return CTL_OK;
	return job_fail(
		&a->job, CTL_REFUSED,
		"libvirt %lu.%lu.%lu does not make QEMU connect again to a disk that was "
		"plugged in: with the next restart of tmemd the guest would lose what it has "
		"there. Attach with --config and start it anew, or take --nbd, or --force",
		v / 1000000, v / 1000 % 1000, v % 1000);
}

static int prepare_memory(struct attach *a)
{
	xmlNode *live = job_domain(&a->job, SIDE_LIVE), *config = job_domain(&a->job, SIDE_CONFIG);
	char why[DOMAIN_WHY_MAX];

	if (a->job.dev.kind != DOMAIN_DISK)
		return CTL_OK;
	if (live && !a->there[SIDE_LIVE] && domain_memory_shared(live, why))
		return job_fail(
			&a->job, CTL_REFUSED,
			"%s, and that cannot change while it runs: attach with --config and "
			"start it anew, or take --nbd",
			why);
	if (config && domain_memory_share(config, &a->memory, why))
		return job_fail(&a->job, CTL_REFUSED, "%s, or take --nbd", why);
	return CTL_OK;
}

/* ---- Changing it ---------------------------------------------------------------------------- */

/* The device and its record, in the document of a side. NULL with the reason. */
static xmlNode *put_device(struct attach *a, xmlNode *domain, char why[DOMAIN_WHY_MAX])
{
	xmlNode *device = domain_device_new(&a->job.dev, a->target);

	if (!device) {
		snprintf(why, DOMAIN_WHY_MAX, "out of memory");
		return NULL;
	}
	domain_device_add(domain, device);
	domain_record_put(domain, &a->job.dev);
	return device;
}

static int change_live(struct attach *a, char why[DOMAIN_WHY_MAX])
{
	xmlNode *domain = job_domain(&a->job, SIDE_LIVE), *device;

	if (!domain || a->there[SIDE_LIVE])
		return 0;
	device = put_device(a, domain, why);
	if (!device || machine_plug(&a->job.machine, device, why))
		return -1;
	return machine_record(&a->job.machine, domain, why);
}

static int edit_config(struct attach *a, char why[DOMAIN_WHY_MAX])
{
	xmlNode *domain = job_domain(&a->job, SIDE_CONFIG);

	if (a->memory)
		domain_record_put_memory(domain, domain_record_memory(domain) | a->memory);
	return put_device(a, domain, why) ? 0 : -1;
}

static int change_config(struct attach *a, char why[DOMAIN_WHY_MAX])
{
	if (!a->job.docs[SIDE_CONFIG] || a->there[SIDE_CONFIG])
		return 0;
	if (edit_config(a, why))
		return -1;
	return machine_define(&a->job.machine, a->job.docs[SIDE_CONFIG], why);
}

static int apply(struct attach *a)
{
	char why[DOMAIN_WHY_MAX];
	int r = make_disk(a);

	if (r)
		return r;
	if (change_live(a, why) || change_config(a, why)) {
		unmake_disk(a);
		return job_fail(&a->job, CTL_REFUSED, "%s", why);
	}
	job_print(&a->job, a->made ? "made and attached" : "attached", true,
		  a->job.dev.kind == DOMAIN_RING ? "" : a->target);
	return CTL_OK;
}

/* ---- Printing it ---------------------------------------------------------------------------- */

static json_t *element(xmlNode *node)
{
	char *text = node ? domain_element_text(node) : NULL;
	json_t *string = text ? json_string(text) : json_null();

	free(text);
	return string;
}

/* What would be put in, on one side. */
static int print_pieces(struct attach *a)
{
	int side = a->job.docs[SIDE_CONFIG] ? SIDE_CONFIG : SIDE_LIVE;
	xmlNode *domain = job_domain(&a->job, side), *device = NULL, *metadata;
	char why[DOMAIN_WHY_MAX] = "out of memory";
	json_t *pieces;

	if (a->memory)
		domain_record_put_memory(domain, domain_record_memory(domain) | a->memory);
	device = put_device(a, domain, why);
	if (!device)
		return job_fail(&a->job, CTL_REFUSED, "%s", why);
	metadata = domain_record_element(domain);
	pieces = json_pack("{s:o, s:o, s:o}", "memory_backing",
			   element(a->memory ? domain_child(domain, "memoryBacking", NULL) : NULL),
			   "metadata", element(metadata), "device", element(device));
	if (a->job.ctl->json) {
		print_json(pieces);
	} else {
		puts("<!-- in the domain -->");
		if (a->memory)
			puts(string_of(pieces, "memory_backing"));
		printf("<metadata>\n%s\n</metadata>\n", string_of(pieces, "metadata"));
		printf("<!-- in its devices -->\n%s\n", string_of(pieces, "device"));
	}
	json_decref(pieces);
	return CTL_OK;
}

/* A machine that we know nothing of, when we were built without libvirt and shall only print. */
static int unknown_machine(struct attach *a)
{
	static const char empty[] = "<domain><devices/></domain>";
	char why[DOMAIN_WHY_MAX];

	snprintf(a->job.machine.name, sizeof(a->job.machine.name), "%s", a->job.ctl->argv[1]);
	a->job.docs[SIDE_CONFIG] = domain_parse(empty, sizeof(empty) - 1, why);
	return a->job.docs[SIDE_CONFIG] ? CTL_OK : job_fail(&a->job, CTL_REFUSED, "%s", why);
}

/* ---- The command ---------------------------------------------------------------------------- */

static int begin(struct attach *a, const struct ctl *ctl)
{
	a->job.ctl = ctl;
	if (ctl->print && !MACHINE_LIBVIRT)
		return unknown_machine(a);
	return job_begin(&a->job, ctl);
}

static int attach(struct attach *a)
{
	struct job *job = &a->job;
	int r = name_device(a);

	if (r)
		return r;
	if (!job->ctl->print && attached_as_recorded(a)) {
		job_print(job, "is attached already", false, "");
		return CTL_OK;
	}
	r = look_at_tmemd(a);
	if (r)
		return r;
	if (look_at_sides(a)) {
		job_print(job, "is attached already", false, "");
		return CTL_OK;
	}
	r = prepare_memory(a);
	if (!r)
		r = check_reconnect(a);
	if (r)
		return r;
	if (domain_target(job_domain(job, SIDE_LIVE), job_domain(job, SIDE_CONFIG), a->target))
		return job_fail(job, CTL_REFUSED, "it has no name left for a virtio disk");
	return job->ctl->print ? print_pieces(a) : apply(a);
}

int run_attach(const struct ctl *ctl)
{
	struct attach a = {.job.ctl = ctl};
	int r = check_options(&a);

	if (!r)
		r = begin(&a, ctl);
	if (!r)
		r = attach(&a);
	json_decref(a.request);
	job_end(&a.job);
	return r;
}
