// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Credits: a ring's number counts what was granted and not yet used by an executed entry. It is
 * the word that the guest sees plus the credits that the guest has taken for entries that were
 * not executed yet. The sum over the rings, plus the reserve that an attachment leaves, is what
 * the store has reserved for the client.
 */
#include "front_priv.h"

#include "base/fault.h"

bool ring_credit_use(struct ring *ring)
{
	uint32_t reserve;

	if (ring->credits) {
		ring->credits--;
		return true;
	}
	reserve = atomic_load(&ring->client->reserve);
	while (reserve)
		if (atomic_compare_exchange_weak(&ring->client->reserve, &reserve, reserve - 1))
			return true;
	return false;
}

/* The guest may have written anything into the word: it gets back no more than it was given. */
static void take_back(struct ring *ring)
{
	uint32_t n = __atomic_exchange_n(&ring->ctl->credits, 0, __ATOMIC_ACQ_REL);

	if (n > ring->credits)
		n = ring->credits;
	if (!n)
		return;
	ring->credits -= n;
	fault(FAULT_CREDIT_TAKEN);
	store_credits_revoke(ring->client->store, n);
}

static void refill(struct ring *ring)
{
	uint32_t target = atomic_load(&ring->client->ring_credits);
	uint32_t want, got;

	if (target > ring->n / 2)
		target = ring->n / 2;
	if (ring->credits >= target)
		return;
	want = target - ring->credits;
	if (want < target / 4)
		return;
	got = store_credits_grant(ring->client->store, want);
	if (got < want)
		atomic_store(&ring->client->front->credits_short, true);
	if (!got)
		return;
	ring->credits += got;
	__atomic_fetch_add(&ring->ctl->credits, got, __ATOMIC_ACQ_REL);
}

void ring_credits_step(struct ring *ring)
{
	struct front_client *client = ring->client;
	struct store *store = client->front->store;

	if (!(client->features & TMEM_F_POSTED))
		return;
	if (store_wants_credits_back(store) || store_frozen(store) ||
	    store_client_frozen(client->store)) {
		atomic_store(&client->front->credits_short, true);
		take_back(ring);
	} else {
		refill(ring);
	}
}

void client_credits_end(struct front_client *client)
{
	unsigned reserved = store_credits(client->store);

	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++)
		client->rings[i].credits = 0;
	atomic_store(&client->reserve, 0);
	if (reserved)
		store_credits_revoke(client->store, reserved);
}

void client_credits_attach(struct front_client *client)
{
	atomic_store(&client->reserve, store_credits(client->store));
}

/*
 * What remains when the words are counted was either taken by the guest for entries whose tail
 * it had not yet raised, or recorded and not yet given. The first must be honoured, and there can
 * be no more of them than entries; the rest goes back.
 */
void client_credits_divide(struct front_client *client)
{
	unsigned left = atomic_load(&client->reserve);
	unsigned entries = client->nr_rings * client->entries;

	for (unsigned i = 0; i < client->nr_rings; i++) {
		struct ring *ring = &client->rings[i];
		uint32_t word = READ_ONCE(ring->ctl->credits);

		/* More than there are: not our doing. */
		if (word > left) {
			__atomic_store_n(&ring->ctl->credits, 0, __ATOMIC_RELEASE);
			word = 0;
		}
		ring->credits = word;
		left -= word;
	}
	if (left > entries) {
		store_credits_revoke(client->store, left - entries);
		left = entries;
	}
	atomic_store(&client->reserve, left);
}
