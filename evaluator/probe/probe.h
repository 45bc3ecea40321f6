/* `probe`: how well linear models on the frozen hidden states of a checkpoint predict the labels of
 * a table, beside the same models on the composition of the sequences alone. */
#ifndef PLM_EVALUATOR_PROBE_PROBE_H
#define PLM_EVALUATOR_PROBE_PROBE_H

#include "common/inference/inference.h"
#include "evaluator/probe/probe_embed.h"
#include "evaluator/probe/probe_fit.h"

struct plm_probe_request {
  struct plm_labelled_request table;
  const char
      *layers; /* "8" or "4,8,last" (layer_choice.h), or "all"; NULL: the last hidden state */
  struct plm_pooling pooling; /* not for labels of residues */
  double alpha;               /* 0: chosen (probe_fit.h) */
  uint32_t max_length;        /* as plm_inference_limit takes it; 0: the model\'s */
  plm_status (*check)(void *context, struct plm_error *error); /* as in plm_probe_embedding */
  void *context;
};

/* What one layer, or one choice of layers, predicts. */
struct plm_probed {
  char layer[PLM_LAYERS_NAME_SIZE]; /* "last", "8", "4,8" */
  struct plm_probe_fit fit;
};

struct plm_probe_results {
  struct plm_probe_items items;
  struct plm_probed *layers; /* (count): all of them with "all", else one */
  uint32_t count, best; /* best: the smallest loss where alpha was chosen, and if alpha is given,
                           the last layer */
  struct plm_probe_fit baseline; /* of the composition */
};

/* Probes one checkpoint, which is loaded. table was read for request->table and the tokenizer of
 * the model, and is borrowed until _deinit. The caller frees results with _deinit. The errors are
 * those of the parts. */
plm_status plm_probe_run(const struct plm_probe_request *request,
                         const struct plm_labelled_table *table, struct plm_inference *inference,
                         struct plm_probe_results *results, struct plm_error *error);
void plm_probe_results_deinit(struct plm_probe_results *results);

#endif
