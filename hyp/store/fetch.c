// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pages that are away, read and brought home.
 *
 * A get begins a fetch and answers STORE_AWAY. What a holder gives is opened and checked; a holder
 * that gave something else is passed over for the next one. The page then gets a place in memory,
 * or, when there is none or its client is at its maximum, stays in the flight for whoever comes.
 *
 * That every holder has answered and none has the page is what makes it lost. While one does not
 * answer nothing is known, and it stays away.
 */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "store/store_priv.h"

#define AGAIN 1 /* another holder is to be asked */

static const struct away_rec *entry_of(const struct store *store, uint64_t word)
{
	return &store->arena.away[WORD_LOC(word)];
}

/* ---- What is not to be done again at once ---------------------------------------------------- */

bool home_protected(struct store *store, uint32_t no)
{
	const struct home_slot *slot = &store->away.home[no % HOME_SLOTS];
	bool protected;

	pthread_mutex_lock(&store->away.lock);
	protected = slot->desc == no && clock_ns() < slot->until;
	pthread_mutex_unlock(&store->away.lock);
	return protected;
}

/* False: the slot protects another page still; this one must not come home. */
static bool home_protect(struct store *store, uint32_t no)
{
	struct home_slot *slot = &store->away.home[no % HOME_SLOTS];
	uint64_t now = clock_ns();
	bool ok;

	pthread_mutex_lock(&store->away.lock);
	ok = slot->desc == no || now >= slot->until;
	if (ok) {
		slot->desc = no;
		slot->until = now + HOME_NS;
	}
	pthread_mutex_unlock(&store->away.lock);
	return ok;
}

/* away->lock held. */
static struct later_slot *later_slot(struct away *away, uint32_t no)
{
	return &away->later[no % LATER_SLOTS];
}

static void ask_later(struct store *store, const struct flight *flight)
{
	struct away *away = &store->away;
	uint64_t until = clock_ns() + LATER_NS, none = 0;
	struct later_slot *slot;

	pthread_mutex_lock(&away->lock);
	slot = later_slot(away, flight->desc);
	slot->desc = flight->desc;
	slot->seq = flight->seq;
	slot->until = until;
	pthread_mutex_unlock(&away->lock);
	atomic_compare_exchange_strong(&away->retry_at, &none, until);
}

/* away->lock held. */
static bool is_later(struct away *away, uint32_t no, uint64_t seq)
{
	const struct later_slot *slot = later_slot(away, no);

	return slot->desc == no && slot->seq == seq && clock_ns() < slot->until;
}

/* ---- Landed --------------------------------------------------------------------------------- */

/* Shard lock held. Is the page away still, as the same blob? */
bool still_away(struct store *store, const struct flight *flight)
{
	const struct desc *desc = &store->arena.descs[flight->desc - 1];
	uint64_t word = atomic_load(&desc->word);

	return pool_alive(store, &flight->key) && WORD_STATE(word) == DESC_LIVE &&
	       WORD_CODEC(word) == CODEC_AWAY && WORD_LOC(word) == flight->rec &&
	       DESC_SEQ(desc) == flight->seq;
}

/* Shard lock held, the pool alive. Opens the flight's blob in `bytes`. */
bool open_blob(struct store *store, struct flight *flight, uint8_t *bytes)
{
	const struct desc *desc = &store->arena.descs[flight->desc - 1];
	struct seal *seal = atomic_load(&store->pools[flight->key.pool].owner->seal);
	struct seal_of of = flight_of(flight);

	if (flight->request.len != flight->len || !seal ||
	    !seal_open(seal, flight->request.blob, &of, bytes, flight->tag))
		return false;
	return codec_check(bytes, flight->len, flight->key.object_hash, flight->key.index,
			   flight->seq) == desc->check;
}

/* Takes who answered out of those to be asked. False: nobody is left. */
bool others(struct tier_request *request)
{
	unsigned i = request->holders[1] && request->from == request->holders[1];

	request->holders[i] = 0;
	request->from = 0;
	return request->holders[0] || request->holders[1];
}

/* Would a place for it bring the client over its maximum? */
static bool has_leave(struct store *store, const struct flight *flight)
{
	struct store_client *owner = store->pools[flight->key.pool].owner;
	uint64_t max = atomic_load(&owner->max_bytes);
	uint64_t have = counter_get(&owner->counters[CLIENT_PHYSICAL_BYTES]) +
			counter_get(&owner->counters[CLIENT_CREDITS]) * CREDIT_BYTES;

	return !max || have + alloc_cost(&store->alloc, flight->len) <= max;
}

