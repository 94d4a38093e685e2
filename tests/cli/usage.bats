# SPDX-License-Identifier: GPL-2.0-or-later
# Help, versions and wrong usage of each program.

load lib

@test "--help and --version" {
	for program in "$TMEMD" "$TMEMCTL"; do
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
	for command in list stat metrics set freeze thaw freeable reclaim flush shared-auth doctor version \
		"disk create" "disk list" "disk resize" "disk remove"; do
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
	wrong "allow or deny" shared-auth vm1 01234567-89ab-cdef-0123-456789abcdef yes
}

@test "tmemctl: no service" {
	run ctl list
	[ "$status" -eq 3 ]
	says "is tmemd running?"
	run "$TMEMCTL" --socket "/tmp/$(printf 'x%.0s' {1..200})" list
	[ "$status" -eq 3 ]
}
