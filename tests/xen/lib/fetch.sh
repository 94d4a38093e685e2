# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Xen and its tools: packages of Debian 12, unpacked in the cache of tests/vm and never installed.
# Sourced after tests/vm/lib/kernels.sh, not run.
#
#   xen_fetch        fetch and unpack what is missing, kernels too; false with a sentence when it
#                    cannot
#   xen_root         print the directory with the hypervisor, its tools and their libraries
#   xen_hypervisor   print the hypervisor's file (an ELF, not compressed)
#   kernel_elf FLAVOUR  print the kernel's file, not compressed, so that nobody unpacks it in emulation

xen_version=4.17

xen_root() { printf '%s\n' "$(vm_cache)/xen"; }
xen_hypervisor() { printf '%s\n' "$(xen_root)/hypervisor"; }

# What xl, xenstored and xenconsoled are linked with comes along: the system need not have Xen.
xen_packages()
{
	printf '%s\n' "xen-hypervisor-$xen_version-amd64" "xen-utils-$xen_version" xenstore-utils \
		"libxenmisc$xen_version" libxencall1 libxendevicemodel1 libxenevtchn1 \
		libxenforeignmemory1 libxengnttab1 libxenhypfs1 libxenstore4 libxentoolcore1 \
		libxentoollog1 libyajl2
}

xen_fetch()
{
	kernels_fetch && kernel_build dom0 || return 1
	[ -d "$(xen_root)" ] || cache_locked xen_fetch_locked
}

xen_fetch_locked()
{
	local dir tmp deb

	dir=$(vm_cache) || return 1
	[ -d "$dir/xen" ] && return 0
	vm_say "fetching Xen $xen_version"
	tmp=$(mktemp -d "$dir/new.XXXXXX")
	# shellcheck disable=SC2046 # a list of words
	suite_lists "$tmp/apt" bookworm &&
		(cd "$tmp" && suite_apt "$tmp/apt" get download $(xen_packages) >&2) ||
		{ vm_say "Xen $xen_version could not be fetched"; rm -rf "$tmp"; return 1; }
	for deb in "$tmp"/*.deb; do
		dpkg-deb -x "$deb" "$tmp" && rm "$deb" || return 1
	done
	rm -rf "$tmp/apt"
	gzip -dc "$tmp/boot/xen-$xen_version-amd64.gz" > "$tmp/hypervisor" || return 1
	mv "$tmp" "$dir/xen"
}

kernel_elf()
{
	local image out

	image=$(kernel_image "$1") || return 1
	out=$(vm_cache)/$1/vmlinux
	[ -f "$out" ] || cache_locked kernel_elf_locked "$image" "$out" || return 1
	printf '%s\n' "$out"
}

kernel_elf_locked()
{
	[ -f "$2" ] && return 0
	"$(vm_cache)/source/scripts/extract-vmlinux" "$1" \
		> "$2.new" && mv "$2.new" "$2" ||
		{ vm_say "$1 could not be unpacked"; rm -f "$2.new"; return 1; }
}
