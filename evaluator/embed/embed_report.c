/* Prints the summary of `embed`. */
#include "evaluator/embed/embed_report.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/cli/output_file.h"
#include "common/metrics/metrics.h"

static const char *const kind_names[] = {"pooled", "per_token", "logits", "attention", "contacts"};

static double padding_fraction(const struct plm_sequence_run *run, uint64_t positions)
{
  return positions == 0 ? 0.0 : 1.0 - (double)run->computed / (double)positions;
}

static plm_status embed_report_print_json(const struct plm_sequence_run *run, uint64_t positions,
                                          double seconds, struct plm_error *error)
{
  const struct plm_embed_layout *layout = &run->layout;
  cJSON *line = cJSON_CreateObject();
  plm_metrics_string(line, "output", run->request->output);
  plm_metrics_string(line, "checkpoint", run->request->checkpoint);
  plm_metrics_string(line, "weights", run->inference->weights);
  plm_metrics_string(line, "kind", kind_names[layout->kind]);
  if (layout->kind == PLM_EMBED_POOLED) plm_metrics_string(line, "pooling", layout->pooling);
  if (layout->layers != NULL) plm_metrics_string(line, "layers", layout->layers);
  if (layout->attention != NULL) plm_metrics_string(line, "attention", layout->attention);
  if (!plm_embed_kind_is_map(layout->kind)) plm_metrics_integer(line, "width", layout->width);
  plm_metrics_integer(line, "sequences", plm_sequence_spool_count(run->spool));
  plm_metrics_integer(line, "tokens", plm_sequence_spool_tokens(run->spool));
  plm_metrics_integer(line, "bytes", layout->bytes);
  plm_metrics_integer(line, "bad_records", run->intake.bad);
  plm_metrics_integer(line, "cut", run->intake.cut);
  plm_metrics_integer(line, "unknown_residues", run->intake.unknown_residues);
  plm_metrics_integer(line, "resumed_sequences", run->resumed);
  plm_metrics_number(line, "padding_fraction", padding_fraction(run, positions));
  plm_metrics_number(line, "seconds", seconds);
  plm_metrics_number(line, "tokens_per_second", (double)run->computed / seconds);
  return plm_json_print(line, error);
}

plm_status plm_embed_report_print(const struct plm_sequence_run *run, uint64_t positions,
                                  double seconds, struct plm_error *error)
{
  const struct plm_sequence_request *request = run->request;
  const struct plm_embed_layout *layout = &run->layout;
  const struct plm_intake_counts *intake = &run->intake;
  char count[64], sum[64], rate[32];
  if (request->json) return embed_report_print_json(run, positions, seconds, error);
  if (plm_log_least() > PLM_LOG_INFO) return PLM_OK;
  FILE *to = plm_output_is_stdout(request->output) ? stderr : stdout;
  plm_print(to, "checkpoint   %s (weights: %s)\n", request->checkpoint, run->inference->weights);
  fprintf(to, "sequences    %s, %s", plm_format_count(plm_sequence_spool_count(run->spool), count),
          plm_format_quantity(plm_sequence_spool_tokens(run->spool), "token", sum));
  if (intake->cut > 0) fprintf(to, ", %s cut", plm_format_count(intake->cut, count));
  if (intake->bad > 0)
    fprintf(to, "; %s skipped", plm_format_quantity(intake->bad, "bad record", count));
  if (run->resumed > 0)
    fprintf(to, "; %s done by an earlier run", plm_format_count(run->resumed, count));
  plm_print(to, "\noutput       %s: ", plm_output_name(request->output));
  if (layout->kind == PLM_EMBED_POOLED)
    fprintf(to, "%s x %u (%s)", plm_format_count(layout->rows, count), layout->width,
            layout->pooling);
  else if (layout->kind == PLM_EMBED_ATTENTION)
    fprintf(to, "attention maps, %u for each sequence", layout->maps);
  else if (layout->kind == PLM_EMBED_CONTACTS)
    fprintf(to, "contacts");
  else
    fprintf(to, "%s of %u for each token", layout->kind == PLM_EMBED_LOGITS ? "logits" : "vectors",
            layout->width);
  const bool small = layout->bytes < 1000000;
  fprintf(to, ", %.1f %s\n", (small ? 1e-3 : 1e-6) * (double)layout->bytes, small ? "kB" : "MB");
  fprintf(to, "padding      %.2f %%\n", 100.0 * padding_fraction(run, positions));
  fprintf(to, "time         %.2f s, %s tokens/s\n", seconds,
          plm_format_count((uint64_t)((double)run->computed / seconds), rate));
  return PLM_OK;
}
