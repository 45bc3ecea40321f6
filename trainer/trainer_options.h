/* What each part of the trainer takes from the configuration. Only this file knows both, so that
 * the header of a part shows what the part depends on. Everything that a result points to is
 * borrowed from the configuration. */
#ifndef PLM_TRAINER_TRAINER_OPTIONS_H
#define PLM_TRAINER_TRAINER_OPTIONS_H

#include "common/config/config.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/input/data_mixture.h"
#include "trainer/input/objective.h"
#include "trainer/step/source_totals.h"

struct plm_data_sources plm_data_sources_of(const struct plm_config *config);
struct plm_objective_options plm_objective_options_of(const struct plm_config *config);
struct plm_resume_options plm_resume_options_of(const struct plm_config *config);
struct plm_checkpoint_options plm_checkpoint_options_of(const struct plm_config *config);
/* With the names of the sources, and nothing counted. */
struct plm_source_totals plm_source_totals_of(const struct plm_config *config);

#endif
