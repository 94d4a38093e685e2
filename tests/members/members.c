// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Membership against a real etcd: who sees whom, and for how long, when hosts end, die and change
 * and etcd is away, new, slow, strange or full of what others wrote.
 *
 *   members [CASE...]            without a case: all
 *   members --host NAME URL      for the cases: a host that can be killed
 */
#include "tier/members.h"

#include "base/clock.h"
#include "base/log.h"
#include "etcd.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB (1ull << 20)
#define TTL_S 4u
#define POLL_MS 200u
#define SOON_S 10u /* what takes no lease's end: less than TTL_S on an idle machine */
#define AT_ONCE 4  /* cases */
#define OFTEN_ENOUGH(s) ((s)*10)

struct host {
	struct members *members;
	pthread_mutex_t lock;
	struct member list[MEMBERS_MAX];
	unsigned nr, calls, fewest; /* fewest: of all lists since it was set */
};

static const char *self_path;

/* ---- Hosts ---------------------------------------------------------------------------------- */

static void changed(void *arg, const struct member *list, unsigned nr)
{
	struct host *h = arg;

	CHECK(nr <= MEMBERS_MAX, "%u", nr);
	for (unsigned i = 1; i < nr; i++)
		CHECK(strcmp(list[i - 1].name, list[i].name) < 0, "the order of %s", list[i].name);
	pthread_mutex_lock(&h->lock);
	memcpy(h->list, list, nr * sizeof(*list));
	h->nr = nr;
	h->calls++;
	if (nr < h->fewest)
		h->fewest = nr;
	pthread_mutex_unlock(&h->lock);
}

static struct members_config config_of(const char *const *endpoints, unsigned nr)
{
	return (struct members_config){.endpoints = endpoints,
				       .nr_endpoints = nr,
				       .ttl_s = TTL_S,
				       .poll_ms = POLL_MS,
				       .timeout_ms = 1000};
}

static struct member self_of(const char *name, unsigned port)
{
	struct member self = {.spare_bytes = 100 * MIB, .epoch = 1ull << 60 | port};

	snprintf(self.name, sizeof(self.name), "%s", name);
	snprintf(self.address, sizeof(self.address), "192.0.2.1:%u", port);
	return self;
}

static void host_open_at(struct host *h, const struct members_config *config, const char *name,
			 unsigned port)
{
	struct member self = self_of(name, port);
	char err[256];

	memset(h, 0, sizeof(*h));
	pthread_mutex_init(&h->lock, NULL);
	h->fewest = UINT32_MAX;
	CHECK(!members_open(&h->members, members_engine("etcd"), config, &self, changed, h, err,
			    sizeof(err)),
	      "%s", err);
}

static void host_open(struct host *h, const struct etcd_server *s, const char *name, unsigned port)
{
	const char *endpoints[] = {s->url};
	struct members_config config = config_of(endpoints, 1);

	host_open_at(h, &config, name, port);
}

static void host_close(struct host *h)
{
	uint64_t start = clock_ns();

	members_close(h->members);
	h->members = NULL;
	CHECK(clock_ns() - start < (MEMBERS_CLOSE_MS + 1000) * CLOCK_MS, "a slow end");
}

static bool find(struct host *h, const char *name, struct member *found)
{
	bool there = false;

	pthread_mutex_lock(&h->lock);
	for (unsigned i = 0; i < h->nr && !there; i++) {
		there = !strcmp(h->list[i].name, name);
		if (there && found)
			*found = h->list[i];
	}
	pthread_mutex_unlock(&h->lock);
	return there;
}

static bool sees(struct host *h, const char *name)
{
	return find(h, name, NULL);
}

static bool sees_spare(struct host *h, const char *name, uint64_t spare)
{
	struct member m;

	return find(h, name, &m) && m.spare_bytes == spare;
}

static unsigned number(struct host *h)
{
	unsigned nr;

	pthread_mutex_lock(&h->lock);
	nr = h->nr;
	pthread_mutex_unlock(&h->lock);
	return nr;
}

static unsigned calls(struct host *h)
{
	unsigned nr;

	pthread_mutex_lock(&h->lock);
	nr = h->calls;
	pthread_mutex_unlock(&h->lock);
	return nr;
}

/* The fewest hosts since the last call. */
static unsigned fewest(struct host *h)
{
	unsigned nr;

	pthread_mutex_lock(&h->lock);
	nr = h->fewest < h->nr ? h->fewest : h->nr;
	h->fewest = UINT32_MAX;
	pthread_mutex_unlock(&h->lock);
	return nr;
}

static bool good(struct host *h)
{
	char text[256];

	return members_state(h->members, text, sizeof(text));
}

