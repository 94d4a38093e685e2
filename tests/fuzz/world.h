/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A store, the ivshmem front and two guests in one process and one thread. The honest guest does
 * what the ABI says; what the hostile one does is the target's.
 */
#ifndef TMEMD_TESTS_FUZZ_WORLD_H
#define TMEMD_TESTS_FUZZ_WORLD_H

#include "front/front_priv.h"
#include "store/store_priv.h"
#include "tests/fuzz/fuzz.h"

#define PRIVATE (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT)
#define PERSISTENT (PRIVATE | TMEM_POOL_PERSIST)

#define HONEST_PAGES 12
#define HOSTILE_RINGS 4 /* that it may have */
#define HOSTILE_CREDITS 8

/* The guest's end: what came over the socket, and its rings. */
struct guest {
	const char *name;
	char socket[108];
	int sock;      /* -1 none */
	int region;    /* file; -1 none */
	uint8_t *base; /* NULL none */
	size_t bytes;
	unsigned nr_bells;
	int ring_service[TMEM_MAX_RINGS]; /* doorbells to the service */
	int ring_guest[TMEM_MAX_RINGS];
	uint32_t nr_rings;
	uint32_t entries; /* of each ring */
	uint32_t tail[TMEM_MAX_RINGS];
};

struct world {
	struct store *store;
	struct front *front;
	struct guest honest;
	struct guest hostile;
	uint32_t pool;		       /* the honest guest's */
	uint64_t stamps[HONEST_PAGES]; /* what its pages hold; 0: nothing */
	bool frozen;

	/* A change between two reads of the service, see world_arm(). */
	bool armed;
	unsigned after; /* loads */
	uint64_t change;
	uint8_t *watched; /* the service's mapping of the hostile guest's region */
	size_t watched_bytes;
};
extern struct world world;

/* Once: directory, store, front, honest guest. */
void world_make(const char *name);

/* What every run begins with: the hostile client is there, and has never been seen before. */
void world_begin(void);

/* Takes the hostile client away, and looks whether anything is left of it, or harmed. */
void world_end(void);

/* The service is stopped and started with this hostile client; the store goes on. */
void world_restart(const struct front_client_config *hostile);

struct front_client_config world_config(const char *name);
void world_add(const struct front_client_config *config);
struct front_client *world_client(const char *name);

/*
 * From here on loads from the hostile guest's region count; before the one that the input says,
 * the guest changes the word that is about to be read.
 */
void world_arm(struct bytes *in);

/* The honest guest puts, and what it put before must be right. */
void world_honest_put(unsigned page, uint64_t stamp);
void world_honest_look(unsigned page);

/* The service works until it has nothing more to do, or for `turns` turns. */
void world_work(unsigned turns);

/* ---- Guests --------------------------------------------------------------------------------- */

/* Connects and takes what is handed out. False when the service refuses. */
bool guest_connect(struct guest *guest);
void guest_hang_up(struct guest *guest);
void guest_close(struct guest *guest);

/* The owner cuts its region; from then on it looks at other memory. */
void guest_cut(struct guest *guest, size_t bytes);

static inline struct tmem_region *guest_page(const struct guest *guest)
{
	return (struct tmem_region *)guest->base;
}

/* Writes a hello; it is answered when the service works. */
void guest_say_hello(struct guest *guest, uint32_t rings, uint32_t entries, uint64_t features,
		     uint64_t epoch);

struct tmem_ring_ctl *guest_ring(const struct guest *guest, unsigned ring);
uint16_t *guest_sq(const struct guest *guest, unsigned ring, uint32_t place);
struct tmem_entry *guest_entry(const struct guest *guest, unsigned ring, unsigned number);
uint8_t *guest_slot(const struct guest *guest, unsigned ring, unsigned number);

/* Submits the entry, whose seq is filled in, as entry `number` of a ring. */
void guest_submit(struct guest *guest, unsigned ring, unsigned number, struct tmem_entry *entry);

#endif
