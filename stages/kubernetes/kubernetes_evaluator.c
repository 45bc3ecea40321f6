/* The evaluator: a Job. */
#include "stages/kubernetes/kubernetes_internal.h"

/* A stopped evaluator exits with 143, so Kubernetes does not take an evicted pod for a complete
 * one.
 */
static const char evaluator_container[] =
    "      command: [plm-evaluator, -c, " PLM_POD_CONFIG ", --prometheus, 0.0.0.0:9464]\n"
    "      ports:\n"
    "        - {name: feed, containerPort: 5702}\n"
    "        - {name: metrics, containerPort: 9464}\n"
    "      readinessProbe:\n"
    "        httpGet: {path: /metrics, port: metrics}\n";

void plm_kubernetes_put_evaluator(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  if (run->evaluator_cpus == 0) return;
  const struct plm_pod pod = {
      .component = "evaluator",
      .container = evaluator_container,
      .secret = "-server",
      .memory = run->memory,
      .restart = "Never",
      .cpus = run->evaluator_cpus,
      .gpus = run->config->evaluator.device == PLM_DEVICE_CUDA ? 1 : 0,
      .grace_s = plm_kubernetes_grace_s(run),
      .data = true,
      .writes = true,
  };
  plm_kubernetes_head(run, "batch/v1", "Job", "-evaluator", "evaluator", text);
  plm_kubernetes_put_failure_policy("evaluator", text);
  plm_text_puts(text, "  template:\n");
  plm_kubernetes_put_pod(run, &pod, 4, text);
}
