/* Computes the architectures in double precision, as an oracle for tests: ours here, the published
 * ones in reference_published.c. */
#include "tests/support/reference/reference_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/reference/reference_parts.h"

struct tensor *reference_parameter_of(struct reference *r, const char *format, ...)
{
  char name[128];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  for (size_t i = 0; i < r->request->parameter_count; i++) {
    const struct reference_parameter *p = &r->request->parameters[i];
    if (strcmp(p->name, name) != 0) continue;
    if (r->leaves[i] == NULL) r->leaves[i] = tape_leaf(r->tape, p->value, p->rows, p->cols);
    return r->leaves[i];
  }
  return NULL;
}

static bool faulty(const struct reference *r, enum reference_fault fault)
{
  return r->request->fault == fault;
}

static int64_t level_width(const struct plm_model_config *config, int64_t k)
{
  const int64_t D = config->hidden_size, H = config->num_attention_heads;
  const int64_t n = config->num_unet_layers / 2;
  if (config->architecture != PLM_PATCH_UNET || n == 1) return D;
  int64_t unit = 64;
  while (unit % H != 0) unit += 64;
  int64_t width = 0, largest = 0;
  while (width * (n - 1) < D * (n - 1 + k)) width += unit;
  while (largest + unit <= 128 * H) largest += unit;
  return width < largest ? width : largest;
}

static void build_levels(struct reference *r)
{
  const struct plm_batch *batch = r->request->batch;
  const int n = (int)r->config->num_unet_layers / 2;
  r->level_count = 1;
  if (r->config->architecture == PLM_PATCH_UNET)
    while (r->level_count < n && (r->config->max_length >> r->level_count) >= 1) r->level_count++;
  for (int k = 0; k < r->level_count; k++) {
    struct level *level = &r->levels[k];
    level->length = r->L >> k;
    level->width = level_width(r->config, k);
    level->ids = calloc((size_t)(r->B * level->length), sizeof *level->ids);
    level->real = calloc((size_t)(r->B * level->length), sizeof *level->real);
    for (int64_t i = 0; k > 0 && i < r->B * level->length; i++) {
      const struct level *finer = &r->levels[k - 1];
      const int32_t left = finer->ids[2 * i], right = finer->ids[2 * i + 1];
      level->ids[i] = left > right ? left : right;
      level->real[i] = finer->real[2 * i] || finer->real[2 * i + 1];
    }
    for (int64_t b = 0; k == 0 && b < r->B; b++) {
      const uint32_t first = batch->document_begin[b], end = batch->document_begin[b + 1];
      for (int64_t i = 0; i < r->L; i++) {
        if (i > 0) level->ids[b * r->L + i] = level->ids[b * r->L + i - 1];
        for (uint32_t d = first; d < end; d++)
          if (i >= batch->documents[d].start &&
              i < batch->documents[d].start + batch->documents[d].tokens) {
            level->ids[b * r->L + i] = (int32_t)(d - first) + 1;
            level->real[b * r->L + i] = true;
          }
      }
    }
  }
}

bool *reference_mask(struct reference *r, const struct level *level, unsigned kinds)
{
  const int64_t L = level->length, w = r->request->window, n = r->config->block;
  bool *allowed = calloc((size_t)(r->B * L * L), sizeof *allowed);
  PLM_ASSERT(allowed != NULL && r->scratch_count < 512);
  r->scratch[r->scratch_count++] = allowed;
  for (int64_t b = 0; b < r->B; b++)
    for (int64_t q = 0; q < L; q++)
      for (int64_t k = 0; k < L; k++) {
        bool yes = level->real[b * L + q] && level->real[b * L + k] &&
                   level->ids[b * L + q] == level->ids[b * L + k];
        if ((kinds & PLM_ATTENTION_CAUSAL) != 0) yes = yes && k <= q;
        if ((kinds & PLM_ATTENTION_LOCAL) != 0) yes = yes && q - k < w && k - q < w;
        if ((kinds & PLM_ATTENTION_BLOCK) != 0) yes = yes && q / n == k / n;
        allowed[(b * L + q) * L + k] = yes;
      }
  return allowed;
}

/* The token embedding is normalised; value embeddings are not. */
static struct tensor *token_table(struct reference *r, struct tensor *raw, bool normalised)
{
  struct tensor *table = normalised ? tape_norm(r->tape, raw, false) : raw;
  if (r->config->token_dropout) table = tape_zero_row(r->tape, table, r->config->vocab_size - 1);
  return table;
}

static struct tensor *group_mean(struct reference *r, struct tensor *table, int k)
{
  return tape_group_mean(r->tape, table, r->request->targets->inputs, r->B * r->levels[k].length,
                         (int64_t)1 << k);
}

