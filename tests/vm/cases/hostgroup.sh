#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The guest plays the host: tmemd runs inside, in a control group (version 2) that is at its memory
# limit, and then in one whose limit is lowered: puts are refused, gets go on (case 6, case 9),
# nothing is killed and every page is right.
. "$(dirname "$0")/../lib/case.sh"
. "$vm_src/lib/inner.sh"
inner_need

inner_tmemd > "$vm_work/guest.sh"
cat >> "$vm_work/guest.sh" <<'EOS'
host_ready 190M
group=/tmp/cgroup/tmemd
mkdir /tmp/cgroup
mount -t cgroup2 cgroup /tmp/cgroup && echo +memory > /tmp/cgroup/cgroup.subtree_control || exit 1
mkdir $group
echo 30M > $group/memory.max
configure '[pool]' 'pool_max = 160M' 'host_reserve = 0'
configure_load
tmemd_run $group || exit 1
load 16000
more refused 300 120 && more hit 300 120 || exit 1
say group_growth="$(service growth_bytes)" group_pool="$(service pool_bytes)" \
	group_used="$(cat $group/memory.current)" group_evicted="$(client evicted)"
# Lowered under what is in use: what can be given back is.
echo 24M > $group/memory.high
more hit 300 120 || exit 1
say high_short="$(service short)" high_used="$(cat $group/memory.current)"
unload || exit 1
say group_killed="$(awk '/oom_kill/ { print $2 }' $group/memory.events)" \
	group_slowest_ms="$(slowest)"
kill -0 $tmemd && quiet
EOS
inner_boot "$vm_work/guest.sh"
value() { guest_value host "$1"; }
note "group of 30M: $(value group_used) used, pool $(value group_pool), growth" \
	"$(value group_growth), evicted $(value group_evicted); high lowered to 24M: short" \
	"$(value high_short), $(value high_used) used; slowest operation $(value group_slowest_ms) ms"
[ "$(value group_growth)" -le $((4 << 20)) ] ||
	fail 'the pool may grow though the control group is at its limit'
[ "$(value group_killed)" = 0 ] || fail 'the kernel killed something in the control group'
