// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lives of a client: from a hello to the next one, a bye, or the end of the owner's process.
 *
 * What must survive a crash is the note in the store's client record. The order of steps makes
 * each of them repeatable: pools of a life go before the note forgets its epoch, rings are clear
 * before the note knows a new one. A run that finds in the region another epoch than in the note
 * knows that the noted life is over.
 */
#include "front_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/log.h"

/*
 * Version and check stay where they are in each version to come. The version is the channel's, for
 * it says what names the owner.
 */
struct note {
	uint32_t version;
	uint32_t check;	 /* XXH32 of the whole note, with 0 here */
	uint64_t key[2]; /* of the owner */
	uint64_t bytes;
	uint64_t epoch;
	uint64_t features;
	uint64_t service_epoch;
	uint32_t max_rings;
	uint32_t nr_rings;
	uint32_t entries;
	uint32_t pid; /* of the process, or number of the domain; 0: a restored life alone */
	struct answer answer;
	/* Notes of release 0.1 end here. */
	uint64_t offer;
	uint64_t former;
	uint32_t restoring;
	uint32_t reserved;
};

#define SHORT_NOTE offsetof(struct note, offer)

_Static_assert(sizeof(struct note) <= STORE_MAX_NOTE, "the note fits its record");
_Static_assert(sizeof(struct note) == 128, "the note has no holes");

static uint32_t note_check(const void *note, size_t len)
{
	uint8_t copy[STORE_MAX_NOTE];

	memcpy(copy, note, len);
	memset(copy + offsetof(struct note, check), 0, sizeof(uint32_t));
	return XXH32(copy, len, 0);
}

static void save_note(struct front_client *client)
{
	struct note note = {
		.version = client->channel->note,
		.pid = (uint32_t)client->owner.pid,
		.key = {client->owner.key[0], client->owner.key[1]},
		.bytes = client->region.bytes,
		.epoch = client->epoch,
		.features = client->features,
		.service_epoch = client->service_epoch,
		.max_rings = client->max_rings,
		.nr_rings = client->nr_rings,
		.entries = client->entries,
		.answer = client->answer,
		.offer = client->offer_id,
		.former = client->former,
		.restoring = client->restoring,
	};

	note.check = note_check(&note, sizeof(note));
	store_client_set_note(client->store, &note, sizeof(note));
}

static void offer(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);
	uint64_t features = TMEM_F_ALL;

	WRITE_ONCE(page->abi_min, TMEM_ABI_VERSION);
	WRITE_ONCE(page->abi_max, TMEM_ABI_VERSION);
	if (!client->ring_credits)
		features &= ~TMEM_F_POSTED;
	if (!client->offer_id)
		features &= ~TMEM_F_RESUME;
	client->offered = features;
	WRITE_ONCE(page->features_offered, features);
	WRITE_ONCE(page->region_size, client->region.bytes);
	WRITE_ONCE(page->max_rings, client->max_rings);
	WRITE_ONCE(page->max_entries, TMEM_MAX_ENTRIES);
	WRITE_ONCE(page->nr_vectors, client->max_rings);
	WRITE_ONCE(page->service_peer, FRONT_SERVICE_PEER);
	WRITE_ONCE(page->offer, client->offer_id);
	STORE_RELEASE(page->magic, TMEM_REGION_MAGIC);
}

/* All of the service's words. */
static void show(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);

	offer(client);
	WRITE_ONCE(page->polling, client->polling);
	WRITE_ONCE(page->service_epoch, client->service_epoch);
	region_answer(&client->region, &client->answer);
}

/* Remembers the answer, records it, and only then shows it to the guest. */
static void give_answer(struct front_client *client, const struct answer *answer)
{
	client->answer = *answer;
	client->answered = answer->epoch;
	save_note(client);
	fault(FAULT_ANSWER_RECORDED);
	region_answer(&client->region, answer);
}

/* ---- Serving -------------------------------------------------------------------------------- */

/* Rings without doorbells are looked at by a timer while they are served. */
static void time_rings(struct front_client *client, bool timed)
{
	if (client->timed == timed)
		return;
	for (unsigned i = 0; i < client->nr_rings; i++)
		lane_time(&client->rings[i].lane, i, timed);
	client->timed = timed;
}

