// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Transport: the device `tmem` of Xen, see docs/xen.md. The region is memory of this guest, every
 * page of it granted to the service's domain; event channels are the doorbells in both directions.
 *
 * The bus calls one function at a time. The region stays when the device goes: a doorbell may just
 * be rung on another processor, and a service that does not let go still writes there.
 */
#include "tmem_priv.h"

#include <linux/delay.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <xen/events.h>
#include <xen/grant_table.h>
#include <xen/page.h>
#include <xen/xen.h>
#include <xen/xenbus.h>

#define MIN_REGION (1u << 20)
#define SHARE_OF_MEMORY 32 /* the region takes no more than this part of the guest's memory */
#define PAGE_REFS (TMEM_PAGE_SIZE / sizeof(__le32))
#define MAX_DIRECTORIES 16
#define NO_REF ((grant_ref_t)-1)

/* One region and all that it was granted by. */
struct shared {
	void *region;
	u32 bytes;
	u32 pages;
	u32 nr_directories;
	grant_ref_t *refs; /* of the pages, then of the directories */
	__le32 *directory[MAX_DIRECTORIES];
};

static struct xenbus_device *attached;
static struct shared shared;
static u32 nr_vectors;
static evtchn_port_t ports[TMEM_MAX_RINGS]; /* 0: none */
static int irqs[TMEM_MAX_RINGS];
static bool moved;  /* the region has a life that goes on with the next connection */
static bool linked; /* tmem_link_attach() was called for this connection */
static DECLARE_WAIT_QUEUE_HEAD(settled_wait);
static bool settled; /* the first connection came about, or did not */

static void doorbell(void *data, u32 peer, u32 vector)
{
	evtchn_port_t port = vector < TMEM_MAX_RINGS ? READ_ONCE(ports[vector]) : 0;

	if (port)
		notify_remote_via_evtchn(port);
}

static const struct tmem_transport transport = {
	.name = "xen",
	.doorbell = doorbell,
};

/* Xen also rings, the first one, when the service's mapping goes. */
static irqreturn_t interrupt(int irq, void *vector)
{
	const struct tmem_region *region = shared.region;

	if (!READ_ONCE(region->mapped))
		tmem_link_kick();
	tmem_link_interrupt((unsigned long)vector - 1);
	return IRQ_HANDLED;
}

/* ---- Grants ---------------------------------------------------------------------------------- */

static int end_access(grant_ref_t ref)
{
#ifdef TMEM_XEN_END_READONLY
	return gnttab_end_foreign_access_ref(ref, 0);
#else
	return gnttab_end_foreign_access_ref(ref);
#endif
}

/* The page of the vmalloc()ed region, or of a directory, that reference i is for. */
static struct page *page_of(u32 i)
{
	if (i < shared.pages)
		return vmalloc_to_page(shared.region + (size_t)i * TMEM_PAGE_SIZE);
	return virt_to_page(shared.directory[i - shared.pages]);
}

/* True when nobody has any of it mapped any more. */
static bool revoke(void)
{
	u32 i, left = 0;

	for (i = 0; i < shared.pages + shared.nr_directories; i++) {
		if (shared.refs[i] == NO_REF)
			continue;
		if (!end_access(shared.refs[i])) {
			left++;
			continue;
		}
		gnttab_free_grant_reference(shared.refs[i]);
		shared.refs[i] = NO_REF;
	}
	if (left)
		pr_warn("the service's domain still has %u pages mapped\n", left);
	return !left;
}

static int grant(domid_t domain)
{
	u32 i;
	int ref;

	for (i = 0; i < shared.pages + shared.nr_directories; i++) {
		ref = gnttab_grant_foreign_access(domain, xen_page_to_gfn(page_of(i)), 0);
		if (ref < 0)
			return ref;
		shared.refs[i] = ref;
		if (i < shared.pages)
			shared.directory[i / PAGE_REFS][i % PAGE_REFS] = cpu_to_le32(ref);
	}
	return 0;
}

static void free_shared(void)
{
	u32 i;

	for (i = 0; i < shared.nr_directories; i++)
		free_page((unsigned long)shared.directory[i]);
	kvfree(shared.refs);
	vfree(shared.region);
	memset(&shared, 0, sizeof(shared));
}

static int alloc_shared(u32 bytes)
{
	u32 i;

	shared.bytes = bytes;
	shared.pages = bytes / TMEM_PAGE_SIZE;
	shared.region = vzalloc(bytes);
	shared.refs = kvcalloc(shared.pages + MAX_DIRECTORIES, sizeof(*shared.refs), GFP_KERNEL);
	if (!shared.region || !shared.refs)
		goto fail;
	for (i = 0; i < shared.pages + MAX_DIRECTORIES; i++)
		shared.refs[i] = NO_REF;
	for (i = 0; i < DIV_ROUND_UP(shared.pages, PAGE_REFS); i++) {
		shared.directory[i] = (__le32 *)get_zeroed_page(GFP_KERNEL);
		if (!shared.directory[i])
			goto fail;
		shared.nr_directories++;
	}
	return 0;
fail:
	free_shared();
	return -ENOMEM;
}

