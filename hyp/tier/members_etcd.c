// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Membership by etcd. Each host has one lease and, bound to it, one key below the prefix; the key
 * is gone when the lease ends. Every few seconds all keys below the prefix are read.
 *
 * Reading in turns, not etcd's watch: a watch is an answer that never ends, whose loss looks like
 * silence, and after each loss everything has to be read anyway. A range of one group is small, and
 * reading it also shows that etcd is there and that our own key is.
 *
 * What etcd does not say is not news. While it is away the list stays; and when it has been away,
 * or its data is not the same any more, hosts that are missing get the time of a lease to come
 * back, since they have been without it as we have.
 *
 * One thread does all of it, one request at a time. Others only leave a number, wake it, or read
 * what is behind the lock.
 */
#include "members_priv.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "/tmemd/hosts/"
#define PREFIX_MAX 200u
#define TTL_S 30u
#define POLL_MS 5000u
#define WRITE_GAP CLOCK_S /* between two writes, however spare memory jumps */
#define TRIES 3		  /* of a transaction that meets another writer */

/* How the last attempt of a kind went. */
struct outcome {
	bool good;
	char why[MEMBERS_WHY];
};

struct etcd {
	struct members members; /* first */
	members_changed_fn changed;
	void *arg;
	char prefix[PREFIX_MAX + 2];
	uint32_t ttl_s;
	uint32_t poll_ms;
	struct http *http;
	pthread_t thread;
	atomic_bool stop;
	_Atomic uint64_t spare;	    /* bytes, as we were told last */
	_Atomic uint64_t published; /* bytes, as etcd has it */

	pthread_mutex_t lock;
	struct outcome write, read; /* under the lock */

	/* The thread's own. Times are monotonic, in ns. */
	struct member self;
	int64_t lease;	   /* 0: none */
	bool there;	   /* our key, as far as we know */
	uint64_t renew_at; /* the lease */
	uint64_t write_at; /* not before */
	uint64_t read_at;
	uint64_t heard_at;    /* the list; 0: never */
	uint64_t grace_until; /* who is missing stays until then */
	uint64_t cluster, revision;
	struct member *known, *next; /* room for MEMBERS_MAX each */
	unsigned nr_known;
};

/* ---- What others see ------------------------------------------------------------------------ */

static bool state(struct etcd *e, char why[MEMBERS_WHY])
{
	bool good;

	pthread_mutex_lock(&e->lock);
	good = e->write.good && e->read.good;
	snprintf(why, MEMBERS_WHY, "%s", good ? "" : (e->write.good ? e->read.why : e->write.why));
	pthread_mutex_unlock(&e->lock);
	return good;
}

/* Keeps how it went; what is new about it is said. */
static void conclude(struct etcd *e, struct outcome *outcome, int rc, const char *why)
{
	char text[MEMBERS_WHY];
	bool before = state(e, text), good;

	pthread_mutex_lock(&e->lock);
	outcome->good = !rc;
	snprintf(outcome->why, sizeof(outcome->why), "%s", why);
	pthread_mutex_unlock(&e->lock);
	good = state(e, text);
	if (good && !before)
		log_limited(LOG_NOTE, "etcd: this host is published as %s, others known: %u",
			    e->self.name, e->nr_known);
	else if (rc && (outcome == &e->read || rc == -EHOSTUNREACH))
		log_limited(LOG_WARN, "etcd: %s; what is known stays in use, other hosts: %u", why,
			    e->nr_known);
	else if (rc)
		log_limited(LOG_WARN, "etcd: this host is not published: %s", why);
}

/* ---- Being published ------------------------------------------------------------------------ */

/* Posts `request`, which it frees. */
static int post(struct etcd *e, const char *path, char *request, const char **body, size_t *len,
		char why[MEMBERS_WHY])
{
	int rc = -ENOMEM;

	if (request)
		rc = http_post(e->http, path, request, body, len, why);
	else
		snprintf(why, MEMBERS_WHY, "no memory");
	free(request);
	return rc;
}

static int nonsense(const char *what, char why[MEMBERS_WHY])
{
	snprintf(why, MEMBERS_WHY, "what answers to %s does not speak as etcd does", what);
	return -EPROTO;
}

