# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A PV and a PVH guest with pages at tmemd are saved by xl with their pages, each twice: destroyed, and
# restored at a tmemd that has nothing of the former one. They go on: every page is right, no accepted
# put was refused, and each has begun one life. A checkpoint leaves the guest as it is.
service_setup
guests='pv-5.10 pvh-5.10'
for guest in $guests; do xen_client $guest $guest 'rings = 2'; done
check 'tmemd does not start' tmemd_start

# A guest that swaps needs free memory when it goes on: blkfront takes megabytes before there is a disk
# to swap to, and tmem has none for it yet. See docs/xen.md.
cat > /tmp/guest.sh <<'EOS'
echo 1000 > /proc/sys/vm/watermark_scale_factor || exit 1
tmem_load || exit 1
swap_on xvda || exit 1
pagehog --mb 60 --passes 1 --seed 12 --until /tmp/enough &
hog=$!
wait_for_host
touch /tmp/enough
wait $hog || exit 1
say link="$(sed -n 's/link: //p' /sys/kernel/debug/tmem/state)"
EOS

# Another host, as far as tmemd goes.
another_host()
{
	tmemd_stop
	rm -rf /run/tmemd/*
	check 'no other tmemd' tmemd_start
}

move() # name, turn
{
	check "$1 was not saved" tmem-xl save $1 /tmp/machine
	check "$1 is still there" wait_until 30 dom_gone $1
	another_host
	check "$1 was not restored" tmem-xl restore $1 /tmp/machine
	xl domid $1 > /run/dom/$1/id
	rm -f /tmp/machine /tmp/machine.tmem
	check "$1 did not connect again" device_state $1 4 60
	check "$1 does not go on (turn $2)" wait_stat $1 gets_hit -gt 200 100
	check "$1 does not put (turn $2)" wait_stat $1 puts -gt 200 100
}

for guest in $guests; do
	check "$guest was not created" dom_create $guest ${guest%-*} 5.10 80 /tmp/guest.sh disk=96
	check "$guest: no pages at the service" wait_stat $guest pages_persistent -gt 1000 120
	pages=$(stat_of $guest pages_persistent)
	move $guest 1
	# The guest runs while its machine is copied to a file, and goes on.
	check "$guest: no checkpoint" xl save -c $guest /tmp/machine
	rm -f /tmp/machine
	gets=$(stat_of $guest gets_hit)
	check "$guest does not go on after a checkpoint" wait_stat $guest gets_hit -gt $((gets + 100)) 100
	move $guest 2
	dom_say $guest go
	check "$guest failed" dom_wait_end $guest 150
	dom_check $guest
	[ "$(dom_value $guest link)" = open ] || fail "$guest: the link is $(dom_value $guest link)"
	[ "$(dom_value $guest lives)" = 1 ] || fail "$guest had to begin a new life"
	[ "$(dom_value $guest posted_failed)" = 0 ] || fail "$guest: an accepted put was refused"
	note "$guest: $pages pages the first time, $(dom_value $guest resubmitted) operations" \
		"submitted again"
done
check 'a device is left' wait_until 30 nothing_left
