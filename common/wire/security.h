/* CURVE keys and who may connect (doc/connections.md#keys).
 *
 * A folder of keys holds server.key, server.pub, clients/NAME.key and clients/NAME.pub. Each is one
 * line of z85 text (40 characters); secret files have mode 0600. Consumers are CURVE servers.
 * Packers and listeners are clients with a NAME.key and server.pub. The keys in clients may
 * connect; the folder is read for every handshake. Folders and keys that other users can write to,
 * or that belong to another user, are refused with PLM_CONFIG, since who can add a key can connect.
 *
 * With CURVE but without a ZAP handler, libzmq lets every key in. plm_gate_open therefore starts
 * the handler before anything binds, and the process exits if the handler ever stops by itself.
 */
#ifndef PLM_COMMON_WIRE_SECURITY_H
#define PLM_COMMON_WIRE_SECURITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

enum { PLM_KEY_TEXT = 41 }; /* 40 characters of z85 and the NUL */

/* Writes server.key and server.pub if they are missing and, if client is not NULL, its pair in
 * clients. Folders that it makes have mode 0700. Never overwrites a key. made (may be NULL)
 * receives the number of pairs written. */
plm_status plm_keys_write(const char *directory, const char *client, int *made,
                          struct plm_error *error);

struct plm_keypair {
  char public_text[PLM_KEY_TEXT];
  char secret_text[PLM_KEY_TEXT];
};
/* The pair of server.key. */
plm_status plm_keys_server(const char *directory, struct plm_keypair *pair,
                           struct plm_error *error);
/* The client's pair and the server's public key. The pair is that of a NAME.key in the folder, else
 * of one in clients, else the server's own. Of several, those with a NAME.pub come first, then the
 * first by name. */
plm_status plm_keys_client(const char *directory, struct plm_keypair *pair,
                           char server_public[PLM_KEY_TEXT], struct plm_error *error);
/* Checks before anything starts that the keys of a client exist and can be read. PLM_CONFIG if one
 * is missing or malformed. */
plm_status plm_keys_check_client(const char *directory, struct plm_error *error);
/* Overwrites a pair, in a way that the compiler cannot optimise away. */
void plm_keypair_wipe(struct plm_keypair *pair);

/* Whether an endpoint is tcp on 127.0.0.0/8, ::1, lo or localhost, or ipc, or inproc. */
bool plm_endpoint_is_local(const char *endpoint);
/* PLM_CONFIG if an endpoint is malformed, or reaches beyond loopback without keys; the hint says
 * what to do. */
plm_status plm_endpoint_check(const char *endpoint, const char *keys, struct plm_error *error);

/* Makes a socket a CURVE server or client with the keys in a folder; does nothing if keys is NULL.
 * server_public (may be NULL) is used instead of server.pub. */
plm_status plm_socket_secure_server(void *socket, const char *keys, struct plm_error *error);
plm_status plm_socket_secure_client(void *socket, const char *keys, const char *server_public,
                                    struct plm_error *error);

/* The ZAP handler of a ZeroMQ context: a thread that decides every handshake. */
struct plm_gate;
plm_status plm_gate_open(void *context, const char *keys, struct plm_gate **gate,
                         struct plm_error *error);
/* Whether a public key may connect now. Reads the folder. */
bool plm_gate_allows(const struct plm_gate *gate, const char *public_text);
/* The folder of keys. */
const char *plm_gate_keys(const struct plm_gate *gate);
uint64_t plm_gate_refused(const struct plm_gate *gate);
/* Shuts the context down and joins the handler, after all other sockets of the context are closed.
 * The caller then terminates the context. NULL is fine. */
void plm_gate_close(struct plm_gate *gate);

#endif
