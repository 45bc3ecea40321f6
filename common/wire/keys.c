/* Files of keys: writing, reading, choosing one, and refusing those that others could change. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/files/file.h"
#include "common/wire/security.h"

void plm_keypair_wipe(struct plm_keypair *pair)
{
  explicit_bzero(pair, sizeof *pair);
}

/* Who can write to a folder of keys can admit himself, or put another consumer's key there. A
 * missing path is no error here: reading it is. */
static plm_status check_writers(const char *path, struct plm_error *error)
{
  struct stat about;
  bool exists;
  PLM_TRY(plm_file_stat(path, &about, &exists, error));
  if (!exists) return PLM_OK;
  const uid_t self = geteuid();
  if (about.st_uid != self && about.st_uid != 0 && self != 0) {
    (void)plm_error_set(error, PLM_CONFIG, "these keys belong to another user (uid %u)",
                        (unsigned)about.st_uid);
    (void)plm_error_where(error, "%s", path);
    return plm_error_hint(error, "use keys of your own; plm-pipeline keys DIR makes them");
  }
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) == 0) return PLM_OK;
  (void)plm_error_set(error, PLM_CONFIG,
                      "other users can write here (mode %03o), and so could admit themselves",
                      about.st_mode & 0777u);
  (void)plm_error_where(error, "%s", path);
  return plm_error_hint(error, "look for keys that you did not make; then: chmod go-w %s", path);
}

/* Checks the folder, clients and the list of those that may connect. */
static plm_status check_list(const char *directory, struct plm_error *error)
{
  char clients[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(clients, directory, "clients", error));
  PLM_TRY(check_writers(directory, error));
  PLM_TRY(check_writers(clients, error));
  DIR *folder = opendir(clients);
  if (folder == NULL)
    return errno == ENOENT ? PLM_OK : plm_error_errno(error, "cannot list %s", clients);
  plm_status status = PLM_OK;
  const struct dirent *entry;
  while (status == PLM_OK) {
    status = plm_directory_next(folder, clients, &entry, error);
    if (status != PLM_OK || entry == NULL) break;
    const size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 4, ".pub") != 0) continue;
    status = plm_path_join(path, clients, entry->d_name, error);
    if (status == PLM_OK) status = check_writers(path, error);
  }
  closedir(folder);
  return status;
}

/* Whatever the umask is, nobody else can write to a folder that is made here. */
static plm_status make_private(const char *directory, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], parent[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", directory); /* its callers have joined longer paths */
  for (size_t size = strlen(path); size > 1 && path[size - 1] == '/';) path[--size] = '\0';
  PLM_TRY(plm_path_parent(parent, path, error));
  PLM_TRY(plm_directory_make(parent, error));
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return plm_error_errno(error, "cannot create folder %s", path);
  PLM_TRY(plm_directory_make(path, error)); /* what exists must be a folder */
  return check_writers(path, error);
}

static plm_status read_key(const char *directory, const char *name, char text[PLM_KEY_TEXT],
                           struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  char *bytes;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, name, error));
  PLM_TRY(check_writers(path, error));
  PLM_TRY(plm_file_read(path, 256, &bytes, &size, error));
  while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r')) bytes[--size] = '\0';
  uint8_t raw[32];
  const bool valid = size == 40 && strlen(bytes) == 40 && zmq_z85_decode(raw, bytes) != NULL;
  if (valid) memcpy(text, bytes, PLM_KEY_TEXT);
  explicit_bzero(raw, sizeof raw);
  explicit_bzero(bytes, size);
  free(bytes);
  if (valid) return PLM_OK;
  (void)plm_error_set(error, PLM_FORMAT, "not a CURVE key (40 characters of z85)");
  return plm_error_where(error, "%s", path);
}

static plm_status read_pair(const char *directory, const char *name, struct plm_keypair *pair,
                            struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct stat about;
  bool exists;
  PLM_TRY(plm_path_join(path, directory, name, error));
  PLM_TRY(plm_file_stat(path, &about, &exists, error));
  if (exists && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    (void)plm_error_set(error, PLM_CONFIG, "others can read this secret key (mode %03o)",
                        about.st_mode & 0777u);
    (void)plm_error_where(error, "%s", path);
    return plm_error_hint(error, "chmod 600 %s", path);
  }
  PLM_TRY(read_key(directory, name, pair->secret_text, error));
  if (zmq_curve_public(pair->public_text, pair->secret_text) != 0)
    return plm_error_set(error, PLM_FORMAT, "%s: not a CURVE key", path);
  return PLM_OK;
}

/* O_EXCL, because a key must never be overwritten. A part of one is removed: it would have to be
 * found and removed by hand before keys can be made. */
static plm_status write_key(const char *path, const char *text, mode_t mode,
                            struct plm_error *error)
{
  char line[PLM_KEY_TEXT + 1];
  snprintf(line, sizeof line, "%s\n", text);
  const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor < 0) return plm_error_errno(error, "cannot write %s", path);
  plm_status status = plm_file_write_all(descriptor, line, strlen(line), path, error);
  if (fchmod(descriptor, mode) != 0 || fsync(descriptor) != 0)
    status = plm_error_errno(error, "cannot write %s", path);
  close(descriptor);
  if (status != PLM_OK) (void)unlink(path);
  explicit_bzero(line, sizeof line);
  return status;
}

