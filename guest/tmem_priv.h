/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the module share.
 *
 * A page's way: an attachment (frontswap.c, cleancache.c) names a handle (pool, object, index),
 * takes the lock of the handle's stripe (outstanding.c), and submits a request to a ring (ring.c)
 * of the region that the transport (ivshmem.c, xen.c) has found and the link (link.c) keeps up.
 * Flushes that cannot be sent at once are remembered (slots.c, flush.c) and sent by the link's
 * thread.
 *
 * Locks, outermost first: stripe.lock, then pool.lock or ring.lock or the flush table's free-list
 * lock. All are taken with interrupts off; none is held while anything waits.
 */
#ifndef TMEM_PRIV_H
#define TMEM_PRIV_H

#include <linux/atomic.h>
#include <linux/cache.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "tmem_abi.h"

#undef pr_fmt
#define pr_fmt(fmt) "tmem: " fmt

#define TMEM_MAX_POOLS 48 /* swap devices and file systems at one time; ids are indexes */

/* ---- Handles and pools (pools.c) ----------------------------------------------------------- */

enum tmem_pool_state {
	TMEM_POOL_FREE = 0,
	TMEM_POOL_WANTED, /* to be made at the host */
	TMEM_POOL_READY,  /* operations may be submitted */
	TMEM_POOL_RENEW, /* drain, destroy at the host, then WANTED again: all its pages are gone */
	TMEM_POOL_DYING, /* drain, destroy at the host, then FREE */
};

struct tmem_slots;
struct tmem_request;

/* One pool of this guest. Array elements: a pointer is always valid memory. */
struct tmem_pool {
	spinlock_t lock; /* state, generation, has_host, busy */
	enum tmem_pool_state state;
	bool persist;
	bool has_host;	/* host_id names a pool at the host */
	bool busy;	/* a NEW_POOL or DESTROY_POOL is outstanding */
	u32 generation; /* raised when all pages are forgotten at once */
	u32 host_id;
	u64 nonce;
	unsigned long retry_at; /* jiffies: no creation before */
	atomic_t inflight;	/* outstanding operations on pages, and submissions under way */
	atomic_long_t held;	/* accepted pages that were not flushed; persistent pools only */
	struct tmem_slots *slots;
};

extern struct tmem_pool tmem_pools[TMEM_MAX_POOLS];

void tmem_pools_setup(void);
/* A free pool, now WANTED, or NULL. May sleep; `slots` becomes the pool's. */
struct tmem_pool *tmem_pool_create(bool persist, struct tmem_slots *slots);
/* All pages of the pool are gone at once. Any context. `forever`: the pool goes too. */
void tmem_pool_forget(struct tmem_pool *pool, bool forever);
/* Waits until the pool is READY, at most `timeout` jiffies. */
bool tmem_pool_wait_ready(struct tmem_pool *pool, unsigned long timeout);
/* Pins a READY pool against being destroyed at the host; false when it is not READY. */
bool tmem_pool_enter(struct tmem_pool *pool);
void tmem_pool_exit(struct tmem_pool *pool);
/* outstanding.c, without locks: a NEW_POOL or DESTROY_POOL was executed, or never will be. */
void tmem_pool_answered(struct tmem_request *request);
/* The link's thread: one step for each pool. */
void tmem_pools_step(void);
/* The link's thread, rings closed and empty: nothing of the former life is at the host. */
void tmem_pools_new_life(void);
/* The host's id of this pool is also that of another one: it is gone there. */
bool tmem_pool_id_is_used(const struct tmem_pool *pool);
/* Accepted pages that are at the host, all pools. */
long tmem_pools_held(void);

/* ---- Requests and rings (ring.c) ------------------------------------------------------------ */

enum tmem_request_state {
	TMEM_REQUEST_FREE = 0,
	TMEM_REQUEST_OUT,      /* the entry and its slot are the service's */
	TMEM_REQUEST_FINISHED, /* executed, being taken out of the table */
	TMEM_REQUEST_DONE,     /* executed, the waiter has to release it */
};

