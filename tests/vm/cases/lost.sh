#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The host loses its arena (as a reboot of the host would, were the guest not gone with it): who
# needs a lost page waits, and gets no other one in its place; others use the disk; and the guest
# panics only when it is told to.
. "$(dirname "$0")/../lib/case.sh"
need stock

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
# Else the second program would wait for pages of the first that are read ahead.
echo 0 > /proc/sys/vm/page-cluster
# Only the programs' own memory is swapped: a limit for each of them, not for the guest.
mkdir /cgroup && mount -t cgroup -o memory none /cgroup || exit 1
limited() {
	group=/cgroup/$1
	mkdir $group && echo $2 > $group/memory.limit_in_bytes || exit 1
	shift 2
	sh -c 'echo $$ > $0/tasks; exec "$@"' $group "$@"
}
limited first 60M pagehog --mb 120 --passes 0 --until /never --seed 6 > /first &
say guest=ready
wait_for_host
limited second 30M pagehog --mb 60 --passes 1 --seed 7 || exit 1
sleep 12
say second=done passes=$(grep -c pass= /first) wrong=$(grep -c wrong=[1-9] /first)
wait_for_host
say after=$(grep -c pass= /first)
echo 5 > /sys/module/tmem/parameters/panic_after
sleep 60
EOS
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 stock 256 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'no pages at the host' host_wait_stat vm1 pages_persistent -gt 2000 90
tmemd_kill
rm "$host_tmpfs/arena"
check 'tmemd does not start without its arena' tmemd_start
guest_say vm1 go
check 'others do not go on' guest_wait_for vm1 'second=done' 120
sleep 3
guest_say vm1 go
check 'the guest does not panic when told to' \
	guest_wait_for vm1 'Kernel panic - not syncing: tmem: a swapped page could not be had' 40
[ "$(guest_value vm1 result)" = intact ] || fail 'pages of the second program were wrong'
[ "$(guest_value vm1 wrong)" = 0 ] || fail 'lost pages were replaced by others'
[ "$(guest_value vm1 after)" = "$(guest_value vm1 passes)" ] || fail 'the first program did not wait'
note "the first program waited after $(guest_value vm1 passes) passes, the second was intact"
