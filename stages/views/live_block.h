/* The block that `up` keeps below the log on a terminal: progress, loss with a small curve,
 * packers, the last evaluation and the newest checkpoint. Here it is only composed; who draws it is
 * stages/supervisor/report/supervisor_live.c. */
#ifndef PLM_STAGES_VIEWS_LIVE_BLOCK_H
#define PLM_STAGES_VIEWS_LIVE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLM_LIVE_LINES = 4, PLM_LIVE_BUCKETS = 24, PLM_LIVE_LINE_SIZE = 512 };

/* Mean of a value over equal parts of the run's steps. {0} is empty. */
struct plm_live_curve {
  double sums[PLM_LIVE_BUCKETS];
  uint64_t counts[PLM_LIVE_BUCKETS];
};
/* Takes the value of a step (from 1) of `steps`; one that is not finite is left out. */
void plm_live_curve_add(struct plm_live_curve *curve, uint64_t step, uint64_t steps, double value);

struct plm_live_facts {
  size_t ready, stages; /* shown before the first step */
  uint64_t step, steps; /* step 0: none yet */
  double loss;          /* nats; NAN: unknown, as below */
  double tokens_per_second;
  double left_s;
  char activity[128];          /* shown instead of both if it is not "": "no step for 3:05" */
  double epoch;                /* 0 or NAN: not shown */
  struct plm_live_curve curve; /* of the loss */
  char warning[32];            /* a sign that training has gone wrong; "": none */
  char packers[128];           /* "0: 25.1k/s, 1: standby"; "" if none serves */
  char evaluator[128];         /* "no sign for 3:05: evaluating step 500 (valid)"; "": it works */
  char evaluation[128];        /* "valid 2.7123, accuracy 21.5 % at step 150"; "": none yet */
  bool has_checkpoint;
  uint64_t checkpoint_step;
};

struct plm_live_line {
  char text[PLM_LIVE_LINE_SIZE]; /* UTF-8 */
  size_t columns;                /* that it takes; each character takes one */
  size_t label;                  /* bytes at its beginning that may be colored */
  const char *color;             /* an escape sequence for them */
};

/* Fills at most PLM_LIVE_LINES lines, none of them wider than `columns` (at least 1), and returns
 * their number. unicode: the curve is drawn with blocks of eight heights, otherwise with ASCII. */
size_t plm_live_compose(const struct plm_live_facts *facts, size_t columns, bool unicode,
                        struct plm_live_line lines[PLM_LIVE_LINES]);

#endif
