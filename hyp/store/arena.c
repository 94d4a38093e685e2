// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/arena.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* A page costs at least this much of capacity: bounds the sparse tables, costs nothing itself. */
#define MIN_BYTES_PER_DESC 256
#define MIN_BYTES_PER_OBJECT 1024

static uint64_t round_chunk(uint64_t n)
{
	return (n + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
}

/* As if the format were 1, so that a change of it is one store. */
static uint64_t superblock_check(const struct superblock *sb)
{
	struct superblock copy;

	memcpy(&copy, sb, sizeof(copy));
	copy.format = ARENA_FORMAT_1;
	return XXH3_64bits(&copy, offsetof(struct superblock, check));
}

static uint64_t away_entries(const struct superblock *sb)
{
	uint64_t n = sb->max_descs + AWAY_KEYS;

	return n > UINT32_MAX - 1 ? UINT32_MAX - 1 : n;
}

/* Bytes of the file with its away table. */
static uint64_t whole_bytes(const struct superblock *sb)
{
	return sb->file_bytes + round_chunk(away_entries(sb) * sizeof(struct away_rec));
}

static void lay_out(struct superblock *sb, uint64_t capacity)
{
	uint64_t nr_chunks;

	sb->magic = ARENA_MAGIC;
	sb->format = ARENA_FORMAT;
	sb->nr_shards = NR_SHARDS;
	sb->capacity = round_chunk(capacity);
	nr_chunks = sb->capacity / CHUNK_BYTES;
	sb->max_descs = sb->capacity / MIN_BYTES_PER_DESC;
	if (sb->max_descs > UINT32_MAX - 1)
		sb->max_descs = UINT32_MAX - 1;
	sb->max_objects = sb->capacity / MIN_BYTES_PER_OBJECT;
	if (sb->max_objects > UINT32_MAX - 1)
		sb->max_objects = UINT32_MAX - 1;
	/* The small tables share the head, which is populated as a whole. */
	sb->clients_off = 4096;
	sb->pools_off = sb->clients_off + STORE_MAX_CLIENTS * sizeof(struct client_rec);
	sb->pools_off = (sb->pools_off + 63) & ~63ull;
	sb->chunks_off = sb->pools_off + ARENA_MAX_POOLS * sizeof(struct pool_rec);
	sb->objects_off = round_chunk(sb->chunks_off + nr_chunks * sizeof(struct chunk_rec));
	sb->descs_off = round_chunk(sb->objects_off + sb->max_objects * sizeof(struct object));
	sb->payload_off = round_chunk(sb->descs_off + sb->max_descs * sizeof(struct desc));
	sb->file_bytes = sb->payload_off + sb->capacity;
}

/* Does the arithmetic of an existing superblock come out as lay_out() would have done it? */
static bool layout_sound(const struct superblock *sb)
{
	struct superblock want = {0};

	if (sb->capacity == 0 || sb->capacity > 1ull << 46)
		return false;
	lay_out(&want, sb->capacity);
	return sb->nr_shards == want.nr_shards && sb->capacity == want.capacity &&
	       sb->file_bytes == want.file_bytes && sb->max_descs == want.max_descs &&
	       sb->max_objects == want.max_objects && sb->payload_off == want.payload_off &&
	       sb->descs_off == want.descs_off && sb->objects_off == want.objects_off &&
	       sb->chunks_off == want.chunks_off && sb->pools_off == want.pools_off &&
	       sb->clients_off == want.clients_off;
}

/* Does the tmpfs mount that holds the file give huge pages? Its option says so. */
static bool mount_is_huge(int fd)
{
	char line[1024], device[32];
	struct stat st;
	bool huge = false;
	FILE *mounts;

	if (fstat(fd, &st) < 0)
		return false;
	mounts = fopen("/proc/self/mountinfo", "re");
	if (!mounts)
		return false;
	snprintf(device, sizeof(device), " %u:%u ", major(st.st_dev), minor(st.st_dev));
	while (!huge && fgets(line, sizeof(line), mounts))
		huge = strstr(line, device) && strstr(line, "huge=") && !strstr(line, "huge=never");
	fclose(mounts);
	return huge;
}

static int check_filesystem(struct arena *arena, bool any_fs, char *err, size_t errlen)
{
	struct statfs fs;

	if (fstatfs(arena->fd, &fs) < 0) {
		snprintf(err, errlen, "%s: statfs: %s", arena->path, strerror(errno));
		return -errno;
	}
	arena->hugetlb = fs.f_type == HUGETLBFS_MAGIC;
	arena->huge = arena->hugetlb || mount_is_huge(arena->fd);
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC || any_fs)
		return 0;
	snprintf(err, errlen,
		 "%s is not on tmpfs or hugetlbfs: pages would go to a disk; mount one, e.g. "
		 "'mount -t tmpfs -o size=8G,mode=0700,huge=advise tmemd DIRECTORY'",
		 arena->path);
	return -EMEDIUMTYPE;
}

