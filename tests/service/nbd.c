// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The plugin of nbdkit under load: several connections at once, every block verified. tmemd is
 * killed and away for a while: no client sees more than a delay, and none has to connect again
 * (case 15). Then nbdkit is killed: clients connect again, and all is still there.
 */
#include "blockload.h"

#ifndef HAVE_LIBNBD

int main(void)
{
	puts("built without libnbd");
	return 77;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS 6
#define TRIES 2000 /* to connect, 10 ms apart */
#define PLUGIN "./nbdkit-tmem-plugin.so"

static pid_t nbdkit;
static char nbd_socket[200];
static struct nbd_handle *handles[CONNECTIONS];
static _Atomic unsigned lost; /* connections that ended */

/* ---- nbdkit --------------------------------------------------------------------------------- */

/* The plugin needs the runtime of the sanitizer that this program has, too, and as the first. */
static void preload_sanitizer(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		char *path = strchr(line, '/');

		if (!path || (!strstr(path, "libasan.so") && !strstr(path, "libtsan.so")))
			continue;
		path[strcspn(path, "\n")] = 0;
		setenv("LD_PRELOAD", path, 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* of nbdkit */
		return;
	}
}

/* In the new process. */
static void become_nbdkit(void)
{
	char socket[200];

	snprintf(socket, sizeof(socket), "socket=%s", service_socket("d1"));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	preload_sanitizer();
	execlp("nbdkit", "nbdkit", "-f", "-U", nbd_socket, PLUGIN, socket, NULL);
	_exit(127);
}

static void nbdkit_start(void)
{
	unlink(nbd_socket);
	nbdkit = fork();
	CHECK(nbdkit >= 0);
	if (!nbdkit)
		become_nbdkit();
}

static void nbdkit_kill(void)
{
	kill(nbdkit, SIGKILL);
	CHECK(waitpid(nbdkit, NULL, 0) == nbdkit);
}

static bool can_run(void)
{
	int status;
	pid_t pid;

	if (access(PLUGIN, R_OK))
		return false;
	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		execlp("nbdkit", "nbdkit", "--version", NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

/* ---- The client ----------------------------------------------------------------------------- */

static struct nbd_handle *dial(void)
{
	for (int i = 0; i < TRIES; i++) {
		struct nbd_handle *h = nbd_create();

		CHECK(h);
		if (!nbd_connect_unix(h, nbd_socket))
			return h;
		nbd_close(h);
		player_nap_ms(10);
	}
	fprintf(stderr, "no connection: %s\n", nbd_get_error());
	player_die();
}

/* After a request that failed: true when the connection is a new one, and it is to be repeated. */
static bool again(struct nbd_handle **h, const char *what)
{
	if (!nbd_aio_is_dead(*h) && !nbd_aio_is_closed(*h)) {
		fprintf(stderr, "%s: %s\n", what, nbd_get_error());
		return false;
	}
	nbd_close(*h);
	*h = dial();
	atomic_fetch_add(&lost, 1);
	return true;
}

static int op_read(void *arg, void *buf, uint32_t bytes, uint64_t offset)
{
	struct nbd_handle **h = arg;

	while (nbd_pread(*h, buf, bytes, offset, 0))
		if (!again(h, "read"))
			return -EIO;
	return 0;
}

static int op_write(void *arg, const void *buf, uint32_t bytes, uint64_t offset)
{
	struct nbd_handle **h = arg;

	while (nbd_pwrite(*h, buf, bytes, offset, offset & BLOCK ? LIBNBD_CMD_FLAG_FUA : 0))
		if (!again(h, "write"))
			return -EIO;
	return 0;
}

static int op_zero(void *arg, uint32_t bytes, uint64_t offset)
{
	struct nbd_handle **h = arg;

	while (offset & BLOCK ? nbd_trim(*h, bytes, offset, 0) : nbd_zero(*h, bytes, offset, 0))
		if (!again(h, "zero"))
			return -EIO;
	return 0;
}

static int op_flush(void *arg)
{
	struct nbd_handle **h = arg;

	while (nbd_flush(*h, 0))
		if (!again(h, "flush"))
			return -EIO;
	return 0;
}

static const struct block_ops ops = {op_read, op_write, op_zero, op_flush};

/* ---- The test ------------------------------------------------------------------------------- */

static void kill_tmemd(struct blockload *load, struct rng *rng)
{
	blockload_some_work(load, 20);
	player_nap_ms(rng_below(rng, 50));
	service_kill(SIGKILL);
	player_nap_ms(rng_below(rng, 500));
	service_start(NULL);
}

static void kill_nbdkit(struct blockload *load, struct rng *rng)
{
	blockload_some_work(load, 20);
	player_nap_ms(rng_below(rng, 50));
	nbdkit_kill();
	nbdkit_start();
	blockload_some_work(load, 1);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	static struct blockload load;
	struct rng rng = {seed};
	void *args[CONNECTIONS];

	if (!can_run()) {
		puts("nbdkit is not installed, or its plugin was not built");
		return 77;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	disk_configure("nbd", "");
	snprintf(nbd_socket, sizeof(nbd_socket), "%s", service_socket("nbd"));
	service_start(NULL);
	nbdkit_start();
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		handles[i] = dial();
		args[i] = &handles[i];
	}
	CHECK_IS(nbd_get_size(handles[0]), DISK_BYTES);
	CHECK_IS(nbd_can_multi_conn(handles[0]), 1);

	blockload_init(&load, &ops, CONNECTIONS, args, seed);
	blockload_start(&load);
	for (uint64_t i = 0; i < test_scaled(8); i++)
		kill_tmemd(&load, &rng);
	blockload_some_work(&load, 20);
	CHECK_IS(service_kill(SIGTERM), 0);
	player_nap_ms(2000);
	service_start(NULL);
	blockload_some_work(&load, 20);
	CHECK_IS(lost, 0);
	for (uint64_t i = 0; i < test_scaled(6); i++)
		kill_nbdkit(&load, &rng);
	CHECK(lost >= CONNECTIONS * test_scaled(6));
	blockload_end(&load);
	printf("%llu requests, the longest %llu ms, %u connections ended\n",
	       (unsigned long long)blockload_done(&load),
	       (unsigned long long)blockload_longest_ms(&load), lost);
	CHECK_IS(service_counter("d1", "disk_errors"), 0);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		nbd_close(handles[i]);
	blockload_free(&load);
	nbdkit_kill();
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}

#endif
