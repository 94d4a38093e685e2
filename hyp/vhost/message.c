// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The requests of a front end, one table.
 *
 * A front end waits for an answer to some requests always, to others when it asked for one. It must
 * never wait in vain, also not for a request that makes no sense here: so the table has all
 * requests of the specification, with how they say "no". A request that is not in it gets an answer
 * when one was asked for.
 */
#include "vhost_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum answer {
	ON_REQUEST,	 /* only when NEED_REPLY asks for it, and REPLY_ACK was negotiated */
	WITH_SHARED_LOG, /* when LOG_SHMFD was negotiated; else on request */
	ALWAYS,		 /* the handler sends it; a refusal is said as `no` has it */
};

/* The answer to a refused request that always has one. */
enum refusal {
	NO_VALUE,  /* a number, `value` */
	NO_EMPTY,  /* nothing where something is expected */
	NO_ECHO,   /* the request itself, without the descriptor that it asks for */
	NO_ZEROES, /* as many bytes as in the request, all 0 */
	NO_ONES,   /* or all 1 (-1 wherever the front end looks for an id) */
};

struct request {
	const char *name;
	uint16_t min, max; /* bytes of the payload */
	uint8_t fds;	   /* at most */
	enum answer answer;
	enum refusal no;
	uint16_t value;

	/*
	 * NULL: belongs to a feature that is not offered. 0: done; 1: refused, see
	 * message_refuse(); or a negated errno, see message_handle().
	 */
	int (*handle)(struct vhost *vhost, struct message *m);
};

int message_refuse(struct vhost *vhost, const char *fmt, ...)
{
	char why[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	log_limited(LOG_WARN, "%s: request %u of the front end is refused: %s", vhost->device.name,
		    vhost->in.header.request, why);
	return 1;
}

static int reply_u64(struct vhost *vhost, uint64_t value)
{
	return session_reply(vhost, &value, sizeof(value), -1);
}

/* ---- Features ------------------------------------------------------------------------------- */

const uint64_t message_protocol_offered =
	BIT(PROTOCOL_MQ) | BIT(PROTOCOL_LOG_SHMFD) | BIT(PROTOCOL_REPLY_ACK) |
	BIT(PROTOCOL_BACKEND_REQ) | BIT(PROTOCOL_CONFIG) | BIT(PROTOCOL_INFLIGHT_SHMFD) |
	BIT(PROTOCOL_RESET_DEVICE) | BIT(PROTOCOL_CONFIGURE_MEM_SLOTS) | BIT(PROTOCOL_STATUS);

uint64_t message_offered(const struct vhost *vhost)
{
	return vhost->device.features | BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_RING_PACKED) |
	       BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX) |
	       BIT(VHOST_F_LOG_ALL) | BIT(VHOST_USER_F_PROTOCOL_FEATURES);
}

static int get_features(struct vhost *vhost, struct message *m)
{
	(void)m;
	return reply_u64(vhost, message_offered(vhost));
}

static int set_features(struct vhost *vhost, struct message *m)
{
	uint64_t unknown = m->payload.u64 & ~message_offered(vhost);

	vhost->refused = unknown != 0;
	if (unknown)
		return message_refuse(vhost, "features %#llx were not offered",
				      (unsigned long long)unknown);
	vhost->features = m->payload.u64;
	return 0;
}

static int get_protocol_features(struct vhost *vhost, struct message *m)
{
	(void)m;
	return reply_u64(vhost, message_protocol_offered);
}

static int set_protocol_features(struct vhost *vhost, struct message *m)
{
	uint64_t unknown = m->payload.u64 & ~message_protocol_offered;

	if (unknown)
		return message_refuse(vhost, "protocol features %#llx were not offered",
				      (unsigned long long)unknown);
	vhost->protocol = m->payload.u64;
	return 0;
}

static int get_queue_num(struct vhost *vhost, struct message *m)
{
	(void)m;
	return reply_u64(vhost, vhost->device.max_queues);
}

/* ---- The device ----------------------------------------------------------------------------- */

/* The specification would have it ignored: front ends did not agree on what it means. */
static int ignore(struct vhost *vhost, struct message *m)
{
	(void)vhost;
	(void)m;
	return 0;
}

static void end_queues(struct vhost *vhost)
{
	for (unsigned i = 0; i < vhost->device.max_queues; i++)
		queue_end(vhost, &vhost->queues[i]);
}

/*
 * What the driver set up goes. What belongs to the connection stays: protocol features, memory, and
 * the eventfds for calls and errors, which front ends do not send again.
 */
