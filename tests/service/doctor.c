// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What tmemctl doctor finds of clients that are there: a guest that does not speak, one at its
 * maximum, a full pool, damaged pages, a guest that speaks nonsense, and one that is served without
 * doorbells after a restart. Each is not found before it is so.
 */
#include "player.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 2000

/* Is there a finding with this id about this subject? */
static bool found(const char *id, const char *subject)
{
	const char *program = getenv("TMEMCTL");
	char command[512], line[1024], about[64], tag[64];
	bool yes = false;
	FILE *out;

	snprintf(command, sizeof(command), "%s --socket %s doctor", program ? program : "./tmemctl",
		 scratch_path("control"));
	snprintf(about, sizeof(about), ": %s: ", subject);
	snprintf(tag, sizeof(tag), " [%s]\n", id);
	out = popen(command, "r");
	CHECK(out);
	while (fgets(line, sizeof(line), out))
		yes |= strstr(line, tag) && strstr(line, about) && strstr(line, "; remedy: ");
	/* Nobody is root, unconfined and kept by a manager here, so there is always something. */
	CHECK_IS(pclose(out), 1 << 8);
	return yes;
}

/* Pages that do not shrink, on as many handles; how many were accepted. */
static unsigned fill(struct tmem_client *client, uint32_t pool, unsigned pages)
{
	uint8_t page[TMEM_PAGE_SIZE];
	unsigned accepted = 0;
	struct tmem_handle h;

	for (unsigned i = 0; i < pages; i++) {
		h = handle_at(pool, i);
		page_make_sized(page, i + 1, TMEM_PAGE_SIZE);
		accepted += tmem_put(tmem_client_ring(client, 0), &h, page) == 1;
	}
	return accepted;
}

/* Connected, and no hello: a VM whose guest has no module. */
static void silent(void)
{
	struct tmem_client *client;
	char err[256];

	CHECK(found("client-never", "client vm2"));
	CHECK(!found("client-silent", "client vm2"));
	CHECK_IS(tmem_client_connect(&client, service_socket("vm2"), 5000, err, sizeof(err)), 0);
	EVENTUALLY(found("client-silent", "client vm2"));
	CHECK(!found("client-never", "client vm2"));
	tmem_client_close(client);
}

static void at_its_maximum(struct tmem_client *client, uint32_t pool)
{
	unsigned accepted;

	service_ctl("set vm1 maximum=4M");
	CHECK(!found("client-maximum", "client vm1"));
	accepted = fill(client, pool, PAGES);
	CHECK(accepted && accepted < PAGES);
	CHECK(found("client-maximum", "client vm1"));
	service_ctl("set vm1 maximum=none");
}

static void full(struct tmem_client *client, uint32_t pool)
{
	CHECK(!found("pool-full", "service"));
	service_ctl("set pool_max=32M");
	CHECK(fill(client, pool, 40 << 8) < 40 << 8);
	EVENTUALLY(found("pool-full", "service"));
	service_ctl("set pool_max=192M");
	EVENTUALLY(!found("pool-full", "service"));
}

/* Where the arena has these bytes, as a mapping that may be written; holes are not touched. */
static uint8_t *in_the_arena(const uint8_t *page)
{
	int fd = open(scratch_path("arena"), O_RDWR | O_CLOEXEC);
	off_t from = 0, to = 0;
	uint8_t *map, *at;

	CHECK(fd >= 0);
	while ((from = lseek(fd, to, SEEK_DATA)) >= 0) {
		to = lseek(fd, from, SEEK_HOLE);
		map = mmap(NULL, (size_t)(to - from), PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
		CHECK(map != MAP_FAILED);
		at = memmem(map, (size_t)(to - from), page, TMEM_PAGE_SIZE);
		if (at) {
			close(fd);
			return at;
		}
		munmap(map, (size_t)(to - from));
	}
	CHECK(!"the page is in the arena as it is");
	return NULL;
}

/* Case 5 of docs/cases.md. */
static void damaged(struct tmem_client *client, uint32_t pool)
{
	struct tmem_handle h = handle_at(pool, 7);
	uint8_t page[TMEM_PAGE_SIZE];

	page_make_sized(page, 1ull << 40, TMEM_PAGE_SIZE);
	CHECK_IS(tmem_put(tmem_client_ring(client, 0), &h, page), 1);
	CHECK(!found("client-damaged", "client vm1"));
	in_the_arena(page)[100] ^= 1;
	CHECK_IS(tmem_get(tmem_client_ring(client, 0), &h, page), -EIO);
	CHECK(found("client-damaged", "client vm1"));
}

static void nonsense(struct tmem_client *client, uint32_t pool)
{
	struct tmem_handle h = handle_at(pool + 17, 1);
	uint8_t page[TMEM_PAGE_SIZE] = {0};

	CHECK(!found("client-nonsense", "client vm1"));
	CHECK(tmem_put(tmem_client_ring(client, 0), &h, page) < 0);
	CHECK(found("client-nonsense", "client vm1"));
}

static void without_doorbells(void)
{
	CHECK(!found("client-polling", "client vm1"));
	service_kill(SIGKILL);
	service_start(NULL);
	EVENTUALLY(found("client-polling", "client vm1"));
}

int main(void)
{
	struct tmem_client *client;
	uint32_t pool;

	service_configure("doctor", "");
	service_start(NULL);
	silent();
	client = player_open("vm1", 1, 64);
	pool = player_pool(client, PERSISTENT);
	at_its_maximum(client, pool);
	full(client, pool);
	damaged(client, pool);
	nonsense(client, pool);
	without_doorbells();
	tmem_client_close(client);
	service_kill(SIGTERM);
	return 0;
}
