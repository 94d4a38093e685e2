// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guest memory, and other files of the front end, mapped here.
 *
 * The process locks all its memory (when it is touched); that of guests is not ours to lock, so
 * each mapping is unlocked at once. Nor is it touched, reserved or dumped.
 *
 * A page fault in such a file must not wait for a stranger. So only files are taken that live in
 * memory or on a local disk: behind a file of FUSE or of a network file system there is a process
 * that answers when it likes.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sigbus.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* ---- Mappings ------------------------------------------------------------------------------- */

static bool file_is_local(int fd, const struct stat *st)
{
	struct statfs fs;

	if (S_ISCHR(st->st_mode)) /* of a kind that can be mapped: persistent memory */
		return true;
	if (!S_ISREG(st->st_mode) || fstatfs(fd, &fs))
		return false;
	switch ((unsigned long)fs.f_type) {
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/* What a mapping must be a multiple of: files in huge pages have these as their blocks. */
static uint64_t granule(const struct stat *st)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), block = (uint64_t)st->st_blksize;

	return S_ISREG(st->st_mode) && block > page && !(block & (block - 1)) ? block : page;
}

static const char *map(struct mapping *mapping, int fd, uint64_t offset, uint64_t bytes,
		       uint64_t unit)
{
	uint64_t start = offset & ~(unit - 1), skew = offset - start;
	size_t all = (skew + bytes + unit - 1) & ~(unit - 1);
	void *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			(off_t)start);

	if (at == MAP_FAILED)
		return strerror(errno);
	munlock(at, all);
	madvise(at, all, MADV_DONTDUMP);
	if (sigbus_watch(at, all, &mapping->lost)) {
		munmap(at, all);
		return "too many files of guests are mapped";
	}
	mapping->map = at;
	mapping->map_bytes = all;
	mapping->base = (uint8_t *)at + skew;
	return NULL;
}

static const char *check_and_map(struct mapping *mapping, int fd, uint64_t offset, uint64_t bytes)
{
	struct stat st;

	if (fd < 0)
		return "no file came with it";
	if (!bytes || bytes > INT64_MAX / 2 || offset > INT64_MAX / 2)
		return "its size or offset is impossible";
	if (fstat(fd, &st))
		return strerror(errno);
	if (!file_is_local(fd, &st))
		return "it is neither a memfd nor a file on tmpfs, hugetlbfs, ext4, xfs or btrfs";
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < offset + bytes)
		return "its file is too short";
	return map(mapping, fd, offset, bytes, granule(&st));
}

const char *mapping_open(struct mapping *mapping, int fd, uint64_t offset, uint64_t bytes)
{
	const char *why = check_and_map(mapping, fd, offset, bytes);

	if (!why)
		mapping->fd = fd;
	else if (fd >= 0)
		close(fd);
	return why;
}

bool mapping_close(struct mapping *mapping)
{
	bool lost = mapping_lost(mapping);

	if (mapping->base) {
		sigbus_unwatch(mapping->map);
		munmap(mapping->map, mapping->map_bytes);
		close(mapping->fd);
	}
	mapping->base = NULL;
	return lost;
}

/* ---- The table ------------------------------------------------------------------------------ */

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static const char *check(const struct memory *memory, const struct wire_region *region)
{
	if (!region->bytes)
		return "it has no bytes";
	if (region->guest > UINT64_MAX - region->bytes || region->user > UINT64_MAX - region->bytes)
		return "its addresses overflow";
	if (memory->nr == VHOST_MAX_SLOTS)
		return "there are too many already";
	for (unsigned i = 0; i < memory->nr; i++) {
		const struct wire_region *other = &memory->slots[i].at;

		if (overlap(region->guest, region->bytes, other->guest, other->bytes))
			return "its guest addresses overlap with another's";
		if (overlap(region->user, region->bytes, other->user, other->bytes))
			return "its user addresses overlap with another's";
	}
	return NULL;
}

const char *memory_add(struct memory *memory, const struct wire_region *region, int fd)
{
	struct slot *slot = &memory->slots[memory->nr];
	const char *why = check(memory, region);

	if (!why)
		why = mapping_open(&slot->mapping, fd, region->offset, region->bytes);
	else if (fd >= 0)
		close(fd);
	if (why)
		return why;
	slot->at = *region;
	memory->nr++;
	return NULL;
}

const char *memory_remove(struct memory *memory, const struct wire_region *region, bool *lost)
{
	for (unsigned i = 0; i < memory->nr; i++) {
		struct slot *slot = &memory->slots[i];

		if (slot->at.guest != region->guest || slot->at.user != region->user ||
		    slot->at.bytes != region->bytes)
			continue;
		*lost |= mapping_close(&slot->mapping);
		*slot = memory->slots[--memory->nr];
		memory->slots[memory->nr].mapping.base = NULL;
		return NULL;
	}
	return "there is no such region";
}

void memory_clear(struct memory *memory, bool *lost)
{
	while (memory->nr)
		*lost |= mapping_close(&memory->slots[--memory->nr].mapping);
}

/* ---- Addresses ------------------------------------------------------------------------------ */

uint8_t *memory_guest(const struct memory *memory, uint64_t address, uint64_t *bytes)
{
	for (unsigned i = 0; i < memory->nr; i++) {
		const struct slot *slot = &memory->slots[i];
		uint64_t at = address - slot->at.guest;

		if (at >= slot->at.bytes)
			continue;
		*bytes = slot->at.bytes - at;
		return slot->mapping.base + at;
	}
	return NULL;
}

uint8_t *memory_user(const struct memory *memory, uint64_t address, uint64_t bytes, uint64_t *guest)
{
	for (unsigned i = 0; i < memory->nr; i++) {
		const struct slot *slot = &memory->slots[i];
		uint64_t at = address - slot->at.user;

		if (at >= slot->at.bytes || bytes > slot->at.bytes - at)
			continue;
		*guest = slot->at.guest + at;
		return slot->mapping.base + at;
	}
	return NULL;
}

bool memory_read(const struct memory *memory, uint64_t address, void *to, size_t bytes)
{
	while (bytes) {
		uint64_t part;
		const uint8_t *from = memory_guest(memory, address, &part);

		if (!from)
			return false;
		if (part > bytes)
			part = bytes;
		copy_once(to, from, part);
		to = (uint8_t *)to + part;
		address += part;
		bytes -= part;
	}
	return true;
}
