// SPDX-License-Identifier: GPL-2.0-or-later
#include "player.h"
#include "manager.h"

#include <dirent.h>
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

static char dir[128], conf[160], control[160], log_path[160];
static pid_t pid;

void player_die(void)
{
	char line[1024];
	FILE *f = fopen(log_path, "r");

	while (f && fgets(line, sizeof(line), f))
		fprintf(stderr, "tmemd: %s", line);
	exit(1);
}

void player_nap_ms(unsigned ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

void service_configure(const char *name, const char *more)
{
	snprintf(dir, sizeof(dir), "%s", scratch_make(name));
	snprintf(conf, sizeof(conf), "%s/conf", dir);
	snprintf(control, sizeof(control), "%s/control", dir);
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	service_configure_again(more);
}

void service_configure_again(const char *more)
{
	FILE *f = fopen(conf, "w");

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

const char *service_program(const char *variable)
{
	const char *path = getenv(variable);

	return path ? path : !strcmp(variable, "TMEMD") ? "./tmemd" : "./tmemctl";
}

static int dial(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	memcpy(address.sun_path, path, strnlen(path, sizeof(address.sun_path) - 1));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	close(fd);
	return -1;
}

static bool answers(void)
{
	int fd = dial(control);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void run_service(void (*prepare)(void))
{
	int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	manager_hand_over();
	dup2(log, STDERR_FILENO);
	if (prepare)
		prepare();
	execl(service_program("TMEMD"), "tmemd", "--config", conf, "--log-level", "warning", NULL);
	_exit(127);
}

bool service_launch(void (*prepare)(void), int *status)
{
	CHECK(!pid);
	unlink(control);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		run_service(prepare);
	for (int i = 0; i < START_MS / 5; i++) {
		if (service_ended(status))
			return false;
		if (answers())
			return true;
		player_nap_ms(5);
	}
	CHECK(!"tmemd answers");
	return false;
}

static const char *faults_to_arm;

static void arm_faults(void)
{
	if (faults_to_arm)
		setenv("TMEMD_FAULTS", faults_to_arm, 1);
}

bool service_try_start(const char *faults)
{
	int status;

	faults_to_arm = faults;
	if (service_launch(arm_faults, &status))
		return true;
	CHECK(faults && WIFSIGNALED(status));
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

/* The number behind a name in a file of /proc/PID; 0 when there is none. */
static unsigned proc_number(const char *file, const char *name)
{
	char path[64], line[512];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			n = (unsigned)strtoul(line + strlen(name), NULL, 10);
	fclose(f);
	return n;
}

static unsigned nr_files(void)
{
	unsigned n = 0;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2; /* . and .. */
}

void service_costs(struct service_costs *costs)
{
	clockid_t clock;
	struct timespec ts;

	CHECK(!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &ts));
	costs->files = nr_files();
	costs->threads = proc_number("status", "Threads:");
	costs->memory_kb = proc_number("status", "VmRSS:");
	costs->cpu_ms = (unsigned)(ts.tv_sec * 1000 + ts.tv_nsec / 1000000);
}

void service_costs_at_rest(struct service_costs *costs)
{
	struct service_costs now;
	unsigned same = 0;

	for (service_costs(costs); same < 10; *costs = now) {
		player_nap_ms(20);
		service_costs(&now);
		same = now.files == costs->files ? same + 1 : 0;
	}
}

unsigned service_log_lines(const char *text)
{
	char line[1024];
	unsigned n = 0;
	FILE *f = fopen(log_path, "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += !text || strstr(line, text);
	fclose(f);
	return n;
}

const char *service_socket(const char *client)
{
	static char path[192];

	snprintf(path, sizeof(path), "%s/%s", dir, client);
	return path;
}

void service_ctl(const char *words)
{
	char command[512];

	snprintf(command, sizeof(command), "%s --socket %s %s >/dev/null",
		 service_program("TMEMCTL"), control, words);
	if (system(command)) {
		fprintf(stderr, "%s: failed\n", command);
		player_die();
	}
}

bool service_ask(const char *request, char *answer, size_t room)
{
	int fd = dial(control);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return false;
	/* Who is not heard has an answer before the request is sent. */
	if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
		send(fd, "\n", 1, MSG_NOSIGNAL);
	while (n > 0 && len < room - 1 && !memchr(answer, '\n', len)) {
		n = recv(fd, answer + len, room - 1 - len, 0);
		len += n > 0 ? (size_t)n : 0;
	}
	answer[len] = 0;
	close(fd);
	return n > 0;
}

uint64_t service_counter(const char *client, const char *counter)
{
	char request[128], name[64], answer[65536], *at = NULL;

	snprintf(request, sizeof(request), "{\"command\":\"stat\"%s%s%s}",
		 client ? ",\"client\":\"" : "", client ? client : "", client ? "\"" : "");
	snprintf(name, sizeof(name), "\"%s\":", counter);
	if (service_ask(request, answer, sizeof(answer)))
		at = strstr(answer, name);
	if (!at) {
		fprintf(stderr, "no counter %s in the answer to %s\n", counter, request);
		player_die();
	}
	return strtoull(at + strlen(name), NULL, 10);
}

pid_t player_fork(void)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

void player_end(pid_t child)
{
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
}

void player_join(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK_IS(status, 0);
}

int player_dial(const char *client)
{
	return dial(service_socket(client));
}

struct tmem_client *player_open(const char *name, unsigned rings, unsigned entries)
{
	struct tmem_hello hello = {.rings = rings, .entries = entries, .features = TMEM_F_ALL};
	struct tmem_client *client;
	char err[256];

	if (tmem_client_connect(&client, service_socket(name), 30000, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		player_die();
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

static struct tmem_ring_ctl *ctl_of(struct tmem_client *client, unsigned ring, unsigned entries)
{
	size_t bytes;
	uint8_t *base = tmem_client_region(client, &bytes);

	return (struct tmem_ring_ctl *)(base + tmem_ring_off(ring, entries));
}

uint32_t player_executed(struct tmem_client *client, unsigned rings, unsigned entries)
{
	uint32_t sum = 0;

	for (unsigned r = 0; r < rings; r++)
		sum += __atomic_load_n(&ctl_of(client, r, entries)->cq_tail, __ATOMIC_ACQUIRE);
	return sum;
}

uint32_t player_waiting(struct tmem_client *client, unsigned rings, unsigned entries)
{
	uint32_t submitted = 0;

	for (unsigned r = 0; r < rings; r++)
		submitted +=
			__atomic_load_n(&ctl_of(client, r, entries)->sq_tail, __ATOMIC_ACQUIRE);
	return submitted - player_executed(client, rings, entries);
}

int player_put(struct tmem_client *client, uint32_t pool, uint32_t index, uint64_t stamp)
{
	struct tmem_handle h = handle_at(pool, index);
	uint8_t page[TMEM_PAGE_SIZE];

	page_make(page, stamp);
	return tmem_put(tmem_client_ring(client, 0), &h, page);
}

int player_get(struct tmem_client *client, uint32_t pool, uint32_t index, uint64_t stamp)
{
	struct tmem_handle h = handle_at(pool, index);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = tmem_get(tmem_client_ring(client, 0), &h, page);

	CHECK(r != 1 || page_is(page, stamp));
	return r;
}
