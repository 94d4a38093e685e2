// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The control socket: connections, requests, and long commands.
 *
 * A connection is always in one of four states, and a timer limits three of them: idle, a request
 * has begun to arrive, a long command is under way, an answer is being taken. The next request is
 * looked at only when the answer before it has been taken, so that what a peer can make us hold is
 * one request and one answer.
 *
 * A long command runs on a thread of its own, which never touches the connection: it marks its
 * job as done and wakes the loop. A connection may end meanwhile; its job is then nobody's.
 */
#include "config.h"

#include "control/control_priv.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/control.h"

struct connection {
	struct control *control;
	struct connection *next;
	struct bufferevent *buffer;
	struct event *timer;
	struct job *job; /* under way for this connection */
	bool answering;	 /* an answer waits to be taken */
	bool begun;	 /* part of a request is here */
	bool ended;	 /* the peer sends nothing more */
	bool closing;	 /* after this answer */
};

struct job {
	struct control *control;
	struct job *next;
	struct connection *connection; /* NULL: gone; the main thread's alone */
	const struct command *command;
	json_t *request;
	struct reply reply;
	int fd; /* of a stream: the connection's once more, so that it outlives that; else -1 */
	pthread_t thread;
	_Atomic bool done;
};

void reply_error(struct reply *reply, const char *code, const char *fmt, ...)
{
	va_list ap;

	reply->code = code;
	va_start(ap, fmt);
	vsnprintf(reply->message, sizeof(reply->message), fmt, ap);
	va_end(ap);
	/* It may quote the request, cut within a character; JSON wants whole ones. */
	for (char *p = reply->message; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
}

static void connection_free(struct connection *c)
{
	struct connection **p = &c->control->connections;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->control->nr_connections--;
	if (c->job)
		c->job->connection = NULL;
	event_free(c->timer);
	bufferevent_free(c->buffer);
	free(c);
}

static void limit_time(struct connection *c, int seconds)
{
	struct timeval tv = {.tv_sec = seconds};

	if (seconds)
		evtimer_add(c->timer, &tv);
	else
		evtimer_del(c->timer);
}

/* Sends the reply and disposes of it. `request` may be NULL. May free the connection. */
static void answer(struct connection *c, json_t *request, struct reply *reply)
{
	json_t *id = request ? json_object_get(request, TMEM_KEY_ID) : NULL;
	json_t *root = json_object();
	char *text;

	if (reply->code) {
		json_object_set_new(root, TMEM_KEY_OK, json_false());
		json_object_set_new(root, TMEM_KEY_ERROR,
				    json_pack("{s:s, s:s}", TMEM_KEY_CODE, reply->code,
					      TMEM_KEY_MESSAGE, reply->message));
	} else {
		json_object_set_new(root, TMEM_KEY_OK, json_true());
		json_object_set(root, TMEM_KEY_RESULT, reply->result);
	}
	if (id)
		json_object_set(root, TMEM_KEY_ID, id);
	json_decref(reply->result);
	reply->result = NULL;
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	/* What cannot be answered in full is not answered: the peer sees the end. */
	if (!text || bufferevent_write(c->buffer, text, strlen(text)) ||
	    bufferevent_write(c->buffer, "\n", 1)) {
		log_limited(LOG_WARN, "control: no memory for an answer");
		free(text);
		connection_free(c);
		return;
	}
	free(text);
	c->answering = true;
	c->begun = false;
	limit_time(c, TMEM_CONTROL_TIMEOUT_S);
}

static void *job_main(void *arg)
{
	struct job *job = arg;
	struct control *control = job->control;

	if (job->command->stream)
		job->command->stream(control, job->request, job->fd, &job->reply);
	else
		job->command->run(control, job->request, &job->reply);
	atomic_store(&job->done, true);
	eventfd_write(control->wake_fd, 1);
	return NULL;
}

static void job_free(struct job *job)
{
	if (job->fd >= 0)
		close(job->fd);
	json_decref(job->reply.result);
	json_decref(job->request);
	free(job);
}

/*
 * From here on the job alone reads and writes there, until it is done; then only the answer
 * follows. False: there is no descriptor.
 */
static bool lend_connection(struct connection *c, struct job *job)
{
	job->fd = fcntl(bufferevent_getfd(c->buffer), F_DUPFD_CLOEXEC, 0);
	if (job->fd < 0)
		return false;
	bufferevent_disable(c->buffer, EV_READ);
	c->closing = true;
	return true;
}

/* The job's thread takes over request. */
static void job_start(struct connection *c, const struct command *command, json_t *request,
		      struct reply *reply)
{
	struct control *control = c->control;
	struct job *job = NULL;
	sigset_t all, old;
	int r;

	if (control->nr_jobs == TMEM_CONTROL_MAX_JOBS) {
		reply_error(reply, TMEM_ERR_BUSY, "%d long commands are under way; try again later",
			    TMEM_CONTROL_MAX_JOBS);
		return;
	}
	job = calloc(1, sizeof(*job));
	if (!job) {
		reply_error(reply, TMEM_ERR_BUSY, "the service is out of memory");
		return;
	}
	job->control = control;
	job->connection = c;
	job->command = command;
	job->request = json_incref(request);
	job->fd = -1;
	if (command->stream && !lend_connection(c, job)) {
		reply_error(reply, TMEM_ERR_BUSY, "the service has no file descriptor left");
		job_free(job);
		return;
	}
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&job->thread, NULL, job_main, job);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		job_free(job);
		reply_error(reply, TMEM_ERR_BUSY, "no thread can be started: %s", strerror(r));
		return;
	}
	job->next = control->jobs;
	control->jobs = job;
	control->nr_jobs++;
	c->job = job;
	limit_time(c, 0);
}

