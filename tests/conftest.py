"""Python tests work in a temporary folder of their own. Whatever is skipped says why, for the runner."""

import pytest


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("skipped"):
        _, _, reason = report.longrepr
        name = report.nodeid.rpartition("::")[2] or "the whole file"
        terminalreporter.write_line(f"skipped test: {name}: {reason.removeprefix('Skipped: ')}")
