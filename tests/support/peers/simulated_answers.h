/* What simulated packers answer: between simulated_network.c and simulated_answers.c. */
#ifndef PLM_TESTS_SUPPORT_PEERS_SIMULATED_ANSWERS_H
#define PLM_TESTS_SUPPORT_PEERS_SIMULATED_ANSWERS_H

#include "tests/support/peers/simulated_network.h"

/* Draws the corpus of a world. */
void sim_draw_corpus(struct sim_world *world);
/* Answers PROVE or GET, whose payload is `question`; or refuses, lies, or says nothing. */
void sim_answer_prove(struct sim_world *world, struct sim_packer *packer,
                      const struct plm_header *asked, const uint8_t *question,
                      size_t question_size);
void sim_answer_get(struct sim_world *world, struct sim_packer *packer,
                    const struct plm_header *asked, const uint8_t *question, size_t question_size);

bool sim_chance(struct sim_world *world, uint32_t percent);
/* Sends the consumer a message, after_ms from now. */
void sim_say(struct sim_world *world, const struct sim_packer *packer,
             const struct plm_header *header, int64_t after_ms, const void *payload, size_t size);

#endif
