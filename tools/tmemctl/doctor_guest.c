// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The guest's side, for `tmemctl doctor --guest`: is the module there and connected, and what else
 * in this guest takes its pages or uses them in vain.
 */
#include "config.h"

#include "tools/tmemctl/doctor.h"
#include "tools/tmemctl/tmemctl.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>

/* QEMU's ivshmem device. */
#define PCI_VENDOR "0x1af4"
#define PCI_DEVICE "0x1110"

#define DEBUG "/sys/kernel/debug/tmem/"

static bool module_loaded(const struct doctor *d)
{
	return look_there(d, "/sys/module/tmem");
}

static uint64_t counter(const struct doctor *d, const char *name)
{
	char key[64];
	uint64_t value;

	snprintf(key, sizeof(key), "%s ", name);
	return look_number(d, DEBUG "counters", key, &value) ? value : 0;
}

/* ---- The module and its link ---------------------------------------------------------------- */

static bool is_device(const struct doctor *d, const char *slot)
{
	char vendor[16], device[16];

	return look_text(d, vendor, sizeof(vendor), "/sys/bus/pci/devices/%s/vendor", slot) &&
	       look_text(d, device, sizeof(device), "/sys/bus/pci/devices/%s/device", slot) &&
	       !strncmp(vendor, PCI_VENDOR, strlen(PCI_VENDOR)) &&
	       !strncmp(device, PCI_DEVICE, strlen(PCI_DEVICE));
}

static void no_device(struct doctor *d)
{
	char path[LOOK_PATH_MAX];
	struct dirent *entry;
	bool there = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", d->root);
	dir = opendir(path);
	while (dir && !there && (entry = readdir(dir)))
		there = is_device(d, entry->d_name);
	if (dir)
		closedir(dir);
	if (there)
		return;
	found(d, "guest", NULL, "this machine has no tmem device (PCI 1af4:1110)");
	remedy(d, "give the VM an ivshmem-doorbell device on the host, see docs/qemu.md");
}

static void no_module(struct doctor *d)
{
	if (module_loaded(d))
		return;
	found(d, "guest", NULL, "the module tmem is not loaded: nothing goes to the host");
	remedy(d, "modprobe tmem before swapon, and tmem in /etc/modules-load.d/tmem.conf");
}

static void no_counters(struct doctor *d)
{
	char text[64];

	if (!module_loaded(d) || look_text(d, text, sizeof(text), DEBUG "state"))
		return;
	found(d, "guest", NULL, "the module's state cannot be read, so some checks are left out");
	remedy(d, "run this as root, with debugfs: mount -t debugfs debugfs /sys/kernel/debug");
}

static const char *link_remedy(const char *state)
{
	if (!strcmp(state, "lost"))
		return "the host has lost its pages: programs that need them wait for ever; "
		       "restart "
		       "this guest";
	if (!strcmp(state, "moved"))
		return "the host does not have its pages: programs that need them wait; bring them "
		       "there (tmemctl restore on the host), or restart this guest";
	return "look at tmemd on the host (tmemctl doctor there); swap uses its disk meanwhile";
}

static void link_state(struct doctor *d)
{
	char text[1024], state[64] = "";
	uint64_t up = 0;

	if (!look_text(d, text, sizeof(text), DEBUG "state") ||
	    sscanf(text, "link: %63[^\n]", state) != 1)
		return;
	if (!strcmp(state, "open") && number_behind(text, "service_up:", &up) && up)
		return;
	found(d, "guest", NULL, "the link to the service is not up: \"%s\"%s", state,
	      !strcmp(state, "open") ? ", no sign of life" : "");
	remedy(d, "%s", link_remedy(state));
}

static void link_polling(struct doctor *d)
{
	uint64_t polling;

	if (!look_number(d, DEBUG "state", "polling:", &polling) || !polling)
		return;
	found(d, "guest", NULL, "the service cannot ring: more CPU and latency");
	remedy(d,
	       "stop and start the VM; on the host run tmemd under systemd, which keeps doorbells");
}

static void attachment_off(struct doctor *d, const char *parameter, const char *debugfs,
			   const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/tmem/parameters/%s", parameter);
	if (!look_there(d, path) || look_yes(d, path))
		return;
	/* Only where the kernel could. */
	if (!look_there(d, debugfs))
		return;
	found(d, "guest", NULL, "the module was loaded with %s=N: %s", parameter, what);
	remedy(d, "remove %s=N from /etc/modprobe.d, and reboot", parameter);
}

static void frontswap_off(struct doctor *d)
{
	attachment_off(d, "frontswap", "/sys/kernel/debug/frontswap", "no swap goes to the host");
}

static void cleancache_off(struct doctor *d)
{
	attachment_off(d, "cleancache", "/sys/kernel/debug/cleancache",
		       "no clean pages of files go to the host");
}

/* ---- What else swaps --------------------------------------------------------------------------
 */

static void no_swap(struct doctor *d)
{
	if (swap_bytes(d, true) + swap_bytes(d, false))
		return;
	found(d, "guest", NULL, "no swap is on: the kernel offers pages on their way to swap only");
	remedy(d, "swapon a disk or file as large as what may be swapped");
}

