// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Transport: QEMU's ivshmem-doorbell device. BAR 0 has registers, of which only the doorbell
 * matters here; BAR 2 is the region, ordinary memory of the host and mapped as such; MSI-X
 * vectors are the doorbells of the service.
 *
 * Others use the same device for other things: a device without MSI-X, or whose memory begins
 * with anything but zeros or our mark, is left alone.
 */
#include "tmem_priv.h"

#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

#define REG_DOORBELL 12 /* (peer << 16) | vector */

static void __iomem *registers;
static struct pci_dev *attached;
static int nr_vectors;

static void doorbell(void *data, u32 peer, u32 vector)
{
	writel(peer << 16 | vector, registers + REG_DOORBELL);
}

static const struct tmem_transport transport = {
	.name = "ivshmem",
	.doorbell = doorbell,
};

static irqreturn_t interrupt(int irq, void *vector)
{
	tmem_link_interrupt((unsigned long)vector - 1);
	return IRQ_HANDLED;
}

static void free_vectors(struct pci_dev *dev, int number)
{
	while (number--)
		free_irq(pci_irq_vector(dev, number), (void *)(number + 1ul));
	pci_free_irq_vectors(dev);
}

/* The number of vectors that are ready, or an error. */
static int setup_vectors(struct pci_dev *dev)
{
	int i, rc, number = pci_alloc_irq_vectors(dev, 1, TMEM_MAX_RINGS, PCI_IRQ_MSIX);

	for (i = 0; i < number; i++) {
		/* The cookie is not 0, which free_irq() would take for none. */
		rc = request_irq(pci_irq_vector(dev, i), interrupt, 0, "tmem", (void *)(i + 1ul));
		if (rc) {
			free_vectors(dev, i);
			return rc;
		}
	}
	return number;
}

static int probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	void *region = NULL;
	int rc;

	if (attached)
		return -EBUSY;
	rc = pci_enable_device(dev);
	if (rc)
		return rc;
	rc = pci_request_regions(dev, "tmem");
	if (rc)
		goto disable;
	pci_set_master(dev);
	rc = -ENOMEM;
	registers = pci_iomap(dev, 0, 0);
	if (pci_resource_len(dev, 2))
		region =
			memremap(pci_resource_start(dev, 2), pci_resource_len(dev, 2), MEMREMAP_WB);
	if (!registers || !region)
		goto unmap;
	rc = nr_vectors = setup_vectors(dev);
	if (rc < 0)
		goto unmap;
	rc = tmem_link_attach(&transport, region, pci_resource_len(dev, 2), nr_vectors);
	if (rc)
		goto unmap;
	attached = dev;
	pci_info(dev, "tmem: region of %llu bytes, %d doorbells\n", (u64)pci_resource_len(dev, 2),
		 nr_vectors);
	return 0;
unmap:
	if (nr_vectors > 0)
		free_vectors(dev, nr_vectors);
	nr_vectors = 0;
	if (region)
		memunmap(region);
	if (registers)
		pci_iounmap(dev, registers);
	registers = NULL;
	pci_release_regions(dev);
disable:
	pci_disable_device(dev);
	return rc;
}

/*
 * The device is unplugged. What the host has of this guest cannot be had any more; whoever needs
 * it waits. The mappings stay for good: a doorbell may just be rung on another processor.
 */
static void remove(struct pci_dev *dev)
{
	long held = tmem_pools_held();

	if (held)
		pr_err("the device was taken away with %ld pages\n", held);
	tmem_link_detach(false);
	free_vectors(dev, nr_vectors);
	pci_release_regions(dev);
	pci_disable_device(dev);
	attached = NULL;
}

static void shutdown(struct pci_dev *dev)
{
	tmem_link_detach(true);
}

static const struct pci_device_id ids[] = {{PCI_DEVICE(0x1af4, 0x1110)}, {}};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = {
	.name = "tmem",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.shutdown = shutdown,
	.driver.suppress_bind_attrs = true,
};

int tmem_ivshmem_register(void)
{
	return pci_register_driver(&driver);
}
