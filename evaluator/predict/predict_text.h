/* The columns of `predict`, after `name` and the columns that a table of sequences has beside them,
 * whose names get the prefix given_ if predictions have the same:
 *
 *   numbers       one for each output, called as the label: output * deviation + mean
 *   one class     prediction, probability (of that class, by softmax)
 *   classes       one for each class: its probability, by the sigmoid
 *   residues      prediction: one class for each residue, joined; separated by blanks if the name
 *                 of a class is longer than a character
 *   per residue   position (from 1), residue, prediction, probability
 *   logits        one for each output, as it is; for residues after position and residue
 *
 * In JSON lines the columns are keys. Numbers have nine significant digits. */
#ifndef PLM_EVALUATOR_PREDICT_PREDICT_TEXT_H
#define PLM_EVALUATOR_PREDICT_PREDICT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text/text.h"
#include "common/huggingface/head_json.h"

struct cJSON;

enum plm_predict_format { PLM_PREDICT_CSV, PLM_PREDICT_TSV, PLM_PREDICT_JSONL };

struct plm_predict_text {
  enum plm_predict_format format;
  const struct plm_head_config *head;
  const struct plm_label_names *names;
  bool per_residue, logits;
  struct cJSON *given; /* names of columns of the input; NULL: there are none */
};

/* A sequence with what the model says about it. */
struct plm_predicted {
  const char *name;
  size_t name_size;
  const char *given;    /* an array of JSON strings, one for each of the form's given; or NULL */
  const char *residues; /* (count) letters; only read per residue */
  uint32_t count;
  const float *outputs; /* (outputs), or (count, outputs) for residues */
};

/* Takes the names of the input's columns, an array of JSON strings; _release gives them up. The
 * names of the outputs are known before. */
void plm_predict_take_columns(struct plm_predict_text *form, const char *columns);
void plm_predict_release(struct plm_predict_text *form);
/* Appends the header; JSON lines have none. */
void plm_predict_put_header(const struct plm_predict_text *form, struct plm_text *text);
/* Appends the rows of a sequence. */
void plm_predict_put(const struct plm_predict_text *form, const struct plm_predicted *predicted,
                     struct plm_text *text);

#endif
