#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The service is away when the module is loaded: loading does not hang, the disk is used; when the
# service comes, the guest finds it by itself, without doorbells.
. "$(dirname "$0")/../lib/case.sh"
need small

cat > "$vm_work/guest.sh" <<'EOS'
say guest=ready
wait_for_host
tmem_load || exit 1
swap_on vda || exit 1
before=$(sectors_written vda)
pagehog --mb 110 --passes 0 --seed 3 || exit 1
say away_sectors=$(($(sectors_written vda) - before)) refused=$(counter stores_no_service)
wait_for_host
before=$(sectors_written vda)
pagehog --mb 110 --passes 1 --seed 4 || exit 1
say there_sectors=$(($(sectors_written vda) - before))
EOS
check 'no image' guest_image small "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 small 96 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'the guest does not come up' guest_wait_for vm1 'guest=ready' 60
tmemd_kill
guest_say vm1 go
check 'the guest hangs without the service' guest_wait_for vm1 'away_sectors=' 90
[ "$(guest_value vm1 away_sectors)" -gt 1000 ] || fail 'the disk was not used'
[ "$(guest_value vm1 refused)" -gt 100 ] || fail 'the guest counted no refusals'
check 'tmemd does not start again' tmemd_start
check 'the guest does not find the service' host_wait_stat vm1 lives -eq 1 20
sleep 0.5
guest_say vm1 go
check 'the guest failed' guest_wait_end vm1 120
note "away: $(guest_value vm1 away_sectors) sectors; there, polling: $(guest_value vm1 loads) loads," \
	"$(guest_value vm1 doorbells) doorbells, $(guest_value vm1 there_sectors) sectors"
[ "$(guest_value vm1 there_sectors)" = 0 ] || fail 'the disk is still used'
[ "$(guest_value vm1 loads)" -gt 100 ] || fail 'the service was not used'
