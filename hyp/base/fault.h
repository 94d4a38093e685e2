/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fault-injection points: places where a test makes a call fail, kills the process, or slows it.
 *
 * A point is named once, in FAULT_POINTS. Code asks `if (fault(FAULT_X)) return -ENOMEM;` at a
 * place where something can fail, or just calls fault(FAULT_X) between two steps of a publication,
 * where only killing makes sense. Without --enable-fault-injection fault() is the constant false.
 *
 * The points are the list of all publication steps, i.e. of stores that a restarted service reads:
 * a kill anywhere between two of them leaves what a kill at the first would. The kind says which
 * test kills at each of them: FAIL, STORE, REBUILD: tests/model/enumerate, FRONT:
 * tests/service/enumerate, DISK: tests/service/disk_restart, SESSION: tests/service/disk_fdstore,
 * STREAM: tests/service/stream, AWAY: tests/model/away. A point that its test never passes makes
 * that test fail. SLOW is no step: there a test makes one thread late, so that another comes first.
 *
 * Tests arm points by fault_arm(), or from outside by the environment variable TMEMD_FAULTS:
 * "name=action[:skip[:count]]" separated by commas; action is fail, kill or sleep (1 ms); the
 * first `skip` passes (default 0) do nothing, then `count` (default 1, 0 = for ever) act.
 */
