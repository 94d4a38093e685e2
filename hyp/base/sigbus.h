/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory that somebody else can take away under us: files of guests that we have mapped. */
#ifndef TMEMD_BASE_SIGBUS_H
#define TMEMD_BASE_SIGBUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Installs the handler, for the whole process. From then on an access to watched memory whose file
 * was cut, or that the full file system cannot back, finds zeroes, and the memory is marked lost.
 * 0 or a negated errno. Once is enough.
 */
int sigbus_install(void);

/*
 * `base` and `bytes` of a whole mapping (in huge pages: multiples of these). *lost stays valid
 * until sigbus_unwatch(). 0 or -ENOSPC. Any thread.
 */
int sigbus_watch(void *base, size_t bytes, _Atomic bool **lost);

/* Before the mapping goes. What is not watched is ignored. Any thread. */
void sigbus_unwatch(void *base);

#endif
