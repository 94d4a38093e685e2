// SPDX-License-Identifier: GPL-2.0-or-later
/* Entries that wait: what has to stay behind them, and in which order they are tried. */
#include "tests/unit/unit.h"

#include <string.h>

#include "front/front_priv.h"

static struct front_client client;
static struct ring *const ring = &client.rings[3];

/* What is away, by index of the page; and what was executed, in order. */
static bool away[64];
static uint32_t executed[64];
static unsigned nr_executed;

static int setup(void)
{
	for (unsigned i = 0; i < TMEM_MAX_RINGS; i++)
		client.rings[i].client = &client;
	return parked_open(&client);
}

static int teardown(void)
{
	parked_close(&client);
	parked_close(&client);
	return 0;
}

static struct tmem_entry entry(unsigned op, uint32_t pool, uint64_t object, uint32_t index)
{
	struct tmem_entry e = {.op = (uint8_t)op, .pool = pool, .index = index};

	e.object[1] = object;
	return e;
}

static void begin(void)
{
	ring->nr_parked = 0;
	nr_executed = 0;
	memset(away, 0, sizeof(away));
}

/* As the ring does it; the position tells which one it was. */
static bool attempt(struct ring *r, const struct parked *parked)
{
	CU_ASSERT_PTR_EQUAL(r, ring);
	if (parked->entry.op == TMEM_GET_PAGE && away[parked->entry.index])
		return false;
	executed[nr_executed++] = parked->position;
	return true;
}

static bool submit(uint32_t position, struct tmem_entry e)
{
	struct parked parked = {.entry = e, .position = position, .number = (uint16_t)position};

	if (!parked_before(ring, ring->nr_parked, &e) && attempt(ring, &parked))
		return true;
	parked_add(ring, &parked);
	return false;
}

static void same_page_waits(void)
{
	static const unsigned ops[] = {TMEM_GET_PAGE, TMEM_PUT_PAGE, TMEM_FLUSH_PAGE,
				       TMEM_FLUSH_OBJECT, TMEM_DESTROY_POOL};

	for (unsigned i = 0; i < 5; i++) {
		begin();
		away[7] = true;
		CU_ASSERT(!submit(0, entry(TMEM_GET_PAGE, 1, 5, 7)));
		CU_ASSERT(!submit(1, entry(ops[i], 1, 5, 7)));
		CU_ASSERT_EQUAL(nr_executed, 0);
		away[7] = false;
		CU_ASSERT_EQUAL(parked_retry(ring, attempt), 2);
		CU_ASSERT_EQUAL(ring->nr_parked, 0);
		CU_ASSERT_EQUAL_FATAL(nr_executed, 2);
		CU_ASSERT(executed[0] == 0 && executed[1] == 1);
	}
}

static void others_go_on(void)
{
	begin();
	away[7] = true;
	CU_ASSERT(!submit(0, entry(TMEM_GET_PAGE, 1, 5, 7)));
	CU_ASSERT(submit(1, entry(TMEM_GET_PAGE, 1, 5, 8)));
	CU_ASSERT(submit(2, entry(TMEM_PUT_PAGE, 1, 6, 7)));
	CU_ASSERT(submit(3, entry(TMEM_FLUSH_PAGE, 2, 5, 7)));
	CU_ASSERT(submit(4, entry(TMEM_FLUSH_OBJECT, 1, 6, 0)));
	CU_ASSERT(submit(5, entry(TMEM_DESTROY_POOL, 2, 0, 0)));
	CU_ASSERT_EQUAL(ring->nr_parked, 1);
}

/* What waits behind one that waits keeps its place, also behind a whole object or pool. */
static void order_is_kept(void)
{
	begin();
	away[7] = away[9] = true;
	CU_ASSERT(!submit(0, entry(TMEM_GET_PAGE, 1, 5, 7)));
	CU_ASSERT(!submit(1, entry(TMEM_GET_PAGE, 1, 6, 9)));
	CU_ASSERT(!submit(2, entry(TMEM_FLUSH_OBJECT, 1, 5, 0)));
	CU_ASSERT(!submit(3, entry(TMEM_PUT_PAGE, 1, 5, 30)));
	CU_ASSERT(!submit(4, entry(TMEM_PUT_PAGE, 1, 6, 9)));
	CU_ASSERT(submit(5, entry(TMEM_PUT_PAGE, 1, 6, 10)));
	CU_ASSERT(!submit(6, entry(TMEM_DESTROY_POOL, 1, 0, 0)));
	CU_ASSERT(!submit(7, entry(TMEM_PUT_PAGE, 1, 8, 10)));
	CU_ASSERT_EQUAL(parked_retry(ring, attempt), 0);
	away[9] = false;
	CU_ASSERT_EQUAL(parked_retry(ring, attempt), 2);
	CU_ASSERT_EQUAL_FATAL(nr_executed, 3);
	CU_ASSERT(executed[1] == 1 && executed[2] == 4);
	away[7] = false;
	CU_ASSERT_EQUAL(parked_retry(ring, attempt), 5);
	CU_ASSERT_EQUAL_FATAL(nr_executed, 8);
	for (unsigned i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(executed[3 + i], ((const uint32_t[]){0, 2, 3, 6, 7})[i]);
}

static void looked_at_when_told(void)
{
	begin();
	atomic_store(&ring->come, true);
	CU_ASSERT(!parked_pending(ring));
	away[7] = true;
	submit(0, entry(TMEM_GET_PAGE, 1, 5, 7));
	/* What came before it was parked may have been for it. */
	CU_ASSERT(parked_pending(ring));
	CU_ASSERT_EQUAL(parked_retry(ring, attempt), 0);
	CU_ASSERT(!parked_pending(ring));
	atomic_store(&ring->come, true);
	CU_ASSERT(parked_pending(ring));
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"what concerns the same page waits", same_page_waits},
		{"what concerns others goes on", others_go_on},
		{"order is kept", order_is_kept},
		{"looked at when something has come", looked_at_when_told},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"parked", setup, teardown, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return unit_run(suites);
}
