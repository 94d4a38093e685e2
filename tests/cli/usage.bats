# SPDX-License-Identifier: GPL-2.0-or-later
# Help, versions and wrong usage of each program.

load lib

@test "--help and --version" {
	for program in "$TMEMD" "$TMEMCTL" "$PWD/tmem-vhost-user-blk"; do
		run "$program" --help
		[ "$status" -eq 0 ]
		says "Usage: $(basename "$program")"
		run "$program" --version
		[ "$status" -eq 0 ]
		[[ $output =~ ^$(basename "$program")\ [0-9]+\.[0-9]+\.[0-9]+ ]]
	done
}

@test "tmemd: wrong usage" {
	run "$TMEMD" --no-such-option
	[ "$status" -eq 2 ]
	says "See tmemd --help"
	run "$TMEMD" start
	[ "$status" -eq 2 ]
	run "$TMEMD" --log-level loud
	[ "$status" -eq 2 ]
	says "allowed are error, warning, note, info and debug"
}

@test "tmemctl: each command has its help" {
	for command in list stat metrics set freeze thaw freeable reclaim flush shared-auth domain doctor version \
		"disk create" "disk list" "disk resize" "disk remove" "peer list" "peer stat" "peer drain" "peer allow" \
		"peer deny" attach detach; do
		run "$TMEMCTL" $command --help
		[ "$status" -eq 0 ]
		says "Usage: tmemctl $command"
		run "$TMEMCTL" --help
		says "  $command"
	done
}

# wrong TEXT ARGUMENT...: exit status 2 and the text.
wrong()
{
	local text=$1

	shift
	run "$TMEMCTL" --socket "$SOCKET" "$@"
	[ "$status" -eq 2 ] || { echo "status $status: $*"; return 1; }
	says "$text"
}

@test "tmemctl: wrong usage" {
	wrong "COMMAND: missing"
	wrong "no such command" lst
	wrong "too many" list vm1
	wrong "too many" stat vm1 vm2
	wrong "does not have" set vm1 maximum=1G --json
	wrong "does not have" list --all
	wrong "does not have" list --guest
	wrong "does not have" stat --root /
	wrong "too many" doctor vm1
	wrong "does not have" flush vm1 --timeout 3
	wrong "argument is missing" set
	wrong "say what to set" set vm1
	wrong "stands alone" set vm1 pool_max=1G
	wrong "stands alone" set maximum=1G
	wrong "stands alone" set pool_max=1G weight=3
	wrong "given twice" set vm1 weight=3 weight=4
	wrong "a number of bytes" set vm1 maximum=1X
	wrong "a number of bytes" set vm1 minimum=none
	wrong "allowed are maximum=" set vm1 max=1G
	wrong "either a client or --all" freeze
	wrong "either a client or --all" freeze vm1 --all
	wrong "either a client or --all" thaw
	wrong "either a client or --all" flush
	wrong "argument is missing" reclaim
	wrong "above 0" reclaim 0
	wrong "above 0" reclaim much
	wrong "0 to 3600" reclaim 1M --timeout never
	wrong "0 to 3600" reclaim 1M --timeout -1
	wrong "argument is missing" shared-auth vm1
	wrong "too many" domain 1 2
	wrong "is for xl:" attach qemu:///system vm1 --timeout 3
	wrong "for machines of libvirt" attach xl: web --nbd
	wrong "for machines of libvirt" attach xl: web --size 1G
	wrong "for machines of libvirt" attach xl: web --name other
	wrong "for machines of libvirt" detach xl: web --live
	wrong "does not have" detach xl: web --print
	wrong "0 to 3600" attach xl: web --timeout soon
	wrong "allow or deny" shared-auth vm1 01234567-89ab-cdef-0123-456789abcdef yes
}

@test "tmemctl: no service" {
	run ctl list
	[ "$status" -eq 3 ]
	says "is tmemd running?"
	run "$TMEMCTL" --socket "/tmp/$(printf 'x%.0s' {1..200})" list
	[ "$status" -eq 3 ]
}

@test "tmem-vhost-user-blk: wrong usage" {
	local backend=$PWD/tmem-vhost-user-blk

	# backend_wrong TEXT ARGUMENT...
	backend_wrong()
	{
		run timeout 5 "$backend" "${@:2}"
		[ "$status" -eq 2 ] || { echo "status $status: ${*:2}"; return 1; }
		says "$1"
	}
	backend_wrong "say --disk or --disk-socket"
	backend_wrong "say --disk or --disk-socket" --disk=a --disk-socket=/b --fd=0
	backend_wrong "say --socket-path or --fd" --disk=a
	backend_wrong "say --socket-path or --fd" --disk=a --fd=0 --socket-path=/b
	backend_wrong "options only" --disk=a --fd=0 words
	backend_wrong "See tmem-vhost-user-blk --help" --blk-file=/dev/null --fd=0
	backend_wrong "a name has no slash" --disk=/run/a --fd=0
	backend_wrong "not the number of a descriptor" --disk=a --fd=1x
	backend_wrong "not a Unix stream socket" --disk=a --fd=0
	backend_wrong "1 to 107 bytes" --disk-socket="/$(printf 'x%.0s' {1..120})" --fd=0
	run timeout 5 "$backend" --disk=a --socket-path="$DIR/none/of/it"
	[ "$status" -eq 1 ]
	says "No such file or directory"
	# A file that is no socket stays.
	echo kept >"$DIR/file"
	run timeout 5 "$backend" --disk=a --socket-path="$DIR/file"
	[ "$status" -eq 1 ]
	[ "$(cat "$DIR/file")" = kept ]
}

@test "tmem-vhost-user-blk: what managers ask" {
	run "$PWD/tmem-vhost-user-blk" --fd=9 --nonsense --print-capabilities
	[ "$status" -eq 0 ]
	[ "$(jq -c . <<<"$output")" = '{"type":"block","features":[]}' ]
	run jq -r '.type, .binary' 50-tmem-vhost-user-blk.json
	[ "${lines[0]}" = block ]
	[ "$(basename "${lines[1]}")" = tmem-vhost-user-blk ]
}

@test "quickstart: help and wrong usage, before anything is installed" {
	quickstart=$srcdir/quickstart
	run "$quickstart" --help
	[ "$status" -eq 0 ]
	says "demo [--guest NAME]"
	run "$quickstart" demo --help
	[ "$status" -eq 0 ]
	for guest in debian11 debian12 debian13 sid module; do
		says "$guest"
	done
	run "$quickstart" demo --guest windows
	[ "$status" -eq 2 ]
	says "no guest is called 'windows'"
	run "$quickstart" demo now
	[ "$status" -eq 2 ]
	run "$quickstart"
	[ "$status" -eq 2 ]
}

@test "quickstart: packages, each once; what only building kernels needs is apart" {
	run "$srcdir/quickstart" packages
	[ "$status" -eq 0 ]
	[ -z "$(sort <<<"$output" | uniq -d)" ]
	for package in qemu-system-x86 gcc-12 flex bats udev; do
		grep -qx "$package" <<<"$output"
	done
	[ "$("$srcdir/tests/vm/demo" --kind)" = disk ]
	[ "$("$srcdir/tests/vm/demo" --kind --guest module)" = module ]
}