void life_serve(struct front_client *client)
{
	struct lane *lanes[TMEM_MAX_RINGS];

	if (client->served || !client->epoch)
		return;
	for (unsigned i = 0; i < client->nr_rings; i++)
		lanes[i] = &client->rings[i].lane;
	workers_pause(client->front);
	workers_add(&client->lanes, lanes, client->nr_rings);
	time_rings(client, client->polling);
	workers_resume(client->front);
	client->served = true;
}

void life_stop(struct front_client *client)
{
	if (!client->served)
		return;
	workers_pause(client->front);
	workers_remove(&client->lanes);
	time_rings(client, false);
	workers_resume(client->front);
	client->served = false;
}

/* The pages of the life go, and its reservations. */
static void drop_life(struct front_client *client)
{
	life_stop(client);
	client_credits_end(client);
	store_pools_destroy(client->store);
	client->epoch = 0;
	client->nr_rings = 0;
	client->entries = 0;
	client->features = 0;
	client->former = 0;
	atomic_store(&client->lanes.broken, false);
	fault(FAULT_LIFE_DROPPED);
}

/* ---- Hello and bye -------------------------------------------------------------------------- */

static void accept_hello(struct front_client *client, const struct hello *hello)
{
	client->features = hello->features;
	client->nr_rings = hello->nr_rings;
	client->entries = hello->entries;
	for (unsigned i = 0; i < client->nr_rings; i++) {
		struct ring *ring = &client->rings[i];

		ring_setup(ring, client->entries);
		memset((void *)ring->ctl, 0, tmem_ring_slots_off(client->entries));
	}
	fault(FAULT_RINGS_CLEARED);
	/* What a life that goes on had promised and not yet put, on whatever ring it puts it. */
	if (client->former)
		client_credits_attach(client);
	client->former = 0;
	client->epoch = hello->epoch;
	save_note(client);
	fault(FAULT_HELLO_RECORDED);
	for (unsigned i = 0; i < client->nr_rings; i++)
		ring_credits_step(&client->rings[i]);
	counter_add(&client->counters[CLIENT_LIVES], 1);
}

/* The pages stay until the next hello or the owner's end, but nothing is served. */
static void stop_serving(struct front_client *client)
{
	life_stop(client);
	client_credits_end(client);
	client->epoch = 0;
}

/* May the life begin, or go on? Else the answer says why not. */
static bool check_hello(struct front_client *client, const struct hello *hello,
			struct answer *answer)
{
	if (!region_check(hello, client->offered, client->max_rings, client->region.bytes, answer))
		return false;
	if (!hello->former || hello->former == client->former)
		return true;
	answer->state = TMEM_SERVICE_REFUSED;
	answer->refusal = TMEM_REFUSED_STATE;
	return false;
}

/*
 * A life that wants to go on and cannot, leaves everything as it is: what it misses may yet be
 * brought, and it asks again.
 */
static void say_hello(struct front_client *client, const struct hello *hello)
{
	struct answer answer = {.state = TMEM_SERVICE_CONNECTED, .epoch = hello->epoch};

	if (!hello->former)
		drop_life(client);
	else if (client->epoch)
		stop_serving(client);
	if (check_hello(client, hello, &answer)) {
		accept_hello(client, hello);
	} else {
		counter_add(&client->counters[CLIENT_HELLOS_REFUSED], 1);
		log_limited(LOG_WARN, "client %s: hello refused, reason %u: guest %llu, here %llu",
			    client->name, answer.refusal, (unsigned long long)answer.guest,
			    (unsigned long long)answer.service);
	}
	client->hello_after = clock_ns() + FRONT_HELLO_NS;
	give_answer(client, &answer);
	life_serve(client);
}

static void say_bye(struct front_client *client, uint64_t epoch)
{
	struct answer answer = {.state = TMEM_SERVICE_LISTENING, .epoch = epoch};

	drop_life(client);
	give_answer(client, &answer);
}

static void give_up(struct front_client *client)
{
	struct answer answer = {
		.state = TMEM_SERVICE_REFUSED,
		.refusal = TMEM_REFUSED_RING,
		.epoch = client->epoch,
		.guest = client->broken_guest,
		.service = client->broken_service,
	};

	stop_serving(client);
	give_answer(client, &answer);
}

/*
 * The region of a machine that was migrated has in it what stood there elsewhere; a hello of there
 * answered another offer.
 */
