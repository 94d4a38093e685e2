// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Copies that are made again, and what holders are told to keep.
 *
 * A holder that has lost what it had, or wants its memory back, sets a pass over all pages going, a
 * part with each step of the worker. A page with fewer copies than it should have is read from who
 * has it, checked, and put, as it is sealed, to others: never to one that has it or had it just
 * now. Only when the new copy is there is it recorded, in one store, and only then the holder that
 * is left told. Whatever fails, what the page had it keeps; a page that can go nowhere from a
 * holder that wants its memory back comes home, if there is room.
 *
 * Telling a holder what lives (renew) makes good deletes that got lost, by a crash or for want of
 * room. A number that is left out is dropped by the holder, so what is told must be whole: numbers
 * that are under way are not spoken of, and no copy is made meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "store/store_priv.h"

#define LOOK 8192u	 /* descriptors in a step */
#define LOOK_RECS 65536u /* entries in a step */
#define FAILED_NS (CLOCK_S / 2)
#define ROUND_NS (600 * CLOCK_S) /* between two rounds of renewing */

bool copies_lost(const struct flight *flight, bool again)
{
	struct away *away = &flight->store->away;
	bool lost = false;

	pthread_mutex_lock(&away->lock);
	for (unsigned i = 0; i < TIER_COPIES; i++) {
		uint16_t no = flight->request.holders[i];

		lost |= no > TIER_HOLDERS;
		if (!no || no > TIER_HOLDERS)
			continue;
		lost |= away->holder[no].lost_at > flight->losses;
		lost |= again && atomic_load(&away->holder[no].lost);
		atomic_store(&away->holder[no].seen, true);
	}
	pthread_mutex_unlock(&away->lock);
	return lost;
}

/* ---- What the tier tells -------------------------------------------------------------------- */

static void begin_pass(struct store *store)
{
	atomic_store(&store->away.copy_after, 0);
	atomic_store(&store->away.copies_due, true);
	worker_wake(store);
}

static void on_lost(void *arg, uint16_t no)
{
	struct store *store = arg;
	struct away *away = &store->away;

	if (!no || no > TIER_HOLDERS)
		return;
	pthread_mutex_lock(&away->lock);
	away->holder[no].lost_at = ++away->losses;
	away->holder[no].lost_blob = away->blob_next;
	atomic_store(&away->holder[no].lost, true);
	pthread_mutex_unlock(&away->lock);
	begin_pass(store);
}

static void on_leave(void *arg, uint16_t no, uint32_t deadline_ms)
{
	struct store *store = arg;
	struct away *away = &store->away;

	if (!no || no > TIER_HOLDERS)
		return;
	pthread_mutex_lock(&away->lock);
	away->holder[no].deadline = clock_ns() + deadline_ms * CLOCK_MS;
	atomic_store(&away->holder[no].leaving, true);
	pthread_mutex_unlock(&away->lock);
	begin_pass(store);
}

static void on_back(void *arg, uint16_t no)
{
	struct store *store = arg;

	if (no && no <= TIER_HOLDERS)
		atomic_store(&store->away.holder[no].renew, true);
	atomic_store(&store->away.put_after, 0);
	atomic_store(&store->away.copy_after, 0);
	atomic_store(&store->away.retry_at, 1);
	worker_wake(store);
}

void copies_listen(struct store *store, struct store_tier *tier)
{
	tier->events.arg = store;
	tier->events.lost = on_lost;
	tier->events.leave = on_leave;
	tier->events.back = on_back;
}

/* ---- One page ------------------------------------------------------------------------------- */

static bool has_left(const struct away *away, uint16_t no)
{
	return no && no <= TIER_HOLDERS && atomic_load(&away->holder[no].leaving);
}

