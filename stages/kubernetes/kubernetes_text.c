/* The parts that every document has. */
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
