/* Keeps a rank on the processors that are near its GPU, so that what it copies to the GPU does not
 * cross to another socket. */
#ifndef PLM_TRAINER_RANKS_RANK_CORES_H
#define PLM_TRAINER_RANKS_RANK_CORES_H

#include <sched.h>
#include <stdbool.h>

enum { PLM_PCI_SIZE = 32 };
#define PLM_PCI_DEVICES "/sys/bus/pci/devices" /* where Linux describes devices */

/* Reads a list of processors as Linux writes it, such as "0-15,32-47". False if it is none. */
bool plm_cores_parse(const char *list, cpu_set_t *processors);

/* Reads FOLDER/location/local_cpulist, the processors of the device's NUMA node. location: the
 * device's PCI address, "0000:3b:00.0", in either case. False if the system does not say. */
bool plm_cores_near(const char *folder, const char *location, cpu_set_t *processors);

/* Moves all threads of this process to those of `near` that they may use. Returns how many
 * processors these are, or 0 if nothing changed: then all of them are near already, or none is. */
int plm_cores_stay(const cpu_set_t *near);

#endif
