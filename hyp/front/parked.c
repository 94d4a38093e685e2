// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entries of a ring that wait for pages that are away: at a peer host, or on a disk.
 *
 * What follows in the ring does not wait for them, for a page can be away for as long as its holder
 * is. Only what concerns the same page does: guests rely on the order of operations on one handle.
 * A parked entry is not done, so the next run of the service finds it as it finds all that is left.
 */
#include "front_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM (TMEM_MAX_RINGS * (size_t)TMEM_MAX_ENTRIES * sizeof(struct parked))

int parked_open(struct front_client *client)
{
	struct parked *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		return -ENOMEM;
	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++)
		client->rings[i].parked = room + (size_t)i * TMEM_MAX_ENTRIES;
	return 0;
}

void parked_close(struct front_client *client)
{
	if (client->rings[0].parked)
		munmap(client->rings[0].parked, ROOM);
	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++)
		client->rings[i].parked = NULL;
}

/* Do both concern a page, when executed one after the other? */
static bool meet(const struct tmem_entry *a, const struct tmem_entry *b)
{
	if (a->pool != b->pool)
		return false;
	if (a->op == TMEM_DESTROY_POOL || b->op == TMEM_DESTROY_POOL)
		return true;
	if (memcmp(a->object, b->object, sizeof(a->object)) != 0)
		return false;
	return a->op == TMEM_FLUSH_OBJECT || b->op == TMEM_FLUSH_OBJECT || a->index == b->index;
}

bool parked_before(const struct ring *ring, unsigned nr, const struct tmem_entry *entry)
{
	for (unsigned i = 0; i < nr; i++)
		if (meet(&ring->parked[i].entry, entry))
			return true;
	return false;
}

void parked_add(struct ring *ring, const struct parked *parked)
{
	ring->parked[ring->nr_parked++] = *parked;
}

bool parked_pending(const struct ring *ring)
{
	return ring->nr_parked && atomic_load_explicit(&ring->come, memory_order_relaxed);
}

unsigned parked_retry(struct ring *ring,
		      bool (*attempt)(struct ring *ring, const struct parked *parked))
{
	unsigned kept = 0, nr = ring->nr_parked;

	/* What comes from here on is heard of again. */
	atomic_exchange(&ring->come, false);
	for (unsigned i = 0; i < nr; i++) {
		const struct parked *parked = &ring->parked[i];

		if (parked_before(ring, kept, &parked->entry) || !attempt(ring, parked))
			ring->parked[kept++] = *parked;
	}
	ring->nr_parked = kept;
	return nr - kept;
}

void parked_wake(void *arg)
{
	struct front_client *client = arg;

	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++)
		if (!atomic_exchange(&client->rings[i].come, true))
			lane_wake(&client->rings[i].lane, i);
}
