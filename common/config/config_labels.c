/* Checks the settings of objectives that predict labels, and completes the head. */
#include "common/config/config_labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/loader_keys.h"
#include "common/config/problems.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"

/* The settings of labels, with an objective that predicts tokens. */
static void refuse_labels(struct plm_loader *loader)
{
  static const char *const keys[] = {"trainer.labels", "trainer.class_weights",
                                     "trainer.head.pooling", "trainer.head.hidden_size",
                                     "trainer.head.dropout"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (plm_key_is_changed(loader, keys[i]))
      plm_problems_add(loader->problems, plm_key_place(loader, keys[i], NULL),
                       "%s: the objective %s predicts no labels; set trainer.objective to "
                       "regression, classification, multilabel or residues",
                       keys[i], plm_objective_name(loader->config->trainer.objective));
}

static void check_columns(struct plm_loader *loader)
{
  const struct plm_config_trainer *trainer = &loader->config->trainer;
  const enum plm_objective objective = trainer->objective;
  const bool one = objective == PLM_OBJECTIVE_CLASSIFICATION || objective == PLM_OBJECTIVE_RESIDUES;
  if (plm_key_is_bad(loader, "trainer.labels")) return;
  if (trainer->label_count == 0)
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.objective", NULL),
                     "trainer.objective: %s needs trainer.labels, the column%s to predict",
                     plm_objective_name(objective), one ? "" : "s");
  if (one && trainer->label_count > 1)
    plm_problems_add(loader->problems, plm_key_place(loader, "trainer.labels", NULL),
                     "trainer.labels: %s predicts one column, but the list has %u",
                     plm_objective_name(objective), trainer->label_count);
  if (!one && trainer->class_weights != PLM_CLASS_WEIGHTS_NONE &&
      !plm_key_is_bad(loader, "trainer.class_weights"))
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "trainer.class_weights", "trainer.objective"),
                     "trainer.class_weights: only classification and residues have classes to "
                     "weigh, not %s; use none",
                     plm_objective_name(objective));
}

/* After settle_head. */
static void check_truncate(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  if (config->trainer.objective == PLM_OBJECTIVE_RESIDUES ||
      plm_key_is_bad(loader, "data.truncate"))
    return;
  if (config->data.truncate == PLM_TRUNCATE_RANDOM_CROP &&
      config->model.head.pooling == PLM_HEAD_CLS)
    plm_problems_add(
        loader->problems, plm_key_place(loader, "data.truncate", "trainer.objective"),
        "data.truncate: random_crop cuts off the <cls> of long sequences, which the head "
        "reads (trainer.head.pooling); use head");
  if (config->data.truncate != PLM_TRUNCATE_SPLIT) return;
  plm_problems_add(loader->problems, plm_key_place(loader, "data.truncate", "trainer.objective"),
                   "data.truncate: split makes several documents of a long sequence, but %s "
                   "predicts labels of whole ones; use head or random_crop",
                   plm_objective_name(config->trainer.objective));
}

static enum plm_label_loss loss_of(enum plm_objective objective)
{
  if (objective == PLM_OBJECTIVE_REGRESSION) return PLM_LOSS_SQUARES;
  return objective == PLM_OBJECTIVE_MULTILABEL ? PLM_LOSS_CLASSES : PLM_LOSS_CLASS;
}

static void settle_head(struct plm_loader *loader)
{
  struct plm_config *config = loader->config;
  struct plm_head_config *head = &config->model.head;
  const enum plm_objective objective = config->trainer.objective;
  const bool published = plm_architecture_rules(config->model.architecture)->published;
  const uint32_t columns = config->trainer.label_count;
  head->loss = loss_of(objective);
  head->kind = objective == PLM_OBJECTIVE_RESIDUES ? PLM_PREDICTS_RESIDUES : PLM_PREDICTS_SEQUENCES;
  head->outputs = objective != PLM_OBJECTIVE_REGRESSION && columns < 2 ? 2 : columns;
  if (head->outputs == 0) head->outputs = 1; /* reported by check_columns */
  if (!published || head->kind == PLM_PREDICTS_RESIDUES) return;
  if (!plm_key_is_given(loader, "trainer.head.pooling")) head->pooling = PLM_HEAD_CLS;
  if (!plm_key_is_given(loader, "trainer.head.hidden_size"))
    head->hidden = config->model.hidden_size;
}

static void check_head(struct plm_loader *loader)
{
  static const char *const keys[] = {"model.architecture", "model.hidden_size",
                                     "trainer.head.pooling", "trainer.head.hidden_size",
                                     "trainer.head.dropout"};
  const struct plm_model_config *model = &loader->config->model;
  struct plm_error error = {0};
  char key[64];
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (plm_key_is_bad(loader, keys[i])) return;
  if (model->head.kind == PLM_PREDICTS_RESIDUES &&
      plm_key_is_changed(loader, "trainer.head.pooling"))
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "trainer.head.pooling", "trainer.objective"),
                     "trainer.head.pooling: a head for residues predicts a class for each, and "
                     "pools nothing; leave it out");
  if (plm_head_config_check(&model->head, plm_architecture_rules(model->architecture)->published,
                            model->hidden_size, &error) == PLM_OK)
    return;
  (void)snprintf(key, sizeof key, "trainer.%.40s", error.where);
  plm_problems_add(loader->problems, plm_key_place(loader, key, "trainer.objective"), "%s: %s%s%s",
                   key, error.what, error.hint[0] != '\0' ? "; " : "", error.hint);
}

void plm_config_check_labels(struct plm_loader *loader)
{
  if (plm_key_is_bad(loader, "trainer.objective")) return;
  if (!plm_objective_is_labels(loader->config->trainer.objective)) {
    refuse_labels(loader);
    return;
  }
  check_columns(loader);
  settle_head(loader);
  check_truncate(loader);
  check_head(loader);
}

void plm_config_advise_labels(const struct plm_config *config, struct plm_text *text)
{
  /* what keys begin with */
  static const char *const sections[] = {"trainer.loss.", "trainer.masking.", "evaluator.mask_rate",
                                         "evaluator.elbo_rates"};
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  if (!plm_objective_is_labels(config->trainer.objective)) return;
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; k < sizeof sections / sizeof *sections; k++)
      if (strncmp(table[i].key, sections[k], strlen(sections[k])) == 0 &&
          config->origins[i].kind != PLM_ORIGIN_DEFAULT)
        plm_text_printf(text, "%s: has no effect, since %s predicts labels\n", table[i].key,
                        plm_objective_name(config->trainer.objective));
}
