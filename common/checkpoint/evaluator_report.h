/* A line of evaluator.jsonl as those who decide by it read it: which step, and which weights, it is
 * about, and whether they were skipped (doc/inference.md#metrics). */
#ifndef PLM_COMMON_CHECKPOINT_EVALUATOR_REPORT_H
#define PLM_COMMON_CHECKPOINT_EVALUATOR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct cJSON;
struct plm_report {
  const struct cJSON *line;
  uint64_t step;
  const char *split; /* NULL: the line names none */
  bool extra;        /* it is about a set of evaluator.sets, or about a task */
  bool identified;   /* identity is known; the line may be about any weights otherwise */
  struct plm_hash identity;
  bool skipped; /* the checkpoint was skipped for good */
  bool waits;   /* it is intact and only could not be read, so it is tried again */
};

/* False: the line has no step that is a whole number up to 2^53. The report borrows from it. */
bool plm_report_of(const struct cJSON *line, struct plm_report *report);
/* Whether the line is one of a split of the run's own corpus. */
bool plm_report_is_of_split(const struct plm_report *report, const char *split);
/* A number of the line; NAN: it has none of this name. */
double plm_report_number(const struct plm_report *report, const char *name);

/* Calls visit with the report of each complete line that is one, from the first to the last; a
 * missing file has none. PLM_NO_MEMORY, and the errors of reading the file: not all were visited
 * then. */
plm_status plm_reports_each(const char *path,
                            void (*visit)(void *context, const struct plm_report *report),
                            void *context, struct plm_error *error);

#endif
