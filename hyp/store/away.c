// SPDX-License-Identifier: GPL-2.0-or-later
/* Pages that are away: entries of the table, numbers of blobs, flights, deletes. See away.h. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/fault.h"
#include "base/log.h"
#include "store/store_priv.h"

/* Entries ready ahead of need: what can be sent until a chunk is free for more. */
#define RECS_AHEAD 16384u
#define DELETE_RUN 64u

static const unsigned flight_limits[FLIGHT_KINDS] = {PUT_FLIGHTS, GET_FLIGHTS, COPY_FLIGHTS};

void away_init(struct store *store)
{
	struct away *away = &store->away;
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&away->landed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&away->lock, NULL);
	pthread_mutex_init(&away->wakers, NULL);
	atomic_store(&away->copies, TIER_COPIES);
	away->rec_next = AWAY_KEYS;
}

void away_fini(struct store *store)
{
	struct away *away = &store->away;

	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++) {
		seal_free(atomic_load(&store->clients[i].seal));
		store->clients[i].seal = NULL;
	}
	for (unsigned i = 0; i < NR_SHARDS; i++)
		if (store->shards[i].hands)
			munmap(store->shards[i].hands, ARENA_MAX_POOLS * sizeof(uint32_t));
	if (away->renewal.blobs)
		munmap(away->renewal.blobs, RENEW_BLOBS * sizeof(uint64_t));
	if (away->flights)
		munmap(away->flights, FLIGHTS * sizeof(*away->flights));
	away->flights = NULL;
}

/* ---- Keys ----------------------------------------------------------------------------------- */

/* The client's key, made when there is none yet. Admin lock held. */
static bool client_key(struct store *store, struct store_client *client, uint8_t key[SEAL_KEY])
{
	uint8_t *at = (uint8_t *)&store->arena.away[client - store->clients];

	if (!atomic_load(&client->rec->keyed)) {
		if (getrandom(key, SEAL_KEY, 0) != SEAL_KEY)
			return false;
		memcpy(at, key, SEAL_KEY);
		fault(FAULT_CLIENT_KEY_WRITTEN);
		atomic_store_explicit(&client->rec->keyed, 1, memory_order_release);
	}
	memcpy(key, at, SEAL_KEY);
	return true;
}

bool away_key_client(struct store_client *client)
{
	struct store *store = client->store;
	uint8_t key[SEAL_KEY];

	if (atomic_load(&client->seal) || !store->away.flights)
		return true;
	if (!client_key(store, client, key))
		return false;
	atomic_store(&client->seal, seal_new(key));
	explicit_bzero(key, sizeof(key));
	return atomic_load(&client->seal) != NULL;
}

/* ---- Entries -------------------------------------------------------------------------------- */

bool away_wants_table(struct store *store)
{
	struct away *away = &store->away;
	uint64_t high = atomic_load(&store->arena.sb->away_high), left;

	if (!away->flights)
		return false;
	pthread_mutex_lock(&away->lock);
	left = (high > away->rec_next ? high - away->rec_next : 0) + away->nr_free;
	pthread_mutex_unlock(&away->lock);
	return left < RECS_AHEAD && high < store->arena.max_away;
}

uint32_t away_take_rec(struct store *store)
{
	struct away *away = &store->away;
	uint32_t rec = 0;

	pthread_mutex_lock(&away->lock);
	if (away->free_recs) {
		rec = away->free_recs;
		away->free_recs = store->arena.away[rec].check;
		away->nr_free--;
	} else if (away->rec_next < atomic_load(&store->arena.sb->away_high)) {
		rec = away->rec_next++;
	}
	pthread_mutex_unlock(&away->lock);
	return rec;
}

/* away->lock held, or nobody else there. */
static void rec_release(struct store *store, uint32_t rec)
{
	struct away_rec *entry = &store->arena.away[rec];

	atomic_store_explicit(&entry->where, 0, memory_order_relaxed);
	entry->check = store->away.free_recs;
	store->away.free_recs = rec;
	store->away.nr_free++;
}

