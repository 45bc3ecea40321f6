"""ESM-2 by esm-cpp, a process of its own: it needs another numpy than the PyTorch peers.

peer_esm_cpp.py WEIGHTS SEQUENCES.JSON PRECISION answers each line "VERB COUNT" on stdin with a line of JSON.
The number of threads is in ESM_NUM_THREADS. SEQUENCES.JSON has `sequences`, the last of which is the protein
that is scored, and `places`, its positions that are masked in turn. PRECISION is fp32 or int8. Embeddings are
computed in the faster of two ways: all hidden states of one sequence at a time, or logits of sequences that
are packed, which is more work than was asked for."""

import importlib.metadata
import json
import os
import sys
import time

import esm_cpp
import numpy

TOKENS = 4096  # of a packed batch; other sizes were not faster


def seconds_of(function, count):
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return seconds


class Peer:
    def __init__(self, weights, path, precision):
        with open(path) as file:
            work = json.load(file)
        self.model = esm_cpp.Model.load_from_safetensors(weights)
        if precision == "int8":
            self.model.quantize_weights()
        tokenizer = esm_cpp.Tokenizer()
        *self.sequences, self.protein = [
            numpy.array(tokenizer.encode(text), numpy.int32) for text in work["sequences"]
        ]
        self.sequences.sort(key=len, reverse=True)
        self.places, self.mask = work["places"], tokenizer.mask_id

    def states(self):
        """Mean embeddings from the hidden states."""
        return [
            self.model.forward_with_hidden_states(ids)[1][-1][1:-1].mean(0)
            for ids in self.sequences
        ]

    def packed(self):
        """The sequences' logits."""
        return self._packed(self.sequences)

    def score(self):
        """The logits at the masked positions."""
        copies = []
        for place in self.places:
            copies.append(self.protein.copy())
            copies[-1][place + 1] = self.mask
        logits = self._packed(copies)
        return [
            rows[place + 1] - numpy.logaddexp.reduce(rows[place + 1])
            for rows, place in zip(logits, self.places, strict=True)
        ]

    def _packed(self, sequences):
        out, at = [], 0
        while at < len(sequences):
            count = max(1, TOKENS // len(sequences[at]))
            out += self.model.forward_batch(sequences[at : at + count])
            at += count
        return out


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may print to stdout, which is for answers only
    peer = Peer(*sys.argv[1:])
    version = importlib.metadata.version("esm-cpp")
    print(json.dumps({"esm-cpp": version}), file=answers, flush=True)
    for line in sys.stdin:
        verb, count = line.split()
        try:
            answer = {"seconds": seconds_of(getattr(peer, verb), int(count))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
