// SPDX-License-Identifier: GPL-2.0-or-later
/* The service manager. */
#include "config.h"

#include "control/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

void notify(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Nothing can be done about a failure; without a manager it does nothing. */
	sd_notify(0, text);
}

uint64_t notify_watchdog_us(void)
{
	uint64_t us = 0;

	return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}

int64_t notify_fd_store(void)
{
	/* Managers before systemd 254 do not say it. */
	const char *most = getenv("FDSTORE");

	if (!getenv("NOTIFY_SOCKET"))
		return 0;
	return most ? strtol(most, NULL, 10) : -1;
}

#else

void notify(const char *fmt, ...)
{
	(void)fmt;
}

uint64_t notify_watchdog_us(void)
{
	return 0;
}

int64_t notify_fd_store(void)
{
	return 0;
}

#endif
