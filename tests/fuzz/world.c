// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/fuzz/world.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fuzz/audit.h"
#include "tests/fuzz/loads.h"
#include "tests/lib/pages.h"
#include "tests/lib/scratch.h"

#define CAPACITY (64ull << 20)
#define POOL_MAX (32ull << 20)
#define REGION (1u << 20)
#define PATIENCE 10000 /* turns */

struct world world = {.honest = {.name = "honest", .sock = -1, .region = -1},
		      .hostile = {.name = "hostile", .sock = -1, .region = -1}};

/* ---- Guests --------------------------------------------------------------------------------- */

/* A message of the ivshmem protocol; *fd is -1 when it has none. False at the end. */
static bool receive(int sock, int64_t *value, int *fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = value, .iov_len = sizeof(*value)};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.room,
				 .msg_controllen = sizeof(control.room)};

	*fd = -1;
	if (recvmsg(sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(*value))
		return false;
	if (message.msg_controllen && CMSG_FIRSTHDR(&message))
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(*fd));
	return true;
}

static void map_region(struct guest *guest, int fd)
{
	struct stat st;

	MUST(!fstat(fd, &st), "fstat");
	guest->region = fd;
	guest->bytes = (size_t)st.st_size;
	guest->base = mmap(NULL, guest->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(guest->base != MAP_FAILED, "mmap");
}

static void take_handed_out(struct guest *guest)
{
	unsigned in = 0, out = 0;
	int64_t value;
	int fd;

	while (receive(guest->sock, &value, &fd)) {
		if (fd < 0)
			continue;
		if (value == -1)
			map_region(guest, fd);
		else if (value == FRONT_SERVICE_PEER)
			guest->ring_service[out++] = fd;
		else
			guest->ring_guest[in++] = fd;
	}
	/* When we have no descriptors left, some do not arrive. */
	while (in > out)
		close(guest->ring_guest[--in]);
	while (out > in)
		close(guest->ring_service[--out]);
	guest->nr_bells = in;
}

bool guest_connect(struct guest *guest)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	world.armed = false; /* there may be another region */
	guest_close(guest);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", guest->socket);
	guest->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (guest->sock < 0 || connect(guest->sock, (struct sockaddr *)&address, sizeof(address))) {
		guest_close(guest);
		return false;
	}
	front_work(world.front);
	take_handed_out(guest);
	if (!guest->base)
		guest_close(guest);
	return guest->base;
}

void guest_hang_up(struct guest *guest)
{
	if (guest->sock >= 0)
		close(guest->sock);
	guest->sock = -1;
}

void guest_close(struct guest *guest)
{
	guest_hang_up(guest);
	for (unsigned i = 0; i < guest->nr_bells; i++) {
		close(guest->ring_service[i]);
		close(guest->ring_guest[i]);
	}
	guest->nr_bells = 0;
	if (guest->base)
		munmap(guest->base, guest->bytes);
	guest->base = NULL;
	if (guest->region >= 0)
		close(guest->region);
	guest->region = -1;
	guest->nr_rings = 0;
}

