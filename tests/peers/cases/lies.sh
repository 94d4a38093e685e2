#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A peer that alters what it holds: every page is right, and the lies are counted.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3
for h in host1 host3; do
	configure $h
	start $h
done
configure host2
TMEMD_FAULTS=lend_altered=fail:0:0 start host2
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
must_be 'pages away' "$(client_counter host1 pages_away)" -gt 3000
ask get 0 16000
ask get 0 16000
echo "  lies: $(counter host1 tier_lies)"
must_be 'lies' "$(counter host1 tier_lies)" -gt 0
must_be 'gets damaged' "$(client_counter host1 gets_damaged)" -eq 0
