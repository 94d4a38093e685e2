# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Where the memory comes from: dom0 grows with the pool while Xen has free memory; when a domain is to be
# built, the pool gives back; what is persistent stays, and then it is said what to do. Case 13 for Xen:
# the domain could not be created although memory was said to be free, for it was in the pool.
command -v tmem-balloon > /dev/null || skip 'tmemd is built without libxenctrl'

xen_free() { xl info free_memory; }
target() { echo $(($(cat /sys/devices/system/xen_memory/xen_memory0/target_kb) / 1024)); }
pool() { echo $(($(service pool_bytes) / 1048576)); }
state() { echo "$1: pool $(pool) MiB, dom0 $(target) MiB, free in Xen $(xen_free) MiB"; }
said() { grep -qF -- "$1" /tmp/balloon.log; }
balloon_start()
{
	tmem-balloon --config /etc/balloon.conf run >> /tmp/balloon.log 2>&1 &
	balloon=$!
}

# As much is available in dom0 as the reserve, the eighth that the pool keeps away from it, and 90 MiB.
start=$(target)
available=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)
reserve=$(((available - 90) * 8 / 9))
host_ready 800M
configure '[pool]' 'pool_max = 700M' "host_reserve = ${reserve}M" 'ready_chunks = 8' \
	'[client spare]' 'socket_mode = 0666' 'region = 4M' 'rings = 1' \
	'[client kept]' 'socket_mode = 0666' 'region = 4M' 'rings = 1' 'weight = 1000'
xen_client web web
minimum=$((start - 64))
mkdir -p /etc/tmemd
printf '%s\n' '[balloon]' "minimum = ${minimum}M" "maximum = $((start + 160))M" 'xen_free = 128M' \
	'step = 32M' > /etc/balloon.conf
cp /etc/balloon.conf /etc/tmemd/balloon.conf
check 'tmemd does not start' tmemd_start
state begin
tmem-balloon status || fail 'tmem-balloon status'
tmem-balloon status --json | grep -q '"xen_free_bytes": [1-9]' || fail 'tmem-balloon status --json'

# A guest that swaps all the time: its pages are verified to the end.
dom_swaps /tmp/web.sh 60 3
check 'web was not created' dom_create web pv 5.10 80 /tmp/web.sh disk=96
check 'web: not connected' device_state web 4 60
check 'web: no pages at the service' wait_stat web pages_persistent -gt 500 90

# Without us the pool stops at what dom0 has; with us dom0 grows with it, to its maximum.
fill /run/tmem/spare.sock ephemeral /tmp/stop-spare > /tmp/spare.log 2>&1 &
spare=$!
stopped()
{
	local before

	before=$(pool)
	sleep 3
	[ "$before" -gt 40 ] && [ "$(pool)" -le "$before" ]
}
check 'the pool does not stop' wait_until 60 stopped
alone=$(pool)
state alone
[ "$alone" -lt 200 ] || fail "host_reserve does not hold: the pool has $alone MiB"
balloon_start
grown() { [ "$(target)" -ge $((start + 130)) ] && [ "$(pool)" -ge $((alone + 80)) ]; }
check 'dom0 does not grow with the pool' wait_until 90 grown
state grown
[ "$(target)" -le $((start + 160)) ] || fail 'dom0 has grown above its maximum'

# Somebody takes what is left, but for what stays free; it is not more than that.
printf ':\n' > /tmp/idle.sh
filler=$(($(xen_free) - 140))
check 'filler was not created' dom_create filler pv 5.10 $filler /tmp/idle.sh paused
state filled
[ "$(xen_free)" -lt 160 ] || fail 'there is free memory in Xen left'
settled=$(target)

# On its own: what stays free is used by xl create, and comes back.
check 'small was not created' dom_create small pv 5.10 90 /tmp/idle.sh paused
back() { [ "$(xen_free)" -ge 120 ]; }
check 'dom0 does not shrink when Xen is short of memory' wait_until 30 back
state small
[ "$(target)" -lt "$settled" ] || fail 'dom0 has not shrunk'
check 'Xen is short of memory, and that is not said' said 'Xen is short of memory'

# One more needs more than stays free. xl alone cannot; around it, room is made first.
cat > /tmp/more.sh <<'EOS'
pagehog --mb 64 --passes 2 --seed 9
EOS
! dom_create more pv 5.10 200 /tmp/more.sh > /tmp/said 2>&1 || fail "200 MiB were free: $(xen_free)"
timeout 100 tmem-xl create /run/dom/more/config > /tmp/said 2>&1 || {
	cat /tmp/said
	state refused
	fail 'tmem-xl create with a full pool of ephemeral pages'
}
xl domid more > /run/dom/more/id
state more
check 'more failed' dom_wait_end more 120
dom_check more
tmemd_same || fail 'tmemd did not outlive it'

# Two at a time do not count the same memory twice.
for name in one two; do
	dom_image /run/dom/$name 5.10 /tmp/idle.sh
	sed "s/more/$name/g; s/memory = .*/memory = 90/" /run/dom/more/config > /run/dom/$name/config
	timeout 100 tmem-xl create -p /run/dom/$name/config > /tmp/said-$name 2>&1 &
	eval "$name=\$!"
done
wait $one || { cat /tmp/said-one; fail 'tmem-xl create, one of two at a time'; }
wait $two || { cat /tmp/said-two; fail 'tmem-xl create, the other of two at a time'; }
state two
xl destroy one
xl destroy two
dom_say web enough
check 'web failed' dom_wait_end web 120
dom_check web

# Persistent pages do not go: it is refused, in time, with what to do; and nobody has lost one.
touch /tmp/stop-spare
wait $spare || fail "an ephemeral page was wrong: $(tail -n 2 /tmp/spare.log)"
fill /run/tmem/kept.sock persistent /tmp/stop-kept > /tmp/kept.log 2>&1 &
kept=$!
full() { grep -q 'refused=[1-9]' /tmp/kept.log && [ "$(target)" -ge $((start + 32)) ] && stopped; }
wait_until 60 full || { tail -n 3 /tmp/kept.log /tmp/balloon.log; state 'not full'; fail 'no pool full of persistent pages'; }
state kept
before=$(now)
tmem-xl -m 400M create /run/dom/more/config > /tmp/said 2>&1 && fail 'room was made by persistent pages'
cat /tmp/said
grep -q 'persistent pages that cannot go; let guests swap less' /tmp/said || fail 'it is not said what to do'
[ $(($(now) - before)) -lt 60 ] || fail "refused after $(($(now) - before)) s"
dom_gone more || fail 'xl create was run without room'
tmem-balloon room 8G --timeout 5 && fail 'room of 8 GiB'
[ "$(target)" -ge $minimum ] || fail 'dom0 is below its minimum'
touch /tmp/stop-kept
wait $kept || { tail -n 2 /tmp/kept.log; fail 'a persistent page was wrong'; }
note "kept: $(sed -n 's/intact //p' /tmp/kept.log) pages verified"
kill $balloon
