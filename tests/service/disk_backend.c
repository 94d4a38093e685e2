// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-vhost-user-blk between a front end and tmemd: a load on a disk by way of it, while each of
 * the two is killed and started again; each way to hand it a socket; what it ends with.
 */
#include "diskload.h"
#include "tests/lib/vhost_hostile.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKEND "./tmem-vhost-user-blk"
#define FD "99"

static pid_t backend;

/* Where it listens for front ends of the disk "d1". */
static const char *front_socket(void)
{
	return service_socket("relay");
}

/* `fd` becomes descriptor FD of the program when it is not -1; else it listens by itself. */
static void backend_start(int fd)
{
	char disk[160], listening[160];

	snprintf(disk, sizeof(disk), "--disk-socket=%s", service_socket("d1"));
	snprintf(listening, sizeof(listening), "--socket-path=%s", front_socket());
	backend = player_fork();
	if (backend)
		return;
	if (fd >= 0 && dup2(fd, atoi(FD)) < 0)
		_exit(127);
	execl(BACKEND, "tmem-vhost-user-blk", disk, fd >= 0 ? "--fd=" FD : listening, NULL);
	_exit(127);
}

/* Waits for its end; the exit status. */
static int backend_status(void)
{
	int status, turns = 0;

	while (!waitpid(backend, &status, WNOHANG) && turns++ < 1000)
		player_nap_ms(10);
	CHECK(turns < 1000);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void backend_kill(void)
{
	player_end(backend);
}

/* ---- A load --------------------------------------------------------------------------------- */

static void some_work(struct load *load)
{
	uint64_t from = load->done;

	EVENTUALLY(load->done - from >= 50);
}

static void under_load(bool packed, struct rng *rng)
{
	struct vu_options options = {.packed = packed, .queues = 2, .data_bytes = LOAD_DATA_BYTES};
	struct load load;

	backend_start(-1);
	load_init(&load, disk_open("relay", &options), 2, rng_next(rng));
	disk_discard_all(load.vu);
	load.survives = true;
	load_start(&load);
	for (uint64_t i = 0; i < test_scaled(6); i++) {
		some_work(&load);
		player_nap_ms(rng_below(rng, 50));
		if (i % 2) {
			service_kill(SIGKILL);
			player_nap_ms(rng_below(rng, 300));
			service_start(NULL);
		} else {
			backend_kill();
			player_nap_ms(rng_below(rng, 300));
			backend_start(-1);
		}
	}
	some_work(&load);
	load_end(&load);
	load_verify(&load);
	CHECK(load.reconnects >= 1);
	CHECK_IS(vu_close(load.vu), 0);
	load_free(&load);
	/* It waits for the next front end, and goes when it is told to, with its socket. */
	kill(backend, SIGTERM);
	CHECK_IS(backend_status(), 0);
	CHECK_IS(access(front_socket(), F_OK), -1);
}

/* ---- Inherited sockets ---------------------------------------------------------------------- */

static int listening_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, front_socket(), strlen(front_socket()));
	CHECK(!bind(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!listen(fd, 1));
	return fd;
}

static void fd_that_listens(void)
{
	struct vu_options options = {.queues = 1};
	int fd = listening_socket();

	backend_start(fd);
	close(fd);
	for (unsigned turn = 0; turn < 3; turn++) {
		struct vu *vu = disk_open("relay", &options);

		CHECK_IS(disk_do(vu, 0, VIRTIO_BLK_T_OUT, turn, 1), VIRTIO_BLK_S_OK);
		CHECK_IS(vu_close(vu), 0);
	}
	kill(backend, SIGINT);
	CHECK_IS(backend_status(), 0);
	CHECK(!unlink(front_socket()));
}

/* Our end of a pair whose other end it has. */
static int backend_start_connected(void)
{
	int pair[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	backend_start(pair[1]);
	close(pair[1]);
	return pair[0];
}

static void ask_features(int fd)
{
	uint32_t request, flags, size;
	uint64_t features = 0;

	CHECK_IS(vu_send_raw(fd, VU_GET_FEATURES, VU_VERSION, NULL, 0, NULL, 0), 0);
	CHECK_IS(vu_receive_raw(fd, &request, &flags, &features, sizeof(features), &size, 5000), 0);
	CHECK_IS(request, VU_GET_FEATURES);
	CHECK(features);
}

static void fd_that_is_connected(void)
{
	int fd = backend_start_connected();

	ask_features(fd);
	close(fd);
	CHECK_IS(backend_status(), 0); /* the front end has gone */

	fd = backend_start_connected();
	ask_features(fd);
	service_kill(SIGKILL);
	CHECK_IS(backend_status(), 1); /* tmemd has gone */
	close(fd);

	fd = backend_start_connected();
	CHECK_IS(backend_status(), 1); /* it is not there at all */
	close(fd);
	service_start(NULL);
}

/* What tmemd refuses reaches the front end as that: its connection is closed. */
static void refused(void)
{
	static const uint32_t nonsense[] = {VU_GET_FEATURES, 0x77, 0};
	int fd = backend_start_connected();
	char byte;

	CHECK(write(fd, nonsense, sizeof(nonsense)) == sizeof(nonsense));
	CHECK_IS(read(fd, &byte, 1), 0);
	CHECK_IS(backend_status(), 1);
	close(fd);
}

int main(int argc, char **argv)
{
	struct rng rng = {argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	fflush(stdout);
	disk_configure("disk-backend", "");
	service_start(NULL);
	under_load(false, &rng);
	under_load(true, &rng);
	RUN(fd_that_listens);
	RUN(fd_that_is_connected);
	RUN(refused);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
