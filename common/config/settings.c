/* The table of settings. */
#include "common/config/settings.h"

#include "common/corpus/corpus.h"
#include "common/metrics/measure_table.h"

const char *const plm_rate_scope_names[] = {"chunk", "batch", NULL};
const char *const plm_optimizer_names[] = {"muon", "adamw", NULL};
const char *const plm_muon_scale_names[] = {"match_adamw", "spectral", NULL};
const char *const plm_schedule_names[] = {"wsd", "linear", "cosine", "range_test", NULL};
const char *const plm_compress_names[] = {"none", "bf16", NULL};
const char *const plm_stop_metric_names[] = {
    "loss", PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME)
                PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME) NULL};
const char *const plm_class_weights_names[] = {"none", "balanced", NULL};
const char *const plm_restart_names[] = {"no", "on-failure", "always", NULL};

#define AT(member) (ptrdiff_t) offsetof(struct plm_config, member)
#define NUMBER(low, high) .min = (low), .max = (high)
#define FREE .resume = PLM_RESUME_FREE
#define CHANGES .resume = PLM_RESUME_CHANGES
#define REFUSED .resume = PLM_RESUME_REFUSED
#define ROW(name, kind, member, unit_, fallback_, ...)                            \
  {                                                                               \
    .key = name, .type = PLM_SETTING_##kind, .offset = AT(member), .unit = unit_, \
    .fallback = fallback_, __VA_ARGS__                                            \
  }

#define TOKENS_MAX 1099511627776.0    /* 2^40: batches and totals */
#define MICRO_TOKENS_MAX 2147483647.0 /* positions of a pass are counted in int32 */
#define STEPS_MAX 1e12
#define SEED_MAX 18446744073709551615.0

