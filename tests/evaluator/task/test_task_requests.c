/* What the command lines of plm-evaluator's tasks ask for: each option goes to its own field, each
 * has its default, and what is wrong is refused. The tasks themselves are replaced here. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/cli/task_options.h"
#include "evaluator/embed/embed.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "evaluator/generate/generate.h"
#include "evaluator/predict/predict.h"
#include "evaluator/score/position_scores.h"
#include "evaluator/score/score_assays.h"
#include "evaluator/score/score_variants.h"
#include "evaluator/task/task.h"
#include "tests/support/cases/task_line.h"
#include "tests/support/harness/scratch.h"

/* ---- what takes the place of the tasks ------------------------------------------------------- */

static struct {
  const char *task; /* that was called last; NULL: none */
  uint32_t threads;
  struct plm_embed_request embed;
  struct plm_evaluate_request evaluate;
  struct plm_generate_request generate;
  struct plm_predict_request predict;
  struct plm_score_request score;
  struct plm_assays_request assays;
  char ids[100]; /* of the assays, in brackets */
} asked;

static plm_status called(const char *task, const struct plm_ops *ops)
{
  asked.task = task;
  asked.threads = ops->threads;
  return PLM_INTERRUPTED; /* not a status of the options */
}

plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error)
{
  (void)error;
  asked.embed = *request;
  return called("embed", ops);
}

plm_status plm_evaluate_once(const struct plm_evaluate_request *request, struct plm_ops *ops,
                             struct plm_error *error)
{
  (void)error;
  asked.evaluate = *request;
  return called("evaluate", ops);
}

plm_status plm_generate(const struct plm_generate_request *request, struct plm_ops *ops,
                        struct plm_error *error)
{
  (void)error;
  asked.generate = *request;
  return called("generate", ops);
}

plm_status plm_predict(const struct plm_predict_request *request, struct plm_ops *ops,
                       struct plm_error *error)
{
  (void)error;
  asked.predict = *request;
  return called("predict", ops);
}

plm_status plm_score_variants(const struct plm_score_request *request, struct plm_ops *ops,
                              struct plm_error *error)
{
  (void)error;
  asked.score = *request;
  return called("score", ops);
}

plm_status plm_score_positions(const struct plm_score_request *request, struct plm_ops *ops,
                               struct plm_error *error)
{
  (void)error;
  asked.score = *request;
  return called("positions", ops);
}

plm_status plm_score_assays(const struct plm_assays_request *request, struct plm_ops *ops,
                            struct plm_error *error)
{
  (void)error;
  asked.assays = *request;
  size_t used = 0;
  asked.ids[0] = '\0';
  for (size_t i = 0; i < request->choice.id_count; i++)
    used +=
        (size_t)snprintf(asked.ids + used, sizeof asked.ids - used, "[%s]", request->choice.ids[i]);
  return called("assays", ops);
}

/* ---- command lines --------------------------------------------------------------------------- */

static plm_status run(const struct plm_program *program, const char *line, struct plm_error *error)
{
  asked.task = NULL;
  return task_line_run(program, line, error); /* requests borrow from the line */
}

static void asks(const struct plm_program *program, const char *task, const char *line)
{
  struct plm_error error;
  const plm_status status = run(program, line, &error);
  if (status != PLM_INTERRUPTED) fail_msg("%s: %s", line, error.what);
  assert_string_equal(asked.task, task);
}

static void refused(const struct plm_program *program, const char *line, const char *what)
{
  struct plm_error error;
  const plm_status status = run(program, line, &error);
  if (status != PLM_USAGE || asked.task != NULL) fail_msg("%s is not refused", line);
  if (strstr(error.what, what) == NULL) fail_msg("%s: %s", line, error.what);
}

static void same(const char *text, const char *expected)
{
  if (expected == NULL)
    assert_null(text);
  else
    assert_string_equal(text, expected);
}

/* ---- embed and predict ----------------------------------------------------------------------- */

