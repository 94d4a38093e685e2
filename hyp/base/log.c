// SPDX-License-Identifier: GPL-2.0-or-later
#include "log.h"
#include "clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;
static bool prefix;

void log_setup(enum log_level level, bool journal)
{
	max_level = level;
	prefix = journal;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n = 0, m;

	if (level > max_level)
		return;
	if (prefix)
		n = snprintf(line, sizeof(line), "<%d>", level);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	/* One write a line, so that lines of several threads do not mix. */
	if (write(STDERR_FILENO, line, n) < 0)
		return;
}

bool log_may_speak(struct log_limit *limit, uint32_t *held)
{
	uint64_t now = clock_ns();
	uint64_t start = atomic_load_explicit(&limit->window, memory_order_relaxed);

	if (!start || now - start > LOG_INTERVAL_S * CLOCK_S) {
		/* Only the thread that opens the new window resets the count. */
		if (atomic_compare_exchange_strong(&limit->window, &start, now))
			atomic_store(&limit->said, 0);
	}
	if (atomic_fetch_add(&limit->said, 1) >= LOG_BURST) {
		atomic_fetch_add(&limit->held, 1);
		return false;
	}
	*held = atomic_exchange(&limit->held, 0);
	return true;
}
