/* packers.jsonl: a line for each packer of the run every few seconds while it serves. */
#ifndef PLM_PACKER_PACKER_METRICS_H
#define PLM_PACKER_PACKER_METRICS_H

#include "common/wire/message.h"

struct packer_metrics;
/* Appends to RUN/packers.jsonl; a run folder that is not there yet is waited for. */
plm_status packer_metrics_open(const char *run, const struct plm_hello *who,
                               struct packer_metrics **metrics, struct plm_error *error);
/* Writes a line when it is time and something was served. metrics may be NULL. */
void packer_metrics_tick(struct packer_metrics *metrics, const struct plm_packer_counters *counters,
                         int64_t now);
void packer_metrics_close(struct packer_metrics *metrics,
                          const struct plm_packer_counters *counters, int64_t now);

#endif
