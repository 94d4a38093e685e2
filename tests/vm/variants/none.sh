# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
variant_help() { echo 'a swap disk only: each guest has an equal part of the budget'; }
