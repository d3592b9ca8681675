"""Points of a sweep: composed quickly, and equal to what each would be by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpc_multinode.compose import compose_config, render_config
from hpc_multinode.errors import ConfigError
from hpc_multinode.points import compose_points

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "words",
    [
        ["nodes=1,2", "work.kwargs.lr=1e-3,null", "strategy=lite"],
        ["strategy=lite,lightning", "work.kwargs.x=choice(a,'b,c')"],
        ["resources=cpu,gpu-fast", "resources.gpus_per_node=1"],
        ["resources.gpus_per_node=3", "resources=cpu,gpu-fast"],
        ["work.kwargs={a:1},{b:2}"],
        ["work.kwargs={a:1}", "work.kwargs.b=1,2"],
        ["work.kwargs.b=1,2", "work.kwargs={c:1}"],
        ["work.kwargs.m={a:1},{b:2}", "work.args=[1,2],[]"],
        ["env.X=c=d,${name}", "name=it's,0123"],
        ["resources.nodelist=node[01-03],n7", "resources.sbatch.comment=a b"],
        ["private=true,false", "launch.start_method=spawn"],
        ["launch.start_method=spawn,forkserver", "+work.kwargs.y=1"],
        ["experiment=digits,null"],
        ["nodes=2"],
    ],
)  # fmt: skip
def test_a_point_is_what_it_would_be_alone(words: list[str]) -> None:
    """Configuration and text of each point are those of a run of its own, in Hydra's order."""
    points = compose_points(words, config_dirs=[])
    assert len({point.words for point in points}) == len(points)
    fixed = [word for word in words if not any(_key(word) == _key(one) for one in points[0].words)]
    for point in points:
        rest = list(point.words)
        alone = [word if word in fixed else rest.pop(0) for word in words]
        config = compose_config(alone, config_dirs=[])
        assert point.config == config, alone
        assert point.text == render_config(config)


def _key(word: str) -> str:
    return word.partition("=")[0]


def test_the_last_word_varies_first() -> None:
    """As in Hydra."""
    points = compose_points(["nodes=1,2", "name=a", "work.kwargs.x=3,4"], config_dirs=[])
    assert [point.words for point in points] == [
        ("nodes=1", "work.kwargs.x=3"),
        ("nodes=1", "work.kwargs.x=4"),
        ("nodes=2", "work.kwargs.x=3"),
        ("nodes=2", "work.kwargs.x=4"),
    ]


def test_a_later_word_of_the_same_key_replaces_an_earlier_one() -> None:
    """Values that no point has make no points."""
    points = compose_points(["nodes=1,2", "nodes=3", "name=a", "name=b,c"], config_dirs=[])
    assert [(point.config.nodes, point.config.name, point.words) for point in points] == [
        (3, "b", ("name=b",)), (3, "c", ("name=c",)),
    ]  # fmt: skip


def test_glob_goes_through_the_files_of_a_group(tmp_path: Path) -> None:
    """The person's own files among them."""
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources/gpu-mine.yaml").write_text("gpus_per_node: 7\n")
    points = compose_points(["resources=glob(gpu-*)"], config_dirs=[tmp_path])
    assert [point.words for point in points] == [
        ("resources=gpu-fast",), ("resources=gpu-fast-multi",), ("resources=gpu-mine",),
    ]  # fmt: skip
    assert points[-1].config.resources.gpus_per_node == 7


def test_points_share_nothing() -> None:
    """What one run changes in its configuration is not in another's."""
    first, second = compose_points(["nodes=1,2"], config_dirs=[])
    first.config.work.kwargs["x"] = 1
    assert second.config.work.kwargs == {}


def test_a_scripts_own_words_are_in_every_point() -> None:
    """They come after those of the configuration, in the text as well."""
    words = ["strategy=script", "work.args=[a],[b]"]
    points = compose_points(words, config_dirs=[], script_argv=["--lr", "0.1"])
    assert [point.config.work.args for point in points] == [["a", "--lr", "0.1"], ["b", "--lr", "0.1"]]
    assert all("- --lr\n" in point.text for point in points)


@pytest.mark.parametrize(
    ("words", "what", "found"),
    [
        (["nodes=1,two"], "a value has the wrong type", "nodes"),
        (["nodez=1,2"], "unknown key 'nodez'", "nodez=1"),
        (["strategy=lite,litle"], "unknown strategy 'litle'", "strategy=litle"),
        (["nodes=1,2", "private=maybe"], "a value has the wrong type", "private"),
    ],
)
def test_a_point_that_is_wrong_is_told_as_alone(words: list[str], what: str, found: str) -> None:
    """An error of one point is an error of the sweep, in the same words."""
    with pytest.raises(ConfigError) as caught:
        compose_points(words, config_dirs=[])
    assert caught.value.what == what
    assert found in caught.value.found


def test_many_points_read_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra composes once for each choice of files, not for each point."""
    from hpc_multinode import points  # noqa: PLC0415

    composed = []
    real = points.compose_words
    monkeypatch.setattr(points, "compose_words", lambda words: composed.append(words) or real(words))
    assert len(compose_points(["strategy=lite,base", "work.kwargs.x=range(0,10)"], config_dirs=[])) == 20
    assert len(composed) == 4
