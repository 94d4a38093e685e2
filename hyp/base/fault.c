// SPDX-License-Identifier: GPL-2.0-or-later
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	enum fault_kind kind;
	const char *text;
} infos[FAULT_NR] = {
#define X(id, name, kind, text) [FAULT_##id] = {name, FAULT_KIND_##kind, text},
	FAULT_POINTS(X)
#undef X
};

const char *fault_name(enum fault_point point)
{
	return infos[point].name;
}

enum fault_kind fault_kind(enum fault_point point)
{
	return infos[point].kind;
}

const char *fault_text(enum fault_point point)
{
	return infos[point].text;
}

#ifdef TMEMD_FAULT_INJECTION

static struct {
	_Atomic int action;
	_Atomic uint32_t skip;
	_Atomic uint32_t count; /* 0: for ever */
	_Atomic uint64_t passes;
} points[FAULT_NR];

_Atomic bool fault_armed;

bool fault_hit(enum fault_point point)
{
	int action = atomic_load(&points[point].action);
	uint32_t limit;
	uint64_t pass;

	if (action == FAULT_OFF)
		return false;
	pass = atomic_fetch_add(&points[point].passes, 1);
	limit = atomic_load(&points[point].count);
	if (pass < atomic_load(&points[point].skip))
		return false;
	if (limit && pass - atomic_load(&points[point].skip) >= limit)
		return false;
	if (action == FAULT_KILL)
		kill(getpid(), SIGKILL);
	if (action == FAULT_SLEEP)
		usleep(1000);
	return action == FAULT_FAIL;
}

bool fault_arm(enum fault_point point, enum fault_action action, uint32_t skip, uint32_t count)
{
	bool any = false;

	atomic_store(&points[point].action, FAULT_OFF);
	atomic_store(&points[point].passes, 0);
	atomic_store(&points[point].skip, skip);
	atomic_store(&points[point].count, count);
	atomic_store(&points[point].action, action);
	for (int i = 0; i < FAULT_NR; i++)
		any |= atomic_load(&points[i].action) != FAULT_OFF;
	atomic_store(&fault_armed, any);
	return true;
}

uint64_t fault_passes(enum fault_point point)
{
	return atomic_load(&points[point].passes);
}

#else

bool fault_arm(enum fault_point point, enum fault_action action, uint32_t skip, uint32_t count)
{
	(void)point;
	(void)action;
	(void)skip;
	(void)count;
	return false;
}

uint64_t fault_passes(enum fault_point point)
{
	(void)point;
	return 0;
}

#endif

static int arm_one(char *text)
{
	static const char *const actions[] = {"off", "fail", "kill", "sleep"};
	char *eq = strchr(text, '='), *save, *action, *skip, *count;
	int a, p;

	if (!eq)
		return -EINVAL;
	*eq = 0;
	action = strtok_r(eq + 1, ":", &save);
	skip = action ? strtok_r(NULL, ":", &save) : NULL;
	count = skip ? strtok_r(NULL, ":", &save) : NULL;
	for (p = 0; p < FAULT_NR; p++)
		if (!strcmp(infos[p].name, text))
			break;
	for (a = 0; action && a < 4; a++)
		if (!strcmp(actions[a], action))
			break;
	if (p == FAULT_NR || !action || a == 4)
		return -EINVAL;
	if (!fault_arm(p, a, skip ? strtoul(skip, NULL, 10) : 0,
		       count ? strtoul(count, NULL, 10) : 1))
		return -ENOTSUP;
	return 0;
}

int fault_from_env(const char **bad)
{
	static char copy[1024];
	const char *env = getenv("TMEMD_FAULTS");
	char *save, *part;
	int r;

	*bad = NULL;
	if (!env)
		return 0;
	if (strlen(env) >= sizeof(copy)) {
		*bad = env;
		return -EINVAL;
	}
	strcpy(copy, env);
	for (part = strtok_r(copy, ",", &save); part; part = strtok_r(NULL, ",", &save)) {
		r = arm_one(part);
		if (r) {
			*bad = part;
			return r;
		}
	}
	return 0;
}
