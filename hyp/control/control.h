/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control side of tmemd: configuration, control socket, metrics text, and what the process
 * does to itself (locking, privileges, service manager).
 *
 * It knows the store; of the fronts it knows only what struct control_ops hands it. All functions
 * belong to the main thread unless they say otherwise. Errors come as a negated errno and a
 * sentence for the operator.
 */
#ifndef TMEMD_CONTROL_H
#define TMEMD_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "store/store.h"
#include "stream/stream.h"

struct event_base;

/* ---- Configuration ------------------------------------------------------------------------- */

#define CONFIG_PATH_MAX 192   /* a path, with the final zero */
#define CONFIG_SOCKET_MAX 108 /* the path of a socket: what sockaddr_un holds */
#define CONFIG_USER_MAX 33
#define CONFIG_DOMAIN_MAX 64 /* a domain's name, or the text of its UUID */

#define CONFIG_XEN_REGION_MAX (64ull << 20)

/* How a client is reached. */
enum config_front { CONFIG_IVSHMEM = 0, CONFIG_XEN = 1 };

/* [client NAME] */
struct config_client {
	char name[STORE_NAME_MAX];
	uint32_t front;			/* enum config_front */
	char domain[CONFIG_DOMAIN_MAX]; /* Xen: its name or UUID */
	char socket[CONFIG_SOCKET_MAX]; /* ivshmem; else empty */
	uint32_t socket_uid;		/* (uid_t)-1: unchanged */
	uint32_t socket_gid;
	uint32_t socket_mode;
	uint64_t region_bytes;
	uint32_t rings;
	uint32_t credits; /* that one ring may hold */
	struct store_limits limits;
	unsigned nr_shared; /* shared pools that it may join */
	uint64_t (*shared)[2];
};

#define CONFIG_MAX_DISKS 256
#define CONFIG_DISK_BLOCK 4096
#define CONFIG_DISK_MAX (1ull << 44) /* bytes */
#define CONFIG_DISK_QUEUES 8

/* [disk NAME], or a disk that a command asks for. */
struct config_disk {
	char name[STORE_NAME_MAX];
	char socket[CONFIG_SOCKET_MAX];
	uint32_t socket_uid; /* (uid_t)-1: unchanged */
	uint32_t socket_gid;
	uint32_t socket_mode;
	uint64_t bytes; /* as the guest sees it: a multiple of CONFIG_DISK_BLOCK */
	uint32_t queues;
	uint32_t overcommit; /* 1: it need not fit when nothing compresses */
	struct store_limits limits;
};

#define CONFIG_HOST_MAX 256 /* a host's name or address */
#define CONFIG_MAX_PEERS 255
#define CONFIG_MAX_PATTERNS 64
#define CONFIG_PEER_PORT 8636

/* Names of hosts, or patterns of fnmatch(3) for them. */
struct config_patterns {
	unsigned nr;
	char text[CONFIG_MAX_PATTERNS][STORE_NAME_MAX];
};

/* [peer NAME]: a host that lends to this one. */
struct config_peer {
	char name[STORE_NAME_MAX];
	char host[CONFIG_HOST_MAX];
	uint32_t port;
};

/* [peers] */
struct config_peers {
	char name[STORE_NAME_MAX];     /* this host's */
	char address[CONFIG_HOST_MAX]; /* to listen on; empty: all of the host's */
	uint32_t port;
	uint64_t lend;	 /* physical bytes of the pool at most for other hosts; 0: none */
	uint32_t copies; /* of each page that is away */
	struct config_patterns allow; /* who may borrow here */
	char tls[CONFIG_PATH_MAX];    /* directories; empty: the usual ones */
	char ca[CONFIG_PATH_MAX];
	char psk[CONFIG_PATH_MAX]; /* a file of secrets instead of certificates; empty: none */
};

struct config {
	/* [pool] */
	char arena[CONFIG_PATH_MAX];
	uint64_t pool_max;     /* physical bytes */
	uint64_t host_reserve; /* bytes of MemAvailable; 0 none */
	uint32_t ready_chunks;
	/* [front] */
	char regions[CONFIG_PATH_MAX]; /* a directory */
	uint32_t workers;
	uint32_t poll_us;
	/* [control] */
	char control_socket[CONFIG_SOCKET_MAX];
	uint32_t control_mode;
	uint32_t control_gid; /* (gid_t)-1: root alone */
	/* [log] */
	uint32_t log_level; /* enum log_level */
	/* [service] */
	char user[CONFIG_USER_MAX]; /* empty: stay who we are */
	uint32_t seccomp;	    /* 1 on, 0 off */
	struct config_peers peers;

	unsigned nr_clients;
	struct config_client *clients; /* in the order of the files */
	unsigned nr_disks;
	struct config_disk *disks;
	unsigned nr_peers;
	struct config_peer *peer;
};

