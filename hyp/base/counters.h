/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every counter and gauge of tmemd, defined once. From these lists come the enums, the tables of
 * names that `tmemctl stat --json` and `tmemctl metrics` print, and the table in the manual.
 *
 * X(id, name, unit, kind, help): `name` is what JSON calls it and, after "tmemd_client_" or
 * "tmemd_" and with "_total" behind a counter, what Prometheus calls it; kind is COUNTER (only
 * grows while the service lives) or GAUGE.
 */
#ifndef TMEMD_BASE_COUNTERS_H
#define TMEMD_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* One set for each client. Bytes say which kind they are: logical (pages x 4096) or physical. */
#define CLIENT_COUNTERS(X)                                                                         \
	X(PAGES_EPHEMERAL, "pages_ephemeral", "pages", GAUGE, "ephemeral pages held")              \
	X(PAGES_PERSISTENT, "pages_persistent", "pages", GAUGE, "persistent pages held")           \
	X(PAGES_AWAY, "pages_away", "pages", GAUGE,                                                \
	  "of the persistent pages: those with holders of a tier; 4096 logical bytes each")        \
	X(PHYSICAL_BYTES, "physical_bytes", "bytes", GAUGE,                                        \
	  "memory that the pages cost: size classes and descriptors")                              \
	X(CREDITS, "credits", "pages", GAUGE, "pages reserved for posted puts")                    \
	X(PUTS, "puts", "pages", COUNTER, "puts accepted")                                         \
	X(PUTS_POSTED, "puts_posted", "pages", COUNTER, "puts accepted that were posted")          \
	X(PUTS_SAME_FILLED, "puts_same_filled", "pages", COUNTER,                                  \
	  "puts of pages that repeat one 8-byte word")                                             \
	X(PUTS_INCOMPRESSIBLE, "puts_incompressible", "pages", COUNTER, "puts stored as they are") \
	X(GETS_HIT, "gets_hit", "pages", COUNTER, "gets that returned the page")                   \
	X(GETS_MISS, "gets_miss", "pages", COUNTER, "gets of handles that held nothing")           \
	X(GETS_DAMAGED, "gets_damaged", "pages", COUNTER,                                          \
	  "gets refused because the stored bytes did not match their checksum")                    \
	X(GETS_AWAY, "gets_away", "pages", COUNTER,                                                \
	  "gets that have to wait because the page is away; each try counts")                      \
	X(PAGES_SENT, "pages_sent", "pages", COUNTER, "pages that went to holders of a tier")      \
	X(PAGES_HOME, "pages_home", "pages", COUNTER, "pages that came back into memory")          \
	X(PAGES_LOST, "pages_lost", "pages", COUNTER,                                              \
	  "pages away that every holder has lost or gave wrong bytes for; gets of them fail")      \
	X(FLUSHED, "flushed", "pages", COUNTER,                                                    \
	  "pages dropped by flush page, flush object and destroy pool")                            \
	X(EVICTED, "evicted", "pages", COUNTER, "ephemeral pages dropped to make room")            \
	X(REFUSED_ROOM, "refused_room", "puts", COUNTER, "no populated memory was ready")          \
	X(REFUSED_MAXIMUM, "refused_maximum", "puts", COUNTER, "over the client's maximum")        \
	X(REFUSED_FROZEN, "refused_frozen", "puts", COUNTER, "client or service frozen")           \
	X(REFUSED_NO_POOL, "refused_no_pool", "operations", COUNTER, "no such pool")               \
	X(REFUSED_POOL, "refused_pool", "pools", COUNTER,                                          \
	  "pools not created: bad flags, too many, or sharing not authorised")                     \
	X(CREDITS_GRANTED, "credits_granted", "credits", COUNTER, "credits given")                 \
	X(CREDITS_REVOKED, "credits_revoked", "credits", COUNTER, "unused credits taken back")     \
	X(CREDITS_FORGED, "credits_forged", "puts", COUNTER,                                       \
	  "posted puts without a credit, handled as plain puts")                                   \
	X(RING_ENTRIES, "ring_entries", "entries", COUNTER, "ring entries executed")               \
	X(RING_BAD, "ring_bad", "entries", COUNTER, "ring entries refused as malformed")           \
	X(RING_BROKEN, "ring_broken", "events", COUNTER, "rings given up: tail out of bounds")     \
	X(RING_REPLAYED, "ring_replayed", "entries", COUNTER,                                      \
	  "entries executed at attachment, left over by an earlier run")                           \
	X(DOORBELLS_IN, "doorbells_in", "doorbells", COUNTER, "doorbells from the guest")          \
	X(DOORBELLS_OUT, "doorbells_out", "doorbells", COUNTER, "doorbells to the guest")          \
	X(LIVES, "lives", "hellos", COUNTER, "hellos accepted: boots and reloads of the guest")    \
	X(HELLOS_REFUSED, "hellos_refused", "hellos", COUNTER, "hellos refused")                   \
	X(CONNECTS_REFUSED, "connects_refused", "connections", COUNTER,                            \
	  "connections to the client's socket that were closed at once")                           \
	X(DISK_REQUESTS, "disk_requests", "requests", COUNTER, "disk: requests completed")         \
	X(DISK_ERRORS, "disk_errors", "requests", COUNTER,                                         \
	  "disk: requests completed with an error")                                                \
	X(DISK_FULL, "disk_full", "requests", COUNTER,                                             \
	  "disk: writes that failed because no room was to be had")                                \
	X(DISK_BROKEN, "disk_broken", "events", COUNTER, "disk: queues given up: malformed")

