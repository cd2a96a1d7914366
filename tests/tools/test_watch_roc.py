"""tools/watch_roc.py: the area it prints is the share of pairs in the right order."""
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import watch_roc  # noqa: E402


def test_the_area_is_the_share_of_pairs_in_order():
    rng = random.Random(1)
    for _ in range(50):
        scores = [rng.randrange(6) for _ in range(30)]
        positive = [True, False] + [rng.random() < 0.3 for _ in range(28)]
        pairs = [(p > n) + 0.5 * (p == n) for p, y in zip(scores, positive) if y for n, z in zip(scores, positive) if not z]
        assert watch_roc.area(scores, positive) == pytest.approx(sum(pairs) / len(pairs))


def result(offset, score, seen, alarm=False):
    return {"offset": offset, "score": score, "seen": seen, "alarm": alarm, "bits_per_byte": 1, "surprise": 1, "words": 1}


def test_positive_are_the_labelled_offsets_and_events_are_no_lines():
    labels = {"log": "x", "faults": [{"first": [10, 20], "begin": 10, "end": 35}, {"first": [40], "begin": 38, "end": 50}]}
    results = [result(0, 1, 0), {"event": "rotated", "offset": 5}, result(10, 9, 0, True), result(20, 8, 1),
               result(30, 2, 9, True), result(35, 7, 0, True), result(40, 1, 9)]
    found = watch_roc.measure(labels, results)
    assert found["lines"] == 6 and found["positive"] == 3
    assert found["auc"]["watch score"] == pytest.approx((3 + 3 + 0.5) / 9)
    assert found["alarms"] == 3 and found["alarms on labelled lines"] == 1 and found["faults alarmed"] == 1
    assert [r["offset"] for r in found["outside"]] == [35]


def test_results_of_another_log_are_refused():
    with pytest.raises(SystemExit):
        watch_roc.measure({"log": "x", "faults": [{"first": [7]}]}, [result(0, 1, 0)])
