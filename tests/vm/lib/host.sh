# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The host's side: a tmemd of this run's own. Sourced after guests.sh, not run.
#
#   host_setup POOL_MAX            configuration without clients; the arena goes to a tmpfs
#   host_client NAME KEY=VALUE...  adds [client NAME] with these settings
#   host_disk NAME KEY=VALUE...    adds [disk NAME]; its socket is $vm_work/NAME.sock
#   tmemd_start                    start it and wait until it answers
#   tmemd_kill                     kill -9
#   tmemd_stop                     SIGTERM, and wait
#   host_nbd_can                   succeeds, or prints why there is no NBD server, and fails
#   host_nbd NAME                  serve the disk by nbdkit at $vm_work/NAME.nbd, or serve it again
#   host_nbd_kill NAME             kill -9 of that
#   host_nbd_pids                  print the processes
#   host_tmemctl ARGUMENT...       tmemctl for it
#   host_stat NAME KEY             a number of `tmemctl stat NAME --json`
#   host_wait_stat NAME KEY TEST VALUE SECONDS
#                                  wait until `KEY TEST VALUE` holds (TEST as in test(1): -eq, -le)
#   host_cleanup                   stop it and remove its files (for traps; may be called twice)
#
# Environment: TMEMD and TMEMCTL, the programs (default: found in the build directory $vm_build).

: "${vm_build:?set vm_build to the build directory}"
TMEMD=${TMEMD:-$vm_build/tmemd}
TMEMCTL=${TMEMCTL:-$vm_build/tmemctl}
host_tmpfs=
host_pid=
declare -A host_nbd_pid

host_setup()
{
	host_tmpfs=$(mktemp -d /dev/shm/tmemd-vm.XXXXXX) || return 1
	if [ "$(stat -f -c %T "$host_tmpfs")" != tmpfs ]; then
		vm_say '/dev/shm is not a tmpfs'
		return 1
	fi
	mkdir "$host_tmpfs/regions"
	cat > "$vm_work/tmemd.conf" <<-CONF
		[pool]
		arena = $host_tmpfs/arena
		pool_max = $1
		host_reserve = 0
		[front]
		regions = $host_tmpfs/regions
		[control]
		socket = $vm_work/control.sock
	CONF
}

host_client()
{
	local name=$1

	shift
	{
		printf '[client %s]\nfront = ivshmem\nsocket = %s\n' "$name" "$vm_work/$name.sock"
		printf '%s\n' "$@"
	} >> "$vm_work/tmemd.conf"
}

host_disk()
{
	local name=$1

	shift
	{
		printf '[disk %s]\nsocket = %s\n' "$name" "$vm_work/$name.sock"
		printf '%s\n' "$@"
	} >> "$vm_work/tmemd.conf"
}

host_nbd_can()
{
	if ! command -v nbdkit > /dev/null; then
		echo 'nbdkit is not installed'
	elif [ ! -f "$vm_build/nbdkit-tmem-plugin.so" ]; then
		echo "no plugin of nbdkit in $vm_build"
	else
		return 0
	fi
	return 1
}

host_nbd()
{
	local name=$1 end=$((SECONDS + 20))

	host_nbd_kill "$name"
	rm -f "$vm_work/$name.nbd" "$vm_work/$name.nbd-pid"
	nbdkit -f -U "$vm_work/$name.nbd" -P "$vm_work/$name.nbd-pid" \
		"$vm_build/nbdkit-tmem-plugin.so" socket="$vm_work/$name.sock" \
		>> "$vm_work/$name-nbdkit.log" 2>&1 &
	host_nbd_pid[$name]=$!
	until [ -s "$vm_work/$name.nbd-pid" ]; do
		if [ $SECONDS -ge $end ] || ! kill -0 "${host_nbd_pid[$name]}" 2> /dev/null; then
			vm_say 'nbdkit does not start:'
			tail -n 5 "$vm_work/$name-nbdkit.log" >&2
			return 1
		fi
		sleep 0.1
	done
}

host_nbd_kill()
{
	[ -n "${host_nbd_pid[$1]:-}" ] || return 0
	kill -9 "${host_nbd_pid[$1]}" 2> /dev/null
	wait "${host_nbd_pid[$1]}" 2> /dev/null
	unset "host_nbd_pid[$1]"
}

host_nbd_pids() { printf '%s\n' "${host_nbd_pid[@]}"; }

host_tmemctl() { "$TMEMCTL" --socket "$vm_work/control.sock" "$@"; }

tmemd_start()
{
	local end=$((SECONDS + 20))

	"$TMEMD" --config "$vm_work/tmemd.conf" >> "$vm_work/tmemd.log" 2>&1 &
	host_pid=$!
	until host_tmemctl version > /dev/null 2>&1; do
		if [ $SECONDS -ge $end ] || ! kill -0 "$host_pid" 2> /dev/null; then
			vm_say 'tmemd does not answer:'
			tail -n 5 "$vm_work/tmemd.log" >&2
			return 1
		fi
		sleep 0.1
	done
}

tmemd_kill()
{
	kill -9 "$host_pid"
	wait "$host_pid" 2> /dev/null
	host_pid=
}

tmemd_stop()
{
	kill "$host_pid"
	wait "$host_pid"
	host_pid=
}

host_stat()
{
	host_tmemctl stat "$1" --json |
		jq -r --arg k "$2" '.clients[0] | (.counters[$k] // .[$k])'
}

host_wait_stat()
{
	local name=$1 key=$2 test=$3 value=$4 end=$((SECONDS + $5)) now

	while :; do
		now=$(host_stat "$name" "$key")
		test "$now" "$test" "$value" && return 0
		if [ $SECONDS -ge $end ]; then
			vm_say "$name: $key is $now, not $test $value, after $5 s"
			return 1
		fi
		sleep 0.3
	done
}

host_cleanup()
{
	local name

	for name in "${!host_nbd_pid[@]}"; do host_nbd_kill "$name"; done
	if [ -n "$host_pid" ]; then
		kill -9 "$host_pid" 2> /dev/null
		wait "$host_pid" 2> /dev/null
		host_pid=
	fi
	[ -z "$host_tmpfs" ] || rm -rf "$host_tmpfs"
	host_tmpfs=
}
