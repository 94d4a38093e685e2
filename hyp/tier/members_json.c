// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * etcd's JSON gateway: what it is asked, and what it says. Keys and values are in base64; 64-bit
 * numbers are strings; what is zero, false or empty is left out.
 *
 * Whoever may write below the prefix may write anything there. A key whose content is not what a
 * host publishes is left out and said; it changes nothing for the others.
 */
#include "members_priv.h"

#include "base/log.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 1024 /* bytes of a host's value; ours are shorter than 450 */
#define SHOWN 80       /* bytes of a key in a log line */

/* ---- Pieces --------------------------------------------------------------------------------- */

static bool number(const json_t *object, const char *name, uint64_t *value)
{
	const json_t *v = json_object_get(object, name);
	const char *text = json_string_value(v);
	char *end;

	*value = 0;
	if (!v)
		return true;
	if (json_is_integer(v) && json_integer_value(v) >= 0) {
		*value = (uint64_t)json_integer_value(v);
		return true;
	}
	if (!text || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end;
}

static bool signed_number(const json_t *object, const char *name, int64_t *value)
{
	uint64_t v;
	bool valid = number(object, name, &v) && v <= INT64_MAX;

	*value = valid ? (int64_t)v : 0;
	return valid;
}

/* A member of that type, or NULL; `object` may be NULL. */
static json_t *part(const json_t *object, const char *name, json_type type)
{
	json_t *v = json_object_get(object, name);

	return v && json_typeof(v) == type ? v : NULL;
}

/* The bytes of a string in base64, at most `max`; gnutls_free() them. */
static bool bytes(const json_t *object, const char *name, size_t max, gnutls_datum_t *out)
{
	json_t *v = part(object, name, JSON_STRING);
	gnutls_datum_t text;

	out->data = NULL;
	out->size = 0;
	if (!v || json_string_length(v) > (max + 2) / 3 * 4)
		return false;
	text.data = (unsigned char *)(uintptr_t)json_string_value(v);
	text.size = (unsigned)json_string_length(v);
	return text.size && gnutls_base64_decode2(&text, out) >= 0;
}

static char *base64(const void *data, size_t len)
{
	gnutls_datum_t in = {(unsigned char *)(uintptr_t)data, (unsigned)len}, out;
	char *text;

	if (gnutls_base64_encode2(&in, &out) < 0)
		return NULL;
	text = strndup((char *)out.data, out.size);
	gnutls_free(out.data);
	return text;
}

/* Into a line of a log: what is no printable character of ASCII becomes a dot. */
static void printable(char *out, size_t size, const void *in, size_t len)
{
	const unsigned char *c = in;
	size_t n = len < size - 1 ? len : size - 1;

	for (size_t i = 0; i < n; i++)
		out[i] = c[i] >= ' ' && c[i] <= '~' ? (char)c[i] : '.';
	out[n] = 0;
}

/* ---- One host ------------------------------------------------------------------------------- */

static bool text_of(const json_t *object, const char *name, char *out, size_t size)
{
	json_t *v = part(object, name, JSON_STRING);
	size_t len = json_string_length(v);

	if (!v || len >= size || memchr(json_string_value(v), 0, len))
		return false;
	memcpy(out, json_string_value(v), len + 1);
	return true;
}

/* NULL, or what is wrong with it. */
static const char *parse_value(const gnutls_datum_t *value, struct member *m)
{
	json_t *root = json_loadb((char *)value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
	char host[MEMBER_ADDRESS];
	const char *why = NULL;
	uint16_t port;

	if (!json_is_object(root))
		why = "its value is no JSON object";
	else if (!text_of(root, "name", m->name, sizeof(m->name)) || !member_name_valid(m->name))
		why = "its name is none";
	else if (!text_of(root, "address", m->address, sizeof(m->address)) ||
		 !member_address(m->address, host, &port))
		why = "its address is not HOST:PORT";
	else if (!json_object_get(root, "spare") || !number(root, "spare", &m->spare_bytes) ||
		 m->spare_bytes > INT64_MAX)
		why = "its spare bytes are no number";
	else if (!number(root, "epoch", &m->epoch) || !m->epoch)
		why = "its epoch is no number";
	json_decref(root);
	return why;
}

enum verdict { HOST, BAD, OTHERS };

/* The key below the prefix; OTHERS: of a group below ours. */
static enum verdict parse_key(const gnutls_datum_t *key, const char *prefix, char name[MEMBER_NAME])
{
	size_t skip = strlen(prefix), len;

	if (key->size <= skip || memcmp(key->data, prefix, skip))
		return BAD;
	len = key->size - skip;
	if (memchr(key->data + skip, '/', len))
		return OTHERS;
	if (len >= MEMBER_NAME || memchr(key->data + skip, 0, len))
		return BAD;
	memcpy(name, key->data + skip, len);
	name[len] = 0;
	return member_name_valid(name) ? HOST : BAD;
}

static enum verdict refuse(const gnutls_datum_t *key, const char *why)
{
	char shown[SHOWN];

	printable(shown, sizeof(shown), key->data, key->size);
	log_limited(LOG_WARN, "etcd: key \"%s\" is not used: %s", shown, why);
	return BAD;
}

static enum verdict parse_kv(const json_t *kv, const char *prefix, struct seen *seen)
{
	gnutls_datum_t key = {NULL, 0}, value = {NULL, 0};
	char name[MEMBER_NAME];
	enum verdict verdict = BAD;
	const char *why = NULL;

	memset(seen, 0, sizeof(*seen));
	if (bytes(kv, "key", strlen(prefix) + 4096, &key))
		verdict = parse_key(&key, prefix, name);
	if (verdict == BAD)
		why = "it is no name of a host";
	else if (verdict == HOST && !signed_number(kv, "lease", &seen->lease))
		why = "its lease is no number";
	else if (verdict == HOST && !bytes(kv, "value", VALUE_MAX, &value))
		why = "its value is empty or too long";
	else if (verdict == HOST)
		why = parse_value(&value, &seen->member);
	if (verdict == HOST && !why && strcmp(seen->member.name, name))
		why = "its value has another host's name";
	if (why)
		verdict = refuse(&key, why);
	gnutls_free(key.data);
	gnutls_free(value.data);
	return verdict;
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* Sorts them; of a name that is there twice one stays. */
static void put_in_order(struct range_answer *answer)
{
	unsigned n = 0;

	qsort(answer->seen, answer->nr, sizeof(*answer->seen), member_by_name);
	for (unsigned i = 0; i < answer->nr; i++)
		if (!n || member_by_name(&answer->seen[n - 1], &answer->seen[i]))
			answer->seen[n++] = answer->seen[i];
	answer->nr = n;
}

static int parse_range(const json_t *root, const char *prefix, struct range_answer *answer)
{
	const json_t *header = part(root, "header", JSON_OBJECT);
	const json_t *kvs = part(root, "kvs", JSON_ARRAY);
	size_t nr = json_array_size(kvs);

	if (!header || !number(header, "cluster_id", &answer->cluster) ||
	    !number(header, "revision", &answer->revision) || !answer->revision ||
	    (!kvs && json_object_get(root, "kvs")))
		return -EPROTO;
	answer->more = json_is_true(json_object_get(root, "more")) || nr > RANGE_KEYS;
	if (nr > RANGE_KEYS)
		nr = RANGE_KEYS;
	answer->seen = calloc(nr + 1, sizeof(*answer->seen));
	if (!answer->seen)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		enum verdict verdict =
			parse_kv(json_array_get(kvs, i), prefix, &answer->seen[answer->nr]);

		answer->nr += verdict == HOST;
		answer->refused += verdict == BAD;
	}
	put_in_order(answer);
	return 0;
}

int range_parse(const char *text, size_t len, const char *prefix, struct range_answer *answer)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	int rc;

	memset(answer, 0, sizeof(*answer));
	rc = parse_range(root, prefix, answer);
	json_decref(root);
	if (rc)
		range_free(answer);
	return rc;
}

void range_free(struct range_answer *answer)
{
	free(answer->seen);
	answer->seen = NULL;
	answer->nr = 0;
}

int txn_parse(const char *text, size_t len, const char *prefix, struct txn_answer *answer)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *range, *kv;

	memset(answer, 0, sizeof(*answer));
	if (!part(root, "header", JSON_OBJECT)) {
		json_decref(root);
		return -EPROTO;
	}
	answer->succeeded = json_is_true(json_object_get(root, "succeeded"));
	range = part(json_array_get(part(root, "responses", JSON_ARRAY), 0), "response_range",
		     JSON_OBJECT);
	kv = json_array_get(part(range, "kvs", JSON_ARRAY), 0);
	if (!answer->succeeded && kv && signed_number(kv, "mod_revision", &answer->mod_revision))
		answer->valid = parse_kv(kv, prefix, &answer->there) == HOST;
	json_decref(root);
	return 0;
}

