/* A schema with a column of each kind, for tests. */
#ifndef PLM_TESTS_SUPPORT_CASES_LABEL_SCHEMAS_H
#define PLM_TESTS_SUPPORT_CASES_LABEL_SCHEMAS_H

#include "common/labels/label_schema.h"

/* stability (number), family (class: Alpha, Beta, Gaμma), structure (residues: C, E, H), terms
 * (classes: t00 to t08) and soluble (class: 0, 1), with statistics of any value. The caller
 * deinits. */
void label_schema_make(struct plm_label_schema *schema);

#endif
