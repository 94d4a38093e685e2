/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TMEMD_TESTS_FUZZ_LOADS_H
#define TMEMD_TESTS_FUZZ_LOADS_H

/* Called before each load from memory that the fronts do, when they are built for fuzzing. */
extern void (*fuzz_on_load)(const void *address);

#endif
