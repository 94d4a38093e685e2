/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How people write sizes, in the configuration and on the command line: 4096, 64K, 256M, 2G, 1T. */
#ifndef TMEM_SIZE_H
#define TMEM_SIZE_H

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* What may be written, for error messages. */
#define TMEM_SIZE_FORM "a number of bytes, with K, M, G or T for 1024 and its powers"

/* 0 with *bytes, or -1 when `text` is no size or above 2^63 - 1. Suffixes in either case. */
static inline int tmem_size_parse(const char *text, uint64_t *bytes)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	uint64_t n = 0;

	if (!isdigit((unsigned char)*text))
		return -1;
	for (; isdigit((unsigned char)*text); text++) {
		if (n > (INT64_MAX - 9) / 10)
			return -1;
		n = n * 10 + (uint64_t)(*text - '0');
	}
	if (*text) {
		suffix = strchr(suffixes, toupper((unsigned char)*text));
		if (!suffix || text[1])
			return -1;
		for (int i = 0; i <= suffix - suffixes; i++) {
			if (n > INT64_MAX / 1024)
				return -1;
			n *= 1024;
		}
	}
	*bytes = n;
	return 0;
}

#endif