static plm_status write_pair(const char *directory, const char *name, int *made,
                             struct plm_error *error)
{
  char secret_path[PLM_PATH_SIZE], public_path[PLM_PATH_SIZE], file[300];
  snprintf(file, sizeof file, "%s.key", name);
  PLM_TRY(plm_path_join(secret_path, directory, file, error));
  snprintf(file, sizeof file, "%s.pub", name);
  PLM_TRY(plm_path_join(public_path, directory, file, error));
  struct plm_keypair pair;
  plm_status status;
  bool has_secret, has_public;
  PLM_TRY(plm_file_look(secret_path, &has_secret, error));
  PLM_TRY(plm_file_look(public_path, &has_public, error));
  if (has_secret) {
    /* If the public key was lost, it is derived from the secret key and written again. */
    snprintf(file, sizeof file, "%s.key", name);
    PLM_TRY(read_pair(directory, file, &pair, error));
    status = has_public ? PLM_OK : write_key(public_path, pair.public_text, 0644, error);
    plm_keypair_wipe(&pair);
    return status;
  }
  if (has_public) {
    (void)plm_error_set(error, PLM_EXISTS, "%s exists without its secret key", public_path);
    return plm_error_hint(error, "remove it, or restore %s", secret_path);
  }
  if (zmq_curve_keypair(pair.public_text, pair.secret_text) != 0)
    return plm_error_set(error, PLM_UNSUPPORTED, "this libzmq has no CURVE");
  status = write_key(secret_path, pair.secret_text, 0600, error);
  if (status == PLM_OK) status = write_key(public_path, pair.public_text, 0644, error);
  plm_keypair_wipe(&pair);
  if (status == PLM_OK && made != NULL) (*made)++;
  return status;
}

plm_status plm_keys_write(const char *directory, const char *client, int *made,
                          struct plm_error *error)
{
  if (made != NULL) *made = 0;
  if (client != NULL &&
      (client[0] == '\0' || client[0] == '.' || strlen(client) > 200 ||
       strspn(client, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
           strlen(client)))
    return plm_error_set(error, PLM_USAGE,
                         "\"%s\" cannot be a client's name (letters, digits, . _ -)", client);
  char clients[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(clients, directory, "clients", error));
  PLM_TRY(make_private(directory, error));
  PLM_TRY(make_private(clients, error));
  PLM_TRY(check_list(directory, error));
  PLM_TRY(write_pair(directory, "server", made, error));
  if (client != NULL) PLM_TRY(write_pair(clients, client, made, error));
  return PLM_OK;
}

plm_status plm_keys_server(const char *directory, struct plm_keypair *pair, struct plm_error *error)
{
  PLM_TRY(check_list(directory, error));
  plm_status status = read_pair(directory, "server.key", pair, error);
  if (status == PLM_NOT_FOUND)
    (void)plm_error_hint(error, "make the keys: plm-pipeline keys %s", directory);
  return status;
}

/* The first NAME.key by name; those with a NAME.pub beside them come first. */
static bool find_client(const char *directory, char name[256])
{
  DIR *folder = opendir(directory);
  if (folder == NULL) return false;
  bool found = false, found_public = false;
  const struct dirent *entry;
  while ((entry = readdir(folder)) != NULL) {
    const size_t length = strlen(entry->d_name);
    if (length < 5 || length > 250 || strcmp(entry->d_name + length - 4, ".key") != 0 ||
        strcmp(entry->d_name, "server.key") == 0)
      continue;
    char public_name[256], path[PLM_PATH_SIZE];
    snprintf(public_name, sizeof public_name, "%.*s.pub", (int)length - 4, entry->d_name);
    const bool has_public =
        plm_path_join(path, directory, public_name, NULL) == PLM_OK && plm_file_exists(path);
    if (found && (has_public < found_public ||
                  (has_public == found_public && strcmp(entry->d_name, name) > 0)))
      continue;
    found = true;
    found_public = has_public;
    strcpy(name, entry->d_name);
  }
  closedir(folder);
  return found;
}

plm_status plm_keys_client(const char *directory, struct plm_keypair *pair,
                           char server_public[PLM_KEY_TEXT], struct plm_error *error)
{
  char clients[PLM_PATH_SIZE], name[256];
  PLM_TRY(check_writers(directory, error));
  plm_status status = read_key(directory, "server.pub", server_public, error);
  if (status != PLM_OK) {
    if (status == PLM_NOT_FOUND)
      (void)plm_error_hint(error,
                           "a packer needs server.pub and NAME.key: on the consumer's host, run "
                           "plm-pipeline keys DIR --client NAME and copy both files here");
    return status;
  }
  if (find_client(directory, name)) return read_pair(directory, name, pair, error);
  PLM_TRY(plm_path_join(clients, directory, "clients", error));
  if (find_client(clients, name)) return read_pair(clients, name, pair, error);
  status = read_pair(directory, "server.key", pair, error);
  if (status != PLM_NOT_FOUND) return status;
  (void)plm_error_set(error, PLM_NOT_FOUND, "no client key in %s", directory);
  return plm_error_hint(error,
                        "on the consumer's host, run plm-pipeline keys DIR --client NAME and "
                        "copy clients/NAME.key here");
}

plm_status plm_keys_check_client(const char *directory, struct plm_error *error)
{
  struct plm_keypair pair;
  char server[PLM_KEY_TEXT];
  const plm_status status = plm_keys_client(directory, &pair, server, error);
  plm_keypair_wipe(&pair);
  if (status != PLM_NOT_FOUND && status != PLM_FORMAT) return status;
  return error != NULL ? (error->status = PLM_CONFIG) : PLM_CONFIG;
}
