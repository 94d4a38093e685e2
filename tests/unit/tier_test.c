// SPDX-License-Identifier: GPL-2.0-or-later
/* Frames: what is written is read back, what is out of form is refused. And who gets a blob. */
#include "tests/lib/rng.h"
#include "tests/unit/unit.h"
#include "tier/frame.h"
#include "tier/place.h"

#include <stdlib.h>
#include <string.h>

static uint8_t bytes[2 * TMEM_PEER_FRAME_MAX];

static struct frame read_back(uint32_t len, enum frame_side from)
{
	struct frame frame;
	const char *why = NULL;

	CU_ASSERT_EQUAL_FATAL(frame_next(bytes, len, from, &frame, &why), 1);
	CU_ASSERT_EQUAL(frame.bytes, len);
	return frame;
}

/* The bytes on the wire, so that another implementation would be read. */
static void golden(void)
{
	static const uint8_t get[] = {32, 0, 0, 0, 18, 0, 1, 0, 7,    0,    0,	  0,	0, 0, 0, 0,
				      8,  7, 6, 5, 4,  3, 2, 1, 0xdd, 0xcc, 0xbb, 0xaa, 0, 0, 0, 0};
	static const uint8_t stat[] = {40, 0, 0, 0,  36, 0, 0, 0, 9, 0, 0, 0, 0, 0,
				       0,  0, 0, 16, 0,	 0, 0, 0, 0, 0, 2, 0, 0, 0,
				       0,  0, 0, 0,  3,	 0, 0, 0, 4, 0, 0, 0};
	struct tmem_peer_entry entry = {0x0102030405060708, 0xaabbccdd, 0, 0};
	struct tmem_peer_stat s = {4096, 2, 3, 4};
	struct frame_make make;

	frame_make(&make, bytes, TMEM_PEER_GET, 7);
	frame_make_entries(&make, 1);
	frame_make_entry(&make, &entry, NULL);
	CU_ASSERT_EQUAL(frame_make_end(&make), sizeof(get));
	CU_ASSERT(!memcmp(bytes, get, sizeof(get)));
	frame_make(&make, bytes, TMEM_PEER_STAT, 9);
	frame_make_stat(&make, &s);
	CU_ASSERT_EQUAL(frame_make_end(&make), sizeof(stat));
	CU_ASSERT(!memcmp(bytes, stat, sizeof(stat)));
}

static void hello(void)
{
	struct tmem_peer_hello out = {.magic = TMEM_PEER_MAGIC,
				      .version_min = 1,
				      .version_max = 2,
				      .features = 3,
				      .blob_max = 4,
				      .batch = 5,
				      .renew = 6,
				      .window = 7,
				      .epoch = 8,
				      .session = 9,
				      .held = 10,
				      .uuid = {11},
				      .name = "a host",
				      .leave_ms = 12,
				      .spare = 13};
	struct tmem_peer_hello in;
	struct frame_make make;
	struct frame frame;
	uint32_t len;

	frame_make(&make, bytes, TMEM_PEER_HELLO, 1);
	frame_make_hello(&make, &out);
	len = frame_make_end(&make);
	CU_ASSERT_EQUAL(len, 16 + 160);
	CU_ASSERT(!memcmp(bytes + 16, "TMEMPEER", 8));
	frame = read_back(len, FRAME_OWNER);
	memset(&in, 0xee, sizeof(in));
	frame_hello(&frame, &in);
	CU_ASSERT(!memcmp(&in, &out, sizeof(in)));
	/* A later version's is longer. */
	bytes[0] = 16 + 200;
	memset(bytes + len, 0x55, 40);
	frame = read_back(16 + 200, FRAME_OWNER);
	frame_hello(&frame, &in);
	CU_ASSERT(!memcmp(&in, &out, sizeof(in)));
}

