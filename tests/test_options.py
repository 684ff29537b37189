"""Options are declared once: flag, YAML field, documentation and error come from one place."""

import ast
from dataclasses import dataclass

import pytest
import yaml

from bcnn.cli.train import EXTRACT
from bcnn.finetune.config import FinetuneConfig, FinetuneSession
from bcnn.options import Names, check, declared_by, option, without_need
from bcnn.runs.config import HOW, OPTIONS, RunConfig, from_options, from_plain, to_plain
from tests.command import run_command

ALL = {**OPTIONS, **declared_by(FinetuneSession)}
NEED = [declared for declared in ALL.values() if declared.needs]
REGISTRIES = {name: declared.choices for name, declared in ALL.items() if isinstance(declared.choices, Names)}


@dataclass(frozen=True)
class Cake:
    layers: int = option(3, at_least=1, help="How many layers it has.")
    sugar: float = option(0.2, above=0, below=1, help="The share of sugar.")
    glaze: str | None = option(None, choices=("lemon", "chocolate"), show_default="none", help="What is on top.")
    fruits: tuple[str, ...] = option((), commas=True, help="What is inside.")
    eggs: bool = option(True, help="Whether there are eggs in it.")
    oven: str | None = option("gas", none="cold", needs="eggs", help="What bakes it.")

    def __post_init__(self) -> None:
        check(self, "cake")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": 0}, r"cake: expected layers >= 1, got 0; the default is 3\."),
        ({"layers": 2.5}, r"cake: expected layers to be a whole number, got 2\.5"),
        ({"layers": True}, "to be a whole number, got True"),
        ({"layers": None}, "to be a whole number, got None"),
        ({"sugar": "sweet"}, r"expected sugar to be a number, got 'sweet'; the default is 0\.2\."),
        ({"sugar": 1.0}, r"expected sugar > 0 and < 1, got 1\.0"),
        ({"sugar": float("nan")}, "expected sugar to be a finite number, got nan"),
        ({"glaze": "lemmon"}, r"cake: unknown glaze 'lemmon'; did you mean 'lemon'\? Available: lemon, chocolate\."),
        ({"fruits": "apple"}, "expected fruits to be a list, got 'apple'"),
        ({"fruits": (1,)}, "expected fruits to be text, got 1"),
        ({"eggs": 1}, "expected eggs to be true or false, got 1; the default is on"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Cake(**values)


def test_values_that_fit():
    assert Cake(layers=1, sugar=0.5, glaze="lemon", fruits=("apple", "pear"), eggs=False, oven=None).layers == 1
    assert Cake().glaze is None


def test_a_declaration_with_a_wrong_word_fails_at_once():
    with pytest.raises(TypeError, match="at_leest"):
        option(3, at_leest=1, help="How many.")


@pytest.mark.parametrize(
    ("name", "plain", "value"),
    [
        ("layers", "2", 2), ("layers", 2, 2), ("sugar", "1e-3", 0.001), ("glaze", 2011, "2011"), ("glaze", None, None),
        ("fruits", "apple, pear", ("apple", "pear")), ("fruits", ["apple"], ("apple",)), ("fruits", None, ()),
        ("eggs", False, False), ("oven", "cold", None), ("layers", "two", "two"),
    ],
)  # fmt: skip
def test_plain_values(name, plain, value):
    assert declared_by(Cake)[name].read(plain) == value


def test_plain_values_are_written_as_they_are_read():
    for name, value in {"fruits": ("apple",), "oven": None, "layers": 2, "eggs": False}.items():
        declared = declared_by(Cake)[name]
        assert declared.read(declared.write(value)) == value


def test_what_an_option_needs():
    options = declared_by(Cake)
    assert without_need({"oven": "gas", "eggs": True}, options) is None
    assert without_need({"layers": 2}, options) is None
    assert without_need({"oven": None}, options) is None
    assert without_need({"oven": "gas"}, options) is options["oven"]
    assert without_need({"oven": "gas", "eggs": False}, options) is options["oven"]


# --- the options of a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRIES)
def test_help_names_what_the_registry_holds(name):
    """Help reads the source, so as not to import torch; the check reads the registry."""
    assert REGISTRIES[name].names_in_source() == REGISTRIES[name].names()


def test_other_registries_and_none():
    assert Names("models.weights", "WEIGHTS").names_in_source() == Names("models.weights", "WEIGHTS").names()
    assert Names("finetune.recipes", "RECIPES").names_in_source() == ("ours", "paper")  # within a call
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        Names("pooling.head", "PRESENTS").names_in_source()


@pytest.mark.parametrize("declared", ALL.values(), ids=lambda declared: declared.name)
def test_every_option_is_explained_in_sentences(declared):
    assert declared.help[0].isupper()
    assert declared.help.endswith(".")
    assert declared.default_text or declared.argument
    if declared.default is not ... and declared.name != "finetune":
        declared.check(declared.default, "default")
    if declared.needs:
        assert declared.needs in ALL


def test_every_option_is_a_flag_with_its_help():
    words = set(run_command("train", "--help").stdout.replace("│", " ").split())
    assert {declared.flag for declared in ALL.values() if not declared.argument} - words <= {
        "--checkpoint-minutes", "--checkpoint-activations",  # cut short in a narrow terminal
    }  # fmt: skip
    words = set(run_command("extract", "--help").stdout.split())
    assert {declared.flag for declared in EXTRACT.values() if not declared.argument} <= words
    assert not {"--classifier", "--finetune", "--descriptors"} & words


def typed(declared) -> list[str]:
    """The flag with a value that is all right."""
    if declared.kind is bool:
        return [declared.off_flag or declared.flag]
    if declared.choices:
        names = declared.choices.names() if isinstance(declared.choices, Names) else declared.choices
        return [declared.flag, names[0]]
    example = {"lr_scale": "scorer=2", "decay_scale": "scorer=2"}.get(declared.name, "0.5")
    return [declared.flag, "2" if declared.kind is int else example]


def test_most_options_of_fine_tuning_need_it():
    expected = len(declared_by(FinetuneConfig)) + len(declared_by(FinetuneSession))
    assert sum(declared.needs == "finetune" for declared in NEED) == expected


@pytest.mark.parametrize("declared", NEED, ids=lambda declared: declared.name)
def test_an_option_without_what_it_needs_is_refused_in_a_line(declared, tmp_path):
    result = run_command("train", "textures", *typed(declared))
    assert result.returncode == 2
    flag = typed(declared)[0]
    assert result.stderr == f"bcnn: train: {flag} needs --{declared.needs}; give both, or leave {flag} out.\n"

    path = tmp_path / "mine.yaml"
    word = typed(declared)[-1]
    value = not declared.default if declared.kind is bool else yaml.safe_load(word)
    path.write_text(yaml.safe_dump({"spec": "textures", declared.name: value}))
    result = run_command("train", "--config", path)
    assert result.returncode == 2
    assert f"{path}: {declared.name} needs {declared.needs}" in result.stderr
    with pytest.raises(ValueError, match=f"{declared.name} needs {declared.needs}"):
        from_options({"spec": "textures", declared.name: value})


def stop() -> None:
    raise ValueError("far enough")


def test_what_goes_before_what(tmp_path, monkeypatch):
    """Typed, then a recipe that is typed, then YAML, then a recipe in YAML, then the default."""
    seen = []
    monkeypatch.setattr("bcnn.cli.train._run", lambda chosen, place, resume: seen.append(chosen.finetune) or stop())
    path = tmp_path / "mine.yaml"
    path.write_text("spec: textures\nfinetune: true\nrecipe: paper\nepochs: 7\nmomentum: 0.5\nlr: 1e-2\nclip: 3\n")
    run_command("train", "--config", path, "--momentum", "0.7")
    run_command("train", "--config", path, "--momentum", "0.7", "--recipe", "paper")
    first, second = seen
    assert (first.momentum, first.epochs, first.lr, first.clip) == (0.7, 7, 0.01, 3)
    assert (first.batch_size, first.step_epochs) == (64, 30)  # the recipe's, the default
    assert (second.momentum, second.epochs, second.lr, second.clip) == (0.7, 100, 0.001, 3)


def test_a_file_may_spell_an_option_like_its_flag(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("bcnn.cli.train._run", lambda chosen, place, resume: seen.append(chosen) or stop())
    path = tmp_path / "mine.yaml"
    path.write_text(
        "spec: 2011\nfinetune: true\ninit-C: 3\nc: 2\npreset: [bcnn, o2p]\nweights: none\nlr-scale: conv1=2\n"
    )
    run_command("train", "--config", path, "--out", tmp_path / "run")
    (config,) = seen
    assert (config.spec, config.finetune.init_c, config.C, config.weights) == ("2011", 3, 2, None)
    assert (config.preset, config.finetune.lr_scale) == (("bcnn", "o2p"), ("conv1=2",))


# --- files ------------------------------------------------------------------------------------------------------------


def test_parts_at_their_defaults_leave_files_as_they_were():
    config = RunConfig("textures")
    assert not {"pooling", "front", "scorer"} & {*to_plain(config), *config.result_part()}
    old = {"spec": "textures", "preset": ["improved_bcnn"], "backbone": "vgg16", "weights": "default", "flips": True}
    assert from_plain(old) == config
    assert from_plain(to_plain(config)) == config


def test_parts_that_are_asked_for_are_part_of_the_result():
    config = RunConfig("textures", pooling="bilinear(eps=1, eps_scale=absolute)")
    assert config.result_part()["pooling"] == config.pooling
    assert from_plain(to_plain(config)) == config
    with pytest.raises(ValueError, match=r"expected a pooling such as 'bilinear\(eps=0.001\)', got 'bilinear\('"):
        RunConfig("textures", pooling="bilinear(")
    with pytest.raises(ValueError, match="expected a scorer such as 'linear'"):
        RunConfig("textures", scorer="")
    with pytest.raises(ValueError, match="unknown front 'sta'; did you mean 'stn'"):
        RunConfig("textures", front="sta")


def test_what_changes_the_way_and_not_the_result():
    assert HOW == ("spec", "batch", "workers", "strict", "device", "engine", "descriptors")


def test_declarations_import_nothing_heavy():
    import bcnn.options as module

    with open(module.__file__) as file:
        tree = ast.parse(file.read())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level}
    assert imported == {"errors"}


def test_a_part_in_another_spelling_is_the_same_run():
    one = RunConfig("textures", pooling="bilinear(eps=1, eps_scale=absolute)", normalize=("matrix_power(0.3)", "l2"))
    other = RunConfig("textures", pooling="bilinear(1.0,'absolute')", normalize=("matrix_power(p=0.3)", "l2()"))
    assert one == other
    assert RunConfig("textures", scorer="linear()") == RunConfig("textures")
    none = RunConfig("textures", normalize=())
    assert to_plain(none)["normalize"] == ["none"]
    assert from_plain(to_plain(none)).head("improved_bcnn").normalize == ()
    with pytest.raises(ValueError, match="unknown normalization 'foo'"):
        RunConfig("textures", normalize=("foo",))


def test_everything_that_makes_a_head_can_be_said_on_the_command_line():
    from bcnn.pooling.head import HeadConfig

    layout = {"layout"}  # of the features, which the network decides
    assert set(HeadConfig.__dataclass_fields__) - layout <= set(declared_by(RunConfig))


def test_rows_of_comparisons_are_not_named_by_how_the_work_is_done():
    from bcnn.finetune.config import HOW as FINETUNE_HOW
    from bcnn.report.finetune import _UNNAMED

    assert {*HOW, *FINETUNE_HOW} - {"out"} <= _UNNAMED
