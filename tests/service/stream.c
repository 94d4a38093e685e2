// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A guest is saved, its host's tmemd is gone with all it had, another one has its stream, and the
 * guest goes on there: at rest, at work, killed while it is saved (case 35). And what fails leaves
 * nothing.
 */
#include "raw.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANDLES 3000u
#define RINGS 2

/* What the guest knows, and whoever follows it. */
struct guest {
	volatile uint64_t epoch; /* 0: not connected yet */
	volatile uint32_t pool;
	volatile uint32_t doing; /* index that it is at; what is stored there is not known */
	volatile uint64_t turns;
	volatile uint64_t stamps[HANDLES]; /* 0: nothing */
};

static struct guest *guest;
static char file[192];

static void put(struct tmem_client *client, uint32_t i, uint64_t stamp, bool posted)
{
	struct tmem_ring *ring = tmem_client_ring(client, i % RINGS);
	struct tmem_handle h = handle_at(guest->pool, i);
	uint8_t page[TMEM_PAGE_SIZE];
	int r = -ENOBUFS;

	page_make(page, stamp);
	if (posted)
		r = tmem_put_posted(ring, &h, page);
	if (r == -ENOBUFS)
		r = tmem_put(ring, &h, page);
	guest->stamps[i] = r == 1 ? stamp : 0;
}

static void one_turn(struct tmem_client *client, struct rng *rng)
{
	uint32_t i = rng_below(rng, HANDLES);
	struct tmem_handle h = handle_at(guest->pool, i);

	guest->doing = i;
	if (rng_below(rng, 4))
		put(client, i, rng_next(rng) | 1, rng_below(rng, 2));
	else if (tmem_flush(tmem_client_ring(client, i % RINGS), &h) >= 0)
		guest->stamps[i] = 0;
	guest->turns++;
}

/* Another host: nothing of this one's tmemd is there. */
static void another_host(void)
{
	CHECK_IS(service_kill(SIGTERM), 0);
	unlink(scratch_path("arena"));
	unlink(scratch_path("vm1.region"));
	service_start(NULL);
	CHECK_IS(service_counter("vm1", "pages_persistent"), 0);
}

/* A guest in a process of its own: fills its pool, and goes on for ever when it is `busy`. */
static pid_t start_guest(bool busy)
{
	struct rng rng = {test_seed()};
	struct tmem_client *client;
	pid_t child;

	/* This process may have been the client, and would be until it ends. */
	another_host();
	memset(guest, 0, sizeof(*guest));
	guest->doing = UINT32_MAX;
	child = player_fork();
	if (!child) {
		client = player_open("vm1", RINGS, 64);
		player_pool(client, EPHEMERAL);
		guest->pool = player_pool(client, PERSISTENT);
		for (uint32_t i = 0; i < HANDLES; i += 2)
			put(client, i, rng_next(&rng) | 1, i % 4);
		for (unsigned r = 0; r < RINGS; r++)
			tmem_drain(tmem_client_ring(client, r));
		guest->epoch = tmem_client_epoch(client);
		while (busy)
			one_turn(client, &rng);
		pause();
	}
	EVENTUALLY(guest->epoch);
	return child;
}

/* How tmemctl ends; its words are in the scratch directory. */
static int run_ctl(const char *words)
{
	char command[2048];

	snprintf(command, sizeof(command), "%s --socket %s %s >%s 2>&1", service_program("TMEMCTL"),
		 scratch_path("control"), words, scratch_path("said"));
	return WEXITSTATUS(system(command));
}

static bool said(const char *text)
{
	char line[4096];
	FILE *f = fopen(scratch_path("said"), "re");
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, text) != NULL;
	if (f)
		fclose(f);
	if (!found)
		fprintf(stderr, "it was not said: %s\n", text);
	return found;
}

static void save(void)
{
	char words[600];

	snprintf(words, sizeof(words), "save vm1 %s", file);
	CHECK_IS(run_ctl(words), 0);
}

static int restore(void)
{
	char words[600];

	snprintf(words, sizeof(words), "restore vm1 %s", file);
	return run_ctl(words);
}

/* Nothing of a stream is there, and the client as good as new. */
static void nothing_left(void)
{
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 0);
	EVENTUALLY(service_counter("vm1", "physical_bytes") == 0);
	CHECK_IS(service_counter("vm1", "credits"), 0);
}

static struct tmem_client *follow(uint64_t former, int want)
{
	struct tmem_hello hello = {
		.rings = RINGS, .entries = 64, .features = TMEM_F_ALL, .former = former};
	struct tmem_client *client;
	char err[256];

