/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What makes a page safe with people whom nobody trusts: AES-256-GCM.
 *
 * A page's stored bytes are encrypted in place; the tag stays with the owner, so that the holder
 * has as many bytes as the page had, and cannot exchange them for others that were sealed as well,
 * older ones of the same page included. What the page is (seal_of) goes into the tag.
 *
 * The nonce is the number of the blob, which is used once in the life of an arena and in it of one
 * client's key. Nothing here allocates, but for seal_new().
 */
#ifndef TMEMD_STORE_SEAL_H
#define TMEMD_STORE_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#define SEAL_KEY 32u
#define SEAL_TAG 16u

/* The page that is sealed. No padding: its bytes are authenticated as they are. */
struct seal_of {
	uint64_t object[3];
	uint64_t seq;
	uint32_t pool; /* record */
	uint32_t index;
	uint32_t len;
	uint32_t codec;
};

_Static_assert(sizeof(struct seal_of) == 48, "no padding");

/* One client's key, ready for use; each function may be called from any thread. */
struct seal;

/* NULL: no memory. */
struct seal *seal_new(const uint8_t key[SEAL_KEY]);
void seal_free(struct seal *seal); /* forgets the key; NULL is fine */

/* Encrypts of->len bytes in place and makes their tag. False: the library refused. */
bool seal_close(struct seal *seal, uint64_t nonce, const struct seal_of *of, uint8_t *bytes,
		uint8_t tag[SEAL_TAG]);

/* Decrypts in place. False: these are not the bytes that were sealed; they are worthless then. */
bool seal_open(struct seal *seal, uint64_t nonce, const struct seal_of *of, uint8_t *bytes,
	       const uint8_t tag[SEAL_TAG]);

#endif
