#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tmemd is away when a machine starts: one that must have its disk does not start and libvirt shows
# why; another waits for its disk and starts when tmemd is back. And how long libvirt is kept
# waiting by the hook.
. "$(dirname "$0")/../lib.sh"
paused() { [ "$(virsh domstate "$1" 2> /dev/null | head -n 1)" = paused ]; }

echo 'sleep 600' > "$vm_work/guest.sh"
check 'no image' guest_image debian12 "$vm_work/guest.img" "$vm_work/guest.sh"
check 'libvirt does not start' libvirt_start
host_setup 256M
check 'tmemd does not start' tmemd_start
check 'the machine cannot be defined' domain_define strict 96
check 'the machine cannot be defined' domain_define easy 96
check 'attach' host_tmemctl attach $URI strict --size 64M --required > /dev/null
check 'attach' host_tmemctl attach $URI easy --size 64M > /dev/null
tmemd_kill
check 'a required disk' says 'it is required, so the machine does not start' virsh start strict
[ "$(virsh domstate strict | head -n 1)" = 'shut off' ] || fail 'it runs'
virsh start easy > "$vm_work/starting.txt" 2>&1 &
starting=$!
check 'QEMU is kept from starting' soon paused easy
sleep 1
check 'no start' tmemd_start
check 'it does not start with its disk' wait $starting
check 'it does not start' domain_start strict
for name in strict easy; do
	check "destroy $name" virsh destroy $name > /dev/null
done

# What is wrong in the metadata keeps nobody from starting, but for whom it is required.
for name in strict easy; do
	virsh dumpxml $name --inactive | sed 's/ size="67108864"/ size="much"/' > "$vm_work/odd.xml"
	check "define $name" virsh define "$vm_work/odd.xml" > /dev/null
done
check 'odd metadata' says 'size of a <disk> must be a number of bytes' virsh start strict
check 'it does not start' virsh start easy --paused > /dev/null
virsh dumpxml easy > "$vm_work/easy.xml"
check 'destroy' virsh destroy easy > /dev/null

# libvirtd is restarted under a machine: an error of the hook there would kill it.
check 'it does not start' virsh start easy --paused > /dev/null
pid=$(cat /run/libvirt/qemu/easy.pid)
kill "$(cat /run/libvirtd.pid)"
check 'libvirtd does not end' soon test ! -e /run/libvirtd.pid
check 'libvirtd does not start again' libvirtd -d
check 'the machine did not stay' soon paused easy
check 'the machine did not stay' kill -0 "$pid"
check 'destroy' virsh destroy easy > /dev/null

sed 's/ size="much"/ size="67108864"/' "$vm_work/easy.xml" > "$vm_work/good.xml"
each() # microseconds that a command takes
{
	local begin

	begin=$(date +%s%N)
	for ((i = 0; i < 10; i++)); do
		"$@" < "$vm_work/good.xml" > /dev/null || fail "$*"
	done
	echo $((($(date +%s%N) - begin) / 10000))
}
note "an empty program: $(each /bin/true) us each"
for operation in 'prepare begin' 'started begin' 'release end'; do
	# shellcheck disable=SC2086 # two words
	note "the hook, $operation: $(each "$HOOK" easy $operation -) us each"
done
