// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The link to the service: the hello, and from then on whether the service is there.
 *
 * One thread does it all, and drains what is pending (pools, flushes) while the service is up. It
 * never waits for the service, so it always notices when the service goes and when it comes back.
 *
 * A life of this guest at the service is named by a random epoch. It ends when the service says
 * that it does not have what this life had stored (its arena is gone), or after hibernation. The
 * next one begins when no accepted page is held any more: until then whoever needs a lost page
 * waits, and a new life must not answer in the place of the old one.
 */
#include "tmem_priv.h"

#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/seq_file.h>

#define BUSY_TICK (HZ / 50)	/* something is left to do */
#define IDLE_TICK (HZ / 10)	/* the heartbeat is looked at this often */
#define HELLO_AGAIN (HZ)	/* an unanswered hello is rung again */
#define FORMER_AGAIN (2 * HZ)	/* the pages of a former life are asked for again */
#define REFUSED_AGAIN (10 * HZ) /* a refused one is repeated */

enum link_state {
	LINK_NONE,  /* no region */
	LINK_SEEK,  /* waits for a service to say hello to */
	LINK_HELLO, /* said hello, waits for the answer */
	LINK_OPEN,  /* the rings are ours */
	LINK_AWAY,  /* the machine was moved, and there is no region yet */
	LINK_ENDED, /* this life is over, what it held is lost */
	LINK_GONE,  /* the device or the system is going away */
};

static const char *const state_names[] = {
	"no device", "waiting for the service", "hello", "open", "moved", "lost", "gone",
};

static struct link {
	enum link_state state; /* the thread's; from NONE and GONE, tmem_link_attach()'s */
	const struct tmem_transport *transport;
	struct tmem_region *region;
	u64 size;
	u32 vectors; /* that the transport can receive */
	struct task_struct *thread;
	unsigned long kicked;
	/* What was agreed. */
	u64 epoch;
	u64 former; /* the life that is to go on, its rings paused; 0: none */
	u64 maybe;  /* ... or this one, whose answer was not seen; 0: none */
	u64 offer;  /* that the hello answered */
	u64 features;
	u32 rings;
	u32 entries;
	u32 nr_vectors;
	u32 service_peer;
	/* What was seen of the service. */
	u64 service_epoch;
	u64 heartbeat;
	unsigned long heartbeat_at; /* jiffies */
	unsigned long hello_at;
	u32 refusal; /* last one reported */
	bool up;
	bool polling;
	/* Asked of the thread. */
	bool suspended;
	bool renew;
	bool move;
	bool detach;
} link;

bool tmem_link_up(void)
{
	return READ_ONCE(link.up) && !READ_ONCE(link.suspended);
}

bool tmem_link_polling(void)
{
	return READ_ONCE(link.polling);
}

bool tmem_link_credits(void)
{
	return READ_ONCE(link.features) & TMEM_F_POSTED;
}

bool tmem_link_can_move(void)
{
	return READ_ONCE(link.features) & TMEM_F_RESUME;
}

bool tmem_link_suspended(void)
{
	return READ_ONCE(link.suspended);
}

bool tmem_link_gone(void)
{
	return READ_ONCE(link.detach);
}

void tmem_link_kick(void)
{
	if (!test_and_set_bit(0, &link.kicked) && link.thread)
		wake_up_process(link.thread);
}

void tmem_link_doorbell(u32 ring)
{
	u32 vectors = READ_ONCE(link.nr_vectors);

	link.transport->doorbell(link.transport->data, READ_ONCE(link.service_peer),
				 ring % vectors);
}

void tmem_link_interrupt(u32 vector)
{
	u32 i, rings = tmem_rings_number(), step = READ_ONCE(link.nr_vectors);

	tmem_count(interrupts);
	for (i = vector; i < rings; i += step)
		tmem_ring_reap(tmem_ring_get(i), false);
}

/* ---- Hello ------------------------------------------------------------------------------------
 */

/* A life that goes on has its pages in the slots of these rings. */
static bool former_fits(u32 max_rings, u32 max_entries)
{
	return link.rings <= max_rings && link.entries <= max_entries &&
	       (link.vectors >= link.nr_vectors || link.rings <= link.vectors) &&
	       tmem_region_need(link.rings, link.entries) <= link.size;
}