static void expect_of(const struct plm_sequence_request *of, uint32_t batch_tokens)
{
  same(of->checkpoint, "C");
  same(of->weights, "ema");
  assert_int_equal(of->input_count, 2);
  same(of->inputs[0], "in1"), same(of->inputs[1], "in2");
  same(of->output, "out.npy");
  assert_int_equal(of->max_length, 77);
  assert_int_equal(of->batch_tokens, batch_tokens);
  assert_true(of->choices.nucleotides && of->choices.gaps == PLM_GAPS_KEEP);
  same(of->choices.sequence_column, "seq");
  same(of->choices.name_column, "id");
  assert_true(of->strict && of->fresh && of->json);
}

#define ALL_OF                                                                           \
  "--checkpoint C in1 in2 --output out.npy --weights ema --max-length 77 --nucleotides " \
  "--gaps keep --sequence-column seq --name-column id --strict --resume never --json "

static void sequences(void **state)
{
  (void)state;
  asks(&plm_task_embed, "embed", ALL_OF "--batch-tokens 1");
  expect_of(&asked.embed.of, 1);
  asks(&plm_task_predict, "predict", ALL_OF "--batch-tokens 4194304");
  expect_of(&asked.predict.of, 4194304);
  asks(&plm_task_predict, "predict", "--checkpoint C in1 --output out.csv --resume auto");
  const struct plm_sequence_request *of = &asked.predict.of;
  same(of->weights, NULL);
  assert_true(of->input_count == 1 && of->max_length == 0 && of->batch_tokens == 4096);
  assert_false(of->choices.nucleotides || of->strict || of->fresh || of->json);
  assert_int_equal(of->choices.gaps, PLM_GAPS_REFUSE);
  assert_false(asked.predict.per_residue || asked.predict.logits);
  asks(&plm_task_predict, "predict", "--checkpoint C in1 --output out.csv --per-residue");
  assert_true(asked.predict.per_residue && !asked.predict.logits);
  asks(&plm_task_predict, "predict", "--checkpoint C in1 --output out.csv --logits");
  assert_true(asked.predict.logits && !asked.predict.per_residue);
  for (int i = 0; i < 2; i++) {
    const struct plm_program *program = i == 0 ? &plm_task_embed : &plm_task_predict;
    refused(program, "in --output o", "--checkpoint");
    refused(program, "in --checkpoint C", "--output");
    refused(program, "--checkpoint C --output o", "no sequences are named");
    refused(program, "in --checkpoint C --output o --resume later",
            "--resume must be auto or never, not \"later\"");
    refused(program, "in --checkpoint C --output - --json", "--json");
    refused(program, "in --checkpoint C --output o --batch-tokens 0", "must be 1 to 4194304");
    refused(program, "in --checkpoint C --output o --batch-tokens 4194305", "must be 1 to 4194304");
    refused(program, "in --checkpoint C --output o --batch-tokens some",
            "\"--batch-tokens\" needs a whole number, not \"some\"");
    refused(program, "in --checkpoint C --output o --max-length 0", "--max-length 0 is not");
    refused(program, "in --checkpoint C --output o --gaps some",
            "--gaps must be remove or keep, not \"some\"");
    refused(program, "in --checkpoint C --output o --precision fp64", "--precision must be");
  }
}

#define EMBED "--checkpoint C in --output o "

