/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hook that ends the process when a thread allocates, frees or maps while it must not.
 *
 * noalloc.c has the allocator's functions and the mapping calls, for all libraries of the process
 * too: linked into a test, or preloaded into tmemd by tests/service/noalloc_hook.c. Not together
 * with a sanitizer, which has these functions itself.
 */
#ifndef TMEMD_TESTS_NOALLOC_H
#define TMEMD_TESTS_NOALLOC_H

#include <stdbool.h>

#define NOALLOC_STATUS 86 /* exit status of a process that did it */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NOALLOC_SKIPS "skipped: a sanitizer has the allocator's functions, and faults of its own"
#endif

/* Of the calling thread. initial-exec: reaching it in a preloaded library must not allocate. */
extern _Thread_local bool noalloc_forbidden __attribute__((tls_model("initial-exec")));

#endif