int lease_parse(const char *text, size_t len, int64_t *lease, uint32_t *ttl)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *result = part(root, "result", JSON_OBJECT); /* of a keep-alive, a stream */
	int rc = -EPROTO;
	uint64_t s;

	if (!result)
		result = root;
	if (json_is_object(result) && signed_number(result, "ID", lease) && *lease &&
	    number(result, "TTL", &s)) {
		*ttl = s < UINT32_MAX ? (uint32_t)s : UINT32_MAX;
		rc = 0;
	}
	json_decref(root);
	return rc;
}

void error_parse(const char *text, size_t len, char why[MEMBERS_WHY])
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	json_t *v = part(root, "message", JSON_STRING);

	if (!v)
		v = part(root, "error", JSON_STRING);
	if (v)
		printable(why, MEMBERS_WHY / 2, json_string_value(v), json_string_length(v));
	else
		printable(why, MEMBERS_WHY / 2, text, len);
	json_decref(root);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* Takes the value's reference, which may be NULL. */
static char *to_text(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	return text;
}

static char *key_of(const char *prefix, const char *name)
{
	char *key = NULL, *text = NULL;

	if (asprintf(&key, "%s%s", prefix, name) >= 0)
		text = base64(key, strlen(key));
	free(key);
	return text;
}

