/* SPDX-License-Identifier: (GPL-2.0-or-later OR BSD-3-Clause) */
/*
 * The guest ABI of tmemd, version 1: what one guest and the service share.
 *
 * One region of memory belongs to one client (a VM or a process of the host). It begins with one
 * page, struct tmem_region, through which the two sides find out whether they understand each
 * other; then come the rings, one for each vCPU that wants one, each with its page slots.
 *
 * This header compiles in a Linux module, in user space (C11) and as C++. Everything in it is
 * little-endian, naturally aligned, and its sizes and offsets are asserted below. The prose of
 * the protocol is docs/guest-abi.md; the semantics of the operations follow the public Xen header
 * xen/tmem.h, specification version 1, whose numbers are used unchanged.
 *
 * Rule for both sides: what the other side can write is read once, into memory of one's own,
 * and checked there.
 */
#ifndef TMEM_ABI_H
#define TMEM_ABI_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/build_bug.h>
#define TMEM_ABI_ASSERT(cond, name) static_assert(cond, #name)
#else
#include <linux/types.h>
#include <stddef.h>
#ifdef __cplusplus
#define TMEM_ABI_ASSERT(cond, name) static_assert(cond, #name)
#else
#define TMEM_ABI_ASSERT(cond, name) _Static_assert(cond, #name)
#endif
#endif

#define TMEM_PAGE_SIZE 4096u

/* ---- Xen tmem, specification version 1 ---------------------------------------------------- */

/* Linux has a constant and a struct of the names of these two: the same one, and another tag. */
#define TMEM_SPEC_VERSION 1

enum tmem_opcode {
	TMEM_NEW_POOL = 1,
	TMEM_DESTROY_POOL = 2,
	TMEM_PUT_PAGE = 4,
	TMEM_GET_PAGE = 5,
	TMEM_FLUSH_PAGE = 6,
	TMEM_FLUSH_OBJECT = 7,
};

/* Flags of TMEM_NEW_POOL. */
#define TMEM_POOL_PERSIST 1u
#define TMEM_POOL_SHARED 2u
#define TMEM_POOL_PAGESIZE_SHIFT 4 /* log2(page size) - 12, in 4 bits: must be 0 */
#define TMEM_POOL_PAGESIZE_MASK 0xfu
#define TMEM_POOL_VERSION_SHIFT 24 /* specification version, in 8 bits: must be 1 */
#define TMEM_POOL_VERSION_MASK 0xffu
/* Ours, allowed with TMEM_F_INCLUSIVE: a get from this ephemeral pool leaves the page there. */
#define TMEM_POOL_X_INCLUSIVE (1u << 8)

/* Xen's own error numbers; all others are Linux errno values. Statuses carry them negated. */
#define TMEM_EFROZEN 1000
#define TMEM_EEMPTY 1001

/*
 * Statuses of a completed entry:
 *   NEW_POOL       pool id >= 0, or -EPERM (shared, not authorised), -EINVAL, -ENOSPC (too many)
 *   DESTROY_POOL   1, or -ENOENT
 *   PUT_PAGE       1 accepted; else refused, and the handle holds nothing: 0 or -ENOMEM (no
 *                  room), -EDQUOT (client's maximum), -TMEM_EFROZEN, -ENOENT (no such pool)
 *   GET_PAGE       1 the page is in the slot; 0 a miss; -EIO damaged (never returned as data),
 *                  -ENOENT
 *   FLUSH_PAGE, FLUSH_OBJECT   1 something was there, 0 nothing was, -ENOENT
 *   any other op   -ENOSYS; reserved bits set: -EINVAL
 */

/* ---- The region ---------------------------------------------------------------------------- */

#define TMEM_REGION_MAGIC 0x314745524d454d54ull /* "TMEMREG1" in memory */
#define TMEM_ABI_VERSION 1u

/* Feature bits: the service offers, the guest accepts a subset. */
#define TMEM_F_POSTED (1ull << 0)    /* credits and posted puts */
#define TMEM_F_INCLUSIVE (1ull << 1) /* TMEM_POOL_X_INCLUSIVE */
#define TMEM_F_RESUME (1ull << 2)    /* former_epoch and hello_offer mean something; page_sum */
#define TMEM_F_ALL (TMEM_F_POSTED | TMEM_F_INCLUSIVE | TMEM_F_RESUME)

#define TMEM_MIN_ENTRIES 8u
#define TMEM_MAX_ENTRIES 1024u
#define TMEM_MAX_RINGS 64u

enum tmem_service_state {
	TMEM_SERVICE_DOWN = 0,	    /* not (yet) attached; the guest waits */
	TMEM_SERVICE_LISTENING = 1, /* the offer is valid; waiting for a hello */
	TMEM_SERVICE_CONNECTED = 2, /* rings of the life `answered_epoch` are served */
	TMEM_SERVICE_REFUSED = 3,   /* the hello `answered_epoch` was refused, see refusal */
};

enum tmem_guest_state {
	TMEM_GUEST_NONE = 0,
	TMEM_GUEST_HELLO = 1, /* everything else in the guest's part is valid */
	TMEM_GUEST_BYE = 2,   /* the guest wants its pools destroyed and the rings left alone */
};

