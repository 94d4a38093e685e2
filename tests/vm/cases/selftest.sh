#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The module's test of its own transport over ivshmem, in a guest with 6.1 and two rings, where it has
# no attachment: see guest/selftest.c. tmemd is killed and started again meanwhile.
. "$(dirname "$0")/../lib/case.sh"
need dom0
need_tools "$kernel_cc"

cat > "$vm_work/guest.sh" <<'EOS'
test=/sys/kernel/debug/tmem/selftest
tmem_load || exit 1
wait_for_host
say test=begins
status=0
echo "10000 5" > $test || status=1
awk '{ print "VALUE " $1 "=" $2, $3, $4, $5, $6, $7, $8, $9 }' $test
say test=over lost=$(counter posted_failed) lives=$(counter lives)
exit $status
EOS
MODULE_MAKEFLAGS=TMEM_SELFTEST=1 module_build dom0 "$vm_work/tmem-dom0.ko" || fail 'no module'
check 'no image' guest_image dom0 "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 dom0 256 2 "$vm_work/guest.img" $(guest_tmem "$vm_work/vm1.sock" 2)
check 'the guest does not come up' guest_wait_for vm1 GUEST-UP 90
guest_say vm1 go
check 'the test does not begin' host_wait_stat vm1 puts -gt 2000 60
tmemd_kill
check 'no start after the kill' tmemd_start
! grep -q test=over "$vm_work/vm1.log" || fail 'the test was over before the kill: more pages'
check 'the test failed' guest_wait_end vm1 200
for key in verified missed puts_posted ordered ring_full strange destroyed; do
	[ "$(guest_value vm1 $key)" -gt 0 ] || fail "$key is $(guest_value vm1 $key)"
done
[ "$(guest_value vm1 lost)" = 0 ] || fail 'an accepted put was refused'
[ "$(guest_value vm1 lives)" = 1 ] || fail 'the guest had to begin a new life'
note "$(guest_value vm1 puts) puts, $(guest_value vm1 verified) pages verified," \
	"$(guest_value vm1 missed) rightly not there, $(guest_value vm1 doorbells) doorbells"
