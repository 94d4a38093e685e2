// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The service manager holds duplicates of connections and doorbells over a restart: peers see no
 * end-of-file, and doorbells work again. Names are CLIENT/connection0, CLIENT/inV, CLIENT/outV, and
 * DISK/session0, DISK/session1; the name of a client or disk has no slash.
 */
#include "front_priv.h"

#ifdef HAVE_SYSTEMD

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/log.h"

static struct {
	char **names; /* NULL for those taken */
	int nr;
} given;

static void notify_remove(const char *name)
{
	char state[128 + STORE_NAME_MAX];

	snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	sd_notify(0, state);
}

/* Descriptor i is not needed any more, by us or the service manager. */
static void drop(int i)
{
	notify_remove(given.names[i]);
	close(SD_LISTEN_FDS_START + i);
	free(given.names[i]);
	given.names[i] = NULL;
}

/* Has the store recorded a life of the client, or a disk, whose descriptor this is? */
static bool belongs_to_a_life(struct store *store, const char *name)
{
	char client_name[STORE_NAME_MAX], note[STORE_MAX_NOTE];
	const char *slash = strchr(name, '/');
	struct store_client *client;

	/* Not one of ours. */
	if (!slash || slash - name >= STORE_NAME_MAX)
		return true;
	snprintf(client_name, sizeof(client_name), "%.*s", (int)(slash - name), name);
	client = store_client_find(store, client_name);
	return client && store_client_note(client, note, sizeof(note)) != 0 &&
	       !front_disk_damaged(client);
}

void fdstore_open(struct store *store)
{
	given.nr = sd_listen_fds_with_names(0, &given.names);
	if (given.nr < 0)
		given.nr = 0;
	for (int i = 0; i < given.nr; i++)
		if (!belongs_to_a_life(store, given.names[i]))
			drop(i);
}

void fdstore_close(void)
{
	for (int i = 0; i < given.nr; i++) {
		if (given.names[i] && strchr(given.names[i], '/'))
			close(SD_LISTEN_FDS_START + i);
		free(given.names[i]);
	}
	free(given.names);
	given.names = NULL;
	given.nr = 0;
}

static void keep(const char *name, const char *what, int index, int fd)
{
	char state[128 + STORE_NAME_MAX];

	snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s/%s%d", name, what, index);
	if (fd >= 0 && sd_pid_notify_with_fds(0, 0, state, &fd, 1) < 0)
		log_limited(LOG_WARN, "%s: the service manager does not keep %s%d", name, what,
			    index);
}

static void forget(const char *name, const char *what, int index)
{
	char whole[64 + STORE_NAME_MAX];

	snprintf(whole, sizeof(whole), "%s/%s%d", name, what, index);
	notify_remove(whole);
}

/* What was handed over and not taken: the life ended while nobody was here. */
static void forget_given(const char *name)
{
	size_t len = strlen(name);

	for (int i = 0; i < given.nr; i++)
		if (given.names[i] && !strncmp(given.names[i], name, len) &&
		    given.names[i][len] == '/')
			drop(i);
}

static int take(const char *name, const char *what, int index)
{
	char whole[64 + STORE_NAME_MAX];

	snprintf(whole, sizeof(whole), "%s/%s%d", name, what, index);
	for (int i = 0; i < given.nr; i++)
		if (given.names[i] && !strcmp(given.names[i], whole)) {
			free(given.names[i]);
			given.names[i] = NULL;
			return SD_LISTEN_FDS_START + i;
		}
	return -1;
}

bool fdstore_is_there(void)
{
	return getenv("NOTIFY_SOCKET") != NULL;
}

/* ---- Clients -------------------------------------------------------------------------------- */

void fdstore_keep(struct front_client *client)
{
	if (!fdstore_is_there())
		return;
	keep(client->name, "connection", 0, client->connection);
	for (unsigned v = 0; v < client->max_rings; v++) {
		keep(client->name, "in", (int)v, client->rings[v].bell_in);
		keep(client->name, "out", (int)v, client->rings[v].bell_out);
	}
	client->kept = true;
}

void fdstore_forget(struct front_client *client)
{
	forget_given(client->name);
	if (!client->kept)
		return;
	forget(client->name, "connection", 0);
	for (unsigned v = 0; v < client->max_rings; v++) {
		forget(client->name, "in", (int)v);
		forget(client->name, "out", (int)v);
	}
	client->kept = false;
}

bool fdstore_take(struct front_client *client)
{
	bool complete = true;
	int fd;

	for (unsigned v = 0; v < client->max_rings; v++) {
		client->rings[v].bell_in = take(client->name, "in", (int)v);
		client->rings[v].bell_out = take(client->name, "out", (int)v);
		complete &= client->rings[v].bell_in >= 0 && client->rings[v].bell_out >= 0;
	}
	fd = take(client->name, "connection", 0);
	if (fd >= 0 && door_add(client, DOOR_CONNECTION, fd)) {
		close(fd);
		fd = -1;
	}
	client->connection = fd;
	client->kept = true; /* in part at least: forgotten with the life */
	return complete;
}

/* ---- Disks ---------------------------------------------------------------------------------- */

#define PAIR "session"

void fdstore_keep_pair(const char *name, const int pair[2])
{
	for (int i = 0; i < 2; i++)
		keep(name, PAIR, i, pair[i]);
}

void fdstore_forget_pair(const char *name)
{
	forget_given(name);
	for (int i = 0; i < 2; i++)
		forget(name, PAIR, i);
}

bool fdstore_take_pair(const char *name, int pair[2])
{
	for (int i = 0; i < 2; i++)
		pair[i] = take(name, PAIR, i);
	if (pair[0] >= 0 && pair[1] >= 0)
		return true;
	for (int i = 0; i < 2; i++) {
		if (pair[i] < 0)
			continue;
		forget(name, PAIR, i);
		close(pair[i]);
		pair[i] = -1;
	}
	return false;
}

#else

void fdstore_open(struct store *store)
{
	(void)store;
}

void fdstore_close(void)
{
}

void fdstore_keep(struct front_client *client)
{
	(void)client;
}

void fdstore_forget(struct front_client *client)
{
	(void)client;
}

bool fdstore_take(struct front_client *client)
{
	(void)client;
	return false;
}

bool fdstore_is_there(void)
{
	return false;
}

void fdstore_keep_pair(const char *name, const int pair[2])
{
	(void)name;
	(void)pair;
}

void fdstore_forget_pair(const char *name)
{
	(void)name;
}

bool fdstore_take_pair(const char *name, int pair[2])
{
	(void)name;
	(void)pair;
	return false;
}

#endif
