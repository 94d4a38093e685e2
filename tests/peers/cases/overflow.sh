#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A full pool overflows to two peers; every page comes back, flushed and destroyed ones are gone
# from the peers too. The hosts start one after the other, and pages of one object go to both
# (case 26).
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3
for h in host1 host2 host3; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 20000
ask put 0 20000
# A flood may be faster than the link: then a put is refused, it does not wait.
refused=$(value refused)
must_be 'puts refused' "$refused" -lt 10000
away=$(client_counter host1 pages_away)
echo "  of 20000 pages $away are away: $(lent host2) bytes at host2, $(lent host3) at host3"
must_be 'pages away' "$away" -gt 5000
must_be 'bytes at host2' "$(lent host2)" -gt 5000000
must_be 'bytes at host3' "$(lent host3)" -gt 5000000
ask get 0 20000
must_be 'pages right' "$(value done)" -eq $((20000 - refused))
ask load 10
ask get 0 20000
ask flush 0 20000
comes_back 30
ask put 0 12000
ask destroy
comes_back 30
ctl host1 peer stat
stop host1
stop host2
