"""Whatever the description of the API allows, and what it does not: no answer is a 5xx, and each is of a described kind.

BALLAST_EXAMPLES (200): requests per route, beside those that try each limit once."""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from serve_process import Server  # noqa: E402

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_no_request_is_answered_with_5xx(tmp_path):
    server = Server("-c", 128, "-n", 4, "-t", 1, "--sessions-dir", tmp_path / "state")
    # The live view of a session's cache does not end by itself.
    done = subprocess.run(
        ["schemathesis", "run", server.url + "/openapi.json", "--checks", CHECKS, "--seed", "1",
         "--max-examples", os.environ.get("BALLAST_EXAMPLES", "200"), "--exclude-path", "/v1/sessions/{id}/cache",
         "--request-timeout", "600", "--no-color",
         "--suppress-health-check", "all", "--continue-on-failure"], cwd=tmp_path)
    _, _, metrics = server.ask("GET", "/metrics")
    answered = re.findall(r'^ballast_http_requests_total\{(.*status="(\d+)".*)\} (\d+)$', metrics.decode(), re.M)
    print(sum(int(n) for _, _, n in answered), "requests:", {s: sum(int(n) for _, t, n in answered if t == s)
                                                             for s in sorted({s for _, s, _ in answered})})
    # /health says 503 while the model is loaded; what it says to Schemathesis is in the exit code.
    assert [labels for labels, status, _ in answered if status[0] == "5" and "/health" not in labels] == []
    assert done.returncode == 0
    assert server.stop() == 0
