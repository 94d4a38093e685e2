// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * put, get and flush allocate nothing, map nothing and fault no page in: the service may be what
 * the host's memory depends on.
 *
 * The allocator's functions and the mapping calls are this program's own, for all libraries too;
 * they fail the test when a thread calls them between forbid() and allow().
 */
#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
	printf("skipped: a sanitizer has the allocator's functions, and faults of its own\n");
	return SKIPPED;
}
#else

#define HANDLES 6000
#define STEPS 200000

static _Thread_local bool forbidden;

static void used(const char *what)
{
	if (!forbidden)
		return;
	forbidden = false;
	fprintf(stderr, "FAIL: %s() on the page path\n", what);
	_exit(1);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

void *malloc(size_t n)
{
	used("malloc");
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	used("calloc");
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	used("realloc");
	return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	used("aligned_alloc");
	return __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
	used("posix_memalign");
	*p = __libc_memalign(align, n);
	return *p ? 0 : ENOMEM;
}

void free(void *p)
{
	used("free");
	__libc_free(p);
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	used("mmap");
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int munmap(void *addr, size_t len)
{
	used("munmap");
	return syscall(SYS_munmap, addr, len);
}

int madvise(void *addr, size_t len, int advice)
{
	used("madvise");
	return syscall(SYS_madvise, addr, len, advice);
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static struct store_handle handle_of(uint32_t pool, uint32_t i)
{
	struct store_handle handle = {.object = {i / 8, i / 100, 0}, .pool = pool, .index = i};

	return handle;
}

static unsigned accepted, refused, hits;

static void step(struct store_client *client, uint32_t pool, struct rng *r, uint8_t *page)
{
	struct store_handle handle = handle_of(pool, rng_below(r, HANDLES));
	int n;

	switch (rng_below(r, 8)) {
	case 0:
	case 1:
	case 2:
		page_make(page, rng_next(r));
		forbidden = true;
		n = store_put(client, &handle, page, 0);
		forbidden = false;
		accepted += n == 1;
		refused += n != 1;
		break;
	case 3:
		forbidden = true;
		store_flush(client, &handle);
		forbidden = false;
		break;
	case 4:
		forbidden = true;
		if (!(handle.index % 16))
			store_flush_object(client, pool, handle.object);
		store_prefetch(client, &handle, 1);
		forbidden = false;
		break;
	default:
		forbidden = true;
		hits += store_get(client, &handle, page) == 1;
		forbidden = false;
	}
}

int main(void)
{
	static const struct store_limits limits = {0};
	static const uint64_t uuid[2];
	struct store_config config = {.pool_max = 96u << 20, .ready_chunks = 8};
	struct store *store;
	struct store_client *client;
	uint8_t page[PAGE_BYTES];
	char err[256] = "";
	uint32_t pools[2];
	struct rng r = {test_seed()};
	long before;

	printf("seed %llu\n", (unsigned long long)r.state);
	scratch_make("noalloc");
	log_setup(LOG_ERROR, false);
	config.arena_path = scratch_path("arena");
	CHECK(!store_open(&store, &config, err, sizeof(err)), "%s", err);
	CHECK(!store_client_open(store, "c", &limits, &client), "client");
	pools[0] =
		store_pool_new(client, 1u << TMEM_POOL_VERSION_SHIFT | TMEM_POOL_PERSIST, uuid, 1);
	pools[1] = store_pool_new(client, 1u << TMEM_POOL_VERSION_SHIFT, uuid, 2);
	usleep(300000);			   /* the worker makes memory ready */
	for (unsigned i = 0; i < 200; i++) /* this thread's stack, code and scratch memory */
		step(client, pools[i & 1], &r, page);
	before = faults();
	for (uint64_t i = 0; i < test_scaled(STEPS); i++)
		step(client, pools[i & 1], &r, page);
	before = faults() - before;
	CHECK(accepted > refused && hits > 0, "accepted %u, refused %u, hits %u", accepted, refused,
	      hits);
	/* Which page of a library is first used when is not the store's doing: a handful. */
	CHECK(before <= 16, "%ld page faults in %u puts", before, accepted);
	printf("%u puts, %u refused, %u hits: nothing allocated, %ld page faults\n", accepted,
	       refused, hits, before);
	store_close(store);
	return 0;
}
#endif
