/* `plm-pipeline keys DIR [--client NAME]`: makes CURVE keys for the feeds and the announcements. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/wire/security.h"
#include "stages/commands/command.h"

static const struct plm_option options[] = {
    {.name = "client",
     .argument = "NAME",
     .help = "also make a pair for a packer's host: clients/NAME.key and clients/NAME.pub"},
    {0},
};

static plm_status keys_print_json(const char *directory, const char *client, int made,
                                  struct plm_error *error)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "directory", directory);
  if (client != NULL) cJSON_AddStringToObject(object, "client", client);
  cJSON_AddNumberToObject(object, "made", made);
  return plm_json_print(object, error);
}

static plm_status keys_run(const struct plm_command_context *context, struct plm_error *error)
{
  const char *client = plm_arguments_get(context->arguments, "client");
  int made;
  if (context->arguments->positional_count != 1)
    return plm_error_set(error, PLM_USAGE, "keys needs the folder to write to: DIR");
  const char *directory = context->arguments->positionals[0];
  PLM_TRY(plm_keys_write(directory, client, &made, error));
  if (context->json) return keys_print_json(directory, client, made, error);
  plm_print(stdout, "%s: server.key server.pub", directory);
  if (client != NULL) printf(" clients/%s.key clients/%s.pub", client, client);
  printf("%s\n", made == 0 ? " (all of them already exist)" : "");
  if (client != NULL)
    printf("Copy clients/%s.key and server.pub to the packer's host, and start the packer with "
           "--keys DIR.\nTo shut it out later, remove clients/%s.pub.\n",
           client, client);
  else
    printf("Set network.keys to this folder. `--client NAME` makes a pair for a packer's host.\n");
  return PLM_OK;
}

const struct plm_command plm_command_keys = {
    .name = "keys",
    .operands = "DIR [--client NAME]",
    .summary = "make CURVE keys, with which packers on other hosts can join",
    .details =
        "Writes server.key and server.pub and, with --client, a pair in clients/. Existing keys "
        "are kept. Secret keys have mode 0600, and the folders that it makes have mode 0700. A "
        "packer may join the run if its public key is among clients/*.pub, which is read again "
        "whenever one connects.",
    .options = options,
    .run = keys_run,
};
