/* The text of the model card, section by section. */
#include "stages/export/model_card.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/huggingface/head_json.h"
#include "common/metrics/metrics.h"
#include "common/model/architecture.h"
#include "stages/export/model_card_head.h"
#include "stages/export/model_card_parts.h"
#include "stages/export/model_card_tasks.h"

/* Writes the text of a cell of a Markdown table, in which a bar would end the cell. */
static void model_card_put_cell(struct plm_text *text, const char *string)
{
  for (; *string != '\0'; string++) {
    if (*string == '|') plm_text_puts(text, "\\");
    plm_text_append(text, *string == '\n' ? " " : string, 1);
  }
}

/* ---- what it is, and how to use it --------------------------------------------------------- */

/* What the head predicts. */
static void put_labels(const struct plm_head_config *head, struct plm_text *text)
{
  const char *of = head->kind == PLM_PREDICTS_RESIDUES ? "residue" : "sequence";
  switch (head->loss) {
  case PLM_LOSS_SQUARES:
    if (head->outputs == 1)
      plm_text_printf(text, " with a head that predicts a number for each %s.\n\n", of);
    else
      plm_text_printf(text, " with a head that predicts %u numbers for each %s.\n\n", head->outputs,
                      of);
    break;
  case PLM_LOSS_CLASS:
    plm_text_printf(text, " with a head that predicts one of %u classes for each %s.\n\n",
                    head->outputs, of);
    break;
  case PLM_LOSS_CLASSES:
    plm_text_printf(text, " with a head that predicts which of %u classes apply to each %s.\n\n",
                    head->outputs, of);
    break;
  }
}

/* What is said of a model without a head for labels. */
static void put_objective(const struct plm_card_facts *facts, struct plm_text *text)
{
  plm_text_printf(text, ", %s ",
                  plm_card_is_published(facts) && !facts->trained ? "trained elsewhere"
                                                                  : "trained by plm-pipeline");
  switch (facts->folder->objective) {
  case PLM_OBJECTIVE_MLM: plm_text_puts(text, "to predict masked tokens.\n"); break;
  case PLM_OBJECTIVE_MASKED_DIFFUSION:
    plm_text_puts(text, "to predict masked tokens at any mask rate (masked diffusion).\n");
    break;
  case PLM_OBJECTIVE_CAUSAL: plm_text_puts(text, "to predict the next token.\n"); break;
  default: break; /* labels: put_labels */
  }
  plm_text_puts(text, "\n");
}

static void put_introduction(const struct plm_card_facts *facts, struct plm_text *text)
{
  char count[32], base[256], adapter[256];
  plm_text_puts(text, "# ");
  model_card_put_cell(text, facts->name);
  plm_text_printf(text, "\n\nA %s with %s parameters (`%s`)",
                  plm_card_is_protein(facts) ? "protein language model"
                                             : "byte-level language model",
                  plm_format_count(facts->parameters, count),
                  plm_architecture_name(facts->folder->model.architecture));
  if (plm_card_predicts_labels(facts))
    put_labels(&facts->folder->model.head, text);
  else
    put_objective(facts, text);
  if (facts->adapter == NULL) return;
  plm_text_printf(text, "It is the model `%s` with the adapter `%s` (LoRA) added to its weights.%s",
                  plm_card_base_name(facts->folder->directory, base),
                  plm_card_base_name(facts->adapter, adapter),
                  facts->trained ? " The section on training is about\n"
                                   "that model, without the adapter.\n\n"
                                 : "\n\n");
}

static void put_loading(const struct plm_card_facts *facts, struct plm_text *text)
{
  const char *trust = plm_card_is_published(facts) ? "" : ", trust_remote_code=True";
  const char *loader = plm_head_auto_class(&facts->folder->model.head);
  plm_text_printf(
      text, "## Use\n\n%s\n\n```python\n%sfrom transformers import %s, AutoTokenizer\n\nname = ",
      plm_card_is_published(facts)
          ? "transformers has the model's class, so no other code is needed."
          : "The folder includes the model's code, so `trust_remote_code=True` is needed.",
      plm_card_is_causal(facts) || plm_card_predicts_labels(facts) ? "" : "import torch\n", loader);
  plm_card_put_quoted(text, facts->name);
  plm_text_printf(text,
                  "  # this folder, or its name on the Hub\n"
                  "tokenizer = AutoTokenizer.from_pretrained(name%s)\n"
                  "model = %s.from_pretrained(name%s).eval()\n\n",
                  trust, loader, trust);
}

