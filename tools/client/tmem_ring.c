// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rings: submitting, collecting, waiting.
 *
 * An operation is done when the entry's `done` says so; the completion queue only tells where to
 * look. Whoever needs a handle that is outstanding on another ring collects that ring itself, so
 * an idle ring's owner need not be there.
 */
#include "tmem_client_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* ---- Outstanding handles -------------------------------------------------------------------- */

static uint32_t bucket_of(const struct tmem_handle *h)
{
	uint64_t x = h->object[0] * 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 29) ^ h->object[1]) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 32) ^ h->object[2]) * 0x94d049bb133111ebull;
	x = (x ^ (x >> 29) ^ ((uint64_t)h->pool << 32 | h->index)) * 0x9e3779b97f4a7c15ull;
	return (uint32_t)(x >> 40) % BUCKETS;
}

/* False when another ring has operations in the bucket; then *other is that ring. */
static bool bucket_enter(struct tmem_client *client, uint32_t bucket, unsigned ring,
			 unsigned *other)
{
	_Atomic uint32_t *word = &client->buckets[bucket];
	uint32_t old = atomic_load_explicit(word, memory_order_relaxed), new;

	do {
		if (old && old >> BUCKET_RING_SHIFT != ring) {
			*other = old >> BUCKET_RING_SHIFT;
			return false;
		}
		new = old ? old + 1 : (ring << BUCKET_RING_SHIFT) + 1;
	} while (!atomic_compare_exchange_weak(word, &old, new));
	return true;
}

static void bucket_leave(struct tmem_client *client, uint32_t bucket)
{
	_Atomic uint32_t *word;
	uint32_t old, new, count = (1u << BUCKET_RING_SHIFT) - 1;

	if (bucket == NO_BUCKET)
		return;
	word = &client->buckets[bucket];
	old = atomic_load_explicit(word, memory_order_relaxed);
	do {
		new = (old & count) == 1 ? 0 : old - 1;
	} while (!atomic_compare_exchange_weak(word, &old, new));
}

/* ---- Opening -------------------------------------------------------------------------------- */

static int ring_open(struct tmem_client *client, unsigned index, unsigned n)
{
	struct tmem_ring *ring = &client->rings[index];
	uint8_t *base = (uint8_t *)client->page + tmem_ring_off(index, n);

	ring->client = client;
	ring->index = index;
	pthread_mutex_init(&ring->lock, NULL);
	ring->n = n;
	ring->ctl = (struct tmem_ring_ctl *)base;
	ring->sq = (uint16_t *)(base + tmem_ring_sq_off());
	ring->cq = (uint16_t *)(base + tmem_ring_cq_off(n));
	ring->entries = (struct tmem_entry *)(base + tmem_ring_entries_off(n));
	ring->slots = base + tmem_ring_slots_off(n);
	tmem_ring_set_spin(ring, SPIN_US);
	ring->service_epoch = LOAD_ACQUIRE(client->page->service_epoch);
	ring->ops = calloc(n, sizeof(*ring->ops));
	ring->free = calloc(n, sizeof(*ring->free));
	ring->ready = calloc(n, sizeof(*ring->ready));
	if (!ring->ops || !ring->free || !ring->ready)
		return -ENOMEM;
	while (ring->nr_free < n) {
		ring->free[ring->nr_free] = (uint16_t)(n - 1 - ring->nr_free);
		ring->nr_free++;
	}
	/* No interrupt wanted until somebody waits. */
	WRITE_ONCE(ring->ctl->cq_event, UINT32_MAX);
	return 0;
}

int tmem_rings_open(struct tmem_client *client, unsigned rings, unsigned entries)
{
	int r = 0;

	client->rings = calloc(rings, sizeof(*client->rings));
	if (!client->rings)
		return -ENOMEM;
	client->nr_rings = rings;
	for (unsigned i = 0; i < rings && !r; i++)
		r = ring_open(client, i, entries);
	if (r)
		tmem_rings_close(client);
	return r;
}

