// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-balloon: where tmemd's memory comes from in dom0. See tmem-balloon(8).
 *
 * dom0 is small, and spare memory is Xen's. tmemd serves guests without privileges; this is the
 * small program beside it that has them: it lets dom0 grow as the pool needs it, and shrink when
 * Xen's free memory is needed by a domain. The order of shrinking is always: what nobody has, then
 * what tmemd gives back when it is asked, and only so much is taken from dom0.
 *
 * One lock is held for each turn, and while room is made for a domain that is built: so the memory
 * that was freed for it goes to it, and neither to the pool nor to another one.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/size.h"
#include "tools/xen/balloon.h"

#define CALM_INTERVALS 10 /* after shrinking, before growing again */
#define RUN_RECLAIM_S 2	  /* what a turn waits for the pool */
#define ROOM_S 60	  /* what `room` may take when nothing is said */
#define ROOM_MAX_S 3600
#define ROOM_RECLAIM_S 5 /* one question to tmemd; with nothing given in it, there is nothing */
#define ROOM_PAUSE_NS 200000000
#define LITTLE (1ull << 20) /* no shortage worth a turn */
#define MIB(bytes) ((bytes) >> 20)

struct balloon {
	struct balloon_config config;
	struct balloon_host *host;
	struct balloon_state state;
	unsigned calm; /* turns until it may grow */
	bool silent;   /* tmemd does not answer, and that was said */
	bool bounded;  /* the minimum was reached, and that was said */
	char why[BALLOON_WHY_MAX];
};

static const char usage[] =
	"Usage: tmem-balloon [--config FILE] run\n"
	"       tmem-balloon [--config FILE] status [--json]\n"
	"       tmem-balloon [--config FILE] room SIZE [--timeout SECONDS] [-- COMMAND "
	"[ARGUMENT]...]\n"
	"Moves memory between Xen and dom0, where tmemd's pool has it.\n"
	"\n"
	"  run      lets dom0 grow as the pool needs it while Xen has free memory, and shrink at "
	"once\n"
	"           when Xen has not\n"
	"  status   who has which memory\n"
	"  room     frees SIZE (bytes, with K, M, G or T) for a domain, and runs COMMAND, which "
	"builds\n"
	"           it, while nobody else takes it (default time-out: 60 seconds)\n"
	"\n"
	"  --config FILE  default " BALLOON_CONFIG_DEFAULT "\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 done, 1 there is not so much to be had, 2 wrong usage or configuration, 3 "
	"Xen\n"
	"or tmemd cannot be reached; of room with a command: the command's.\n";

static int say(const struct balloon *b, int status)
{
	fprintf(stderr, "tmem-balloon: %s\n", b->why);
	return status;
}

/* ---- Shrinking ------------------------------------------------------------------------------ */

static int look_at_host(struct balloon *b)
{
	return balloon_host_look(b->host, &b->state, b->why) ? BALLOON_UNREACHED : BALLOON_OK;
}

/*
 * The target goes down by `bytes`, or by what is to be had within the minimum and by asking tmemd,
 * which may take `seconds`; *done is how much.
 */
static int shrink(struct balloon *b, uint64_t bytes, double seconds, uint64_t *done)
{
	uint64_t slack = balloon_slack(&b->state), got = 0, target = b->state.target;
	uint64_t most = target > b->config.minimum ? target - b->config.minimum : 0;
	int r = BALLOON_OK;

	*done = 0;
	if (bytes > most)
		bytes = most;
	if (bytes > slack) {
		r = balloon_service_reclaim(&b->config, bytes - slack, seconds, &got, b->why);
		if (bytes > slack + got)
			bytes = slack + got;
	}
	if (!bytes)
		return r;
	if (balloon_host_target(b->host, target - bytes, b->why))
		return BALLOON_UNREACHED;
	*done = bytes;
	return r;
}

/* ---- Following ------------------------------------------------------------------------------ */

