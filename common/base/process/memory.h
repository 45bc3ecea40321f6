/* The memory of this machine, or of the container in which this process runs. */
#ifndef PLM_COMMON_BASE_PROCESS_MEMORY_H
#define PLM_COMMON_BASE_PROCESS_MEMORY_H

#include <stdint.h>

/* The bytes that the system can provide without swapping (MemAvailable of /proc/meminfo, else the
 * free pages), and all of its bytes; in a container with a limit, no more than that. */
void plm_memory_size(uint64_t *free_bytes, uint64_t *total_bytes);

#endif