static bool is_copied(const struct front_client *client)
{
	const struct tmem_region *page = region_page(&client->region);

	return READ_ONCE(page->features) & client->offered & TMEM_F_RESUME &&
	       READ_ONCE(page->hello_offer) != client->offer_id;
}

bool life_knocks(struct front_client *client)
{
	const struct tmem_region *page = region_page(&client->region);
	uint64_t epoch = LOAD_ACQUIRE(page->guest_epoch);
	uint32_t state = LOAD_ACQUIRE(page->guest_state);

	if (!epoch)
		return false;
	if (state == TMEM_GUEST_HELLO)
		return epoch != client->answered && clock_ns() >= client->hello_after &&
		       !is_copied(client);
	return state == TMEM_GUEST_BYE && epoch == client->epoch;
}

void life_look(struct front_client *client)
{
	struct hello hello;

	if (!client->region.base)
		return;
	if (atomic_load(client->region.lost)) {
		log_limited(LOG_WARN, "client %s: its owner cut the region; its life is over",
			    client->name);
		life_end(client);
		return;
	}
	if (client->epoch && atomic_load(&client->lanes.broken))
		give_up(client);
	if (client->restoring || !life_knocks(client))
		return;
	region_hello(&client->region, &hello);
	if (hello.state == TMEM_GUEST_HELLO && hello.epoch && hello.epoch != client->answered)
		say_hello(client, &hello);
	else if (hello.state == TMEM_GUEST_BYE && hello.epoch == client->epoch)
		say_bye(client, hello.epoch);
}

void life_beat(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);
	bool frozen = store_frozen(client->front->store) || store_client_frozen(client->store);

	WRITE_ONCE(page->frozen, frozen);
	/* Again and again: what clears it may be the late end of the process before us. */
	WRITE_ONCE(page->mapped, 1);
	STORE_RELEASE(page->heartbeat, ++client->heartbeat);
	/* Again and again: see is_copied(). */
	if (!client->epoch && client->offer_id && client->owner.pid)
		show(client);
}

/* ---- Beginning and end ---------------------------------------------------------------------- */

/* Not 0, but when there is no random number to be had: then no life can be moved. */
static uint64_t new_offer(void)
{
	uint64_t id = 0;

	return getrandom(&id, sizeof(id), 0) == sizeof(id) ? id : 0;
}

void life_begin(struct front_client *client, const struct owner *owner)
{
	struct answer answer = {.state = TMEM_SERVICE_LISTENING};

	fault(FAULT_REGION_MADE);
	client->owner = *owner;
	client->offer_id = new_offer();
	client->service_epoch = 1;
	client->heartbeat = 0;
	client->hello_after = 0;
	client->polling = false;
	offer(client);
	WRITE_ONCE(region_page(&client->region)->polling, client->polling);
	WRITE_ONCE(region_page(&client->region)->service_epoch, client->service_epoch);
	life_beat(client);
	give_answer(client, &answer);
	fault(FAULT_ATTACH_RECORDED);
}

void life_end(struct front_client *client)
{
	struct answer answer = {
		.state = TMEM_SERVICE_REFUSED,
		.refusal = TMEM_REFUSED_STATE,
		.epoch = client->epoch,
	};

	client->ending = client->saving;
	if (client->ending)
		return;
	drop_life(client);
	client->channel->hang_up(client, true);
	/* Somebody may still have it mapped. */
	if (client->region.base)
		region_answer(&client->region, &answer);
	store_client_set_note(client->store, NULL, 0);
	fault(FAULT_LIFE_FORGOTTEN);
	client->channel->unmap(client, true);
	if (client->owner.pidfd >= 0)
		door_remove(client->front, client->owner.pidfd);
	owner_close(&client->owner);
	client->answered = 0;
}

void life_restoring(struct front_client *client)
{
	client->restoring = true;
	save_note(client);
	fault(FAULT_RESTORE_BEGUN);
}

void life_restored(struct front_client *client, uint64_t epoch)
{
	client->former = epoch;
	client->restoring = false;
	save_note(client);
	fault(FAULT_RESTORE_NOTED);
	door_poke(client->front);
}

void life_discard(struct front_client *client)
{
	/* With its pools gone the life must not be there after a crash either. */
	client->restoring = true;
	save_note(client);
	drop_life(client);
	client->restoring = false;
	fault(FAULT_RESTORE_GIVEN_UP);
	if (client->owner.pid)
		save_note(client);
	else
		store_client_set_note(client->store, NULL, 0);
	door_poke(client->front);
}

