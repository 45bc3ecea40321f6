/* Outputs of commands: files that are replaced, and streams that are written. */
#include "common/cli/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/run/stop.h"

enum { LINKS_MAX = 40 /* as the kernel has it */ };

struct plm_output_file {
  FILE *file; /* NULL once it is finished */
  char name[PLM_PATH_SIZE], target[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE];
  bool replaces; /* it is a regular file, written as `temporary` and renamed to `target` */
};

/* ---- what a path means --------------------------------------------------------------------- */

/* The number of the descriptor that the path names; -1 if it names none. */
static int descriptor_of(const char *path)
{
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
  if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    const size_t length = strlen(folders[i]);
    const char *digits = path + length;
    if (strncmp(path, folders[i], length) != 0 || *digits < '0' || *digits > '9') continue;
    char *end;
    const long number = strtol(digits, &end, 10);
    if (*end == '\0' && number <= 1 << 20) return (int)number;
  }
  return -1;
}

bool plm_output_is_stdout(const char *path)
{
  return descriptor_of(path) == STDOUT_FILENO;
}

plm_status plm_output_check_stdout(const char *output, const char *option, struct plm_error *error)
{
  if (output == NULL || !plm_output_is_stdout(output)) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "%s and --output %s would both write to standard output",
                       option, output);
}

static bool is_input(const struct stat *output, const char *input)
{
  struct stat information;
  const int found =
      strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &information) : stat(input, &information);
  return found == 0 && information.st_dev == output->st_dev && information.st_ino == output->st_ino;
}

plm_status plm_output_check_inputs(const char *option, const char *output,
                                   const char *const *inputs, size_t count, struct plm_error *error)
{
  struct stat information;
  if (output == NULL || descriptor_of(output) >= 0 || stat(output, &information) != 0 ||
      !S_ISREG(information.st_mode))
    return PLM_OK;
  for (size_t i = 0; i < count; i++) {
    if (!is_input(&information, inputs[i])) continue;
    if (strcmp(inputs[i], output) == 0)
      plm_error_set(error, PLM_USAGE, "%s %.200s is also the input", option, output);
    else
      plm_error_set(error, PLM_USAGE, "%s %.200s is the same file as %s%.200s", option, output,
                    strcmp(inputs[i], "-") == 0 ? "standard input" : "the input ",
                    strcmp(inputs[i], "-") == 0 ? "" : inputs[i]);
    return plm_error_hint(error, "write the result to another file");
  }
  return PLM_OK;
}

bool plm_output_is_stream(const char *path)
{
  struct stat information;
  return descriptor_of(path) >= 0 ||
         (stat(path, &information) == 0 && !S_ISREG(information.st_mode) &&
          !S_ISDIR(information.st_mode));
}

const char *plm_output_name(const char *path)
{
  return plm_output_is_stdout(path) ? "standard output" : path;
}

