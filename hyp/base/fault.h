/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fault-injection points: places where a test makes a call fail, kills the process, or slows it.
 *
 * A point is named once, in FAULT_POINTS. Code asks `if (fault(FAULT_X)) return -ENOMEM;` at a
 * place where something can fail, or just calls fault(FAULT_X) between two steps of a publication,
 * where only killing makes sense. Without --enable-fault-injection fault() is the constant false.
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
	X(ARENA_POPULATE, "arena_populate")	/* a chunk cannot be had from the host */          \
	X(ALLOC_PAYLOAD, "alloc_payload")	/* no room for the stored bytes */                 \
	X(ALLOC_DESC, "alloc_desc")		/* no descriptor */                                \
	X(ALLOC_OBJECT, "alloc_object")		/* no object table entry */                        \
	X(ALLOC_POOL, "alloc_pool")		/* no pool record */                               \
	X(PUT_PAYLOAD_WRITTEN, "put_payload")	/* payload copied, descriptor empty */             \
	X(PUT_DESC_FILLED, "put_desc")		/* descriptor filled, not published */             \
	X(PUT_PUBLISHED, "put_published")	/* published, old descriptor still live */         \
	X(PUT_OLD_FREED, "put_old_freed")	/* old descriptor freed */                         \
	X(FLUSH_HALF, "flush_half")		/* descriptor freed, payload not yet */            \
	X(OBJECT_PUBLISHED, "object_published") /* object interned, no page in it yet */           \
	X(POOL_PUBLISHED, "pool_published")	/* pool record live, the guest does not know */    \
	X(POOL_DYING, "pool_dying")		/* pool record dead, its pages still there */      \
	X(CLIENT_PUBLISHED, "client_published") /* client record live */                           \
	X(SLAB_CLAIMED, "slab_claimed")		/* slab has its class, no object yet */            \
	X(MOVE_COPIED, "move_copied")		/* compaction: copied, location not switched */    \
	X(MOVE_SWITCHED, "move_switched")	/* compaction: switched, old place not freed */    \
	X(CREDIT_GRANTED, "credit_granted")	/* recorded, not yet given to the guest */         \
	X(CREDIT_USED, "credit_used")		/* page published, credit still recorded */        \
	X(RING_EXECUTED, "ring_executed")	/* effect in the arena, done flag not set */       \
	X(RING_DONE, "ring_done")		/* done flag set, completion not visible */        \
	X(ATTACH_RECORDED, "attach_recorded")	/* region recorded, not yet served */

enum fault_point {
#define X(id, name) FAULT_##id,
	FAULT_POINTS(X)
#undef X
		FAULT_NR
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

/* How often the point was passed since it was last armed. */
uint64_t fault_passes(enum fault_point point);

#endif
