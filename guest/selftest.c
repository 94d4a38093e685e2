// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A test of the transport from inside the guest, for kernels where nothing else would drive it; it
 * is built in with TMEM_SELFTEST=1 alone.
 *
 *   echo "PAGES [SEED]" > debugfs/tmem/selftest     runs it; an error when something was wrong
 *   cat debugfs/tmem/selftest                       "name value" of the last run, a line each
 *
 * Every page is made from its handle and a version that is never used twice, so that one look tells
 * an old page, or another one's, from the right one. Nothing else is needed to know what a get has
 * to answer but the version that each handle holds. One test runs at a time.
 */
#include "tmem_priv.h"

#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#define MAX_PAGES 65536u
#define OBJECTS 8
#define ORDER_ROUNDS 32
#define PATIENCE (120 * HZ) /* with a service that is away for a while */
#define WORDS (TMEM_PAGE_SIZE / sizeof(u64))

#define REPORT(R)                                                                                  \
	R(pages)	  /* handles used */                                                       \
	R(seed)		  /* of the bytes and of the order */                                      \
	R(puts)		  /* submitted */                                                          \
	R(puts_posted)	  /* of these, accepted with a credit */                                   \
	R(puts_refused)	  /* of these, refused: the handle then was empty */                       \
	R(gets)		  /* answered */                                                           \
	R(verified)	  /* of these, with a page, every byte of it right */                      \
	R(missed)	  /* of these, rightly without one */                                      \
	R(flushes)	  /* of pages */                                                           \
	R(object_flushes) /* of whole objects */                                                   \
	R(ordered)	  /* operations on one handle that were outstanding together */            \
	R(ring_full)	  /* submissions that a full ring did not take */                          \
	R(strange)	  /* operations that the service refused as it should */                   \
	R(destroyed)	  /* pools whose pages went with them */

struct report {
#define REPORT_FIELD(name) unsigned long name;
	REPORT(REPORT_FIELD)
#undef REPORT_FIELD
	const char *wrong; /* NULL: nothing */
	long detail;	   /* of what was wrong: a status, or the number of a handle */
};

struct test {
	struct tmem_pool *pool;
	u32 pages;
	u32 *version; /* that each handle holds; 0: none */
	u32 last;     /* version that was used */
	u64 random;
	struct page *page; /* to be put, and what was got */
	u64 *right;	   /* how a page has to look like */
};

static DEFINE_MUTEX(lock);
static struct report report;

