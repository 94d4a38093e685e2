// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemctl save and restore: between a file, or a pipe, and the control socket, which carries the
 * stream in chunks (proto/control.h).
 */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/control.h"
#include "proto/stream.h"

/* The pause comes after a pass that wrote no more, or after so many. */
#define FEW_PAGES 1024
#define MANY_PASSES 30
#define LOOK_MS 100
#define COPY_BYTES (256u << 10)

static int failed(const char *about, int error)
{
	fprintf(stderr, "tmemctl: %s: %s\n", about, strerror(error));
	return CTL_REFUSED;
}

static int lost(const struct ctl *ctl)
{
	fprintf(stderr, "tmemctl: %s: tmemd has ended the connection\n", ctl->socket);
	return CTL_UNREACHED;
}

/* All of them, or 0 and an errno. */
static int write_all(int fd, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* How many came before the end; -1 with errno. */
static ssize_t read_all(int fd, void *bytes, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (uint8_t *)bytes + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* ---- Save ----------------------------------------------------------------------------------- */

struct saving {
	const struct ctl *ctl;
	int sock;
	int out;
	const char *out_name;
	unsigned passes;
	pid_t pausing; /* the command that runs; 0 none */
	bool paused;
};

static int start_pause(struct saving *s)
{
	fprintf(stderr, "tmemctl: %s\n", s->ctl->pause);
	s->pausing = fork();
	if (s->pausing < 0)
		return failed(s->ctl->pause, errno);
	if (s->pausing)
		return CTL_OK;
	/* Its output is not the stream's. */
	dup2(STDERR_FILENO, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", s->ctl->pause, NULL);
	_exit(127);
}

/* Has the command ended? Then the service is told, or the save is given up. */
static int look_at_pause(struct saving *s)
{
	int status;

	if (!s->pausing || waitpid(s->pausing, &status, WNOHANG) != s->pausing)
		return CTL_OK;
	s->pausing = 0;
	if (status) {
		fprintf(stderr, "tmemctl: %s: it failed, so nothing is saved\n", s->ctl->pause);
		return CTL_REFUSED;
	}
	s->paused = true;
	return send(s->sock, "p", 1, MSG_NOSIGNAL) == 1 ? CTL_OK : lost(s->ctl);
}

static int pass_over(struct saving *s)
{
	uint64_t pages;

	if (read_all(s->sock, &pages, sizeof(pages)) != sizeof(pages))
		return lost(s->ctl);
	pages = le64toh(pages);
	s->passes++;
	if (s->passes == 1 || pages)
		fprintf(stderr, "tmemctl: pass %u: %llu pages\n", s->passes,
			(unsigned long long)pages);
	if (!s->ctl->pause || s->pausing || s->paused ||
	    (pages > FEW_PAGES && s->passes < MANY_PASSES))
		return CTL_OK;
	return start_pause(s);
}

static int copy_chunk(struct saving *s, uint32_t len)
{
	static uint8_t buffer[COPY_BYTES];
	int r;

	if (len > TMEM_CHUNK_MAX)
		return lost(s->ctl);
	while (len) {
		uint32_t part = len < sizeof(buffer) ? len : (uint32_t)sizeof(buffer);

		if (read_all(s->sock, buffer, part) != (ssize_t)part)
			return lost(s->ctl);
		r = write_all(s->out, buffer, part);
		if (r)
			return failed(s->out_name, r);
		len -= part;
	}
	return CTL_OK;
}

/* Until the stream is over. */
static int pump(struct saving *s)
{
	struct pollfd p = {.fd = s->sock, .events = POLLIN};
	uint32_t len;
	int r;

	for (;;) {
		r = look_at_pause(s);
		if (r)
			return r;
		if (poll(&p, 1, s->pausing ? LOOK_MS : -1) <= 0)
			continue;
		if (read_all(s->sock, &len, sizeof(len)) != sizeof(len))
			return lost(s->ctl);
		len = le32toh(len);
		if (!len)
			return CTL_OK;
		r = len == TMEM_CHUNK_PASS ? pass_over(s) : copy_chunk(s, len);
		if (r)
			return r;
	}
}

static void print_saved(const struct ctl *ctl, json_t *result)
{
	bool to_stdout = !strcmp(ctl->argv[1], "-");
	char logical[16], bytes[16];

	print_size(number_of(result, TMEM_KEY_PAGES) * 4096, logical);
	print_size(number_of(result, TMEM_KEY_STREAM_BYTES), bytes);
	if (ctl->json && !to_stdout)
		print_json(result);
	else
		fprintf(to_stdout ? stderr : stdout, "%s: %.0f pages (%s logical) saved in %s\n",
			ctl->argv[0], number_of(result, TMEM_KEY_PAGES), logical, bytes);
}

static int save_to(const struct ctl *ctl, int out)
{
	struct saving s = {.ctl = ctl, .out = out, .out_name = ctl->argv[1]};
	json_t *request = json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, TMEM_CMD_SAVE, TMEM_KEY_CLIENT,
				    ctl->argv[0]);
	json_t *result;
	int r;

	if (ctl->live)
		json_object_set_new(request, TMEM_KEY_LIVE, json_true());
	r = ctl_stream_begin(ctl, request, &s.sock);
	if (r)
		return r;
	r = pump(&s);
	if (!r)
		r = ctl_stream_end(ctl, s.sock, &result);
	close(s.sock);
	/* A pipe has nothing to be synchronised. */
	if (!r && fdatasync(out) && errno != EINVAL && errno != EROFS) {
		json_decref(result);
		return failed(ctl->argv[1], errno);
	}
	if (!r) {
		print_saved(ctl, result);
		json_decref(result);
	}
	return r;
}

/* Under another name until it is whole. */
static int save_to_file(const struct ctl *ctl)
{
	char part[4096];
	int out, r;

	if (snprintf(part, sizeof(part), "%s.part", ctl->argv[1]) >= (int)sizeof(part))
		return failed(ctl->argv[1], ENAMETOOLONG);
	out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return failed(part, errno);
	r = save_to(ctl, out);
	close(out);
	if (!r && rename(part, ctl->argv[1]))
		r = failed(ctl->argv[1], errno);
	if (r)
		unlink(part);
	return r;
}

int run_save(const struct ctl *ctl)
{
	if (ctl->pause && !ctl->live)
		return usage_error("goes with --live", "--pause");
	signal(SIGPIPE, SIG_IGN);
	if (strcmp(ctl->argv[1], "-"))
		return save_to_file(ctl);
	if (isatty(STDOUT_FILENO))
		return usage_error("a stream is not for a terminal", "-");
	return save_to(ctl, STDOUT_FILENO);
}

/* ---- Restore -------------------------------------------------------------------------------- */

/* The first bytes of the stream, to see what it is; the service checks them. */
static bool is_disk(const struct tmem_stream_head *head, size_t bytes)
{
	return bytes == sizeof(*head) && le64toh(head->magic) == TMEM_STREAM_MAGIC &&
	       le32toh(head->version) == TMEM_STREAM_VERSION &&
	       le32toh(head->kind) == TMEM_STREAM_DISK;
}

static bool has_disk(json_t *list, const char *name)
{
	json_t *disk;
	size_t i;

	json_array_foreach(json_object_get(list, TMEM_KEY_DISKS), i, disk)
	{
		if (!strcmp(string_of(disk, TMEM_KEY_NAME), name))
			return true;
	}
	return false;
}

/* Makes the disk of the stream unless it is there. */
static int make_disk(const struct ctl *ctl, const struct tmem_stream_head *head, bool *made)
{
	json_t *list, *request, *result;
	const char *name = ctl->argv[0];
	int r = ctl_call(ctl, json_pack("{s:s}", TMEM_KEY_COMMAND, TMEM_CMD_DISK_LIST),
			 CTL_PATIENCE_S, &list);

	if (r)
		return r;
	*made = !has_disk(list, name);
	json_decref(list);
	if (!*made)
		return CTL_OK;
	*made = false;
	request =
		json_pack("{s:s, s:s, s:I, s:I}", TMEM_KEY_COMMAND, TMEM_CMD_DISK_CREATE,
			  TMEM_KEY_NAME, name, TMEM_KEY_SIZE, (json_int_t)le64toh(head->disk_bytes),
			  TMEM_KEY_QUEUES, (json_int_t)le32toh(head->queues));
	r = disk_put_values(ctl, request);
	if (r) {
		json_decref(request);
		return r;
	}
	r = ctl_call(ctl, request, CTL_PATIENCE_S, &result);
	if (r)
		return r;
	json_decref(result);
	*made = true;
	return CTL_OK;
}

static void remove_disk(const struct ctl *ctl)
{
	json_t *result;

	if (!ctl_call(ctl,
		      json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, TMEM_CMD_DISK_REMOVE, TMEM_KEY_NAME,
				ctl->argv[0]),
		      CTL_PATIENCE_S, &result))
		json_decref(result);
}

/* False: the service takes no more; its answer says why. */
static bool send_chunk(int sock, const void *bytes, size_t len)
{
	uint32_t wire = htole32((uint32_t)len);

	return !write_all(sock, &wire, sizeof(wire)) && !write_all(sock, bytes, len);
}

/* The head, which was read already, and the rest. An errno when reading failed, else 0. */
static int send_stream(int sock, int in, const void *head, size_t bytes)
{
	static uint8_t buffer[COPY_BYTES];
	ssize_t n = (ssize_t)bytes;

	if (bytes && !send_chunk(sock, head, bytes))
		return 0;
	do {
		n = read(in, buffer, sizeof(buffer));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (!send_chunk(sock, buffer, (size_t)n))
			return 0;
	} while (n);
	return 0;
}

static void print_restored(json_t *result, const struct ctl *ctl)
{
	char logical[16];

	print_size(number_of(result, TMEM_KEY_PAGES) * 4096, logical);
	if (ctl->json)
		print_json(result);
	else
		printf("%s: %.0f pages (%s logical) restored\n", ctl->argv[0],
		       number_of(result, TMEM_KEY_PAGES), logical);
}

static int restore_from(const struct ctl *ctl, int in, const struct tmem_stream_head *head,
			size_t bytes)
{
	json_t *result;
	int sock, error, r;

	r = ctl_stream_begin(ctl,
			     json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, TMEM_CMD_RESTORE,
				       TMEM_KEY_CLIENT, ctl->argv[0]),
			     &sock);
	if (r)
		return r;
	error = send_stream(sock, in, head, bytes);
	r = error ? failed(ctl->argv[1], error) : ctl_stream_end(ctl, sock, &result);
	close(sock);
	if (!r) {
		print_restored(result, ctl);
		json_decref(result);
	}
	return r;
}

