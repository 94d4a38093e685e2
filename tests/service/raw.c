// SPDX-License-Identifier: GPL-2.0-or-later
#include "raw.h"
#include "tools/client/tmem_client_priv.h"

void raw_take(struct raw *raw, struct tmem_client *client, uint32_t n)
{
	size_t bytes;
	uint8_t *base = (uint8_t *)tmem_client_region(client, &bytes) + tmem_ring_off(0, n);

	raw->client = client;
	raw->n = n;
	raw->ctl = (struct tmem_ring_ctl *)base;
	raw->sq = (uint16_t *)(base + tmem_ring_sq_off());
	raw->entries = (struct tmem_entry *)(base + tmem_ring_entries_off(n));
	raw->slots = base + tmem_ring_slots_off(n);
}

void raw_open(struct raw *raw, const char *name, uint32_t n)
{
	raw_take(raw, player_open(name, 1, n), n);
}

void raw_ring(struct raw *raw, uint32_t tail)
{
	__atomic_store_n(&raw->ctl->sq_tail, tail, __ATOMIC_SEQ_CST);
	tmem_ring_bell(raw->client, 0);
}

int raw_call(struct raw *raw, struct tmem_entry entry)
{
	uint32_t tail = raw->ctl->sq_tail;
	struct tmem_entry *e = &raw->entries[tail % raw->n];

	if (!entry.seq)
		entry.seq = tail + 1;
	*e = entry;
	e->done = entry.seq - 1;
	raw->sq[tail % raw->n] = (uint16_t)(tail % raw->n);
	raw_ring(raw, tail + 1);
	EVENTUALLY(__atomic_load_n(&e->done, __ATOMIC_ACQUIRE) == entry.seq);
	return e->status;
}