void away_free_rec(struct store *store, uint32_t rec)
{
	pthread_mutex_lock(&store->away.lock);
	rec_release(store, rec);
	pthread_mutex_unlock(&store->away.lock);
}

uint32_t away_check(const struct store *store, const struct key *key, const struct desc *desc,
		    uint32_t rec)
{
	const struct away_rec *entry = &store->arena.away[rec];
	struct {
		uint64_t blob;
		uint8_t tag[SEAL_TAG];
		uint32_t codec;
		uint32_t len;
	} what = {.blob = atomic_load(&entry->blob),
		  .codec = AWAY_CODEC_OF(atomic_load(&entry->where)),
		  .len = DESC_LEN(desc)};

	memcpy(what.tag, entry->tag, SEAL_TAG);
	return codec_check(&what, sizeof(what), key->object_hash, key->index, DESC_SEQ(desc));
}

void away_dropped(struct store *store, uint64_t word)
{
	struct away *away = &store->away;
	uint32_t rec = (uint32_t)WORD_LOC(word), where;
	struct delete_slot *slot;

	fault(FAULT_AWAY_DROPPED);
	pthread_mutex_lock(&away->lock);
	where = atomic_load(&store->arena.away[rec].where);
	if (away->nr_deletes < DELETES) {
		slot = &away->deletes[(away->first_delete + away->nr_deletes++) % DELETES];
		slot->blob = atomic_load(&store->arena.away[rec].blob);
		slot->holders[0] = AWAY_HOLDER(where, 0);
		slot->holders[1] = AWAY_HOLDER(where, 1);
	} else {
		counter_add(&store->counters[STORE_TIER_DELETES_DROPPED], 1);
		atomic_store(&away->renewal.next_round, 0);
	}
	rec_release(store, rec);
	pthread_mutex_unlock(&away->lock);
	atomic_fetch_sub(&away->pages, 1);
}

/* ---- Rebuild: one thread, nobody else there -------------------------------------------------- */

static uint64_t claim_bytes(const struct store *store)
{
	return atomic_load(&store->arena.sb->away_high) / 64 * 8 + 8;
}

