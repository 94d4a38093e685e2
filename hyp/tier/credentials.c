// SPDX-License-Identifier: GPL-2.0-or-later
/* What hosts know each other by: certificates, or secrets; from files. */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define X509_PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3"
#define PSK_PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK"
#define PATH_BYTES 512
#define PSK_LINE 512 /* of a file of secrets, at most */

static int fail(char *err, size_t size, const char *what, const char *path, const char *why)
{
	snprintf(err, size, "%s %s: %s", what, path, why);
	return -EINVAL;
}

static int load_ca(struct credentials *c, const char *dir, char *err, size_t size)
{
	char path[PATH_BYTES];
	int r;

	snprintf(path, sizeof(path), "%s/cacert.pem", dir);
	r = gnutls_certificate_set_x509_trust_file(c->x509, path, GNUTLS_X509_FMT_PEM);
	if (r < 1)
		return fail(err, size, "the certificate of the authority", path,
			    r ? gnutls_strerror(r) : "there is none in it");
	snprintf(path, sizeof(path), "%s/cacrl.pem", dir);
	if (access(path, F_OK))
		return 0;
	r = gnutls_certificate_set_x509_crl_file(c->x509, path, GNUTLS_X509_FMT_PEM);
	return r < 1 ? fail(err, size, "the list of certificates called back", path,
			    r ? gnutls_strerror(r) : "there is none in it")
		     : 0;
}

static int load_x509(struct credentials *c, const struct peer_tls *tls, char *err, size_t size)
{
	const char *dir = tls->dir ? tls->dir : "/etc/pki/tmemd";
	const char *role = c->server ? "server" : "client";
	char cert[PATH_BYTES], key[PATH_BYTES];
	int r = gnutls_certificate_allocate_credentials(&c->x509);

	if (r)
		return fail(err, size, "TLS", "", gnutls_strerror(r));
	r = load_ca(c, tls->ca_dir ? tls->ca_dir : "/etc/pki/CA", err, size);
	if (r)
		return r;
	snprintf(cert, sizeof(cert), "%s/%scert.pem", dir, role);
	snprintf(key, sizeof(key), "%s/private/%skey.pem", dir, role);
	if (access(key, R_OK))
		return fail(err, size, "the key", key, strerror(errno));
	r = gnutls_certificate_set_x509_key_file(c->x509, cert, key, GNUTLS_X509_FMT_PEM);
	return r ? fail(err, size, "the certificate and its key", cert, gnutls_strerror(r)) : 0;
}

/* Our own secret, in hexadecimal, from the file. */
static int find_secret(const char *path, const char *self, char *secret, size_t room)
{
	size_t len = strlen(self);
	char line[PSK_LINE];
	FILE *f = fopen(path, "re");
	int r = -ENOENT;

	if (!f)
		return -errno;
	while (r && fgets(line, sizeof(line), f)) {
		if (strncmp(line, self, len) || line[len] != ':')
			continue;
		line[strcspn(line, "\r\n")] = '\0';
		r = snprintf(secret, room, "%s", line + len + 1) < (int)room ? 0 : -EINVAL;
	}
	fclose(f);
	gnutls_memset(line, 0, sizeof(line));
	return r;
}

static int load_client_psk(struct credentials *c, const char *path, const char *self, char *err,
			   size_t size)
{
	char secret[PSK_LINE];
	gnutls_datum_t key = {(unsigned char *)secret, 0};
	int r = find_secret(path, self, secret, sizeof(secret));

	if (r == -ENOENT && !access(path, F_OK))
		return fail(err, size, "the secrets", path, "none for our own name is in it");
	if (r)
		return fail(err, size, "the secrets", path, strerror(-r));
	key.size = (unsigned)strlen(secret);
	r = gnutls_psk_allocate_client_credentials(&c->psk_client);
	if (!r)
		r = gnutls_psk_set_client_credentials(c->psk_client, self, &key,
						      GNUTLS_PSK_KEY_HEX);
	gnutls_memset(secret, 0, sizeof(secret));
	return r ? fail(err, size, "our secret in", path, gnutls_strerror(r)) : 0;
}

static int load_psk(struct credentials *c, const char *path, const char *self, char *err,
		    size_t size)
{
	int r;

	if (!c->server)
		return load_client_psk(c, path, self, err, size);
	if (access(path, R_OK))
		return fail(err, size, "the secrets", path, strerror(errno));
	r = gnutls_psk_allocate_server_credentials(&c->psk_server);
	if (!r)
		r = gnutls_psk_set_server_credentials_file(c->psk_server, path);
	return r ? fail(err, size, "the secrets", path, gnutls_strerror(r)) : 0;
}

int credentials_load(struct credentials *c, const struct peer_tls *tls, bool server,
		     const char *self, char *err, size_t size)
{
	int r;

	memset(c, 0, sizeof(*c));
	c->server = server;
	c->psk = tls->psk_file != NULL;
	r = gnutls_priority_init(&c->priority, c->psk ? PSK_PRIORITY : X509_PRIORITY, NULL);
	if (r)
		r = fail(err, size, "TLS", "1.3", gnutls_strerror(r));
	else
		r = c->psk ? load_psk(c, tls->psk_file, self, err, size)
			   : load_x509(c, tls, err, size);
	if (r)
		credentials_free(c);
	return r;
}

void credentials_free(struct credentials *c)
{
	if (c->x509)
		gnutls_certificate_free_credentials(c->x509);
	if (c->psk_server)
		gnutls_psk_free_server_credentials(c->psk_server);
	if (c->psk_client)
		gnutls_psk_free_client_credentials(c->psk_client);
	if (c->priority)
		gnutls_priority_deinit(c->priority);
	memset(c, 0, sizeof(*c));
}