/* What the classes of the project can do besides. */
static void put_embedding(const struct plm_card_facts *facts, struct plm_text *text)
{
  const bool protein = plm_card_is_protein(facts);
  plm_text_printf(text,
                  "\n# an embedding of each sequence: the mean over its residues\n"
                  "batch = tokenizer([\"%s\", \"%s\"], padding=True, return_tensors=\"pt\")\n"
                  "print(model.get_embeddings(**batch, pooling=\"mean\").shape)\n",
                  protein ? "MKTAYIAKQR" : "The quick brown ",
                  protein ? "ISFVKSHFSRQLEERLGLIEVQ" : "fox");
}

static void put_snippet(const struct plm_card_facts *facts, struct plm_text *text)
{
  const bool protein = plm_card_is_protein(facts);
  const char *start = protein ? "MKTAYIAKQR" : "The quick brown ";
  put_loading(facts, text);
  if (plm_card_predicts_labels(facts)) {
    plm_text_printf(text, "print(model(**tokenizer('%s', return_tensors='pt')).logits)\n", start);
  } else if (plm_card_is_causal(facts)) {
    plm_text_printf(text,
                    "# two continuations of a sequence\n"
                    "batch = tokenizer(\"%s\", return_tensors=\"pt\")\n"
                    "tokens = model.generate(**batch, count=2, temperature=0.8, "
                    "max_new_tokens=20, seed=1)\n"
                    "print(tokenizer.batch_decode(tokens, skip_special_tokens=True))\n",
                    start);
  } else {
    plm_text_printf(text,
                    "# the most likely token in place of <mask>\n"
                    "batch = tokenizer(\"%s<mask>%s\", return_tensors=\"pt\")\n"
                    "with torch.no_grad():\n"
                    "    logits = model(**batch).logits\n"
                    "masked = batch.input_ids == tokenizer.mask_token_id\n"
                    "print(tokenizer.decode(logits[masked].argmax(-1)))\n",
                    start, protein ? "ISFVKSHFSRQLEERLGLIEVQ" : "ox jumps");
  }
  if (!plm_card_is_published(facts)) put_embedding(facts, text);
  plm_text_puts(text, "```\n\n");
  if (plm_card_predicts_labels(facts))
    plm_text_puts(text,
                  "`plm-pipeline predict` writes the labels of whole files of sequences.\n\n");
  if (plm_card_is_published(facts)) return;
  plm_text_puts(text, "`model.embed_dataset` embeds whole files of sequences");
  if (!plm_card_predicts_labels(facts))
    plm_text_printf(text, ", and `model.generate` %s",
                    plm_card_is_causal(facts) ? "writes new sequences"
                                              : "fills masks step by step");
  plm_text_printf(text,
                  ". The model cuts sequences to their\nfirst %u tokens, without `<eos>`, as "
                  "`plm-pipeline embed` does. Do not use the tokenizer's `truncation=True`, "
                  "which\nputs `<eos>` in the place of the last token.\n\n",
                  facts->folder->model.max_length);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void model_card_row(struct plm_text *text, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void model_card_row(struct plm_text *text, const char *key, const char *format, ...)
{
  char value[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  plm_text_printf(text, "| %s | ", key);
  model_card_put_cell(text, value);
  plm_text_puts(text, " |\n");
}

static void put_widths(const struct plm_model_config *model, struct plm_text *text)
{
  char widths[256];
  size_t used = 0;
  for (int level = 0; level < (int)model->num_unet_layers / 2 && used < sizeof widths; level++)
    used += (size_t)snprintf(widths + used, sizeof widths - used, "%s%u", level == 0 ? "" : ", ",
                             plm_architecture_width(model, level));
  model_card_row(text, "layers", "%u in the encoder and decoder, %u at full length",
                 model->num_unet_layers, model->num_extra_layers);
  model_card_row(text, "widths by level", "%s", widths);
}

/* What only our own architectures have. */
static void put_masks(const struct plm_card_facts *facts, struct plm_text *text)
{
  const struct plm_model_config *model = &facts->folder->model;
  char pattern[1024];
  size_t used = 0;
  model_card_row(text, "MLP expansion ratio", "%g", model->expansion_ratio);
  for (uint32_t i = 0; i < model->pattern_count && used < sizeof pattern; i++) {
    char name[64];
    plm_attention_kind_name(model->pattern[i], name);
    used +=
        (size_t)snprintf(pattern + used, sizeof pattern - used, "%s%s", i == 0 ? "" : ", ", name);
  }
  model_card_row(text, "attention masks, cycled over the layers", "%s", pattern);
  model_card_row(text, "sliding window", "%u tokens", facts->folder->window);
  if (model->block > 0) model_card_row(text, "blocks of `block` masks", "%u tokens", model->block);
}

static void put_architecture(const struct plm_card_facts *facts, struct plm_text *text)
{
  const struct plm_model_config *model = &facts->folder->model;
  char count[32];
  plm_text_puts(text, "## Architecture\n\n| | |\n|---|---|\n");
  model_card_row(text, "architecture", "`%s`", plm_architecture_name(model->architecture));
  model_card_row(text, "parameters", "%s", plm_format_count(facts->parameters, count));
  model_card_row(text, "width", "%u", model->hidden_size);
  if (plm_architecture_rules(model->architecture)->merges)
    put_widths(model, text);
  else
    model_card_row(text, "layers", "%u", model->num_hidden_layers);
  model_card_row(text, "attention heads", "%u", model->num_attention_heads);
  if (plm_card_is_published(facts)) {
    model_card_row(text, "MLP width", "%u", model->intermediate_size);
    model_card_row(text, "epsilon of LayerNorm", "%g", model->layer_norm_eps);
    if (model->emb_layer_norm_before) model_card_row(text, "LayerNorm of the embeddings", "yes");
  } else {
    put_masks(facts, text);
  }
  model_card_row(text, "longest sequence",
                 plm_card_is_published(facts)
                     ? "no limit; trained with at most %u tokens, including `<cls>` and `<eos>`"
                     : "%u tokens, including `<cls>` and `<eos>`",
                 model->max_length);
  model_card_row(text, "vocabulary", "%u tokens (%s)", model->vocab_size,
                 plm_card_is_protein(facts) ? "amino acids, as in ESM-2" : "bytes");
  if (!plm_card_is_published(facts) && !plm_card_predicts_labels(facts))
    model_card_row(text, "logits bounded to", model->soft_logit_cap > 0 ? "±%g" : "unbounded",
                   model->soft_logit_cap);
  if (!plm_card_predicts_labels(facts))
    model_card_row(text, "head tied to the embeddings", "%s", model->tie_embeddings ? "yes" : "no");
  model_card_row(text, "embedding of `<mask>` set to zero", "%s",
                 model->token_dropout ? "yes" : "no");
  model_card_row(text, "weights", "%s, %s",
                 strcmp(facts->weights, "ema") == 0 ? "moving average of the trained weights"
                                                    : "as trained",
                 facts->dtype);
  plm_text_puts(text, "\n");
}

/* All corpora of a mixture, with what the configuration says of each. The rows that follow are
 * about the first. */
static void put_mixture(const struct plm_config *config, struct plm_text *text)
{
  struct plm_text list = {0};
  char name[256];
  for (uint32_t i = 0; i < config->source_count; i++) {
    const struct plm_config_source *source = &config->sources[i];
    plm_text_printf(&list, "%s%s (weight %g", i == 0 ? "" : ", ",
                    plm_card_base_name(source->path, name), source->weight);
    if (source->final_weight >= 0)
      plm_text_printf(&list, " to %g in %llu steps", source->final_weight,
                      (unsigned long long)config->data.mixture_steps);
    plm_text_puts(&list, ")");
  }
  if (list.data != NULL) model_card_row(text, "mixture of", "%s", list.data);
  plm_text_deinit(&list);
}

static void put_corpus(const struct plm_card_facts *facts, struct plm_text *text)
{
  char documents[32], residues[32];
  if (facts->config.source_count > 1) put_mixture(&facts->config, text);
  if (facts->fingerprint[0] != '\0')
    model_card_row(text, "corpus fingerprint", "`%s`", facts->fingerprint);
  if (!facts->corpus_known) return;
  const struct plm_corpus_info *info = &facts->corpus.info;
  char name[256];
  model_card_row(text, "corpus", "%s", plm_card_base_name(facts->config.corpus, name));
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    model_card_row(text, plm_split_name((enum plm_split)s), "%s sequences, %s residues",
                   plm_format_count(info->splits[s].documents, documents),
                   plm_format_count(info->splits[s].residues, residues));
  model_card_row(text, "split", "%s", plm_corpus_split_words(info->clustered));
}

static void put_training(const struct plm_card_facts *facts, struct plm_text *text)
{
  if (!facts->trained) return;
  const struct plm_config *config = &facts->config;
  const struct plm_config_trainer *trainer = &config->trainer;
  char a[32], b[32], name[256];
  plm_text_puts(text, "## Training\n\n| | |\n|---|---|\n");
  model_card_row(text, "objective", "`%s`", plm_objective_name(trainer->objective));
  if (trainer->objective == PLM_OBJECTIVE_MLM)
    model_card_row(text, "mask rate", "%g %%", 100 * trainer->masking.mask_rate);
  model_card_row(text, "steps", "%s of %s", plm_format_count(facts->folder->step, a),
                 plm_format_count(trainer->steps, b));
  model_card_row(text, "tokens seen", "%s", plm_format_count(facts->tokens, a));
  if (facts->epochs > 0) model_card_row(text, "epochs", "%.3g", facts->epochs);
  model_card_row(text, "tokens per step", "%s, including padding",
                 plm_format_count(trainer->batch_tokens, a));
  model_card_row(text, "optimizer", "%s; learning rates %g (matrices), %g (embeddings), %g (head)",
                 plm_optimizer_names[trainer->optimizer.name], trainer->optimizer.lr_hidden,
                 trainer->optimizer.lr_embed, trainer->optimizer.lr_head);
  model_card_row(text, "schedule", "%s, %s steps of warm-up",
                 plm_schedule_names[trainer->schedule.name],
                 plm_format_count(trainer->schedule.warmup_steps, a));
  if (trainer->ema > 0) model_card_row(text, "moving average", "decay %g", trainer->ema);
  if (trainer->init_from != NULL)
    model_card_row(text, "started from", "the weights of %s",
                   plm_card_base_name(trainer->init_from, name));
  model_card_row(text, "precision", "%s", facts->precision);
  model_card_row(text, "seed", "%llu", (unsigned long long)config->seed);
  put_corpus(facts, text);
  plm_text_puts(text, "\n");
}

static void put_row_of_metrics(const cJSON *lines, const char *name, const char *field,
                               int decimals, struct plm_text *text)
{
  plm_text_printf(text, "\n| %s |", name);
  for (const cJSON *line = lines->child; line != NULL; line = line->next) {
    const double value = plm_json_number(line, field, NAN);
    if (isfinite(value))
      plm_text_printf(text, " %.*f |", decimals, value);
    else
      plm_text_puts(text, " – |");
  }
}

static void put_how_evaluated(const struct plm_card_facts *facts, struct plm_text *text)
{
  const double rate =
      plm_card_is_causal(facts) ? (double)NAN : plm_card_mask_rate(facts->evaluations->child);
  char count[32];
  plm_text_puts(text, "\n\nEvaluated on the sequences of each split in their order");
  if (facts->trained && facts->config.evaluator.max_tokens > 0)
    plm_text_printf(text, ", up to %s tokens",
                    plm_format_count(facts->config.evaluator.max_tokens, count));
  if (!isnan(rate)) plm_text_printf(text, ", %g %% of them masked", 100 * rate);
  plm_text_puts(text, ".");
  if (facts->corpus_known && !facts->corpus.info.clustered)
    plm_text_printf(text,
                    " The corpus was split %s. Where a split contains relatives of training "
                    "sequences, these figures say little about families that the model has not "
                    "seen.",
                    plm_corpus_split_words(false));
  if (strcmp(facts->dtype, "float32") != 0)
    plm_text_printf(text, " Measured in float32, before the weights were rounded to %s.",
                    facts->dtype);
  plm_text_puts(text, "\n");
}

static void put_evaluation(const struct plm_card_facts *facts, struct plm_text *text)
{
  const cJSON *lines = facts->evaluations;
  char subject[64];
  if (cJSON_GetArraySize(lines) == 0) return;
  plm_text_puts(text, "## Evaluation\n\n| |");
  for (const cJSON *line = lines->child; line != NULL; line = line->next) {
    plm_metrics_subject(line, subject, sizeof subject);
    plm_text_printf(text, " %s |", subject);
  }
  plm_text_puts(text, "\n|---|");
  for (const cJSON *line = lines->child; line != NULL; line = line->next)
    plm_text_puts(text, "---:|");
  const bool labels = plm_card_predicts_labels(facts);
  for (const struct plm_card_metric *metric = plm_card_metrics(facts); metric->field != NULL;
       metric++)
    if (!labels || plm_card_has_metric(lines, metric->field))
      put_row_of_metrics(lines, metric->name, metric->field, 4, text);
  if (!labels)
    put_row_of_metrics(lines, "Baseline: entropy of the composition (nats per token)",
                       "baseline_entropy", 4, text);
  put_row_of_metrics(lines, labels ? "Labels" : "Tokens predicted", labels ? "labels" : "tokens", 0,
                     text);
  put_how_evaluated(facts, text);
}

void plm_model_card_print(const struct plm_card_facts *facts, struct plm_text *text)
{
  plm_model_card_head(facts, text);
  put_introduction(facts, text);
  put_snippet(facts, text);
  put_architecture(facts, text);
  put_training(facts, text);
  put_evaluation(facts, text);
  plm_model_card_tasks(facts, text);
}
