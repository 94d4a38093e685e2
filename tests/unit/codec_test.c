// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/store_priv.h"
#include "tests/lib/pages.h"
#include "tests/lib/rng.h"
#include "tests/unit/unit.h"

#include <string.h>

static uint8_t page[PAGE_BYTES], back[PAGE_BYTES];

static void round_trip(void)
{
	struct encoded enc;
	unsigned seen[CODEC_NR] = {0};

	for (uint64_t stamp = 1; stamp < 3000; stamp++) {
		page_make(page, stamp);
		codec_encode(page, &enc);
		seen[enc.codec]++;
		memset(back, 0x55, sizeof(back));
		if (enc.codec == CODEC_SAME)
			codec_fill(back, enc.word);
		else if (!codec_decode(enc.codec, enc.bytes, enc.len, back))
			CU_FAIL("what was encoded cannot be decoded");
		if (memcmp(page, back, PAGE_BYTES))
			CU_FAIL("not the bytes that were encoded");
	}
	CU_ASSERT(seen[CODEC_SAME] > 0 && seen[CODEC_RAW] > 0 && seen[CODEC_LZ4] > 2500);
}

/* One different byte, wherever it is, and a page is not same-filled. */
static void almost_same(void)
{
	struct encoded enc;

	page_make_same(page, 0x1122334455667788ull);
	codec_encode(page, &enc);
	CU_ASSERT(enc.codec == CODEC_SAME && enc.word == 0x1122334455667788ull);
	for (unsigned at = 0; at < PAGE_BYTES; at++) {
		page[at] ^= 0x10;
		codec_encode(page, &enc);
		if (enc.codec == CODEC_SAME)
			CU_FAIL("a page that is not same-filled passes for one");
		page[at] ^= 0x10;
	}
}

/* The encoded bytes are not in the caller's page, which may change at any time. */
static void copied_first(void)
{
	struct encoded enc;
	uint8_t before[PAGE_BYTES];

	page_make_sized(page, 7, PAGE_BYTES);
	memcpy(before, page, PAGE_BYTES);
	codec_encode(page, &enc);
	CU_ASSERT_EQUAL_FATAL(enc.codec, CODEC_RAW);
	memset(page, 0, PAGE_BYTES);
	CU_ASSERT(!memcmp(enc.bytes, before, PAGE_BYTES));
}

/* Damaged bytes never write outside the page, and a wrong length is refused. */
static void damaged(void)
{
	static struct {
		uint8_t before[64], page[PAGE_BYTES], after[64];
	} room;
	uint8_t bytes[PAGE_BYTES];
	struct encoded enc;
	struct rng r = {1};

	for (uint64_t stamp = 1; stamp < 2000; stamp++) {
		page_make_sized(page, stamp, 1500);
		codec_encode(page, &enc);
		memcpy(bytes, enc.bytes, enc.len);
		for (unsigned n = 0; n < 4; n++)
			bytes[rng_below(&r, enc.len)] ^= 1u << rng_below(&r, 8);
		memset(&room, 0xa5, sizeof(room));
		codec_decode(CODEC_LZ4, bytes, enc.len, room.page);
		for (unsigned i = 0; i < 64; i++)
			if (room.before[i] != 0xa5 || room.after[i] != 0xa5)
				CU_FAIL("written outside the page");
		if (codec_decode(CODEC_LZ4, enc.bytes, enc.len - 1, back))
			CU_FAIL("a truncated image passes");
	}
	CU_ASSERT(!codec_decode(CODEC_RAW, bytes, PAGE_BYTES - 1, back));
	CU_ASSERT(!codec_decode(CODEC_NR, bytes, PAGE_BYTES, back));
}

/* The checksum is of these bytes, at this handle, from this put. */
static void check_binds(void)
{
	uint32_t check = codec_check(page, 1000, 11, 22, 33);
	unsigned same = 0;

	CU_ASSERT_EQUAL(check, codec_check(page, 1000, 11, 22, 33));
	CU_ASSERT_NOT_EQUAL(check, codec_check(page, 999, 11, 22, 33));
	CU_ASSERT_NOT_EQUAL(check, codec_check(page, 1000, 12, 22, 33));
	CU_ASSERT_NOT_EQUAL(check, codec_check(page, 1000, 11, 23, 33));
	CU_ASSERT_NOT_EQUAL(check, codec_check(page, 1000, 11, 22, 34));
	for (unsigned bit = 0; bit < 8000; bit++) {
		page[bit / 8] ^= 1u << bit % 8;
		same += codec_check(page, 1000, 11, 22, 33) == check;
		page[bit / 8] ^= 1u << bit % 8;
	}
	CU_ASSERT_EQUAL(same, 0);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"every page comes back", round_trip},
				      {"same-filled means every byte", almost_same},
				      {"the page is copied first", copied_first},
				      {"damaged bytes do no harm", damaged},
				      {"the checksum binds bytes to a put", check_binds},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"codec", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