/* Why a hello was refused; refused_guest and refused_service carry the two values. */
enum tmem_refusal {
	TMEM_REFUSED_NOT = 0,
	TMEM_REFUSED_ABI = 1,	   /* version outside abi_min..abi_max */
	TMEM_REFUSED_FEATURES = 2, /* a feature that was not offered */
	TMEM_REFUSED_RINGS = 3,	   /* 0 or more than max_rings */
	TMEM_REFUSED_ENTRIES = 4,  /* not a power of two, or outside min..max */
	TMEM_REFUSED_SIZE = 5,	   /* the rings do not fit: needed / region_size */
	TMEM_REFUSED_STATE = 6,	   /* the service no longer has what this life had stored */
	TMEM_REFUSED_RING = 7,	   /* a ring broke the rules: sq_tail or entry number / bound */
};

/*
 * The first page of the region. Each line of 64 bytes has one writer.
 *
 * Hello: the guest waits for LISTENING, CONNECTED or REFUSED, writes its part, `guest_epoch`
 * (random, not 0, new in each life: boot, kexec, reload) and then, with release semantics,
 * guest_state = HELLO; then it rings vector 0. The service stops serving the former life,
 * destroys its pools, clears the new rings (all bytes but the slots' are zero) and answers: it
 * sets state, refusal and, with release semantics, answered_epoch = guest_epoch. Only then may
 * the guest touch the rings. A restarted service that finds the epoch that it knew goes on by
 * itself: it raises service_epoch and needs no hello.
 *
 * With TMEM_F_RESUME a life can go on at another service, to which its pages were brought. The
 * region there may be a copy, that of a machine that was migrated: so the hello names the offer
 * that it answers, and one of another offer is not heard. former_epoch names the life that goes on;
 * its pools are there then, and REFUSED with STATE says that they are not (yet).
 */
struct tmem_region {
	/* Offer: written by the service before LISTENING, constant while it lives. */
	__u64 magic;
	__u32 abi_min;
	__u32 abi_max;
	__u64 features_offered;
	__u64 region_size; /* bytes */
	__u32 max_rings;
	__u32 max_entries;
	__u32 nr_vectors;   /* doorbells each way; ring r uses vector r % nr_vectors */
	__u32 service_peer; /* ivshmem: the peer id that the guest rings */
	__u64 offer;	    /* with TMEM_F_RESUME: names this offer; not 0 */
	__u8 pad0[8];

	/* Answer: written by the service. */
	__u32 service_state;   /* enum tmem_service_state */
	__u32 refusal;	       /* enum tmem_refusal */
	__u64 answered_epoch;  /* the guest_epoch that state and refusal are about */
	__u64 service_epoch;   /* raised at each attachment: after a change, look at every entry */
	__u64 refused_guest;   /* the guest's value */
	__u64 refused_service; /* the service's value */
	__u32 polling;	       /* 1: no doorbells in either direction; both sides poll by timer */
	__u32 frozen;	       /* hint: puts without a credit will be refused */
	__u32 mapped;	       /* set with each heartbeat; Xen clears it when the mapping goes */
	__u8 pad1[12];

	/* Sign of life: written by the service at least every 200 ms. */
	__u64 heartbeat;
	__u8 pad2[56];

	/* The guest's part. */
	__u32 guest_state; /* enum tmem_guest_state */
	__u32 abi;
	__u64 features;
	__u32 nr_rings;
	__u32 entries; /* of each ring, a power of two */
	__u64 guest_epoch;
	__u64 former_epoch; /* TMEM_F_RESUME: the life that goes on; 0: a new one */
	__u64 hello_offer;  /* TMEM_F_RESUME: the offer that this hello answers */
	__u8 pad3[16];

	__u8 reserved[TMEM_PAGE_SIZE - 4 * 64];
};

/* ---- A ring -------------------------------------------------------------------------------- */

/*
 * A ring with N entries has N entries of 64 bytes, N page slots (slot i belongs to entry i), a
 * submission queue and a completion queue of N entry numbers each. Positions count from 0, are
 * never reduced and wrap at 2^32; place = position % N.
 *
 * The guest takes a free entry, fills it and its slot, sets entry.seq = sq position + 1, writes
 * its number to sq[position % N], and, with release semantics, sq_tail = position + 1. At most N
 * entries are outstanding, so neither queue can overflow.
 * The service executes the entries of one ring in order of submission, except that a slow get may
 * be overtaken by operations on other handles. When the effect is in the arena it writes status,
 * then, with release semantics, done = seq; then it adds the number to cq and raises cq_tail.
 * Until done == seq the entry and the slot are the service's. `done` is what counts: the
 * completion queue only tells where to look, may repeat a number after a restart of the service,
 * and may miss one then (service_epoch changed: look at all entries).
 *
 * Doorbells: a side that raises a tail from `old` to `new` reads the other's event position after
 * a full barrier and rings if tmem_need_event(event, new, old). A side that wants no doorbells
 * leaves its event position behind.
 */
