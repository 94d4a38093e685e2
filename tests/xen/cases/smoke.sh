# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The foundation: the real tmemd runs in dom0 as its unit starts it, every thread an IO flusher, its
# memory locked, with the capabilities and the filter of system calls that it keeps elsewhere; PV and
# PVH guests of both kernels boot and load the module, and one guest has swap on a disk of dom0.
service_setup
check 'tmemd does not start' tmemd_start
threads=$(threads)
note "Xen $(xl info xen_version), dom0 $(uname -r)"
note "threads with IO_FLUSHER $threads, locked $(status VmLck) kB, capabilities $(status CapEff)," \
	"seccomp $(status Seccomp), user $(status Uid)"
[ "${threads%/*}" = "${threads#*/}" ] && [ "${threads#*/}" -ge 4 ] ||
	fail 'a thread of tmemd has not the flags of IO_FLUSHER'
[ "$(status VmLck)" -gt 10000 ] || fail 'memory is not locked'
[ "$(workers)" = -10, ] || fail "the workers have niceness $(workers), not -10"
[ "$(status Uid)/$(status Seccomp)" = 999/2 ] || fail 'tmemd is not who it should be'
[ "$((0x$(status CapEff)))" = $((1 << 0 | 1 << 14)) ] ||
	fail 'the capabilities are not CAP_CHOWN and CAP_IPC_LOCK'
[ "$(service pool_max_bytes)" = $((384 << 20)) ] || fail 'tmemctl does not show the pool'

cat > /tmp/guest.sh <<'EOS'
tmem_load || exit 1
say module="$(awk '$1 == "tmem" { print $5 }' /proc/modules)" domain="$(xs read domid)" \
	type="$(cat /sys/hypervisor/guest_type)"
[ ! -b /dev/xvda ] || swap_on xvda || exit 1
say swap_kb="$(awk '$1 == "/dev/xvda" { print $3 }' /proc/swaps)"
wait_for_host
EOS
guests='pv-5.10 pvh-5.10 pv-6.1 pvh-6.1'
for guest in $guests; do
	disk=
	[ $guest != pvh-5.10 ] || disk=disk=64
	start=$(now)
	# shellcheck disable=SC2086
	check "$guest was not created" dom_create $guest ${guest%-*} ${guest#*-} 128 /tmp/guest.sh $disk
	note "$guest: created in $(($(now) - start)) s"
done
for guest in $guests; do
	check "$guest does not boot or load the module" dom_wait_for $guest swap_kb= 60
	note "$guest: $(grep -o 'GUEST-UP.*' /var/log/xen/guest-$guest.log)"
	[ "$(dom_value $guest module)" = Live ] || fail "$guest: the module is not loaded"
	[ "$(dom_value $guest domain)" = "$(dom_id $guest)" ] || fail "$guest: no xenstore"
	[ "$(dom_value $guest type | tr A-Z a-z)" = ${guest%-*} ] ||
		fail "$guest: it is of type $(dom_value $guest type)"
done
[ "$(dom_value pvh-5.10 swap_kb)" -gt 60000 ] || fail 'the guest does not swap to its disk'
for guest in $guests; do dom_say $guest go; done
for guest in $guests; do
	check "$guest did not end well" dom_wait_end $guest 30
done
check 'tmemd has gone' tmemd_same
tmemd_stop || fail "tmemd did not end well: status $?"
