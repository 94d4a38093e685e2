// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One request of the store, from the hosts that are chosen to the one answer.
 *
 * A put wants all of its copies on different hosts. A host that refuses or does not answer is
 * replaced by one that has not been tried; when there is none, what was made is deleted again, and
 * so is what may have been made: a put whose answer never came.
 *
 * A get asks one holder, the faster one, and the other when the first refuses, ends, or takes long.
 * The first blob that comes counts.
 */
#include "peers_priv.h"

#include <errno.h>

#include "base/clock.h"
#include "place.h"

static void count(struct peer *peer, enum peer_counter which)
{
	counter_add(&peer->counters[which], 1);
}

void op_done(struct tier_request *request, int result)
{
	request->done(request, result);
}

static bool is_out(const struct leg *leg)
{
	return leg->state == LEG_QUEUED || leg->state == LEG_SENT;
}

/* Answers, once. */
static void answer(struct op *op, int result)
{
	struct tier_request *request = op->request;

	op->request = NULL;
	op_done(request, result);
}

/* Nobody is asked any more and the answer is given: it can be another request's. */
static void release_if_over(struct op *op)
{
	struct peers *peers = op->peers;

	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (is_out(&op->legs[i]))
			return;
	if (op->request)
		return;
	op->bucket->working[op->kind]--;
	peers->working[op->kind]--;
	peers_list_bucket(peers, op->bucket, op->kind);
	op->bucket = NULL;
	op->generation++;
	op->next = peers->free_ops;
	peers->free_ops = op;
}

/* Legs that wait in a queue need not be sent any more. */
static void call_off(struct op *op)
{
	for (unsigned i = 0; i < TIER_COPIES; i++) {
		struct leg *leg = &op->legs[i];

		if (leg->state != LEG_QUEUED)
			continue;
		legs_remove(&leg->peer->queue[op->kind], leg);
		leg->state = LEG_FAILED;
	}
}

static struct peer *holder(struct peers *peers, uint16_t number)
{
	return number && number <= atomic_load(&peers->nr) ? peers->peers[number - 1] : NULL;
}

static void ask(struct op *op, unsigned i, struct peer *peer, uint64_t now)
{
	struct leg *leg = &op->legs[i];

	leg->op = op;
	leg->peer = peer;
	peer_queue(peer, leg, now);
}

/* ---- Puts ----------------------------------------------------------------------------------- */

static bool was_tried(const struct op *op, unsigned i)
{
	return op->tried[i / 8] >> i % 8 & 1;
}

static void set_tried(struct op *op, unsigned i)
{
	op->tried[i / 8] |= (uint8_t)(1u << i % 8);
}

/* A host that has not been tried; it is now. */
static struct peer *choose(struct op *op)
{
	struct place_host hosts[TIER_HOLDERS];
	struct peers *peers = op->peers;
	unsigned nr = atomic_load(&peers->nr);
	int i;

	for (unsigned k = 0; k < nr; k++) {
		struct peer *peer = peers->peers[k];

		hosts[k].usable = !was_tried(op, k) && peer_takes_puts(peer);
		hosts[k].spare = counter_get(&peer->spare);
		hosts[k].latency_us = atomic_load(&peer->latency_us);
	}
	i = place_choose(hosts, nr, op->request->len, peers_random(peers));
	if (i == PLACE_NONE)
		return NULL;
	set_tried(op, (unsigned)i);
	return peers->peers[i];
}

/* Why no host is left: none of them has room, or some do not answer. */
static int nobody(const struct op *op)
{
	struct peers *peers = op->peers;
	unsigned nr = atomic_load(&peers->nr);
	bool away = !nr || op->silent;

	if (op->full)
		return -ENOSPC;
	for (unsigned i = 0; i < nr; i++) {
		const struct peer *peer = peers->peers[i];

		if (peer_is_up(peer) && !was_tried(op, i))
			return -ENOSPC;
		away |= !peer_is_up(peer) && peer->has_addresses && !peer->denied;
	}
	return away ? -EHOSTUNREACH : -ENOSPC;
}

/* All legs have ended. */
static void end_put(struct op *op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TIER_COPIES; i++) {
		struct leg *leg = &op->legs[i];

		op->request->holders[i] = 0;
		if (leg->state != LEG_OK)
			continue;
		if (op->doomed) {
			count(leg->peer, PEER_PUTS_UNDONE);
			peer_delete(leg->peer, op->blob);
			leg->peer->queued = true;
		} else {
			op->request->holders[n++] = (uint16_t)(leg->peer->index + 1);
		}
	}
	answer(op, op->doomed ? nobody(op) : 0);
}

static void settle_put(struct op *op)
{
	bool out = false;

	for (unsigned i = 0; i < TIER_COPIES; i++)
		out |= is_out(&op->legs[i]);
	if (!out && op->request)
		end_put(op);
	release_if_over(op);
}

static void start_put(struct op *op, uint64_t now)
{
	struct tier_request *r = op->request;
	unsigned copies = r->copies < 1 ? 1 : r->copies < TIER_COPIES ? r->copies : TIER_COPIES;
	struct peer *chosen[TIER_COPIES];

	for (unsigned i = 0; i < TIER_COPIES; i++)
		if (r->without[i] && r->without[i] <= TIER_HOLDERS)
			set_tried(op, r->without[i] - 1u);
	for (unsigned i = 0; i < copies && !op->doomed; i++) {
		chosen[i] = choose(op);
		op->doomed = !chosen[i];
	}
	for (unsigned i = 0; i < copies && !op->doomed; i++)
		ask(op, i, chosen[i], now);
	settle_put(op);
}

