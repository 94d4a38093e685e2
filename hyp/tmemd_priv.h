/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What tmemd.c and clients.c share: the rooms, wired. */
#ifndef TMEMD_PRIV_H
#define TMEMD_PRIV_H

#include "control/control.h"
#include "front/front.h"
#include "store/store.h"

struct tmemd {
	const char *config_path;
	struct config *config; /* what is in force, as far as it can change while we run */
	bool log_level_forced; /* --log-level: the configuration's does not count */
	struct store *store;
	struct front *front;
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

#endif
