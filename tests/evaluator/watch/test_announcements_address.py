"""`network.announcements_address`: the evaluator connects there, and not where the trainer has bound."""

import socket
import subprocess

from plm_testing import BIN, small_config, small_corpus


def test_the_evaluator_connects_to_the_configured_address():
    small_corpus()
    small_config("transformer")
    with socket.create_server(("127.0.0.1", 0)) as announcements:
        address = f"tcp://127.0.0.1:{announcements.getsockname()[1]}"
        evaluator = subprocess.Popen(
            [
                *(BIN / "plm-evaluator", "-c", "pipeline.yaml"),
                *("--set", f"network.announcements_address={address}"),
            ]
        )
        try:
            announcements.settimeout(300)
            connection, _ = announcements.accept()
            connection.close()
        finally:
            evaluator.terminate()
            assert evaluator.wait() == 143
