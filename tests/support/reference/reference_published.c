/* ESM-2 and ESM-C in double precision, by the parameter names of EsmForMaskedLM and EsmcForMaskedLM
 * (transformers 5), whose modelling files define them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/reference/reference_parts.h"

/* The names that differ between the two. */
static const struct names {
  const char *embedding, *prefix, *query, *key, *value, *output, *attention_norm, *mlp_norm, *up,
      *down, *final_norm;
} esm2 = {"esm.embeddings.word_embeddings",
          "esm.encoder.layer",
          "attention.self.query",
          "attention.self.key",
          "attention.self.value",
          "attention.output.dense",
          "attention.LayerNorm",
          "LayerNorm",
          "intermediate.dense",
          "output.dense",
          "esm.encoder.emb_layer_norm_after"},
  esmc = {"esmc.embed_tokens", "esmc.layers",      "self_attn.q_proj", "self_attn.k_proj",
          "self_attn.v_proj",  "self_attn.o_proj", "input_layernorm",  "post_attention_layernorm",
          "mlp.up_proj",       "mlp.down_proj",    "esmc.norm"};

static bool is_esm2(const struct reference *r)
{
  return r->config->architecture == PLM_ESM2;
}

/* x W^T, and the bias if there is one */
static struct tensor *product(struct reference *r, struct tensor *x, const char *prefix,
                              const char *name)
{
  struct tensor *bias = reference_parameter_of(r, "%s%s.bias", prefix, name);
  x = tape_linear(r->tape, x, reference_parameter_of(r, "%s%s.weight", prefix, name), false);
  return bias != NULL ? tape_bias(r->tape, x, bias) : x;
}

static struct tensor *norm(struct reference *r, struct tensor *x, const char *prefix,
                           const char *name)
{
  return tape_layer_norm(r->tape, x, reference_parameter_of(r, "%s%s.weight", prefix, name),
                         reference_parameter_of(r, "%s%s.bias", prefix, name),
                         r->config->layer_norm_eps);
}

/* token_dropout of ESM-2: a masked row is 0, and the others of its document are scaled by what a
 * sequence has in training, where 0.15 * 0.8 of the tokens are masked. */
static struct tensor *drop_tokens(struct reference *r, struct tensor *x)
{
  enum { MASK = 32 };
  const struct plm_batch *batch = r->request->batch;
  const int32_t *tokens = r->request->targets->inputs;
  double *factors = calloc((size_t)(r->B * r->L), sizeof *factors);
  for (int64_t b = 0; b < r->B; b++)
    for (uint32_t d = batch->document_begin[b]; d < batch->document_begin[b + 1]; d++) {
      const int64_t start = b * r->L + batch->documents[d].start;
      const int64_t length = batch->documents[d].tokens;
      double masked = 0;
      for (int64_t i = start; i < start + length; i++) masked += tokens[i] == MASK;
      for (int64_t i = start; i < start + length; i++)
        factors[i] = tokens[i] == MASK ? 0 : (1 - 0.15 * 0.8) / (1 - masked / (double)length);
    }
  x = tape_scale_rows(r->tape, x, factors);
  free(factors);
  return x;
}

static struct tensor *attention(struct reference *r, struct tensor *h, const char *prefix,
                                const struct names *names)
{
  struct tape *t = r->tape;
  const struct level *level = &r->levels[0];
  struct tensor *qk[2];
  for (int i = 0; i < 2; i++) {
    qk[i] = product(r, h, prefix, i == 0 ? names->query : names->key);
    if (!is_esm2(r))
      qk[i] = norm(r, qk[i], prefix, i == 0 ? "self_attn.q_norm" : "self_attn.k_norm");
    qk[i] =
        tape_rotary(t, qk[i], level->length, r->H, 1, r->request->fault == REFERENCE_FAULT_ROTARY);
  }
  struct tensor *v = product(r, h, prefix, names->value);
  const unsigned kinds = r->config->pattern[r->executed++ % (int)r->config->pattern_count];
  struct tensor *out = tape_attention(t, qk[0], qk[1], v, reference_mask(r, level, kinds), r->B,
                                      level->length, r->H);
  return product(r, out, prefix, names->output);
}

static struct tensor *mlp(struct reference *r, struct tensor *h, const char *prefix,
                          const struct names *names)
{
  struct tensor *up = product(r, h, prefix, names->up);
  struct tensor *hidden = is_esm2(r)
                              ? tape_gelu(r->tape, up)
                              : tape_swiglu(r->tape, product(r, h, prefix, "mlp.gate_proj"), up);
  return product(r, hidden, prefix, names->down);
}

/* x + y, and x + y / sqrt(layers / 36) in ESM-C */
static struct tensor *add(struct reference *r, struct tensor *x, struct tensor *y)
{
  const double scale[] = {1, is_esm2(r) ? 1 : 1 / sqrt(r->config->num_hidden_layers / 36.0)};
  return tape_mix(r->tape, x, y, tape_leaf(r->tape, scale, 1, 2), false);
}

struct tensor *reference_published_hidden(struct reference *r)
{
  const struct names *names = is_esm2(r) ? &esm2 : &esmc;
  struct tensor *table = reference_parameter_of(r, "%s.weight", names->embedding);
  struct tensor *x = tape_group_mean(r->tape, table, r->request->targets->inputs, r->B * r->L, 1);
  if (r->config->token_dropout) x = drop_tokens(r, x);
  if (reference_parameter_of(r, "esm.embeddings.layer_norm.weight") != NULL)
    x = norm(r, x, "esm.embeddings.", "layer_norm");
  for (uint32_t i = 0; i < r->config->num_hidden_layers; i++) {
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "%s.%u.", names->prefix, i);
    x = add(r, x, attention(r, norm(r, x, prefix, names->attention_norm), prefix, names));
    x = add(r, x, mlp(r, norm(r, x, prefix, names->mlp_norm), prefix, names));
  }
  return norm(r, x, "", names->final_norm);
}

struct tensor *reference_published_head(struct reference *r, struct tensor *hidden)
{
  struct tape *t = r->tape;
  const struct plm_targets *targets = r->request->targets;
  struct tensor *x = tape_rows(t, hidden, targets->positions, targets->rows);
  x = norm(r, tape_gelu(t, product(r, x, "lm_head.", "dense")), "lm_head.", "layer_norm");
  struct tensor *decoder = reference_parameter_of(
      r, "%s.weight", r->config->tie_embeddings ? esm2.embedding : "lm_head.decoder");
  struct tensor *bias =
      reference_parameter_of(r, "%s", is_esm2(r) ? "lm_head.bias" : "lm_head.decoder.bias");
  return tape_bias(t, tape_linear(t, x, decoder, false), bias);
}
