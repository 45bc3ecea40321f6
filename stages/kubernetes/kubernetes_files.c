/* The stream of documents, and the beginning of each. */
#include "stages/kubernetes/kubernetes_files.h"

#include "stages/kubernetes/kubernetes_internal.h"

void plm_kubernetes_quote(struct plm_text *text, const char *value)
{
  plm_text_puts(text, "\"");
  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') plm_text_puts(text, "\\");
    plm_text_append(text, value, 1);
  }
  plm_text_puts(text, "\"");
}

void plm_kubernetes_labels(const struct plm_kubernetes_run *run, const char *component,
                           unsigned indent, struct plm_text *text)
{
  plm_text_printf(text, "%*sapp.kubernetes.io/name: plm-pipeline\n", (int)indent, "");
  plm_text_printf(text, "%*sapp.kubernetes.io/instance: \"%s\"\n", (int)indent, "", run->name);
  if (component != NULL)
    plm_text_printf(text, "%*sapp.kubernetes.io/component: %s\n", (int)indent, "", component);
}

void plm_kubernetes_head(const struct plm_kubernetes_run *run, const char *api, const char *kind,
                         const char *suffix, const char *component, struct plm_text *text)
{
  plm_text_printf(text, "---\napiVersion: %s\nkind: %s\nmetadata:\n  name: \"%s%s\"\n", api, kind,
                  run->name, suffix);
  if (run->namespace_ != NULL) plm_text_printf(text, "  namespace: \"%s\"\n", run->namespace_);
  plm_text_puts(text, "  labels:\n");
  plm_kubernetes_labels(run, component, 4, text);
}

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