static int grant(struct etcd *e, char why[MEMBERS_WHY])
{
	const char *body, *path = "/v3/lease/grant";
	uint64_t now = clock_ns();
	uint32_t ttl;
	size_t len;
	int rc = post(e, path, grant_request(e->ttl_s), &body, &len, why);

	if (rc)
		return rc;
	if (lease_parse(body, len, &e->lease, &ttl) || !ttl) {
		e->lease = 0;
		return nonsense(path, why);
	}
	e->there = false;
	e->renew_at = now + ttl * CLOCK_S / 3;
	return 0;
}

/* A lease that has ended is none afterwards. */
static int renew(struct etcd *e, char why[MEMBERS_WHY])
{
	const char *body, *path = "/v3/lease/keepalive";
	uint64_t now = clock_ns();
	int64_t lease;
	uint32_t ttl;
	size_t len;
	int rc = post(e, path, lease_request(e->lease), &body, &len, why);

	if (rc && rc != -EPROTO)
		return rc;
	if (!rc && lease_parse(body, len, &lease, &ttl))
		return nonsense(path, why);
	if (!rc && ttl) {
		e->renew_at = now + ttl * CLOCK_S / 3;
		return 0;
	}
	log_limited(LOG_NOTE, "etcd: our lease has ended, we take a new one");
	e->lease = 0;
	e->there = false;
	return 0;
}

/*
 * Whether what stands under our name may be replaced: it is ours, of an earlier life of ours, or
 * put there by hand. A host with another address that has our name and a lease lives.
 */
static bool replaceable(const struct etcd *e, const struct txn_answer *answer)
{
	return !answer->valid || !answer->there.lease || answer->there.lease == e->lease ||
	       !strcmp(answer->there.member.address, e->self.address);
}

static int publish(struct etcd *e, char why[MEMBERS_WHY])
{
	const char *body, *path = "/v3/kv/txn";
	struct txn_answer answer = {.mod_revision = 0};
	size_t len;
	int rc;

	e->self.spare_bytes = atomic_load(&e->spare);
	for (int i = 0; i < TRIES; i++) {
		rc = post(e, path, txn_request(e->prefix, &e->self, e->lease, answer.mod_revision),
			  &body, &len, why);
		if (rc == -EPROTO)
			e->lease = 0; /* most likely it has ended */
		if (rc)
			return rc;
		if (txn_parse(body, len, e->prefix, &answer))
			return nonsense(path, why);
		if (answer.succeeded) {
			atomic_store(&e->published, e->self.spare_bytes);
			e->there = true;
			return 0;
		}
		if (!replaceable(e, &answer)) {
			snprintf(why, MEMBERS_WHY,
				 "another host is published as %s, at %.120s: each needs a name "
				 "of its own",
				 e->self.name, answer.there.member.address);
			return -EEXIST;
		}
	}
	snprintf(why, MEMBERS_WHY, "our key is written by somebody else all the time");
	return -EAGAIN;
}

static bool has_moved(uint64_t from, uint64_t to)
{
	return (from > to ? from - to : to - from) > from / 10;
}

static bool spare_moved(struct etcd *e)
{
	return has_moved(atomic_load(&e->published), atomic_load(&e->spare));
}

/* A lease that has ended unseen is found when something is to be bound to it. */
static int publish_with_lease(struct etcd *e, char why[MEMBERS_WHY])
{
	int rc = -EPROTO;

	for (int i = 0; i < 2 && rc == -EPROTO; i++) {
		rc = e->lease ? 0 : grant(e, why);
		if (!rc)
			rc = publish(e, why);
	}
	return rc;
}

/* With the lease's renewal a smaller change goes out too. */
static int keep_published(struct etcd *e, uint64_t now, char why[MEMBERS_WHY])
{
	bool renewed = e->lease && now >= e->renew_at;
	int rc = renewed ? renew(e, why) : 0;

	if (rc)
		return rc;
	if (!e->lease || !e->there || spare_moved(e) ||
	    (renewed && atomic_load(&e->spare) != atomic_load(&e->published)))
		rc = publish_with_lease(e, why);
	return rc;
}

/* ---- Learning of the others ----------------------------------------------------------------- */

static const struct seen *find_seen(const struct range_answer *answer, const struct member *member)
{
	return bsearch(member, answer->seen, answer->nr, sizeof(*answer->seen), member_by_name);
}

static bool is_known(const struct etcd *e, const struct member *member)
{
	return bsearch(member, e->known, e->nr_known, sizeof(*e->known), member_by_name);
}

