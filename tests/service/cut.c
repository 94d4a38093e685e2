// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Regions that change under the service: vm1's owner cuts its region, grows it, or punches holes
 * into it, at a random moment and in each state of the handshake. The life of vm1 ends, or only
 * its own data is nonsense; vm2 notices nothing, and vm1's name can be used again. And regions
 * whose life the arena does not know: their guest is told so.
 */
#include "raw.h"
#include "store/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES 64
#define REGION (8 << 20)

static struct tmem_client *victim;
static uint32_t pool, stored;

static void served(void)
{
	CHECK_IS(player_put(victim, pool, stored, stored), 1);
	stored++;
	for (uint32_t i = stored > 20 ? stored - 20 : 0; i < stored; i++)
		CHECK_IS(player_get(victim, pool, i, i), 1);
}

/* ---- At random ------------------------------------------------------------------------------ */

static void harm(int fd, struct rng *rng)
{
	off_t at = (off_t)rng_below(rng, REGION);

	switch (rng_below(rng, 5)) {
	case 0:
		ftruncate(fd, 0);
		break;
	case 1:
		ftruncate(fd, at);
		break;
	case 2:
		ftruncate(fd, at);
		ftruncate(fd, REGION);
		break;
	case 3:
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at & -4096, 1 << 20);
		break;
	default:
		ftruncate(fd, REGION + at);
		break;
	}
}

/* The owner's own view of what it cut is gone as well: it writes by pwrite(2) only. */
static void submit_blindly(int fd, struct rng *rng)
{
	struct tmem_entry e = {.op = rng_below(rng, 2) ? TMEM_PUT_PAGE : TMEM_GET_PAGE};
	off_t ring = (off_t)tmem_ring_off(0, ENTRIES);
	uint32_t tail = 0;

	if (pread(fd, &tail, sizeof(tail), ring) < 0)
		return;
	for (unsigned i = 0; i < 8; i++, tail++) {
		e.seq = tail + 1;
		e.index = tail;
		pwrite(fd, &e, offsetof(struct tmem_entry, status),
		       ring + tmem_ring_entries_off(ENTRIES) + (off_t)sizeof(e) * (tail % ENTRIES));
		pwrite(fd, &(uint16_t){(uint16_t)(tail % ENTRIES)}, 2,
		       ring + tmem_ring_sq_off() + 2 * (tail % ENTRIES));
		pwrite(fd, &tail, sizeof(tail), ring);
	}
}

static void cutter(uint64_t seed)
{
	struct rng rng = {seed};
	struct tmem_hello hello = {.rings = 4, .entries = ENTRIES, .features = TMEM_F_ALL};
	struct tmem_client *client;
	char err[256];
	int fd;

	CHECK(!tmem_client_connect(&client, service_socket("vm1"), 30000, err, sizeof(err)));
	fd = tmem_client_region_fd(client);
	if (rng_below(&rng, 4)) {
		CHECK(!tmem_client_hello(client, &hello));
		player_pool(client, PERSISTENT);
	}
	for (unsigned i = rng_below(&rng, 20); i; i--)
		submit_blindly(fd, &rng);
	harm(fd, &rng);
	for (unsigned i = rng_below(&rng, 20); i; i--)
		submit_blindly(fd, &rng);
	if (!rng_below(&rng, 4))
		player_nap_ms(150);
	_exit(0);
}

static void at_random(struct rng *rng, uint64_t rounds)
{
	uint64_t lives = service_counter("vm1", "lives");

	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t seed = rng_next(rng);
		pid_t child = player_fork();

		if (!child)
			cutter(seed);
		served();
		player_join(child);
		if (i % 50 == 25) {
			service_kill(SIGKILL);
			service_start(NULL);
			lives = 0;
		}
	}
	CHECK(service_counter("vm1", "lives") > lives || rounds < 10);
}

/* ---- One by one ----------------------------------------------------------------------------- */

enum state { CONNECTED, GREETED, REFUSED };

/* A client of this process; `state` of the handshake. */
static struct tmem_client *client_in(enum state state)
{
	struct tmem_hello hello = {.rings = 1, .entries = ENTRIES, .features = TMEM_F_ALL};
	struct tmem_client *client;
	char err[256];

	CHECK(!tmem_client_connect(&client, service_socket("vm1"), 30000, err, sizeof(err)));
	if (state == REFUSED)
		hello.rings = 1000;
	hello.exact = true;
	if (state != CONNECTED)
		CHECK_IS(tmem_client_hello(client, &hello), state == REFUSED ? -ECONNREFUSED : 0);
	return client;
}

/* Grown: cut to its size again, and the life is over; its guest can still read that. */
static void grown(void)
{
	for (enum state state = CONNECTED; state <= REFUSED; state++) {
		struct tmem_client *client = client_in(state);
		const struct tmem_region *page;
		struct stat st;
		size_t bytes;

		page = tmem_client_region(client, &bytes);
		CHECK(!ftruncate(tmem_client_region_fd(client), 2 * REGION));
		EVENTUALLY(page->refusal == TMEM_REFUSED_STATE);
		CHECK_IS(page->service_state, TMEM_SERVICE_REFUSED);
		CHECK(!fstat(tmem_client_region_fd(client), &st));
		CHECK_IS(st.st_size, REGION);
		served();
		tmem_client_close(client);
	}
}

