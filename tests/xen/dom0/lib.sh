# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
#
# What cases may use. They run in dom0 with busybox's shell, after the functions of
# tests/vm/lib/inner.sh (host_ready, configure, threads, status, service).
#
#   fail SENTENCE, skip SENTENCE, check TEXT COMMAND, note TEXT
#                           as in tests/vm/lib/case.sh
#   wait_until SECONDS COMMAND...
#                           until the command is true; false when it was not in time
#
# Guests: NAME is Xen's name. Their scripts have the functions listed in tests/vm/lib/guests.sh.
#
#   dom_create NAME pv|pvh KERNEL MB SCRIPT [disk=MB] [paused] [LINE...]
#                           KERNEL is 5.10 or 6.1, SCRIPT a file; the disk is xvda; other lines go to
#                           xl's configuration as they are
#   dom_swaps FILE MB [SEED]
#                           write the script of a guest that swaps with a process of MB until it is told
#                           something
#   dom_unpause NAME        dom_destroy NAME       dom_shutdown NAME    as xl does
#   dom_id NAME             the number of the domain
#   dom_alive NAME          whether it is there
#   dom_wait_for NAME PATTERN SECONDS
#                           until a line of its console matches; false when it ends before
#   dom_value NAME KEY      the last KEY=VALUE of its console
#   dom_say NAME LINE       a line to its console, where `wait_for_host` reads
#   dom_wait_end NAME SECONDS
#                           until it powers off; false unless its script ended with 0
#   dom_check NAME          fails the case unless its pages were intact and its kernel is content
#
# tmemd: as its unit starts it, its output in /var/log/tmemd.log.
#
#   service_setup [LINE...] a clean arena of 400M and a configuration with these lines
#   xen_client NAME DOMAIN [LINE...]
#                           a client that reaches tmemd by xenbus
#   tmemd_start             start it and wait until it answers
#   tmemd_kill              kill -9
#   tmemd_stop              SIGTERM, and wait
#   tmemd_reload            SIGHUP
#   tmemd_same              whether the one started last still runs
#   stat_of NAME KEY        a number of `tmemctl stat NAME`
#   wait_stat NAME KEY TEST VALUE SECONDS
#                           wait until `KEY TEST VALUE` holds (TEST as in test(1))
#   xs_front NAME [NODE]    a node of the device's directories, or their paths
#   xs_back NAME [NODE]
#   device_state NAME STATE SECONDS
#                           wait until both ends are in this state (4: connected), or "gone"
#   nothing_left            whether no guest has a device

logs=/var/log/xen

now() { cut -d. -f1 /proc/uptime; }
note() { echo "  $*"; }

fail()
{
	echo "$*"
	exit 1
}

skip()
{
	echo "$*"
	exit 77
}

check()
{
	local text=$1

	shift
	"$@" || fail "$text"
}

wait_until()
{
	local end=$(($(now) + $1))

	shift
	until "$@"; do
		[ "$(now)" -lt $end ] || return 1
		sleep 0.3
	done
}

# ---- guests

# The script comes behind the image, as an archive of its own, with what the kernel calls when xl
# asks for a shutdown.
dom_image() # directory, kernel, script
{
	local command

	mkdir -p "$1/root/sbin"
	for command in poweroff reboot; do
		printf '#!/bin/sh\nexec /bin/busybox %s -f\n' $command > "$1/root/sbin/$command"
		chmod +x "$1/root/sbin/$command"
	done
	cp "$3" "$1/root/script.sh"
	(cd "$1/root" && find . | cpio -o -H newc 2> /dev/null) | cat "/domu/$2.img" - > "$1/image"
}

dom_create()
{
	local name=$1 type=$2 kernel=$3 mb=$4 dir=/run/dom/$1 paused='' disk='' line

	dom_image "$dir" "$kernel" "$5" || return 1
	shift 5
	{
		printf '%s\n' "name = '$name'" "type = '$type'" "kernel = '/domu/vmlinux-$kernel'" \
			"ramdisk = '$dir/image'" "memory = $mb" \
			"extra = 'console=hvc0 loglevel=5 panic=-1 rootfstype=ramfs'" \
			"on_crash = 'destroy'" "on_reboot = 'destroy'" "tsc_mode = 'native'"
		for line; do
			case $line in
			paused) paused=-p ;;
			disk=*) disk=${line#*=} ;;
			*) printf '%s\n' "$line" ;;
			esac
		done
		[ -z "$disk" ] || dom_disk "$dir/disk" "$disk"
	} > "$dir/config"
	dom_start "$name" "$dir" $paused || return 1
	[ -n "$paused" ] || [ "$type" = pv ] || dom_boots "$name" "$dir"
}