/* One line has arrived. */
static void request_arrived(struct connection *c, const char *line, size_t len)
{
	const struct command *command;
	struct reply reply = {0};
	json_error_t error;
	json_t *request = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);

	if (!request) {
		reply_error(&reply, TMEM_ERR_BAD_REQUEST, "the line is not a JSON object: %s",
			    error.text);
	} else {
		command = command_find(request, &reply);
		if (command && command->is_long)
			job_start(c, command, request, &reply);
		else if (command)
			command->run(c->control, request, &reply);
	}
	if (!c->job)
		answer(c, request, &reply);
	json_decref(request);
}

static void refuse(struct connection *c, const char *code, const char *message)
{
	struct reply reply = {0};

	reply_error(&reply, code, "%s", message);
	c->closing = true;
	answer(c, NULL, &reply);
}

/* Looks for the next thing to do; may free the connection. */
static void connection_next(struct connection *c)
{
	struct evbuffer *input = bufferevent_get_input(c->buffer);
	size_t len;
	char *line;

	if (c->answering || c->job)
		return;
	if (c->closing || bufferevent_enable(c->buffer, EV_READ)) {
		connection_free(c);
		return;
	}
	line = evbuffer_readln(input, &len, EVBUFFER_EOL_LF);
	if (line && len < TMEM_CONTROL_MAX_REQUEST) {
		request_arrived(c, line, len);
		free(line);
		return;
	}
	if (line || evbuffer_get_length(input) >= TMEM_CONTROL_MAX_REQUEST) {
		refuse(c, TMEM_ERR_TOO_LARGE, "the request is longer than 65536 bytes");
		free(line);
		return;
	}
	len = evbuffer_get_length(input);
	if (c->ended && len) {
		refuse(c, TMEM_ERR_BAD_REQUEST, "the request ends without a newline");
	} else if (c->ended) {
		connection_free(c);
	} else if (!len) {
		c->begun = false;
		limit_time(c, TMEM_CONTROL_IDLE_S);
	} else if (!c->begun) {
		c->begun = true;
		limit_time(c, TMEM_CONTROL_TIMEOUT_S);
	}
}

static void on_read(struct bufferevent *buffer, void *arg)
{
	/* No more is read meanwhile. (A high watermark would do that, and crash without memory.) */
	if (evbuffer_get_length(bufferevent_get_input(buffer)) > TMEM_CONTROL_MAX_REQUEST)
		bufferevent_disable(buffer, EV_READ);
	connection_next(arg);
}