static int discard(const struct ctl *ctl)
{
	if (ctl->argc != 1)
		return usage_error("goes with a client alone", "--discard");
	return call_and_print(ctl,
			      json_pack("{s:s, s:s}", TMEM_KEY_COMMAND, TMEM_CMD_RESTORE_DISCARD,
					TMEM_KEY_CLIENT, ctl->argv[0]),
			      NULL);
}

int run_restore(const struct ctl *ctl)
{
	struct tmem_stream_head head = {0};
	bool made = false;
	ssize_t bytes;
	int in = STDIN_FILENO, r = CTL_OK;

	if (ctl->discard)
		return discard(ctl);
	if (ctl->argc != 2)
		return usage_error("an argument is missing: FILE, or - for standard input",
				   "restore");
	signal(SIGPIPE, SIG_IGN);
	if (strcmp(ctl->argv[1], "-"))
		in = open(ctl->argv[1], O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return failed(ctl->argv[1], errno);
	bytes = read_all(in, &head, sizeof(head));
	if (bytes < 0)
		r = failed(ctl->argv[1], errno);
	else if (is_disk(&head, (size_t)bytes))
		r = make_disk(ctl, &head, &made);
	if (!r)
		r = restore_from(ctl, in, &head, (size_t)bytes);
	if (r && made)
		remove_disk(ctl);
	if (in != STDIN_FILENO)
		close(in);
	return r;
}
