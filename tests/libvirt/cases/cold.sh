#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A machine that is off gets a disk, by its name and by its UUID; the hook makes the disk when it
# starts. Its guest, Debian 12's kernel, swaps there; tmemd is killed with SIGKILL under it and
# started again: no I/O error, every page right. The host's pages go with the guest's process, and
# what the guest leaves behind goes at the next start at the latest.
. "$(dirname "$0")/../lib.sh"
{
	guest_prelude
	cat <<'EOS'
swap_begin && swap_fill || exit 1
say hog=over
wait_for_host
say disk_errors=$(swap_errors)
EOS
} > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
check 'libvirt does not start' libvirt_start
host_setup 512M
check 'tmemd does not start' tmemd_start
check 'the machine cannot be defined' domain_define web 128
before=$(virsh dumpxml web)
uuid=$(virsh domuuid web | head -n 1)

check 'a machine that is not there' says 'there are: web' host_tmemctl attach $URI wbe --size 192M
check 'no size' says 'say how large' host_tmemctl attach $URI web
check 'attach by name' host_tmemctl attach $URI web --size 192M > /dev/null
again=$(virsh dumpxml web)
[[ $(host_tmemctl attach $URI "$uuid" --size 192M) == *'attached already'* ]] ||
	fail 'attached by UUID once more'
[ "$(virsh dumpxml web)" = "$again" ] || fail 'attaching twice changed the machine'
check 'detach by UUID' host_tmemctl detach $URI "$uuid" --remove-disk > /dev/null
[ "$(virsh dumpxml web)" = "$before" ] || fail 'detaching leaves something in the machine'
there tmem-web && fail 'detach --remove-disk leaves the disk'
check 'attach by UUID' host_tmemctl attach $URI "$uuid" --size 192M > /dev/null
check 'no disk' host_tmemctl disk remove tmem-web

check 'the machine does not start' domain_start web
check 'the hook made no disk' there tmem-web
check 'the guest does not swap' host_wait_stat tmem-web pages_persistent -gt 2000 120
[ "$(guest_value web serial)" = tmem-web ] || fail "the serial is $(guest_value web serial)"
for kill in 1 2; do
	tmemd_kill
	sleep 1
	check "no start after kill $kill" tmemd_start
	check "no gets after kill $kill" host_wait_stat tmem-web gets_hit -gt 50 60
done
held=$(host_stat tmem-web pages_persistent)
guest_say web enough
check 'the guest failed' guest_wait_for web 'hog=over' 120
check 'the host keeps the pages' host_wait_stat tmem-web pages_persistent -lt $((held / 2)) 60
note "$held pages held, $(host_stat tmem-web pages_persistent) after the process ended"
guest_say web enough
check 'the guest did not end' domain_wait_end web 60
[ "$(guest_value web result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value web disk_errors)" = 0 ] || fail 'errors of the swap disk'
note "$(guest_value web verified) pages verified"

# A life that ends by force.
check 'the machine does not start again' domain_start web
check 'the guest does not swap again' host_wait_stat tmem-web pages_persistent -gt 2000 120
check 'destroy' virsh destroy web > /dev/null
if there tmem-web; then
	note "$(virsh --version): no reason given to the hook, $(host_stat tmem-web pages_persistent) pages kept"
else
	note "$(virsh --version): the disk went with the machine"
fi
check 'the machine does not start a third time' virsh start web --paused > /dev/null
[ "$(host_stat tmem-web pages_persistent)" = 0 ] || fail 'a new life finds pages of the former one'
check 'destroy' virsh destroy web > /dev/null
check 'undefine' virsh undefine web > /dev/null
