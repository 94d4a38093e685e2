// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Bytes to the control socket. Whatever they are, each line gets one answer, in order, with the id
 * that the request had.
 */
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "control/control_priv.h"
#include "proto/control.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "tests/fuzz/audit.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"

#define CAPACITY (64ull << 20)
#define POOL_MAX (32ull << 20)
#define PRIVATE (TMEM_SPEC_VERSION << TMEM_POOL_VERSION_SHIFT)
#define PAGES 8
#define PATIENCE 10000 /* turns of the loop, a millisecond each at most */

static struct event_base *base;
static struct control *control;
static struct store *store;
static struct store_client *clients[2];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* A reclaim that finds nothing naps until its time is over. Here it naps for nothing. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)time;
	(void)left;
	return 0;
}

/* ---- The service ---------------------------------------------------------------------------- */

static int channel(void *arg, const char *name, struct control_channel *ch)
{
	(void)arg;
	if (strcmp(name, "a"))
		return -ENOENT;
	*ch = (struct control_channel){
		.attached = true, .connected = true, .pid = 1, .rings = 2, .entries = 64};
	strcpy(ch->socket, "/run/tmem/a.sock");
	return 0;
}

static void refresh(void *arg)
{
	(void)arg;
}

/* Disks as the service has them: clients of the store with a size. No front end ever comes. */
#define NR_DISKS 3
static struct fake_disk {
	struct store_client *client; /* NULL: free */
	struct control_disk is;
} disks[NR_DISKS];

static struct fake_disk *find_disk(const char *name)
{
	for (unsigned i = 0; i < NR_DISKS; i++)
		if (disks[i].client && !strcmp(store_client_name(disks[i].client), name))
			return &disks[i];
	return NULL;
}

static int disk(void *arg, const char *name, struct control_disk *is)
{
	const struct fake_disk *found = find_disk(name);

	(void)arg;
	if (found)
		*is = found->is;
	return found ? 0 : -ENOENT;
}

static int refuse(int error, char *err, size_t errlen)
{
	snprintf(err, errlen, "%s", strerror(-error));
	return error;
}

static void check_asked(const struct config_disk *d)
{
	MUST(name_valid(d->name), "the store would refuse \"%s\"", d->name);
	MUST(d->bytes && d->bytes % CONFIG_DISK_BLOCK == 0 && d->bytes <= CONFIG_DISK_MAX, "size");
	MUST(d->queues && d->queues <= CONFIG_DISK_QUEUES && d->overcommit <= 1, "queues");
	MUST(d->socket[0] == '/' && memchr(d->socket, 0, sizeof(d->socket)) &&
		     d->socket_mode <= 0777,
	     "socket");
	MUST(!d->limits.max_bytes || d->limits.min_bytes <= d->limits.max_bytes, "limits");
	MUST(d->limits.weight && d->limits.weight <= 10000, "weight");
}

/* One with overcommit is at first only kept, as after a restart. */
static int disk_create(void *arg, const struct config_disk *d, char *err, size_t errlen)
{
	struct fake_disk *place = find_disk(d->name);
	int r;

	(void)arg;
	check_asked(d);
	if (place) {
		MUST(!place->is.served && place->is.bytes == d->bytes, "made twice");
		place->is.served = true;
		return 0;
	}
	for (unsigned i = 0; i < NR_DISKS && !place; i++)
		place = disks[i].client ? NULL : &disks[i];
	if (!place || store_client_find(store, d->name))
		return refuse(-EEXIST, err, errlen);
	r = store_client_open(store, d->name, &d->limits, &place->client);
	if (r)
		return refuse(r, err, errlen);
	place->is = (struct control_disk){.served = !d->overcommit,
					  .command = true,
					  .overcommit = d->overcommit,
					  .queues = d->queues,
					  .bytes = d->bytes,
					  .socket_mode = d->socket_mode,
					  .socket_uid = d->socket_uid,
					  .socket_gid = d->socket_gid};
	strcpy(place->is.socket, d->socket);
	return 0;
}

