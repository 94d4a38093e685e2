// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Peers: this host borrows memory from others, and lends its own. Wires the tier to the store.
 *
 * What has to be remembered of peers while the arena lives (which number means whom, and of which
 * life they were) is in a file beside it, which goes with the memory that it tells of. One that was
 * written for another arena is not looked at.
 */
#include "config.h"

#include "tmemd_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "proto/control.h"
#include "tier/peers.h"

struct peering {
	struct store *store;
	struct peers *peers;   /* NULL: nobody lends to us */
	struct lender *lender; /* NULL: we lend nothing */
	struct peer_self self;
	char name[STORE_NAME_MAX];
	uint64_t lend;
	_Atomic bool leaving; /* owners are asked to take their blobs away */

	/* The file. */
	pthread_mutex_t lock; /* the tier's thread remembers, too */
	char path[CONFIG_PATH_MAX + 8];
	uint64_t arena; /* its id */
	struct peer_record records[TIER_HOLDERS];
	unsigned nr_records;
};

static int __attribute__((format(printf, 4, 5)))
fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* ---- What is remembered --------------------------------------------------------------------- */

static void to_hex(const uint8_t *bytes, size_t n, char *text)
{
	for (size_t i = 0; i < n; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
}

static bool from_hex(const char *text, uint8_t *bytes, size_t n)
{
	if (!text || strlen(text) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1)
			return false;
	return true;
}

static json_t *record_object(const struct peer_record *record)
{
	char uuid[2 * PEER_UUID + 1];

	to_hex(record->uuid, PEER_UUID, uuid);
	return json_pack("{s:s, s:i, s:s, s:I}", "name", record->name, "holder",
			 (int)record->holder, "uuid", uuid, "epoch", (json_int_t)record->epoch);
}

/* Under lock. The file is there whole, or as it was. */
static void write_file(struct peering *p)
{
	char next[sizeof(p->path) + 8];
	json_t *peers = json_array(), *file;

	for (unsigned i = 0; i < p->nr_records; i++)
		json_array_append_new(peers, record_object(&p->records[i]));
	file = json_pack("{s:I, s:I, s:o}", "arena", (json_int_t)p->arena, "epoch",
			 (json_int_t)p->self.epoch, "peers", peers);
	snprintf(next, sizeof(next), "%s.next", p->path);
	if (!file || json_dump_file(file, next, JSON_INDENT(1)) || rename(next, p->path))
		log_limited(LOG_ERROR,
			    "%s cannot be written (%s): after a restart of the service, pages at "
			    "new peers could not be found",
			    p->path, strerror(errno));
	json_decref(file);
}

static void remember(void *arg, const struct peer_record *record)
{
	struct peering *p = arg;
	unsigned i = 0;

	pthread_mutex_lock(&p->lock);
	while (i < p->nr_records && p->records[i].holder != record->holder)
		i++;
	if (i < TIER_HOLDERS) {
		p->records[i] = *record;
		if (i == p->nr_records)
			p->nr_records++;
		write_file(p);
	}
	pthread_mutex_unlock(&p->lock);
}

static bool take_record(struct peer_record *record, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	json_int_t holder = json_integer_value(json_object_get(o, "holder"));

	if (!name || strlen(name) >= sizeof(record->name) || holder < 1 ||
	    holder > (json_int_t)TIER_HOLDERS ||
	    !from_hex(json_string_value(json_object_get(o, "uuid")), record->uuid, PEER_UUID))
		return false;
	strcpy(record->name, name);
	record->holder = (uint16_t)holder;
	record->epoch = (uint64_t)json_integer_value(json_object_get(o, "epoch"));
	return true;
}

static bool take_file(struct peering *p, json_t *file)
{
	json_t *peers = json_object_get(file, "peers"), *o;
	size_t i;

	if ((uint64_t)json_integer_value(json_object_get(file, "arena")) != p->arena)
		return false;
	p->self.epoch = (uint64_t)json_integer_value(json_object_get(file, "epoch"));
	if (!p->self.epoch || !json_is_array(peers) || json_array_size(peers) > TIER_HOLDERS)
		return false;
	json_array_foreach(peers, i, o)
	{
		if (!take_record(&p->records[i], o))
			return false;
		p->nr_records++;
	}
	return true;
}

static int add_away(struct store_client *client, void *arg)
{
	uint64_t *pages = arg;

	*pages += counter_get(&store_client_counters(client)[CLIENT_PAGES_AWAY]);
	return 0;
}

static uint64_t pages_away(struct store *store)
{
	uint64_t pages = 0;

	store_client_each(store, add_away, &pages);
	return pages;
}

/* A new arena is a later life of the same host. */
static void begin_life(struct peering *p)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	p->nr_records = 0;
	p->self.epoch = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	write_file(p);
}

