# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Guest kernels for the tests: Debian 11's stock 5.10 cloud kernel with its headers, and a small
# 5.10 kernel of our own that also has cleancache. Sourced, not run. Everything lives in a cache
# directory outside the tree and is used again when it is there; nothing is installed on the
# system. Once the cache is filled no network is needed.
#
#   vm_cache                 print the cache directory (made when missing)
#   kernels_fetch            fetch and unpack the packages that are missing
#   kernel_build FLAVOUR     build what FLAVOUR needs: nothing for stock; others: a kernel
#   kernel_image FLAVOUR     print the path of the bootable image
#   kernel_build_dir FLAVOUR print the directory that external modules are built against
#   kernel_release FLAVOUR   print its release string
#   kernel_modules FLAVOUR NAME...  print the files of these modules, in the order of loading
#   module_build FLAVOUR OUT build tmem.ko from $guest_src and copy it to OUT
#
# FLAVOUR is stock, small, debug (small with lockdep and sleep checks) or evidence (small with zram
# and zswap, without checks); or debian11 (5.10), debian12 (6.1), debian13 (6.12), sid (the newest):
# the stock cloud kernels of these suites, for guests without our module, each fetched by its own
# kernel_build; or dom0 (6.1, not the cloud kernel, with headers): what can be dom0 of Xen. All
# functions return non-zero with a sentence on standard error when they cannot do their work.
#
# Environment: TMEMD_CACHE (cache directory), TMEMD_KERNEL_CC (compiler, default gcc-12),
# TMEMD_JOBS (parallel jobs, default: number of processors).

: "${vm_src:?set vm_src to the directory tests/vm of the source tree}"
guest_src=$(cd "$vm_src/../../guest" && pwd)
kernel_cc=${TMEMD_KERNEL_CC:-gcc-12}
kernel_jobs=${TMEMD_JOBS:-$(nproc)}

vm_say() { printf '%s\n' "$*" >&2; }

vm_cache()
{
	local dir=${TMEMD_CACHE:-}

	if [ -z "$dir" ]; then
		if [ "$(id -u)" = 0 ]; then
			dir=/var/cache/tmemd-tests
		else
			dir=$HOME/.cache/tmemd-tests
		fi
	fi
	mkdir -p "$dir" && printf '%s\n' "$dir"
}

# Runs a command while holding the cache's lock, so that two runs do not fill it at once.
cache_locked()
{
	local dir fd rc=0

	dir=$(vm_cache) || return 1
	exec {fd}>"$dir/lock"
	flock "$fd"
	"$@" {fd}>&- || rc=$?
	exec {fd}>&-
	return $rc
}

# apt with lists of its own: another suite from the mirror that this system is configured for, as if
# nothing were installed here (else it wants the installed version, which the suite may not have).
suite_apt()
{
	local dir=$1 tool=$2

	shift 2
	"apt-$tool" -q -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o "Dir::State=$dir/state" -o Dir::State::status=/dev/null \
		-o "Dir::Cache=$dir/cache" -o APT::Sandbox::User= -o Acquire::Languages=none \
		-o Acquire::Retries=3 "$@"
}

# Writes sources.list and reads the lists. $1: directory, $2: suite.
suite_lists()
{
	local dir=$1 uri key=/usr/share/keyrings/debian-archive-keyring.gpg

	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
		'Label: Debian' | head -n 1)
	[ -n "$uri" ] || { vm_say 'apt is not configured for a Debian mirror'; return 1; }
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	printf 'deb [signed-by=%s] %s %s main\n' "$key" "$uri" "$2" > "$dir/sources.list"
	suite_apt "$dir" get update >&2
}

# The newest ABI name of the stock cloud kernel, e.g. 5.10.0-32.
stock_newest()
{
	suite_apt "$1" cache pkgnames linux-image-5.10.0- |
		sed -n 's/^linux-image-\(5\.10\.0-[0-9]*\)-cloud-amd64$/\1/p' | sort -V | tail -n 1
}

# Header packages name their trees by absolute paths below /usr/src: point them here instead.
stock_fix_paths()
{
	local root=$1

	find "$root/usr/src" -maxdepth 2 -name Makefile -exec \
		sed -i "s#\([ =]\)/usr/src/#\1$2/usr/src/#g" {} +
}

# Who finds everything there does not wait for somebody who builds another kernel.
kernels_fetch()
{
	local dir

	dir=$(vm_cache) || return 1
	[ -d "$dir/stock" ] && [ -d "$dir/source" ] && return 0
	cache_locked kernels_fetch_locked
}