/* A new arena gets its name only when its superblock is whole: a crash leaves no half of one. */
static int create_file(const char *path, uint64_t capacity, char *err, size_t errlen)
{
	struct superblock sb = {0};
	char tmp[300];
	int fd, r = 0;

	lay_out(&sb, capacity);
	if (getrandom(&sb.hash_seed, sizeof(sb.hash_seed), 0) != sizeof(sb.hash_seed))
		return -EIO;
	sb.check = superblock_check(&sb);
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	unlink(tmp);
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		goto sys;
	if (ftruncate(fd, whole_bytes(&sb)) < 0 || fallocate(fd, 0, 0, sb.objects_off) < 0)
		goto sys;
	fault(FAULT_ARENA_BEGUN);
	/* Through a mapping: hugetlbfs has no write(). */
	void *p = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto sys;
	memcpy(p, &sb, sizeof(sb));
	munmap(p, CHUNK_BYTES);
	fault(FAULT_ARENA_WRITTEN);
	/* An arena that came into being meanwhile is not replaced. */
	if (renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_NOREPLACE) < 0 && errno != EEXIST)
		goto sys;
	fault(FAULT_ARENA_NAMED);
	goto out;
sys:
	r = -errno;
	snprintf(err, errlen, "cannot make the arena %s: %s", path, strerror(-r));
out:
	if (fd >= 0)
		close(fd);
	unlink(tmp);
	return r;
}

/* The upgrade of a format 1 may have been killed when the file had grown already. */
static bool size_sound(const struct superblock *sb, uint64_t size)
{
	return size == whole_bytes(sb) || (sb->format == ARENA_FORMAT_1 && size == sb->file_bytes);
}

static int check_superblock(const struct arena *arena, const struct superblock *sb, off_t size,
			    char *err, size_t errlen)
{
	if (sb->magic != ARENA_MAGIC) {
		snprintf(err, errlen,
			 "%s is not an arena of tmemd (no magic number); it was left as it is",
			 arena->path);
		return -EPROTO;
	}
	if (sb->format != ARENA_FORMAT && sb->format != ARENA_FORMAT_1) {
		snprintf(err, errlen,
			 "%s has format %u, this release knows formats %u and %u; it was left as "
			 "it is",
			 arena->path, sb->format, ARENA_FORMAT_1, ARENA_FORMAT);
		return -EPROTO;
	}
	if (sb->check != superblock_check(sb) || !layout_sound(sb)) {
		snprintf(err, errlen, "%s: the superblock is damaged; it was left as it is",
			 arena->path);
		return -EPROTO;
	}
	if (!size_sound(sb, size)) {
		snprintf(err, errlen,
			 "%s has %lld bytes where its superblock says %llu; it was left as it is",
			 arena->path, (long long)size,
			 (unsigned long long)(sb->format == ARENA_FORMAT_1 ? sb->file_bytes
									   : whole_bytes(sb)));
		return -EPROTO;
	}
	return 0;
}

