// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The hook: libvirt calls it at the turning points in the life of each machine of QEMU, and waits
 * for it. It makes the tmemd disks that the machine's metadata names before QEMU needs them, and
 * frees what they hold when the guest that swapped there is gone for good.
 *
 * It must be quick, must not call libvirt, which would wait for itself, and must not keep a machine
 * from starting that need not have its disk. So everything that goes wrong is said and ignored,
 * but for a disk with required='yes', and a guest that would go on without pages that it had.
 *
 * What libvirt does not say at "prepare" is whether the guest boots or goes on from a saved image.
 * It calls with "restore" or "migrate" before; that leaves a mark for "prepare".
 */
#include "config.h"

#include "tools/libvirt/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <syslog.h>
#include <unistd.h>

#include "proto/control.h"

#define STATE_DIR "/run/tmem-libvirt"
/* Seconds after which libvirt is not kept waiting any longer, whatever we wait for. */
#define PATIENCE_S 2

/* ---- Saying --------------------------------------------------------------------------------- */

void hook_say(const struct hook *h, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "tmemd: VM %s: %s\n", h->vm, text);
	syslog(LOG_WARNING, "VM %s, %s: %s", h->vm, h->operation, text);
}

/* The exit status when time is over. */
static volatile sig_atomic_t late_status;

static void late(int signal)
{
	static const char text[] = "tmemd: no answer in time\n";
	ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)signal;
	(void)n;
	_exit(late_status);
}

static void begin_time(void)
{
	const struct itimerval limit = {.it_value.tv_sec = PATIENCE_S};

	signal(SIGALRM, late);
	setitimer(ITIMER_REAL, &limit, NULL);
}

/* ---- The mark of a guest that goes on ------------------------------------------------------- */

/* False: the domain has no UUID that could be part of a path. */
static bool mark_path(const struct hook *h, const xmlNode *domain, char *path, size_t room)
{
	const xmlNode *node = domain_child(domain, "uuid", NULL);
	xmlChar *uuid = node ? xmlNodeGetContent(node) : NULL;
	const char *text = (const char *)uuid;
	bool good = uuid && strlen(text) == 36 && strspn(text, "0123456789abcdefABCDEF-") == 36 &&
		    snprintf(path, room, "%s/%s", h->state, text) < (int)room;

	xmlFree(uuid);
	return good;
}

static void mark(const struct hook *h, const xmlNode *domain)
{
	char path[4096];
	int fd = -1;

	mkdir(h->state, 0700);
	if (mark_path(h, domain, path, sizeof(path)))
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, h->operation, strlen(h->operation)) < 0)
		hook_say(h, "cannot leave a mark in %s: %s; its disks would be made anew", h->state,
			 strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* What the mark says, which is gone then. */
static enum life take_mark(const struct hook *h, const xmlNode *domain)
{
	char path[4096], text[16] = "";
	ssize_t n;
	int fd;

	if (!mark_path(h, domain, path, sizeof(path)))
		return LIFE_FRESH;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return LIFE_FRESH;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	unlink(path);
	return n > 0 && !strcmp(text, "migrate") ? LIFE_ARRIVED : LIFE_RESTORED;
}

/* ---- What libvirt says ---------------------------------------------------------------------- */

/* Standard input up to one byte more than is looked at; the caller frees it. NULL: not to be had.
 */
static char *read_all(size_t *len)
{
	size_t room = DOMAIN_XML_MAX + 1;
	char *text = malloc(room);
	ssize_t n = 1;

	*len = 0;
	while (text && *len < room && n > 0) {
		n = read(STDIN_FILENO, text + *len, room - *len);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			*len += (size_t)n;
	}
	return text;
}

static int act(const struct hook *h, const xmlNode *domain, const struct domain_device *devices,
	       int nr)
{
	if (!strcmp(h->operation, "prepare"))
		return hook_prepare(h, domain, devices, nr, take_mark(h, domain));
	if (!strcmp(h->operation, "release")) {
		hook_release(h, devices, nr);
		return 0;
	}
	/* Otherwise "prepare" would take a guest that goes on for one that boots. */
	mark(h, domain);
	return strcmp(h->operation, "restore") ? 0 : hook_check_restore(h, devices, nr);
}

/* libvirt gives the XML with each call; what we have nothing to do with is not looked at. */
static int run(const struct hook *h)
{
	static const char *const operations[] = {"prepare", "release", "restore", "migrate"};
	struct domain_device devices[DOMAIN_MAX_DEVICES];
	char why[DOMAIN_WHY_MAX];
	bool ours = false, required = false;
	xmlNode *domain;
	xmlDoc *doc;
	size_t len;
	char *text;
	int nr, r;

	text = read_all(&len);
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		ours |= !strcmp(h->operation, operations[i]);
	if (!ours || !text || !memmem(text, len, DOMAIN_NS, strlen(DOMAIN_NS))) {
		free(text);
		return 0;
	}
	doc = domain_parse(text, len, why);
	free(text);
	if (!doc) {
		hook_say(h, "%s", why);
		return 0;
	}
	domain = xmlDocGetRootElement(doc);
	nr = domain_record(domain, devices, &required, why);
	if (required && !strcmp(h->operation, "prepare"))
		late_status = 1;
	if (nr < 0)
		hook_say(h, "%s", why);
	r = nr < 0 ? late_status : act(h, domain, devices, nr);
	xmlFreeDoc(doc);
	return r;
}

/* ---- The command line ----------------------------------------------------------------------- */

static const char usage[] =
	"Usage: libvirt-hook [--socket PATH] [--state DIR] VM OPERATION SUBOPERATION EXTRA\n"
	"Called by libvirt as a hook of QEMU's machines, with the XML of one on standard input.\n"
	"Makes the tmemd disks that its metadata names, and frees what they held.\n"
	"\n"
	"  -s, --socket PATH  control socket of tmemd (default " TMEM_CONTROL_SOCKET ")\n"
	"      --state DIR    where it leaves marks for itself (default " STATE_DIR ")\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"Exit status: 0; 1 when the machine must not start; 2 wrong usage.\n";

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"socket", required_argument, NULL, 's'},
					      {"state", required_argument, NULL, 'd'},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {0}};
	struct hook h = {.ctl.socket = TMEM_CONTROL_SOCKET, .state = STATE_DIR};
	int c;

	while ((c = getopt_long(argc, argv, "+s:hV", longs, NULL)) != -1) {
		if (c == 's')
			h.ctl.socket = optarg;
		else if (c == 'd')
			h.state = optarg;
		else if (c == 'h')
			return fputs(usage, stdout) < 0;
		else if (c == 'V')
			return printf("libvirt-hook (tmemd) %s\n", PACKAGE_VERSION) < 0;
		else
			return 2;
	}
	if (argc - optind < 2) {
		fputs(usage, stderr);
		return 2;
	}
	h.vm = argv[optind];
	h.operation = argv[optind + 1];
	h.sub = optind + 2 < argc ? argv[optind + 2] : "-";
	h.extra = optind + 3 < argc ? argv[optind + 3] : "-";
	openlog("tmem-libvirt-hook", LOG_PID, LOG_DAEMON);
	begin_time();
	return run(&h);
}