/* Shrunk to its first page, so that this process may still look at that. */
static void shrunk(void)
{
	unsigned said = service_log_lines("cut the region");

	for (unsigned i = 0; i < 24; i++) {
		struct tmem_client *client = client_in((enum state)(i % 3));

		CHECK(!ftruncate(tmem_client_region_fd(client), 4096));
		EVENTUALLY(access(service_socket("vm1.region"), F_OK));
		served();
		tmem_client_close(client);
	}
	/* Of 24: 10, and how many were held back. */
	CHECK(service_log_lines("cut the region") - said <= 12);
}

/* ---- Regions without a note ----------------------------------------------------------------- */

static struct tmem_region *make_orphan(off_t bytes, int *fd)
{
	struct tmem_region *page;

	*fd = open(service_socket("vm1.region"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(*fd >= 0 && !ftruncate(*fd, bytes));
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	CHECK(page != MAP_FAILED);
	page->guest_epoch = 77;
	page->guest_state = TMEM_GUEST_HELLO;
	return page;
}

/*
 * A guest that waits for pages of an arena that is gone is told so. A region that its owner has
 * made a gigabyte long meanwhile does not fill the host's memory.
 */
static void orphans(void)
{
	static const off_t sizes[] = {REGION, 4096, 1 << 30};

	for (unsigned i = 0; i < 3; i++) {
		struct tmem_region *page;
		struct stat st;
		int fd;

		CHECK_IS(service_kill(SIGTERM), 0);
		page = make_orphan(sizes[i], &fd);
		service_start(NULL);
		CHECK_IS(page->refusal, TMEM_REFUSED_STATE);
		CHECK_IS(page->service_state, TMEM_SERVICE_REFUSED);
		CHECK_IS(page->answered_epoch, 77);
		CHECK(access(service_socket("vm1.region"), F_OK));
		CHECK(!fstat(fd, &st) && st.st_blocks * 512 <= REGION);
		munmap(page, 4096);
		close(fd);
		served();
	}
}

/* The same when the arena itself was removed under a living guest. */
static void arena_gone(void)
{
	struct tmem_client *client = client_in(GREETED);
	const struct tmem_region *page;
	size_t bytes;

	CHECK_IS(player_put(client, player_pool(client, PERSISTENT), 1, 1), 1);
	CHECK_IS(service_kill(SIGTERM), 0);
	CHECK(!unlink(service_socket("arena")));
	service_start(NULL);
	page = tmem_client_region(client, &bytes);
	CHECK_IS(page->refusal, TMEM_REFUSED_STATE);
	CHECK(tmem_client_refused(client));
	CHECK(tmem_client_refused(victim));
	tmem_client_close(client);
	tmem_client_close(victim);
	/* Both names can be used again. */
	client = client_in(GREETED);
	CHECK_IS(player_put(client, player_pool(client, PERSISTENT), 1, 1), 1);
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
}

/* A bit of what the arena says of vm1's life, while the service is away (case 5). */
static void damage_record(struct rng *rng)
{
	int fd = open(service_socket("arena"), O_RDWR | O_CLOEXEC);
	struct client_rec *rec;
	char *arena;

	CHECK(fd >= 0);
	arena = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(arena != MAP_FAILED);
	rec = (struct client_rec *)(arena + ((struct superblock *)arena)->clients_off);
	while (strcmp(rec->name, "vm1"))
		rec++;
	CHECK(rec->note_sel);
	rec->note[rec->note_sel & 1][rng_below(rng, rec->note_sel >> 1)] ^= 1 << rng_below(rng, 8);
	munmap(arena, 1 << 20);
	close(fd);
}

/* Its life ends, its guest is told; all others are served. */
static void damaged_record(struct rng *rng)
{
	unsigned ended = 0;

	for (uint64_t n = test_scaled(20); n; n--) {
		struct tmem_client *client = client_in(GREETED);

		CHECK_IS(player_put(client, player_pool(client, PERSISTENT), 1, 1), 1);
		service_kill(SIGKILL);
		damage_record(rng);
		service_start(NULL);
		CHECK_IS(service_log_lines("the record of its life is damaged"), ++ended);
		CHECK(tmem_client_refused(client));
		tmem_client_close(client);
		served();
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();
	struct rng rng = {seed};
	struct service_costs before, after;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	service_configure("cut", "");
	service_start(NULL);
	victim = player_open("vm2", 1, 32);
	pool = player_pool(victim, PERSISTENT);
	at_random(&rng, test_scaled(150));
	service_costs_at_rest(&before);
	RUN(grown);
	RUN(shrunk);
	EVENTUALLY((service_costs(&after), after.files) == before.files);
	CHECK_IS(service_counter("vm2", "pages_persistent"), stored);
	RUN(orphans);
	printf("damaged_record\n");
	damaged_record(&rng);
	RUN(arena_gone);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