static bool says(struct host *h, const char *what)
{
	char text[256];

	return !members_state(h->members, text, sizeof(text)) && strstr(text, what);
}

static const char *why(struct host *h)
{
	static char text[256];

	members_state(h->members, text, sizeof(text));
	return text;
}

#define WAIT(cond, seconds)                                                                        \
	do {                                                                                       \
		uint64_t end_ = clock_ns() + (seconds)*CLOCK_S;                                    \
		while (!(cond)) {                                                                  \
			CHECK(clock_ns() < end_, "not within %u s: %s", (unsigned)(seconds),       \
			      #cond);                                                              \
			usleep(20000);                                                             \
		}                                                                                  \
	} while (0)

/* Three hosts that know each other. */
static void three(struct host h[3], const struct etcd_server *s)
{
	static const char *const names[] = {"a", "b", "c"};

	for (unsigned i = 0; i < 3; i++)
		host_open(&h[i], s, names[i], 4001 + i);
	for (unsigned i = 0; i < 3; i++)
		WAIT(number(&h[i]) == 2 && good(&h[i]), OFTEN_ENOUGH(SOON_S));
}

static void close_three(struct host h[3])
{
	for (unsigned i = 0; i < 3; i++)
		host_close(&h[i]);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static void case_see_each_other(void)
{
	struct etcd_server s;
	struct host h[3];
	struct member m;
	uint64_t start;
	unsigned before;

	etcd_start(&s, "etcd", false);
	three(h, &s);
	CHECK(find(&h[0], "c", &m) && !strcmp(m.address, "192.0.2.1:4003") &&
		      m.spare_bytes == 100 * MIB && m.epoch == (1ull << 60 | 4003),
	      "what a knows of c: %s %llu", m.address, (unsigned long long)m.epoch);
	CHECK(!sees(&h[0], "a"), "a host is not in its own list");
	/* Nothing changes: nobody is told anything, and nobody goes, for longer than a lease. */
	usleep(500000);
	before = calls(&h[0]);
	sleep(TTL_S + 2);
	CHECK(before == calls(&h[0]) && number(&h[0]) == 2, "a change without one");
	start = clock_ns();
	host_close(&h[2]);
	WAIT(!sees(&h[0], "c") && !sees(&h[1], "c"), TTL_S / 2);
	printf("  gone %llu ms after its end\n",
	       (unsigned long long)((clock_ns() - start) / CLOCK_MS));
	host_close(&h[0]);
	host_close(&h[1]);
	etcd_kill(&s);
}

/* A large change goes out at once; a small one with the next sign of life. */
static void case_spare(void)
{
	struct etcd_server s;
	const char *endpoints[] = {s.url};
	struct members_config config = config_of(endpoints, 1);
	struct host h, slow;

	etcd_start(&s, "etcd", false);
	config.ttl_s = 12 * SOON_S; /* signs of life come much later than soon */
	host_open(&h, &s, "a", 4001);
	host_open_at(&slow, &config, "b", 4002);
	WAIT(sees_spare(&h, "b", 100 * MIB), OFTEN_ENOUGH(SOON_S));
	members_spare(slow.members, 50 * MIB);
	WAIT(sees_spare(&h, "b", 50 * MIB), SOON_S);
	members_spare(slow.members, 46 * MIB);
	members_spare(slow.members, 54 * MIB);
	sleep(3);
	CHECK(sees_spare(&h, "b", 50 * MIB), "a small change was written at once");
	members_spare(h.members, 96 * MIB);
	WAIT(sees_spare(&slow, "a", 96 * MIB), TTL_S / 3 + SOON_S);
	/* From nothing, anything is much; so is all to nothing. */
	members_spare(slow.members, 0);
	WAIT(sees_spare(&h, "b", 0), SOON_S);
	members_spare(slow.members, 1);
	WAIT(sees_spare(&h, "b", 1), SOON_S);
	host_close(&slow);
	host_close(&h);
	etcd_kill(&s);
}

static pid_t host_process(const char *name, const char *url)
{
	pid_t pid = fork();

	CHECK(pid >= 0, "fork");
	if (!pid) {
		execl(self_path, self_path, "--host", name, url, NULL);
		_exit(127);
	}
	return pid;
}

static void case_killed(void)
{
	struct etcd_server s;
	struct host h;
	struct member m;
	uint64_t start, ms;
	pid_t pid;

	etcd_start(&s, "etcd", false);
	host_open(&h, &s, "a", 4001);
	pid = host_process("k", s.url);
	WAIT(sees(&h, "k"), OFTEN_ENOUGH(SOON_S));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	start = clock_ns();
	WAIT(!sees(&h, "k"), TTL_S + SOON_S);
	ms = (clock_ns() - start) / CLOCK_MS;
	printf("  gone %llu ms after its death, of a lease of %u s\n", (unsigned long long)ms,
	       TTL_S);
	CHECK(ms > TTL_S * 1000 / 3, "before its lease can have ended");
	/* It is back before its lease ends: it takes its key over and never was gone. */
	pid = host_process("k", s.url);
	WAIT(sees(&h, "k"), OFTEN_ENOUGH(SOON_S));
	fewest(&h);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	pid = host_process("k", s.url);
	sleep(TTL_S + 3);
	CHECK(find(&h, "k", &m) && fewest(&h) == 1, "a host that was back in time was gone");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	host_close(&h);
	etcd_kill(&s);
}

static void case_away(void)
{
	struct etcd_server s;
	struct host h[3];

	etcd_start(&s, "etcd", false);
	three(h, &s);
	for (unsigned i = 0; i < 3; i++)
		fewest(&h[i]);
	etcd_kill(&s);
	WAIT(says(&h[0], "127.0.0.1"), SOON_S);
	sleep(TTL_S + 2);
	for (unsigned i = 0; i < 3; i++)
		CHECK(number(&h[i]) == 2, "%u", number(&h[i]));
	/* It is back with what it had; then, all leases long over, with nothing. */
	for (unsigned i = 0; i < 2; i++) {
		uint64_t spare = (10 + i) * MIB;

		etcd_again(&s, i == 1);
		members_spare(h[2].members, spare);
		for (unsigned j = 0; j < 3; j++)
			WAIT(good(&h[j]), OFTEN_ENOUGH(SOON_S));
		WAIT(sees_spare(&h[0], "c", spare) && sees_spare(&h[1], "c", spare), SOON_S);
		sleep(TTL_S + 2);
		for (unsigned j = 0; j < 3; j++)
			CHECK(fewest(&h[j]) == 2, "a host was gone while etcd was away");
		if (!i)
			etcd_kill(&s);
	}
	/* And it goes on to say who goes. */
	host_close(&h[2]);
	WAIT(!sees(&h[0], "c") && sees(&h[0], "b"), SOON_S);
	host_close(&h[0]);
	host_close(&h[1]);
	etcd_kill(&s);
}

/* Our lease is taken from us: a new one, and nothing else is to be seen. */
static void case_lease_lost(void)
{
	struct etcd_server s;
	struct host h[3];

	etcd_start(&s, "etcd", false);
	three(h, &s);
	CHECK(!etcdctl(&s, "lease list") && !system("test $(grep -c '^[0-9a-f]*$' \"$LOG\") -ge 3"),
	      "three leases");
	CHECK(!etcdctl(&s, "del --prefix /tmemd/hosts/"), "del");
	sleep(1);
	WAIT(number(&h[0]) == 2 && number(&h[1]) == 2 && number(&h[2]) == 2, SOON_S);
	CHECK(!etcdctl(&s, "lease list"), "lease list");
	for (unsigned i = 0; i < 3; i++)
		fewest(&h[i]);
	CHECK(!system("grep '^[0-9a-f]*$' \"$LOG\" > \"$LOG.leases\""), "leases");
	CHECK(!etcdctl(&s,
		       "version > /dev/null; while read -r l; do etcdctl --endpoints %s lease "
		       "revoke $l; "
		       "done < $LOG.leases",
		       s.url),
	      "revoke");
	sleep(1);
	WAIT(number(&h[0]) == 2 && number(&h[1]) == 2 && number(&h[2]) == 2, TTL_S + SOON_S);
	for (unsigned i = 0; i < 3; i++)
		WAIT(good(&h[i]), SOON_S);
	close_three(h);
	etcd_kill(&s);
}

/* What was known before this process began is in use until etcd has had its say. */
static void case_known_before(void)
{
	struct member before[2] = {self_of("b", 4002), self_of("a", 4001)};
	struct etcd_server s;
	const char *endpoints[] = {s.url};
	struct members_config config = config_of(endpoints, 1);
	struct host h;

	etcd_start(&s, "etcd", false);
	etcd_kill(&s);
	config.hosts = before;
	config.nr_hosts = 2;
	host_open_at(&h, &config, "a", 4001);
	CHECK(number(&h) == 1 && sees(&h, "b"), "what was known before");
	CHECK(!good(&h), "etcd is away");
	sleep(2);
	etcd_again(&s, true);
	WAIT(good(&h), OFTEN_ENOUGH(SOON_S));
	CHECK(sees(&h, "b"), "it has not had the time to come");
	WAIT(!sees(&h, "b"), TTL_S + SOON_S);
	host_close(&h);
	etcd_kill(&s);
}

/* Accepts what the kernel accepts for it, and never answers. */
static int silent_port(unsigned short *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&address, len) && !listen(fd, 64), "listen");
	CHECK(!getsockname(fd, (struct sockaddr *)&address, &len), "getsockname");
	*port = ntohs(address.sin_port);
	return fd;
}