/* What one entry of a ring is used for; lives as long as the ring. */
struct tmem_request {
	struct hlist_node node;	    /* in the stripe's list while outstanding */
	struct list_head done_link; /* ring.c */
	struct tmem_pool *pool;
	u64 object[3];
	u32 index;
	u32 seq;
	s32 status;
	u64 sum;    /* of the page of a get; 0: there is none */
	u16 number; /* of the entry */
	u8 ring;
	u8 op;
	u8 state;    /* enum tmem_request_state, under ring.lock; read with acquire by the waiter */
	bool posted; /* accepted when it was submitted */
	bool waited; /* somebody will release it */
};

struct tmem_ring {
	spinlock_t lock;
	bool open; /* entries may be submitted */
	u32 number;
	u32 entries;
	u32 sq_tail;
	u32 sq_told; /* the service was told of submissions before this position */
	u32 cq_head;
	u32 reaped; /* highest seq that was seen executed */
	u32 nr_free;
	u32 spin_ns; /* of the next waiter, at most spin_us; learned, not under the lock */
	u16 *free;   /* stack of free entry numbers */
	u64 *order;  /* for tmem_rings_resume() */
	struct tmem_request *requests;
	struct tmem_ring_ctl *ctl;
	u16 *sq;
	u16 *cq;
	struct tmem_entry *entry;
	u8 *slots;
	wait_queue_head_t wait; /* completions and free entries */
} ____cacheline_aligned_in_smp;

/* Entries of a ring that flushes and the page cache leave to swap. */
#define TMEM_KEEP_FREE 4

/* An operation to be submitted. */
struct tmem_call {
	struct tmem_pool *pool;
	u64 object[3];
	u32 index;
	u8 op;
	bool wait;	   /* the caller will wait and release; else nobody hears of the end */
	bool may_post;	   /* a put that is accepted at once when there is a credit */
	bool lazy;	   /* the doorbell may wait for a few more, or for tmem_ring_tell() */
	u16 keep_free;	   /* leave this many entries to others */
	u64 arg;	   /* NEW_POOL */
	struct page *page; /* PUT_PAGE */

	/* Set by submission. */
	struct tmem_ring *ring; /* also when it failed for want of room */
	bool posted;
	bool doorbell; /* tmem_call_ring() has to be called */
};

void tmem_rings_setup(void);
/* Allocates what the rings need on the guest's side. Once; later calls only fit `entries`. */
int tmem_rings_alloc(u32 rings, u32 entries);
/* The first rings of `region` begin a new life, empty and open. */
void tmem_rings_open(void *region, u32 rings, u32 entries);
/* No submissions any more; what is outstanding ends with -ESHUTDOWN. */
void tmem_rings_close(void);
/* No submissions for now; what is outstanding stays so. */
void tmem_rings_pause(void);
/*
 * The paused rings begin anew, in a region where the slots are as they were: what is outstanding is
 * submitted again, in its order.
 */
void tmem_rings_resume(void *region, u32 rings, u32 entries);
/* Nothing is submitted for some seconds, or until `quiet` is false. */
void tmem_rings_quiet(bool quiet);
/* No request is outstanding or waited for. */
bool tmem_rings_idle(void);
/* Returns when every submission sees what was written before. */
void tmem_rings_barrier(void);
u32 tmem_rings_number(void);
struct tmem_ring *tmem_ring_get(u32 number);
/* The ring of this processor; NULL when there is none. */
struct tmem_ring *tmem_ring_here(void);

/*
 * Submits under the stripe's lock. The request, -EAGAIN (no free entry) or -ENOTCONN as an
 * ERR_PTR. A request without `wait` may be gone as soon as the stripe's lock is released.
 */
