"""What all commands share: exit codes, errors in one line, names of methods and their completion in the shell."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from .drafts import WHY, error_number
from .errors import OutputError
from .signals import stopped_by
from .usage import in_words

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "LACKING",
    "PIPE_CLOSED",
    "TERMINATED",
    "USER_ERROR",
    "WORKER_LOST",
    "Debug",
    "Method",
    "OneLineErrors",
    "check_jobs",
    "completing",
    "counts",
    "dataset_names",
    "judged",
    "names",
    "parts",
    "stderr",
    "tell",
    "user_errors",
]

# Exit codes, see docs/errors.md. LACKING: the machine lacks room, permission or memory.
FAILED, USER_ERROR, WORKER_LOST, LACKING = 1, 2, 3, 4
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143  # 128 and the number of the signal, as shells have it

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class Method(StrEnum):
    """Selectors by their short names."""

    predictive = "predictive"
    dirichlet = "dirichlet"
    ls = "ls"
    rsr = "rsr"
    udfs = "udfs"
    cae = "cae"
    dufs = "dufs"
    wast = "wast"
    aefs = "aefs"
    fsca = "fsca"
    fastcan = "fastcan"
    mcfs = "mcfs"
    ipcae = "ipcae"
    variance = "variance"
    medoids = "medoids"
    random = "random"
    all = "all"


class OneLineErrors(TyperGroup):
    """All commands: mistakes in their options are told in one line as other errors are, not in Typer's box."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options that stand before the command."""
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:
            _tell_usage(error, "homophily")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Read the options of the command, and run it."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            _tell_usage(error, f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip())
            raise


def _tell_usage(error: Exception, command: str) -> None:
    """End with one line if ``error`` is about the options of ``command``, or of one of its own."""
    # By name: older versions of Typer have click's classes. Without arguments, the help is shown by such an error.
    if _named(error, "UsageError") and not _named(error, "NoArgsIsHelpError"):
        mistake = ValueError(in_words(error, command))
        mistake.__cause__ = error
        raise typer.Exit(tell(mistake, debug="--debug" in sys.argv)) from error