/* What tmemd said last counts while it does not answer; before it ever did, nothing is done. */
static bool look_at_service(struct balloon *b)
{
	int r = balloon_service_look(&b->config, &b->state, b->why);

	if (r && !b->silent)
		say(b, r);
	b->silent = r != BALLOON_OK;
	return !r;
}

static void set_target(struct balloon *b, uint64_t target, const char *because)
{
	if (balloon_host_target(b->host, target, b->why))
		say(b, BALLOON_UNREACHED);
	else
		printf("target of this domain: %" PRIu64 " MiB (%s; free in Xen: %" PRIu64
		       " MiB)\n",
		       MIB(target), because, MIB(b->state.xen_free));
}

static void answer_shortage(struct balloon *b, uint64_t bytes)
{
	uint64_t done;
	int r = shrink(b, bytes, RUN_RECLAIM_S, &done);

	b->calm = CALM_INTERVALS;
	if (r && !b->silent)
		say(b, r);
	if (done)
		printf("target of this domain: %" PRIu64 " MiB (Xen is short of memory: %" PRIu64
		       " MiB are free)\n",
		       MIB(b->state.target - done), MIB(b->state.xen_free));
	if (!done && !b->bounded)
		printf("Xen is short of memory: %" PRIu64 " MiB are free, and nothing can be given "
		       "(minimum of this domain: %" PRIu64 " MiB, persistent pages in the pool: "
		       "%" PRIu64 ")\n",
		       MIB(b->state.xen_free), MIB(b->config.minimum), b->state.persistent_pages);
	b->bounded = !done;
}

static void turn(struct balloon *b)
{
	bool answers = look_at_service(b);
	uint64_t bytes;

	if (look_at_host(b)) {
		say(b, BALLOON_UNREACHED);
		return;
	}
	if (!b->state.reserve)
		return;
	bytes = balloon_shortage(&b->state, b->config.xen_free);
	if (bytes >= LITTLE) {
		answer_shortage(b, bytes);
		return;
	}
	b->bounded = false;
	if (b->calm) {
		b->calm--;
		return;
	}
	bytes = answers ? balloon_growth(&b->config, &b->state) : 0;
	if (bytes) {
		set_target(b, b->state.target + bytes, "the pool grows");
		return;
	}
	bytes = balloon_surplus(&b->config, &b->state);
	if (bytes)
		set_target(b, b->state.target - bytes, "the pool does not need it");
}

