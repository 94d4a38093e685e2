/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TMEMD_TESTS_UNIT_H
#define TMEMD_TESTS_UNIT_H

#include <CUnit/Basic.h>

/* Runs the suites; the exit status of the program: 0 when no assertion failed. */
static inline int unit_run(CU_SuiteInfo *suites)
{
	unsigned failed;

	if (CU_initialize_registry() || CU_register_suites(suites))
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed != 0;
}

#endif
