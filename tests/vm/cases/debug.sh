#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The frontswap and cleancache cases on a kernel that checks locking and sleeping: no complaint.
. "$(dirname "$0")/../lib/case.sh"
kernels_fetch || skip 'the Debian 11 kernel packages could not be fetched'
[ -n "${TMEMD_VM_LONG:-}" ] || [ -f "$(kernel_tree debug)/.complete" ] ||
	skip 'the debug kernel is not built; TMEMD_VM_LONG=1 builds it'
for name in frontswap cleancache; do
	"$vm_src/cases/$name.sh" debug || exit
done