bool away_rebuild_begin(struct store *store)
{
	struct superblock *sb = store->arena.sb;
	void *p;

	/* What the away words say in a format 1 means nothing. */
	if (atomic_load(&sb->format) == ARENA_FORMAT_1)
		return true;
	if (atomic_load(&sb->away_high) > store->arena.max_away)
		return false;
	fault_in(store->arena.away, (sb->away_high * sizeof(struct away_rec) + 4095) & ~4095ul);
	p = mmap(NULL, claim_bytes(store), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	store->away.claimed = p == MAP_FAILED ? NULL : p;
	return p != MAP_FAILED;
}

bool away_claim(struct store *store, uint32_t rec)
{
	uint64_t *claimed = store->away.claimed, bit = 1ull << rec % 64;

	if (!claimed || claimed[rec / 64] & bit)
		return false;
	claimed[rec / 64] |= bit;
	return true;
}

void away_unclaim(struct store *store, uint32_t rec)
{
	store->away.claimed[rec / 64] &= ~(1ull << rec % 64);
}

void away_rebuild_end(struct store *store)
{
	struct away *away = &store->away;
	uint64_t high = atomic_load(&store->arena.sb->away_high);

	if (!away->claimed)
		return;
	while (high > AWAY_KEYS && !(away->claimed[(high - 1) / 64] >> (high - 1) % 64 & 1))
		high--;
	away->rec_next = high > AWAY_KEYS ? (uint32_t)high : AWAY_KEYS;
	for (uint64_t rec = away->rec_next; rec-- > AWAY_KEYS;)
		if (!(away->claimed[rec / 64] >> rec % 64 & 1))
			rec_release(store, (uint32_t)rec);
	munmap(away->claimed, claim_bytes(store));
	away->claimed = NULL;
	/* What was reserved and not used is left out. */
	away->blob_next = away->blob_end = atomic_load(&store->arena.sb->blobs);
}

/* ---- Flights -------------------------------------------------------------------------------- */

static uint16_t *head_of(struct away *away, uint32_t no)
{
	return &away->heads[no % FLIGHT_HEADS];
}

/* away->lock held. */
struct flight *flight_find(struct store *store, enum flight_kind kind, uint32_t no, uint64_t seq)
{
	struct away *away = &store->away;
	struct flight *flight;

	if (!away->flights)
		return NULL;
	for (uint16_t i = *head_of(away, no); i; i = flight->chain) {
		flight = &away->flights[i - 1];
		if (flight->desc == no && flight->seq == seq && flight->kind == kind)
			return flight;
	}
	return NULL;
}

/* away->lock held. */
static void flight_free(struct away *away, struct flight *flight)
{
	uint16_t i = flight - away->flights + 1, *at = head_of(away, flight->desc);

	while (*at != i)
		at = &away->flights[*at - 1].chain;
	*at = flight->chain;
	flight->state = FLIGHT_FREE;
	flight->chain = away->free[flight->kind];
	away->free[flight->kind] = i;
}

/*
 * away->lock held. Frees the flight of a page that has come and that nobody waits for; else of one
 * that nobody came for in time.
 */
static void make_free(struct away *away)
{
	uint64_t now = clock_ns();
	struct flight *oldest = NULL;

	for (unsigned i = PUT_FLIGHTS; i < PUT_FLIGHTS + GET_FLIGHTS; i++) {
		struct flight *flight = &away->flights[i];

		if (flight->state != FLIGHT_HERE ||
		    (flight->wanted && now - flight->since < UNREAD_NS))
			continue;
		if (!oldest || (oldest->wanted && !flight->wanted) ||
		    (oldest->wanted == flight->wanted && flight->since < oldest->since))
			oldest = flight;
	}
	if (oldest)
		flight_free(away, oldest);
}

/* away->lock held. */
static struct flight *flight_take(struct store *store, enum flight_kind kind, uint32_t no,
				  uint64_t seq)
{
	struct away *away = &store->away;
	struct flight *flight;
	uint16_t i;

	if (!atomic_load(&away->tier) || flight_find(store, kind, no, seq))
		return NULL;
	if (!away->free[kind] && kind == FLIGHT_GET)
		make_free(away);
	i = away->free[kind];
	if (!i) {
		away->starved |= kind == FLIGHT_GET;
		return NULL;
	}
	flight = &away->flights[i - 1];
	away->free[kind] = flight->chain;
	memset(&flight->request, 0, sizeof(flight->request));
	flight->losses = away->losses;
	flight->chain = *head_of(away, no);
	*head_of(away, no) = i;
	flight->state = FLIGHT_OUT;
	flight->desc = no;
	flight->seq = seq;
	away->out[kind]++;
	return flight;
}

/* Shard lock held; the page is live. NULL: none is free, or the page has one. */
struct flight *flight_begin(struct store *store, enum flight_kind kind, const struct key *key,
			    uint32_t no)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	uint64_t word = atomic_load(&desc->word);
	struct away *away = &store->away;
	struct flight *flight;

	pthread_mutex_lock(&away->lock);
	flight = flight_take(store, kind, no, DESC_SEQ(desc));
	pthread_mutex_unlock(&away->lock);
	if (!flight)
		return NULL;
	flight->request.arg = flight;
	flight->request.bytes = flight->bytes;
	flight->request.client = atomic_load(&store->pools[key->pool].owner) - store->clients;
	flight->store = store;
	flight->key = *key;
	flight->since = clock_ns();
	flight->len = (uint16_t)DESC_LEN(desc);
	flight->shun = 0;
	flight->wanted = flight->passing = flight->lied = false;
	flight->codec = WORD_CODEC(word);
	flight->rec = 0;
	flight->where = 0;
	if (WORD_CODEC(word) == CODEC_AWAY) {
		const struct away_rec *entry = &store->arena.away[WORD_LOC(word)];

		flight->rec = (uint32_t)WORD_LOC(word);
		flight->where = atomic_load(&entry->where);
		flight->codec = AWAY_CODEC_OF(flight->where);
		memcpy(flight->tag, entry->tag, SEAL_TAG);
		flight->request.blob = atomic_load(&entry->blob);
		flight->request.holders[0] = AWAY_HOLDER(flight->where, 0);
		flight->request.holders[1] = AWAY_HOLDER(flight->where, 1);
	}
	return flight;
}

