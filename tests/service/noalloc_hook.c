// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into tmemd: from the moment at which a thread takes the name of a worker it must not
 * allocate, free or map any more (tests/lib/noalloc.h). Each such thread is one byte more in the
 * file that NOALLOC_REPORT names, so that a test knows who is watched.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/noalloc.h"

static void watch(void)
{
	const char *report = getenv("NOALLOC_REPORT");
	int fd = report ? open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0 || write(fd, "+", 1) != 1)
		_exit(NOALLOC_STATUS + 1);
	close(fd);
	noalloc_forbidden = true;
}

int prctl(int option, ...)
{
	unsigned long a[4];
	va_list args;

	va_start(args, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(args, unsigned long);
	va_end(args);
	if (option == PR_SET_NAME && !strcmp((const char *)a[0], "tmemd-worker"))
		watch();
	return (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
}
