// SPDX-License-Identifier: GPL-2.0-or-later
/* diskfill SOCKET: writes a few pages to a disk, as a guest that is gone then. */
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <string.h>

#include "tools/vhost/vhost_user.h"

#define BYTES (256u * 1024)

int main(int argc, char **argv)
{
	const struct vu_request write = {.type = VIRTIO_BLK_T_OUT, .bytes = BYTES};
	const struct vu_options options = {0};
	struct vu *vu;
	int r;

	if (argc != 2) {
		fputs("Usage: diskfill SOCKET\n", stderr);
		return 2;
	}
	r = vu_open(&vu, argv[1], &options);
	if (r) {
		fprintf(stderr, "diskfill: %s: %s\n", argv[1], strerror(-r));
		return 1;
	}
	memset(vu_data(vu), 0x5a, BYTES);
	r = vu_do(vu, 0, &write);
	if (r)
		fprintf(stderr, "diskfill: the write ended with %d\n", r);
	return vu_close(vu) || r;
}
