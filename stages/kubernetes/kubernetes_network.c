/* The services of a run, and who may reach which port of its pods. */
#include "stages/kubernetes/kubernetes_internal.h"

static void put_service(const struct plm_kubernetes_run *run, const char *suffix,
                        const char *component, struct plm_text *text)
{
  plm_kubernetes_head(run, "v1", "Service", suffix, component, text);
  plm_text_puts(text, "spec:\n  selector:\n");
  plm_kubernetes_labels(run, component, 4, text);
}

/* Packers have no service, so monitoring finds them, and everything else, by the port `metrics` of
 * the pods. */
static void put_services(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  put_service(run, "", "trainer", text);
  plm_text_printf(text,
                  "  ports:\n"
                  "    - {name: feed, port: %d, targetPort: feed}\n"
                  "    - {name: announcements, port: %d, targetPort: announcements}\n"
                  "    - {name: metrics, port: %d, targetPort: metrics}\n",
                  PLM_POD_FEED_PORT, PLM_POD_ANNOUNCEMENTS_PORT, PLM_POD_METRICS_PORT);
  if (run->evaluator_cpus == 0) return;
  put_service(run, "-evaluator", "evaluator", text);
  plm_text_printf(text,
                  "  ports:\n"
                  "    - {name: feed, port: %d, targetPort: feed}\n"
                  "    - {name: metrics, port: %d, targetPort: metrics}\n",
                  PLM_POD_EVALUATION_PORT, PLM_POD_METRICS_PORT);
}

static void put_policy(const struct plm_kubernetes_run *run, const char *component,
                       struct plm_text *text)
{
  char suffix[32] = "-";
  for (size_t i = 0; i + 2 < sizeof suffix && component[i] != '\0'; i++) {
    suffix[i + 1] = component[i];
    suffix[i + 2] = '\0';
  }
  plm_kubernetes_head(run, "networking.k8s.io/v1", "NetworkPolicy", suffix, component, text);
  plm_text_puts(text, "spec:\n  podSelector:\n    matchLabels:\n");
  plm_kubernetes_labels(run, component, 6, text);
  plm_text_puts(text, "  policyTypes: [Ingress]\n  ingress:\n");
}

static void put_peer(const struct plm_kubernetes_run *run, const char *component,
                     struct plm_text *text)
{
  plm_text_puts(text, "        - podSelector:\n            matchLabels:\n");
  plm_kubernetes_labels(run, component, 14, text);
}

static void put_metrics(struct plm_text *text)
{
  plm_text_printf(text, "    - ports: [{port: %d, protocol: TCP}]\n", PLM_POD_METRICS_PORT);
}

/* The ranks of an MPIJob connect to each other on ports that the system chooses. */
static void put_ranks(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  if (run->nodes < 2) return;
  plm_text_puts(text, "    - from:\n");
  put_peer(run, "trainer", text);
  put_peer(run, "rank", text);
}

void plm_kubernetes_put_network(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  put_services(run, text);
  put_policy(run, "trainer", text);
  plm_text_puts(text, "    - from:\n");
  put_peer(run, "packer", text);
  plm_text_printf(text, "      ports: [{port: %d, protocol: TCP}]\n", PLM_POD_FEED_PORT);
  if (run->evaluator_cpus > 0) {
    plm_text_puts(text, "    - from:\n");
    put_peer(run, "evaluator", text);
    plm_text_printf(text, "      ports: [{port: %d, protocol: TCP}]\n", PLM_POD_ANNOUNCEMENTS_PORT);
  }
  put_metrics(text);
  put_ranks(run, text);
  if (run->nodes > 1) {
    put_policy(run, "rank", text);
    put_ranks(run, text);
  }
  if (run->evaluator_cpus > 0) {
    put_policy(run, "evaluator", text);
    plm_text_puts(text, "    - from:\n");
    put_peer(run, "packer", text);
    plm_text_printf(text, "      ports: [{port: %d, protocol: TCP}]\n", PLM_POD_EVALUATION_PORT);
    put_metrics(text);
  }
  put_policy(run, "packer", text);
  put_metrics(text);
}