static void kinds_of_embeddings(void **state)
{
  (void)state;
  static const struct {
    const char *options;
    enum plm_embed_kind kind;
    uint32_t batch_tokens;
    const char *attention, *layers;
  } rows[] = {{"", PLM_EMBED_POOLED, 4096, NULL, NULL},
              {"--pooling max --layers 1,2", PLM_EMBED_POOLED, 4096, NULL, "1,2"},
              {"--per-token --layers last", PLM_EMBED_PER_TOKEN, 4096, NULL, "last"},
              {"--logits", PLM_EMBED_LOGITS, 4096, NULL, NULL},
              {"--attention 3:5", PLM_EMBED_ATTENTION, 2048, "3:5", NULL},
              {"--contacts", PLM_EMBED_CONTACTS, 2048, NULL, NULL}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char line[200];
    snprintf(line, sizeof line, EMBED "%s", rows[i].options);
    asks(&plm_task_embed, "embed", line);
    assert_int_equal(asked.embed.kind, rows[i].kind);
    assert_int_equal(asked.embed.of.batch_tokens, rows[i].batch_tokens);
    same(asked.embed.attention, rows[i].attention);
    same(asked.embed.layers, rows[i].layers);
    assert_false(asked.embed.separate_chains);
    if (rows[i].kind != PLM_EMBED_POOLED) continue;
    assert_int_equal(asked.embed.pooling.count, 1);
    assert_int_equal(asked.embed.pooling.kinds[0], i == 0 ? PLM_POOL_MEAN : PLM_POOL_MAX);
  }
  asks(&plm_task_embed, "embed", EMBED "--separate-chains");
  assert_true(asked.embed.separate_chains);
  static const char *const alone[] = {"--pooling max", "--per-token", "--logits", "--attention 3:5",
                                      "--contacts"};
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < i; j++) {
      char line[200];
      snprintf(line, sizeof line, EMBED "%s %s", alone[i], alone[j]);
      refused(&plm_task_embed, line, "exclude each other");
    }
  refused(&plm_task_embed, EMBED "--logits --layers 1", "--layers and --logits exclude");
  refused(&plm_task_embed, EMBED "--contacts --layers 1", "--layers and --contacts exclude");
  refused(&plm_task_embed, EMBED "--attention 1 --layers 1", "--layers and --attention exclude");
  refused(&plm_task_embed, EMBED "--pooling median", "median");
}

/* ---- evaluate -------------------------------------------------------------------------------- */

#define EVALUATE "--checkpoint C --corpus D "

static void evaluations(void **state)
{
  (void)state;
  asks(&plm_task_evaluate, "evaluate",
       EVALUATE "--split test --labels a,b --mask-rate 0.25 --max-tokens 11 --seed 12 "
                "--max-length 64 --elbo-rates 5 --pseudo-perplexity both --random-fraction 0.5 "
                "--keep-fraction 0 --json --threads 1 --device cpu");
  const struct plm_evaluate_request *request = &asked.evaluate;
  same(request->checkpoint, "C"), same(request->corpus, "D");
  same(request->split, "test");
  same(request->labels, "a,b");
  assert_true(request->mask_rate == 0.25 && request->max_tokens == 11 && request->seed == 12);
  assert_true(request->max_length == 64 && request->elbo_rates == 5 && request->json);
  assert_true(request->pseudo_perplexity && request->pseudo_perplexity_fast);
  assert_true(request->random_fraction == 0.5 && request->keep_fraction == 0);
  assert_int_equal(asked.threads, 1);
  asks(&plm_task_evaluate, "evaluate", EVALUATE);
  same(request->split, "valid");
  same(request->labels, NULL);
  assert_true(request->mask_rate == 0.15 && request->max_tokens == 0 && request->seed == 0);
  assert_true(request->max_length == 0 && request->elbo_rates == 0 && !request->json);
  assert_false(request->pseudo_perplexity || request->pseudo_perplexity_fast);
  asks(&plm_task_evaluate, "evaluate", EVALUATE "--pseudo-perplexity exact");
  assert_true(request->pseudo_perplexity && !request->pseudo_perplexity_fast);
  asks(&plm_task_evaluate, "evaluate",
       EVALUATE "--pseudo-perplexity fast --random-fraction 0.1 --keep-fraction 0.1");
  assert_true(!request->pseudo_perplexity && request->pseudo_perplexity_fast);
  refused(&plm_task_evaluate, "--corpus D", "--checkpoint");
  refused(&plm_task_evaluate, "--checkpoint C", "--corpus");
  refused(&plm_task_evaluate, EVALUATE "--mask-rate 0", "--mask-rate 0 is not");
  refused(&plm_task_evaluate, EVALUATE "--max-length 63", "--max-length 63 is not a power of two");
  refused(&plm_task_evaluate, EVALUATE "--elbo-rates 65", "--elbo-rates 65 is not");
  refused(&plm_task_evaluate, EVALUATE "--elbo-rates 1.5", "1.5 is not a whole number");
  refused(&plm_task_evaluate, EVALUATE "--random-fraction 0", "--random-fraction 0 is not");
  refused(&plm_task_evaluate, EVALUATE "--keep-fraction 1.1", "--keep-fraction 1.1 is not");
  refused(&plm_task_evaluate, EVALUATE "--pseudo-perplexity slow", "not \"slow\"");
  refused(&plm_task_evaluate, EVALUATE "--pseudo-perplexity both --keep-fraction 0.1",
          "--pseudo-perplexity fast needs --random-fraction and --keep-fraction");
  refused(&plm_task_evaluate, EVALUATE "--pseudo-perplexity fast --random-fraction 0.1",
          "--pseudo-perplexity fast needs --random-fraction and --keep-fraction");
}

