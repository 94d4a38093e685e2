// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Requests to etcd's endpoints. One at a time, each with a time limit, in the thread of the engine.
 * The connection is kept between requests; certificates are read again for each new connection.
 */
#include "members_priv.h"

#include "base/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 2000u
#define KEEP_BYTES (256u << 10) /* of a body's room between requests */

struct http {
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	char **endpoints; /* without a slash at their end */
	unsigned nr, at;  /* `at` is asked first */
	uint32_t timeout_ms;
	const atomic_bool *stop;
	uint64_t deadline; /* monotonic ns; 0: none */
	char *body;
	size_t len, room;
	bool too_long;
	char error[CURL_ERROR_SIZE];
};

static void global_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- One request ---------------------------------------------------------------------------- */

static size_t take_body(char *data, size_t one, size_t nr, void *arg)
{
	struct http *h = arg;
	size_t n = one * nr, room = h->room ? h->room : 4096;
	char *body;

	if (n > HTTP_BODY_MAX - h->len) {
		h->too_long = true;
		return 0;
	}
	while (room < h->len + n + 1)
		room *= 2;
	if (room != h->room) {
		body = realloc(h->body, room);
		if (!body)
			return 0;
		h->body = body;
		h->room = room;
	}
	memcpy(h->body + h->len, data, n);
	h->len += n;
	h->body[h->len] = 0;
	return n;
}

static void forget_body(struct http *h)
{
	h->len = 0;
	h->too_long = false;
	if (h->room > KEEP_BYTES) {
		free(h->body);
		h->body = NULL;
		h->room = 0;
	}
}

static bool stopped(const struct http *h)
{
	return h->deadline ? clock_ns() >= h->deadline : atomic_load(h->stop);
}

/* Milliseconds that a request may take; 0: none any more. */
static long time_left(const struct http *h)
{
	uint64_t now = clock_ns(), ms;

	if (!h->deadline)
		return (long)h->timeout_ms;
	ms = h->deadline > now ? (h->deadline - now) / CLOCK_MS : 0;
	return (long)(ms < h->timeout_ms ? ms : h->timeout_ms);
}

/* Until it has ended or is not wanted any more; CURLE_ABORTED_BY_CALLBACK then. */
static CURLcode drive(struct http *h)
{
	CURLcode code = CURLE_ABORTED_BY_CALLBACK;
	int running = 1, left;
	CURLMsg *msg;

	if (curl_multi_add_handle(h->multi, h->easy))
		return CURLE_FAILED_INIT;
	while (running && !stopped(h)) {
		if (curl_multi_perform(h->multi, &running))
			break;
		if (running)
			curl_multi_poll(h->multi, NULL, 0, 1000, NULL);
	}
	while ((msg = curl_multi_info_read(h->multi, &left)) != NULL)
		if (msg->msg == CURLMSG_DONE)
			code = msg->data.result;
	curl_multi_remove_handle(h->multi, h->easy);
	return code;
}

/* 0; -EHOSTUNREACH; -EPROTO: it answers, but not what was asked for. */
static int ask(struct http *h, const char *endpoint, const char *path, const char *request,
	       char why[MEMBERS_WHY])
{
	char url[1024], said[MEMBERS_WHY] = "";
	long status = 0, ms = time_left(h);
	CURLcode code;

	if (!ms)
		return -ECANCELED;
	snprintf(url, sizeof(url), "%s%s", endpoint, path);
	forget_body(h);
	h->error[0] = 0;
	curl_easy_setopt(h->easy, CURLOPT_URL, url);
	curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, request);
	curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request));
	curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, ms);
	code = drive(h);
	if (stopped(h) && code)
		return -ECANCELED;
	if (h->too_long) {
		snprintf(why, MEMBERS_WHY,
			 "%.100s: the answer has more than %u MiB; what is below the prefix?",
			 endpoint, HTTP_BODY_MAX >> 20);
		return -EPROTO;
	}
	if (code) {
		snprintf(why, MEMBERS_WHY, "%.100s: %.120s", endpoint,
			 h->error[0] ? h->error : curl_easy_strerror(code));
		return -EHOSTUNREACH;
	}
	curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200 && h->len)
		return 0;
	error_parse(h->body ? h->body : "", h->len, said);
	snprintf(why, MEMBERS_WHY, "%.100s answers %ld: %.120s", endpoint, status, said);
	/* It is there, but has no leader or no time: as good as not there. */
	return status >= 500 ? -EHOSTUNREACH : -EPROTO;
}

