/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CHECK() for tests that are a list of cases: says what did not hold, and ends with status 1. */
#ifndef TMEMD_TESTS_CHECK_H
#define TMEMD_TESTS_CHECK_H

#include <stdio.h>
#include <unistd.h>

#define CHECK(cond, fmt, ...)                                                                      \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "FAIL: %s:%d: %s: " fmt "\n", __FILE__, __LINE__, #cond,   \
				##__VA_ARGS__);                                                    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#endif