/* Has the holder lost this blob? */
static bool lost_it(struct away *away, uint16_t no, uint64_t blob, bool other)
{
	const struct holder_state *holder = &away->holder[no <= TIER_HOLDERS ? no : 0];
	bool lost;

	if (!no || no > TIER_HOLDERS)
		return no != 0;
	pthread_mutex_lock(&away->lock);
	lost = atomic_load(&holder->lost) && blob < holder->lost_blob;
	/* Which of them it lacks is not known: one copy too many, where there is another. */
	lost |= other && blob >= holder->missing_first && blob < holder->missing_end;
	pthread_mutex_unlock(&away->lock);
	return lost;
}

static unsigned stays(const struct away *away, uint32_t where)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TIER_COPIES; i++)
		n += AWAY_HOLDER(where, i) && !has_left(away, AWAY_HOLDER(where, i));
	return n;
}

/* Takes holders that have lost the page out of its entry. Who it was, or 0. Shard lock held. */
static uint16_t strike_lost(struct store *store, struct away_rec *entry)
{
	uint32_t where = atomic_load(&entry->where), left = where & ~AWAY_HOLDERS(0x3ff, 0x3ff);
	uint16_t a = AWAY_HOLDER(where, 0), b = AWAY_HOLDER(where, 1);
	uint64_t blob = atomic_load(&entry->blob);
	bool no_a = lost_it(&store->away, a, blob, b != 0);
	bool no_b = lost_it(&store->away, b, blob, a && !no_a);

	if (!no_a && !no_b)
		return 0;
	if (no_a)
		left |= AWAY_HOLDERS(no_b ? 0 : b, 0);
	else
		left |= AWAY_HOLDERS(a, 0);
	atomic_store(&entry->where, left);
	return no_a ? a : b;
}

/* As is_lost(), for a page whose last holder has lost it. Shard lock held. */
static void gone(struct store *store, const struct desc *desc, struct away_rec *entry)
{
	struct store_client *owner = pool_of(store, desc)->owner;

	atomic_fetch_or(&entry->where, AWAY_GONE);
	counter_add(&owner->counters[CLIENT_PAGES_LOST], 1);
	log_limited(LOG_ERROR,
		    "client %s: a page that was away is lost: its last holder has lost it",
		    owner->rec->name);
}

static void copy_failed(struct store *store)
{
	store->away.unfinished = true;
	if (atomic_fetch_add(&store->away.copies_refused, 1) >= REFUSED_RUN)
		atomic_store(&store->away.copy_after, clock_ns() + FAILED_NS);
	counter_add(&store->counters[STORE_TIER_COPIES_FAILED], 1);
}

/* Shard lock held. The new copy is there: what the entry says then; *told: who is to be told. */
static bool record_copy(struct store *store, struct flight *flight, uint32_t *told)
{
	struct away_rec *entry = &store->arena.away[flight->rec];
	uint32_t codec = flight->where & ~AWAY_HOLDERS(0x3ff, 0x3ff);
	uint16_t now[2 * TIER_COPIES] = {0}, left[TIER_COPIES] = {0, 0};
	unsigned nr = 0, nr_left = 0;

	*told = AWAY_HOLDERS(flight->request.holders[0], flight->request.holders[1]);
	if (!still_away(store, flight) || atomic_load(&entry->where) != flight->where ||
	    copies_lost(flight, true))
		return false;
	for (unsigned i = 0; i < TIER_COPIES; i++) {
		uint16_t no = AWAY_HOLDER(flight->where, i);

		if (no && !has_left(&store->away, no))
			now[nr++] = no;
		else if (no)
			left[nr_left++] = no;
	}
	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (flight->request.holders[i])
			now[nr++] = flight->request.holders[i];
	/* The holder that was to be left stays after all. */
	if (nr > TIER_COPIES)
		return false;
	atomic_store(&entry->where, codec | AWAY_HOLDERS(now[0], now[1]));
	fault(FAULT_COPY_PUBLISHED);
	*told = AWAY_HOLDERS(left[0], left[1]);
	return true;
}

