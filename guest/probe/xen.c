// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when the kernel can be a domain of Xen, with the bus that devices come by. */
#include <linux/kconfig.h>
#include <xen/events.h>
#include <xen/grant_table.h>
#include <xen/xenbus.h>

#if !IS_ENABLED(CONFIG_XEN_XENBUS_FRONTEND)
#error "no Xen devices in this kernel"
#endif

int probe(struct xenbus_driver *driver);

int probe(struct xenbus_driver *driver)
{
	return xenbus_register_frontend(driver);
}
