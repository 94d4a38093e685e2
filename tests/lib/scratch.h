/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A directory of the test's own on memory, for its arenas. A process that does nothing else
 * removes it when the test and all its children have ended, in whatever way they end.
 */
#ifndef TMEMD_TESTS_SCRATCH_H
#define TMEMD_TESTS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKIPPED 77 /* exit status: could not run here; the reason was printed */

/* Makes /dev/shm/tmemd-NAME-XXXXXX; ends the program when that fails. One a program. */
const char *scratch_make(const char *name);

/*
 * Mounts a tmpfs of `bytes` (0: half of memory) on the directory; huge: NULL, "always", "advise".
 * False with errno when that is not possible, e.g. without root.
 */
bool scratch_mount(uint64_t bytes, const char *huge);

/* Path of `file` in the directory; four calls may be in use at a time. */
const char *scratch_path(const char *file);

/* TMEMD_TEST_SCALE: percent of a test's normal work, for slow builds; n scaled, at least 1. */
uint64_t test_scaled(uint64_t n);

/* Seed from the clock, for a test that was given none. */
uint64_t test_seed(void);

#endif