/*
 * Shard lock held. Nobody takes what a holder gives back: the page comes home, even if memory is
 * short when no other has it.
 */
static bool come_home(struct store *store, struct shard *shard, struct flight *flight)
{
	bool leaves = has_left(&store->away, AWAY_HOLDER(flight->where, 0)) ||
		      has_left(&store->away, AWAY_HOLDER(flight->where, 1));

	flight->wanted = stays(&store->away, flight->where) == 0;
	return leaves && still_away(store, flight) && open_blob(store, flight, flight->bytes) &&
	       bring_home(store, shard, flight);
}

static void copy_made(struct tier_request *request, int result)
{
	struct flight *flight = request->arg;
	struct store *store = flight->store;
	struct shard *shard = &store->shards[flight->key.shard];
	uint64_t blob = request->blob;
	uint32_t told = 0;

	if (!result)
		fault(FAULT_COPY_MADE);
	pthread_mutex_lock(&shard->lock);
	if (!result) {
		atomic_store(&store->away.copies_refused, 0);
		if (record_copy(store, flight, &told))
			counter_add(&store->counters[STORE_TIER_COPIES], 1);
	} else if (!come_home(store, shard, flight)) {
		copy_failed(store);
	}
	pthread_mutex_unlock(&shard->lock);
	away_tell(store, blob, told);
	flight_end(flight);
	worker_wake(store);
}

/* Shard lock held. Makes the request that reads the page into one that puts it elsewhere. */
static void turn_round(struct store *store, struct flight *flight)
{
	struct tier_request *request = &flight->request;
	unsigned n = 0, keep = stays(&store->away, flight->where);

	request->without[0] = request->without[1] = 0;
	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (AWAY_HOLDER(flight->where, i))
			request->without[n++] = AWAY_HOLDER(flight->where, i);
	if (n < TIER_COPIES && flight->shun != request->without[0])
		request->without[n] = flight->shun;
	request->copies = atomic_load(&store->away.copies);
	request->copies = request->copies > keep ? request->copies - keep : 1;
	request->holders[0] = request->holders[1] = 0;
	request->from = 0;
	request->len = flight->len;
	request->done = copy_made;
}

enum next { NEXT_END, NEXT_AGAIN, NEXT_PUT };

/* Shard lock held. */
static enum next copy_read(struct store *store, struct flight *flight, int result)
{
	uint8_t opened[TIER_BLOB_MAX];

	if (!still_away(store, flight) ||
	    atomic_load(&store->arena.away[flight->rec].where) != flight->where)
		return NEXT_END;
	if (!result) {
		memcpy(opened, flight->bytes, flight->len);
		if (flight->request.len == flight->len && open_blob(store, flight, opened)) {
			turn_round(store, flight);
			return NEXT_PUT;
		}
		counter_add(&store->counters[STORE_TIER_LIES], 1);
		flight->lied = true;
		if (others(&flight->request))
			return NEXT_AGAIN;
		result = -EBADMSG;
	}
	if (result == -EHOSTUNREACH)
		copy_failed(store);
	else
		is_lost(store, flight);
	return NEXT_END;
}

static void copy_got(struct tier_request *request, int result)
{
	struct flight *flight = request->arg;
	struct store *store = flight->store;
	struct shard *shard = &store->shards[flight->key.shard];
	struct store_tier *tier = atomic_load(&store->away.tier);
	enum next next;

	pthread_mutex_lock(&shard->lock);
	next = copy_read(store, flight, result);
	pthread_mutex_unlock(&shard->lock);
	if (next == NEXT_END || !tier) {
		flight_end(flight);
		worker_wake(store);
	} else if (next == NEXT_AGAIN) {
		tier->ops->get(tier, request);
	} else {
		tier->ops->put(tier, request);
	}
}

/* ---- The pass ------------------------------------------------------------------------------- */

