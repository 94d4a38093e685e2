#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest that runs nothing of ours, Debian 12's kernel, and whose memory is not shared, swaps to a
# disk of tmemd by NBD: QEMU is the client, nbdkit with our plugin the server. tmemd is killed with
# SIGKILL at random times and started again KILLS times (3; 50 with TMEMD_VM_LONG=1), nbdkit as
# well once (10 times). The guest sees no I/O error, every page is right (case 15), and what processes
# leave behind goes from the host (case 14). SEED=N repeats the times.
. "$(dirname "$0")/../lib/case.sh"
need debian12
why=$(host_nbd_can) || skip "$why"

kills=${KILLS:-3} nbd_kills=1
[ -z "${TMEMD_VM_LONG:-}" ] || kills=${KILLS:-50} nbd_kills=10
seed=${SEED:-$RANDOM}
note "SEED=$seed KILLS=$kills"
RANDOM=$seed
swaps_to_disk $seed > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 256M
host_disk vm1 size=192M
check 'tmemd does not start' tmemd_start
check 'nbdkit does not start' host_nbd vm1
guest_start vm1 debian12 128 1 "$vm_work/guest.img" $(guest_nbd "$vm_work/vm1.nbd")

guest_goes_on() # after what
{
	local gets

	gets=$(host_stat vm1 gets_hit)
	check "no gets after $1" host_wait_stat vm1 gets_hit -gt $((gets + 50)) 60
}

check 'the guest does not swap' host_wait_stat vm1 pages_persistent -gt 2000 120
for ((kill = 1; kill <= kills; kill++)); do
	sleep "0.$((RANDOM % 900 + 100))"
	tmemd_kill
	sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
	check "no start after kill $kill" tmemd_start
	guest_goes_on "kill $kill"
done
for ((kill = 1; kill <= nbd_kills; kill++)); do
	sleep "0.$((RANDOM % 900 + 100))"
	host_nbd_kill vm1
	sleep "0.$((RANDOM % 900 + 100))"
	check "no start of nbdkit after kill $kill" host_nbd vm1
	guest_goes_on "kill $kill of nbdkit"
done
held=$(host_stat vm1 pages_persistent)
note "nbdkit: $(awk '/^Rss(Anon|Shmem):/ { n += $2 } END { print n }' "/proc/$(host_nbd_pids)/status") kB"
guest_say vm1 enough
check 'the guest failed' guest_wait_for vm1 'hog=over' 300
# Discards are of whole clusters of 2 MiB: what other programs have swapped keeps some.
check 'the host keeps the pages' host_wait_stat vm1 pages_persistent -lt $((held / 2)) 60
note "$held pages held, $(host_stat vm1 pages_persistent) after the process ended"
guest_say vm1 enough
check 'the guest failed' guest_wait_end vm1 120
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value vm1 disk_errors)" = 0 ] || fail 'errors of the swap disk'
[ "$(host_stat vm1 disk_errors)" = 0 ] || fail 'requests failed'
note "$(guest_value vm1 verified) pages verified"
