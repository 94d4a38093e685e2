// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A hostile guest at the door: connections, hellos with any values, a first page that it writes
 * where it must not, a region that it cuts, and an operator and a host that change things
 * meanwhile. What is answered to a hello is worked out here a second time.
 */
#include "tests/fuzz/world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/scratch.h"

#define MAX_OPERATIONS 60

static struct {
	uint64_t epoch;
	struct front_client_config config;
} me;

static struct front_client *client(void)
{
	return world_client(world.hostile.name);
}

/* ---- What is answered ----------------------------------------------------------------------- */

struct said {
	uint32_t abi;
	uint64_t features;
	uint32_t rings;
	uint32_t entries;
	uint64_t former;
};

/* The reason to refuse, with both values; TMEM_REFUSED_NOT: none. */
static enum tmem_refusal expected(const struct said *said, uint64_t values[2])
{
	uint64_t need;

	values[0] = said->abi;
	values[1] = TMEM_ABI_VERSION;
	if (said->abi != TMEM_ABI_VERSION)
		return TMEM_REFUSED_ABI;
	values[0] = said->features;
	values[1] = client()->offered;
	if (said->features & ~client()->offered)
		return TMEM_REFUSED_FEATURES;
	values[0] = said->rings;
	values[1] = client()->max_rings;
	if (said->rings < 1 || said->rings > client()->max_rings)
		return TMEM_REFUSED_RINGS;
	values[0] = said->entries;
	values[1] = TMEM_MAX_ENTRIES;
	if (said->entries < TMEM_MIN_ENTRIES || said->entries > TMEM_MAX_ENTRIES ||
	    __builtin_popcount(said->entries) != 1)
		return TMEM_REFUSED_ENTRIES;
	need = tmem_region_need(said->rings, said->entries);
	values[0] = need;
	values[1] = world.hostile.bytes;
	if (need > world.hostile.bytes)
		return TMEM_REFUSED_SIZE;
	values[0] = values[1] = 0;
	if (said->features & TMEM_F_RESUME && said->former)
		return TMEM_REFUSED_STATE;
	return TMEM_REFUSED_NOT;
}

static void check_answer(const struct said *said, uint64_t epoch)
{
	const struct tmem_region *page = guest_page(&world.hostile);
	uint64_t values[2];
	enum tmem_refusal want = expected(said, values);
	bool connected = world_client(world.hostile.name)->epoch == epoch;

	MUST(page->answered_epoch == epoch, "the hello was not answered");
	MUST(page->refusal == want, "refusal %u, not %u", page->refusal, want);
	MUST(connected == !want, "refused and served, or neither");
	MUST(page->service_state == (want ? TMEM_SERVICE_REFUSED : TMEM_SERVICE_CONNECTED),
	     "state %u", page->service_state);
	MUST(!want || (page->refused_guest == values[0] && page->refused_service == values[1]),
	     "refusal %u names %llu and %llu", want, (unsigned long long)page->refused_guest,
	     (unsigned long long)page->refused_service);
	if (want)
		return;
	for (unsigned i = 0; i < said->rings; i++) {
		const struct tmem_ring_ctl *ctl = guest_ring(&world.hostile, i);

		MUST(!ctl->sq_tail && !ctl->cq_tail && ctl->credits <= said->entries / 2,
		     "ring %u is not as the guest may expect", i);
	}
}

/* ---- What the guest does -------------------------------------------------------------------- */

static void connect_again(void)
{
	guest_hang_up(&world.hostile);
	front_work(world.front);
	guest_connect(&world.hostile);
}

/* Now and then anything, else what makes sense. */
static uint64_t value(struct bytes *in, uint64_t sensible, unsigned bytes)
{
	return (take(in, 1) & 7) == 7 ? take(in, bytes) : sensible;
}

static void hello(struct bytes *in)
{
	struct said said = {
		.abi = (uint32_t)value(in, TMEM_ABI_VERSION, 4),
		.features = value(in, take(in, 1) & 3, 8),
		.rings = (uint32_t)value(in, take(in, 1) & 7, 4),
		.entries = (uint32_t)value(in, 8u << (take(in, 1) & 7), 4),
	};
	bool raced = world.armed;

	if (!world.hostile.base)
		return;
	/* A new one: what was scribbled may have been a hello, and answered. */
	me.epoch = client()->answered + 1 ? client()->answered + 1 : 1;
	guest_say_hello(&world.hostile, said.rings, said.entries, said.features, me.epoch);
	guest_page(&world.hostile)->abi = said.abi;
	guest_page(&world.hostile)->hello_offer = client()->offer_id;
	/* Nothing was ever restored here. */
	if (said.features & TMEM_F_RESUME)
		said.former = take(in, 1) & 7 ? 0 : take(in, 8);
	guest_page(&world.hostile)->former_epoch = said.former;
	client()->hello_after = 0;
	world_work(1);
	if (client()->region.fd >= 0 && !raced && client()->region.inode)
		check_answer(&said, me.epoch);
}