int http_post(struct http *h, const char *path, const char *request, const char **body, size_t *len,
	      char why[MEMBERS_WHY])
{
	int rc = -EHOSTUNREACH, outcome = -EHOSTUNREACH;
	char said[MEMBERS_WHY] = "";

	for (unsigned i = 0; i < h->nr; i++) {
		rc = ask(h, h->endpoints[h->at], path, request, said);
		if (!rc || rc == -ECANCELED)
			break;
		/* Who refuses says more than who is away. */
		if (outcome != -EPROTO || rc == -EPROTO) {
			outcome = rc;
			snprintf(why, MEMBERS_WHY, "%s", said);
		}
		h->at = (h->at + 1) % h->nr;
	}
	*body = h->body;
	*len = h->len;
	return rc && rc != -ECANCELED ? outcome : rc;
}

void http_deadline(struct http *h, uint64_t ns)
{
	h->deadline = ns;
}

void http_wait(struct http *h, int ms)
{
	if (!atomic_load(h->stop))
		curl_multi_poll(h->multi, NULL, 0, ms, NULL);
}

void http_wake(struct http *h)
{
	curl_multi_wakeup(h->multi);
}

/* ---- Begin and end -------------------------------------------------------------------------- */

static int copy_endpoints(struct http *h, const struct members_config *config, char *err,
			  size_t size)
{
	h->endpoints = calloc(config->nr_endpoints + 1, sizeof(*h->endpoints));
	if (!h->endpoints)
		return -ENOMEM;
	for (unsigned i = 0; i < config->nr_endpoints; i++) {
		const char *from = config->endpoints[i];
		size_t len = strlen(from);

		while (len && from[len - 1] == '/')
			len--;
		if ((strncmp(from, "http://", 7) && strncmp(from, "https://", 8)) || len > 512) {
			snprintf(err, size,
				 "\"%.80s\" is not http://HOST:PORT or https://HOST:PORT", from);
			return -EINVAL;
		}
		h->endpoints[i] = strndup(from, len);
		if (!h->endpoints[i])
			return -ENOMEM;
		h->nr++;
	}
	if (h->nr)
		return 0;
	snprintf(err, size, "etcd has no endpoints, say http://HOST:PORT or https://HOST:PORT");
	return -EINVAL;
}

static int set_tls(struct http *h, const struct members_config *config, char *err, size_t size)
{
	CURLcode rc = CURLE_OK;

	if (!config->cert_file != !config->key_file) {
		snprintf(err, size, "etcd: a certificate needs its key, and a key its certificate");
		return -EINVAL;
	}
	curl_easy_setopt(h->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (config->ca_file)
		rc = curl_easy_setopt(h->easy, CURLOPT_CAINFO, config->ca_file);
	if (!rc && config->cert_file)
		rc = curl_easy_setopt(h->easy, CURLOPT_SSLCERT, config->cert_file);
	if (!rc && config->key_file)
		rc = curl_easy_setopt(h->easy, CURLOPT_SSLKEY, config->key_file);
	if (rc)
		snprintf(err, size, "etcd: %s", curl_easy_strerror(rc));
	return rc ? -EINVAL : 0;
}

/* What the environment of the service says (proxies) is not for etcd. */
static int set_options(struct http *h)
{
	h->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!h->headers)
		return -ENOMEM;
	curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, h->headers);
	curl_easy_setopt(h->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(h->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h->easy, CURLOPT_POST, 1L);
	curl_easy_setopt(h->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, h);
	curl_easy_setopt(h->easy, CURLOPT_ERRORBUFFER, h->error);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name that is being looked up does not hold the end up. */
	curl_easy_setopt(h->easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	return 0;
}

int http_open(struct http **http, const struct members_config *config, const atomic_bool *stop,
	      char *err, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct http *h = calloc(1, sizeof(*h));
	int rc = -ENOMEM;

	pthread_once(&once, global_init);
	*http = NULL;
	if (!h) {
		snprintf(err, size, "no memory");
		return rc;
	}
	snprintf(err, size, "no memory");
	h->stop = stop;
	h->timeout_ms = config->timeout_ms ? config->timeout_ms : TIMEOUT_MS;
	h->multi = curl_multi_init();
	h->easy = curl_easy_init();
	if (h->multi && h->easy)
		rc = copy_endpoints(h, config, err, size);
	if (!rc)
		rc = set_options(h);
	if (!rc)
		rc = set_tls(h, config, err, size);
	if (rc)
		http_close(h);
	else
		*http = h;
	return rc;
}

void http_close(struct http *h)
{
	if (!h)
		return;
	if (h->easy)
		curl_easy_cleanup(h->easy);
	if (h->multi)
		curl_multi_cleanup(h->multi);
	curl_slist_free_all(h->headers);
	for (unsigned i = 0; h->endpoints && i < h->nr; i++)
		free(h->endpoints[i]);
	free(h->endpoints);
	free(h->body);
	free(h);
}
