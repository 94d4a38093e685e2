// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when pages can be called back from frontswap. */
#include <linux/frontswap.h>

#ifndef CONFIG_FRONTSWAP
#error "no frontswap in this kernel"
#endif

unsigned long probe(void);

unsigned long probe(void)
{
	frontswap_shrink(frontswap_curr_pages());
	return 0;
}
