// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The page path of the whole service allocates, frees and maps nothing, and faults in no memory
 * (case 6): its workers carry a hook that ends tmemd when they do, while guests do all that a ring
 * can ask for, until memory is refused and beyond.
 */
#include "player.h"

#include "tests/lib/noalloc.h"

#ifdef NOALLOC_SKIPS
int main(void)
{
	puts(NOALLOC_SKIPS);
	return SKIPPED;
}
#else
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOOK "tests/service/noalloc.so"
#define WORKERS 2
#define HANDLES 8000
#define STEPS 60000

/* In the process that the hook must end. */
static int bite(void)
{
	void *p;

	prctl(PR_SET_NAME, "tmemd-worker", 0, 0, 0);
	p = malloc(100);
	printf("%p\n", p);
	return 0;
}

static void preload(bool on)
{
	char path[4096];

	CHECK(getcwd(path, sizeof(path) - sizeof(HOOK) - 1));
	strcat(strcat(path, "/"), HOOK);
	CHECK(!access(path, R_OK));
	if (on) {
		setenv("LD_PRELOAD", path, 1);
		setenv("NOALLOC_REPORT", scratch_path("watched"), 1);
	} else {
		unsetenv("LD_PRELOAD");
	}
}

static void hook_bites(const char *self)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		preload(true);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		execl(self, self, "bite", NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_IS(WEXITSTATUS(status), NOALLOC_STATUS);
	CHECK(!unlink(scratch_path("watched")));
}

struct faults {
	unsigned threads;
	long minor, major;
};

/* Of the workers, from /proc. */
static struct faults faults(void)
{
	struct faults f = {0};
	char path[300], text[1024], *behind;
	struct dirent *entry;
	long minor, major;
	FILE *file;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)service_pid());
	dir = opendir(path);
	CHECK(dir);
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)service_pid(),
			 entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		CHECK(fgets(text, sizeof(text), file) || entry->d_name[0] == '.');
		fclose(file);
		behind = strstr(text, "(tmemd-worker) ");
		if (!behind)
			continue;
		CHECK_IS(sscanf(behind, "(%*[^)]) %*c %*d %*d %*d %*d %*d %*u %ld %*d %ld", &minor,
				&major),
			 2);
		f.threads++;
		f.minor += minor;
		f.major += major;
	}
	closedir(dir);
	return f;
}

struct guest {
	struct tmem_client *client;
	uint32_t pools[2];
	unsigned stored, refused, hits;
};

static void guest_open(struct guest *guest, const char *name)
{
	memset(guest, 0, sizeof(*guest));
	guest->client = player_open(name, 4, 128);
	guest->pools[0] = player_pool(guest->client, PERSISTENT);
	guest->pools[1] = player_pool(guest->client, EPHEMERAL);
}

/* Everything that a ring entry can be; the pools of odd steps come and go. */
static void rare(struct guest *guest, struct tmem_ring *ring, struct rng *rng)
{
	uint64_t object[3] = {rng_below(rng, HANDLES / 64), 0, 0};
	struct tmem_request nonsense = {.op = 77};
	struct tmem_result result;
	int pool;

	switch (rng_below(rng, 3)) {
	case 0:
		CHECK(tmem_flush_object(ring, guest->pools[0], object) >= 0);
		break;
	case 1:
		pool = tmem_new_pool(ring, PERSISTENT, NULL);
		CHECK(pool >= 0);
		CHECK(tmem_destroy_pool(ring, (uint32_t)pool) >= 0);
		break;
	default:
		CHECK_IS(tmem_submit(ring, &nonsense), 0);
		CHECK(tmem_wait(ring) >= 0 && tmem_reap(ring, &result, 1) <= 1);
	}
}

static void step(struct guest *guest, struct rng *rng)
{
	struct tmem_ring *ring = tmem_client_ring(guest->client, rng_below(rng, 4));
	struct tmem_handle handle =
		handle_at(guest->pools[rng_below(rng, 2)], rng_below(rng, HANDLES));
	uint8_t page[PAGE_BYTES];
	int r = -ENOBUFS;

	switch (rng_below(rng, 16)) {
	case 0:
		CHECK(tmem_flush(ring, &handle) >= 0);
		break;
	case 1:
	case 2:
	case 3:
		guest->hits += tmem_get(ring, &handle, page) == 1;
		break;
	case 4:
		if (rng_permille(rng, 20))
			rare(guest, ring, rng);
		break;
	default:
		page_make(page, rng_next(rng));
		if (rng_below(rng, 2))
			r = tmem_put_posted(ring, &handle, page);
		if (r == -ENOBUFS)
			r = tmem_put(ring, &handle, page);
		CHECK(r == 1 || r == -ENOMEM);
		guest->stored += r == 1;
		guest->refused += r != 1;
	}
}

int main(int argc, char **argv)
{
	struct rng rng = {argc > 1 ? strtoull(argv[1], NULL, 10) : test_seed()};
	struct faults before, after;
	struct guest guests[2];
	struct stat watched;
	uint64_t steps = test_scaled(STEPS);
	int status;

	if (argc > 1 && !strcmp(argv[1], "bite"))
		return bite();
	printf("seed %llu\n", (unsigned long long)rng.state);
	service_configure("noalloc", "");
	hook_bites(argv[0]);
	preload(true);
	service_start(NULL);
	preload(false);
	EVENTUALLY(!stat(scratch_path("watched"), &watched) && watched.st_size == WORKERS);
	service_ctl("set pool_max=24M");
	guest_open(&guests[0], "vm1");
	guest_open(&guests[1], "vm2");
	for (uint64_t i = 0; i < 2000; i++) /* code, stacks and libraries' pages */
		step(&guests[i & 1], &rng);
	before = faults();
	for (uint64_t i = 0; i < steps; i++)
		step(&guests[i & 1], &rng);
	after = faults();
	CHECK(!service_ended(&status));
	CHECK_IS(after.threads, WORKERS);
	printf("%u puts, %u refused, %u hits: nothing allocated by the workers; %ld minor and %ld "
	       "major page faults\n",
	       guests[0].stored + guests[1].stored, guests[0].refused + guests[1].refused,
	       guests[0].hits + guests[1].hits, after.minor - before.minor,
	       after.major - before.major);
	CHECK(guests[0].hits && (guests[0].refused || steps < STEPS));
	CHECK_IS(after.major, before.major);
	/* Which page of a library is first used when is not ours to say: a handful. */
	CHECK(after.minor - before.minor <= 16 * WORKERS);
	for (int i = 0; i < 2; i++)
		CHECK_IS(tmem_client_bye(guests[i].client), 0);
	/* In order its threads would end, and the libraries free what was theirs. */
	service_kill(SIGKILL);
	return 0;
}
#endif