/* Rings and entries that the offer, the region and the interrupts allow; false when none. */
static bool choose_sizes(u32 max_rings, u32 max_entries)
{
	u32 rings = min3(num_possible_cpus(), max_rings, TMEM_MAX_RINGS);
	u32 entries = min(max_entries, TMEM_MAX_ENTRIES);

	if (link.former)
		return former_fits(max_rings, max_entries);
	if (link.vectors < link.nr_vectors)
		rings = min(rings, link.vectors);
	if (link.rings) { /* what was allocated in an earlier life */
		rings = min(rings, link.rings);
		entries = min(entries, link.entries);
	}
	if (!rings || entries < TMEM_MIN_ENTRIES)
		return false;
	entries = rounddown_pow_of_two(entries);
	while (tmem_region_need(rings, entries) > link.size) {
		if (entries > 4 * TMEM_MIN_ENTRIES || rings == 1)
			entries /= 2;
		else
			rings--;
		if (entries < TMEM_MIN_ENTRIES)
			return false;
	}
	if (tmem_rings_alloc(rings, entries))
		return false;
	link.rings = rings;
	link.entries = entries;
	return true;
}

/* Reads the offer. False when there is none or it does not suit. */
static bool read_offer(void)
{
	struct tmem_region *region = link.region;
	u32 state = virt_load_acquire(&region->service_state);
	u32 abi_min = READ_ONCE(region->abi_min), abi_max = READ_ONCE(region->abi_max);
	u64 size = READ_ONCE(region->region_size), features;

	if (READ_ONCE(region->magic) != TMEM_REGION_MAGIC || state == TMEM_SERVICE_DOWN)
		return false;
	link.nr_vectors = max(READ_ONCE(region->nr_vectors), 1u);
	link.service_peer = READ_ONCE(region->service_peer);
	link.offer = READ_ONCE(region->offer);
	features = READ_ONCE(region->features_offered) & (TMEM_F_POSTED | TMEM_F_RESUME);
	/* What was agreed holds for what is outstanding. */
	if (link.former && features != link.features)
		pr_err_ratelimited("the service offers features %llx, this life has %llx\n",
				   features, link.features);
	if (link.former && features != link.features)
		return false;
	link.features = features;
	if (abi_min > TMEM_ABI_VERSION || abi_max < TMEM_ABI_VERSION)
		pr_err_ratelimited("the service speaks versions %u to %u, this module version %u\n",
				   abi_min, abi_max, TMEM_ABI_VERSION);
	else if (size > link.size)
		pr_err_ratelimited("the service's region has %llu bytes, the device's %llu\n", size,
				   link.size);
	else if (choose_sizes(READ_ONCE(region->max_rings), READ_ONCE(region->max_entries)))
		return true;
	else
		pr_err_ratelimited(
			"%u rings of %u pages do not fit into the region of %llu bytes\n",
			link.rings, link.entries, link.size);
	return false;
}

static void say_hello(void)
{
	struct tmem_region *region = link.region;

	if (time_before(jiffies, link.hello_at) || !read_offer())
		return;
	do
		link.epoch = get_random_u64();
	while (!link.epoch);
	virt_store_release(&region->guest_state, TMEM_GUEST_NONE);
	virt_mb();
	WRITE_ONCE(region->abi, TMEM_ABI_VERSION);
	WRITE_ONCE(region->features, link.features);
	WRITE_ONCE(region->nr_rings, link.rings);
	WRITE_ONCE(region->entries, link.entries);
	WRITE_ONCE(region->guest_epoch, link.epoch);
	WRITE_ONCE(region->former_epoch, link.former);
	WRITE_ONCE(region->hello_offer, link.offer);
	virt_store_release(&region->guest_state, TMEM_GUEST_HELLO);
	virt_mb();
	tmem_link_doorbell(0);
	link.hello_at = jiffies + HELLO_AGAIN;
	link.state = LINK_HELLO;
}

static void report_refusal(void)
{
	u32 refusal = READ_ONCE(link.region->refusal);

	if (refusal != link.refusal)
		pr_err("the service refused: reason %u, our value %llu, its value %llu\n", refusal,
		       READ_ONCE(link.region->refused_guest),
		       READ_ONCE(link.region->refused_service));
	link.refusal = refusal;
}