/* The life that was moved ends, here and for those who wait for its pages. */
static void give_up_life(void)
{
	if (!moved)
		return;
	moved = false;
	tmem_link_detach(false);
}

/*
 * A region for this connection, all zero and granted to nobody: the former one when it has the
 * size, and both the service and everybody here let go of it. Else that is given up.
 */
static int renew_shared(u32 bytes)
{
	if (moved && shared.bytes == bytes) {
		memset(shared.region, 0, TMEM_PAGE_SIZE);
		return 0;
	}
	if (moved) {
		pr_err("the service offers a region of %u bytes, and this life has %u\n", bytes,
		       shared.bytes);
		give_up_life();
	}
	if (shared.region && shared.bytes == bytes && tmem_link_over() && revoke()) {
		memset(shared.region, 0, bytes);
		return 0;
	}
	if (shared.region)
		pr_warn("a former region of %u bytes stays allocated\n", shared.bytes);
	memset(&shared, 0, sizeof(shared));
	return alloc_shared(bytes);
}

/* ---- Event channels -------------------------------------------------------------------------- */

static void free_vectors(void)
{
	u32 i;

	for (i = 0; i < nr_vectors; i++) {
		WRITE_ONCE(ports[i], 0);
		/* The cookie is not 0. This closes the channel too. */
		unbind_from_irqhandler(irqs[i], (void *)(i + 1ul));
	}
	nr_vectors = 0;
}

