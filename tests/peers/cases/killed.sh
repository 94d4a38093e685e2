#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A peer is killed under load, and comes back with what it had; then it comes back with nothing: no
# page is lost, and the copies are made again.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3 host4
for h in host1 host2 host3 host4; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
must_be 'pages away' "$(client_counter host1 pages_away)" -gt 3000
tell load 12
sleep 3
kill_host host2
sleep 4
start host2
hear
ask get 0 16000
until_true 20 peer_is host1 host2 up
kill_host host2
rm -f "$work/host2/run/arena"*
tell get 0 16000
start host2
hear
copies() { counter host1 tier_copies; }
lost=$(client_counter host1 pages_away)
recopied() { [ "$(peer_counter host1 host2 lost)" -ge 1 ] && [ "$(copies)" -gt $((lost / 8)) ] && is_still copies; }
# The number is the same after a second.
is_still()
{
	local before

	before=$("$1")
	sleep 1
	[ "$("$1")" = "$before" ]
}
until_true 60 recopied
echo "  made again: $(copies) copies; $(client_counter host1 pages_away) pages are away"
# What only one of the others had besides is now somewhere else: so this one may go, too.
kill_host host3
ask get 0 16000
