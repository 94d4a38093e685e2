// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * liar: a front end of the device `tmem` that does not keep to the rules, see docs/xen.md. Needs
 * /dev/xen/gntalloc, /dev/xen/evtchn and the program xs.
 *
 *   liar LIE [SECONDS]
 *
 * Offers a region in which something is wrong, or has a sane one connected and then misbehaves for
 * some seconds. Prints "LIE STATE", what the service's end came to: 4 it was connected, 6 refused.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The kernel's header wants it, and only Xen's own, which need not be there, has it. */
typedef uint16_t domid_t;
#include <xen/evtchn.h>
#include <xen/gntalloc.h>

#include "tmem_abi.h"

#define DEVICE "device/tmem/0"
#define PAGES 256u
#define ENTRIES 64u
#define SERVICE 0 /* the domain that may have a grant */

static uint8_t *region;
static uint32_t *directory;
static uint32_t refs[PAGES];
static uint32_t directory_ref;
static int gntalloc, evtchn;
static int port;
static unsigned own; /* the domain's number */
static unsigned seconds;

static int node(const char *name, long value)
{
	char command[128];

	snprintf(command, sizeof(command), "xs write " DEVICE "/%s %ld", name, value);
	return system(command);
}

/* The state of the service's end, 0 when there is none. */
static int service_state(void)
{
	FILE *f = popen("xs read $(xs read " DEVICE "/backend)/state 2> /dev/null", "r");
	int state = 0;

	if (f && fscanf(f, "%d", &state) != 1)
		state = 0;
	if (f)
		pclose(f);
	return state;
}

static int wait_state(int a, int b)
{
	int state = 0;

	for (int tries = 0; tries < 100; tries++) {
		state = service_state();
		if (state == a || state == b)
			break;
		usleep(100000);
	}
	return state;
}

static void *grant(unsigned domain, unsigned count, bool writable, uint32_t *to)
{
	struct ioctl_gntalloc_alloc_gref *r = calloc(1, sizeof(*r) + count * sizeof(uint32_t));
	void *memory = MAP_FAILED;

	r->domid = (uint16_t)domain;
	r->flags = writable ? GNTALLOC_FLAG_WRITABLE : 0;
	r->count = count;
	if (!ioctl(gntalloc, IOCTL_GNTALLOC_ALLOC_GREF, r)) {
		memcpy(to, r->gref_ids, count * sizeof(uint32_t));
		memory = mmap(NULL, count * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, gntalloc,
			      (off_t)r->index);
	}
	if (memory == MAP_FAILED) {
		perror("liar: grants");
		exit(2);
	}
	free(r);
	return memory;
}

static int channel(unsigned domain)
{
	struct ioctl_evtchn_bind_unbound_port bind = {.remote_domain = domain};
	int number = ioctl(evtchn, IOCTL_EVTCHN_BIND_UNBOUND_PORT, &bind);

	if (number < 0) {
		perror("liar: event channel");
		exit(2);
	}
	return number;
}

/* Everything that a connection needs, but for what the lie is about. */
static void prepare(const char *lie)
{
	unsigned domain = strcmp(lie, "foreign") ? SERVICE : own - 1;

	region = grant(domain, PAGES, strcmp(lie, "readonly"), refs);
	directory = grant(SERVICE, 1, true, &directory_ref);
	port = channel(strcmp(lie, "channel-foreign") ? SERVICE : own - 1);
	memset(region, 0, PAGES * 4096);
	for (unsigned i = 0; i < PAGES; i++) {
		directory[i] = refs[i];
		if (!strcmp(lie, "same"))
			directory[i] = refs[0];
		if (!strcmp(lie, "ungranted"))
			directory[i] = 30000 + i;
		if (!strcmp(lie, "huge"))
			directory[i] = 0xfffffff0u - i;
	}
	if (!strcmp(lie, "directory"))
		directory_ref = 30000;
	if (!strcmp(lie, "channel"))
		port = 1000;
	if (!strcmp(lie, "channel-own"))
		port = 1; /* xenstore's or the console's, which dom0 is at the other end of */
}

/* The state that the service's end comes to. */
static int offer(void)
{
	node("state", 1);
	wait_state(2, 2);
	node("region-bytes", PAGES * 4096);
	node("rings", 1);
	node("directory-ref-0", directory_ref);
	node("event-channel-0", port);
	node("state", 3);
	return wait_state(4, 6);
}

/* ---- What a connected one does ----------------------------------------------------------------
 */

