#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The owner is killed and comes back; then it is cut off for longer than any timer: it finds its
# pages. Then it comes back with a new arena: what it had at peers is freed.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3
for h in host1 host2 host3; do
	configure $h
	start $h
done
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
kill_host host1
start host1
ask get 0 16000
cut host1
sleep 15
mend host1
until_true 30 all_up host1
ask get 0 16000
# Without its file the service does not begin a new life, which would free what is there.
kill_host host1
mv "$work/host1/run/arena.peers" "$work/peers"
start host1
grep -q 'arena.peers is missing or damaged' "$work/host1/log" || die 'nothing is said of the file'
kill_host host1
echo '{"arena": 1' > "$work/host1/run/arena.peers"
start host1
kill_host host1
mv "$work/peers" "$work/host1/run/arena.peers"
start host1
ask get 0 16000
kill_host host1
exec 7>&- 8<&-
rm -f "$work/host1/run/arena"*
rm -rf "$work/host1/run/regions"
start host1
comes_back 60
