# SPDX-License-Identifier: GPL-2.0-or-later
# tmemctl save and restore, as an operator uses them: with disks, which need no guest. Guests with
# rings are tests/service/stream.c. Every request has its answer, also when it carries a stream: case 22.

load lib

GOLDEN=${srcdir:-.}/tests/unit/streams/v1

refused()
{
	local text=$1

	shift
	run ctl "$@"
	[ "$status" -eq 1 ] || { echo "status $status: $*"; return 1; }
	says "$text"
}

create()
{
	ctl disk create "$1" --size "$2" --socket "$DIR/$1.sock" "${@:3}"
}

# A value of a client or disk: an expression on `d`.
client() { ctl list --json | json "[($2) for d in d['clients'] if d['name'] == '$1'][0]"; }
disks() { ctl disk list --json | json "' '.join(d['name'] for d in d['disks'])"; }

setup_disk()
{
	write_conf
	start_tmemd
	create swap1 16M --queues 2
	./tests/cli/diskfill "$DIR/swap1.sock"
	[ "$(client swap1 'd["pages_persistent"]')" = 64 ]
	ctl save swap1 "$DIR/saved"
}

@test "a disk: saved, removed, made and filled again by restore" {
	setup_disk
	[ "$(stat -c %a "$DIR/saved")" = 600 ]
	[ ! -e "$DIR/saved.part" ]
	# It is as it was.
	./tests/cli/diskfill --check "$DIR/swap1.sock"
	refused "not empty" restore swap1 "$DIR/saved"
	ctl disk remove swap1
	ctl restore swap1 "$DIR/saved" --socket "$DIR/swap1.sock"
	[ "$(ctl disk list --json | json '[(d["size"], d["queues"]) for d in d["disks"]]')" = "[(16777216, 2)]" ]
	[ "$(client swap1 'd["pages_persistent"]')" = 64 ]
	./tests/cli/diskfill --check "$DIR/swap1.sock"
	# Over a kill, too; and into a disk that is there, by pipes, with JSON.
	kill -KILL "$PID"
	wait "$PID" || true
	start_tmemd
	./tests/cli/diskfill --check "$DIR/swap1.sock"
	create swap2 32M
	ctl save swap1 - 2>"$DIR/said" | ctl restore swap2 - --json >"$DIR/result"
	grep -q '64 pages (256.0K logical) saved in' "$DIR/said"
	[ "$(json 'd["pages"], d["stream"]' <"$DIR/result")" = "(64, {'kind': 'disk', 'version': 1, 'size': 16777216})" ]
	./tests/cli/diskfill --check "$DIR/swap2.sock"
	[ "$(ctl save swap2 "$DIR/again" --json | json 'd["pages"], d["passes"]')" = "(64, 1)" ]
	stop_tmemd
}

@test "a disk: --live, with a command that pauses" {
	setup_disk
	rm "$DIR/saved"
	run ctl save swap1 "$DIR/saved" --live --pause "echo now"
	[ "$status" -eq 0 ]
	says "pass 1: 64 pages"
	says "now"
	ctl disk remove swap1
	ctl restore swap1 "$DIR/saved" --socket "$DIR/swap1.sock"
	./tests/cli/diskfill --check "$DIR/swap1.sock"
	rm "$DIR/saved"
	refused "it failed, so nothing is saved" save swap1 "$DIR/saved" --live --pause "exit 3"
	[ ! -e "$DIR/saved" ]
	[ ! -e "$DIR/saved.part" ]
	stop_tmemd
}