struct tmem_request *tmem_ring_submit(struct tmem_ring *ring, struct tmem_call *call);
/* After submission, better without locks: rings the doorbell if it is wanted. */
void tmem_call_ring(const struct tmem_call *call);
/* Tells the service of everything that was submitted. */
void tmem_ring_tell(struct tmem_ring *ring);
/* Takes what is executed. Any context; all = true looks at every entry. */
void tmem_ring_reap(struct tmem_ring *ring, bool all);
/* Without locks, before an operation that cannot wait: takes what is executed if room is short. */
void tmem_ring_make_room(void);
/*
 * Waits for a request that was submitted with `wait`, at most `timeout` jiffies; gives up
 * earlier when the service goes away if `while_up`. True when it is done.
 */
bool tmem_ring_wait(struct tmem_ring *ring, struct tmem_request *request, unsigned long timeout,
		    bool while_up);
/* Waits for a free entry, at most about `timeout` jiffies. */
void tmem_ring_wait_room(struct tmem_ring *ring, u32 keep_free, unsigned long timeout);
/* The waiter has taken what it needs from the request and its slot. */
void tmem_ring_release(struct tmem_ring *ring, struct tmem_request *request);
/* The waiter gives up. False when the request is done after all. */
bool tmem_ring_abandon(struct tmem_ring *ring, struct tmem_request *request);
void *tmem_request_slot(const struct tmem_request *request);
void tmem_copy_to_page(struct page *page, const void *slot);
/*
 * Takes the page of a get that was answered with 1. False: the slot is older than the answer, for
 * the machine was migrated in between; get it again.
 */
bool tmem_take_page(struct page *page, const struct tmem_request *request);

/* ---- Outstanding operations (outstanding.c) -------------------------------------------------- */

#define TMEM_LISTS 16

/*
 * The lock of a stripe orders everything about the handles that belong to it: what is outstanding
 * and which flushes are pending. All pages of one object of an ephemeral pool are in one stripe.
 */
struct tmem_stripe {
	spinlock_t lock;
	struct hlist_head outstanding[TMEM_LISTS]; /* newest first */
	struct hlist_head flushes[TMEM_LISTS];	   /* flush.c: of pages */
	struct hlist_head object_flushes;	   /* flush.c: of whole objects */
} ____cacheline_aligned_in_smp;

void tmem_stripes_setup(void);
/* Which of a stripe's lists an index belongs to. */
unsigned int tmem_list_of(u32 index);
struct tmem_stripe *tmem_stripe(const struct tmem_pool *pool, const u64 *object, u32 index);
struct tmem_stripe *tmem_stripe_number(unsigned int number); /* NULL after the last */
/* Under the stripe's lock. The newest outstanding operation on the page's handle, or NULL. */
struct tmem_request *tmem_outstanding_find(struct tmem_stripe *stripe, const struct tmem_pool *pool,
					   const u64 *object, u32 index);
/* Under the stripe's lock. Is anything outstanding on the object? */
bool tmem_outstanding_object(struct tmem_stripe *stripe, const struct tmem_pool *pool,
			     const u64 *object);
/*
 * Under the stripe's lock. Submits behind what is outstanding on the handle, else to the ring of
 * this processor.
 */
struct tmem_request *tmem_submit(struct tmem_stripe *stripe, struct tmem_call *call);
/* ring.c, under the stripe's lock: a request was submitted. */
void tmem_outstanding_add(struct tmem_stripe *stripe, struct tmem_request *request);
/* ring.c, without locks: it was executed (or will never be). */
void tmem_outstanding_done(struct tmem_request *request);

/* ---- State of swap slots (slots.c) ------------------------------------------------------------
 */

struct tmem_slots *tmem_slots_alloc(void);
void tmem_slots_free(struct tmem_slots *slots);
/* Is there a place for the state of this slot? Else it is made in the background. */
bool tmem_slots_ready(struct tmem_slots *slots, u64 slot, struct page *page);
bool tmem_slot_held(struct tmem_slots *slots, u64 slot);
bool tmem_slot_set_held(struct tmem_slots *slots, u64 slot, bool held); /* the former value */
bool tmem_slot_set_pending(struct tmem_slots *slots, u64 slot, bool pending);
/* The next slot with a pending flush, from `from` on; U64_MAX when there is none. */
u64 tmem_slots_next_pending(struct tmem_slots *slots, u64 from);
void tmem_slots_clear_pending(struct tmem_slots *slots); /* all */
long tmem_slots_pending(struct tmem_slots *slots);