/*
 * Which host this is, whatever becomes of the arena: made of the machine's id, which is not told to
 * others (machine-id(5)), and of the name among peers.
 */
static void name_self(struct peering *p)
{
	char text[64 + STORE_NAME_MAX] = "tmemd ";
	size_t n = strlen(text);
	FILE *f = fopen("/etc/machine-id", "re");
	XXH128_canonical_t uuid;

	if (f) {
		n += fread(text + n, 1, 33, f);
		fclose(f);
	}
	n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", p->name);
	XXH128_canonicalFromHash(&uuid, XXH3_128bits(text, n));
	memcpy(p->self.uuid, uuid.digest, PEER_UUID);
}

/*
 * A new life frees, at the peers, what the former one left there. So there is none while this arena
 * has pages there, whatever became of the file.
 */
static int load(struct peering *p, const struct config *config, char *err, size_t errlen)
{
	struct store_info info;
	json_t *file;
	bool good;

	name_self(p);
	store_info(p->store, &info);
	p->arena = info.id & INT64_MAX; /* an integer of JSON */
	snprintf(p->path, sizeof(p->path), "%s.peers", config->arena);
	file = json_load_file(p->path, 0, NULL);
	good = file && take_file(p, file);
	json_decref(file);
	if (!good && pages_away(p->store))
		return fail(-EBADMSG, err, errlen,
			    "%s is missing or damaged, and %" PRIu64
			    " pages are at peers, which cannot be found without it: guests that "
			    "need them wait",
			    p->path, pages_away(p->store));
	if (!good)
		begin_life(p);
	return 0;
}

/* ---- Lending -------------------------------------------------------------------------------- */

static struct store_owner owner_of(const struct lender_owner *owner)
{
	struct store_owner o = {.epoch = owner->epoch};

	memcpy(o.uuid, owner->id, sizeof(o.uuid));
	return o;
}

static int lend_put(void *arg, const struct lender_owner *owner, uint64_t blob, const void *bytes,
		    uint32_t len)
{
	struct peering *p = arg;
	struct store_owner o = owner_of(owner);

	if (p->leaving) {
		store_blob_delete(p->store, &o, blob);
		return -ENOSPC;
	}
	return store_blob_put(p->store, &o, blob, bytes, len);
}

static int lend_get(void *arg, const struct lender_owner *owner, uint64_t blob, void *bytes)
{
	struct peering *p = arg;
	struct store_owner o = owner_of(owner);
	int r = store_blob_get(p->store, &o, blob, bytes);

	if (r > 0 && fault(FAULT_LEND_ALTERED))
		*(uint8_t *)bytes ^= 1;
	return r;
}

static void lend_delete(void *arg, const struct lender_owner *owner, uint64_t blob)
{
	struct peering *p = arg;
	struct store_owner o = owner_of(owner);

	store_blob_delete(p->store, &o, blob);
}

#define RENEW_RUN 1024u

/* Both lists rise: what is here and not in the owner's goes. */
static uint32_t lend_renew(void *arg, const struct lender_owner *owner, uint64_t first,
			   uint64_t end, const uint64_t *blobs, uint32_t nr)
{
	struct peering *p = arg;
	struct store_owner o = owner_of(owner);
	uint64_t here[RENEW_RUN];
	uint32_t n, at = 0, found = 0;

	while ((n = store_blob_list(p->store, &o, first, here, RENEW_RUN)) > 0 && here[0] < end) {
		for (uint32_t i = 0; i < n && here[i] < end; i++) {
			while (at < nr && blobs[at] < here[i])
				at++;
			if (at < nr && blobs[at] == here[i])
				found++;
			else
				store_blob_delete(p->store, &o, here[i]);
		}
		first = here[n - 1] + 1;
	}
	return nr - found;
}

/* One owner, looked for among all lives of all owners. */
struct search {
	struct store_owner owner;
	uint64_t held;	 /* of this life */
	uint64_t newest; /* of its lives */
	bool is_older;	 /* there is an older one: */
	uint64_t older;
};

