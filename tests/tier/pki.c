// SPDX-License-Identifier: GPL-2.0-or-later
#include "pki.h"

#include "tests/lib/scratch.h"
#include "world.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK(!(call), "GnuTLS")
#define DAY 86400

struct authority {
	gnutls_x509_crt_t crt;
	gnutls_x509_privkey_t key;
};

static struct authority ours, strangers;
static unsigned serial;
static gnutls_x509_crt_t called_back;

static void write_file(const char *path, const gnutls_datum_t *data)
{
	FILE *f = fopen(path, "we");

	CHECK(f, "%s", path);
	CHECK(fwrite(data->data, data->size, 1, f) == 1, "%s", path);
	fclose(f);
	chmod(path, 0600);
}

static gnutls_x509_privkey_t make_key(void)
{
	gnutls_x509_privkey_t key;

	OK(gnutls_x509_privkey_init(&key));
	OK(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
	return key;
}

static gnutls_x509_crt_t make_crt(const char *name, gnutls_x509_privkey_t key, time_t from,
				  time_t to)
{
	gnutls_x509_crt_t crt;

	serial++;
	OK(gnutls_x509_crt_init(&crt));
	OK(gnutls_x509_crt_set_version(crt, 3));
	OK(gnutls_x509_crt_set_serial(crt, &serial, sizeof(serial)));
	OK(gnutls_x509_crt_set_activation_time(crt, from));
	OK(gnutls_x509_crt_set_expiration_time(crt, to));
	OK(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name,
					 (unsigned)strlen(name)));
	OK(gnutls_x509_crt_set_key(crt, key));
	return crt;
}

static void make_authority(struct authority *a, const char *name)
{
	time_t now = time(NULL);

	a->key = make_key();
	a->crt = make_crt(name, a->key, now - DAY, now + DAY);
	OK(gnutls_x509_crt_set_basic_constraints(a->crt, 1, -1));
	OK(gnutls_x509_crt_set_key_usage(a->crt, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
	OK(gnutls_x509_crt_sign2(a->crt, a->crt, a->key, GNUTLS_DIG_SHA256, 0));
}

void pki_begin(void)
{
	gnutls_datum_t pem;
	char path[512];

	make_authority(&ours, "our authority");
	make_authority(&strangers, "another authority");
	mkdir(scratch_path("ca"), 0700);
	snprintf(path, sizeof(path), "%s/cacert.pem", scratch_path("ca"));
	OK(gnutls_x509_crt_export2(ours.crt, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, &pem);
	gnutls_free(pem.data);
}

static void write_pair(const char *dir, const char *role, const char *name, enum pki_flaw flaw,
		       gnutls_x509_privkey_t key)
{
	struct authority *by = flaw == PKI_STRANGER ? &strangers : &ours;
	bool server = !strcmp(role, "server") || flaw == PKI_PURPOSE;
	time_t now = time(NULL);
	gnutls_x509_crt_t crt =
		make_crt(name, key, now - 2 * DAY, flaw == PKI_EXPIRED ? now - DAY : now + DAY);
	gnutls_datum_t pem;
	char path[512];

	OK(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, name,
						(unsigned)strlen(name), GNUTLS_FSAN_SET));
	OK(gnutls_x509_crt_set_key_usage(crt, GNUTLS_KEY_DIGITAL_SIGNATURE));
	OK(gnutls_x509_crt_set_key_purpose_oid(
		crt, server ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT, 0));
	OK(gnutls_x509_crt_sign2(crt, by->crt, by->key, GNUTLS_DIG_SHA256, 0));
	snprintf(path, sizeof(path), "%s/%scert.pem", dir, role);
	OK(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, &pem);
	gnutls_free(pem.data);
	gnutls_x509_crt_deinit(crt);
	snprintf(path, sizeof(path), "%s/private/%skey.pem", dir, role);
	OK(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem));
	write_file(path, &pem);
	gnutls_free(pem.data);
}

const char *pki_host(const char *name, enum pki_flaw flaw)
{
	gnutls_x509_privkey_t key = make_key();
	char file[128], private[512], *dir;

	snprintf(file, sizeof(file), "%s-%d", name, flaw);
	dir = strdup(scratch_path(file));
	snprintf(private, sizeof(private), "%s/private", dir);
	mkdir(dir, 0700);
	mkdir(private, 0700);
	write_pair(dir, "server", name, flaw, key);
	write_pair(dir, "client", name, flaw, key);
	gnutls_x509_privkey_deinit(key);
	return dir;
}

void pki_call_back(const char *dir)
{
	time_t now = time(NULL);
	gnutls_x509_crl_t crl;
	gnutls_datum_t pem;
	char path[512];

	snprintf(path, sizeof(path), "%s/clientcert.pem", dir);
	OK(gnutls_load_file(path, &pem));
	OK(gnutls_x509_crt_init(&called_back));
	OK(gnutls_x509_crt_import(called_back, &pem, GNUTLS_X509_FMT_PEM));
	gnutls_free(pem.data);
	OK(gnutls_x509_crl_init(&crl));
	OK(gnutls_x509_crl_set_version(crl, 2));
	OK(gnutls_x509_crl_set_this_update(crl, now - DAY));
	OK(gnutls_x509_crl_set_next_update(crl, now + DAY));
	OK(gnutls_x509_crl_set_crt(crl, called_back, now - DAY));
	OK(gnutls_x509_crl_sign2(crl, ours.crt, ours.key, GNUTLS_DIG_SHA256, 0));
	OK(gnutls_x509_crl_export2(crl, GNUTLS_X509_FMT_PEM, &pem));
	snprintf(path, sizeof(path), "%s/cacrl.pem", scratch_path("ca"));
	write_file(path, &pem);
	gnutls_free(pem.data);
	gnutls_x509_crl_deinit(crl);
	gnutls_x509_crt_deinit(called_back);
}

void pki_call_none_back(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cacrl.pem", scratch_path("ca"));
	unlink(path);
}

const char *pki_secrets(const char *file, const char *const *names)
{
	char *path = strdup(scratch_path(file));
	FILE *f = fopen(path, "we");
	unsigned n = 0;

	CHECK(f, "%s", path);
	for (; *names; names++)
		fprintf(f, "%s:%032x\n", *names, 0x1234567u + 77 * n++);
	fclose(f);
	return path;
}
