# SPDX-License-Identifier: GPL-2.0-or-later
# docs/cases.md: every test that it names exists, has what it names, and says which case it is.

@test "the table of cases names tests that exist and say so" {
	cd "${srcdir:-.}"
	rows=$(grep -cE '^\| [0-9]+ \|' docs/cases.md)
	[ "$rows" -eq 35 ]
	wrong=0
	while IFS='|' read -r _ number _ _ shown _; do
		number=$((number))
		file=
		for name in $(grep -o '`[^`]*`' <<<"$shown" | tr -d '`'); do
			if [[ $name == tests/* ]]; then
				file=$name
				grep -Eiq "\bcases? ([0-9]+(, | and ))*$number\b" "$file" && continue
				echo "case $number: $file is not there or does not say it"
			else
				grep -qw "$name" "$file" && continue
				echo "case $number: $file has no $name"
			fi
			wrong=1
		done
		# Each row has a test or says why not.
		[[ -n $file || $shown == *"not yet"* || $shown == *" no "* ]] || { echo "case $number: nothing"; wrong=1; }
	done < <(grep -E '^\| [0-9]+ \|' docs/cases.md)
	[ "$wrong" -eq 0 ]
}
