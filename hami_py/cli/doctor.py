"""``hami doctor``: does a limit hold on this machine, and if not, what must be mended?"""

import json
import sys
from dataclasses import asdict
from typing import NoReturn

import click

from hami_py import config
from hami_py.cli.checks import Check, checks


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(as_json: bool) -> NoReturn:
    """Check this machine, and prove on each card that a limit holds.

    Exit code 0 if all is well, else 1.
    """
    done: list[Check] = []
    for check in checks(config.read()):
        done.append(check)
        if not as_json:
            _print(check)
    if as_json:
        click.echo(json.dumps([asdict(check) for check in done], indent=2))
    sys.exit(0 if all(check.ok for check in done) else 1)


def _print(check: Check) -> None:
    mark = click.style("ok  ", fg="green") if check.ok else click.style("FAIL", fg="red")
    click.echo(f"{mark} {check.name}: {check.detail}")
    if check.mend:
        click.echo(f"     mend: {check.mend}")
