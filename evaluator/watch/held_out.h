/* What a watching evaluator evaluates every checkpoint on: splits of the run's own corpus, whose
 * chunks come from the packers, and the sets of evaluator.sets, whose corpora it opens itself. */
#ifndef PLM_EVALUATOR_WATCH_HELD_OUT_H
#define PLM_EVALUATOR_WATCH_HELD_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "evaluator/evaluate/corpus_stream.h"

enum { PLM_MAX_HELD_OUT = PLM_MAX_SPLITS + PLM_MAX_SETS };

struct plm_held_out {
  const char *set; /* PLM_OWN_SET, or a name of evaluator.sets */
  enum plm_split split;
  unsigned bit;                     /* as in history.h */
  struct plm_corpus *corpus;        /* NULL for the run's own corpus */
  struct plm_corpus_stream *stream; /* NULL for the run's own corpus */
  double baseline_entropy;          /* of `corpus`; 0 for the run's own */
};

/* Caller-owned; {0} is empty. */
struct plm_held_out_list {
  struct plm_held_out items[PLM_MAX_HELD_OUT];
  uint32_t count;
  unsigned bits; /* of all items */
};

/* Splits in the order of the enum, then the sets in the order of the configuration, which is
 * borrowed. PLM_CONFIG: a set's corpus has another tokenizer, no documents in its split, or not the
 * labels that the run trains on; what opening a corpus returns. The list is to be closed even then.
 */
plm_status plm_held_out_open(const struct plm_config *config, struct plm_held_out_list *list,
                             struct plm_error *error);
void plm_held_out_close(struct plm_held_out_list *list);

#endif
