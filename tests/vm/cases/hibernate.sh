#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Hibernation is refused while the host has pages of the guest; after swapoff it goes its way (here
# until it finds no place for the image), and the guest begins a new life with the service.
. "$(dirname "$0")/../lib/case.sh"
need small

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
pagehog --mb 110 --passes 0 --until /enough --seed 8 &
hog=$!
wait_for_host
! echo disk > /sys/power/state || exit 1
say refused=$(dmesg | grep -c 'tmem: no hibernation: the host holds')
touch /enough
wait $hog || exit 1
swapoff /dev/vda || exit 1
# No place for the image; freezing, the snapshot and thawing come before that.
echo disk > /sys/power/state 2> /dev/null
say snapshot=$(dmesg | grep -c 'PM: Cannot find swap device')
wait_for_host
swap_on vda || exit 1
before=$(sectors_written vda)
pagehog --mb 110 --passes 1 --seed 9 || exit 1
say sectors=$(($(sectors_written vda) - before))
EOS
check 'no image' guest_image small "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 256M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 small 96 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'no pages at the host' host_wait_stat vm1 pages_persistent -gt 2000 60
guest_say vm1 go
check 'the guest did not try to hibernate' guest_wait_for vm1 'snapshot=' 60
[ "$(guest_value vm1 refused)" = 1 ] || fail 'hibernation was not refused'
[ "$(guest_value vm1 snapshot)" = 1 ] || fail 'hibernation did not go on after swapoff'
check 'no new life' host_wait_stat vm1 lives -eq 2 20
sleep 0.5
guest_say vm1 go
check 'the guest failed' guest_wait_end vm1 90
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value vm1 sectors)" = 0 ] || fail 'the service was not used in the new life'
