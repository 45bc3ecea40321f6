/* The control socket of a run: its path, and one exchange over it.
 *
 * A request is one line of JSON, {"command":"ps",…}, and so is the reply, {"ok":true,…} or
 * {"ok":false,"error":"…"}. The supervisor closes the connection after a reply. It answers `down`
 * and `wait` once the event that they wait for has happened. */
#ifndef PLM_STAGES_SUPERVISOR_CONTROL_SUPERVISOR_SOCKET_H
#define PLM_STAGES_SUPERVISOR_CONTROL_SUPERVISOR_SOCKET_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/run/stop.h"

enum { PLM_SOCKET_PATH_SIZE = 108, PLM_SOCKET_LINE_SIZE = 1 << 17 };

/* The path is $XDG_RUNTIME_DIR/plm-HASH.sock, where HASH is that of the run's real path. If the
 * variable is unset or longer than 59 bytes, or does not name a writable folder of this user with
 * mode 0700, it is /tmp/plm-UID/plm-HASH.sock; that folder is made with mode 0700 and must belong
 * to this user. PLM_NOT_RUNNING if the run folder does not exist. */
plm_status plm_socket_path(const char *run, char path[PLM_SOCKET_PATH_SIZE],
                           struct plm_error *error);

/* Binds with mode 0600, and replaces a socket that an earlier supervisor left. The caller holds
 * supervisor.lock. */
plm_status plm_socket_listen(const char *path, int *descriptor, struct plm_error *error);

/* Sends the request (without newline) and reads the reply. timeout_ms < 0 waits for ever.
 * PLM_NOT_RUNNING if nobody listens, PLM_FAILURE if another user's process does, PLM_TIMEOUT, the
 * status of plm_stop_check after a signal. */
plm_status plm_socket_ask(const char *run, const char *request, int timeout_ms,
                          char reply[PLM_SOCKET_LINE_SIZE], struct plm_error *error);

#endif