#ifndef TMEMD_BASE_FAULT_H
#define TMEMD_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_POINTS(X)                                                                            \
	X(ARENA_POPULATE, "arena_populate", FAIL, "a chunk cannot be had from the host")           \
	X(ALLOC_PAYLOAD, "alloc_payload", FAIL, "no room for the stored bytes")                    \
	X(ALLOC_DESC, "alloc_desc", FAIL, "no descriptor")                                         \
	X(ALLOC_OBJECT, "alloc_object", FAIL, "no object table entry")                             \
	X(ALLOC_POOL, "alloc_pool", FAIL, "no pool record")                                        \
	X(LEND_ALTERED, "lend_altered", SLOW, "another byte is given back than was lent")          \
	X(POOL_RESOLVED, "pool_resolved", SLOW, "pool id resolved, its shard not locked")          \
	X(ARENA_BEGUN, "arena_begun", STORE,                                                       \
	  "new arena: a file under another name, no superblock")                                   \
	X(ARENA_WRITTEN, "arena_written", STORE, "new arena: whole, under another name")           \
	X(ARENA_NAMED, "arena_named", STORE, "new arena: in its place, nobody has it yet")         \
	X(TABLE_POPULATED, "table_populated", STORE, "memory for a table, its bound not raised")   \
	X(CHUNK_POPULATED, "chunk_populated", STORE, "memory for a chunk, not recorded")           \
	X(CHUNK_DISOWNED, "chunk_disowned", STORE,                                                 \
	  "no longer recorded, its memory not given back")                                         \
	X(CHUNK_RETURNED, "chunk_returned", STORE, "its memory given back")                        \
	X(SLAB_CLAIMED, "slab_claimed", STORE, "slab has its class, no object yet")                \
	X(SLAB_RELEASED, "slab_released", STORE, "slab has no class any more")                     \
	X(PUT_PAYLOAD_WRITTEN, "put_payload", STORE, "payload copied, descriptor empty")           \
	X(PUT_DESC_FILLED, "put_desc", STORE, "descriptor filled, not published")                  \
	X(PUT_PUBLISHED, "put_published", STORE, "published, old descriptor still live")           \
	X(PUT_OLD_FREED, "put_old_freed", STORE, "old descriptor freed")                           \
	X(FLUSH_HALF, "flush_half", STORE, "descriptor freed, payload not yet")                    \
	X(OBJECT_FILLED, "object_filled", STORE, "object entry written, not published")            \
	X(OBJECT_PUBLISHED, "object_published", STORE, "object interned, no page in it yet")       \
	X(OBJECT_FREED, "object_freed", STORE, "object entry freed after its last page")           \
	X(MOVE_COPIED, "move_copied", STORE, "compaction: copied, location not switched")          \
	X(MOVE_SWITCHED, "move_switched", STORE, "compaction: switched, old place not freed")      \
	X(POOL_FILLED, "pool_filled", STORE, "pool record written, not live")                      \
	X(POOL_PUBLISHED, "pool_published", STORE, "pool record live, in no client's table")       \
	X(POOL_JOINED, "pool_joined", STORE, "in the client's table, the guest does not know")     \
	X(POOL_DYING, "pool_dying", STORE, "pool record dead, still in the client's table")        \
	X(POOL_LEFT, "pool_left", STORE, "out of the client's table, its pages still there")       \
	X(POOL_FREED, "pool_freed", STORE, "pool record free, all its pages gone")                 \
	X(CLIENT_FILLED, "client_filled", STORE, "client record written, not live")                \
	X(CLIENT_PUBLISHED, "client_published", STORE, "client record live, without limits")       \
	X(CLIENT_LIMITS_HALF, "client_limits_half", STORE, "one limit recorded, the others not")   \
	X(CLIENT_REMOVED, "client_removed", STORE, "client record free")                           \
	X(NOTE_WRITTEN, "note_written", STORE, "note written, the old one still valid")            \
	X(NOTE_SELECTED, "note_selected", STORE, "the new note is valid")                          \
	X(CREDIT_GRANTED, "credit_granted", STORE, "recorded, not yet given to the guest")         \
	X(CREDIT_USED, "credit_used", STORE, "page published, credit still recorded")              \
	X(CREDIT_SETTLED, "credit_settled", STORE, "no longer recorded")                           \
	X(REBUILD_POOLS, "rebuild_pools", REBUILD, "pools without members freed, their pages not") \
	X(REBUILD_OBJECT, "rebuild_object", REBUILD, "object of a dead pool freed, its pages not") \
	X(REBUILD_DROPPED, "rebuild_dropped", REBUILD, "a descriptor dropped")                     \
	X(REBUILD_OLD_OUT, "rebuild_old_out", REBUILD, "the older of two descriptors dropped")     \
	X(REBUILD_CHUNK, "rebuild_chunk", REBUILD, "a chunk taken over, empty slabs freed")        \
	X(REBUILD_PUNCHED, "rebuild_punched", REBUILD, "memory that no chunk owns given back")     \
	X(REBUILD_DONE, "rebuild_done", REBUILD, "all taken over, nobody served")                  \
	X(RING_EXECUTED, "ring_executed", FRONT, "effect in the arena, done flag not set")         \
	X(RING_DONE, "ring_done", FRONT, "done flag set, completion not visible")                  \
	X(RING_TOLD, "ring_told", FRONT, "completion visible, no doorbell yet")                    \
	X(CREDIT_TAKEN, "credit_taken", FRONT, "taken from the guest, still recorded")             \
	X(REGION_MADE, "region_made", FRONT, "region file made, in no note")                       \
	X(ATTACH_RECORDED, "attach_recorded", FRONT, "region recorded, not yet served")            \
	X(LIFE_DROPPED, "life_dropped", FRONT,                                                     \
	  "pools of the old life gone, its epoch in the note")                                     \
	X(RINGS_CLEARED, "rings_cleared", FRONT, "rings empty, new epoch not in the note")         \
	X(HELLO_RECORDED, "hello_recorded", FRONT, "new epoch in the note, without credits")       \
	X(ANSWER_RECORDED, "answer_recorded", FRONT, "answer in the note, not yet in the region")  \
	X(REPLAYED, "replayed", FRONT, "what was left over is executed, credits not divided")      \
	X(LIFE_FORGOTTEN, "life_forgotten", FRONT, "no note any more, region file still there")    \
	X(DISK_MADE, "disk_made", DISK, "pool of a disk made, no record of the disk")              \
	X(DISK_EXECUTED, "disk_executed", DISK, "request executed, not completed in the ring")     \
	X(DISK_COMPLETED, "disk_completed", DISK, "request completed, the guest not called")       \
	X(SESSION_KEPT, "session_kept", SESSION,                                                   \
	  "a new connection: its box is in the fd store, and empty")                               \
	X(SESSION_FORGOTTEN, "session_forgotten", SESSION, "the box is empty, a message not read") \
	X(SESSION_ANSWERED, "session_answered", SESSION,                                           \
	  "messages are answered, the box is empty")                                               \
	X(SESSION_RECORDED, "session_recorded", SESSION, "the last message is in the box")         \
	X(SESSION_TAKEN, "session_taken", SESSION, "taken over, no request of it executed")        \
	X(SESSION_ENDED, "session_ended", SESSION,                                                 \
	  "over: the box is empty, still in the fd store")                                         \
	X(RESTORE_BEGUN, "restore_begun", STREAM, "a restore is noted, nothing of it is there")    \
	X(RESTORE_WHOLE, "restore_whole", STREAM, "everything is there, noted as unfinished")      \
	X(RESTORE_NOTED, "restore_noted", STREAM, "noted as whole, no guest was told")             \
	X(RESTORE_GIVEN_UP, "restore_given_up", STREAM, "nothing is there any more, still noted")  \
	X(DISK_RESTORED, "disk_restored", STREAM,                                                  \
	  "the record names the new content, the old one is still there")                          \
	X(ARENA_GROWN, "arena_grown", AWAY,                                                        \
	  "the file of an old format is longer, not yet named new")                                \
	X(CLIENT_KEY_WRITTEN, "client_key_written", AWAY,                                          \
	  "a key in the arena, not marked as whole")                                               \
	X(BLOBS_RESERVED, "blobs_reserved", AWAY, "numbers of blobs reserved, none is used")       \
	X(AWAY_SENT, "away_sent", AWAY, "holders have the page, no record says so")                \
	X(AWAY_FILLED, "away_filled", AWAY, "where a page is was written, the page is still here") \
	X(AWAY_PUBLISHED, "away_published", AWAY, "the page is away, its place here not free")     \
	X(AWAY_DROPPED, "away_dropped", AWAY,                                                      \
	  "a page that was away is gone, its holders not told")                                    \
	X(HOME_COPIED, "home_copied", AWAY, "a page has come home, it still counts as away")       \
	X(HOME_PUBLISHED, "home_published", AWAY, "a page is here, its holders still have it")     \
	X(COPY_MADE, "copy_made", AWAY, "another holder has a copy, no record says so")            \
	X(COPY_PUBLISHED, "copy_published", AWAY, "recorded, the holder that is left not told")

