/* The live block below the lines of `up` on a terminal: reads what the stages report, and draws it.
 */
#ifndef PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_LIVE_H
#define PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/run/log_tail.h"
#include "stages/supervisor/supervised.h"
#include "stages/views/live_block.h"

struct live {
  const struct stages *stages;
  bool color;
  struct plm_tail trainer, evaluator; /* of their metrics */
  struct plm_live_facts facts;
  double step_ms;                             /* smoothed */
  int64_t looked_ms;                          /* when packers and checkpoints were last looked at */
  struct plm_live_line drawn[PLM_LIVE_LINES]; /* on the screen */
  size_t drawn_count;
  unsigned drawn_columns; /* width of the terminal when they were drawn */
};

/* The caller has set stages and color. Nothing is drawn yet. */
void live_open(struct live *live);
/* Removes the block, so that lines can be printed where it was. Nothing if it is not drawn. */
void live_erase(struct live *live);
/* Reads what is new, and draws the block where the cursor is or anew where it was. */
void live_update(struct live *live);

#endif