void tmem_rings_close(struct tmem_client *client)
{
	for (unsigned i = 0; i < client->nr_rings; i++) {
		struct tmem_ring *ring = &client->rings[i];

		free(ring->ops);
		free(ring->free);
		free(ring->ready);
	}
	free(client->rings);
	client->rings = NULL;
	client->nr_rings = 0;
	for (unsigned i = 0; client->buckets && i < BUCKETS; i++)
		atomic_store_explicit(&client->buckets[i], 0, memory_order_relaxed);
}

struct tmem_ring *tmem_client_ring(struct tmem_client *client, unsigned index)
{
	return index < client->nr_rings ? &client->rings[index] : NULL;
}

void tmem_ring_set_spin(struct tmem_ring *ring, unsigned us)
{
	ring->spin_max_ns = us * 1000ull;
	ring->spin_ns = ring->spin_max_ns;
}

/* ---- Completion; all under ring->lock ------------------------------------------------------- */

static void release(struct tmem_ring *ring, uint16_t number)
{
	ring->ops[number].state = OP_FREE;
	ring->free[ring->nr_free++] = number;
}

static bool pending(const struct op *op)
{
	return op->state != OP_FREE && op->state != OP_READY && op->state != OP_SYNC_DONE;
}

static void look(struct tmem_ring *ring, uint16_t number)
{
	struct op *op = &ring->ops[number];
	struct tmem_entry *entry = &ring->entries[number];

	if (!pending(op) || LOAD_ACQUIRE(entry->done) != op->seq)
		return;
	op->status = READ_ONCE(entry->status);
	bucket_leave(ring->client, op->bucket);
	ring->outstanding--;
	switch (op->state) {
	case OP_POSTED:
		if (op->status != 1)
			atomic_fetch_add(&ring->client->posted_failed, 1);
		release(ring, number);
		break;
	case OP_ABANDONED:
		release(ring, number);
		break;
	case OP_ASYNC:
		op->state = OP_READY;
		ring->ready[ring->ready_tail++ & (ring->n - 1)] = number;
		break;
	default:
		op->state = OP_SYNC_DONE;
		break;
	}
}

static void look_at_all(struct tmem_ring *ring)
{
	for (uint32_t i = 0; i < ring->n; i++)
		look(ring, (uint16_t)i);
}

static void collect(struct tmem_ring *ring)
{
	uint64_t epoch = LOAD_ACQUIRE(ring->client->page->service_epoch);
	uint32_t tail = LOAD_ACQUIRE(ring->ctl->cq_tail);

	/* A restarted service may have set `done` without a completion. */
	if (epoch != ring->service_epoch || tail - ring->cq_head > ring->n) {
		ring->client->restarts += epoch != ring->service_epoch;
		ring->service_epoch = epoch;
		look_at_all(ring);
		ring->cq_head = tail;
	}
	while (ring->cq_head != tail) {
		uint16_t number = READ_ONCE(ring->cq[ring->cq_head++ & (ring->n - 1)]);

		if (number < ring->n)
			look(ring, number);
	}
	WRITE_ONCE(ring->ctl->cq_head, tail);
}

/* ---- Submission; all under ring->lock ------------------------------------------------------- */

static void kick(struct tmem_ring *ring)
{
	uint32_t old = ring->sq_told;

	if (ring->sq_tail == old)
		return;
	ring->sq_told = ring->sq_tail;
	STORE_RELEASE(ring->ctl->sq_tail, ring->sq_tail);
	atomic_thread_fence(memory_order_seq_cst);
	if (tmem_need_event(READ_ONCE(ring->ctl->sq_event), ring->sq_tail, old))
		tmem_ring_bell(ring->client, ring->index);
}