	CHECK_IS(tmem_client_connect(&client, service_socket("vm1"), 30000, err, sizeof(err)), 0);
	CHECK_IS(tmem_client_hello(client, &hello), want);
	return client;
}

/* Everything that the guest knew of is there, but for what it was doing. */
static void check_pages(struct tmem_client *client)
{
	uint8_t page[TMEM_PAGE_SIZE];

	for (uint32_t i = 0; i < HANDLES; i++) {
		struct tmem_handle h = handle_at(guest->pool, i);
		int r = tmem_get(tmem_client_ring(client, i % RINGS), &h, page);

		if (i == guest->doing)
			continue;
		if (r != (guest->stamps[i] != 0) || (r == 1 && !page_is(page, guest->stamps[i]))) {
			fprintf(stderr, "page %u: %d, stamp %llx\n", i, r,
				(unsigned long long)guest->stamps[i]);
			player_die();
		}
	}
}

/* It goes on: credits, puts, new pools. */
static void goes_on(struct tmem_client *client)
{
	struct tmem_handle h = handle_at(guest->pool, HANDLES + 1);
	uint8_t page[TMEM_PAGE_SIZE];
	uint32_t pool;

	page_make(page, 99);
	EVENTUALLY(tmem_put_posted(tmem_client_ring(client, 0), &h, page) == 1);
	CHECK_IS(player_get(client, guest->pool, HANDLES + 1, 99), 1);
	pool = player_pool(client, PERSISTENT);
	CHECK(pool != guest->pool);
	CHECK_IS(player_put(client, pool, 1, 5), 1);
	CHECK_IS(tmem_client_posted_failed(client), 0);
}

