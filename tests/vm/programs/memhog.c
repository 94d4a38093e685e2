// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * memhog: takes the memory of a machine.
 *
 *   memhog leave MB     all but MB megabytes of MemAvailable; takes more whenever there is more
 *   memhog thrash MB    MB megabytes, written at random for ever: more than the machine has
 *
 * It ends when it is killed. Would the machine run out of memory, it is the first to go.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE (256u << 10)
#define PAGE 4096u

static uint8_t *take(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("memhog: mmap");
		exit(1);
	}
	return p;
}

static unsigned long available_kib(int meminfo)
{
	char text[1024], *at;
	ssize_t n = pread(meminfo, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	at = strstr(text, "MemAvailable:");
	return at ? strtoul(at + strlen("MemAvailable:"), NULL, 10) : 0;
}

static void leave(unsigned long kib)
{
	int meminfo = open("/proc/meminfo", O_RDONLY);

	for (;;) {
		while (available_kib(meminfo) > kib + PIECE / 1024)
			memset(take(PIECE), 0x55, PIECE);
		usleep(10000);
	}
}

static void thrash(size_t bytes)
{
	uint8_t *memory = take(bytes);
	uint64_t x = 88172645463325252ull;

	for (size_t i = 0; i < bytes; i += PAGE)
		memory[i] = 1;
	for (;;) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memory[x % bytes] += 1;
	}
}

int main(int argc, char **argv)
{
	unsigned long mb = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	int score = open("/proc/self/oom_score_adj", O_WRONLY);

	if (!mb) {
		fprintf(stderr, "usage: memhog leave|thrash MB\n");
		return 2;
	}
	if (score < 0 || write(score, "1000", 4) != 4)
		perror("memhog: oom_score_adj");
	if (!strcmp(argv[1], "leave"))
		leave(mb * 1024);
	thrash(mb << 20);
	return 0;
}
