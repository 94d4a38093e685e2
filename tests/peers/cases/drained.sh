#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A drained peer is empty within its time, and its lent memory comes back; a peer that wants its
# memory back gets it.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3 host4 host5
for h in host1 host2 host3 host4 host5; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
tell load 10
sleep 1
ctl host1 peer drain host2 --timeout 30
hear
little() { [ "$(lent "$1")" -lt "$2" ]; }
until_true 40 little host2 200000
kill_host host2
ask get 0 16000
# host3 lends less from now on.
sed -i 's/^lend = .*/lend = 2M/' "$work/host3/conf"
kill -HUP "$(pid_of host3)"
until_true 90 little host3 2500000
ask get 0 16000