static void end(struct tmem_client *client)
{
	CHECK_IS(tmem_client_bye(client), 0);
	tmem_client_close(client);
	nothing_left();
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void at_rest(void)
{
	struct tmem_client *client;
	pid_t child = start_guest(false);
	uint64_t pages = service_counter("vm1", "pages_persistent");
	struct stat st;

	save();
	CHECK(said("pages"));
	CHECK(!stat(file, &st) && (st.st_mode & 0777) == 0600);
	/* The guest could go on here. */
	CHECK_IS(service_counter("vm1", "pages_persistent"), pages);
	player_end(child);
	another_host();
	CHECK_IS(restore(), 0);
	CHECK_IS(service_counter("vm1", "pages_persistent"), pages);
	/* What it may have been promised: 64 credits a ring, but no more than half of its entries.
	 */
	CHECK_IS(service_counter("vm1", "credits"), RINGS * 32);
	CHECK_IS(run_ctl("list"), 0);
	CHECK(said("restored"));
	CHECK_IS(restore(), 1);
	CHECK(said("waits for its guest"));
	/* Restarts change nothing. */
	service_kill(SIGKILL);
	service_start(NULL);
	CHECK_IS(service_counter("vm1", "pages_persistent"), pages);
	CHECK_IS(service_counter("vm1", "credits"), RINGS * 32);
	client = follow(guest->epoch, 0);
	check_pages(client);
	goes_on(client);
	service_kill(SIGKILL);
	service_start(NULL);
	check_pages(client);
	end(client);
}

/* The stream comes late; a wrong life has no part in it; a new one drops it. */
static void who_may_have_it(void)
{
	struct tmem_refusal_info why;
	struct tmem_client *client;

	client = follow(guest->epoch, -ECONNREFUSED);
	tmem_client_refusal(client, &why);
	CHECK_IS(why.reason, TMEM_REFUSED_STATE);
	CHECK_IS(restore(), 0);
	CHECK_IS(tmem_client_hello(client, &(struct tmem_hello){.rings = RINGS,
								.entries = 64,
								.features = TMEM_F_ALL,
								.former = guest->epoch + 1}),
		 -ECONNREFUSED);
	CHECK(service_counter("vm1", "pages_persistent") != 0);
	CHECK_IS(tmem_client_hello(client, &(struct tmem_hello){.rings = RINGS,
								.entries = 64,
								.features = TMEM_F_ALL,
								.former = guest->epoch}),
		 0);
	check_pages(client);
	/* Its own life ends that of the stream, too. */
	end(client);
	CHECK_IS(restore(), 0);
	client = follow(0, 0);
	EVENTUALLY(service_counter("vm1", "pages_persistent") == 0);
	CHECK_IS(restore(), 1);
	CHECK(said("not empty"));
	end(client);
	CHECK_IS(restore(), 0);
	CHECK_IS(run_ctl("restore vm1 --discard"), 0);
	nothing_left();
	CHECK_IS(run_ctl("restore vm1 --discard"), 1);
}

/* Of a region that was copied from elsewhere no hello is heard. */
static void copied_region(void)
{
	struct tmem_region *page, copy;
	struct tmem_client *client;
	size_t bytes;

	CHECK_IS(restore(), 0);
	client = follow(guest->epoch + 1, -ECONNREFUSED);
	page = tmem_client_region(client, &bytes);
	/* As it was at the other host: connected, to another offer. */
	copy = *page;
	copy.offer++;
	copy.service_state = TMEM_SERVICE_CONNECTED;
	copy.answered_epoch = copy.guest_epoch = guest->epoch;
	copy.former_epoch = 0;
	copy.hello_offer = copy.offer;
	copy.guest_state = TMEM_GUEST_HELLO;
	memcpy(page, &copy, sizeof(copy));
	EVENTUALLY(page->offer != copy.offer && page->service_state != TMEM_SERVICE_CONNECTED);
	CHECK(page->answered_epoch != guest->epoch);
	CHECK(service_counter("vm1", "pages_persistent") != 0);
	CHECK_IS(tmem_client_hello(client, &(struct tmem_hello){.rings = RINGS,
								.entries = 64,
								.features = TMEM_F_ALL,
								.former = guest->epoch}),
		 0);
	check_pages(client);
	end(client);
}

/* The guest works until it is stopped by the command that pauses it. */
static void at_work(void)
{
	pid_t child = start_guest(true);
	struct tmem_client *client;
	char words[600];
	int status, r = 0;

	snprintf(words, sizeof(words), "save vm1 %s", file);
	/* On a busy host it may not have been at work at that moment. */
	for (int i = 0; i < 20 && r != 1; i++) {
		unlink(file);
		r = run_ctl(words);
	}
	CHECK_IS(r, 1);
	CHECK(said("ause"));
	CHECK(access(file, F_OK) && errno == ENOENT);
	snprintf(words, sizeof(words), "save vm1 %s --live --pause 'kill -STOP %d'", file,
		 (int)child);
	CHECK_IS(run_ctl(words), 0);
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	player_end(child);
	another_host();
	CHECK_IS(restore(), 0);
	client = follow(guest->epoch, 0);
	check_pages(client);
	goes_on(client);
	end(client);
}

/* It ends while it is saved, as a machine does that is saved or migrated. */
static void until_its_end(void)
{
	pid_t child = start_guest(true), ctl;
	uint64_t turns;
	struct tmem_client *client;
	char words[600];
	int status;

	unlink(file);
	ctl = player_fork();
	if (!ctl) {
		snprintf(words, sizeof(words), "save vm1 %s --live", file);
		_exit(run_ctl(words));
	}
	turns = guest->turns;
	EVENTUALLY(guest->turns > turns + 5000);
	player_nap_ms(300);
	CHECK(access(file, F_OK));
	player_end(child);
	CHECK(waitpid(ctl, &status, 0) == ctl);
	CHECK_IS(status, 0);
	nothing_left();
	another_host();
	CHECK_IS(restore(), 0);
	client = follow(guest->epoch, 0);
	check_pages(client);
	end(client);
}

/* The sum that a get of page 1 carries. */
static uint64_t sum_of_get(struct raw *raw)
{
	struct tmem_handle h = handle_at(guest->pool, 1);
	struct tmem_entry e = {.op = TMEM_GET_PAGE, .pool = guest->pool, .index = h.index};
	uint32_t at = raw->ctl->sq_tail % raw->n;

	memcpy(e.object, h.object, sizeof(e.object));
	CHECK_IS(raw_call(raw, e), 1);
	CHECK(page_is(raw->slots + (size_t)at * TMEM_PAGE_SIZE, 77));
	return raw->entries[at].page_sum;
}

/* Each takes 200 ms. */
#define SAVE_TRIES 100

/* A save that nobody tells to pause, 200 ms after its start. */
static pid_t save_live(void)
{
	pid_t ctl = player_fork();

	if (!ctl) {
		execl(service_program("TMEMCTL"), "tmemctl", "--socket", scratch_path("control"),
		      "save", "vm1", file, "--live", NULL);
		_exit(127);
	}
	player_nap_ms(200);
	return ctl;
}

/* While the guest is saved as it runs, and only then, its gets carry sums of their pages. */
static void sums(void)
{
	uint8_t page[TMEM_PAGE_SIZE];
	struct raw raw;
	pid_t ctl;

	another_host();
	raw_open(&raw, "vm1", 32);
	guest->pool = player_pool(raw.client, PERSISTENT);
	CHECK_IS(player_put(raw.client, guest->pool, 1, 77), 1);
	page_make(page, 77);
	CHECK_IS(sum_of_get(&raw), 0);
	ctl = save_live();
	EVENTUALLY(sum_of_get(&raw) == tmem_page_sum(page));
	page[4095] ^= 1;
	CHECK(sum_of_get(&raw) != tmem_page_sum(page));
	player_end(ctl);
	EVENTUALLY(sum_of_get(&raw) == 0);
	end(raw.client);
}

/* The pause fails, the file cannot be written, the tool dies: no file, and the guest goes on. */
static void save_fails(void)
{
	pid_t child = start_guest(true), ctl;
	uint64_t turns;
	char words[600];

	unlink(file);
	snprintf(words, sizeof(words), "save vm1 %s --live --pause false", file);
	CHECK_IS(run_ctl(words), 1);
	CHECK(said("nothing is saved"));
	CHECK(access(file, F_OK));
	CHECK_IS(run_ctl("save vm1 /dev/full/x"), 1);
	CHECK_IS(run_ctl("save nobody /dev/null"), 1);
	CHECK(said("no client"));
	CHECK_IS(run_ctl("save vm2 /dev/null"), 1);
	CHECK(said("nothing to save"));
	/* It is refused until the end of the one before has been noticed, which is soon. */
	for (unsigned tries = 0; (ctl = save_live()) && waitpid(ctl, NULL, WNOHANG); tries++)
		CHECK(tries < SAVE_TRIES);
	snprintf(words, sizeof(words), "save vm1 %s.2 --live", file);
	CHECK_IS(run_ctl(words), 1);
	CHECK(said("already"));
	player_end(ctl);
	turns = guest->turns;
	EVENTUALLY(guest->turns > turns + 100);
	/* When that is noticed it can be saved again. */
	snprintf(words, sizeof(words), "save vm1 %s --live --pause 'kill -STOP %d'", file,
		 (int)child);
	EVENTUALLY(run_ctl(words) == 0);
	player_end(child);
	nothing_left();
}

/* The first `part` bytes of the file come, and then nothing; until the tool is killed. */
static pid_t restore_part(size_t part)
{
	pid_t ctl = player_fork();
	char command[2048];

	if (ctl)
		return ctl;
	snprintf(command, sizeof(command),
		 "(head -c %zu %s; exec sleep 1000) | exec %s --socket %s restore vm1 -", part,
		 file, service_program("TMEMCTL"), scratch_path("control"));
	setpgid(0, 0);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static void end_group(pid_t pid)
{
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Whatever is in the file's way, nothing of it stays. */
static void restore_fails(void)
{
	struct stat st;
	char words[600];
	pid_t ctl;

	CHECK(!stat(file, &st));
	/* Cut. */
	snprintf(words, sizeof(words), "head -c %zu %s >%s.cut", (size_t)st.st_size / 2, file,
		 file);
	CHECK(!system(words));
	snprintf(words, sizeof(words), "restore vm1 %s.cut", file);
	CHECK_IS(run_ctl(words), 1);
	CHECK(said("ends too early"));
	nothing_left();
	CHECK_IS(run_ctl("restore vm1 /dev/null"), 1);
	CHECK_IS(run_ctl("restore vm1 /etc/passwd"), 1);
	CHECK(said("not a stream"));
	CHECK_IS(run_ctl("restore nobody /etc/passwd"), 1);
	CHECK_IS(run_ctl("restore vm1 /no/such/file"), 1);
	CHECK(said("No such file"));
	snprintf(words, sizeof(words), "restore nobody %s", file);
	CHECK_IS(run_ctl(words), 1);
	CHECK(said("nobody serves"));
	/* The tool dies. */
	ctl = restore_part((size_t)st.st_size / 2);
	EVENTUALLY(service_counter("vm1", "pages_persistent") > 100);
	CHECK_IS(restore(), 1);
	CHECK(said("already"));
	end_group(ctl);
	nothing_left();
	/* The service dies. */
	ctl = restore_part((size_t)st.st_size / 2);
	EVENTUALLY(service_counter("vm1", "pages_persistent") > 100);
	service_kill(SIGKILL);
	end_group(ctl);
	service_start(NULL);
	nothing_left();
	CHECK(service_log_lines("not restored to the end"));
	/* It stops in an orderly way. */
	ctl = restore_part((size_t)st.st_size / 2);
	EVENTUALLY(service_counter("vm1", "pages_persistent") > 100);
	CHECK_IS(service_kill(SIGTERM), 0);
	end_group(ctl);
	service_start(NULL);
	nothing_left();
	/* Over the maximum. */
	CHECK_IS(run_ctl("set vm1 maximum=1M"), 0);
	CHECK_IS(restore(), 1);
	CHECK(said("maximum"));
	nothing_left();
	CHECK_IS(run_ctl("set vm1 maximum=none"), 0);
	CHECK_IS(run_ctl("freeze vm1"), 0);
	CHECK_IS(restore(), 1);
	CHECK(said("thaw"));
	CHECK_IS(run_ctl("thaw vm1"), 0);
	CHECK_IS(restore(), 0);
	CHECK_IS(run_ctl("restore vm1 --discard"), 0);
	nothing_left();
}

#ifdef TMEMD_FAULT_INJECTION
/* How many pools the client or disk has. */
static unsigned pools_of(const char *name)
{
	char request[128], answer[65536];
	unsigned n = 0;

	snprintf(request, sizeof(request), "{\"command\":\"stat\",\"client\":\"%s\"}", name);
	CHECK(service_ask(request, answer, sizeof(answer)));
	for (const char *at = answer; (at = strstr(at, "\"members\":")); at++)
		n++;
	return n;
}

/* It is killed there, by this command, and started again. */
static void killed_at(enum fault_point point, const char *words)
{
	char faults[64];
	int status = 0;

	snprintf(faults, sizeof(faults), "%s=kill", fault_name(point));
	CHECK_IS(service_kill(SIGTERM), 0);
	service_start(faults);
	CHECK_IS(run_ctl(words), 3);
	for (unsigned i = 0; i < 1000 && !service_ended(&status); i++)
		player_nap_ms(10);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	service_start(NULL);
}

/* Killed at each step: all of it is there, or nothing. */
static void killed_at_points(void)
{
	char client[600], disk[600];

	snprintf(client, sizeof(client), "restore vm1 %s", file);
	snprintf(disk, sizeof(disk), "disk create d1 --size 1M --socket %s", scratch_path("d1"));
	CHECK_IS(run_ctl(disk), 0);
	snprintf(disk, sizeof(disk), "save d1 %s", scratch_path("disk"));
	CHECK_IS(run_ctl(disk), 0);
	snprintf(disk, sizeof(disk), "restore d1 %s", scratch_path("disk"));
	for (enum fault_point p = 0; p < FAULT_NR; p++) {
		if (fault_kind(p) != FAULT_KIND_STREAM)
			continue;
		printf("killed at %s\n", fault_name(p));
		fflush(stdout);
		if (p == FAULT_RESTORE_GIVEN_UP) {
			CHECK_IS(run_ctl(client), 0);
			killed_at(p, "restore vm1 --discard");
		} else {
			killed_at(p, p == FAULT_DISK_RESTORED ? disk : client);
		}
		CHECK_IS(pools_of("d1"), 1);
		CHECK_IS(run_ctl(disk), 0);
		if (p == FAULT_RESTORE_NOTED) {
			CHECK_IS(pools_of("vm1"), 2);
			CHECK_IS(run_ctl("restore vm1 --discard"), 0);
		}
		CHECK_IS(pools_of("vm1"), 0);
		nothing_left();
		CHECK_IS(run_ctl(client), 0);
		CHECK_IS(run_ctl("restore vm1 --discard"), 0);
	}
}
#endif

int main(void)
{
	guest = mmap(NULL, sizeof(*guest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	CHECK(guest != MAP_FAILED);
	service_configure("stream", "");
	snprintf(file, sizeof(file), "%s", scratch_path("saved"));
	service_start(NULL);
	RUN(at_rest);
	RUN(who_may_have_it);
	RUN(copied_region);
	RUN(at_work);
	RUN(until_its_end);
	RUN(sums);
	RUN(save_fails);
	RUN(restore_fails);
#ifdef TMEMD_FAULT_INJECTION
	RUN(killed_at_points);
#else
	printf("no fault points in this build: killed at some moment only\n");
#endif
	CHECK_IS(service_kill(SIGTERM), 0);
	return 0;
}