static int look_at(const struct store_owner *owner, uint64_t pages, void *arg)
{
	struct search *search = arg;

	if (memcmp(owner->uuid, search->owner.uuid, sizeof(owner->uuid)) != 0)
		return 0;
	if (owner->epoch == search->owner.epoch)
		search->held = pages;
	if (owner->epoch > search->newest)
		search->newest = owner->epoch;
	if (owner->epoch < search->owner.epoch) {
		search->is_older = true;
		search->older = owner->epoch;
	}
	return 0;
}

static struct search search_for(struct peering *p, const struct lender_owner *owner)
{
	struct search search = {.owner = owner_of(owner)};

	store_blob_owners(p->store, look_at, &search);
	return search;
}

static void lend_spare(void *arg, const struct lender_owner *owner, uint64_t *bytes, uint64_t *held)
{
	struct peering *p = arg;

	*bytes = p->leaving ? 0 : store_lend_spare(p->store);
	*held = search_for(p, owner).held;
}

static int lend_forget(void *arg, const struct lender_owner *owner, uint64_t *newest)
{
	struct peering *p = arg;
	struct search search = search_for(p, owner);
	struct store_owner old;

	if (search.newest > owner->epoch) {
		*newest = search.newest;
		return -ESTALE;
	}
	while (search.is_older) {
		old = search.owner;
		old.epoch = search.older;
		store_blob_forget(p->store, &old);
		search = search_for(p, owner);
	}
	return 0;
}

static const struct lender_ops lending = {
	.put = lend_put,
	.get = lend_get,
	.delete = lend_delete,
	.renew = lend_renew,
	.spare = lend_spare,
	.forget_epoch = lend_forget,
};

static int open_lender(struct peering *p, const struct config *config, char *err, size_t errlen)
{
	const struct config_peers *c = &config->peers;
	const struct lender_settings settings = {
		.ops = &lending,
		.arg = p,
		.self = p->self,
		.tls = {c->ca[0] ? c->ca : NULL, c->tls[0] ? c->tls : NULL,
			c->psk[0] ? c->psk : NULL},
		.address = c->address[0] ? c->address : NULL,
		.port = (uint16_t)c->port,
	};
	int r = lender_open(&p->lender, &settings, err, errlen);

	for (unsigned i = 0; i < c->allow.nr && !r; i++)
		lender_allow(p->lender, c->allow.text[i]);
	return r;
}

#define LEAVE_MS 10000

static int set_lend(struct peering *p, uint64_t lend, char *err, size_t errlen)
{
	int r = store_set_lend(p->store, lend);

	if (r)
		return fail(r, err, errlen, "[peers] lend: the arena has no room for it: %s",
			    strerror(-r));
	p->lend = lend;
	return 0;
}

/*
 * Lent memory is the lowest class: what own pages need, or is above the limit, is asked back. All
 * that is asked for may leave; when enough has left the rest may stay.
 */
void peering_tick(struct tmemd *t)
{
	struct peering *p = t->peering;
	bool excess;

	if (!p || !p->lender)
		return;
	excess = store_lend_excess(p->store) != 0;
	if (excess != p->leaving)
		lender_leave(p->lender, excess ? LEAVE_MS : 0);
	p->leaving = excess;
}

/* ---- Borrowing ------------------------------------------------------------------------------ */

static void add_peer(struct peering *p, const struct config_peer *peer)
{
	char err[256];

	if (peers_add(p->peers, peer->name, peer->host, (uint16_t)peer->port, err, sizeof(err)))
		log_msg(LOG_ERROR, "peer %s: %s; nothing is put there", peer->name, err);
}

static int open_peers(struct peering *p, const struct config *config, char *err, size_t errlen)
{
	const struct config_peers *c = &config->peers;
	const struct peers_settings settings = {
		.self = p->self,
		.tls = {c->ca[0] ? c->ca : NULL, c->tls[0] ? c->tls : NULL,
			c->psk[0] ? c->psk : NULL},
		.known = p->records,
		.nr_known = p->nr_records,
		.remember = remember,
		.arg = p,
	};
	int r = peers_open(&p->peers, &settings, err, errlen);

	if (r)
		return r;
	store_set_copies(p->store, c->copies);
	r = store_set_tier(p->store, peers_tier(p->peers));
	if (r)
		return fail(r, err, errlen, "the arena cannot remember pages that are away: %s",
			    strerror(-r));
	r = peers_start(p->peers);
	if (r)
		return fail(r, err, errlen, "%s", strerror(-r));
	for (unsigned i = 0; i < config->nr_peers; i++)
		add_peer(p, &config->peer[i]);
	return 0;
}

