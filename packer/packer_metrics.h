/* packers.jsonl: each packer of the run writes a line every five seconds while it serves. */
#ifndef PLM_PACKER_PACKER_METRICS_H
#define PLM_PACKER_PACKER_METRICS_H

#include "common/wire/message.h"

struct packer_metrics;
/* Lines go to packers.jsonl in the run folder. The folder need not exist yet, but lines written
 * before it does are lost. */
plm_status packer_metrics_open(const char *run, const struct plm_hello *who,
                               struct packer_metrics **metrics, struct plm_error *error);
/* Writes a line if one is due and something was served since the last. metrics may be NULL. */
void packer_metrics_tick(struct packer_metrics *metrics, const struct plm_packer_counters *counters,
                         int64_t now);
void packer_metrics_close(struct packer_metrics *metrics,
                          const struct plm_packer_counters *counters, int64_t now);

#endif
