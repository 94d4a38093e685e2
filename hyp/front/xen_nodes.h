/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What stands in xenstore and in directory pages, read and checked. Needs no Xen: see docs/xen.md
 * for the meaning.
 */
#ifndef TMEMD_FRONT_XEN_NODES_H
#define TMEMD_FRONT_XEN_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tmem_abi.h"

#define XEN_REGION_MIN (1ull << 20)
#define XEN_REGION_MAX (64ull << 20) /* a guest has some 30000 grants for all its devices */
#define XEN_DIRECTORY_REFS (TMEM_PAGE_SIZE / sizeof(uint32_t)) /* grants in one directory page */
#define XEN_MAX_DIRECTORIES (XEN_REGION_MAX / TMEM_PAGE_SIZE / XEN_DIRECTORY_REFS)
#define XEN_TEXT_MAX 64 /* of a node that means anything, with the final zero */

/* What the back end offers. */
struct xen_offer {
	uint64_t bytes;
	unsigned rings;
};

/* What the front end chose and granted. */
struct xen_choice {
	uint64_t bytes;
	unsigned rings;				 /* and event channels */
	uint32_t directory[XEN_MAX_DIRECTORIES]; /* grants of the pages that list the region's */
	uint32_t port[TMEM_MAX_RINGS];		 /* the front end's event channels */
};

/* Puts the text of a node of the front end's directory into `text`. False: there is none. */
typedef bool (*xen_read_fn)(void *arg, const char *node, char text[XEN_TEXT_MAX]);

/* Decimal digits alone, not above max. 0 or -EINVAL. */
int xen_number(const char *text, uint64_t max, uint64_t *value);

/* The text form of a UUID, with or without hyphens; its 16 bytes are the two words' memory. */
int xen_uuid(const char *text, uint64_t uuid[2]);

static inline unsigned xen_pages(uint64_t bytes)
{
	return (unsigned)(bytes / TMEM_PAGE_SIZE);
}

static inline unsigned xen_directories(uint64_t bytes)
{
	return (xen_pages(bytes) + XEN_DIRECTORY_REFS - 1) / XEN_DIRECTORY_REFS;
}

/*
 * Reads each node once and checks it. 0, or -EINVAL (-ENOENT: a node is missing) with a sentence
 * in `why`.
 */
int xen_choice_read(struct xen_choice *choice, const struct xen_offer *offer, xen_read_fn read,
		    void *arg, char *why, size_t whylen);

/* Copies `nr` grants out of a directory page that the guest may be writing to. */
void xen_directory_copy(uint32_t *refs, unsigned nr, const void *page);

#endif
