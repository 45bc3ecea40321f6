/* `plm-packer --prometheus ADDRESS`, for a packer that was started by hand: its counters over HTTP,
 * served from the packer's loop. */
#ifndef PLM_PACKER_PACKER_EXPORTER_H
#define PLM_PACKER_PACKER_EXPORTER_H

#include "common/wire/message.h"

struct packer_exporter;
/* run is the run folder, whose name becomes a label; or NULL. */
plm_status packer_exporter_open(const char *address, const char *run,
                                struct packer_exporter **exporter, struct plm_error *error);
/* Answers requests without waiting. Call it several times a second. exporter may be NULL. */
void packer_exporter_tick(struct packer_exporter *exporter,
                          const struct plm_packer_counters *counters, int64_t now);
void packer_exporter_close(struct packer_exporter *exporter); /* NULL is fine */

#endif
