#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The example under "How large" in docs/operators-guide.md: a program of 320 MB in a VM of 512 MB, then
# in one of half that and a disk. Then two such VMs whose disks are overcommitted on a pool that is
# too small, which is made larger after a minute: until then programs may be killed or get no further,
# but no page is wrong, and who is alive then ends well.
# Skipped unless TMEMD_VM_LONG=1.
. "$(dirname "$0")/../lib/case.sh"
[ -n "${TMEMD_VM_LONG:-}" ] || skip 'takes minutes: TMEMD_VM_LONG=1 runs it'
need debian12
whole_mb=512 program_mb=320

cat > "$vm_work/plain.sh" <<EOS
pagehog --mb $program_mb --passes 2 --seed 3
EOS
cat > "$vm_work/swap.sh" <<EOS
echo 0 > /sys/block/vda/queue/rotational
mkswap /dev/vda > /dev/null && swapon -d /dev/vda || exit 1
pagehog --mb $program_mb --passes 2 --seed 3
say status=\$?
say out=\$((\$(sectors_written vda) / 2048)) in=\$((\$(sectors_read vda) / 2048))
say write_errors=\$(dmesg | grep -c 'Write-error on swap-device')
say killed=\$(dmesg | grep -c 'Out of memory: Killed')
wait_for_host
EOS
for kind in plain swap; do
	check 'no image' guest_image debian12 "$vm_work/$kind.img" "$vm_work/$kind.sh"
done

start() # guest
{
	guest_start "$1" debian12 $((whole_mb / 2)) 1 "$vm_work/swap.img" \
		$(guest_vhost $((whole_mb / 2)) "$vm_work/$1.sock")
}

# Sets most to the largest pool, in MB, until the guests say how their programs ended.
watch() # guest...
{
	local name now

	most=0
	for name; do
		until guest_wait_for "$name" 'killed=' 1 2> /dev/null; do
			kill -0 "$(guest_ps "$name")" 2> /dev/null || fail "$name ended"
			[ $SECONDS -lt $end ] || fail "$name does not end"
			now=$(host_tmemctl stat --json | jq '[.clients[].physical_bytes] | add / 1048576 | round')
			[ "$now" -le $most ] || most=$now
		done
	done
}

guest_start whole debian12 $whole_mb 1 "$vm_work/plain.img"
check 'the large guest failed' guest_wait_end whole 600
note "$whole_mb MB: $(guest_value whole seconds) s"

host_setup 512M
host_disk half size=$((whole_mb / 2))M
check 'tmemd does not start' tmemd_start
start half
end=$((SECONDS + 900))
watch half
[ "$(guest_value half status)" = 0 ] || fail 'the program did not end well'
[ "$(host_stat half disk_full)" = 0 ] || fail 'writes were refused'
note "$((whole_mb / 2)) MB and a disk: $(guest_value half seconds) s, $(guest_value half out) MB out," \
	"$(guest_value half in) MB in, pool at most $most MB"
guest_say half go
check 'the half guest failed' guest_wait_end half 60
host_cleanup

host_setup 96M
for name in a b; do host_disk $name size=$((whole_mb / 2))M overcommit=yes; done
check 'tmemd does not start' tmemd_start
for name in a b; do start $name; done
end=$((SECONDS + 900))
until [ $(($(host_stat a disk_full) + $(host_stat b disk_full))) -gt 0 ]; do
	[ $SECONDS -lt $end ] || fail 'the pool was never full'
	sleep 1
done
sleep 60
for name in a b; do
	note "$name, a minute after the pool of 96 MB was full: $(host_stat $name disk_full) writes failed," \
		"$(grep -ac 'Out of memory: Killed' "$vm_work/$name.log") programs killed"
done
check 'the pool cannot be made larger' host_tmemctl set pool_max=600M
watch a b
for name in a b; do
	note "$name in the end: exit status $(guest_value $name status)"
	! grep -aq 'is wrong' "$vm_work/$name.log" || fail "$name: pages were wrong"
	[ "$(guest_value $name killed)" -gt 0 ] || [ "$(guest_value $name status)" = 0 ] ||
		fail "$name: the program did not end well"
	guest_say $name go
	# A kernel that kills for want of memory says so with a trace, which is no fault here.
	check "$name failed" guest_wait_for $name 'GUEST-DONE 0' 60
done