void life_suspend(struct front_client *client)
{
	if (client->region.base)
		WRITE_ONCE(region_page(&client->region)->service_state, TMEM_SERVICE_DOWN);
	client->channel->hang_up(client, false);
	client->channel->unmap(client, false);
	owner_close(&client->owner);
}

/* ---- Restart -------------------------------------------------------------------------------- */

/* Executes what is left over; only then new entries are served. */
static int resume(struct front_client *client)
{
	struct replay *replay = calloc(client->nr_rings, sizeof(*replay));
	unsigned i;

	if (!replay)
		return -ENOMEM;
	client_credits_attach(client);
	for (i = 0; i < client->nr_rings; i++) {
		ring_setup(&client->rings[i], client->entries);
		ring_scan(&client->rings[i], &replay[i]);
	}
	for (i = 0; i < client->nr_rings; i++)
		ring_replay(&client->rings[i], &replay[i]);
	free(replay);
	fault(FAULT_REPLAYED);
	client_credits_divide(client);
	for (i = 0; i < client->nr_rings; i++)
		ring_credits_step(&client->rings[i]);
	return 0;
}

/* Both sides may have missed doorbells while nobody was here. */
static void ring_all(struct front_client *client)
{
	for (unsigned i = 0; i < client->nr_rings; i++)
		if (client->rings[i].bell_out >= 0 && !client->channel->ring(&client->rings[i]))
			log_limited(LOG_WARN, "client %s: no doorbell", client->name);
}

int life_attach_again(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);
	struct hello hello;
	int r = 0;

	client->service_epoch++;
	region_hello(&client->region, &hello);
	if (client->epoch && (hello.state != TMEM_GUEST_HELLO || hello.epoch != client->epoch)) {
		/* The life ended while nobody looked. */
		drop_life(client);
		client->answer.state = TMEM_SERVICE_LISTENING;
		client->answer.epoch = hello.state == TMEM_GUEST_BYE ? hello.epoch : 0;
	}
	client->answered = client->answer.epoch;
	save_note(client);
	fault(FAULT_ATTACH_RECORDED);
	offer(client);
	if (client->epoch)
		r = resume(client);
	if (r)
		return r;
	life_beat(client);
	WRITE_ONCE(page->polling, client->polling);
	region_answer(&client->region, &client->answer);
	STORE_RELEASE(page->service_epoch, client->service_epoch);
	ring_all(client);
	life_serve(client);
	return client->polling ? 0 : bells_watch(client);
}

/* Puts what is noted of a life into the client. The length of the note, 0: none. */
static int read_note(struct front_client *client)
{
	uint8_t bytes[STORE_MAX_NOTE] = {0};
	struct note note;
	int len = store_client_note(client->store, bytes, sizeof(bytes));

	if (!len)
		return 0;
	if (len < (int)offsetof(struct note, key))
		return -EBADMSG;
	memcpy(&note, bytes, sizeof(note));
	if (note_check(bytes, (size_t)len) != note.check)
		return -EBADMSG;
	if (note.version != client->channel->note || (len != sizeof(note) && len != SHORT_NOTE))
		return -EPROTO;
	client->owner.pid = (pid_t)note.pid;
	memcpy(client->owner.key, note.key, sizeof(note.key));
	client->region.bytes = note.bytes;
	if (note.pid)
		client->max_rings = note.max_rings;
	client->service_epoch = note.service_epoch;
	client->epoch = note.epoch;
	client->features = note.features;
	client->nr_rings = note.nr_rings;
	client->entries = note.entries;
	client->answer = note.answer;
	client->offer_id = note.offer;
	client->former = note.former;
	client->restoring = note.restoring;
	return len;
}

int life_attach(struct front_client *client)
{
	int r = read_note(client);

	if (r == -EBADMSG) {
		log_msg(LOG_ERROR,
			"client %s: the record of its life is damaged, which ends it; other "
			"clients are not affected",
			client->name);
		client->channel->bury(client);
		life_end(client);
		return 0;
	}
	if (r > 0 && client->restoring) {
		log_msg(LOG_WARN,
			"client %s: it was not restored to the end, so nothing of that is kept",
			client->name);
		life_discard(client);
	}
	if (r > 0 && client->owner.pid)
		return client->channel->attach(client);
	if (r >= 0)
		client->channel->bury(client);
	return r < 0 ? r : 0;
}