static bool take_credit(struct tmem_ring *ring)
{
	uint32_t word = READ_ONCE(ring->ctl->credits);

	while (word)
		if (__atomic_compare_exchange_n(&ring->ctl->credits, &word, word - 1, true,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return true;
	return false;
}

static bool has_handle(enum tmem_opcode op)
{
	return op == TMEM_PUT_PAGE || op == TMEM_GET_PAGE || op == TMEM_FLUSH_PAGE;
}

static void fill(struct tmem_ring *ring, uint16_t number, const struct tmem_request *request)
{
	struct tmem_entry *entry = &ring->entries[number];

	if (request->op == TMEM_PUT_PAGE)
		memcpy(ring->slots + (size_t)number * TMEM_PAGE_SIZE, request->page,
		       TMEM_PAGE_SIZE);
	entry->op = (__u8)request->op;
	entry->flags = request->posted ? TMEM_ENTRY_POSTED : 0;
	entry->reserved0 = 0;
	entry->pool = request->handle.pool;
	for (int i = 0; i < 3; i++)
		entry->object[i] = request->handle.object[i];
	entry->index = request->handle.index;
	entry->arg = request->arg;
	WRITE_ONCE(entry->seq, ring->sq_tail + 1);
	WRITE_ONCE(ring->sq[ring->sq_tail & (ring->n - 1)], number);
}

/* *other is valid with -EBUSY. */
static int submit(struct tmem_ring *ring, const struct tmem_request *request, enum op_state state,
		  uint16_t *number, unsigned *other)
{
	uint32_t bucket = has_handle(request->op) ? bucket_of(&request->handle) : NO_BUCKET;
	struct op *op;

	if (!ring->nr_free)
		collect(ring);
	if (!ring->nr_free)
		return -EAGAIN;
	if (bucket != NO_BUCKET && !bucket_enter(ring->client, bucket, ring->index, other))
		return -EBUSY;
	if (request->posted && !take_credit(ring)) {
		bucket_leave(ring->client, bucket);
		return -ENOBUFS;
	}
	*number = ring->free[--ring->nr_free];
	fill(ring, *number, request);
	op = &ring->ops[*number];
	op->seq = ++ring->sq_tail;
	op->bucket = bucket;
	op->state = state;
	op->into = request->into;
	op->tag = request->tag;
	ring->outstanding++;
	return 0;
}

/* Somebody else's ring has the handle: help it on. */
static void help(struct tmem_client *client, unsigned index)
{
	struct tmem_ring *ring = &client->rings[index];

	pthread_mutex_lock(&ring->lock);
	kick(ring);
	collect(ring);
	pthread_mutex_unlock(&ring->lock);
}

int tmem_submit(struct tmem_ring *ring, const struct tmem_request *request)
{
	enum op_state state = request->posted ? OP_POSTED : OP_ASYNC;
	unsigned other;
	uint16_t number;
	int r;

	for (int attempt = 0; attempt < 2; attempt++) {
		pthread_mutex_lock(&ring->lock);
		r = submit(ring, request, state, &number, &other);
		pthread_mutex_unlock(&ring->lock);
		if (r != -EBUSY)
			break;
		help(ring->client, other);
	}
	return r;
}

void tmem_kick(struct tmem_ring *ring)
{
	pthread_mutex_lock(&ring->lock);
	kick(ring);
	pthread_mutex_unlock(&ring->lock);
}

unsigned tmem_reap(struct tmem_ring *ring, struct tmem_result *results, unsigned max)
{
	unsigned nr = 0;

	pthread_mutex_lock(&ring->lock);
	collect(ring);
	while (nr < max && ring->ready_head != ring->ready_tail) {
		uint16_t number = ring->ready[ring->ready_head++ & (ring->n - 1)];
		struct op *op = &ring->ops[number];

		if (op->into && op->status == 1)
			memcpy(op->into, ring->slots + (size_t)number * TMEM_PAGE_SIZE,
			       TMEM_PAGE_SIZE);
		results[nr].tag = op->tag;
		results[nr++].status = op->status;
		release(ring, number);
	}
	pthread_mutex_unlock(&ring->lock);
	return nr;
}

unsigned tmem_credits(const struct tmem_ring *ring)
{
	return READ_ONCE(ring->ctl->credits);
}

/* ---- Waiting -------------------------------------------------------------------------------- */

static bool reached(const struct tmem_ring *ring, uint32_t position)
{
	return (int32_t)(READ_ONCE(ring->ctl->cq_tail) - position) >= 0;
}

/* Learns from a wait of so long for how long the next one is to spin. */
static void tune_spin(struct tmem_ring *ring, uint64_t waited)
{
	uint64_t spin = ring->spin_ns;

	if (waited < ring->spin_max_ns + WAKE_NS)
		spin = spin ? 2 * spin : SPIN_NS_MIN;
	else
		spin /= 2;
	ring->spin_ns = spin < ring->spin_max_ns ? spin : ring->spin_max_ns;
}

/* Spins, then sleeps until cq_tail may have reached `position`, for a slice of time at most. */
static void rest(struct tmem_ring *ring, uint32_t position, uint64_t *nap)
{
	struct tmem_client *client = ring->client;
	uint64_t start = tmem_now_ns(), count;
	struct pollfd p = {.events = POLLIN};

	while (tmem_now_ns() - start < ring->spin_ns) {
		if (reached(ring, position))
			return;
		relax();
	}
	if (!client->vectors || READ_ONCE(client->page->polling)) {
		tmem_nap(*nap);
		if (*nap < 2000000)
			*nap *= 2;
		return;
	}
	WRITE_ONCE(ring->ctl->cq_event, position - 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!reached(ring, position)) {
		p.fd = client->bells_in[ring->index % client->vectors];
		if (poll(&p, 1, SLICE_NS / 1000000) > 0 &&
		    read(p.fd, &count, sizeof(count)) == sizeof(count))
			atomic_fetch_add(&client->doorbells_in, count);
	}
	WRITE_ONCE(ring->ctl->cq_event, position - ring->n - 1);
	tune_spin(ring, tmem_now_ns() - start);
}

/*
 * Waits until fn says so; it is called under the lock after completions were collected. Returns
 * the number of completions that are needed before it may be so: 0, it is.
 */
static int wait_until(struct tmem_ring *ring, uint32_t (*fn)(struct tmem_ring *ring, uint32_t arg),
		      uint32_t arg)
{
	uint64_t deadline = tmem_deadline(ring->client), nap = 20000;
	uint32_t seen, missing;

	for (;;) {
		pthread_mutex_lock(&ring->lock);
		kick(ring);
		collect(ring);
		seen = ring->cq_head;
		missing = fn(ring, arg);
		pthread_mutex_unlock(&ring->lock);
		if (!missing)
			return 0;
		if (tmem_now_ns() > deadline)
			return -ETIMEDOUT;
		rest(ring, seen + missing, &nap);
	}
}

static uint32_t results_missing(struct tmem_ring *ring, uint32_t wanted)
{
	uint32_t ready = ring->ready_tail - ring->ready_head;
	uint32_t missing = ready < wanted ? wanted - ready : 0;

	return missing < ring->outstanding ? missing : ring->outstanding;
}

int tmem_wait_many(struct tmem_ring *ring, unsigned results)
{
	int r = wait_until(ring, results_missing, results);

	if (r)
		return r;
	pthread_mutex_lock(&ring->lock);
	r = (int)(ring->ready_tail - ring->ready_head);
	pthread_mutex_unlock(&ring->lock);
	return r;
}

int tmem_wait(struct tmem_ring *ring)
{
	int r = tmem_wait_many(ring, 1);

	return r > 0 ? 1 : r;
}

static uint32_t not_done_before(struct tmem_ring *ring, uint32_t seq)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < ring->n; i++)
		nr += pending(&ring->ops[i]) && (int32_t)(seq - ring->ops[i].seq) >= 0;
	return nr;
}

