"""Trust in code: which code of the user's may be imported because a file names it.

An experiment may name a model, a method, a task or a loss as ``package.module:name``, which is imported and so runs
code. What the user names in this process is imported: in an experiment or bench file, or on the command line. A run
directory may come from elsewhere, so the code that its config.toml names is imported only if the user named it too, or
trusts all of it.
"""

from fupareto.errors import UserError

_named: set[str] = set()
_all = False


def forget() -> None:
    """Trust nothing, as at the start of a process."""
    global _all
    _all = False
    _named.clear()


def everything() -> None:
    """Trust all code that run directories name."""
    global _all
    _all = True


def name(*names: str | None) -> None:
    """Trust code that the user has named, such as ``my_models:net``."""
    _named.update(n for n in names if n)


def check(named: str, what: str, where: object) -> None:
    """Raise UserError for code that only a run directory names.

    Args:
        named: ``package.module:name``.
        what: Kind of the code: model, method or task.
        where: File that names it.
    """
    if not _all and named not in _named:
        raise UserError(
            f"{where} names the {what} {named!r}, which is code that would be imported and run. If you trust it, "
            "repeat the command with --trust-code"
        )