/* A batch with blobs of all kinds of lengths; every shorter piece of it is no frame yet. */
static void batches(void)
{
	static uint8_t blobs[TMEM_PEER_BATCH_MAX][TMEM_PEER_BLOB_MAX];
	struct tmem_peer_entry out[TMEM_PEER_BATCH_MAX], in;
	struct rng rng = {1};

	for (unsigned round = 0; round < 200; round++) {
		uint16_t n = (uint16_t)(1 + rng_below(&rng, TMEM_PEER_BATCH_MAX));
		struct frame_make make;
		struct frame_walk walk;
		struct frame frame;
		const uint8_t *blob;
		const char *why;
		uint32_t len;

		frame_make(&make, bytes, TMEM_PEER_PUT, round);
		frame_make_entries(&make, n);
		for (unsigned i = 0; i < n; i++) {
			out[i] = (struct tmem_peer_entry){rng_next(&rng), (uint32_t)rng_next(&rng),
							  0, 0};
			out[i].len = (uint16_t)(1 + rng_below(&rng, TMEM_PEER_BLOB_MAX));
			if (round == 0)
				out[i].len = TMEM_PEER_BLOB_MAX;
			memset(blobs[i], (int)rng_next(&rng), out[i].len);
			frame_make_entry(&make, &out[i], blobs[i]);
		}
		len = frame_make_end(&make);
		CU_ASSERT(len <= TMEM_PEER_FRAME_MAX);
		for (unsigned i = 0; i < 20; i++)
			CU_ASSERT_EQUAL(frame_next(bytes, rng_below(&rng, len), FRAME_OWNER, &frame,
						   &why),
					0);
		frame = read_back(len, FRAME_OWNER);
		CU_ASSERT_EQUAL(frame.id, round);
		frame_walk(&frame, &walk);
		for (unsigned i = 0; i < n; i++) {
			CU_ASSERT_FATAL(frame_walk_next(&walk, &in, &blob));
			CU_ASSERT(!memcmp(&in, &out[i], sizeof(in)));
			CU_ASSERT(!memcmp(blob, blobs[i], in.len));
		}
		CU_ASSERT(!frame_walk_next(&walk, &in, &blob));
	}
}

static void errors(void)
{
	struct tmem_peer_error out = {TMEM_PEER_E_EPOCH, 0, 5, 6}, in;
	char text[TMEM_PEER_TEXT + 1], longer[2 * TMEM_PEER_TEXT];
	struct frame_make make;
	struct frame frame;

	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	longer[3] = '\n'; /* a peer's words end up in the log */
	longer[4] = '\x1b';
	frame_make(&make, bytes, TMEM_PEER_ERROR, 0);
	frame_make_error(&make, &out, longer);
	frame = read_back(frame_make_end(&make), FRAME_LENDER);
	frame_error(&frame, &in, text);
	CU_ASSERT(!memcmp(&in, &out, sizeof(in)));
	CU_ASSERT_EQUAL(strlen(text), TMEM_PEER_TEXT);
	CU_ASSERT(!strncmp(text, "xxx??xxx", 8));
}

