/* CURVE keys and who may connect (doc/feed.md#keys).
 *
 * A folder of keys holds server.key, server.pub, clients/NAME.key and clients/NAME.pub, each one
 * line of z85 text (40 characters), the secret ones mode 0600. Consumers are CURVE servers;
 * packers and listeners are clients with a NAME.key and server.pub. The allow-list is
 * clients/[name].pub, read again for every handshake, so a removed file shuts the door at once.
 *
 * libzmq with CURVE but without a ZAP handler lets every key in. So plm_gate_open starts the
 * handler before anything binds, and the process ends if it ever stops by itself.
 */
#ifndef PLM_COMMON_WIRE_SECURITY_H
#define PLM_COMMON_WIRE_SECURITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

enum { PLM_KEY_TEXT = 41 }; /* 40 characters of z85 and the NUL */

/* Writes DIR/server.key and server.pub when they are missing, and with client clients/NAME.key
 * and .pub; never overwrites a key. made (may be NULL) counts the pairs written. */
plm_status plm_keys_write(const char *directory, const char *client, int *made,
                          struct plm_error *error);

struct plm_keypair {
  char public_text[PLM_KEY_TEXT];
  char secret_text[PLM_KEY_TEXT];
};
/* DIR/server.key. */
plm_status plm_keys_server(const char *directory, struct plm_keypair *pair,
                           struct plm_error *error);
/* The client's pair and the server's public key: from the NAME.key in DIR, else in DIR/clients
 * (the first by name whose .pub is still there), else the server's own pair on the server's host.
 */
plm_status plm_keys_client(const char *directory, struct plm_keypair *pair,
                           char server_public[PLM_KEY_TEXT], struct plm_error *error);
/* Forgets a secret so that the compiler can't leave it in memory. */
void plm_keypair_wipe(struct plm_keypair *pair);

/* tcp on 127.0.0.0/8, ::1 or localhost, ipc, inproc. */
bool plm_endpoint_is_local(const char *endpoint);
/* Beyond loopback without keys: PLM_CONFIG with the fix. Malformed: PLM_CONFIG. */
plm_status plm_endpoint_check(const char *endpoint, const char *keys, struct plm_error *error);

/* Makes a socket a CURVE server or client with keys of DIR; nothing when keys is NULL.
 * server_public (may be NULL): instead of DIR/server.pub. */
plm_status plm_socket_secure_server(void *socket, const char *keys, struct plm_error *error);
plm_status plm_socket_secure_client(void *socket, const char *keys, const char *server_public,
                                    struct plm_error *error);

/* The ZAP handler of one ZeroMQ context: a thread that answers every handshake. */
struct plm_gate;
plm_status plm_gate_open(void *context, const char *keys, struct plm_gate **gate,
                         struct plm_error *error);
/* Whether a public key may (still) be in; reads the folder. */
bool plm_gate_allows(const struct plm_gate *gate, const char *public_text);
uint64_t plm_gate_refused(const struct plm_gate *gate);
/* After every other socket of the context is closed: shuts the context down, joins the handler.
 * The caller then terminates the context. NULL is fine. */
void plm_gate_close(struct plm_gate *gate);

#endif