static int wrong(const char *what, long detail)
{
	if (!report.wrong) {
		report.wrong = what;
		report.detail = detail;
	}
	return -EIO;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static u64 next_random(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Same-filled ones, ones that do not compress, and ones that do to different degrees. */
static void make_page(u64 *word, u32 handle, u32 version)
{
	u64 state = (u64)report.seed << 56 ^ (u64)handle << 32 ^ version;
	u32 i, kind = next_random(&state) % 8, noise = kind < 2 ? 1 : kind;
	u64 same = next_random(&state);

	for (i = 0; i < WORDS; i++)
		word[i] = kind && i % noise == 0 ? next_random(&state) : same;
}

static void call_for(struct test *t, struct tmem_call *call, u8 op, u32 handle)
{
	memset(call, 0, sizeof(*call));
	call->pool = t->pool;
	call->object[0] = handle % OBJECTS;
	call->object[2] = ~0ull - handle % OBJECTS;
	call->index = handle / OBJECTS;
	call->op = op;
	call->wait = true;
}

/* The version that the page has. */
static u32 call_to_put(struct test *t, struct tmem_call *call, u32 handle)
{
	u32 version = ++t->last;

	call_for(t, call, TMEM_PUT_PAGE, handle);
	make_page(page_address(t->page), handle, version);
	call->page = t->page;
	return version;
}

/* ---- One operation --------------------------------------------------------------------------- */

static struct tmem_request *submit_once(struct tmem_call *call)
{
	struct tmem_stripe *stripe = tmem_stripe(call->pool, call->object, call->index);
	struct tmem_request *request;
	unsigned long flags;

	spin_lock_irqsave(&stripe->lock, flags);
	request = tmem_submit(stripe, call);
	spin_unlock_irqrestore(&stripe->lock, flags);
	tmem_call_ring(call);
	return request;
}

/* NULL: something is wrong. */
static struct tmem_request *submit(struct tmem_call *call)
{
	unsigned long end = jiffies + PATIENCE;
	struct tmem_request *request;

	for (;;) {
		request = submit_once(call);
		if (!IS_ERR(request))
			return request;
		if (PTR_ERR(request) != -EAGAIN || time_after(jiffies, end) ||
		    signal_pending(current))
			break;
		tmem_ring_wait_room(call->ring, call->keep_free, HZ / 50);
	}
	wrong("an operation could not be submitted", PTR_ERR(request));
	return NULL;
}

/* Waits, and takes the page of a get. The status, or -EIO when there was no answer. */
static s32 answer_of(struct tmem_call *call, struct tmem_request *request, struct page *page)
{
	s32 status;

	if (!tmem_ring_wait(call->ring, request, PATIENCE, false)) {
		/* The entry is left to whoever takes the ring down. */
		tmem_ring_abandon(call->ring, request);
		return wrong("no answer", call->op);
	}
	status = request->status;
	if (status == 1 && page && !tmem_take_page(page, request))
		status = wrong("a page was not what its sum says", call->op);
	tmem_ring_release(call->ring, request);
	return status;
}

static bool is_refusal(s32 status)
{
	return !status || status == -ENOMEM || status == -EDQUOT || status == -TMEM_EFROZEN;
}

/* What the handle holds after a put was answered. */
static int note_put(struct test *t, u32 handle, u32 version, s32 status)
{
	report.puts++;
	t->version[handle] = status == 1 ? version : 0;
	if (status == 1)
		return 0;
	report.puts_refused++;
	return is_refusal(status) ? 0 : wrong("a put was answered with", status);
}

/* Is this the answer of a get of a handle that holds the version (0: nothing)? */
static int check_get(struct test *t, u32 handle, u32 version, s32 status)
{
	report.gets++;
	if (!version) {
		report.missed++;
		return status ? wrong("a get of an empty handle was answered with", status) : 0;
	}
	if (status != 1)
		return wrong("a get of a page was answered with", status);
	make_page(t->right, handle, version);
	if (memcmp(t->right, page_address(t->page), TMEM_PAGE_SIZE))
		return wrong("wrong bytes for handle", handle);
	report.verified++;
	return 0;
}

static int put(struct test *t, u32 handle)
{
	struct tmem_request *request;
	struct tmem_call call;
	u32 version = call_to_put(t, &call, handle);

	call.may_post = true;
	call.lazy = true;
	request = submit(&call);
	if (!request)
		return -EIO;
	report.puts_posted += call.posted;
	return note_put(t, handle, version, call.posted ? 1 : answer_of(&call, request, NULL));
}

/* The status of an operation that is waited for. */
static s32 ask(struct test *t, u8 op, u32 handle)
{
	struct tmem_request *request;
	struct tmem_call call;

	call_for(t, &call, op, handle);
	request = submit(&call);
	return request ? answer_of(&call, request, t->page) : -EIO;
}

static int get(struct test *t, u32 handle)
{
	return check_get(t, handle, t->version[handle], ask(t, TMEM_GET_PAGE, handle));
}

static int flush(struct test *t, u32 handle)
{
	s32 status = ask(t, TMEM_FLUSH_PAGE, handle);

	if (status != (t->version[handle] != 0))
		return wrong("a flush was answered with", status);
	report.flushes++;
	t->version[handle] = 0;
	return 0;
}

/* Everything that was submitted before is executed. */
static int drain(struct test *t)
{
	unsigned long end = jiffies + PATIENCE;
	u32 i;

	while (atomic_read(&t->pool->inflight)) {
		for (i = 0; i < tmem_rings_number(); i++) {
			tmem_ring_tell(tmem_ring_get(i));
			tmem_ring_reap(tmem_ring_get(i), true);
		}
		if (time_after(jiffies, end))
			return wrong("the rings do not get empty", atomic_read(&t->pool->inflight));
		schedule_timeout_idle(1);
	}
	return 0;
}

static int flush_object(struct test *t, u32 handle)
{
	bool had = false;
	s32 status;
	u32 i;

	if (drain(t))
		return -EIO;
	status = ask(t, TMEM_FLUSH_OBJECT, handle % OBJECTS);
	for (i = handle % OBJECTS; i < t->pages; i += OBJECTS) {
		had |= t->version[i] != 0;
		t->version[i] = 0;
	}
	report.object_flushes++;
	return status == had ? 0 : wrong("the flush of an object was answered with", status);
}

/* ---- The parts of a test --------------------------------------------------------------------- */

static int for_all(struct test *t, int (*what)(struct test *t, u32 handle))
{
	int rc = 0;
	u32 i;

	for (i = 0; i < t->pages && !rc; i++) {
		rc = signal_pending(current) ? -EINTR : what(t, i);
		cond_resched();
	}
	return rc;
}

static int in_random_order(struct test *t)
{
	u32 left = 4 * t->pages;
	int rc = 0;

	while (left-- && !rc) {
		u64 random = next_random(&t->random);
		u32 handle = (u32)random % t->pages, dice = random >> 40 & 511;

		if (signal_pending(current))
			return -EINTR;
		if (!dice)
			rc = flush_object(t, handle);
		else if (dice < 64)
			rc = flush(t, handle);
		else
			rc = dice & 1 ? put(t, handle) : get(t, handle);
		cond_resched();
	}
	return rc;
}

/*
 * Operations on one handle, each submitted before the former one is answered: every get sees what
 * stood before it.
 */
static int in_one_row(struct test *t, u32 handle)
{
	static const u8 ops[] = {TMEM_PUT_PAGE, TMEM_GET_PAGE, TMEM_PUT_PAGE, TMEM_FLUSH_PAGE,
				 TMEM_GET_PAGE, TMEM_PUT_PAGE, TMEM_GET_PAGE};
	struct tmem_request *request[ARRAY_SIZE(ops)];
	struct tmem_call call[ARRAY_SIZE(ops)];
	u32 version[ARRAY_SIZE(ops)] = {0};
	unsigned int i, nr;
	int rc = 0;

	for (nr = 0; nr < ARRAY_SIZE(ops) && !rc; nr++) {
		if (ops[nr] == TMEM_PUT_PAGE)
			version[nr] = call_to_put(t, &call[nr], handle);
		else
			call_for(t, &call[nr], ops[nr], handle);
		request[nr] = submit(&call[nr]);
		if (!request[nr])
			return -EIO;
	}
	for (i = 0; i < nr; i++) {
		s32 status = answer_of(&call[i], request[i], t->page);

		if (ops[i] == TMEM_PUT_PAGE)
			rc = rc ?: note_put(t, handle, version[i], status);
		else if (ops[i] == TMEM_GET_PAGE)
			rc = rc ?: check_get(t, handle, t->version[handle], status);
		else
			t->version[handle] = 0;
	}
	report.ordered += nr;
	return rc;
}

static int rows(struct test *t)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < ORDER_ROUNDS && !rc; i++)
		rc = in_one_row(t, next_random(&t->random) % t->pages);
	return rc;
}

