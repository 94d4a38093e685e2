# SPDX-License-Identifier: GPL-2.0-or-later
# All runs, slurped, and the machine ($m): medians and spread of each variant, and who wins.
def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def spread: {median: median, min: min, max: max};

# The variant with the least median of a figure. It wins clearly when even its worst run is better
# than the best run of every other.
def winner($figure):
	sort_by(.figures[$figure].median) as $by |
	$by[0].figures[$figure] as $best |
	{figure: $figure, variant: $by[0].variant, median: $best.median,
	 clear: ([$by[1:][] | .figures[$figure].min > $best.max] | all),
	 ties: [$by[1:][] | select(.figures[$figure].min <= $best.max) | .variant]};

. as $runs |
(reduce $runs[] as $r ([]; if any(.[]; .workload == $r.workload and .jobs == $r.jobs and .variant == $r.variant)
	then . else . + [$r | {workload, jobs, variant}] end)
 | map(. as $key |
	([$runs[] | select({workload, jobs, variant} == $key)]) as $all |
	([$all[] | select(.result == "ok")]) as $good |
	$key + {runs: ($good | length), failed: (($all | length) - ($good | length)), memory: $all[0].memory,
		figures: (if $good == [] then null else
			$good[0].figures | keys_unsorted | map({key: ., value: (. as $k | [$good[].figures[$k]] | spread)})
			| from_entries end)})) as $summary |
$m[0] + {
	summary: $summary,
	winners: [$summary | group_by([.workload, .jobs])[] |
		{workload: .[0].workload, jobs: .[0].jobs,
		 of: ([.[] | select(.figures != null)] | if length < 2 then [] else
			[winner("sectors"), winner("seconds"), winner("cpu_seconds")] end)}],
	runs: $runs
}
