// SPDX-License-Identifier: GPL-2.0-or-later
/* Writes tmemd-counters(7) from the counter lists, so that it cannot differ from them. */
#include <stdio.h>

#include "base/counters.h"

static void list(const char *title, const char *about, const char *prefix,
		 const struct counter_info *info, int nr)
{
	printf(".Ss %s\n%s\n.Bl -tag -width Ds\n", title, about);
	for (int i = 0; i < nr; i++)
		printf(".It Cm %s Pq %s, %s\n%s.\nPrometheus:\n.Ql %s%s%s .\n", info[i].name,
		       info[i].unit, info[i].kind == COUNTER ? "counter" : "gauge", info[i].help,
		       prefix, info[i].name, info[i].kind == COUNTER ? "_total" : "");
	printf(".El\n");
}

int main(void)
{
	printf(".\\\" SPDX-License-Identifier: GPL-2.0-or-later\n"
	       ".\\\" Made from hyp/base/counters.h; do not edit.\n"
	       ".Dd November 30, 2026\n.Dt TMEMD-COUNTERS 7\n.Os\n"
	       ".Sh NAME\n.Nm tmemd-counters\n.Nd what tmemd counts\n"
	       ".Sh DESCRIPTION\n"
	       "Counters begin at zero when\n.Xr tmemd 8\nstarts and only grow; gauges say what "
	       "is.\n"
	       "The names are those of\n.Ic tmemctl stat ;\nbehind them stand their unit and the "
	       "names that\n.Ic tmemctl metrics\ngives them.\n"
	       "Bytes are physical bytes, what pages cost, where nothing else is said.\n"
	       "Logical bytes are pages times 4096.\n"
	       "What each refusal means and what to do about it is in the operator's guide.\n");
	list("Of each client", "Prometheus: with the label\n.Ql client .", "tmemd_client_",
	     client_counter_info, CLIENT_COUNTER_NR);
	list("Of the service", "One of each.", "tmemd_", store_counter_info, STORE_COUNTER_NR);
	list("Of each peer that lends to this host",
	     "Prometheus: with the label\n.Ql peer .\n.Ic tmemctl peer stat\nshows them.",
	     "tmemd_peer_", peer_counter_info, PEER_COUNTER_NR);
	list("Of what this host lends",
	     "There when\n.Cm lend\nis configured.\n.Ic tmemctl peer stat\nshows them.",
	     "tmemd_lender_", lender_counter_info, LENDER_COUNTER_NR);
	printf(".Sh SEE ALSO\n.Xr tmemctl 1 ,\n.Xr tmemd.conf 5 ,\n.Xr tmemd 8\n");
	return 0;
}
