// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * diskfill [--check] SOCKET: writes a few pages to a disk, as a guest that is gone then; or reads
 * them, and fails when they are others.
 */
#include <linux/virtio_blk.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tools/vhost/vhost_user.h"

#define BYTES (256u * 1024)

static bool as_written(const uint8_t *data)
{
	for (unsigned i = 0; i < BYTES; i++)
		if (data[i] != 0x5a)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	bool check = argc == 3 && !strcmp(argv[1], "--check");
	const struct vu_request request = {.type = check ? VIRTIO_BLK_T_IN : VIRTIO_BLK_T_OUT,
					   .bytes = BYTES};
	const struct vu_options options = {0};
	struct vu *vu;
	int r;

	if (argc != 2 + check) {
		fputs("Usage: diskfill [--check] SOCKET\n", stderr);
		return 2;
	}
	r = vu_open(&vu, argv[argc - 1], &options);
	if (r) {
		fprintf(stderr, "diskfill: %s: %s\n", argv[argc - 1], strerror(-r));
		return 1;
	}
	memset(vu_data(vu), check ? 0 : 0x5a, BYTES);
	r = vu_do(vu, 0, &request);
	if (r)
		fprintf(stderr, "diskfill: the request ended with %d\n", r);
	else if (check && !as_written(vu_data(vu)))
		r = 1;
	return vu_close(vu) || r;
}
