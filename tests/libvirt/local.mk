# Machines of a real libvirt, which starts for each case anew: make check-libvirt.
EXTRA_DIST += \
	tests/libvirt/README.md tests/libvirt/run.sh tests/libvirt/lib.sh \
	tests/libvirt/cases/cold.sh tests/libvirt/cases/hook.sh tests/libvirt/cases/hot.sh \
	tests/libvirt/cases/ring.sh tests/libvirt/cases/save.sh

check-libvirt: all
	vm_build=$(abs_builddir) $(srcdir)/tests/libvirt/run.sh $(LIBVIRT_CASES)

.PHONY: check-libvirt
