// SPDX-License-Identifier: GPL-2.0-or-later
/* Membership without any service: the hosts of the configuration, for ever. */
#include "members_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int static_open(struct members **members, const struct members_config *config,
		       const struct member *self, members_changed_fn changed, void *arg, char *err,
		       size_t size)
{
	struct members *m = calloc(1, sizeof(*m));
	struct member *hosts = NULL;
	unsigned nr;
	int rc;

	if (!m) {
		snprintf(err, size, "no memory");
		return -ENOMEM;
	}
	rc = members_copy(config, self->name, &hosts, &nr, err, size);
	if (rc) {
		free(m);
		return rc;
	}
	m->ops = &members_static;
	*members = m;
	changed(arg, hosts, nr);
	free(hosts);
	return 0;
}

/* Nobody is told here: hosts tell each other over their links. */
static void static_spare(struct members *members, uint64_t bytes)
{
	(void)members;
	(void)bytes;
}

static bool static_state(struct members *members, char *text, size_t size)
{
	(void)members;
	if (size)
		text[0] = 0;
	return true;
}

static void static_close(struct members *members)
{
	free(members);
}

const struct members_ops members_static = {
	.name = "static",
	.open = static_open,
	.spare = static_spare,
	.state = static_state,
	.close = static_close,
};
