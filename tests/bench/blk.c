// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmem-bench blk: pages through a vhost-user-blk disk, without a VM. A child process is the front
 * end, the driver of tools/vhost; this process is the service, with one worker. References: a store
 * of the child's own, without a disk; zram through O_DIRECT; qemu-storage-daemon with a file on
 * tmpfs, which compresses nothing. The way to a disk by NBD is compared with the disk's own.
 */
#include "bench.h"
#include "front/front.h"
#include "proto/tmem_abi.h"
#include "tests/lib/scratch.h"
#include "tools/vhost/vhost_user.h"

#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_PAGES 16384
#define DEPTH 32
#define LARGE 32 /* pages of 128 KiB */
#define SECTORS (PAGE_BYTES / 512)
#define QUEUES 2
#define QSD "/usr/bin/qemu-storage-daemon"

/* What the front end measured; the service prints it. */
struct results {
	atomic_bool service_up;
	struct series small, large, own, small_depth_1, two_queues, one_queue, nbd_depth_1;
	double extra[MAX_ROUNDS]; /* ns a page of 4 KiB requests above the store's own */
	double disk[MAX_ROUNDS], zram[MAX_ROUNDS]; /* CPU ns a page, put and get */
	double qsd[MAX_ROUNDS], disk_large[MAX_ROUNDS];
	unsigned rounds, zram_rounds, qsd_rounds;
};

/* A back end to drive: ours or another. */
struct target {
	struct vu *vu;
	clockid_t clock; /* CPU time of its process */
	pid_t pid;	 /* of the other; 0: ours */
};

struct front_end {
	struct results *results;
	struct corpus corpus;
	uint32_t *order; /* of pages in requests of one page; others go from first to last */
	struct target disk, qsd;
	bool nbd;
	struct store *store;
	struct store_client *own;
	uint32_t own_pool;
};

static void give_up(const char *what, int r)
{
	fprintf(stderr, "tmem-bench: %s answered %d\n", what, r);
	exit(1);
}

static struct timing target_now(const struct target *target)
{
	struct timing t = bench_now();
	struct timespec ts;

	if (clock_gettime(target->clock, &ts))
		give_up("the service's CPU clock", 0);
	t.cpu = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	return t;
}

static struct timing target_since(const struct target *target, struct timing from)
{
	struct timing now = target_now(target);

	now.cpu -= from.cpu;
	now.wall -= from.wall;
	return now;
}

/* How pages are asked for. */
struct pattern {
	uint32_t type;
	unsigned pages; /* of a request */
	unsigned depth;
	unsigned queues;
};

static void check_read(const struct front_end *f, struct vu *vu, const struct vu_request *request)
{
	size_t page = request->sector / SECTORS;

	for (size_t i = 0; i < request->bytes / PAGE_BYTES; i++)
		if (page_stamp(vu_data(vu) + request->offset + i * PAGE_BYTES) !=
		    page_stamp(f->corpus.pages + (page + i) * PAGE_BYTES))
			give_up("a page came back wrong; read", 1);
}

/* All pages once. Returns the time of the back end's CPU and of the wall. */
static struct timing drive(const struct front_end *f, const struct target *target,
			   struct pattern pattern)
{
	struct vu_request requests[DEPTH] = {0};
	size_t sent = 0, done = 0, nr = f->corpus.nr / pattern.pages;
	struct vu *vu = target->vu;
	struct timing start = target_now(target);
	unsigned idle[DEPTH], nr_idle = 0, queue;
	void *cookie;
	uint8_t status;

	for (unsigned i = 0; i < pattern.depth; i++)
		idle[nr_idle++] = i;
	while (done < nr) {
		while (sent < nr && nr_idle) {
			unsigned i = idle[--nr_idle];
			size_t page = pattern.pages == 1 ? f->order[sent] : sent * pattern.pages;

			requests[i] = (struct vu_request){.type = pattern.type,
							  .sector = page * SECTORS,
							  .bytes = pattern.pages * PAGE_BYTES,
							  .offset = (size_t)i * LARGE * PAGE_BYTES,
							  .cookie = &requests[i]};
			if (pattern.type == VIRTIO_BLK_T_OUT)
				memcpy(vu_data(vu) + requests[i].offset,
				       f->corpus.pages + page * PAGE_BYTES, requests[i].bytes);
			if (vu_submit(vu, (unsigned)(sent % pattern.queues), &requests[i]))
				give_up("submit", 0);
			sent++;
		}
		for (queue = 0; queue < pattern.queues; queue++)
			vu_kick(vu, queue);
		for (queue = 0; queue < pattern.queues; queue++) {
			unsigned wait = pattern.queues == 1 && !nr_idle ? 10000 : 0;

			while (vu_reap(vu, queue, wait, &cookie, &status) == 1) {
				if (status)
					give_up("a request", status);
				if (pattern.type == VIRTIO_BLK_T_IN)
					check_read(f, vu, cookie);
				idle[nr_idle++] =
					(unsigned)((struct vu_request *)cookie - requests);
				done++;
				wait = 0;
			}
		}
	}
	return target_since(target, start);
}

