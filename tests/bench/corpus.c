// SPDX-License-Identifier: GPL-2.0-or-later
/* The pages to measure with: generated, from a file, or captured from processes of our own. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <lz4.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DUPLICATES 84 /* of 1000 generated pages */

static int allocate(struct corpus *c, size_t nr)
{
	c->nr = nr;
	c->pages = aligned_alloc(PAGE_BYTES, (nr + 1) * PAGE_BYTES);
	c->packed = malloc((nr + 1) * PAGE_BYTES);
	c->at = malloc((nr + 1) * sizeof(*c->at));
	return c->pages && c->packed && c->at ? 0 : -ENOMEM;
}

void corpus_free(struct corpus *c)
{
	free(c->pages);
	free(c->packed);
	free(c->at);
	memset(c, 0, sizeof(*c));
}

static int generate(struct corpus *c, size_t nr, uint64_t seed)
{
	struct rng r = {seed};
	int e = allocate(c, nr);

	for (size_t i = 0; !e && i < nr; i++) {
		uint8_t *page = c->pages + i * PAGE_BYTES;

		if (i && rng_permille(&r, DUPLICATES))
			memcpy(page, c->pages + rng_next(&r) % i * PAGE_BYTES, PAGE_BYTES);
		else
			page_make(page, rng_next(&r));
	}
	return e;
}

static int from_file(struct corpus *c, const char *path, size_t limit)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), e;
	struct stat st;
	size_t nr, done = 0;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st)) {
		e = -errno;
		goto out;
	}
	nr = st.st_size / PAGE_BYTES;
	if (limit && nr > limit)
		nr = limit;
	e = nr ? allocate(c, nr) : -EINVAL;
	while (!e && done < nr * PAGE_BYTES && n > 0) {
		n = read(fd, c->pages + done, nr * PAGE_BYTES - done);
		done += n > 0 ? n : 0;
	}
	if (!e && done < nr * PAGE_BYTES)
		e = -EIO;
out:
	if (fd >= 0)
		close(fd);
	return e;
}

/* Anonymous pages of process `pid`: at most `room` of them to `to`. */
static size_t capture_one(pid_t pid, uint8_t *to, size_t room)
{
	char path[64], line[512];
	unsigned long from, end;
	size_t n = 0;
	FILE *maps;
	int mem;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (mem >= 0 && maps && n < room && fgets(line, sizeof(line), maps)) {
		char perms[8] = "";
		unsigned long inode = 1;

		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &end, perms, &inode) != 4 ||
		    inode || perms[1] != 'w' || strstr(line, "[v"))
			continue;
		for (; from < end && n < room; from += PAGE_BYTES) {
			uint8_t *page = to + n * PAGE_BYTES;

			if (pread(mem, page, PAGE_BYTES, from) != PAGE_BYTES)
				continue;
			/* Memory that was never touched reads as zeros: not what is swapped. */
			for (unsigned i = 0; i < PAGE_BYTES; i++)
				if (page[i]) {
					n++;
					break;
				}
		}
	}
	if (maps)
		fclose(maps);
	if (mem >= 0)
		close(mem);
	return n;
}

/* Programs that are on most systems and fill memory with something of their own. */
#define PERL "exec perl -e '$h{$_}=\"value \".($_*7).\" of \".sqrt($_) for 1..150000; sleep 60'"
#define PYTHON                                                                                     \
	"exec python3 -c 'import ast,time,glob\n"                                                  \
	"t=[ast.parse(open(f).read()) for f in "                                                   \
	"sorted(glob.glob(\"/usr/lib/python3*/*.py\"))[:60]]\n"                                    \
	"time.sleep(60)'"
#define AWK "exec awk 'BEGIN{for(i=0;i<200000;i++)a[i]=i\" \"i*i; system(\"sleep 60\")}'"
#define SORT "exec sort -S 64M /usr/share/dict/* /usr/share/perl/*/*.pl /usr/share/perl/*/*.pm -"

static int capture(struct corpus *c, size_t nr)
{
	static const char *const commands[] = {PERL, PYTHON, AWK, SORT};
	const unsigned kinds = sizeof(commands) / sizeof(commands[0]);
	size_t n = 0;
	int e = allocate(c, nr);

	for (unsigned i = 0; !e && i < kinds; i++) {
		int in[2];
		pid_t pid;

		if (pipe(in))
			return -errno;
		pid = fork();
		if (!pid) {
			setpgid(0, 0);
			dup2(in[0], 0);
			close(in[0]);
			close(in[1]);
			if (!freopen("/dev/null", "w", stdout) ||
			    !freopen("/dev/null", "w", stderr))
				_exit(1);
			execl("/bin/sh", "sh", "-c", commands[i], NULL);
			_exit(127);
		}
		sleep(3);
		n += capture_one(pid, c->pages + n * PAGE_BYTES, (nr - n) / (kinds - i));
		kill(-pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(in[0]);
		close(in[1]);
	}
	c->nr = n;
	return e ? e : n ? 0 : -ENODATA;
}

static void describe(const struct corpus *c)
{
	static const unsigned below[] = {512, 1280, 1792, 2560, 3584, PAGE_BYTES, PAGE_BYTES + 1};
	unsigned long count[7] = {0}, same = 0;
	uint64_t sum = 0;

	for (size_t i = 0; i < c->nr; i++) {
		const uint8_t *page = c->pages + i * PAGE_BYTES;
		unsigned len = c->at[i + 1] - c->at[i], b = 0;

		while (len >= below[b])
			b++;
		count[b]++;
		sum += len;
		same += !memcmp(page, page + 8, PAGE_BYTES - 8);
	}
	printf("pages: %zu, mean %.0f bytes under LZ4;", c->nr, (double)sum / c->nr);
	for (unsigned b = 0; b < 6; b++)
		printf(" <%u %.1f %%", below[b], 100.0 * count[b] / c->nr);
	printf(", do not shrink %.1f %%; same-filled %.1f %%\n", 100.0 * count[6] / c->nr,
	       100.0 * same / c->nr);
}

int corpus_make(struct corpus *c, const struct bench_options *options, size_t default_nr)
{
	size_t nr = options->pages ? options->pages : default_nr;
	int e;

	memset(c, 0, sizeof(*c));
	if (options->corpus)
		e = from_file(c, options->corpus, options->pages);
	else if (options->captured)
		e = capture(c, nr);
	else
		e = generate(c, nr, options->seed);
	if (e) {
		fprintf(stderr, "tmem-bench: no pages to measure with: %s\n", strerror(-e));
		return e;
	}
	c->at[0] = 0;
	for (size_t i = 0; i < c->nr; i++) {
		const char *page = (const char *)c->pages + i * PAGE_BYTES;
		char *to = (char *)c->packed + c->at[i];
		int len = LZ4_compress_default(page, to, PAGE_BYTES, PAGE_BYTES - 1);

		if (len <= 0) {
			memcpy(to, page, PAGE_BYTES);
			len = PAGE_BYTES;
		}
		c->at[i + 1] = c->at[i] + len;
	}
	describe(c);
	return 0;
}
