// SPDX-License-Identifier: GPL-2.0-or-later
/* What the service's own answer shows: limits that cannot be met, clients in trouble. */
#include "config.h"

#include "tools/tmemctl/doctor.h"
#include "tools/tmemctl/tmemctl.h"

#include <string.h>

#include "proto/control.h"

#define CHUNK_BYTES (2.0 * 1024 * 1024)

static double counter_of(json_t *object, const char *name)
{
	return number_of(json_object_get(object, TMEM_KEY_COUNTERS), name);
}

static const char *name_of(json_t *client)
{
	return json_string_value(json_object_get(client, TMEM_KEY_NAME));
}

static bool is_state(json_t *client, const char *state)
{
	const char *is = json_string_value(json_object_get(client, TMEM_KEY_STATE));

	return is && !strcmp(is, state);
}

bool is_disk(json_t *client)
{
	const char *kind = json_string_value(json_object_get(client, TMEM_KEY_KIND));

	return kind && !strcmp(kind, TMEM_KIND_DISK);
}

static bool is_true(json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

/* Bytes of a line of /proc/meminfo; 0 when it is not there. */
static double meminfo(const struct doctor *d, const char *key)
{
	uint64_t kib;

	return look_number(d, "/proc/meminfo", key, &kib) ? (double)kib * 1024 : 0;
}

/* ---- Limits --------------------------------------------------------------------------------- */

struct limits {
	double max, taken, reserve, total;
	double to_be_had; /* memory that the pool could have in all, as things are */
};

/* False when the host does not say how much memory it has. */
static bool get_limits(const struct doctor *d, struct limits *l)
{
	double available = meminfo(d, "MemAvailable:");

	l->max = number_of(d->service, TMEM_KEY_POOL_MAX_BYTES);
	l->taken = number_of(d->service, TMEM_KEY_POOL_BYTES);
	l->reserve = number_of(d->service, TMEM_KEY_HOST_RESERVE_BYTES);
	l->total = meminfo(d, "MemTotal:");
	l->to_be_had = l->taken + (available > l->reserve ? available - l->reserve : 0);
	return l->total && available;
}

static void limits_memory(struct doctor *d)
{
	char max[16], reserve[16], total[16];
	struct limits l;

	if (!get_limits(d, &l) || l.max + l.reserve <= l.total)
		return;
	print_size(l.max, max);
	print_size(l.reserve, reserve);
	print_size(l.total, total);
	found(d, "service", NULL,
	      "pool_max %s and host_reserve %s are more than the %s of memory that the host has",
	      max, reserve, total);
	remedy(d, "lower pool_max or host_reserve in tmemd.conf, and reload");
}

static void limits_available(struct doctor *d)
{
	char max[16], can[16];
	struct limits l;

	if (!get_limits(d, &l) || l.max <= l.to_be_had)
		return;
	print_size(l.max, max);
	print_size(l.to_be_had, can);
	found(d, "service", NULL,
	      "pool_max is %s, but with what is available now the pool could have %s physical", max,
	      can);
	remedy(d, "size the VMs smaller, or lower pool_max to what is left beside them");
}

static void limits_minimums(struct doctor *d)
{
	char sum_text[16], can[16];
	struct limits l;
	double sum = 0;
	json_t *client;
	size_t i;

	json_array_foreach(d->clients, i, client) sum += number_of(client, TMEM_KEY_MINIMUM_BYTES);
	if (!get_limits(d, &l) || sum <= l.to_be_had)
		return;
	print_size(sum, sum_text);
	print_size(l.to_be_had, can);
	found(d, "service", NULL,
	      "minimums of %s physical are promised, but with what is available now the pool could "
	      "have %s",
	      sum_text, can);
	remedy(d, "free memory of the host, or lower the clients' minimums");
}

static void no_reserve(struct doctor *d)
{
	if (number_of(d->service, TMEM_KEY_HOST_RESERVE_BYTES) > 0)
		return;
	found(d, "service", NULL, "host_reserve is 0: the pool may take the host's last memory");
	remedy(d, "remove host_reserve = 0 from tmemd.conf (the default is 5%%), and reload");
}

static void host_short(struct doctor *d)
{
	double available = meminfo(d, "MemAvailable:");
	double reserve = number_of(d->service, TMEM_KEY_HOST_RESERVE_BYTES);
	char have[16], want[16];

	if (!available || available >= reserve)
		return;
	print_size(available, have);
	print_size(reserve, want);
	found(d, "host", NULL,
	      "%s are available, less than host_reserve %s: the pool takes no more and drops "
	      "ephemeral pages",
	      have, want);
	remedy(d, "free memory of the host, or lower host_reserve");
}

static void pool_full(struct doctor *d)
{
	double max = number_of(d->service, TMEM_KEY_POOL_MAX_BYTES), refused = 0;
	char text[16];
	json_t *client;
	size_t i;

	json_array_foreach(d->clients, i, client) refused += counter_of(client, "refused_room");
	if (!refused || number_of(d->service, TMEM_KEY_POOL_BYTES) + CHUNK_BYTES <= max)
		return;
	print_size(max, text);
	found(d, "service", NULL,
	      "the pool is at pool_max %s and has refused %.0f puts for want of "
	      "room",
	      text, refused);
	remedy(d, "raise pool_max, or give maximums to the clients that fill it (tmemctl list)");
}

static void exposed(struct doctor *d)
{
	double exposure = number_of(d->service, TMEM_KEY_EXPOSURE_BYTES);
	double pool_max = number_of(d->service, TMEM_KEY_POOL_MAX_BYTES);
	char most[16], max[16];

	if (exposure <= pool_max)
		return;
	print_size(exposure, most);
	print_size(pool_max, max);
	found(d, "service", NULL,
	      "disks can take, and clients' minimums keep, %s physical when nothing compresses; "
	      "pool_max is %s: guests' writes to disks may fail",
	      most, max);
	remedy(d, "raise pool_max, or remove a disk (tmemctl disk list), unless overcommit is "
		  "meant");
}

static void no_memory(struct doctor *d)
{
	double failed = counter_of(d->service, "populate_failed");

	if (!failed)
		return;
	found(d, "service", NULL,
	      "the arena's mount or the host had no memory for the pool, %.0f times", failed);
	remedy(d, "compare df of the mount and MemAvailable with pool_max; enlarge the mount, or "
		  "lower pool_max");
}

static void service_frozen(struct doctor *d)
{
	if (!is_true(d->service, TMEM_KEY_FROZEN))
		return;
	found(d, "service", NULL, "it is frozen: every new put is refused");
	remedy(d, "tmemctl thaw --all");
}

/* ---- Clients -------------------------------------------------------------------------------- */

/* Runs the statement for each client that the condition holds for. */
#define FOR_CLIENTS(d, client, condition)                                                          \
	size_t i_;                                                                                 \
	json_t *client;                                                                            \
	json_array_foreach((d)->clients, i_, client) if (condition)

static void client_frozen(struct doctor *d)
{
	FOR_CLIENTS(d, client, is_true(client, TMEM_KEY_FROZEN))
	{
		found(d, "client", name_of(client), "it is frozen: its new puts are refused");
		remedy(d, "tmemctl thaw %s", name_of(client));
	}
}

static void client_never(struct doctor *d)
{
	FOR_CLIENTS(d, client,
		    !is_disk(client) && is_state(client, TMEM_STATE_WAITING) &&
			    !counter_of(client, "lives"))
	{
		found(d, "client", name_of(client),
		      "no VM has used it since the service was started");
		remedy(d, "give its VM the device (docs/qemu.md), or remove [client %s]",
		       name_of(client));
	}
}

static void client_silent(struct doctor *d)
{
	FOR_CLIENTS(d, client, is_state(client, TMEM_STATE_ATTACHED))
	{
		found(d, "client", name_of(client),
		      "its VM has the device, but the guest does not use it");
		remedy(d,
		       "load the module tmem in the guest; there, tmemctl doctor --guest; the log "
		       "of tmemd has the reason if a hello was refused");
	}
}

static void client_unconfigured(struct doctor *d)
{
	FOR_CLIENTS(d, client, is_state(client, TMEM_STATE_UNCONFIGURED))
	{
		found(d, "client", name_of(client),
		      "the arena keeps %.0f persistent pages of it, and nobody serves its VM",
		      number_of(client, TMEM_KEY_PAGES_PERSISTENT));
		remedy(d, "add [%s %s] to tmemd.conf and reload; remove it when its VM is gone",
		       is_disk(client) ? "disk" : "client", name_of(client));
	}
}

static void client_polling(struct doctor *d)
{
	FOR_CLIENTS(d, client, is_true(client, TMEM_KEY_POLLING))
	{
		found(d, "client", name_of(client),
		      "it is served without doorbells since a restart: more CPU, more latency");
		remedy(d, "run tmemd under systemd, which keeps them; this VM gets doorbells again "
			  "when "
			  "it is stopped and started");
	}
}

/* At its maximum, with one offered put in ten refused for it. */
static void client_maximum(struct doctor *d)
{
	char max[16];

	FOR_CLIENTS(d, client,
		    counter_of(client, "refused_maximum") * 9 > counter_of(client, "puts"))
	{
		print_size(number_of(client, TMEM_KEY_MAXIMUM_BYTES), max);
		found(d, "client", name_of(client),
		      "%.0f puts were refused for its maximum (now %s physical), %.0f accepted",
		      counter_of(client, "refused_maximum"), max, counter_of(client, "puts"));
		remedy(d, "raise its maximum, or give the VM more memory");
	}
}

static unsigned configured_clients(const struct doctor *d)
{
	unsigned n = 0;

	FOR_CLIENTS(d, client, !is_disk(client) && !is_state(client, TMEM_STATE_UNCONFIGURED))
	n++;
	return n;
}

static void client_unbounded(struct doctor *d)
{
	double pool_max = number_of(d->service, TMEM_KEY_POOL_MAX_BYTES);
	bool alone = configured_clients(d) < 2;

	FOR_CLIENTS(d, client,
		    !alone && !is_disk(client) && !is_state(client, TMEM_STATE_UNCONFIGURED) &&
			    (!number_of(client, TMEM_KEY_MAXIMUM_BYTES) ||
			     number_of(client, TMEM_KEY_MAXIMUM_BYTES) > pool_max))
	{
		found(d, "client", name_of(client),
		      "its maximum does not keep it from filling the whole pool");
		remedy(d, "set maximum = in [client %s], or minimums for the others",
		       name_of(client));
	}
}

static void client_damaged(struct doctor *d)
{
	FOR_CLIENTS(d, client, counter_of(client, "gets_damaged") > 0)
	{
		found(d, "client", name_of(client),
		      "%.0f gets failed because stored bytes had changed",
		      counter_of(client, "gets_damaged"));
		remedy(d, "the host's memory is failing, or somebody wrote to the arena: look for "
			  "EDAC and MCE messages in the kernel's log, test the memory");
	}
}

static void disk_full(struct doctor *d)
{
	FOR_CLIENTS(d, client, counter_of(client, "disk_full") > 0)
	{
		found(d, "client", name_of(client),
		      "%.0f writes of its guest failed, because the pool had no room",
		      counter_of(client, "disk_full"));
		remedy(d, "raise pool_max, or the maximum of the disk; look at tmemctl disk list "
			  "and at what fills the pool");
	}
}

static void client_nonsense(struct doctor *d)
{
	static const char *const counters[] = {"ring_bad", "ring_broken", "credits_forged",
					       "refused_no_pool", "disk_broken"};

	for (size_t c = 0; c < sizeof(counters) / sizeof(counters[0]); c++) {
		FOR_CLIENTS(d, client, counter_of(client, counters[c]) > 0)
		{
			found(d, "client", name_of(client), "its guest speaks nonsense: %s is %.0f",
			      counters[c], counter_of(client, counters[c]));
			remedy(d,
			       "look at the guest: another module's version, a fault, or malice; "
			       "other clients are not affected");
		}
	}
}

static void client_refused_hellos(struct doctor *d)
{
	FOR_CLIENTS(d, client,
		    counter_of(client, "hellos_refused") + counter_of(client, "connects_refused") >
			    0)
	{
		found(d, "client", name_of(client), "%.0f hellos and %.0f connections were refused",
		      counter_of(client, "hellos_refused"), counter_of(client, "connects_refused"));
		remedy(d,
		       "the log of tmemd has the reasons: versions, sizes, or a second process at "
		       "the socket");
	}
}

const struct check service_checks[] = {
	{"limits-memory", SEVERITY_ERROR, limits_memory},
	{"limits-minimums", SEVERITY_ERROR, limits_minimums},
	{"limits-available", SEVERITY_WARNING, limits_available},
	{"no-host-reserve", SEVERITY_WARNING, no_reserve},
	{"host-short", SEVERITY_WARNING, host_short},
	{"pool-full", SEVERITY_WARNING, pool_full},
	{"disk-full", SEVERITY_ERROR, disk_full},
	{"disk-exposure", SEVERITY_NOTE, exposed},
	{"no-memory", SEVERITY_WARNING, no_memory},
	{"service-frozen", SEVERITY_WARNING, service_frozen},
	{"client-frozen", SEVERITY_WARNING, client_frozen},
	{"client-damaged", SEVERITY_ERROR, client_damaged},
	{"client-unconfigured", SEVERITY_WARNING, client_unconfigured},
	{"client-polling", SEVERITY_WARNING, client_polling},
	{"client-maximum", SEVERITY_WARNING, client_maximum},
	{"client-refused", SEVERITY_WARNING, client_refused_hellos},
	{"client-nonsense", SEVERITY_WARNING, client_nonsense},
	{"client-never", SEVERITY_NOTE, client_never},
	{"client-silent", SEVERITY_NOTE, client_silent},
	{"client-unbounded", SEVERITY_NOTE, client_unbounded},
	{0},
};