/* A look without locks: is it worth one with them? */
static bool may_need(struct store *store, uint32_t no)
{
	struct away *away = &store->away;
	uint64_t word = atomic_load(&store->arena.descs[no - 1].word);
	uint32_t where, n = 0;

	if (WORD_STATE(word) != DESC_LIVE || WORD_CODEC(word) != CODEC_AWAY)
		return false;
	where = atomic_load(&store->arena.away[WORD_LOC(word)].where);
	if (where & AWAY_GONE)
		return false;
	for (unsigned i = 0; i < TIER_COPIES; i++) {
		uint16_t holder = AWAY_HOLDER(where, i);

		if (holder > TIER_HOLDERS)
			return true;
		if (!holder)
			continue;
		n++;
		atomic_store(&away->holder[holder].seen, true);
		if (atomic_load(&away->holder[holder].lost) ||
		    atomic_load(&away->holder[holder].leaving))
			return true;
	}
	return n < atomic_load(&away->copies);
}

/* Shard lock held, the page away. The flight of its copying; *full: there was none for it. */
static struct flight *tend(struct store *store, uint32_t no, bool *full)
{
	const struct desc *desc = &store->arena.descs[no - 1];
	const struct object *object = &store->arena.objects[desc->object - 1];
	struct away_rec *entry = &store->arena.away[WORD_LOC(atomic_load(&desc->word))];
	struct key key = {.gen = atomic_load(&store->pools[object->pool - 1].gen)};
	uint16_t shun = strike_lost(store, entry);
	uint32_t where = atomic_load(&entry->where);
	struct flight *flight;

	if (where & AWAY_GONE)
		return NULL;
	if (!AWAY_HOLDER(where, 0) && !AWAY_HOLDER(where, 1)) {
		gone(store, desc, entry);
		return NULL;
	}
	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (has_left(&store->away, AWAY_HOLDER(where, i)))
			store->away.holder[AWAY_HOLDER(where, i)].left_some = true;
	if (stays(&store->away, where) >= atomic_load(&store->away.copies))
		return NULL;
	key_make(store, &key, object->pool - 1, object->id, desc->index);
	flight = flight_begin(store, FLIGHT_COPY, &key, no);
	if (!flight) {
		*full = true;
		return NULL;
	}
	flight->shun = shun;
	flight->request.done = copy_got;
	return flight;
}

/* False: there is no flight for it now. */
static bool tend_page(struct store *store, struct store_tier *tier, uint32_t no)
{
	struct shard *shard = guess_shard(store, no);
	struct flight *flight = NULL;
	bool full = false;
	uint64_t word;

	if (!shard)
		return true;
	pthread_mutex_lock(&shard->lock);
	word = atomic_load(&store->arena.descs[no - 1].word);
	if (WORD_STATE(word) == DESC_LIVE && WORD_CODEC(word) == CODEC_AWAY &&
	    guess_shard(store, no) == shard &&
	    atomic_load(&pool_of(store, &store->arena.descs[no - 1])->state) == RECORD_LIVE)
		flight = tend(store, no, &full);
	pthread_mutex_unlock(&shard->lock);
	if (flight) {
		store->away.unfinished = true;
		tier->ops->get(tier, &flight->request);
	}
	return !full;
}

static void pass_begin(struct store *store)
{
	struct away *away = &store->away;

	atomic_store(&away->copies_due, false);
	pthread_mutex_lock(&away->lock);
	away->pass_losses = away->losses;
	pthread_mutex_unlock(&away->lock);
	for (unsigned i = 1; i <= TIER_HOLDERS; i++)
		away->holder[i].left_some = false;
	away->passing = true;
	away->unfinished = false;
	away->pass_at = 1;
}

