/* The ids of assays in the reference file of a benchmark in ProteinGym's format, in its column
 * DMS_id. */
#ifndef PLM_COMMON_SEQUENCES_ASSAY_IDS_H
#define PLM_COMMON_SEQUENCES_ASSAY_IDS_H

#include <stdint.h>

#include "common/base/status.h"

/* Whether the file lists all ids (count). PLM_CONFIG: it does not, or it has no column DMS_id.
 * Otherwise the errors of plm_csv_open and plm_csv_next. */
plm_status plm_assay_ids_check(const char *reference, const char *const *ids, uint32_t count,
                               struct plm_error *error);

#endif
