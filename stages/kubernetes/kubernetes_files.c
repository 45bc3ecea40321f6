/* The stream of documents. */
#include "stages/kubernetes/kubernetes_files.h"

#include "stages/kubernetes/kubernetes_internal.h"

plm_status plm_kubernetes_files(const struct plm_kubernetes_run *run, struct plm_text *text,
                                struct plm_error *error)
{
  plm_text_puts(text, "# A run of plm-pipeline on Kubernetes: start it with kubectl apply -f. "
                      "Written by\n# `plm-pipeline k8s`. It holds secret keys.\n");
  PLM_TRY(plm_kubernetes_put_config(run, text, error));
  PLM_TRY(plm_kubernetes_put_secrets(run, text, error));
  plm_kubernetes_put_network(run, text);
  plm_kubernetes_put_trainer(run, text);
  plm_kubernetes_put_evaluator(run, text);
  plm_kubernetes_put_packers(run, text);
  return text->failed ? plm_error_set(error, PLM_NO_MEMORY, "out of memory") : PLM_OK;
}
