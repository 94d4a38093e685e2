#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tmemd is killed with SIGKILL at random times and started again after random pauses while two
# guests swap all the time: 6 times (KILLS; 50 with TMEMD_VM_LONG=1). Every page is right, the swap
# disks are sound, no kernel complains.
. "$(dirname "$0")/../lib/case.sh"
need small

kills=${KILLS:-6}
[ -z "${TMEMD_VM_LONG:-}" ] || kills=${KILLS:-50}
cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
pagehog --mb 200 --passes 1 --seed $RANDOM --until /tmp/enough &
hog=$!
wait_for_host
touch /tmp/enough
wait $hog || exit 1
say disk_errors=$(dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error')
EOS
check 'no image' guest_image small "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 512M
for name in vm1 vm2; do
	host_client $name region=4M rings=2
done
check 'tmemd does not start' tmemd_start
for name in vm1 vm2; do
	guest_disk "$vm_work/$name.swap" 512M
	guest_start $name small 192 1 "$vm_work/guest.img" \
		$(guest_drive "$vm_work/$name.swap") $(guest_tmem "$vm_work/$name.sock" 2)
done
for name in vm1 vm2; do
	check "$name does not swap" host_wait_stat $name pages_persistent -gt 2000 90
done
for ((kill = 1; kill <= kills; kill++)); do
	sleep "0.$((RANDOM % 900 + 100))"
	tmemd_kill
	sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
	check "no start after kill $kill" tmemd_start
	for name in vm1 vm2; do
		check "$name: no gets after kill $kill" host_wait_stat $name gets_hit -gt 50 60
	done
	note "kill $kill: $(host_stat vm1 ring_replayed) and $(host_stat vm2 ring_replayed)" \
		'entries executed at attachment'
done
guest_say vm1 enough
guest_say vm2 enough
# A guest whose clock is coarse takes a tick for each page while it has no doorbells.
for name in vm1 vm2; do
	check "$name failed" guest_wait_end $name 600
	[ "$(guest_value $name result)" = intact ] || fail "$name: pages were wrong"
	[ "$(guest_value $name disk_errors)" = 0 ] || fail "$name: errors of its swap disk"
	[ "$(guest_value $name lives)" = 1 ] || fail "$name had to begin a new life"
	[ "$(guest_value $name posted_failed)" = 0 ] || fail "$name: an accepted put was refused"
	note "$name: $(guest_value $name service_restarts) restarts seen," \
		"$(guest_value $name verified) pages verified"
done