static int setup_vectors(struct xenbus_device *dev, u32 number)
{
	evtchn_port_t port;
	int rc;

	while (nr_vectors < number) {
		rc = xenbus_alloc_evtchn(dev, &port);
		if (rc)
			return rc;
		rc = bind_evtchn_to_irqhandler(port, interrupt, 0, "tmem",
					       (void *)(nr_vectors + 1ul));
		if (rc < 0) {
			xenbus_free_evtchn(dev, port);
			return rc;
		}
		irqs[nr_vectors] = rc;
		ports[nr_vectors++] = port;
	}
	return 0;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static u32 choose_bytes(u32 offered)
{
	u64 most = ((u64)totalram_pages() << PAGE_SHIFT) / SHARE_OF_MEMORY;
	u32 bytes = rounddown_pow_of_two(offered);

	if (moved && offered >= shared.bytes)
		return shared.bytes;
	bytes = min_t(u32, bytes, MAX_DIRECTORIES * PAGE_REFS * TMEM_PAGE_SIZE);
	while (bytes > most && bytes > MIN_REGION)
		bytes /= 2;
	return bytes;
}

static int write_nodes(struct xenbus_device *dev, struct xenbus_transaction t)
{
	char node[32];
	u32 i;
	int rc;

	rc = xenbus_printf(t, dev->nodename, "region-bytes", "%u", shared.bytes);
	if (!rc)
		rc = xenbus_printf(t, dev->nodename, "rings", "%u", nr_vectors);
	for (i = 0; i < shared.nr_directories && !rc; i++) {
		snprintf(node, sizeof(node), "directory-ref-%u", i);
		rc = xenbus_printf(t, dev->nodename, node, "%u", shared.refs[shared.pages + i]);
	}
	for (i = 0; i < nr_vectors && !rc; i++) {
		snprintf(node, sizeof(node), "event-channel-%u", i);
		rc = xenbus_printf(t, dev->nodename, node, "%u", ports[i]);
	}
	return rc;
}

static int tell(struct xenbus_device *dev)
{
	struct xenbus_transaction t;
	int rc;

	do {
		rc = xenbus_transaction_start(&t);
		if (rc)
			return rc;
		rc = write_nodes(dev, t);
		if (rc) {
			xenbus_transaction_end(t, 1);
			return rc;
		}
		rc = xenbus_transaction_end(t, 0);
	} while (rc == -EAGAIN);
	return rc;
}

static int connect(struct xenbus_device *dev)
{
	u32 abi_min, abi_max, bytes, rings;
	int rc;

	rc = xenbus_gather(XBT_NIL, dev->otherend, "abi-min", "%u", &abi_min, "abi-max", "%u",
			   &abi_max, "region-bytes", "%u", &bytes, "max-rings", "%u", &rings, NULL);
	if (rc)
		return rc;
	if (abi_min > TMEM_ABI_VERSION || abi_max < TMEM_ABI_VERSION || bytes < MIN_REGION ||
	    !rings)
		return -EPROTO;
	rc = renew_shared(choose_bytes(bytes));
	if (!rc)
		rc = setup_vectors(dev, min3(rings, num_possible_cpus(), TMEM_MAX_RINGS));
	if (!rc)
		rc = grant(dev->otherend_id);
	if (!rc)
		rc = tell(dev);
	if (!rc)
		rc = xenbus_switch_state(dev, XenbusStateInitialised);
	return rc;
}

static void settle(void)
{
	settled = true;
	wake_up_all(&settled_wait);
}

/* The link ends; what the host has cannot be had any more, and whoever needs it waits. */
static void disconnect(void)
{
	long held = tmem_pools_held();

	if (linked && held)
		pr_err("the device was taken away with %ld pages\n", held);
	if (linked)
		tmem_link_detach(false);
	linked = false;
	give_up_life();
	free_vectors();
	settle();
}

/* The same, when the other side has let go of the region or does not exist any more. */
static void disconnect_and_revoke(void)
{
	disconnect();
	if (shared.region)
		revoke();
}

/* The link's thread may not have heard yet that the former device is gone. */
static int attach_link(void)
{
	int rc, tries = 100;

	do
		rc = tmem_link_attach(&transport, shared.region, shared.bytes, nr_vectors);
	while (rc == -EBUSY && --tries && !msleep_interruptible(20));
	return rc;
}

static void connected(struct xenbus_device *dev)
{
	int rc = attach_link();

	if (rc) {
		xenbus_dev_error(dev, rc, "the link does not take the region");
		disconnect();
		xenbus_frontend_closed(dev);
		return;
	}
	linked = true;
	moved = false;
	xenbus_switch_state(dev, XenbusStateConnected);
	dev_info(&dev->dev, "region of %u bytes, %u event channels\n", shared.bytes, nr_vectors);
	settle();
}

/* The other side invites us, perhaps because it has forgotten what there was. */
static void invited(struct xenbus_device *dev)
{
	int rc;

	/* A device that was moved comes as it was connected, and is to be connected anew. */
	if (dev->state != XenbusStateInitialising && !moved)
		disconnect();
	rc = connect(dev);
	if (!rc)
		return;
	xenbus_dev_error(dev, rc, "no connection");
	disconnect();
	xenbus_frontend_closed(dev);
}

/* The host wants the device back; it does not get it while it has pages that are in use. */
static void asked_to_close(struct xenbus_device *dev)
{
	long held = linked ? tmem_pools_held() : 0;

	if (held) {
		pr_err("the host wants its device back, but has %ld pages of this guest: use "
		       "swapoff, and let it ask again\n",
		       held);
		return;
	}
	disconnect();
	xenbus_frontend_closed(dev);
}

static void backend_changed(struct xenbus_device *dev, enum xenbus_state state)
{
	switch (state) {
	case XenbusStateInitWait:
		invited(dev);
		break;
	case XenbusStateConnected:
		if (dev->state == XenbusStateInitialised)
			connected(dev);
		break;
	case XenbusStateClosing:
		asked_to_close(dev);
		break;
	case XenbusStateClosed:
		if (dev->state == XenbusStateInitialised)
			pr_err("the service refused the device, see the node \"error\" in %s\n",
			       dev->otherend);
		disconnect_and_revoke();
		if (dev->state != XenbusStateClosed)
			xenbus_frontend_closed(dev);
		break;
	default:
		break;
	}
}

static int probe(struct xenbus_device *dev, const struct xenbus_device_id *id)
{
	if (attached)
		return -EBUSY;
	attached = dev;
	return 0;
}

#ifdef TMEM_XEN_REMOVE_RETURNS
static int remove(struct xenbus_device *dev)
#else
static void remove(struct xenbus_device *dev)
#endif
{
	disconnect_and_revoke();
	attached = NULL;
#ifdef TMEM_XEN_REMOVE_RETURNS
	return 0;
#endif
}

/* What is outstanding now, of which the host may hear when our memory is copied already. */
static int suspend(struct xenbus_device *dev)
{
	tmem_link_quiet(true);
	return 0;
}

/*
 * Restored, or on another host: grants and channels went with the former domain. The bus goes on as
 * with a new device; our life goes on when what it has stored was brought along. No grant of the
 * former domain counts here any more, so ending them only frees their numbers.
 */
static int resume(struct xenbus_device *dev)
{
	if (linked && tmem_link_move())
		moved = true;
	tmem_link_quiet(false);
	if (moved)
		linked = false;
	free_vectors();
	if (!moved)
		disconnect();
	if (shared.region)
		revoke();
	return 0;
}

static const struct xenbus_device_id ids[] = {{"tmem"}, {""}};
MODULE_ALIAS("xen:tmem");

static struct xenbus_driver driver = {
	.ids = ids,
	.probe = probe,
	.remove = remove,
	.suspend = suspend,
	.resume = resume,
	.otherend_changed = backend_changed,
};

int tmem_xen_register(void)
{
	int rc;

	if (!xen_domain())
		return 0;
	rc = xenbus_register_frontend(&driver);
	if (!rc && attached)
		wait_event_timeout(settled_wait, settled, HZ);
	return rc;
}
