// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The module: parameters, start, hibernation, and what happens to those who wait too long.
 *
 * There is no way to take it out again: frontswap has no unregister, and pages that the host has
 * can be had only through it. Without an exit function the kernel keeps it.
 */
#include "tmem_priv.h"

#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/suspend.h>

#if !defined(TMEM_FRONTSWAP) && !defined(TMEM_CLEANCACHE) && !defined(TMEM_SELFTEST)
#error "this kernel has neither frontswap nor cleancache (they went with 5.17 to 6.5)"
#endif

#define REPORT_AFTER 10	       /* seconds */
#define REPORT_EVERY (30 * HZ) /* jiffies */

static bool frontswap = true;
module_param(frontswap, bool, 0444);
MODULE_PARM_DESC(frontswap, "keep swapped pages at the host (default Y)");

static bool cleancache = true;
module_param(cleancache, bool, 0444);
MODULE_PARM_DESC(cleancache,
		 "keep clean pages of files at the host, where the kernel can (default Y)");

unsigned int tmem_spin_us = 200;
module_param_named(spin_us, tmem_spin_us, uint, 0644);
MODULE_PARM_DESC(
	spin_us,
	"how long to spin for an answer before sleeping at most, in microseconds (default 200)");

unsigned int tmem_put_timeout_ms = 1000;
module_param_named(put_timeout_ms, tmem_put_timeout_ms, uint, 0644);
MODULE_PARM_DESC(put_timeout_ms,
		 "a page not accepted in this time goes to the disk (default 1000)");

unsigned int tmem_service_timeout_ms = 2000;
module_param_named(service_timeout_ms, tmem_service_timeout_ms, uint, 0644);
MODULE_PARM_DESC(service_timeout_ms,
		 "the service is away when it gives no sign of life for so long (default 2000)");

static unsigned int panic_after;
module_param(panic_after, uint, 0644);
MODULE_PARM_DESC(panic_after, "panic when a swapped page has been waited for so many seconds; 0: "
			      "wait for ever (default)");

unsigned int tmem_max_swap_gb = 64;
module_param_named(max_swap_gb, tmem_max_swap_gb, uint, 0444);
MODULE_PARM_DESC(max_swap_gb, "part of each swap device that is served, in GiB (default 64)");

unsigned int tmem_flush_entries = 2048;
module_param_named(flush_entries, tmem_flush_entries, uint, 0444);
MODULE_PARM_DESC(flush_entries,
		 "flushes of file pages that can be pending; more empty the pool (default 2048)");

/* At most one line in REPORT_EVERY, whoever waits. */
static void report_wait(unsigned long waited, const char *why)
{
	static unsigned long next;
	unsigned long now = jiffies;

	if (waited < REPORT_AFTER || (next && time_before(now, READ_ONCE(next))))
		return;
	WRITE_ONCE(next, (now + REPORT_EVERY) | 1);
	pr_warn("a swapped page is being waited for since %lu s: %s\n", waited, why);
}

void tmem_load_waits(unsigned long start, const char *why)
{
	unsigned int limit = READ_ONCE(panic_after);
	unsigned long waited = (jiffies - start) / HZ;

	tmem_count(loads_waited);
	report_wait(waited, why);
	if (limit && waited >= limit && !tmem_link_gone())
		panic("tmem: a swapped page could not be had for %lu s: %s", waited, why);
}

/*
 * An image on the disk outlives the host's pages, so there must be none. Swapoff and swapon bring
 * them home.
 */
static int power_event(struct notifier_block *block, unsigned long event, void *unused)
{
	switch (event) {
	case PM_HIBERNATION_PREPARE:
		if (!tmem_link_suspend())
			return NOTIFY_OK;
		pr_err("no hibernation: the host holds %ld pages; use swapoff first\n",
		       tmem_pools_held());
		return notifier_from_errno(-EBUSY);
	case PM_POST_HIBERNATION:
		tmem_link_resume();
		return NOTIFY_OK;
	default:
		return NOTIFY_DONE;
	}
}

static struct notifier_block power_block = {.notifier_call = power_event};

static int __init tmem_init(void)
{
	int rc;

	tmem_rings_setup();
	tmem_stripes_setup();
	tmem_pools_setup();
	rc = tmem_flush_setup();
	if (rc)
		return rc;
	rc = tmem_link_setup();
	if (rc)
		goto fail;
	rc = register_pm_notifier(&power_block);
	if (rc)
		goto fail;
	rc = tmem_ivshmem_register();
	if (rc)
		goto fail_notifier;
	/* From here on there is no way back. */
	rc = tmem_xen_register();
	if (rc)
		pr_err("no device of Xen can be had: error %d\n", rc);
	tmem_stats_setup();
	tmem_link_wait_up();
	rc = frontswap ? tmem_frontswap_register() : 0;
	if (rc && rc != -EOPNOTSUPP)
		pr_err("frontswap could not be had: error %d\n", rc);
	rc = cleancache ? tmem_cleancache_register() : 0;
	if (rc && rc != -EOPNOTSUPP)
		pr_err("cleancache could not be had: error %d\n", rc);
	tmem_bring_back_setup();
	return 0;
fail_notifier:
	unregister_pm_notifier(&power_block);
fail:
	tmem_link_stop();
	tmem_flush_free();
	return rc;
}

module_init(tmem_init);
MODULE_DESCRIPTION("Transcendent memory: swapped and clean pages kept by the host's tmemd");
MODULE_AUTHOR("The tmemd authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(TMEM_MODULE_VERSION);
