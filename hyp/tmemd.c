// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd: wires the rooms together.
 *
 * Order at start: what needs privileges and must precede threads (locking, IO_FLUSHER, the devices
 * of Xen), then privileges go, then the store (which rebuilds before anything is answered), the
 * front and its clients, the control socket, and last the system call filter. The main thread runs
 * the event loop of signals, control socket and watchdog; pages are the front's threads' business.
 */
#include "config.h"

#include "tmemd_priv.h"

#include <errno.h>
#include <event2/event.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"

#ifndef TMEMD_CONFIG
#define TMEMD_CONFIG "/etc/tmemd/tmemd.conf"
#endif

/* Exit statuses. A start that fails the same way until an operator acts is not worth a retry. */
enum { EXIT_USAGE = 2, EXIT_OPERATOR = 78 };

struct options {
	const char *config;
	bool check;
	const char *log_level; /* NULL: the configuration's */
};

static const char usage[] =
	"Usage: tmemd [--config FILE] [--check-config] [--foreground] [--log-level LEVEL]\n"
	"Serves transcendent memory to the VMs of this host, in the foreground.\n"
	"\n"
	"  --config FILE      configuration (default " TMEMD_CONFIG "); files in\n"
	"                     conf.d/ beside it are read after it\n"
	"  --check-config     say what is wrong with the configuration, and exit\n"
	"  --foreground       the only mode; accepted for clarity\n"
	"  --log-level LEVEL  error, warning, note, info or debug; overrides the configuration\n"
	"  --help, --version\n"
	"\n"
	"Signals: SIGHUP reads the configuration again, SIGTERM and SIGINT stop; pages stay.\n"
	"See tmemd(8), tmemd.conf(5), tmemctl(1).\n";