static struct timing write_and_read(const struct front_end *f, const struct target *target,
				    struct pattern pattern)
{
	struct timing sum, part;

	pattern.type = VIRTIO_BLK_T_OUT;
	sum = drive(f, target, pattern);
	pattern.type = VIRTIO_BLK_T_IN;
	part = drive(f, target, pattern);
	sum.cpu += part.cpu;
	sum.wall += part.wall;
	return sum;
}

static struct timing without_disk(const struct front_end *f)
{
	static uint8_t page[PAGE_BYTES];
	struct store_handle handles[STORE_BATCH];
	struct timing start = bench_now();

	for (size_t i = 0; i < f->corpus.nr; i++) {
		struct store_handle handle = {.pool = f->own_pool, .index = f->order[i]};
		int r = store_put(f->own, &handle, f->corpus.pages + f->order[i] * PAGE_BYTES, 0);

		if (r != 1)
			give_up("put", r);
	}
	for (size_t i = 0; i < f->corpus.nr; i += STORE_BATCH) {
		unsigned n = f->corpus.nr - i < STORE_BATCH ? f->corpus.nr - i : STORE_BATCH;

		for (unsigned k = 0; k < n; k++)
			handles[k] = (struct store_handle){.pool = f->own_pool,
							   .index = f->order[i + k]};
		store_prefetch(f->own, handles, n);
		for (unsigned k = 0; k < n; k++)
			if (store_get(f->own, &handles[k], page) != 1)
				give_up("get", 0);
	}
	return bench_since(start);
}

/* ---- qemu-storage-daemon -------------------------------------------------------------------- */

