// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when the removal of a Xen device returns an error number. */
#include <xen/xenbus.h>

static_assert(__same_type(((struct xenbus_driver *)0)->remove, (int (*)(struct xenbus_device *))0));