struct filling {
	struct tmem_call call;
	struct tmem_request *request;
	u32 handle;
};

/* An entry is taken until its waiter has released it: gets whose answers nobody takes fill the
 * ring.
 */
static int full_ring(struct test *t)
{
	u32 i, nr = 0, most = TMEM_MAX_ENTRIES * tmem_rings_number();
	struct filling *f = kvcalloc(most + 1, sizeof(*f), GFP_KERNEL);
	int rc = 0;

	if (!f)
		return -ENOMEM;
	while (nr <= most) {
		f[nr].handle = next_random(&t->random) % t->pages;
		call_for(t, &f[nr].call, TMEM_GET_PAGE, f[nr].handle);
		f[nr].request = submit_once(&f[nr].call);
		if (IS_ERR(f[nr].request))
			break;
		nr++;
	}
	if (nr > most || PTR_ERR(f[nr].request) != -EAGAIN)
		rc = wrong("a ring took more than it has entries, or failed", nr);
	else if (nr < READ_ONCE(f[nr].call.ring->entries))
		rc = wrong("a ring was full before its time", nr);
	else
		report.ring_full++;
	for (i = 0; i < nr; i++) {
		s32 status = answer_of(&f[i].call, f[i].request, t->page);

		rc = rc ?: check_get(t, f[i].handle, t->version[f[i].handle], status);
	}
	kvfree(f);
	return rc;
}

/* What does not exist is refused, and nothing else suffers. */
static int strange(struct test *t)
{
	static const struct {
		u8 op;
		bool no_pool; /* in a pool that the service does not know */
		s32 status;
	} tries[] = {
		{TMEM_PUT_PAGE, true, -ENOENT},
		{TMEM_GET_PAGE, true, -ENOENT},
		{TMEM_FLUSH_PAGE, true, -ENOENT},
		{TMEM_FLUSH_OBJECT, true, -ENOENT},
		{3, false, -ENOSYS},
		{255, false, -ENOSYS},
	};
	u32 id = t->pool->host_id;
	unsigned int i;
	s32 status;

	for (i = 0; i < ARRAY_SIZE(tries); i++) {
		if (drain(t))
			return -EIO;
		if (tries[i].no_pool)
			t->pool->host_id = id + 1000;
		status = ask(t, tries[i].op, i);
		t->pool->host_id = id;
		if (status != tries[i].status)
			return wrong("what has to be refused was answered with", status);
		report.strange++;
	}
	return 0;
}