/* Takes one line that says what is wrong, with file and line. */
typedef void (*config_say_fn)(const char *line);

/*
 * Reads `path` and then conf.d/?*.conf beside it in the order of their names. NULL when anything
 * at all is wrong; each thing is said. The caller frees the result.
 */
struct config *config_load(const char *path, config_say_fn say);
void config_free(struct config *config); /* NULL is fine */

/* The client, or disk, of that name in the configuration, or NULL. */
const struct config_client *config_client(const struct config *config, const char *name);
const struct config_disk *config_disk(const struct config *config, const char *name);

/* Whether a client or disk may be called so. */
bool config_name_valid(const char *name);

/* A disk of that name with all that its section may leave out; bytes is 0. */
void config_disk_defaults(struct config_disk *disk, const char *name);

/* The socket of a client or disk that names none. 0, or -ENAMETOOLONG. */
int config_default_socket(const char *name, char socket[CONFIG_SOCKET_MAX]);

/*
 * Physical bytes that a disk can take: nothing on it compresses (each page and its descriptor), or
 * that much is kept free for it.
 */
uint64_t config_disk_exposure(uint64_t bytes, uint64_t minimum);

/* The text form 8-4-4-4-12 of a UUID; its 16 bytes, in that order, are the two words' memory. */
int uuid_parse(const char *text, uint64_t uuid[2]); /* 0 or -EINVAL */
void uuid_format(const uint64_t uuid[2], char text[37]);

/* error, warning, note, info, debug. 0 or -EINVAL. */
int log_level_parse(const char *text, enum log_level *level);

/* ---- The control socket --------------------------------------------------------------------- */

struct control;

/* What a front says of one client. */
struct control_channel {
	bool attached;
	bool connected;
	bool polling;
	bool restored; /* pages were brought here and wait for their guest */
	bool xen;
	pid_t pid;	 /* 0 none */
	unsigned domain; /* 0 none */
	unsigned rings;
	unsigned max_rings;
	unsigned entries;
	uint64_t region_bytes;
	char socket[CONFIG_SOCKET_MAX];
};

/* What is known of one disk. */
struct control_disk {
	bool served;	 /* else it is only kept in the arena */
	bool configured; /* by a section of the configuration */
	bool command;	 /* made by a command */
	bool overcommit;
	bool connected; /* a front end has the socket */
	bool polling;
	pid_t pid; /* of the front end; 0 none */
	unsigned queues;
	unsigned queues_running;
	uint64_t bytes;
	char socket[CONFIG_SOCKET_MAX];
	uint32_t socket_mode;
	uint32_t socket_uid;
	uint32_t socket_gid;
};

/* The device of a client that is a domain of Xen. */
struct control_domain {
	char client[STORE_NAME_MAX];
	char wanted[CONFIG_DOMAIN_MAX]; /* name or UUID, as configured */
	unsigned domain;		/* 0: there is none now */
	uint64_t uuid[2];
	enum {
		CONTROL_DEVICE_ABSENT,
		CONTROL_DEVICE_OFFERED,
		CONTROL_DEVICE_LEAVING,
		CONTROL_DEVICE_LEFT
	} device;
};

/* What is to be done with it. KEEP: a guest that was told to give it back and has not, keeps it. */
enum control_wish { CONTROL_WISH_OFFER, CONTROL_WISH_TAKE, CONTROL_WISH_KEEP };

/* How a client is saved. */
struct control_save {
	const char *name;
	bool live; /* it runs, until it is said that it does not */
	/* Waits for a moment; true when somebody said that the guest is paused now. */
	bool (*paused)(void *arg, unsigned ms);
	/* A pass over a guest that runs has written so many pages. 0 or a negated errno. */
	int (*passed)(void *arg, uint64_t pages);
	void *arg;
};

#define CONTROL_LATENCY_BUCKETS 24u

/* What is known of a host that lends to this one. */
struct control_peer {
	char name[STORE_NAME_MAX];
	char host[CONFIG_HOST_MAX];
	unsigned port;
	const char *state; /* a word */
	bool up;
	bool draining;
	bool leaving; /* it wants its memory back */
	uint64_t spare_bytes;
	uint64_t blobs; /* of ours, as it says */
	uint64_t latency_us;
	char why[160]; /* it is not up; empty: not known, or it is */
	uint64_t counters[PEER_COUNTER_NR];
	/* Bucket i: took less than 2^(i+1) us; the last: any longer. */
	uint64_t get_latency[CONTROL_LATENCY_BUCKETS];
	uint64_t put_latency[CONTROL_LATENCY_BUCKETS];
};

/* What this host lends. */
struct control_lending {
	char name[STORE_NAME_MAX]; /* as which others allow it */
	unsigned port;
	uint64_t lend_bytes; /* physical, at most */
	uint64_t lent_bytes; /* physical, now */
	uint64_t counters[LENDER_COUNTER_NR];
};

