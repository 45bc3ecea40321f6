/* The requests over the control socket (supervisor_socket.h): ps, down, restart, scale, wait. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_REQUESTS_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_REQUESTS_H

#include <stddef.h>

#include "stages/supervisor/control/supervisor_socket.h"
#include "stages/supervisor/supervised.h"
#include "stages/supervisor/supervisor_policy.h"
#include "stages/supervisor/supervisor_stage.h"

enum { CLIENTS_MAX = 16, CLIENT_LINE_SIZE = 4096 };

enum client_wait { CLIENT_ASKS, CLIENT_WAITS_END, CLIENT_WAITS_READY };

struct client {
  int descriptor; /* -1 if this place is free */
  enum client_wait waits;
  size_t used;
  char line[CLIENT_LINE_SIZE];
};

struct requests {
  struct stages *stages;
  struct launcher *launcher; /* for `restart` and `scale` */
  struct drain *drain;       /* for `down` */
  int listen_fd;             /* -1: not open */
  char socket_path[PLM_SOCKET_PATH_SIZE];
  struct client clients[CLIENTS_MAX];
};

/* The caller has set stages, launcher and drain. */
void requests_init(struct requests *requests);
plm_status requests_open(struct requests *requests, struct plm_error *error);
void requests_close(struct requests *requests);

/* Called when listen_fd, or the descriptor of a client, can be read. */
void requests_accept(struct requests *requests);
void requests_readable(struct requests *requests, struct client *client);
/* _ready answers the clients that wait for all stages to be ready, if they are; _end answers those
 * that wait for the end, and hangs up on the others. failure: for people; "" if nothing failed. */
void requests_answer_ready(struct requests *requests);
void requests_answer_end(struct requests *requests, int exit_code, const char *failure);

#endif