/* ---- generate -------------------------------------------------------------------------------- */

#define GENERATE "--checkpoint C --output o "

static void generations(void **state)
{
  (void)state;
  asks(&plm_task_generate, "generate",
       GENERATE "in --weights model --trace t --temperature 0 --top-p 0.5 --top-k 3 --seed 4 "
                "--count 5 --steps 6 --remask 0.99 --length 7 --max-tokens 8 --max-length 9 "
                "--nucleotides --json");
  const struct plm_generate_request *request = &asked.generate;
  same(request->checkpoint, "C"), same(request->output, "o"), same(request->input, "in");
  same(request->weights, "model");
  same(request->trace, "t");
  assert_true(request->temperature == 0 && request->top_p == 0.5 && request->top_k == 3);
  assert_true(request->seed == 4 && request->count == 5 && request->steps == 6);
  assert_true(request->remask == 0.99 && request->length == 7 && request->max_tokens == 8);
  assert_true(request->max_length == 9 && request->choices.nucleotides && request->json);
  asks(&plm_task_generate, "generate", GENERATE);
  same(request->input, NULL);
  same(request->weights, NULL), same(request->trace, NULL);
  assert_true(request->temperature == 1 && request->top_p == 1 && request->top_k == 0);
  assert_true(request->seed == 0 && request->count == 1 && request->steps == 0);
  assert_true(request->remask == 0 && request->length == 0 && request->max_tokens == 0);
  assert_true(request->max_length == 0 && !request->json);
  asks(&plm_task_generate, "generate", GENERATE "--count 1073741824 --trace -");
  assert_int_equal(request->count, 1 << 30);
  refused(&plm_task_generate, GENERATE "in --seed x", "--seed");
  refused(&plm_task_generate, "--output o", "--checkpoint");
  refused(&plm_task_generate, "--checkpoint C", "--output");
  refused(&plm_task_generate, "--checkpoint C --output - --json", "--json");
  refused(&plm_task_generate, "--checkpoint C --output - --trace -",
          "--trace - and --output would both write to standard output");
  refused(&plm_task_generate, GENERATE "--trace - --json",
          "--trace - and --json would both write to standard output");
  refused(&plm_task_generate, GENERATE "--trace o", "--trace and --output both name o");
  refused(&plm_task_generate, GENERATE "--count 0", "--count 0 is not between 1 and 1073741824");
  refused(&plm_task_generate, GENERATE "--top-k 1073741825", "--top-k 1073741825 is not between");
  refused(&plm_task_generate, GENERATE "--temperature -1", "--temperature -1 is not");
  refused(&plm_task_generate, GENERATE "--top-p 0", "--top-p 0 is not");
  refused(&plm_task_generate, GENERATE "--remask 1", "--remask 1 is not");
}

