/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A link: a TLS 1.3 session over a non-blocking socket, with a buffer for each direction. One
 * thread has it. Whoever fills and empties the buffers need not know that there is TLS.
 */
#ifndef TMEMD_TIER_LINK_H
#define TMEMD_TIER_LINK_H

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "frame.h"
#include "peers.h"

#define LINK_BUFFER (2 * (uint32_t)TMEM_PEER_FRAME_MAX)
#define LINK_WHY 160

/* Bytes from start to end are there; the rest is room. */
struct buffer {
	uint8_t *bytes; /* LINK_BUFFER of them */
	uint32_t start;
	uint32_t end;
};

static inline uint32_t buffer_used(const struct buffer *b)
{
	return b->end - b->start;
}

/* Room that begins at bytes + end: all there is, in one piece. */
static inline uint32_t buffer_room(struct buffer *b)
{
	if (b->start) {
		memmove(b->bytes, b->bytes + b->start, buffer_used(b));
		b->end -= b->start;
		b->start = 0;
	}
	return LINK_BUFFER - b->end;
}

static inline void buffer_take(struct buffer *b, uint32_t n)
{
	b->start += n;
	if (b->start == b->end)
		b->start = b->end = 0;
}

/* What a side needs to begin a session; the same for all its links. */
struct credentials {
	gnutls_certificate_credentials_t x509;
	gnutls_psk_server_credentials_t psk_server;
	gnutls_psk_client_credentials_t psk_client;
	gnutls_priority_t priority;
	bool psk;
	bool server;
};

/* 0, or a negated errno with a sentence that names the file. `self`: who we are, for secrets. */
int credentials_load(struct credentials *credentials, const struct peer_tls *tls, bool server,
		     const char *self, char *err, size_t size);
void credentials_free(struct credentials *credentials); /* may be called twice, or on zeroes */

/* Names that the other side of a link has proved. */
#define LINK_NAMES 8
struct names {
	char name[LINK_NAMES][PEER_NAME];
	unsigned nr;
};

struct link {
	int fd; /* -1: none */
	gnutls_session_t tls;
	bool open;   /* the handshake is done */
	bool ending; /* link_end() was called */
	bool server;
	struct buffer in;
	struct buffer out;
	uint32_t sending; /* bytes of `out` that a call began to send, to be called again */
	uint32_t polled;  /* epoll's events as they are set now; 0: not in any epoll */
	uint64_t began;	  /* clock_ns() */
	uint64_t heard;	  /* last byte that came */
	uint64_t moved;	  /* last time that something of `out` went, or that it was empty */
	gnutls_typed_vdata_st verify[2];
	char why[LINK_WHY]; /* it ended */
};

/*
 * A link over a connected or connecting socket, which it closes in the end. `name`: a client's;
 * what the server's certificate must have; stays the caller's and unchanged until link_close(). The
 * buffers' bytes are the caller's too. 0 or -ENOMEM; then the socket is closed.
 */
int link_begin(struct link *link, const struct credentials *credentials, int fd, const char *name,
	       uint64_t now);

/*
 * Goes on with the handshake, sends from `out`, reads into `in`, as far as it goes without waiting.
 * 0, or -1: it is over, link->why says why; what came before stands in `in`.
 */
int link_step(struct link *link, uint64_t now);

/* Only sends. A link that is not open yet is left alone. 0, or -1 as link_step(). */
int link_flush(struct link *link, uint64_t now);

/* Sets in epoll what it waits for. `data` is what epoll shall give. 0 or -1. */
int link_poll(struct link *link, int epoll, void *data);

/* A copy of what is already decrypted, or may be had at once, would not show in epoll. */
bool link_pending(const struct link *link);

/* Who the other side has proved to be. Of an open link. */
void link_names(const struct link *link, struct names *names);

/*
 * The last has been said. What the other side still sends has to be read, and thrown away, or the
 * system would end the connection in a way that takes the last words with it. link_drain(): true
 * when the other side has ended it too.
 */
void link_end(struct link *link);
bool link_drain(struct link *link);

/* May be called twice. */
void link_close(struct link *link);

#endif
