/* Compares the evaluator's reports with trainer.stop_when. */
#include "trainer/checkpoint/stop_when.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/early_stop.h"
#include "common/metrics/measure_table.h"
#include "common/run/run.h"

bool plm_stop_when(const char *run, const struct plm_config *config, uint64_t step,
                   struct plm_early_stop_reports *reports)
{
  const struct plm_config_stop_when *when = &config->trainer.stop_when;
  if (when->patience == 0) return false;
  const char *metric = plm_stop_metric_names[when->metric];
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct plm_early_stop found;
  const struct plm_early_stop_rule rule = {
      .split = config->evaluator.splits[0], .metric = metric, .higher = !plm_measure_falls(metric)};
  plm_status status = plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, &error);
  if (status == PLM_OK) status = plm_early_stop_read(path, &rule, step, reports, &found, &error);
  if (status != PLM_OK) {
    plm_warning("trainer.stop_when: %s", error.what);
    return false;
  }
  if (found.since < when->patience) return false;
  plm_info("trainer.stop_when: none of the last %u evaluated checkpoints has a better %s than %g "
           "(step %llu)",
           found.since, metric, found.best, (unsigned long long)found.best_step);
  return true;
}

void plm_stop_when_note(const struct plm_config *config, struct plm_done *done)
{
  const struct plm_config_stop_when *when = &config->trainer.stop_when;
  snprintf(done->metric, sizeof done->metric, "%s", plm_stop_metric_names[when->metric]);
  done->patience = when->patience;
}
