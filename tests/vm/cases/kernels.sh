#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Unmodified guests with the kernels of Debian 11 to sid swap to disks of tmemd, by vhost-user-blk and
# then by NBD, two at a time in one pool. Each has what tools/guest ships, by a real udev, and nothing
# of its last boot may be left after swapon, every page must be right, and when the process ends the
# host's pages must go (case 14). Then, with TMEMD_VM_LONG=1, every other setting, and the shipped one
# beside a daemon; of these nothing is demanded, they are the table in docs/operators-guide.md.
# KERNELS="debian12 sid" takes some of them, FRONTS some ways to the disk.
. "$(dirname "$0")/../lib/case.sh"
. "$vm_src/lib/inner.sh"
kernels=${KERNELS:-debian11 debian12 debian13 sid}
fronts=${FRONTS:-vhost nbd}
memory_mb=128 fill_mb=110 disk_mb=192 left_mb=8
rules=$vm_src/../../tools/guest/60-tmem-swap.rules
storage_rules=/usr/lib/udev/rules.d/60-persistent-storage.rules
shipped=udev:discard,pri=100
settings=$shipped
[ -z "${TMEMD_VM_LONG:-}" ] || settings+=" daemon:${shipped#*:} 1:none 0:none 1:-d 1:-dpages 1:-donce 0:-d 0:-dpages 0:-donce"

# A front is two functions: NAME_serve makes the service's disk reachable, NAME_qemu prints QEMU's
# arguments. To the guest both are virtio disks.
vhost_serve() { :; }
vhost_qemu() { guest_vhost $memory_mb "$vm_work/tmem-$1.sock" "$vm_work/other-$1.sock"; }

nbd_serve() { host_nbd "tmem-$1" && host_nbd "other-$1"; }
nbd_qemu() { guest_nbd "$vm_work/tmem-$1.nbd,serial=tmem-$1" "$vm_work/other-$1.nbd,serial=other-$1"; }

# The other disk must keep its settings.
find_disk() # kernel
{
	cat <<-EOS
		udev_begins && udev_ends || exit 1
		disk=vda path=/dev/disk/by-id/virtio-tmem-$1
		say rotational_tmem=\$(cat /sys/block/vda/queue/rotational)
		say rotational_other=\$(cat /sys/block/vdb/queue/rotational)
	EOS
}

guest_functions()
{
	cat <<EOS
mkdir -p /run /etc/udev/rules.d && mv /*.rules /etc/udev/rules.d
ln -s udevadm /bin/systemd-udevd
udev_begins() { systemd-udevd --daemon && udevadm trigger --action=add && udevadm settle; }
# Discards are of whole clusters of 2 MiB: what others have swapped keeps those that it lies in.
udev_ends() { killall -9 systemd-udevd; }

# As an administrator does it with the shell's small tools, or as systemd does it for tmem.swap.
swap_like() # setting
{
	case \$1 in
	udev:* | daemon:*)
		/bin/mkswap \$path > /dev/null && /bin/swapon -o \${1#*:} \$path
		return
		;;
	esac
	echo \${1%:*} > /sys/block/\$disk/queue/rotational
	mkswap /dev/\$disk > /dev/null || return 1
	case \$1 in
	*:none) swapon /dev/\$disk ;;
	*) swapon \${1#*:} /dev/\$disk ;;
	esac
}

# What an earlier boot left there.
last_boot() { dd if=/dev/urandom of=/dev/\$disk bs=1M count=$left_mb conv=fsync 2> /dev/null; }

step() { say step=\$1-; wait_for_host; }

measure() # setting
{
	case \$1 in
	daemon:*) udev_begins || return 1 ;;
	esac
	last_boot && swap_like \$1 && step \$1-boot || return 1
	swapoff /dev/\$disk && blkdiscard /dev/\$disk && swap_like \$1 || return 1
	say flags=\$(dmesg | sed -n 's/.*Adding .* across:[0-9]*k */-/p' | tail -n 1)
	rm -f /tmp/enough
	pagehog --mb $fill_mb --passes 1 --pause 4000 --seed $RANDOM --until /tmp/enough > /tmp/hog &
	until grep -q 'pass=1' /tmp/hog; do sleep 0.2; kill -0 \$! || return 1; done
	step \$1-swapped
	touch /tmp/enough
	wait \$! || { cat /tmp/hog; return 1; }
	tail -n 1 /tmp/hog
	say used=\$(awk '/^SwapTotal/ { t = \$2 } /^SwapFree/ { print (t - \$2) / 4 }' /proc/meminfo)
	step \$1-over
	swapoff /dev/\$disk && blkdiscard /dev/\$disk || return 1
	case \$1 in
	daemon:*) udev_ends ;;
	esac
}
EOS
}

