/* Variables that Kubernetes sets in every pod of a namespace for each Service in it ("service
 * links"). A Service named plm-trainer sets PLM_TRAINER_PORT=tcp://10.0.3.4:5701, for example,
 * which is not one of our settings. */
#ifndef PLM_COMMON_CONFIG_SERVICE_VARIABLES_H
#define PLM_COMMON_CONFIG_SERVICE_VARIABLES_H

#include <stdbool.h>

/* Whether a variable has a name and a value as Kubernetes writes them: NAME_SERVICE_HOST,
 * NAME_SERVICE_PORT, NAME_SERVICE_PORT_x, NAME_PORT=tcp://..., NAME_PORT_n_TCP=tcp://... and
 * NAME_PORT_n_TCP_PROTO, _PORT or _ADDR; also with UDP and SCTP. */
bool plm_is_service_variable(const char *name, const char *value);

#endif
