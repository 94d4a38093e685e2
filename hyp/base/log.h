/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Log lines on stderr, with the "<n>" priority prefix when systemd reads them.
 *
 * A line that a guest, a peer or a client of the control socket can cause goes through
 * log_limited(): each call site may say LOG_BURST lines in LOG_INTERVAL_S seconds; what it held
 * back is counted and said with the next line that passes. All functions may be called from any
 * thread; none allocates.
 */
#ifndef TMEMD_BASE_LOG_H
#define TMEMD_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_BURST 10
#define LOG_INTERVAL_S 60

/* The values of syslog(3). */
enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_NOTE = 5, LOG_INFO = 6, LOG_DBG = 7 };

/* Lines above `level` are dropped (default LOG_INFO). `journal`: prefix lines with "<n>". */
void log_setup(enum log_level level, bool journal);

void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* State of one call site of log_limited(); zero-initialised. */
struct log_limit {
	_Atomic uint64_t window; /* start of the current interval, ns, monotonic */
	_Atomic uint32_t said;
	_Atomic uint32_t held;
};

/* True when the site may speak now; *held is what it kept back before. */
bool log_may_speak(struct log_limit *limit, uint32_t *held);

#define log_limited(level, fmt, ...)                                                               \
	do {                                                                                       \
		static struct log_limit limit_;                                                    \
		uint32_t held_;                                                                    \
		if (log_may_speak(&limit_, &held_)) {                                              \
			if (held_)                                                                 \
				log_msg(level, "(%u like the next line were held back)", held_);   \
			log_msg(level, fmt, ##__VA_ARGS__);                                        \
		}                                                                                  \
	} while (0)

#endif