/* ---- Flushes that are pending (flush.c) -------------------------------------------------------
 */

int tmem_flush_setup(void);
void tmem_flush_free(void);
/* Under the stripe's lock: would a get of this handle have to miss? Is its object being flushed? */
bool tmem_flush_pending(struct tmem_stripe *stripe, const struct tmem_pool *pool, const u64 *object,
			u32 index);
bool tmem_flush_object_pending(struct tmem_stripe *stripe, const struct tmem_pool *pool,
			       const u64 *object);
/* Under the stripe's lock: remember a flush; a full table renews the pool. */
void tmem_flush_add(struct tmem_stripe *stripe, struct tmem_pool *pool, const u64 *object,
		    u32 index, bool whole_object);
/* Under the stripe's lock: a put has replaced the page. */
void tmem_flush_cancel(struct tmem_stripe *stripe, const struct tmem_pool *pool, const u64 *object,
		       u32 index);
/* Without locks: a FLUSH_OBJECT was executed. */
void tmem_flush_object_done(struct tmem_request *request);
/* The link's thread: sends what is pending while there is room. True when something is left. */
bool tmem_flush_step(void);
/* The link's thread, rings closed: forgets all. */
void tmem_flush_new_life(void);

/* ---- The link to the service (link.c) ---------------------------------------------------------
 */

struct tmem_transport {
	const char *name;
	void (*doorbell)(void *data, u32 peer, u32 vector); /* any context */
	void *data;
};

/*
 * The transport has found a region of `size` bytes with `vectors` doorbells. The transport and
 * the region stay for the life of the module (the next device may have the same region). -EBUSY:
 * there is a region already; -ENODEV: the region is of some other use.
 */
int tmem_link_attach(const struct tmem_transport *transport, void *region, u64 size, u32 vectors);
/* The transport's interrupt handler. */
void tmem_link_interrupt(u32 vector);
/* The device goes away or the system goes down: nothing can be had any more. */
void tmem_link_detach(bool say_goodbye);
/*
 * The machine goes on elsewhere, and the region has no service until tmem_link_attach() is called
 * with it again, its first page zero. False: this life cannot go on there, detach.
 */
bool tmem_link_move(void);
/* The machine is about to be stopped: waits a moment for what is outstanding, and holds the rest.
 */
void tmem_link_quiet(bool quiet);
/* After tmem_link_detach(): nobody submits to the region, nor takes a page out of it, any more. */
bool tmem_link_over(void);
/* The service is there and serves our rings. */
bool tmem_link_up(void);
/* Both sides poll by timer. */
bool tmem_link_polling(void);
bool tmem_link_credits(void);	/* posted puts were agreed */
bool tmem_link_can_move(void);	/* this life can go on at another service */
bool tmem_link_suspended(void); /* no puts: hibernation is under way */
/* Pages are lost to this guest for ever when the link is gone; no sense in giving up then. */
bool tmem_link_gone(void);
void tmem_link_doorbell(u32 ring);
void tmem_link_kick(void); /* wakes the link's thread; any context */
/* Hibernation: stop (-EBUSY while pages are held), and begin a new life. */
int tmem_link_suspend(void);
void tmem_link_resume(void);
/* Waits for the first answer of a service that is there, a second at most. */
void tmem_link_wait_up(void);
int tmem_link_setup(void);
void tmem_link_stop(void);
/* For debugfs. */
struct seq_file;
void tmem_link_show(struct seq_file *m);

/* ---- Transports, attachments and the rest -----------------------------------------------------
 */

