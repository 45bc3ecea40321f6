/* What a link's consumer asks for: GET waits in link->pending and PROVE at the window store, until
 * packer_link_serve and packer_link_proof answer with DATA, PROOF or NACK. */
#ifndef PLM_PACKER_LINK_REQUESTS_H
#define PLM_PACKER_LINK_REQUESTS_H

#include "packer/packer_link.h"

/* A header for a message of this type to the link's consumer, without a payload. */
struct plm_header packer_link_header(const struct packer_link *link, enum plm_message_type type);

/* Take a GET or a PROVE. What breaks the protocol is counted, and what cannot be done is answered
 * with NACK. */
void link_requests_get(struct packer_link *link, const struct plm_message *message, int64_t now);
void link_requests_prove(struct packer_link *link, struct packer_context *context,
                         const struct plm_message *message);

#endif
