/* The control socket of a run: where it lies, and one exchange over it.
 *
 * A request is one line of JSON, {"command":"ps",…}; so is the reply, {"ok":true,…} or
 * {"ok":false,"error":"…"}. The supervisor closes after a reply; `down` and `wait` are answered
 * when what they wait for has happened. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_SOCKET_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_SOCKET_H

#include <stddef.h>

#include "common/base/status.h"

enum { PLM_SOCKET_PATH_SIZE = 108, PLM_SOCKET_LINE_SIZE = 1 << 17 };

/* $XDG_RUNTIME_DIR/plm-HASH.sock, else /tmp/plm-UID/plm-HASH.sock (the folder made 0700 and checked
 * to be ours), HASH of the run's real path. PLM_NOT_RUNNING when the run folder does not exist. */
plm_status plm_socket_path(const char *run, char path[PLM_SOCKET_PATH_SIZE],
                           struct plm_error *error);

/* Binds (mode 0600), replacing a socket nobody listens on. The caller holds supervisor.lock. */
plm_status plm_socket_listen(const char *path, int *descriptor, struct plm_error *error);

/* Sends the request (without newline) and reads the reply. timeout_ms < 0: for ever.
 * PLM_NOT_RUNNING when nobody listens, PLM_TIMEOUT, PLM_INTERRUPTED after a signal. */
plm_status plm_socket_ask(const char *run, const char *request, int timeout_ms,
                          char reply[PLM_SOCKET_LINE_SIZE], struct plm_error *error);

#endif