int tmem_ivshmem_register(void);
#ifdef TMEM_XEN
/* Waits a second at most for the connection of a device that is there. */
int tmem_xen_register(void);
#else
static inline int tmem_xen_register(void)
{
	return 0;
}
#endif

int tmem_frontswap_register(void);
/* The link's thread: sends pending flushes. True when something is left. */
bool tmem_frontswap_step(void);
int tmem_cleancache_register(void);
void tmem_bring_back_setup(void);
/* main.c: a load has waited since `start` (jiffies) for the reason `why`. */
void tmem_load_waits(unsigned long start, const char *why);

extern unsigned int tmem_spin_us;
extern unsigned int tmem_put_timeout_ms;
extern unsigned int tmem_service_timeout_ms;
extern unsigned int tmem_max_swap_gb;
extern unsigned int tmem_flush_entries;

/* ---- Counters (stats.c): one list --------------------------------------------------------------
 */

#define TMEM_COUNTERS(C)                                                                           \
	C(stores)		/* frontswap: pages offered */                                     \
	C(stores_posted)	/* accepted with a credit */                                       \
	C(stores_accepted)	/* accepted by answer */                                           \
	C(stores_no_service)	/* refused: the service is away */                                 \
	C(stores_no_slot)	/* refused: no state for the slot (yet), or a huge page */         \
	C(stores_no_room)	/* refused by the service: no room */                              \
	C(stores_maximum)	/* refused by the service: the client's maximum */                 \
	C(stores_frozen)	/* refused by the service: frozen */                               \
	C(stores_failed)	/* refused by the service: any other reason */                     \
	C(stores_timed_out)	/* given up after put_timeout_ms */                                \
	C(posted_failed)	/* accepted with a credit and then refused by the service */       \
	C(loads)		/* frontswap: pages brought back */                                \
	C(loads_from_ring)	/* of these, answered from a page still in the ring */             \
	C(gets_again)		/* answers of before a migration, whose page was not moved */      \
	C(resubmitted)		/* operations submitted again after a migration */                 \
	C(loads_damaged)	/* answers without the page: damaged or lost */                    \
	C(loads_waited)		/* waits for the service, in steps of at most a second */          \
	C(swap_flushes)		/* frontswap: pages no longer needed */                            \
	C(cache_gets)		/* cleancache: pages asked for */                                  \
	C(cache_hits)		/* of these, found */                                              \
	C(cache_puts)		/* pages offered */                                                \
	C(cache_puts_dropped)	/* of these, not sent */                                           \
	C(cache_flushes)	/* pages to be forgotten */                                        \
	C(cache_object_flushes) /* files to be forgotten */                                        \
	C(cache_renewals)	/* pools emptied because too many flushes were pending */          \
	C(abandoned)		/* operations that nobody waited for to the end */                 \
	C(doorbells)		/* rung by the guest */                                            \
	C(interrupts)		/* received */                                                     \
	C(lives)		/* hellos that were accepted */                                    \
	C(service_restarts)	/* the service came back by itself */                              \
	C(brought_back)		/* swapped pages asked back in by bring_back */

enum tmem_counter {
#define TMEM_COUNTER_ID(name) TMEM_C_##name,
	TMEM_COUNTERS(TMEM_COUNTER_ID)
#undef TMEM_COUNTER_ID
		TMEM_NR_COUNTERS
};

struct tmem_counts {
	unsigned long value[TMEM_NR_COUNTERS];
};

DECLARE_PER_CPU(struct tmem_counts, tmem_counts);
#define tmem_count(name) this_cpu_inc(tmem_counts.value[TMEM_C_##name])
#define tmem_count_add(name, n) this_cpu_add(tmem_counts.value[TMEM_C_##name], n)

void tmem_stats_setup(void);

/* ---- A test of the transport (selftest.c), if built in --------------------------------------- */

struct dentry;
#ifdef TMEM_SELFTEST
void tmem_selftest_setup(struct dentry *dir); /* of debugfs */
#else
static inline void tmem_selftest_setup(struct dentry *dir)
{
}
#endif

#endif
