#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A link drops everything in silence: gets are answered by the other copy. Both links: they wait, and
# go on when one is there again (case 27).
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3
for h in host1 host2 host3; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
must_be 'pages away' "$(client_counter host1 pages_away)" -gt 3000
cut host2
ask get 0 16000
echo "  the slowest get with one link cut: $(value slowest_ms) ms"
must_be 'slowest get, ms' "$(value slowest_ms)" -lt 6000
cut host3
tell get 0 16000
sleep 12
# The service answers all the same, and a put is not held up.
ctl host1 list > /dev/null
mend host3
hear
must_be 'slowest get, ms' "$(value slowest_ms)" -gt 5000
mend host2
until_true 30 all_up host1
ask get 0 16000
