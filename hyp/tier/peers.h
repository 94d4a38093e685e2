/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Peers: hosts that hold each other's blobs in spare memory (docs/peer-protocol.md).
 *
 * A *lender* holds blobs of other hosts, its owners; it serves a table of operations that its user
 * gives. *Peers* is the owner's side: a tier (store/tier.h) over all hosts that lend to this one. A
 * host usually is both; the two do not know of each other.
 *
 * Each has one thread of its own, which does all of the network and TLS. The functions here may be
 * called from any other thread; none waits for a host, but for lender_close() and peers_close(),
 * which wait for their thread. Errors are negated errnos, with a sentence in `err` where there is
 * one.
 */
#ifndef TMEMD_TIER_PEERS_H
#define TMEMD_TIER_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "store/tier.h"

#define PEER_NAME 64 /* bytes of a host's name, its final zero included */
#define PEER_UUID 16

/*
 * How hosts know each other. X.509, in the files and directories that libvirt has too, or, where
 * psk_file is set, one secret for each host.
 */
struct peer_tls {
	const char *ca_dir; /* NULL: /etc/pki/CA; cacert.pem and, when there is one, cacrl.pem */
	const char *dir; /* NULL: /etc/pki/tmemd; servercert.pem, private/serverkey.pem, client* */
	const char *psk_file; /* NULL, or a file of lines NAME:KEY as psktool writes it */
};

/* Who this host is. */
struct peer_self {
	const char *name; /* for messages; with secrets also who we say we are */
	uint8_t uuid[PEER_UUID];
	uint64_t epoch; /* of our arena; not 0; a new arena has a higher one */
};

/* All in ms; 0: the default. A test makes them short. */
struct peer_times {
	uint32_t hello;	  /* 5000: from the connection to the welcome */
	uint32_t answer;  /* 3000: to one request; who is later is cut off */
	uint32_t hedge;	  /* 250: then another holder is asked too */
	uint32_t ping;	  /* 1000: between two pings of an idle link */
	uint32_t silence; /* 4000: without a byte, then the link is given up */
	uint32_t retry;	  /* 100: to the first new attempt; doubles up to 64 times that */
	uint32_t request; /* 10000: after that a put is tried with no other host */
};

/* How long something took: bucket i counts from 2^i us on (0: from 0); the last has no end. */
#define PEER_LATENCY_BUCKETS 24u
struct peer_latency {
	counter_t buckets[PEER_LATENCY_BUCKETS];
};

/* ---- Lending -------------------------------------------------------------------------------- */

/*
 * Whose blobs. `id` is made of the name that the host has proved and the uuid that it says, so that
 * no host reaches what another one has, whatever it says.
 */
struct lender_owner {
	uint8_t id[16];
	uint64_t epoch;
	const char *name; /* as proved */
};

/*
 * What the lender serves. All are called from its thread, one at a time, and must not wait. The
 * blobs of one owner are those of its newest epoch alone.
 */
struct lender_ops {
	/*
	 * 0; -ENOSPC no room: what was there under the number is gone; or another errno: the same,
	 * for a reason that another blob need not have. A number that is there is replaced.
	 */
	int (*put)(void *arg, const struct lender_owner *owner, uint64_t blob, const void *bytes,
		   uint32_t len);
	/* Its length, with the blob in `bytes` (room for TIER_BLOB_MAX); -ENOENT; other: it is
	 * there, and cannot be had. */
	int (*get)(void *arg, const struct lender_owner *owner, uint64_t blob, void *bytes);
	void (*delete)(void *arg, const struct lender_owner *owner, uint64_t blob);
	/*
	 * Of [first, end) the `nr` in `blobs` (rising) stay, the rest goes. How many of them are
	 * not there.
	 */
	uint32_t (*renew)(void *arg, const struct lender_owner *owner, uint64_t first, uint64_t end,
			  const uint64_t *blobs, uint32_t nr);
	/* Bytes that would be taken from this owner now, and how many blobs of it are there. */
	void (*spare)(void *arg, const struct lender_owner *owner, uint64_t *bytes, uint64_t *held);
	/*
	 * The owner lives in owner->epoch now; what is there of an earlier one goes. 0, or -ESTALE
	 * with *newest when there is something of a later one.
	 */
	int (*forget_epoch)(void *arg, const struct lender_owner *owner, uint64_t *newest);
};

