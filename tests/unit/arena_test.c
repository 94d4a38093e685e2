// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/arena.h"
#include "tests/lib/scratch.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAPACITY (32ull << 20)

static char err[256];

static int try_open(struct arena *arena, uint64_t capacity)
{
	err[0] = 0;
	return arena_open(arena, scratch_path("arena"), capacity, false, err, sizeof(err));
}

static uint64_t blocks(void)
{
	struct stat st;

	return stat(scratch_path("arena"), &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static void made_whole(void)
{
	struct arena arena, second;
	struct stat st;
	struct dirent *e;
	unsigned files = 0;
	DIR *d;

	CU_ASSERT_FATAL(!try_open(&arena, CAPACITY));
	CU_ASSERT(arena.created);
	CU_ASSERT(arena.sb->capacity >= CAPACITY);
	CU_ASSERT(!stat(scratch_path("arena"), &st) && (st.st_mode & 0777) == 0600);
	CU_ASSERT_EQUAL((uint64_t)st.st_size, arena.bytes);
	/* Nothing half made is left beside it. */
	d = opendir(scratch_path(""));
	while (d && (e = readdir(d)))
		files += e->d_name[0] != '.';
	if (d)
		closedir(d);
	CU_ASSERT_EQUAL(files, 1);
	CU_ASSERT_EQUAL(try_open(&second, CAPACITY), -EWOULDBLOCK);
	CU_ASSERT(err[0] != 0);
	arena_close(&arena);
	/* Opened again: the same one, whatever capacity is asked for now. */
	CU_ASSERT_FATAL(!try_open(&arena, 2 * CAPACITY));
	CU_ASSERT(!arena.created);
	CU_ASSERT_EQUAL((uint64_t)st.st_size, arena.bytes);
	arena_close(&arena);
	arena_close(&arena); /* twice is allowed */
	unlink(scratch_path("arena"));
}

/* Memory comes with populate and goes with punch; what was punched reads as zeros. */
static void memory(void)
{
	struct arena arena;
	uint64_t before, off;

	CU_ASSERT_FATAL(!try_open(&arena, CAPACITY));
	before = blocks();
	off = arena.sb->payload_off;
	CU_ASSERT_FATAL(!arena_populate(&arena, off, 2 * CHUNK_BYTES));
	CU_ASSERT_EQUAL(blocks(), before + 2 * CHUNK_BYTES);
	memset(arena.payload, 0x77, 2 * CHUNK_BYTES);
	CU_ASSERT(!arena_punch(&arena, off, CHUNK_BYTES));
	CU_ASSERT_EQUAL(blocks(), before + CHUNK_BYTES);
	CU_ASSERT_EQUAL(arena.payload[CHUNK_BYTES], 0x77);
	arena_close(&arena);
	CU_ASSERT_FATAL(!try_open(&arena, CAPACITY));
	CU_ASSERT_EQUAL(arena.payload[2 * CHUNK_BYTES - 1], 0x77);
	CU_ASSERT_FATAL(!arena_populate(&arena, off, CHUNK_BYTES));
	CU_ASSERT_EQUAL(arena.payload[0], 0);
	CU_ASSERT_EQUAL(arena.payload[CHUNK_BYTES - 1], 0);
	arena_close(&arena);
	unlink(scratch_path("arena"));
}

static void not_made_anew(void)
{
	struct arena arena;
	uint32_t format = ARENA_FORMAT + 1;
	int fd;

	CU_ASSERT_FATAL(!try_open(&arena, CAPACITY));
	arena_close(&arena);
	fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	CU_ASSERT(pwrite(fd, &format, sizeof(format), offsetof(struct superblock, format)) ==
		  sizeof(format));
	CU_ASSERT_EQUAL(try_open(&arena, CAPACITY), -EPROTO);
	CU_ASSERT(strstr(err, "format") != NULL || strstr(err, "version") != NULL ||
		  strstr(err, "damaged") != NULL);
	format = 0;
	CU_ASSERT(pread(fd, &format, sizeof(format), offsetof(struct superblock, format)) ==
		  sizeof(format));
	CU_ASSERT_EQUAL(format, ARENA_FORMAT + 1);
	close(fd);
	unlink(scratch_path("arena"));
}

int main(void)
{
	static CU_TestInfo tests[] = {{"made whole, locked, found again", made_whole},
				      {"memory from the host and back", memory},
				      {"never made anew", not_made_anew},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"arena", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	scratch_make("arena");
	return unit_run(suites);
}