/* ---- score ----------------------------------------------------------------------------------- */

#define SCORE "--checkpoint C --wild-type W "

static void scores(void **state)
{
  (void)state;
  asks(&plm_task_score, "score",
       SCORE "--csv v.csv --weights ema --output o --mutations m --measured y --score-column s "
             "--masking joint --max-length 9 --offset -1000000000 --gaps keep --color never");
  const struct plm_score_request *request = &asked.score;
  same(request->checkpoint, "C"), same(request->wild_type, "W");
  same(request->weights, "ema");
  same(request->output, "o");
  same(request->reader.csv, "v.csv");
  same(request->reader.mutations, "m");
  same(request->reader.measured, "y");
  same(request->reader.added, "s");
  assert_true(request->reader.texts == NULL && request->masking == PLM_SCORE_JOINT);
  assert_true(request->masking_given && request->max_length == 9);
  assert_true(request->first == -1000000000 && request->choices.gaps == PLM_GAPS_KEEP);
  assert_false(request->json || request->plot || request->color);
  asks(&plm_task_score, "score", SCORE "A1G L2P --json --color always");
  assert_true(request->reader.text_count == 2 && request->json && request->color);
  same(request->reader.texts[1], "L2P");
  same(request->reader.csv, NULL);
  same(request->reader.mutations, "mutant");
  same(request->reader.measured, NULL);
  same(request->reader.added, "score");
  same(request->output, NULL);
  assert_true(request->first == 1 && request->masking == PLM_SCORE_ADDITIVE);
  assert_false(request->masking_given);
  asks(&plm_task_score, "score", SCORE "--all --plot --masking none --offset 1000000000");
  assert_true(request->plot && request->reader.texts == NULL && request->reader.csv == NULL);
  assert_true(request->first == 1000000000 && request->masking == PLM_SCORE_UNMASKED);
  asks(&plm_task_score, "positions", SCORE "--per-position --masking additive");
  same(request->output, "-");
  assert_true(request->masking_given && request->masking == PLM_SCORE_ADDITIVE);
  asks(&plm_task_score, "positions", SCORE "--per-position --output o");
  same(request->output, "o");
  asks(&plm_task_score, "score", SCORE "--csv -");
  asks(&plm_task_score, "score", "--checkpoint C --wild-type - A1G");
  asks(&plm_task_score, "score", "--checkpoint C --wild-type - --csv f");
}

