// SPDX-License-Identifier: GPL-2.0-or-later
/* Results as tables. Every size says whether it is logical or physical bytes. */
#include "config.h"

#include "tools/tmemctl/tmemctl.h"

#include <stdio.h>
#include <string.h>

#include "proto/control.h"

double number_of(json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *string_of(json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "-";
}

static bool true_of(json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

void print_json(json_t *result)
{
	json_dumpf(result, stdout, JSON_INDENT(2));
	putchar('\n');
}

void print_size(double bytes, char text[16])
{
	static const char units[] = "BKMGTP";
	int i = 0;

	while (bytes >= 1024 && units[i + 1]) {
		bytes /= 1024;
		i++;
	}
	if (i)
		snprintf(text, 16, "%.1f%c", bytes, units[i]);
	else
		snprintf(text, 16, "%.0f", bytes);
}

static void state_words(json_t *client, char *text, size_t room)
{
	snprintf(text, room, "%s%s%s", string_of(client, TMEM_KEY_STATE),
		 true_of(client, TMEM_KEY_FROZEN) ? ",frozen" : "",
		 true_of(client, TMEM_KEY_POLLING) ? ",polling" : "");
}

static void ratio_text(double logical, double physical, char text[16])
{
	if (logical > 0 && physical > 0)
		snprintf(text, 16, "%.2f", logical / physical);
	else
		strcpy(text, "-");
}

static void print_row(const char *name, json_t *client, int width)
{
	double logical = number_of(client, TMEM_KEY_LOGICAL_BYTES);
	double physical = number_of(client, TMEM_KEY_PHYSICAL_BYTES);
	double maximum = number_of(client, TMEM_KEY_MAXIMUM_BYTES);
	double away = number_of(client, TMEM_KEY_PAGES_AWAY);
	double pid = number_of(client, TMEM_KEY_PID);
	char state[64], l[16], p[16], m[16] = "-", ratio[16], process[16] = "-";

	state_words(client, state, sizeof(state));
	print_size(logical, l);
	print_size(physical, p);
	ratio_text(logical - 4096 * away, physical, ratio);
	if (maximum > 0)
		print_size(maximum, m);
	if (pid > 0)
		snprintf(process, sizeof(process), "%.0f", pid);
	printf("%-*s  %-6s  %-12s  %9.0f  %10.0f  %8.0f  %8s  %8s  %6s  %8s  %8.0f  %7s\n", width,
	       name, string_of(client, TMEM_KEY_KIND), state,
	       number_of(client, TMEM_KEY_PAGES_EPHEMERAL),
	       number_of(client, TMEM_KEY_PAGES_PERSISTENT), away, l, p, ratio, m,
	       number_of(client, TMEM_KEY_REFUSED), process);
}

/* What would be taken if nothing on the disks compressed. */
static void print_exposure(json_t *service)
{
	double exposure = number_of(service, TMEM_KEY_EXPOSURE_BYTES);
	double pool_max = number_of(service, TMEM_KEY_POOL_MAX_BYTES);
	char most[16], max[16];

	if (exposure <= 0 || pool_max <= 0)
		return;
	print_size(exposure, most);
	print_size(pool_max, max);
	printf("exposure: all disks when nothing compresses, and the clients' minimums: %s "
	       "physical, %.0f %% of pool_max %s\n",
	       most, exposure / pool_max * 100, max);
}

void print_list(json_t *result)
{
	json_t *service = json_object_get(result, TMEM_KEY_SERVICE);
	json_t *clients = json_object_get(result, TMEM_KEY_CLIENTS), *client;
	double logical = 0, physical = 0;
	char l[16], p[16], taken[16], max[16];
	int width = 6;
	size_t i;

	json_array_foreach(clients, i, client)
	{
		int len = (int)strlen(string_of(client, TMEM_KEY_NAME));

		width = len > width ? len : width;
		logical += number_of(client, TMEM_KEY_LOGICAL_BYTES);
		physical += number_of(client, TMEM_KEY_PHYSICAL_BYTES);
	}
	printf("%-*s  %-6s  %-12s  %9s  %10s  %8s  %8s  %8s  %6s  %8s  %8s  %7s\n", width, "CLIENT",
	       "KIND", "STATE", "EPHEMERAL", "PERSISTENT", "OF THESE", "LOGICAL", "PHYSICAL",
	       "RATIO", "PHYSICAL", "PUTS", "PID");
	printf("%-*s  %-6s  %-12s  %9s  %10s  %8s  %8s  %8s  %6s  %8s  %8s  %7s\n", width, "", "",
	       "", "PAGES", "PAGES", "AWAY", "BYTES", "BYTES", "", "MAXIMUM", "REFUSED", "");
	json_array_foreach(clients, i, client)
		print_row(string_of(client, TMEM_KEY_NAME), client, width);
	print_size(logical, l);
	print_size(physical, p);
	print_size(number_of(service, TMEM_KEY_POOL_BYTES), taken);
	print_size(number_of(service, TMEM_KEY_POOL_MAX_BYTES), max);
	printf("all clients: %s logical in %s physical; the pool has taken %s physical of at most "
	       "%s%s\n",
	       l, p, taken, max,
	       true_of(service, TMEM_KEY_FROZEN) ? "; the service is FROZEN" : "");
	print_exposure(service);
}

static void print_disk(json_t *disk, int width)
{
	double logical = number_of(disk, TMEM_KEY_LOGICAL_BYTES);
	double physical = number_of(disk, TMEM_KEY_PHYSICAL_BYTES);
	char state[64], size[16], l[16], p[16], most[16], ratio[16];

	state_words(disk, state, sizeof(state));
	print_size(number_of(disk, TMEM_KEY_SIZE), size);
	print_size(logical, l);
	print_size(physical, p);
	print_size(number_of(disk, TMEM_KEY_EXPOSURE_BYTES), most);
	ratio_text(logical - 4096 * number_of(disk, TMEM_KEY_PAGES_AWAY), physical, ratio);
	printf("%-*s  %-12s  %-13s  %8s  %8s  %8s  %8s  %6s  %6.0f  %s%s\n", width,
	       string_of(disk, TMEM_KEY_NAME), state, string_of(disk, TMEM_KEY_ORIGIN), size, l, p,
	       most, ratio, number_of(disk, TMEM_KEY_QUEUES), string_of(disk, TMEM_KEY_SOCKET),
	       true_of(disk, TMEM_KEY_OVERCOMMIT) ? " (overcommit)" : "");
}

void print_disks(json_t *result)
{
	json_t *disks = json_object_get(result, TMEM_KEY_DISKS), *disk;
	int width = 4;
	size_t i;

	json_array_foreach(disks, i, disk)
	{
		int len = (int)strlen(string_of(disk, TMEM_KEY_NAME));

		width = len > width ? len : width;
	}
	printf("%-*s  %-12s  %-13s  %8s  %8s  %8s  %8s  %6s  %6s  %s\n", width, "DISK", "STATE",
	       "FROM", "LOGICAL", "LOGICAL", "PHYSICAL", "PHYSICAL", "RATIO", "QUEUES", "SOCKET");
	printf("%-*s  %-12s  %-13s  %8s  %8s  %8s  %8s  %6s  %6s\n", width, "", "", "", "SIZE",
	       "BYTES", "BYTES", "AT MOST", "", "");
	json_array_foreach(disks, i, disk) print_disk(disk, width);
	print_exposure(json_object_get(result, TMEM_KEY_SERVICE));
}

/* "key  value" for each scalar of the object that `shown` does not have already. */
static void print_scalars(json_t *object, json_t *shown)
{
	json_t *value;
	const char *key;

	json_object_foreach(object, key, value)
	{
		if (json_object_get(shown, key))
			continue;
		if (json_is_string(value) && *json_string_value(value))
			printf("  %-24s %s\n", key, json_string_value(value));
		else if (json_is_integer(value))
			printf("  %-24s %" JSON_INTEGER_FORMAT "\n", key,
			       json_integer_value(value));
		else if (json_is_real(value))
			printf("  %-24s %.2f\n", key, json_real_value(value));
		else if (json_is_boolean(value))
			printf("  %-24s %s\n", key, json_is_true(value) ? "yes" : "no");
	}
}

static void print_pool(json_t *pool)
{
	json_t *flag;
	size_t i;

	printf("  pool %.0f:", number_of(pool, TMEM_KEY_ID));
	json_array_foreach(json_object_get(pool, TMEM_KEY_FLAGS), i, flag)
		printf(" %s", json_string_value(flag));
	if (json_is_string(json_object_get(pool, TMEM_KEY_UUID)))
		printf(" %s, %.0f members", string_of(pool, TMEM_KEY_UUID),
		       number_of(pool, TMEM_KEY_MEMBERS));
	printf(", %.0f pages\n", number_of(pool, TMEM_KEY_PAGES));
}

static bool is_disk(json_t *client)
{
	return !strcmp(string_of(client, TMEM_KEY_KIND), TMEM_KIND_DISK);
}

void print_stat(json_t *result)
{
	json_t *service = json_object_get(result, TMEM_KEY_SERVICE), *client, *pool;
	size_t i, k;

	if (service) {
		printf("service (bytes are physical)\n");
		print_scalars(service, NULL);
		print_scalars(json_object_get(service, TMEM_KEY_COUNTERS), service);
	}
	json_array_foreach(json_object_get(result, TMEM_KEY_CLIENTS), i, client)
	{
		printf("client %s (%sbytes are physical where not called logical)\n",
		       string_of(client, TMEM_KEY_NAME), is_disk(client) ? "a disk; " : "");
		print_scalars(client, NULL);
		print_scalars(json_object_get(client, TMEM_KEY_COUNTERS), client);
		json_array_foreach(json_object_get(client, TMEM_KEY_POOLS), k, pool)
			print_pool(pool);
	}
}
