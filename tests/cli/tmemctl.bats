# SPDX-License-Identifier: GPL-2.0-or-later
# Every command of tmemctl against a running tmemd.

load lib

UUID=01234567-89ab-cdef-0123-456789abcdef

setup_service()
{
	write_conf
	start_tmemd
}

# refused TEXT ARGUMENT...: exit status 1 and the text.
refused()
{
	local text=$1

	shift
	run ctl "$@"
	[ "$status" -eq 1 ] || { echo "status $status: $*"; return 1; }
	says "$text"
}

@test "list: a table for people, JSON for programs" {
	setup_service
	run ctl list
	[ "$status" -eq 0 ]
	says "LOGICAL"
	says "PHYSICAL"
	says "vm1"
	says "waiting"
	says "physical of at most 128.0M"
	ctl list --json >"$DIR/list"
	[ "$(json 'd["service"]["pool_max_bytes"]' <"$DIR/list")" -eq $((128 << 20)) ]
	[ "$(json 'len(d["clients"])' <"$DIR/list")" -eq 1 ]
	[ "$(json 'd["clients"][0]["name"]' <"$DIR/list")" = vm1 ]
	[ "$(json 'd["clients"][0]["state"]' <"$DIR/list")" = waiting ]
	[ "$(json 'd["clients"][0]["pid"]' <"$DIR/list")" = None ]
	[ "$(json 'd["clients"][0]["ratio"]' <"$DIR/list")" = None ]
	[ "$(json 'd["clients"][0]["socket"]' <"$DIR/list")" = "$DIR/vm1.sock" ]
}

@test "peer: a host without any" {
	setup_service
	run ctl peer list
	[ "$status" -eq 0 ]
	says "this host lends nothing"
	ctl peer list --json >"$DIR/peers"
	[ "$(json 'd["peers"]' <"$DIR/peers")" = "[]" ]
	[ "$(json 'd["lending"]' <"$DIR/peers")" = None ]
	refused 'there is no peer "b"' peer stat b
	for verb in drain allow deny; do
		refused 'there is no peer "b"; see tmemctl peer list' peer $verb b
	done
}

@test "peer: without certificates the host serves what it has" {
	write_conf
	printf '[peers]\nname = a\nca = %s\ntls = %s\n[peer b]\nhost = 127.0.0.1\nport = 1\n' \
		"$DIR" "$DIR" >>"$CONF"
	start_tmemd
	grep -q 'nothing is borrowed or lent: .*cacert.pem' "$LOG"
	run ctl list
	[ "$status" -eq 0 ]
}

@test "list: no clients" {
	write_conf
	sed -i '/client vm1/,$d' "$CONF"
	start_tmemd
	run ctl list
	[ "$status" -eq 0 ]
	says "all clients: 0 logical in 0 physical"
	[ "$(ctl list --json | json 'd["clients"]')" = "[]" ]
}