int tmem_drain(struct tmem_ring *ring)
{
	uint32_t seq;

	pthread_mutex_lock(&ring->lock);
	seq = ring->sq_tail;
	pthread_mutex_unlock(&ring->lock);
	return wait_until(ring, not_done_before, seq);
}

/* ---- Synchronous operations ------------------------------------------------------------------ */

static uint32_t no_room(struct tmem_ring *ring, uint32_t arg)
{
	(void)arg;
	return !ring->nr_free && ring->ready_tail - ring->ready_head != ring->n;
}

/* Nobody reaps them, so waiting does not help. */
static bool full_of_results(struct tmem_ring *ring)
{
	bool full;

	pthread_mutex_lock(&ring->lock);
	full = !ring->nr_free && ring->ready_tail - ring->ready_head == ring->n;
	pthread_mutex_unlock(&ring->lock);
	return full;
}

/* Submits; waits for room and until the handle is free on other rings. */
static int submit_waiting(struct tmem_ring *ring, const struct tmem_request *request,
			  enum op_state state, uint16_t *number)
{
	uint64_t deadline = tmem_deadline(ring->client);
	unsigned other, tries = 0;
	int r;

	for (;;) {
		pthread_mutex_lock(&ring->lock);
		r = submit(ring, request, state, number, &other);
		if (!r)
			kick(ring);
		pthread_mutex_unlock(&ring->lock);
		if (r == -EAGAIN) {
			r = wait_until(ring, no_room, 0);
			if (r)
				return r;
			if (full_of_results(ring))
				return -EAGAIN;
		} else if (r == -EBUSY) {
			help(ring->client, other);
			if (tmem_now_ns() > deadline)
				return -ETIMEDOUT;
			if (++tries > 8)
				tmem_nap(20000);
		} else {
			return r;
		}
	}
}

