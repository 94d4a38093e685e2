#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A running machine with shared memory gets a disk and gives it back; it is not taken away while
# it holds something. One without shared memory is refused, and says what to do.
. "$(dirname "$0")/../lib.sh"
{
	guest_prelude
	cat <<'EOS'
swap_begin && swap_fill || exit 1
say hog=over
wait_for_host
swapoff /dev/vda && blkdiscard /dev/vda || exit 1
say disk_errors=$(swap_errors)
say off=yes
while [ -b /dev/vda ]; do sleep 0.2; done
say unplugged=yes
wait_for_host
EOS
} > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
check 'libvirt does not start' libvirt_start
host_setup 512M
check 'tmemd does not start' tmemd_start
check 'the machine cannot be defined' domain_define shared 128 \
	"<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"
check 'the machine does not start' domain_start shared
check 'the guest does not boot' guest_wait_for shared GUEST-UP 60

# One that has no shared memory: its guest need not boot.
sed -e "s/<memoryBacking>.*<.memoryBacking>//; s/>shared</>plain</; s#/shared'#/plain'#" \
	"$vm_work/shared.xml" > "$vm_work/plain.xml"
mkfifo -m 666 "$vm_work/plain.in" "$vm_work/plain.out"
check 'the machine cannot be defined' virsh define "$vm_work/plain.xml" > /dev/null
check 'the machine does not start' virsh start plain --paused > /dev/null
check 'hot without shared memory' says 'attach with --config and start it anew, or take --nbd' \
	host_tmemctl attach $URI plain --live --size 64M
there tmem-plain && fail 'a refused attachment left a disk'
check 'no NBD server' says 'start tmem-nbd@tmem-plain.service first' \
	host_tmemctl attach $URI plain --nbd
check 'destroy' virsh destroy plain > /dev/null

if host_tmemctl attach $URI shared --live --size 192M > "$vm_work/hot.txt" 2>&1; then
	reconnects=yes
else
	grep -q 'does not make QEMU connect again' "$vm_work/hot.txt" || fail "$(cat "$vm_work/hot.txt")"
	note "$(virsh --version): refused, because QEMU would not connect again; done by force"
	reconnects=no
	check 'hot attach' host_tmemctl attach $URI shared --live --size 192M --force > /dev/null
fi
[[ $(host_tmemctl attach $URI shared --live) == *'attached already'* ]] || fail 'attached twice'
virsh dumpxml shared --inactive | grep -q vhostuser && fail '--live changed the configuration'
check 'the guest does not swap' host_wait_stat tmem-shared pages_persistent -gt 2000 120
check 'detach under a guest that swaps' says 'swapoff and blkdiscard' \
	host_tmemctl detach $URI shared --live
if [ $reconnects = yes ]; then
	tmemd_kill
	sleep 1
	check 'no start after the kill' tmemd_start
	check 'no gets after the kill' host_wait_stat tmem-shared gets_hit -gt 50 60
fi
guest_say shared enough
check 'the guest failed' guest_wait_for shared 'hog=over' 120
guest_say shared off
check 'no swapoff' guest_wait_for shared 'off=yes' 60
[ "$(guest_value shared result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value shared disk_errors)" = 0 ] || fail 'errors of the swap disk'
check 'hot detach' host_tmemctl detach $URI shared --live --remove-disk > /dev/null
check 'the guest still has the disk' guest_wait_for shared 'unplugged=yes' 30
there tmem-shared && fail 'detach --remove-disk leaves the disk'
virsh dumpxml shared | grep -q tmem: && fail 'the record stays in the machine'
guest_say shared end
check 'the guest did not end' domain_wait_end shared 60