/* ---- Start, reload, end --------------------------------------------------------------------- */

static void dispose(struct peering *p)
{
	if (p->peers) {
		store_set_tier(p->store, NULL);
		peers_close(p->peers);
	}
	if (p->lender)
		lender_close(p->lender);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static bool needed(const struct config *config)
{
	return config->nr_peers || config->peers.lend;
}

/* Somebody took the peers out of the configuration, and pages are there. */
static void say_away(struct tmemd *t)
{
	uint64_t pages = pages_away(t->store);

	if (pages && !t->config->nr_peers)
		log_msg(LOG_ERROR,
			"%" PRIu64 " pages are at peers, and the configuration names none: guests "
			"that need them wait; give [peer NAME] again and restart",
			pages);
}

int peering_start(struct tmemd *t, char *err, size_t errlen)
{
	struct peering *p;
	int r;

	say_away(t);
	if (!needed(t->config))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail(-ENOMEM, err, errlen, "peers: out of memory");
	p->store = t->store;
	p->self.name = p->name;
	snprintf(p->name, sizeof(p->name), "%s", t->config->peers.name);
	pthread_mutex_init(&p->lock, NULL);
	r = load(p, t->config, err, errlen);
	if (!r)
		r = set_lend(p, t->config->peers.lend, err, errlen);
	if (!r && t->config->peers.lend)
		r = open_lender(p, t->config, err, errlen);
	if (!r && t->config->nr_peers)
		r = open_peers(p, t->config, err, errlen);
	if (r) {
		dispose(p);
		return r;
	}
	t->peering = p;
	return 0;
}

void peering_stop(struct tmemd *t)
{
	if (t->peering)
		dispose(t->peering);
	t->peering = NULL;
}

static const struct config_peer *find_peer(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->nr_peers; i++)
		if (!strcmp(config->peer[i].name, name))
			return &config->peer[i];
	return NULL;
}

static bool has_pattern(const struct config_patterns *patterns, const char *text)
{
	for (unsigned i = 0; i < patterns->nr; i++)
		if (!strcmp(patterns->text[i], text))
			return true;
	return false;
}

static void say_fixed(const struct config_peers *was, const struct config_peers *is)
{
	if (strcmp(was->name, is->name) || strcmp(was->address, is->address) ||
	    was->port != is->port || strcmp(was->tls, is->tls) || strcmp(was->ca, is->ca) ||
	    strcmp(was->psk, is->psk))
		log_msg(LOG_WARN, "reload: [peers] name, address, port, tls, ca and psk take "
				  "effect at the next start");
}

static void reload_lending(struct peering *p, const struct config *was, const struct config *is)
{
	const struct config_patterns *before = &was->peers.allow, *now = &is->peers.allow;
	char err[512];

	if (is->peers.lend != p->lend && set_lend(p, is->peers.lend, err, sizeof(err)))
		log_msg(LOG_ERROR, "reload: %s", err);
	if (!p->lender) {
		if (is->peers.lend && open_lender(p, is, err, sizeof(err)))
			log_msg(LOG_ERROR, "reload: nothing is lent: %s", err);
		return;
	}
	for (unsigned i = 0; i < before->nr; i++)
		if (!has_pattern(now, before->text[i]))
			lender_deny(p->lender, before->text[i]);
	for (unsigned i = 0; i < now->nr; i++)
		lender_allow(p->lender, now->text[i]);
}

static void reload_borrowing(struct peering *p, const struct config *was, const struct config *is)
{
	char err[512];

	if (!p->peers && is->nr_peers) {
		if (open_peers(p, is, err, sizeof(err)))
			log_msg(LOG_ERROR, "reload: nothing is borrowed: %s", err);
		return;
	}
	if (!p->peers)
		return;
	store_set_copies(p->store, is->peers.copies);
	for (unsigned i = 0; i < was->nr_peers; i++) {
		const struct config_peer *peer = &was->peer[i];
		const struct config_peer *now = find_peer(is, peer->name);

		if (now && (strcmp(now->host, peer->host) || now->port != peer->port))
			log_msg(LOG_WARN,
				"reload: peer %s: another address takes effect at the next start",
				peer->name);
		if (now || peers_drain(p->peers, peer->name, TMEM_CONTROL_DRAIN_MS))
			continue;
		log_msg(LOG_NOTE, "reload: peer %s is drained", peer->name);
	}
	for (unsigned i = 0; i < is->nr_peers; i++)
		if (!find_peer(was, is->peer[i].name))
			add_peer(p, &is->peer[i]);
}

