"""``hami doctor``: check whether limits hold on this machine, and print how to fix problems."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import click

from hami_py import config

if TYPE_CHECKING:
    from hami_py.cli.doctor.checks import Check


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--node", is_flag=True, help="Only what gives containers of a node cards without limits."
)
@click.argument("program", metavar="[-- PROGRAM]", nargs=-1)
def doctor(as_json: bool, node: bool, program: tuple[str, ...]) -> NoReturn:
    """Check this machine, and test a limit on each card and through each symbol lookup.

    It also measures what a context takes, 20 s at most for each card model.

    With a PROGRAM: check whether a limit would hold for it. The program is not run.

    The exit code is 0 if all checks pass, else 1. A check with a "note" passes; the note describes
    a known case in which limits do not hold.
    """
    # Imported here, because the test programs and their driver take long to import.
    from hami_py.cli.doctor.checks import checks, checks_of_node, checks_of_program  # noqa: PLC0415

    if program and node:
        raise click.UsageError("--node checks no program")
    settings = config.read()
    done: list[Check] = []
    found = checks_of_program(program, settings) if program else checks(settings)
    for check in checks_of_node(settings) if node else found:
        done.append(check)
        if not as_json:
            _print(check)
    if as_json:
        click.echo(json.dumps([asdict(check) for check in done], indent=2))
    sys.exit(0 if all(check.ok for check in done) else 1)


def _print(check: "Check") -> None:
    if not check.ok:
        mark = click.style("FAIL", fg="red")
    elif check.fix:
        mark = click.style("note", fg="yellow")
    else:
        mark = click.style("ok  ", fg="green")
    click.echo(f"{mark} {check.name}: {check.detail}")
    if check.fix:
        click.echo(f"     fix: {check.fix}")
