#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Peers have little room, then none: puts are refused at once and counted, every accepted page is
# there, and as pages go, there is room again.
. "$(dirname "$0")/../lib.sh"

lend=16M
hosts host1 host2 host3
for h in host1 host2 host3; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 40000
ask put 0 40000
refused=$(value refused)
must_be 'puts refused' "$refused" -gt 1000
must_be 'slowest put, ms' "$(value slowest_ms)" -lt 2000
ask get 0 40000
must_be 'pages right' "$(value done)" -eq $((40000 - refused))
ask load 5
ask flush 0 20000
ask put 0 4000
ask get 0 40000