static int wait_for_state(struct test *t, enum tmem_pool_state state)
{
	unsigned long end = jiffies + PATIENCE;

	while (READ_ONCE(t->pool->state) != state) {
		if (time_after(jiffies, end))
			return wrong("a pool does not get to state", state);
		msleep(10);
	}
	return 0;
}

/* A pool is destroyed with posted puts still under way, and made again. */
static int destroy(struct test *t)
{
	int rc = for_all(t, put);

	if (rc)
		return rc;
	tmem_pool_forget(t->pool, false);
	rc = wait_for_state(t, TMEM_POOL_READY);
	memset(t->version, 0, t->pages * sizeof(*t->version));
	report.destroyed++;
	return rc ?: for_all(t, get);
}

static int (*const parts[])(struct test *t) = {in_random_order, rows, full_ring, strange};

static int persistent(struct test *t)
{
	unsigned int i;
	int rc = for_all(t, put) ?: for_all(t, get);

	for (i = 0; i < ARRAY_SIZE(parts) && !rc; i++)
		rc = parts[i](t) ?: for_all(t, get);
	return rc ?: destroy(t);
}

/* May be gone at any time, and is after the first hit. */
static int get_once(struct test *t, u32 handle)
{
	u32 version = t->version[handle];
	s32 status = ask(t, TMEM_GET_PAGE, handle);

	t->version[handle] = 0;
	return check_get(t, handle, status ? version : 0, status) ?: get(t, handle);
}

static int ephemeral(struct test *t)
{
	return for_all(t, put) ?: in_one_row(t, 0) ?: for_all(t, get_once);
}

/* ---- A test ---------------------------------------------------------------------------------- */

static int in_pool(struct test *t, bool persist, int (*what)(struct test *t))
{
	struct tmem_slots *slots = tmem_slots_alloc();
	int rc;

	memset(t->version, 0, t->pages * sizeof(*t->version));
	t->pool = slots ? tmem_pool_create(persist, slots) : NULL;
	if (!t->pool) {
		tmem_slots_free(slots);
		return -ENOSPC;
	}
	rc = wait_for_state(t, TMEM_POOL_READY);
	/* Who wants to end this life waits for us. */
	atomic_long_set(&t->pool->held, 1);
	rc = rc ?: what(t);
	atomic_long_set(&t->pool->held, 0);
	tmem_pool_forget(t->pool, true);
	return wait_for_state(t, TMEM_POOL_FREE) ?: rc;
}

static int run(u32 pages, u32 seed)
{
	struct test t = {.pages = clamp(pages, (u32)OBJECTS, MAX_PAGES), .random = seed};
	int rc = -ENOMEM;

	memset(&report, 0, sizeof(report));
	report.pages = t.pages;
	report.seed = seed;
	if (!tmem_link_up())
		return -ENOTCONN;
	t.version = kvcalloc(t.pages, sizeof(*t.version), GFP_KERNEL);
	t.page = alloc_page(GFP_KERNEL);
	t.right = (u64 *)__get_free_page(GFP_KERNEL);
	if (t.version && t.page && t.right)
		rc = in_pool(&t, true, persistent) ?: in_pool(&t, false, ephemeral);
	free_page((unsigned long)t.right);
	if (t.page)
		__free_page(t.page);
	kvfree(t.version);
	return rc;
}

static ssize_t selftest_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	u32 pages = 1000, seed = 1;
	char text[32] = "";
	int rc;

	if (length >= sizeof(text) || copy_from_user(text, from, length))
		return -EINVAL;
	if (sscanf(text, "%u %u", &pages, &seed) < 1)
		return -EINVAL;
	rc = mutex_lock_interruptible(&lock);
	if (rc)
		return rc;
	rc = run(pages, seed);
	if (rc && !report.wrong)
		wrong("it could not be run to its end", rc);
	if (report.wrong)
		pr_err("self-test: %s %ld\n", report.wrong, report.detail);
	mutex_unlock(&lock);
	return rc ?: length;
}

static int selftest_show(struct seq_file *m, void *unused)
{
	mutex_lock(&lock);
#define REPORT_SHOW(name) seq_printf(m, #name " %lu\n", report.name);
	REPORT(REPORT_SHOW)
#undef REPORT_SHOW
	if (report.wrong)
		seq_printf(m, "wrong %s %ld\n", report.wrong, report.detail);
	mutex_unlock(&lock);
	return 0;
}

static int selftest_open(struct inode *inode, struct file *file)
{
	return single_open(file, selftest_show, NULL);
}

static const struct file_operations selftest_fops = {
	.open = selftest_open,
	.read = seq_read,
	.write = selftest_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void tmem_selftest_setup(struct dentry *dir)
{
	debugfs_create_file("selftest", 0600, dir, NULL, &selftest_fops);
}
