/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One side of a connection, played by a test: it says what it likes, over real TLS. */
#ifndef TMEMD_TESTS_RAW_PEER_H
#define TMEMD_TESTS_RAW_PEER_H

#include "tier/link.h"
#include "world.h"

struct raw {
	struct credentials credentials;
	struct link link;
	enum frame_side from; /* whose frames it reads */
	int listener;	      /* a lender's */
	uint16_t port;
	uint64_t next_id;
};

/* As an owner, to a lender; the handshake is done, nothing is said. `dir` stays the caller's. */
void raw_connect(struct raw *raw, uint16_t port, const char *dir);

/* As a lender. raw_accept() takes the next connection, handshake and all. */
void raw_listen(struct raw *raw, const char *dir);
void raw_accept(struct raw *raw);

void raw_hello_of(struct tmem_peer_hello *hello); /* one that fits */
void raw_hello(struct raw *raw, const struct tmem_peer_hello *hello, uint16_t type, uint64_t id);
void raw_bytes(struct raw *raw, const void *bytes, uint32_t len);
void raw_empty(struct raw *raw, uint16_t type, uint64_t id);

/* One blob of a put, a get of one. */
void raw_put(struct raw *raw, uint64_t blob, uint32_t tag);
void raw_get(struct raw *raw, uint64_t blob, uint32_t tag);

/* The next frame; its parts stay until the next call. False: the connection has ended. */
bool raw_next(struct raw *raw, struct frame *frame);

/* The next frame but PING, STAT and DELETE is of this type. */
void raw_expect(struct raw *raw, uint16_t type, struct frame *frame);

/* An error with this text comes, and the end. */
void raw_expect_error(struct raw *raw, uint32_t code, const char *says);

/* What was written goes out as far as it goes at once. False: the connection has ended. */
bool raw_push(struct raw *raw);

void raw_hang_up(struct raw *raw);
void raw_end(struct raw *raw);

#endif