/* Has etcd been away, or is this another's data than the last one's? */
static void judge_answer(struct etcd *e, const struct range_answer *answer, uint64_t now)
{
	bool away = !e->heard_at || now - e->heard_at > e->ttl_s * CLOCK_S;
	bool strange =
		e->heard_at && (answer->cluster != e->cluster || answer->revision < e->revision);

	if (strange)
		log_limited(LOG_NOTE, "etcd: its data is not what it was, hosts may come back");
	if (away || strange)
		e->grace_until = now + e->ttl_s * CLOCK_S + e->poll_ms * CLOCK_MS;
	e->heard_at = now;
	e->cluster = answer->cluster;
	e->revision = answer->revision;
}

/* Makes e->next of what is known and what was seen; those known go first where it gets narrow. */
static unsigned merge(struct etcd *e, const struct range_answer *answer, uint64_t now)
{
	bool keep = answer->more || now < e->grace_until;
	unsigned n = 0, left = 0;

	for (unsigned i = 0; i < e->nr_known; i++) {
		const struct seen *seen = find_seen(answer, &e->known[i]);

		if (seen || keep)
			e->next[n++] = seen ? seen->member : e->known[i];
	}
	for (unsigned i = 0; i < answer->nr; i++) {
		const struct member *m = &answer->seen[i].member;

		if (!member_by_name(m, &e->self) || is_known(e, m))
			continue;
		if (n < MEMBERS_MAX)
			e->next[n++] = *m;
		else
			left++;
	}
	if (left || answer->more)
		log_limited(LOG_WARN,
			    "etcd: there are more hosts below %s than the %u that are used: "
			    "give each group of them a prefix of its own",
			    e->prefix, MEMBERS_MAX);
	qsort(e->next, n, sizeof(*e->next), member_by_name);
	return n;
}

/* Our own key must be there too. */
static void check_own(struct etcd *e, const struct range_answer *answer)
{
	const struct seen *own = find_seen(answer, &e->self);

	if (own ? own->lease != e->lease || strcmp(own->member.address, e->self.address) ||
			    own->member.epoch != e->self.epoch
		: !answer->more)
		e->there = false;
}

