// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two bits for each slot of a swap device: held (the host has accepted the page and it was not
 * flushed) and pending (the host has to hear of a flush). They lie in chunks of one page, made
 * ahead: when the device is switched on, for as many slots as four times the memory of the guest,
 * and later, in the background, for the real size of the device, which a store tells us (the
 * kernel does not say it at swapon). A store to a slot that has no chunk goes to the disk.
 *
 * A bit is changed only under the lock of its handle's stripe, but for clearing all.
 */
#include "tmem_priv.h"

#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/workqueue.h>

#define CHUNK_SHIFT 14
#define CHUNK_SLOTS (1u << CHUNK_SHIFT)
#define CHUNK_LONGS (CHUNK_SLOTS / BITS_PER_LONG)
#define MEMORY_MULTIPLE 4

struct chunk {
	unsigned long held[CHUNK_LONGS];
	unsigned long pending[CHUNK_LONGS];
};

struct chunk_ref {
	struct chunk *chunk;
	atomic_t nr_pending;
};

struct tmem_slots {
	struct work_struct grow;
	u32 nr_chunks; /* of the table */
	u32 wanted;    /* chunks that there should be */
	atomic_long_t nr_pending;
	struct chunk_ref ref[];
};

/* Makes chunks up to `wanted`; the first failure ends it, a later store asks again. */
static void grow(struct tmem_slots *slots)
{
	u32 i, wanted = min(READ_ONCE(slots->wanted), slots->nr_chunks);
	struct chunk *chunk;

	for (i = 0; i < wanted; i++) {
		if (slots->ref[i].chunk)
			continue;
		chunk = (struct chunk *)get_zeroed_page(GFP_KERNEL | __GFP_NOWARN);
		if (!chunk)
			return;
		smp_store_release(&slots->ref[i].chunk, chunk);
	}
}

static void grow_work(struct work_struct *work)
{
	grow(container_of(work, struct tmem_slots, grow));
}

struct tmem_slots *tmem_slots_alloc(void)
{
	u32 nr = max_t(u64, 1, (u64)tmem_max_swap_gb << (30 - PAGE_SHIFT - CHUNK_SHIFT));
	struct tmem_slots *slots;

	BUILD_BUG_ON(sizeof(struct chunk) != PAGE_SIZE);
	slots = kvzalloc(struct_size(slots, ref, nr), GFP_KERNEL);
	if (!slots)
		return NULL;
	INIT_WORK(&slots->grow, grow_work);
	slots->nr_chunks = nr;
	slots->wanted = DIV_ROUND_UP(totalram_pages() * MEMORY_MULTIPLE, CHUNK_SLOTS);
	grow(slots);
	return slots;
}

void tmem_slots_free(struct tmem_slots *slots)
{
	u32 i;

	if (!slots)
		return;
	cancel_work_sync(&slots->grow);
	for (i = 0; i < slots->nr_chunks; i++)
		free_page((unsigned long)slots->ref[i].chunk);
	kvfree(slots);
}

/* Slots of the device that the page is being written to, from the size of what lies below. */
static u64 device_slots(struct page *page)
{
#ifdef TMEM_FRONTSWAP
	struct address_space *mapping = page_file_mapping(page);

	return mapping ? i_size_read(mapping->host) >> PAGE_SHIFT : 0;
#else
	return 0; /* nobody stores, and later kernels have no such function */
#endif
}

static struct chunk_ref *ref_of(struct tmem_slots *slots, u64 slot)
{
	u64 i = slot >> CHUNK_SHIFT;

	return i < slots->nr_chunks && smp_load_acquire(&slots->ref[i].chunk) ? &slots->ref[i]
									      : NULL;
}

bool tmem_slots_ready(struct tmem_slots *slots, u64 slot, struct page *page)
{
	u64 wanted = DIV_ROUND_UP_ULL(device_slots(page), CHUNK_SLOTS);
	bool ready = ref_of(slots, slot) != NULL;

	wanted = min_t(u64, wanted, slots->nr_chunks);
	if (wanted > READ_ONCE(slots->wanted))
		WRITE_ONCE(slots->wanted, wanted);
	else if (ready || slot >> CHUNK_SHIFT >= slots->nr_chunks)
		return ready;
	schedule_work(&slots->grow);
	return ready;
}

bool tmem_slot_held(struct tmem_slots *slots, u64 slot)
{
	struct chunk_ref *ref = ref_of(slots, slot);

	return ref && test_bit(slot & (CHUNK_SLOTS - 1), ref->chunk->held);
}

bool tmem_slot_set_held(struct tmem_slots *slots, u64 slot, bool held)
{
	struct chunk_ref *ref = ref_of(slots, slot);
	u32 bit = slot & (CHUNK_SLOTS - 1);

	if (!ref)
		return false;
	return held ? test_and_set_bit(bit, ref->chunk->held)
		    : test_and_clear_bit(bit, ref->chunk->held);
}

bool tmem_slot_set_pending(struct tmem_slots *slots, u64 slot, bool pending)
{
	struct chunk_ref *ref = ref_of(slots, slot);
	u32 bit = slot & (CHUNK_SLOTS - 1);
	bool was;

	if (!ref)
		return false;
	was = pending ? test_and_set_bit(bit, ref->chunk->pending)
		      : test_and_clear_bit(bit, ref->chunk->pending);
	if (was != pending) {
		atomic_add(pending ? 1 : -1, &ref->nr_pending);
		atomic_long_add(pending ? 1 : -1, &slots->nr_pending);
	}
	return was;
}

long tmem_slots_pending(struct tmem_slots *slots)
{
	return atomic_long_read(&slots->nr_pending);
}

u64 tmem_slots_next_pending(struct tmem_slots *slots, u64 from)
{
	u32 i = from >> CHUNK_SHIFT, bit = from & (CHUNK_SLOTS - 1);

	for (; i < slots->nr_chunks; i++, bit = 0) {
		if (!atomic_read(&slots->ref[i].nr_pending))
			continue;
		bit = find_next_bit(slots->ref[i].chunk->pending, CHUNK_SLOTS, bit);
		if (bit < CHUNK_SLOTS)
			return ((u64)i << CHUNK_SHIFT) + bit;
	}
	return U64_MAX;
}

void tmem_slots_clear_pending(struct tmem_slots *slots)
{
	u64 slot = 0;

	while ((slot = tmem_slots_next_pending(slots, slot)) != U64_MAX)
		tmem_slot_set_pending(slots, slot, false);
}