static void wake_all(struct store *store)
{
	for (unsigned i = 0; i < STORE_MAX_CLIENTS; i++)
		if (atomic_load(&store->clients[i].rec))
			client_wake(&store->clients[i]);
}

/* The flight is over and may be another page's at once. Shard locks may be held. */
void flight_end(struct flight *flight)
{
	struct away *away = &flight->store->away;

	pthread_mutex_lock(&away->lock);
	away->out[flight->kind]--;
	flight_free(away, flight);
	pthread_cond_broadcast(&away->landed);
	pthread_mutex_unlock(&away->lock);
}

struct seal_of flight_of(const struct flight *flight)
{
	struct seal_of of = {.seq = flight->seq,
			     .pool = flight->key.pool,
			     .index = flight->key.index,
			     .len = flight->len,
			     .codec = flight->codec};

	memcpy(of.object, flight->key.object, sizeof(of.object));
	return of;
}

/* ---- The clients' wakers -------------------------------------------------------------------- */

void client_wake(struct store_client *client)
{
	struct away *away = &client->store->away;

	pthread_mutex_lock(&away->wakers);
	if (client->waker)
		client->waker(client->waker_arg);
	pthread_mutex_unlock(&away->wakers);
}

void store_client_set_waker(struct store_client *client, void (*fn)(void *arg), void *arg)
{
	struct away *away = &client->store->away;

	pthread_mutex_lock(&away->wakers);
	client->waker = fn;
	client->waker_arg = arg;
	pthread_mutex_unlock(&away->wakers);
}

/* ---- Deletes and retries -------------------------------------------------------------------- */

void away_tell(struct store *store, uint64_t blob, uint32_t where)
{
	struct store_tier *tier = atomic_load(&store->away.tier);
	uint16_t holders[TIER_COPIES] = {AWAY_HOLDER(where, 0), AWAY_HOLDER(where, 1)};

	if (tier && (holders[0] || holders[1]))
		tier->ops->delete (tier, blob, holders);
}

static bool deletes_step(struct store *store)
{
	struct away *away = &store->away;
	struct store_tier *tier = atomic_load(&away->tier);
	struct delete_slot slot;
	unsigned n = 0;

	while (tier && n < DELETE_RUN) {
		bool any;

		pthread_mutex_lock(&away->lock);
		any = away->nr_deletes > 0;
		if (any) {
			slot = away->deletes[away->first_delete++ % DELETES];
			away->nr_deletes--;
		}
		pthread_mutex_unlock(&away->lock);
		if (!any)
			break;
		tier->ops->delete (tier, slot.blob, slot.holders);
		n++;
	}
	return n > 0;
}

/* What could not be reached, or found no flight, is asked for again by those who want it. */
static void retry_step(struct store *store)
{
	struct away *away = &store->away;
	uint64_t at = atomic_load(&away->retry_at);
	bool due = at && clock_ns() >= at, starved;

	if (due)
		atomic_store(&away->retry_at, 0);
	pthread_mutex_lock(&away->lock);
	starved = away->starved;
	away->starved = false;
	if (due)
		memset(away->later, 0, sizeof(away->later));
	pthread_mutex_unlock(&away->lock);
	if (due || starved)
		wake_all(store);
}

bool away_step(struct store *store)
{
	if (!store->away.flights)
		return false;
	retry_step(store);
	return deletes_step(store) || copies_step(store) || renew_step(store);
}