static void start_qsd(struct target *target, size_t bytes)
{
	char file[256], blockdev[512], export[512], socket[256];
	struct vu_options options = {.queues = 1, .no_inflight = true}; /* it has none */
	int fd, r;

	if (access(QSD, X_OK)) {
		printf("qemu-storage-daemon: not measured, it is not installed\n");
		return;
	}
	snprintf(file, sizeof(file), "%s", scratch_path("qsd.img"));
	snprintf(socket, sizeof(socket), "%s", scratch_path("qsd.sock"));
	fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		give_up("the file of qemu-storage-daemon", fd);
	close(fd);
	snprintf(blockdev, sizeof(blockdev), "driver=file,node-name=f,filename=%s", file);
	snprintf(export, sizeof(export),
		 "type=vhost-user-blk,id=e,addr.type=unix,addr.path=%s,node-name=f,writable=on,"
		 "logical-block-size=4096,num-queues=1",
		 socket);
	target->pid = fork();
	if (!target->pid) {
		execl(QSD, QSD, "--blockdev", blockdev, "--export", export, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 200 && access(socket, F_OK); i++)
		usleep(10000);
	r = vu_open(&target->vu, socket, &options);
	if (r || clock_getcpuclockid(target->pid, &target->clock)) {
		printf("qemu-storage-daemon: not measured, it cannot be driven (%d)\n", r);
		kill(target->pid, SIGKILL);
		target->vu = NULL;
	}
}

static void stop_qsd(struct target *target)
{
	if (!target->vu)
		return;
	vu_close(target->vu);
	kill(target->pid, SIGTERM);
	waitpid(target->pid, NULL, 0);
}

/* ---- The front end -------------------------------------------------------------------------- */

static double per_page(struct timing time, const struct front_end *f)
{
	return (double)time.cpu / (2 * f->corpus.nr);
}

static void one_round(struct front_end *f)
{
	struct results *r = f->results;
	unsigned n = r->rounds;
	struct zram_result zram;
	struct timing small, large, own, one;

	small = write_and_read(f, &f->disk, (struct pattern){0, 1, DEPTH, 1});
	own = without_disk(f);
	large = write_and_read(f, &f->disk, (struct pattern){0, LARGE, DEPTH, 1});
	series_add(&r->small, small, 2 * f->corpus.nr);
	series_add(&r->own, own, 2 * f->corpus.nr);
	series_add(&r->large, large, 2 * f->corpus.nr);
	r->extra[n] = per_page(small, f) - per_page(own, f);
	r->disk_large[n] = per_page(large, f);
	r->disk[n] = per_page(small, f);
	one = drive(f, &f->disk, (struct pattern){VIRTIO_BLK_T_IN, 1, 1, 1});
	series_add(&r->small_depth_1, one, f->corpus.nr);
	one = drive(f, &f->disk, (struct pattern){VIRTIO_BLK_T_IN, 1, DEPTH, 1});
	series_add(&r->one_queue, one, f->corpus.nr);
	one = drive(f, &f->disk, (struct pattern){VIRTIO_BLK_T_IN, 1, DEPTH, QUEUES});
	series_add(&r->two_queues, one, f->corpus.nr);
	if (f->nbd && !nbd_measure(&f->corpus, f->order, &one))
		give_up("the disk by NBD", 0);
	if (f->nbd)
		series_add(&r->nbd_depth_1, one, f->corpus.nr);
	if (zram_measure(&f->corpus, &zram))
		r->zram[r->zram_rounds++] = (zram.put_ns + zram.get_ns) / 2;
	if (f->qsd.vu)
		r->qsd[r->qsd_rounds++] = per_page(
			write_and_read(f, &f->qsd, (struct pattern){0, LARGE, DEPTH, 1}), f);
	r->rounds++;
}

static void front_end_main(struct results *results, const struct bench_options *options,
			   uint64_t chunks)
{
	struct vu_options vu = {.queues = QUEUES};
	struct front_end f = {.results = results};
	struct rng rng = {options->seed};
	int r;

	if (corpus_make(&f.corpus, options, DEFAULT_PAGES) ||
	    clock_getcpuclockid(getppid(), &f.disk.clock))
		exit(1);
	f.corpus.nr -= f.corpus.nr % LARGE;
	f.order = bench_order(f.corpus.nr, &rng);
	while (!atomic_load(&results->service_up))
		usleep(1000);
	f.store = bench_store_open("own", 4 * chunks * STORE_CHUNK_BYTES, chunks, true);
	f.own = bench_client(f.store, "own");
	f.own_pool = bench_pool(f.own, TMEM_POOL_PERSIST, 1);
	bench_settle(f.store, chunks);
	r = vu_open(&f.disk.vu, scratch_path("socket"), &vu);
	if (r)
		give_up("the disk", r);
	f.nbd = nbd_open_disk(scratch_path("nbd-disk"));
	start_qsd(&f.qsd, f.corpus.nr * PAGE_BYTES);
	for (unsigned i = 0; i < options->rounds; i++)
		one_round(&f);
	stop_qsd(&f.qsd);
	if (f.nbd)
		nbd_close_disk();
	vu_close(f.disk.vu);
	store_close(f.store);
	exit(0);
}

/* ---- The service ---------------------------------------------------------------------------- */

static void add_disk(struct store *store, struct front *front, const char *name, const char *socket,
		     uint64_t pages)
{
	struct front_disk_config disk = {.name = name,
					 .socket = scratch_path(socket),
					 .socket_mode = 0600,
					 .socket_uid = (uid_t)-1,
					 .socket_gid = (gid_t)-1,
					 .bytes = pages * PAGE_BYTES,
					 .queues = QUEUES};
	char err[256] = "";

	bench_client(store, name);
	if (!front_disk_add(front, &disk, err, sizeof(err)))
		return;
	fprintf(stderr, "tmem-bench: front: %s\n", err);
	exit(1);
}

static void serve(struct store *store, struct front **front, uint64_t pages)
{
	struct front_config config = {
		.region_dir = scratch_path(""), .workers = QUEUES, .poll_us = 50};
	char err[256] = "";

	if (front_open(front, store, &config, err, sizeof(err))) {
		fprintf(stderr, "tmem-bench: front: %s\n", err);
		exit(1);
	}
	add_disk(store, *front, "disk", "socket", pages);
	add_disk(store, *front, "nbd", "nbd-disk", pages);
}

int bench_blk(const struct bench_options *options)
{
	uint64_t pages = options->pages ? options->pages : DEFAULT_PAGES;
	uint64_t chunks = 2 * pages * 1900 / STORE_CHUNK_BYTES + 48; /* two disks */
	struct results *results = mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct front *front;
	struct store *store;
	int status;
	pid_t pid;

	if (results == MAP_FAILED)
		return 1;
	bench_mount();
	pid = fork();
	if (!pid)
		front_end_main(results, options, chunks);
	store = bench_store_open("arena", 4 * chunks * STORE_CHUNK_BYTES, chunks, true);
	serve(store, &front, pages);
	bench_settle(store, chunks);
	atomic_store(&results->service_up, true);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	figure_times("blk_4k", &results->small, &results->own);
	figure_values("blk_4k_extra", "ns", results->extra, NULL, results->rounds);
	figure_times("blk_128k", &results->large, &results->own);
	figure_times("blk_depth_1", &results->small_depth_1, NULL);
	figure_values("blk_nbd_depth_1_wall", "ns", results->nbd_depth_1.wall,
		      results->small_depth_1.wall, results->nbd_depth_1.nr);
	figure_times("blk_two_queues", &results->two_queues, &results->one_queue);
	figure_values("blk_vs_zram", "ns", results->disk, results->zram, results->zram_rounds);
	figure_values("blk_vs_qsd", "ns", results->disk_large, results->qsd, results->qsd_rounds);
	front_disk_remove(front, "disk", true);
	front_disk_remove(front, "nbd", true);
	front_close(front);
	store_close(store);
	munmap(results, sizeof(*results));
	return 0;
}