static void look_at_service(void)
{
	u64 heartbeat = READ_ONCE(link.region->heartbeat);

	if (heartbeat != link.heartbeat) {
		link.heartbeat = heartbeat;
		link.heartbeat_at = jiffies;
	}
	WRITE_ONCE(link.polling, READ_ONCE(link.region->polling) != 0);
}

static void end_life(const char *why);

/*
 * The pages of the life that is to go on are not here (yet): asks again as long as one is missed.
 * What this life had at a service that has lost it is missed in the same way.
 */
static void refused(void)
{
	report_refusal();
	if (link.former && link.maybe)
		swap(link.former, link.maybe);
	link.state = LINK_SEEK;
	link.hello_at = jiffies + (link.former ? FORMER_AGAIN : REFUSED_AGAIN);
	if (link.former && !tmem_pools_held())
		end_life("the service does not have what this life had stored");
}

static void answered(void)
{
	struct tmem_region *region = link.region;

	link.refusal = 0;
	link.service_epoch = READ_ONCE(region->service_epoch);
	link.heartbeat_at = jiffies;
	if (link.former)
		tmem_rings_resume(region, link.rings, link.entries);
	else
		tmem_rings_open(region, link.rings, link.entries);
	pr_info("connected%s: %u rings of %u pages, %s\n", link.former ? " again" : "", link.rings,
		link.entries, link.features & TMEM_F_POSTED ? "posted puts" : "no posted puts");
	if (!link.former)
		tmem_count(lives);
	link.former = 0;
	link.maybe = 0;
	link.state = LINK_OPEN;
}

/* The former life said a hello, and nobody knows whether it was heard before it was moved. */
static void say_hello_again(void)
{
	if (link.former && !link.maybe)
		link.maybe = link.epoch;
	link.hello_at = jiffies;
	link.state = LINK_SEEK;
}

static void wait_for_answer(void)
{
	struct tmem_region *region = link.region;

	if (virt_load_acquire(&region->answered_epoch) != link.epoch) {
		/* The hello was said to a copy of another service's words. */
		if (READ_ONCE(region->offer) != link.offer) {
			say_hello_again();
		} else if (time_after(jiffies, link.hello_at)) {
			link.hello_at = jiffies + HELLO_AGAIN;
			link.service_peer = READ_ONCE(region->service_peer);
			tmem_link_doorbell(0);
		}
		return;
	}
	if (READ_ONCE(region->service_state) == TMEM_SERVICE_REFUSED)
		refused();
	else if (READ_ONCE(region->service_state) == TMEM_SERVICE_CONNECTED)
		answered();
}

/* ---- While the rings are ours ------------------------------------------------------------------
 */

static bool service_forgot(void)
{
	u32 state = virt_load_acquire(&link.region->service_state);
	bool ours = READ_ONCE(link.region->answered_epoch) == link.epoch;

	return ours ? state == TMEM_SERVICE_REFUSED : state == TMEM_SERVICE_LISTENING;
}

static void set_up(bool up)
{
	if (up == link.up)
		return;
	WRITE_ONCE(link.up, up);
	if (up)
		pr_info("the service is there\n");
	else
		pr_warn("the service is away: new pages go to the disk, those it has wait\n");
}

static void service_came_back(u64 epoch)
{
	u32 i;

	link.service_epoch = epoch;
	link.service_peer = READ_ONCE(link.region->service_peer);
	tmem_count(service_restarts);
	for (i = 0; i < link.rings; i++)
		tmem_ring_reap(tmem_ring_get(i), true);
}

static void end_life(const char *why)
{
	set_up(false);
	tmem_rings_close();
	link.former = 0;
	link.maybe = 0;
	link.state = LINK_ENDED;
	pr_warn("%s; %ld pages were held\n", why, tmem_pools_held());
}

/* The service does not know this life. Another one may, where the machine is now. */
static void look_for_former(void)
{
	set_up(false);
	tmem_rings_pause();
	link.former = link.epoch;
	link.hello_at = jiffies;
	link.state = LINK_SEEK;
	pr_warn("the service does not have this guest's pages; %ld are held\n", tmem_pools_held());
}