dom_swaps() # file, MB, seed
{
	cat > "$1" <<-EOS
		tmem_load || exit 1
		swap_on xvda || exit 1
		pagehog --mb $2 --passes 1 --seed ${3:-5} --until /tmp/enough &
		hog=\$!
		wait_for_host
		touch /tmp/enough
		wait \$hog || exit 1
		say disk_errors=\$(dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error')
	EOS
}

dom_start() # name, directory, -p or nothing
{
	rm -f "$logs/guest-$1.log"
	xl create ${3:-} "$2/config" > "$2/create.log" 2>&1 || {
		cat "$2/create.log"
		return 1
	}
	xl domid "$1" > "$2/id"
}

# The processor that PVH guests need is one that QEMU emulates inside of an emulated one: now and then
# such a guest falls with a double fault that no processor makes, most often in its first seconds, before
# it has run anything of ours. Then it is started again, twice at most, and that is told. A guest that
# has to live long is better a PV one.
dom_boots() # name, directory
{
	local try=1

	until dom_wait_for "$1" GUEST-UP 90; do
		dom_gone "$1" && [ $try -lt 3 ] || return 1
		try=$((try + 1))
		dom_start "$1" "$2" || return 1
	done
}

dom_disk() # file, MB
{
	local loop

	truncate -s "$2M" "$1"
	loop=$(losetup -f)
	losetup "$loop" "$1"
	printf "disk = ['format=raw,vdev=xvda,access=rw,target=%s']\n" "$loop"
}

dom_id() { cat "/run/dom/$1/id"; }
dom_alive() { xl domid "$1" > /dev/null 2>&1; }
dom_gone() { ! dom_alive "$1"; }
dom_unpause() { xl unpause "$1"; }
dom_destroy() { xl destroy "$1"; }
dom_shutdown() { timeout 60 xl shutdown -w "$1" > /dev/null; }

dom_wait_for()
{
	local name=$1 end=$(($(now) + $3))

	until grep -qE "$2" "$logs/guest-$name.log" 2> /dev/null; do
		if [ "$(now)" -ge $end ]; then
			echo "$name: no '$2' within $3 s"
			return 1
		fi
		if dom_gone "$name"; then
			sleep 0.5
			grep -qE "$2" "$logs/guest-$name.log" && return 0
			echo "$name: the guest ended before '$2'"
			return 1
		fi
		sleep 0.5
	done
}

dom_value() { tr -d '\r' < "$logs/guest-$1.log" | grep -oE "(^| )$2=[^ ]*" | tail -n 1 | cut -d= -f2; }
dom_say() { echo "$2" > "$(xenstore-read "/local/domain/$(dom_id "$1")/console/tty")"; }

dom_wait_end()
{
	local name=$1 status

	wait_until "$2" dom_gone "$name" || {
		echo "$name: still running after $2 s"
		return 1
	}
	status=$(tr -d '\r' < "$logs/guest-$name.log" | sed -n 's/.*GUEST-DONE //p' | tail -n 1)
	[ "$status" = 0 ] || {
		echo "$name: the guest's script ended with '${status:-no status}'"
		return 1
	}
	! grep SPLAT "$logs/guest-$name.log"
}

dom_check()
{
	[ "$(dom_value "$1" result)" = intact ] || fail "$1: pages were wrong"
	note "$1: $(dom_value "$1" verified) pages verified"
}

# ---- tmemd

service_setup()
{
	host_ready 400M
	configure '[pool]' 'pool_max = 384M' 'host_reserve = 0' "$@"
}

xen_client()
{
	printf '[client %s]\nfront = xen\ndomain = %s\n' "$1" "$2" >> /etc/tmemd.conf
	shift 2
	[ $# = 0 ] || printf '%s\n' "$@" >> /etc/tmemd.conf
}

tmemd_start()
{
	tmemd_run >> /var/log/tmemd.log 2>&1
	status=$?
	echo "$tmemd" > /run/tmemd.pid
	[ $status = 0 ] || tail -n 5 /var/log/tmemd.log
	return $status
}

tmemd_kill()
{
	kill -9 "$tmemd"
	wait "$tmemd" 2> /dev/null
}

tmemd_stop()
{
	kill "$tmemd"
	wait "$tmemd"
}

tmemd_reload() { kill -HUP "$tmemd"; }
tmemd_same() { kill -0 "$tmemd" && tmemctl version > /dev/null; }

stat_of() { tmemctl stat "$1" 2> /dev/null | awk -v k="$2" '$1 == k { print $2 }'; }

wait_stat()
{
	local end=$(($(now) + $5)) value

	while :; do
		value=$(stat_of "$1" "$2")
		[ -n "$value" ] && [ "$value" "$3" "$4" ] && return 0
		if [ "$(now)" -ge $end ]; then
			echo "$1: $2 is '$value', not $3 $4, after $5 s"
			return 1
		fi
		sleep 0.5
	done
}

# ---- the device in xenstore

xs_node() { if [ -n "$2" ]; then xenstore-read "$1/$2" 2> /dev/null; else echo "$1"; fi; }
xs_front() { xs_node "/local/domain/$(dom_id "$1")/device/tmem/0" "${2:-}"; }
xs_back() { xs_node "/local/domain/0/backend/tmem/$(dom_id "$1")/0" "${2:-}"; }

device_is()
{
	if [ "$2" = gone ]; then
		! xenstore-exists "$(xs_front "$1")" && ! xenstore-exists "$(xs_back "$1")"
	else
		[ "$(xs_front "$1" state)" = "$2" ] && [ "$(xs_back "$1" state)" = "$2" ]
	fi
}

device_state()
{
	wait_until "$3" device_is "$1" "$2" && return
	echo "$1: the device is in state '$(xs_front "$1" state)' at the guest," \
		"'$(xs_back "$1" state)' at tmemd, not '$2', after $3 s"
	return 1
}

# Nothing of ours in xenstore; xenstored itself made the empty directories of each guest.
nothing_left() { ! xenstore-ls -f /local/domain 2> /dev/null | grep -q /tmem/0; }

# ---- after each case, by init

case_cleanup()
{
	local name

	for name in $(xl list | awk 'NR > 1 && $1 != "Domain-0" { print $2 }'); do
		xl destroy "$name"
	done
	if [ -f /run/tmemd.pid ]; then
		kill -9 "$(cat /run/tmemd.pid)"
		sleep 0.5
	fi
	umount /run/tmemd
	losetup -a | cut -d: -f1 | while read -r name; do losetup -d "$name"; done
	xenstore-rm /local/domain/0/backend/tmem
	rm -rf /run/tmemd.pid /run/tmem /run/tmemd /run/dom /var/log/tmemd.log $logs/*.log /tmp/*
} > /dev/null 2>&1
