// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Each call by which tmemd asks for memory, a descriptor or a file at start is made to fail, one
 * after the other, until it starts without one having failed. Each start ends with an exit status
 * that is not 0 and a sentence, or serves; and whatever it did, the next one finds all pages of a
 * guest that was connected before, or begins with an arena as new.
 *
 * A TMEMD_TEST_SCALE below 100 makes only a sample of the calls fail, each of so many, from a first
 * one that the seed chooses.
 */
#include "tests/service/player.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 96
#define RINGS 2
/* Every so many starts one in peace shows that nothing is lost. */
#define LOOK_EVERY 16
#define HANG_S 120

static unsigned long nth; /* the call that fails */
static unsigned long seed, step = 1;

/* A start that neither ends nor answers: SIGALRM. */
static void hangs(int sig)
{
	(void)sig;
	CHECK(!"a start that ends or serves");
}

static unsigned long first(void)
{
	return 1 + seed % step;
}

/* Said when call number nth was not reached. */
static void say_calls(const char *what)
{
	printf("%s: %lu of %lu calls failed, one after the other", what, (nth - first()) / step,
	       nth - 1);
}

/* ---- One program with one failure ----------------------------------------------------------- */

static void say_where(void)
{
	printf("FAILED at call %lu\n", nth);
	fflush(stdout);
	if (nth && system("cat /dev/null $FAIL_NTH_REPORT $FAIL_NTH_SAID 2>/dev/null") < 0)
		printf("(nor can it be shown)\n");
}

