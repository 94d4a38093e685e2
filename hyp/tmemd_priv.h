/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What tmemd.c, clients.c and disks.c share: the rooms, wired. */
#ifndef TMEMD_PRIV_H
#define TMEMD_PRIV_H

#include "control/control.h"
#include "front/front.h"
#include "store/store.h"
#include "stream/stream.h"

struct peering;

struct tmemd {
	const char *config_path;
	struct config *config; /* what is in force, as far as it can change while we run */
	bool log_level_forced; /* --log-level: the configuration's does not count */
	struct store *store;
	struct xen *xen; /* until the front has it; NULL: none */
	struct front *front;
	struct peering *peering; /* NULL: no peers */
	struct control *control; /* NULL until it is open */
};

/* Opens and serves all clients of the configuration. 0 or a negated errno with err. */
int clients_start(struct tmemd *t, char *err, size_t errlen);

/*
 * Makes `next` what is in force, as far as it can be while clients live; says what cannot. Takes
 * over next.
 */
void clients_reload(struct tmemd *t, struct config *next);

/* For struct control_ops: what the front says of a client. */
int clients_channel(void *arg, const char *name, struct control_channel *channel);

/*
 * 0, or -EADDRINUSE with a sentence: the control socket has that path, or another client or disk
 * that is served.
 */
int clients_check_socket(struct tmemd *t, const char *name, const char *socket, char *err,
			 size_t errlen);

/*
 * Serves the disks of the configuration, and those that commands made. Says what cannot be served,
 * and what the arena has beside them.
 */
void disks_start(struct tmemd *t);

/*
 * Two steps of a reload. First: what `next` does not name is removed, or moved to it while a front
 * end is connected. Then the first `nr` disks of next are brought into force; t->config is still
 * what was before.
 */
void disks_reload_remove(struct tmemd *t, struct config *next);
void disks_reload(struct tmemd *t, const struct config *next, unsigned nr);

/* True when it is not a client with rings. */
bool disks_is_disk(const struct store_client *client);

/* For struct control_ops. */
int disks_lookup(void *arg, const char *name, struct control_disk *disk);
int disks_create(void *arg, const struct config_disk *disk, char *err, size_t errlen);
int disks_resize(void *arg, const char *name, uint64_t bytes, char *err, size_t errlen);
int disks_remove(void *arg, const char *name, bool force, char *err, size_t errlen);
uint64_t disks_exposure(void *arg);

/*
 * peers.c. Borrows and lends as the configuration says, before the front may need a page that is
 * away. 0 or a negated errno with err. To stop is fine twice, after the front.
 */
int peering_start(struct tmemd *t, char *err, size_t errlen);
void peering_stop(struct tmemd *t);

/* A few times in a second, see there. */
void peering_tick(struct tmemd *t);

/* t->config is still what was before. */
void peering_reload(struct tmemd *t, const struct config *next);

/* For struct control_ops. */
bool peering_peer(void *arg, unsigned i, struct control_peer *peer);
bool peering_lending(void *arg, struct control_lending *lending);
int peering_change(void *arg, enum control_peer_change what, const char *name, uint32_t deadline_ms,
		   char *err, size_t errlen);

/* For struct control_ops: domains of Xen. */
unsigned domains_list(void *arg, struct control_domain *domains, unsigned room);
int domains_find(void *arg, const char *text, struct control_domain *domain, char *err,
		 size_t errlen);
void domains_wish(void *arg, const char *client, enum control_wish wish);

/* For struct control_ops: streams. */
int streams_save(void *arg, const struct control_save *how, const struct stream_io *io,
		 struct stream_totals *totals, char *err, size_t errlen);
int streams_restore(void *arg, const char *name, const struct stream_io *io,
		    struct tmem_stream_head *head, struct stream_totals *totals, char *err,
		    size_t errlen);
int streams_discard(void *arg, const char *name);

#endif