static int reset_device(struct vhost *vhost, struct message *m)
{
	(void)m;
	end_queues(vhost);
	for (unsigned i = 0; i < vhost->device.max_queues; i++) {
		struct queue *queue = &vhost->queues[i];

		queue->num = 0;
		queue->addressed = false;
		queue->based = false;
		queue->enabled = false;
	}
	inflight_close(vhost);
	vhost->features = 0;
	vhost->status = 0;
	return 0;
}

/* Status 0 is the driver's reset: rings must be left alone then. */
static int set_status(struct vhost *vhost, struct message *m)
{
	vhost->status = (uint8_t)m->payload.u64;
	if (!vhost->status)
		end_queues(vhost);
	return 0;
}

static int get_status(struct vhost *vhost, struct message *m)
{
	uint8_t status = vhost->status;

	(void)m;
	if (vhost->refused)
		status &= (uint8_t)~VIRTIO_CONFIG_S_FEATURES_OK;
	for (unsigned i = 0; i < vhost->device.max_queues; i++)
		if (vhost->queues[i].broken)
			status |= VIRTIO_CONFIG_S_NEEDS_RESET;
	return reply_u64(vhost, status);
}

/* 0, or what message_handle() returns. */
static int check_config(struct vhost *vhost, const struct message *m)
{
	const struct wire_config *config = &m->payload.config;

	if (m->header.size - WIRE_CONFIG_MIN != config->bytes)
		return session_fail(vhost, -EPROTO,
				    "a configuration of %u bytes is said to have %u",
				    m->header.size - (uint32_t)WIRE_CONFIG_MIN, config->bytes);
	if (config->offset > VHOST_MAX_CONFIG || config->bytes > VHOST_MAX_CONFIG - config->offset)
		return message_refuse(vhost, "the configuration has only %u bytes",
				      VHOST_MAX_CONFIG);
	return 0;
}

/* Behind the fields that we know there are zeroes: a newer front end may ask for more. */
static int get_config(struct vhost *vhost, struct message *m)
{
	struct wire_config *config = &m->payload.config;
	uint8_t space[VHOST_MAX_CONFIG] = {0};
	int r = check_config(vhost, m);

	if (r)
		return r;
	vhost->device.get_config(vhost->device.arg, space);
	memcpy(config->space, space + config->offset, config->bytes);
	return session_reply(vhost, config, m->header.size, -1);
}

static int set_config(struct vhost *vhost, struct message *m)
{
	const struct wire_config *config = &m->payload.config;
	int r = check_config(vhost, m);

	if (r)
		return r;
	if (!vhost->device.set_config(vhost->device.arg, config->offset, config->space,
				      config->bytes))
		return message_refuse(vhost, "this cannot be written in the configuration");
	return 0;
}