/* All that was written has been taken. */
static void on_written(struct bufferevent *buffer, void *arg)
{
	struct connection *c = arg;

	(void)buffer;
	if (!c->answering)
		return;
	c->answering = false;
	c->begun = false;
	connection_next(c);
}

static void on_event(struct bufferevent *buffer, short what, void *arg)
{
	struct connection *c = arg;

	(void)buffer;
	if (what & BEV_EVENT_ERROR) {
		connection_free(c);
		return;
	}
	if (what & BEV_EVENT_EOF) {
		c->ended = true;
		connection_next(c);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct connection *c = arg;

	(void)fd;
	(void)what;
	if (c->begun && !c->answering)
		refuse(c, TMEM_ERR_TIMEOUT, "the request did not arrive within 10 seconds");
	else
		connection_free(c);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	struct control *control = arg;
	struct job **p = &control->jobs;
	eventfd_t n;

	(void)what;
	eventfd_read(fd, &n);
	while (*p) {
		struct job *job = *p;
		struct connection *c = job->connection;

		if (!atomic_load(&job->done)) {
			p = &job->next;
			continue;
		}
		*p = job->next;
		control->nr_jobs--;
		pthread_join(job->thread, NULL);
		if (c) {
			c->job = NULL;
			answer(c, job->request, &job->reply);
		}
		job_free(job);
	}
}

/* ---- Accepting ------------------------------------------------------------------------------ */

/* By the peer's credentials as they were when it connected. */
static bool peer_allowed(const struct control *control, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	gid_t groups[256];

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	if (cred.uid == 0 || cred.uid == geteuid())
		return true;
	if (control->gid == (gid_t)-1)
		return false;
	if (cred.gid == control->gid)
		return true;
	len = sizeof(groups);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
		return false;
	for (size_t i = 0; i < len / sizeof(groups[0]); i++)
		if (groups[i] == control->gid)
			return true;
	return false;
}

/* Answers without a connection of our own. */
static void turn_away(int fd, const char *code, const char *message)
{
	char line[256];
	int n = snprintf(line, sizeof(line),
			 "{\"" TMEM_KEY_OK "\":false,\"" TMEM_KEY_ERROR "\":{\"" TMEM_KEY_CODE
			 "\":\"%s\",\"" TMEM_KEY_MESSAGE "\":\"%s\"}}\n",
			 code, message);

	if (send(fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_limited(LOG_DBG, "control: a connection was turned away unheard");
	close(fd);
}

static void connection_new(struct control *control, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (c) {
		c->buffer = bufferevent_socket_new(control->base, fd, BEV_OPT_CLOSE_ON_FREE);
		c->timer = evtimer_new(control->base, on_timer, c);
	}
	if (!c || !c->buffer || !c->timer) {
		log_limited(LOG_WARN, "control: no memory for a connection");
		if (c && c->timer)
			event_free(c->timer);
		if (c && c->buffer)
			bufferevent_free(c->buffer);
		else
			close(fd);
		free(c);
		return;
	}
	c->control = control;
	c->next = control->connections;
	control->connections = c;
	control->nr_connections++;
	bufferevent_setcb(c->buffer, on_read, on_written, on_event, c);
	if (bufferevent_enable(c->buffer, EV_READ | EV_WRITE)) {
		log_limited(LOG_WARN, "control: no memory for a connection");
		connection_free(c);
		return;
	}
	limit_time(c, TMEM_CONTROL_IDLE_S);
}

static void on_accept(evutil_socket_t listen_fd, short what, void *arg)
{
	struct control *control = arg;
	struct timeval second = {.tv_sec = 1};
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)what;
	if (fd < 0) {
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
			return;
		log_limited(LOG_WARN, "control: a connection cannot be accepted: %s",
			    strerror(errno));
		event_del(control->accept_event);
		evtimer_add(control->retry_event, &second);
		return;
	}
	if (!peer_allowed(control, fd))
		turn_away(fd, TMEM_ERR_DENIED,
			  "allowed are root and the group of [control] group =");
	else if (control->nr_connections == TMEM_CONTROL_MAX_CONNECTIONS)
		turn_away(fd, TMEM_ERR_BUSY, "too many connections; try again later");
	else
		connection_new(control, fd);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct control *control = arg;

	(void)fd;
	(void)what;
	event_add(control->accept_event, NULL);
}

/* Makes the socket with the rights that it shall have before anybody can connect. */
static int listen_at(const struct config *config, char *err, size_t errlen)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, r;

	strcpy(addr.sun_path, config->control_socket);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		goto failed;
	if (!connect(fd, (struct sockaddr *)&addr, sizeof(addr)) || errno == EAGAIN) {
		snprintf(err, errlen,
			 "%s: another tmemd answers there; stop it, or give this one "
			 "another [control] socket =",
			 config->control_socket);
		close(fd);
		return -EADDRINUSE;
	}
	if (errno == ECONNREFUSED)
		unlink(addr.sun_path);
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
	umask(mask);
	if (r)
		goto failed;
	if ((config->control_gid != (uint32_t)-1 &&
	     chown(addr.sun_path, (uid_t)-1, config->control_gid)) ||
	    chmod(addr.sun_path, config->control_mode) || listen(fd, 64))
		goto failed;
	return fd;
failed:
	r = -errno;
	snprintf(err, errlen, "%s: the control socket cannot be made: %s%s", config->control_socket,
		 strerror(-r),
		 r == -ENOENT ? "; make its directory first (systemd: RuntimeDirectory=)" : "");
	if (fd >= 0)
		close(fd);
	return r;
}

int control_open(struct control **result, struct event_base *base, struct store *store,
		 const struct config *config, const struct control_ops *ops, void *arg, char *err,
		 size_t errlen)
{
	struct control *control = calloc(1, sizeof(*control));
	int r = -ENOMEM;

	snprintf(err, errlen, "the control socket cannot be made: out of memory");
	if (!control)
		return r;
	pthread_rwlock_init(&control->clients, NULL);
	control->base = base;
	control->store = store;
	control->ops = *ops;
	control->arg = arg;
	control->gid = config->control_gid;
	strcpy(control->socket, config->control_socket);
	json_object_seed(0);
	control->fd = -1;
	control->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (control->wake_fd < 0)
		goto failed;
	r = listen_at(config, err, errlen);
	if (r < 0)
		goto failed;
	control->fd = r;
	r = -ENOMEM;
	control->accept_event =
		event_new(base, control->fd, EV_READ | EV_PERSIST, on_accept, control);
	control->retry_event = evtimer_new(base, on_retry, control);
	control->wake_event =
		event_new(base, control->wake_fd, EV_READ | EV_PERSIST, on_wake, control);
	if (!control->accept_event || !control->retry_event || !control->wake_event)
		goto failed;
	if (event_add(control->accept_event, NULL) || event_add(control->wake_event, NULL))
		goto failed;
	*result = control;
	return 0;
failed:
	control_close(control);
	return r;
}

void control_close(struct control *control)
{
	if (!control)
		return;
	atomic_store(&control->cancel, true);
	while (control->connections)
		connection_free(control->connections);
	while (control->jobs) {
		struct job *job = control->jobs;

		control->jobs = job->next;
		pthread_join(job->thread, NULL);
		job_free(job);
	}
	if (control->accept_event)
		event_free(control->accept_event);
	if (control->retry_event)
		event_free(control->retry_event);
	if (control->wake_event)
		event_free(control->wake_event);
	if (control->wake_fd >= 0)
		close(control->wake_fd);
	if (control->fd >= 0) {
		unlink(control->socket);
		close(control->fd);
	}
	pthread_rwlock_destroy(&control->clients);
	free(control);
}

void control_exclude(struct control *control, bool exclude)
{
	if (exclude)
		pthread_rwlock_wrlock(&control->clients);
	else
		pthread_rwlock_unlock(&control->clients);
}
