// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counters and the state of the link, as text in debugfs: tmem/counters has one "name value" a
 * line, tmem/state one "name: value".
 */
#include "tmem_priv.h"

#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>

DEFINE_PER_CPU(struct tmem_counts, tmem_counts);

static const char *const names[TMEM_NR_COUNTERS] = {
#define TMEM_COUNTER_NAME(name) #name,
	TMEM_COUNTERS(TMEM_COUNTER_NAME)
#undef TMEM_COUNTER_NAME
};

static int counters_show(struct seq_file *m, void *unused)
{
	unsigned long sum;
	unsigned int i, cpu;

	for (i = 0; i < TMEM_NR_COUNTERS; i++) {
		sum = 0;
		for_each_possible_cpu(cpu) sum += per_cpu(tmem_counts, cpu).value[i];
		seq_printf(m, "%s %lu\n", names[i], sum);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static int state_show(struct seq_file *m, void *unused)
{
	tmem_link_show(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

void tmem_stats_setup(void)
{
	struct dentry *dir = debugfs_create_dir("tmem", NULL);

	debugfs_create_file("counters", 0444, dir, NULL, &counters_fops);
	debugfs_create_file("state", 0444, dir, NULL, &state_fops);
	tmem_selftest_setup(dir);
}