static int read_list(struct etcd *e, char why[MEMBERS_WHY])
{
	const char *body, *path = "/v3/kv/range";
	bool first = !e->heard_at;
	struct range_answer answer;
	struct member *list;
	uint64_t now;
	unsigned nr;
	size_t len;
	int rc = post(e, path, range_request(e->prefix), &body, &len, why);

	if (!rc && range_parse(body, len, e->prefix, &answer))
		rc = nonsense(path, why);
	if (rc)
		return rc;
	now = clock_ns();
	judge_answer(e, &answer, now);
	nr = merge(e, &answer, now);
	check_own(e, &answer);
	range_free(&answer);
	if (!first && members_equal(e->known, e->nr_known, e->next, nr))
		return 0;
	list = e->known;
	e->known = e->next;
	e->next = list;
	e->nr_known = nr;
	e->changed(e->arg, e->known, nr);
	return 0;
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* Between two looks; hosts that began together do not stay in step. */
static uint64_t interval(const struct etcd *e)
{
	return e->poll_ms * (900 + clock_ns() / 1000 % 200) * CLOCK_US;
}

static uint64_t write_due(struct etcd *e)
{
	bool now = !e->lease || !e->there || spare_moved(e);

	return now || e->renew_at < e->write_at ? e->write_at : e->renew_at;
}

static void work(struct etcd *e)
{
	char why[MEMBERS_WHY] = "";
	uint64_t now = clock_ns();
	int rc = 0;

	if (now >= write_due(e)) {
		rc = keep_published(e, now, why);
		if (rc == -ECANCELED)
			return;
		e->write_at = clock_ns() + (rc ? interval(e) : WRITE_GAP);
		conclude(e, &e->write, rc, why);
	}
	if (now < e->read_at)
		return;
	/* Who is away is not asked twice. */
	if (rc != -EHOSTUNREACH) {
		rc = read_list(e, why);
		if (rc == -ECANCELED)
			return;
		conclude(e, &e->read, rc, why);
	}
	e->read_at = clock_ns() + interval(e);
}

/* Everybody hears at once that we are gone. */
static void leave(struct etcd *e)
{
	char why[MEMBERS_WHY];
	const char *body;
	size_t len;

	if (!e->lease)
		return;
	http_deadline(e->http, clock_ns() + MEMBERS_CLOSE_MS * CLOCK_MS);
	post(e, "/v3/lease/revoke", lease_request(e->lease), &body, &len, why);
}

static void *run(void *arg)
{
	struct etcd *e = arg;

	while (!atomic_load(&e->stop)) {
		uint64_t now, due;

		work(e);
		now = clock_ns();
		due = write_due(e);
		if (e->read_at < due)
			due = e->read_at;
		if (due > now)
			http_wait(e->http, (int)((due - now) / CLOCK_MS) + 1);
	}
	leave(e);
	return NULL;
}

static int start(struct etcd *e)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&e->thread, NULL, run, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

/* ---- The table ------------------------------------------------------------------------------ */

static void dispose(struct etcd *e)
{
	http_close(e->http);
	pthread_mutex_destroy(&e->lock);
	free(e->known);
	free(e->next);
	free(e);
}

static int copy_config(struct etcd *e, const struct members_config *config, char *err, size_t size)
{
	const char *prefix = config->prefix ? config->prefix : PREFIX;
	size_t len = strlen(prefix);

	e->ttl_s = config->ttl_s ? config->ttl_s : TTL_S;
	e->poll_ms = config->poll_ms ? config->poll_ms : POLL_MS;
	if (!len || len > PREFIX_MAX) {
		snprintf(err, size, "etcd's prefix must have 1 to %u bytes", PREFIX_MAX);
		return -EINVAL;
	}
	snprintf(e->prefix, sizeof(e->prefix), "%s%s", prefix, prefix[len - 1] == '/' ? "" : "/");
	if (e->ttl_s < 2 || e->ttl_s > 86400 || e->poll_ms < 100 || e->poll_ms > 3600000) {
		snprintf(err, size, "etcd's lease takes 2 s to a day, a poll 100 ms to an hour");
		return -EINVAL;
	}
	if (!e->self.epoch) {
		snprintf(err, size, "this host has no epoch");
		return -EINVAL;
	}
	return 0;
}

/* Room for MEMBERS_MAX, the first of it what was known before. */
static int copy_known(struct etcd *e, const struct members_config *config, char *err, size_t size)
{
	struct member *hosts;
	int rc = members_copy(config, e->self.name, &hosts, &e->nr_known, err, size);

	if (rc)
		return rc;
	e->known = calloc(MEMBERS_MAX, sizeof(*e->known));
	e->next = calloc(MEMBERS_MAX, sizeof(*e->next));
	if (e->known && e->next)
		memcpy(e->known, hosts, e->nr_known * sizeof(*hosts));
	else
		rc = -ENOMEM;
	free(hosts);
	return rc;
}

static int etcd_open(struct members **members, const struct members_config *config,
		     const struct member *self, members_changed_fn changed, void *arg, char *err,
		     size_t size)
{
	struct etcd *e = calloc(1, sizeof(*e));
	int rc;

	snprintf(err, size, "no memory");
	if (!e)
		return -ENOMEM;
	e->members.ops = &members_etcd;
	e->changed = changed;
	e->arg = arg;
	e->self = *self;
	atomic_store(&e->spare, self->spare_bytes);
	pthread_mutex_init(&e->lock, NULL);
	snprintf(e->write.why, sizeof(e->write.why), "etcd has not answered yet");
	snprintf(e->read.why, sizeof(e->read.why), "etcd has not answered yet");
	rc = copy_config(e, config, err, size);
	if (!rc)
		rc = copy_known(e, config, err, size);
	if (!rc)
		rc = http_open(&e->http, config, &e->stop, err, size);
	if (!rc && e->nr_known)
		changed(arg, e->known, e->nr_known);
	if (!rc)
		rc = start(e);
	if (rc)
		dispose(e);
	else
		*members = &e->members;
	return rc;
}

static void etcd_spare(struct members *members, uint64_t bytes)
{
	struct etcd *e = (struct etcd *)members;

	atomic_store(&e->spare, bytes);
	if (spare_moved(e))
		http_wake(e->http);
}

static bool etcd_state(struct members *members, char *text, size_t size)
{
	char why[MEMBERS_WHY];
	bool good = state((struct etcd *)members, why);

	snprintf(text, size, "%s", why);
	return good;
}

static void etcd_close(struct members *members)
{
	struct etcd *e = (struct etcd *)members;

	atomic_store(&e->stop, true);
	http_wake(e->http);
	pthread_join(e->thread, NULL);
	dispose(e);
}

const struct members_ops members_etcd = {
	.name = "etcd",
	.open = etcd_open,
	.spare = etcd_spare,
	.state = etcd_state,
	.close = etcd_close,
};
