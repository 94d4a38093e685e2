// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A stream to be restored. Its checksums are put right first, or no input would get beyond them;
 * when the first byte is odd, they are left as they are.
 *
 * What is refused leaves nothing. What is accepted is a client's pools and pages, and what they
 * make as a stream is restored alike.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "proto/tmem_abi.h"
#include "store/store_priv.h"
#include "stream/stream_priv.h"
#include "tests/fuzz/audit.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/scratch.h"

#define CAPACITY (64ull << 20)
#define POOL_MAX (32ull << 20)
#define MAXIMUM (4ull << 20)

static struct store *store;
static struct store_client *clients[2];

struct memory {
	uint8_t *bytes;
	size_t len, room, at;
};

static int write_memory(void *arg, const void *bytes, size_t len)
{
	struct memory *m = arg;

	if (!len)
		return 0;
	if (m->len + len > m->room) {
		m->room = 2 * (m->len + len);
		m->bytes = realloc(m->bytes, m->room);
		MUST(m->bytes, "memory");
	}
	memcpy(m->bytes + m->len, bytes, len);
	m->len += len;
	return 0;
}

static int read_memory(void *arg, void *bytes, size_t len)
{
	struct memory *m = arg;

	if (!len)
		return 0;
	if (len > m->len - m->at) {
		m->at = m->len;
		return -ENODATA;
	}
	memcpy(bytes, m->bytes + m->at, len);
	m->at += len;
	return 0;
}

/* Pages wait for the store's worker, which is us; what it cannot have it never will. */
static bool is_gone(void *arg)
{
	(void)arg;
	return !store_work(store);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct store_limits limits = {.max_bytes = MAXIMUM};
	struct store_config config = {
		.arena_path = NULL, .pool_max = POOL_MAX, .ready_chunks = 1, .no_worker = true};
	struct arena arena;
	char err[256];

	(void)argc;
	(void)argv;
	log_setup(LOG_ERROR - 1, false);
	scratch_make("fuzz-restore");
	config.arena_path = scratch_path("arena");
	MUST(!arena_open(&arena, config.arena_path, CAPACITY, false, err, sizeof(err)), "%s", err);
	arena_close(&arena);
	MUST(!store_open(&store, &config, err, sizeof(err)), "%s", err);
	MUST(!store_client_open(store, "a", &limits, &clients[0]) &&
		     !store_client_open(store, "b", &limits, &clients[1]),
	     "clients");
	return 0;
}

/* ---- Checksums ------------------------------------------------------------------------------ */

/* Streams are not aligned: what is looked at is copied out, and back. */
static void mend_pages(uint8_t *payload, size_t bytes)
{
	struct tmem_stream_pages pages;
	struct tmem_stream_page page;
	size_t at, image, len;
	uint32_t nr;

	if (bytes < sizeof(pages))
		return;
	memcpy(&pages, payload, sizeof(pages));
	nr = le32toh(pages.nr);
	at = sizeof(pages);
	if (nr > TMEM_STREAM_MAX_PAGES || bytes < at + nr * sizeof(page))
		return;
	image = at + nr * sizeof(page);
	for (uint32_t i = 0; i < nr; i++, at += sizeof(page), image += len) {
		memcpy(&page, payload + at, sizeof(page));
		len = le16toh(page.bytes);
		if (len > bytes - image)
			return;
		page.check = htole64(stream_image_check(le32toh(page.index), payload + image, len));
		memcpy(payload + at, &page, sizeof(page));
	}
}

/* The number of pages is known only to who has restored them: it is taken as it is. */
static void mend_end(uint8_t *payload, size_t bytes, uint64_t number, uint64_t before)
{
	struct tmem_stream_end end;

	if (bytes != sizeof(end))
		return;
	memcpy(&end, payload, sizeof(end));
	end.records = htole64(number);
	end.check = htole64(before);
	memcpy(payload, &end, sizeof(end));
}

