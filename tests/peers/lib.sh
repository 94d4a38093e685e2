# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Hosts that are network namespaces, each with a tmemd of its own, on one switch. A case runs in
# namespaces for mounts, processes and networks (run.sh), so nothing of it outlives it.
#
#   hosts NAME...                makes them: 10.77.0.1, .2, ... in this order
#   configure HOST [LINE]...     writes HOST's configuration; LINEs are added to it
#   start HOST, stop HOST, kill_host HOST
#   ctl HOST ARGUMENT...         its tmemctl
#   counter HOST NAME            of the service; peer_counter HOST PEER NAME
#   guest HOST PAGES             starts tests/peers/guest as its client vm
#   tell LINE; hear              a line for the guest, without waiting; its answer
#   ask LINE                     both
#   value KEY                    of the last answer
#   until_true SECONDS COMMAND...  waits until it succeeds
#   cut HOST, mend HOST          its link drops everything in silence; or not any more
set -eu
peers_build=${peers_build:-$PWD}
PATH=$peers_build:$PATH
work=$(mktemp -d)
answer=
trap 'status=$?; [ $status = 0 ] || show_logs; umount -lR "$work"; rmdir "$work"' EXIT

mount -t tmpfs tmpfs /run
mkdir -p /run/netns
mount -t tmpfs tmpfs "$work"

