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

/* ---- Peers ---------------------------------------------------------------------------------- */

/*
 * A histogram of Prometheus: buckets are cumulative, bounds in seconds. It has no sum, for that is
 * not measured.
 */
static void histogram(FILE *f, struct control *control, const char *what, bool put)
{
	struct control_peer peer;

	fprintf(f,
		"# HELP tmemd_peer_%s_seconds how long a %s of a page took at the peer\n"
		"# TYPE tmemd_peer_%s_seconds histogram\n",
		what, what, what);
	for (unsigned i = 0; control->ops.peer(control->arg, i, &peer); i++) {
		const uint64_t *buckets = put ? peer.put_latency : peer.get_latency;
		uint64_t n = 0;

		for (unsigned b = 0; b < CONTROL_LATENCY_BUCKETS; b++) {
			double bound = (double)(2ull << b) / 1e6;

			n += buckets[b];
			if (b + 1 < CONTROL_LATENCY_BUCKETS)
				fprintf(f,
					"tmemd_peer_%s_seconds_bucket{peer=\"%s\",le=\"%g\"} "
					"%" PRIu64 "\n",
					what, peer.name, bound, n);
		}
		fprintf(f,
			"tmemd_peer_%s_seconds_bucket{peer=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
			"tmemd_peer_%s_seconds_count{peer=\"%s\"} %" PRIu64 "\n",
			what, peer.name, n, what, peer.name, n);
	}
}

static void peers(FILE *f, struct control *control)
{
	struct control_peer peer;

	if (!control->ops.peer(control->arg, 0, &peer))
		return;
	fprintf(f, "# HELP tmemd_peer_up 1: the peer answers\n# TYPE tmemd_peer_up gauge\n");
	for (unsigned i = 0; control->ops.peer(control->arg, i, &peer); i++)
		fprintf(f, "tmemd_peer_up{peer=\"%s\"} %d\n", peer.name, peer.up);
	fprintf(f, "# HELP tmemd_peer_spare_bytes physical bytes that the peer would take\n"
		   "# TYPE tmemd_peer_spare_bytes gauge\n");
	for (unsigned i = 0; control->ops.peer(control->arg, i, &peer); i++)
		fprintf(f, "tmemd_peer_spare_bytes{peer=\"%s\"} %" PRIu64 "\n", peer.name,
			peer.spare_bytes);
	for (int c = 0; c < PEER_COUNTER_NR; c++) {
		const struct counter_info *info = &peer_counter_info[c];

		head(f, "tmemd_peer_", info);
		for (unsigned i = 0; control->ops.peer(control->arg, i, &peer); i++)
			fprintf(f, "tmemd_peer_%s%s{peer=\"%s\"} %" PRIu64 "\n", info->name,
				info->kind == COUNTER ? "_total" : "", peer.name, peer.counters[c]);
	}
	histogram(f, control, "get", false);
	histogram(f, control, "put", true);
}

static void lending(FILE *f, struct control *control)
{
	struct control_lending l = {0};

	if (!control->ops.lending(control->arg, &l))
		return;
	gauge(f, "tmemd_lend_bytes", "physical bytes that other hosts may have here at most",
	      l.lend_bytes);
	gauge(f, "tmemd_lent_bytes", "physical bytes that other hosts have here", l.lent_bytes);
	for (int c = 0; c < LENDER_COUNTER_NR; c++) {
		const struct counter_info *info = &lender_counter_info[c];

		head(f, "tmemd_lender_", info);
		fprintf(f, "tmemd_lender_%s%s %" PRIu64 "\n", info->name,
			info->kind == COUNTER ? "_total" : "", l.counters[c]);
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
	peers(f, control);
	lending(f, control);
	free(clients);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
