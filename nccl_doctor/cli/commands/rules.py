"""`nccl-doctor rules`: list, show, check and try rules."""

from pathlib import Path

import click

from nccl_doctor.cli import backend, table
from nccl_doctor.cli.output import emit, write_file
from nccl_doctor.cli.site import rule_folders
from nccl_doctor.common.errors import UsageProblem
from nccl_doctor.reporters.words import clean, clean_block


@click.group("rules", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and check rules. Without a subcommand: list."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_)


@command.command("list")
@click.argument("word", required=False)
@click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated.")
@click.option("--format", "form", type=click.Choice(table.FORMATS), default="table", show_default=True)
def list_(word: str | None = None, rules_dirs: tuple[str, ...] = (), form: str = "table") -> None:
    """All rules, or those whose id, name, title or group contains WORD."""
    rows = [
        (rule.id, rule.name, rule.severity, rule.role, rule.confidence, rule.group, rule.title)
        for rule in sorted(backend.load_rules(rule_folders(rules_dirs)), key=lambda rule: (rule.order, rule.id))
        if word is None or word.lower() in f"{rule.id} {rule.name} {rule.title} {rule.group}".lower()
    ]
    emit(table.render(("id", "name", "severity", "role", "confidence", "group", "title"), rows, form))


@command.command("show")
@click.argument("name")
@click.option("--rules", "rules_dirs", multiple=True, metavar="DIR", help="Further rules; may be repeated.")
def show(name: str, rules_dirs: tuple[str, ...]) -> None:
    """The file of a rule, named by id or name: its query, words and examples."""
    from nccl_doctor.rules import loader

    rule = loader.find_rule(name, rule_folders(rules_dirs))
    if rule is None:
        raise UsageProblem(f"no rule has the id or name {name} (see nccl-doctor rules list)")
    emit(rule.path.read_text("utf-8"))


@command.command("check")
@click.argument("place", metavar="FILE|DIR", type=click.Path(exists=True, path_type=Path))
def check(place: Path) -> int:
    """Load a rule file or those of a folder, run their examples and say what they lack. Status 1 when something does."""
    from nccl_doctor.app import rule_examples
    from nccl_doctor.rules import loader, schema
    from nccl_doctor.rules.folder import rule_files, shipped_folder

    files = rule_files(place)
    if not files:
        raise UsageProblem(f"no rule file (*.toml) under {place}")
    problems = []
    for path in files:
        try:
            rule = loader.read_rule(path)
        except schema.RuleProblem as problem:
            problems.append(str(problem))
            continue
        problems += [f"{path}: {text}" for text in (*schema.lint(rule), *rule_examples.problems(rule))]
    if not problems:
        ours = place.resolve().is_relative_to(shipped_folder().resolve())
        try:
            problems += loader.load_usable(() if ours else (place,)).problems
        except schema.RuleProblem as problem:  # one of ours, such as an id that two of them have
            problems.append(str(problem))
    for text in problems:
        emit(clean(text) + "\n")
    emit(f"{len(files)} rule files, {len(problems)} problems\n")
    return int(bool(problems))


@command.command("new")
@click.argument("rule", metavar="GROUP/NAME")
@click.option("--into", default=".", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), show_default=True,
              help="Folder of rules; the file becomes DIR/GROUP/NAME.toml.")  # fmt: skip
def new(rule: str, into: Path) -> None:
    """Write a rule file with everything but what only you know; those places say FILL IN."""
    from nccl_doctor.rules import loader
    from nccl_doctor.rules.new_rule import new_rule
    from nccl_doctor.rules.schema import RuleProblem

    group, _, name = rule.rpartition("/")
    if not group or "/" in group or group.startswith("."):
        raise UsageProblem(f"{rule} is not GROUP/NAME, such as network/port-event-example")
    path = into / group / f"{name}.toml"
    try:
        text = new_rule(group, name, loader.load_rules())
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except RuleProblem as problem:
        raise UsageProblem(str(problem)) from None
    except OSError as error:
        raise UsageProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
    emit(f"{path}\n")
    emit("".join(f"  line {number}: {line}\n" for number, line in enumerate(text.splitlines(), 1) if "FILL IN" in line))
    emit(f"Fill these in, then: nccl-doctor rules check {path}\n")


@command.command("format")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def format_(files: tuple[Path, ...]) -> None:
    """Write rule files in the style of ours: order of keys, quotes, one row per line. Files with comments stay as they are."""
    import tomllib

    from nccl_doctor.rules.rule_text import rule_text

    for path in files:
        backend.load_rule(path)
        old = path.read_text("utf-8")
        text = rule_text(tomllib.loads(old))
        if old.count("#") != text.count("#"):
            raise UsageProblem(f"{path} holds comments, which would be lost")
        if text != old:
            write_file(path, text.encode())
            emit(f"{path}\n")


@command.command("try")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
def try_(file: Path, logs: tuple[str, ...]) -> int:
    """Ask one rule file about logs and print its rows. Status 1 when the rule breaks."""
    from nccl_doctor.rules import engine
    from nccl_doctor.rules.templates import fill_template

    rule = backend.load_rule(file)
    facts = backend.load_facts(logs)
    answer = engine.ask(rule, facts)
    emit(clean(f"{answer.outcome}{': ' + answer.reason if answer.reason else ''}") + "\n")
    for row in answer.rows:
        message = clean_block(fill_template(rule.message, row.values))
        emit(f"\n{row.severity}, {row.role}, {row.confidence}: {message}\n")
        for place in facts.evidence_rows(row.refs[:5]):
            emit(f"  {clean(f'{place.file}:{place.line}: {place.text}')}\n")
    if len(answer.rows) < answer.total:
        emit(f"\nThese are the first {len(answer.rows):,} of {answer.total:,} rows.\n")
    return int(answer.outcome == "broken")
