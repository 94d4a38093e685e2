/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A ring that the test writes itself: for guests that do not keep the rules. */
#ifndef TMEMD_TESTS_RAW_H
#define TMEMD_TESTS_RAW_H

#include "player.h"

struct raw {
	struct tmem_client *client;
	struct tmem_ring_ctl *ctl;
	uint16_t *sq;
	struct tmem_entry *entries;
	uint8_t *slots;
	uint32_t n;
};

/* Ring 0 of the client's life, which has `n` entries; the library must not be used on it. */
void raw_take(struct raw *raw, struct tmem_client *client, uint32_t n);

/* A new client with one ring. */
void raw_open(struct raw *raw, const char *name, uint32_t n);

/* Writes the tail and rings. */
void raw_ring(struct raw *raw, uint32_t tail);

/* Submits one entry as it is (seq 0: the right one) and returns its status. */
int raw_call(struct raw *raw, struct tmem_entry entry);

#endif