kernels_fetch_locked()
{
	local dir v deb tmp

	dir=$(vm_cache) || return 1
	[ -d "$dir/stock" ] && [ -d "$dir/source" ] && return 0
	vm_say 'fetching the Debian 11 kernel packages'
	suite_lists "$dir/apt" bullseye || return 1
	v=$(stock_newest "$dir/apt")
	[ -n "$v" ] || { vm_say 'the mirror has no linux-image-5.10.0-*-cloud-amd64'; return 1; }
	mkdir -p "$dir/debs"
	(cd "$dir/debs" && suite_apt "$dir/apt" get download "linux-image-$v-cloud-amd64" \
		"linux-headers-$v-cloud-amd64" "linux-headers-$v-common" linux-kbuild-5.10 \
		linux-source-5.10 >&2) || { vm_say 'the packages could not be fetched'; return 1; }
	if [ ! -d "$dir/stock" ]; then
		tmp=$(mktemp -d "$dir/new.XXXXXX")
		for deb in "$dir"/debs/linux-{image,headers,kbuild}-5.10*.deb; do
			dpkg-deb -x "$deb" "$tmp" || return 1
		done
		stock_fix_paths "$tmp" "$dir/stock"
		printf '%s-cloud-amd64\n' "$v" > "$tmp/release"
		depmod -b "$tmp" "$v-cloud-amd64" 2>/dev/null
		mv "$tmp" "$dir/stock"
	fi
	if [ ! -d "$dir/source" ]; then
		tmp=$(mktemp -d "$dir/new.XXXXXX")
		deb=$(ls "$dir"/debs/linux-source-5.10_*.deb)
		dpkg-deb --fsys-tarfile "$deb" |
			tar -xO ./usr/src/linux-source-5.10.tar.xz |
			tar -xJ -C "$tmp" --strip-components=1 || return 1
		basename "$deb" .deb > "$tmp/.package"
		mv "$tmp" "$dir/source"
	fi
	rm -rf "$dir/debs"
}

# The configuration of a built flavour: fragments over allnoconfig.
kernel_fragments()
{
	case $1 in
	small) cat "$vm_src/kernel/small-5.10.config" ;;
	debug | evidence)
		cat "$vm_src/kernel/small-5.10.config" "$vm_src/kernel/$1-5.10.config"
		;;
	esac
}

# Directory of a built flavour; its name holds what it was built from.
kernel_tree()
{
	local dir key

	dir=$(vm_cache) || return 1
	key=$( (cat "$dir/source/.package"; kernel_fragments "$1") | sha256sum | cut -c1-12)
	printf '%s\n' "$dir/$1-$key"
}

# The newest kernel of a suite: its image, or, when that is split up, binary, modules and the list of
# what is built in.
suite_packages() # apt's directory, flavour
{
	local names version

	if [ "$2" = dom0 ]; then
		dom0_packages "$1"
		return
	fi
	names=$(suite_apt "$1" cache pkgnames linux-) || return 1
	version=$(sed -n 's/^linux-binary-\([0-9].*-cloud-amd64\)$/\1/p' <<< "$names" | sort -V | tail -n 1)
	if [ -n "$version" ]; then
		echo "linux-binary-$version" "linux-modules-$version" "linux-base-$version"
		return
	fi
	version=$(sed -n 's/^linux-image-\([0-9].*-cloud-amd64\)$/\1/p' <<< "$names" | sort -V | tail -n 1)
	[ -n "$version" ] && echo "linux-image-$version"
}

# The name changes with each kernel whose ABI does: apt knows what the metapackage stands for.
dom0_packages() # apt's directory
{
	local version

	version=$(suite_apt "$1" cache depends linux-image-amd64 |
		sed -n 's/^ *Depends: linux-image-\([0-9].*\)-amd64$/\1/p')
	[ -n "$version" ] || return 1
	echo "linux-image-$version-amd64" "linux-headers-$version-amd64" \
		"linux-headers-$version-common" "linux-kbuild-${version%%.0-*}"
}

suite_of()
{
	case $1 in
	debian11) echo bullseye ;;
	debian12 | dom0) echo bookworm ;;
	debian13) echo trixie ;;
	sid) echo sid ;;
	*) return 1 ;;
	esac
}

