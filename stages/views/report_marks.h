/* What changed in a run at its resumes, for `report`: from the history of its newest checkpoint and
 * the lines of its metrics. */
#ifndef PLM_STAGES_VIEWS_REPORT_MARKS_H
#define PLM_STAGES_VIEWS_REPORT_MARKS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum { PLM_REPORT_MARKS = 256, PLM_MARK_SIZE = 512 };

/* One resume, or one change of a setting. */
struct plm_report_mark {
  uint64_t step;            /* finished steps before it */
  char text[PLM_MARK_SIZE]; /* "trainer.batch_tokens: 512 -> 1024"; "": resumed without a change */
};

/* By ascending step. Of more than PLM_REPORT_MARKS, the later ones are left out. {0} is empty. */
struct plm_report_marks {
  struct plm_report_mark list[PLM_REPORT_MARKS];
  size_t count;
};

struct cJSON;
struct plm_curve;
/* Adds each change that `history` of a trainer.json tells; NULL tells none. */
void plm_marks_add_history(struct plm_report_marks *marks, const struct cJSON *history);
/* Adds changes after a step: lines as plm_config_check_resume writes them; NULL: none. */
void plm_marks_add_changes(struct plm_report_marks *marks, uint64_t step, const char *changes);
/* Adds the resumes that are not known by a change, from the metric `resumed`; NULL: none. */
void plm_marks_add_resumes(struct plm_report_marks *marks, const struct plm_curve *resumed);

/* What a chart says of a mark: "batch_tokens 1024", or "resumed". Cut to size bytes. */
void plm_mark_label(const struct plm_report_mark *mark, char *label, size_t size);

#endif
