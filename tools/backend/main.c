// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-vhost-user-blk: a disk of tmemd, for managers that start one back-end program for each
 * device ("Backend program conventions" of QEMU's docs/interop/vhost-user.rst).
 *
 * tmemd is one service for all VMs, and the disk is served there: this program carries the messages
 * of its front end to the disk's socket and back. Only messages go by here, at the start of a VM
 * and when it changes its memory; requests and pages do not.
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "relay.h"

enum { EXIT_USAGE = 2 };

struct options {
	const char *socket_path;
	const char *fd;
	const char *disk;
	const char *disk_socket;
};

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
	va_list ap;

	fputs("tmem-vhost-user-blk: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void help(void)
{
	puts("Usage: tmem-vhost-user-blk --disk=NAME --socket-path=PATH\n"
	     "       tmem-vhost-user-blk --disk=NAME --fd=FDNUM\n"
	     "       tmem-vhost-user-blk --print-capabilities\n"
	     "\n"
	     "A disk of tmemd for managers that start a program for each vhost-user device.\n"
	     "\n"
	     "  --disk=NAME           a disk made by `tmemctl disk create NAME`\n"
	     "  --disk-socket=PATH    where tmemd serves it, if not at /run/tmem/NAME.sock\n"
	     "  --socket-path=PATH    listen there for front ends, one after the other\n"
	     "  --fd=FDNUM            an inherited socket: connected, or one that listens\n"
	     "  --print-capabilities  what this back end can do, as JSON\n"
	     "  --help, --version\n"
	     "\n"
	     "See tmem-vhost-user-blk(1).");
}

/* ---- Sockets -------------------------------------------------------------------------------- */

static bool fill_address(struct sockaddr_un *address, const char *path)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(address->sun_path)) {
		say("'%s': a socket's path has 1 to %zu bytes", path,
		    sizeof(address->sun_path) - 1);
		return false;
	}
	strcpy(address->sun_path, path);
	return true;
}

