/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A disk of a domain and tmemd's control protocol. */
#ifndef TMEM_LIBVIRT_REQUEST_H
#define TMEM_LIBVIRT_REQUEST_H

#include <jansson.h>

#include "tools/libvirt/domain.h"

/* The request that makes a disk as it is recorded. The caller owns it. */
json_t *request_create(const struct domain_device *dev);

/* A request about the disk of that name. The caller owns it. */
json_t *request_about_disk(const char *command, const char *name);

/* Takes over what tmemd says that a disk is, or what a request asks for. */
void request_take(struct domain_device *dev, json_t *object);

/* The disk or client of that name in a `disk-list` or `list`; borrowed from it, NULL: none. */
json_t *request_find(json_t *list, const char *key, const char *name);

#endif
