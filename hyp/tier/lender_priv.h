/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lender's insides.
 *
 * lender.c has the thread, the socket that listens, and who is allowed; lender_conn.c what one
 * connection says and is told, from buffer to buffer, without sockets. All but what stands under
 * the lock belongs to the thread.
 */
#ifndef TMEMD_TIER_LENDER_PRIV_H
#define TMEMD_TIER_LENDER_PRIV_H

#include <pthread.h>

#include "link.h"

#define PATTERNS_MAX 1024u
/* Owners of which epoch and session are known; those that are not connected give way. */
#define OWNERS_MAX 1024u
#define WINDOW 1024u /* requests in flight of all connections together */
#define WINDOW_MIN 16u

/* A host that has connected. Its blobs are the ops' matter; here is what orders its connections. */
struct owner {
	uint8_t id[16];
	uint64_t epoch; /* 0: not used */
	uint64_t session;
	uint64_t seen; /* clock_ns() */
	struct conn *conn;
};

enum conn_state {
	CONN_FREE,
	CONN_TLS,     /* shaking hands */
	CONN_HELLO,   /* allowed by name, nothing said yet */
	CONN_SERVING, /* welcomed */
	CONN_ENDING,  /* the last frame is in `out` */
	CONN_OVER,    /* all is said; waits for the other side to hang up */
};

struct conn {
	struct lender *lender;
	enum conn_state state;
	struct link link;
	bool ready; /* there may be something to do without epoll's saying so */
	char name[PEER_NAME];
	struct names names;
	struct owner *owner;
	struct lender_owner who;
	uint32_t batch; /* agreed */
	uint32_t renew;
	uint32_t window; /* as last told */
	bool told_leave;
};

struct patterns {
	unsigned nr;
	char (*at)[PEER_NAME]; /* PATTERNS_MAX of them */
};

struct lender {
	struct lender_settings settings;
	struct credentials credentials;
	int listener;
	int epoll;
	int wake;  /* eventfd */
	bool deaf; /* no descriptors: nobody is accepted until the next look at the times */
	uint16_t port;
	pthread_t thread;
	bool running;
	counter_t counters[LENDER_COUNTER_NR];

	struct conn *conns; /* settings.connections of them */
	uint32_t serving;   /* of these, welcomed */
	struct owner *owners;
	uint64_t renewal[TMEM_PEER_RENEW_MAX]; /* the numbers of one frame */

	pthread_mutex_t lock;
	struct patterns allowed;
	struct patterns denied;
	bool denied_more; /* connections have to be looked at again */
	bool stop;
	uint64_t leave_at; /* clock_ns(); 0: nobody has to */
	bool leave_changed;
};

/* Everything but sockets and the thread; for the fuzzer too. 0 or -ENOMEM. */
int lender_make(struct lender **lender, const struct lender_settings *settings);
void lender_free(struct lender *lender);

/* Whether one of the names is allowed and none denied; *which is the first that is allowed. */
bool lender_is_allowed(struct lender *lender, const struct names *names, const char **which);

/* What is left until everything has to be away, at least 1; 0: nothing has to be. Thread. */
uint32_t lender_leave_ms(struct lender *lender, uint64_t now);

/* ---- lender_conn.c -------------------------------------------------------------------------- */

/* TLS is done: who it is, and whether it may. Without it the state is CONN_ENDING. */
void conn_names(struct conn *conn, const struct names *names);

/* Not allowed (any more): the state is CONN_ENDING. */
void conn_deny(struct conn *conn);

/*
 * Does what the first frame in `in` asks for and answers into `out`, when `out` has room for any
 * answer. True: there was one. A frame out of form or place makes the state CONN_ENDING.
 */
bool conn_input(struct conn *conn, uint64_t now);

/* What is said unasked: that the memory is wanted back. */
void conn_tell(struct conn *conn, uint64_t now);

/* The connection is over: its owner is no longer bound to it. The link is the caller's. */
void conn_forget(struct conn *conn);

#endif
