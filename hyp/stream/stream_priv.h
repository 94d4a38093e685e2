/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What both directions share. */
#ifndef TMEMD_STREAM_PRIV_H
#define TMEMD_STREAM_PRIV_H

#include <xxhash.h>

#include "stream/stream.h"

/* The checksum in a head: of the bytes before it. */
uint64_t stream_head_check(const struct tmem_stream_head *head);

/* Of a record whose fields are in the stream's order of bytes, and its payload. */
uint64_t stream_record_check(uint64_t number, const struct tmem_stream_record *record,
			     const void *payload, size_t bytes);

/* Of a page's image. */
uint64_t stream_image_check(uint32_t index, const void *image, size_t bytes);

/* Between the numbers of a head here and in the stream: the same both ways. */
void stream_head_order(struct tmem_stream_head *head);

int stream_fail(int error, char *err, size_t errlen, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