/* Each sentence that a frame out of form is refused with, and who may send what. */
static void out_of_form(void)
{
	static const struct {
		uint32_t bytes;
		uint16_t type, count;
		enum frame_side from;
		uint16_t len; /* of the first entry */
		uint16_t status;
		const char *why;
	} cases[] = {
		{16, 0, 0, FRAME_OWNER, 0, 0, "there is no such type"},
		{16, 38, 0, FRAME_OWNER, 0, 0, "there is no such type"},
		{16, 65535, 0, FRAME_LENDER, 0, 0, "there is no such type"},
		{16, TMEM_PEER_PING, 0, FRAME_LENDER, 0, 0, "this side does not send it"},
		{40, TMEM_PEER_STAT, 0, FRAME_OWNER, 0, 0, "this side does not send it"},
		{0, TMEM_PEER_PING, 0, FRAME_OWNER, 0, 0, "it is too short"},
		{TMEM_PEER_FRAME_MAX + 1, TMEM_PEER_PUT, 16, FRAME_OWNER, 0, 0, "it is too long"},
		{17, TMEM_PEER_PING, 0, FRAME_OWNER, 0, 0, "it is too long"},
		{16, TMEM_PEER_PING, 1, FRAME_OWNER, 0, 0, "it has too many entries"},
		{175, TMEM_PEER_HELLO, 0, FRAME_OWNER, 0, 0, "it is too short"},
		{16 + 160 + 257, TMEM_PEER_HELLO, 0, FRAME_OWNER, 0, 0, "it is too long"},
		{31, TMEM_PEER_GET, 1, FRAME_OWNER, 0, 0, "it is too short for its entries"},
		{32, TMEM_PEER_GET, 1, FRAME_OWNER, 1, 0, "a blob in it is too long"},
		{33, TMEM_PEER_GET, 1, FRAME_OWNER, 0, 0, "it is not as long as its entries say"},
		{32, TMEM_PEER_PUT, 0, FRAME_OWNER, 0, 0, "it has no entries"},
		{32, TMEM_PEER_PUT, 1, FRAME_OWNER, 4097, 0, "a blob in it is too long"},
		{32, TMEM_PEER_PUT, 1, FRAME_OWNER, 0, 0, "a blob in it is empty"},
		{42, TMEM_PEER_GET_DONE, 1, FRAME_LENDER, 10, 1, "there is a blob with a refusal"},
		{41, TMEM_PEER_PUT, 1, FRAME_OWNER, 10, 0, "it is not as long as its entries say"},
		{288, TMEM_PEER_PUT, 17, FRAME_OWNER, 0, 0, "it has too many entries"},
		{31, TMEM_PEER_DELETE, 2, FRAME_OWNER, 0, 0, "it is not as long as its count says"},
		{31, TMEM_PEER_RENEW, 0, FRAME_OWNER, 0, 0, "it is too short"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct frame_make make;
		struct frame frame;
		const char *why = NULL;
		uint32_t n = cases[i].bytes;

		memset(bytes, 0, sizeof(bytes));
		frame_make(&make, bytes, cases[i].type, 1);
		memcpy(bytes, &n, sizeof(n));
		memcpy(bytes + 6, &cases[i].count, sizeof(uint16_t));
		memcpy(bytes + 28, &cases[i].len, sizeof(uint16_t));
		memcpy(bytes + 30, &cases[i].status, sizeof(uint16_t));
		CU_ASSERT_EQUAL(frame_next(bytes, sizeof(bytes), cases[i].from, &frame, &why), -1);
		if (!why || strcmp(why, cases[i].why) != 0)
			printf("case %u: %s, not %s\n", i, why ? why : "(nothing)", cases[i].why);
		CU_ASSERT(why && !strcmp(why, cases[i].why));
	}
}

/* ---- Placement ------------------------------------------------------------------------------ */

static unsigned share(const struct place_host *hosts, unsigned nr, unsigned which)
{
	struct rng rng = {3};
	unsigned n = 0;

	for (unsigned i = 0; i < 10000; i++)
		n += place_choose(hosts, nr, 1000, rng_next(&rng)) == (int)which;
	return n;
}

static void placement(void)
{
	struct place_host hosts[3] = {{true, 1 << 30, 200}, {true, 3 << 28, 200}, {true, 0, 200}};

	CU_ASSERT_EQUAL(share(hosts, 3, 2), 0); /* full */
	CU_ASSERT(abs((int)share(hosts, 3, 0) - 10000 * 4 / 7) < 300);
	hosts[0].usable = false;
	CU_ASSERT_EQUAL(share(hosts, 3, 1), 10000);
	hosts[1].usable = false;
	CU_ASSERT_EQUAL(place_choose(hosts, 3, 1, 5), PLACE_NONE);
	CU_ASSERT_EQUAL(place_choose(hosts, 0, 1, 5), PLACE_NONE);
	hosts[2] = (struct place_host){true, 999, 200};
	CU_ASSERT_EQUAL(place_choose(hosts, 3, 1000, 5), PLACE_NONE);
	CU_ASSERT_EQUAL(place_choose(hosts, 3, 999, 5), 2);

	/* With as much memory, half as fast: half as often; much slower: only when alone. */
	hosts[0] = hosts[1] = hosts[2] = (struct place_host){true, 1 << 30, 400};
	hosts[1].latency_us = 800;
	hosts[2].latency_us = 50000;
	CU_ASSERT(abs((int)share(hosts, 3, 0) - 10000 * 2 / 3) < 300);
	CU_ASSERT_EQUAL(share(hosts, 3, 2), 0);
	hosts[0].usable = hosts[1].usable = false;
	CU_ASSERT_EQUAL(share(hosts, 3, 2), 10000);

	/* The largest numbers that there are. */
	hosts[0] = hosts[1] = (struct place_host){true, UINT64_MAX, UINT32_MAX};
	CU_ASSERT(share(hosts, 2, 0) > 4500 && share(hosts, 2, 1) > 4500);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"bytes on the wire", golden},
				      {"hello", hello},
				      {"batches", batches},
				      {"errors", errors},
				      {"out of form", out_of_form},
				      {"placement", placement},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"tier", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