static void case_endpoints(void)
{
	char dead[64], silent[64];
	const char *endpoints[3] = {dead, silent, NULL};
	struct members_config config = config_of(endpoints, 3);
	struct etcd_server s, other;
	unsigned short port;
	struct host h[2];
	int fd = silent_port(&port);

	etcd_start(&s, "etcd", false);
	etcd_start(&other, "other", false);
	snprintf(dead, sizeof(dead), "http://127.0.0.1:%hu", free_port());
	snprintf(silent, sizeof(silent), "http://127.0.0.1:%hu/", port);
	endpoints[2] = s.url;
	host_open_at(&h[0], &config, "a", 4001);
	host_open(&h[1], &s, "b", 4002);
	WAIT(sees(&h[0], "b") && sees(&h[1], "a"), OFTEN_ENOUGH(SOON_S));
	WAIT(good(&h[0]), SOON_S);
	host_close(&h[0]);
	/* The one that answered is asked on; when it falls silent, another one is. */
	endpoints[1] = other.url;
	host_open_at(&h[0], &config, "a", 4001);
	WAIT(good(&h[0]), OFTEN_ENOUGH(SOON_S));
	kill(other.pid, SIGSTOP);
	WAIT(sees(&h[0], "b"), OFTEN_ENOUGH(SOON_S));
	kill(other.pid, SIGCONT);
	host_close(&h[0]);
	host_close(&h[1]);
	etcd_kill(&s);
	etcd_kill(&other);
	close(fd);
}