void guest_cut(struct guest *guest, size_t bytes)
{
	MUST(!ftruncate(guest->region, (off_t)bytes), "ftruncate");
	MUST(mmap(guest->base, guest->bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED,
	     "mmap");
}

void guest_say_hello(struct guest *guest, uint32_t rings, uint32_t entries, uint64_t features,
		     uint64_t epoch)
{
	struct tmem_region *page = guest_page(guest);

	page->guest_state = TMEM_GUEST_NONE;
	page->abi = TMEM_ABI_VERSION;
	page->features = features;
	page->nr_rings = rings;
	page->entries = entries;
	page->guest_epoch = epoch;
	page->former_epoch = 0;
	page->hello_offer = page->offer;
	page->guest_state = TMEM_GUEST_HELLO;
	guest->nr_rings = rings;
	guest->entries = entries;
	memset(guest->tail, 0, sizeof(guest->tail));
}

static uint8_t *ring_base(const struct guest *guest, unsigned ring)
{
	return guest->base + tmem_ring_off(ring, guest->entries);
}

struct tmem_ring_ctl *guest_ring(const struct guest *guest, unsigned ring)
{
	return (struct tmem_ring_ctl *)ring_base(guest, ring);
}

uint16_t *guest_sq(const struct guest *guest, unsigned ring, uint32_t place)
{
	return (uint16_t *)(ring_base(guest, ring) + tmem_ring_sq_off()) + place % guest->entries;
}

struct tmem_entry *guest_entry(const struct guest *guest, unsigned ring, unsigned number)
{
	return (struct tmem_entry *)(ring_base(guest, ring) +
				     tmem_ring_entries_off(guest->entries)) +
	       number;
}

uint8_t *guest_slot(const struct guest *guest, unsigned ring, unsigned number)
{
	return ring_base(guest, ring) + tmem_ring_slots_off(guest->entries) +
	       (size_t)number * TMEM_PAGE_SIZE;
}

void guest_submit(struct guest *guest, unsigned ring, unsigned number, struct tmem_entry *entry)
{
	uint32_t position = guest->tail[ring]++;
	struct tmem_entry *to = guest_entry(guest, ring, number);

	entry->seq = position + 1;
	memcpy(to, entry, offsetof(struct tmem_entry, status));
	*guest_sq(guest, ring, position) = (uint16_t)number;
	STORE_RELEASE(guest_ring(guest, ring)->sq_tail, position + 1);
}

/* ---- Changes between reads ------------------------------------------------------------------ */

static void on_load(const void *address)
{
	uint8_t *word = (uint8_t *)((uintptr_t)address & ~7ul);

	if (!world.armed || (size_t)(word - world.watched) >= world.watched_bytes ||
	    world.after-- > 0)
		return;
	world.armed = false;
	for (unsigned i = 0; i < 8; i++)
		word[i] ^= (uint8_t)(world.change >> 8 * i);
}

void world_arm(struct bytes *in)
{
	const struct front_client *client = world_client(world.hostile.name);

	world.after = (unsigned)take(in, 1);
	world.change = take(in, 1) & 1 ? take(in, 8) : 1ull << (take(in, 1) & 63);
	world.watched = client->region.base;
	world.watched_bytes = world.watched ? client->region.bytes : 0;
	world.armed = true;
}

/* ---- The honest one ------------------------------------------------------------------------- */

static int honest_call(struct tmem_entry *entry, uint8_t *page)
{
	struct guest *guest = &world.honest;
	unsigned number = guest->tail[0] % guest->entries;
	uint8_t *slot = guest_slot(guest, 0, number);

	if (entry->op == TMEM_PUT_PAGE)
		memcpy(slot, page, TMEM_PAGE_SIZE);
	guest_submit(guest, 0, number, entry);
	for (unsigned i = 0; guest_entry(guest, 0, number)->done != entry->seq; i++) {
		MUST(i < PATIENCE, "the honest guest is not served");
		front_work(world.front);
	}
	if (entry->op == TMEM_GET_PAGE)
		memcpy(page, slot, TMEM_PAGE_SIZE);
	return guest_entry(guest, 0, number)->status;
}

static struct tmem_entry page_entry(uint8_t op, unsigned page)
{
	return (struct tmem_entry){
		.op = op, .pool = world.pool, .object = {page / 4, 1, 2}, .index = page % 4};
}

void world_honest_put(unsigned i, uint64_t stamp)
{
	struct tmem_entry put = page_entry(TMEM_PUT_PAGE, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r;

	page_make(page, stamp);
	/* It has a guaranteed minimum: the background work has to make room for it. */
	do
		r = honest_call(&put, page);
	while (r == -ENOMEM && store_work(world.store));
	MUST(r == 1 || (world.frozen && r == -TMEM_EFROZEN), "an honest put: %d", r);
	world.stamps[i] = r == 1 ? stamp : 0;
}

void world_honest_look(unsigned i)
{
	struct tmem_entry get = page_entry(TMEM_GET_PAGE, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = honest_call(&get, page);

	MUST(r == (world.stamps[i] != 0), "honest page %u: %d", i, r);
	MUST(!r || page_is(page, world.stamps[i]), "honest page %u: wrong bytes", i);
}

static void make_honest(void)
{
	struct tmem_entry pool = {.op = TMEM_NEW_POOL, .index = PERSISTENT, .arg = 1};
	struct guest *guest = &world.honest;
	int r;

	MUST(guest_connect(guest), "the honest guest cannot connect");
	guest_say_hello(guest, 1, 8, TMEM_F_ALL, 1);
	world_work(3);
	MUST(guest_page(guest)->service_state == TMEM_SERVICE_CONNECTED, "no hello");
	r = honest_call(&pool, NULL);
	MUST(r >= 0, "no pool: %d", r);
	world.pool = (uint32_t)r;
	for (unsigned i = 0; i < HONEST_PAGES; i++)
		world_honest_put(i, i + 1);
}

/* ---- The service ---------------------------------------------------------------------------- */

struct front_client_config world_config(const char *name)
{
	bool honest = name == world.honest.name;

	return (struct front_client_config){
		.name = name,
		.socket = honest ? world.honest.socket : world.hostile.socket,
		.socket_uid = (uid_t)-1,
		.socket_gid = (gid_t)-1,
		.socket_mode = 0600,
		.region_bytes = REGION,
		.max_rings = honest ? 1 : HOSTILE_RINGS,
		.ring_credits = HOSTILE_CREDITS,
	};
}

void world_add(const struct front_client_config *config)
{
	char err[256];

	MUST(!front_client_add(world.front, config, err, sizeof(err)), "%s", err);
}

struct front_client *world_client(const char *name)
{
	for (unsigned i = 0; i < world.front->nr_slots; i++)
		if (world.front->clients[i] && !strcmp(world.front->clients[i]->name, name))
			return world.front->clients[i];
	return NULL;
}

static void open_front(void)
{
	struct front_config config = {
		.region_dir = scratch_path(""), .workers = 1, .poll_us = 0, .no_threads = true};
	char err[256];

	MUST(!front_open(&world.front, world.store, &config, err, sizeof(err)), "%s", err);
}

static void add(const char *name, uint64_t minimum)
{
	struct store_limits limits = {.min_bytes = minimum};
	struct front_client_config config = world_config(name);
	struct store_client *client;

	MUST(!store_client_open(world.store, name, &limits, &client), "client %s", name);
	world_add(&config);
}

static void open_store(void)
{
	struct store_config config = {.arena_path = scratch_path("arena"),
				      .pool_max = POOL_MAX,
				      .ready_chunks = 1,
				      .no_worker = true};
	struct arena arena;
	char err[256];

	/* A small one: the store would make it as large as the host's memory. */
	MUST(!arena_open(&arena, config.arena_path, CAPACITY, false, err, sizeof(err)), "%s", err);
	arena_close(&arena);
	MUST(!store_open(&world.store, &config, err, sizeof(err)), "%s", err);
}

void world_make(const char *name)
{
	scratch_make(name);
	snprintf(world.honest.socket, sizeof(world.honest.socket), "%s", scratch_path("honest"));
	snprintf(world.hostile.socket, sizeof(world.hostile.socket), "%s", scratch_path("hostile"));
	log_setup(LOG_ERROR - 1, false);
	fuzz_on_load = on_load;
	open_store();
	open_front();
	add(world.honest.name, 1u << 20);
	make_honest();
}

void world_begin(void)
{
	add(world.hostile.name, 0);
}

void world_work(unsigned turns)
{
	while (turns-- && front_work(world.front))
		;
}

void world_restart(const struct front_client_config *hostile)
{
	struct front_client_config honest = world_config(world.honest.name);

	world.armed = false;
	front_close(world.front);
	open_front();
	world_add(&honest);
	world_add(hostile);
	MUST(guest_connect(&world.honest), "the honest guest cannot connect again");
}

static void audit_gone(void)
{
	struct store_client *client = store_client_find(world.store, world.hostile.name);
	static const enum client_counter gauges[] = {CLIENT_PAGES_PERSISTENT,
						     CLIENT_PAGES_EPHEMERAL, CLIENT_PHYSICAL_BYTES,
						     CLIENT_CREDITS};

	for (unsigned i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++)
		MUST(!counter_get(&client->counters[gauges[i]]), "%s is left",
		     client_counter_info[gauges[i]].name);
	store_client_remove(client);
}

void world_end(void)
{
	world.armed = false;
	store_freeze(world.store, false);
	world.frozen = false;
	atomic_store(&world.store->pressure, false);
	audit_store(world.store);
	for (unsigned i = 0; i < HONEST_PAGES; i++)
		world_honest_look(i);
	front_client_remove(world.front, world.hostile.name);
	guest_close(&world.hostile);
	while (pool_sweep(world.store))
		;
	audit_gone();
	audit_store(world.store);
	for (unsigned i = 0; i < HONEST_PAGES; i++)
		if (!world.stamps[i])
			world_honest_put(i, i + 1);
}
