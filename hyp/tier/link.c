// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * TLS over a socket that never makes its thread wait.
 *
 * Certificates are checked within the handshake: against the authority, the list of those called
 * back, the time, what they are for and, by a client, the server's name. Which names a server
 * serves is the lender's to say. A client with TLS 1.3 takes its handshake for done before the
 * server has looked at its certificate: that refusal arrives with the first bytes that are read.
 */
#include "link.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECORD_MAX 16384u
#define DRAINS 16
#define HICCUPS 16 /* warnings and the like in one call */

/* The first reason is the one that counts. */
static int over(struct link *link, const char *what, const char *why)
{
	if (!link->why[0])
		snprintf(link->why, sizeof(link->why), "%s%s", what, why);
	return -1;
}

static int set_credentials(struct link *link, const struct credentials *c)
{
	if (!c->psk)
		return gnutls_credentials_set(link->tls, GNUTLS_CRD_CERTIFICATE, c->x509);
	return gnutls_credentials_set(link->tls, GNUTLS_CRD_PSK,
				      c->server ? (void *)c->psk_server : (void *)c->psk_client);
}

/* What the other side's certificate has to be good for. */
static void set_verification(struct link *link, const char *name)
{
	link->verify[0].type = GNUTLS_DT_KEY_PURPOSE_OID;
	link->verify[0].data =
		(void *)(link->server ? GNUTLS_KP_TLS_WWW_CLIENT : GNUTLS_KP_TLS_WWW_SERVER);
	link->verify[1].type = GNUTLS_DT_DNS_HOSTNAME;
	link->verify[1].data = (void *)name;
	gnutls_session_set_verify_cert2(link->tls, link->verify, link->server ? 1 : 2, 0);
	if (link->server)
		gnutls_certificate_server_set_request(link->tls, GNUTLS_CERT_REQUIRE);
}

int link_begin(struct link *link, const struct credentials *credentials, int fd, const char *name,
	       uint64_t now)
{
	struct buffer in = {link->in.bytes, 0, 0}, out = {link->out.bytes, 0, 0};
	unsigned flags = credentials->server ? GNUTLS_SERVER : GNUTLS_CLIENT;

	memset(link, 0, sizeof(*link));
	link->fd = fd;
	link->in = in;
	link->out = out;
	link->server = credentials->server;
	link->began = link->heard = link->moved = now;
	if (gnutls_init(&link->tls,
			flags | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS)) {
		link->tls = NULL;
		goto fail;
	}
	if (gnutls_priority_set(link->tls, credentials->priority) ||
	    set_credentials(link, credentials))
		goto fail;
	if (!credentials->psk)
		set_verification(link, name);
	gnutls_transport_set_int(link->tls, fd);
	gnutls_handshake_set_timeout(link->tls, GNUTLS_INDEFINITE_TIMEOUT);
	return 0;
fail:
	link_close(link);
	return -ENOMEM;
}

static int tls_over(struct link *link, int error)
{
	gnutls_datum_t text = {NULL, 0};

	switch (error) {
	case GNUTLS_E_FATAL_ALERT_RECEIVED:
		return over(link, "the other side refuses: ",
			    gnutls_alert_get_name(gnutls_alert_get(link->tls)));
	case GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR:
		if (gnutls_certificate_verification_status_print(
			    gnutls_session_get_verify_cert_status(link->tls),
			    gnutls_certificate_type_get(link->tls), &text, 0))
			return over(link, "its certificate is not good", "");
		over(link, "its certificate: ", (const char *)text.data);
		gnutls_free(text.data);
		return -1;
	case GNUTLS_E_PULL_ERROR:
	case GNUTLS_E_PUSH_ERROR:
		return over(link, "the connection: ", strerror(errno ? errno : ECONNRESET));
	default:
		return over(link, "TLS: ", gnutls_strerror(error));
	}
}

/* The other side's operator shall read what is wrong with its certificate, too. */
static void send_alert(struct link *link, int error)
{
	gnutls_alert_description_t alert = GNUTLS_A_BAD_CERTIFICATE;
	unsigned status;

	if (error != GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR) {
		gnutls_alert_send_appropriate(link->tls, error);
		return;
	}
	status = gnutls_session_get_verify_cert_status(link->tls);
	if (status & GNUTLS_CERT_REVOKED)
		alert = GNUTLS_A_CERTIFICATE_REVOKED;
	else if (status & GNUTLS_CERT_SIGNER_NOT_FOUND)
		alert = GNUTLS_A_UNKNOWN_CA;
	else if (status & GNUTLS_CERT_EXPIRED)
		alert = GNUTLS_A_CERTIFICATE_EXPIRED;
	gnutls_alert_send(link->tls, GNUTLS_AL_FATAL, alert);
}

static int shake_hands(struct link *link, uint64_t now)
{
	for (unsigned i = 0; i < HICCUPS; i++) {
		int r;

		errno = 0;
		r = gnutls_handshake(link->tls);
		if (!r) {
			link->open = true;
			link->heard = link->moved = now;
			return 0;
		}
		if (r == GNUTLS_E_AGAIN)
			return 0;
		if (gnutls_error_is_fatal(r)) {
			tls_over(link, r);
			send_alert(link, r);
			return -1;
		}
	}
	return over(link, "the handshake does not end", "");
}

