#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest is reset while the host holds its pages, without a word from it: when it comes back in
# the same QEMU, the pages of its former life are gone and it can use the service.
. "$(dirname "$0")/../lib/case.sh"
need stock

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
say lives=$(counter lives)
read -r life
swap_on vda || exit 1
if [ "$life" = first ]; then
	pagehog --mb 230 --passes 0 --until /never --seed 1 &
	wait_for_host
	echo b > /proc/sysrq-trigger
	sleep 60
fi
pagehog --mb 230 --passes 1 --seed 2 || exit 1
EOS
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
GUEST_REBOOTS=' ' guest_start vm1 stock 256 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'the guest does not come up' guest_wait_for vm1 'lives=1' 60
guest_say vm1 first
check 'no pages at the host' host_wait_stat vm1 pages_persistent -gt 2000 90
before=$(host_stat vm1 pages_persistent)
guest_say vm1 reset
check 'no second hello' host_wait_stat vm1 lives -eq 2 60
check 'pages of the former life are still there' host_wait_stat vm1 pages_persistent -eq 0 10
note "$before pages before the reset, none after"
guest_say vm1 second
end=$((SECONDS + 120))
until grep -aq 'GUEST-DONE' "$vm_work/vm1.log"; do
	[ $SECONDS -lt $end ] || fail 'the second life did not finish'
	sleep 0.5
done
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong in the second life'
tr -d '\r' < "$vm_work/vm1.log" | grep -aq 'GUEST-DONE 0' || fail 'the second life failed'
