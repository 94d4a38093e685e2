#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tmemd is killed with SIGKILL at random times and started again after random pauses while two
# guests swap all the time: KILLS times (6; 50 with TMEMD_VM_LONG=1). Then it is away for 20 s.
# The guests go on each time, every page is right, the swap disks are sound, no kernel complains.
# SEED=N repeats the times. The second guest has timers no finer than a tick, which counts while
# there are no doorbells. Case 15 of docs/cases.md.
. "$(dirname "$0")/../lib/case.sh"
need small

kills=${KILLS:-6}
[ -z "${TMEMD_VM_LONG:-}" ] || kills=${KILLS:-50}
seed=${SEED:-$RANDOM}
note "SEED=$seed KILLS=$kills"
RANDOM=$seed
cat > "$vm_work/guest.sh" <<EOS
tmem_load || exit 1
swap_on vda || exit 1
pagehog --mb 100 --passes 1 --seed $seed --until /tmp/enough &
hog=\$!
wait_for_host
touch /tmp/enough
wait \$hog || exit 1
say disk_errors=\$(dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error')
EOS
check 'no image' guest_image small "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 512M
for name in vm1 vm2; do
	host_client $name region=4M rings=2
done
check 'tmemd does not start' tmemd_start
GUEST_APPEND=
for name in vm1 vm2; do
	guest_disk "$vm_work/$name.swap" 512M
	guest_start $name small 96 1 "$vm_work/guest.img" \
		$(guest_drive "$vm_work/$name.swap") $(guest_tmem "$vm_work/$name.sock" 2)
	GUEST_APPEND=highres=off
done

# After a start: both guests get pages.
guests_go_on()
{
	for name in vm1 vm2; do
		check "$name: no gets after $1" host_wait_stat $name gets_hit -gt "$2" 60
		replayed=$((replayed + $(host_stat $name ring_replayed)))
	done
}

passes() { grep -ac 'pass=' "$vm_work/$1.log"; }

replayed=0
for name in vm1 vm2; do
	check "$name does not swap" host_wait_stat $name pages_persistent -gt 2000 90
done
for ((kill = 1; kill <= kills; kill++)); do
	sleep "0.$((RANDOM % 900 + 100))"
	tmemd_kill
	sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
	check "no start after kill $kill" tmemd_start
	guests_go_on "kill $kill" 50
done
note "$replayed entries executed at attachment"
tmemd_stop
before=("$(passes vm1)" "$(passes vm2)")
sleep 20
[ "$(passes vm1)" -le $((before[0] + 1)) ] && [ "$(passes vm2)" -le $((before[1] + 1)) ] ||
	fail 'the guests did not need the service'
check 'no start after the stop' tmemd_start
guests_go_on 'the stop' 1000
guest_say vm1 enough
guest_say vm2 enough
for name in vm1 vm2; do
	check "$name failed" guest_wait_end $name 300
	[ "$(guest_value $name result)" = intact ] || fail "$name: pages were wrong"
	[ "$(guest_value $name disk_errors)" = 0 ] || fail "$name: errors of its swap disk"
	[ "$(guest_value $name lives)" = 1 ] || fail "$name had to begin a new life"
	[ "$(guest_value $name posted_failed)" = 0 ] || fail "$name: an accepted put was refused"
	note "$name: $(guest_value $name service_restarts) restarts seen," \
		"$(guest_value $name stores_no_service) stores refused meanwhile," \
		"$(guest_value $name verified) pages verified"
done
