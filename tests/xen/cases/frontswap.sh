# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# PV and PVH guests with 5.10 fill more memory than they have, at once: every page comes back, their
# swap disks are not written, the pages are at the service meanwhile and go with the processes.
service_setup
guests='pv-5.10 pvh-5.10'
for guest in $guests; do xen_client $guest $guest; done
check 'tmemd does not start' tmemd_start

cat > /tmp/guest.sh <<'EOS'
tmem_load || exit 1
swap_on xvda || exit 1
before=$(sectors_written xvda)
free | head -n 2
pagehog --mb 60 --passes 0 --seed 11 || exit 1
say disk_sectors=$(($(sectors_written xvda) - before))
say held_after_exit=$(held)
wait_for_host
swapoff /dev/xvda || exit 1
say swap=off held_after_swapoff=$(held)
wait_for_host
EOS
for guest in $guests; do
	check "$guest was not created" dom_create $guest ${guest%-*} 5.10 80 /tmp/guest.sh disk=96
done
for guest in $guests; do
	check "$guest: not connected" device_state $guest 4 60
done
for guest in $guests; do
	check "$guest: no pages at the service" wait_stat $guest pages_persistent -gt 1000 120
	note "$guest: $(stat_of $guest pages_persistent) pages at the service"
done
tmemctl list
for guest in $guests; do
	check "$guest did not finish" dom_wait_for $guest held_after_exit= 200
	# What is left belongs to other programs of the guest.
	check "$guest: pages stay at the service after the process ended" wait_stat $guest \
		pages_persistent -le "$(dom_value $guest held_after_exit)" 20
	dom_say $guest go
	check "$guest did not switch swap off" dom_wait_for $guest swap=off 60
	check "$guest: pages stay at the service after swapoff" wait_stat $guest pages_persistent -eq 0 20
	dom_say $guest go
	check "$guest failed" dom_wait_end $guest 60
	dom_check $guest
	[ "$(dom_value $guest disk_sectors)" = 0 ] ||
		fail "$guest: the swap disk was written: $(dom_value $guest disk_sectors) sectors"
	note "$guest: $(dom_value $guest stores_posted) posted, $(dom_value $guest stores_accepted)" \
		"answered stores, $(dom_value $guest loads) loads, $(dom_value $guest doorbells) doorbells"
done