static int read_superblock(struct arena *arena, struct superblock *sb, char *err, size_t errlen)
{
	struct stat st;
	void *p;

	if (fstat(arena->fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)CHUNK_BYTES) {
		snprintf(err, errlen,
			 "%s is too short for an arena (%lld bytes); it was left as it is",
			 arena->path, (long long)st.st_size);
		return -EPROTO;
	}
	p = mmap(NULL, CHUNK_BYTES, PROT_READ, MAP_SHARED, arena->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	memcpy(sb, p, sizeof(*sb));
	munmap(p, CHUNK_BYTES);
	return check_superblock(arena, sb, st.st_size, err, errlen);
}

static int map(struct arena *arena, const struct superblock *sb, char *err, size_t errlen)
{
	arena->away_off = sb->file_bytes;
	arena->bytes = whole_bytes(sb);
	arena->base = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			   arena->fd, 0);
	if (arena->base == MAP_FAILED) {
		arena->base = NULL;
		snprintf(err, errlen, "cannot map the arena %s: %s", arena->path, strerror(errno));
		return -errno;
	}
	/* Only advice: it does nothing on a mount without huge pages. */
	if (!arena->hugetlb)
		madvise(arena->base, arena->bytes, MADV_HUGEPAGE);
	/* Children would share the mapping. */
	madvise(arena->base, arena->bytes, MADV_DONTFORK);
	madvise(arena->base, arena->bytes, MADV_DONTDUMP);
	arena->sb = (void *)arena->base;
	arena->clients = (void *)(arena->base + sb->clients_off);
	arena->pools = (void *)(arena->base + sb->pools_off);
	arena->chunks = (void *)(arena->base + sb->chunks_off);
	arena->objects = (void *)(arena->base + sb->objects_off);
	arena->descs = (void *)(arena->base + sb->descs_off);
	arena->payload = arena->base + sb->payload_off;
	arena->away = (void *)(arena->base + arena->away_off);
	arena->max_away = away_entries(sb);
	arena->nr_chunks = sb->capacity / CHUNK_BYTES;
	return 0;
}

int arena_open(struct arena *arena, const char *path, uint64_t capacity, bool any_fs, char *err,
	       size_t errlen)
{
	struct superblock sb;
	int r;

	memset(arena, 0, sizeof(*arena));
	arena->fd = -1;
	err[0] = 0;
	if (strlen(path) >= sizeof(arena->path)) {
		snprintf(err, errlen, "the arena's path is longer than %zu bytes",
			 sizeof(arena->path) - 1);
		return -ENAMETOOLONG;
	}
	strcpy(arena->path, path);
	arena->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (arena->fd < 0 && errno == ENOENT) {
		r = create_file(path, capacity, err, errlen);
		if (r)
			return r;
		arena->created = true;
		arena->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	}
	if (arena->fd < 0) {
		r = -errno;
		snprintf(err, errlen, "cannot open the arena %s: %s", path, strerror(-r));
		return r;
	}
	r = check_filesystem(arena, any_fs, err, errlen);
	if (r) {
		if (arena->created)
			unlink(path);
		goto fail;
	}
	if (flock(arena->fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		snprintf(err, errlen, "another process holds the arena %s", path);
		goto fail;
	}
	r = read_superblock(arena, &sb, err, errlen);
	if (!r)
		r = map(arena, &sb, err, errlen);
	if (r)
		goto fail;
	r = fault_in(arena->base, sb.objects_off);
	if (!r)
		return 0;
fail:
	if (!err[0])
		snprintf(err, errlen, "the arena %s: %s", path, strerror(-r));
	arena_close(arena);
	return r;
}

void arena_close(struct arena *arena)
{
	if (arena->base)
		munmap(arena->base, arena->bytes);
	arena->base = NULL;
	if (arena->fd >= 0)
		close(arena->fd); /* and with it the lock */
	arena->fd = -1;
}

int arena_upgrade(struct arena *arena)
{
	if (atomic_load(&arena->sb->format) == ARENA_FORMAT)
		return 0;
	if (ftruncate(arena->fd, arena->bytes) < 0)
		return -errno;
	atomic_store(&arena->sb->away_high, 0);
	atomic_store(&arena->sb->blobs, 0);
	fault(FAULT_ARENA_GROWN);
	atomic_store(&arena->sb->format, ARENA_FORMAT);
	return 0;
}

int arena_populate(struct arena *arena, uint64_t off, uint64_t len)
{
	if (fault(FAULT_ARENA_POPULATE))
		return -ENOMEM;
	/* fallocate first: it answers ENOSPC where a fault would be a SIGBUS. */
	if (fallocate(arena->fd, 0, off, len) < 0)
		return -ENOMEM;
	if (!fault_in(arena->base + off, len))
		return 0;
	arena_punch(arena, off, len);
	return -ENOMEM;
}

/* Kernels before 5.14: a write that changes nothing, to each page. */
static void touch(volatile uint8_t *at, uint64_t len)
{
	for (uint64_t i = 0; i < len; i += 4096) {
		uint8_t is = __atomic_load_n(at + i, __ATOMIC_RELAXED);

		__atomic_compare_exchange_n(at + i, &is, is, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
}

int fault_in(void *at, uint64_t len)
{
	if (!madvise(at, len, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -ENOMEM;
	touch(at, len);
	return 0;
}

int arena_punch(struct arena *arena, uint64_t off, uint64_t len)
{
	if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len) < 0)
		return -errno;
	return 0;
}
