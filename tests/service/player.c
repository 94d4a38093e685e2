// SPDX-License-Identifier: GPL-2.0-or-later
#include "player.h"
#include "manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS 30000

static char dir[128], conf[160], control[160];
static pid_t pid;

void player_nap_ms(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

void service_configure(const char *name, const char *more)
{
	FILE *f;

	snprintf(dir, sizeof(dir), "%s", scratch_make(name));
	snprintf(conf, sizeof(conf), "%s/conf", dir);
	snprintf(control, sizeof(control), "%s/control", dir);
	f = fopen(conf, "w");
	CHECK(f);
	fprintf(f,
		"[pool]\narena = %s/arena\npool_max = 192M\nhost_reserve = 0\n"
		"[front]\nregions = %s\nworkers = 2\n[control]\nsocket = %s\n"
		"[service]\nseccomp = off\n",
		dir, dir, control);
	for (int i = 1; i <= 2; i++)
		fprintf(f,
			"[client vm%d]\nsocket = %s/vm%d\nregion = 8M\nrings = 4\ncredits = 64\n",
			i, dir, i);
	fprintf(f, "%s", more);
	fclose(f);
}

static const char *program(const char *variable, const char *otherwise)
{
	const char *path = getenv(variable);

	return path ? path : otherwise;
}

static bool answers(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool yes;

	memcpy(address.sun_path, control, strnlen(control, sizeof(address.sun_path) - 1));
	yes = !connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
	return yes;
}

bool service_try_start(const char *faults)
{
	int status;

	CHECK(!pid);
	unlink(control);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		manager_hand_over();
		if (faults)
			setenv("TMEMD_FAULTS", faults, 1);
		execl(program("TMEMD", "./tmemd"), "tmemd", "--config", conf, "--log-level",
		      "warning", NULL);
		_exit(127);
	}
	for (int i = 0; i < START_MS / 5; i++) {
		if (service_ended(&status)) {
			CHECK(faults && WIFSIGNALED(status));
			return false;
		}
		if (answers())
			return true;
		player_nap_ms(5);
	}
	CHECK(!"tmemd answers");
	return false;
}

void service_start(const char *faults)
{
	CHECK(service_try_start(faults));
}

int service_kill(int sig)
{
	int status = 0;

	if (!pid)
		return 0;
	kill(pid, sig);
	CHECK(waitpid(pid, &status, 0) == pid);
	pid = 0;
	return status;
}

bool service_ended(int *status)
{
	if (!pid || waitpid(pid, status, WNOHANG) != pid)
		return false;
	pid = 0;
	return true;
}

pid_t service_pid(void)
{
	return pid;
}

const char *service_socket(const char *client)
{
	static char path[192];

	snprintf(path, sizeof(path), "%s/%s", dir, client);
	return path;
}

/* Runs tmemctl; what it printed is in `out`. */
static void run_ctl(const char *words, char *out, size_t room)
{
	char command[512];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "%s --socket %s %s", program("TMEMCTL", "./tmemctl"),
		 control, words);
	f = popen(command, "r");
	CHECK(f);
	n = fread(out, 1, room - 1, f);
	out[n] = 0;
	if (pclose(f)) {
		fprintf(stderr, "%s: failed\n", command);
		exit(1);
	}
}

void service_ctl(const char *words)
{
	char out[256];

	run_ctl(words, out, sizeof(out));
}

uint64_t service_counter(const char *client, const char *counter)
{
	char words[64], name[64], out[16384], *at;

	snprintf(words, sizeof(words), "--json stat %s", client);
	snprintf(name, sizeof(name), "\"%s\":", counter);
	run_ctl(words, out, sizeof(out));
	at = strstr(out, name);
	if (!at) {
		fprintf(stderr, "no counter %s in %s\n", counter, out);
		exit(1);
	}
	return strtoull(at + strlen(name), NULL, 10);
}

struct tmem_client *player_open(const char *name, unsigned rings, unsigned entries)
{
	struct tmem_hello hello = {.rings = rings, .entries = entries, .features = TMEM_F_ALL};
	struct tmem_client *client;
	char err[256];

	if (tmem_client_connect(&client, service_socket(name), 30000, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		exit(1);
	}
	CHECK_IS(tmem_client_hello(client, &hello), 0);
	return client;
}

uint32_t player_pool(struct tmem_client *client, uint32_t flags)
{
	int pool = tmem_new_pool(tmem_client_ring(client, 0), flags, NULL);

	CHECK(pool >= 0);
	return (uint32_t)pool;
}