char *range_request(const char *prefix)
{
	char *end = strdup(prefix), *from = base64(prefix, strlen(prefix)), *to = NULL;
	char *request = NULL;

	/* The first key behind all that begin with the prefix, whose last byte is '/'. */
	if (end) {
		end[strlen(end) - 1]++;
		to = base64(end, strlen(end));
	}
	if (from && to)
		request = to_text(json_pack("{s:s, s:s, s:i}", "key", from, "range_end", to,
					    "limit", (int)RANGE_KEYS));
	free(end);
	free(from);
	free(to);
	return request;
}

char *lease_request(int64_t lease)
{
	char id[24];

	snprintf(id, sizeof(id), "%lld", (long long)lease);
	return to_text(json_pack("{s:s}", "ID", id));
}

char *grant_request(uint32_t ttl_s)
{
	return to_text(json_pack("{s:I}", "TTL", (json_int_t)ttl_s));
}

/* The epoch is a string: as a number other programs would round it. */
static char *value_of(const struct member *self)
{
	char epoch[24], *json, *text = NULL;
	uint64_t spare = self->spare_bytes < INT64_MAX ? self->spare_bytes : INT64_MAX;

	snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)self->epoch);
	json = to_text(json_pack("{s:s, s:s, s:I, s:s}", "name", self->name, "address",
				 self->address, "spare", (json_int_t)spare, "epoch", epoch));
	if (json)
		text = base64(json, strlen(json));
	free(json);
	return text;
}

char *txn_request(const char *prefix, const struct member *self, int64_t lease, int64_t revision)
{
	char *key = key_of(prefix, self->name), *value = value_of(self), *request = NULL;
	const char *target = revision ? "MOD" : "CREATE";
	const char *field = revision ? "mod_revision" : "create_revision";
	char id[24], rev[24];

	snprintf(id, sizeof(id), "%lld", (long long)lease);
	snprintf(rev, sizeof(rev), "%lld", (long long)revision);
	if (key && value)
		request = to_text(json_pack(
			"{s:[{s:s, s:s, s:s, s:s}], s:[{s:{s:s, s:s, s:s}}], s:[{s:{s:s}}]}",
			"compare", "key", key, "target", target, "result", "EQUAL", field, rev,
			"success", "request_put", "key", key, "value", value, "lease", id,
			"failure", "request_range", "key", key));
	free(key);
	free(value);
	return request;
}
