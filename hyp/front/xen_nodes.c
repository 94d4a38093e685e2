// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Nodes and directory pages are the guest's: anything may stand there. What is checked here is
 * form and bounds; whether a grant or an event channel is one is for the hypervisor to say.
 */
#include "xen_nodes.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The reader of one front end's nodes, and where to say what is wrong with them. */
struct nodes {
	xen_read_fn read;
	void *arg;
	char *why;
	size_t whylen;
};

int xen_number(const char *text, uint64_t max, uint64_t *value)
{
	uint64_t n = 0;

	if (!*text || strlen(text) > 19)
		return -EINVAL;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text))
			return -EINVAL;
		n = 10 * n + (uint64_t)(*text - '0');
	}
	if (n > max)
		return -EINVAL;
	*value = n;
	return 0;
}

static int nibble(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return at ? (int)(at - digits) : -1;
}

int xen_uuid(const char *text, uint64_t uuid[2])
{
	uint8_t bytes[16];
	unsigned n = 0;

	while (*text && n < sizeof(bytes)) {
		int high, low;

		if (*text == '-') {
			text++;
			continue;
		}
		high = nibble(text[0]);
		low = high < 0 ? -1 : nibble(text[1]);
		if (low < 0)
			return -EINVAL;
		bytes[n++] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	if (*text || n != sizeof(bytes))
		return -EINVAL;
	memcpy(uuid, bytes, sizeof(bytes));
	return 0;
}

static int __attribute__((format(printf, 3, 4)))
bad(const struct nodes *nodes, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(nodes->why, nodes->whylen, fmt, ap);
	va_end(ap);
	return error;
}

static int read_number(const struct nodes *nodes, const char *node, uint64_t min, uint64_t max,
		       uint64_t *value)
{
	char text[XEN_TEXT_MAX];

	if (!nodes->read(nodes->arg, node, text))
		return bad(nodes, -ENOENT, "%s is missing, or longer than any number", node);
	if (xen_number(text, max, value) || *value < min)
		return bad(nodes, -EINVAL, "%s: allowed is a number from %" PRIu64 " to %" PRIu64,
			   node, min, max);
	return 0;
}

/* `nr` nodes NAME-0, NAME-1, ..., each the number of a grant or an event channel. */
static int read_array(const struct nodes *nodes, const char *name, unsigned nr, uint64_t min,
		      uint32_t *values)
{
	char node[32];
	uint64_t value;

	for (unsigned i = 0; i < nr; i++) {
		int r;

		snprintf(node, sizeof(node), "%s-%u", name, i);
		r = read_number(nodes, node, min, UINT32_MAX - 1, &value);
		if (r)
			return r;
		values[i] = (uint32_t)value;
	}
	return 0;
}

int xen_choice_read(struct xen_choice *choice, const struct xen_offer *offer, xen_read_fn read,
		    void *arg, char *why, size_t whylen)
{
	struct nodes nodes = {read, arg, why, whylen};
	uint64_t rings;
	int r;

	memset(choice, 0, sizeof(*choice));
	r = read_number(&nodes, "region-bytes", XEN_REGION_MIN, offer->bytes, &choice->bytes);
	if (!r && (choice->bytes & (choice->bytes - 1)))
		r = bad(&nodes, -EINVAL, "region-bytes: allowed are powers of two");
	if (!r)
		r = read_number(&nodes, "rings", 1, offer->rings, &rings);
	if (r)
		return r;
	choice->rings = (unsigned)rings;
	r = read_array(&nodes, "directory-ref", xen_directories(choice->bytes), 0,
		       choice->directory);
	/* Number 0 never is an event channel. */
	return r ? r : read_array(&nodes, "event-channel", choice->rings, 1, choice->port);
}

void xen_directory_copy(uint32_t *refs, unsigned nr, const void *page)
{
	const uint32_t *from = page;

	for (unsigned i = 0; i < nr; i++)
		refs[i] = le32toh(__atomic_load_n(&from[i], __ATOMIC_RELAXED));
}
