"""How the benchmark evaluates its rounds."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from rows_model import StepRounds  # noqa: E402


def test_a_variant_left_out_is_not_compared():
    """Eager had one lucky round before it was left out; the peer is the variant that all rounds measured."""
    rounds = StepRounds(ours=None, peers=None, compiles=True)
    for seconds in (1.0, 1.6, 1.7):
        rounds.passes["compiled"].add([seconds])
    rounds.passes["eager"].add([1.2])
    rounds.variants.remove("eager")
    assert rounds.best() == "compiled"


def test_the_faster_of_both_is_the_peer():
    rounds = StepRounds(ours=None, peers=None, compiles=True)
    for eager, compiled in ((1.1, 1.2), (1.0, 1.05)):
        rounds.passes["eager"].add([eager])
        rounds.passes["compiled"].add([compiled])
    assert rounds.best() == "eager"
