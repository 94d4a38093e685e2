// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What etcd, or who else answers in its place, says to membership. The first byte says to which
 * question; behind it is the answer. That of a range may be given plainly: a line for each host,
 * KEY TAB VALUE, is put into an answer of etcd, in base64, so that the fuzzer sees through it.
 */
#include "base/log.h"
#include "tests/fuzz/fuzz.h"
#include "tier/members_priv.h"

#include <gnutls/gnutls.h>
#include <jansson.h>
#include <string.h>

#define PREFIX "/tmemd/hosts/"

static void check_member(const struct member *m)
{
	char host[MEMBER_ADDRESS];
	uint16_t port;

	MUST(memchr(m->name, 0, MEMBER_NAME) && member_name_valid(m->name), "a name");
	MUST(memchr(m->address, 0, MEMBER_ADDRESS), "an address without an end");
	MUST(member_address(m->address, host, &port) && port && host[0], "%s", m->address);
	MUST(m->spare_bytes <= INT64_MAX && m->epoch, "numbers");
}

static void check_range(const char *text, size_t len)
{
	struct range_answer answer;

	if (range_parse(text, len, PREFIX, &answer)) {
		MUST(!answer.seen && !answer.nr, "something is left");
		return;
	}
	MUST(answer.nr <= RANGE_KEYS && answer.nr + answer.refused <= RANGE_KEYS, "too many");
	MUST(answer.revision, "no revision");
	for (unsigned i = 0; i < answer.nr; i++) {
		check_member(&answer.seen[i].member);
		MUST(answer.seen[i].lease >= 0, "a lease");
		MUST(!i || member_by_name(&answer.seen[i - 1], &answer.seen[i]) < 0, "the order");
	}
	range_free(&answer);
}

static json_t *in_base64(const char *data, size_t len)
{
	gnutls_datum_t in = {(unsigned char *)(uintptr_t)data, (unsigned)len}, out;
	json_t *text;

	MUST(gnutls_base64_encode2(&in, &out) >= 0, "base64");
	text = json_stringn((char *)out.data, out.size);
	gnutls_free(out.data);
	return text;
}

/* Of lines KEY TAB VALUE; a key without a slash is one below the prefix. */
static void check_plain(const char *text, size_t len)
{
	json_t *kvs = json_array(), *root;
	const char *end = text + len;
	char key[512], *answer;

	while (text < end) {
		const char *line = memchr(text, '\n', (size_t)(end - text));
		const char *stop = line ? line : end;
		const char *tab = memchr(text, '\t', (size_t)(stop - text));
		int n = tab ? (int)(tab - text) : 0;

		if (tab && n < 400) {
			n = snprintf(key, sizeof(key), "%s%.*s", memchr(text, '/', n) ? "" : PREFIX,
				     n, text);
			json_array_append_new(kvs, json_pack("{s:o, s:o, s:s}", "key",
							     in_base64(key, (size_t)n), "value",
							     in_base64(tab + 1, stop - tab - 1),
							     "lease", "7"));
		}
		text = stop + 1;
	}
	root = json_pack("{s:{s:s, s:s}, s:o}", "header", "cluster_id", "1", "revision", "9", "kvs",
			 kvs);
	answer = json_dumps(root, 0);
	MUST(answer, "dump");
	check_range(answer, strlen(answer));
	free(answer);
	json_decref(root);
}

static void check_txn(const char *text, size_t len)
{
	struct txn_answer answer;

	if (txn_parse(text, len, PREFIX, &answer))
		return;
	MUST(!answer.valid || !answer.succeeded, "both");
	MUST(answer.mod_revision >= 0, "a revision");
	if (answer.valid)
		check_member(&answer.there.member);
}

static void check_lease(const char *text, size_t len)
{
	int64_t lease;
	uint32_t ttl;

	MUST(lease_parse(text, len, &lease, &ttl) || lease > 0, "a lease");
}

static void check_error(const char *text, size_t len)
{
	char why[MEMBERS_WHY];

	error_parse(text, len, why);
	MUST(memchr(why, 0, sizeof(why)), "no end");
	for (const char *c = why; *c; c++)
		MUST(*c >= ' ' && *c <= '~', "a character that is none of a line");
}

/* What is said by us is understood by us. */
static void check_own(const char *text, size_t len)
{
	struct bytes in = {(const uint8_t *)text, (const uint8_t *)text + len};
	struct member m;
	char err[256], line[400], *request;

	snprintf(line, sizeof(line), "%.*s", len < 399 ? (int)len : 399, text);
	if (member_parse(&m, line, err, sizeof(err)))
		return;
	m.spare_bytes = take(&in, 8) >> 1;
	m.epoch = take(&in, 8) | 1;
	request = txn_request(PREFIX, &m, 7, (int64_t)take(&in, 2));
	MUST(request, "request");
	free(request);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_setup(LOG_ERROR, false);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const checks[])(const char *, size_t) = {check_range, check_plain, check_txn,
							       check_lease, check_error, check_own};
	const unsigned nr = sizeof(checks) / sizeof(checks[0]);

	if (!size)
		return 0;
	/* Letters, so that a corpus can be written by hand. */
	checks[(unsigned)(data[0] - 'a') % nr]((const char *)data + 1, size - 1);
	return 0;
}
