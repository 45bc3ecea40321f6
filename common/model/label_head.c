/* The head that predicts labels: its outputs, and its backward pass with the loss.
 *
 *   s = norm(x) of a row                         cls, residues
 *   s = norm(the mean over rows of x)            mean, only of our own architectures
 *   outputs = Wout d1(tanh(Wdense d0(s) + b)) + bout     with a hidden layer
 *   outputs = Wout d0(s) + bout                          without one
 *
 * d0 and d1 are dropout at the places 0 and 1 (common/ops/label_operands.h). */
#include "common/model/model_state.h"

enum { PLACE_STATE, PLACE_HIDDEN };

static bool pools(const struct plm_model *model)
{
  return model->config.head.kind == PLM_PREDICTS_SEQUENCES &&
         model->config.head.pooling == PLM_HEAD_MEAN;
}

uint32_t plm_model_most_label_rows(const struct plm_model_config *config, uint64_t positions)
{
  if (config->head.kind == PLM_PREDICTS_RESIDUES || positions < 2) return (uint32_t)positions;
  return (uint32_t)(positions / 2); /* a document has at least <cls> and one more token */
}

uint32_t plm_model_label_rows(const struct plm_ops *ops, const struct plm_model_config *config,
                              uint64_t positions, uint64_t rows)
{
  return plm_model_rows(ops, plm_model_most_label_rows(config, positions), rows);
}

void plm_model_pass_labels(const struct plm_model *model, struct model_pass *pass, int64_t rows)
{
  pass->label_rows = rows;
  if (pools(model)) {
    plm_model_pass_reads(model, pass, NULL, 0);
    pass->narrowed = NULL;
  } else {
    plm_model_pass_reads(model, pass, model->positions, rows);
  }
}

/* The width of what the last product reads. */
static int64_t output_width(const struct plm_model *model)
{
  const struct plm_head_config *head = &model->config.head;
  return head->hidden > 0 ? head->hidden : model->config.hidden_size;
}

static struct plm_row_groups groups_of(const struct plm_model *model, const struct model_pass *pass)
{
  return (struct plm_row_groups){model->positions, model->label_end, pass->label_rows};
}

static void drop(const struct plm_model *model, const struct model_pass *pass, uint32_t place,
                 act *out, const act *x, int64_t D)
{
  if (pass->dropped == NULL || model->config.head.dropout == 0) return;
  const struct plm_dropout dropout =
      plm_dropout_of(pass->dropped->seed, place, model->config.head.dropout, model->label_keys);
  model->ops->dropout(model->ops, out, x, &dropout, pass->label_rows, D);
}

/* Computes d0(s) in head_norm, in place of s, whose value nobody needs. */
static act *make_state(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = model->config.hidden_size;
  const act *last = plm_model_last_hidden(model);
  const struct plm_row_groups groups = groups_of(model, pass);
  act *state = model->head_norm;
  if (pools(model)) {
    ops->pool_rows(ops, model->head_x, last, &groups, D);
    model_norm_forward(model, &model->final_norm, state, model->head_x, pass->label_rows, D);
  } else {
    const act *x = plm_model_head_input(model, pass);
    if (x == model->head_x) ops->gather_rows(ops, model->head_x, last, pass->positions, pass->R, D);
    model_norm_forward(model, &model->final_norm, state, x, pass->R, D);
  }
  drop(model, pass, PLACE_STATE, state, state, D);
  return state;
}

/* What the last product reads, after plm_model_label_outputs. */
static const act *output_input(const struct plm_model *model, const struct model_pass *pass)
{
  if (model->config.head.hidden == 0) return model->head_norm;
  return pass->dropped != NULL ? model->label_kept : model->label_tanh;
}

void plm_model_label_outputs(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = model->config.hidden_size, H = model->config.head.hidden;
  const int64_t R = pass->label_rows;
  const act *state = make_state(model, pass);
  if (H > 0) {
    model_product_forward(model, &model->label_hidden, model->label_tanh, state, NULL, R, D, H);
    ops->tanh_forward(ops, model->label_tanh, model->label_tanh, R * H);
    drop(model, pass, PLACE_HIDDEN, model->label_kept, model->label_tanh, H);
  }
  ops->logits_forward(ops, model->logits, output_input(model, pass),
                      model_weight(model, model->label_output.weight),
                      model_value(model, model->label_output.bias), R, output_width(model),
                      model->config.head.outputs);
}

/* The gradient of s, in row_gradient[1], -> that of the rows that the head reads, in stream[0]. */
static void state_backward(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = model->config.hidden_size;
  const struct plm_row_groups groups = groups_of(model, pass);
  act *dx = model->stream[0], *dstate = model->row_gradient[1], *other = model->row_gradient[0];
  ops->zero(ops, dx, (size_t)(pass->R * D) * model->act_bytes);
  if (pools(model)) {
    ops->zero(ops, other, (size_t)(pass->label_rows * D) * model->act_bytes);
    model_norm_backward(model, &model->final_norm, other, dstate, model->head_x, pass->label_rows,
                        D);
    ops->pool_rows_backward(ops, dx, other, &groups, D);
  } else {
    model_norm_backward(model, &model->final_norm, dx, dstate, plm_model_head_input(model, pass),
                        pass->R, D);
    if (pass->narrowed == NULL) plm_model_widen_stream(model, pass, D);
  }
}

void plm_model_train_labels(struct plm_model *model, const struct model_pass *pass,
                            const struct plm_label_options *options, float loss_scale)
{
  struct plm_ops *ops = model->ops;
  const struct plm_head_config *head = &model->config.head;
  const int64_t D = model->config.hidden_size, H = head->hidden, R = pass->label_rows;
  const struct plm_label_rows rows = {.kind = head->loss,
                                      .N = R,
                                      .O = head->outputs,
                                      .classes = model->labels,
                                      .targets = model->label_values,
                                      .weights = options->weights,
                                      .hits = model->hits};
  act *dstate = model->row_gradient[1], *doutput = H > 0 ? model->row_gradient[0] : dstate;
  plm_model_train_forward(model, pass);
  plm_model_label_outputs(model, pass);
  ops->label_loss(ops, model->row_loss, model->logits, model->logits, &rows, loss_scale);
  const struct plm_logits_gradients to = {doutput,
                                          model_gradient(model, model->label_output.weight),
                                          model_gradient(model, model->label_output.bias)};
  ops->logits_backward(ops, &to, model->logits, output_input(model, pass),
                       model_weight(model, model->label_output.weight), R, output_width(model),
                       head->outputs);
  if (H > 0) {
    drop(model, pass, PLACE_HIDDEN, doutput, doutput, H);
    ops->tanh_backward(ops, doutput, doutput, model->label_tanh, R * H);
    model_product_backward(model, &model->label_hidden, doutput, model->head_norm, R, D, H);
    if (model->trains_trunk)
      ops->linear_backward_input(ops, dstate, doutput,
                                 model_weight(model, model->label_hidden.weight), R, D, H, false);
  }
  if (!model->trains_trunk) return;
  drop(model, pass, PLACE_STATE, dstate, dstate, D);
  state_backward(model, pass);
}
