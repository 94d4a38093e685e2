# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Guests go in the middle of swapping, by xl shutdown and by xl destroy, once with tmemd stopped by a
# signal: their pools and devices go, and the guest beside them does not notice.
service_setup
for guest in stays shut destroyed; do xen_client $guest $guest; done
check 'tmemd does not start' tmemd_start
dom_swaps /tmp/guest.sh 40
create() { check "$1 was not created" dom_create "$1" "$2" 5.10 80 /tmp/guest.sh disk=96; }
swaps() { check "$1 does not swap" wait_stat "$1" pages_persistent -gt 1000 120; }
# After the end of a guest: no pages, no device, no grant of it held (else the domain would stay as
# a zombie that xl list shows without a name).
gone()
{
	check "$1: its pages stay" wait_stat "$1" pages_persistent -eq 0 30
	check "$1: its device stays" device_state "$1" gone 30
	check "$1: the domain cannot end" wait_until 30 domain_ended "$2"
	check "stays is not served after $1" wait_stat stays gets_hit -gt \
		$(($(stat_of stays gets_hit) + 50)) 60
}
domain_ended() { ! xl list | awk '{ print $(NF - 4) }' | grep -qx "$1"; }

create stays pv
create shut pvh
create destroyed pvh
for guest in stays shut destroyed; do swaps $guest; done
id=$(dom_id shut)
check 'no shutdown' dom_shutdown shut
gone shut "$id"
id=$(dom_id destroyed)
check 'no destroy' dom_destroy destroyed
gone destroyed "$id"

# The same name again, another domain: a new life. Destroyed while tmemd stands still.
create destroyed pv
swaps destroyed
id=$(dom_id destroyed)
kill -STOP "$tmemd"
check 'no destroy while tmemd stands still' dom_destroy destroyed
sleep 1
kill -CONT "$tmemd"
gone destroyed "$id"

# And while it is away.
create shut pv
swaps shut
id=$(dom_id shut)
tmemd_kill
check 'no destroy while tmemd is away' dom_destroy shut
check 'no start after the kill' tmemd_start
gone shut "$id"

dom_say stays enough
check 'stays failed' dom_wait_end stays 120
dom_check stays