/* One set for the service. */
#define STORE_COUNTERS(X)                                                                          \
	X(CHUNKS_READY, "chunks_ready", "chunks", GAUGE, "populated chunks of 2 MiB not in use")   \
	X(CHUNKS_USED, "chunks_used", "chunks", GAUGE, "chunks that hold payload")                 \
	X(META_BYTES, "meta_bytes", "bytes", GAUGE,                                                \
	  "physical memory of descriptors, object table and indexes")                              \
	X(POOL_BYTES, "pool_bytes", "bytes", GAUGE,                                                \
	  "physical memory taken from the host for the pool, all in all")                          \
	X(STORED_BYTES, "stored_bytes", "bytes", GAUGE, "stored (compressed) bytes of all pages")  \
	X(ALLOCATED_BYTES, "allocated_bytes", "bytes", GAUGE,                                      \
	  "physical bytes of the slabs that hold them")                                            \
	X(CHUNKS_POPULATED, "chunks_populated", "chunks", COUNTER, "chunks taken from the host")   \
	X(CHUNKS_RETURNED, "chunks_returned", "chunks", COUNTER, "chunks given back to the host")  \
	X(POPULATE_FAILED, "populate_failed", "events", COUNTER, "the host had no chunk to give")  \
	X(PAGES_MOVED, "pages_moved", "pages", COUNTER, "pages moved by compaction")               \
	X(PRESSURE, "pressure", "events", COUNTER,                                                 \
	  "times that the host, or a control group of the service, ran short of memory")           \
	X(SHORT, "short", "flag", GAUGE, "1 while it is short of memory")                          \
	X(GROWTH_BYTES, "growth_bytes", "bytes", GAUGE,                                            \
	  "physical memory that the pool may still take: pool_max, host_reserve, control groups")  \
	X(SWEPT, "swept", "pages", COUNTER, "pages of destroyed pools freed")                      \
	X(AWAY_BYTES, "away_bytes", "bytes", GAUGE,                                                \
	  "logical bytes of pages that are with holders of a tier")                                \
	X(TIER_FLIGHTS, "tier_flights", "requests", GAUGE, "requests that the tier works on")      \
	X(TIER_STALE, "tier_stale", "pages", COUNTER,                                              \
	  "pages sent away in vain: changed or flushed meanwhile")                                 \
	X(TIER_FULL, "tier_full", "pages", COUNTER, "pages that no holder had room for")           \
	X(TIER_UNREACHABLE, "tier_unreachable", "requests", COUNTER,                               \
	  "requests that failed because a holder did not answer")                                  \
	X(TIER_LIES, "tier_lies", "blobs", COUNTER,                                                \
	  "blobs that came back other than they were sent")                                        \
	X(TIER_SERVED, "tier_served", "pages", COUNTER,                                            \
	  "gets answered without room in memory for the page")                                     \
	X(TIER_COPIES, "tier_copies", "pages", COUNTER,                                            \
	  "pages copied again: their holder has lost them, or wants its memory back")              \
	X(TIER_COPIES_FAILED, "tier_copies_failed", "pages", COUNTER,                              \
	  "attempts to copy a page again that failed; it keeps what it has")                       \
	X(TIER_RENEWED, "tier_renewed", "requests", COUNTER,                                       \
	  "times that a holder was told what it has to keep")                                      \
	X(TIER_MISSING, "tier_missing", "blobs", COUNTER,                                          \
	  "blobs that a holder, asked to keep them, had not")                                      \
	X(TIER_DELETES_DROPPED, "tier_deletes_dropped", "blobs", COUNTER,                          \
	  "deletes that found no room to wait; made good when holders are told what is live")      \
	X(LENT_BLOBS, "lent_blobs", "blobs", GAUGE, "pages of other hosts that are held here")     \
	X(LENT_BYTES, "lent_bytes", "bytes", GAUGE, "physical memory that they take")              \
	X(LEND_REFUSED, "lend_refused", "blobs", COUNTER,                                          \
	  "blobs of other hosts not taken: more than is lent, or it is not spare")                 \
	X(REBUILT, "rebuilt", "pages", GAUGE, "pages found in the arena at start")                 \
	X(REBUILD_NS, "rebuild_ns", "nanoseconds", GAUGE, "time that the rebuild took")

