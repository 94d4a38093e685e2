/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of the control socket share. */
#ifndef TMEMD_CONTROL_PRIV_H
#define TMEMD_CONTROL_PRIV_H

#include <event2/event.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "control/control.h"

struct connection;
struct job;

struct control {
	struct event_base *base;
	struct store *store;
	struct control_ops ops;
	void *arg; /* of ops */
	char socket[CONFIG_SOCKET_MAX];
	gid_t gid; /* whose members may speak; (gid_t)-1: nobody but root and ourselves */

	int fd; /* listening; -1 none */
	struct event *accept_event;
	struct event *retry_event; /* accepts again after descriptors ran out */
	struct connection *connections;
	unsigned nr_connections;

	/* Long commands: the list is the main thread's; each has a thread of its own. */
	struct job *jobs;
	unsigned nr_jobs;
	int wake_fd; /* eventfd: a job is done */
	struct event *wake_event;
	_Atomic bool cancel;	  /* jobs end after their current step */
	pthread_rwlock_t clients; /* read: a job uses a client; write: clients are removed */
};

/* The outcome of a command: a result, or a code and a message. */
struct reply {
	json_t *result;	  /* owned */
	const char *code; /* NULL: good */
	char message[512];
};

void reply_error(struct reply *reply, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct command {
	const char *name;
	bool is_long; /* runs on a thread of its own */
	void (*run)(struct control *control, json_t *request, struct reply *reply);
	/* Instead of run, on a thread of its own: the connection carries a stream. See streams.c.
	 */
	void (*stream)(struct control *control, json_t *request, int fd, struct reply *reply);
	struct param {
		const char *key;
		enum { PARAM_STRING, PARAM_INTEGER, PARAM_BOOLEAN } type;
		bool needed;
		int64_t min, max; /* of an integer */
	} params[12];
};

/* The request's command with all its values checked, or NULL with the error in reply. */
const struct command *command_find(json_t *request, struct reply *reply);

/* ---- Values: commands.c --------------------------------------------------------------------- */

void put_int(json_t *object, const char *key, uint64_t value);
uint64_t get_int(json_t *request, const char *key);

/* ---- disks.c -------------------------------------------------------------------------------- */

void run_disk_create(struct control *control, json_t *request, struct reply *reply);
void run_disk_list(struct control *control, json_t *request, struct reply *reply);
void run_disk_resize(struct control *control, json_t *request, struct reply *reply);
void run_disk_remove(struct control *control, json_t *request, struct reply *reply);

/* ---- peers.c -------------------------------------------------------------------------------- */

void run_peer_list(struct control *control, json_t *request, struct reply *reply);
void run_peer_drain(struct control *control, json_t *request, struct reply *reply);
void run_peer_allow(struct control *control, json_t *request, struct reply *reply);
void run_peer_deny(struct control *control, json_t *request, struct reply *reply);

/* ---- domains.c ------------------------------------------------------------------------------ */

void run_domain(struct control *control, json_t *request, struct reply *reply);
void run_domain_attach(struct control *control, json_t *request, struct reply *reply);
void run_domain_detach(struct control *control, json_t *request, struct reply *reply);

/* ---- streams.c ------------------------------------------------------------------------------ */

void run_save(struct control *control, json_t *request, int fd, struct reply *reply);
void run_restore(struct control *control, json_t *request, int fd, struct reply *reply);
void run_restore_discard(struct control *control, json_t *request, struct reply *reply);

/* ---- What is known of clients --------------------------------------------------------------- */

/* What `list` says of a client. The caller owns the object. */
json_t *client_summary(struct control *control, struct store_client *client);

/* What `list` says of the service. The caller owns the object. */
json_t *service_summary(struct control *control);

/* The store's client pointers. The caller frees the array; *nr is their number. */
struct store_client **all_clients(struct store *store, unsigned *nr);

/* Everything that is counted, in Prometheus' text format. The caller frees it; NULL no memory. */
char *metrics_text(struct control *control);

#endif