plm_status plm_output_target(const char *path, char target[PLM_PATH_SIZE], struct plm_error *error)
{
  struct stat information;
  if (snprintf(target, PLM_PATH_SIZE, "%s", path) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "the path %.200s is too long", path);
  for (int links = 0; links < LINKS_MAX; links++) {
    char link[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
    const ssize_t size = readlink(target, link, sizeof link - 1);
    if (size < 0) { /* it is no link */
      if (stat(target, &information) == 0 && !S_ISREG(information.st_mode))
        return plm_error_set(error, PLM_EXISTS, "%s exists and is not a file", path);
      return PLM_OK;
    }
    link[size] = '\0';
    PLM_TRY(plm_path_parent(folder, target, error));
    PLM_TRY(plm_path_join(target, folder, link, error));
  }
  errno = ELOOP;
  return plm_error_errno(error, "cannot write %s", path);
}

plm_status plm_output_folder(const char *path, char folder[PLM_PATH_SIZE], struct plm_error *error)
{
  char target[PLM_PATH_SIZE];
  if (!plm_output_is_stream(path)) {
    PLM_TRY(plm_output_target(path, target, error));
    return plm_path_parent(folder, target, error);
  }
  return plm_path_join(folder, plm_temporary_folder(), ".", error);
}

/* ---- opening ------------------------------------------------------------------------------- */

static plm_status open_descriptor(struct plm_output_file *output, int number,
                                  struct plm_error *error)
{
  if (number == STDOUT_FILENO) {
    output->file = stdout;
    return PLM_OK;
  }
  const int copy = fcntl(number, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0 && (output->file = fdopen(copy, "w")) != NULL) return PLM_OK;
  const plm_status status = plm_output_failed(output, error);
  if (copy >= 0) close(copy);
  return status;
}

static plm_status open_special(struct plm_output_file *output, struct plm_error *error)
{
  int descriptor;
  do descriptor = open(output->name, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  while (descriptor < 0 && errno == EINTR && plm_stop_check("", NULL) == PLM_OK);
  if (descriptor >= 0 && (output->file = fdopen(descriptor, "w")) != NULL) return PLM_OK;
  const plm_status status = plm_output_failed(output, error);
  if (descriptor >= 0) close(descriptor);
  return status;
}

static plm_status open_temporary(struct plm_output_file *output, struct plm_error *error)
{
  PLM_TRY(plm_output_target(output->name, output->target, error));
  if (snprintf(output->temporary, PLM_PATH_SIZE, "%s.tmp-%ld", output->target, (long)getpid()) >=
      PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "the path %.200s is too long", output->target);
  output->file = fopen(output->temporary, "we");
  if (output->file == NULL) return plm_output_failed(output, error);
  output->replaces = true;
  return PLM_OK;
}

static plm_status output_file_open(struct plm_output_file *output, const char *path,
                                   struct plm_error *error)
{
  const int number = descriptor_of(path);
  const char *name = plm_output_name(path);
  if (snprintf(output->name, PLM_PATH_SIZE, "%s", name) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "the path %.200s is too long", path);
  if (number >= 0) return open_descriptor(output, number, error);
  if (plm_output_is_stream(path)) return open_special(output, error);
  return open_temporary(output, error);
}

plm_status plm_output_open(const char *path, struct plm_output_file **output,
                           struct plm_error *error)
{
  struct plm_output_file *opened = plm_alloc_zeroed(1, sizeof *opened);
  const plm_status status = output_file_open(opened, path, error);
  if (status != PLM_OK) {
    free(opened);
    return status;
  }
  *output = opened;
  return PLM_OK;
}

FILE *plm_output_stream(const struct plm_output_file *output)
{
  return output->file;
}

/* ---- the end ------------------------------------------------------------------------------- */

plm_status plm_output_failed(const struct plm_output_file *output, struct plm_error *error)
{
  const int number = errno;
  if (number == EINTR) PLM_TRY(plm_stop_check("", error));
  errno = number;
  return plm_error_errno(error, "cannot write %s", output->name);
}

static plm_status give_name(struct plm_output_file *output, struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  if (rename(output->temporary, output->target) != 0) return plm_output_failed(output, error);
  output->replaces = false;
  PLM_TRY(plm_path_parent(folder, output->target, error));
  return plm_directory_sync(folder, error);
}

plm_status plm_output_finish(struct plm_output_file *output, struct plm_error *error)
{
  FILE *file = output->file;
  if (ferror(file)) { /* an earlier write has failed; nobody remembers why */
    PLM_TRY(plm_stop_check("", error));
    return plm_error_set(error, PLM_IO, "a part of %s could not be written", output->name);
  }
  if (fflush(file) != 0 || (output->replaces && fsync(fileno(file)) != 0))
    return plm_output_failed(output, error);
  if (file == stdout) return PLM_OK;
  output->file = NULL;
  if (fclose(file) != 0) return plm_output_failed(output, error);
  return output->replaces ? give_name(output, error) : PLM_OK;
}

plm_status plm_output_write(const char *path, const void *bytes, size_t size, bool secret,
                            struct plm_error *error)
{
  struct plm_output_file *output;
  const mode_t before = secret ? umask(077) : 0; /* the temporary file is private as well */
  plm_status status = plm_output_open(path, &output, error);
  if (secret) umask(before);
  if (status != PLM_OK) return status;
  if (secret && output->replaces && fchmod(fileno(output->file), 0600) != 0)
    status = plm_error_errno(error, "cannot make %s private", output->name);
  if (status == PLM_OK && fwrite(bytes, 1, size, output->file) != size)
    status = plm_output_failed(output, error);
  if (status == PLM_OK) status = plm_output_finish(output, error);
  plm_output_close(output);
  return status;
}

void plm_output_close(struct plm_output_file *output)
{
  if (output == NULL) return;
  if (output->file != NULL && output->file != stdout) fclose(output->file);
  if (output->replaces) unlink(output->temporary);
  free(output);
}
