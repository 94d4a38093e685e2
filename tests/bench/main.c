// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROUNDS 9

static const struct {
	const char *name;
	int (*run)(const struct bench_options *options);
	const char *what;
} benches[] = {
	{"store", bench_store, "put and get against the least they can cost"},
	{"allocator", bench_allocator, "memory a page, also after churn and draining"},
	{"compaction", bench_compaction, "what background compaction gains and costs"},
	{"ring", bench_ring, "pages through a ring, doorbells, posted puts"},
	{"blk", bench_blk, "pages through a vhost-user-blk disk"},
	{"host", bench_host, "what this machine does: copies, faults, wake-ups"},
};
#define NR_BENCHES (sizeof(benches) / sizeof(benches[0]))

static int usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: tmem-bench BENCH [--json FILE] [--pages N] [--seed S] [--rounds N]\n"
		"                  [--corpus FILE | --captured]\n");
	for (unsigned i = 0; i < NR_BENCHES; i++)
		fprintf(status ? stderr : stdout, "  %-10s %s\n", benches[i].name, benches[i].what);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"json", 1, NULL, 'j'},	  {"pages", 1, NULL, 'p'},  {"seed", 1, NULL, 's'},
		{"rounds", 1, NULL, 'r'}, {"corpus", 1, NULL, 'c'}, {"captured", 0, NULL, 'C'},
		{"help", 0, NULL, 'h'},	  {NULL, 0, NULL, 0}};
	struct bench_options options = {.seed = 1, .rounds = DEFAULT_ROUNDS};
	int c, r;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (c == 'j')
			options.json = optarg;
		else if (c == 'p')
			options.pages = strtoull(optarg, NULL, 0);
		else if (c == 's')
			options.seed = strtoull(optarg, NULL, 0);
		else if (c == 'r')
			options.rounds = strtoul(optarg, NULL, 0);
		else if (c == 'c')
			options.corpus = optarg;
		else if (c == 'C')
			options.captured = true;
		else
			return usage(c == 'h' ? 0 : 2);
	}
	if (optind + 1 != argc || !options.rounds || options.rounds >= MAX_ROUNDS)
		return usage(2);
	options.bench = argv[optind];
	for (unsigned i = 0; i < NR_BENCHES; i++) {
		if (strcmp(options.bench, benches[i].name))
			continue;
		setvbuf(stdout, NULL, _IOLBF, 0);
		machine_begin();
		r = benches[i].run(&options);
		return r ? r : figures_end(&options) ? 1 : 0;
	}
	return usage(2);
}
