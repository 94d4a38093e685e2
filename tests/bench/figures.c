// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench.h"
#include "tests/bench/commit.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FIGURES 64

struct figure {
	char name[48];
	const char *unit;
	double value, reference, ratio, min, max;
	bool has_reference;
};

static struct figure figures[MAX_FIGURES];
static unsigned nr_figures;

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct timing bench_now(void)
{
	struct timing t = {read_clock(CLOCK_PROCESS_CPUTIME_ID), read_clock(CLOCK_MONOTONIC)};

	return t;
}

struct timing bench_since(struct timing from)
{
	struct timing now = bench_now();

	now.cpu -= from.cpu;
	now.wall -= from.wall;
	return now;
}

void series_add(struct series *s, struct timing time, uint64_t items)
{
	if (s->nr == MAX_ROUNDS)
		return;
	s->cpu[s->nr] = (double)time.cpu / items;
	s->wall[s->nr++] = (double)time.wall / items;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values, unsigned nr)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, values, nr * sizeof(*values));
	qsort(sorted, nr, sizeof(*sorted), by_value);
	return nr % 2 ? sorted[nr / 2] : (sorted[nr / 2 - 1] + sorted[nr / 2]) / 2;
}

void figure_values(const char *name, const char *unit, const double *value, const double *reference,
		   unsigned rounds)
{
	struct figure *f = &figures[nr_figures];
	double spread[MAX_ROUNDS];

	if (nr_figures == MAX_FIGURES || !rounds)
		return;
	nr_figures++;
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->unit = unit;
	f->value = median(value, rounds);
	f->has_reference = reference != NULL;
	for (unsigned i = 0; i < rounds; i++)
		spread[i] = reference ? value[i] / reference[i] : value[i];
	f->reference = reference ? median(reference, rounds) : 0;
	f->ratio = median(spread, rounds);
	qsort(spread, rounds, sizeof(*spread), by_value);
	f->min = spread[0];
	f->max = spread[rounds - 1];
}

void figure_times(const char *name, const struct series *what, const struct series *reference)
{
	char wall[48];

	figure_values(name, "ns", what->cpu, reference ? reference->cpu : NULL, what->nr);
	snprintf(wall, sizeof(wall), "%s_wall", name);
	figure_values(wall, "ns", what->wall, reference ? reference->wall : NULL, what->nr);
}

static json_t *to_json(const struct bench_options *options)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < nr_figures; i++) {
		const struct figure *f = &figures[i];

		json_array_append_new(
			list,
			json_pack("{s:s,s:f,s:s,s:o,s:o,s:f,s:f}", "name", f->name, "value",
				  f->value, "unit", f->unit, "reference",
				  f->has_reference ? json_real(f->reference) : json_null(), "ratio",
				  f->has_reference ? json_real(f->ratio) : json_null(), "min",
				  f->min, "max", f->max));
	}
	return json_pack("{s:s,s:s,s:o,s:o}", "bench", options->bench, "commit", TMEMD_COMMIT,
			 "machine", machine_json(), "figures", list);
}

int figures_end(const struct bench_options *options)
{
	json_t *json;
	int r = 0;

	printf("%-22s %10s %10s  %-6s %7s  %s\n", "figure", "value", "reference", "unit", "ratio",
	       "min .. max");
	for (unsigned i = 0; i < nr_figures; i++) {
		const struct figure *f = &figures[i];

		if (f->has_reference)
			printf("%-22s %10.1f %10.1f  %-6s %7.3f  %.3f .. %.3f\n", f->name, f->value,
			       f->reference, f->unit, f->ratio, f->min, f->max);
		else
			printf("%-22s %10.3f %10s  %-6s %7s  %.3f .. %.3f\n", f->name, f->value, "",
			       f->unit, "", f->min, f->max);
	}
	if (!options->json)
		return 0;
	json = to_json(options);
	if (!json || json_dump_file(json, options->json, JSON_INDENT(1) | JSON_REAL_PRECISION(6))) {
		fprintf(stderr, "tmem-bench: cannot write %s\n", options->json);
		r = -EIO;
	}
	json_decref(json);
	return r;
}
