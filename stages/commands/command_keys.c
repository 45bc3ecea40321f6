/* `plm-pipeline keys DIR [--client NAME]`: CURVE keys for the feeds and the announcements. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/json.h"
#include "common/wire/security.h"
#include "stages/commands/command.h"

static const struct plm_option options[] = {
    {.name = "client",
     .argument = "NAME",
     .help = "also a pair for a packer's host: clients/NAME.key and clients/NAME.pub"},
    {0},
};

static plm_status print_json(const char *directory, const char *client, int made,
                             struct plm_error *error)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "directory", directory);
  if (client != NULL) cJSON_AddStringToObject(object, "client", client);
  cJSON_AddNumberToObject(object, "made", made);
  return plm_json_print(object, error);
}

static plm_status run(const struct plm_command_context *context, struct plm_error *error)
{
  const char *client = plm_arguments_get(context->arguments, "client");
  int made;
  if (context->arguments->positional_count != 1)
    return plm_error_set(error, PLM_USAGE, "keys needs one folder");
  const char *directory = context->arguments->positionals[0];
  PLM_TRY(plm_keys_write(directory, client, &made, error));
  if (context->json) return print_json(directory, client, made, error);
  printf("%s: server.key server.pub", directory);
  if (client != NULL) printf(" clients/%s.key clients/%s.pub", client, client);
  printf("%s\n", made == 0 ? " (all there already)" : "");
  if (client != NULL)
    printf("give a packer's host two files, clients/%s.key and server.pub, and start it with "
           "--keys DIR\nto shut it out: remove clients/%s.pub\n",
           client, client);
  else
    printf("set network.keys to this folder; a pair for each packer's host: --client NAME\n");
  return PLM_OK;
}

const struct plm_command plm_command_keys = {
    .name = "keys",
    .operands = "DIR [--client NAME]",
    .summary = "make CURVE keys for consumers and packers",
    .details =
        "Writes server.key and server.pub, and with --client a pair under clients/; secret\n"
        "keys have mode 0600, keys that are there stay as they are. Whoever has a key under\n"
        "clients/*.pub may join the run; the list is read again whenever somebody knocks.",
    .options = options,
    .run = run,
};
