# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# tmemd is killed with SIGKILL and started again under guests that swap all the time, $kills times,
# after random times. The guests go on each time; every page is right, no error of a swap disk, no new
# life.
service_setup
guests='pv-5.10 pvh-5.10'
for guest in $guests; do xen_client $guest $guest; done
check 'tmemd does not start' tmemd_start
dom_swaps /tmp/guest.sh 80 "$seed"
for guest in $guests; do
	check "$guest was not created" dom_create $guest ${guest%-*} 5.10 96 /tmp/guest.sh disk=128
done
for guest in $guests; do
	check "$guest does not swap" wait_stat $guest pages_persistent -gt 1500 120
done
# Tenths of a second, from the seed.
random=$seed
pause()
{
	random=$(((random * 1103515245 + 12345) % 2147483648))
	usleep $((random / 65536 % $1 * 100000 + 100000))
}
replayed=0 kill=0
while [ $kill -lt "$kills" ]; do
	kill=$((kill + 1))
	pause 15
	tmemd_kill
	pause 25
	check "no start after kill $kill" tmemd_start
	for guest in $guests; do
		check "$guest: no gets after kill $kill" wait_stat $guest gets_hit -gt 50 60
		replayed=$((replayed + $(stat_of $guest ring_replayed)))
	done
done
note "$replayed entries executed at attachment"
for guest in $guests; do dom_say $guest enough; done
for guest in $guests; do
	check "$guest failed" dom_wait_end $guest 200
	dom_check $guest
	[ "$(dom_value $guest disk_errors)" = 0 ] || fail "$guest: errors of its swap disk"
	[ "$(dom_value $guest lives)" = 1 ] || fail "$guest had to begin a new life"
	[ "$(dom_value $guest posted_failed)" = 0 ] || fail "$guest: an accepted put was refused"
	note "$guest: $(dom_value $guest service_restarts) restarts seen"
done
