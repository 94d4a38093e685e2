// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Brings swapped pages back into this guest's memory when there is plenty of it again, so that the
 * host gets its own back: at most bring_back pages a second, and only while a quarter of the
 * guest's memory is free. Off by default.
 */
#include "tmem_priv.h"

#include <linux/module.h>

static unsigned int bring_back;
module_param(bring_back, uint, 0644);
MODULE_PARM_DESC(bring_back,
		 "swapped pages brought back a second while memory is plenty; 0: none (default)");

#ifdef TMEM_FRONTSWAP_SHRINK

#include <linux/frontswap.h>
#include <linux/mm.h>
#include <linux/workqueue.h>

static void bring_back_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(bring_back_again, bring_back_work);

static void bring_back_work(struct work_struct *work)
{
	unsigned long pages = READ_ONCE(bring_back), there = frontswap_curr_pages();
	struct sysinfo info;

	si_meminfo(&info);
	if (pages && there && tmem_link_up() && info.freeram > info.totalram / 4) {
		frontswap_shrink(there - min(pages, there));
		tmem_count_add(brought_back, there - min(there, frontswap_curr_pages()));
	}
	queue_delayed_work(system_unbound_wq, &bring_back_again, HZ);
}

void tmem_bring_back_setup(void)
{
	queue_delayed_work(system_unbound_wq, &bring_back_again, HZ);
}

#else

void tmem_bring_back_setup(void)
{
}

#endif
