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

/* Ends the test as failed, and shows what tmemd said. */
void __attribute__((noreturn)) player_die(void);

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #cond);       \
			player_die();                                                              \
		}                                                                                  \
	} while (0)

#define CHECK_IS(got, want)                                                                        \
	do {                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                      \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, \
				got_, want_);                                                      \
			player_die();                                                              \
		}                                                                                  \
	} while (0)

/*
 * Makes the scratch directory and the configuration: clients "vm1" and "vm2", 4 rings each, 64
 * credits a ring. `more` is added behind vm2's section, which is the last.
 */
void service_configure(const char *name, const char *more);

/* The same configuration with other words at its end; in force after SIGHUP or a restart. */
void service_configure_again(const char *more);

/* Starts tmemd with these fault points armed (NULL: none) and waits until it answers. */
void service_start(const char *faults);

/* The same for one that may be killed by a fault before it answers: false then. */
bool service_try_start(const char *faults);

/*
 * Starts tmemd; `prepare` runs in the new process before it becomes tmemd. True: it answers. False:
 * it has ended, with the status of waitpid(2).
 */
bool service_launch(void (*prepare)(void), int *status);

/* The program, e.g. "TMEMD": what that variable names, or that of the current directory. */
const char *service_program(const char *variable);

/* Kills it and waits for its end; the status of waitpid(2). Nothing when it does not run. */
int service_kill(int sig);

/* Did it end by itself? Then it is waited for. */
bool service_ended(int *status);
pid_t service_pid(void);

/* What it costs at this moment. */
struct service_costs {
	unsigned files;
	unsigned threads;
	unsigned memory_kb; /* resident */
	unsigned cpu_ms;    /* used up to now */
};
void service_costs(struct service_costs *costs);

/* The same when it has closed what was closed by others. */
void service_costs_at_rest(struct service_costs *costs);

/* Lines that it has written to its log; with this text, or all (NULL). */
unsigned service_log_lines(const char *text);

/* Path of the client's socket. */
const char *service_socket(const char *client);

/* Runs tmemctl with these words; fails the test when it fails. */
void service_ctl(const char *words);

/*
 * Asks at the control socket, by tmemctl's protocol; the request is a JSON object. True when an
 * answer came; it is in `answer`.
 */
bool service_ask(const char *request, char *answer, size_t room);

/* A counter of the client, or (NULL) of the service. */
uint64_t service_counter(const char *client, const char *counter);

/* A child that ends with this process; 0 in the child. */
pid_t player_fork(void);

/* Kills it and waits. */
void player_end(pid_t child);

/* Waits for its end, which must be a success. */
void player_join(pid_t child);

/* Connects to the client's socket and leaves the rest to the caller; -1 with errno. */
int player_dial(const char *client);

/* A connected client with a life of `rings` rings of `entries`. */
struct tmem_client *player_open(const char *client, unsigned rings, unsigned entries);

/* All entries that the service has executed for this life of `rings` rings, and that wait. */
uint32_t player_executed(struct tmem_client *client, unsigned rings, unsigned entries);
uint32_t player_waiting(struct tmem_client *client, unsigned rings, unsigned entries);

/* Puts and gets the page of that stamp at handle_at(pool, index); what the operation returned. */
int player_put(struct tmem_client *client, uint32_t pool, uint32_t index, uint64_t stamp);
int player_get(struct tmem_client *client, uint32_t pool, uint32_t index, uint64_t stamp);

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

/* Says which part of the test runs. */
#define RUN(name)                                                                                  \
	do {                                                                                       \
		printf("%s\n", #name);                                                             \
		fflush(stdout);                                                                    \
		name();                                                                            \
	} while (0)

#endif
