/* Socket monitors: connections that were made or lost, and why a handshake failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/socket.h"

struct plm_monitor {
  void *pair;
};

plm_status plm_monitor_open(void *context, void *socket, struct plm_monitor **monitor,
                            struct plm_error *error)
{
  static unsigned long serial; /* names must be unique only within a context */
  char name[64];
  const int zero = 0;
  snprintf(name, sizeof name, "inproc://monitor-%lu",
           __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
  struct plm_monitor *made = plm_alloc_zeroed(1, sizeof *made);
  const int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_DISCONNECTED |
                     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  if (zmq_socket_monitor(socket, name, events) == 0) {
    made->pair = zmq_socket(context, ZMQ_PAIR);
    /* Without a high-water mark: at a mark, libzmq's I/O thread would wait for this thread to read,
     * which would wait for the I/O thread when it closes. */
    if (made->pair != NULL && zmq_setsockopt(made->pair, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
        zmq_setsockopt(made->pair, ZMQ_RCVHWM, &zero, sizeof zero) == 0 &&
        zmq_connect(made->pair, name) == 0) {
      *monitor = made;
      return PLM_OK;
    }
  }
  const plm_status status =
      plm_error_set(error, PLM_IO, "cannot watch a socket: %s", zmq_strerror(zmq_errno()));
  plm_monitor_close(made, socket);
  return status;
}

void *plm_monitor_socket(const struct plm_monitor *monitor)
{
  return monitor->pair;
}

static void explain_protocol(unsigned value, char reason[256])
{
  if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
    snprintf(reason, 256, "one side uses CURVE keys and the other does not");
  else if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
    snprintf(reason, 256, "the keys do not match (server.pub of another run?)");
  else
    snprintf(reason, 256, "the handshake failed (ZMTP error 0x%x)", value);
}

static void monitor_explain(uint16_t event, uint32_t value, char reason[256])
{
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    snprintf(reason, 256,
             "the other side hung up in the handshake (other keys, or server.pub of another run?)");
  else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
    snprintf(reason, 256, "the key is not on the consumer's list (status %u)", value);
  else
    explain_protocol(value, reason);
}

/* What libzmq says: an event and its value. False: nothing. */
static bool monitor_receive(struct plm_monitor *monitor, uint16_t *event, uint32_t *value)
{
  zmq_msg_t frame;
  zmq_msg_init(&frame);
  if (zmq_msg_recv(&frame, monitor->pair, ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&frame);
    return false;
  }
  *event = 0;
  *value = 0;
  if (zmq_msg_size(&frame) >= 6) {
    memcpy(event, zmq_msg_data(&frame), 2);
    memcpy(value, (const char *)zmq_msg_data(&frame) + 2, 4);
  }
  if (zmq_msg_more(&frame)) /* the address */
    (void)zmq_msg_recv(&frame, monitor->pair, ZMQ_DONTWAIT);
  zmq_msg_close(&frame);
  return true;
}

bool plm_monitor_next(struct plm_monitor *monitor, struct plm_link_report *report)
{
  uint16_t event;
  uint32_t value;
  *report = (struct plm_link_report){.event = PLM_LINK_NONE, .descriptor = -1};
  while (report->event == PLM_LINK_NONE) {
    if (!monitor_receive(monitor, &event, &value)) return false;
    switch (event) {
    case ZMQ_EVENT_ACCEPTED:
      report->event = PLM_LINK_ACCEPTED;
      report->descriptor = (int)value;
      break;
    case ZMQ_EVENT_DISCONNECTED:
      report->event = PLM_LINK_LOST;
      report->descriptor = (int)value;
      break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: report->event = PLM_LINK_CONNECTED; break;
    case ZMQ_EVENT_CONNECT_RETRIED: report->event = PLM_LINK_RETRY; break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      report->event = PLM_LINK_REFUSED;
      monitor_explain(event, value, report->reason);
      break;
    default: break;
    }
  }
  return true;
}

void plm_monitor_close(struct plm_monitor *monitor, void *socket)
{
  if (monitor == NULL) return;
  if (socket != NULL) zmq_socket_monitor(socket, NULL, 0);
  if (monitor->pair != NULL) zmq_close(monitor->pair);
  free(monitor);
}
