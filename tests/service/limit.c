// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmemd in a control group at its memory limit (case 6, case 9): the pool ends below the limit,
 * puts are refused, ephemeral pages make room, nothing is killed, every page is right. Of this
 * machine's own hierarchy, version 2 or 1; tests/vm/cases/hostmem.sh does it with version 2 in a
 * guest.
 */
#include "player.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define LIMIT (56 * MIB)
#define HANDLES 24000

static const struct kind {
	const char *root, *limit, *usage, *events;
} kinds[] = {
	{"/sys/fs/cgroup", "memory.max", "memory.current", "memory.events"},
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	 "memory.oom_control"},
};

static const struct kind *kind;
static char group[100];

static bool write_to(const char *dir, const char *file, const char *text)
{
	char path[200];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = write(fd, text, strlen(text));
		close(fd);
	}
	return n == (ssize_t)strlen(text);
}

/* The number behind `key` in a file of the group. */
static unsigned long long read_from(const char *file, const char *key)
{
	char path[200], text[1024], *at;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", group, file);
	f = fopen(path, "re");
	CHECK(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	at = strstr(text, key);
	CHECK(at);
	return strtoull(at + strlen(key), NULL, 10);
}

/* The group ends with its last process. */
static void remove_group(void)
{
	service_kill(SIGKILL);
	for (int i = 0; i < 200 && rmdir(group) && errno == EBUSY; i++)
		player_nap_ms(10);
}

static bool make_group(void)
{
	char limit[32];

	snprintf(limit, sizeof(limit), "%llu", LIMIT);
	for (kind = kinds; kind < kinds + 2; kind++) {
		snprintf(group, sizeof(group), "%s/tmemd-test-%d", kind->root, (int)getpid());
		if (mkdir(group, 0700))
			continue;
		if (write_to(group, kind->limit, limit)) {
			atexit(remove_group);
			return true;
		}
		rmdir(group);
	}
	return false;
}

/* tmemd begins its life in the group, and this process goes back to where it was. */
static void start_in_group(void)
{
	char home[200] = "", line[300], *at;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		at = strrchr(line, ':');
		if (strstr(line, kind == kinds ? "0::" : ":memory:"))
			snprintf(home, sizeof(home), "%s%.100s", kind->root, at + 1);
	}
	CHECK(f && home[0]);
	fclose(f);
	CHECK(write_to(group, "cgroup.procs", "0"));
	service_start(NULL);
	CHECK(write_to(home, "cgroup.procs", "0"));
}

/* Puts all handles of both pools; what is in `stamps` afterwards was accepted. */
static unsigned fill(struct tmem_ring *ring, const uint32_t pools[2], uint64_t *stamps,
		     struct rng *rng)
{
	uint8_t page[PAGE_BYTES];
	unsigned refused = 0;

	for (uint32_t i = 0; i < HANDLES; i++) {
		struct tmem_handle kept = handle_at(pools[0], i), spare = handle_at(pools[1], i);
		int r;

		stamps[i] = rng_next(rng) | 1;
		page_make(page, stamps[i]);
		CHECK(tmem_put(ring, &spare, page) >= -ENOMEM);
		r = tmem_put(ring, &kept, page);
		CHECK(r == 1 || r == -ENOMEM);
		if (r == 1)
			continue;
		stamps[i] = 0;
		refused++;
	}
	return refused;
}

static unsigned verify(struct tmem_ring *ring, uint32_t pool, const uint64_t *stamps)
{
	uint8_t page[PAGE_BYTES];
	unsigned held = 0;

	for (uint32_t i = 0; i < HANDLES; i++) {
		struct tmem_handle handle = handle_at(pool, i);

		CHECK_IS(tmem_get(ring, &handle, page), stamps[i] != 0);
		CHECK(!stamps[i] || page_is(page, stamps[i]));
		held += stamps[i] != 0;
	}
	return held;
}

int main(int argc, char **argv)
{
	struct rng rng = {argc > 1 ? strtoull(argv[1], NULL, 10) : test_seed()};
	static uint64_t stamps[HANDLES];
	struct tmem_client *client, *other;
	char err[256];
	unsigned refused, held;
	uint32_t pools[2];
	int status;

	if (!make_group()) {
		printf("skipped: no control group with a memory limit can be made here\n");
		return SKIPPED;
	}
	printf("seed %llu, %s\n", (unsigned long long)rng.state, group);
	service_configure("limit", "");
	start_in_group();
	client = player_open("vm1", 1, 128);
	pools[0] = player_pool(client, PERSISTENT);
	pools[1] = player_pool(client, EPHEMERAL);
	refused = fill(tmem_client_ring(client, 0), pools, stamps, &rng);
	held = verify(tmem_client_ring(client, 0), pools[0], stamps);
	printf("%llu of %llu bytes in use, %u pages held, %u refused, %llu evicted\n",
	       read_from(kind->usage, ""), LIMIT, held, refused,
	       (unsigned long long)service_counter("vm1", "evicted"));
	CHECK(refused && held);
	CHECK(read_from(kind->usage, "") > LIMIT / 2);
	CHECK_IS(read_from(kind->events, "oom_kill "), 0);
	/* Another guest's region of 8M has no room; that is refused, and nothing else happens. */
	CHECK(tmem_client_connect(&other, service_socket("vm2"), 5000, err, sizeof(err)));
	CHECK_IS(service_counter("vm2", "connects_refused"), 1);
	CHECK_IS(read_from(kind->events, "oom_kill "), 0);
	CHECK(!service_ended(&status));
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
	return 0;
}