static void embed(struct reference *r)
{
  r->embedding = token_table(r, reference_parameter_of(r, "plm.embeddings.weight"), true);
  for (int k = 0; k < r->level_count; k++) r->levels[k].x0 = group_mean(r, r->embedding, k);
}

static struct tensor *attention(struct reference *r, struct tensor *h, const char *prefix, int k,
                                struct tensor *value_table, unsigned kinds)
{
  struct tape *t = r->tape;
  const struct level *level = &r->levels[k];
  const int64_t D = level->width, K = D / r->H;
  struct tensor *qk[2];
  for (int i = 0; i < 2; i++) {
    struct tensor *w =
        reference_parameter_of(r, "%sattention.%s.weight", prefix, i == 0 ? "query" : "key");
    struct tensor *heads = tape_view(t, tape_linear(t, h, w, false), K);
    heads = tape_view(t, tape_norm(t, heads, faulty(r, REFERENCE_FAULT_QK_NORM)), D);
    qk[i] = tape_rotary(t, heads, level->length, r->H, -1, faulty(r, REFERENCE_FAULT_ROTARY));
  }
  struct tensor *v =
      tape_linear(t, h, reference_parameter_of(r, "%sattention.value.weight", prefix), false);
  if (value_table != NULL)
    v = tape_mix(t, v, group_mean(r, token_table(r, value_table, false), k),
                 reference_parameter_of(r, "%sattention.value_mix", prefix),
                 faulty(r, REFERENCE_FAULT_VALUE_EMBEDDING));
  struct tensor *out = tape_attention(t, qk[0], qk[1], v, reference_mask(r, level, kinds), r->B,
                                      level->length, r->H);
  return tape_linear(t, out, reference_parameter_of(r, "%sattention.output.weight", prefix), false);
}

/* A plain block has no input mix, and a bottleneck has no attention. */
static struct tensor *block(struct reference *r, struct tensor *x, const char *prefix, int k,
                            struct tensor *value_table)
{
  struct tape *t = r->tape;
  const unsigned kinds = r->config->pattern[r->executed++ % (int)r->config->pattern_count];
  struct tensor *b = reference_parameter_of(r, "%sinput_mix", prefix);
  if (b != NULL) {
    struct tensor *p = r->levels[k].x0;
    struct tensor *projection = reference_parameter_of(r, "%sinput_projection.weight", prefix);
    if (projection != NULL) p = tape_linear(t, p, projection, false);
    x = tape_mix(t, x, p, b, faulty(r, REFERENCE_FAULT_X0));
  }
  if (reference_parameter_of(r, "%sattention.query.weight", prefix) != NULL)
    x = tape_add(t, x, attention(r, tape_norm(t, x, false), prefix, k, value_table, kinds));
  struct tensor *up = tape_linear(t, tape_norm(t, x, false),
                                  reference_parameter_of(r, "%smlp.up.weight", prefix), false);
  struct tensor *down = tape_linear(t, tape_relu2(t, up),
                                    reference_parameter_of(r, "%smlp.down.weight", prefix), false);
  return tape_add(t, x, down);
}

static struct tensor *transformer(struct reference *r, struct tensor *x, uint32_t layers)
{
  for (uint32_t i = 0; i < layers; i++) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "plm.layers.%u.", i);
    x = block(r, x, prefix, 0, NULL);
  }
  return x;
}

static struct tensor *unet(struct reference *r, struct tensor *x)
{
  struct tensor *kept[64];
  const int n = (int)r->config->num_hidden_layers / 2;
  for (int i = 0; i < n; i++) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "plm.encoder.%d.", i);
    x = block(r, x, prefix, 0, reference_parameter_of(r, "plm.value_embeddings.%d.weight", i));
    kept[i] = x;
  }
  for (int i = 0; i < n; i++) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "plm.decoder.%d.", i);
    x = tape_add_scaled(r->tape, x, kept[n - 1 - i], reference_parameter_of(r, "plm.skip_weights"),
                        i, faulty(r, REFERENCE_FAULT_SKIP));
    x = block(r, x, prefix, 0,
              reference_parameter_of(r, "plm.value_embeddings.%d.weight", n - 1 - i));
  }
  return x;
}

