/* Who may connect: the rule for endpoints, CURVE on sockets, and the ZAP handler. */
#include "common/wire/security.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/base/text/text.h"

enum { MAX_CLIENTS = 65536, LOG_EVERY_MS = 1000 };

bool plm_endpoint_is_local(const char *endpoint)
{
  if (strncmp(endpoint, "ipc://", 6) == 0 || strncmp(endpoint, "inproc://", 9) == 0) return true;
  if (strncmp(endpoint, "tcp://", 6) != 0) return false;
  const char *host = endpoint + 6;
  const char *colon = strrchr(host, ':');
  const size_t length = colon != NULL ? (size_t)(colon - host) : strlen(host);
  unsigned a, b, c, d;
  char end;
  char text[64];
  if (length >= sizeof text) return false;
  memcpy(text, host, length);
  text[length] = '\0';
  if (strcmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0 || strcmp(text, "::1") == 0 ||
      strcmp(text, "lo") == 0)
    return true;
  return sscanf(text, "%3u.%3u.%3u.%3u%c", &a, &b, &c, &d, &end) == 4 && a == 127;
}

plm_status plm_endpoint_check(const char *endpoint, const char *keys, struct plm_error *error)
{
  const bool tcp = strncmp(endpoint, "tcp://", 6) == 0;
  const char *colon = strrchr(endpoint, ':');
  if ((!tcp && strncmp(endpoint, "ipc://", 6) != 0) || strlen(endpoint) > 200 ||
      (tcp && (colon == endpoint + 3 || colon[1] == '\0' || colon == endpoint + 6))) {
    (void)plm_error_set(error, PLM_CONFIG, "\"%s\" is not an endpoint", endpoint);
    return plm_error_hint(error, "tcp://HOST:PORT, tcp://127.0.0.1:* or ipc://PATH");
  }
  if (keys != NULL || plm_endpoint_is_local(endpoint)) return PLM_OK;
  (void)plm_error_set(error, PLM_CONFIG, "%s reaches beyond this host and has no keys", endpoint);
  return plm_error_hint(error, "make keys with: plm-pipeline keys DIR --client NAME; then set "
                               "network.keys: DIR (packers: --keys DIR)");
}

static plm_status set_text(void *socket, int option, const char *text, struct plm_error *error)
{
  if (zmq_setsockopt(socket, option, text, strlen(text)) == 0) return PLM_OK;
  return plm_error_set(error, PLM_IO, "cannot set CURVE keys: %s", zmq_strerror(zmq_errno()));
}

plm_status plm_socket_secure_server(void *socket, const char *keys, struct plm_error *error)
{
  if (keys == NULL) return PLM_OK;
  struct plm_keypair pair;
  const int one = 1;
  PLM_TRY(plm_keys_server(keys, &pair, error));
  plm_status status = PLM_OK;
  if (zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &one, sizeof one) != 0)
    status = plm_error_set(error, PLM_UNSUPPORTED, "this libzmq has no CURVE");
  if (status == PLM_OK) status = set_text(socket, ZMQ_CURVE_SECRETKEY, pair.secret_text, error);
  if (status == PLM_OK) status = set_text(socket, ZMQ_ZAP_DOMAIN, "plm", error);
  plm_keypair_wipe(&pair);
  return status;
}

plm_status plm_socket_secure_client(void *socket, const char *keys, const char *server_public,
                                    struct plm_error *error)
{
  if (keys == NULL) return PLM_OK;
  struct plm_keypair pair;
  char server[PLM_KEY_TEXT];
  PLM_TRY(plm_keys_client(keys, &pair, server, error));
  if (server_public != NULL && server_public[0] != '\0')
    snprintf(server, sizeof server, "%s", server_public);
  plm_status status = set_text(socket, ZMQ_CURVE_SERVERKEY, server, error);
  if (status == PLM_OK) status = set_text(socket, ZMQ_CURVE_PUBLICKEY, pair.public_text, error);
  if (status == PLM_OK) status = set_text(socket, ZMQ_CURVE_SECRETKEY, pair.secret_text, error);
  plm_keypair_wipe(&pair);
  return status;
}

/* ---- the gate ----------------------------------------------------------------------------- */

struct plm_gate {
  void *context;
  void *socket; /* the handler thread's */
  char *keys;
  char server_public[PLM_KEY_TEXT];
  pthread_t thread;
  atomic_bool closing;
  atomic_ullong refused;
};

static bool file_is_key(const char *directory, const char *name, const char *public_text)
{
  char path[PLM_PATH_SIZE];
  char *bytes;
  size_t size;
  if (plm_path_join(path, directory, name, NULL) != PLM_OK) return false;
  if (plm_file_read(path, 256, &bytes, &size, NULL) != PLM_OK) return false;
  while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r')) size--;
  const bool same = size == strlen(public_text) && memcmp(bytes, public_text, size) == 0;
  free(bytes);
  return same;
}

bool plm_gate_allows(const struct plm_gate *gate, const char *public_text)
{
  if (strlen(public_text) != 40) return false;
  if (strcmp(public_text, gate->server_public) == 0) return true;
  char clients[PLM_PATH_SIZE];
  if (plm_path_join(clients, gate->keys, "clients", NULL) != PLM_OK) return false;
  DIR *folder = opendir(clients);
  if (folder == NULL) return false;
  bool allowed = false;
  const struct dirent *entry;
  for (int i = 0; i < MAX_CLIENTS && !allowed && (entry = readdir(folder)) != NULL; i++) {
    if (entry->d_name[0] != '.' && plm_text_ends_with(entry->d_name, ".pub"))
      allowed = file_is_key(clients, entry->d_name, public_text);
  }
  closedir(folder);
  return allowed;
}

