// SPDX-License-Identifier: GPL-2.0-or-later
/* How the doctor reads /proc and /sys. */
#include "config.h"

#include "tools/tmemctl/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *open_below(const struct doctor *d, const char *fmt, va_list ap)
{
	char path[LOOK_PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s", d->root);

	if (len >= (int)sizeof(path))
		return NULL;
	vsnprintf(path + len, sizeof(path) - (size_t)len, fmt, ap);
	return fopen(path, "re");
}

FILE *look_open(const struct doctor *d, const char *fmt, ...)
{
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	f = open_below(d, fmt, ap);
	va_end(ap);
	return f;
}

bool look_text(const struct doctor *d, char *text, size_t room, const char *fmt, ...)
{
	bool good = false;
	va_list ap;
	size_t len;
	FILE *f;

	va_start(ap, fmt);
	f = open_below(d, fmt, ap);
	va_end(ap);
	if (f) {
		len = fread(text, 1, room - 1, f);
		text[len] = 0;
		good = !ferror(f);
		fclose(f);
	}
	return good;
}

bool look_there(const struct doctor *d, const char *path)
{
	char whole[LOOK_PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", d->root, path);
	return !access(whole, F_OK);
}

bool number_behind(const char *text, const char *key, uint64_t *value)
{
	size_t len = strlen(key);

	for (; text && *text; text = strchr(text, '\n'), text += text != NULL)
		if (!strncmp(text, key, len))
			return sscanf(text + len, "%" SCNu64, value) == 1;
	return false;
}

bool look_number(const struct doctor *d, const char *path, const char *key, uint64_t *value)
{
	char text[8192];

	return look_text(d, text, sizeof(text), "%s", path) && number_behind(text, key, value);
}

bool look_yes(const struct doctor *d, const char *path)
{
	char text[8];

	return look_text(d, text, sizeof(text), "%s", path) && (*text == 'Y' || *text == '1');
}

int look_swaps(const struct doctor *d, struct swap *swaps, int room)
{
	char text[8192], *line, *rest = text;
	uint64_t kib, used;
	int n = 0;

	if (!look_text(d, text, sizeof(text), "/proc/swaps"))
		return 0;
	while (n < room && (line = strsep(&rest, "\n"))) {
		struct swap *s = &swaps[n];

		/* The line of headings has no numbers. */
		if (sscanf(line, "%127s %*s %" SCNu64 " %" SCNu64 " %d", s->name, &kib, &used,
			   &s->priority) != 4)
			continue;
		s->bytes = kib * 1024;
		s->used = used * 1024;
		s->zram = !strncmp(s->name, "/dev/zram", 9);
		n++;
	}
	return n;
}

uint64_t swap_bytes(const struct doctor *d, bool zram)
{
	struct swap swaps[MAX_SWAPS];
	int n = look_swaps(d, swaps, MAX_SWAPS);
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++)
		if (swaps[i].zram == zram)
			bytes += swaps[i].bytes;
	return bytes;
}