@contextmanager
def user_errors(debug: bool, stopped: str = "nothing was written") -> Iterator[None]:
    """Turn whatever goes wrong into one line and the exit code that is meant for it, see docs/errors.md.

    Parameters
    ----------
    debug : bool
        Show the traceback before that line.
    stopped : str
        What Ctrl-C leaves behind.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error, typer.Abort) and isinstance(error.__context__, EOFError):
            stderr().print("[red]Error:[/] There is nobody to answer; give the answer as an option.")
            raise typer.Exit(USER_ERROR) from error
        stderr().print(f"Stopped{stopped_by()}; {escape(str(error)) or stopped}.")
        raise typer.Exit(INTERRUPTED) from None
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich found it out and wants to end with 1
            raise typer.Exit(PIPE_CLOSED) from error
        raise
    except Exception as error:
        raise typer.Exit(tell(error, debug=debug)) from error


def tell(error: Exception, *, debug: bool = False) -> int:
    """Print what is to be said of ``error`` on standard error; the exit code."""
    code, message = judged(error)
    with suppress(OSError):  # nobody listens
        if debug:
            sys.stderr.write("".join(traceback.format_exception(error)))
        if message:
            stderr().print(f"[red]Error:[/] {escape(_in_one_line(_in_options(message)))}")
    _give_up_closed_streams()
    return code


def judged(error: BaseException) -> tuple[int, str]:
    """Exit code of a command that ends with ``error``, and what to say."""
    if isinstance(error, BrokenPipeError):  # as "| head" leaves it: no mistake, and nothing to say
        return PIPE_CLOSED, ""
    if isinstance(error, ChildProcessError) or _named(error, "WorkerLostError"):
        return WORKER_LOST, str(error)
    lack = _lack(error)
    if lack is not None:
        return LACKING, lack
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return USER_ERROR, f"{error.filename}: {error.strerror}."
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return USER_ERROR, str(error) or type(error).__name__
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return FAILED, (
        f"homophily failed and should not have: {what.rstrip('.')}. This is a bug. Please report it with what "
        "'homophily doctor --json' and the same command with --debug print."
    )


def _lack(error: BaseException) -> str | None:
    """What the machine lacks, if that is the reason, and what to do."""
    if isinstance(error, OutputError) or _named(error, "MemoryLimitError"):
        return str(error)
    # By name and text: torch is not imported here, and what its allocator for processors raises has no class.
    full = isinstance(error, RuntimeError) and re.search(r"can't allocate memory|not enough memory", str(error))
    if isinstance(error, MemoryError) or _named(error, "OutOfMemoryError") or full:
        tried = re.search(r"\w(ried|nable) to allocate [\d.,]+ ?\w+", str(error))
        detail = f" ({tried[0][0].lower()}{tried[0][1:]})" if tried else ""
        return (
            f"Memory ran out{detail}. Use fewer jobs (-j) or smaller data; select reads npy, parquet and h5ad files of "
            "many rows in parts."
        )
    if not isinstance(error, OSError):
        return None
    number = error_number(error)
    if number in (errno.EACCES, errno.EPERM):  # to read: what we write raises an OutputError
        return None
    if number in WHY:
        what = error.filename or "Standard output, or a temporary file,"
        return f"{what} cannot be written: {WHY[number]}."
    if number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}. This is a limit or a fault of the machine; try again with fewer jobs (-j)."
    return None


def _named(error: BaseException, name: str) -> bool:
    """Whether ``error`` is of the class ``name``, of a module that may not be imported here."""
    return any(cls.__name__ == name for cls in type(error).__mro__)


def _in_one_line(text: str) -> str:
    """``text`` without line ends, and without signs that a terminal would obey."""
    flat = re.sub(r"\s*[\n\t]\s*", " ", text.strip())
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in flat)


def _give_up_closed_streams() -> None:
    """Let nothing be written any more to streams that do not take it; Python would try, and complain, at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def check_jobs(jobs: int | None, workers: str = "processes") -> None:
    """Refuse ``--jobs 0``."""
    if jobs == 0:
        raise typer.BadParameter(
            f"--jobs 0: 0 {workers} cannot do anything; give a number of {workers}, or -1 for one a core."
        )


def parts(text: str) -> list[str]:
    """What commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def names(text: str | None, option: str) -> list[str] | None:
    """What commas separate in the value of an option, if it was given."""
    if text is None:
        return None
    found = parts(text)
    if not found:
        raise ValueError(f"{option} {text!r}: expected names separated by commas.")
    return found


def completing(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What the shell offers for an option that takes one of the ``known`` names, or several separated by commas."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        rest = (name for name in map(str, known()) if name not in parts(done))
        return [f"{done}{comma}{name}" for name in rest if name.startswith(last)]

    return complete


def dataset_names() -> Iterable[str]:
    """The paper's data sets."""
    from .datasets import PAPER_DATASETS

    return PAPER_DATASETS


def counts(text: str) -> list[int]:
    """The numbers of ``25,50``."""
    numbers = parts(text)
    if not numbers or not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
        raise ValueError(f"-m {text!r}: expected numbers of features separated by commas, such as 25,50.")
    return [int(number) for number in numbers]


def _in_options(message: str) -> str:
    """Speak of options where the library speaks of its parameters."""
    for parameter, option in (
        ("n_features_to_select=", "-m "),
        ("n_neighbors=", "-k "),
        ("n_anchors=", "--n-anchors "),
        ("final_graph=", "--final-graph "),
        ("test_size=", "--test-size "),
        ("device=", "--device "),
    ):
        message = message.replace(parameter, option)
    return message


def stderr() -> Console:
    """Where messages go, so that results can be piped."""
    return Console(stderr=True, soft_wrap=True, highlight=False)