static int open_lock(struct balloon *b)
{
	int fd = open(BALLOON_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		snprintf(b->why, sizeof(b->why), BALLOON_LOCK ": %s", strerror(errno));
	return fd;
}

static int run(struct balloon *b)
{
	int lock = open_lock(b);

	if (lock < 0)
		return say(b, BALLOON_UNREACHED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("between %" PRIu64 " and %" PRIu64 " MiB; %" PRIu64 " MiB stay free in Xen\n",
	       MIB(b->config.minimum), MIB(b->config.maximum), MIB(b->config.xen_free));
	for (;; sleep(b->config.interval)) {
		/* Room is being made, and used. */
		if (flock(lock, LOCK_EX | LOCK_NB))
			continue;
		turn(b);
		flock(lock, LOCK_UN);
	}
}

/* ---- Room for a domain ---------------------------------------------------------------------- */

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int no_room(struct balloon *b, uint64_t want)
{
	const struct balloon_state *s = &b->state;
	int at;

	at = snprintf(b->why, sizeof(b->why),
		      "%" PRIu64 " MiB are wanted, and %" PRIu64 " MiB can be free in Xen: ",
		      MIB(want), MIB(balloon_projected(s)));
	if (s->target <= b->config.minimum + LITTLE)
		snprintf(b->why + at, sizeof(b->why) - (size_t)at,
			 "this domain is at its minimum of %" PRIu64
			 " MiB; lower that, or shut a domain down",
			 MIB(b->config.minimum));
	else if (balloon_projected(s) >= want)
		snprintf(b->why + at, sizeof(b->why) - (size_t)at,
			 "the kernel has not given it in time (target %" PRIu64 ", now %" PRIu64
			 " MiB); try again, or with a longer --timeout",
			 MIB(s->target), MIB(s->current));
	else
		snprintf(b->why + at, sizeof(b->why) - (size_t)at,
			 "the pool has taken %" PRIu64 " MiB, with %" PRIu64
			 " persistent pages that cannot go; let guests swap less (swapoff, or shut "
			 "one down), give them more memory of their own, or set pool_max lower so "
			 "that it does not come to this",
			 MIB(s->pool), s->persistent_pages);
	return BALLOON_REFUSED;
}

/* One look and what is to be done then. 1: there is room; 0: not yet; < 0: there will not be any.
 */
static int try_room(struct balloon *b, uint64_t want, double left)
{
	uint64_t bytes, done;
	int r = look_at_host(b);

	if (!r && b->state.xen_free >= want)
		return 1;
	if (!r)
		r = balloon_service_look(&b->config, &b->state, b->why);
	if (r)
		return -r;
	bytes = balloon_shortage(&b->state, want);
	if (!bytes)
		return left > 0 ? 0 : -no_room(b, want);
	r = shrink(b, bytes, left < ROOM_RECLAIM_S ? left : ROOM_RECLAIM_S, &done);
	if (r)
		return -r;
	return done && left > 0 ? 0 : -no_room(b, want);
}

static int make_room(struct balloon *b, uint64_t want, double seconds)
{
	static const struct timespec pause = {.tv_nsec = ROOM_PAUSE_NS};
	double end = seconds_now() + seconds;
	int r;

	for (;;) {
		double left = end - seconds_now();

		r = try_room(b, want, left > 0 ? left : 0);
		if (r)
			return r < 0 ? -r : BALLOON_OK;
		nanosleep(&pause, NULL);
	}
}

/* The command's status, as a shell has it. */
static int run_command(char **command)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execvp(command[0], command);
		fprintf(stderr, "tmem-balloon: %s: %s\n", command[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	/* Whoever interrupts means the command. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	if (pid < 0 || waitpid(pid, &status, 0) < 0) {
		perror("tmem-balloon");
		return BALLOON_UNREACHED;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int room(struct balloon *b, uint64_t want, double seconds, char **command)
{
	int lock = open_lock(b), r;

	if (lock < 0)
		return say(b, BALLOON_UNREACHED);
	/* Others that make room are waited for: theirs is not ours. */
	while (flock(lock, LOCK_EX) && errno == EINTR)
		;
	r = make_room(b, want, seconds);
	if (r)
		return say(b, r);
	if (command)
		return run_command(command);
	printf("%" PRIu64 " MiB are free in Xen\n", MIB(b->state.xen_free));
	return BALLOON_OK;
}

/* ---- Status --------------------------------------------------------------------------------- */

static int status(struct balloon *b, bool json)
{
	const struct balloon_state *s = &b->state;
	int r = balloon_service_look(&b->config, &b->state, b->why);
	bool known = r == BALLOON_OK;

	if (r)
		say(b, r);
	if (look_at_host(b))
		return say(b, BALLOON_UNREACHED);
	if (json) {
		json_t *o =
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "xen_total_bytes",
				  (json_int_t)s->xen_total, "xen_free_bytes",
				  (json_int_t)s->xen_free, "target_bytes", (json_int_t)s->target,
				  "current_bytes", (json_int_t)s->current, "available_bytes",
				  (json_int_t)s->available, "pool_bytes",
				  known ? json_integer((json_int_t)s->pool) : json_null(),
				  "spare_bytes",
				  known ? json_integer((json_int_t)balloon_slack(s)) : json_null());

		json_dumpf(o, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
		putchar('\n');
		json_decref(o);
		return r;
	}
	printf("Xen:         %" PRIu64 " MiB, %" PRIu64 " MiB free (wanted: %" PRIu64 ")\n",
	       MIB(s->xen_total), MIB(s->xen_free), MIB(b->config.xen_free));
	printf("this domain: %" PRIu64 " MiB, target %" PRIu64 " (minimum %" PRIu64
	       ", maximum %" PRIu64 "), %" PRIu64 " MiB available\n",
	       MIB(s->current), MIB(s->target), MIB(b->config.minimum), MIB(b->config.maximum),
	       MIB(s->available));
	if (known)
		printf("pool:        %" PRIu64 " MiB physical of %" PRIu64
		       ", spare beside it %" PRIu64 " MiB\n",
		       MIB(s->pool), MIB(s->pool_max), MIB(balloon_slack(s)));
	return r;
}

/* ---- The command line ----------------------------------------------------------------------- */

struct line {
	const char *config;
	bool json;
	double timeout; /* < 0: not given */
	char **words;
	int nr;
};

static int wrong(const char *about, const char *what)
{
	fprintf(stderr, "tmem-balloon: %s: %s\nSee tmem-balloon --help.\n", about, what);
	return BALLOON_USAGE;
}

/* Exits when there is nothing else to do. The words of a command stay together behind "--". */
static void parse(int argc, char **argv, struct line *line)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},  {"json", no_argument, NULL, 'j'},
		{"timeout", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},	   {0},
	};
	char *end;
	int c;

	*line = (struct line){.config = BALLOON_CONFIG_DEFAULT, .timeout = -1};
	while ((c = getopt_long(argc, argv, "c:jt:hV", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			line->config = optarg;
			break;
		case 'j':
			line->json = true;
			break;
		case 't':
			line->timeout = strtod(optarg, &end);
			if (end != optarg && !*end && line->timeout >= 0 &&
			    line->timeout <= ROOM_MAX_S)
				break;
			exit(wrong(optarg, "allowed are 0 to 3600 seconds"));
		case 'h':
			fputs(usage, stdout);
			exit(BALLOON_OK);
		case 'V':
			printf("tmem-balloon %s\n", PACKAGE_VERSION);
			exit(BALLOON_OK);
		default:
			fputs("See tmem-balloon --help.\n", stderr);
			exit(BALLOON_USAGE);
		}
	}
	line->words = argv + optind;
	line->nr = argc - optind;
}

/* Whether a command stands behind a "--", which getopt_long() has taken out. */
static bool check(const struct line *line, uint64_t *size, int *error)
{
	const char *verb = line->nr ? line->words[0] : "COMMAND";
	bool is_room = !strcmp(verb, "room");

	*error = 0;
	if (!line->nr || (!is_room && strcmp(verb, "run") && strcmp(verb, "status")))
		*error = wrong(verb, "say run, status or room");
	else if ((line->json && strcmp(verb, "status")) || (line->timeout >= 0 && !is_room))
		*error = wrong(verb, "an option that this command does not have");
	else if (!is_room && line->nr > 1)
		*error = wrong(line->words[1], "an argument too many");
	else if (is_room && line->nr < 2)
		*error = wrong(verb, "say how much: SIZE");
	else if (is_room && (tmem_size_parse(line->words[1], size) || !*size))
		*error = wrong(line->words[1], "the size must be " TMEM_SIZE_FORM ", above 0");
	return is_room;
}

int main(int argc, char **argv)
{
	struct balloon b = {0};
	struct line line;
	uint64_t size = 0;
	bool is_room;
	int r;

	parse(argc, argv, &line);
	is_room = check(&line, &size, &r);
	if (r)
		return r;
	r = balloon_config_load(&b.config, line.config);
	if (r)
		return r;
	b.host = balloon_host_open(&b.config, b.why);
	if (!b.host)
		return say(&b, BALLOON_UNREACHED);
	if (is_room)
		r = room(&b, size, line.timeout >= 0 ? line.timeout : ROOM_S,
			 line.nr > 2 ? line.words + 2 : NULL);
	else
		r = strcmp(line.words[0], "run") ? status(&b, line.json) : run(&b);
	balloon_host_close(b.host);
	return r;
}
