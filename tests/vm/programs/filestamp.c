// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * filestamp: writes files of stamped pages, and reads them again and again.
 *
 *   filestamp write DIRECTORY MB SEED
 *   filestamp read DIRECTORY MB SEED PASSES
 *
 * The files are named 0, 1, ... and have 64 to 512 KiB each; each page is made from the seed, the
 * file and its place (stamp.h). Reading visits the files in another order in each pass, and checks
 * every page. The last line is a summary of key=value; the exit status is 1 when a page was wrong.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stamp.h"

#define FILE_PAGES_MAX 128

static uint64_t file_pages(uint64_t seed, uint64_t file)
{
	return FILE_PAGES_MAX / 8 * (1 + mix(seed + file) % 8);
}

/* How many files make up so many bytes. */
static uint64_t count_files(uint64_t seed, uint64_t mb)
{
	uint64_t pages = 0, files = 0;

	while (pages < mb * (1048576 / PAGE))
		pages += file_pages(seed, files++);
	return files;
}

static int open_file(const char *directory, uint64_t file, int flags)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%llu", directory, (unsigned long long)file);
	fd = open(path, flags, 0644);
	if (fd < 0) {
		perror(path);
		exit(2);
	}
	return fd;
}

static void write_file(const char *directory, uint64_t seed, uint64_t file)
{
	int fd = open_file(directory, file, O_WRONLY | O_CREAT | O_TRUNC);
	uint64_t words[WORDS];

	for (uint64_t i = 0; i < file_pages(seed, file); i++) {
		stamp_page(words, seed + file, i, 0);
		if (write(fd, words, PAGE) != PAGE) {
			perror("filestamp: write");
			exit(2);
		}
	}
	if (close(fd)) {
		perror("filestamp: close");
		exit(2);
	}
}

/* Returns how many pages of the file are wrong. */
static uint64_t check_file(const char *directory, uint64_t seed, uint64_t file)
{
	static uint64_t words[FILE_PAGES_MAX * WORDS];
	uint64_t expected[WORDS], pages = file_pages(seed, file), wrong = 0;
	int fd = open_file(directory, file, O_RDONLY);
	ssize_t got = read(fd, words, sizeof(words));

	close(fd);
	if (got != (ssize_t)(pages * PAGE))
		return pages;
	for (uint64_t i = 0; i < pages; i++) {
		stamp_page(expected, seed + file, i, 0);
		wrong += memcmp(expected, words + i * WORDS, PAGE) != 0;
	}
	return wrong;
}

/* Another order in each pass. */
static void shuffle(uint64_t *order, uint64_t files, uint64_t state)
{
	for (uint64_t i = files - 1; i > 0; i--) {
		uint64_t other = mix(state + i) % (i + 1), t = order[i];

		order[i] = order[other];
		order[other] = t;
	}
}

static int read_files(const char *directory, uint64_t seed, uint64_t files, unsigned passes)
{
	uint64_t *order = calloc(files, sizeof(*order)), verified = 0, wrong = 0;
	double start = now();

	if (!order)
		return 2;
	for (uint64_t i = 0; i < files; i++)
		order[i] = i;
	for (unsigned pass = 0; pass < passes; pass++) {
		shuffle(order, files, mix(seed) + pass);
		for (uint64_t i = 0; i < files; i++) {
			wrong += check_file(directory, seed, order[i]);
			verified += file_pages(seed, order[i]);
		}
	}
	printf("filestamp: result=%s files=%llu passes=%u verified=%llu wrong=%llu seconds=%.1f\n",
	       wrong ? "wrong" : "intact", (unsigned long long)files, passes,
	       (unsigned long long)verified, (unsigned long long)wrong, now() - start);
	free(order);
	return wrong != 0;
}

int main(int argc, char **argv)
{
	uint64_t seed, files;

	if (argc < 5)
		return 2;
	seed = strtoull(argv[4], NULL, 0);
	files = count_files(seed, strtoull(argv[3], NULL, 0));
	if (argc == 6 && !strcmp(argv[1], "read"))
		return read_files(argv[2], seed, files, (unsigned)strtoul(argv[5], NULL, 0));
	if (argc != 5 || strcmp(argv[1], "write"))
		return 2;
	for (uint64_t file = 0; file < files; file++)
		write_file(argv[2], seed, file);
	return 0;
}
