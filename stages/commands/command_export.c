/* `plm-pipeline export`: writes a checkpoint as a Hugging Face folder with a model card. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/cli/output_file.h"
#include "common/metrics/metrics.h"
#include "common/run/stop.h"
#include "stages/commands/command.h"
#include "stages/commands/export_options.h"

static const struct plm_option options[] = {
    PLM_EXPORT_OPTIONS,
    {.name = "output", .argument = "DIR", .help = "the folder to write"},
    {.name = "name",
     .argument = "NAME",
     .help = "name of the model in its card (default: that of DIR)"},
    {.name = "adapter", .help = "write only the adapters (LoRA), in PEFT's format"},
    {.name = "with-adapter",
     .argument = "DIR",
     .help = "an adapter that PEFT wrote for this model, for --merge"},
    {.name = "force", .help = "move anything else that exists at DIR aside"},
    {0},
};

static plm_status export_print_json(const struct plm_export_result *result, struct plm_error *error)
{
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "output", result->output);
  if (result->checkpoint) plm_metrics_integer(json, "step", result->step);
  cJSON_AddStringToObject(json, "weights", result->weights);
  cJSON_AddStringToObject(json, "dtype", result->dtype);
  plm_metrics_integer(json, "parameters", result->parameters);
  plm_metrics_integer(json, "bytes", result->bytes);
  cJSON_AddBoolToObject(json, "evaluated", result->evaluated);
  if (result->moved[0] != '\0') cJSON_AddStringToObject(json, "moved", result->moved);
  return plm_json_print(json, error);
}

static void print_people(const struct plm_export_result *result)
{
  char count[32];
  plm_print(stdout, "%s: %s parameters, %s weights in %s, %.1f MB", result->output,
            plm_format_count(result->parameters, count), result->weights, result->dtype,
            1e-6 * (double)result->bytes);
  if (result->checkpoint) printf(", step %llu", (unsigned long long)result->step);
  putchar('\n');
}

static plm_status export_run(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  struct plm_export_request request = plm_export_request_of(arguments);
  struct plm_export_result result;
  char input[PLM_PATH_SIZE];
  PLM_TRY(plm_command_operands(context, 0, error));
  request.output = plm_arguments_get(arguments, "output");
  if (request.output == NULL || request.output[0] == '\0')
    return plm_error_set(error, PLM_USAGE, "--output DIR is needed: the folder to write");
  if (plm_output_is_stdout(request.output))
    return plm_error_set(error, PLM_USAGE,
                         "--output %s: an export is a folder and cannot go to standard output",
                         request.output);
  request.adapter = plm_arguments_has(arguments, "adapter");
  request.with_adapter = plm_arguments_get(arguments, "with-adapter");
  PLM_TRY(plm_export_folder(context, input, error));
  request.input = input;
  plm_stop_signals_install();
  PLM_TRY(plm_export(&request, &result, error));
  if (result.moved[0] != '\0') plm_info("the earlier folder is now %s", result.moved);
  if (request.license == NULL && !request.adapter)
    plm_info(
        "README.md names no licence: give --license ID, or fill it in before others use the model");
  if (context->json) return export_print_json(&result, error);
  if (!context->quiet) print_people(&result);
  return PLM_OK;
}

const struct plm_command plm_command_export = {
    .name = "export",
    .operands = "[--checkpoint DIR] --output DIR",
    .summary = "export a checkpoint as a Hugging Face folder with a model card",
    .details =
        "The folder holds the weights, the configuration, the tokenizer, the model's code and "
        "README.md, but nothing of the optimizer or the run. AutoModelForMaskedLM, AutoModel and "
        "AutoTokenizer open it with trust_remote_code=True. For ESM-2 and ESM-C no code is needed "
        "or written. The metrics in the card are the evaluator's.\n\n"
        "A checkpoint with adapters (trainer.lora) is exported with --merge, which folds them into "
        "the weights, or with --adapter, which writes adapter_config.json and "
        "adapter_model.safetensors for PEFT. --with-adapter DIR --merge folds an adapter that PEFT "
        "wrote into the weights of --checkpoint.\n\n"
        "The folder is written beside DIR and then renamed. An earlier export at DIR is replaced "
        "if nobody changed it; anything else stays, unless --force moves it aside.",
    .options = options,
    .run = export_run,
};
