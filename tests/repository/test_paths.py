"""Files, folders, make targets and rule groups that documents and workflows name are there."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from helpers.places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")])
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(set((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})
TOP = "|".join(re.escape(path.name) for path in ROOT.iterdir() if path.is_dir() and path.name not in (".git", ".venv"))
NAMED = re.compile(rf"(?<![\w./~-])(?:{TOP})/[\w./*-]*")
MADE = ("build/", "dist/", "nccl_doctor/rules/data", "nccl_doctor/common/compiled")  # written by a build
EXAMPLE = "port-event-example"  # the rule that CONTRIBUTING lets the reader write


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return {word for line in re.findall(r"^([a-z][a-z0-9_ -]*):", text, re.M) for word in line.split()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_documents_exist(page: Path) -> None:
    named = {path.rstrip(".") for path in NAMED.findall(page.read_text("utf-8"))}
    gone = [path for path in named if not path.startswith(MADE) and EXAMPLE not in path and not any(ROOT.glob(path))]
    assert [] == sorted(gone)


@pytest.mark.parametrize("page", [*PAGES, *WORKFLOWS], ids=lambda page: page.name)
def test_make_targets_in_documents_and_workflows_exist(page: Path) -> None:
    lines = re.findall(r"(?:`|^|run: )make ((?:[a-z][a-z0-9_-]* ?)+)", page.read_text("utf-8"), re.M)
    assert set() == {word for line in lines for word in line.split()} - targets()


def test_contributing_names_every_group_of_rules() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    groups = {path.name for path in (ROOT / "rules").iterdir() if path.is_dir()}
    named = set(re.findall(r"^\| `([a-z-]+)` \|", text[text.index("## Groups of rules") :], re.M))
    assert groups == named


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_get_only_what_they_name_and_actions_are_pinned(path: Path) -> None:
    text = path.read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert {} == workflow["permissions"]
    assert all("permissions" in job for job in workflow["jobs"].values())
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert [] == [action for action in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)]


def test_the_workflow_tests_every_python_that_the_package_supports() -> None:
    versions = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))
    matrix = versions["jobs"]["tests"]["strategy"]["matrix"]
    least = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    assert ["3.11", "3.12", "3.13", "3.14"] == matrix["python"]
    assert f">={matrix['python'][0]}" == least
    assert all((ROOT / "tests" / "helpers" / "without" / package).is_dir() for package in matrix["without"] if package)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_issue_form_asks_for_files_and_says_which(form: Path) -> None:
    fields = {field.get("id"): field for field in yaml.safe_load(form.read_text("utf-8"))["body"]}
    asked = fields["lines"] if "lines" in fields else fields["files"]
    assert asked["validations"]["required"]
    assert len(asked["attributes"]["description"]) > 60


def test_the_constraints_hold_every_package_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {
        re.split(r"[^\w-]", line)[0].lower()
        for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    }
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.M))
    assert set() == wanted - pinned


def test_the_citation_names_the_licence_and_leaves_the_version_to_the_tags() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert ("Apache-2.0", None) == (citation["license"], citation.get("version"))


def test_make_prints_what_it_can_do() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {line.split()[1] for line in done.stdout.splitlines()} <= targets()
    assert "make test " in done.stdout