static int connect_to(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -1;
	if (!connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* A socket file that nobody listens on any more is in the way. */
static void remove_stale(const struct sockaddr_un *address)
{
	int fd = connect_to(address);
	struct stat st;

	if (fd >= 0)
		close(fd);
	else if (errno == ECONNREFUSED && !lstat(address->sun_path, &st) && S_ISSOCK(st.st_mode))
		unlink(address->sun_path);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address;
	int fd;

	if (!fill_address(&address, path))
		return -1;
	remove_stale(&address);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof(address)) && !listen(fd, 1))
		return fd;
	say("%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static int socket_option(int fd, int option)
{
	int value;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) ? -1 : value;
}

static int inherited(const char *number)
{
	char *end;
	long fd = strtol(number, &end, 10);

	if (!*number || *end || fd < 0 || fd > 1 << 20) {
		say("--fd=%s: not the number of a descriptor", number);
		return -1;
	}
	if (socket_option((int)fd, SO_DOMAIN) != AF_UNIX ||
	    socket_option((int)fd, SO_TYPE) != SOCK_STREAM) {
		say("--fd=%s: not a Unix stream socket", number);
		return -1;
	}
	return (int)fd;
}

/* ---- Serving -------------------------------------------------------------------------------- */

/*
 * One front end, until it or tmemd has gone. A front end that reconnects does so once a second
 * while tmemd is away: that is said once, and *away is true until it can be reached again.
 */
static enum relay_end serve(int front, const struct sockaddr_un *disk, int stop, bool *away)
{
	int back = connect_to(disk);
	enum relay_end end;

	if (back < 0) {
		if (!*away)
			say("%s: %s; is tmemd running, and has it the disk (tmemctl disk list)?",
			    disk->sun_path, strerror(errno));
		*away = true;
		return RELAY_BACK_GONE;
	}
	*away = false;
	end = relay_run(front, back, stop);
	if (end == RELAY_FAILED)
		say("the connection cannot go on: %s", strerror(errno));
	else if (end == RELAY_BACK_GONE)
		say("tmemd closed the connection: it ended, or refused the front end; its log "
		    "says why");
	close(back);
	return end;
}

static int serve_connected(int front, const struct sockaddr_un *disk, int stop)
{
	bool away = false;
	enum relay_end end = serve(front, disk, stop, &away);

	return end == RELAY_FRONT_GONE || end == RELAY_STOPPED ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int serve_listening(int listening, const struct sockaddr_un *disk, int stop)
{
	struct pollfd polls[] = {{.fd = listening, .events = POLLIN},
				 {.fd = stop, .events = POLLIN}};
	bool away = false;

	for (;;) {
		enum relay_end end;
		int front;

		if (poll(polls, 2, -1) < 0 && errno != EINTR) {
			say("poll: %s", strerror(errno));
			return EXIT_FAILURE;
		}
		if (polls[1].revents)
			return EXIT_SUCCESS;
		front = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		if (front < 0) {
			if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)
				continue;
			say("accept: %s", strerror(errno));
			return EXIT_FAILURE;
		}
		end = serve(front, disk, stop, &away);
		close(front);
		if (end == RELAY_STOPPED)
			return EXIT_SUCCESS;
	}
}

static int stop_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static int run(const struct options *options, const struct sockaddr_un *disk)
{
	int fd = options->fd ? inherited(options->fd) : listen_at(options->socket_path);
	int stop = stop_signals(), status;

	if (fd < 0)
		return options->fd ? EXIT_USAGE : EXIT_FAILURE;
	if (stop < 0) {
		say("signalfd: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	/* A guest that swaps may wait for a connection that only this process can make. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		say("not locked in memory (%s): raise its limit of locked memory", strerror(errno));
	status = socket_option(fd, SO_ACCEPTCONN) == 1 ? serve_listening(fd, disk, stop)
						       : serve_connected(fd, disk, stop);
	if (options->socket_path)
		unlink(options->socket_path);
	return status;
}

/* ---- The command line ----------------------------------------------------------------------- */

static int wrong(const char *text)
{
	say("%s; see --help", text);
	return EXIT_USAGE;
}

static bool disk_address(const struct options *options, struct sockaddr_un *address)
{
	char path[sizeof(address->sun_path) + 1];

	if (options->disk_socket)
		return fill_address(address, options->disk_socket);
	if (strchr(options->disk, '/')) {
		say("--disk=%s: a name has no slash; a path goes to --disk-socket", options->disk);
		return false;
	}
	snprintf(path, sizeof(path), "/run/tmem/%s.sock", options->disk);
	return fill_address(address, path);
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
	enum {
		OPTION_SOCKET_PATH = 1,
		OPTION_FD,
		OPTION_DISK,
		OPTION_DISK_SOCKET,
		OPTION_HELP,
		OPTION_VERSION,
		OPTION_CAPABILITIES
	};
	static const struct option longs[] = {
		{"socket-path", required_argument, NULL, OPTION_SOCKET_PATH},
		{"fd", required_argument, NULL, OPTION_FD},
		{"print-capabilities", no_argument, NULL, OPTION_CAPABILITIES},
		{"disk", required_argument, NULL, OPTION_DISK},
		{"disk-socket", required_argument, NULL, OPTION_DISK_SOCKET},
		{"help", no_argument, NULL, OPTION_HELP},
		{"version", no_argument, NULL, OPTION_VERSION},
		{0},
	};
	const char **values[] = {[OPTION_SOCKET_PATH] = &options->socket_path,
				 [OPTION_FD] = &options->fd,
				 [OPTION_DISK] = &options->disk,
				 [OPTION_DISK_SOCKET] = &options->disk_socket};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case OPTION_HELP:
			help();
			return EXIT_SUCCESS;
		case OPTION_VERSION:
			printf("tmem-vhost-user-blk %s\n", PACKAGE_VERSION);
			return EXIT_SUCCESS;
		case '?':
			fputs("See tmem-vhost-user-blk --help.\n", stderr);
			return EXIT_USAGE;
		default:
			*values[c] = optarg;
		}
	}
	if (optind < argc)
		return wrong("there are options only, no words");
	if (!options->disk == !options->disk_socket)
		return wrong("say --disk or --disk-socket");
	if (!options->fd == !options->socket_path)
		return wrong("say --socket-path or --fd");
	return -1;
}

/* Whatever else is said, that is what is wanted then. */
static bool asks_for_capabilities(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--print-capabilities"))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct options options = {0};
	struct sockaddr_un disk;
	int status;

	if (asks_for_capabilities(argc, argv)) {
		puts("{\"type\": \"block\", \"features\": []}");
		return EXIT_SUCCESS;
	}
	status = parse(argc, argv, &options);
	if (status >= 0)
		return status;
	return disk_address(&options, &disk) ? run(&options, &disk) : EXIT_USAGE;
}
