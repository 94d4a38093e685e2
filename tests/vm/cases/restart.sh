#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tmemd is killed with SIGKILL and started again while a guest swaps, five times; then it is
# stopped for 20 seconds. The guest goes on each time, and every page is right.
# Case 15 of docs/cases.md.
. "$(dirname "$0")/../lib/case.sh"
need stock

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
pagehog --mb 240 --passes 1 --seed 5 --until /tmp/enough &
hog=$!
wait_for_host
touch /tmp/enough
wait $hog || exit 1
EOS
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2
check 'tmemd does not start' tmemd_start
guest_start vm1 stock 256 2 "$vm_work/guest.img" \
	$(guest_drive "$vm_work/swap.img") $(guest_tmem "$vm_work/vm1.sock" 2)
check 'the guest does not swap' host_wait_stat vm1 pages_persistent -gt 2000 90
for round in 1 2 3 4 5; do
	sleep "0.$((RANDOM % 9 + 1))"
	tmemd_kill
	sleep "0.$((RANDOM % 9 + 1))"
	check "no start after kill $round" tmemd_start
	check "no gets after kill $round" host_wait_stat vm1 gets_hit -gt 100 30
	note "kill $round: $(host_stat vm1 pages_persistent) pages," \
		"$(host_stat vm1 ring_replayed) entries executed at attachment"
done
tmemd_stop
passes=$(grep -ac 'pass=' "$vm_work/vm1.log")
sleep 20
[ "$(grep -ac 'pass=' "$vm_work/vm1.log")" -le $((passes + 1)) ] ||
	fail 'the guest did not need the service'
check 'no start after the stop' tmemd_start
check 'the guest does not go on' host_wait_stat vm1 gets_hit -gt 1000 30
guest_say vm1 enough
check 'the guest failed' guest_wait_end vm1 120
[ "$(guest_value vm1 result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value vm1 lives)" = 1 ] || fail 'the guest had to begin a new life'
[ "$(guest_value vm1 posted_failed)" = 0 ] || fail 'an accepted put was refused afterwards'
note "$(guest_value vm1 service_restarts) restarts seen," \
	"$(guest_value vm1 stores_no_service) stores refused meanwhile," \
	"$(guest_value vm1 abandoned) given up, $(guest_value vm1 verified) pages verified"
