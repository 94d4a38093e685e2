/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fronts: how guests reach the store.
 *
 * A front owns its threads: workers that execute ring entries (fair between clients), and one
 * "door" thread that accepts connections, answers hellos, watches for clients that ended and
 * keeps the heartbeat. It knows the store by store.h alone.
 *
 * The ivshmem front speaks the protocol of QEMU's ivshmem server (QEMU docs/specs/ivshmem-spec)
 * on one Unix socket for each client. A VM (QEMU's ivshmem-doorbell device) and a process of the
 * host (tools/client) use it in the same way: they get an id, the region and the doorbells.
 * The Xen front is the back end of the device `tmem` of a domain (docs/xen.md).
 */
#ifndef TMEMD_FRONT_H
#define TMEMD_FRONT_H

/* Niceness of the threads that serve guests, where it is permitted: before the guests' CPUs. */
#define FRONT_WORKER_NICE (-10)

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct store;
struct store_client;
struct front;
struct xen;

/*
 * The devices of this host's Xen, for clients that are domains with `rings` rings in all. They are
 * root's: before privileges are dropped. NULL with a sentence when there is no Xen here.
 */
bool front_xen_built(void); /* false: built without Xen's libraries, it opens nothing */
struct xen *front_xen_open(unsigned rings, char *err, size_t errlen);
void front_xen_close(struct xen *xen); /* what front_open() did not get; NULL is fine */

struct front_config {
	struct xen *xen;	/* NULL: no client is a domain. front_open() takes it over */
	const char *region_dir; /* on the arena's mount: regions are named files in it */
	unsigned workers;	/* threads that execute entries; 0: one a CPU, at most 4 */
	unsigned
		poll_us; /* how long a worker polls idle rings before it sleeps; 0: sleep at once */
	bool no_threads; /* tests: no threads; the test calls front_work() */
};

struct front_client_config {
	const char *name;   /* of a client that the store has */
	bool xen;	    /* it is a domain; else a process that connects to the socket */
	const char *domain; /* its name or UUID */
	const char *socket; /* path of the Unix socket to listen on */
	mode_t socket_mode; /* of the socket file */
	uid_t socket_uid;   /* (uid_t)-1: unchanged */
	gid_t socket_gid;
	uint64_t region_bytes; /* power of two, 1 MiB .. 1 GiB; that of an existing region wins */
	unsigned max_rings;    /* 1..TMEM_MAX_RINGS; also the number of doorbell vectors */
	unsigned ring_credits; /* credits that one ring may hold; 0: no posted puts offered */
};

/*
 * Starts the threads. Regions of clients that an earlier run left are attached when
 * front_client_add() names their client. 0 or a negated errno with a sentence in err.
 */
int front_open(struct front **front, struct store *store, const struct front_config *config,
	       char *err, size_t errlen);

/*
 * One turn of the door and of each worker, without waiting. True when a worker had something to
 * do. For tests with no_threads; one thread at a time.
 */
bool front_work(struct front *front);

/*
 * Serves one client: attaches the region that its note in the store names (executes what is not
 * done, before it returns), makes the socket and listens. Adding a client again with changed
 * values applies what can be changed while it lives (socket, its mode and owner, credits).
 */
int front_client_add(struct front *front, const struct front_client_config *config, char *err,
		     size_t errlen);

/*
 * Ends the client's life (its ring pools go), closes and unlinks its socket and region. -EBUSY
 * while it is saved or restored.
 */
int front_client_remove(struct front *front, const char *name);

struct front_status {
	bool serving;	/* the front knows the client */
	bool attached;	/* it has an owner that lives, as far as we know */
	bool connected; /* its hello was accepted */
	bool polling;	/* no doorbells: attached again after a restart without fd store */
	bool restored;	/* pages were brought here and wait for their guest */
	bool streaming; /* it is being saved or restored */
	bool xen;
	pid_t pid;	 /* owner of the region: QEMU or a local process; 0 none */
	unsigned domain; /* owner of the region that is a domain; 0 none */
	unsigned rings;
	unsigned max_rings; /* of the configuration */
	unsigned entries;   /* of each ring */
	uint64_t region_bytes;
	char socket[108];
};

/* 0, or -ENOENT when the front does not serve it. */
int front_client_status(struct front *front, const char *name, struct front_status *status);

/* ---- Domains of Xen ----------------------------------------------------------------------------
 */

/* The device of a domain in xenstore. */
enum front_device {
	FRONT_DEVICE_ABSENT,  /* no such domain, or the device comes at any moment */
	FRONT_DEVICE_OFFERED, /* it is there; whether the guest uses it is front_status.connected */
	FRONT_DEVICE_LEAVING, /* the guest was told to give it back, and has not (yet) */
	FRONT_DEVICE_LEFT,    /* taken away; offered again by a reload, or when asked for */
};

#define FRONT_DOMAIN_TEXT 64

struct front_domain {
	char client[FRONT_DOMAIN_TEXT]; /* whose it is */
	char wanted[FRONT_DOMAIN_TEXT]; /* name or UUID that the client is configured for */
	unsigned domain;		/* 0: no such domain now */
	uint64_t uuid[2];
	enum front_device device;
};

/*
 * Finds the client of the domain that the text names by number, name or UUID, or the client of that
 * name. Waits for xenstore; any thread. 0, or a negated errno with a sentence: -ENODEV no Xen is
 * served here, -ENOENT there is no such domain, -ENXIO it is there, and no client is for it.
 */
int front_domain_find(struct front *front, const char *text, struct front_domain *found, char *err,
		      size_t errlen);

/* All clients that are domains, at most `room`. Their number. Any thread. */
unsigned front_domains(struct front *front, struct front_domain *domains, unsigned room);

/*
 * What is to be done with a client's device; it is done soon, and front_domains() tells. Any
 * thread. KEEP: a guest that was told to give it back, and has not, may use it on.
 */
enum front_wish { FRONT_WISH_OFFER, FRONT_WISH_TAKE, FRONT_WISH_KEEP };
void front_domain_wish(struct front *front, const char *client, enum front_wish wish);

/* ---- Disks: vhost-user-blk ------------------------------------------------------------------ */

#define FRONT_MAX_DISKS 256
#define FRONT_DISK_QUEUES 8	    /* at most */
#define FRONT_DISK_MAX (1ull << 44) /* bytes: an index has 32 bits */

struct front_disk_config {
	const char *name;   /* of a client that the store has, for this disk alone */
	const char *socket; /* path of the Unix socket to listen on */
	mode_t socket_mode;
	uid_t socket_uid; /* (uid_t)-1: unchanged */
	gid_t socket_gid;
	uint64_t bytes;	 /* as the guest sees it: a multiple of 4096 */
	unsigned queues; /* 1..FRONT_DISK_QUEUES */
	uint64_t flags;	 /* kept with the disk for the caller, see front_disk_known() */
};

/*
 * Serves a disk. Its pool and its record in the client's note are made when the client has none;
 * else it is the disk that an earlier run served, with its content and its number of queues;
 * `bytes` may then be more than it had, less is -EINVAL. Adding a disk again with changed values
 * applies them. 0 or a negated errno with a sentence.
 */
int front_disk_add(struct front *front, const struct front_disk_config *config, char *err,
		   size_t errlen);

/*
 * -EBUSY while a front end is connected, unless forced, and while it is saved or restored. The
 * content goes with the client.
 */
int front_disk_remove(struct front *front, const char *name, bool force);

/* What the store knows of a disk, served or not. */
struct front_disk_known {
	uint64_t bytes;
	unsigned queues;
	uint64_t flags;
	char socket[108];
	mode_t socket_mode;
	uid_t socket_uid;
	gid_t socket_gid;
};

/* True when the client's note is that of a disk. */
bool front_disk_known(const struct store_client *client, struct front_disk_known *known);

/* True when it was that of a disk and is damaged: the disk can only be removed. */
bool front_disk_damaged(const struct store_client *client);

struct front_disk_status {
	bool connected; /* a front end has the socket */
	bool running;	/* a queue is served */
	bool polling;	/* a queue has no kick eventfd */
	bool streaming; /* it is being saved or restored */
	pid_t pid;	/* of the front end; 0 none */
	unsigned queues_running;
	unsigned queues;
	uint64_t bytes;
	char socket[108];
};

/* 0, or -ENOENT when the front does not serve it. */
int front_disk_status(struct front *front, const char *name, struct front_disk_status *status);

/* ---- Streams: a client or a disk is saved or restored ---------------------------------------- */

/* What is to be known of it elsewhere. */
struct front_life {
	bool disk;
	/* A guest's life. */
	uint64_t epoch;
	uint64_t features;
	uint64_t region_bytes;
	unsigned rings;
	unsigned entries;
	unsigned credits; /* pages that the guest may have been promised, at most */
	uint64_t uuid[2]; /* of a domain; else 0 */
	/* A disk. */
	uint64_t bytes;
	unsigned queues;
	uint32_t pool;
};

/*
 * The client or disk of that name is to be saved. Until front_save_end() it is not removed, and
 * when its owner ends its pages stay. 0; or a negated errno with a sentence: -ENOENT nobody serves
 * it, -EBUSY, -ENODATA nothing of it could go on elsewhere. Any thread, as for all below.
 */
int front_save_begin(struct front *front, const char *name, struct front_life *life, char *err,
		     size_t errlen);

/*
 * 1: everything that was asked for is done, and nothing of what may still come is until
 * front_save_end(). 0: it is at work just now. -ESTALE: this life is over, another began.
 */
int front_save_hold(struct front *front, const char *name, const struct front_life *life);

/* Is it as front_save_hold() left it: nothing has been asked for since? */
bool front_save_held(struct front *front, const char *name, const struct front_life *life);

/* Nobody is there any more who could ask for anything. */
bool front_save_abandoned(struct front *front, const char *name);
void front_save_end(struct front *front, const char *name);

/*
 * Such a life, or content, is to be brought to this client or disk, which must be empty and at
 * rest. Until front_restore_end() it stays so, also over a crash. 0, or a negated errno and a
 * sentence.
 */
int front_restore_begin(struct front *front, const char *name, const struct front_life *life,
			char *err, size_t errlen);

/*
 * It is whole: a guest that names the life goes on with it; a disk has the content of `pool`. Or
 * (life NULL) it was given up, and nothing of it is there.
 */
void front_restore_end(struct front *front, const char *name, const struct front_life *life);

/* Drops a life that was restored and that no guest has claimed. 0, -ENOENT: there is none. */
int front_restore_discard(struct front *front, const char *name);

/* ---- All ------------------------------------------------------------------------------------ */

/* Tells waiting guests of a changed store_frozen() or store_client_frozen(). */
void front_refresh(struct front *front);

/* Stops all threads between entries. Regions stay for the next run; accepted entries too. */
void front_close(struct front *front);

#endif
