// SPDX-License-Identifier: GPL-2.0-or-later
/* Checksums and the order of bytes. */
#include "stream_priv.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>

uint64_t stream_head_check(const struct tmem_stream_head *head)
{
	return XXH3_64bits(head, offsetof(struct tmem_stream_head, check));
}

uint64_t stream_record_check(uint64_t number, const struct tmem_stream_record *record,
			     const void *payload, size_t bytes)
{
	struct {
		uint64_t number;
		uint32_t type;
		uint32_t bytes;
	} place = {htole64(number), record->type, record->bytes};

	return XXH3_64bits_withSeed(payload, bytes, XXH3_64bits(&place, sizeof(place)));
}

uint64_t stream_image_check(uint32_t index, const void *image, size_t bytes)
{
	return XXH3_64bits_withSeed(image, bytes, index);
}

void stream_head_order(struct tmem_stream_head *head)
{
	head->magic = htole64(head->magic);
	head->version = htole32(head->version);
	head->bytes = htole32(head->bytes);
	head->features = htole64(head->features);
	head->kind = htole32(head->kind);
	head->weight = htole32(head->weight);
	head->minimum = htole64(head->minimum);
	head->maximum = htole64(head->maximum);
	head->epoch = htole64(head->epoch);
	head->guest_features = htole64(head->guest_features);
	head->region_bytes = htole64(head->region_bytes);
	head->rings = htole32(head->rings);
	head->entries = htole32(head->entries);
	head->credits = htole32(head->credits);
	head->disk_bytes = htole64(head->disk_bytes);
	head->queues = htole32(head->queues);
	head->pool = htole32(head->pool);
}

int stream_fail(int error, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}
