"""Each way is judged by its own number of drafts; the ceiling stands beside them."""

from __future__ import annotations

from spd_lsp.evaluation.by_drafts import arms_of, summarise

COSTS = {"passes": 4, "rows": 3, "tokens": 4, "wall_ms": 10.0, "cpu_ms": 9.0}


def test_arms_of_the_usual_number_are_those_of_other_comparisons():
    arms = arms_of([2, 3], usual=3)
    assert [arm.family for arm in arms[3]] == ["superposed", "beam", "nucleus"]
    assert [arm.settings["drafts"] for arm in arms[2]] == [2, 2, 2]
    assert (arms[1][0].family, arms[20][0].family) == ("greedy", "oracle")


def test_each_k_counts_its_own_drafts():
    arms = arms_of([2, 5], usual=3, ways=("superposed", "beam:temperature=0.8"))
    drafts = {"superposed:drafts=2": ["a", "b"], "superposed:drafts=5": list("abcdx"), "oracle": [*"abcdefgx"]}
    records = [
        {
            "key": str(n),
            "place": {"package": f"p{n}", "file": "f.py", "target": "x", "stratum": "line start"},
            "seen": "new",
            "arms": {
                arm.label: {"drafts": drafts.get(arm.family, ["y"]), **COSTS}
                for one in arms.values()
                for arm in one
            },
        }
        for n in range(3)
    ]
    found = summarise(records, arms, {}).data
    assert found["superposed"][2]["EM@k"] == 0
    assert found["superposed"][5]["EM@k"] == 1
    assert found["superposed"][5]["distinct@k"] == 1
    assert found["oracle"][20]["EM@k"] == 1
    assert found["beam:temperature=0.8"][2]["EM@k"] == 0