enum {
  ZAP_VERSION,
  ZAP_REQUEST,
  ZAP_DOMAIN,
  ZAP_ADDRESS,
  ZAP_IDENTITY,
  ZAP_MECHANISM,
  ZAP_KEY,
  ZAP_FRAMES
};

struct zap_request {
  char frame[ZAP_FRAMES][256];
  size_t size[ZAP_FRAMES];
  int frames;
};

/* False when the context has been shut down. */
static bool zap_receive(void *socket, struct zap_request *request)
{
  request->frames = 0;
  int more = 1;
  while (more) {
    char spare[256];
    const int i = request->frames;
    char *into = i < ZAP_FRAMES ? request->frame[i] : spare;
    const int size = zmq_recv(socket, into, 255, 0);
    if (size < 0 && zmq_errno() == EINTR) continue;
    if (size < 0) return false;
    const size_t kept = size > 255 ? 255 : (size_t)size;
    into[kept] = '\0';
    if (i < ZAP_FRAMES) request->size[i] = kept;
    if (i <= ZAP_FRAMES) request->frames++;
    size_t option = sizeof more;
    if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &option) != 0) return false;
  }
  return true;
}

static bool zap_reply(void *socket, const struct zap_request *request, bool allowed,
                      const char *user)
{
  const char *status = allowed ? "200" : "400";
  const char *text = allowed ? "OK" : "key not on the list";
  return zmq_send(socket, "1.0", 3, ZMQ_SNDMORE) >= 0 &&
         zmq_send(socket, request->frame[ZAP_REQUEST], request->size[ZAP_REQUEST], ZMQ_SNDMORE) >=
             0 &&
         zmq_send(socket, status, 3, ZMQ_SNDMORE) >= 0 &&
         zmq_send(socket, text, strlen(text), ZMQ_SNDMORE) >= 0 &&
         zmq_send(socket, user, strlen(user), ZMQ_SNDMORE) >= 0 && zmq_send(socket, "", 0, 0) >= 0;
}

static bool zap_answer(struct plm_gate *gate, const struct zap_request *request)
{
  static _Atomic int64_t logged_ms = -LOG_EVERY_MS;
  char user[PLM_KEY_TEXT] = "";
  bool allowed = false;
  if (request->frames == ZAP_FRAMES && strcmp(request->frame[ZAP_VERSION], "1.0") == 0 &&
      strcmp(request->frame[ZAP_MECHANISM], "CURVE") == 0 && request->size[ZAP_KEY] == 32) {
    zmq_z85_encode(user, (const uint8_t *)request->frame[ZAP_KEY], 32);
    allowed = plm_gate_allows(gate, user);
  }
  if (!allowed) {
    atomic_fetch_add(&gate->refused, 1);
    const int64_t now = plm_clock_ms();
    if (now - atomic_load(&logged_ms) >= LOG_EVERY_MS) {
      atomic_store(&logged_ms, now);
      plm_warning("refused a peer at %.64s: its key (%.8s...) is not in %s/clients",
                  request->frames > ZAP_ADDRESS ? request->frame[ZAP_ADDRESS] : "?", user,
                  gate->keys);
    }
  }
  return zap_reply(gate->socket, request, allowed, allowed ? user : "");
}

static void *gate_thread(void *argument)
{
  struct plm_gate *gate = argument;
  struct zap_request request;
  while (zap_receive(gate->socket, &request) && zap_answer(gate, &request)) continue;
  if (!atomic_load(&gate->closing)) {
    /* Without a handler libzmq would let every key in. As long as the handler's socket is open,
     * handshakes wait for it, so it is not closed first. */
    plm_log(PLM_LOG_ERROR, "the ZAP handler that checks CURVE keys stopped; exiting, because "
                           "libzmq would let every key in");
    _exit(1);
  }
  zmq_close(gate->socket);
  return NULL;
}

plm_status plm_gate_open(void *context, const char *keys, struct plm_gate **gate,
                         struct plm_error *error)
{
  struct plm_keypair pair;
  PLM_TRY(plm_keys_server(keys, &pair, error));
  struct plm_gate *made = calloc(1, sizeof *made);
  plm_status status = PLM_OK;
  if (made == NULL || (made->keys = strdup(keys)) == NULL) {
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the ZAP handler");
    goto failed;
  }
  made->context = context;
  memcpy(made->server_public, pair.public_text, PLM_KEY_TEXT);
  made->socket = zmq_socket(context, ZMQ_REP);
  const int zero = 0;
  if (made->socket == NULL || zmq_setsockopt(made->socket, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
      zmq_bind(made->socket, "inproc://zeromq.zap.01") != 0) {
    status =
        plm_error_set(error, PLM_IO, "cannot start the ZAP handler: %s", zmq_strerror(zmq_errno()));
    goto failed;
  }
  status = plm_thread_start(&made->thread, "keys", gate_thread, made, error);
  if (status != PLM_OK) goto failed;
  plm_keypair_wipe(&pair);
  *gate = made;
  return PLM_OK;
failed:
  plm_keypair_wipe(&pair);
  if (made != NULL) {
    if (made->socket != NULL) zmq_close(made->socket);
    free(made->keys);
    free(made);
  }
  return status;
}

const char *plm_gate_keys(const struct plm_gate *gate)
{
  return gate->keys;
}

uint64_t plm_gate_refused(const struct plm_gate *gate)
{
  return gate != NULL ? atomic_load(&gate->refused) : 0;
}

void plm_gate_close(struct plm_gate *gate)
{
  if (gate == NULL) return;
  atomic_store(&gate->closing, true);
  zmq_ctx_shutdown(gate->context); /* the handler's wait ends with ETERM */
  pthread_join(gate->thread, NULL);
  free(gate->keys);
  free(gate);
}