static struct tensor *patch_unet(struct reference *r, struct tensor *x)
{
  struct tape *t = r->tape;
  struct tensor *kept[64];
  const int n = (int)r->config->num_unet_layers / 2, deepest = r->level_count - 1;
  char prefix[64];
  int k = 0;
  for (int i = 0; i < n; i++) {
    (void)snprintf(prefix, sizeof prefix, "plm.encoder.%d.", i);
    x = block(r, x, prefix, k,
              reference_parameter_of(r, "plm.encoder_value_embeddings.%d.weight", i));
    kept[i] = x;
    if (i + 1 < n && (r->config->max_length >> k) > 1) {
      x = tape_linear(t, tape_view(t, x, 2 * r->levels[k].width),
                      reference_parameter_of(r, "plm.merge.%d.weight", k),
                      faulty(r, REFERENCE_FAULT_MERGE));
      k++;
    }
  }
  PLM_ASSERT(k == deepest);
  for (int i = 0; i < n; i++) {
    const int mirrored = n - 1 - i;
    if (mirrored < k) {
      k--;
      x = tape_linear(t, x, reference_parameter_of(r, "plm.expand.%d.weight", k),
                      faulty(r, REFERENCE_FAULT_EXPAND));
      x = tape_view(t, x, r->levels[k].width);
    }
    x = tape_add_scaled(t, x, kept[mirrored], reference_parameter_of(r, "plm.skip_weights"), i,
                        faulty(r, REFERENCE_FAULT_SKIP));
    (void)snprintf(prefix, sizeof prefix, "plm.decoder.%d.", i);
    x = block(r, x, prefix, k,
              reference_parameter_of(r, "plm.decoder_value_embeddings.%d.weight", i));
  }
  return transformer(r, x, r->config->num_extra_layers);
}

static struct tensor *head(struct reference *r, struct tensor *x)
{
  struct tape *t = r->tape;
  const struct plm_targets *targets = r->request->targets;
  const double cap = r->request->loss->soft_cap;
  x = tape_rows(t, x, targets->positions, targets->rows);
  x = tape_linear(t, tape_norm(t, x, false), reference_parameter_of(r, "lm_head.dense.weight"),
                  false);
  struct tensor *w2 = r->config->tie_embeddings
                          ? reference_parameter_of(r, "plm.embeddings.weight")
                          : reference_parameter_of(r, "lm_head.decoder.weight");
  x = tape_bias(t, tape_linear(t, tape_gelu(t, x), w2, false),
                reference_parameter_of(r, "lm_head.bias"));
  return cap != 0.0 ? tape_cap(t, x, cap) : x;
}

static void collect(struct reference *r, const struct tensor *hidden, const struct tensor *logits)
{
  const struct reference_request *request = r->request;
  if (request->hidden != NULL)
    memcpy(request->hidden, hidden->value, (size_t)(hidden->rows * hidden->width) * sizeof(double));
  if (request->logits != NULL)
    memcpy(request->logits, logits->value, (size_t)(logits->rows * logits->width) * sizeof(double));
  for (size_t i = 0; request->loss_scale != 0.0 && i < request->parameter_count; i++) {
    const struct reference_parameter *p = &request->parameters[i];
    for (int64_t e = 0; r->leaves[i] != NULL && p->gradient != NULL && e < p->rows * p->cols; e++)
      p->gradient[e] += r->leaves[i]->gradient[e];
  }
}

double reference_model_loss(const struct reference_request *request)
{
  struct reference reference = {.request = request,
                                .config = request->config,
                                .tape = tape_open(),
                                .B = request->batch->chunks,
                                .L = request->batch->max_length,
                                .H = request->config->num_attention_heads};
  struct reference *r = &reference;
  r->leaves = calloc(request->parameter_count, sizeof(struct tensor *));
  PLM_ASSERT(r->leaves != NULL);
  build_levels(r);
  const bool published = plm_architecture_rules(request->config->architecture)->published;
  if (!published) embed(r);
  struct tensor *x = r->levels[0].x0;
  switch (request->config->architecture) {
  case PLM_TRANSFORMER: x = transformer(r, x, request->config->num_hidden_layers); break;
  case PLM_UNET: x = unet(r, x); break;
  case PLM_PATCH_UNET: x = patch_unet(r, x); break;
  default: x = reference_published_hidden(r); break;
  }
  struct tensor *logits = published ? reference_published_head(r, x) : head(r, x);
  struct tensor *loss =
      tape_cross_entropy(r->tape, logits, request->targets->labels, request->targets->weights,
                         request->loss->label_smoothing, request->loss->z_loss);
  const double result = loss->value[0];
  loss->gradient[0] = request->loss_scale;
  if (request->loss_scale != 0.0) tape_backward(r->tape);
  collect(r, x, logits);
  for (size_t i = 0; i < r->scratch_count; i++) free(r->scratch[i]);
  for (int k = 0; k < r->level_count; k++) {
    free(r->levels[k].ids);
    free(r->levels[k].real);
  }
  free(r->leaves);
  tape_close(r->tape);
  return result;
}
