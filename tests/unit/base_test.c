// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/counters.h"
#include "base/fault.h"
#include "base/log.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A site speaks LOG_BURST times, then is held; what it held is told to who speaks next. */
static void log_limits(void)
{
	struct log_limit limit = {0};
	uint32_t held = 99;
	unsigned spoke = 0;

	for (unsigned i = 0; i < 1000; i++)
		spoke += log_may_speak(&limit, &held);
	CU_ASSERT_EQUAL(spoke, LOG_BURST);
	CU_ASSERT_EQUAL(held, 0);
	limit.window -= (LOG_INTERVAL_S + 1) * 1000000000ull; /* a minute later */
	CU_ASSERT(log_may_speak(&limit, &held));
	CU_ASSERT_EQUAL(held, 1000 - LOG_BURST);
}

static void faults(void)
{
	const char *bad = NULL;
	unsigned failed = 0;

	CU_ASSERT(!fault(FAULT_ALLOC_DESC));
	if (!fault_arm(FAULT_ALLOC_DESC, FAULT_FAIL, 2, 3)) {
		CU_ASSERT(!fault(FAULT_ALLOC_DESC)); /* built without: always false */
		return;
	}
	for (unsigned i = 0; i < 10; i++) {
		bool hit = fault(FAULT_ALLOC_DESC);

		CU_ASSERT_EQUAL(hit, i >= 2 && i < 5);
		failed += hit;
		CU_ASSERT(!fault(FAULT_ALLOC_POOL));
	}
	CU_ASSERT_EQUAL(failed, 3);
	CU_ASSERT_EQUAL(fault_passes(FAULT_ALLOC_DESC), 10);
	fault_arm(FAULT_ALLOC_DESC, FAULT_OFF, 0, 0);
	CU_ASSERT(!fault(FAULT_ALLOC_DESC));
	setenv("TMEMD_FAULTS", "alloc_pool=fail:1,put_desc=sleep", 1);
	CU_ASSERT_EQUAL(fault_from_env(&bad), 0);
	CU_ASSERT(!fault(FAULT_ALLOC_POOL));
	CU_ASSERT(fault(FAULT_ALLOC_POOL));
	CU_ASSERT(!fault(FAULT_PUT_DESC_FILLED)); /* sleeps, does not fail */
	setenv("TMEMD_FAULTS", "alloc_pool=explode", 1);
	CU_ASSERT_EQUAL(fault_from_env(&bad), -EINVAL);
	CU_ASSERT(bad != NULL);
	setenv("TMEMD_FAULTS", "nonsense=fail", 1);
	CU_ASSERT_EQUAL(fault_from_env(&bad), -EINVAL);
	unsetenv("TMEMD_FAULTS");
	fault_arm(FAULT_ALLOC_POOL, FAULT_OFF, 0, 0);
	fault_arm(FAULT_PUT_DESC_FILLED, FAULT_OFF, 0, 0);
}

/* Names become Prometheus metrics: lower case, and no two the same. */
static void check_names(const struct counter_info *info, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		for (const char *c = info[i].name; *c; c++)
			CU_ASSERT(islower((unsigned char)*c) || *c == '_');
		CU_ASSERT(info[i].unit[0] && info[i].help[0]);
		for (unsigned k = 0; k < i; k++)
			CU_ASSERT(strcmp(info[i].name, info[k].name));
	}
}

static void counters(void)
{
	counter_t c = 5;

	check_names(client_counter_info, CLIENT_COUNTER_NR);
	check_names(store_counter_info, STORE_COUNTER_NR);
	check_names(peer_counter_info, PEER_COUNTER_NR);
	check_names(lender_counter_info, LENDER_COUNTER_NR);
	counter_add(&c, 3);
	counter_sub(&c, 7);
	CU_ASSERT_EQUAL(counter_get(&c), 1);
}

int main(void)
{
	static CU_TestInfo tests[] = {{"log lines are limited", log_limits},
				      {"fault points", faults},
				      {"names of counters", counters},
				      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"base", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	return unit_run(suites);
}
