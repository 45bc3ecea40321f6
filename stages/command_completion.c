/* `plm-pipeline completion SHELL`: completion scripts, from the tables of commands, options and
 * settings. */
#include <stdio.h>
#include <string.h>

#include "common/config/settings.h"
#include "stages/command.h"

static void print_names(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf(" --%s", options->name);
    if (options->letter != 0) printf(" -%c", options->letter);
  }
}

static void print_keys(const char *separator)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) printf("%s%s=", i > 0 ? separator : "", table[i].key);
}

static void bash(void)
{
  printf("_plm_pipeline()\n{\n  local word=$2 before=$3 command= i options\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    [[ ${COMP_WORDS[i]} != -* ]] && { command=${COMP_WORDS[i]}; break; }\n  done\n"
         "  case $before in\n"
         "    --color) COMPREPLY=($(compgen -W 'auto always never' -- \"$word\")); return ;;\n"
         "    --set) compopt -o nospace; COMPREPLY=($(compgen -W '");
  print_keys(" ");
  printf("' -- \"$word\")); return ;;\n  esac\n  case $command in\n    '') options='");
  for (size_t i = 0; plm_commands[i] != NULL; i++) printf("%s ", plm_commands[i]->name);
  print_names(plm_common_options);
  printf("' ;;\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("    %s) options='", plm_commands[i]->name);
    print_names(plm_commands[i]->options);
    print_names(plm_common_options);
    printf("' ;;\n");
  }
  printf("  esac\n  COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "  [[ $word != -* && -n $command ]] && COMPREPLY+=($(compgen -f -- \"$word\"))\n}\n"
         "complete -o filenames -F _plm_pipeline plm-pipeline\n");
}

/* Text inside single quotes of zsh's _arguments: no quotes, brackets or colons. */
static void print_plain(const char *text)
{
  for (; *text != '\0'; text++) putchar(strchr("'[]:`\\", *text) != NULL ? ' ' : *text);
}

static void zsh_options(const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf(" \\\n        '--%s%s[", options->name, options->argument != NULL ? "=" : "");
    print_plain(options->help);
    printf("]");
    if (options->argument != NULL) {
      const bool path =
          strcmp(options->argument, "DIR") == 0 || strcmp(options->argument, "FILE") == 0;
      printf(":%s:%s", options->argument, path ? "_files" : " ");
    }
    printf("'");
  }
}

static void zsh(void)
{
  printf("#compdef plm-pipeline\n_plm_pipeline()\n{\n  local -a commands\n  commands=(\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("    '%s:", plm_commands[i]->name);
    print_plain(plm_commands[i]->summary);
    printf("'\n");
  }
  printf("  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n"
         "  case $words[2] in\n");
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("    %s)\n      _arguments", plm_commands[i]->name);
    zsh_options(plm_commands[i]->options);
    zsh_options(plm_common_options);
    printf(" \\\n        '*:file:_files' ;;\n");
  }
  printf("  esac\n}\ncompdef _plm_pipeline plm-pipeline\n");
}

static void fish_options(const char *command, const struct plm_option *options)
{
  for (; options != NULL && options->name != NULL; options++) {
    printf("complete -c plm-pipeline");
    if (command != NULL) printf(" -n '__fish_seen_subcommand_from %s'", command);
    if (options->letter != 0) printf(" -s %c", options->letter);
    printf(" -l %s%s -d '", options->name, options->argument != NULL ? " -r" : "");
    print_plain(options->help);
    printf("'\n");
  }
}

static void fish(void)
{
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    printf("complete -c plm-pipeline -n __fish_use_subcommand -f -a %s -d '",
           plm_commands[i]->name);
    print_plain(plm_commands[i]->summary);
    printf("'\n");
    fish_options(plm_commands[i]->name, plm_commands[i]->options);
  }
  fish_options(NULL, plm_common_options);
}

static plm_status completion(const struct plm_command_context *context, struct plm_error *error)
{
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *shell =
      context->arguments->positional_count > 0 ? context->arguments->positionals[0] : "";
  for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
    if (strcmp(shells[i].name, shell) != 0) continue;
    shells[i].print();
    return PLM_OK;
  }
  return plm_error_set(error, PLM_USAGE, "the shell is bash, zsh or fish, not \"%.80s\"", shell);
}

const struct plm_command plm_command_completion = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "a completion script for a shell",
    .details = "bash: source <(plm-pipeline completion bash)",
    .run = completion,
};