/* clang-format off */
static const struct plm_setting settings[] = {
  ROW("version", U32, version, "", "1", NUMBER(1, 1), FREE,
      .help = "Version of this file's format."),
  ROW("run", PATH, run, "", "runs/demo", FREE,
      .help = "Run folder. Everything that a run writes lives here."),
  ROW("seed", U64, seed, "", "1", NUMBER(0, SEED_MAX), REFUSED,
      .help = "Seed of the data plan, the initial weights and the training masks."),
  ROW("corpus", CORPUS, corpus, "", "data/sample.corpus", .flags = PLM_SETTING_NULLABLE,
      .resume = PLM_RESUME_CONTENT,
      .help = "Corpus folder made by `plm-pipeline ingest`. null: a fresh run takes the corpus of "
              "the first packer that joins. A list trains on a mixture of up to 16 corpora: "
              "`- {path: a.corpus, weight: 3, final_weight: 1, sampling: clusters}`. `weight` "
              "(default 1) is the source's share of the tokens, relative to the other weights; "
              "`final_weight` (null: none) is where the weight moves over data.mixture_steps; "
              "`sampling` (null: data.sampling) may differ by source. On resume, weights may "
              "change and sources may be added at the end; that changes the run."),

  ROW("network.feed", ENDPOINT, network.feed, "", "tcp://127.0.0.1:5701", FREE,
      .help = "Endpoint that the trainer binds and packers connect to. Its host may be an address, "
              "*, a network interface or a name of this host; so may that of the other endpoints "
              "that are bound."),
  ROW("network.feed_address", ENDPOINT, network.feed_address, "", "null",
      .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Endpoint that packers use to reach the trainer. null: the one that the trainer "
              "bound."),
  ROW("network.evaluation_feed", ENDPOINT, network.evaluation_feed, "", "tcp://127.0.0.1:5702",
      FREE,
      .help = "Endpoint that the evaluator binds and packers connect to."),
  ROW("network.evaluation_feed_address", ENDPOINT, network.evaluation_feed_address, "", "null",
      .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Endpoint that packers use to reach the evaluator. null: the one that the evaluator "
              "bound."),
  ROW("network.announcements", ENDPOINT, network.announcements, "", "tcp://127.0.0.1:5703", FREE,
      .help = "Endpoint on which the trainer announces new checkpoints."),
  ROW("network.announcements_address", ENDPOINT, network.announcements_address, "", "null",
      .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Endpoint that the evaluator uses to hear announcements. null: the one that the "
              "trainer bound."),
  ROW("network.keys", PATH, network.keys, "", "null", .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Folder of CURVE keys (`plm-pipeline keys`). Required if an endpoint can be reached "
              "from other hosts. null: the run's own keys, which its first stage makes in the "
              "folder `keys` of the run folder."),
  ROW("network.wait_packers_s", DOUBLE, network.wait_packers_s, "s", "600", NUMBER(0, 1e9), FREE,
      .help = "Longest time without any packer. After it the trainer publishes a checkpoint and "
              "ends with exit code 4."),
  ROW("network.credit_bytes", U64, network.credit_bytes, "bytes", "67108864",
      NUMBER(65536, 17179869184.0), FREE,
      .help = "Limit on the chunks that a consumer has requested but not yet used."),

  ROW("data.tokenizer", CHOICE, data.tokenizer, "", "esm", .choices = plm_tokenizer_names, REFUSED,
      .help = "esm: amino acids, 33 tokens. byte: any text, 261 tokens."),
  ROW("data.max_length", U32, data.max_length, "tokens", "512", NUMBER(2, PLM_MODEL_MAX_LENGTH),
      .flags = PLM_SETTING_POWER_OF_TWO, REFUSED,
      .help = "Tokens in a chunk."),
  ROW("data.document_alignment", U32, data.document_alignment, "tokens", "auto",
      NUMBER(1, PLM_MODEL_MAX_LENGTH), .flags = PLM_SETTING_POWER_OF_TWO, .word = "auto", REFUSED,
      .help = "Documents start at multiples of this many tokens. auto: the number of tokens that "
              "the architecture merges."),
  ROW("data.packing", CHOICE, data.packing, "", "best_fit", .choices = plm_packing_names, REFUSED,
      .help = "How documents are placed in chunks. best_fit pads less than next_fit."),
  ROW("data.window_groups", U32, data.window_groups, "groups", "64", NUMBER(1, 65536), REFUSED,
      .help = "Groups of 256 documents, or of 256 clusters, that are packed together."),
  ROW("data.truncate", CHOICE, data.truncate, "", "head", .choices = plm_truncate_names, REFUSED,
      .help = "What happens to a document longer than a chunk: keep its beginning, keep a random "
              "part, or split it into several."),
  ROW("data.sampling", CHOICE, data.sampling, "", "documents", .choices = plm_sampling_names,
      REFUSED,
      .help = "What an epoch visits once. documents: every document. clusters: every cluster, with "
              "one of its documents, drawn anew in each epoch; the corpus must keep its clusters "
              "(`ingest --clusters`)."),
  ROW("data.mixture_steps", U64, data.mixture_steps, "steps", "0", NUMBER(0, STEPS_MAX),
      .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "Steps over which the weights of a list of corpora move to their final_weight, "
              "linearly from the first step."),

  ROW("packer.instances", U32, packer_instances, "processes", "1", NUMBER(0, 256), FREE,
      .help = "Packers that `up` starts. 0: none; packers join from elsewhere."),
  ROW("packer.restart", CHOICE, packer_restart, "", "on-failure", .choices = plm_restart_names,
      FREE,
      .help = "Whether `up` starts a packer again after it has ended."),
  ROW("packer.cache", PATH, packer_cache, "", "null", .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Folder on a local disk. Packers first copy the corpus to it, once for each host, "
              "and read the copy. For a corpus on NFS, Lustre or another remote file system. null: "
              "no copy."),
  ROW("packer.allow_remote", BOOL, packer_allow_remote, "", "false", FREE,
      .help = "Packers read a corpus on a remote file system in place. Otherwise they refuse it, "
              "unless packer.cache is set."),

  ROW("model.preset", CHOICE, model_preset, "", "none", .choices = plm_preset_names, FREE,
      .help = "Size of the model: that of an ESM-2 model (8M to 15B) or of ESM-C (300M, 600M, 6B). "
              "Sets `architecture` (transformer, or esmc for the sizes of ESM-C), `hidden_size`, "
              "`num_attention_heads`, `num_hidden_layers` and `expansion_ratio` or "
              "`intermediate_size`, each unless it is given itself. Not for patch_unet. A resume "
              "compares these values, not the preset."),
  ROW("model.architecture", CHOICE, model.architecture, "", "patch_unet",
      .choices = plm_architecture_names, REFUSED,
      .help = "Architecture of the model. esm2 and esmc are those of published weights."),
  ROW("model.hidden_size", U32, model.hidden_size, "", "128",
      NUMBER(16, PLM_MODEL_MAX_WIDTH), REFUSED,
      .help = "Width D of the residual stream at full length."),
  ROW("model.num_attention_heads", U32, model.num_attention_heads, "", "4",
      NUMBER(1, PLM_MODEL_MAX_HEADS), REFUSED,
      .help = "Attention heads H in every layer."),
  ROW("model.num_hidden_layers", U32, model.num_hidden_layers, "", "6",
      NUMBER(1, PLM_MODEL_MAX_LAYERS), REFUSED,
      .help = "Blocks of all architectures but patch_unet; even for unet."),
  ROW("model.num_unet_layers", U32, model.num_unet_layers, "", "6",
      NUMBER(2, PLM_MODEL_MAX_UNET), REFUSED,
      .help = "Blocks of patch_unet's encoder and decoder together; even."),
  ROW("model.num_extra_layers", U32, model.num_extra_layers, "", "1",
      NUMBER(0, PLM_MODEL_MAX_LAYERS), REFUSED,
      .help = "Plain blocks at full length after patch_unet's decoder."),
  ROW("model.expansion_ratio", DOUBLE, model.expansion_ratio, "", "2.0",
      NUMBER(0, PLM_MODEL_MAX_RATIO),
      .flags = PLM_SETTING_ABOVE_MIN, REFUSED,
      .help = "Width of the MLP as a multiple of D, before it is rounded up to a multiple of "
              "256. Not for esm2 and esmc."),
  ROW("model.intermediate_size", U32, model.intermediate_size, "", "auto",
      NUMBER(1, PLM_MODEL_MAX_INTERMEDIATE), .word = "auto", REFUSED,
      .help = "Width of the MLP of esm2 and esmc, a multiple of 16. auto: 4 D for esm2, 8/3 D "
              "rounded up to a multiple of 256 for esmc. Not for the other architectures."),
  ROW("model.layer_norm_eps", DOUBLE, model.layer_norm_eps, "", "0", NUMBER(0, 1), REFUSED,
      .help = "What the LayerNorms of esm2 add to the variance. 0: 1e-5, which esmc always has. "
              "Not for the other architectures."),
  ROW("model.emb_layer_norm_before", BOOL, model.emb_layer_norm_before, "", "false", REFUSED,
      .help = "A LayerNorm of the embeddings before the first block, as ESM-1b has it. Only for "
              "esm2."),
  ROW("model.vocab_size", U32, model.vocab_size, "", "auto",
      NUMBER(1, PLM_MODEL_MAX_VOCABULARY), .word = "auto", REFUSED,
      .help = "Rows of the embedding table, and logits. auto: the tokens of the tokenizer, or 64 "
              "for esmc. Only esm2 and esmc may have more than there are tokens."),
  ROW("model.soft_logit_cap", DOUBLE, model.soft_logit_cap, "", "16.0",
      NUMBER(0, PLM_MODEL_MAX_LOGIT_CAP),
      REFUSED,
      .help = "Bounds the logits to plus or minus this value by tanh. 0: no bound, as esm2 and "
              "esmc have it whatever the default is."),
  ROW("model.tie_embeddings", BOOL, model.tie_embeddings, "", "false", REFUSED,
      .help = "Use the embedding table as the second matrix of the head. esm2 always does, esmc "
              "never."),
  ROW("model.token_dropout", BOOL, model.token_dropout, "", "false", REFUSED,
      .help = "Set the embedding of `<mask>` to zero. esm2 also scales the other embeddings of a "
              "document by (1 - 0.15 * 0.8) / (1 - the share of `<mask>` in it), and does so by "
              "default; not for esmc."),
  ROW("model.attention.pattern", PATTERN, model.pattern, "", "[document]", REFUSED,
      .count_offset = AT(model.pattern_count), .count_min = 1, .count_max = PLM_MAX_PATTERN,
      .help = "Attention masks, repeated over the blocks. An entry is document, causal, local or "
              "block, or several of these joined by +."),
  ROW("model.attention.window.start", U32, model.window_start, "tokens", "512",
      NUMBER(1, PLM_MODEL_MAX_LENGTH), CHANGES,
      .help = "Sliding window of local masks at step 1."),
  ROW("model.attention.window.end", U32, model.window_end, "tokens", "512",
      NUMBER(1, PLM_MODEL_MAX_LENGTH), CHANGES,
      .help = "Sliding window of local masks after `steps` steps, and of every finished model."),
  ROW("model.attention.window.steps", U32, model.window_steps, "steps", "0",
      NUMBER(0, 4294967295.0), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "Steps over which the window changes from start to end. 0: it is `end` from step "
              "1."),
  ROW("model.attention.block", U32, model.block, "tokens", "0",
      NUMBER(0, PLM_MODEL_MAX_LENGTH), REFUSED,
      .help = "Length of the fixed blocks of block masks. 0: no block masks."),

  ROW("trainer.device", CHOICE, trainer.device, "", "auto", .choices = plm_device_names, CHANGES,
      .help = "auto: CUDA if a device can be opened, otherwise the CPU."),
  ROW("trainer.threads", U32, trainer.threads, "threads", "0", NUMBER(0, 1024), CHANGES,
      .help = "CPU threads. 0: one for each core that the process may use, and no more than the "
              "CPU quota of its container."),
  ROW("trainer.ranks", U32, trainer.ranks, "ranks", "1", NUMBER(1, PLM_MAX_RANKS), FREE,
      .help = "Processes that train one model together, each on its part of every step. More than "
              "one needs Open MPI."),
  ROW("trainer.hosts", HOSTS, trainer.hosts, "", "[]", .count_offset = AT(trainer.host_count),
      .count_max = PLM_MAX_HOSTS, FREE,
      .help = "Hosts on which `up` starts the ranks, and how many each may have. The first is the "
              "one that `up` runs on. Empty: all ranks run there."),
  ROW("trainer.compress", CHOICE, trainer.compress, "", "none", .choices = plm_compress_names,
      CHANGES,
      .help = "How a rank rounds the sum of its gradients before it sends it to the others. bf16 "
              "halves what the first exchange sends. The bits of a run then depend on "
              "trainer.ranks. With one rank, nothing is sent or rounded."),
  ROW("trainer.rank_timeout_s", DOUBLE, trainer.rank_timeout_s, "s", "300", NUMBER(1, 86400), FREE,
      .help = "How long one rank may keep the others waiting before the run ends and names it. "
              "Waiting for chunks does not count."),
  ROW("trainer.shares", U32, trainer.shares, "shares", "0", NUMBER(0, PLM_MAX_SHARES), CHANGES,
      .help = "Equal parts of a step's chunks whose gradients are summed separately and then added "
              "as a binary tree. The bits of a run depend on this number. 0: one for each rank at "
              "the first step, and the same number when the run is resumed."),
  ROW("trainer.precision", CHOICE, trainer.precision, "", "auto",
      .choices = plm_training_precision_names, CHANGES,
      .help = "auto: bf16 if the device computes faster in it, otherwise fp32. int8 is only for "
              "inference: give --precision int8 to a command."),
  ROW("trainer.steps", U64, trainer.steps, "steps", "300", NUMBER(1, STEPS_MAX), CHANGES,
      .help = "Length of the run."),
  ROW("trainer.batch_tokens", U64, trainer.batch_tokens, "tokens", "4096", NUMBER(2, TOKENS_MAX),
      CHANGES,
      .help = "Tokens in a step, over all ranks and micro-batches, padding included."),
  ROW("trainer.micro_batch_tokens", U64, trainer.micro_batch_tokens, "tokens", "4096",
      NUMBER(2, MICRO_TOKENS_MAX), CHANGES,
      .help = "Tokens in one forward pass on one rank. If it is not set and the default does not "
              "divide the batch, the largest smaller value that divides it is used."),
  ROW("trainer.objective", CHOICE, trainer.objective, "", "mlm", .choices = plm_objective_names,
      REFUSED,
      .help = "What the model learns to predict: masked tokens (mlm, masked_diffusion), the next "
              "token (causal), or labels of the corpus: numbers (regression), a class "
              "(classification), several classes (multilabel), or a class for each residue "
              "(residues)."),
  ROW("trainer.labels", NAMES, trainer.labels, "", "[]", .count_offset = AT(trainer.label_count),
      .count_max = PLM_MAX_LABELS, REFUSED,
      .help = "Columns of the corpus (`ingest --labels`) that an objective with labels predicts. "
              "regression takes one or several of numbers, multilabel one of kind classes or "
              "several with two classes each, the others one."),
  ROW("trainer.class_weights", CHOICE, trainer.class_weights, "", "none",
      .choices = plm_class_weights_names, CHANGES,
      .help = "Weights of classes in the loss of classification and residues. balanced: the rarer "
              "a class is in the training split, the larger its weight, with a mean of 1."),
  ROW("trainer.head.pooling", CHOICE, model.head.pooling, "", "mean",
      .choices = plm_head_pooling_names, REFUSED,
      .help = "What a head for labels of sequences reads: the mean over the residues, or the first "
              "token (cls). esm2 and esmc have only cls, their default."),
  ROW("trainer.head.hidden_size", U32, model.head.hidden, "", "0",
      NUMBER(0, PLM_MODEL_MAX_WIDTH), REFUSED,
      .help = "Width of the layer with tanh in a head for labels of sequences. 0: none. esm2 and "
              "esmc always have one as wide as the model."),
  ROW("trainer.head.dropout", DOUBLE, model.head.dropout, "", "0.0", NUMBER(0, 1),
      .flags = PLM_SETTING_BELOW_MAX, CHANGES,
      .help = "Dropout before each matrix of a head for labels, in training."),
  ROW("trainer.masking.mask_rate", DOUBLE, trainer.masking.mask_rate, "", "0.15", NUMBER(0, 1),
      CHANGES,
      .help = "mlm: share of the residues that are chosen for prediction. masked_diffusion uses it "
              "only during mlm_warmup_steps."),
  ROW("trainer.masking.starting_mask_rate", DOUBLE, trainer.masking.starting_mask_rate, "", "0.15",
      NUMBER(0, 1), CHANGES,
      .help = "mlm: mask rate at step 1 if mask_rate_steps is above 0."),
  ROW("trainer.masking.mask_rate_steps", U64, trainer.masking.mask_rate_steps, "steps", "0",
      NUMBER(0, STEPS_MAX), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "mlm: steps over which the mask rate changes from starting_mask_rate to mask_rate. "
              "0: it is mask_rate from step 1."),
  ROW("trainer.masking.rate_scope", CHOICE, trainer.masking.rate_scope, "", "chunk",
      .choices = plm_rate_scope_names, CHANGES,
      .help = "masked_diffusion: draw one mask rate for each chunk, or one for the whole batch."),
  ROW("trainer.masking.random_fraction", DOUBLE, trainer.masking.random_fraction, "", "0.0",
      NUMBER(0, 1), CHANGES,
      .help = "Share of the chosen tokens that are replaced by a random residue instead of "
              "`<mask>`."),
  ROW("trainer.masking.keep_fraction", DOUBLE, trainer.masking.keep_fraction, "", "0.0",
      NUMBER(0, 1), CHANGES,
      .help = "Share of the chosen tokens that are left unchanged."),
  ROW("trainer.masking.mlm_warmup_steps", U64, trainer.masking.mlm_warmup_steps, "steps", "0",
      NUMBER(0, STEPS_MAX), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "masked_diffusion: steps at the beginning that train as mlm."),
  ROW("trainer.loss.label_smoothing", DOUBLE, trainer.label_smoothing, "", "0.0", NUMBER(0, 1),
      .flags = PLM_SETTING_BELOW_MAX, CHANGES,
      .help = "Label smoothing. 0: none."),
  ROW("trainer.loss.z_loss", DOUBLE, trainer.z_loss, "", "0.0", NUMBER(0, 1e3), CHANGES,
      .help = "Weight of the squared log-sum-exp of the logits in the loss. 0: none."),
  ROW("trainer.optimizer.name", CHOICE, trainer.optimizer.name, "", "muon",
      .choices = plm_optimizer_names, REFUSED,
      .help = "muon: Muon for the matrices, Adam for everything else. adamw: AdamW for "
              "everything."),
  ROW("trainer.optimizer.lr_hidden", DOUBLE, trainer.optimizer.lr_hidden, "", "0.005",
      NUMBER(0, 100), CHANGES,
      .help = "Learning rate of the matrices."),
  ROW("trainer.optimizer.lr_embed", DOUBLE, trainer.optimizer.lr_embed, "", "0.01", NUMBER(0, 100),
      CHANGES,
      .help = "Learning rate of the embedding tables."),
  ROW("trainer.optimizer.lr_head", DOUBLE, trainer.optimizer.lr_head, "", "0.01", NUMBER(0, 100),
      CHANGES,
      .help = "Learning rate of the head."),
  ROW("trainer.optimizer.lr_scalar", DOUBLE, trainer.optimizer.lr_scalar, "", "0.01",
      NUMBER(0, 100), CHANGES,
      .help = "Learning rate of the mixing weights."),
  ROW("trainer.optimizer.momentum", DOUBLE, trainer.optimizer.momentum, "", "0.95", NUMBER(0, 1),
      .flags = PLM_SETTING_BELOW_MAX, CHANGES,
      .help = "Muon's momentum after its warm-up."),
  ROW("trainer.optimizer.momentum_warmup_steps", U64, trainer.optimizer.momentum_warmup_steps,
      "steps", "100", NUMBER(0, STEPS_MAX), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "Steps over which Muon's momentum rises from 0.85 to `momentum`."),
  ROW("trainer.optimizer.scale", CHOICE, trainer.optimizer.scale, "", "match_adamw",
      .choices = plm_muon_scale_names, CHANGES,
      .help = "How the size of Muon's update depends on the shape of the matrix."),
  ROW("trainer.optimizer.weight_decay", DOUBLE, trainer.optimizer.weight_decay, "", "0.0",
      NUMBER(0, 100), CHANGES,
      .help = "Decoupled weight decay, applied only to matrices."),
  ROW("trainer.optimizer.betas", DOUBLES, trainer.optimizer.betas, "", "[0.8, 0.95]", NUMBER(0, 1),
      .flags = PLM_SETTING_BELOW_MAX, .count_min = 2, .count_max = 2, CHANGES,
      .help = "Adam's betas. If they are not set, adamw uses [0.9, 0.95]."),
  ROW("trainer.schedule.name", CHOICE, trainer.schedule.name, "", "wsd",
      .choices = plm_schedule_names, CHANGES,
      .help = "Shape of the learning-rate schedule after the warm-up. wsd: constant, then linear "
              "to the end. range_test: no warm-up; grows exponentially from min_lr_fraction to 1, "
              "to find a learning rate (`up --find-lr`)."),
  ROW("trainer.schedule.warmup_steps", U64, trainer.schedule.warmup_steps, "steps", "20",
      NUMBER(0, STEPS_MAX), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "Steps of linear warm-up, or a share of trainer.steps. If it is not set and the "
              "default does not fit into the run: a fifteenth of it."),
  ROW("trainer.schedule.cooldown_steps", U64, trainer.schedule.cooldown_steps, "steps", "100",
      NUMBER(0, STEPS_MAX), .flags = PLM_SETTING_SHARE, CHANGES,
      .help = "wsd: steps of the linear decay at the end of the run, or a share of trainer.steps. "
              "If it is not set and the default does not fit into the run: a third of it."),
  ROW("trainer.schedule.min_lr_fraction", DOUBLE, trainer.schedule.min_lr_fraction, "", "0.0",
      NUMBER(0, 1), CHANGES,
      .help = "Fraction of the learning rate that the schedule never goes below."),
  ROW("trainer.clip.norm", DOUBLE, trainer.clip_norm, "", "0.0", NUMBER(0, 1e9), CHANGES,
      .help = "Clip the gradient to this norm. 0: do not clip."),
  ROW("trainer.clip.auto_percentile", DOUBLE, trainer.clip_auto_percentile, "", "0.0",
      NUMBER(0, 100), CHANGES,
      .help = "Clip the gradient to this percentile of the last 1,024 norms. 0: do not clip."),
  ROW("trainer.ema", DOUBLE, trainer.ema, "", "0.0", NUMBER(0, 1), .flags = PLM_SETTING_BELOW_MAX,
      CHANGES,
      .help = "Decay of the exponential moving average of the weights. 0: keep no average."),
  ROW("trainer.checkpoint.every", U64, trainer.checkpoint.every, "steps", "100",
      NUMBER(0, STEPS_MAX), FREE,
      .help = "Steps between checkpoints. 0: publish only the first and the last."),
  ROW("trainer.checkpoint.keep_last", U32, trainer.checkpoint.keep_last, "checkpoints", "3",
      NUMBER(1, 1e6), FREE,
      .help = "Number of newest checkpoints that are kept."),
  ROW("trainer.checkpoint.keep_best", U32, trainer.checkpoint.keep_best, "checkpoints", "1",
      NUMBER(0, 1e6), FREE,
      .help = "Number of checkpoints with the lowest evaluation loss that are kept. The loss is "
              "that of the first split of evaluator.splits on the run's own corpus, not of "
              "evaluator.sets. best_by judges by something else."),
  ROW("trainer.checkpoint.best_by", STRING, trainer.checkpoint.best_by, "", "null",
      .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "What keep_best compares instead of the loss: another measure of the same split, for "
              "example accuracy, or TASK.MEASURE, a task of evaluator.tasks and one of its "
              "measures, for example stability.spearman. Checkpoints without it are no "
              "candidates. null: stop_when.metric if stop_when.patience is above 0, else the "
              "loss."),
  ROW("trainer.checkpoint.keep_every", U64, trainer.checkpoint.keep_every, "steps", "0",
      NUMBER(0, STEPS_MAX), FREE,
      .help = "Keep every checkpoint whose step is a multiple of this. 0: none for this reason."),
  ROW("trainer.checkpoint.max_unevaluated", U32, trainer.checkpoint.max_unevaluated,
      "checkpoints", "16", NUMBER(1, 1e6), FREE,
      .help = "Number of checkpoints that are kept because the evaluator has not reported them "
              "yet."),
  ROW("trainer.checkpoint.max_failed_checkpoints", U32, trainer.checkpoint.max_failed,
      "checkpoints", "3", NUMBER(1, 1e6), FREE,
      .help = "The run ends after this many checkpoints in a row could not be written."),
  ROW("trainer.stop_timeout_s", DOUBLE, trainer.stop_timeout_s, "s", "25", NUMBER(0, 86400), FREE,
      .help = "Time that every stage has after a stop signal. The trainer finishes its step and "
              "publishes within it, or gives the step up and publishes the state before it. The "
              "evaluator finishes its checkpoint within it, or drops it unreported. `up` kills a "
              "trainer or evaluator that still runs 10 s later, and a packer 5 s later."),
  ROW("trainer.recompute", CHOICE, trainer.recompute, "", "none", .choices = plm_recompute_names,
      FREE,
      .help = "What the backward pass computes again instead of keeping it in memory: nothing, the "
              "MLPs, or whole blocks."),
  ROW("trainer.init_from", PATH, trainer.init_from, "", "null", .flags = PLM_SETTING_NULLABLE,
      FREE,
      .help = "Checkpoint, or Hugging Face folder of this model, whose weights a fresh run starts "
              "from. If it has EMA weights, those are used."),
  ROW("trainer.freeze.embeddings", BOOL, trainer.freeze.embeddings, "", "false", REFUSED,
      .help = "Leave the embedding, its norm and the value embeddings as they are."),
  ROW("trainer.freeze.blocks", U32, trainer.freeze.blocks, "blocks", "0", NUMBER(0, 2048), REFUSED,
      .help = "Number of blocks, from the first one, that are not trained."),
  ROW("trainer.freeze.trunk", BOOL, trainer.freeze.trunk, "", "false", REFUSED,
      .help = "Train only the head, `lm_head`."),
  ROW("trainer.lora.rank", U32, model.lora.rank, "", "0", NUMBER(0, PLM_LORA_MAX_RANK), REFUSED,
      .help = "Rank of the adapters (LoRA) that are trained instead of the model's weights. 0: "
              "there are none."),
  ROW("trainer.lora.alpha", DOUBLE, model.lora.alpha, "", "16", NUMBER(0, 1e6),
      .flags = PLM_SETTING_ABOVE_MIN, REFUSED,
      .help = "What an adapter adds is multiplied by alpha / rank."),
  ROW("trainer.lora.targets", CHOICES, model.lora.targets, "", "[q, v]",
      .choices = plm_lora_target_names, .count_min = 1, .count_max = PLM_LORA_TARGETS, REFUSED,
      .help = "The products of every block that get an adapter. gate: only esmc."),
  ROW("trainer.lora.dropout", DOUBLE, model.lora.dropout, "", "0.0", NUMBER(0, 1),
      .flags = PLM_SETTING_BELOW_MAX, REFUSED,
      .help = "Share of an adapter's inputs that are dropped in training."),
  ROW("trainer.stop_when.metric", CHOICE, trainer.stop_when.metric, "", "loss",
      .choices = plm_stop_metric_names, FREE,
      .help = "The metric that `patience` watches, on the first of evaluator.splits. Every "
              "objective has loss. Those of the language model have accuracy and mcc; regression "
              "has spearman, pearson, r2 and rmse; classification, multilabel and residues have "
              "accuracy, macro_f1, mcc and auroc."),
  ROW("trainer.stop_when.patience", U32, trainer.stop_when.patience, "", "0", NUMBER(0, 1e6), FREE,
      .help = "End the run after this many evaluated checkpoints in a row that are no better than "
              "the best one before them. 0: never."),
  ROW("trainer.max_skipped_steps", U32, trainer.max_skipped_steps, "steps", "20", NUMBER(1, 1e6),
      FREE, .help = "The run ends after this many skipped steps in a row."),
  ROW("trainer.profile.steps", STEPS, trainer.profile, "", "null", .flags = PLM_SETTING_NULLABLE,
      FREE,
      .help = "Steps whose operators, copies, exchanges and waits are written, with their times, "
              "to profile.json in the run folder: FIRST-LAST, at most 100, or one step. null: "
              "none."),
  ROW("trainer.restart", CHOICE, trainer.restart, "", "on-failure", .choices = plm_restart_names,
      FREE,
      .help = "Whether `up` starts the trainer again after it has ended."),

  ROW("evaluator.device", CHOICE, evaluator.device, "", "auto", .choices = plm_device_names, FREE,
      .help = "auto: the first GPU that the trainer does not use, otherwise the CPU. cuda: the "
              "first GPU."),
  ROW("evaluator.threads", U32, evaluator.threads, "threads", "auto", NUMBER(1, 1024),
      .word = "auto", FREE,
      .help = "CPU threads. auto: one, or all if trainer.device is cuda."),
  ROW("evaluator.seed", U64, evaluator.seed, "", "0", NUMBER(0, SEED_MAX), FREE,
      .help = "Seed of the evaluation masks."),
  ROW("evaluator.splits", SPLITS, evaluator.splits, "", "[valid]", .choices = plm_split_names,
      .count_offset = AT(evaluator.split_count), .count_min = 1, .count_max = PLM_MAX_SPLITS, FREE,
      .help = "Splits on which every checkpoint is evaluated."),
  ROW("evaluator.sets", SETS, evaluator.sets, "", "[]",
      .count_offset = AT(evaluator.set_count), .count_max = PLM_MAX_SETS, FREE,
      .help = "Further held-out sets on which every checkpoint is evaluated, each "
              "`{name: NAME, corpus: DIR, split: valid}`. The evaluator opens their corpora "
              "itself, so its host must hold them. keep_best judges by the run's own corpus."),
  ROW("evaluator.tasks", TASKS, evaluator.tasks, "", "[]",
      .count_offset = AT(evaluator.task_count), .count_max = PLM_MAX_TASKS, FREE,
      .help = "What else is measured of checkpoints. A probe (doc/probe.md): `{name: NAME, "
              "kind: probe, path: TABLE, target: COLUMN, split: COLUMN, task: auto, "
              "sequence_column: COLUMN, every: 1}`. Assays in ProteinGym's format: `{name: NAME, "
              "kind: assays, path: DIR, reference: FILE, ids: [DMS_id, ...], max_variants: N, "
              "every: 1}`; without ids, all; max_variants: a sample of each. Contacts by attention "
              "maps "
              "(doc/probe.md#contacts): `{name: NAME, kind: contacts, path: DIR, every: 1}`. "
              "`every: N` takes each Nth checkpoint and the last one. A task is skipped while a "
              "newer checkpoint waits."),
  ROW("evaluator.mask_rate", DOUBLE, evaluator.mask_rate, "", "0.15", NUMBER(0, 1),
      .flags = PLM_SETTING_ABOVE_MIN, FREE,
      .help = "Share of the residues that are masked. Not used for causal models."),
  ROW("evaluator.mask_rates", DOUBLES, evaluator.mask_rates, "", "[]", NUMBER(0, 1),
      .flags = PLM_SETTING_ABOVE_MIN, .count_offset = AT(evaluator.mask_rate_count),
      .count_max = PLM_MAX_MASK_RATES, FREE,
      .help = "Further mask rates, for loss_by_mask_rate."),
  ROW("evaluator.elbo_rates", U32, evaluator.elbo_rates, "", "0", NUMBER(0, 64), FREE,
      .help = "Number of mask rates at which each document is measured for `elbo`, the bound on "
              "the loss that masked diffusion trains. Each is one more pass. 0: no `elbo`. Not "
              "used for causal models."),
  ROW("evaluator.max_tokens", U64, evaluator.max_tokens, "tokens", "200000",
      NUMBER(1, TOKENS_MAX), .word = "null", FREE,
      .help = "Real tokens evaluated in each split and set. null: all."),
  ROW("evaluator.restart", CHOICE, evaluator.restart, "", "on-failure",
      .choices = plm_restart_names, FREE,
      .help = "Whether `up` starts the evaluator again after it has ended."),

  ROW("supervisor.wait_s", DOUBLE, supervisor.wait_s, "s", "3600", NUMBER(0, 1e9), FREE,
      .help = "Longest time that `up` waits for a cause that may pass (a full disk, an unreadable "
              "corpus, a port in use: exit code 6) by starting the stage again. 0: not at all."),
  ROW("supervisor.silent_s", DOUBLE, supervisor.silent_s, "s", "300", NUMBER(0, 1e9), FREE,
      .help = "A stage that gives no sign of life for this long is killed and started again. For a "
              "trainer the limit is at least 20 times the median time of its last steps, and for "
              "an evaluator 20 times the time of its last batches. A stage that waits for packers "
              "or for a checkpoint to be written reports this every second, which counts as a "
              "sign of life. 0: never, also not during a start."),
  ROW("supervisor.silent_start_s", DOUBLE, supervisor.silent_start_s, "s", "1800",
      NUMBER(0, 1e9), FREE,
      .help = "The same limit while the trainer or the evaluator starts, loads a checkpoint, tunes "
              "or computes its first step. Signs of life are each part of the start, each part of "
              "a large file, and each micro-batch of the first step. 0: never."),

  ROW("metrics.tensorboard", BOOL, tensorboard, "", "true", FREE,
      .help = "Write TensorBoard event files."),
  ROW("metrics.norms", U64, norms, "steps", "0", NUMBER(0, STEPS_MAX), FREE,
      .help = "Every so many steps, the trainer reports the norms of gradients, weights and "
              "updates by layer. It keeps a copy of the fp32 weights for that (4 bytes for each "
              "parameter). 0: never."),
  ROW("metrics.prometheus", ADDRESS, prometheus, "", "null", .flags = PLM_SETTING_NULLABLE, FREE,
      .help = "Address on which `up` serves metrics to Prometheus, for example 127.0.0.1:9464. "
              "null: none."),
};
/* clang-format on */

enum { SETTING_COUNT = sizeof settings / sizeof settings[0] };

const struct plm_setting *plm_settings(size_t *count)
{
  if (count != NULL) *count = SETTING_COUNT;
  return settings;
}
