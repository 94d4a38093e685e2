/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest player: a program that plays the guest against the real tmemd. What its tests share:
 * starting, killing and asking tmemd, and checking.
 *
 * tmemd and tmemctl are those of the current directory, the build directory, or what TMEMD and
 * TMEMCTL name. Everything is in a scratch directory on memory.
 */
#ifndef TMEMD_TESTS_PLAYER_H
#define TMEMD_TESTS_PLAYER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tools/client/tmem_client.h"

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #cond);       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_IS(got, want)                                                                        \
	do {                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                      \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, \
				got_, want_);                                                      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/*
 * Makes the scratch directory and the configuration: clients "vm1" and "vm2", 4 rings each, 64
 * credits a ring. `more` is added behind vm2's section, which is the last.
 */
void service_configure(const char *name, const char *more);

/* Starts tmemd with these fault points armed (NULL: none) and waits until it answers. */
void service_start(const char *faults);

/* The same for one that may be killed by a fault before it answers: false then. */
bool service_try_start(const char *faults);

/* Kills it and waits for its end; the status of waitpid(2). Nothing when it does not run. */
int service_kill(int sig);

/* Did it end by itself? Then it is waited for. */
bool service_ended(int *status);
pid_t service_pid(void);

/* Path of the client's socket. */
const char *service_socket(const char *client);

/* Runs tmemctl with these words; fails the test when it fails. */
void service_ctl(const char *words);

/* A counter of the client. */
uint64_t service_counter(const char *client, const char *counter);

/* A connected client with a life of `rings` rings of `entries`. */
struct tmem_client *player_open(const char *client, unsigned rings, unsigned entries);

/* A new pool; fails the test when there is none. */
uint32_t player_pool(struct tmem_client *client, uint32_t flags);

#define POOL_VERSION (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT)
#define PERSISTENT (TMEM_POOL_PERSIST | POOL_VERSION)
#define EPHEMERAL POOL_VERSION

static inline struct tmem_handle handle_at(uint32_t pool, uint32_t index)
{
	return (struct tmem_handle){.object = {index / 64, 0, 0}, .pool = pool, .index = index};
}

/* Waits up to 10 s for the condition. */
#define EVENTUALLY(cond)                                                                           \
	do {                                                                                       \
		int turns_ = 0;                                                                    \
		while (!(cond) && turns_++ < 1000)                                                 \
			player_nap_ms(10);                                                         \
		CHECK(cond);                                                                       \
	} while (0)
void player_nap_ms(unsigned ms);

#endif