static int disk_resize(void *arg, const char *name, uint64_t bytes, char *err, size_t errlen)
{
	struct fake_disk *found = find_disk(name);

	(void)arg;
	MUST(bytes && bytes % CONFIG_DISK_BLOCK == 0 && bytes <= CONFIG_DISK_MAX, "size");
	if (!found || bytes < found->is.bytes) {
		snprintf(err, errlen, "disk \"%s\" cannot be that", name);
		return found ? -EINVAL : -ENOENT;
	}
	found->is.bytes = bytes;
	return 0;
}

static int disk_remove(void *arg, const char *name, bool force, char *err, size_t errlen)
{
	struct fake_disk *found = find_disk(name);

	(void)arg;
	if (!found || (found->is.overcommit && !force)) {
		snprintf(err, errlen, "disk \"%s\" cannot be removed", name);
		return found ? -EBUSY : -ENOENT;
	}
	control_exclude(control, true);
	store_client_remove(found->client);
	control_exclude(control, false);
	found->client = NULL;
	return 0;
}

static uint64_t exposure(void *arg)
{
	struct store_limits limits;
	uint64_t sum = 0;

	(void)arg;
	for (unsigned i = 0; i < NR_DISKS; i++) {
		if (!disks[i].client)
			continue;
		store_client_limits(disks[i].client, &limits);
		sum += config_disk_exposure(disks[i].is.bytes, limits.min_bytes);
	}
	for (unsigned i = 0; i < 2 && sum; i++) {
		store_client_limits(clients[i], &limits);
		sum += limits.min_bytes;
	}
	return sum;
}

/* No guest is ever saved or brought here; the bytes of a stream are tests/fuzz/restore's. */
static int save(void *arg, const struct control_save *how, const struct stream_io *io,
		struct stream_totals *totals, char *err, size_t errlen)
{
	(void)arg;
	(void)errlen;
	err[0] = 0;
	memset(totals, 0, sizeof(*totals));
	if (!store_client_find(store, how->name))
		return -ENOENT;
	return io->write(io->arg, how->name, strlen(how->name));
}

static int restore(void *arg, const char *name, const struct stream_io *io,
		   struct tmem_stream_head *head, struct stream_totals *totals, char *err,
		   size_t errlen)
{
	(void)arg;
	(void)errlen;
	err[0] = 0;
	memset(totals, 0, sizeof(*totals));
	if (!store_client_find(store, name))
		return -ENOENT;
	return io->read(io->arg, head, sizeof(*head));
}

static int restore_discard(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, "a") ? -ENOENT : 0;
}

/* One domain, which does what is wished at once but for giving its device back. */
static struct control_domain domain = {"a", "web", 7, {1, 2}, CONTROL_DEVICE_LEFT};

static unsigned list_domains(void *arg, struct control_domain *list, unsigned room)
{
	(void)arg;
	if (room)
		list[0] = domain;
	return room ? 1 : 0;
}

static int domain_find(void *arg, const char *text, struct control_domain *found, char *err,
		       size_t errlen)
{
	(void)arg;
	*found = domain;
	if (!strcmp(text, "web") || !strcmp(text, "7"))
		return 0;
	snprintf(err, errlen, "there is no domain \"%s\"", text);
	return strcmp(text, "9") ? -ENOENT : -ENODEV;
}

static void domain_wish(void *arg, const char *client, enum control_wish wish)
{
	(void)arg;
	(void)client;
	domain.device = wish == CONTROL_WISH_TAKE ? CONTROL_DEVICE_LEAVING : CONTROL_DEVICE_OFFERED;
}

static void open_store(void)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = POOL_MAX,
				      .ready_chunks = 1,
				      .no_worker = true};
	struct arena arena;
	char err[256];

	MUST(!arena_open(&arena, config.arena_path, CAPACITY, false, err, sizeof(err)), "%s", err);
	arena_close(&arena);
	MUST(!store_open(&store, &config, err, sizeof(err)), "%s", err);
}

