# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# How many events a page costs in each direction, as both sides count them, while a guest fills memory
# and reads it back: with the settings as they are, and with long times of polling on both sides. The
# goal is one in 32 pages, 31 for 1000. In emulation a processor that polls stands still now and then, and
# the other side sleeps meanwhile: asked here is a tenth, and a fifth of what it is with the defaults.
service_setup
xen_client pv pv
check 'tmemd does not start' tmemd_start
cat > /tmp/guest.sh <<'EOS'
tmem_load || exit 1
swap_on xvda || exit 1
count()
{
	for key in stores loads doorbells interrupts; do eval "$key=$(counter $key)"; done
	pagehog --mb 50 --passes 0 --seed $1 || exit 1
	pages=$(($(counter stores) - stores + $(counter loads) - loads))
	say pages=$pages out=$(($(counter doorbells) - doorbells)) in=$(($(counter interrupts) - interrupts))
	say count=$1
	wait_for_host
}
count 1
echo 50000 > /sys/module/tmem/parameters/spin_us
count 2
EOS
check 'pv was not created' dom_create pv pv 5.10 80 /tmp/guest.sh disk=96
# Sets events, both directions, for 1000 pages.
figures() # text
{
	in=$(stat_of pv doorbells_in) out=$(stat_of pv doorbells_out)
	pages=$(dom_value pv pages)
	[ "$pages" -gt 5000 ] || fail "only $pages pages $1"
	events=$(((in + out) * 1000 / pages))
	note "$1: $pages pages, $in events from the guest ($(dom_value pv out) of pages by its own count)," \
		"$out to it ($(dom_value pv in) interrupts): $events for 1000 pages"
	[ "$in" -gt 0 ] && [ "$out" -gt 0 ] || fail "events are not counted $1"
}
check 'pv does not finish' dom_wait_for pv count=1 200
figures 'defaults'
defaults=$events
tmemd_stop
sed -i 's/^\[client pv\]/[front]\npoll = 10000\n&/' /etc/tmemd.conf
check 'tmemd does not start again' tmemd_start
check 'not connected' device_state pv 4 60
dom_say pv go
check 'pv does not finish again' dom_wait_for pv count=2 200
figures 'spin_us = 50000, poll = 10000'
[ $events -lt 100 ] && [ $((5 * events)) -lt $defaults ] || fail 'polling does not spare events'
dom_say pv go
check 'pv failed' dom_wait_end pv 60