struct tmem_ring_ctl {
	/* Written by the guest. */
	__u32 sq_tail;
	__u32 cq_head;	/* completions before this position have been seen */
	__u32 cq_event; /* interrupt wanted when cq_tail passes this */
	__u8 pad0[52];

	/* Written by the service. */
	__u32 cq_tail;
	__u32 sq_event; /* doorbell wanted when sq_tail passes this */
	__u32 sq_head;	/* submissions before this position have been read; advice only */
	__u8 pad1[52];

	/*
	 * Both, by compare-and-swap: credits that the guest may still take. The service adds, the
	 * guest takes one for each posted put, the service takes unused ones back. What counts is
	 * the service's own number.
	 */
	__u32 credits;
	__u8 pad2[60];
};

/* Flags of an entry. */
#define TMEM_ENTRY_POSTED 1u /* PUT_PAGE with a credit: must be executed */

struct tmem_entry {
	/* Written by the guest; read once by the service. */
	__u8 op; /* enum tmem_opcode */
	__u8 flags;
	__u16 reserved0; /* 0 */
	__u32 pool;	 /* pool id; 0 in NEW_POOL */
	__u64 object[3]; /* NEW_POOL, shared: UUID in [0] and [1], [2] = 0 */
	__u32 index;	 /* NEW_POOL: the flags of the pool */
	__u32 seq;	 /* position in the submission queue + 1 */
	__u64 arg;	 /* NEW_POOL: a nonce, the same when the entry is executed again; else 0 */

	/* Written by the service. */
	__s32 status;
	__u32 done; /* == seq: executed, and the slot is the guest's again */
	/*
	 * GET_PAGE with status 1 and TMEM_F_RESUME: 0, or tmem_page_sum() of the page. While a
	 * machine is migrated, its copy of the slot may be older than that of the entry; who finds
	 * another sum in the page that he took gets it again.
	 */
	__u64 page_sum;
};

TMEM_ABI_ASSERT(sizeof(struct tmem_region) == TMEM_PAGE_SIZE, region_is_a_page);
TMEM_ABI_ASSERT(offsetof(struct tmem_region, service_state) == 64, answer_line);
TMEM_ABI_ASSERT(offsetof(struct tmem_region, heartbeat) == 128, heartbeat_line);
TMEM_ABI_ASSERT(offsetof(struct tmem_region, guest_state) == 192, guest_line);
TMEM_ABI_ASSERT(sizeof(struct tmem_ring_ctl) == 192, ring_ctl_size);
TMEM_ABI_ASSERT(offsetof(struct tmem_ring_ctl, cq_tail) == 64, ring_service_line);
TMEM_ABI_ASSERT(offsetof(struct tmem_ring_ctl, credits) == 128, ring_credit_line);
TMEM_ABI_ASSERT(sizeof(struct tmem_entry) == 64, entry_size);
TMEM_ABI_ASSERT(offsetof(struct tmem_entry, status) == 48, entry_service_part);

/* Never 0. A change of the page changes it, but for one in 2^64 cases. Not made for secrets. */
static inline __u64 tmem_page_sum(const void *page)
{
	const __u64 *word = (const __u64 *)page;
	__u64 sum = 0;
	unsigned int i;

	for (i = 0; i < TMEM_PAGE_SIZE / sizeof(*word); i++) {
		sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15ull;
		sum ^= sum >> 32;
	}
	return sum ? sum : 1;
}

/* ---- Where things are ---------------------------------------------------------------------- */

/* Offsets within a ring of n entries, in bytes. */
static inline __u32 tmem_ring_sq_off(void)
{
	return sizeof(struct tmem_ring_ctl);
}

static inline __u32 tmem_ring_cq_off(__u32 n)
{
	return tmem_ring_sq_off() + n * (__u32)sizeof(__u16);
}

static inline __u32 tmem_ring_entries_off(__u32 n)
{
	return (tmem_ring_cq_off(n) + n * (__u32)sizeof(__u16) + 63u) & ~63u;
}

static inline __u32 tmem_ring_slots_off(__u32 n)
{
	__u32 end = tmem_ring_entries_off(n) + n * (__u32)sizeof(struct tmem_entry);

	return (end + TMEM_PAGE_SIZE - 1) & ~(TMEM_PAGE_SIZE - 1);
}

/* Bytes that one ring takes; n at most TMEM_MAX_ENTRIES. */
static inline __u32 tmem_ring_size(__u32 n)
{
	return tmem_ring_slots_off(n) + n * TMEM_PAGE_SIZE;
}

/* Offset of ring r within the region. */
static inline __u64 tmem_ring_off(__u32 r, __u32 n)
{
	return TMEM_PAGE_SIZE + (__u64)r * tmem_ring_size(n);
}

/* Bytes of region that `rings` rings of n entries need. */
static inline __u64 tmem_region_need(__u32 rings, __u32 n)
{
	return tmem_ring_off(rings, n);
}

/* Has the tail, going from old to new, passed the other side's event position? */
static inline int tmem_need_event(__u32 event, __u32 new_tail, __u32 old_tail)
{
	return (__u32)(new_tail - event - 1) < (__u32)(new_tail - old_tail);
}

#endif /* TMEM_ABI_H */
