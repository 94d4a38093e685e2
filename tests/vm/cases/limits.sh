#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two stock guests at once, one with a small maximum: it keeps to the maximum and uses its swap
# disk, the other does not; when the maximum is raised the disk is left alone again.
. "$(dirname "$0")/../lib/case.sh"
need stock

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
before=$(sectors_written vda)
pagehog --mb 230 --passes 1 --seed $RANDOM || exit 1
say first_sectors=$(($(sectors_written vda) - before)) refused=$(counter stores_maximum)
wait_for_host
before=$(sectors_written vda)
pagehog --mb 230 --passes 1 --seed $RANDOM || exit 1
say second_sectors=$(($(sectors_written vda) - before))
EOS
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh"
host_setup 512M
maximum=$((8 << 20))
host_client small region=2M rings=1 maximum=$maximum
host_client large region=2M rings=1
check 'tmemd does not start' tmemd_start
for name in small large; do
	guest_disk "$vm_work/$name.swap" 512M
	guest_start $name stock 256 1 "$vm_work/guest.img" \
		$(guest_drive "$vm_work/$name.swap") $(guest_tmem "$vm_work/$name.sock" 1)
done
highest=0
for ((end = SECONDS + 150; SECONDS < end;)); do
	now=$(host_stat small physical_bytes)
	[ "$now" -gt "$highest" ] && highest=$now
	grep -aq 'first_sectors=' "$vm_work/small.log" && break
	sleep 0.5
done
check 'the small guest did not finish' guest_wait_for small 'first_sectors=' 1
check 'the large guest did not finish' guest_wait_for large 'first_sectors=' 90
note "small: at most $highest physical bytes of $maximum," \
	"$(guest_value small first_sectors) sectors written, $(guest_value small refused) refused;" \
	"large: $(guest_value large first_sectors) sectors"
[ "$highest" -le $maximum ] || fail 'the maximum was exceeded'
[ "$highest" -ge $((maximum / 2)) ] || fail 'the small guest hardly used its maximum'
[ "$(guest_value small first_sectors)" -gt 10000 ] || fail 'the disk was not used at the maximum'
[ "$(guest_value small refused)" -gt 1000 ] || fail 'the guest counted no refusals'
[ "$(guest_value large first_sectors)" = 0 ] || fail 'the disk of the guest without maximum was used'
check 'the maximum cannot be raised' host_tmemctl set small maximum=200M
guest_say small go
guest_say large go
check 'the small guest failed' guest_wait_end small 120
check 'the large guest failed' guest_wait_end large 120
note "small with a higher maximum: $(guest_value small second_sectors) sectors"
[ "$(guest_value small second_sectors)" = 0 ] || fail 'the disk is still used with a higher maximum'
[ "$(guest_value large second_sectors)" = 0 ] || fail 'the disk of the guest without maximum was used'
