// SPDX-License-Identifier: GPL-2.0-or-later
#include "counters.h"

#define X(id, name, unit, kind, help) {name, unit, kind, help},

const struct counter_info client_counter_info[CLIENT_COUNTER_NR] = {CLIENT_COUNTERS(X)};
const struct counter_info store_counter_info[STORE_COUNTER_NR] = {STORE_COUNTERS(X)};
const struct counter_info peer_counter_info[PEER_COUNTER_NR] = {PEER_COUNTERS(X)};
const struct counter_info lender_counter_info[LENDER_COUNTER_NR] = {LENDER_COUNTERS(X)};
