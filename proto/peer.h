/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The wire between hosts, version 1: an owner puts blobs into a lender's spare memory and gets them
 * back. Its prose is docs/peer-protocol.md.
 *
 * One TCP connection with TLS 1.3, made by the owner, with frames in both directions. Everything is
 * little-endian and without padding that means something (it is 0). A frame is a head, then
 * `count` fixed parts (entries or numbers), then the blobs of the entries in their order.
 */
#ifndef TMEM_PEER_H
#define TMEM_PEER_H

#include <stddef.h>
#include <stdint.h>

#define TMEM_PEER_PORT 8636
#define TMEM_PEER_MAGIC 0x524545504d454d54ull /* "TMEMPEER" on the wire */
#define TMEM_PEER_VERSION 1u
#define TMEM_PEER_NAME 64  /* of a host, with at least one final zero */
#define TMEM_PEER_TEXT 256 /* of an error, at most; no final zero */

/* Features: what one side does not know is not used. None yet. */
#define TMEM_PEER_F_KNOWN ((uint64_t)0)

#define TMEM_PEER_BLOB_MAX 4096u     /* bytes of a blob */
#define TMEM_PEER_BATCH_MAX 16u	     /* blobs in a frame */
#define TMEM_PEER_DELETE_MAX 1024u   /* numbers in a frame */
#define TMEM_PEER_RENEW_MAX 4096u    /* numbers in a frame */
#define TMEM_PEER_WINDOW_MAX 0xffffu /* requests in flight */

enum tmem_peer_type {
	/* Either side. */
	TMEM_PEER_ERROR = 1, /* struct tmem_peer_error and text; the last frame of its sender */
	TMEM_PEER_BYE = 2,   /* an orderly end; the last frame of its sender */

	/* From the owner. */
	TMEM_PEER_HELLO = 16,  /* struct tmem_peer_hello: first */
	TMEM_PEER_PUT = 17,    /* entries and blobs */
	TMEM_PEER_GET = 18,    /* entries, len 0 */
	TMEM_PEER_DELETE = 19, /* numbers; not answered */
	TMEM_PEER_RENEW = 20,  /* struct tmem_peer_range, then the numbers that stay, rising */
	TMEM_PEER_PING = 21,

	/* From the lender; `id` is that of the frame that is answered. */
	TMEM_PEER_WELCOME = 32,	 /* struct tmem_peer_hello: first */
	TMEM_PEER_PUT_DONE = 33, /* the entries, len 0 */
	TMEM_PEER_GET_DONE = 34, /* the entries, and blobs of those with status OK */
	TMEM_PEER_RENEWED = 35,	 /* struct tmem_peer_renewed */
	TMEM_PEER_STAT = 36,	 /* struct tmem_peer_stat: answers PING, or unasked with id 0 */
	TMEM_PEER_LEAVE = 37,	 /* struct tmem_peer_leave: unasked */
};

enum tmem_peer_status {
	TMEM_PEER_OK = 0,
	TMEM_PEER_ABSENT = 1, /* get: no such blob */
	TMEM_PEER_FULL = 2,   /* put: no room; what was there under the number is gone */
	TMEM_PEER_FAILED = 3, /* the lender cannot say: not done, or damaged */
};

enum tmem_peer_code {
	TMEM_PEER_E_PROTOCOL = 1, /* a frame that must not be */
	TMEM_PEER_E_VERSION = 2,  /* no version in common; `ours`, `theirs`: the newest of each */
	TMEM_PEER_E_SIZE = 3,	  /* a size that does not fit */
	TMEM_PEER_E_DENIED = 4,	  /* the name is not in the list of those allowed */
	TMEM_PEER_E_EPOCH = 5,	  /* older than one that is known */
	TMEM_PEER_E_SESSION = 6,  /* a later connection of the same owner is there */
	TMEM_PEER_E_BUSY = 7,	  /* too many connections or owners */
	TMEM_PEER_E_NAME = 8,	  /* not the host that was meant */
};

