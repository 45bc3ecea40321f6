/* Measures how fast one thread makes windows from a corpus: planning, reading groups, and reading
 * together with translation.
 *
 *   bench_assemble [CORPUS [MAX_LENGTH]] */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/plan/assemble.h"
#include "tests/support/bench/bench_scene.h"

enum { SECONDS = 3 };

struct totals {
  uint64_t plan_ns, read_ns, assemble_ns, tokens, places;
};

static plm_status read_groups(struct plm_corpus_cursor *cursor, const struct plm_window *window,
                              struct plm_error *error)
{
  const uint8_t *residues;
  size_t size;
  for (uint32_t g = 0; g < window->group_count; g++)
    PLM_TRY(plm_corpus_group(cursor, PLM_SPLIT_TRAIN, window->groups[g], &residues, &size, error));
  return PLM_OK;
}

static plm_status measure(const struct plm_plan *plan, struct plm_corpus_cursor *cursor,
                          struct totals *totals, struct plm_error *error)
{
  const struct plm_plan_corpus from = {.plan = plan, .cursor = cursor, .split = PLM_SPLIT_TRAIN};
  struct plm_window window = {0};
  plm_status status = PLM_OK;
  uint8_t *tokens = NULL;
  size_t room = 0;
  const uint64_t until = plm_clock_ns() + SECONDS * UINT64_C(1000000000);
  for (uint64_t i = 0; plm_clock_ns() < until; i++) {
    const uint64_t windows = plm_plan_windows(plan);
    const uint64_t began = plm_clock_ns();
    PLM_TRY_GOTO(status,
                 plm_plan_window(plan, i / windows, i % windows, plm_plan_read_corpus, &from,
                                 &window, error),
                 done);
    const uint64_t planned = plm_clock_ns();
    PLM_TRY_GOTO(status, read_groups(cursor, &window, error), done);
    const uint64_t read = plm_clock_ns();
    if (plm_assemble_bytes(plan, &window) > room) {
      free(tokens);
      room = plm_assemble_bytes(plan, &window);
      tokens = malloc(room);
      if (tokens == NULL) {
        status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu bytes of tokens", room);
        goto done;
      }
      continue; /* not measured, since the new buffer causes page faults */
    }
    PLM_TRY_GOTO(status, plm_assemble_window(cursor, PLM_SPLIT_TRAIN, plan, &window, tokens, error),
                 done);
    totals->plan_ns += planned - began;
    totals->read_ns += read - planned;
    totals->assemble_ns += plm_clock_ns() - read;
    totals->tokens += window.real_tokens;
    totals->places += (uint64_t)window.chunks * plm_plan_parameters(plan)->max_length;
  }
done:
  free(tokens);
  plm_window_deinit(&window);
  return status;
}

static void report(const struct totals *totals)
{
  const double tokens = (double)totals->tokens;
  const double both = (double)(totals->plan_ns + totals->assemble_ns);
  printf("%.0f million tokens, padding %.3f %%\n", tokens / 1e6,
         100 * (1 - tokens / (double)totals->places));
  printf("plan %.3f ns a token; read groups %.3f; read and translate %.3f\n",
         (double)totals->plan_ns / tokens, (double)totals->read_ns / tokens,
         (double)totals->assemble_ns / tokens);
  printf("%.0f million tokens/s\n", tokens * 1e3 / both);
}

int main(int argc, char **argv)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  struct plm_plan_parameters parameters = {
      .seed = 1, .max_length = 1024, .alignment = 1, .window_groups = 64, .shuffle = true};
  struct plm_corpus *corpus = NULL;
  struct plm_corpus_cursor *cursor = NULL;
  struct plm_plan *plan = NULL;
  struct totals totals = {0};
  struct plm_error error = {0};
  plm_status status;
  const char *directory = argc > 1 ? argv[1] : bench_corpus();
  if (directory == NULL) return 1;
  bench_machine();
  if (argc > 2) parameters.max_length = (uint32_t)strtoul(argv[2], NULL, 10);
  PLM_TRY_GOTO(status, plm_corpus_open(directory, &options, &corpus, &error), done);
  parameters.tokenizer = plm_corpus_info(corpus)->tokenizer;
  PLM_TRY_GOTO(status, plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, &error),
               done);
  PLM_TRY_GOTO(status, plm_corpus_cursor_open(corpus, &cursor, &error), done);
  PLM_TRY_GOTO(status, measure(plan, cursor, &totals, &error), done);
  if (totals.tokens > 0) report(&totals);
done:
  plm_corpus_cursor_close(cursor);
  plm_plan_close(plan);
  plm_corpus_close(corpus);
  if (status != PLM_OK) plm_error_print("bench_assemble", &error);
  return plm_status_exit_code(status);
}
