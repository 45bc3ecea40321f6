/* The watching evaluator of a run: every published checkpoint, oldest first, verified, evaluated
 * once on each split, reported in evaluator.jsonl and TensorBoard. It may start late, be killed
 * and come again: what is reported is the file itself. */
#ifndef PLM_EVALUATOR_WATCH_WATCH_H
#define PLM_EVALUATOR_WATCH_WATCH_H

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/ops.h"

/* Until DONE exists and every checkpoint is reported, or a stop signal. A checkpoint that is being
 * evaluated when the signal comes is finished within trainer.stop_timeout_s, else dropped. */
plm_status plm_watch(const struct plm_config *config, struct plm_ops *ops, struct plm_error *error);

#endif