@test "what is refused leaves nothing, and says why" {
	setup_disk
	refused "no client" save nobody "$DIR/x"
	refused "nothing to save" save vm1 "$DIR/x"
	refused "Not a directory" save swap1 /dev/null/x
	[ ! -e "$DIR/x" ]
	create swap2 4M
	refused "16777216 bytes, and disk swap2 has 4194304" restore swap2 "$DIR/saved"
	refused "a client has that name" restore vm1 "$DIR/saved"
	refused "that of a client with rings, and swap2 is a disk" restore swap2 "$GOLDEN"
	refused "not a stream" restore swap2 "$CONF"
	refused "too early" restore swap2 /dev/null
	refused "No such file" restore swap2 "$DIR/none"
	head -c 1000 "$DIR/saved" >"$DIR/cut"
	refused "ends too early" restore swap3 "$DIR/cut" --socket "$DIR/swap3.sock"
	[ "$(disks)" = "swap1 swap2" ]
	[ ! -e "$DIR/swap3.sock" ]
	cp "$DIR/saved" "$DIR/changed"
	printf 'x' | dd of="$DIR/changed" bs=1 seek=1500 conv=notrunc status=none
	refused "is damaged" restore swap3 "$DIR/changed" --socket "$DIR/swap3.sock"
	refused "at most" restore swap3 "$DIR/saved" --socket "/$(printf 'x%.0s' {1..120})"
	# A version of tomorrow.
	printf '\002' | dd of="$DIR/changed" bs=1 seek=8 conv=notrunc status=none
	refused "version 2" restore swap2 "$DIR/changed"
	[ "$(disks)" = "swap1 swap2" ]
	[ "$(client swap2 'd["pages_persistent"]')" = 0 ]
	stop_tmemd
}

@test "a client with rings: restored, shown, kept, discarded" {
	write_conf
	sed -i 's/^rings = 2/rings = 4/; s/^region = 4M/region = 8M/' "$CONF"
	start_tmemd
	ctl restore vm1 "$GOLDEN"
	[ "$(client vm1 'd["state"], d["pages_persistent"]')" = "('restored', 21)" ]
	refused "waits for its guest" restore vm1 "$GOLDEN"
	kill -KILL "$PID"
	wait "$PID" || true
	start_tmemd
	[ "$(client vm1 'd["state"], d["pages_persistent"]')" = "('restored', 21)" ]
	ctl restore vm1 --discard
	[ "$(client vm1 'd["state"], d["pages_persistent"]')" = "('waiting', 0)" ]
	refused "nothing that was restored" restore vm1 --discard
	stop_tmemd
	# What it had does not fit here.
	sed -i 's/^rings = 4/rings = 2/' "$CONF"
	start_tmemd
	refused "4 rings and client vm1 allows 2" restore vm1 "$GOLDEN"
	stop_tmemd
}

@test "wrong usage" {
	wrong()
	{
		local text=$1

		shift
		run ctl "$@"
		[ "$status" -eq 2 ] || { echo "status $status: $*"; return 1; }
		says "$text"
	}
	wrong "argument is missing" save vm1
	wrong "argument is missing" restore vm1
	wrong "too many" save vm1 a b
	wrong "goes with --live" save vm1 x --pause true
	wrong "does not have" save vm1 x --discard
	wrong "does not have" restore vm1 x --live
	wrong "does not have" list --live
	wrong "alone" restore vm1 x --discard
	run ctl save vm1 "$DIR/x"
	[ "$status" -eq 3 ]
	[ ! -e "$DIR/x" ]
	for command in save restore; do
		run "$TMEMCTL" $command --help
		[ "$status" -eq 0 ]
		says "Usage: tmemctl $command VM FILE|-"
	done
	for script in tmem-xl tmem-virsh; do
		run "${srcdir:-.}/tools/stream/$script" --help
		[ "$status" -eq 0 ]
		says "Usage: $script"
		run "${srcdir:-.}/tools/stream/$script" save
		[ "$status" -eq 2 ]
	done
	run "${srcdir:-.}/tools/stream/tmem-xl" create
	[ "$status" -eq 2 ]
	# Room is held until xl has ended.
	for option in -c -pc; do
		run "${srcdir:-.}/tools/stream/tmem-xl" create $option /etc/xen/web.cfg
		[ "$status" -eq 1 ]
		says "use xl console"
	done
}
