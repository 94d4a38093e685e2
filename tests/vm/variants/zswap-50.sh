# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034
#
# zswap for guests of which it is known that they are short of memory.
. "$vm_src/variants/zswap.sh"
zswap_percent=50