/* One set for each peer that lends to this host. */
#define PEER_COUNTERS(X)                                                                           \
	X(CONNECTS, "connects", "connections", COUNTER, "connections that came up")                \
	X(CONNECTS_FAILED, "connects_failed", "connections", COUNTER,                              \
	  "attempts that did not come up: no answer, TLS, refused")                                \
	X(CUT, "cut", "connections", COUNTER, "connections that ended while they were up")         \
	X(LATE, "late", "connections", COUNTER, "of these: silent, or an answer came too late")    \
	X(LOST, "lost", "events", COUNTER, "times that it had lost all of our blobs")              \
	X(PUTS, "puts", "blobs", COUNTER, "blobs that it took")                                    \
	X(PUTS_FULL, "puts_full", "blobs", COUNTER, "blobs that it had no room for")               \
	X(PUTS_FAILED, "puts_failed", "blobs", COUNTER, "blobs of which it is not known")          \
	X(PUTS_UNDONE, "puts_undone", "blobs", COUNTER,                                            \
	  "blobs deleted again because another copy could not be made")                            \
	X(GETS, "gets", "blobs", COUNTER, "blobs that came back")                                  \
	X(GETS_ABSENT, "gets_absent", "blobs", COUNTER, "blobs that it did not have")              \
	X(GETS_FAILED, "gets_failed", "blobs", COUNTER, "gets without an answer, or refused")      \
	X(GETS_HEDGED, "gets_hedged", "blobs", COUNTER,                                            \
	  "gets that went to another holder too because this one took long")                       \
	X(DELETES, "deletes", "blobs", COUNTER, "deletes sent")                                    \
	X(DELETES_DROPPED, "deletes_dropped", "blobs", COUNTER,                                    \
	  "deletes not sent, left to a renewal: too many were waiting")                            \
	X(RENEWALS, "renewals", "ranges", COUNTER, "ranges renewed")                               \
	X(BYTES_OUT, "bytes_out", "bytes", COUNTER, "physical bytes of blobs sent")                \
	X(BYTES_IN, "bytes_in", "bytes", COUNTER, "physical bytes of blobs that came back")        \
	X(IN_FLIGHT, "in_flight", "requests", GAUGE, "requests without an answer")                 \
	X(BLOBS, "blobs", "blobs", GAUGE, "blobs that it holds for this host, as it says")

