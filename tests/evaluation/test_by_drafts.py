"""Each way is judged by its own number of drafts; the ceiling stands beside them."""

from __future__ import annotations

from spd_lsp.evaluation.by_drafts import arms_of, summarise

COSTS = {"passes": 4, "rows": 3, "tokens": 4, "wall_ms": 10.0, "cpu_ms": 9.0}


def test_every_arm_but_the_ceiling_is_written_with_its_number():
    arms = arms_of([2, 3])
    assert [arm.family for arm in arms[3]] == ["superposed:drafts=3", "beam:drafts=3", "nucleus:drafts=3"]
    assert [arm.settings["drafts"] for arm in arms[2]] == [2, 2, 2]
    assert (arms[1][0].family, arms[20][0].family) == ("greedy:drafts=1", "oracle")


def test_each_k_counts_its_own_drafts():
    arms = arms_of([2, 5], ways=("superposed", "beam:temperature=0.8"))
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
