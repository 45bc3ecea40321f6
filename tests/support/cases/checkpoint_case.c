/* A run folder and what publishing borrows; see checkpoint_case.h. */
#include "tests/support/cases/checkpoint_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "trainer/trainer_options.h"

static const char yaml[] = "model: {architecture: transformer, hidden_size: 64, "
                           "num_attention_heads: 2, num_hidden_layers: 1}\n"
                           "trainer: {ema: 0.9, checkpoint: {keep_last: 2, keep_best: 0}}\n";

static void check(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  fprintf(stderr, "%s\n", error->what);
  exit(1);
}

struct checkpoint_case *checkpoint_case_open(void)
{
  static unsigned number;
  static char trainer_json[] = "{\"format\":1}";
  struct plm_error error = {0};
  struct checkpoint_case *c = must(calloc(1, sizeof *c));
  char path[PLM_PATH_SIZE], name[32];
  snprintf(name, sizeof name, "run-%u", number++);
  snprintf(c->run, sizeof c->run, "%s", scratch_path(name));
  check(plm_path_join(c->checkpoints, c->run, PLM_RUN_CHECKPOINTS, &error), &error);
  check(plm_directory_make(c->checkpoints, &error), &error);
  check(plm_config_load_text(yaml, strlen(yaml), &c->config, &error), &error);
  check(plm_model_parameters(&c->config.model, &c->table, &c->count, &c->arena, &error), &error);
  c->values = must(calloc(c->arena, sizeof(float)));
  plm_model_initialise(c->table, c->count, 1, c->values);
  c->tensors[0] = (struct plm_optimizer_tensor){
      .name = "a.momentum", .rows = 2, .cols = 3, .ndim = 2, .count = 6};
  c->tensors[1] = (struct plm_optimizer_tensor){
      .name = "b.second_moment", .rows = 1, .cols = 5, .ndim = 1, .second = true, .count = 5};
  check(plm_path_join(path, c->run, PLM_RUN_TRAINER_METRICS, &error), &error);
  check(plm_metrics_open(path, &c->metrics, &error), &error);
  check(plm_lock_acquire(c->run, "trainer", &c->lock, &error), &error);
  c->context = (struct plm_checkpoint_context){.run = c->run,
                                               .options = plm_checkpoint_options_of(&c->config),
                                               .table = c->table,
                                               .table_count = c->count,
                                               .tensors = c->tensors,
                                               .tensor_count = 2,
                                               .metrics = c->metrics,
                                               .lock = c->lock};
  c->snapshot = (struct plm_snapshot){.step = 7,
                                      .weights = c->values,
                                      .average = c->values,
                                      .first = c->values,
                                      .second = c->values,
                                      .clip_norms = {1.5, 2.5},
                                      .clip_count = 2,
                                      .trainer_json = trainer_json};
  return c;
}

void checkpoint_case_close(struct checkpoint_case *c)
{
  plm_lock_release(c->lock);
  plm_metrics_close(c->metrics);
  plm_config_deinit(&c->config);
  free(c->table);
  free(c->values);
  free(c);
}