enum fault_point {
#define X(id, name, kind, text) FAULT_##id,
	FAULT_POINTS(X)
#undef X
		FAULT_NR
};

enum fault_kind {
	FAULT_KIND_FAIL,    /* a call that can fail */
	FAULT_KIND_STORE,   /* a step while the store is made and used */
	FAULT_KIND_REBUILD, /* a step while it is rebuilt */
	FAULT_KIND_FRONT,   /* a step of a client's life and its rings */
	FAULT_KIND_DISK,    /* a step of a disk and its queues */
	FAULT_KIND_SESSION, /* a step of a front end's connection that is kept over a restart */
	FAULT_KIND_STREAM,  /* a step of a restore */
	FAULT_KIND_AWAY,    /* a step of a page's way to holders and back */
	FAULT_KIND_SLOW,    /* between two steps of one thread */
};

enum fault_action { FAULT_OFF, FAULT_FAIL, FAULT_KILL, FAULT_SLEEP };

#ifdef TMEMD_FAULT_INJECTION
extern _Atomic bool fault_armed; /* any point armed: the only thing read on the page path */
bool fault_hit(enum fault_point point);

/* True when the caller shall behave as if its call had failed. Thread-safe. */
static inline bool fault(enum fault_point point)
{
	return atomic_load_explicit(&fault_armed, memory_order_relaxed) && fault_hit(point);
}
#else
static inline bool fault(enum fault_point point)
{
	(void)point;
	return false;
}
#endif

/*
 * Arms or disarms (FAULT_OFF) a point. count 0: for ever. Thread-safe. Without
 * --enable-fault-injection it returns false and does nothing.
 */
bool fault_arm(enum fault_point point, enum fault_action action, uint32_t skip, uint32_t count);

/* Arms what TMEMD_FAULTS says. 0, or -EINVAL with *bad the part not understood. */
int fault_from_env(const char **bad);

const char *fault_name(enum fault_point point);
enum fault_kind fault_kind(enum fault_point point);
const char *fault_text(enum fault_point point); /* what is done and what is not */

/* How often the point was passed since it was last armed. */
uint64_t fault_passes(enum fault_point point);

#endif