/* As at the start, whatever the last input commanded. */
static void settle(void)
{
	static const struct store_limits none;
	static const uint64_t uuid[2] = {1, 2};
	uint8_t page[PAGE_BYTES];

	for (unsigned i = 0; i < NR_DISKS; i++) {
		if (disks[i].client)
			store_client_remove(disks[i].client);
		disks[i].client = NULL;
	}
	store_freeze(store, false);
	MUST(!store_set_pool_max(store, POOL_MAX), "pool_max");
	for (unsigned i = 0; i < 2; i++) {
		store_client_freeze(clients[i], false);
		MUST(!store_client_set_limits(clients[i], &none), "limits");
		memset(clients[i]->rec->auth, 0, sizeof(clients[i]->rec->auth));
	}
	store_shared_auth(clients[0], uuid, true);
	store_pool_new(clients[0], PRIVATE, uuid, 1);
	store_pool_new(clients[0], PRIVATE | TMEM_POOL_PERSIST, uuid, 2);
	store_pool_new(clients[0], PRIVATE | TMEM_POOL_SHARED, uuid, 0);
	for (unsigned i = 0; i < PAGES; i++) {
		struct store_handle handle = {.pool = i % 3, .index = i};

		page_make(page, i + 1);
		while (store_put(clients[0], &handle, page, 0) == -ENOMEM && store_work(store))
			;
	}
}

/* Two peers, which say something else each time. */
static bool peer(void *arg, unsigned i, struct control_peer *info)
{
	static uint64_t calls;

	(void)arg;
	if (i >= 2)
		return false;
	*info = (struct control_peer){.name = "peer",
				      .host = "192.0.2.1",
				      .port = 8636,
				      .state = "down",
				      .why = "it does not answer"};
	info->up = ++calls & 1;
	info->spare_bytes = info->counters[0] = info->get_latency[calls % 24] = calls;
	return true;
}

static bool lending(void *arg, struct control_lending *info)
{
	(void)arg;
	*info = (struct control_lending){.name = "host", .port = 8636, .lend_bytes = 1 << 20};
	return true;
}

static int peer_change(void *arg, enum control_peer_change change, const char *name,
		       uint32_t deadline_ms, char *err, size_t errlen)
{
	(void)arg;
	(void)deadline_ms;
	MUST(name, "a change of nobody");
	if (!strcmp(name, "peer"))
		return 0;
	snprintf(err, errlen, "%d: nobody is called so", (int)change);
	return -ENOENT;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct control_ops ops = {
		.channel = channel,
		.refresh = refresh,
		.disk = disk,
		.disk_create = disk_create,
		.disk_resize = disk_resize,
		.disk_remove = disk_remove,
		.save = save,
		.restore = restore,
		.restore_discard = restore_discard,
		.domains = list_domains,
		.domain_find = domain_find,
		.domain_wish = domain_wish,
		.exposure = exposure,
		.peer = peer,
		.lending = lending,
		.peer_change = peer_change,
	};
	static const struct store_limits none;
	struct config config = {.control_mode = 0600, .control_gid = (uint32_t)-1};
	char err[256];

	(void)argc;
	(void)argv;
	scratch_make("fuzz-control");
	log_setup(LOG_ERROR - 1, false);
	open_store();
	MUST(!store_client_open(store, "a", &none, &clients[0]) &&
		     !store_client_open(store, "b", &none, &clients[1]),
	     "clients");
	snprintf(config.control_socket, sizeof(config.control_socket), "%s",
		 scratch_path("control"));
	strcpy(address.sun_path, config.control_socket);
	base = event_base_new();
	MUST(base && !control_open(&control, base, store, &config, &ops, NULL, err, sizeof(err)),
	     "%s", err);
	/* Long commands end after one step. */
	atomic_store(&control->cancel, true);
	return 0;
}

/* ---- What is answered ----------------------------------------------------------------------- */