static int set_backend_req_fd(struct vhost *vhost, struct message *m)
{
	int fd = message_take_fd(m, 0);

	if (fd < 0)
		return message_refuse(vhost, "no socket came with it");
	if (!session_is_unix_socket(fd)) {
		close(fd);
		return message_refuse(vhost, "what came with it is not a Unix socket");
	}
	if (vhost->backend >= 0)
		close(vhost->backend);
	vhost->backend = fd;
	return 0;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static int add_region(struct vhost *vhost, struct memory *memory, const struct wire_region *region,
		      int fd)
{
	const char *why = memory_add(memory, region, fd);

	return why ? message_refuse(vhost, "memory of %#llx bytes at guest address %#llx: %s",
				    (unsigned long long)region->bytes,
				    (unsigned long long)region->guest, why)
		   : 0;
}

/* All of the new table, or the old one stays. */
static int set_mem_table(struct vhost *vhost, struct message *m)
{
	uint32_t nr = m->payload.table.nr;
	struct memory memory = {0};
	bool lost = false;
	int r = 0;

	if (nr > WIRE_TABLE_REGIONS || m->header.size != 8 + nr * sizeof(struct wire_region))
		return session_fail(vhost, -EPROTO, "a table of %u regions has %u bytes", nr,
				    m->header.size);
	if (m->nr_fds != nr)
		return message_refuse(vhost, "%u regions came with %u files", nr, m->nr_fds);
	for (uint32_t i = 0; i < nr && !r; i++)
		r = add_region(vhost, &memory, &m->payload.table.regions[i], message_take_fd(m, i));
	if (r) {
		memory_clear(&memory, &lost);
		return r;
	}
	queues_forget(vhost);
	memory_clear(&vhost->memory, &vhost->lost);
	vhost->memory = memory;
	return 0;
}

static int get_max_mem_slots(struct vhost *vhost, struct message *m)
{
	(void)m;
	return reply_u64(vhost, VHOST_MAX_SLOTS);
}

static int add_mem_reg(struct vhost *vhost, struct message *m)
{
	return add_region(vhost, &vhost->memory, &m->payload.slot.region, message_take_fd(m, 0));
}

/* It may have a file by mistake, says the specification. */
static int rem_mem_reg(struct vhost *vhost, struct message *m)
{
	const struct wire_region *region = &m->payload.slot.region;
	const char *why = memory_remove(&vhost->memory, region, &vhost->lost);

	if (why)
		return message_refuse(vhost, "guest address %#llx: %s",
				      (unsigned long long)region->guest, why);
	queues_forget(vhost);
	return 0;
}

/* ---- The table ------------------------------------------------------------------------------ */

#define EXACTLY(n) .min = (n), .max = (n)
#define ANY .max = WIRE_MAX_PAYLOAD, .fds = WIRE_MAX_FDS
#define STATE EXACTLY(sizeof(struct vhost_vring_state))
#define EVENTFD EXACTLY(8), .fds = 1
#define REGION EXACTLY(8 + sizeof(struct wire_region)), .fds = 1
#define CONFIG .min = WIRE_CONFIG_MIN, .max = sizeof(struct wire_config)
#define INFLIGHT .min = WIRE_INFLIGHT_MIN, .max = sizeof(struct wire_inflight)

/* By number; 0 stands for all that are not there. */
static const struct request requests[] = {
	[0] = {"unknown", ANY},
	[1] = {"GET_FEATURES", EXACTLY(0), .answer = ALWAYS, .handle = get_features},
	[2] = {"SET_FEATURES", EXACTLY(8), .handle = set_features},
	[3] = {"SET_OWNER", EXACTLY(0), .handle = ignore},
	[4] = {"RESET_OWNER", EXACTLY(0), .handle = ignore},
	[5] = {"SET_MEM_TABLE", .min = 8, .max = 8 + 8 * sizeof(struct wire_region),
	       .fds = WIRE_TABLE_REGIONS, .handle = set_mem_table},
	[6] = {"SET_LOG_BASE", .min = 8, .max = 16, .fds = 1, .answer = WITH_SHARED_LOG,
	       .handle = handle_set_log_base},
	[7] = {"SET_LOG_FD", .max = 8, .fds = 1, .handle = ignore}, /* nobody waits for it */
	[8] = {"SET_VRING_NUM", STATE, .handle = handle_set_vring_num},
	[9] = {"SET_VRING_ADDR", EXACTLY(sizeof(struct vhost_vring_addr)),
	       .handle = handle_set_vring_addr},
	[10] = {"SET_VRING_BASE", STATE, .handle = handle_set_vring_base},
	[11] = {"GET_VRING_BASE", STATE, .answer = ALWAYS, .no = NO_EMPTY,
		.handle = handle_get_vring_base},
	[12] = {"SET_VRING_KICK", EVENTFD, .handle = handle_set_vring_kick},
	[13] = {"SET_VRING_CALL", EVENTFD, .handle = handle_set_vring_call},
	[14] = {"SET_VRING_ERR", EVENTFD, .handle = handle_set_vring_err},
	[15] = {"GET_PROTOCOL_FEATURES", EXACTLY(0), .answer = ALWAYS,
		.handle = get_protocol_features},
	[16] = {"SET_PROTOCOL_FEATURES", EXACTLY(8), .handle = set_protocol_features},
	[17] = {"GET_QUEUE_NUM", EXACTLY(0), .answer = ALWAYS, .handle = get_queue_num},
	[18] = {"SET_VRING_ENABLE", STATE, .handle = handle_set_vring_enable},
	[19] = {"SEND_RARP", ANY},
	[20] = {"NET_SET_MTU", ANY},
	[21] = {"SET_BACKEND_REQ_FD", EXACTLY(0), .fds = 1, .handle = set_backend_req_fd},
	[22] = {"IOTLB_MSG", ANY, .answer = ALWAYS, .no = NO_VALUE, .value = 1},
	[23] = {"SET_VRING_ENDIAN", ANY},
	[24] = {"GET_CONFIG", CONFIG, .answer = ALWAYS, .no = NO_EMPTY, .handle = get_config},
	[25] = {"SET_CONFIG", CONFIG, .handle = set_config},
	[26] = {"CREATE_CRYPTO_SESSION", ANY, .answer = ALWAYS, .no = NO_ONES},
	[27] = {"CLOSE_CRYPTO_SESSION", ANY},
	[28] = {"POSTCOPY_ADVISE", ANY, .answer = ALWAYS, .no = NO_EMPTY},
	[29] = {"POSTCOPY_LISTEN", ANY},
	[30] = {"POSTCOPY_END", ANY, .answer = ALWAYS, .no = NO_VALUE, .value = 1},
	[31] = {"GET_INFLIGHT_FD", INFLIGHT, .answer = ALWAYS, .no = NO_ZEROES,
		.handle = handle_get_inflight_fd},
	[32] = {"SET_INFLIGHT_FD", INFLIGHT, .fds = 1, .handle = handle_set_inflight_fd},
	[33] = {"GPU_SET_SOCKET", ANY},
	[34] = {"RESET_DEVICE", EXACTLY(0), .handle = reset_device},
	[35] = {"VRING_KICK", ANY},
	[36] = {"GET_MAX_MEM_SLOTS", EXACTLY(0), .answer = ALWAYS, .handle = get_max_mem_slots},
	[37] = {"ADD_MEM_REG", REGION, .handle = add_mem_reg},
	[38] = {"REM_MEM_REG", REGION, .handle = rem_mem_reg},
	[39] = {"SET_STATUS", EXACTLY(8), .handle = set_status},
	[40] = {"GET_STATUS", EXACTLY(0), .answer = ALWAYS, .handle = get_status},
	[41] = {"GET_SHARED_OBJECT", ANY, .answer = ALWAYS, .no = NO_ECHO},
	/* An error in the low byte, and "no descriptor". */
	[42] = {"SET_DEVICE_STATE_FD", ANY, .answer = ALWAYS, .no = NO_VALUE, .value = 0x101},
	[43] = {"CHECK_DEVICE_STATE", ANY, .answer = ALWAYS, .no = NO_VALUE, .value = 1},
	/* Number of regions, padding, and no region. */
	[44] = {"GET_SHMEM_CONFIG", ANY, .answer = ALWAYS, .no = NO_VALUE, .value = 0},
};

static const struct request *find(uint32_t number)
{
	return &requests[number < sizeof(requests) / sizeof(requests[0]) ? number : 0];
}

static int check_form(struct vhost *vhost, const struct request *request, const struct message *m)
{
	if (m->header.size < request->min || m->header.size > request->max)
		return session_fail(vhost, -EPROTO, "request %u (%s) has %u bytes, not %u to %u",
				    m->header.request, request->name, m->header.size, request->min,
				    request->max);
	if (m->nr_fds > request->fds)
		return session_fail(vhost, -EPROTO,
				    "request %u (%s) has %u descriptors, more than %u",
				    m->header.request, request->name, m->nr_fds, request->fds);
	return 0;
}

static int say_no(struct vhost *vhost, const struct request *request, struct message *m)
{
	switch (request->no) {
	case NO_EMPTY:
		return session_reply(vhost, NULL, 0, -1);
	case NO_ZEROES:
		memset(&m->payload, 0, m->header.size);
		return session_reply(vhost, &m->payload, m->header.size, -1);
	case NO_ONES:
		memset(&m->payload, 0xff, m->header.size);
		return session_reply(vhost, &m->payload, m->header.size, -1);
	case NO_ECHO:
		return session_reply(vhost, &m->payload, m->header.size, -1);
	case NO_VALUE:
		break;
	}
	return reply_u64(vhost, request->value);
}

static int answer(struct vhost *vhost, const struct request *request, struct message *m,
		  bool refused)
{
	bool asked = m->header.flags & WIRE_NEED_REPLY && vhost->protocol & BIT(PROTOCOL_REPLY_ACK);

	if (request->answer == WITH_SHARED_LOG)
		asked |= !!(vhost->protocol & BIT(PROTOCOL_LOG_SHMFD));
	if (request->answer == ALWAYS)
		return refused ? say_no(vhost, request, m) : 0;
	return asked ? reply_u64(vhost, refused) : 0;
}

int message_handle(struct vhost *vhost)
{
	struct message *m = &vhost->in;
	const struct request *request = find(m->header.request);
	int r = check_form(vhost, request, m);

	if (!r)
		r = request->handle ? request->handle(vhost, m)
				    : message_refuse(vhost, "%s was not offered", request->name);
	if (r < 0)
		return r;
	queues_update(vhost);
	return answer(vhost, request, m, r);
}
