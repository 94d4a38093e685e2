# SPDX-License-Identifier: GPL-2.0-or-later
# What is there for Xen, as far as it can be seen where there is none: usage, errors, and that a host
# without Xen is told so. The rest is tests/xen, case xl.

load lib

xltmem()
{
	TMEMCTL=$DIR/ctl "${srcdir:-.}/tools/xen/xl-tmem" "$@"
}

setup_service()
{
	write_conf
	printf '[client web]\nfront = xen\n' >>"$CONF"
	start_tmemd
	printf '#!/bin/sh\nexec "%s" --socket "%s" "$@"\n' "$TMEMCTL" "$SOCKET" >"$DIR/ctl"
	chmod +x "$DIR/ctl"
}

# wrong TEXT ARGUMENT...: exit status 2 and the text.
wrong()
{
	run xltmem "${@:2}"
	[ "$status" -eq 2 ] || { echo "status $status: ${*:2}"; return 1; }
	says "$1"
}

@test "xl-tmem: help, version and wrong usage" {
	TMEMCTL=$PWD/tmemctl
	run "${srcdir:-.}/tools/xen/xl-tmem" --help
	[ "$status" -eq 0 ]
	for verb in list freeze thaw set shared-auth freeable; do
		says "xl-tmem $verb"
		run "${srcdir:-.}/tools/xen/xl-tmem" $verb --help
		[ "$status" -eq 0 ]
		says "Usage: xl-tmem"
	done
	TMEMCTL=$TMEMCTL run "${srcdir:-.}/tools/xen/xl-tmem" --version
	[[ $output =~ ^xl-tmem\ [0-9]+\.[0-9]+\.[0-9]+ ]]
	wrong "a verb is missing"
	wrong "show: no such verb" show
	wrong "say a domain, or -a" list
	wrong "say a domain, or -a" freeze
	wrong "say a domain, or -a, not both" thaw -a web
	wrong "one domain at a time" list web mail
	wrong "has no such option" freeze -l web
	wrong "has no such option" list -x web
	wrong "needs a value" set web -w
	wrong "freeable has no domain" freeable web
}

@test "xl-tmem: what the old options meant that is no more" {
	wrong "cannot be switched off" set web -p 0
	wrong "allowed is 1" set web -p 2
	wrong "say -A allow or -A deny" shared-auth web -u 01234567-89ab-cdef-0123-456789abcdef
	# The manual had it the wrong way round: case 30.
	wrong "was the opposite of its manual" shared-auth web -u 01234567-89ab-cdef-0123-456789abcdef -A 1
	wrong "was the opposite of its manual" shared-auth -a -A=0 -u=01234567-89ab-cdef-0123-456789abcdef
	wrong "allowed are allow and deny" shared-auth web -u 01234567-89ab-cdef-0123-456789abcdef -A yes
	wrong "which shared pool" shared-auth web -A allow
}

@test "no Xen here: it is said, and others are served" {
	setup_service
	log_says "Xen cannot be served"
	run ctl domain
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
	[ "$(ctl domain --json | json 'd["domains"]')" = "[]" ]
	for words in "domain web" "attach xl: web" "detach xl: 7"; do
		run ctl $words
		[ "$status" -eq 1 ]
		says "serves no domains"
	done
	run xltmem freeze web
	[ "$status" -eq 1 ]
	says "serves no domains"
	# All of none.
	run xltmem list -a
	[ "$status" -eq 0 ]
	run xltmem list -l -a
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ "$(xltmem freeable)" = "$(($(ctl freeable --json | json 'd["freeable_bytes"]') / 1048576))" ]
	ctl stat vm1 >/dev/null
}

@test "the section that a domain needs" {
	[ "$(ctl attach xl: web --print)" = $'[client web]\nfront = xen\ndomain = web' ]
	write_conf
	ctl attach xl: 01234567-89ab-cdef-0123-456789abcdef --print --name mail >>"$CONF"
	run "$TMEMD" --config "$CONF" --check-config
	[ "$status" -eq 0 ] || says "built without Xen's libraries"
}

