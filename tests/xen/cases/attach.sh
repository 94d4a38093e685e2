# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The device comes before a guest starts, or while it runs; it can be taken away from a guest that has
# no pages at the service, which then swaps to its disk, and given again. Directories belong to whom they
# should, names and UUIDs find a domain, others get no device.
service_setup
xen_client first first
check 'tmemd does not start' tmemd_start

# Swaps; switches swap off so that the device can go; swaps to its disk while it is away, and to the
# service when it is back.
cat > /tmp/guest.sh <<'EOS'
tmem_load || exit 1
fill() # seed
{
	rm -f /tmp/enough
	pagehog --mb 40 --passes 1 --seed $1 --until /tmp/enough --pause 100 &
	hog=$!
	wait_for_host
	touch /tmp/enough
	wait $hog
}
swap_on xvda || exit 1
say guest=ready
wait_for_host
fill 3 || exit 1
swapoff /dev/xvda && say swap=off
wait_for_host
swap_on xvda || exit 1
fill 4 || exit 1
say disk=used
wait_for_host
swapoff /dev/xvda && swap_on xvda || exit 1
fill 5
EOS
sed '/^fill 3/q' /tmp/guest.sh > /tmp/first.sh

# Before the start: the nodes are there while the domain is still paused.
check 'first was not created' dom_create first pv 5.10 80 /tmp/first.sh disk=96 paused
check 'no device before the start' wait_until 20 xenstore-exists "$(xs_front first)"
[ "$(xs_front first backend)" = "$(xs_back first)" ] || fail 'backend: not the right path'
[ "$(xs_front first backend-id)" = 0 ] || fail 'backend-id is not 0'
[ "$(xs_back first frontend)" = "$(xs_front first)" ] || fail 'frontend: not the right path'
[ "$(xs_back first frontend-id)" = "$(dom_id first)" ] || fail 'frontend-id is not the domain'
permissions() { xenstore-ls -p "$(dirname "$1")" | sed -n 's/^0 = .*(\([^)]*\))$/\1/p'; }
id=$(dom_id first)
case $(permissions "$(xs_front first)") in
n$id,r0) ;;
*) fail "the guest's directory has permissions $(permissions "$(xs_front first)")" ;;
esac
case $(permissions "$(xs_back first)") in
n0,r$id) ;;
*) fail "tmemd's directory has permissions $(permissions "$(xs_back first)")" ;;
esac
dom_unpause first
check 'first: not connected' device_state first 4 60
check 'first does not come up' dom_wait_for first guest=ready 60

# While it runs: the second is found by its UUID, after it has started without a device.
check 'second was not created' dom_create second pv 5.10 80 /tmp/guest.sh disk=96
check 'second does not come up' dom_wait_for second guest=ready 60
check 'a device that nobody asked for' device_is second gone
xen_client other "$(xl vm-list | awk '$3 == "second" { print $1 }')"
tmemd_reload
check 'second: not connected' device_state second 4 60
for guest in first second; do dom_say $guest go; done
check 'first: no pages at the service' wait_stat first pages_persistent -gt 500 90
check 'second: no pages at the service' wait_stat other pages_persistent -gt 500 90
tmemctl list

# Asked to give its device up while it has pages at the service, a guest refuses and is served on.
xenstore-write "$(xs_back second)/state" 5
check 'second has lost its device with its pages' wait_stat other gets_hit -gt \
	$(($(stat_of other gets_hit) + 50)) 60
[ "$(xs_front second state)" != 6 ] || fail 'second has given up pages'

# Without pages there it lets go, and swaps to its disk.
dom_say second enough
check 'second does not end its swap' dom_wait_for second swap=off 120
xenstore-write "$(xs_back second)/state" 5
check 'second: the device stays' device_state second gone 60
dom_say second go
sleep 5
check 'second has gone with its device' dom_alive second
check 'first is not served meanwhile' wait_stat first gets_hit -gt \
	$(($(stat_of first gets_hit) + 50)) 60
dom_say second enough
check 'second does not use its disk' dom_wait_for second disk=used 120

# The next reload offers it again.
tmemd_reload
check 'second: not connected again' device_state second 4 60
before=$(stat_of other puts)
dom_say second go
check 'second: no puts after the device came back' wait_stat other puts -gt $((before + 500)) 90
for guest in first second; do dom_say $guest enough; done
for guest in first second; do
	check "$guest failed" dom_wait_end $guest 120
	dom_check $guest
done
check 'the devices stay after the guests' wait_until 20 nothing_left
for guest in first second; do
	! grep -q 'still in use' /var/log/xen/guest-$guest.log || fail "$guest: its grants were ended before tmemd let go"
done
