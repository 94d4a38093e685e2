/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Certificates of a test's own, in the layout that tmemd reads: good ones, and bad ones of each
 * kind. */
#ifndef TMEMD_TESTS_PKI_H
#define TMEMD_TESTS_PKI_H

enum pki_flaw {
	PKI_GOOD,
	PKI_EXPIRED,
	PKI_STRANGER, /* signed by another authority */
	PKI_PURPOSE,  /* the client's is good for servers only */
};

/* Makes the authority and its files: scratch_path("ca") is the directory of cacert.pem. */
void pki_begin(void);

/* Key and certificates of a host; returns the directory, which is the caller's to keep. */
const char *pki_host(const char *name, enum pki_flaw flaw);

/* Puts the host's certificate on the authority's list of those called back. */
void pki_call_back(const char *dir);
void pki_call_none_back(void);

/* A file of secrets for these names, NULL-terminated; its path is the caller's to keep. */
const char *pki_secrets(const char *file, const char *const *names);

#endif
