# SPDX-License-Identifier: GPL-2.0-or-later
# Disks, as an operator makes, sees, enlarges and removes them. What is on them is others' business.

load lib

MIB=1048576
# A block that does not compress costs itself and 64 bytes.
COST() { echo $(($1 / 4096 * 4160)); }

teardown()
{
	[[ -z ${HOLDER:-} ]] || kill "$HOLDER" 2>/dev/null || true
	if [[ -n $PID ]]; then
		kill -KILL "$PID" 2>/dev/null || true
		wait "$PID" 2>/dev/null || true
	fi
	[[ ! -s $LOG ]] || cat "$LOG"
	rm -rf "$DIR" "$SHM"
}

setup_service()
{
	write_conf
	start_tmemd
}

create()
{
	ctl disk create "$1" --size "$2" --socket "$DIR/$1.sock" "${@:3}"
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

# A value of the disk: an expression on `d`.
disk()
{
	ctl disk list --json | json "[($2) for d in d['disks'] if d['name'] == '$1'][0]"
}

disks()
{
	ctl disk list --json | json "' '.join(d['name'] for d in d['disks'])"
}

# A front end that connects and says nothing, until release.
hold()
{
	"$PYTHON" -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
time.sleep(600)' "$1" 3>&- &
	HOLDER=$!
	for _ in $(seq 100); do
		[ "$(disk "$2" 'd["state"]')" = connected ] && return 0
		sleep 0.05
	done
	return 1
}

release()
{
	kill "$HOLDER"
	wait "$HOLDER" 2>/dev/null || true
	HOLDER=
	for _ in $(seq 100); do
		[ "$(disk "$1" 'd["state"]')" = waiting ] && return 0
		sleep 0.05
	done
	return 1
}

@test "create, list, resize, remove" {
	setup_service
	run ctl disk list
	[ "$status" -eq 0 ]
	says "DISK"
	[ "$(disks)" = "" ]
	run create swap1 16M
	[ "$status" -eq 0 ]
	says "disk swap1: 16.0M logical, at most 16.2M physical; made"
	says "socket: $DIR/swap1.sock"
	says "-object memory-backend-memfd,id=mem,size=...,share=on -numa node,memdev=mem"
	says "-chardev socket,id=swap1,path=$DIR/swap1.sock,reconnect=1"
	says "-device vhost-user-blk-pci,chardev=swap1,num-queues=1"
	[ -S "$DIR/swap1.sock" ]
	[ "$(stat -c %a "$DIR/swap1.sock")" = 660 ]
	create swap2 8M --queues 4 --mode 0600 --owner "$(id -un)" --group "$(id -g)" --minimum 1M \
		--maximum 8M --weight 7 --json >"$DIR/made"
	[ "$(json 'd["created"], d["disk"]["name"], d["disk"]["queues"]' <"$DIR/made")" = "(True, 'swap2', 4)" ]
	[ "$(stat -c '%a %u' "$DIR/swap2.sock")" = "600 $(id -u)" ]
	[ "$(disks)" = "swap1 swap2" ]
	[ "$(disk swap1 'd["size"], d["queues"], d["state"], d["origin"], d["overcommit"], d["kind"]')" = \
		"(16777216, 1, 'waiting', 'command', False, 'disk')" ]
	[ "$(disk swap1 'd["uid"], d["mode"], d["pid"], d["exposure_bytes"]')" = "(-1, 432, None, $(COST $((16 * MIB))))" ]
	[ "$(disk swap2 'd["size"], d["mode"], d["uid"], d["minimum_bytes"], d["maximum_bytes"], d["weight"]')" = \
		"(8388608, 384, $(id -u), 1048576, 8388608, 7)" ]
	run ctl disk list
	says "swap1"
	says "exposure: all disks when nothing compresses, and the clients' minimums: 24.4M physical, 19 % of pool_max 128.0M"
	ctl disk resize swap1 32M
	[ "$(disk swap1 'd["size"]')" -eq $((32 * MIB)) ]
	ctl disk resize swap1 32M
	refused "cannot shrink" disk resize swap1 16M
	ctl disk remove swap1
	[ ! -e "$DIR/swap1.sock" ]
	[ "$(disks)" = swap2 ]
	ctl disk remove swap2
	[ "$(disks)" = "" ]
	stop_tmemd
}

@test "list, stat and metrics show clients and disks, and the exposure" {
	setup_service
	[ "$(ctl list --json | json 'd["clients"][0]["kind"], d["service"]["exposure_bytes"]')" = "('client', 0)" ]
	run ctl list
	[[ $output != *exposure* ]]
	create swap1 16M
	ctl set vm1 minimum=1M
	exposure=$(($(COST $((16 * MIB))) + MIB))
	[ "$(ctl list --json | json 'd["service"]["exposure_bytes"]')" -eq $exposure ]
	[ "$(ctl list --json | json '[(c["name"], c["kind"], c["state"]) for c in d["clients"]]')" = \
		"[('vm1', 'client', 'waiting'), ('swap1', 'disk', 'waiting')]" ]
	ctl stat swap1 --json >"$DIR/stat"
	[ "$(json 'd["clients"][0]["kind"], d["clients"][0]["max_rings"], d["clients"][0]["pools"][0]["flags"]' <"$DIR/stat")" = \
		"('disk', 1, ['persistent', 'private'])" ]
	run ctl stat swap1
	says "client swap1 (a disk; "
	run ctl list
	says "exposure: all disks when nothing compresses, and the clients' minimums: 17.2M physical, 13 % of pool_max 128.0M"
	ctl metrics >"$DIR/metrics"
	"$PYTHON" "${srcdir:-.}/tests/cli/metrics.py" <"$DIR/metrics"
	grep -q "^tmemd_exposure_bytes $exposure\$" "$DIR/metrics"
	hold "$DIR/swap1.sock" swap1
	[ "$(disk swap1 'd["pid"]')" -eq "$HOLDER" ]
	[ "$(ctl list --json | json '[c["state"] for c in d["clients"]]')" = "['waiting', 'connected']" ]
	release swap1
	stop_tmemd
}

@test "a disk that is there already: the same is no error, another is" {
	setup_service
	create swap1 16M --weight 3
	run create swap1 16M
	[ "$status" -eq 0 ]
	says "it was there already"
	[ "$(create swap1 16M --weight 3 --json | json 'd["created"]')" = False ]
	[ "$(ctl disk create swap1 --size 16M --json | json 'd["created"]')" = False ]
	refused 'there already, with another "size"' disk create swap1 --size 32M
	refused 'another "size"' disk create swap1 --size 8M
	refused 'another "queues"' disk create swap1 --size 16M --queues 2
	refused 'another "socket"' disk create swap1 --size 16M --socket "$DIR/other.sock"
	refused 'another "mode"' disk create swap1 --size 16M --mode 666
	refused 'another "uid"' disk create swap1 --size 16M --owner 12345
	refused 'another "gid"' disk create swap1 --size 16M --group 12345
	refused 'another "minimum"' disk create swap1 --size 16M --minimum 1M
	refused 'another "maximum"' disk create swap1 --size 16M --maximum 16M
	refused 'another "weight"' disk create swap1 --size 16M --weight 4
	refused 'another "overcommit"' disk create swap1 --size 16M --overcommit
	[ "$(disk swap1 'd["size"], d["weight"], d["socket"]')" = "(16777216, 3, '$DIR/swap1.sock')" ]
	[ -S "$DIR/swap1.sock" ]
	stop_tmemd
}

@test "names, sockets and values that are not allowed cost nothing else" {
	setup_service
	create swap1 16M
	refused "a client has that name" disk create vm1 --size 1M --socket "$DIR/x.sock"
	refused "1 to 63 letters" disk create ../x --size 1M --socket "$DIR/x.sock"
	refused "1 to 63 letters" disk create "" --size 1M --socket "$DIR/x.sock"
	refused "multiple of 4096" disk create x --size 5000 --socket "$DIR/x.sock"
	refused '"size" must be an integer from 4096 to 17592186044416' disk create x --size 0
	refused '"size" must be' disk create x --size 17T
	refused '"queues" must be an integer from 1 to 8' disk create x --size 1M --queues 9
	refused "absolute path" disk create x --size 1M --socket x.sock
	refused "at most 107 characters" disk create x --size 1M --socket "/$(printf 'x%.0s' {1..120})"
	refused "minimum would be above maximum" disk create x --size 1M --minimum 2M --maximum 1M
	refused "vm1 has it" disk create x --size 1M --socket "$DIR/vm1.sock"
	refused "swap1 has it" disk create x --size 1M --socket "$DIR/swap1.sock"
	refused "the control socket has it" disk create x --size 1M --socket "$SOCKET"
	echo precious >"$DIR/file"
	refused "there is a file already" disk create x --size 1M --socket "$DIR/file"
	[ "$(cat "$DIR/file")" = precious ]
	refused "No such file or directory" disk create x --size 1M --socket "$DIR/none/x.sock"
	refused "minimums of all" disk create x --size 1M --socket "$DIR/x.sock" --minimum 1G --overcommit
	refused 'there is no disk "nobody"' disk remove nobody
	refused 'there is no disk "nobody"' disk resize nobody 1M
	refused 'there is no disk "vm1"' disk remove vm1 --force
	refused 'there is no disk "vm1"' disk resize vm1 1M
	# Nothing of all that is left.
	[ "$(ctl list --json | json '[c["name"] for c in d["clients"]]')" = "['vm1', 'swap1']" ]
	[ -S "$DIR/vm1.sock" ]
	[ ! -e "$DIR/x.sock" ]
	create x 1M
	stop_tmemd
}

@test "exposure: what could not be kept is refused, with all numbers; overcommit takes it" {
	setup_service
	ctl set vm1 minimum=8M
	create swap1 64M
	# 128M less 8M and what 64M can take: 14400 blocks of 4160 bytes.
	run create swap2 64M
	[ "$status" -eq 1 ]
	says "disk swap2 of 67108864 bytes can take 68157440 physical bytes when nothing compresses"
	says "the other disks can take 68157440"
	says "minimums of clients keep 8388608"
	says "pool_max is 134217728"
	says "make it at most $(((134217728 - 68157440 - 8388608) / 4160 * 4096)) bytes, raise pool_max, or ask for overcommit"
	[ "$(disks)" = swap1 ]
	refused "ask for overcommit" disk resize swap1 128M
	[ "$(disk swap1 'd["size"]')" -eq $((64 * MIB)) ]
	create swap2 $(((134217728 - 68157440 - 8388608) / 4160 * 4096))
	# What is covered stays covered.
	refused "could fail; remove a disk first" set pool_max=127M
	refused "could fail; remove a disk first" set vm1 minimum=9M
	refused "could fail; remove a disk first" set swap2 minimum=100M
	ctl set vm1 minimum=7M
	ctl set vm1 minimum=8M
	ctl disk remove swap2
	create swap2 1T --overcommit
	[ "$(disk swap2 'd["overcommit"], d["size"]')" = "(True, 1099511627776)" ]
	run ctl disk list
	says "(overcommit)"
	ctl disk resize swap2 2T
	# One that would fit alone does not beside it.
	refused "pool_max is 134217728: raise pool_max, or ask for overcommit" disk create swap3 --size 1M --socket "$DIR/swap3.sock"
	# Nothing is covered any more, so nothing holds the operator back.
	ctl set pool_max=120M
	run ctl doctor --json
	[[ $output == *disk-exposure* ]]
	stop_tmemd
}

@test "a disk of a command is there again after kill -9" {
	setup_service
	create swap1 16M --queues 2 --mode 0600 --weight 9 --maximum 12M
	ctl disk resize swap1 24M
	create swap2 1T --overcommit
	before=$(disk swap1 'sorted(d.items())')
	kill -KILL "$PID"
	wait "$PID" || true
	start_tmemd
	[ "$(disk swap1 'sorted(d.items())')" = "$before" ]
	[ "$(stat -c %a "$DIR/swap1.sock")" = 600 ]
	[ "$(disk swap2 'd["overcommit"], d["state"]')" = "(True, 'waiting')" ]
	hold "$DIR/swap1.sock" swap1
	stop_tmemd
	HOLDER=
	[ ! -e "$DIR/swap1.sock" ]
	start_tmemd
	[ "$(disks)" = "swap1 swap2" ]
	ctl disk remove swap1
	stop_tmemd
	start_tmemd
	[ "$(disks)" = swap2 ]
	stop_tmemd
}

@test "what keeps a disk of a command from being served at a start costs nothing else" {
	write_conf
	start_tmemd
	mkdir "$DIR/sub"
	ctl disk create swap1 --size 1M --socket "$DIR/sub/swap1.sock"
	create swap2 1M
	stop_tmemd
	rmdir "$DIR/sub"
	start_tmemd
	log_says "disk swap1: socket $DIR/sub/swap1.sock: No such file or directory; the disk is kept"
	[ "$(disk swap1 'd["state"], d["origin"]')" = "('unconfigured', 'command')" ]
	[ "$(disk swap2 'd["state"]')" = waiting ]
	[ -S "$DIR/vm1.sock" ]
	# The same command serves it when the reason is gone.
	mkdir "$DIR/sub"
	[ "$(ctl disk create swap1 --size 1M --json | json 'd["created"], d["disk"]["state"]')" = "(False, 'waiting')" ]
	[ -S "$DIR/sub/swap1.sock" ]
	stop_tmemd
}

@test "remove: not under a front end, but for --force" {
	setup_service
	create swap1 16M
	hold "$DIR/swap1.sock" swap1
	refused "front end (process $HOLDER) is connected" disk remove swap1
	[ "$(disk swap1 'd["state"]')" = connected ]
	# It grows under one.
	ctl disk resize swap1 32M
	ctl disk remove swap1 --force
	[ "$(disks)" = "" ]
	[ ! -e "$DIR/swap1.sock" ]
	create swap1 16M
	hold "$DIR/swap1.sock" swap1
	release swap1
	ctl disk remove swap1
	stop_tmemd
}

# [disk swap1] of this size.
conf_disk()
{
	printf '[disk swap1]\nsize = %s\nsocket = %s/swap1.sock\n' "$1" "$DIR" >>"$CONF"
}

@test "configuration: served at start, changed and removed by reload" {
	write_conf
	conf_disk 16M
	printf 'queues = 2\nminimum = 1M\nweight = 5\n' >>"$CONF"
	start_tmemd
	[ "$(disk swap1 'd["size"], d["queues"], d["origin"], d["state"], d["minimum_bytes"], d["weight"]')" = \
		"(16777216, 2, 'configuration', 'waiting', 1048576, 5)" ]
	run ctl disk create swap1 --size 16M
	[ "$status" -eq 0 ]
	refused "change its size there and reload" disk resize swap1 32M
	refused "remove its section there and reload" disk remove swap1
	sed -i -e 's/^size = 16M/size = 32M\nsocket_mode = 0600/' -e 's/^minimum = 1M/minimum = 2M/' "$CONF"
	reload_tmemd
	[ "$(disk swap1 'd["size"], d["mode"], d["minimum_bytes"]')" = "(33554432, 384, 2097152)" ]
	log_says_not "reload: disk"
	# Neither connected nor alone does it shrink.
	sed -i 's/^size = 32M/size = 8M/' "$CONF"
	hold "$DIR/swap1.sock" swap1
	reload_tmemd
	log_says "disk swap1 has 33554432 bytes and cannot shrink to 8388608: it stays as it is"
	[ "$(disk swap1 'd["size"], d["state"]')" = "(33554432, 'connected')" ]
	# A new one comes; the removed one stays while its front end is there.
	sed -i '/\[disk swap1\]/,$d' "$CONF"
	printf '[disk swap2]\nsize = 4M\nsocket = %s/swap2.sock\n' "$DIR" >>"$CONF"
	reload_tmemd
	log_says "reload: disk swap2 added"
	log_says "reload: disk swap1 stays: a front end (process $HOLDER) is connected"
	[ "$(disks)" = "swap1 swap2" ]
	release swap1
	reload_tmemd
	log_says "reload: disk swap1 removed"
	[ "$(disks)" = swap2 ]
	[ ! -e "$DIR/swap1.sock" ]
	ctl disk remove swap2 --force
	[ "$(disks)" = "" ]
	reload_tmemd
	[ "$(disks)" = swap2 ]
	stop_tmemd
}

@test "configuration: a disk that would shrink at a start stays; one that is not named is kept and said" {
	write_conf
	conf_disk 16M
	start_tmemd
	stop_tmemd
	sed -i 's/^size = 16M/size = 8M/' "$CONF"
	start_tmemd
	log_says "disk swap1 has 16777216 bytes and cannot shrink to 8388608"
	[ "$(disk swap1 'd["size"], d["state"]')" = "(16777216, 'waiting')" ]
	stop_tmemd
	sed -i '/\[disk swap1\]/,$d' "$CONF"
	start_tmemd
	log_says "disk swap1 is in the arena with 0 pages but not in the configuration"
	log_says_not "client swap1"
	[ "$(disk swap1 'd["state"], d["origin"]')" = "('unconfigured', 'none')" ]
	refused "another \"size\"" disk create swap1 --size 8M
	ctl disk create swap1 --size 16M
	[ "$(disk swap1 'd["state"], d["origin"]')" = "('waiting', 'command')" ]
	stop_tmemd
	# The configuration takes over what a command made, and reload without its section removes it.
	conf_disk 16M
	start_tmemd
	[ "$(disk swap1 'd["origin"]')" = configuration ]
	sed -i '/\[disk swap1\]/,$d' "$CONF"
	reload_tmemd
	[ "$(disks)" = "" ]
	stop_tmemd
}

@test "configuration: exposure with the disks of commands" {
	setup_service
	create swap2 100M
	conf_disk 64M
	reload_tmemd
	log_says "reload: disk swap1 of 67108864 bytes can take 68157440 physical bytes"
	[ "$(disks)" = swap2 ]
	stop_tmemd
	start_tmemd
	log_says "disk swap1 of 67108864 bytes can take 68157440 physical bytes when nothing compresses; the other disks can take 106496000"
	[ "$(disks)" = swap2 ]
	[ -S "$DIR/vm1.sock" ]
	echo 'overcommit = yes' >>"$CONF"
	reload_tmemd
	[ "$(disks)" = "swap1 swap2" ] || [ "$(disks)" = "swap2 swap1" ]
	log_says "writes of guests to disks may fail; raise pool_max, or remove a disk"
	stop_tmemd
}

@test "configuration: names and sockets of disks that commands made" {
	setup_service
	create swap1 1M
	printf '[client swap1]\nsocket = %s/y.sock\n[client vm2]\nsocket = %s/swap1.sock\n' "$DIR" "$DIR" >>"$CONF"
	reload_tmemd
	log_says "client swap1: a disk in the arena has that name; give the client another"
	log_says "vm2: socket $DIR/swap1.sock: swap1 has it"
	[ "$(disk swap1 'd["state"]')" = waiting ]
	# The client's section goes; the disk does not go with it.
	sed -i '/\[client swap1\]/,$d' "$CONF"
	reload_tmemd
	[ "$(disks)" = swap1 ]
	[ -S "$DIR/swap1.sock" ]
	conf_disk 1M
	sed -i 's/^\[client vm1\]/[disk vm1]\nsize = 1M/; /^region\|^rings/d' "$CONF"
	# A client becomes a disk in one reload: it is gone before the disk comes.
	reload_tmemd
	log_says "reload: client vm1 removed"
	[ "$(disk vm1 'd["state"]')" = waiting ]
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
	wrong "create, list, resize or remove" disk
	wrong "create, list, resize or remove" disk make swap1
	wrong "argument is missing" disk create --size 1M
	wrong "too many" disk create swap1 swap2 --size 1M
	wrong "--size SIZE" disk create swap1
	wrong "a number of bytes" disk create swap1 --size much
	wrong "a number of queues" disk create swap1 --size 1M --queues many
	wrong "octal" disk create swap1 --size 1M --mode 0999
	wrong "name of a user" disk create swap1 --size 1M --owner no-such-user
	wrong "name of a group" disk create swap1 --size 1M --group no-such-group
	wrong "argument is missing" disk resize swap1
	wrong "a number of bytes" disk resize swap1 much
	wrong "argument is missing" disk remove
	wrong "does not have" disk remove swap1 --size 1M
	wrong "does not have" disk list --force
	wrong "does not have" disk create swap1 --size 1M --force
	wrong "does not have" list --overcommit
	run ctl disk create swap1 --size 1M
	[ "$status" -eq 3 ]
	for command in create list resize remove; do
		run "$TMEMCTL" disk $command --help
		[ "$status" -eq 0 ]
		says "Usage: tmemctl disk $command"
		run "$TMEMCTL" disk --help
		says "Usage: tmemctl disk $command"
	done
}

@test "completion" {
	setup_service
	create swap1 1M
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
	complete_words tmemctl disk c
	[ "$output" = create ]
	complete_words tmemctl disk create swap2 --size 1M --over
	[ "$output" = --overcommit ]
	complete_words tmemctl -s "$SOCKET" disk remove sw
	[ "$output" = swap1 ]
	complete_words tmemctl disk create swap2 --socket /tmp/x.sock --qu
	[ "$output" = --queues ]
}