struct tmem_peer_frame {
	uint32_t bytes; /* of the frame, this head included */
	uint16_t type;
	uint16_t count; /* of entries or numbers; 0 where there are none */
	uint64_t id;	/* given by who asks, rising from 1 */
};

/*
 * The first 16 bytes are the same in every version. A longer one is taken, what is behind is not
 * looked at.
 */
struct tmem_peer_hello {
	uint64_t magic;
	uint16_t version_min; /* WELCOME: both are the version that is spoken from here on */
	uint16_t version_max;
	uint32_t reserved0;

	uint64_t features; /* HELLO: what the owner knows; WELCOME: what both know */
	uint32_t blob_max; /* bytes; not the same: refused */
	uint32_t batch;	   /* blobs in a frame: the smaller one of both holds */
	uint32_t renew;	   /* numbers in RENEW: the smaller one of both holds */
	uint32_t window;   /* HELLO: requests in flight wanted; WELCOME: allowed */
	uint64_t epoch;	   /* of the sender's arena: a new arena has a higher one */
	uint64_t session;  /* HELLO: higher in each connection of an epoch; WELCOME: the same */
	uint64_t held;	   /* WELCOME: blobs of this owner that are there */
	uint8_t uuid[16];
	char name[TMEM_PEER_NAME];
	uint32_t leave_ms; /* WELCOME: not 0: as in LEAVE */
	uint32_t reserved1;
	uint64_t spare; /* WELCOME: bytes that would be taken now */
};

struct tmem_peer_entry {
	uint64_t blob; /* its number */
	uint32_t tag;  /* the owner's, comes back unchanged */
	uint16_t len;  /* bytes of the blob behind the entries */
	uint16_t status;
};

struct tmem_peer_range {
	uint64_t first;
	uint64_t end; /* the first number behind it */
};

struct tmem_peer_renewed {
	uint32_t missing; /* of the numbers that stay */
	uint32_t reserved;
};

struct tmem_peer_stat {
	uint64_t spare; /* bytes that would be taken now */
	uint64_t held;	/* blobs of this owner */
	uint32_t window;
	uint32_t leave_ms; /* not 0: everything has to leave in this time */
};

struct tmem_peer_leave {
	uint32_t deadline_ms;
	uint32_t reserved;
};

struct tmem_peer_error {
	uint32_t code; /* enum tmem_peer_code */
	uint32_t reserved;
	uint64_t ours; /* the sender's value, and the one it does not agree with */
	uint64_t theirs;
};

/* The longest frame: a full batch of blobs. What says it is longer is not read. */
#define TMEM_PEER_FRAME_MAX                                                                        \
	(sizeof(struct tmem_peer_frame) +                                                          \
	 TMEM_PEER_BATCH_MAX * (sizeof(struct tmem_peer_entry) + TMEM_PEER_BLOB_MAX))

_Static_assert(sizeof(struct tmem_peer_frame) == 16, "a frame's head");
_Static_assert(sizeof(struct tmem_peer_hello) == 160, "the hello");
_Static_assert(offsetof(struct tmem_peer_hello, uuid) == 64, "the hello");
_Static_assert(offsetof(struct tmem_peer_hello, leave_ms) == 144, "the hello");
_Static_assert(sizeof(struct tmem_peer_entry) == 16, "an entry");
_Static_assert(sizeof(struct tmem_peer_range) == 16, "a range");
_Static_assert(sizeof(struct tmem_peer_renewed) == 8, "an answer to RENEW");
_Static_assert(sizeof(struct tmem_peer_stat) == 24, "a stat");
_Static_assert(sizeof(struct tmem_peer_leave) == 8, "a leave");
_Static_assert(sizeof(struct tmem_peer_error) == 24, "an error");
_Static_assert(sizeof(struct tmem_peer_frame) + sizeof(struct tmem_peer_range) +
			       8 * TMEM_PEER_RENEW_MAX <=
		       TMEM_PEER_FRAME_MAX,
	       "the longest frame");
_Static_assert(sizeof(struct tmem_peer_frame) + 8 * TMEM_PEER_DELETE_MAX <= TMEM_PEER_FRAME_MAX,
	       "the longest frame");

#endif