show_logs()
{
	local log

	[ ! -f "$work/lent" ] || cat "$work/lent"
	for log in "$work"/*/log "$work"/guest.err; do
		[ -s "$log" ] || continue
		echo "---- ${log#"$work"/}"
		tail -n 25 "$log"
	done
}

die()
{
	echo "$*"
	exit 1
}

until_true() # seconds, command
{
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || die "not within the time: $*"
		sleep 0.1
	done
}

# ---- Certificates --------------------------------------------------------------------------------

make_ca() # directory, name of the authority
{
	mkdir -p "$1"
	certtool --generate-privkey --key-type ecdsa --outfile "$1/key.pem" 2> /dev/null
	printf 'cn = "%s"\nca\ncert_signing_key\nexpiration_days = 10\n' "$2" > "$1/template"
	certtool --generate-self-signed --load-privkey "$1/key.pem" --template "$1/template" \
		--outfile "$1/cacert.pem" 2> /dev/null
}

# A certificate of a host, as both sides of a connection: in the layout of libvirt.
make_certificate() # directory, authority, name, line of the template...
{
	local dir=$1 ca=$2 name=$3

	shift 3
	mkdir -p "$dir/private"
	certtool --generate-privkey --key-type ecdsa --outfile "$dir/private/serverkey.pem" 2> /dev/null
	{
		printf 'cn = "%s"\ndns_name = "%s"\ntls_www_server\ntls_www_client\nsigning_key\n' \
			"$name" "$name"
		if [ $# -gt 0 ]; then
			printf '%s\n' "$@"
		else
			echo 'expiration_days = 10'
		fi
	} > "$dir/template"
	certtool --generate-certificate --load-privkey "$dir/private/serverkey.pem" \
		--load-ca-certificate "$ca/cacert.pem" --load-ca-privkey "$ca/key.pem" \
		--template "$dir/template" --outfile "$dir/servercert.pem" 2> /dev/null
	cp "$dir/servercert.pem" "$dir/clientcert.pem"
	cp "$dir/private/serverkey.pem" "$dir/private/clientkey.pem"
}

# ---- Hosts ---------------------------------------------------------------------------------------

number_of_host() # name
{
	local i=1 name

	for name in $names; do
		[ "$name" = "$1" ] && echo $i && return
		i=$((i + 1))
	done
	die "there is no host $1"
}

address() { echo "10.77.0.$(number_of_host "$1")"; }

hosts() # name...
{
	local name

	names=$*
	ip link set lo up
	ip link add switch type bridge
	ip link set switch up
	make_ca "$work/ca" 'the rack'
	for name; do
		mkdir -p "$work/$name/run"
		mount -t tmpfs -o size=512M tmpfs "$work/$name/run"
		ip netns add "$name"
		ip link add "to-$name" type veth peer name eth0 netns "$name"
		ip link set "to-$name" master switch up
		ip -n "$name" link set lo up
		ip -n "$name" link set eth0 up
		ip -n "$name" addr add "$(address "$name")/24" dev eth0
		make_certificate "$work/$name/pki" "$work/ca" "$name"
	done
}

# host1 has little memory, and borrows; the others have more than they need, and lend.
pool_max=24M lender_max=160M lend=96M copies=2

# Every host knows all others.
configure() # host, line...
{
	local host=$1 name dir=$work/$1 max=$lender_max lends=$lend

	shift
	[ "$host" != host1 ] || max=$pool_max lends=0
	{
		cat <<-TEXT
			[pool]
			arena = $dir/run/arena
			pool_max = $max
			host_reserve = 0
			[control]
			socket = $dir/run/control
			[peers]
			name = $host
			address = $(address "$host")
			lend = $lends
			copies = $copies
			allow = host*
			ca = $work/ca
			tls = $dir/pki
		TEXT
		for name in $names; do
			[ "$name" = "$host" ] && continue
			printf '[peer %s]\nhost = %s\n' "$name" "$(address "$name")"
		done
		printf '[client vm]\nsocket = %s\n' "$dir/run/vm.sock"
		[ $# = 0 ] || printf '%s\n' "$@"
	} > "$dir/conf"
}

ctl() # host, argument...
{
	local host=$1

	shift
	tmemctl --socket "$work/$host/run/control" "$@"
}

answers() { ctl "$1" version > /dev/null 2>&1; }

start() # host
{
	local host=$1

	ip netns exec "$host" tmemd --config "$work/$host/conf" >> "$work/$host/log" 2>&1 &
	echo $! > "$work/$host/pid"
	until_true 20 answers "$host"
}

pid_of() { cat "$work/$1/pid"; }

ended() { ! kill -0 "$(pid_of "$1")" 2> /dev/null; }

stop()
{
	kill "$(pid_of "$1")"
	until_true 20 ended "$1"
	wait "$(pid_of "$1")" || die "$1 ended with $?"
}

kill_host()
{
	kill -9 "$(pid_of "$1")"
	until_true 20 ended "$1"
}

cut()
{
	nft "add table bridge cut-$1; add chain bridge cut-$1 f { type filter hook forward priority 0; };
		add rule bridge cut-$1 f iifname to-$1 drop; add rule bridge cut-$1 f oifname to-$1 drop"
}

mend() { nft "delete table bridge cut-$1"; }

counter() { ctl "$1" stat --json | jq ".service.counters.$2"; }

client_counter() { ctl "$1" stat vm --json | jq ".clients[0].counters.$2"; }

peer_state() { ctl "$1" peer list --json | jq -r ".peers[] | select(.name == \"$2\") | .state"; }

peer_counter() { ctl "$1" peer list --json | jq ".peers[] | select(.name == \"$2\") | .counters.$3"; }

peer_is() { [ "$(peer_state "$1" "$2")" = "$3" ]; }

lent() { ctl "$1" peer list --json | jq '.lending.lent_bytes'; }

# What host2 and host3 have lent has come back, but for what a table may keep.
nothing_lent()
{
	echo "  lent: $(lent host2) and $(lent host3) bytes" > "$work/lent"
	[ "$(lent host2)" -lt 200000 ] && [ "$(lent host3)" -lt 200000 ]
}

comes_back() { # seconds
	until_true "$1" nothing_lent
}

all_up() # host: its peers
{
	[ "$(ctl "$1" peer list --json | jq -r '.peers[].state' | sort -u)" = up ]
}

# ---- The guest -----------------------------------------------------------------------------------

guest() # host, pages
{
	mkfifo "$work/tell" "$work/hear"
	"$peers_build/tests/peers/guest" "$work/$1/run/vm.sock" "$2" < "$work/tell" > "$work/hear" \
		2> "$work/guest.err" &
	exec 7> "$work/tell" 8< "$work/hear"
}

tell() { echo "$*" >&7; }

hear() # [seconds]
{
	read -r -t "${1:-100}" answer <&8 || die "no answer of the guest: $(cat "$work/guest.err")"
	echo "  $answer"
}

ask()
{
	tell "$@"
	hear
}

value() { sed -n "s/.* $1=\([0-9]*\).*/\1/p" <<< "$answer"; }

must_be() # what, value, comparison, value
{
	[ "$2" "$3" "$4" ] || die "$1 is $2, must be $3 $4"
}
