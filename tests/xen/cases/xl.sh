# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# What an operator does beside xl: tmemctl attach and detach, by number, name and UUID, and the verbs
# that xl had once. A guest keeps its device while it has pages, whoever dies meanwhile.
service_setup
uuid=5a1f0c9e-77d3-4b7e-9e3b-0d5c6a7f1b2c
xen_client web web
xen_client mail $uuid
check 'tmemd does not start' tmemd_start

refused() # sentence, command...
{
	local text=$1 said

	shift
	said=$("$@" 2>&1) && fail "not refused: $*"
	case $said in
	*"$text"*) ;;
	*) fail "$*: said '$said', not '$text'" ;;
	esac
}

client_is() { [ "$(tmemctl domain "$1")" = "$2" ]; }
device_said() { tmemctl domain | awk -v n="$1" -v d="$2" '$1 == n { found = $3 == d } END { exit !found }'; }
# A value in the summary of a client.
value() { tmemctl stat "$1" --json | tr -d ' ",' | sed -n "s/^$2://p" | head -n 1; }
value_is() { [ "$(value "$1" "$2")" = "$3" ] || fail "$1: $2 is '$(value "$1" "$2")', not '$3'"; }

# It swaps, switches swap off when it is told, and swaps again.
cat > /tmp/guest.sh <<'EOS'
tmem_load || exit 1
fill() # seed
{
	rm -f /tmp/enough
	pagehog --mb 40 --passes 1 --seed $1 --until /tmp/enough --pause 100 &
	hog=$!
	wait_for_host
	touch /tmp/enough
	wait $hog
}
swap_on xvda || exit 1
fill 3 || exit 1
swapoff /dev/xvda && say swap=off
wait_for_host
swap_on xvda || exit 1
fill 4
EOS
sed '/^fill 3/q' /tmp/guest.sh > /tmp/once.sh

# Before there is a domain, and before it runs.
refused 'as soon as it is created' tmemctl attach xl: web
refused 'there is no domain' tmemctl attach xl: nobody
refused 'there is no domain' tmemctl attach xl: 4711
check 'web was not created' dom_create web pv 5.10 80 /tmp/guest.sh disk=96 paused
check 'attach xl: web' tmemctl attach xl: web --timeout 30
check 'attach says that the device is there, and it is not' xenstore-exists "$(xs_front web)"
tmemctl attach xl: web | grep -q already || fail 'attaching twice is not told'
dom_unpause web
check 'web: not connected' device_state web 4 60

# libvirt's driver of Xen knows domains by their UUID; so do we.
check 'mail was not created' dom_create mail pv 5.10 80 /tmp/once.sh disk=96 "uuid = '$uuid'" paused
check 'attach xl: UUID' tmemctl attach xl: $uuid
check 'attach xl: number' tmemctl attach xl: "$(dom_id mail)"
check 'attach xl: name of a domain with another client' tmemctl attach xl: mail
dom_unpause mail
check 'mail: not connected' device_state mail 4 60
client_is "$(dom_id web)" web || fail 'domain: number'
client_is $uuid mail || fail 'domain: UUID'
client_is "$(xl vm-list | awk '$3 == "web" { print $1 }')" web || fail 'domain: UUID of a domain configured by name'
tmemctl domain
check 'the device of web is not told' device_said web offered

# A domain that nobody has configured.
check 'third was not created' dom_create third pv 5.10 80 /tmp/once.sh disk=96
refused 'write [client third]' tmemctl attach xl: third
refused 'write [client third]' xl-tmem freeze third
tmemctl attach xl: third --print >> /etc/tmemd.conf
tmemd_reload
check 'the reload is not heard' wait_until 20 client_is third third
check 'attach xl: third' tmemctl attach xl: third
check 'third: not connected' device_state third 4 60

# The old verbs.
check 'web: no pages at the service' wait_stat web pages_persistent -gt 500 90
check 'mail: no pages at the service' wait_stat mail pages_persistent -gt 500 90
xl-tmem list web | grep -q '^web .*connected' || fail 'xl-tmem list web'
! xl-tmem list web | grep -q mail || fail 'xl-tmem list web: mail, too'
[ "$(xl-tmem list -a | grep -c connected)" = 3 ] || fail 'xl-tmem list -a'
xl-tmem tmem-list -l $uuid | grep -q '^ *puts ' || fail 'xl-tmem list -l'
check 'xl-tmem freeze' xl-tmem freeze "$(dom_id web)"
value_is web frozen true
value_is mail frozen false
before=$(stat_of web puts)
check 'no put is refused while it is frozen' wait_stat web refused_frozen -gt 0 60
check 'xl-tmem thaw' xl-tmem thaw web
value_is web frozen false
check 'web: no puts after the thaw' wait_stat web puts -gt $((before + 100)) 90
check 'xl-tmem freeze -a' xl-tmem freeze -a
value_is third frozen true
check 'xl-tmem thaw -a' xl-tmem thaw -a
value_is third frozen false
check 'xl-tmem set' xl-tmem set web -w 300 -c 64M -p 1
value_is web weight 300
value_is web maximum_bytes 67108864
check 'xl-tmem set, as it was written once' xl-tmem set -w=200 -c=0 mail
value_is mail weight 200
value_is mail maximum_bytes 0
shared=01234567-89ab-cdef-0123-456789abcdef
check 'xl-tmem shared-auth' xl-tmem shared-auth web -u $shared -A allow
check 'xl-tmem shared-auth' xl-tmem shared-auth -a -u=$shared -A=deny
freeable=$(xl-tmem freeable)
[ "$freeable" -ge 0 ] || fail "xl-tmem freeable says '$freeable'"

# With pages it keeps its device: refused, and served on; also when tmemd dies meanwhile.
refused 'swapoff in the guest' tmemctl detach xl: web --timeout 3
check 'web has lost its device' device_state web 4 10
check 'the device of web is not told' device_said web offered
check 'web is not served after the refusal' wait_stat web gets_hit -gt $(($(stat_of web gets_hit) + 50)) 60
held=$(stat_of mail pages_persistent)
xenstore-write "$(xs_back mail)/state" 5
check 'that mail is to go is not told' wait_until 20 device_said mail leaving
tmemd_kill
check 'tmemd does not start again' tmemd_start
check 'mail is not served after the restart' wait_stat mail gets_hit -gt 50 90
[ "$(stat_of mail pages_persistent)" -gt $((held / 2)) ] || fail 'mail has lost its pages'
check 'mail: the wish is forgotten' wait_until 20 device_said mail leaving
check 'attach takes the wish back' tmemctl attach xl: mail
check 'mail: not connected' device_state mail 4 10

# Without pages it lets go, and can have it again.
dom_say web enough
check 'web does not end its swap' dom_wait_for web swap=off 120
check 'detach xl: web' tmemctl detach xl: web --timeout 60
check 'detach says that the device is gone, and it is not' device_is web gone
check 'that it is gone is not told' device_said web left
tmemctl detach xl: web | grep -q already || fail 'detaching twice is not told'
check 'attach xl: web, again' tmemctl attach xl: web
check 'web: not connected again' device_state web 4 60
before=$(stat_of web puts)
dom_say web go
check 'web: no puts after the device came back' wait_stat web puts -gt $((before + 500)) 90
for guest in web mail third; do dom_say $guest enough; done
for guest in web mail third; do
	check "$guest failed" dom_wait_end $guest 120
	dom_check $guest
done