static uint32_t sync_pending(struct tmem_ring *ring, uint32_t number)
{
	return ring->ops[number].state != OP_SYNC_DONE;
}

static int call(struct tmem_ring *ring, const struct tmem_request *request)
{
	uint16_t number = 0;
	struct op *op;
	int r = submit_waiting(ring, request, OP_SYNC, &number);

	if (r)
		return r;
	op = &ring->ops[number];
	r = wait_until(ring, sync_pending, number);
	pthread_mutex_lock(&ring->lock);
	if (op->state == OP_SYNC_DONE) {
		r = op->status;
		if (r == 1 && request->op == TMEM_GET_PAGE)
			memcpy(request->into, ring->slots + (size_t)number * TMEM_PAGE_SIZE,
			       TMEM_PAGE_SIZE);
		release(ring, number);
	} else {
		op->state = OP_ABANDONED;
	}
	pthread_mutex_unlock(&ring->lock);
	return r;
}

static int drain_all(struct tmem_client *client)
{
	int r = 0;

	for (unsigned i = 0; i < client->nr_rings && !r; i++)
		r = tmem_drain(&client->rings[i]);
	return r;
}

int tmem_new_pool(struct tmem_ring *ring, uint32_t flags, const uint64_t uuid[2])
{
	static _Atomic uint64_t nonce;
	struct tmem_request request = {.op = TMEM_NEW_POOL, .handle.index = flags};

	if (uuid)
		memcpy(request.handle.object, uuid, 2 * sizeof(uuid[0]));
	/* Unique in this life. */
	request.arg = tmem_now_ns() ^ (atomic_fetch_add(&nonce, 1) + 1) << 48;
	return call(ring, &request);
}

int tmem_destroy_pool(struct tmem_ring *ring, uint32_t pool)
{
	struct tmem_request request = {.op = TMEM_DESTROY_POOL, .handle.pool = pool};
	int r = drain_all(ring->client);

	return r ? r : call(ring, &request);
}

int tmem_put(struct tmem_ring *ring, const struct tmem_handle *handle, const void *page)
{
	struct tmem_request request = {.op = TMEM_PUT_PAGE, .handle = *handle, .page = page};

	return call(ring, &request);
}

int tmem_get(struct tmem_ring *ring, const struct tmem_handle *handle, void *page)
{
	struct tmem_request request = {.op = TMEM_GET_PAGE, .handle = *handle, .into = page};

	return call(ring, &request);
}

int tmem_flush(struct tmem_ring *ring, const struct tmem_handle *handle)
{
	struct tmem_request request = {.op = TMEM_FLUSH_PAGE, .handle = *handle};

	return call(ring, &request);
}

int tmem_flush_object(struct tmem_ring *ring, uint32_t pool, const uint64_t object[3])
{
	struct tmem_request request = {.op = TMEM_FLUSH_OBJECT, .handle.pool = pool};
	int r = drain_all(ring->client);

	memcpy(request.handle.object, object, sizeof(request.handle.object));
	return r ? r : call(ring, &request);
}

int tmem_put_posted(struct tmem_ring *ring, const struct tmem_handle *handle, const void *page)
{
	struct tmem_request request = {
		.op = TMEM_PUT_PAGE, .posted = true, .handle = *handle, .page = page};
	uint16_t number;
	int r = submit_waiting(ring, &request, OP_POSTED, &number);

	return r ? r : 1;
}