static void bye(void)
{
	if (world.hostile.base)
		guest_page(&world.hostile)->guest_state = TMEM_GUEST_BYE;
	world_work(1);
}

static void patch_page(struct bytes *in)
{
	unsigned at = take(in, 1) * 2, len = 1 + (take(in, 1) & 15);

	for (unsigned i = 0; i < len && world.hostile.base; i++)
		world.hostile.base[at + i] = (uint8_t)take(in, 1);
	client()->hello_after = 0;
}

static void speak(struct bytes *in)
{
	uint8_t text[16] = {0};
	size_t n = take(in, 1) & 15;

	if (world.hostile.sock >= 0 &&
	    send(world.hostile.sock, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		MUST(errno == EPIPE || errno == EAGAIN, "send");
	world_work(1);
}

static void cut(struct bytes *in)
{
	unsigned how = take(in, 1);
	size_t bytes = take(in, 3) % (2 * world.hostile.bytes + 1);

	if (!world.hostile.base)
		return;
	if (how & 1)
		MUST(!fallocate(world.hostile.region, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)bytes, 1 << 16),
		     "fallocate");
	else
		guest_cut(&world.hostile, bytes);
	if (how & 2)
		world.front->next_tick = 0;
	world_work(1);
	world.front->next_tick = 0;
	world_work(2);
	if (!(how & 1))
		connect_again();
}

static void ring_bells(struct bytes *in)
{
	uint64_t n = take(in, 1) + 1;

	for (unsigned v = 0; v < world.hostile.nr_bells; v++)
		if (write(world.hostile.ring_service[v], &n, sizeof(n)) < 0)
			MUST(errno == EAGAIN, "a doorbell cannot be rung");
	world_work(2);
}

/* ---- What others do ------------------------------------------------------------------------- */

static void operator_changes(struct bytes *in)
{
	unsigned what = take(in, 1);

	me.config.ring_credits = take(in, 1) & 15;
	me.config.max_rings = 1 + (take(in, 1) & 7);
	me.config.region_bytes = 1u << (20 + (take(in, 1) & 1));
	if (what & 1) {
		front_client_remove(world.front, world.hostile.name);
		guest_close(&world.hostile);
	}
	world_add(&me.config);
}

/* The process runs out of descriptors. */
static void descriptors(struct bytes *in)
{
	struct rlimit before, few;
	int lowest = dup(0);

	close(lowest);
	MUST(!getrlimit(RLIMIT_NOFILE, &before), "getrlimit");
	few = before;
	few.rlim_cur = (rlim_t)lowest + (take(in, 1) & 31);
	MUST(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
	connect_again();
	MUST(!setrlimit(RLIMIT_NOFILE, &before), "setrlimit");
	world_work(4);
}

static void operation(struct bytes *in)
{
	switch (take(in, 1) % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		hello(in);
		break;
	case 4:
		bye();
		break;
	case 5:
		connect_again();
		break;
	case 6:
	case 7:
		patch_page(in);
		break;
	case 8:
		world_arm(in);
		break;
	case 9:
		speak(in);
		break;
	case 10:
		cut(in);
		break;
	case 11:
		ring_bells(in);
		break;
	case 12:
		operator_changes(in);
		break;
	case 13:
		descriptors(in);
		break;
	case 14:
		world_restart(&me.config);
		break;
	default:
		world.front->next_tick = 0;
		world_work(2);
	}
}

static unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	MUST(d, "/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	world_make("fuzz-handshake");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned before;
	struct bytes in = {data, data + size};

	memset(&me, 0, sizeof(me));
	me.config = world_config(world.hostile.name);
	world_begin();
	connect_again();
	for (unsigned i = 0; i < MAX_OPERATIONS && more(&in); i++)
		operation(&in);
	world_end();
	if (!before)
		before = open_descriptors();
	MUST(open_descriptors() == before, "descriptors leak: %u, then %u", before,
	     open_descriptors());
	return 0;
}
