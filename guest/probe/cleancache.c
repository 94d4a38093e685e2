// SPDX-License-Identifier: GPL-2.0-or-later
/* Compiles when the kernel has cleancache with the operations that the module implements. */
#include <linux/cleancache.h>

#ifndef CONFIG_CLEANCACHE
#error "no cleancache in this kernel"
#endif

int probe_fs(size_t page_size);
int probe_shared(uuid_t *uuid, size_t page_size);
int probe_get(int pool, struct cleancache_filekey key, pgoff_t index, struct page *page);
void probe_put(int pool, struct cleancache_filekey key, pgoff_t index, struct page *page);
void probe_flush(int pool, struct cleancache_filekey key, pgoff_t index);
void probe_inode(int pool, struct cleancache_filekey key);
void probe_end(int pool);
int probe(void);

static const struct cleancache_ops ops = {
	.init_fs = probe_fs,
	.init_shared_fs = probe_shared,
	.get_page = probe_get,
	.put_page = probe_put,
	.invalidate_page = probe_flush,
	.invalidate_inode = probe_inode,
	.invalidate_fs = probe_end,
};

int probe(void)
{
	return cleancache_register_ops(&ops);
}