static void zram_first(struct doctor *d)
{
	struct swap swaps[MAX_SWAPS];
	int n = look_swaps(d, swaps, MAX_SWAPS);
	const struct swap *disk = NULL;

	for (int i = 0; i < n; i++)
		if (!swaps[i].zram && (!disk || swaps[i].priority > disk->priority))
			disk = &swaps[i];
	for (int i = 0; i < n; i++) {
		if (!swaps[i].zram || (disk && swaps[i].priority < disk->priority))
			continue;
		found(d, "guest", NULL,
		      "%s (priority %d) comes before %s: what the host does not take fills this "
		      "guest's own memory",
		      swaps[i].name, swaps[i].priority, disk ? disk->name : "any disk");
		remedy(d, "swapoff %s, or swapon it with a lower priority than a disk",
		       swaps[i].name);
	}
}

static void zswap(struct doctor *d)
{
	if (!look_yes(d, "/sys/module/zswap/parameters/enabled"))
		return;
	found(d, "guest", NULL,
	      "zswap is on: it keeps pages in this guest's own memory, those that the host refuses "
	      "or, where only one of the two can be, all");
	remedy(d, "echo N > /sys/module/zswap/parameters/enabled, and zswap.enabled=0 on the "
		  "kernel's command line");
}

static void swap_beyond(struct doctor *d)
{
	struct swap swaps[MAX_SWAPS];
	int n = look_swaps(d, swaps, MAX_SWAPS);
	uint64_t gib;

	if (!look_number(d, "/sys/module/tmem/parameters/max_swap_gb", "", &gib))
		return;
	for (int i = 0; i < n; i++) {
		if (swaps[i].bytes <= gib << 30)
			continue;
		found(d, "guest", NULL,
		      "%s is larger than max_swap_gb=%" PRIu64 ": the rest of it "
		      "is not offered to the host",
		      swaps[i].name, gib);
		remedy(d,
		       "options tmem max_swap_gb=%" PRIu64
		       " in /etc/modprobe.d/tmem.conf, and reboot",
		       (swaps[i].bytes >> 30) + 1);
	}
}

static void readahead(struct doctor *d)
{
	uint64_t cluster;

	if (!look_number(d, "/proc/sys/vm/page-cluster", "", &cluster) || cluster <= 1)
		return;
	found(d, "guest", NULL,
	      "vm.page-cluster is %" PRIu64 ": %d pages are read at once, which was made for disks",
	      cluster, 1 << (cluster < 30 ? cluster : 30));
	remedy(d, "sysctl vm.page-cluster=0, and in /etc/sysctl.d");
}

/* ---- What the counters say ------------------------------------------------------------------- */

/* One offered page in ten. */
static bool is_much(const struct doctor *d, uint64_t n)
{
	return n * 10 > counter(d, "stores");
}

static void no_slot(struct doctor *d)
{
	uint64_t n = counter(d, "stores_no_slot");

	if (!n || !is_much(d, n))
		return;
	found(d, "guest", NULL,
	      "%" PRIu64 " of %" PRIu64
	      " pages could not be offered: parts of huge pages, or beyond "
	      "max_swap_gb",
	      n, counter(d, "stores"));
	remedy(d, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

static void refused(struct doctor *d)
{
	uint64_t room = counter(d, "stores_no_room"), maximum = counter(d, "stores_maximum");
	uint64_t frozen = counter(d, "stores_frozen"), late = counter(d, "stores_timed_out");
	uint64_t sum = room + maximum + frozen + late;

	if (!sum || !is_much(d, sum))
		return;
	found(d, "guest", NULL,
	      "the host refused %" PRIu64 " of %" PRIu64 " pages: no room %" PRIu64
	      ", maximum %" PRIu64 ", frozen %" PRIu64 ", too late %" PRIu64,
	      sum, counter(d, "stores"), room, maximum, frozen, late);
	remedy(d, "ask the host's operator (tmemctl doctor there), or give this guest more memory");
}

static void lost_pages(struct doctor *d)
{
	uint64_t damaged = counter(d, "loads_damaged"), failed = counter(d, "posted_failed");

	if (!damaged && !failed)
		return;
	found(d, "guest", NULL,
	      "%" PRIu64 " answers came without the page, %" PRIu64
	      " accepted pages were refused afterwards: programs that need them wait for ever",
	      damaged, failed);
	remedy(d,
	       "restart this guest; on the host look at its memory and its log (tmemctl doctor)");
}

const struct check guest_checks[] = {
	{"no-device", SEVERITY_ERROR, no_device},
	{"no-module", SEVERITY_ERROR, no_module},
	{"no-counters", SEVERITY_NOTE, no_counters},
	{"link-down", SEVERITY_ERROR, link_state},
	{"link-polling", SEVERITY_WARNING, link_polling},
	{"pages-lost", SEVERITY_ERROR, lost_pages},
	{"no-swap", SEVERITY_WARNING, no_swap},
	{"zram-first", SEVERITY_WARNING, zram_first},
	{"guest-zswap", SEVERITY_WARNING, zswap},
	{"frontswap-off", SEVERITY_WARNING, frontswap_off},
	{"cleancache-off", SEVERITY_NOTE, cleancache_off},
	{"swap-beyond", SEVERITY_WARNING, swap_beyond},
	{"pages-not-offered", SEVERITY_WARNING, no_slot},
	{"pages-refused", SEVERITY_WARNING, refused},
	{"readahead", SEVERITY_NOTE, readahead},
	{0},
};
