/* MinHash sketches of sequences (Broder 1997), to estimate how many words of k letters two
 * sequences share.
 *
 * A word's hash is a function of its letters. A sketch is the PLM_SKETCH_SIZE smallest distinct
 * hashes of a sequence's words, or all if there are fewer. The Jaccard index of the words of two
 * sequences, J = common words / all words, is estimated from the n smallest hashes of both sketches
 * together, n = PLM_SKETCH_SIZE or fewer: as the share of them that is in both. Its standard error
 * is sqrt(J (1 - J) / n), at most 0.045; it is exact if both sketches have all words.
 *
 * The identity of two sequences of the same length that differ only by substitutions at random
 * places is estimated as (2 J / (1 + J))^(1/k): a word is common if none of its k letters differs
 * (the Mash distance of Ondov et al., "Mash: fast genome and metagenome distance estimation using
 * MinHash", Genome Biology 17 (2016), without its approximation by a logarithm). */
#ifndef PLM_STAGES_OVERLAP_KMER_SKETCH_H
#define PLM_STAGES_OVERLAP_KMER_SKETCH_H

#include <stddef.h>
#include <stdint.h>

enum { PLM_SKETCH_KMER = 5, PLM_SKETCH_SIZE = 128 };

struct plm_kmer_sketch {
  uint32_t count;
  uint32_t hashes[PLM_SKETCH_SIZE]; /* (count) ascending */
};

/* A sequence of fewer than PLM_SKETCH_KMER letters has an empty sketch. */
void plm_kmer_sketch(const uint8_t *letters, size_t length, struct plm_kmer_sketch *sketch);

/* The estimate of J; 0 if either sketch is empty. */
double plm_kmer_jaccard(const struct plm_kmer_sketch *a, const struct plm_kmer_sketch *b);

/* The identity that belongs to J, and the reverse. */
double plm_kmer_sequence_identity(double jaccard);
double plm_kmer_jaccard_at(double sequence_identity);

#endif
