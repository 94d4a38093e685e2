// SPDX-License-Identifier: GPL-2.0-or-later
/* One request to tmemd and its answer. */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/control.h"

static int unreached(const struct ctl *ctl, int error, char why[CTL_WHY_MAX])
{
	const char *help = "";

	if (error == EAGAIN)
		error = ETIMEDOUT;
	if (error == ENOENT || error == ECONNREFUSED)
		help = " (is tmemd running?)";
	else if (error == EACCES)
		help = " (allowed are root and the group of the control socket)";
	snprintf(why, CTL_WHY_MAX, "%s: %s%s", ctl->socket, strerror(error), help);
	return CTL_UNREACHED;
}

static int send_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* Turned away before we asked: the answer, which says why, can still be read. */
		if (n < 0)
			return errno == EPIPE ? 0 : errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static int connect_to(const char *path, int patience, int *result)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = patience};
	int fd;

	if (strlen(path) >= sizeof(addr.sun_path))
		return ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	/* A service that is stuck lets connections queue up. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		int error = errno;

		close(fd);
		return error;
	}
	*result = fd;
	return 0;
}

/* One line, without its end, that the caller frees. 0 or an errno. */
static int receive_line(int fd, int patience, char **line)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	time_t end = time(NULL) + patience;
	size_t len = 0, room = 0;
	char *text = NULL, *more;
	ssize_t n;
	int left, r;

	for (;;) {
		if (len + 1 >= room) {
			room = room ? room * 2 : 65536;
			more = realloc(text, room);
			r = ENOMEM;
			if (!more)
				break;
			text = more;
		}
		left = (int)(end - time(NULL));
		r = ETIMEDOUT;
		if (left <= 0 || !poll(&poll_fd, 1, left * 1000))
			break;
		n = read(fd, text + len, room - len - 1);
		r = n < 0 ? errno : ECONNRESET;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		if (text[len - 1] == '\n') {
			text[len - 1] = 0;
			*line = text;
			return 0;
		}
	}
	free(text);
	return r;
}

static int judge(json_t *answer, json_t **result, char why[CTL_WHY_MAX])
{
	json_t *error = json_object_get(answer, TMEM_KEY_ERROR);
	const char *message = json_string_value(json_object_get(error, TMEM_KEY_MESSAGE));
	json_t *found = json_object_get(answer, TMEM_KEY_RESULT);

	if (json_is_true(json_object_get(answer, TMEM_KEY_OK)) && json_is_object(found)) {
		*result = json_incref(found);
		return CTL_OK;
	}
	if (!message) {
		snprintf(why, CTL_WHY_MAX, "the answer is not one of tmemd's");
		return CTL_UNREACHED;
	}
	snprintf(why, CTL_WHY_MAX, "%s", message);
	return CTL_REFUSED;
}

int ctl_ask(const struct ctl *ctl, json_t *request, int patience, json_t **result,
	    char why[CTL_WHY_MAX])
{
	char *text = json_dumps(request, JSON_COMPACT);
	char *line = NULL;
	json_t *answer;
	int fd = -1, r;

	json_decref(request);
	if (!text)
		return unreached(ctl, ENOMEM, why);
	r = connect_to(ctl->socket, patience, &fd);
	if (!r)
		r = send_all(fd, text, strlen(text));
	if (!r)
		r = send_all(fd, "\n", 1);
	/* A service that turned us away may have closed already; its reason is there to be read. */
	if (!r || r == EPIPE)
		r = receive_line(fd, patience, &line);
	free(text);
	if (fd >= 0)
		close(fd);
	if (r)
		return unreached(ctl, r, why);
	answer = json_loads(line, 0, NULL);
	free(line);
	r = judge(answer, result, why);
	json_decref(answer);
	return r;
}

/* A line, and nothing behind it: what follows is not for us. 0 or an errno. */
static int receive_exact_line(int fd, int patience, char line[CTL_LINE_MAX])
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n;

	while (len + 1 < CTL_LINE_MAX) {
		if (poll(&poll_fd, 1, patience * 1000) <= 0)
			return ETIMEDOUT;
		n = read(fd, line + len, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? errno : ECONNRESET;
		if (line[len++] == '\n') {
			line[len - 1] = 0;
			return 0;
		}
	}
	return EMSGSIZE;
}

int ctl_stream_begin(const struct ctl *ctl, json_t *request, int *fd)
{
	char *text = json_dumps(request, JSON_COMPACT);
	char line[CTL_LINE_MAX], why[CTL_WHY_MAX];
	json_t *answer, *result;
	int r = text ? connect_to(ctl->socket, CTL_PATIENCE_S, fd) : ENOMEM;
	bool open = !r;

	json_decref(request);
	if (!r)
		r = send_all(*fd, text, strlen(text));
	if (!r)
		r = send_all(*fd, "\n", 1);
	if (!r || (open && r == EPIPE))
		r = receive_exact_line(*fd, CTL_PATIENCE_S, line);
	free(text);
	if (r) {
		r = unreached(ctl, r, why);
	} else {
		answer = json_loads(line, 0, NULL);
		if (!json_is_true(json_object_get(answer, TMEM_KEY_GO)))
			r = judge(answer, &result, why);
		json_decref(answer);
	}
	if (!r)
		return CTL_OK;
	if (open)
		close(*fd);
	fprintf(stderr, "tmemctl: %s\n", why);
	return r;
}

int ctl_stream_end(const struct ctl *ctl, int fd, json_t **result)
{
	char why[CTL_WHY_MAX], *line = NULL;
	json_t *answer;
	int r = receive_line(fd, CTL_STREAM_PATIENCE_S, &line);

	if (r) {
		r = unreached(ctl, r, why);
	} else {
		answer = json_loads(line, 0, NULL);
		r = judge(answer, result, why);
		json_decref(answer);
	}
	free(line);
	if (r)
		fprintf(stderr, "tmemctl: %s\n", why);
	return r;
}

int ctl_call(const struct ctl *ctl, json_t *request, int patience, json_t **result)
{
	char why[CTL_WHY_MAX];
	int r = ctl_ask(ctl, request, patience, result, why);

	if (r)
		fprintf(stderr, "tmemctl: %s\n", why);
	return r;
}
