// SPDX-License-Identifier: GPL-2.0-or-later
/* What else on the host compresses or swaps the memory of its guests. */
#include "config.h"

#include "tools/tmemctl/doctor.h"
#include "tools/tmemctl/tmemctl.h"

static void zswap(struct doctor *d)
{
	if (!look_yes(d, "/sys/module/zswap/parameters/enabled") ||
	    !(swap_bytes(d, true) + swap_bytes(d, false)))
		return;
	found(d, "host", NULL,
	      "zswap is on: guests' memory that the host swaps is compressed in a second pool, "
	      "beside pool_max");
	remedy(d, "echo N > /sys/module/zswap/parameters/enabled, and zswap.enabled=0 on the "
		  "kernel's command line");
}

static void zram(struct doctor *d)
{
	uint64_t bytes = swap_bytes(d, true);
	char text[16];

	if (!bytes)
		return;
	print_size((double)bytes, text);
	found(d, "host", NULL,
	      "it swaps to zram (%s): guests' memory is compressed in a second pool, beside "
	      "pool_max",
	      text);
	remedy(d, "swapoff it, and size the VMs smaller instead: they swap to tmem");
}

const struct check host_checks[] = {
	{"host-zswap", SEVERITY_WARNING, zswap},
	{"host-zram", SEVERITY_WARNING, zram},
	{0},
};
