/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TMEMD_TESTS_FUZZ_AUDIT_H
#define TMEMD_TESTS_FUZZ_AUDIT_H

struct store;

/*
 * Ends the program unless the store's books agree: every page that a list has is found by its
 * handle, stands in a place of its own, and is paid for once. Nothing else may run.
 */
void audit_store(struct store *store);

#endif