/* Holders of which no page was found are done with; others are looked for again. */
static void pass_end(struct store *store)
{
	struct away *away = &store->away;
	uint64_t now = clock_ns();

	pthread_mutex_lock(&away->lock);
	for (unsigned i = 1; i <= TIER_HOLDERS; i++) {
		struct holder_state *holder = &away->holder[i];

		if (holder->lost_at <= away->pass_losses) {
			atomic_store(&holder->lost, false);
			holder->missing_first = holder->missing_end = 0;
		}
		if (atomic_load(&holder->leaving) &&
		    (!holder->left_some || now >= holder->deadline))
			atomic_store(&holder->leaving, false);
	}
	pthread_mutex_unlock(&away->lock);
	away->passing = false;
	away->passed = true;
	if (away->unfinished) {
		atomic_store(&away->copies_due, true);
		if (atomic_load(&away->copy_after) < now)
			atomic_store(&away->copy_after, now + FAILED_NS);
	}
}

/* A part of the pass. True: there is more to do at once. */
bool copies_step(struct store *store)
{
	struct away *away = &store->away;
	struct store_tier *tier = atomic_load(&away->tier);
	uint64_t high = atomic_load(&store->arena.sb->descs_high), end;

	if (!tier || (!away->passing && !atomic_load(&away->copies_due)) ||
	    atomic_load(&away->renewal.state) != RENEW_IDLE ||
	    clock_ns() < atomic_load(&away->copy_after))
		return false;
	if (!away->passing) {
		/* Copies of the pass before may change what this one finds. */
		if (atomic_load(&away->out[FLIGHT_COPY]))
			return false;
		pass_begin(store);
	}
	end = away->pass_at + LOOK;
	for (; away->pass_at <= high && away->pass_at < end; away->pass_at++)
		if (may_need(store, (uint32_t)away->pass_at) &&
		    !tend_page(store, tier, (uint32_t)away->pass_at))
			return false; /* until one lands */
	if (away->pass_at > high)
		pass_end(store);
	return away->passing;
}

/* ---- Renewing ------------------------------------------------------------------------------- */

static void sift_down(uint64_t *heap, uint32_t nr, uint32_t i)
{
	for (;;) {
		uint32_t big = 2 * i + 1;
		uint64_t t;

		if (big + 1 < nr && heap[big + 1] > heap[big])
			big++;
		if (big >= nr || heap[i] >= heap[big])
			return;
		t = heap[i];
		heap[i] = heap[big];
		heap[big] = t;
		i = big;
	}
}