/* ---- The tier ------------------------------------------------------------------------------- */

static int make_flights(struct store *store)
{
	struct away *away = &store->away;
	struct flight *flights;
	unsigned n = 0;

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *shard = &store->shards[i];
		void *p;

		if (shard->hands)
			continue;
		p = mmap(NULL, ARENA_MAX_POOLS * sizeof(uint32_t), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (p == MAP_FAILED)
			return -ENOMEM;
		pthread_mutex_lock(&shard->lock);
		shard->hands = p;
		pthread_mutex_unlock(&shard->lock);
		store->index_bytes += ARENA_MAX_POOLS * sizeof(uint32_t);
	}
	flights = mmap(NULL, FLIGHTS * sizeof(*flights), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (flights == MAP_FAILED)
		return -ENOMEM;
	store->index_bytes += FLIGHTS * sizeof(*flights);
	away->renewal.blobs = mmap(NULL, RENEW_BLOBS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (away->renewal.blobs == MAP_FAILED) {
		away->renewal.blobs = NULL;
		munmap(flights, FLIGHTS * sizeof(*flights));
		return -ENOMEM;
	}
	store->index_bytes += RENEW_BLOBS * sizeof(uint64_t);
	pthread_mutex_lock(&away->lock);
	for (unsigned kind = 0; kind < FLIGHT_KINDS; kind++)
		for (unsigned i = 0; i < flight_limits[kind]; i++, n++) {
			flights[n].kind = kind;
			flights[n].chain = away->free[kind];
			away->free[kind] = n + 1;
		}
	away->flights = flights;
	pthread_mutex_unlock(&away->lock);
	return 0;
}

/* Admin lock held. The table's first chunk has the keys, and is taken whatever pool_max says. */
static int make_ready(struct store *store)
{
	struct superblock *sb = store->arena.sb;
	int r = arena_upgrade(&store->arena);

	if (!r && !atomic_load(&sb->away_high)) {
		r = arena_populate(&store->arena, store->arena.away_off, CHUNK_BYTES);
		if (!r)
			atomic_store(&sb->away_high, CHUNK_BYTES / sizeof(struct away_rec));
	}
	if (!r && !store->away.flights)
		r = make_flights(store);
	for (unsigned i = 0; i < STORE_MAX_CLIENTS && !r; i++)
		if (store->clients[i].rec && !away_key_client(&store->clients[i]))
			r = -ENOMEM;
	return r;
}

unsigned away_flights(const struct store *store)
{
	unsigned n = 0;

	for (unsigned kind = 0; kind < FLIGHT_KINDS; kind++)
		n += atomic_load(&store->away.out[kind]);
	return n;
}

/* Until the tier has answered everything. */
static void drain(struct store *store)
{
	struct away *away = &store->away;

	pthread_mutex_lock(&away->lock);
	while (away_flights(store) || atomic_load(&away->renewal.state) == RENEW_OUT)
		pthread_cond_wait(&away->landed, &away->lock);
	pthread_mutex_unlock(&away->lock);
}

int store_set_tier(struct store *store, struct store_tier *tier)
{
	struct away *away = &store->away;
	int r = 0;

	if (tier)
		copies_listen(store, tier);
	pthread_mutex_lock(&store->work);
	pthread_mutex_lock(&store->admin);
	if (tier)
		r = make_ready(store);
	pthread_mutex_lock(&away->lock);
	if (!r)
		atomic_store(&away->tier, tier);
	if (!r && tier)
		atomic_store(&away->copies_due, true);
	pthread_mutex_unlock(&away->lock);
	pthread_mutex_unlock(&store->admin);
	pthread_mutex_unlock(&store->work);
	if (!tier)
		drain(store);
	worker_wake(store);
	return r;
}

void store_set_copies(struct store *store, unsigned copies)
{
	atomic_store(&store->away.copies, copies < 1		 ? 1
					  : copies > TIER_COPIES ? TIER_COPIES
								 : copies);
}
