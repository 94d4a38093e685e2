// SPDX-License-Identifier: GPL-2.0-or-later
/* The same pages in zram: a device of our own, removed afterwards. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE_ENTRY 16 /* bytes a page when the kernel does not show it */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : 0;
}

static bool read_file(const char *path, char *to, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, room - 1);

	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* What the kernel allocated for the table of a device with this many pages. */
static double table_entry(size_t pages)
{
	char line[512];
	FILE *f = fopen("/proc/vmallocinfo", "re");
	double most = 0;

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long bytes;

		if ((strstr(line, "zram") || strstr(line, "disksize_store")) &&
		    sscanf(line, "%*s %lu", &bytes) == 1 && (double)bytes / pages > most)
			most = (double)bytes / pages;
	}
	if (f)
		fclose(f);
	return most >= 8 && most < 64 ? most : TABLE_ENTRY;
}

static bool copy_pages(int fd, const struct corpus *c, bool in, double *ns)
{
	static _Alignas(4096) uint8_t page[PAGE_BYTES];
	struct timing start = bench_now();

	for (size_t i = 0; i < c->nr; i++) {
		off_t at = (off_t)i * PAGE_BYTES;
		ssize_t n = in ? pwrite(fd, c->pages + i * PAGE_BYTES, PAGE_BYTES, at)
			       : pread(fd, page, PAGE_BYTES, at);

		if (n != PAGE_BYTES)
			return false;
	}
	*ns = (double)bench_since(start).cpu / c->nr;
	return true;
}

static bool measure(const char *id, const struct corpus *c, struct zram_result *result)
{
	char path[64], text[256], dev[32];
	unsigned long long used = 0;
	bool ok = false;
	int fd = -1;

	snprintf(path, sizeof(path), "/sys/block/zram%s/comp_algorithm", id);
	if (write_file(path, "lz4"))
		goto out;
	snprintf(path, sizeof(path), "/sys/block/zram%s/disksize", id);
	snprintf(text, sizeof(text), "%zu", c->nr * PAGE_BYTES);
	if (write_file(path, text))
		goto out;
	snprintf(dev, sizeof(dev), "/dev/zram%s", id);
	fd = open(dev, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0 || !copy_pages(fd, c, true, &result->put_ns) ||
	    !copy_pages(fd, c, false, &result->get_ns))
		goto out;
	snprintf(path, sizeof(path), "/sys/block/zram%s/mm_stat", id);
	if (!read_file(path, text, sizeof(text)) || sscanf(text, "%*u %*u %llu", &used) != 1)
		goto out;
	result->bytes_per_page = (double)used / c->nr + table_entry(c->nr);
	ok = true;
out:
	if (fd >= 0)
		close(fd);
	return ok;
}

bool zram_measure(const struct corpus *c, struct zram_result *result)
{
	char id[16];
	bool ok;

	if (!read_file("/sys/class/zram-control/hot_add", id, sizeof(id))) {
		printf("zram: not measured, no device can be added here (%s)\n", strerror(errno));
		return false;
	}
	id[strcspn(id, "\n")] = 0;
	ok = measure(id, c, result);
	if (!ok)
		printf("zram: not measured: %s\n", strerror(errno));
	if (write_file("/sys/class/zram-control/hot_remove", id))
		printf("zram: device %s could not be removed: %s\n", id, strerror(errno));
	return ok;
}