/* Nobody waits for an etcd that hangs. */
static void case_hangs(void)
{
	struct etcd_server s;
	struct host h[3];
	uint64_t start, longest = 0;

	etcd_start(&s, "etcd", false);
	three(h, &s);
	kill(s.pid, SIGSTOP);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t ns;

		start = clock_ns();
		members_spare(h[0].members, i * MIB);
		good(&h[0]);
		ns = clock_ns() - start;
		longest = ns > longest ? ns : longest;
		usleep(1000);
	}
	printf("  the longest call: %llu us\n", (unsigned long long)(longest / CLOCK_US));
	CHECK(longest < 500 * CLOCK_MS, "a call waited"); /* a request waits 1 s */
	WAIT(says(&h[0], "127.0.0.1"), SOON_S);
	CHECK(number(&h[0]) == 2 && number(&h[1]) == 2, "what is known stays");
	close_three(h);
	kill(s.pid, SIGCONT);
	etcd_kill(&s);
}

static void tls_refused(const struct etcd_server *s, const char *ca, const char *certificate,
			const char *what)
{
	char cert[160], key[160], ca_file[160];
	const char *endpoints[] = {s->url};
	struct members_config config = config_of(endpoints, 1);
	struct host h;

	snprintf(ca_file, sizeof(ca_file), "%s", scratch_path(ca));
	config.ca_file = ca_file;
	if (certificate) {
		snprintf(cert, sizeof(cert), "%s.pem", scratch_path(certificate));
		snprintf(key, sizeof(key), "%s.key", scratch_path(certificate));
		config.cert_file = cert;
		config.key_file = key;
	}
	host_open_at(&h, &config, "x", 4009);
	WAIT(says(&h, "https://127.0.0.1"), SOON_S);
	printf("  %s: %s\n", what, why(&h));
	sleep(1);
	CHECK(!calls(&h) && !good(&h), "%s: was served", what);
	host_close(&h);
}

static void case_tls(void)
{
	char cert[160], key[160], ca[160];
	struct etcd_server s;
	const char *endpoints[] = {s.url};
	struct members_config config = config_of(endpoints, 1);
	struct host h[2];

	make_authority("authority");
	make_authority("strangers");
	make_certificate("authority", "server");
	make_certificate("authority", "host");
	make_certificate("strangers", "stranger");
	etcd_start(&s, "etcd", true);
	snprintf(ca, sizeof(ca), "%s", scratch_path("authority.pem"));
	snprintf(cert, sizeof(cert), "%s", scratch_path("host.pem"));
	snprintf(key, sizeof(key), "%s", scratch_path("host.key"));
	config.ca_file = ca;
	config.cert_file = cert;
	config.key_file = key;
	host_open_at(&h[0], &config, "a", 4001);
	host_open_at(&h[1], &config, "b", 4002);
	WAIT(sees(&h[0], "b") && sees(&h[1], "a"), OFTEN_ENOUGH(SOON_S));
	tls_refused(&s, "strangers.pem", "host", "another authority for etcd");
	tls_refused(&s, "authority.pem", NULL, "no certificate of ours");
	tls_refused(&s, "authority.pem", "stranger", "a certificate of another authority");
	CHECK(!sees(&h[0], "x") && number(&h[0]) == 1, "who was refused is published");
	host_close(&h[0]);
	host_close(&h[1]);
	etcd_kill(&s);
}