void peering_reload(struct tmemd *t, const struct config *next)
{
	say_fixed(&t->config->peers, &next->peers);
	if (t->peering) {
		reload_lending(t->peering, t->config, next);
		reload_borrowing(t->peering, t->config, next);
	} else if (needed(next)) {
		log_msg(LOG_WARN, "reload: [peers] and [peer NAME] take effect at the next start");
	}
}

/* ---- Commands ------------------------------------------------------------------------------- */

_Static_assert(CONTROL_LATENCY_BUCKETS == PEER_LATENCY_BUCKETS, "histograms");

static const char *state_word(enum peer_state state)
{
	switch (state) {
	case PEER_DOWN:
		return "down";
	case PEER_CONNECTING:
		return "connecting";
	case PEER_UP:
		return "up";
	case PEER_DENIED:
		return "denied";
	}
	return "unknown";
}

bool peering_peer(void *arg, unsigned i, struct control_peer *peer)
{
	struct tmemd *t = arg;
	struct peer_info info;

	if (!t->peering || !t->peering->peers || !peers_info(t->peering->peers, i, &info))
		return false;
	*peer = (struct control_peer){
		.port = info.port,
		.state = state_word(info.state),
		.up = info.state == PEER_UP,
		.draining = info.draining,
		.leaving = info.leaving,
		.spare_bytes = info.spare_bytes,
		.blobs = info.held,
		.latency_us = info.latency_us,
	};
	snprintf(peer->name, sizeof(peer->name), "%s", info.name);
	snprintf(peer->host, sizeof(peer->host), "%s", info.host);
	snprintf(peer->why, sizeof(peer->why), "%s", info.why);
	memcpy(peer->counters, info.counters, sizeof(peer->counters));
	memcpy(peer->get_latency, info.get_latency, sizeof(peer->get_latency));
	memcpy(peer->put_latency, info.put_latency, sizeof(peer->put_latency));
	return true;
}

bool peering_lending(void *arg, struct control_lending *l)
{
	const struct tmemd *t = arg;
	const struct peering *p = t->peering;
	const counter_t *counters;

	if (!p || !p->lender)
		return false;
	*l = (struct control_lending){
		.port = lender_port(p->lender),
		.lend_bytes = p->lend,
		.lent_bytes = store_lent(p->store),
	};
	snprintf(l->name, sizeof(l->name), "%s", p->name);
	counters = lender_counters(p->lender);
	for (unsigned i = 0; i < LENDER_COUNTER_NR; i++)
		l->counters[i] = counter_get(&counters[i]);
	return true;
}

/* A name that is no peer's may be that of a host that borrows here. */
static int change(struct peering *p, enum control_peer_change what, const char *name,
		  uint32_t deadline_ms)
{
	int borrow = -ENOENT, lend = -ENOENT;

	if (what == CONTROL_PEER_DRAIN)
		return p->peers ? peers_drain(p->peers, name, deadline_ms) : -ENOENT;
	if (p->peers)
		borrow = what == CONTROL_PEER_DENY ? peers_deny(p->peers, name)
						   : peers_allow(p->peers, name);
	if (p->lender)
		lend = what == CONTROL_PEER_DENY ? lender_deny(p->lender, name)
						 : lender_allow(p->lender, name);
	return borrow && lend ? borrow : 0;
}

int peering_change(void *arg, enum control_peer_change what, const char *name, uint32_t deadline_ms,
		   char *err, size_t errlen)
{
	static const char *const done[] = {"is drained", "is allowed", "is denied"};
	struct tmemd *t = arg;
	int r = t->peering ? change(t->peering, what, name, deadline_ms) : -ENOENT;

	if (r == -ENOENT)
		return fail(r, err, errlen,
			    "there is no peer \"%s\"; see tmemctl peer list, and [peer NAME] in "
			    "the configuration",
			    name);
	if (r)
		return fail(r, err, errlen, "peer %s: %s", name, strerror(-r));
	log_msg(LOG_NOTE, "peer %s %s by command", name, done[what]);
	return 0;
}
