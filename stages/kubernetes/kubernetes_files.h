/* The Kubernetes objects of a run (doc/kubernetes.md), as a stream of YAML documents:
 * configuration, keys, services, the jobs of the trainer and the evaluator, the packers, and who
 * may reach whom. */
#ifndef PLM_STAGES_KUBERNETES_KUBERNETES_FILES_H
#define PLM_STAGES_KUBERNETES_KUBERNETES_FILES_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/text/text.h"
#include "common/config/config.h"

enum { PLM_KUBERNETES_NAME_SIZE = 41 }; /* of a run's name, with its NUL */

/* Strings may be NULL where that is said. */
struct plm_kubernetes_run {
  struct plm_config *config; /* plm_kubernetes_config adapts it to the pods */
  const char *name;          /* of the run: every object's name begins with it */
  const char *namespace_;    /* or NULL: the one that kubectl uses */
  const char *image;
  const char *claim;       /* the PersistentVolumeClaim with corpora and run folders */
  const char *keys;        /* folder of CURVE keys, with those of a client `packer` */
  const char *memory;      /* of the trainer's and the evaluator's pods, as Kubernetes takes it */
  unsigned nodes;          /* of the trainer; divides trainer.ranks; an MPIJob if above 1 */
  unsigned cpus;           /* of each rank */
  unsigned evaluator_cpus; /* 0: no evaluator */
  unsigned max_packers;    /* at least packer.instances; no autoscaler if equal */
};

/* Writes the name of a run folder as a name that Kubernetes takes: in lower case, with hyphens.
 * PLM_USAGE if nothing of it remains; the hint names the option --name. */
plm_status plm_kubernetes_name(const char *run, char name[PLM_KUBERNETES_NAME_SIZE],
                               struct plm_error *error);

/* Checks what the command line gave. PLM_USAGE or PLM_CONFIG if something is not a name, an image
 * or an amount, or does not fit the configuration. */
plm_status plm_kubernetes_check(const struct plm_kubernetes_run *run, struct plm_error *error);

/* Changes the configuration to what holds in the pods: paths under the mounted volume, addresses of
 * the services, threads, hosts. PLM_CONFIG if two paths would become one. */
plm_status plm_kubernetes_config(struct plm_kubernetes_run *run, struct plm_error *error);

/* Appends all documents to *text, after plm_kubernetes_check and plm_kubernetes_config. Reads the
 * keys, so the text holds secrets. PLM_CONFIG if the folder lacks one of them. */
plm_status plm_kubernetes_files(const struct plm_kubernetes_run *run, struct plm_text *text,
                                struct plm_error *error);

#endif
