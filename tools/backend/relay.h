/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Carries what the two ends of vhost-user say to each other, messages and their descriptors, until
 * one hangs up. Knows where a message ends, and nothing of what it says.
 */
#ifndef TMEM_RELAY_H
#define TMEM_RELAY_H

enum relay_end {
	RELAY_FRONT_GONE,
	RELAY_BACK_GONE,
	RELAY_STOPPED, /* `stop` became readable */
	RELAY_FAILED,  /* errno says why */
};

/*
 * Until one of these ends. What a side sent before it hung up reaches the other. Descriptors stay
 * with the message that they came with. The three descriptors stay the caller's; none may be closed
 * meanwhile. A side that does not read makes only those wait that speak to it.
 */
enum relay_end relay_run(int front, int back, int stop);

#endif
