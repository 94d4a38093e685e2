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
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/log.h"

#define NOTE_VERSION 1

/* Version and check stay where they are in each version to come. */
struct note {
	uint32_t version;
	uint32_t check; /* XXH32 of the whole note, with 0 here */
	uint64_t start; /* of the owner */
	uint64_t inode; /* of the region */
	uint64_t bytes;
	uint64_t epoch;
	uint64_t features;
	uint64_t service_epoch;
	uint32_t max_rings;
	uint32_t nr_rings;
	uint32_t entries;
	uint32_t pid;
	struct answer answer;
};

_Static_assert(sizeof(struct note) <= STORE_MAX_NOTE, "the note fits its record");
_Static_assert(sizeof(struct note) == 104, "the note has no holes");

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
		.version = NOTE_VERSION,
		.pid = (uint32_t)client->owner.pid,
		.start = client->owner.start,
		.inode = client->region.inode,
		.bytes = client->region.bytes,
		.epoch = client->epoch,
		.features = client->features,
		.service_epoch = client->service_epoch,
		.max_rings = client->max_rings,
		.nr_rings = client->nr_rings,
		.entries = client->entries,
		.answer = client->answer,
	};

	note.check = note_check(&note, sizeof(note));
	store_client_set_note(client->store, &note, sizeof(note));
}

static void offer(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);

	WRITE_ONCE(page->abi_min, TMEM_ABI_VERSION);
	WRITE_ONCE(page->abi_max, TMEM_ABI_VERSION);
	client->offered = client->ring_credits ? TMEM_F_ALL : TMEM_F_ALL & ~TMEM_F_POSTED;
	WRITE_ONCE(page->features_offered, client->offered);
	WRITE_ONCE(page->region_size, client->region.bytes);
	WRITE_ONCE(page->max_rings, client->max_rings);
	WRITE_ONCE(page->max_entries, TMEM_MAX_ENTRIES);
	WRITE_ONCE(page->nr_vectors, client->max_rings);
	WRITE_ONCE(page->service_peer, FRONT_SERVICE_PEER);
	STORE_RELEASE(page->magic, TMEM_REGION_MAGIC);
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
	client->epoch = hello->epoch;
	save_note(client);
	fault(FAULT_HELLO_RECORDED);
	for (unsigned i = 0; i < client->nr_rings; i++)
		ring_credits_step(&client->rings[i]);
	counter_add(&client->counters[CLIENT_LIVES], 1);
}

