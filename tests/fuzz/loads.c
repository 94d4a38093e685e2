// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A guest may change its region between two reads of the service. With --enable-fuzzers the
 * fronts are compiled so that a function is called before each load from memory; a target that
 * sets fuzz_on_load can change what is about to be read, at a point that the input chooses.
 */
#include "tests/fuzz/loads.h"

void (*fuzz_on_load)(const void *address);

/* The functions must not call themselves. */
#ifdef __clang__
#define PLAIN __attribute__((no_sanitize("coverage")))
#else
#define PLAIN
#endif

/* Names and types are the compiler's. */
#define LOADED(bytes)                                                                              \
	void __sanitizer_cov_load##bytes(const void *address);                                     \
	PLAIN void __sanitizer_cov_load##bytes(const void *address)                                \
	{                                                                                          \
		if (fuzz_on_load)                                                                  \
			fuzz_on_load(address);                                                     \
	}

LOADED(1)
LOADED(2)
LOADED(4)
LOADED(8)
LOADED(16)