static void prepare(void)
{
	char number[24];
	int fd = open(getenv("FAIL_NTH_SAID"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(126);
	snprintf(number, sizeof(number), "%lu", nth);
	setenv("FAIL_NTH", number, 1);
	setenv("LD_PRELOAD", getenv("FAIL_NTH_LIBRARY"), 1);
}

/* What the file holds; its length. */
static size_t text_of(const char *variable, char *text, size_t room)
{
	FILE *f = fopen(getenv(variable), "re");
	size_t n = f ? fread(text, 1, room - 1, f) : 0;

	text[n] = 0;
	if (f)
		fclose(f);
	return n;
}

static bool has_failed(void)
{
	return !access(getenv("FAIL_NTH_REPORT"), F_OK);
}

/* Lines that a host without the privilege sees at each start, and that explain no failure. */
static bool is_usual(const char *line)
{
	return !strncmp(line, "IO_FLUSHER", 10) || !strncmp(line, "oom_score_adj", 13) ||
	       !strncmp(line, "memory cannot be locked", 23);
}

/* It ended by itself: with a status that says so, and a sentence at the end that says why. */
static void check_end(int status)
{
	char said[8192], *last;
	size_t n;

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	n = text_of("FAIL_NTH_SAID", said, sizeof(said));
	CHECK(n > 15 && said[n - 1] == '\n');
	said[n - 1] = 0;
	last = strrchr(said, '\n');
	last = last ? last + 1 : said;
	CHECK(strlen(last) > 15 && strchr(last, ' ') && !is_usual(last));
}

/* Runs a program to its end; `good` must be in its output when it succeeds. */
static void run_failing(char *const argv[], const char *good)
{
	char out[8192];
	int fd[2], status;
	ssize_t n, len = 0;
	pid_t pid;

	unlink(getenv("FAIL_NTH_REPORT"));
	CHECK(!pipe(fd));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(HANG_S);
		prepare();
		dup2(fd[1], STDOUT_FILENO);
		close(fd[0]);
		close(fd[1]);
		execv(argv[0], argv);
		_exit(127);
	}
	close(fd[1]);
	while ((n = read(fd[0], out + len, sizeof(out) - 1 - len)) > 0)
		len += n;
	out[len] = 0;
	close(fd[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		CHECK(strstr(out, good));
	else
		check_end(status);
}

static void fail_each(const char *what, char *const argv[], const char *good)
{
	for (nth = first();; nth += step) {
		run_failing(argv, good);
		if (!has_failed())
			break;
	}
	say_calls(what);
	printf("\n");
	nth = 0;
}

/* ---- tmemd ---------------------------------------------------------------------------------- */

static void put_pages(struct tmem_client *client, uint32_t pool)
{
	uint8_t page[TMEM_PAGE_SIZE];

	for (uint32_t i = 0; i < PAGES; i++) {
		struct tmem_handle h = handle_at(pool, i);

		page_make(page, i + 1);
		CHECK_IS(tmem_put(tmem_client_ring(client, i % RINGS), &h, page), 1);
	}
}

static void check_pages(struct tmem_client *client, uint32_t pool)
{
	uint8_t page[TMEM_PAGE_SIZE];

	for (uint32_t i = 0; i < PAGES; i++) {
		struct tmem_handle h = handle_at(pool, i);

		CHECK_IS(tmem_get(tmem_client_ring(client, i % RINGS), &h, page), 1);
		CHECK(page_is(page, i + 1));
	}
}

/* One start; true when it serves. A connection alone may be to one that is about to give up. */
static bool start_failing(void)
{
	char answer[1024];
	int status;

	unlink(getenv("FAIL_NTH_REPORT"));
	alarm(HANG_S);
	if (service_launch(prepare, &status)) {
		/* One request may be what failed; then the next one is served. */
		for (int i = 0; i < 3; i++)
			if (service_ask("{\"command\":\"version\"}", answer, sizeof(answer)) &&
			    !strstr(answer, "\"error\""))
				return true;
		while (!service_ended(&status))
			player_nap_ms(10);
	}
	check_end(status);
	return false;
}

/* A new arena each time; and one that was begun by a start that failed can be opened. */
static void start_new(void)
{
	for (nth = first();; nth += step) {
		unlink(scratch_path("arena"));
		if (start_failing() && !has_failed())
			break;
		service_kill(SIGKILL);
		CHECK(access(scratch_path("arena.new"), F_OK));
		if (nth / step % LOOK_EVERY == 0 && !access(scratch_path("arena"), F_OK)) {
			service_start(NULL);
			CHECK_IS(service_kill(SIGTERM), 0);
		}
	}
	CHECK_IS(service_kill(SIGTERM), 0);
	say_calls("a new arena");
	printf("\n");
}

/* With the pages of a guest that waits for the service. */
static void start_again(void)
{
	struct tmem_client *client;
	unsigned long served = 0;
	uint32_t pool;

	nth = 0;
	unlink(scratch_path("arena"));
	service_start(NULL);
	client = player_open("vm1", RINGS, 32);
	pool = player_pool(client, PERSISTENT);
	put_pages(client, pool);
	service_kill(SIGKILL);
	for (nth = first();; nth += step) {
		bool serves = start_failing();

		served += serves;
		if (!serves && nth / step % LOOK_EVERY == 0)
			service_start(NULL);
		if (service_pid())
			check_pages(client, pool);
		service_kill(SIGKILL);
		if (serves && !has_failed())
			break;
	}
	service_start(NULL);
	check_pages(client, pool);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
	say_calls("an arena with pages");
	printf(", %lu starts served\n", served - 1);
	CHECK_IS(service_kill(SIGTERM), 0);
}

static void tools(void)
{
	char conf[160], control[160];
	char *check[] = {(char *)service_program("TMEMD"), "--config", conf, "--check-config",
			 NULL};
	char *list[] = {(char *)service_program("TMEMCTL"), "--socket", control, "list", NULL};

	snprintf(conf, sizeof(conf), "%s", scratch_path("conf"));
	snprintf(control, sizeof(control), "%s", scratch_path("control"));
	fail_each("tmemd --check-config", check, "good");
	service_start(NULL);
	fail_each("tmemctl list", list, "vm1");
	CHECK_IS(service_kill(SIGTERM), 0);
}

/* Each half in a process of its own: CI has two CPUs. */
static void half(unsigned which)
{
	char path[512];

	CHECK(getcwd(path, sizeof(path) - 64));
	strcat(path, "/tests/start/fail_nth.so");
	service_configure(which ? "again" : "start", "");
	setenv("FAIL_NTH_LIBRARY", path, 1);
	setenv("FAIL_NTH_REPORT", scratch_path("report"), 1);
	setenv("FAIL_NTH_SAID", scratch_path("said"), 1);
	atexit(say_where);
	signal(SIGALRM, hangs);
	if (which) {
		start_again();
	} else {
		tools();
		start_new();
	}
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *scale = getenv("TMEMD_TEST_SCALE");
	unsigned long percent = scale ? strtoul(scale, NULL, 10) : 100;
	pid_t pid[2];
	bool good = true;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	printf("skipped: the sanitizers' own malloc cannot be replaced\n");
	return SKIPPED;
#endif
	seed = argc > 2 && !strcmp(argv[1], "--seed") ? strtoul(argv[2], NULL, 0) : test_seed();
	if (percent && percent < 100)
		step = 100 / percent;
	printf("seed %lu\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < 2; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (!pid[i])
			half(i);
	}
	for (unsigned i = 0; i < 2; i++) {
		int status;

		CHECK(waitpid(pid[i], &status, 0) == pid[i]);
		good &= WIFEXITED(status) && !WEXITSTATUS(status);
	}
	return good ? 0 : 1;
}