static void say_hello(struct front_client *client, const struct hello *hello)
{
	struct answer answer = {.state = TMEM_SERVICE_CONNECTED, .epoch = hello->epoch};

	drop_life(client);
	if (region_check(hello, client->offered, client->max_rings, client->region.bytes,
			 &answer)) {
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

/* The pages stay until the next hello or the owner's end, but nothing is served. */
static void give_up(struct front_client *client)
{
	struct answer answer = {
		.state = TMEM_SERVICE_REFUSED,
		.refusal = TMEM_REFUSED_RING,
		.epoch = client->epoch,
		.guest = client->broken_guest,
		.service = client->broken_service,
	};

	life_stop(client);
	client_credits_end(client);
	client->epoch = 0;
	give_answer(client, &answer);
}

bool life_knocks(struct front_client *client)
{
	const struct tmem_region *page = region_page(&client->region);
	uint64_t epoch = LOAD_ACQUIRE(page->guest_epoch);
	uint32_t state = LOAD_ACQUIRE(page->guest_state);

	if (!epoch)
		return false;
	if (state == TMEM_GUEST_HELLO)
		return epoch != client->answered && clock_ns() >= client->hello_after;
	return state == TMEM_GUEST_BYE && epoch == client->epoch;
}

void life_look(struct front_client *client)
{
	struct hello hello;

	if (client->region.fd < 0)
		return;
	if (atomic_load(client->region.lost)) {
		log_limited(LOG_WARN, "client %s: its owner cut the region; its life is over",
			    client->name);
		life_end(client);
		return;
	}
	if (client->epoch && atomic_load(&client->lanes.broken))
		give_up(client);
	if (!life_knocks(client))
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
	STORE_RELEASE(page->heartbeat, ++client->heartbeat);
}

/* ---- Beginning and end ---------------------------------------------------------------------- */

int life_begin(struct front_client *client, const struct owner *owner)
{
	struct answer answer = {.state = TMEM_SERVICE_LISTENING};
	int r = -ENOMEM;

	if (store_has_room(client->front->store, client->region_bytes))
		r = region_create(&client->region, client->front->dir, client->file,
				  client->region_bytes);
	if (r)
		return r;
	fault(FAULT_REGION_MADE);
	client->owner = *owner;
	client->service_epoch = 1;
	client->heartbeat = 0;
	client->hello_after = 0;
	client->polling = false;
	offer(client);
	WRITE_ONCE(region_page(&client->region)->service_epoch, client->service_epoch);
	life_beat(client);
	give_answer(client, &answer);
	fault(FAULT_ATTACH_RECORDED);
	return 0;
}

void life_end(struct front_client *client)
{
	struct answer answer = {
		.state = TMEM_SERVICE_REFUSED,
		.refusal = TMEM_REFUSED_STATE,
		.epoch = client->epoch,
	};

	drop_life(client);
	fdstore_forget(client);
	ivshmem_close(client);
	/* Somebody may still have it mapped. */
	if (client->region.fd >= 0)
		region_answer(&client->region, &answer);
	store_client_set_note(client->store, NULL, 0);
	fault(FAULT_LIFE_FORGOTTEN);
	region_close(&client->region);
	unlinkat(client->front->dir, client->file, 0);
	if (client->owner.pidfd >= 0)
		door_remove(client->front, client->owner.pidfd);
	owner_close(&client->owner);
	client->answered = 0;
}

void life_suspend(struct front_client *client)
{
	if (client->region.fd >= 0)
		WRITE_ONCE(region_page(&client->region)->service_state, TMEM_SERVICE_DOWN);
	ivshmem_close(client);
	region_close(&client->region);
	owner_close(&client->owner);
}

/* ---- Restart -------------------------------------------------------------------------------- */

/* A region that the arena does not know: whoever has it mapped waits for pages that are gone. */
static void bury_orphan(struct front_client *client)
{
	struct answer answer = {.state = TMEM_SERVICE_REFUSED, .refusal = TMEM_REFUSED_STATE};
	struct region region = {.fd = -1};
	struct tmem_region *page;

	if (!region_open(&region, client->front->dir, client->file, 0, TMEM_PAGE_SIZE)) {
		page = region_page(&region);
		answer.epoch = READ_ONCE(page->guest_epoch);
		region_answer(&region, &answer);
		region_close(&region);
	}
	unlinkat(client->front->dir, client->file, 0);
}

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
		if (client->rings[i].bell_out >= 0 &&
		    !ringer_ring(&client->front->ringer, client->rings[i].bell_out))
			log_limited(LOG_WARN, "client %s: no doorbell", client->name);
}

static int attach_region(struct front_client *client)
{
	struct tmem_region *page = region_page(&client->region);
	struct hello hello;
	int r = 0;

	client->service_epoch++;
	client->polling = !fdstore_take(client);
	if (client->polling)
		ivshmem_drop_bells(client);
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
	if (!client->polling)
		r = ivshmem_watch_bells(client);
	return r;
}

static int read_note(struct front_client *client, struct note *note)
{
	uint8_t bytes[STORE_MAX_NOTE] = {0};
	int len = store_client_note(client->store, bytes, sizeof(bytes));

	if (!len)
		return 0;
	if (len < (int)offsetof(struct note, start))
		return -EBADMSG;
	memcpy(note, bytes, sizeof(*note));
	if (note_check(bytes, (size_t)len) != note->check)
		return -EBADMSG;
	if (note->version != NOTE_VERSION || len != sizeof(*note))
		return -EPROTO;
	client->max_rings = note->max_rings;
	client->service_epoch = note->service_epoch;
	client->epoch = note->epoch;
	client->features = note->features;
	client->nr_rings = note->nr_rings;
	client->entries = note->entries;
	client->answer = note->answer;
	return len;
}

int life_attach(struct front_client *client)
{
	struct note note;
	int r = read_note(client, &note);

	if (r == -EBADMSG) {
		log_msg(LOG_ERROR,
			"client %s: the record of its life is damaged, which ends it; other "
			"clients are not affected",
			client->name);
		bury_orphan(client);
		life_end(client);
		return 0;
	}
	if (r < 0)
		return r;
	if (!r) {
		bury_orphan(client);
		return 0;
	}
	r = owner_find(&client->owner, (pid_t)note.pid, note.start);
	if (!r)
		r = region_open(&client->region, client->front->dir, client->file, note.inode,
				note.bytes);
	if (r == -ESRCH || r == -ENOENT || r == -ESTALE) {
		log_msg(LOG_NOTE, "client %s: %s; its life is over", client->name,
			r == -ESRCH ? "its owner is gone" : "its region is gone");
		life_end(client);
		return 0;
	}
	if (!r)
		r = door_add(client, DOOR_OWNER, client->owner.pidfd);
	if (!r)
		r = attach_region(client);
	if (!r)
		log_msg(LOG_INFO, "client %s: attached again to process %d, %s", client->name,
			(int)client->owner.pid,
			client->polling ? "without doorbells" : "with its doorbells");
	return r;
}