static void account_home(struct store *store, struct pool *pool, uint32_t more)
{
	struct store_client *owner = pool->owner;

	atomic_fetch_add(&pool->bytes, more);
	client_charge(owner, more);
	counter_sub(&owner->counters[CLIENT_PAGES_AWAY], 1);
	counter_add(&owner->counters[CLIENT_PAGES_HOME], 1);
	(void)store;
}

/* Shard lock held. Memory that is short is for those that somebody waits for. */
bool bring_home(struct store *store, struct shard *shard, struct flight *flight)
{
	struct desc *desc = &store->arena.descs[flight->desc - 1];
	uint64_t word = atomic_load(&desc->word), loc;
	uint32_t cost = page_cost(store, desc);

	if (flight->passing || (!flight->wanted && remotify_wanted(store)) ||
	    !has_leave(store, flight))
		return false;
	if (flight->kind == FLIGHT_GET && !home_protect(store, flight->desc))
		return false;
	loc = alloc_place(&store->alloc, flight->len, flight->desc, ALLOC_PLAIN);
	if (!loc)
		return false;
	memcpy(alloc_bytes(&store->alloc, loc), flight->bytes, flight->len);
	fault(FAULT_HOME_COPIED);
	atomic_store_explicit(&desc->word, DESC_WORD(DESC_LIVE, flight->codec, loc),
			      memory_order_release);
	fault(FAULT_HOME_PUBLISHED);
	shard->stored_bytes += flight->len;
	account_home(store, &store->pools[flight->key.pool], page_cost(store, desc) - cost);
	away_dropped(store, word);
	return true;
}

static void stay_here(struct store *store, struct flight *flight)
{
	struct away *away = &store->away;

	pthread_mutex_lock(&away->lock);
	away->out[flight->kind]--;
	flight->state = FLIGHT_HERE;
	flight->since = clock_ns();
	pthread_cond_broadcast(&away->landed);
	pthread_mutex_unlock(&away->lock);
}

/* Shard lock held. Every holder that is recorded has answered, and none has it. */
void is_lost(struct store *store, const struct flight *flight)
{
	struct away_rec *entry = &store->arena.away[flight->rec];

	/* They were others when they were asked: ask the new ones. */
	if (atomic_load(&entry->where) != flight->where)
		return;
	atomic_store(&entry->where, flight->where | AWAY_GONE);
	counter_add(&store->pools[flight->key.pool].owner->counters[CLIENT_PAGES_LOST], 1);
	log_limited(LOG_ERROR, "client %s: a page that was away is lost: %s; gets of it fail",
		    store->pools[flight->key.pool].owner->rec->name,
		    flight->lied ? "what its holders have is not what was sent"
				 : "no holder has it any more");
}

/* Shard lock held. AGAIN, or 0: the flight has ended. */
static int landed(struct store *store, struct shard *shard, struct flight *flight, int result)
{
	if (!still_away(store, flight)) {
		flight_end(flight);
		return 0;
	}
	if (!result && !open_blob(store, flight, flight->bytes)) {
		counter_add(&store->counters[STORE_TIER_LIES], 1);
		flight->lied = true;
		if (others(&flight->request))
			return AGAIN;
		result = -EBADMSG;
	}
	if (result == -EHOSTUNREACH) {
		counter_add(&store->counters[STORE_TIER_UNREACHABLE], 1);
		ask_later(store, flight);
	} else if (result) {
		is_lost(store, flight);
	} else if (!bring_home(store, shard, flight)) {
		stay_here(store, flight);
		return 0;
	}
	flight_end(flight);
	return 0;
}

static void get_done(struct tier_request *request, int result)
{
	struct flight *flight = request->arg;
	struct store *store = flight->store;
	struct shard *shard = &store->shards[flight->key.shard];
	struct store_client *client = &store->clients[request->client];
	struct store_tier *tier = atomic_load(&store->away.tier);
	int r;

	pthread_mutex_lock(&shard->lock);
	/* A tier that is being taken away answers what it has, and is not asked again. */
	r = landed(store, shard, flight, result);
	if (r == AGAIN && !tier) {
		ask_later(store, flight);
		flight_end(flight);
		r = 0;
	}
	pthread_mutex_unlock(&shard->lock);
	if (r == AGAIN)
		tier->ops->get(tier, request);
	else
		client_wake(client);
}

/* ---- Departing ------------------------------------------------------------------------------ */

/* Shard lock held. */
static struct flight *fetch_begin(struct store *store, const struct key *key, uint32_t no,
				  bool wanted, bool passing, struct departures *departures)
{
	struct flight *flight = flight_begin(store, FLIGHT_GET, key, no);

	if (!flight)
		return NULL;
	flight->wanted = wanted;
	flight->passing = passing;
	flight->request.done = get_done;
	departures->flights[departures->nr++] = flight;
	return flight;
}