/* ---- What others wrote ---------------------------------------------------------------------- */

static int own_stderr = -1;
static FILE *copier; /* of stderr */

/* A copy of what is said goes to a file. */
static void catch_log(void)
{
	char command[200];

	snprintf(command, sizeof(command), "exec tee %s >&2", scratch_path("log"));
	copier = popen(command, "we");
	CHECK(copier, "tee");
	own_stderr = fcntl(2, F_DUPFD_CLOEXEC, 10);
	dup2(fileno(copier), 2);
}

static unsigned caught(const char *what)
{
	FILE *f = fopen(scratch_path("log"), "re");
	char line[1024];
	unsigned nr = 0;

	CHECK(f, "log");
	while (fgets(line, sizeof(line), f))
		nr += strstr(line, what) != NULL;
	fclose(f);
	return nr;
}

static void release_log(void)
{
	dup2(own_stderr, 2);
	close(own_stderr);
	pclose(copier);
}

#define VALUE(name, address, spare, epoch)                                                         \
	"'{\"name\":\"" name "\",\"address\":\"" address "\",\"spare\":" spare ",\"epoch\":" epoch \
	"}'"

static const char *const garbage[][2] = {
	{"no-json", "hello"},
	{"array", "'[1,2]'"},
	{"empty", "''"},
	{"name-of-a", VALUE("a", "192.0.2.9:1", "1", "\"1\"")},
	{"name-of-nobody", VALUE("nobody", "192.0.2.9:1", "1", "\"1\"")},
	{"no-port", VALUE("no-port", "192.0.2.9", "1", "\"1\"")},
	{"port-0", VALUE("port-0", "192.0.2.9:0", "1", "\"1\"")},
	{"negative", VALUE("negative", "192.0.2.9:1", "-1", "\"1\"")},
	{"real", VALUE("real", "192.0.2.9:1", "1.5", "\"1\"")},
	{"huge", VALUE("huge", "192.0.2.9:1", "\"99999999999999999999\"", "\"1\"")},
	{"epoch-0", VALUE("epoch-0", "192.0.2.9:1", "1", "\"0\"")},
	{"no-spare", "'{\"name\":\"no-spare\",\"address\":\"192.0.2.9:1\",\"epoch\":\"1\"}'"},
	{"twice", "'{\"name\":\"twice\",\"name\":\"twice\",\"address\":\"192.0.2.9:1\","
		  "\"spare\":1,\"epoch\":\"1\"}'"},
	{"'a b'", VALUE("a b", "192.0.2.9:1", "1", "\"1\"")},
	{"-dash", VALUE("-dash", "192.0.2.9:1", "1", "\"1\"")},
	{"''", VALUE("", "192.0.2.9:1", "1", "\"1\"")},
	{"$(printf 'x%.0s' $(seq 64))", VALUE("x", "192.0.2.9:1", "1", "\"1\"")},
	{"long", "\"$(printf '{\"name\":\"long\",\"address\":\"192.0.2.9:1\",\"spare\":1,"
		 "\"epoch\":\"1\",\"x\":\"%2000s\"}' '')\""},
};

/* It writes a line for the terminal; what etcd has is a control character. */
static const char escape[] = "'no\033[31mjson'";