@test "stat: of all and of one; every counter of the lists" {
	setup_service
	ctl stat --json >"$DIR/stat"
	[ "$(json 'd["service"]["arena"]' <"$DIR/stat")" = "$SHM/arena" ]
	ctl stat vm1 --json >"$DIR/vm1"
	[ "$(json '"service" in d' <"$DIR/vm1")" = False ]
	[ "$(json 'd["clients"][0]["pools"]' <"$DIR/vm1")" = "[]" ]
	for list in CLIENT:vm1 STORE:stat; do
		names=$(sed -n "/${list%:*}_COUNTERS(X)/,/^\$/s/.*X([A-Z_]*, \"\([a-z_]*\)\".*/\1/p" \
			"${srcdir:-.}/hyp/base/counters.h" | sort | tr '\n' ' ')
		[ "$(wc -w <<<"$names")" -gt 10 ]
		[ "$names" = "$(json '" ".join(sorted((d.get("service") or d["clients"][0])["counters"])) + " "' <"$DIR/${list#*:}")" ]
		run ctl stat
		for name in $names; do
			says "  $name "
		done
	done
	refused 'there is no client "vm2"' stat vm2
}

@test "metrics: Prometheus text, every line of it" {
	setup_service
	ctl metrics >"$DIR/metrics"
	"$PYTHON" "${srcdir:-.}/tests/cli/metrics.py" <"$DIR/metrics"
	grep -q '^tmemd_client_puts_total{client="vm1"} 0$' "$DIR/metrics"
	grep -q '^tmemd_client_maximum_bytes{client="vm1"} 67108864$' "$DIR/metrics"
	grep -q '^tmemd_pool_max_bytes 134217728$' "$DIR/metrics"
	grep -q '^tmemd_frozen 0$' "$DIR/metrics"
	ctl metrics --json | json 'd["text"]' | head -1 | grep -q '^# HELP'
}

@test "set: limits of a client" {
	setup_service
	ctl set vm1 maximum=32M minimum=1M weight=3
	[ "$(ctl list --json | json '[d["clients"][0][k] for k in ("maximum_bytes", "minimum_bytes", "weight")]')" = "[33554432, 1048576, 3]" ]
	ctl set vm1 maximum=none
	[ "$(ctl list --json | json '[d["clients"][0][k] for k in ("maximum_bytes", "minimum_bytes", "weight")]')" = "[0, 1048576, 3]" ]
	refused "add up to more than pool_max" set vm1 minimum=1G
	refused "above maximum" set vm1 minimum=2M maximum=1M
	refused "from 1 to 10000" set vm1 weight=0
	refused 'no client "vm2"' set vm2 weight=1
	[ "$(ctl list --json | json '[d["clients"][0][k] for k in ("maximum_bytes", "minimum_bytes", "weight")]')" = "[0, 1048576, 3]" ]
}

@test "set: pool_max" {
	setup_service
	ctl set pool_max=64M
	[ "$(ctl list --json | json 'd["service"]["pool_max_bytes"]')" -eq $((64 << 20)) ]
	ctl set vm1 minimum=48M
	refused "sum of the clients' minimums" set pool_max=32M
	refused "what the arena was made for" set pool_max=1T
	[ "$(ctl list --json | json 'd["service"]["pool_max_bytes"]')" -eq $((64 << 20)) ]
}

@test "freeze and thaw: of one client and of all" {
	setup_service
	ctl freeze vm1
	[ "$(ctl list --json | json 'd["clients"][0]["frozen"], d["service"]["frozen"]')" = "(True, False)" ]
	run ctl list
	says "waiting,frozen"
	ctl freeze --all
	[ "$(ctl list --json | json 'd["clients"][0]["frozen"], d["service"]["frozen"]')" = "(True, True)" ]
	run ctl list
	says "the service is FROZEN"
	ctl thaw --all
	[ "$(ctl list --json | json 'd["clients"][0]["frozen"], d["service"]["frozen"]')" = "(True, False)" ]
	ctl thaw vm1
	[ "$(ctl list --json | json 'd["clients"][0]["frozen"], d["service"]["frozen"]')" = "(False, False)" ]
	refused 'no client "vm2"' freeze vm2
	refused 'no client "vm2"' thaw vm2
}

# Case 13 of docs/cases.md.
@test "freeable and reclaim: the arena shrinks by what is said" {
	setup_service
	for _ in $(seq 100); do
		[ "$(ctl stat --json | json 'd["service"]["counters"]["chunks_ready"]')" -ge 4 ] && break
		sleep 0.05
	done
	run ctl freeable
	[ "$status" -eq 0 ]
	says "physical"
	[ "$(ctl freeable --json | json 'd["freeable_bytes"]')" -ge $((8 << 20)) ]
	# The whole pool cannot be had: the answer says how much could, and that it is not all.
	run ctl reclaim 1G --timeout 1 --json
	[ "$status" -eq 1 ]
	[ "$(json 'd["complete"], d["reclaimed_bytes"] > 0' <<<"$output")" = "(False, True)" ]
	for _ in $(seq 100); do
		[ "$(ctl freeable --json | json 'd["freeable_bytes"]')" -ge $((4 << 20)) ] && break
		sleep 0.05
	done
	run ctl reclaim 2M --timeout 10
	[ "$status" -eq 0 ]
	says "physical given back to the host, of 2.0M asked for"
}

@test "a long reclaim blocks nobody" {
	setup_service
	ctl reclaim 1T --timeout 8 --json >"$DIR/reclaimed" 3>&- &
	sleep 0.3
	for _ in $(seq 5); do
		ctl list >/dev/null
	done
	ctl flush --all
	ctl set vm1 maximum=32M
	# All of it while the reclaim was under way.
	[ ! -s "$DIR/reclaimed" ]
	wait $! || true
	[ "$(json 'd["complete"]' <"$DIR/reclaimed")" = False ]
}

@test "flush" {
	setup_service
	run ctl flush vm1
	[ "$status" -eq 0 ]
	says "0 ephemeral pages dropped"
	[ "$(ctl flush --all --json | json 'd["pages"]')" = 0 ]
	refused 'no client "vm2"' flush vm2
}

@test "shared-auth" {
	setup_service
	ctl shared-auth vm1 $UUID allow
	ctl shared-auth vm1 $UUID allow
	ctl shared-auth vm1 $UUID deny
	ctl shared-auth vm1 $UUID deny
	refused "is not a UUID" shared-auth vm1 1234 allow
	refused 'no client "vm2"' shared-auth vm2 $UUID allow
}

@test "version" {
	setup_service
	run ctl version
	[ "$status" -eq 0 ]
	says "control protocol 1"
	[ "$(ctl version --json | json 'd["protocol"]')" = 1 ]
}

@test "--json prints one whole JSON value, whatever the command" {
	setup_service
	for command in list stat "stat vm1" metrics freeable "reclaim 2M" "flush --all" version; do
		ctl $command --json | "$PYTHON" -m json.tool >/dev/null
	done
}

@test "completion: commands, clients, keys" {
	setup_service
	PATH=$(dirname "$TMEMCTL"):$PATH
	source "${srcdir:-.}/tools/completions/tmemctl"
	compopt() { :; }
	complete_words()
	{
		COMP_WORDS=("$@")
		COMP_CWORD=$(($# - 1))
		_tmemctl
		output=${COMPREPLY[*]}
	}
	complete_words tmemctl fr
	[ "$output" = "freeze freeable" ]
	complete_words tmemctl -s "$SOCKET" freeze vm
	[ "$output" = "vm1" ]
	complete_words tmemctl -s "$SOCKET" set vm1 max
	[ "$output" = "maximum=" ]
	complete_words tmemctl shared-auth vm1 $UUID d
	[ "$output" = "deny" ]
	complete_words tmemctl doctor --root / --g
	[ "$output" = "--guest" ]
}