/* Checks one answer; `line` (NULL: something that never was one) is what was asked. */
static void check_answer(const char *text, size_t len, const uint8_t *line, size_t line_len)
{
	json_t *answer = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	json_t *ok = json_object_get(answer, TMEM_KEY_OK);
	json_t *error = json_object_get(answer, TMEM_KEY_ERROR), *asked = NULL;

	MUST(json_is_object(answer), "the answer is no object: %.*s", (int)len, text);
	MUST(json_is_boolean(ok), "the answer is neither ok nor not");
	if (json_is_true(ok))
		MUST(json_is_object(json_object_get(answer, TMEM_KEY_RESULT)) && !error,
		     "no result");
	else
		MUST(json_string_length(json_object_get(error, TMEM_KEY_CODE)) &&
			     json_string_length(json_object_get(error, TMEM_KEY_MESSAGE)) &&
			     !json_object_get(answer, TMEM_KEY_RESULT),
		     "no error");
	if (line)
		asked = json_loadb((const char *)line, line_len, JSON_REJECT_DUPLICATES, NULL);
	MUST(json_is_object(asked) || json_is_false(ok), "what is no request succeeds");
	if (json_object_get(asked, TMEM_KEY_ID))
		MUST(json_equal(json_object_get(asked, TMEM_KEY_ID),
				json_object_get(answer, TMEM_KEY_ID)),
		     "another id");
	else
		MUST(!json_object_get(answer, TMEM_KEY_ID), "an id from nowhere");
	json_decref(asked);
	json_decref(answer);
}

/* One turn of the service's loop; waits only for a long command. */
static void turn(void)
{
	struct pollfd job = {.fd = control->wake_fd, .events = POLLIN};

	if (control->jobs)
		poll(&job, 1, 1);
	event_base_loop(base, EVLOOP_NONBLOCK);
}

/* Sends the bytes in pieces, and nothing more; then takes all answers. They must be freed. */
static char *converse(const uint8_t *data, size_t size, size_t piece, size_t *len)
{
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char *answers = NULL;
	ssize_t n = -1;
	size_t sent = 0;

	MUST(sock >= 0 && !connect(sock, (struct sockaddr *)&address, sizeof(address)), "connect");
	*len = 0;
	for (unsigned i = 0; n; i++) {
		MUST(i < PATIENCE, "no end of it");
		if (sent < size) {
			n = send(sock, data + sent, size - sent < piece ? size - sent : piece,
				 MSG_NOSIGNAL);
			sent = n < 0 && errno != EAGAIN ? size : n < 0 ? sent : sent + (size_t)n;
		}
		if (sent == size)
			shutdown(sock, SHUT_WR);
		turn();
		answers = realloc(answers, *len + 65536);
		MUST(answers, "memory");
		n = recv(sock, answers + *len, 65536, 0);
		*len += n > 0 ? (size_t)n : 0;
		if (n < 0 && errno != EAGAIN)
			n = 0;
	}
	close(sock);
	return answers;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? 1 + (size_t)data[0] * data[0] : 1, len;
	const uint8_t *at = data, *end = data + size, *eol;
	char *answers, *next, *newline;

	settle();
	answers = next = converse(data, size, piece, &len);
	while (at < end) {
		eol = memchr(at, '\n', (size_t)(end - at));
		newline = memchr(next, '\n', (size_t)(answers + len - next));
		/* Behind a line that is too long nothing is heard. */
		if (!newline && eol && (size_t)(eol - at) < TMEM_CONTROL_MAX_REQUEST)
			MUST(next > answers && !strncmp(next - 2, "}\n", 2), "a line unanswered");
		if (!newline)
			break;
		/* From here on the connection carries a stream, and then it ends. */
		if (!strncmp(next, "{\"go\":", 6)) {
			next = answers + len;
			break;
		}
		check_answer(next, (size_t)(newline - next), eol ? at : NULL,
			     eol ? (size_t)(eol - at) : 0);
		next = newline + 1;
		at = eol ? eol + 1 : end;
	}
	MUST(next == answers + len, "more answers than requests");
	free(answers);
	/* A connection or a job of ours that is left would be one for ever. */
	for (unsigned i = 0; control->connections || control->jobs; i++) {
		MUST(i < PATIENCE, "a connection is left");
		turn();
	}
	audit_store(store);
	return 0;
}
