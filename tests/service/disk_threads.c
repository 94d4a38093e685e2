// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk for many threads of one program (tools/vhost/vhost_disk.h): more threads than it has
 * slots, data verified, and tmemd killed under them: no request fails, every block is right
 * (case 15). Then what ends a wait: a limit in time, the end of the program, a disk that was made
 * anew.
 */
#include "blockload.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tools/vhost/vhost_disk.h"

#define THREADS 40

static atomic_uint lines;
static atomic_bool at_the_end;

static void say(const char *line)
{
	printf("  %s\n", line);
	fflush(stdout);
	atomic_fetch_add(&lines, 1);
}

static bool ending(void)
{
	return atomic_load(&at_the_end);
}

static int op_read(void *arg, void *buf, uint32_t bytes, uint64_t offset)
{
	return vhost_disk_read(arg, buf, bytes, offset);
}

static int op_write(void *arg, const void *buf, uint32_t bytes, uint64_t offset)
{
	return vhost_disk_write(arg, buf, bytes, offset);
}

static int op_zero(void *arg, uint32_t bytes, uint64_t offset)
{
	return vhost_disk_zero(arg, bytes, offset);
}

static int op_flush(void *arg)
{
	uint64_t bytes;
	int r = vhost_disk_size(arg, &bytes);

	CHECK(r || bytes == DISK_BYTES);
	return r ? r : vhost_disk_flush(arg);
}

static const struct block_ops ops = {op_read, op_write, op_zero, op_flush};

/* The former front end may not be noticed to have gone yet. */
static struct vhost_disk *open_disk(unsigned timeout_s)
{
	struct vhost_disk_options options = {.socket = service_socket("d1"),
					     .timeout_s = timeout_s,
					     .say = say,
					     .ending = ending};
	struct vhost_disk *disk;
	int r, turns = 0;

	while ((r = vhost_disk_open(&disk, &options)) == -EBUSY && turns++ < 500)
		player_nap_ms(10);
	CHECK_IS(r, 0);
	return disk;
}

static void under_load(uint64_t seed)
{
	static struct blockload load;
	struct vhost_disk *disk = open_disk(0);
	struct rng rng = {seed};
	void *args[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		args[i] = disk;
	CHECK_IS(vhost_disk_lock_memory(disk), 0);
	blockload_init(&load, &ops, THREADS, args, seed);
	blockload_start(&load);
	for (uint64_t i = 0; i < test_scaled(8); i++) {
		blockload_some_work(&load, 5);
		player_nap_ms(rng_below(&rng, 50));
		service_kill(i % 4 == 3 ? SIGTERM : SIGKILL);
		player_nap_ms(rng_below(&rng, 300));
		service_start(NULL);
	}
	blockload_some_work(&load, 5);
	blockload_end(&load);
	printf("%llu requests, the longest %llu ms\n", (unsigned long long)blockload_done(&load),
	       (unsigned long long)blockload_longest_ms(&load));
	blockload_free(&load);
	vhost_disk_close(disk);
}

static void refusals(void)
{
	struct vhost_disk_options options = {.socket = service_socket("d1")};
	struct vhost_disk *disk = open_disk(0), *other;
	uint8_t page[BLOCK] = {1};
	int turns = 0;

	CHECK_IS(vhost_disk_open(&other, &options), -EBUSY);
	CHECK(!other);
	options.socket = service_socket("none");
	CHECK_IS(vhost_disk_open(&other, &options), -ENOENT);
	CHECK_IS(vhost_disk_read(disk, page, 512, 0), -EINVAL);
	CHECK_IS(vhost_disk_write(disk, page, BLOCK, 512), -EINVAL);
	CHECK_IS(vhost_disk_zero(disk, BLOCK - 1, 0), -EINVAL);
	CHECK_IS(vhost_disk_read(disk, page, BLOCK, DISK_BYTES), -EIO);
	CHECK_IS(vhost_disk_write(disk, page, BLOCK, 1ull << 62), -EIO);
	CHECK_IS(vhost_disk_flush(disk), 0);
	vhost_disk_close(disk);
	while (vhost_disk_probe(service_socket("d1")) == -EBUSY && turns++ < 500)
		player_nap_ms(10);
	CHECK(turns < 500);
}

static void waits_end(void)
{
	struct vhost_disk *disk = open_disk(1);
	uint8_t page[BLOCK], got[BLOCK];
	uint64_t bytes, start;

	page_make(page, 77);
	CHECK_IS(vhost_disk_write(disk, page, BLOCK, 0), 0);
	service_kill(SIGKILL);
	start = vu_now_ms();
	CHECK_IS(vhost_disk_read(disk, got, BLOCK, 0), -ETIMEDOUT);
	CHECK_IS(vhost_disk_size(disk, &bytes), -ETIMEDOUT);
	CHECK(vu_now_ms() - start >= 2000);
	service_start(NULL);
	EVENTUALLY(!vhost_disk_read(disk, got, BLOCK, 0));
	CHECK(page_is(got, 77));
	vhost_disk_close(disk);

	disk = open_disk(0);
	service_kill(SIGKILL);
	atomic_store(&at_the_end, true);
	CHECK_IS(vhost_disk_read(disk, got, BLOCK, 0), -ESHUTDOWN);
	atomic_store(&at_the_end, false);
	vhost_disk_close(disk); /* while it is away */
	service_start(NULL);
}

static void other_content(void)
{
	struct vhost_disk *disk = open_disk(0);
	uint8_t page[BLOCK] = {1};
	uint64_t bytes;

	CHECK_IS(vhost_disk_write(disk, page, BLOCK, 0), 0);
	service_kill(SIGKILL);
	CHECK(!unlink(service_socket("arena")));
	service_start(NULL);
	CHECK_IS(vhost_disk_read(disk, page, BLOCK, 0), -ESTALE);
	CHECK_IS(vhost_disk_size(disk, &bytes), -ESTALE);
	CHECK_IS(vhost_disk_write(disk, page, BLOCK, 0), -ESTALE);
	vhost_disk_close(disk);
	disk = open_disk(0);
	memset(page, 0xee, sizeof(page));
	CHECK_IS(vhost_disk_read(disk, page, BLOCK, 0), 0);
	CHECK(!page[0] && !memcmp(page, page + 1, BLOCK - 1));
	vhost_disk_close(disk);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : test_seed();

	printf("seed %llu\n", (unsigned long long)seed);
	disk_configure("disk-threads", "");
	service_start(NULL);
	under_load(seed);
	CHECK(lines >= test_scaled(8));
	CHECK(lines < 60 * test_scaled(8));
	RUN(refusals);
	RUN(waits_end);
	RUN(other_content);
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
