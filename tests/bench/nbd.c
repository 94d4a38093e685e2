// SPDX-License-Identifier: GPL-2.0-or-later
/* The same disk by NBD: nbdkit with our plugin, and one client that waits for each answer. */
#include "bench.h"
#include "tests/lib/scratch.h"

#include <stdio.h>

#ifndef HAVE_LIBNBD

bool nbd_open_disk(const char *disk_socket)
{
	(void)disk_socket;
	printf("NBD: not measured, built without libnbd\n");
	return false;
}

bool nbd_measure(const struct corpus *corpus, const uint32_t *order, struct timing *time)
{
	(void)corpus;
	(void)order;
	(void)time;
	return false;
}

void nbd_close_disk(void)
{
}

#else

#include <libnbd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLUGIN "./nbdkit-tmem-plugin.so"
#define TRIES 300
#define WRITE_PAGES 32

static struct nbd_handle *client;
static pid_t server;

bool nbd_open_disk(const char *disk_socket)
{
	char parameter[160];

	if (access(PLUGIN, R_OK)) {
		printf("NBD: not measured, there is no %s\n", PLUGIN);
		return false;
	}
	snprintf(parameter, sizeof(parameter), "socket=%s", disk_socket);
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("nbdkit", "nbdkit", "-f", "-U", scratch_path("nbd"), PLUGIN, parameter,
		       (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < TRIES; i++) {
		client = nbd_create();
		if (client && !nbd_connect_unix(client, scratch_path("nbd")))
			return true;
		nbd_close(client);
		usleep(10000);
	}
	printf("NBD: not measured: %s\n", nbd_get_error());
	client = NULL;
	nbd_close_disk();
	return false;
}

bool nbd_measure(const struct corpus *corpus, const uint32_t *order, struct timing *time)
{
	static uint8_t page[PAGE_BYTES];
	struct timing start;

	for (size_t i = 0; i < corpus->nr; i += WRITE_PAGES)
		if (nbd_pwrite(client, corpus->pages + i * PAGE_BYTES, WRITE_PAGES * PAGE_BYTES,
			       i * PAGE_BYTES, 0))
			return false;
	start = bench_now();
	for (size_t i = 0; i < corpus->nr; i++)
		if (nbd_pread(client, page, PAGE_BYTES, order[i] * (uint64_t)PAGE_BYTES, 0) ||
		    page_stamp(page) != page_stamp(corpus->pages + order[i] * PAGE_BYTES))
			return false;
	*time = bench_since(start);
	return true;
}

void nbd_close_disk(void)
{
	nbd_close(client);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

#endif
