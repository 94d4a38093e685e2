// SPDX-License-Identifier: GPL-2.0-or-later
/* What is sealed can be opened by whom it belongs to, as what it is, and in no other way. */
#include "store/seal.h"
#include "tests/lib/rng.h"
#include "tests/unit/unit.h"

#include <stddef.h>
#include <string.h>

#define ROUNDS 200

static struct rng rng = {1};

static void fill(void *at, unsigned len)
{
	for (unsigned i = 0; i < len; i++)
		((uint8_t *)at)[i] = rng_next(&rng);
}

static struct seal *some_seal(void)
{
	uint8_t key[SEAL_KEY];
	struct seal *seal;

	fill(key, sizeof(key));
	seal = seal_new(key);
	CU_ASSERT_FATAL(seal != NULL);
	return seal;
}

static void opened(void)
{
	struct seal *seal = some_seal();
	uint8_t was[4096], bytes[4096], tag[SEAL_TAG];

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct seal_of of = {.index = i, .seq = i, .len = 1 + rng_below(&rng, 4096)};

		fill(was, of.len);
		memcpy(bytes, was, of.len);
		CU_ASSERT(seal_close(seal, i, &of, bytes, tag));
		if (of.len > 16)
			CU_ASSERT(memcmp(was, bytes, of.len) != 0);
		CU_ASSERT(seal_open(seal, i, &of, bytes, tag));
		CU_ASSERT(!memcmp(was, bytes, of.len));
	}
	seal_free(seal);
}

/* One bit of anything: the bytes, the tag, the number, what the page is, the key. */
static void refused(void)
{
	struct seal *seal = some_seal(), *other = some_seal();
	uint8_t sealed[512], bytes[512], tag[SEAL_TAG], bad[SEAL_TAG];
	struct seal_of of, wrong;

	fill(&of, sizeof(of));
	of.len = sizeof(bytes);
	fill(bytes, sizeof(bytes));
	CU_ASSERT_FATAL(seal_close(seal, 7, &of, bytes, tag));
	memcpy(sealed, bytes, sizeof(bytes));
	for (unsigned i = 0; i < 8 * sizeof(bytes); i += 11) {
		memcpy(bytes, sealed, sizeof(bytes));
		bytes[i / 8] ^= 1u << i % 8;
		CU_ASSERT(!seal_open(seal, 7, &of, bytes, tag));
	}
	for (unsigned i = 0; i < 8 * SEAL_TAG; i++) {
		memcpy(bytes, sealed, sizeof(bytes));
		memcpy(bad, tag, sizeof(bad));
		bad[i / 8] ^= 1u << i % 8;
		CU_ASSERT(!seal_open(seal, 7, &of, bytes, bad));
	}
	for (unsigned i = 0; i < 8 * sizeof(of); i++) {
		if (i / 8 >= offsetof(struct seal_of, len) &&
		    i / 8 < offsetof(struct seal_of, len) + sizeof(of.len))
			continue;
		memcpy(bytes, sealed, sizeof(bytes));
		memcpy(&wrong, &of, sizeof(of));
		((uint8_t *)&wrong)[i / 8] ^= 1u << i % 8;
		CU_ASSERT(!seal_open(seal, 7, &wrong, bytes, tag));
	}
	memcpy(&wrong, &of, sizeof(of));
	wrong.len--;
	memcpy(bytes, sealed, sizeof(bytes));
	CU_ASSERT(!seal_open(seal, 7, &wrong, bytes, tag));
	memcpy(bytes, sealed, sizeof(bytes));
	CU_ASSERT(!seal_open(seal, 8, &of, bytes, tag));
	memcpy(bytes, sealed, sizeof(bytes));
	CU_ASSERT(!seal_open(seal, 7 + (1ull << 40), &of, bytes, tag));
	memcpy(bytes, sealed, sizeof(bytes));
	CU_ASSERT(!seal_open(other, 7, &of, bytes, tag));
	memcpy(bytes, sealed, sizeof(bytes));
	CU_ASSERT(seal_open(seal, 7, &of, bytes, tag));
	seal_free(seal);
	seal_free(other);
	seal_free(NULL);
}

/* Test case 14 of the specification of GCM (McGrew, Viega): what else is authenticated changes the
 * tag alone. */
static void standard(void)
{
	static const uint8_t cipher[16] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
					   0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
	uint8_t key[SEAL_KEY] = {0}, bytes[16] = {0}, tag[SEAL_TAG];
	struct seal_of of = {.len = 16};
	struct seal *seal = seal_new(key);

	CU_ASSERT_FATAL(seal != NULL);
	CU_ASSERT(seal_close(seal, 0, &of, bytes, tag));
	CU_ASSERT(!memcmp(bytes, cipher, sizeof(cipher)));
	seal_free(seal);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"what is sealed can be opened", opened},
				      {"nothing else can", refused},
				      {"the standard cipher", standard},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"seal", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