static void mend(uint8_t *data, size_t size)
{
	struct tmem_stream_record record;
	struct tmem_stream_head head;
	uint64_t number = 0;
	size_t at = sizeof(head), bytes;

	if (size < sizeof(head))
		return;
	memcpy(&head, data, sizeof(head));
	head.magic = htole64(TMEM_STREAM_MAGIC);
	head.check = htole64(stream_head_check(&head));
	memcpy(data, &head, sizeof(head));
	for (; size - at >= sizeof(record); at += bytes, number++) {
		uint64_t before = XXH3_64bits(data, at);
		uint8_t *payload = data + at + sizeof(record);

		memcpy(&record, data + at, sizeof(record));
		bytes = le32toh(record.bytes);
		if (bytes > size - at - sizeof(record))
			return;
		if (le32toh(record.type) == TMEM_STREAM_PAGES)
			mend_pages(payload, bytes);
		if (le32toh(record.type) == TMEM_STREAM_END)
			mend_end(payload, bytes, number, before);
		record.check = htole64(stream_record_check(number, &record, payload, bytes));
		memcpy(data + at, &record, sizeof(record));
		at += sizeof(record);
	}
}

/* ---- There and back ------------------------------------------------------------------------- */

static int restore(struct memory *m, struct store_client *client, struct tmem_stream_head *head,
		   uint32_t *disk_pool, struct stream_totals *totals)
{
	struct stream_io io = {write_memory, read_memory, is_gone, m};
	struct stream_in *in;
	char err[512] = "";
	int r;

	m->at = 0;
	r = stream_in_open(&in, &io, head, err, sizeof(err));
	if (!r) {
		r = stream_in_restore(in, client, disk_pool, totals, err, sizeof(err));
		stream_in_close(in);
	}
	MUST(!r == !err[0], "%d and \"%s\"", r, err);
	return r;
}

static void clear(void)
{
	for (unsigned i = 0; i < 2; i++)
		store_pools_destroy(clients[i]);
	while (store_work(store))
		;
}

static int quiet(void *arg, uint64_t found, char *err, size_t errlen)
{
	(void)arg;
	(void)found;
	(void)err;
	(void)errlen;
	return 1;
}

static bool still(void *arg)
{
	(void)arg;
	return true;
}

/* A disk's pool has another id here, which its head has to say. */
static void back(struct tmem_stream_head *head, uint32_t disk_pool, uint64_t pages)
{
	struct stream_quiet q = {quiet, still, NULL};
	struct stream_totals out, in;
	struct memory m = {0};
	struct stream_io io = {write_memory, read_memory, is_gone, &m};
	struct tmem_stream_head again;
	char err[512] = "";

	if (head->kind == TMEM_STREAM_DISK)
		head->pool = disk_pool;
	MUST(!stream_save(clients[0], head, &io, &q, &out, err, sizeof(err)), "%s", err);
	MUST(out.pages == pages, "%llu pages were restored, and %llu saved",
	     (unsigned long long)pages, (unsigned long long)out.pages);
	MUST(!restore(&m, clients[1], &again, &disk_pool, &in), "not restored again");
	MUST(in.pages == pages, "%llu pages the second time", (unsigned long long)in.pages);
	free(m.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tmem_stream_head head = {0};
	struct stream_totals totals = {0};
	struct memory m = {0};
	uint32_t disk_pool = 0;

	if (size < 2)
		return 0;
	write_memory(&m, data + 1, size - 1);
	if (!(data[0] & 1))
		mend(m.bytes, m.len);
	if (!restore(&m, clients[0], &head, &disk_pool, &totals))
		back(&head, disk_pool, totals.pages);
	else
		MUST(!store_client_pools(clients[0], NULL, 0), "something is left");
	audit_store(store);
	clear();
	MUST(!counter_get(&store_client_counters(clients[0])[CLIENT_PHYSICAL_BYTES]),
	     "pages are left");
	free(m.bytes);
	return 0;
}