# Newer packages have everything below /usr/lib/modules.
suite_old_places() # directory
{
	local image

	[ -e "$1/lib" ] || ln -s usr/lib "$1/lib"
	for image in "$1"/usr/lib/modules/*/vmlinuz; do
		[ -f "$image" ] || continue
		mkdir -p "$1/boot"
		mv "$image" "$1/boot/vmlinuz-$(basename "$(dirname "$image")")"
	done
}

suite_fetch_locked()
{
	local dir tmp packages deb

	dir=$(vm_cache) || return 1
	[ -d "$dir/$1" ] && return 0
	# The same packages and more.
	[ "$1" != debian11 ] || [ ! -d "$dir/stock" ] || { ln -s stock "$dir/$1"; return; }
	vm_say "fetching the kernel of $1"
	tmp=$(mktemp -d "$dir/new.XXXXXX")
	suite_lists "$tmp/apt" "$(suite_of "$1")" && packages=$(suite_packages "$tmp/apt" "$1") &&
		# shellcheck disable=SC2086 # a list of words
		(cd "$tmp" && suite_apt "$tmp/apt" get download $packages >&2) ||
		{ vm_say "the kernel of $1 could not be fetched"; rm -rf "$tmp"; return 1; }
	for deb in "$tmp"/*.deb; do
		dpkg-deb -x "$deb" "$tmp" && rm "$deb" || return 1
	done
	rm -rf "$tmp/apt"
	[ ! -d "$tmp/usr/src" ] || stock_fix_paths "$tmp" "$dir/$1"
	suite_old_places "$tmp"
	basename "$tmp"/boot/vmlinuz-* | sed 's/^vmlinuz-//' > "$tmp/release"
	depmod -b "$tmp" "$(cat "$tmp/release")" 2> /dev/null
	mv "$tmp" "$dir/$1"
}

kernel_build()
{
	[ "$1" = stock ] && return 0
	if suite_of "$1" > /dev/null; then
		[ -d "$(vm_cache)/$1" ] || cache_locked suite_fetch_locked "$1"
		return
	fi
	[ -f "$(kernel_tree "$1")/.complete" ] && return 0
	cache_locked kernel_build_locked "$1"
}

kernel_build_locked()
{
	local dir tree log

	dir=$(vm_cache) || return 1
	tree=$(kernel_tree "$1") || return 1
	[ -f "$tree/.complete" ] && return 0
	vm_say "building the $1 5.10 kernel (some minutes, once)"
	mkdir -p "$tree"
	log=$tree/build.log
	kernel_fragments "$1" > "$tree/fragment"
	{
		make -C "$dir/source" O="$tree" CC="$kernel_cc" HOSTCC="$kernel_cc" \
			KCONFIG_ALLCONFIG="$tree/fragment" allnoconfig &&
		nice -n 10 make -C "$dir/source" O="$tree" CC="$kernel_cc" HOSTCC="$kernel_cc" \
			-j"$kernel_jobs" bzImage modules
	} > "$log" 2>&1 || { vm_say "the kernel did not build, see $log"; return 1; }
	touch "$tree/.complete"
}

kernel_image()
{
	case $1 in
	stock | dom0 | debian* | sid) ls "$(vm_cache)/$1"/boot/vmlinuz-* ;;
	*) printf '%s\n' "$(kernel_tree "$1")/arch/x86/boot/bzImage" ;;
	esac
}

kernel_build_dir()
{
	case $1 in
	stock | dom0) ls -d "$(vm_cache)/$1"/usr/src/linux-headers-*-amd64 ;;
	*) kernel_tree "$1" ;;
	esac
}

kernel_release()
{
	case $1 in
	stock | dom0 | debian* | sid) cat "$(vm_cache)/$1/release" ;;
	*) cat "$(kernel_tree "$1")/include/config/kernel.release" ;;
	esac
}

# The built flavours have everything built in.
kernel_modules()
{
	local dir release name

	[ "$1" = stock ] || suite_of "$1" > /dev/null || return 0
	dir=$(vm_cache)/$1
	release=$(kernel_release "$1")
	shift
	for name; do
		modprobe -d "$dir" -S "$release" --show-depends "$name" || return 1
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

module_build()
{
	local flavour=$1 out=$2 work

	work=$(mktemp -d) || return 1
	mkdir -p "$work/guest" "$work/proto"
	cp -r "$guest_src"/. "$work/guest" &&
		cp "$guest_src/../proto/tmem_abi.h" "$work/proto" &&
		make -C "$(kernel_build_dir "$flavour")" M="$work/guest" CC="$kernel_cc" \
			${MODULE_MAKEFLAGS:-} modules > "$work/log" 2>&1 &&
		cp "$work/guest/tmem.ko" "$out" || {
		cat "$work/log" >&2
		vm_say "the module did not build for the $flavour kernel"
		rm -rf "$work"
		return 1
	}
	grep -E 'warning|error' "$work/log" >&2
	rm -rf "$work"
}