enum control_peer_change { CONTROL_PEER_DRAIN, CONTROL_PEER_ALLOW, CONTROL_PEER_DENY };

/* What the fronts do for the control socket. Sentences in err are for the operator. */
struct control_ops {
	/* 0, or -ENOENT when no front serves the client. */
	int (*channel)(void *arg, const char *client, struct control_channel *channel);
	/* Something was frozen or thawed. */
	void (*refresh)(void *arg);

	/* 0, or -ENOENT when there is no disk of that name. */
	int (*disk)(void *arg, const char *name, struct control_disk *disk);
	/*
	 * Makes a disk that is there again after a restart, or serves one that is kept, whose
	 * values `disk` then has. 0 or a negated errno with err.
	 */
	int (*disk_create)(void *arg, const struct config_disk *disk, char *err, size_t errlen);
	int (*disk_resize)(void *arg, const char *name, uint64_t bytes, char *err, size_t errlen);
	/* With force also under a front end, and when the configuration has it. */
	int (*disk_remove)(void *arg, const char *name, bool force, char *err, size_t errlen);

	/* Any thread: 0 or a negated errno with err. */
	int (*save)(void *arg, const struct control_save *how, const struct stream_io *io,
		    struct stream_totals *totals, char *err, size_t errlen);
	/* Any thread. `head` is what the stream says of itself. */
	int (*restore)(void *arg, const char *name, const struct stream_io *io,
		       struct tmem_stream_head *head, struct stream_totals *totals, char *err,
		       size_t errlen);
	/* Drops what was restored and no guest claimed. 0 or -ENOENT. */
	int (*restore_discard)(void *arg, const char *name);

	/* Domains of Xen; any thread. At most `room`; their number. */
	unsigned (*domains)(void *arg, struct control_domain *domains, unsigned room);
	/* The one that a number, name, UUID or client names. 0 or a negated errno with err. */
	int (*domain_find)(void *arg, const char *text, struct control_domain *domain, char *err,
			   size_t errlen);
	/* Returns at once; what becomes of it, domains() tells. */
	void (*domain_wish)(void *arg, const char *client, enum control_wish wish);

	/*
	 * Physical bytes that all disks can take and the clients' minimums keep free, all in all; 0
	 * when there is no disk.
	 */
	uint64_t (*exposure)(void *arg);

	/* Peer i of all; false behind the last. */
	bool (*peer)(void *arg, unsigned i, struct control_peer *peer);
	/* False: nothing is lent. */
	bool (*lending)(void *arg, struct control_lending *lending);
	/*
	 * The peer of that name, as a lender, is drained within `deadline_ms`, spoken with (again),
	 * or not any more; the last two also as a borrower. 0 or a negated errno with err.
	 */
	int (*peer_change)(void *arg, enum control_peer_change change, const char *name,
			   uint32_t deadline_ms, char *err, size_t errlen);
};

/*
 * Listens on the configured socket, within the loop of `base`. -EADDRINUSE: another service
 * answers there; a file that nobody listens on is replaced.
 */
int control_open(struct control **control, struct event_base *base, struct store *store,
		 const struct config *config, const struct control_ops *ops, void *arg, char *err,
		 size_t errlen);

/* Ends all connections, waits for long commands (at most about a second) and unlinks the socket. */
void control_close(struct control *control); /* NULL is fine */

/*
 * While excluded, no long command holds a pointer to a client: for the removal of clients. The
 * first call waits until those under way are past their current step.
 */
void control_exclude(struct control *control, bool exclude);

/* ---- The process itself ---------------------------------------------------------------------- */

/*
 * Before threads and before privileges are dropped: IO_FLUSHER, memory locking, protection from
 * the OOM killer; and threads may take the niceness `worker_nice` later. Says by warnings what the
 * machine does not permit and what that means.
 */
void process_protect(int worker_nice);

/* Whether stderr is the journal, which wants lines with their level. */
bool log_to_journal(void);

/*
 * Becomes config->user, with its groups. Kept are CAP_CHOWN (sockets of clients get the owner that
 * the configuration names, also at reload) and CAP_IPC_LOCK (mappings made later are locked beyond
 * RLIMIT_MEMLOCK). Sets no_new_privs in any case.
 */
int process_drop(const struct config *config, char *err, size_t errlen);

/*
 * Allows, for all threads, only the system calls of the list in seccomp.c; others fail with EPERM.
 * 0, or -ENOTSUP when built without libseccomp or with a sanitizer.
 */
int process_seccomp(char *err, size_t errlen);

/* Tells the service manager, when there is one: lines as in sd_notify(3). */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Microseconds within which the service manager wants to hear WATCHDOG=1; 0: it does not. */
uint64_t notify_watchdog_us(void);

/* File descriptors that the service manager keeps for us at most; 0 none, -1 it does not say. */
int64_t notify_fd_store(void);

#endif