static void scores_that_are_refused(void **state)
{
  (void)state;
  static const struct {
    const char *line, *what;
  } rows[] = {
      {"--wild-type W A1G", "--checkpoint"},
      {"--checkpoint C A1G", "--wild-type"},
      {SCORE, "give the variants in one of three ways"},
      {SCORE "A1G --all", "give the variants in one of three ways"},
      {SCORE "A1G --csv f", "give the variants in one of three ways"},
      {SCORE "--all --csv f", "give the variants in one of three ways"},
      {SCORE "A1G --mutations m", "--mutations names a column of a CSV file"},
      {SCORE "--all --measured m", "--measured names a column of a CSV file"},
      {SCORE "A1G --masking some", "not \"some\""},
      {SCORE "A1G --offset 1000000001", "--offset 1000000001 is not within"},
      {SCORE "A1G --offset -1000000001", "--offset -1000000001 is not within"},
      {SCORE "A1G --plot", "--plot needs --all"},
      {SCORE "--all --plot --json", "cannot be combined with --json"},
      {SCORE "--all --plot --output -", "--plot"},
      {SCORE "--all --json --output -", "--json"},
      {SCORE "A1G --reference f", "--reference belongs to --assays DIR"},
      {SCORE "A1G --scores f", "--scores belongs to --assays DIR"},
      {SCORE "A1G --ids f", "--ids belongs to --assays DIR"},
      {SCORE "A1G --max-variants 1", "--max-variants belongs to --assays DIR"},
      {"--checkpoint C --wild-type - --csv -", "cannot both be standard input"},
      {SCORE "--per-position A1G", "so it takes no variants"},
      {SCORE "--per-position --masking joint", "leave out --masking joint"},
      {SCORE "--per-position --csv f", "cannot be combined with --csv"},
      {SCORE "--per-position --all", "cannot be combined with --all"},
      {SCORE "--per-position --mutations f", "cannot be combined with --mutations"},
      {SCORE "--per-position --measured f", "cannot be combined with --measured"},
      {SCORE "--per-position --score-column f", "cannot be combined with --score-column"},
      {SCORE "--per-position --plot", "cannot be combined with --plot"},
      {SCORE "--per-position --json", "cannot be combined with --json"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    refused(&plm_task_score, rows[i].line, rows[i].what);
}

#define ASSAYS "--checkpoint C --assays A --reference R --scores S "

static void assays(void **state)
{
  (void)state;
  asks(&plm_task_score, "assays",
       ASSAYS "--weights model --output o --ids one,two --max-variants 3 --masking none "
              "--max-length 9");
  const struct plm_assays_request *request = &asked.assays;
  same(request->checkpoint, "C"), same(request->assays, "A");
  same(request->reference, "R"), same(request->scores, "S");
  same(request->weights, "model");
  same(request->output, "o");
  assert_string_equal(asked.ids, "[one][two]");
  assert_true(request->choice.max_variants == 3 && request->masking == PLM_SCORE_UNMASKED);
  assert_true(request->masking_given && request->max_length == 9 && !request->json);
  assert_true(request->check == NULL && request->take == NULL);
  asks(&plm_task_score, "assays", ASSAYS "--json");
  assert_true(request->json && !request->masking_given && request->choice.max_variants == 0);
  assert_string_equal(asked.ids, "");
  static const char *const others[] = {"--wild-type W",  "--csv f",      "--all",
                                       "--mutations f",  "--measured f", "--plot",
                                       "--per-position", "--offset 2",   "--score-column f"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char line[200], what[100];
    snprintf(line, sizeof line, ASSAYS "%s", others[i]);
    snprintf(what, sizeof what, "--assays cannot be combined with %.*s",
             (int)strcspn(others[i], " "), others[i]);
    refused(&plm_task_score, line, what);
  }
  refused(&plm_task_score, ASSAYS "A1G", "--assays brings its own variants: leave out A1G");
  refused(&plm_task_score, "--checkpoint C --assays A --scores S", "--reference");
  refused(&plm_task_score, "--checkpoint C --assays A --reference R", "--scores");
  refused(&plm_task_score, ASSAYS "--max-variants 0", "--max-variants must be at least 1");
  refused(&plm_task_score, ASSAYS "--ids ,", "--ids names no assay");
  refused(&plm_task_score, ASSAYS "--json --output -", "--json");
  refused(&plm_task_score, ASSAYS "--masking some", "not \"some\"");
}

/* A file that the command reads is never its output. */
static void an_output_that_is_an_input(void **state)
{
  (void)state;
  char line[2 * PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("there"));
  scratch_write(path, "x", 1);
  snprintf(line, sizeof line, "--checkpoint C --wild-type %.800s A1G --output %.800s", path, path);
  refused(&plm_task_score, line, "--output");
  snprintf(line, sizeof line,
           "--checkpoint C --assays A --scores S --reference %.800s --output %.800s", path, path);
  refused(&plm_task_score, line, "--output");
}

static int teardown(void **state)
{
  (void)state;
  task_line_end();
  return 0;
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(sequences),   TEST(kinds_of_embeddings),
      TEST(evaluations), TEST(generations),
      TEST(scores),      TEST(scores_that_are_refused),
      TEST(assays),      TEST(an_output_that_is_an_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
