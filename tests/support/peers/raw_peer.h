/* A client that speaks ZeroMQ's wire protocol (ZMTP 3.0) by hand, over TCP, and does with it what
 * libzmq never would. It uses no thread and no memory of libzmq, so a test may run it in a child
 * process after fork. */
#ifndef PLM_TESTS_SUPPORT_PEERS_RAW_PEER_H
#define PLM_TESTS_SUPPORT_PEERS_RAW_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Connects to tcp://127.0.0.1:PORT or 127.0.0.1:PORT; -1: it failed. */
int raw_peer_connect(const char *endpoint);
/* Completes the handshake of a DEALER without keys. False: the other side hung up. */
bool raw_peer_greet(int descriptor);
/* The same with a routing id of `size` bytes, at most 1,000, of any value. */
bool raw_peer_greet_as(int descriptor, size_t size);
/* Sends all of it, blocking. False: the other side hung up. */
bool raw_peer_send(int descriptor, const void *bytes, size_t size);
/* Sends one frame; `more` follow. */
bool raw_peer_send_frame(int descriptor, bool more, const void *bytes, size_t size);
/* Waits until the other side hangs up, and reads what it sends until then. False: it has not within
 * timeout_ms. */
bool raw_peer_hung_up(int descriptor, int timeout_ms);

/* Runs body(context) in a child process, whose soft limit on descriptors is the hard one. */
pid_t raw_peer_start(void (*body)(void *context), void *context);
/* Kills the child if it still runs, and waits for it. */
void raw_peer_stop(pid_t child);

/* Bytes of memory that this process has in RAM, and descriptors that it has open. */
size_t raw_peer_resident_bytes(void);
unsigned raw_peer_descriptors(void);

#endif
