/* The watching evaluator of a run: it verifies every published checkpoint, oldest first, evaluates
 * it once on each split and each further held-out set, and reports to evaluator.jsonl and
 * TensorBoard. It may start late, and may be killed and restarted: what evaluator.jsonl reports is
 * not evaluated again. */
#ifndef PLM_EVALUATOR_WATCH_WATCH_H
#define PLM_EVALUATOR_WATCH_WATCH_H

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/ops.h"

/* Runs until DONE exists and every checkpoint is reported, or until a stop signal, after which it
 * returns what plm_stop_drained does unless nothing was left to report. When the signal comes, the
 * current evaluation may take trainer.stop_timeout_s to finish; after that it is dropped. */
plm_status plm_watch(const struct plm_config *config, struct plm_ops *ops, struct plm_error *error);

#endif
