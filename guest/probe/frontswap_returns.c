// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when frontswap_register_ops() returns an error number. */
#include <linux/frontswap.h>

int probe(struct frontswap_ops *ops);

int probe(struct frontswap_ops *ops)
{
	return frontswap_register_ops(ops);
}
