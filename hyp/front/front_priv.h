/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the front share.
 *
 * Threads and locks. `front.lock` guards the table of clients and everything in them that workers
 * do not use; the door thread and the functions of front.h hold it while they work. A ring is
 * executed by one worker only, without a lock. Whoever wants to change what workers use (shares,
 * doorbells, a region's mapping) holds front.lock and either finds the client not `served`, or
 * stops all workers between two batches with workers_pause().
 *
 * Everything in a region may be changed by the guest at any time: it is read once with the macros
 * below into a local variable, and checked there. What the service must know is in its own
 * memory, and what it must know after a crash is in the note (life.c).
 */
#ifndef TMEMD_FRONT_PRIV_H
#define TMEMD_FRONT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/counters.h"
#include "front/front.h"
#include "proto/tmem_abi.h"
#include "store/store.h"

#define FRONT_MAX_WORKERS 4
#define FRONT_BATCH STORE_BATCH	       /* entries executed between two looks at anything else */
#define FRONT_TICK_NS (100 * CLOCK_MS) /* heartbeat, hellos by timer */
#define FRONT_HELLO_NS (20 * CLOCK_MS) /* one client's hellos are answered no faster */
#define FRONT_VM_PEER 0
#define FRONT_SERVICE_PEER 1

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

struct front_client;
struct disk;

/* ---- region.c: the mapping, its first page, and the named file that ivshmem has ---------------
 */

struct region {
	uint8_t *base; /* NULL: no region */
	uint64_t bytes;
	int fd; /* -1: not a file */
	uint64_t inode;
	_Atomic bool *lost; /* the file was cut under us; `base` is private memory now */
};

/* The guest's part of the first page, read once. */
struct hello {
	uint32_t state; /* enum tmem_guest_state */
	uint32_t abi;
	uint64_t features;
	uint32_t nr_rings;
	uint32_t entries;
	uint64_t epoch;
	uint64_t former; /* the life that goes on; 0: none */
};

/* The service's answer. */
struct answer {
	uint32_t state;	  /* enum tmem_service_state */
	uint32_t refusal; /* enum tmem_refusal */
	uint64_t epoch;
	uint64_t guest;
	uint64_t service;
};

static inline struct tmem_region *region_page(const struct region *region)
{
	return (struct tmem_region *)region->base;
}

/*
 * Makes the file `name` in `dir` anew (a former one is unlinked) with all its memory, and maps it.
 * 0 or a negated errno.
 */
int region_create(struct region *region, int dir, const char *name, uint64_t bytes);

/*
 * Maps an existing one. -ENOENT, -ESTALE when it is another file than the one recorded. inode 0:
 * the first `bytes` of whatever is there; its owner may have made it as large as it liked.
 */
int region_open(struct region *region, int dir, const char *name, uint64_t inode, uint64_t bytes);

/* Unmaps; the file stays. Twice-callable. */
void region_close(struct region *region);

/* True when it is a file and somebody changed its size. */
bool region_tampered(const struct region *region);

void region_hello(const struct region *region, struct hello *hello);
void region_answer(const struct region *region, const struct answer *answer);

/*
 * Checks a hello against what was offered. True when it is accepted; else fills refusal and both
 * values of the answer.
 */
bool region_check(const struct hello *hello, uint64_t features, uint32_t max_rings, uint64_t bytes,
		  struct answer *answer);

/* ---- owner.c: whose region it is ------------------------------------------------------------ */

/* A process, or with the Xen channel a domain. */
struct owner {
	pid_t pid; /* of the process, number of the domain; 0: nobody */
	/*
	 * What tells it from others that had the number: of a process the time of its start, in
	 * ticks after boot (field 22 of /proc/PID/stat), and the inode of its region; of a domain
	 * its UUID.
	 */
	uint64_t key[2];
	int pidfd; /* of a process: readable when it is gone; else -1 */
};

/* Fills in the process behind a socket. 0 or a negated errno. */
int owner_of_socket(struct owner *owner, int sock);

/* Finds a recorded process again. -ESRCH when it is gone. */
int owner_find(struct owner *owner, pid_t pid, uint64_t start);
bool owner_alive(const struct owner *owner);
void owner_close(struct owner *owner);

/* ---- bell.c: doorbells to guests ------------------------------------------------------------ */

/* For one thread at a time. */
struct ringer {
	unsigned long context; /* aio_context_t; 0: none */
	unsigned unreaped;
	int nothing; /* /dev/null */
};

/* 0 or a negated errno; it can be used all the same, but see SECURITY.md. */
int ringer_open(struct ringer *ringer);
void ringer_close(struct ringer *ringer);

/* Never waits, whatever others do to the eventfd. False: not rung. */
bool ringer_ring(struct ringer *ringer, int bell);

/* Workers (do not) listen to the doorbells that the rings have. 0 or a negated errno. */
int bells_watch(struct front_client *client);
void bells_unwatch(struct front_client *client);

/* ---- worker.c: lanes ------------------------------------------------------------------------ */

struct lane;

struct lane_ops {
	/* Is something submitted? Cheap: asked again and again while a worker polls. */
	bool (*pending)(struct lane *lane);

	/*
	 * Executes what is submitted, in order, about `max` (<= FRONT_BATCH) pages' worth of it.
	 * Returns how many pages that was, at least 1; 0 when nothing can be executed now.
	 */
	unsigned (*step)(struct lane *lane, unsigned max);

	bool (*arm)(struct lane *lane);	   /* asks for a doorbell; false: there will be none */
	void (*disarm)(struct lane *lane); /* asks for none */
	void (*heard)(struct lane *lane);  /* the doorbell rang; may be NULL */
	void (*chore)(struct lane *lane);  /* see workers_chores(); may be NULL */
};

/* What one worker executes in order: a ring of a client, a queue of a disk. */
struct lane {
	const struct lane_ops *ops;
	struct served *served;
	struct ringer *ringer; /* of the thread that executes it */
	bool armed;
	struct lane *next; /* in the share */
};

/* The lanes of one client that one worker executes. */
struct share {
	struct served *served;
	struct lane *lanes;   /* linked by next */
	struct lane *current; /* whose turn it is; NULL: the first */
	int64_t deficit;      /* ns that the share may still use in this round */
	uint32_t page_ns;     /* recent cost of one page */
	struct share *next;
};

/* Whom the workers serve, each as much as the others: a client with its rings, a disk. */
struct served {
	struct front *front;
	unsigned place; /* lane i is executed by worker (place + i) modulo their number */
	counter_t *counters;
	_Atomic bool broken; /* set by a lane: nothing of it is executed any more */
	_Atomic bool held;   /* nothing of it is executed until it is let go */
	struct share shares[FRONT_MAX_WORKERS];
};

/* ---- ring.c --------------------------------------------------------------------------------- */

struct ring {
	struct lane lane; /* first: a lane of a client is a ring */
	struct front_client *client;
	unsigned index;

	/* In the region. */
	struct tmem_ring_ctl *ctl;
	uint16_t *sq;
	uint16_t *cq;
	struct tmem_entry *entries;
	uint8_t *slots;

	/* The worker's own. */
	uint32_t n;	  /* entries */
	uint32_t head;	  /* submissions before this position are executed */
	uint32_t cq_tail; /* completions written */
	uint32_t cq_told; /* completions for which a doorbell was considered */
	uint32_t credits; /* granted for this ring and not yet used by an executed entry */

	/* Entries that wait for pages that are away, in their order, see parked.c. */
	struct parked *parked; /* room for TMEM_MAX_ENTRIES */
	unsigned nr_parked;
	_Atomic bool come; /* set by anybody: something that they wait for may be there */

	/*
	 * Doorbells, descriptors that the channel knows how to use; -1: none. They belong to the
	 * vector, whether the ring is used or not.
	 */
	int bell_in;
	int bell_out;
};

void ring_setup(struct ring *ring, uint32_t entries);

extern const struct lane_ops ring_lane_ops;

/* Entries that an earlier run left: found first, executed when the credits are known. */
struct replay {
	uint32_t tail; /* of the submission queue when it was read */
	unsigned nr;   /* entries not done */
	struct {
		uint32_t seq;
		uint16_t entry;
	} todo[TMEM_MAX_ENTRIES]; /* in order of position */
};
void ring_scan(struct ring *ring, struct replay *replay);
void ring_replay(struct ring *ring, const struct replay *replay);

/* ---- parked.c: entries that wait for pages --------------------------------------------------- */

struct parked {
	struct tmem_entry entry; /* the guest's part, as it was read */
	uint32_t position;
	uint16_t number;
	bool replayed; /* left by an earlier run: its effect may be there already */
};

/* Room for all rings of a client, untouched until it is used. 0, -ENOMEM. */
int parked_open(struct front_client *client);
void parked_close(struct front_client *client); /* twice-callable */

/* Has the entry to wait behind one of the first `nr` that are parked? */
bool parked_before(const struct ring *ring, unsigned nr, const struct tmem_entry *entry);

void parked_add(struct ring *ring, const struct parked *parked);

/*
 * Tries those once that have nobody to wait behind; `attempt` says whether it is executed. Returns
 * how many were.
 */
unsigned parked_retry(struct ring *ring,
		      bool (*attempt)(struct ring *ring, const struct parked *parked));

/* May something that the ring waits for have come? */
bool parked_pending(const struct ring *ring);

/* A waker of the store: `arg` is the client. */
void parked_wake(void *arg);

/* ---- credits.c ------------------------------------------------------------------------------ */

/* Uses one credit; false when the ring has none: the put was forged. */
bool ring_credit_use(struct ring *ring);

/* Refills the ring, or takes its unused credits back, as the state of the store asks for. */
void ring_credits_step(struct ring *ring);

/* Gives all credits of a life that ended back to the store. */
void client_credits_end(struct front_client *client);

/*
 * After a restart all that the store has reserved for the client serves the entries that are left
 * over. When these are executed, what remains is divided among the rings.
 */
void client_credits_attach(struct front_client *client);
void client_credits_divide(struct front_client *client);

/* ---- worker.c: threads ----------------------------------------------------------------------- */

struct worker {
	struct front *front;
	unsigned index;
	pthread_t thread;
	bool started;
	int epoll;
	int wake; /* eventfd */
	struct ringer ringer;
	_Atomic bool chores; /* look after the credits of all rings */
	struct share *shares;
	_Atomic unsigned timed; /* lanes without doorbells */
	uint64_t poll_ns;	/* current polling window */
	uint64_t nap_ns;	/* current interval of timed polling */
};

int workers_start(struct front *front);
void workers_stop(struct front *front); /* twice-callable */
bool workers_turn(struct front *front); /* see front_work() */

/* Stops all workers between two batches, and lets them go on. Under front.lock. */
void workers_pause(struct front *front);
void workers_resume(struct front *front);

/* Under workers_pause(). The lanes have ops and served. */
void workers_add(struct served *served, struct lane **lanes, unsigned nr);
void workers_remove(struct served *served);

/* Under front.lock. Holds it if none of its lanes has anything to do just now: true. */
bool workers_hold(struct served *served);
/* Under front.lock. Is it held, and still has nothing to do? */
bool workers_held(struct served *served);
void workers_let_go(struct served *served); /* twice-callable */

/*
 * The doorbell of lane `index` is (not) listened to. Whoever goes on to free the lane does it under
 * workers_pause(): a worker may have heard the doorbell just before.
 */
int lane_watch(struct lane *lane, unsigned index, int bell);
void lane_unwatch(struct lane *lane, unsigned index, int bell);

/* The lane has no doorbell: its worker looks at it by a timer. One call on, one call off. */
void lane_time(struct lane *lane, unsigned index, bool timed);

/* Makes the lane's worker look, and ask for doorbells anew. */
void lane_wake(struct lane *lane, unsigned index);

/* Wakes all workers to do the chores of their lanes: to look after credits. */
void workers_chores(struct front *front);

/* ---- channels: ivshmem.c, xen.c -------------------------------------------------------------- */

/*
 * How a client is reached, what its region is made of, who its owner can be. All under front.lock
 * but where it says otherwise.
 */
struct channel_ops {
	uint32_t note; /* version of the notes of its lives */

	/*
	 * Lets an owner come: what the configuration says is in force. Again with changed values.
	 * 0 or a negated errno with a sentence; on failure what was in force stays.
	 */
	int (*open)(struct front_client *client, const struct front_client_config *config,
		    char *err, size_t errlen);

	/* No owner can come any more. Twice-callable. */
	void (*close)(struct front_client *client);

	/*
	 * An earlier run left a life, whose note is in `client`: calls, now or later,
	 * life_attach_again() when its owner and region are found, else life_end(). 0 or a negated
	 * errno.
	 */
	int (*attach)(struct front_client *client);

	/* Nothing was left that is known; what there is nevertheless is told and removed. */
	void (*bury)(struct front_client *client);

	/* Drops doorbells and connection; `forever`: the life is over. Twice-callable. */
	void (*hang_up)(struct front_client *client, bool forever);

	/* Unmaps the region; `forever`: nobody may find it again. Twice-callable. */
	void (*unmap)(struct front_client *client, bool forever);

	/* Any thread that has the ring: rings the guest, never waits. False: not rung. */
	bool (*ring)(struct ring *ring);

	/* The ring's worker: its doorbell was heard. May be NULL. */
	void (*heard)(struct ring *ring);
};

extern const struct channel_ops ivshmem_channel, xen_channel;

/* ---- clients -------------------------------------------------------------------------------- */

struct front_client {
	struct front *front;
	const struct channel_ops *channel;
	unsigned slot;	     /* in front.clients */
	uint32_t generation; /* of the slot */
	struct store_client *store;
	counter_t *counters;
	char name[STORE_NAME_MAX];
	char file[STORE_NAME_MAX + 8]; /* of the region, in region_dir */
	char socket[108];
	uint64_t region_bytes;
	unsigned max_rings; /* and vectors */
	_Atomic uint32_t ring_credits;

	/* ivshmem */
	int listener;
	bool deaf; /* no descriptor was free to accept; listens again at the next tick */
	int connection;

	struct xen_device *device; /* Xen */

	struct owner owner;
	struct region region;

	/* The life that is served. */
	_Atomic uint64_t offered;  /* features; the region's copy is the guest's to change */
	struct answer answer;	   /* the last one that was given */
	_Atomic uint64_t epoch;	   /* guest_epoch of the life that is served; 0: none */
	_Atomic uint64_t answered; /* answer.epoch, for life_knocks() */
	uint64_t features;
	unsigned nr_rings;
	uint32_t entries;
	uint64_t service_epoch;
	/* Names the offer that this owner has; 0: of an older release. */
	_Atomic uint64_t offer_id;
	uint64_t heartbeat;
	_Atomic uint64_t hello_after; /* the next hello is looked at after this time */
	bool served;		      /* workers have the rings */
	bool polling;		      /* no doorbells; changed only while not served */
	bool kept;		      /* the service manager holds our file descriptors */

	/* Streams, see stream.c. */
	uint64_t former;   /* a life that was restored and waits for its guest; 0: none */
	bool restoring;	   /* its pools are not yet whole, and no hello is heard */
	bool saving;	   /* it does not end before that is over */
	bool ending;	   /* ... and then it does */
	_Atomic bool sums; /* the guest may be migrated: gets carry a sum */

	_Atomic uint32_t reserve; /* credits whose ring is not known, after a restart */

	/* Of the first ring that a worker found broken. */
	uint64_t broken_guest;
	uint64_t broken_service;

	struct served lanes; /* as the workers see it */
	bool timed;	     /* its rings are looked at by a timer */
	struct ring rings[TMEM_MAX_RINGS];
};

struct front {
	struct store *store;
	struct xen *xen; /* NULL: no Xen here, or nobody needs it */
	int dir;	 /* of the regions */
	uint64_t poll_ns;
	pthread_mutex_t lock;
	struct front_client *clients[STORE_MAX_CLIENTS];
	unsigned nr_slots; /* slots before this one may be used */
	struct disk *disks[FRONT_MAX_DISKS];
	uint32_t generation;

	bool no_threads;
	unsigned nr_workers;
	struct worker workers[FRONT_MAX_WORKERS];
	_Atomic bool stop;
	_Atomic bool pausing;
	pthread_mutex_t pause_lock;
	pthread_cond_t pause_cond;  /* a worker paused */
	pthread_cond_t resume_cond; /* workers may go on */
	unsigned paused;
	_Atomic bool credits_short; /* a ring got fewer credits than it should have */

	pthread_t door;
	_Atomic bool door_stopping;
	bool door_started;
	int door_epoll;
	int door_wake;
	struct ringer ringer; /* under `lock` */
	_Atomic bool door_poked;
	uint64_t next_tick;
};

/* ---- life.c: what begins and ends a life; all under front.lock ------------------------------ */

/* Takes up what an earlier run left of this client. 0 or a negated errno. */
int life_attach(struct front_client *client);

/* A new owner, which is taken over, of the region that the client has by now. */
void life_begin(struct front_client *client, const struct owner *owner);

/*
 * Owner, region and doorbells (or client->polling) of a life of an earlier run are found: executes
 * what is left over and serves. 0 or a negated errno.
 */
int life_attach_again(struct front_client *client);

/* Gives the rings to the workers when there is a life; takes them away. Twice-callable. */
void life_serve(struct front_client *client);
void life_stop(struct front_client *client);

/*
 * The owner is gone, or is to be rid of: pools, credits, region and note go. While the client is
 * saved, it only is noted that they are to go.
 */
void life_end(struct front_client *client);

/* A life of another service is being brought here; is here; or is given up. */
void life_restoring(struct front_client *client);
void life_restored(struct front_client *client, uint64_t epoch);
void life_discard(struct front_client *client);

/* Looks whether the guest says hello or bye, or a worker found something broken. */
void life_look(struct front_client *client);

/* True when life_look() would find a hello or a bye. For workers that heard a doorbell. */
bool life_knocks(struct front_client *client);

/* Sign of life, and the hint that puts will be refused. */
void life_beat(struct front_client *client);

/* Leaves everything for the next run. The workers have stopped. */
void life_suspend(struct front_client *client);

/* ---- front.c -------------------------------------------------------------------------------- */

/* Under front.lock. NULL: the front does not serve it. */
struct front_client *client_find(struct front *front, const char *name);

/* ---- socket.c ------------------------------------------------------------------------------- */

struct front_socket {
	const char *path;
	mode_t mode;
	uid_t uid; /* (uid_t)-1: unchanged */
	gid_t gid;
};

/* A new listening socket, in the place of one that an earlier run left. Or a negated errno. */
int socket_listen(const struct front_socket *access);

/* Mode and owner of the socket file. 0 or a negated errno. */
int socket_set_access(const struct front_socket *access);

/* Closes and unlinks. Twice-callable. */
void socket_close(int *fd, const char *path);

bool socket_peer_closed(int sock);

/* ---- ivshmem.c: the protocol of QEMU's ivshmem server --------------------------------------- */

/* Takes one connection from the listener. */
void ivshmem_accept(struct front_client *client);

/* Something happened on the connection. */
void ivshmem_connection(struct front_client *client);

/* ---- xen.c: the device `tmem` of Xen --------------------------------------------------------- */

/* The thread that talks to xenstore. 0 or a negated errno. Stopping is twice-callable. */
int xen_start(struct front *front);
void xen_stop(struct front *front);

/* ---- fdstore.c: the service manager keeps descriptors over a restart ------------------------ */

/*
 * Looks what the service manager handed us, and lets it forget what belongs to no life that the
 * store knows. Once, before clients are added.
 */
void fdstore_open(struct store *store);
void fdstore_close(void);

void fdstore_keep(struct front_client *client);

/* Lets it forget what is kept, or was handed over, for this client. */
void fdstore_forget(struct front_client *client);

/* Takes back the doorbells (and the connection when there is one); false: not all were kept. */
bool fdstore_take(struct front_client *client);

/* There is a service manager; nobody knows whether its store has room. */
bool fdstore_is_there(void);

/* Two descriptors of the disk of that name. */
void fdstore_keep_pair(const char *name, const int pair[2]);

/* Lets it forget what is kept, or was handed over, for that name. */
void fdstore_forget_pair(const char *name);

/* Takes back both; false: they were not kept, what was is forgotten. */
bool fdstore_take_pair(const char *name, int pair[2]);

/* ---- door.c --------------------------------------------------------------------------------- */

enum door_watch {
	DOOR_LISTENER,
	DOOR_CONNECTION,
	DOOR_OWNER,
	DOOR_DISK_LISTENER,
	DOOR_DISK_CONNECTION
};

int door_start(struct front *front);
void door_stop(struct front *front); /* twice-callable */
void door_turn(struct front *front, int wait_ms);
int door_add(struct front_client *client, enum door_watch what, int fd);
int door_add_disk(struct disk *disk, enum door_watch what, int fd);
void door_remove(struct front *front, int fd);

/* Makes the door look at all clients soon. Any thread. */
void door_poke(struct front *front);

#endif
