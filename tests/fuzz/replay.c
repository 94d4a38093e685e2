// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The main of a fuzz target where there is no libFuzzer: gives the target each file named, or each
 * file of its kept corpus, once.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>

#define INPUT_BYTES (1u << 20)

static void replay(const char *path)
{
	static uint8_t buffer[INPUT_BYTES];
	FILE *f = fopen(path, "re");
	uint8_t *input;
	size_t size;

	MUST(f, "%s cannot be opened", path);
	size = fread(buffer, 1, sizeof(buffer), f);
	fclose(f);
	printf("%s: %zu bytes\n", path, size);
	fflush(stdout);
	/* Of exactly its size: reads behind its end are seen by a sanitizer. */
	input = malloc(size ? size : 1);
	MUST(input, "no memory");
	memcpy(input, buffer, size);
	LLVMFuzzerTestOneInput(input, size);
	free(input);
}

static unsigned replay_all(const char *dir)
{
	struct dirent **entries;
	unsigned files = 0;
	char path[PATH_MAX + 256];
	int n = scandir(dir, &entries, NULL, alphasort);

	MUST(n >= 0, "%s cannot be listed", dir);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.') {
			replay(path);
			files++;
		}
		free(entries[i]);
	}
	free(entries);
	return files;
}

int main(int argc, char **argv)
{
	const char *srcdir = getenv("srcdir");
	char dir[PATH_MAX];

	LLVMFuzzerInitialize(&argc, &argv);
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	if (argc > 1)
		return 0;
	snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".",
		 basename(argv[0]));
	MUST(replay_all(dir), "%s is empty", dir);
	return 0;
}
