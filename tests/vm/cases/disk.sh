#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Guests that run nothing of ours, Debian 12's kernel, swap to disks of tmemd by vhost-user-blk: one
# with a split ring, one with two packed ones. tmemd is killed with SIGKILL at random times and
# started again KILLS times (4; 50 with TMEMD_VM_LONG=1), then stopped for 20 s (120 s). The guests
# see no I/O error, every page is right (case 15, case 16, case 17), and what processes leave behind
# goes from the host (case 14). At last a guest is powered off while tmemd is away, and boots again.
# SEED=N repeats the times.
. "$(dirname "$0")/../lib/case.sh"
need debian12

kills=${KILLS:-4} away=20
[ -z "${TMEMD_VM_LONG:-}" ] || kills=${KILLS:-50} away=120
seed=${SEED:-$RANDOM}
note "SEED=$seed KILLS=$kills"
RANDOM=$seed
swaps_to_disk $seed > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 512M
host_disk vm1 size=192M
host_disk vm2 size=192M queues=2
check 'tmemd does not start' tmemd_start
guest_start vm1 debian12 128 1 "$vm_work/guest.img" $(guest_vhost 128 "$vm_work/vm1.sock")
guest_start vm2 debian12 128 2 "$vm_work/guest.img" \
	$(guest_vhost 128 "$vm_work/vm2.sock,packed=on,num-queues=2")

guests_go_on() # after what, how many gets
{
	for name in vm1 vm2; do
		check "$name: no gets after $1" host_wait_stat $name gets_hit -gt "$2" 60
	done
}

for name in vm1 vm2; do
	check "$name does not swap" host_wait_stat $name pages_persistent -gt 2000 120
done
for ((kill = 1; kill <= kills; kill++)); do
	sleep "0.$((RANDOM % 900 + 100))"
	tmemd_kill
	sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
	check "no start after kill $kill" tmemd_start
	guests_go_on "kill $kill" 50
done
tmemd_stop
sleep $away
check 'no start after the stop' tmemd_start
guests_go_on 'the stop' 1000
for name in vm1 vm2; do
	held[${name#vm}]=$(host_stat $name pages_persistent)
	guest_say $name enough
done
# Discards are of whole clusters of 2 MiB: each page that another program has swapped keeps one, and
# the slower the host, the more of them there are. Without discards nothing would go.
for name in vm1 vm2; do
	check "$name failed" guest_wait_for $name 'hog=over' 300
	check "$name: the host keeps the pages" host_wait_stat $name pages_persistent -lt \
		$((held[${name#vm}] / 2)) 60
	note "$name: ${held[${name#vm}]} pages held, $(host_stat $name pages_persistent) after the process ended," \
		"when the guest's others used $(guest_value $name used)"
	guest_say $name enough
	check "$name failed" guest_wait_end $name 120
	[ "$(guest_value $name result)" = intact ] || fail "$name: pages were wrong"
	[ "$(guest_value $name disk_errors)" = 0 ] || fail "$name: errors of its swap disk"
	note "$name: $(guest_value $name verified) pages verified"
done
for name in vm1 vm2; do
	[ "$(host_stat $name disk_errors)" = 0 ] || fail "$name: requests failed"
done

# Its requests wait for ever: QEMU must end all the same, and its disk serve the guest that comes next.
first_guest() { guest_start vm1 debian12 128 1 "$vm_work/guest.img" $(guest_vhost 128 "$vm_work/vm1.sock"); }

first_guest
check 'the guest does not swap' host_wait_stat vm1 pages_persistent -gt 2000 120
tmemd_stop
sleep 2
qemu=$(guest_ps vm1)
kill "$qemu"
end=$((SECONDS + 20))
while kill -0 "$qemu" 2> /dev/null; do
	[ $SECONDS -lt $end ] || fail 'QEMU does not end while tmemd is away'
	sleep 0.1
done
check 'no start after a guest ended' tmemd_start
held=$(host_stat vm1 pages_persistent)
puts=$(host_stat vm1 puts)
first_guest
check 'the guest does not swap again' host_wait_stat vm1 puts -gt $((puts + 2000)) 120
note "$held pages held when the guest was powered off, it boots and swaps again"
guest_say vm1 enough
check 'the guest failed' guest_wait_for vm1 'hog=over' 300
guest_say vm1 enough
check 'the guest failed' guest_wait_end vm1 120
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong after the second boot'
[ "$(guest_value vm1 disk_errors)" = 0 ] || fail 'errors of the swap disk after the second boot'