/* This leg failed: another host, or it is over. */
static void put_again(struct op *op, struct leg *leg, uint64_t now)
{
	uint64_t limit = peers_ms(op->peers->settings.times.request, 10000);
	struct peer *peer = NULL;

	if (!op->doomed && !op->peers->stopping && now - op->began < limit)
		peer = choose(op);
	if (peer) {
		ask(op, (unsigned)(leg - op->legs), peer, now);
		return;
	}
	op->doomed = true;
	call_off(op);
}

static void put_answer(struct leg *leg, uint16_t status, uint64_t now)
{
	struct peer *peer = leg->peer;
	struct op *op = leg->op;

	if (status == TMEM_PEER_OK) {
		leg->state = LEG_OK;
		peer->held++;
		count(peer, PEER_PUTS);
	} else {
		leg->state = LEG_FAILED;
		if (status == TMEM_PEER_FULL) {
			/* Until it says otherwise. */
			counter_set(&peer->spare, 0);
			op->full = true;
		} else {
			op->silent = true;
		}
		count(peer, status == TMEM_PEER_FULL ? PEER_PUTS_FULL : PEER_PUTS_FAILED);
		put_again(op, leg, now);
	}
	settle_put(op);
}

/* ---- Gets ----------------------------------------------------------------------------------- */

/* The next holder that can be asked, the faster one first; NULL: none. */
static struct peer *next_holder(struct op *op)
{
	struct peer *best = NULL;

	for (unsigned i = 0; i < TIER_COPIES; i++) {
		struct peer *peer = holder(op->peers, op->request->holders[i]);

		if (!op->request->holders[i])
			continue;
		if (!peer) {
			op->silent = true;
			continue;
		}
		if (was_tried(op, peer->index))
			continue;
		if (!peer_is_up(peer))
			op->silent = true;
		else if (!best || atomic_load(&peer->latency_us) < atomic_load(&best->latency_us))
			best = peer;
	}
	if (best)
		set_tried(op, best->index);
	return best;
}

/* Asks another holder, or ends when nobody is left who might answer. */
static void get_on(struct op *op, uint64_t now)
{
	struct peer *peer = op->request && !op->peers->stopping ? next_holder(op) : NULL;
	bool out = false;
	unsigned i = op->legs[0].state == LEG_NONE ? 0 : 1;

	if (peer && op->legs[i].state == LEG_NONE)
		ask(op, i, peer, now);
	for (i = 0; i < TIER_COPIES; i++)
		out |= is_out(&op->legs[i]);
	if (!out && op->request)
		answer(op, op->silent || op->legs[0].state == LEG_NONE ? -EHOSTUNREACH : -ENOENT);
	release_if_over(op);
}

static void get_answer(struct leg *leg, uint16_t status, const uint8_t *bytes, uint32_t len,
		       uint64_t now)
{
	struct peer *peer = leg->peer;
	struct op *op = leg->op;

	leg->state = status == TMEM_PEER_OK ? LEG_OK : LEG_FAILED;
	count(peer, status == TMEM_PEER_OK	 ? PEER_GETS
		    : status == TMEM_PEER_ABSENT ? PEER_GETS_ABSENT
						 : PEER_GETS_FAILED);
	if (status != TMEM_PEER_OK && status != TMEM_PEER_ABSENT)
		op->silent = true;
	if (status == TMEM_PEER_OK && op->request) {
		memcpy(op->request->bytes, bytes, len);
		op->request->len = len;
		op->request->from = (uint16_t)(peer->index + 1);
		call_off(op);
		answer(op, 0);
	}
	get_on(op, now);
}

/* ---- Both ----------------------------------------------------------------------------------- */

void op_start(struct op *op, uint64_t now)
{
	op->blob = op->request->blob;
	op->began = now;
	op->full = op->doomed = op->silent = op->hedged = false;
	memset(op->tried, 0, sizeof(op->tried));
	memset(op->legs, 0, sizeof(op->legs));
	if (op->kind == OP_PUT)
		start_put(op, now);
	else
		get_on(op, now);
}

void op_answer(struct leg *leg, uint16_t status, const uint8_t *bytes, uint32_t len, uint64_t now)
{
	if (leg->op->kind == OP_PUT)
		put_answer(leg, status, now);
	else
		get_answer(leg, status, bytes, len, now);
}

void op_unanswered(struct leg *leg, bool sent, uint64_t now)
{
	struct op *op = leg->op;

	leg->state = LEG_FAILED;
	op->silent = true;
	if (op->kind == OP_GET) {
		count(leg->peer, PEER_GETS_FAILED);
		get_on(op, now);
		return;
	}
	count(leg->peer, PEER_PUTS_FAILED);
	if (sent)
		peer_delete(leg->peer, op->blob);
	put_again(op, leg, now);
	settle_put(op);
}

void op_hedge(struct op *op, uint64_t now)
{
	struct peer *slow = op->legs[0].peer, *peer;

	if (op->hedged || !op->request || op->legs[1].state != LEG_NONE)
		return;
	op->hedged = true;
	peer = next_holder(op);
	if (!peer)
		return;
	count(slow, PEER_GETS_HEDGED);
	ask(op, 1, peer, now);
}
