/* The packers: a Deployment, and what scales it and keeps it available. */
#include "stages/kubernetes/kubernetes_internal.h"

enum { GRACE_S = 30, CPUS = 1 };

static void put_autoscaler(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  if (run->max_packers <= run->config->packer_instances) return;
  plm_kubernetes_head(run, "autoscaling/v2", "HorizontalPodAutoscaler", "-packer", "packer", text);
  plm_text_printf(text,
                  "spec:\n"
                  "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %s-packer}\n"
                  "  minReplicas: %u\n"
                  "  maxReplicas: %u\n"
                  "  metrics:\n"
                  "    - type: Resource\n"
                  "      resource:\n"
                  "        name: cpu\n"
                  "        target: {type: Utilization, averageUtilization: 80}\n",
                  run->name, run->config->packer_instances, run->max_packers);
}

static void put_budget(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  plm_kubernetes_head(run, "policy/v1", "PodDisruptionBudget", "-packer", "packer", text);
  plm_text_puts(text, "spec:\n"
                      "  maxUnavailable: 1\n"
                      "  selector:\n"
                      "    matchLabels:\n");
  plm_kubernetes_labels(run, "packer", 6, text);
}

void plm_kubernetes_put_packers(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  struct plm_text container = {0};
  if (run->config->packer_instances == 0) return;
  plm_text_printf(&container, "      command: [plm-packer, -c, " PLM_POD_CONFIG ", --connect, ");
  plm_text_printf(&container, "\"tcp://%s:%d", run->name, PLM_POD_FEED_PORT);
  if (run->evaluator_cpus > 0)
    plm_text_printf(&container, ",tcp://%s-evaluator:%d", run->name, PLM_POD_EVALUATION_PORT);
  plm_text_puts(&container, "\", --cache, /cache, --prometheus, \"0.0.0.0:9464\"]\n"
                            "      ports:\n"
                            "        - {name: metrics, containerPort: 9464}\n");
  const struct plm_pod pod = {
      .component = "packer",
      .container = container.failed ? "" : container.data,
      .secret = "-client",
      .memory = "2Gi",
      .cpus = CPUS,
      .grace_s = GRACE_S,
      .data = true,
      .cache = true,
  };
  plm_kubernetes_head(run, "apps/v1", "Deployment", "-packer", "packer", text);
  plm_text_printf(text, "spec:\n  replicas: %u\n  selector:\n    matchLabels:\n",
                  run->config->packer_instances);
  plm_kubernetes_labels(run, "packer", 6, text);
  plm_text_puts(text, "  template:\n");
  plm_kubernetes_put_pod(run, &pod, 4, text);
  put_autoscaler(run, text);
  put_budget(run, text);
  text->failed |= container.failed;
  plm_text_deinit(&container);
}