static void case_garbage(void)
{
	const unsigned nr = sizeof(garbage) / sizeof(garbage[0]);
	struct etcd_server s;
	struct host h[3];
	struct member m;

	etcd_start(&s, "etcd", false);
	catch_log();
	three(h, &s);
	CHECK(!etcdctl(&s, "put -- /tmemd/hosts/%s x", escape), "put");
	WAIT(caught("no.[31mjson"), SOON_S);
	for (unsigned i = 0; i < nr; i++)
		CHECK(!etcdctl(&s, "put -- /tmemd/hosts/%s %s", garbage[i][0], garbage[i][1]),
		      "put %s", garbage[i][0]);
	/* Another group's, and another kind of thing: nobody's business. */
	CHECK(!etcdctl(&s, "put /tmemd/hosts/rack2/z x") && !etcdctl(&s, "put /tmemd/elsewhere x"),
	      "put");
	/* A good one by hand, to see that all before it was looked at. */
	CHECK(!etcdctl(&s, "put /tmemd/hosts/zz %s", VALUE("zz", "[2001:db8::1]:77", "5", "6")),
	      "put");
	for (unsigned i = 0; i < 3; i++) {
		WAIT(find(&h[i], "zz", &m), SOON_S);
		CHECK(number(&h[i]) == 3, "%u hosts", number(&h[i]));
		CHECK(m.epoch == 6 && m.spare_bytes == 5, "zz");
	}
	sleep(2);
	CHECK(caught("is not used: its") > 0, "it is said");
	CHECK(caught("is not used") <= LOG_BURST, "%u lines", caught("is not used"));
	CHECK(!caught("\033"), "a control character in the log");
	CHECK(!caught("rack2") && !caught("elsewhere"), "said what is nobody's business");
	/* Our own key with something else, or away, is put right. */
	CHECK(!etcdctl(&s, "put /tmemd/hosts/a nonsense"), "put");
	CHECK(!etcdctl(&s, "put /tmemd/hosts/b %s", VALUE("b", "192.0.2.9:1", "1", "\"1\"")),
	      "put");
	sleep(1); /* all have seen it */
	WAIT(find(&h[2], "b", &m) && !strcmp(m.address, "192.0.2.1:4002"), SOON_S);
	WAIT(sees(&h[1], "a") && sees(&h[2], "a"), SOON_S);
	close_three(h);
	release_log();
	etcd_kill(&s);
}

/* Two hosts with one name: the first one stays, the second one is told. */
static void case_same_name(void)
{
	struct etcd_server s;
	struct host h, first, second;
	struct member m;

	etcd_start(&s, "etcd", false);
	host_open(&h, &s, "a", 4001);
	host_open(&first, &s, "b", 4002);
	WAIT(good(&first) && sees(&h, "b"), OFTEN_ENOUGH(SOON_S));
	host_open(&second, &s, "b", 4003);
	WAIT(says(&second, "another host is published as b, at 192.0.2.1:4002"), SOON_S);
	sleep(TTL_S + 1);
	CHECK(find(&h, "b", &m) && !strcmp(m.address, "192.0.2.1:4002"), "at %s", m.address);
	CHECK(good(&first), "%s", why(&first));
	WAIT(sees(&second, "a"), SOON_S); /* it learns of the others all the same */
	host_close(&first);
	WAIT(good(&second) && find(&h, "b", &m) && !strcmp(m.address, "192.0.2.1:4003"), SOON_S);
	host_close(&second);
	host_close(&h);
	etcd_kill(&s);
}

/* Keys of hosts [from, to) by one transaction. */
static void put_many(const struct etcd_server *s, unsigned from, unsigned to)
{
	FILE *f = fopen(scratch_path("txn"), "we");

	CHECK(f, "txn");
	fputs("\n", f);
	for (unsigned i = from; i < to; i++)
		fprintf(f,
			"put /tmemd/hosts/%04u \"{\\\"name\\\":\\\"%04u\\\",\\\"address\\\":"
			"\\\"192.0.2.9:1\\\",\\\"spare\\\":1,\\\"epoch\\\":\\\"1\\\"}\"\n",
			i, i);
	fputs("\n\n", f);
	fclose(f);
	CHECK(!etcdctl(s, "txn < %s", scratch_path("txn")), "txn of %u to %u", from, to);
}

static void case_many(void)
{
	struct etcd_server s;
	struct host h[3];

	etcd_start(&s, "etcd", false);
	three(h, &s);
	sleep(TTL_S + 1); /* who is missing is gone at once now */
	/* The names of the many are before those of a, b and c: who is known stays. */
	for (unsigned i = 0; i < 300; i += 100)
		put_many(&s, i, i + 100);
	for (unsigned i = 0; i < 3; i++) {
		WAIT(number(&h[i]) == MEMBERS_MAX, SOON_S);
		CHECK(sees(&h[i], i ? "a" : "c"), "who was known is not used any more");
	}
	/* More than are read at all: our own key is not among them, which is no reason to write. */
	for (unsigned i = 300; i < 1100; i += 100)
		put_many(&s, i, i + 100);
	sleep(2);
	for (unsigned i = 0; i < 3; i++) {
		CHECK(number(&h[i]) == MEMBERS_MAX && sees(&h[i], i ? "a" : "c"), "who was known");
		CHECK(good(&h[i]), "%s", why(&h[i]));
	}
	close_three(h);
	etcd_kill(&s);
}

