#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest that has swapped out is saved and restored, with a restart of tmemd in between: it finds
# its pages. One whose disk is gone meanwhile is not restored. (case 35)
. "$(dirname "$0")/../lib.sh"
{
	guest_prelude
	cat <<'EOS'
swap_begin && swap_fill || exit 1
say disk_errors=$(swap_errors)
EOS
} > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
check 'libvirt does not start' libvirt_start
host_setup 512M
check 'tmemd does not start' tmemd_start
check 'the machine cannot be defined' domain_define web 128
check 'attach' host_tmemctl attach $URI web --size 192M > /dev/null
check 'the machine does not start' domain_start web
check 'the guest does not swap' host_wait_stat tmem-web pages_persistent -gt 2000 120
if ! virsh managedsave web > "$vm_work/saving.txt" 2>&1; then
	grep -qi 'migrat\|save' "$vm_work/saving.txt" || fail "$(cat "$vm_work/saving.txt")"
	skip "QEMU does not save a machine with such a disk: $(cat "$vm_work/saving.txt")"
fi
check 'the disk did not stay' there tmem-web
held=$(host_stat tmem-web pages_persistent)
[ "$held" -gt 2000 ] || fail "only $held pages are kept for the saved guest"
check 'remove the disk of a saved guest' says 'virsh managedsave-remove' \
	host_tmemctl detach $URI web --remove-disk
tmemd_kill
check 'no start after the kill' tmemd_start
gets=$(host_stat tmem-web gets_hit)
check 'not restored' virsh start web > /dev/null
domain_begin web
check 'the restored guest reads nothing' host_wait_stat tmem-web gets_hit -gt $((gets + 500)) 60
guest_say web enough
check 'the guest failed' domain_wait_end web 120
[ "$(guest_value web result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value web disk_errors)" = 0 ] || fail 'errors of the swap disk'
note "$held pages held for the saved guest, $(guest_value web verified) verified"

# A new life, whose guest is saved and whose disk does not come back.
check 'the machine does not start' virsh start web --paused > /dev/null
[ "$(host_stat tmem-web pages_persistent)" = 0 ] || fail 'a new life finds pages of the former one'
check 'save' virsh managedsave web > /dev/null
check 'remove' host_tmemctl disk remove tmem-web
check 'restored without its disk' says 'it would go on with wrong memory' virsh start web
domain_is_off web || fail 'it runs'
virsh list --all --with-managed-save --name | grep -q web || fail 'the saved state is gone'
check 'create' host_tmemctl disk create tmem-web --size 192M --owner libvirt-qemu > /dev/null
check 'not restored with the disk that the operator made' virsh start web > /dev/null
check 'destroy' virsh destroy web > /dev/null
