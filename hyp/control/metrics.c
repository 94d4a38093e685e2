// SPDX-License-Identifier: GPL-2.0-or-later
/* Every counter in Prometheus' text format, from the lists in base/counters.h. */
#include "config.h"

#include "control/control_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The HELP and TYPE lines of a metric. */
static void head(FILE *f, const char *prefix, const struct counter_info *info)
{
	const char *suffix = info->kind == COUNTER ? "_total" : "";

	fprintf(f, "# HELP %s%s%s %s (%s)\n", prefix, info->name, suffix, info->help, info->unit);
	fprintf(f, "# TYPE %s%s%s %s\n", prefix, info->name, suffix,
		info->kind == COUNTER ? "counter" : "gauge");
}

static void gauge(FILE *f, const char *name, const char *help, uint64_t value)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 "\n", name, help, name, name,
		value);
}

static void client_limits(FILE *f, struct store_client **clients, unsigned nr)
{
	struct store_limits limits;

	fprintf(f, "# HELP tmemd_client_minimum_bytes physical bytes kept free for the client\n"
		   "# TYPE tmemd_client_minimum_bytes gauge\n");
	for (unsigned i = 0; i < nr; i++) {
		store_client_limits(clients[i], &limits);
		fprintf(f, "tmemd_client_minimum_bytes{client=\"%s\"} %" PRIu64 "\n",
			store_client_name(clients[i]), limits.min_bytes);
	}
	fprintf(f, "# HELP tmemd_client_maximum_bytes physical bytes at most, 0 no maximum\n"
		   "# TYPE tmemd_client_maximum_bytes gauge\n");
	for (unsigned i = 0; i < nr; i++) {
		store_client_limits(clients[i], &limits);
		fprintf(f, "tmemd_client_maximum_bytes{client=\"%s\"} %" PRIu64 "\n",
			store_client_name(clients[i]), limits.max_bytes);
	}
}

char *metrics_text(struct control *control)
{
	struct store_client **clients;
	counter_t *counters;
	char *text = NULL;
	size_t size;
	unsigned nr;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	clients = all_clients(control->store, &nr);
	counters = store_counters(control->store);
	fprintf(f, "# HELP tmemd_info version of the service\n# TYPE tmemd_info gauge\n"
		   "tmemd_info{version=\"" PACKAGE_VERSION "\"} 1\n");
	gauge(f, "tmemd_pool_max_bytes", "physical bytes that the pool may take",
	      store_pool_max(control->store));
	gauge(f, "tmemd_exposure_bytes",
	      "physical bytes that disks can take, with the minimums of clients",
	      control->ops.exposure(control->arg));
	gauge(f, "tmemd_frozen", "1: the service is frozen", store_frozen(control->store));
	for (int i = 0; i < STORE_COUNTER_NR; i++) {
		const struct counter_info *info = &store_counter_info[i];

		head(f, "tmemd_", info);
		fprintf(f, "tmemd_%s%s %" PRIu64 "\n", info->name,
			info->kind == COUNTER ? "_total" : "", counter_get(&counters[i]));
	}
	for (int i = 0; i < CLIENT_COUNTER_NR; i++) {
		const struct counter_info *info = &client_counter_info[i];

		head(f, "tmemd_client_", info);
		for (unsigned k = 0; k < nr; k++)
			fprintf(f, "tmemd_client_%s%s{client=\"%s\"} %" PRIu64 "\n", info->name,
				info->kind == COUNTER ? "_total" : "",
				store_client_name(clients[k]),
				counter_get(&store_client_counters(clients[k])[i]));
	}
	client_limits(f, clients, nr);
	free(clients);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