/* True when something is left to do soon. */
static bool drain(void)
{
	struct tmem_ring *ring = tmem_ring_here();
	bool left;
	u32 i;

	for (i = 0; i < link.rings; i++)
		tmem_ring_reap(tmem_ring_get(i), false);
	tmem_pools_step();
	left = tmem_frontswap_step();
	left |= tmem_flush_step();
	for (i = 0; i < link.rings; i++)
		tmem_ring_tell(tmem_ring_get(i));
	if (left && ring)
		tmem_ring_wait_room(ring, link.entries / 2, BUSY_TICK);
	return left;
}

static bool watch(void)
{
	u64 epoch = READ_ONCE(link.region->service_epoch);
	bool fresh;

	if (service_forgot()) {
		report_refusal();
		if (tmem_link_can_move() && link.refusal != TMEM_REFUSED_RING)
			look_for_former();
		else
			end_life("the service does not have this guest's pages any more");
		return false;
	}
	if (epoch != link.service_epoch)
		service_came_back(epoch);
	fresh = time_before(jiffies, link.heartbeat_at +
					     msecs_to_jiffies(READ_ONCE(tmem_service_timeout_ms)));
	set_up(fresh && READ_ONCE(link.region->mapped) &&
	       READ_ONCE(link.region->service_state) == TMEM_SERVICE_CONNECTED);
	return link.up && !link.suspended && drain();
}

/* The next life begins when nothing of this one is missed any more. */
static void begin_new_life(void)
{
	if (tmem_pools_held() || !tmem_rings_idle())
		return;
	tmem_pools_new_life();
	tmem_flush_new_life();
	link.hello_at = jiffies;
	link.state = LINK_SEEK;
	WRITE_ONCE(link.suspended, false);
}

/* Region and doorbells went with the machine's former host. */
static void move(void)
{
	set_up(false);
	if (link.state == LINK_OPEN) {
		tmem_rings_pause();
		link.former = link.epoch;
	} else if (link.state == LINK_HELLO) {
		say_hello_again();
	}
	WRITE_ONCE(link.move, false);
	smp_store_release(&link.state, LINK_AWAY);
}

static bool link_step(void)
{
	if (link.move && !READ_ONCE(link.detach)) {
		move();
		return false;
	}
	if (link.state != LINK_NONE && READ_ONCE(link.detach)) {
		if (link.state != LINK_GONE) {
			set_up(false);
			tmem_rings_close();
			link.former = 0;
			link.maybe = 0;
			smp_store_release(&link.state, LINK_GONE);
		}
		return false;
	}
	if (link.state != LINK_NONE && link.state != LINK_AWAY)
		look_at_service();
	if (link.renew) {
		link.renew = false;
		if (link.state == LINK_OPEN || link.state == LINK_HELLO)
			end_life("a new life begins after hibernation");
		else
			WRITE_ONCE(link.suspended, false);
	}
	switch (link.state) {
	case LINK_SEEK:
		say_hello();
		return link.state == LINK_HELLO;
	case LINK_HELLO:
		wait_for_answer();
		return true;
	case LINK_OPEN:
		return watch();
	case LINK_ENDED:
		begin_new_life();
		return false;
	default:
		return false;
	}
}

