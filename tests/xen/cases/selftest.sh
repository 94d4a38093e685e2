# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# PV and PVH guests with 6.1, where the module has no attachment: it drives its own transport, see
# guest/selftest.c. Every byte of every page is right, operations on one handle keep their order, a full
# ring takes no more, what does not exist is refused, pages go with their pool. A guest whose maximum is
# small has puts refused, which leave nothing. Nothing is lost when tmemd is killed under the test.
service_setup
for guest in pv pvh; do xen_client $guest $guest; done
xen_client small small 'maximum = 1M'
check 'tmemd does not start' tmemd_start

cat > /tmp/guest.sh <<'EOS'
test=/sys/kernel/debug/tmem/selftest
self_test() # pages, seed
{
	status=0
	echo "$1 $2" > $test || status=1
	awk '{ print "VALUE " $1 "=" $2, $3, $4, $5, $6, $7, $8, $9 }' $test
	return $status
}
tmem_load || exit 1
self_test 1000 7 || exit 1
say first=over
wait_for_host
say second=begins
self_test PAGES 8 || exit 1
say second=over lost=$(counter posted_failed) lives=$(counter lives)
EOS
# Long enough for the kills.
sed -i "s/PAGES/$((kills * 2000))/" /tmp/guest.sh
sed '/^say first=over/q' /tmp/guest.sh > /tmp/once.sh
figures()
{
	for key in puts puts_posted puts_refused gets verified missed flushes object_flushes ordered \
		ring_full strange destroyed; do
		printf '%s %s ' $key "$(dom_value "$1" $key)"
	done
}
more() # guest, figure, the least
{
	[ "$(dom_value "$1" "$2")" -ge "$3" ] || fail "$1: $2 is $(dom_value "$1" "$2"), not $3 or more"
}
good() # guest
{
	note "$1: $(figures "$1")"
	more "$1" verified 5000
	more "$1" missed 2000
	more "$1" puts_posted 1000
	more "$1" ordered 200
	more "$1" ring_full 1
	more "$1" strange 6
	more "$1" destroyed 1
	[ "$(dom_value "$1" puts_refused)" = 0 ] || fail "$1: puts were refused with room enough"
}

check 'pv was not created' dom_create pv pv 6.1 128 /tmp/guest.sh
check 'pv: the test failed' dom_wait_for pv first=over 120
good pv
[ "$(stat_of pv pages_persistent)" = 0 ] || fail 'pages stay after the test'

# A PVH guest may fall to the emulator, see dom_boots(); one whose script has ended did not.
try=1
check 'pvh was not created' dom_create pvh pvh 6.1 128 /tmp/once.sh
until dom_wait_end pvh 120; do
	! grep -q GUEST-DONE /var/log/xen/guest-pvh.log || fail 'pvh: the test failed'
	[ $try -lt 3 ] || fail 'pvh fell three times'
	try=$((try + 1))
	check 'pvh was not created again' dom_create pvh pvh 6.1 128 /tmp/once.sh
done
good pvh

check 'small was not created' dom_create small pv 6.1 128 /tmp/once.sh
check 'small failed' dom_wait_end small 120
note "small: $(figures small)"
more small puts_refused 100
more small verified 500

# tmemd is killed under the test. Each run of it counts from 0.
before=$(stat_of pv puts)
dom_say pv go
kill=0
while [ $kill -lt "$kills" ]; do
	check "no puts before kill $kill" wait_stat pv puts -gt $((before + seed * (kill + 1) % 3000)) 60
	tmemd_kill
	sleep 1
	check "no start after kill $kill" tmemd_start
	before=0
	kill=$((kill + 1))
done
! grep -q second=over /var/log/xen/guest-pv.log ||
	fail 'the test was over before the last kill: more pages'
check 'pv failed' dom_wait_end pv 300
[ "$(dom_value pv lost)" = 0 ] || fail 'an accepted put was refused'
[ "$(dom_value pv lives)" = 1 ] || fail 'pv had to begin a new life'
note "pv: $(figures pv), $(dom_value pv service_restarts) restarts of tmemd seen"
check 'the devices stay after the guests' wait_until 20 nothing_left