/* One set for what this host lends. */
#define LENDER_COUNTERS(X)                                                                         \
	X(OWNERS, "owners", "connections", GAUGE, "hosts that are connected")                      \
	X(CONNECTS, "connects", "connections", COUNTER, "connections that were welcomed")          \
	X(REFUSED_TLS, "refused_tls", "connections", COUNTER,                                      \
	  "no TLS session: certificate or secret wrong, expired, or no TLS at all")                \
	X(REFUSED_NAME, "refused_name", "connections", COUNTER, "the name is not allowed")         \
	X(REFUSED_HELLO, "refused_hello", "connections", COUNTER,                                  \
	  "version, size, epoch or session do not fit")                                            \
	X(REFUSED_BUSY, "refused_busy", "connections", COUNTER, "too many connections")            \
	X(BROKEN, "broken", "connections", COUNTER, "connections cut for frames out of form")      \
	X(LATE, "late", "connections", COUNTER,                                                    \
	  "connections cut: silent, or their answers were not read")                               \
	X(PUTS, "puts", "blobs", COUNTER, "blobs taken")                                           \
	X(PUTS_FULL, "puts_full", "blobs", COUNTER, "blobs refused for want of room")              \
	X(GETS, "gets", "blobs", COUNTER, "blobs given back")                                      \
	X(GETS_ABSENT, "gets_absent", "blobs", COUNTER, "gets of blobs that are not here")         \
	X(FAILED, "failed", "blobs", COUNTER, "puts and gets that failed otherwise")               \
	X(DELETES, "deletes", "blobs", COUNTER, "deletes")                                         \
	X(RENEWALS, "renewals", "ranges", COUNTER, "ranges renewed")                               \
	X(BYTES_IN, "bytes_in", "bytes", COUNTER, "physical bytes of blobs taken")                 \
	X(BYTES_OUT, "bytes_out", "bytes", COUNTER, "physical bytes of blobs given back")

enum client_counter {
#define X(id, name, unit, kind, help) CLIENT_##id,
	CLIENT_COUNTERS(X)
#undef X
		CLIENT_COUNTER_NR
};

enum store_counter {
#define X(id, name, unit, kind, help) STORE_##id,
	STORE_COUNTERS(X)
#undef X
		STORE_COUNTER_NR
};

enum counter_kind { COUNTER, GAUGE };

enum peer_counter {
#define X(id, name, unit, kind, help) PEER_##id,
	PEER_COUNTERS(X)
#undef X
		PEER_COUNTER_NR
};

enum lender_counter {
#define X(id, name, unit, kind, help) LENDER_##id,
	LENDER_COUNTERS(X)
#undef X
		LENDER_COUNTER_NR
};

struct counter_info {
	const char *name;
	const char *unit;
	enum counter_kind kind;
	const char *help;
};

extern const struct counter_info client_counter_info[CLIENT_COUNTER_NR];
extern const struct counter_info store_counter_info[STORE_COUNTER_NR];
extern const struct counter_info peer_counter_info[PEER_COUNTER_NR];
extern const struct counter_info lender_counter_info[LENDER_COUNTER_NR];

typedef _Atomic uint64_t counter_t;

/* Adds; the value of a gauge may go down by adding the two's complement. Any thread. */
static inline void counter_add(counter_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline void counter_sub(counter_t *c, uint64_t n)
{
	atomic_fetch_sub_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_get(const counter_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_set(counter_t *c, uint64_t v)
{
	atomic_store_explicit(c, v, memory_order_relaxed);
}

#endif