static int link_thread(void *unused)
{
	while (!kthread_should_stop()) {
		clear_bit(0, &link.kicked);
		smp_mb__after_atomic();
		if (link_step()) {
			schedule_timeout_idle(1);
			continue;
		}
		set_current_state(TASK_IDLE);
		if (!test_bit(0, &link.kicked) && !kthread_should_stop())
			schedule_timeout(link.state == LINK_OPEN ? IDLE_TICK : IDLE_TICK / 2);
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/* ---- From outside ------------------------------------------------------------------------------
 */

static DEFINE_MUTEX(attach_lock);

int tmem_link_attach(const struct tmem_transport *transport, void *region, u64 size, u32 vectors)
{
	u64 magic = READ_ONCE(((struct tmem_region *)region)->magic);
	bool again;
	int rc = 0;

	/* All zero: a service will yet come. Anything else is somebody else's shared memory. */
	if (magic && magic != TMEM_REGION_MAGIC)
		return -ENODEV;
	if (size < tmem_region_need(1, TMEM_MIN_ENTRIES) || !vectors)
		return -ENODEV;
	mutex_lock(&attach_lock);
	if (link.state != LINK_NONE && link.state != LINK_GONE && link.state != LINK_AWAY) {
		rc = -EBUSY;
	} else {
		/* After one was unplugged, first what belonged to that has to end. */
		again = link.state == LINK_GONE;
		link.transport = transport;
		link.region = region;
		link.size = size;
		link.vectors = vectors;
		link.nr_vectors = 1;
		link.heartbeat = 0;
		link.hello_at = jiffies;
		WRITE_ONCE(link.detach, false);
		smp_store_release(&link.state, again ? LINK_ENDED : LINK_SEEK);
	}
	mutex_unlock(&attach_lock);
	tmem_link_kick();
	return rc;
}

void tmem_link_detach(bool say_goodbye)
{
	WRITE_ONCE(link.detach, true);
	WRITE_ONCE(link.up, false);
	if (say_goodbye && link.state != LINK_NONE) {
		virt_store_release(&link.region->guest_state, TMEM_GUEST_BYE);
		virt_mb();
		tmem_link_doorbell(0);
	}
	tmem_link_kick();
}

bool tmem_link_move(void)
{
	unsigned int tries = 500;
	enum link_state state = smp_load_acquire(&link.state);

	if (READ_ONCE(link.detach) || (state == LINK_OPEN && !tmem_link_can_move()) ||
	    state == LINK_NONE || state == LINK_GONE || state == LINK_ENDED)
		return false;
	WRITE_ONCE(link.move, true);
	tmem_link_kick();
	while (READ_ONCE(link.move) && --tries)
		msleep(10);
	return tries;
}

void tmem_link_quiet(bool quiet)
{
	unsigned int tries = quiet && tmem_link_up() ? 200 : 0, i;

	tmem_rings_quiet(quiet);
	for (; tries && !tmem_rings_idle(); tries--) {
		for (i = 0; i < tmem_rings_number(); i++) {
			tmem_ring_tell(tmem_ring_get(i));
			tmem_ring_reap(tmem_ring_get(i), true);
		}
		msleep(10);
	}
}

bool tmem_link_over(void)
{
	enum link_state state = smp_load_acquire(&link.state);

	return (state == LINK_NONE || state == LINK_GONE) && tmem_rings_idle();
}

int tmem_link_suspend(void)
{
	WRITE_ONCE(link.suspended, true);
	tmem_rings_barrier();
	if (!tmem_pools_held())
		return 0;
	WRITE_ONCE(link.suspended, false);
	return -EBUSY;
}

void tmem_link_resume(void)
{
	if (!READ_ONCE(link.suspended))
		return;
	WRITE_ONCE(link.renew, true);
	tmem_link_kick();
}

void tmem_link_wait_up(void)
{
	unsigned long end = jiffies + HZ;

	if (smp_load_acquire(&link.state) == LINK_NONE ||
	    READ_ONCE(link.region->magic) != TMEM_REGION_MAGIC)
		return;
	while (!tmem_link_up() && time_before(jiffies, end))
		msleep(10);
}

int tmem_link_setup(void)
{
	struct task_struct *thread = kthread_run(link_thread, NULL, "tmem");

	if (IS_ERR(thread))
		return PTR_ERR(thread);
	link.thread = thread;
	return 0;
}

void tmem_link_stop(void)
{
	if (link.thread)
		kthread_stop(link.thread);
	link.thread = NULL;
}

void tmem_link_show(struct seq_file *m)
{
	seq_printf(m, "link: %s\n", state_names[link.former ? LINK_AWAY : link.state]);
	seq_printf(m, "transport: %s\n", link.transport ? link.transport->name : "none");
	seq_printf(m, "service_up: %d\n", tmem_link_up());
	seq_printf(m, "polling: %d\n", tmem_link_polling());
	seq_printf(m, "epoch: %016llx\n", link.epoch);
	seq_printf(m, "service_epoch: %llu\n", link.service_epoch);
	seq_printf(m, "rings: %u\n", tmem_rings_number());
	seq_printf(m, "entries: %u\n", link.entries);
	seq_printf(m, "held_pages: %ld\n", tmem_pools_held());
}