guest_script() # kernel
{
	guest_functions
	find_disk "$1"
	printf 'for setting in %s; do measure $setting || exit 1; done\n' "$settings"
	printf 'say disk_errors=$(dmesg | grep -cE "I/O error|[Ww]rite-error|[Rr]ead-error")\n'
}

pages() { host_stat "tmem-$1" pages_persistent; }

# What the guest's kernel still drops in the background has come when a second brings no more.
settled()
{
	local now before=-1 end=$((SECONDS + 20))

	while now=$(pages "$1"); [ "$now" != "$before" ] && [ $SECONDS -lt $end ]; do
		before=$now
		sleep 1
	done
	printf '%s\n' "$now"
}

reach() # setting, step: wait until all guests are there
{
	for kernel in $pair; do
		check "$kernel, $1: no step '$2'" guest_wait_for "$kernel" "step=$1-$2-" 600
	done
}

proceed() { for kernel in $pair; do guest_say "$kernel" go; done; }

line() { note "$(printf '%-9s %-8s %-15s %-7s %9s %10s %6s %8s' "$@")"; }

row() # kernel, setting
{
	line "$1" "${2%%:*}" "${2#*:}" "$(guest_value "$1" flags)" "${left[$1]}" "${held[$1]}" \
		"${rest[$1]}" "$(guest_value "$1" used)"
	[ "$2" = $shipped ] || return 0
	[ "${left[$1]}" -lt 64 ] || fail "$1: ${left[$1]} pages of the last boot are kept"
	[ "${held[$1]}" -gt 5000 ] || fail "$1: only ${held[$1]} pages were swapped"
	[ "${rest[$1]}" -lt $((held[$1] / 2)) ] || fail "$1: ${rest[$1]} of ${held[$1]} pages are kept"
}

declare -A left held rest
run_setting()
{
	reach "$1" boot
	for kernel in $pair; do left[$kernel]=$(settled "$kernel"); done
	proceed
	reach "$1" swapped
	for kernel in $pair; do held[$kernel]=$(pages "$kernel"); done
	proceed
	reach "$1" over
	for kernel in $pair; do
		rest[$kernel]=$(settled "$kernel")
		row "$kernel" "$1"
	done
	proceed
}

finish() # kernel
{
	check "$1 failed" guest_wait_end "$1" 60
	[ "$(guest_value "$1" result)" = intact ] || fail "$1: pages were wrong"
	[ "$(guest_value "$1" disk_errors)" = 0 ] || fail "$1: errors of its swap disk"
	[ "$(host_stat "tmem-$1" disk_errors)" = 0 ] || fail "$1: requests failed"
	[ "$(guest_value "$1" rotational_tmem)" = 0 ] || fail "$1: the rule did not set rotational"
	[ "$(guest_value "$1" rotational_other)" = 1 ] || fail "$1: the rule set another disk"
}

run_pair() # front, kernels
{
	local front=$1

	shift
	pair=$*
	host_setup 512M
	for kernel; do
		host_disk "tmem-$kernel" size=${disk_mb}M
		host_disk "other-$kernel" size=4M
		guest_script "$kernel" > "$vm_work/$kernel.sh"
		check 'no image' guest_image "$kernel" "$vm_work/$kernel.img" "$vm_work/$kernel.sh" \
			"$rules" "$storage_rules"
		check 'no programs' inner_programs "$vm_work/$kernel.img" udevadm mkswap swapon
	done
	check 'tmemd does not start' tmemd_start
	for kernel; do
		check "no $front for $kernel" "${front}_serve" "$kernel"
		# shellcheck disable=SC2046 # a list of words
		guest_start "$kernel" "$kernel" $memory_mb 1 "$vm_work/$kernel.img" \
			$("${front}_qemu" "$kernel")
	done
	for setting in $settings; do run_setting "$setting"; done
	for kernel; do finish "$kernel"; done
	host_cleanup
}

need_tools udevadm mkswap swapon
[ -f $storage_rules ] || skip "no $storage_rules"
there=()
for kernel in $kernels; do
	if why=$(need "$kernel"); then
		there+=("$kernel")
		note "$kernel is $(kernel_release "$kernel")"
	else
		note "$kernel skipped: $why"
	fi
done
[ ${#there[@]} -gt 0 ] || skip 'none of the kernels is there'
for front in $fronts; do
	[ $front != nbd ] || why=$(host_nbd_can) || { note "nbd skipped: $why"; continue; }
	note "pages at the host, $front: of the last boot after swapon, with the process, after its end, and" \
		'what the guest itself then has in use'
	line kernel rotat. swapon kernel 'last boot' swapped after used
	for ((i = 0; i < ${#there[@]}; i += 2)); do run_pair "$front" "${there[@]:i:2}"; done
done