static bool time_is_left(void)
{
	static struct timespec start;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!start.tv_sec)
		start = now;
	return now.tv_sec - start.tv_sec < (time_t)seconds;
}

static void ring(void)
{
	struct ioctl_evtchn_notify notify = {.port = (unsigned)port};

	ioctl(evtchn, IOCTL_EVTCHN_NOTIFY, &notify);
}

static void hello(uint64_t epoch)
{
	struct tmem_region *r = (struct tmem_region *)region;

	r->guest_state = TMEM_GUEST_NONE;
	__sync_synchronize();
	r->abi = TMEM_ABI_VERSION;
	r->features = TMEM_F_POSTED;
	r->nr_rings = 1;
	r->entries = ENTRIES;
	r->guest_epoch = epoch;
	__atomic_store_n(&r->guest_state, TMEM_GUEST_HELLO, __ATOMIC_RELEASE);
	ring();
	for (int i = 0; i < 300 && __atomic_load_n(&r->answered_epoch, __ATOMIC_ACQUIRE) != epoch;
	     i++)
		usleep(10000);
}

static void fill_random(void *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)(rand() >> 7);
}

/* Entries of random bytes in order, some nearly sane; and now and then a tail that breaks the ring.
 */
static void garbage(void)
{
	uint8_t *base = region + tmem_ring_off(0, ENTRIES);
	struct tmem_ring_ctl *ctl = (struct tmem_ring_ctl *)base;
	uint16_t *sq = (uint16_t *)(base + tmem_ring_sq_off());
	struct tmem_entry *entry = (struct tmem_entry *)(base + tmem_ring_entries_off(ENTRIES));
	uint32_t tail = 0;
	uint64_t epoch = 1;

	hello(epoch);
	while (time_is_left()) {
		for (unsigned i = 0; i < ENTRIES / 2; i++, tail++) {
			struct tmem_entry *e = &entry[tail % ENTRIES];

			fill_random(e, sizeof(*e));
			if (rand() & 64) {
				memset(e, 0, sizeof(*e));
				e->op = (uint8_t)(rand() >> 8 & 7);
				e->pool = (uint32_t)(rand() >> 8 & 3);
				e->index = e->op == TMEM_NEW_POOL ? 1u << TMEM_POOL_VERSION_SHIFT
								  : (uint32_t)rand();
				e->seq = tail + 1;
			}
			sq[tail % ENTRIES] = (uint16_t)(tail % ENTRIES);
		}
		ctl->cq_event = (uint32_t)rand();
		ctl->credits = (uint32_t)rand();
		__atomic_store_n(&ctl->sq_tail, tail, __ATOMIC_RELEASE);
		ring();
		usleep(2000);
		if (rand() % 64)
			continue;
		ctl->sq_tail = (uint32_t)rand();
		ring();
		usleep(100000);
		tail = 0;
		hello(++epoch);
	}
}

/* All of the region, the service's lines too. */
static void scribble(void)
{
	hello(1);
	while (time_is_left()) {
		fill_random(region, 3 * 4096);
		ring();
	}
}

static void flood(void)
{
	while (time_is_left())
		for (int i = 0; i < 1000; i++)
			ring();
}

static void flip(void)
{
	while (time_is_left()) {
		node("state", rand() >> 8 & 7);
		node("state", 3);
	}
}

static void misbehave(const char *lie)
{
	if (!strcmp(lie, "garbage"))
		garbage();
	else if (!strcmp(lie, "scribble"))
		scribble();
	else if (!strcmp(lie, "flood"))
		flood();
	else if (!strcmp(lie, "flip"))
		flip();
	else if (!strcmp(lie, "revoke"))
		munmap(region, PAGES * 4096);
}

int main(int argc, char **argv)
{
	const char *lie = argc > 1 ? argv[1] : "";
	FILE *f = popen("xs read domid", "r");

	if (argc < 2 || !f || fscanf(f, "%u", &own) != 1) {
		fprintf(stderr, "usage: liar LIE [SECONDS]\n");
		return 2;
	}
	pclose(f);
	seconds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	gntalloc = open("/dev/xen/gntalloc", O_RDWR);
	evtchn = open("/dev/xen/evtchn", O_RDWR);
	if (gntalloc < 0 || evtchn < 0) {
		perror("liar: /dev/xen");
		return 2;
	}
	prepare(lie);
	printf("VALUE lie=%s state=%d\n", lie, offer());
	fflush(stdout);
	misbehave(lie);
	node("state", 6);
	wait_state(6, 6);
	return 0;
}