/* Exits when there is nothing to start. */
static void parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"check-config", no_argument, NULL, 't'},
		{"foreground", no_argument, NULL, 'f'},
		{"log-level", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	enum log_level level;
	int c;

	*o = (struct options){.config = TMEMD_CONFIG};
	while ((c = getopt_long(argc, argv, "c:tfl:hV", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			o->config = optarg;
			break;
		case 't':
			o->check = true;
			break;
		case 'f':
			break;
		case 'l':
			o->log_level = optarg;
			if (!log_level_parse(optarg, &level))
				break;
			fprintf(stderr,
				"tmemd: --log-level %s: allowed are error, warning, note, info and "
				"debug\n",
				optarg);
			exit(EXIT_USAGE);
		case 'h':
			fputs(usage, stdout);
			exit(EXIT_SUCCESS);
		case 'V':
			printf("tmemd %s\n", PACKAGE_VERSION);
			exit(EXIT_SUCCESS);
		default:
			fputs("See tmemd --help.\n", stderr);
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "tmemd: %s: no arguments are known\nSee tmemd --help.\n",
			argv[optind]);
		exit(EXIT_USAGE);
	}
}

static void say(const char *line)
{
	log_msg(LOG_ERROR, "%s", line);
}

/* ---- Start ---------------------------------------------------------------------------------- */

/* What an operator does about a store that does not open. */
static void say_store_help(const struct config *config, int error)
{
	const char *slash = strrchr(config->arena, '/');
	int dirlen = slash > config->arena ? (int)(slash - config->arena) : 1;
	uint64_t size = config->pool_max + config->pool_max / 8 + (64ull << 20);

	for (unsigned i = 0; i < config->nr_clients; i++)
		size += config->clients[i].region_bytes;
	if (error == -EMEDIUMTYPE || error == -ENOENT)
		log_msg(LOG_ERROR,
			"the arena needs a tmpfs of its own: systemctl enable --now "
			"run-tmemd.mount "
			"(for /run/tmemd), or: mkdir -p %.*s && mount -t tmpfs -o "
			"size=%" PRIu64 "M,mode=0700,huge=advise%s%s tmpfs %.*s",
			dirlen, config->arena, size >> 20, config->user[0] ? ",uid=" : "",
			config->user, dirlen, config->arena);
	if (error == -EWOULDBLOCK)
		log_msg(LOG_ERROR, "another tmemd serves this arena: stop it, or give this one an "
				   "arena of its "
				   "own by [pool] arena =");
	if (error == -EPROTO)
		log_msg(LOG_ERROR,
			"the arena is left as it is; if no VM has pages in it, remove %s and start "
			"again, else start the release that wrote it",
			config->arena);
	if (error == -EACCES)
		log_msg(LOG_ERROR,
			"the directory of %s must belong to the user that tmemd runs as%s%s",
			config->arena, config->user[0] ? ": " : "", config->user);
}

static int open_store(struct tmemd *t, char *err, size_t errlen)
{
	struct store_config config = {
		.arena_path = t->config->arena,
		.pool_max = t->config->pool_max,
		.host_reserve = t->config->host_reserve,
		.ready_chunks = t->config->ready_chunks,
	};
	uint64_t start = clock_ns(), ms;
	counter_t *counters;
	int r;

	notify("STATUS=Rebuilding from the arena");
	r = store_open(&t->store, &config, err, errlen);
	if (r)
		return r;
	ms = (clock_ns() - start) / CLOCK_MS;
	counters = store_counters(t->store);
	log_msg(LOG_INFO, "arena %s: %" PRIu64 " pages, opened in %" PRIu64 " ms", t->config->arena,
		counter_get(&counters[STORE_REBUILT]), ms);
	return 0;
}

static int open_front(struct tmemd *t, char *err, size_t errlen)
{
	struct front_config config = {
		.xen = t->xen,
		.region_dir = t->config->regions,
		.workers = t->config->workers,
		.poll_us = t->config->poll_us,
	};

	if (mkdir(config.region_dir, 0700) && errno != EEXIST) {
		int r = -errno;

		snprintf(err, errlen, "%s: the directory of the regions cannot be made: %s",
			 config.region_dir, strerror(-r));
		return r;
	}
	t->xen = NULL; /* taken over */
	return front_open(&t->front, t->store, &config, err, errlen);
}

/* Of all clients that are domains of Xen. */
static unsigned xen_rings(const struct config *config)
{
	unsigned rings = 0;

	for (unsigned i = 0; i < config->nr_clients; i++)
		if (config->clients[i].front == CONFIG_XEN)
			rings += config->clients[i].rings;
	return rings;
}

/* Without Xen its clients are not served, and say so; all others are. */
static void open_xen(struct tmemd *t)
{
	unsigned rings = xen_rings(t->config);
	char err[256];

	if (!rings)
		return;
	t->xen = front_xen_open(rings, err, sizeof(err));
	if (!t->xen)
		log_msg(LOG_ERROR, "Xen cannot be served: %s", err);
}

static void refresh(void *arg)
{
	struct tmemd *t = arg;

	front_refresh(t->front);
}

/* Everything that answers. 0 or the exit status, with the reason logged. */
static int open_all(struct tmemd *t, struct event_base *base)
{
	static const struct control_ops ops = {
		.channel = clients_channel,
		.refresh = refresh,
		.disk = disks_lookup,
		.disk_create = disks_create,
		.disk_resize = disks_resize,
		.disk_remove = disks_remove,
		.exposure = disks_exposure,
		.domains = domains_list,
		.domain_find = domains_find,
		.domain_wish = domains_wish,
		.save = streams_save,
		.restore = streams_restore,
		.restore_discard = streams_discard,
		.peer = peering_peer,
		.lending = peering_lending,
		.peer_change = peering_change,
	};
	char err[1024] = "";
	int r;

	open_xen(t);
	r = process_drop(t->config, err, sizeof(err));
	if (r)
		goto failed;
	umask(077);
	r = open_store(t, err, sizeof(err));
	if (r) {
		log_msg(LOG_ERROR, "%s", err);
		say_store_help(t->config, r);
		return r == -ENOMEM ? EXIT_FAILURE : EXIT_OPERATOR;
	}
	/* Without peers the pages that are here are served, and those that are away wait. */
	if (peering_start(t, err, sizeof(err)))
		log_msg(LOG_ERROR, "nothing is borrowed or lent: %s", err);
	r = open_front(t, err, sizeof(err));
	if (!r)
		r = clients_start(t, err, sizeof(err));
	if (!r)
		r = control_open(&t->control, base, t->store, t->config, &ops, t, err, sizeof(err));
	if (r)
		goto failed;
	if (!t->config->seccomp)
		log_msg(LOG_INFO, "no system call filter: [service] seccomp = off");
	else if (process_seccomp(err, sizeof(err)))
		log_msg(LOG_WARN, "%s", err);
	return 0;
failed:
	log_msg(LOG_ERROR, "%s", err);
	return EXIT_FAILURE;
}

static void close_all(struct tmemd *t)
{
	control_close(t->control);
	if (t->front)
		front_close(t->front);
	front_xen_close(t->xen);
	peering_stop(t);
	if (t->store)
		store_close(t->store);
	config_free(t->config);
}

/* ---- Running -------------------------------------------------------------------------------- */

static void say_ready(const struct tmemd *t)
{
	notify("READY=1\nSTATUS=Serving; clients: %u", t->config->nr_clients);
}

static void on_hup(evutil_socket_t sig, short what, void *arg)
{
	struct tmemd *t = arg;
	uint64_t us = clock_ns() / CLOCK_US;
	struct config *next;

	(void)sig;
	(void)what;
	notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, us);
	next = config_load(t->config_path, say);
	if (next)
		clients_reload(t, next);
	log_msg(next ? LOG_NOTE : LOG_ERROR, "reload: %s",
		next ? "done" : "nothing is changed, because of the errors above");
	say_ready(t);
}