@test "no service" {
	run ctl attach xl: web
	[ "$status" -eq 3 ]
	printf '#!/bin/sh\nexec "%s" --socket "%s" "$@"\n' "$TMEMCTL" "$SOCKET" >"$DIR/ctl"
	chmod +x "$DIR/ctl"
	for words in "list web" "freeze -a" "thaw web" "set web -w 3" freeable; do
		run xltmem $words
		[ "$status" -eq 3 ] || { echo "status $status: $words"; return 1; }
	done
}

balloon_wrong()
{
	run "$PWD/tmem-balloon" "${@:2}"
	[ "$status" -eq 2 ] || { echo "status $status: ${*:2}"; return 1; }
	says "$1"
}

@test "tmem-balloon: help, version and wrong usage" {
	[ -x tmem-balloon ] || skip "built without libxenctrl"
	run "$PWD/tmem-balloon" --help
	[ "$status" -eq 0 ]
	for command in run status room; do
		says " $command"
	done
	run "$PWD/tmem-balloon" --version
	[[ $output =~ ^tmem-balloon\ [0-9]+\.[0-9]+\.[0-9]+ ]]
	balloon_wrong "say run, status or room"
	balloon_wrong "say run, status or room" follow
	balloon_wrong "an argument too many" run now
	balloon_wrong "does not have" run --json
	balloon_wrong "does not have" status --timeout 3
	balloon_wrong "say how much" room
	balloon_wrong "above 0" room much
	balloon_wrong "above 0" room 0
	balloon_wrong "0 to 3600" room 1G --timeout soon
	balloon_wrong "See tmem-balloon --help" room 1G --fast
}

@test "tmem-balloon: what is wrong in its configuration" {
	[ -x tmem-balloon ] || skip "built without libxenctrl"
	balloon_wrong "No such file" --config "$DIR/none" status
	conf_wrong()
	{
		printf '%s\n' "${@:2}" >"$DIR/balloon.conf"
		balloon_wrong "$1" --config "$DIR/balloon.conf" status
	}
	conf_wrong "minimum: say what" '[balloon]' 'maximum = 2G'
	conf_wrong "maximum: say what" '[balloon]' 'minimum = 1G'
	conf_wrong "not below minimum" '[balloon]' 'minimum = 2G' 'maximum = 1G'
	conf_wrong "the only section" '[ballon]' 'minimum = 2G'
	conf_wrong "allowed are minimum" '[balloon]' 'minimum = 1G' 'maximum = 2G' 'most = 3G'
	conf_wrong "a number of bytes" '[balloon]' 'minimum = 1X' 'maximum = 2G'
	conf_wrong "1 to 60 seconds" '[balloon]' 'minimum = 1G' 'maximum = 2G' 'interval = 0'
	conf_wrong "absolute path" '[balloon]' 'minimum = 1G' 'maximum = 2G' 'socket = control.sock'
	conf_wrong "step" '[balloon]' 'minimum = 1G' 'maximum = 2G' 'step = 1000'
	conf_wrong "line 2 is not understood" '[balloon]' 'minimum'
}

@test "tmem-balloon: no Xen here, and nothing is run without room" {
	[ -x tmem-balloon ] || skip "built without libxenctrl"
	[ ! -e /proc/xen/privcmd ] || skip "this is dom0"
	sed 's/^\(minimum\|maximum\) = .*/\1 = 1G/' "${srcdir:-.}/tools/xen/balloon.conf" >"$DIR/balloon.conf"
	for words in run status "room 1M"; do
		run timeout 10 "$PWD/tmem-balloon" --config "$DIR/balloon.conf" $words
		[ "$status" -eq 3 ]
		says "Xen cannot be asked"
	done
	run "$PWD/tmem-balloon" --config "$DIR/balloon.conf" room 1M -- touch "$DIR/built"
	[ "$status" -eq 3 ]
	[ ! -e "$DIR/built" ]
}