/* Shard lock held. Those of the object that follow and are away, while flights are plenty. */
static void fetch_along(struct store *store, const struct key *first, uint32_t object, bool passing,
			struct departures *departures)
{
	struct shard *shard = &store->shards[first->shard];
	struct key key = *first;

	for (unsigned i = 1; i <= FETCH_ALONG; i++) {
		uint64_t word;
		uint32_t no;

		key.index = first->index + i;
		if (key.index >> EXTENT_SHIFT != first->index >> EXTENT_SHIFT ||
		    store->away.out[FLIGHT_GET] >= GET_FLIGHTS / 2)
			return;
		key.page_hash = page_hash(key.object_hash, key.index);
		no = page_find(store, shard, &key, object);
		if (!no)
			continue;
		word = atomic_load(&store->arena.descs[no - 1].word);
		if (WORD_CODEC(word) == CODEC_AWAY &&
		    !(atomic_load(&entry_of(store, word)->where) & AWAY_GONE))
			fetch_begin(store, &key, no, false, passing, departures);
	}
}

void fetch_send(struct store *store, struct departures *departures)
{
	struct store_tier *tier = atomic_load(&store->away.tier);

	for (unsigned i = 0; i < departures->nr; i++) {
		struct flight *flight = departures->flights[i];

		if (tier)
			tier->ops->get(tier, &flight->request);
		else
			flight_end(flight); /* taken away meanwhile */
	}
	departures->nr = 0;
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* The flight of the page that has come, held; give_back() lets it go. Shard lock held. */
static struct flight *take_here(struct store *store, uint32_t no, uint64_t seq, bool *under_way)
{
	struct away *away = &store->away;
	struct flight *flight;

	pthread_mutex_lock(&away->lock);
	flight = flight_find(store, FLIGHT_GET, no, seq);
	*under_way = flight || is_later(away, no, seq);
	if (flight && flight->state == FLIGHT_HERE) {
		flight->state = FLIGHT_READ;
	} else {
		if (flight)
			flight->wanted = true;
		flight = NULL;
	}
	pthread_mutex_unlock(&away->lock);
	return flight;
}

static void give_back(struct store *store, struct flight *flight)
{
	pthread_mutex_lock(&store->away.lock);
	flight->state = FLIGHT_HERE;
	flight->wanted = false;
	pthread_mutex_unlock(&store->away.lock);
}

/* Shard lock held. The flight with the bytes, or NULL with -EIO or STORE_AWAY in *r. */
static struct flight *find_bytes(struct store *store, const struct key *key, uint32_t no,
				 bool fetch, bool passing, struct departures *departures, int *r)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	const struct away_rec *entry = entry_of(store, atomic_load(&desc->word));
	bool under_way;
	struct flight *flight;

	*r = -EIO;
	if (atomic_load(&entry->where) & AWAY_GONE)
		return NULL;
	flight = take_here(store, no, DESC_SEQ(desc), &under_way);
	if (flight)
		return flight;
	*r = STORE_AWAY;
	if (fetch && !under_way && fetch_begin(store, key, no, true, passing, departures))
		fetch_along(store, key, desc->object, passing, departures);
	return NULL;
}

int away_read(struct store *store, const struct key *key, uint32_t no, void *page, unsigned flags,
	      struct departures *departures)
{
	struct flight *flight;
	int r;

	flight = find_bytes(store, key, no, !(flags & STORE_GET_NO_FETCH), false, departures, &r);
	if (!flight)
		return r;
	r = codec_decode(flight->codec, flight->bytes, flight->len, page) ? 1 : -EIO;
	give_back(store, flight);
	if (r == 1)
		counter_add(&store->counters[STORE_TIER_SERVED], 1);
	return r;
}

int away_image(struct store *store, const struct key *key, uint32_t no, uint8_t bytes[4096],
	       enum codec *codec, struct departures *departures)
{
	struct flight *flight;
	int r;

	flight = find_bytes(store, key, no, true, true, departures, &r);
	if (!flight)
		return r;
	memcpy(bytes, flight->bytes, flight->len);
	*codec = flight->codec;
	give_back(store, flight);
	return 1;
}

bool away_wait(struct store *store, uint64_t until)
{
	struct away *away = &store->away;
	uint64_t now = clock_ns(), end = now + 20 * CLOCK_MS;
	struct timespec at;

	if (now >= until)
		return false;
	/* A flight may have landed before the wait: short naps, and no count of them. */
	end = end < until ? end : until;
	at.tv_sec = end / CLOCK_S;
	at.tv_nsec = end % CLOCK_S;
	pthread_mutex_lock(&away->lock);
	pthread_cond_timedwait(&away->landed, &away->lock, &at);
	pthread_mutex_unlock(&away->lock);
	return true;
}