static void on_stop(evutil_socket_t sig, short what, void *arg)
{
	(void)what;
	notify("STOPPING=1");
	log_msg(LOG_NOTE, "stopping: %s", strsignal(sig));
	event_base_loopbreak(arg);
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	struct tmemd *t = arg;

	(void)fd;
	(void)what;
	/* Passes through the store's locks: a service that is stuck there is not alive. */
	store_counters(t->store);
	notify("WATCHDOG=1");
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	peering_tick(arg);
}

#define TICK_US 300000
#define NR_SIGNALS 3
#define NR_EVENTS 5

static bool events_add(const struct tmemd *t, struct event *events[NR_EVENTS])
{
	uint64_t us = notify_watchdog_us() / 2;
	struct timeval interval = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
	struct timeval tick = {0, TICK_US};

	for (int i = 0; i < NR_EVENTS; i++)
		if (!events[i] || (i < NR_SIGNALS && event_add(events[i], NULL)))
			return false;
	if (t->peering && event_add(events[NR_SIGNALS], &tick))
		return false;
	return !us || !event_add(events[NR_SIGNALS + 1], &interval);
}

static int run(struct tmemd *t, struct event_base *base, const sigset_t *signals)
{
	struct event *events[NR_EVENTS] = {evsignal_new(base, SIGHUP, on_hup, t),
					   evsignal_new(base, SIGTERM, on_stop, base),
					   evsignal_new(base, SIGINT, on_stop, base),
					   event_new(base, -1, EV_PERSIST, on_tick, t),
					   event_new(base, -1, EV_PERSIST, on_watchdog, t)};
	int r = EXIT_FAILURE;

	if (events_add(t, events)) {
		/* Now signals are heard; those that came during the start are pending. */
		pthread_sigmask(SIG_UNBLOCK, signals, NULL);
		say_ready(t);
		log_msg(LOG_NOTE, "tmemd %s serves; clients: %u", PACKAGE_VERSION,
			t->config->nr_clients);
		if (event_base_dispatch(base) >= 0)
			r = EXIT_SUCCESS;
	}
	if (r)
		log_msg(LOG_ERROR, "there is no memory for the event loop");
	for (int i = 0; i < NR_EVENTS; i++)
		if (events[i])
			event_free(events[i]);
	return r;
}

static int serve(struct tmemd *t)
{
	struct event_base *base = event_base_new();
	sigset_t signals;
	int r;

	if (!base) {
		log_msg(LOG_ERROR, "no event loop can be made");
		return EXIT_FAILURE;
	}
	/* Threads inherit the mask: signals are the main thread's. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);

	process_protect(FRONT_WORKER_NICE);
	r = open_all(t, base);
	if (!r)
		r = run(t, base, &signals);
	close_all(t);
	event_base_free(base);
	return r;
}

/* --check-config: what would be said at a start, as far as the configuration alone decides it. */
static int check(struct tmemd *t)
{
	bool good = !xen_rings(t->config) || front_xen_built();

	if (good)
		printf("%s: good; clients: %u; disks: %u\n", t->config_path, t->config->nr_clients,
		       t->config->nr_disks);
	else
		log_msg(LOG_ERROR,
			"%s: front = xen: this tmemd was built without Xen's libraries; clients of "
			"Xen would not be served",
			t->config_path);
	config_free(t->config);
	return good ? EXIT_SUCCESS : EXIT_OPERATOR;
}

int main(int argc, char **argv)
{
	struct tmemd t = {0};
	struct options o;
	enum log_level level;
	const char *bad;

	parse_options(argc, argv, &o);
	log_setup(LOG_INFO, log_to_journal());
	t.config_path = o.config;
	t.config = config_load(o.config, say);
	if (!t.config)
		return EXIT_OPERATOR;
	if (o.check)
		return check(&t);
	level = t.config->log_level;
	if (o.log_level) {
		log_level_parse(o.log_level, &level);
		t.log_level_forced = true;
	}
	log_setup(level, log_to_journal());
	if (fault_from_env(&bad)) {
		log_msg(LOG_ERROR,
			"TMEMD_FAULTS: \"%s\" is not understood, or fault injection is not "
			"compiled in",
			bad);
		config_free(t.config);
		return EXIT_USAGE;
	}
	return serve(&t);
}
