# Around xl: the verbs that it had for tmem.
dist_bin_SCRIPTS = tools/xen/xl-tmem
