#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A stock 5.10 guest fills more memory than it has: every page comes back, the swap disk is not
# written while there is room, and the host's pages go when the process ends (case 14).
. "$(dirname "$0")/../lib/case.sh"
flavour=${1:-stock}
need "$flavour"

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
before=$(sectors_written vda)
pagehog --mb 260 --passes 1 --seed 11 || exit 1
say disk_sectors=$(($(sectors_written vda) - before))
say held_after_exit=$(held)
wait_for_host
swapoff /dev/vda || exit 1
say swap=off held_after_swapoff=$(held)
wait_for_host
EOS
check 'no image' guest_image "$flavour" "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 "$flavour" 256 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'no pages at the host' host_wait_stat vm1 pages_persistent -gt 10000 90
note "at the host: $(host_stat vm1 pages_persistent) pages," \
	"$(($(host_stat vm1 physical_bytes) >> 20)) MB physical"
check 'the guest did not finish' guest_wait_for vm1 'held_after_exit=' 150
# What is left belongs to other programs of the guest.
check 'pages stay at the host after the process ended' \
	host_wait_stat vm1 pages_persistent -le "$(guest_value vm1 held_after_exit)" 10
guest_say vm1 go
check 'the guest did not switch swap off' guest_wait_for vm1 'swap=off' 60
check 'pages stay at the host after swapoff' host_wait_stat vm1 pages_persistent -eq 0 10
guest_say vm1 go
check 'the guest failed' guest_wait_end vm1 60
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value vm1 disk_sectors)" = 0 ] ||
	fail "the swap disk was written: $(guest_value vm1 disk_sectors) sectors"
note "$(guest_value vm1 stores_posted) posted, $(guest_value vm1 stores_accepted) answered stores," \
	"$(guest_value vm1 loads) loads, $(guest_value vm1 doorbells) doorbells," \
	"$(guest_value vm1 verified) pages verified in $(guest_value vm1 seconds) s"