struct lender_settings {
	const struct lender_ops *ops;
	void *arg;
	struct peer_self self;
	struct peer_tls tls;
	struct peer_times times;
	const char *address;  /* numeric; NULL: all */
	uint16_t port;	      /* 0: any, see lender_port() */
	uint32_t connections; /* at most; 0: 64. One takes at most half a MiB */
};

struct lender;

/* Listens; nobody is allowed yet. */
int lender_open(struct lender **lender, const struct lender_settings *settings, char *err,
		size_t size);
void lender_close(struct lender *lender);
uint16_t lender_port(const struct lender *lender);

/*
 * Names that may, or may not, put and get here: patterns of fnmatch(3) on the names in the
 * certificate, or on the name that goes with the secret. Denying wins, and cuts off who is
 * connected; what it has here stays. Each call takes the pattern out of the other list.
 * 0, -ENOSPC too many patterns (1024), -EINVAL too long.
 */
int lender_allow(struct lender *lender, const char *pattern);
int lender_deny(struct lender *lender, const char *pattern);

/*
 * The memory is wanted back: all owners are asked to take away what they have here by then, also
 * those that connect later. It is for `ops` to refuse puts meanwhile. 0: it is not wanted any more.
 */
void lender_leave(struct lender *lender, uint32_t deadline_ms);

/* LENDER_COUNTER_NR of them. */
const counter_t *lender_counters(const struct lender *lender);

/* ---- Borrowing ------------------------------------------------------------------------------ */

/*
 * What has to be remembered of a peer while our arena lives, so that its holder number keeps its
 * meaning, and a loss is seen also when we were away.
 */
struct peer_record {
	char name[PEER_NAME];
	uint16_t holder;
	uint8_t uuid[PEER_UUID]; /* all 0: was never there */
	uint64_t epoch;
};

struct peers_settings {
	struct peer_self self;
	struct peer_tls tls;
	struct peer_times times;

	/* What remember() was last given of each. */
	const struct peer_record *known;
	uint32_t nr_known;

	/*
	 * Is called before a holder is used the first time, and after events.lost(): from
	 * peers_add() or from the tier's thread. It may do what takes some ms.
	 */
	void (*remember)(void *arg, const struct peer_record *record);
	void *arg;

	uint32_t requests; /* in work at once; 0: 1024. Half of them may be puts */
	uint32_t client;   /* of these, for one client's gets, and as many puts; 0: 128 */
};

struct peers;

int peers_open(struct peers **peers, const struct peers_settings *settings, char *err, size_t size);

/* The table for the store; its events are to be set before peers_start(). */
struct store_tier *peers_tier(struct peers *peers);
int peers_start(struct peers *peers);

/*
 * Every request that is out is answered first (-EHOSTUNREACH). After it nobody calls the table.
 */
void peers_close(struct peers *peers);

/*
 * A host that lends: `name` is what its certificate must have; `host` is looked up now, which may
 * take a while. 0; -EEXIST; -ENOSPC all holder numbers are taken; -EHOSTUNREACH no address.
 */
int peers_add(struct peers *peers, const char *name, const char *host, uint16_t port, char *err,
	      size_t size);

/* No new blob goes there, and the store is told to take away what is there. -ENOENT. */
int peers_drain(struct peers *peers, const char *name, uint32_t deadline_ms);

/* Not spoken with any more, whatever is there. -ENOENT. */
int peers_deny(struct peers *peers, const char *name);

/* Undoes drain and deny. -ENOENT. */
int peers_allow(struct peers *peers, const char *name);

enum peer_state { PEER_DOWN, PEER_CONNECTING, PEER_UP, PEER_DENIED };

/* A copy of what is known of a peer now. */
struct peer_info {
	char name[PEER_NAME];
	char host[256];
	uint16_t port;
	uint16_t holder;
	enum peer_state state;
	bool draining;
	bool leaving; /* it wants its memory back */
	uint64_t epoch;
	uint64_t spare_bytes;
	uint64_t held; /* blobs of ours, as it says */
	uint32_t latency_us;
	char why[160]; /* it is down, or was the last time; empty: never was */
	uint64_t counters[PEER_COUNTER_NR];
	uint64_t get_latency[PEER_LATENCY_BUCKETS];
	uint64_t put_latency[PEER_LATENCY_BUCKETS];
};

/* Peer `i` of the list, in the order of their numbers; false behind the last. */
bool peers_info(struct peers *peers, unsigned i, struct peer_info *info);

#endif
