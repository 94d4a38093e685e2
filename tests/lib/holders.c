// SPDX-License-Identifier: GPL-2.0-or-later
#include "holders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum work_kind { WORK_PUT, WORK_GET, WORK_DELETE, WORK_RENEW };

/* Everything is done in order of arrival, or not: see next_work(). */
struct holders_work {
	struct holders_work *next;
	enum work_kind kind;
	struct tier_request *request;
	uint64_t blob, end;
	uint16_t holders[TIER_COPIES];
	uint64_t *keep;
	uint32_t nr;
	void (*done)(void *arg, int result, uint32_t missing);
	void *arg;
};

struct holders_memory *holders_memory(void)
{
	void *p = mmap(NULL, sizeof(struct holders_memory), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

void holders_clear(struct holders_memory *memory)
{
	madvise(memory, sizeof(*memory), MADV_REMOVE);
}

static void complain(struct holders_memory *memory, const char *what, uint64_t blob)
{
	if (!memory->complaint[0])
		snprintf(memory->complaint, sizeof(memory->complaint), "%s: blob %llu", what,
			 (unsigned long long)blob);
}

const char *holders_complaint(const struct holders_memory *memory)
{
	return memory->complaint[0] ? memory->complaint : NULL;
}

/* ---- What a holder has: open addressing, with holes left behind by deletes ------------------- */

#define HOLE UINT64_MAX

static struct held_blob *find(struct holder *holder, uint64_t blob)
{
	for (uint32_t i = 0; i < HOLDER_BLOBS; i++) {
		struct held_blob *at = &holder->held[(rng_mix(blob) + i) % HOLDER_BLOBS];
		uint64_t number = atomic_load(&at->number);

		if (number == blob)
			return at;
		if (!number)
			return NULL;
	}
	return NULL;
}

static bool keep(struct holder *holder, uint64_t blob, const uint8_t *bytes, uint32_t len)
{
	for (uint32_t i = 0; i < HOLDER_BLOBS; i++) {
		struct held_blob *at = &holder->held[(rng_mix(blob) + i) % HOLDER_BLOBS];
		uint64_t number = atomic_load(&at->number);

		if (number && number != HOLE)
			continue;
		memcpy(at->bytes, bytes, len);
		at->len = len;
		atomic_store(&at->number, blob);
		atomic_fetch_add(&holder->blobs, 1);
		return true;
	}
	return false;
}

static void drop(struct holder *holder, uint64_t blob)
{
	struct held_blob *at = find(holder, blob);
	uint32_t i;

	if (!at)
		return;
	atomic_store(&at->number, HOLE);
	atomic_fetch_sub(&holder->blobs, 1);
	/* Holes before an empty place are empty, too; else a search for what is not there takes ms.
	 */
	i = (uint32_t)(at - holder->held);
	if (atomic_load(&holder->held[(i + 1) % HOLDER_BLOBS].number))
		return;
	for (; atomic_load(&holder->held[i].number) == HOLE;
	     i = (i + HOLDER_BLOBS - 1) % HOLDER_BLOBS)
		atomic_store(&holder->held[i].number, 0);
}

unsigned holders_with(const struct holders_memory *memory, uint64_t blob)
{
	unsigned n = 0;

	for (unsigned h = 1; h <= HOLDERS; h++)
		n += find((struct holder *)&memory->holder[h], blob) != NULL;
	return n;
}

void holders_recount(struct holders_memory *memory)
{
	for (unsigned h = 1; h <= HOLDERS; h++) {
		struct holder *holder = &memory->holder[h];
		uint64_t n = 0;

		for (uint32_t i = 0; i < HOLDER_BLOBS; i++) {
			uint64_t number = atomic_load(&holder->held[i].number);

			n += number && number != HOLE;
		}
		atomic_store(&holder->blobs, n);
	}
}

uint64_t holders_blobs(const struct holders_memory *memory)
{
	uint64_t n = 0;

	for (unsigned h = 1; h <= HOLDERS; h++)
		n += atomic_load(&memory->holder[h].blobs);
	return n;
}

void holder_loses_all(struct holders_memory *memory, unsigned holder)
{
	for (uint32_t i = 0; i < HOLDER_BLOBS; i++)
		atomic_store(&memory->holder[holder].held[i].number, 0);
	atomic_store(&memory->holder[holder].blobs, 0);
}

/* A number stands for one content, for ever: it is the nonce, too. */
static void check_number(struct holders_memory *memory, const struct tier_request *request)
{
	uint64_t hash = XXH3_64bits(request->bytes, request->len);

	for (uint32_t i = 0; i < BLOBS_EVER; i++) {
		struct held_ever *ever = &memory->ever[(rng_mix(request->blob) + i) % BLOBS_EVER];

		if (ever->number == request->blob && ever->hash != hash)
			complain(memory, "a number used twice", request->blob);
		if (ever->number == request->blob)
			return;
		if (!ever->number) {
			ever->hash = hash;
			ever->number = request->blob;
			return;
		}
	}
}

/* ---- The thread's work ---------------------------------------------------------------------- */

/* Who has the blob with the store's knowledge is excluded, or the tier would delete it there. */
static bool excluded(const struct tier_request *request, unsigned holder)
{
	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (request->without[i] == holder)
			return true;
	return false;
}

static int do_put(struct holders *h, struct tier_request *request)
{
	struct holders_memory *memory = h->memory;
	unsigned first = rng_below(&h->rng, HOLDERS), n = 0, silent = 0;
	uint16_t got[TIER_COPIES] = {0, 0};

	if (!request->blob || !request->len || request->len > TIER_BLOB_MAX || !request->copies ||
	    request->copies > TIER_COPIES)
		complain(memory, "a put that makes no sense", request->blob);
	check_number(memory, request);
	atomic_fetch_add(&memory->puts, 1);
	/* Refused in the middle, too: what was made is deleted then, wherever it is. */
	for (unsigned i = 0; i < HOLDERS && n < request->copies; i++) {
		unsigned no = 1 + (first + i) % HOLDERS;
		struct holder *holder = &memory->holder[no];

		if (excluded(request, no))
			continue;
		silent += atomic_load(&holder->silent);
		if (atomic_load(&holder->silent) || atomic_load(&holder->full) ||
		    rng_permille(&h->rng, atomic_load(&memory->refuse)))
			continue;
		/* Left behind by a delete that did not arrive: the same bytes. */
		drop(holder, request->blob);
		if (keep(holder, request->blob, request->bytes, request->len))
			got[n++] = no;
	}
	if (n == request->copies) {
		memcpy(request->holders, got, sizeof(got));
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		drop(&memory->holder[got[i]], request->blob);
	return silent ? -EHOSTUNREACH : -ENOSPC;
}

static int do_get(struct holders *h, struct tier_request *request)
{
	bool silent = false;

	atomic_fetch_add(&h->memory->gets, 1);
	for (unsigned i = 0; i < TIER_COPIES; i++) {
		uint16_t no = request->holders[i];
		struct holder *holder = &h->memory->holder[no];
		const struct held_blob *at;

		if (!no)
			continue;
		if (no > HOLDERS) {
			complain(h->memory, "a get from nobody", request->blob);
			continue;
		}
		silent |= atomic_load(&holder->silent);
		at = find(holder, request->blob);
		if (!at || atomic_load(&holder->silent) ||
		    rng_permille(&h->rng, atomic_load(&holder->loses)))
			continue;
		memcpy(request->bytes, at->bytes, at->len);
		request->len = at->len;
		request->from = no;
		if (rng_permille(&h->rng, atomic_load(&holder->lies)))
			request->bytes[rng_below(&h->rng, at->len)] ^= 1u << rng_below(&h->rng, 8);
		return 0;
	}
	return silent ? -EHOSTUNREACH : -ENOENT;
}

static void do_renew(struct holders *h, struct holders_work *w)
{
	struct holder *holder = &h->memory->holder[w->holders[0]];
	uint32_t missing = w->nr;

	atomic_fetch_add(&h->memory->renews, 1);
	if (atomic_load(&holder->silent)) {
		w->done(w->arg, -EHOSTUNREACH, 0);
		return;
	}
	for (uint32_t i = 0; i < HOLDER_BLOBS; i++) {
		uint64_t number = atomic_load(&holder->held[i].number);
		bool wanted = false;

		if (!number || number == HOLE || number < w->blob || number >= w->end)
			continue;
		for (uint32_t k = 0; k < w->nr && !wanted; k++)
			wanted = w->keep[k] == number;
		missing -= wanted;
		if (!wanted)
			drop(holder, number);
	}
	w->done(w->arg, 0, missing);
}

static void do_work(struct holders *h, struct holders_work *w)
{
	switch (w->kind) {
	case WORK_PUT:
		w->request->done(w->request, do_put(h, w->request));
		break;
	case WORK_GET:
		w->request->done(w->request, do_get(h, w->request));
		break;
	case WORK_DELETE:
		atomic_fetch_add(&h->memory->deletes, 1);
		for (unsigned i = 0; i < TIER_COPIES; i++)
			if (w->holders[i] && w->holders[i] <= HOLDERS &&
			    !atomic_load(&h->memory->holder[w->holders[i]].silent))
				drop(&h->memory->holder[w->holders[i]], w->blob);
		break;
	case WORK_RENEW:
		do_renew(h, w);
		break;
	}
	free(w->keep);
	free(w);
}

/* The first, or sometimes the one behind it. Lock held. */
static struct holders_work *next_work(struct holders *h)
{
	struct holders_work *w = h->first, *second = w->next;

	if (second && second->kind != WORK_DELETE && w->kind != WORK_DELETE &&
	    !rng_below(&h->rng, 4)) {
		w->next = second->next;
		if (h->last == second)
			h->last = w;
		return second;
	}
	h->first = second;
	if (!second)
		h->last = NULL;
	return w;
}

static void *holders_main(void *arg)
{
	struct holders *h = arg;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		struct holders_work *w;
		uint32_t delay;

		while ((!h->first || atomic_load(&h->stopped)) && !h->end)
			pthread_cond_wait(&h->work, &h->lock);
		if (!h->first)
			break;
		w = next_work(h);
		h->busy = true;
		pthread_mutex_unlock(&h->lock);
		delay = atomic_load(&h->memory->delay_us);
		if (delay)
			usleep(rng_below(&h->rng, delay));
		do_work(h, w);
		pthread_mutex_lock(&h->lock);
		h->busy = false;
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* ---- The table ------------------------------------------------------------------------------ */

static void add(struct store_tier *tier, struct holders_work work)
{
	struct holders *h = (struct holders *)tier;
	struct holders_work *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = work;
	pthread_mutex_lock(&h->lock);
	if (h->last)
		h->last->next = w;
	else
		h->first = w;
	h->last = w;
	pthread_cond_signal(&h->work);
	pthread_mutex_unlock(&h->lock);
}

static void put(struct store_tier *tier, struct tier_request *request)
{
	add(tier, (struct holders_work){.kind = WORK_PUT, .request = request});
}

static void get(struct store_tier *tier, struct tier_request *request)
{
	add(tier, (struct holders_work){.kind = WORK_GET, .request = request});
}

static void delete (struct store_tier *tier, uint64_t blob, const uint16_t holders[TIER_COPIES])
{
	add(tier, (struct holders_work){
			  .kind = WORK_DELETE, .blob = blob, .holders = {holders[0], holders[1]}});
}

static void renew(struct store_tier *tier, uint16_t holder, uint64_t first, uint64_t end,
		  const uint64_t *blobs, uint32_t nr,
		  void (*done)(void *arg, int result, uint32_t missing), void *arg)
{
	uint64_t *copy = malloc(nr * sizeof(*blobs) + 1);

	if (!copy)
		abort();
	memcpy(copy, blobs, nr * sizeof(*blobs));
	add(tier, (struct holders_work){.kind = WORK_RENEW,
					.blob = first,
					.end = end,
					.holders = {holder, 0},
					.keep = copy,
					.nr = nr,
					.done = done,
					.arg = arg});
}

static void stat(struct store_tier *tier, struct tier_stat *stat)
{
	(void)tier;
	stat->spare_bytes = 1ull << 30;
	stat->reachable = HOLDERS;
}

void holders_start(struct holders *h, struct holders_memory *memory, uint64_t seed)
{
	static const struct tier_ops ops = {
		.put = put, .get = get, .delete = delete, .renew = renew, .stat = stat};

	memset(h, 0, sizeof(*h));
	h->tier.ops = &ops;
	h->memory = memory;
	h->rng.state = seed;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->work, NULL);
	if (pthread_create(&h->thread, NULL, holders_main, h))
		abort();
}

void holders_end(struct holders *h)
{
	pthread_mutex_lock(&h->lock);
	h->end = true;
	atomic_store(&h->stopped, false);
	pthread_cond_broadcast(&h->work);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
}

bool holders_idle(struct holders *h)
{
	bool idle;

	pthread_mutex_lock(&h->lock);
	idle = !h->first && !h->busy;
	pthread_mutex_unlock(&h->lock);
	return idle;
}

void holders_hold(struct holders *h, bool hold)
{
	pthread_mutex_lock(&h->lock);
	atomic_store(&h->stopped, hold);
	pthread_cond_broadcast(&h->work);
	pthread_mutex_unlock(&h->lock);
}