/* An answer above the bound is refused as a whole; what is known stays. */
static void case_too_much(void)
{
	struct etcd_server s;
	struct host h[3];

	etcd_start(&s, "etcd", false);
	three(h, &s);
	CHECK(!system("head -c 1400000 /dev/zero | tr '\\0' x > \"$LOG.large\""), "large");
	for (unsigned i = 0; i < 10; i++)
		CHECK(!etcdctl(&s, "put /tmemd/hosts/large%u < $LOG.large", i), "put %u", i);
	WAIT(says(&h[0], "16 MiB"), SOON_S);
	CHECK(number(&h[0]) == 2, "what is known stays");
	CHECK(!etcdctl(&s, "del --prefix /tmemd/hosts/large"), "del");
	members_spare(h[1].members, MIB);
	WAIT(good(&h[0]) && sees_spare(&h[0], "b", MIB), SOON_S);
	close_three(h);
	etcd_kill(&s);
}

/* What answers is no etcd at all: answers each connection with the same, `times` times. */
struct stranger {
	int fd;
	const char *answer;
	unsigned times;
	pthread_t thread;
};

static void *be_strange(void *arg)
{
	struct stranger *t = arg;
	char request[4096];
	int fd;

	while ((fd = accept(t->fd, NULL, NULL)) >= 0) {
		if (recv(fd, request, sizeof(request), 0) > 0)
			for (unsigned i = 0; i < t->times; i++)
				if (send(fd, t->answer, strlen(t->answer), MSG_NOSIGNAL) < 0)
					break;
		shutdown(fd, SHUT_WR);
		while (recv(fd, request, sizeof(request), 0) > 0)
			;
		close(fd);
	}
	return NULL;
}

static void stranger(const char *answer, unsigned times, const char *said)
{
	struct stranger t = {.answer = answer, .times = times};
	struct member before = self_of("b", 4002);
	char url[64];
	const char *endpoints[] = {url};
	struct members_config config = config_of(endpoints, 1);
	unsigned short port;
	struct host h;

	t.fd = silent_port(&port);
	CHECK(!pthread_create(&t.thread, NULL, be_strange, &t), "thread");
	snprintf(url, sizeof(url), "http://127.0.0.1:%hu", port);
	config.hosts = &before;
	config.nr_hosts = 1;
	host_open_at(&h, &config, "a", 4001);
	WAIT(says(&h, said), SOON_S);
	printf("  %s\n", why(&h));
	CHECK(calls(&h) == 1 && sees(&h, "b"), "what is known stays");
	host_close(&h);
	shutdown(t.fd, SHUT_RDWR);
	pthread_join(t.thread, NULL);
	close(t.fd);
}