static int send_some(struct link *link, uint64_t now)
{
	struct buffer *out = &link->out;

	for (unsigned hiccups = 0; buffer_used(out);) {
		uint32_t n = buffer_used(out);
		ssize_t r;

		/* A call that could not end is made again with nothing: GnuTLS has the record. */
		n = n < RECORD_MAX ? n : RECORD_MAX;
		errno = 0;
		r = gnutls_record_send(link->tls, link->sending ? NULL : out->bytes + out->start,
				       link->sending ? 0 : n);
		if (r == GNUTLS_E_AGAIN) {
			if (!link->sending)
				link->sending = n;
			return 0;
		}
		if (r > 0) {
			buffer_take(out, (uint32_t)r);
			link->sending = 0;
			link->moved = now;
		} else if (gnutls_error_is_fatal((int)r) || ++hiccups > HICCUPS) {
			return tls_over(link, (int)r);
		} else if (!link->sending) {
			link->sending = n;
		}
	}
	link->moved = now;
	return 0;
}

static int read_some(struct link *link, uint64_t now)
{
	struct buffer *in = &link->in;
	uint32_t room = buffer_room(in);

	for (unsigned hiccups = 0; room;) {
		ssize_t r;

		errno = 0;
		r = gnutls_record_recv(link->tls, in->bytes + in->end, room);
		if (r == GNUTLS_E_AGAIN)
			return 0;
		if (!r)
			return over(link, "the other side ended the connection", "");
		if (r > 0) {
			in->end += (uint32_t)r;
			room -= (uint32_t)r;
			link->heard = now;
		} else if (gnutls_error_is_fatal((int)r) || ++hiccups > HICCUPS) {
			return tls_over(link, (int)r);
		}
	}
	return 0;
}

int link_step(struct link *link, uint64_t now)
{
	int sent;

	if (!link->open && shake_hands(link, now))
		return -1;
	if (!link->open)
		return 0;
	/* Both are tried: what came before an end is still read when sending fails. */
	sent = send_some(link, now);
	return read_some(link, now) || sent ? -1 : 0;
}

int link_flush(struct link *link, uint64_t now)
{
	return link->open ? send_some(link, now) : 0;
}

int link_poll(struct link *link, int epoll, void *data)
{
	struct epoll_event event = {.data.ptr = data};
	uint32_t polled = link->polled;

	if (!link->open) {
		event.events = !link->ending && gnutls_record_get_direction(link->tls) ? EPOLLOUT
										       : EPOLLIN;
	} else {
		event.events = buffer_room(&link->in) ? EPOLLIN : 0;
		event.events |= buffer_used(&link->out) ? EPOLLOUT : 0;
	}
	/* EPOLLERR and EPOLLHUP come always; naming them tells "in epoll" from "not in it". */
	event.events |= EPOLLERR;
	if (event.events == polled)
		return 0;
	link->polled = event.events;
	return epoll_ctl(epoll, polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, link->fd, &event);
}

bool link_pending(const struct link *link)
{
	return link->open && gnutls_record_check_pending(link->tls);
}

/* ---- Names ---------------------------------------------------------------------------------- */

static void add_name(struct names *names, const char *name, size_t len)
{
	if (names->nr == LINK_NAMES || !len || len >= PEER_NAME || strnlen(name, len) != len)
		return;
	memcpy(names->name[names->nr], name, len);
	names->name[names->nr++][len] = '\0';
}

/* The names for the DNS; where there are none, the common name, as older certificates have it. */
static void certificate_names(gnutls_x509_crt_t crt, struct names *names)
{
	char name[256];
	size_t len;
	int r;

	for (unsigned i = 0;; i++) {
		len = sizeof(name);
		r = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &len, NULL);
		if (r == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
			break;
		if (r == GNUTLS_SAN_DNSNAME)
			add_name(names, name, len);
		else if (r < 0 && r != GNUTLS_E_SHORT_MEMORY_BUFFER)
			break;
	}
	len = sizeof(name);
	if (!names->nr &&
	    !gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &len))
		add_name(names, name, len);
}

void link_names(const struct link *link, struct names *names)
{
	const gnutls_datum_t *chain;
	gnutls_x509_crt_t crt;
	const char *secret;
	unsigned nr = 0;

	memset(names, 0, sizeof(*names));
	secret = link->server ? gnutls_psk_server_get_username(link->tls) : NULL;
	if (secret) {
		add_name(names, secret, strlen(secret));
		return;
	}
	chain = gnutls_certificate_get_peers(link->tls, &nr);
	if (!chain || !nr || gnutls_x509_crt_init(&crt))
		return;
	if (!gnutls_x509_crt_import(crt, &chain[0], GNUTLS_X509_FMT_DER))
		certificate_names(crt, names);
	gnutls_x509_crt_deinit(crt);
}

void link_end(struct link *link)
{
	if (link->open)
		gnutls_bye(link->tls, GNUTLS_SHUT_WR);
	link->open = false;
	link->ending = true;
	shutdown(link->fd, SHUT_WR);
}

bool link_drain(struct link *link)
{
	uint8_t bytes[4096];
	ssize_t r = 1;

	for (unsigned i = 0; i < DRAINS && r > 0; i++)
		r = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	return !r || (r < 0 && errno != EAGAIN && errno != EINTR);
}

void link_close(struct link *link)
{
	if (link->tls) {
		if (link->open)
			gnutls_bye(link->tls, GNUTLS_SHUT_WR);
		gnutls_deinit(link->tls);
	}
	if (link->fd >= 0)
		close(link->fd);
	link->tls = NULL;
	link->fd = -1;
	link->open = false;
	link->polled = 0;
	link->sending = 0;
}