/* The largest is on top. */
void least_add(uint64_t *heap, uint32_t *nr, uint32_t max, uint64_t value)
{
	uint32_t i;

	if (*nr == max) {
		if (max && value < heap[0]) {
			heap[0] = value;
			sift_down(heap, max, 0);
		}
		return;
	}
	for (i = (*nr)++; i && heap[(i - 1) / 2] < value; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = value;
}

void least_sort(uint64_t *heap, uint32_t nr)
{
	while (nr > 1) {
		uint64_t t = heap[0];

		heap[0] = heap[--nr];
		heap[nr] = t;
		sift_down(heap, nr, 0);
	}
}

/* All numbers below it are of pages that are away by now, or of none. */
static uint64_t settled_below(struct store *store)
{
	struct away *away = &store->away;
	uint64_t least;

	pthread_mutex_lock(&away->lock);
	least = away->blob_next;
	for (unsigned i = 0; i < PUT_FLIGHTS; i++) {
		const struct flight *flight = &away->flights[i];

		if (flight->state == FLIGHT_OUT && flight->request.blob &&
		    flight->request.blob < least)
			least = flight->request.blob;
	}
	pthread_mutex_unlock(&away->lock);
	return least;
}

static void renewed(void *arg, int result, uint32_t missing)
{
	struct store *store = arg;
	struct away *away = &store->away;
	struct renewal *renewal = &away->renewal;
	struct holder_state *holder = &away->holder[renewal->holder];

	pthread_mutex_lock(&away->lock);
	if (!result && missing) {
		counter_add(&store->counters[STORE_TIER_MISSING], missing);
		if (holder->missing_first == holder->missing_end)
			holder->missing_first = renewal->first;
		holder->missing_end = renewal->end;
		if (!atomic_load(&holder->lost))
			holder->lost_blob = 0; /* not all of them */
		atomic_store(&holder->lost, true);
		holder->lost_at = ++away->losses;
		atomic_store(&away->copies_due, true);
	}
	/* The rest follows; after an error, when it is back or in the next round. */
	if (result || renewal->end >= renewal->settled) {
		atomic_store(&holder->renew, false);
		renewal->end = 0;
	}
	renewal->first = renewal->end;
	atomic_store(&renewal->state, RENEW_IDLE);
	pthread_cond_broadcast(&away->landed);
	pthread_mutex_unlock(&away->lock);
	worker_wake(store);
}

/* The next holder that is to be told; false: none. */
static bool renew_begin(struct store *store)
{
	struct away *away = &store->away;
	struct renewal *renewal = &away->renewal;
	uint64_t now = clock_ns();
	uint16_t no = renewal->holder;
	unsigned i;

	/* Who is a holder, the first pass finds out. */
	if (!away->passed)
		return false;
	if (now >= atomic_load(&renewal->next_round)) {
		atomic_store(&renewal->next_round, now + ROUND_NS);
		for (i = 1; i <= TIER_HOLDERS; i++)
			if (atomic_load(&away->holder[i].seen))
				atomic_store(&away->holder[i].renew, true);
	}
	if (!renewal->first || !no || !atomic_load(&away->holder[no].renew)) {
		/* In turn: one that comes and goes keeps nobody else waiting. */
		for (i = 0; i < TIER_HOLDERS; i++)
			if (atomic_load(&away->holder[(no + i) % TIER_HOLDERS + 1].renew))
				break;
		if (i == TIER_HOLDERS)
			return false;
		no = (uint16_t)((no + i) % TIER_HOLDERS + 1);
		renewal->first = 0;
	}
	renewal->holder = no;
	renewal->settled = settled_below(store);
	renewal->rec = AWAY_KEYS;
	renewal->nr = 0;
	atomic_store(&renewal->state, RENEW_SCAN);
	return true;
}

static void renew_send(struct store *store, struct store_tier *tier)
{
	struct renewal *renewal = &store->away.renewal;

	renewal->end = renewal->nr == RENEW_BLOBS ? renewal->blobs[0] + 1 : renewal->settled;
	least_sort(renewal->blobs, renewal->nr);
	counter_add(&store->counters[STORE_TIER_RENEWED], 1);
	atomic_store(&renewal->state, RENEW_OUT);
	tier->ops->renew(tier, renewal->holder, renewal->first, renewal->end, renewal->blobs,
			 renewal->nr, renewed, store);
}

bool renew_step(struct store *store)
{
	struct away *away = &store->away;
	struct renewal *renewal = &away->renewal;
	struct store_tier *tier = atomic_load(&away->tier);
	uint64_t high = atomic_load(&store->arena.sb->away_high), end;
	int state = atomic_load(&renewal->state);

	if (!tier || state == RENEW_OUT || atomic_load(&away->out[FLIGHT_COPY]))
		return false;
	if (state == RENEW_IDLE && !renew_begin(store))
		return false;
	end = renewal->rec + LOOK_RECS < high ? renewal->rec + LOOK_RECS : high;
	for (; renewal->rec < end; renewal->rec++) {
		const struct away_rec *entry = &store->arena.away[renewal->rec];
		uint32_t where = atomic_load(&entry->where);
		uint64_t blob = atomic_load(&entry->blob);

		if ((AWAY_HOLDER(where, 0) == renewal->holder ||
		     AWAY_HOLDER(where, 1) == renewal->holder) &&
		    blob >= renewal->first && blob < renewal->settled)
			least_add(renewal->blobs, &renewal->nr, RENEW_BLOBS, blob);
	}
	if (renewal->rec >= high)
		renew_send(store, tier);
	return true;
}
