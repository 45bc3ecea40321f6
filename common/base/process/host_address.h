/* Where to listen: HOST:PORT with a name in place of an address, as people write it. libzmq binds
 * only addresses and network interfaces. */
#ifndef PLM_COMMON_BASE_PROCESS_HOST_ADDRESS_H
#define PLM_COMMON_BASE_PROCESS_HOST_ADDRESS_H

#include "common/base/status.h"

enum { PLM_HOST_ADDRESS_SIZE = 300 };

/* Writes HOST:PORT with the address of HOST: an IPv4 or [IPv6] address and * stay as they are, ""
 * is
 * *; the name of a network interface of this host, or a name that resolves, becomes its first IPv4
 * address or, if it has none, its first IPv6 address in brackets. PORT is not looked at.
 * PLM_CONFIG: HOST is none of these. PLM_IO: the name server did not answer. */
plm_status plm_host_address(const char *address, char numeric[PLM_HOST_ADDRESS_SIZE],
                            struct plm_error *error);

#endif
