/* What the files here share: ports and folders in the pods, and what fills in the templates. */
#ifndef PLM_STAGES_KUBERNETES_KUBERNETES_INTERNAL_H
#define PLM_STAGES_KUBERNETES_KUBERNETES_INTERNAL_H

#include "stages/kubernetes/kubernetes_files.h"
#include "stages/views/template.h"

enum {
  PLM_POD_FEED_PORT = 5701,
  PLM_POD_EVALUATION_PORT = 5702,
  PLM_POD_ANNOUNCEMENTS_PORT = 5703,
  PLM_POD_METRICS_PORT = 9464,
  PLM_POD_SSH_PORT = 2222
};

/* Folders in the pods, as pod.yaml.in mounts them. */
#define PLM_POD_DATA "/data"
#define PLM_POD_KEYS "/keys/run"

/* A client's files in the folder of keys. */
#define PLM_POD_CLIENT "packer"

unsigned plm_kubernetes_ranks_per_node(const struct plm_kubernetes_run *run);

/* Gives CONFIG_LINE the lines of the configuration. PLM_CONFIG if a path in it cannot be printed.
 */
plm_status plm_kubernetes_give_config(const struct plm_kubernetes_run *run,
                                      struct plm_template_values *values, struct plm_error *error);
/* Gives SERVER_KEY and CLIENT_KEY the lines of the Secrets. PLM_CONFIG if the folder lacks a key.
 */
plm_status plm_kubernetes_give_keys(const struct plm_kubernetes_run *run,
                                    struct plm_template_values *values, struct plm_error *error);

#endif
