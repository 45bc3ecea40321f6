/* What the writers of Kubernetes objects share: names, ports, folders in the pods, and the parts
 * that every object or every pod has. All of them append to a text, and remember a failure there.
 */
#ifndef PLM_STAGES_KUBERNETES_KUBERNETES_INTERNAL_H
#define PLM_STAGES_KUBERNETES_KUBERNETES_INTERNAL_H

#include "stages/kubernetes/kubernetes_files.h"

enum {
  PLM_POD_FEED_PORT = 5701,
  PLM_POD_EVALUATION_PORT = 5702,
  PLM_POD_ANNOUNCEMENTS_PORT = 5703,
  PLM_POD_METRICS_PORT = 9464,
  PLM_POD_SSH_PORT = 2222,
  PLM_JOB_RETRIES = 5,
  PLM_POD_USER = 10001 /* the user of the image, stages/kubernetes/Dockerfile */
};

/* Folders in the pods. */
#define PLM_POD_DATA "/data"
#define PLM_POD_CONFIG "/etc/plm/pipeline.yaml"
#define PLM_POD_KEYS "/keys/run"
#define PLM_POD_HOME "/home/plm"

/* A client's files in the folder of keys. */
#define PLM_POD_CLIENT "packer"

/* A value in double quotes, as YAML and JSON read it. */
void plm_kubernetes_quote(struct plm_text *text, const char *value);
/* The beginning of a document, up to and with its labels. component may be NULL; suffix may be "".
 */
void plm_kubernetes_head(const struct plm_kubernetes_run *run, const char *api, const char *kind,
                         const char *suffix, const char *component, struct plm_text *text);
/* The labels by which a component's pods are found, on lines of their own. */
void plm_kubernetes_labels(const struct plm_kubernetes_run *run, const char *component,
                           unsigned indent, struct plm_text *text);
unsigned plm_kubernetes_ranks_per_node(const struct plm_kubernetes_run *run);
/* How long a pod of the trainer or the evaluator has after SIGTERM: more than the supervisor takes
 * to kill a stage. */
unsigned plm_kubernetes_grace_s(const struct plm_kubernetes_run *run);
/* The beginning of a Job's `spec:`: which ends of its container count as failures. */
void plm_kubernetes_put_failure_policy(const char *container, struct plm_text *text);

/* One document each, or several. */
void plm_kubernetes_put_trainer(const struct plm_kubernetes_run *run, struct plm_text *text);
void plm_kubernetes_put_evaluator(const struct plm_kubernetes_run *run, struct plm_text *text);
void plm_kubernetes_put_packers(const struct plm_kubernetes_run *run, struct plm_text *text);
void plm_kubernetes_put_network(const struct plm_kubernetes_run *run, struct plm_text *text);
plm_status plm_kubernetes_put_config(const struct plm_kubernetes_run *run, struct plm_text *text,
                                     struct plm_error *error);
plm_status plm_kubernetes_put_secrets(const struct plm_kubernetes_run *run, struct plm_text *text,
                                      struct plm_error *error);

/* What the pod of a component is made of. */
struct plm_pod {
  const char *component; /* trainer, rank, evaluator or packer */
  const char *container; /* its command, and what else only it has: lines at an indent of 10 */
  const char *secret;    /* suffix of the Secret with its keys; NULL: it has none */
  const char *memory;
  const char *restart; /* restartPolicy, or NULL */
  unsigned cpus, gpus, grace_s;
  bool data, writes; /* mounts the volume with the data; may write there */
  bool cache;        /* has a folder for a copy of the corpus */
};
/* `metadata:` and `spec:` of a pod template, with every line indented by `indent` more. */
void plm_kubernetes_put_pod(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                            unsigned indent, struct plm_text *text);

#endif
