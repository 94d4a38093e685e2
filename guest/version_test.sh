#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# DKMS needs the version as a plain word; it must be the one that configure has.
srcdir=${srcdir:-$(dirname "$0")/..}
want=$(sed -n 's/^AC_INIT(\[tmemd\], \[\(.*\)\])$/\1/p' "$srcdir/configure.ac")
have=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$srcdir/guest/dkms.conf")
[ -n "$want" ] && [ "$want" = "$have" ] || {
	echo "guest/dkms.conf has version '$have', configure.ac '$want'"
	exit 1
}
