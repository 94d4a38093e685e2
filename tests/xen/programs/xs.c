// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * xs: xenstore for a guest that has no tools of Xen, through /dev/xen/xenbus.
 *
 *   xs read PATH | write PATH VALUE | rm PATH | mkdir PATH | list PATH
 *
 * Paths without a slash at the beginning are the guest's own. Prints what it reads, names one a
 * line. Exit status 1 with the error's name when xenstored refuses.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What crosses the device: a header and that many bytes; the answer has the same form. */
struct message {
	uint32_t type;
	uint32_t request;
	uint32_t transaction;
	uint32_t length;
};

#define ANSWER_ERROR 16
#define PAYLOAD_MAX 4096

static const struct {
	const char *name;
	uint32_t type;
	int arguments;
} commands[] = {
	{"list", 1, 1}, {"read", 2, 1}, {"write", 11, 2}, {"mkdir", 12, 1}, {"rm", 13, 1},
};

static int read_all(int fd, void *to, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t n = read(fd, (char *)to + done, length - done);

		if (n <= 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

static int ask(uint32_t type, const char *path, const char *value)
{
	struct {
		struct message head;
		char payload[PAYLOAD_MAX + 1];
	} m = {.head = {.type = type}};
	size_t path_length = strlen(path) + 1, value_length = value ? strlen(value) : 0;
	int fd = open("/dev/xen/xenbus", O_RDWR);

	if (fd < 0 || path_length + value_length > PAYLOAD_MAX) {
		perror("xs: /dev/xen/xenbus");
		return 2;
	}
	memcpy(m.payload, path, path_length);
	memcpy(m.payload + path_length, value ? value : "", value_length);
	m.head.length = (uint32_t)(path_length + value_length);
	if (write(fd, &m, sizeof(m.head) + m.head.length) < 0 ||
	    read_all(fd, &m.head, sizeof(m.head)) || m.head.length > PAYLOAD_MAX ||
	    read_all(fd, m.payload, m.head.length)) {
		perror("xs: /dev/xen/xenbus");
		return 2;
	}
	m.payload[m.head.length] = '\0';
	if (m.head.type == ANSWER_ERROR) {
		fprintf(stderr, "xs: %s: %s\n", path, m.payload);
		return 1;
	}
	/* Values are one string, lists many with an end of their own. */
	for (uint32_t i = 0; type <= 2 && i < m.head.length;
	     i += (uint32_t)strlen(m.payload + i) + 1)
		puts(m.payload + i);
	return 0;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 2 && i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name) && argc == commands[i].arguments + 2)
			return ask(commands[i].type, argv[2], argv[3]);
	fprintf(stderr,
		"usage: xs read PATH | write PATH VALUE | rm PATH | mkdir PATH | list PATH\n");
	return 2;
}
