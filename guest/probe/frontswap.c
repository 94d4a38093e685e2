// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when the kernel has frontswap with the five operations that the module implements. */
#include <linux/frontswap.h>
#include <linux/swapfile.h>

#ifndef CONFIG_FRONTSWAP
#error "no frontswap in this kernel"
#endif

void probe_init(unsigned int type);
int probe_page(unsigned int type, pgoff_t slot, struct page *page);
void probe_flush(unsigned int type, pgoff_t slot);
void probe(void);

static struct frontswap_ops ops = {
	.init = probe_init,
	.store = probe_page,
	.load = probe_page,
	.invalidate_page = probe_flush,
	.invalidate_area = probe_init,
};

void probe(void)
{
	frontswap_register_ops(&ops);
}