static void case_stranger(void)
{
	static char mib[(1 << 20) + 1];

	stranger("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 1, "does not speak as etcd");
	stranger("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 1, "does not speak as etcd");
	stranger("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", 1, "127.0.0.1");
	stranger("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 1, "answers 404");
	stranger("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		 1, "answers 302");
	stranger("SSH-2.0-OpenSSH\r\n", 1, "127.0.0.1");
	stranger("", 1, "127.0.0.1");
	/* Without an end. */
	memset(mib, 'x', sizeof(mib) - 1);
	memcpy(mib, "HTTP/1.1 200 OK\r\n\r\n", 19);
	stranger(mib, 1000, "16 MiB");
}

/* ---- Without etcd --------------------------------------------------------------------------- */

static void case_static(void)
{
	struct member list[3], self = self_of("b", 4002);
	struct members_config config = {.hosts = list, .nr_hosts = 3};
	struct host h = {.fewest = UINT32_MAX};
	char err[256] = "", host[MEMBER_ADDRESS];
	uint16_t port;

	pthread_mutex_init(&h.lock, NULL);
	CHECK(!member_parse(&list[0], "c=host-c.example:4003", err, sizeof(err)), "%s", err);
	CHECK(!member_parse(&list[1], "b=192.0.2.1:4002", err, sizeof(err)), "%s", err);
	CHECK(!member_parse(&list[2], "a=[2001:db8::1]:4001", err, sizeof(err)), "%s", err);
	CHECK(!members_open(&h.members, members_engine("static"), &config, &self, changed, &h, err,
			    sizeof(err)),
	      "%s", err);
	CHECK(h.calls == 1 && h.nr == 2 && sees(&h, "a") && sees(&h, "c"), "%u", h.nr);
	CHECK(sees_spare(&h, "a", MEMBER_SPARE_UNKNOWN) && good(&h), "a");
	CHECK(member_address(h.list[0].address, host, &port) && !strcmp(host, "2001:db8::1") &&
		      port == 4001,
	      "%s", host);
	members_spare(h.members, 1);
	members_close(h.members);
	members_close(NULL);
	list[2] = list[0];
	CHECK(members_open(&h.members, members_engine("static"), &config, &self, changed, &h, err,
			   sizeof(err)) == -EINVAL &&
		      strstr(err, "twice"),
	      "%s", err);
	CHECK(!members_engine("zookeeper"), "an engine that is not there");
}

static void case_words(void)
{
	static const char *const wrong[] = {"",	       "a",	 "a=",	      "=h:1",	 "a=h",
					    "a=h:",    "a=h:0",	 "a=h:65536", "a=:1",	 "a=h:1x",
					    "a b=h:1", "-a=h:1", "a=[::1:1",  "a=h h:1", "a=[]:1",
					    "a=::1:1", "a=h:+1", "a=[h.g]:1"};
	struct members_config config = {.nr_endpoints = 0};
	const char *endpoint = "127.0.0.1:2379";
	struct member m, self = self_of("a", 1);
	struct members *members;
	char err[256];

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err[0] = 0;
		CHECK(member_parse(&m, wrong[i], err, sizeof(err)) == -EINVAL && err[0],
		      "\"%s\" is accepted", wrong[i]);
	}
#define REFUSED(what)                                                                              \
	CHECK(members_open(&members, members_engine("etcd"), &config, &self, changed, NULL, err,   \
			   sizeof(err)) == -EINVAL &&                                              \
		      strstr(err, what),                                                           \
	      "%s", err)
	REFUSED("no endpoints");
	config.endpoints = &endpoint;
	config.nr_endpoints = 1;
	REFUSED("is not http://");
	endpoint = "http://127.0.0.1:2379";
	config.cert_file = "/x";
	REFUSED("certificate needs its key");
	config.cert_file = NULL;
	config.prefix = "";
	REFUSED("prefix");
	config.prefix = NULL;
	config.ttl_s = 1;
	REFUSED("lease takes");
	config.ttl_s = 0;
	self.epoch = 0;
	REFUSED("no epoch");
	strcpy(self.name, "a/b");
	REFUSED("no name");
}

/* ---- Main ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(void);
	bool etcd;
} cases[] = {
	{"static", case_static, false},
	{"words", case_words, false},
	{"see-each-other", case_see_each_other, true},
	{"spare", case_spare, true},
	{"killed", case_killed, true},
	{"away", case_away, true},
	{"lease-lost", case_lease_lost, true},
	{"known-before", case_known_before, true},
	{"endpoints", case_endpoints, true},
	{"hangs", case_hangs, true},
	{"tls", case_tls, true},
	{"garbage", case_garbage, true},
	{"same-name", case_same_name, true},
	{"many", case_many, true},
	{"too-much", case_too_much, true},
	{"stranger", case_stranger, false},
};

static _Noreturn void be_host(const char *name, const char *url)
{
	struct etcd_server s = {.pid = 0};
	struct host h;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(s.url, sizeof(s.url), "%s", url);
	host_open(&h, &s, name, 4100);
	for (;;)
		pause();
}

static bool wanted(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

/* In a process of its own, with its own directory: most of a case is waiting for a lease to end. */
static void begin_case(unsigned i)
{
	uint64_t start = clock_ns();
	pid_t pid = fork();
	char name[32];

	CHECK(pid >= 0, "fork");
	if (pid)
		return;
	snprintf(name, sizeof(name), "members-%.16s", cases[i].name);
	scratch_make(name);
	setenv("LOG", scratch_path("etcdctl.log"), 1);
	cases[i].run();
	printf("ok: %s, %.1f s\n", cases[i].name, (double)(clock_ns() - start) / 1e9);
	exit(0);
}

/* Waits for one; 0 when it passed. */
static int end_case(void)
{
	int status;

	CHECK(wait(&status) > 0, "wait");
	return status;
}

int main(int argc, char **argv)
{
	const char *missing = etcd_missing();
	unsigned running = 0, skipped = 0;
	int failed = 0;

	self_path = "/proc/self/exe";
	log_setup(LOG_INFO, false);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && !strcmp(argv[1], "--host"))
		be_host(argv[2], argv[3]);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!wanted(argc, argv, cases[i].name))
			continue;
		if (cases[i].etcd && missing) {
			skipped++;
			continue;
		}
		if (running == AT_ONCE)
			failed |= end_case();
		else
			running++;
		begin_case(i);
	}
	while (running--)
		failed |= end_case();
	if (skipped)
		printf("SKIP: %u cases: %s\n", skipped, missing);
	return failed ? 1 : skipped ? SKIPPED : 0;
}
