// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A region is a named file beside the arena, so that a restarted service finds it again. All its
 * memory is allocated before anybody uses it: a page fault can then not fail on a full tmpfs.
 * A named file cannot be sealed against truncation as a memfd can; base/sigbus.c takes care of an
 * owner that cuts its own region.
 */
#include "front_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sigbus.h"

static int region_map(struct region *region, int fd, const struct stat *st, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	int r;

	if (base == MAP_FAILED)
		return -errno;
	region->fd = fd;
	region->base = base;
	region->bytes = bytes;
	region->inode = st->st_ino;
	r = sigbus_watch(base, bytes, &region->lost);
	if (r) {
		munmap(base, bytes);
		region->fd = -1;
		region->base = NULL;
	}
	return r;
}

int region_create(struct region *region, int dir, const char *name, uint64_t bytes)
{
	struct stat st;
	int fd, r;

	if (unlinkat(dir, name, 0) && errno != ENOENT)
		return -errno;
	fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || fallocate(fd, 0, 0, bytes) || fstat(fd, &st))
		r = -errno;
	else
		r = region_map(region, fd, &st, bytes);
	if (r) {
		close(fd);
		unlinkat(dir, name, 0);
	}
	return r;
}

int region_open(struct region *region, int dir, const char *name, uint64_t inode, uint64_t bytes)
{
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		r = -errno;
	else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < bytes ||
		 (inode && (st.st_ino != inode || (uint64_t)st.st_size != bytes)))
		r = -ESTALE;
	else
		r = region_map(region, fd, &st, bytes);
	if (r)
		close(fd);
	return r;
}

void region_close(struct region *region)
{
	if (!region->base)
		return;
	sigbus_unwatch(region->base);
	munmap(region->base, region->bytes);
	close(region->fd);
	region->fd = -1;
	region->base = NULL;
}

bool region_tampered(const struct region *region)
{
	struct stat st;

	return region->fd >= 0 && (fstat(region->fd, &st) || (uint64_t)st.st_size != region->bytes);
}

void region_hello(const struct region *region, struct hello *hello)
{
	const struct tmem_region *page = region_page(region);

	/*
	 * The guest leaves HELLO before it writes a new epoch, so a new epoch that is followed by
	 * HELLO means that everything else is new as well.
	 */
	hello->epoch = LOAD_ACQUIRE(page->guest_epoch);
	hello->state = LOAD_ACQUIRE(page->guest_state);
	hello->abi = READ_ONCE(page->abi);
	hello->features = READ_ONCE(page->features);
	hello->nr_rings = READ_ONCE(page->nr_rings);
	hello->entries = READ_ONCE(page->entries);
	hello->former = hello->features & TMEM_F_RESUME ? READ_ONCE(page->former_epoch) : 0;
}

void region_answer(const struct region *region, const struct answer *answer)
{
	struct tmem_region *page = region_page(region);

	WRITE_ONCE(page->refused_guest, answer->guest);
	WRITE_ONCE(page->refused_service, answer->service);
	WRITE_ONCE(page->refusal, answer->refusal);
	WRITE_ONCE(page->service_state, answer->state);
	STORE_RELEASE(page->answered_epoch, answer->epoch);
}

static bool refuse(struct answer *answer, enum tmem_refusal why, uint64_t guest, uint64_t service)
{
	answer->state = TMEM_SERVICE_REFUSED;
	answer->refusal = why;
	answer->guest = guest;
	answer->service = service;
	return false;
}

bool region_check(const struct hello *hello, uint64_t features, uint32_t max_rings, uint64_t bytes,
		  struct answer *answer)
{
	uint32_t n = hello->entries;

	if (hello->abi != TMEM_ABI_VERSION)
		return refuse(answer, TMEM_REFUSED_ABI, hello->abi, TMEM_ABI_VERSION);
	if (hello->features & ~features)
		return refuse(answer, TMEM_REFUSED_FEATURES, hello->features, features);
	if (!hello->nr_rings || hello->nr_rings > max_rings)
		return refuse(answer, TMEM_REFUSED_RINGS, hello->nr_rings, max_rings);
	if (n < TMEM_MIN_ENTRIES || n > TMEM_MAX_ENTRIES || (n & (n - 1)))
		return refuse(answer, TMEM_REFUSED_ENTRIES, n, TMEM_MAX_ENTRIES);
	if (tmem_region_need(hello->nr_rings, n) > bytes)
		return refuse(answer, TMEM_REFUSED_SIZE, tmem_region_need(hello->nr_rings, n),
			      bytes);
	return true;
}
