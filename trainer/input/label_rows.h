/* The labels of a micro-batch as the model's head takes them: a row for each document that has a
 * label, or for each labelled residue, in a block of memory that is copied to the device with the
 * rest of the input. Pieces without <cls> have no row in a head that reads <cls>, and documents
 * without residues none in one that pools. */
#ifndef PLM_TRAINER_INPUT_LABEL_ROWS_H
#define PLM_TRAINER_INPUT_LABEL_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "common/model/model.h"
#include "common/plan/batch_labels.h"
#include "trainer/input/objective.h"

/* What a run that trains labels knows about them. All is borrowed. */
struct plm_label_source {
  const struct plm_label_choice *choice;
  const struct plm_label_schema *const *schemas; /* of the sources, as plm_batch_labels_fill */
};

/* Offsets in the block, in bytes; room for plm_model_most_label_rows. The parts are those of struct
 * plm_device_labels. classes or values has no room if the loss does not read it. */
struct plm_label_layout {
  size_t begin, end, keys, classes, values;
  size_t bytes;
  uint32_t rows;
};
/* {0} if the model predicts no labels. */
struct plm_label_layout plm_label_layout(const struct plm_model_config *model, uint32_t chunks,
                                         uint32_t length);

/* Fills the block for the chunks of a batch. totals (batch->chunks) receives the rows of each chunk
 * and the labels that it adds to the divisor of the step's loss. */
void plm_label_rows_fill(const struct plm_model_config *model, const struct plm_batch *batch,
                         const struct plm_batch_labels *labels,
                         const struct plm_label_layout *layout, char *block,
                         struct plm_objective_totals *totals);

/* Copies the first `rows` rows of the block, which is on the device, to where the model reads them.
 */
void plm_label_rows_place(struct plm_model *model, const struct plm_label_layout *layout,
                          const char *block, uint32_t rows);

#endif
