/* Contexts of ZeroMQ: libzmq's threads are started while nothing that they need can run out. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/wire/socket.h"

/* The threads of a context need four descriptors and its first socket one. The rest is for what
 * other threads of this process open at the same moment. */
enum { DESCRIPTORS = 16 };

/* Whether that many descriptors can be opened. errno says why not. */
static bool descriptors_left(void)
{
  int opened[DESCRIPTORS], count = 0;
  while (count < DESCRIPTORS && (opened[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
    count++;
  const int number = errno;
  for (int i = 0; i < count; i++) close(opened[i]);
  errno = number;
  return count == DESCRIPTORS;
}

plm_status plm_context_open(void **context, struct plm_error *error)
{
  const char *what = "cannot open a ZeroMQ context";
  *context = NULL;
  if (!descriptors_left()) {
    const plm_status status = plm_error_errno(error, "%s", what);
    if (status == PLM_NO_DESCRIPTORS)
      (void)plm_error_hint(error, "raise the limit on open files (ulimit -Hn)");
    return status;
  }
  void *made = zmq_ctx_new();
  if (made == NULL) return plm_error_errno(error, "%s", what);
  /* A context starts its threads when its first socket is opened. */
  void *first = zmq_socket(made, ZMQ_PAIR);
  if (first == NULL) {
    const plm_status status = plm_error_errno(error, "%s", what);
    zmq_ctx_term(made);
    return status;
  }
  zmq_close(first);
  *context = made;
  return PLM_OK;
}
